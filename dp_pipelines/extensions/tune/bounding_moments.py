"""Expected sums of each partition after bounding, over the random salt, for all pairs of contribution bounds at once.

In: the (unit, partition) pairs of some partitions: how many partitions the unit has, how many rows the pair has, a
number for each row. Out: for each partition and each pair of bounds, the mean, variance and covariance of what is kept.
Holds: the result equals the sum over units for each pair of bounds (tests). Not covered: privacy, so only
`dp_pipelines.extensions.tune` may use this; equal rows, which tie in the real choice (`kernels.bounding`) and are drawn
independently here.
"""

# How it works: a unit with c partitions keeps each with probability q = min(1, k/c), independently of other units. A
# kept pair has r rows whose numbers add up to S; min(r, m) of them stay, all equally likely. They add up to S if r <=
# m, else to m S / r on average, with the variance of sampling without replacement, m (1 - m/r) s^2, where s^2 is the
# sample variance (docs/tune.md). The bounds only decide on which side of k and of m a pair is; the other factors (k,
# k^2, m, m^2) do not depend on the pair. So each pair is added once, to the bucket of the candidates around its c and
# its r, and cumulative sums
# over buckets give every pair of bounds: the cost of a pass does not grow with their number.
#
# Floats will do, since nothing here is released.

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.extensions.tune.variables import ROWS, UNITS, WEIGHTS, Variable

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs:
    """The (unit, partition) pairs of some partitions.

    Args:
        partitions: dense codes below `size`, one per pair.
        size: the number of partitions.
        of_unit: the number of partitions of each pair's unit.
        rows: the number of rows of each pair; at least 1.
        values: for each column, a number for each row, pair by pair; NaN for a null.
    """

    partitions: Integers
    size: int
    of_unit: Integers
    rows: Integers
    values: Mapping[str, Floats]

    @functools.cached_property
    def starts(self) -> Integers:
        """Where the rows of each pair begin."""
        return np.cumsum(self.rows) - self.rows


class KeptMoments:
    """Moments of what is kept.

    Args:
        pairs: all pairs of some partitions.
        most_partitions, most_rows: candidates for the two bounds, ascending. Results have an entry for each, and a last
            one for no bound.

    >>> pairs = Pairs(partitions=np.array([0, 0]), size=1, of_unit=np.array([1, 4]), rows=np.array([3, 1]), values={})
    >>> KeptMoments(pairs, [2], [1]).mean(ROWS)[:, :, 0].tolist()
    [[1.5, 3.5], [2.0, 4.0]]
    """

    def __init__(self, pairs: Pairs, most_partitions: Sequence[int], most_rows: Sequence[int]) -> None:
        self._pairs = pairs
        self._k = np.array([*most_partitions, 1], np.float64)[
            :, None
        ]  # the last is never used: nothing exceeds "no bound"
        self._m = np.array([*most_rows, 1], np.float64)
        above_k = np.searchsorted(np.asarray(most_partitions), pairs.of_unit)
        above_m = np.searchsorted(np.asarray(most_rows), pairs.rows)
        self._shape = (pairs.size, len(most_partitions) + 1, len(most_rows) + 1)
        self._cells = (pairs.partitions * self._shape[1] + above_k) * self._shape[2] + above_m
        # If the lowest candidate keeps everything, nothing is ever dropped: such pairs, often most, are left out below.
        self._dropped = {(False, False): None, (True, False): above_k > 0, (False, True): above_m > 0}
        self._dropped[True, True] = (above_k > 0) & (above_m > 0)
        self._places = {key: None if found is None else np.flatnonzero(found) for key, found in self._dropped.items()}
        self._unit = pairs.of_unit.astype(np.float64)
        self._rows = pairs.rows.astype(np.float64)
        # The caches belong to this object, not to the class, so they disappear with it.
        self._has_nulls = functools.cache(self._has_nulls_in)
        self._numbers = functools.lru_cache(maxsize=4)(self._numbers_of)
        self._total = functools.lru_cache(maxsize=12)(self._total_of)
        self._wholes: dict[Variable, Floats] = {}
        self._means: dict[Variable, Floats] = {}
        self._covariances: dict[tuple[Variable, Variable], Floats] = {}

    def whole(self, variable: Variable) -> Floats:
        """The total of each partition if nothing is dropped."""
        variable = self._same(variable)
        if variable not in self._wholes:
            totals = self._total(variable)
            summed = np.bincount(self._pairs.partitions, totals, minlength=self._pairs.size)
            self._wholes[variable] = summed.astype(np.float64)
        return self._wholes[variable]

    def mean(self, variable: Variable) -> Floats:
        """The expectation of what is kept: (bounds on partitions, bounds on rows, partitions)."""
        variable = self._same(variable)
        if variable not in self._means:
            self._means[variable] = _partitions_last(self._mean(variable))
        return self._means[variable]

    def covariance(self, one: Variable, other: Variable) -> Floats:
        """The covariance of what is kept, of the same shape; the variance if both variables are the same."""
        one, other = sorted((self._same(one), self._same(other)), key=repr)
        if (one, other) not in self._covariances:
            self._covariances[one, other] = _partitions_last(self._covariance(one, other))
        return self._covariances[one, other]

    def _same(self, variable: Variable) -> Variable:
        """A simpler variable with the same values, if there is one."""
        return variable.simpler(self._has_nulls)

    def _has_nulls_in(self, column: str) -> bool:
        return bool(np.isnan(self._pairs.values[column]).any())

    def _mean(self, variable: Variable) -> Floats:
        if variable == WEIGHTS:
            few, many = self._of_pairs(1 / np.sqrt(self._unit)), self._of_pairs(self._total(UNITS), 1)
            return np.asarray(self._within(few) + np.sqrt(self._k) * self._beyond(many))
        kept = self._of_rows if variable.by_rows else self._of_pairs
        total = self._total(variable)
        return np.asarray(self._within(kept(total)) + self._k * self._beyond(kept(total, 1)))

    def _covariance(self, one: Variable, other: Variable) -> Floats:
        if WEIGHTS in (one, other):
            # Only the weights of units above the bound vary, and each of those weighs 1 / sqrt(k).
            both = self.covariance(UNITS if one == WEIGHTS else one, UNITS if other == WEIGHTS else other)
            return np.moveaxis(both, 2, 0) / (self._k if one == other else np.sqrt(self._k))
        chosen = [variable.by_rows for variable in (one, other)]
        totals = self._total(one) * self._total(other)
        if all(chosen):
            twice, once = self._of_rows_squared(totals, 2), self._of_rows_squared(totals, 1)
        else:
            kept = self._of_rows if any(chosen) else self._of_pairs
            twice, once = kept(totals, 2), kept(totals, 1)
        found = self._k * self._beyond(once) - self._k**2 * self._beyond(twice)
        if all(chosen) and ROWS not in (one, other):
            spread = self._spread(one, other)
            found = found + self._within(self._of_choice(spread)) + self._k * self._beyond(self._of_choice(spread, 1))
        return np.asarray(found)

    def _numbers_of(self, variable: Variable) -> Floats:
        """A number for each row."""
        return variable.numbers(self._pairs.values[variable.column])

    def _total_of(self, variable: Variable) -> Floats:
        """The sum over all rows of each pair."""
        if variable == UNITS:
            return np.ones(len(self._rows))
        if variable == ROWS:
            return self._rows
        if not len(self._rows):
            return self._rows
        numbers = self._numbers(variable)
        with np.errstate(invalid="ignore"):
            sums = numbers if len(numbers) == len(self._rows) else np.add.reduceat(numbers, self._pairs.starts)
        return variable.total(sums)

    def _spread(self, one: Variable, other: Variable) -> Floats:
        """The sample covariance within the pairs that have more rows than the least bound (at least two rows, that is)."""
        places = self._places[False, True]
        assert places is not None
        rows, starts = self._pairs.rows[places], self._pairs.starts[places]
        if not len(rows):
            return np.zeros(0)
        ends = np.cumsum(rows)
        at = np.arange(ends[-1]) + np.repeat(starts - (ends - rows), rows)
        products = self._numbers(one)[at] * self._numbers(other)[at]
        squares = np.add.reduceat(products, ends - rows)
        means = self._total(one)[places] * self._total(other)[places] / rows
        return np.asarray((squares - means) / (rows - 1))

    def _sums(self, weights: Floats | None, *, wide: bool = False, long: bool = False, given: bool = False) -> Floats:
        """Sums over pairs by partition and bucket.

        Args:
            weights: of pairs; None: 1.
            wide, long: leave out pairs whose unit, or whose rows, no candidate drops.
            given: whether the weights already belong to the remaining pairs.
        """
        places = self._places[wide, long]
        cells = self._cells if places is None else self._cells[places]
        if weights is not None and places is not None and not given:
            weights = weights[places]
        size = self._shape[0] * self._shape[1] * self._shape[2]
        return np.bincount(cells, weights, minlength=size).astype(np.float64).reshape(self._shape)

    def _over_unit(self, weights: Floats, power: int) -> Floats:
        return weights if power == 0 else weights / self._unit**power

    def _of_pairs(self, totals: Floats, power: int = 0) -> Floats:
        """Sums of something that the bound on rows does not affect, over c^power: the same for each such bound."""
        found = self._sums(self._over_unit(totals, power), wide=power > 0).sum(axis=2, keepdims=True)
        return np.broadcast_to(found, self._shape)

    def _of_rows(self, totals: Floats, power: int = 0) -> Floats:
        """Sums of S where r <= m and of m S / r where r > m, over c^power, by bound on rows."""
        weights, wide = self._over_unit(totals, power), power > 0
        short = np.cumsum(self._sums(weights, wide=wide), axis=2)
        return short + self._m * _above(self._sums(weights / self._rows, wide=wide, long=True))

    def _of_rows_squared(self, totals: Floats, power: int) -> Floats:
        """Sums of S T where r <= m and of m^2 S T / r^2 where r > m, over c^power, by bound on rows."""
        weights = self._over_unit(totals, power)
        short = np.cumsum(self._sums(weights, wide=True), axis=2)
        return short + self._m**2 * _above(self._sums(weights / self._rows**2, wide=True, long=True))

    def _of_choice(self, spread: Floats, power: int = 0) -> Floats:
        """Sums of m (1 - m/r) s over c^power where r > m, by bound on rows. `spread` is of pairs with many rows alone."""
        places = self._places[False, True]
        assert places is not None
        if power:
            inside = self._dropped[True, False]
            assert inside is not None
            spread = (spread / self._unit[places] ** power)[inside[places]]
            places = places[inside[places]]
        one = self._sums(spread, wide=power > 0, long=True, given=True)
        over = self._sums(spread / self._rows[places], wide=power > 0, long=True, given=True)
        return np.asarray(self._m * _above(one) - self._m**2 * _above(over))

    def _within(self, sums: Floats) -> Floats:
        """Sums over units of which a bound on partitions drops nothing, for each such bound."""
        return np.cumsum(sums, axis=1)

    def _beyond(self, sums: Floats) -> Floats:
        """Sums over the other units."""
        return _above(sums, axis=1)


def _partitions_last(found: Floats) -> Floats:
    """The same with all partitions of one pair of bounds contiguous, the order in which they are read."""
    return np.ascontiguousarray(np.moveaxis(found, 0, 2))


def _above(sums: Floats, axis: int = 2) -> Floats:
    """For each bucket the sum over all later ones."""
    found = np.flip(np.cumsum(np.flip(sums, axis), axis), axis)
    return found - sums
