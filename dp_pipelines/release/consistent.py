"""Makes the noisy numbers of a tree of groups fit each other: least squares, then nothing negative, then sums that are exact.

In: noisy numbers by level, the variance of their noise, who is whose parent. Out: numbers by level. Holds: it reads released
numbers and public ones alone, so it costs nothing; the least squares are those of the whole tree (docs/proofs/rollup.md), in time
that grows with the number of groups. Not covered: deviations of numbers that were moved to zero, which have no closed form.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dp_pipelines.kernels.keys import Codes
from dp_pipelines.kernels.lattice import Floats, Integers

HALVINGS = 64
"""Steps of a bisection: more than a float64 has bits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevelEstimates:
    """One number for each group of each level, from the coarsest.

    Args:
        values: by level.
        variances: of `values`, by level.
        alone: the variances before anything from above was used, by level: the weights of a projection from the top down.
    """

    values: tuple[Floats, ...]
    variances: tuple[Floats, ...]
    alone: tuple[Floats, ...]

    def then(self, finer: "LevelEstimates") -> "LevelEstimates":
        """Return these levels, and finer ones below them."""
        return LevelEstimates(
            values=self.values + finer.values,
            variances=self.variances + finer.variances,
            alone=self.alone + finer.alone,
        )


def least_squares(values: Sequence[Floats], variances: Sequence[float], parents: Sequence[Codes]) -> LevelEstimates:
    """Return the best linear unbiased estimate of all groups, given that each is the sum of those below it.

    Hay, Rastogi, Miklau, Suciu (VLDB 2010), with a variance for each level: up, a group's own number and the sum of its parts'
    estimates are averaged by their inverse variances; down, what is left over is spread over the parts by their variances.

    Args:
        values: noisy, by level from the coarsest.
        variances: of their noise, by level.
        parents: by level from the second, the place of each group's parent. Every group above the finest is a parent.

    >>> found = least_squares([np.array([10.0]), np.array([3.0, 5.0])], [1.0, 1.0], [np.array([0, 0])])
    >>> found.values[0].round(6).tolist(), found.values[1].round(6).tolist(), found.variances[1].round(6).tolist()
    ([9.333333], [3.666667, 5.666667], [0.666667, 0.666667])
    """
    ups, alone = [values[-1]], [np.full(len(values[-1]), float(variances[-1]))]
    sums: list[Floats] = []
    wholes: list[Floats] = []
    for level in range(len(values) - 2, -1, -1):
        total = _added(ups[0], parents[level], len(values[level]))
        whole = _added(alone[0], parents[level], len(values[level]))
        own = float(variances[level])
        sums.insert(0, total)
        wholes.insert(0, whole)
        ups.insert(0, (values[level] * whole + total * own) / (whole + own))
        alone.insert(0, own * whole / (whole + own))
    final, spread = [ups[0]], [alone[0]]
    for level, parent in enumerate(parents):
        share = alone[level + 1] / wholes[level][parent]
        final.append(ups[level + 1] + share * (final[level] - sums[level])[parent])
        spread.append(alone[level + 1] * (1 - share) + share**2 * spread[level][parent])
    return LevelEstimates(values=tuple(final), variances=tuple(spread), alone=tuple(alone))


def as_measured(values: Sequence[Floats], variances: Sequence[float]) -> LevelEstimates:
    """Return the numbers as they are: where parts of each group are unknown, least squares change nothing."""
    each = tuple(np.full(len(of_level), float(variance)) for of_level, variance in zip(values, variances, strict=True))
    return LevelEstimates(values=tuple(values), variances=each, alone=each)


def rest_of(above: Floats, parts: Floats, parents: Codes) -> Floats:
    """Return what the published parts of each group leave of it. Variances add up instead: see `rest_variance`.

    Args:
        above: of the groups, float64 of shape (groups,).
        parts: of the parts, float64 of shape (parts,).
        parents: the group of each part.
    """
    return above - _added(parts, parents, len(above))


def rest_variance(above: Floats, parts: Floats, parents: Codes) -> Floats:
    """Return the variance of the result of `rest_of` for independent numbers."""
    return above + _added(parts, parents, len(above))


def not_negative(parts: Floats, weights: Floats, parents: Codes, totals: Floats, *, at_most: bool) -> Floats:
    """Return the nearest numbers that are 0 or more and add up to the number of their group, or to no more than that.

    Each becomes max(0, y - l w), with its weight w as the variance of its noise, and one l for each group.

    Args:
        parts: y.
        weights: w, above 0.
        parents: the group of each, which has at least one.
        totals: of the groups, 0 or more.
        at_most: True if the group has further, unknown parts, so that l is 0 or more.

    >>> group, ones = np.zeros(3, np.int64), np.ones(3)
    >>> not_negative(np.array([4.0, 1.0, -2.0]), ones, group, np.array([7.0]), at_most=False).tolist()
    [5.0, 2.0, 0.0]
    >>> not_negative(np.array([4.0, 1.0, -2.0]), ones, group, np.array([7.0]), at_most=True).tolist()
    [4.0, 1.0, 0.0]
    """
    if not len(parts):
        return parts
    order = np.lexsort((-parts / weights, parents))
    group, y, w = parents[order], parts[order], weights[order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    levels = (_running(y, starts) - totals[group]) / _running(w, starts)
    # Of the numbers in falling order of y / w, the first so many stay above 0.
    above = np.maximum(np.add.reduceat((y > levels * w).astype(np.int64), starts), 1)
    chosen = levels[starts + above - 1]
    of_group = np.zeros(len(totals))
    of_group[group[starts]] = np.maximum(chosen, 0.0) if at_most else chosen
    return np.maximum(parts - of_group[parents] * weights, 0.0)


def within_parents(parts: Floats, parents: Codes, totals: Floats, *, all_parts: bool) -> Floats:
    """Return the nearest numbers of units: from 0 to that of their group, and at least adding up to it if all parts are there.

    Args:
        parts: numbers of different units.
        parents: the group of each.
        totals: of the groups, 0 or more.
        all_parts: whether every part of a group is among `parts`.

    >>> within_parents(np.array([9.0, 1.0, -3.0]), np.zeros(3, np.int64), np.array([6.0]), all_parts=True).tolist()
    [6.0, 1.0, 0.0]
    >>> within_parents(np.array([1.0, 2.0]), np.zeros(2, np.int64), np.array([6.0]), all_parts=True).tolist()
    [2.5, 3.5]
    """
    most = totals[parents]
    shares = np.clip(parts, 0.0, most)
    if not all_parts:
        return shares
    short = _added(shares, parents, len(totals)) < totals
    at = np.flatnonzero(short[parents])
    low, high = np.zeros(len(totals)), totals - np.minimum(_least(parts, parents, totals), 0.0)
    for _ in range(HALVINGS if len(at) else 0):
        middle = low / 2 + high / 2
        added = _added(np.clip(parts[at] + middle[parents[at]], 0.0, most[at]), parents[at], len(totals))
        low, high = np.where(added < totals, middle, low), np.where(added < totals, high, middle)
    shares[at] = np.clip(parts[at] + high[parents[at]], 0.0, most[at])
    return shares


def whole_parts(parts: Floats, parents: Codes, totals: Integers) -> Integers:
    """Return whole numbers near the parts that add up exactly to those of their groups: largest remainders.

    Args:
        parts: in steps of what is published; those of a group add up to its total to within a step.
        parents: the group of each.
        totals: whole numbers of steps.

    >>> whole_parts(np.array([1.4, 1.3, 1.3]), np.zeros(3, np.int64), np.array([4])).tolist()
    [2, 1, 1]
    """
    down = np.floor(parts)
    whole, group_sums = down.astype(np.int64), np.zeros(len(totals), np.int64)
    np.add.at(group_sums, parents, whole)
    missing = totals - group_sums
    order = np.lexsort((down - parts, parents))
    starts = np.flatnonzero(np.diff(parents[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    number = np.ones(len(totals), np.int64)
    number[parents[order][starts]] = sizes
    each, more = np.divmod(np.maximum(missing, 0), number)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    whole += each[parents] + (rank < more[parents])
    # Only where floats were rounded the other way there is too much: the largest part has room for it.
    largest = np.lexsort((-whole, parents))[starts]
    whole[largest] += np.minimum(missing, 0)[parents[largest]]
    return whole


def step_below(unit: float, largest: float) -> float:
    """Return the power of two in whose multiples numbers are published: at most the noise's own step, with exact sums.

    Args:
        unit: the finest step of the noise of any level.
        largest: the largest magnitude of a number.

    >>> step_below(0.3, 1e6), step_below(0.3, 1e18)
    (0.25, 256.0)
    """
    step = 2.0 ** math.floor(math.log2(unit))
    return max(step, 2.0 ** (math.ceil(math.log2(max(largest, 1e-300))) - 52))


def _added(values: Floats, parents: Codes, size: int) -> Floats:
    return np.bincount(parents, values, minlength=size).astype(np.float64)


def _least(values: Floats, parents: Codes, totals: Floats) -> Floats:
    least = np.full(len(totals), np.inf)
    np.minimum.at(least, parents, values)
    return least


def _running(values: Floats, starts: Codes) -> Floats:
    """Return running sums within each group, as exact as their size allows."""
    steps = values.copy()
    steps[starts[1:]] -= np.add.reduceat(values, starts)[:-1]
    running: Floats = np.cumsum(steps)
    return running
