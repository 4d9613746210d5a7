"""Noise, given that it lies in a range: the chance of that, and draws by the same law as the samplers'.

In: a law, a range of whole numbers, the number of draws. Out: the chance as an exact fraction; int64 numbers of the range. Holds:
chance and draws are those of `Sampler(law)` itself, tables as they are finished, so that drawing whether noise lies in the range
and then where is the same as drawing it and looking (docs/proofs/large_lists.md, lemma 1). Not covered: more than one draw for
each value (`noise.poisson_samples` decides which values lie there).
"""

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.noise import alias_tables, entropy, interval_arithmetic, samplers
from dp_pipelines.noise.alias_tables import WordSource
from dp_pipelines.noise.laws import Law

Integers = NDArray[np.int64]

WORD = 64

MOST_AT_ONCE = 2**20
"""Draws in memory at a time."""


class Weighted:
    """Draws of list positions, each with a probability in proportion to its weight.

    Args:
        weights: whole numbers from 0, not all of them 0.

    >>> sorted(set(Weighted([1, 0, 3]).draw(1000, entropy.words).tolist()))
    [0, 2]
    """

    def __init__(self, weights: Sequence[int]) -> None:
        sums = list(itertools.accumulate(weights))
        self.total = sums[-1]
        self._further = -(-self.total.bit_length() // WORD) - 1
        spare = WORD * (self._further + 1) - self.total.bit_length()
        self._sums = [part << spare for part in sums]
        self._heads = np.array([part >> (WORD * self._further) for part in self._sums], np.uint64)

    def draw(self, n: int, words: WordSource) -> Integers:
        """Return `n` independent positions, int64 of shape (n,).

        Args:
            n: how many.
            words: independent uniform words.
        """
        places = np.empty(n, np.int64)
        done = 0
        while done < n:
            # A uniform number below a power of two that is at most twice the total; those beyond the total are thrown away.
            some = self._candidates(2 * (n - done) + 8 if n - done < MOST_AT_ONCE else MOST_AT_ONCE, words)
            some = some[some < len(self._sums)][: n - done]
            places[done : done + len(some)] = some
            done += len(some)
        return places

    def _candidates(self, n: int, words: WordSource) -> Integers:
        """Return for each of `n` uniform numbers how many sums are at most as large; for a number beyond the total, all are."""
        first = words(n)
        places = np.searchsorted(self._heads, first, side="left")
        # A word that equals the head of a sum may lie on either side of it.
        near = self._heads[np.minimum(places, len(self._heads) - 1)]
        for at in np.flatnonzero(near == first).tolist():
            number = int(first[at])
            for word in words(self._further).tolist():
                number = (number << WORD) | word
            places[at] = bisect.bisect_right(self._sums, number)
        return places


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """Draws with one sign: magnitudes from `first` to `last`, cut into high and low digits.

    Args:
        negative: whether the sign bit is set.
        highs: the first high digit and the one after the last.
        lows: for the first, all other and the last of them, the first low digit and the one after the last.
    """

    negative: bool
    highs: tuple[int, int]
    lows: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]

    def range_of(self, high: int) -> tuple[int, int]:
        """Return the range of low digits that go with a high digit."""
        first, last = self.highs[0], self.highs[1] - 1
        if first == last:
            return self.lows[0][0], self.lows[2][1]
        return self.lows[0] if high == first else self.lows[2] if high == last else self.lows[1]


class SampledLaw:
    """The law of the draws of a sampler, in whole numbers.

    Args:
        layout: how the sampler makes a draw of a word.

    >>> from dp_pipelines.noise.laws import RoundedGaussian
    >>> law = SampledLaw.of(RoundedGaussian(Fraction(10)))
    >>> law.chance(None, None), round(float(law.chance(30, None)), 6), law.chance(1, None) == law.chance(None, -1)
    (Fraction(1, 1), 0.001589, True)
    """

    def __init__(self, layout: samplers.TableLayout) -> None:
        tables = [table for _, table in layout.digits]
        weights = [alias_tables.reproduced(table) for table in tables]
        self._mirror = layout.mirror
        self._bits = tables[0].column_bits if len(tables) > 1 else 0
        self._low = weights[0] if len(tables) > 1 else [1]
        self._high = weights[-1]
        self._low_sums = [0, *itertools.accumulate(self._low)]
        self._whole = 2 * sum(self._high) * self._low_sums[-1]

    @classmethod
    def of(cls, law: Law) -> "SampledLaw":
        """Return the law of `Sampler(law)`. Equal laws share it."""
        with interval_arithmetic.building():
            return _sampled(law)

    def chance(self, low: int | None, high: int | None) -> Fraction:
        """Return the probability that a draw lies in a range; its denominator is a power of two.

        Args:
            low, high: the ends of the range, which are included; None for no end.
        """
        return Fraction(sum(itertools.chain(*map(self._weights, self._sides(low, high)))), self._whole)

    def draw(self, n: int, low: int | None, high: int | None, words: WordSource = entropy.words) -> Integers:
        """Return independent draws, given that each lies in a range; int64 of shape (n,).

        Args:
            n: how many.
            low, high: as for `chance`, which is not 0.
            words: independent uniform words; for tests.
        """
        sides = self._sides(low, high)
        weights = [self._weights(side) for side in sides]
        places = Weighted([*itertools.chain(*weights)]).draw(n, words)
        drawn = np.empty(n, np.int64)
        begin = 0
        for side, of_side in zip(sides, weights, strict=True):
            mine = np.flatnonzero((places >= begin) & (places < begin + len(of_side)))
            magnitudes = self._magnitudes(side, places[mine] - begin + side.highs[0], words)
            drawn[mine] = magnitudes if not side.negative else -magnitudes if self._mirror else -(magnitudes + 1)
            begin += len(of_side)
        return drawn

    def _magnitudes(self, side: _Side, highs: Integers, words: WordSource) -> Integers:
        if not self._bits:
            return highs
        drawn = highs << np.int64(self._bits)
        ends = (side.highs[0], side.highs[1] - 1)
        for which in {side.range_of(ends[0]), side.range_of(ends[1]), side.lows[1]}:
            chosen = np.zeros(len(highs), np.bool_)
            for high in ends:
                chosen |= (highs == high) & (side.range_of(high) == which)
            if which == side.lows[1]:
                chosen |= (highs != ends[0]) & (highs != ends[1])
            drawn[chosen] += which[0] + Weighted(self._low[slice(*which)]).draw(int(chosen.sum()), words)
        return drawn

    def _weights(self, side: _Side) -> list[int]:
        """Return the weight of each high digit of a side."""
        first, after = side.highs
        ends = {first, after - 1}
        middle = self._low_sums[side.lows[1][1]] - self._low_sums[side.lows[1][0]]
        weights = [self._high[digit] * middle for digit in range(first, after)]
        for digit in ends:
            below, above = side.range_of(digit)
            weights[digit - first] = self._high[digit] * (self._low_sums[above] - self._low_sums[below])
        return weights

    def _sides(self, low: int | None, high: int | None) -> list[_Side]:
        """Return the magnitudes of a range, with either sign."""
        most = (len(self._high) << self._bits) - 1
        lowest = -most - 1 if low is None else max(low, -most - 1)
        highest = most if high is None else min(high, most)
        shift = 0 if self._mirror else 1
        both = [(False, max(lowest, 0), highest), (True, max(-highest - shift, 0), -lowest - shift)]
        return [self._side(negative, a, min(b, most)) for negative, a, b in both if a <= b and a <= most]

    def _side(self, negative: bool, first: int, last: int) -> _Side:
        columns = 1 << self._bits
        a, b = first >> self._bits, last >> self._bits
        lows = ((first % columns, columns), (0, columns), (0, last % columns + 1))
        return _Side(negative=negative, highs=(a, b + 1), lows=lows)


@functools.lru_cache(maxsize=8)
def _sampled(law: Law) -> SampledLaw:
    return SampledLaw(samplers.layout_of(law))
