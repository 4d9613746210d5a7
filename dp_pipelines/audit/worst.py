"""The effect of the worst unit on a noisy statistic, from the query's bounds and the lattice of the run, not from records.

In: a stage, one of its statistics. Out: how many integers of a replay change, by how much, from which total. Holds: a
unit can make this change, given the statistic's reach (`release.unit_reach`), with the worst rounding to the release
lattice. Not covered: the reaches (tests/privacy compare shapes, which are alike, with the kernels).
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.kernels.lattice import coarse_words
from dp_pipelines.kernels.statistics import WEIGHT_BITS, Statistic, UnitWeights
from dp_pipelines.mechanisms.mechanism import Noise
from dp_pipelines.noise.laws import FlooredLaplace
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import unit_reach

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_PIECES = 64
"""Under Gaussian noise, which is the same in all directions, a change of more integers is put into this many with the
same L2 norm."""

SEARCHED = 4096
"""The number of totals to search for the one whose rounding moves most."""

LEAST = 2**12
"""Totals are at least this large."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """The change that one unit makes to a statistic.

    Args:
        pieces: how many integers of a replay change.
        before: each of them without the unit, as accumulated.
        after: with it.
        steps_before, steps_after: the same on the release lattice.
        noise: of the statistic.
    """

    pieces: int
    before: int
    after: int
    steps_before: int
    steps_after: int
    noise: Noise

    def score(self, released: Floats) -> Floats:
        """Return the logarithm of how much more probable released steps are with the unit."""
        scale = float(self.noise.law.scale)
        from_before, from_after = released - self.steps_before, released - self.steps_after
        if isinstance(self.noise.law, FlooredLaplace):
            result: Floats = (np.abs(from_before) - np.abs(from_after)) / scale
            return result
        return (from_before - from_after) * (from_before + from_after) / (2 * scale * scale)


def change(
    stage: StagePlan, statistic: Statistic, noise: Noise, *, least: int = LEAST, pieces: int | None = None
) -> Change:
    """Return the worst change of a statistic.

    Args:
        stage: the frozen stage.
        statistic: one of its statistics.
        noise: its noise.
        least: the total without the unit, at least.
        pieces: how many integers may change at most; None: as many as a unit can change.
    """
    number, each = _moved(stage, statistic, noise)
    if pieces is not None:
        number = min(number, pieces)
    totals = np.arange(least, least + SEARCHED, dtype=np.int64)
    moved = coarse(totals + each, noise) - coarse(totals, noise)
    before = int(totals[np.argmax(moved)])
    steps = coarse(np.array([before, before + each]), noise).tolist()
    return Change(
        pieces=number, before=before, after=before + each, steps_before=steps[0], steps_after=steps[1], noise=noise
    )


def coarse(totals: Integers, noise: Noise) -> Integers:
    """Round totals to the release lattice.

    Args:
        totals: int64 of any shape.
        noise: of the statistic, with its lattice.
    """
    return coarse_words(*words(totals), shift=noise.fine_bits, step=noise.step)


def words(totals: Integers) -> tuple[Integers, Integers]:
    """Split totals into the two words in which they are merged: high and low 32 bits."""
    return totals >> np.int64(32), totals & np.int64(2**32 - 1)


def _moved(stage: StagePlan, statistic: Statistic, noise: Noise) -> tuple[int, int]:
    """Return how many integers change, and by how much each."""
    if isinstance(statistic, UnitWeights):
        return 1, 1 << WEIGHT_BITS  # alone in one partition
    shape = unit_reach.reach(statistic, stage.query)
    each = shape.per_coordinate * shape.unit >> statistic.fine_bits
    if isinstance(noise.law, FlooredLaplace):
        if shape.squares is None or shape.in_total == shape.squares:
            return shape.in_total // shape.per_coordinate, each
        # The L1 norm is largest where all coordinates are alike.
        return shape.coordinates, math.isqrt(shape.squares * shape.unit**2 // shape.coordinates) >> statistic.fine_bits
    number = shape.l2_squared // shape.per_coordinate**2
    if number <= MOST_PIECES:
        return number, each
    return MOST_PIECES, math.isqrt(each * each * number // MOST_PIECES)
