"""Both bounds of a unit, on its partitions and on its rows in each, chosen together from two noisy histograms of units.

In: declared candidates; noisy numbers of units by their number of partitions, and by their number of rows in one of these. Out:
the edges of the bins; one candidate for each bound. Holds: the choice is a function of released counts and public numbers
(post-processing). Not covered: which share of the budget the histograms have (`phases`), and the noise of what is released with
the bounds (`planning.reserve`).
"""

# What is minimised is the expected error of a typical partition: the median error of the noise, and what the bounds cut off. A
# stage with `kept` divides its numbers by the share K of all rows that the bounds keep, so that only the difference between
# partitions is left of what is cut off. On twenty tables that was less than 0.7 (1 - K) of a partition's rows
# (docs/benchmarks/ranges.md), so that the rule is the least hypot(0.674 noise, 0.7 (1 - K) rows). Without `kept` all that is cut
# off counts. K is taken to be the product of the shares that each bound keeps alone: a joint histogram of both numbers has so
# many cells that noise covers it, and was no better. It is used for nothing but this choice: what a report says of K is
# measured for the chosen bounds (`plan_stages.kept_counts`).
#
# The partition whose rows are counted is the first of the unit by keyed hash, so that it is as good as drawn at random, and the
# same whatever the batches. Statistics are weighed as in `partition_bound`, by the logarithms of their errors. What does not
# stand out of the noise counts as no units; then noise alone decides, and the smallest candidates are chosen.

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.auto_bounds import partition_bound, value_bounds

Floats = NDArray[np.float64]

NAME = "max_contributions_per_partition"
"""The name of the bound on rows in `bounds.json`."""

COLUMN = "_rows"
"""The column with the number of rows of a unit in one of its partitions, of which there is one row."""

HISTOGRAM = "rows"
"""The metric that releases the histogram of it."""

CANDIDATES = (1, 2, 4, 8, 16, 32, 64)
"""Possible bounds on partitions where the job leaves them open."""

ROW_CANDIDATES = (*CANDIDATES, 128, 256, 512)
"""Likewise on rows in each. There are more, since the noise grows with them and not with the root: only where most units have so
many rows in few partitions is such a bound chosen, and there smaller ones keep too little for a range."""

UP_TO = 4096
"""Units with so many rows in the partition or more are counted together."""

NOISE, APART = 0.674, 0.7
"""The median of the absolute value of Gaussian noise, in standard deviations; how far partitions are taken to differ in what
bounds cut off, as a part of it, where estimates make up for the rest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundsEffect:
    """The effect of the bounds on one statistic.

    Args:
        weight: of its logarithm.
        multiple: standard deviation of the noise where both bounds are 1, per unit of what one row or unit may add.
        power: with which power of the bound on partitions the noise grows; 0 for selection by weights.
        rows: whether it counts rows: then noise grows with the bound on rows, and both bounds cut off.
    """

    weight: float
    multiple: float
    power: float
    rows: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitSizes:
    """The numbers of units of each size, as far as they stand out of the noise.

    Args:
        sizes: the middle of each bin.
        units: in each bin.
    """

    sizes: Floats
    units: Floats

    @classmethod
    def seen(cls, counts: Sequence[float], edges: Sequence[float], stddev: float, law: str) -> "UnitSizes":
        """Return them.

        Args:
            counts: noisy numbers of units, one for each bin.
            edges: of the bins.
            stddev, law: of the noise of each count.
        """
        at = np.array(edges)
        sizes = np.sqrt(at[:-1] * (at[1:] - 1))  # the middle of the whole numbers in a bin
        units = value_bounds.seen(np.asarray(counts, float), stddev, law, partition_bound.FALSE_ALARM)
        return cls(sizes=sizes, units=units)

    @property
    def total(self) -> float:
        """The sum of all sizes."""
        return float(self.units @ self.sizes)

    @property
    def mean(self) -> float:
        """The mean size; 1 if no units are seen."""
        number = float(self.units.sum())
        return self.total / number if number > 0 else 1.0

    def kept(self, candidates: Sequence[int], *, root: bool = False) -> Floats:
        """Return the share of all sizes that each bound keeps; 1 if no units are seen.

        Args:
            candidates: bounds.
            root: whether a unit counts with the root of its size, as a weight of selection does.

        >>> UnitSizes(sizes=np.array([1.0, 4.0]), units=np.array([100.0, 100.0])).kept([1, 2, 4]).tolist()
        [0.4, 0.6, 1.0]
        """
        bounded = np.minimum(self.sizes[:, None], np.array(candidates, float))
        whole = self.sizes
        if root:
            bounded, whole = np.sqrt(bounded), np.sqrt(whole)
        total = float(self.units @ whole)
        shares: Floats = self.units @ bounded / total if total > 0 else np.ones(len(candidates))
        return shares


def edges(candidates: Sequence[int], most: int | None = None) -> tuple[float, ...]:
    """Return the rising edges of the bins: one after each candidate and each power of 2, on by factors of 2, one beyond the last.

    Fewer bins than where the bound on partitions is chosen alone, since noise is the same in each. But between two candidates
    that are far apart there are bins too: how much the smaller one cuts off depends on where units are there. Bins cost nothing,
    since a unit is in one.

    Args:
        candidates: rising.
        most: the last number that is told apart, at least the largest candidate, which it is if left out.

    >>> edges([1, 4, 16]), edges([1, 4], 30)
    ((1.0, 2.0, 3.0, 5.0, 9.0, 17.0), (1.0, 2.0, 3.0, 5.0, 9.0, 17.0, 31.0))
    """
    last = candidates[-1] if most is None else most
    found = {1, last + 1, *(candidate + 1 for candidate in candidates)}
    found |= {2**power + 1 for power in range(candidates[-1].bit_length()) if 2**power < candidates[-1]}
    doubled = candidates[-1] * 2
    while doubled < last:
        found.add(doubled + 1)
        doubled *= 2
    return tuple(float(edge) for edge in sorted(found))


def row_edges(candidates: Sequence[int]) -> tuple[float, ...]:
    """Return the rising edges of the bins of rows: those of the candidates, and on to the last number that is told apart.

    >>> row_edges([1, 4])[-3:]
    (1025.0, 2049.0, 4097.0)
    """
    return edges(candidates, most_rows(candidates))


def most_rows(candidates: Sequence[int]) -> int:
    """Return the number of rows from which on units are counted together."""
    return max(UP_TO, candidates[-1])


def choose(
    partitions: UnitSizes | None,
    rows: UnitSizes,
    *,
    candidates: tuple[Sequence[int], Sequence[int]],
    effects: Sequence[BoundsEffect],
    public: int | None,
    estimates: bool,
) -> tuple[int, int]:
    """Return the bounds on partitions and on rows in each with the least expected error.

    Args:
        partitions: units by their number of partitions; None if that bound is fixed.
        rows: units by their number of rows in one partition.
        candidates: of the bound on partitions (one number if it is fixed) and on rows, rising.
        effects: at least one.
        public: the number of public partitions; None where they are private.
        estimates: whether the stage releases estimates, which make up for the average share that is cut off.

    >>> def sizes(candidates, **counts):
    ...     at = row_edges(candidates)
    ...     return UnitSizes.seen([float(counts.get(f"n{edge:g}", 0)) for edge in at[:-1]], at, 10.0, "gaussian")
    >>> effects = [BoundsEffect(weight=1.0, multiple=5.0, power=0.5, rows=True)]
    >>> found = [choose(sizes([1, 4, 16], n1=9e3, n2=1e3), sizes([1, 4, 16], n1=1e4), candidates=([1, 4, 16], [1, 4, 16]),
    ...                 effects=effects, public=number, estimates=True) for number in (10, 10**5)]
    >>> found  # of many small groups noise is the larger error
    [(4, 1), (1, 1)]
    """
    of_partitions, of_rows = (np.array(each, float) for each in candidates)
    pairs = np.ones(len(of_partitions)) if partitions is None else partitions.kept(candidates[0])
    weights = np.ones(len(of_partitions)) if partitions is None else partitions.kept(candidates[0], root=True)
    cells = rows.kept(candidates[1])
    counted = rows if partitions is None else partitions
    units = float(counted.units.sum())
    met = units if partitions is None else partitions.total
    score = np.zeros((len(of_partitions), len(of_rows)))
    for effect in effects:
        noise = effect.multiple * of_partitions[:, None] ** effect.power * np.ones(len(of_rows))
        kept = (pairs if effect.power else weights)[:, None] * np.ones(len(of_rows))
        each = 1.0
        if effect.rows:
            noise, kept, each = noise * of_rows, kept * cells, rows.mean
        if public is not None:
            typical = met / public
        else:
            middle = math.sqrt(float(noise[0, 0] * noise[-1, -1])) / each
            typical = math.sqrt(units * max(middle, 1.0))
        if not estimates:
            typical *= value_bounds.SKEW if public is not None else 1.0
        lost = (APART if estimates else 1.0) * (1 - kept) * min(typical, units) * each
        score += effect.weight * np.log(lost**2 + (NOISE * noise) ** 2)
    # Of pairs that are equally good the largest: it drops nothing.
    place = np.argwhere(score <= score.min() + 1e-12)[-1]
    return int(of_partitions[place[0]]), int(of_rows[place[1]])
