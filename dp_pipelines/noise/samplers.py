"""Draws of the noise: one word of randomness in, one whole number out.

In: a law and a number of draws. Out: independent int64 integers, each within 2**-100 (total variation distance) of the
law, given ideal words. Holds: only integers from the word to the draw; no rejection loop, so the time of a call
depends on the number of draws and on ties, whose probability (below 2**-16 a draw) does not depend on the data; no
state, so a sampler may be pickled, forked and shared by threads. Not covered: an observer who shares the
caches, and words that are not random (noise.entropy).
"""

# A word of 64 bits gives a draw: its top bit is the sign, the rest are the fields of one or two alias tables. One
# table gives a Gaussian magnitude. A geometric magnitude is memoryless and so has independent digits in any base 2**c;
# large Laplace scales use two small tables, each of which reads one half of the word.
#
# INTERNAL. `Sampler` takes a source of words so that tests can try all words and plant faults. It is not part of the
# public API of `dp_pipelines`: no public function or class passes a source on, there is no seed, and nothing turns
# the noise off.

import dataclasses
import functools
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.noise import alias_tables, entropy, interval_arithmetic, magnitudes
from dp_pipelines.noise.laws import DiscreteGaussian, FlooredLaplace, Law, RoundedGaussian

TOTAL_VARIATION_BOUND = Fraction(1, 2**100)
"""No draw is further than this from its law, in total variation. For n draws under (epsilon, delta) it adds to delta
at most n (1 + e^epsilon) times itself (docs/proofs/noise.md, theorem 5)."""

LARGEST_SCALES: dict[type[Law], int] = {RoundedGaussian: 2**14, DiscreteGaussian: 2**14, FlooredLaplace: 2**20}
"""Larger scales would need a table of more than 2**18 columns, 4 MiB and 0.7 s to build."""

ONE_DIGIT_COLUMNS = 2**13
"""Laplace magnitudes that need more columns than this are drawn as two digits."""

CHUNK = 8192
"""Draws made at a time, so that all temporaries stay in the second cache."""

LARGEST_DRAW = 2**40

Digits = tuple[tuple[int, alias_tables.AliasTable], ...]
"""The tables of a magnitude's digits, lowest first, each with the place in the word where its field begins."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TableLayout:
    """The tables and bit fields that turn a word into a draw.

    Args:
        word_bits: bits of a word.
        digits: the tables of the magnitude's digits.
        mirror: what a set sign bit does to a magnitude m: -m if true, -(m + 1) if not.
    """

    word_bits: int
    digits: Digits
    mirror: bool

    @property
    def total_variation_bound(self) -> Fraction:
        """Return an upper bound on a draw's distance from its law: the sum over its tables (docs/proofs/noise.md, lemma 4)."""
        return sum((table.total_variation_bound for _, table in self.digits), Fraction(0))

    def draw(self, n: int, words: alias_tables.WordSource, chunk: int = CHUNK) -> NDArray[np.int64]:
        """Return `n` draws, int64 of shape (n,).

        Each chunk takes one word per draw, then further words for its ties, table by table.
        """
        result = np.empty(n, dtype=np.int64)
        size = min(n, chunk)
        scratch, tied = np.empty((4, size), dtype=np.uint64), np.empty(size, dtype=np.bool_)
        for start in range(0, n, chunk):
            out = result[start : start + chunk].view(np.uint64)
            self._fill(out, words, scratch[:, : out.size], tied[: out.size])
        return result

    def _fill(
        self,
        out: alias_tables.Words,
        words: alias_tables.WordSource,
        scratch: alias_tables.Words,
        tied: NDArray[np.bool_],
    ) -> None:
        word = words(out.size)
        field, value = scratch[0], scratch[1]
        place = 0
        for shift, table in self.digits:
            shifted = np.right_shift(word, shift, out=field) if shift else word
            np.bitwise_and(shifted, (1 << table.field_bits) - 1, out=field)
            if place == 0:
                table.look_up(field, words, out, scratch[2:], tied)
            else:
                table.look_up(field, words, value, scratch[2:], tied)
                np.left_shift(value, place, out=value)
                np.bitwise_or(out, value, out=out)
            place += table.column_bits
        # The sign bit as a mask of all ones or none: m ^ -1 is -(m + 1), and one more is -m.
        np.right_shift(word, self.word_bits - 1, out=field)
        np.negative(field, out=field)
        np.bitwise_xor(out, field, out=out)
        if self.mirror:
            np.subtract(out, field, out=out)


def lay_out(
    law: Law, *, word_bits: int = 64, further_words: int | None = None, one_digit_columns: int = ONE_DIGIT_COLUMNS
) -> TableLayout:
    """Build the tables of a law. The options are for tests, which use words short enough to try all of them.

    Args:
        law: the law.
        word_bits: bits of a word.
        further_words: the number of words that settle a tie; by default one after a whole word and two after half a
            word, which gives weights at least 127 bits.
        one_digit_columns: the largest table that draws a whole Laplace magnitude.

    Raises:
        RequestError: the scale is above that of `LARGEST_SCALES`.
    """
    _refuse_large(law)
    field_bits = word_bits - 1
    bits = field_bits + word_bits * (further_words or 1)
    if isinstance(law, FlooredLaplace) and (n := magnitudes.support(law, bits)) > one_digit_columns:
        digits: Digits = _two_digits(law, (n - 1).bit_length() // 2, word_bits, further_words or 2)
    else:
        tails = magnitudes.tails(law, bits)
        table = alias_tables.build(tails, word_bits=word_bits, field_bits=field_bits, further_words=further_words or 1)
        digits = ((0, table),)
    return TableLayout(word_bits=word_bits, digits=digits, mirror=law.offset == 0)


def _two_digits(law: FlooredLaplace, low_bits: int, word_bits: int, further_words: int) -> Digits:
    """Return the digits of a geometric magnitude in base 2**low_bits: the low one reads the lower half of the word."""
    columns, lower = 1 << low_bits, word_bits // 2
    upper = word_bits - 1 - lower
    low = magnitudes.low_digit_tails(law, columns, lower + word_bits * further_words)
    high = magnitudes.high_digit_tails(law, columns, upper + word_bits * further_words)
    return (
        (0, alias_tables.build(low, word_bits=word_bits, field_bits=lower, further_words=further_words)),
        (lower, alias_tables.build(high, word_bits=word_bits, field_bits=upper, further_words=further_words)),
    )


def _refuse_large(law: Law) -> None:
    largest = LARGEST_SCALES.get(type(law))
    if largest is None:
        raise RequestError(field="law", message="must be a RoundedGaussian, FlooredLaplace or DiscreteGaussian")
    if law.scale > largest:
        raise RequestError(
            field="scale",
            message=f"must be at most {largest} lattice steps to be drawn",
            hint="release on a coarser lattice",
        )


@functools.lru_cache(maxsize=32)
def layout_of(law: Law) -> TableLayout:
    """Return the layout of a law. Equal laws share it, and with it their tables.

    Raises:
        AssertionError: the finished tables are further from the law than `TOTAL_VARIATION_BOUND`.
    """
    layout = lay_out(law)
    if not layout.total_variation_bound <= TOTAL_VARIATION_BOUND:
        raise AssertionError("the tables of a law are coarser than we promise")
    return layout


@dataclasses.dataclass(frozen=True)
class Sampler:
    """A source of draws from a law. Equal laws share their tables, which are built on the first draw of a process.

    Args:
        law: a `RoundedGaussian`, a `FlooredLaplace` or a `DiscreteGaussian`.
        words: where words come from; for tests.

    Raises:
        RequestError: `law` is not one of ours, or no table can hold its scale.

    >>> draws = Sampler(RoundedGaussian(Fraction(1024))).draw(5)
    >>> draws.shape, draws.dtype
    ((5,), dtype('int64'))
    """

    law: Law
    words: alias_tables.WordSource = dataclasses.field(default=entropy.words, repr=False)

    def __post_init__(self) -> None:
        """Refuse a law that cannot be drawn, before any data are read."""
        _refuse_large(self.law)

    def draw(self, n: int) -> NDArray[np.int64]:
        """Return `n` independent draws of X, without the law's `offset`.

        Args:
            n: how many, from 0.

        Returns:
            int64 array of shape (n,), in lattice steps.

        Raises:
            RequestError: `n` is not a whole number in range.
        """
        return self._tables().draw(checks.whole(n, "n", low=0, high=LARGEST_DRAW), self.words)

    @property
    def total_variation_bound(self) -> Fraction:
        """Return an upper bound, below 2**-100, on the distance of a draw from the law, computed from the finished tables."""
        return self._tables().total_variation_bound

    def _tables(self) -> TableLayout:
        # Build one at a time; otherwise all threads of a worker would build the same tables.
        with interval_arithmetic.building():
            return layout_of(self.law)
