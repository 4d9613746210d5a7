"""The reserve of a stage whose contribution bounds are chosen in a run: its records hold for every candidate.

In: how far a unit moves a statistic with the largest candidates; those of the bound on partitions. Out: a shape whose records
hold for all of them; for each candidate, how many release steps a unit of change may be. Holds (docs/proofs/sensitivity.md, lemma
6b): with candidate k, any candidate for the rows in a partition, and `steps_at` of these, the record of the statistic is
dominated by that of the reserved shape. Noise stays what it is in release steps, so that per unit of change it grows with the
root of k (Gaussian) or with k (Laplace), and with the bound on rows.
"""

import dataclasses
import math
from collections.abc import Sequence

from dp_pipelines.kernels.sensitivity import LatticeSteps, Shape
from dp_pipelines.kernels.statistics import Statistic

POWERS = {"gaussian": 0.5, "laplace": 1.0}
"""With which power of the bound on partitions noise grows."""


WORDS = {0.5: "sqrt(max_partitions_contributed)", 1.0: "max_partitions_contributed"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseGrowth:
    """The growth of a statistic's noise with the bounds that a run chooses.

    Args:
        power: of the bound on partitions; 0 if it is fixed.
        rows: True if it grows with the bound on rows in a partition.

    >>> NoiseGrowth(power=0.5, rows=True).at(16, 3), NoiseGrowth(power=0.5, rows=True).words
    (12.0, 'sqrt(max_partitions_contributed) * max_contributions_per_partition')
    """

    power: float
    rows: bool

    def at(self, partitions: int, rows: int) -> float:
        """Return how many times the noise is with some bounds what it is with 1."""
        return float(partitions**self.power * (rows if self.rows else 1))

    @property
    def words(self) -> str:
        """Return what the noise is proportional to, in the names of the job file; empty if it does not grow."""
        return " * ".join(filter(None, [WORDS.get(self.power), "max_contributions_per_partition" if self.rows else ""]))


def growth(statistic: Statistic, law: str, *, partitions: bool, rows: bool) -> NoiseGrowth:
    """Return how the noise of a statistic grows.

    Args:
        statistic: with a shape in whole units.
        law: of its noise.
        partitions, rows: which bounds the run chooses.
    """
    reaches = [moved_by_rows(statistic, number) for number in (1, 2)]
    return NoiseGrowth(power=POWERS[law] if partitions else 0.0, rows=rows and reaches[1] > reaches[0])


def moved_by_rows(statistic: Statistic, rows: int) -> int:
    """Return how far a unit with so many rows in one partition moves a statistic there, on its fine lattice."""
    shape = statistic.shape(max_partitions=1, max_rows_per_partition=rows, max_rows=None)
    return shape.in_total * shape.unit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reserved(Shape):
    """The most that one unit moves a statistic with any candidate, in units of change with the largest one.

    In L1 and L2 as far as with that one, but in one number as far as the smallest candidate leaves to each.
    """

    def steps(self, step: int, *, joined: bool = False) -> LatticeSteps:
        """Raise an error: the lattice is not known yet; see `ideally`."""
        raise AssertionError("the lattice follows from the bound on partitions, which is not chosen yet")

    def rounding(self, law: str) -> float:
        """Return 0.5: steps are then so fine that they fit the other candidates to a thirtieth. Rounding adds nothing."""
        return 0.5


def reserved(shape: Shape, candidates: Sequence[int]) -> Reserved:
    """Return the shape of which records hold for all candidates.

    Args:
        shape: with the largest candidate; changes that are whole units.
        candidates: rising.

    >>> reserved(Shape(unit=8, coordinates=16, per_coordinate=1, in_total=16), [2, 16]).ideally(10)
    LatticeSteps(l0=16, linf=80, l1=160, l2_squared=1600)
    """
    assert shape.squares is None
    return Reserved(
        unit=shape.unit,
        coordinates=shape.coordinates,
        per_coordinate=shape.per_coordinate * -(-candidates[-1] // candidates[0]),
        in_total=shape.in_total,
        squares=shape.l2_squared,
    )


def steps_at(whole: Shape, law: str, steps: int, shape: Shape) -> int:
    """Return the release steps of one unit of change with one candidate.

    Args:
        whole: the reserved shape.
        law: of the noise.
        steps: release steps of one unit with the largest candidate, as the plan has chosen.
        shape: with that candidate.

    >>> every = [Shape(unit=8, coordinates=k, per_coordinate=1, in_total=k) for k in (1, 4, 16)]
    >>> whole = reserved(every[-1], [1, 4, 16])
    >>> [[steps_at(whole, law, 10, shape) for shape in every] for law in ("gaussian", "laplace")]
    [[40, 20, 10], [160, 40, 10]]
    """
    if law == "gaussian":
        return math.isqrt(whole.l2_squared * steps**2 // shape.l2_squared)
    return whole.in_total * steps // shape.in_total


def at_middle(candidates: Sequence[int], law: str) -> float:
    """Return the noise with a middling bound, as a part of that with the largest candidate: to compare plans by."""
    return float((candidates[0] / candidates[-1]) ** (POWERS[law] / 2))
