"""Sums of clipped vectors, each with Gaussian noise, released several times: the mechanism of training.

In: how long the vectors are, how many sums, over which part of the units. Out: a mechanism record, and the weight of its sums
next to other noise. Holds: the record bounds the effect of one unit on `times` sums, each with Gaussian noise of `scale / steps`
times the norm to which a unit's vector is clipped (docs/proofs/training.md). Not covered: the sums and their noise,
which `dp_pipelines.training` computes and draws.
"""

import math
from fractions import Fraction

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.kernels.clipped_vectors import SCALE, ClippedVectors
from dp_pipelines.mechanisms.mechanism import Calibration, Exact, Mechanism
from dp_pipelines.mechanisms.permits import Permit
from dp_pipelines.metrics.base import Noisy

DRAWS = 2
"""Noise on the fine lattice of a sum is made of two draws from tables for each coordinate (training.noise)."""


class NoisyTrainingSums(Mechanism):
    """Gaussian noise on each of a sequence of sums."""

    law = "gaussian"

    def record(self, stage: str, name: str, calibration: Calibration) -> MechanismRecord:
        vectors = calibration.statistic.vectors
        assert isinstance(vectors, ClippedVectors)
        return sums_record(stage, name, calibration.noise.law.scale, calibration.steps, vectors)

    def draw(self, calibration: Calibration, exact: Exact, permit: Permit) -> Noisy:
        raise NotImplementedError("dp_pipelines.training releases these sums")


def sums_record(stage: str, name: str, scale: Fraction, steps: int, vectors: ClippedVectors) -> MechanismRecord:
    """Return the record of noisy sums whose units of change are `steps` steps each.

    >>> sums_record("s", "sums", Fraction(1024), 64, ClippedVectors(size=3, times=80, rate=1.0)).l2_squared == 80 * 64**2
    True
    >>> halved = ClippedVectors(size=3, times=2, rate=1.0, parts=(Fraction(1), Fraction(2)))
    >>> sums_record("s", "sums", Fraction(1024), 64, halved).l2_squared == 64**2 + 128**2
    True
    >>> sums_record("s", "sums", Fraction(1024), 64, ClippedVectors(size=3, times=80, rate=0.1)).kind
    'sampled_gaussian'
    >>> apart = ClippedVectors(size=3, times=80, rate=1.0, separation=20)
    >>> sums_record("s", "sums", Fraction(1024), 64, apart).l2_squared == 4 * 64**2
    True
    """
    draws = DRAWS * vectors.size
    if vectors.rate == 1:
        # Vectors that differ by c_1, c_2, ... one after the other differ by the root of the sum of their squares in all.
        # What is carried over from the noise of earlier sums is rounded to the fine lattice, up or down by one of its steps.
        rounding = (math.isqrt(vectors.size - 1) + 1) * scale / SCALE if vectors.coefficients else Fraction(0)
        squared = math.ceil(vectors.together(steps, rounding))
        return MechanismRecord(
            stage=stage, name=name, kind="gaussian", scale=scale, l2_squared=squared, l0=draws * vectors.times
        )
    return MechanismRecord(
        stage=stage,
        name=name,
        kind="sampled_gaussian",
        scale=scale,
        l2_squared=steps**2,
        l0=draws,
        rate=vectors.rate,
        times=vectors.times,
    )


def influence(vectors: ClippedVectors) -> float:
    """Estimate the weight of the sums compared with one sum over all units: the root of the number of sums of a unit, by cost.

    >>> influence(ClippedVectors(size=3, times=100, rate=0.1))
    1.0
    """
    return math.sqrt(vectors.squares) * vectors.rate


def squares(vectors: ClippedVectors, scale: float) -> float:
    """Estimate the square of the shift, in scales, of all sums together (Bu, Dong, Long, Su 2020, section 3).

    >>> squares(ClippedVectors(size=3, times=100, rate=1.0), 5.0)
    4.0
    """
    if vectors.rate == 1:
        return float(vectors.squares) / scale**2
    return vectors.times * vectors.rate**2 * math.expm1(min(1 / scale**2, 50.0))
