"""Exact coins and exact choices: events of probability exp(-rate * gap), decided in integers.

In: whole numbers (gaps), a rational rate, words from the operating system's generator. Out: heads or tails, uniform
whole numbers, a class drawn in proportion to its weight. Holds: given ideal words, the law is exactly the one stated:
a uniform real number is revealed bit by bit, and a decision is made only once integer bounds leave no doubt
(docs/proofs/exponential.md, 1). No decision uses a float. Not covered: time. Fewer than one decision in 2^60 needs
more than its first words, and scores change that probability by no more than that.

INTERNAL, like `noise.samplers`: sources of words are for tests.
"""

import bisect
import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_pipelines.noise import entropy, interval_arithmetic
from dp_pipelines.noise.alias_tables import WordSource

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WORD = 64
"""Bits of a word."""

MORE = 32
"""The bounds that a first word is compared with are finer by this many bits."""

MARGIN = 64
"""Bits of working precision beyond those of an answer: if they are too few, `interval_arithmetic.units` raises."""


def powers(gaps: Sequence[int], rate: Fraction, bits: int) -> list[int]:
    """Return for each gap an integer that is off from exp(-rate * gap) * 2**bits by less than one; exact for gap 0.

    Args:
        gaps: whole numbers from 0.
        rate: above 0.
        bits: at least 1.

    >>> powers([0, 1, 2, 10**9], Fraction(1, 2), 20)
    [1048576, 635993, 385750, 0]
    """
    # If rate * gap is above `bits`, the power is below exp(-bits) 2**bits < 1.
    last = bits * rate.denominator // rate.numerator
    near = [gap for gap in gaps if gap <= last]
    with interval_arithmetic.precision(bits + MARGIN):
        unit = -interval_arithmetic.ball(rate)
        by_gap = dict(zip(near, interval_arithmetic.units(((unit * gap).exp() for gap in near), bits), strict=True))
    by_gap[0] = 1 << bits
    return [by_gap.get(gap, 0) for gap in gaps]


def coins(gaps: Integers, rate: Fraction, *, words: WordSource = entropy.words) -> Flags:
    """Flip independent coins: each is True (heads) with probability exp(-rate * gap), exactly.

    Args:
        gaps: whole numbers from 0, int64 of any shape; the result has the same shape.
        rate: above 0.
        words: the source of words; for tests.

    >>> coins(np.array([0, 10**12]), Fraction(1)).tolist()
    [True, False]
    """
    flat = np.ascontiguousarray(gaps).reshape(-1)
    distinct, places = np.unique(flat, return_inverse=True)
    scaled = powers(distinct.tolist(), rate, WORD + MORE)
    # With u in [word, word + 1) / 2**64: surely heads where word < sure, surely tails where word > last.
    sure = np.array([max(power - 1, 0) >> MORE for power in scaled], dtype=np.uint64)
    last = np.array([min(-(-(power + 1) >> MORE), 1 << WORD) - 1 for power in scaled], dtype=np.uint64)
    first = words(flat.size)
    heads = (first < sure[places]) | (flat == 0)
    for place in np.flatnonzero(~heads & (first <= last[places])).tolist():
        heads[place] = _settled(int(flat[place]), rate, int(first[place]), words)
    shaped: Flags = heads.reshape(np.shape(gaps))
    return shaped


def _settled(gap: int, rate: Fraction, drawn: int, words: WordSource) -> bool:
    """Decide a coin whose first word is not enough: take further words and finer bounds until they are."""
    for bits in itertools.count(2 * WORD, WORD):
        drawn = drawn << WORD | int(words(1)[0])
        power = powers([gap], rate, bits)[0]
        if drawn + 1 <= power - 1:
            return True
        if drawn >= power + 1:
            return False
    raise AssertionError("an endless count has ended")


def uniform(sizes: Integers, *, words: WordSource = entropy.words) -> Integers:
    """Draw for each size an independent whole number from 0 to below it, all exactly equally likely.

    Args:
        sizes: int64 of shape (n,), whole numbers from 1.
        words: the source of words; for tests.

    >>> uniform(np.array([1, 1])).tolist()
    [0, 0]
    """
    ends = sizes.astype(np.uint64)
    most = np.uint64(2**WORD - 1)
    # The number of words up to `last` is a multiple of the size; the other words, fewer than the size, are drawn again.
    last = most - (most % ends + np.uint64(1)) % ends
    drawn = np.array(words(ends.size), dtype=np.uint64)
    while True:
        again = np.flatnonzero(drawn > last)
        if not again.size:
            return (drawn % ends).astype(np.int64)
        drawn[again] = words(again.size)


def weighted_class(gaps: Sequence[int], counts: Sequence[int], rate: Fraction, *, words: WordSource) -> int:
    """Draw the index of one class, with probability exactly proportional to count * exp(-rate * gap).

    Args:
        gaps: of each class, ascending; the first is 0.
        counts: how many members each class has, from 1.
        rate: above 0.
        words: where words come from.

    >>> weighted_class([0, 10**12], [1, 5], Fraction(1), words=entropy.words)
    0
    """
    drawn = 0
    for bits in itertools.count(2 * WORD, WORD):
        fresh = 2 if bits == 2 * WORD else 1
        for word in words(fresh).tolist():
            drawn = drawn << WORD | word
        place = _class_at(drawn, bits, powers(gaps, rate, bits), counts)
        if place is not None:
            return place
    raise AssertionError("an endless count has ended")


def _class_at(drawn: int, bits: int, weights: Sequence[int], counts: Sequence[int]) -> int | None:
    """Return the class of u T for all u in [drawn, drawn + 1) / 2**bits, T the sum of all weights; None if in doubt."""
    ends = list(itertools.accumulate(weight * count for weight, count in zip(weights, counts, strict=True)))
    # A weight is off by less than one for each member; the weight of gap 0 is exact.
    errors = [error - counts[0] for error in itertools.accumulate(counts)]
    lowest = drawn * (ends[-1] - errors[-1])
    highest = (drawn + 1) * (ends[-1] + errors[-1])
    surely: list[int] = [(end - error) << bits for end, error in zip(ends, errors, strict=True)]
    # `surely` may fall if weights are below their errors: such classes are in doubt at this many bits anyway.
    place = bisect.bisect_left(list(itertools.accumulate(surely, max)), highest)
    if place == len(surely):
        return None
    begins = 0 if place == 0 else (ends[place - 1] + errors[place - 1]) << bits
    return place if begins <= lowest else None


def chosen_head(heads: Flags, picks: Integers) -> Integers:
    """Return in each row the index of head number `picks`, counted from 0; int64 of shape (rows,)."""
    reached: npt.NDArray[Any] = np.cumsum(heads, axis=1) > picks[:, None]
    places: Integers = np.argmax(reached, axis=1)
    return places
