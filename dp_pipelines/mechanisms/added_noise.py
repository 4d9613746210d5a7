"""Noise on sums: exact integers, rounded to the lattice of the release, plus an integer law (docs/proofs/noise.md).

In: exact totals, a calibrated statistic. Out: noisy values and their standard deviation; a Gaussian or a Laplace record.
Holds: one unit moves the rounded integers by `Calibration.moved` at most (docs/proofs/sensitivity.md, 4).
"""

from fractions import Fraction

import numpy as np

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.kernels.lattice import Floats, Integers
from dp_pipelines.kernels.sensitivity import LatticeSteps, Shape
from dp_pipelines.kernels.statistics import WEIGHT_BITS
from dp_pipelines.mechanisms.mechanism import Calibration, Exact, Mechanism, Noise
from dp_pipelines.mechanisms.permits import Permit
from dp_pipelines.metrics.base import Noisy
from dp_pipelines.selection import thresholds


class AddedNoise(Mechanism):
    """Noise of either law on one integer, or on a list of integers, for each partition."""

    def record(self, stage: str, name: str, calibration: Calibration) -> MechanismRecord:
        return noise_record(stage, name, calibration.law, calibration.noise.law.scale, calibration.moved)

    def draw(self, calibration: Calibration, exact: Exact, permit: Permit) -> Noisy:
        noise = calibration.noise
        if exact.noisy is None:
            lists = exact.lists(shift=noise.fine_bits, step=noise.step)
            noisy_steps = permit.add_noise(lists, noise.law, exact.partitions)
        else:
            noisy_steps = exact.noisy[exact.partitions]
        return Noisy(values=published_values(noisy_steps, noise), stddev=noise.stddev)


class WeightedCount(AddedNoise):
    """Noise on the weights of units, for selection alone: a unit's weights have an L2 norm of one over its partitions."""

    law = "gaussian"

    def unit(self, shape: Shape | None) -> int:
        return 1 << WEIGHT_BITS

    def record(self, stage: str, name: str, calibration: Calibration) -> MechanismRecord:
        noise, most = calibration.noise, calibration.max_partitions
        squared = thresholds.weighted_l2_squared(1 << WEIGHT_BITS, noise.step, most)
        return MechanismRecord(
            stage=stage, name=name, kind="gaussian", scale=noise.law.scale, l2_squared=squared, l0=most
        )


def noise_record(stage: str, name: str, law: str, scale: Fraction, moved: LatticeSteps) -> MechanismRecord:
    """Return the record of noise on integers that one unit moves by so many steps."""
    if law == "gaussian":
        squared = moved.l2_squared
        return MechanismRecord(stage=stage, name=name, kind="gaussian", scale=scale, l2_squared=squared, l0=moved.l0)
    return MechanismRecord(
        stage=stage, name=name, kind="laplace", scale=scale, l0=moved.l0, linf=moved.linf, l1=moved.l1
    )


def published_values(steps: Integers, noise: Noise) -> Floats:
    """Convert noisy steps to float64 values in units of the statistic."""
    values: Floats = (steps + np.float64(noise.law.offset * noise.draws)) * np.float64(noise.unit)
    return values
