"""Exact Poisson samples, of privacy units or of keys: each is included independently with the same probability.

In: a probability and a number of units. Out: the positions of the included units, ascending. Holds: given ideal words,
the law is exactly that of independent coins with the probability `rate` (docs/proofs/training.md, 2). No
decision uses a float. Not covered: the time of a call, which depends on how many units there are and how many are
drawn; keeping the sample secret, which the plan's amplification assumes.
"""

# How it works: the number of units skipped before the next one has a geometric law. A word of 64 bits is compared with
# its distribution function, truncated to 64 bits; if they are equal, further words and exact fractions decide. Gaps
# longer than the table continue from its end: the law is memoryless.
#
# INTERNAL, like `noise.samplers`: the source of words is for tests.

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.noise import entropy
from dp_pipelines.noise.alias_tables import WordSource

Places = NDArray[np.int64]

LONGEST = 4096
"""Gaps below this are drawn with one word; longer ones with more."""

MOST_GAPS = 2**16
"""Gaps drawn at a time."""

WORD = 64

_BITS = 320
"""Bits of the bounds from which the table is made: enough that the exact fraction is almost never needed."""


@dataclasses.dataclass(frozen=True)
class PoissonSampler:
    """A source of Poisson samples.

    Args:
        rate: the probability of each unit, above 0; 1 includes all. A float counts as the fraction that it is; a fraction has a
            power of two below its line.
        words: where words come from; for tests.

    Raises:
        RequestError: `rate` is not such a number.

    >>> PoissonSampler(1.0).draw(3).tolist()
    [0, 1, 2]
    >>> places = PoissonSampler(0.5).draw(1000)
    >>> 300 < len(places) < 700, bool((np.diff(places) > 0).all())
    (True, True)
    """

    rate: float | Fraction
    words: WordSource = dataclasses.field(default=entropy.words, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.rate, Fraction):  # which may be nearer to an end than any float
            if not 0 < self.rate <= 1 or self.rate.denominator.bit_count() != 1:
                raise RequestError(
                    field="rate", message="must be above 0, at most 1, with a power of two below its line"
                )
        elif self.rate != 1:
            checks.number(self.rate, "rate", above=0, below=1)

    def draw(self, units: int) -> Places:
        """Return the included positions among 0 .. units - 1, ascending, int64 of shape (included,).

        Args:
            units: the number of units, from 0.
        """
        if self.rate == 1:
            return np.arange(units, dtype=np.int64)
        table = _table(Fraction(self.rate))
        parts, begin = [], 0
        while begin < units:
            left = units - begin
            # Roughly as many gaps as are left, plus some: only their sum shows whether they are enough.
            expected = left * float(self.rate) + left / len(table)
            gaps = self._gaps(min(MOST_GAPS, math.ceil(expected + 5 * math.sqrt(expected)) + 1), table)
            complete = gaps < len(table)
            ends = begin + np.cumsum(gaps + complete)
            places = ends[complete] - 1
            parts.append(places[: np.searchsorted(places, units)])
            begin = int(ends[-1])
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _gaps(self, n: int, table: NDArray[np.uint64]) -> Places:
        """Return independent gaps: numbers of skipped units. len(table) means at least that many, the rest not yet drawn."""
        words = self.words(n)
        gaps = np.searchsorted(table, words, side="left")
        # A word that equals an entry may lie on either side of the exact probability.
        near = table[np.minimum(gaps, len(table) - 1)]
        for place in np.flatnonzero(near == words).tolist():
            gaps[place] = self._settled(int(words[place]), table)
        return gaps

    def _settled(self, word: int, table: NDArray[np.uint64]) -> int:
        """Return the gap if the first word leaves it open: how many of P(gap < 1), P(gap < 2), ... are at most u.

        u is the uniform number whose digits are `word` and further words.
        """
        digits = [word]
        low, high = (int(np.searchsorted(table, np.uint64(word), side=side)) for side in ("left", "right"))
        while low < high:
            middle = (low + high) // 2
            if self._reaches(digits, middle + 1):
                low = middle + 1
            else:
                high = middle
        return low

    def _reaches(self, digits: list[int], m: int) -> bool:
        """Return True if u is at least P(gap < m); draw as many further digits of u as that needs."""
        stays = 1 - Fraction(self.rate)
        bits = m * (stays.denominator.bit_length() - 1)
        left = (1 << bits) - stays.numerator**m  # P(gap < m) in units of 2**-bits
        place = 0
        while left:
            if place == len(digits):
                digits.append(int(self.words(1)[0]))
            digit = left << WORD >> bits
            if digits[place] != digit:
                return bool(digits[place] > digit)
            left = (left << WORD) - (digit << bits)
            place += 1
        return True


@functools.lru_cache(maxsize=8)
def _table(rate: Fraction) -> NDArray[np.uint64]:
    """Return the whole parts of 2**64 P(gap < m) = 2**64 (1 - (1 - rate)^m) for m = 1, 2, ..."""
    stays = 1 - rate
    # Past 2**-32 longer gaps are so rare that a second word costs nothing.
    near_one = float(rate) == 1
    longest = LONGEST if rate < 1e-9 else 1 if near_one else math.ceil(32 * math.log(2) / -math.log1p(-float(rate)))
    longest = min(LONGEST, longest)
    # (1 - rate)^m lies between low and high, in units of 2**-320.
    low = high = 1 << _BITS
    shift = stays.denominator.bit_length() - 1
    table = []
    for m in range(1, longest + 1):
        low = low * stays.numerator >> shift
        high = -(-high * stays.numerator >> shift)
        below, above = ((1 << _BITS) - bound >> _BITS - WORD for bound in (high, low))
        table.append(below if below == above else math.floor((1 - stays**m) * 2**WORD))
    return np.array(table, dtype=np.uint64)
