"""Alias tables with exact integer weights (Walker 1977, Vose 1991): one uniform field of bits in, one value out.

In: integers that sum to 2**(f + w k). Out: a table whose values have exactly those probabilities, in integers;
the builder proves it by adding up the finished arrays. Holds: no rejection, and the same steps for every value.
Only a tie takes longer; ties are rare, and their probability does not depend on the data. Not covered: which table
entry is read depends on the value drawn, so a process that shares the caches may learn something about the noise.
"""

# A table over 2**c columns reads a field of f bits. The low c bits name a column, the other f - c bits are
# compared with the column's cut: below it the value is the column itself, above it the column's alias. Where they
# are equal (probability 2**-(f - c)), further words settle the comparison, as if the field had been f + w k bits
# long (w bits a word, k words).
#
# One gather is enough: a column's entry is its cut (high bits) and its alias (low c bits); the field is its
# comparison bits (high) and its column (low c bits). The smaller of field and entry then has the value in its low c
# bits.

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
WordSource = Callable[[int], Words]
"""A function that gives n independent uniform words."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AliasTable:
    """A table; make it with `build`.

    Args:
        word_bits: w, bits of a word: 64, or fewer if a test wants to try all words.
        field_bits: f, how many bits of the first word the table reads.
        column_bits: c, the table has 2**c columns.
        entries: uint64 (2**c,), a column's cut (its f - c high bits) and alias.
        rests: uint64 (k, 2**c), the further words of each cut.
        total_variation_bound: an upper bound on how far the table's law is from the law it was made for.
    """

    word_bits: int
    field_bits: int
    column_bits: int
    entries: Words
    rests: Words
    total_variation_bound: Fraction

    def look_up(self, field: Words, words: WordSource, out: Words, scratch: Words, tied: NDArray[np.bool_]) -> None:
        """Write the values that `field` names into `out`.

        Args:
            field: uint64 (n,), below 2**f.
            words: the source of further words for ties.
            out: uint64 (n,).
            scratch: uint64 (2, n), overwritten.
            tied: bool (n,), overwritten.
        """
        mask = (1 << self.column_bits) - 1
        columns, entries = scratch
        np.bitwise_and(field, mask, out=columns)
        # No index can lie outside; "clip" lets numpy write into `out` without a buffer.
        np.take(self.entries, columns.view(np.int64), out=entries, mode="clip")
        np.minimum(field, entries, out=out)
        np.bitwise_and(out, mask, out=out)
        np.bitwise_xor(field, entries, out=entries)
        np.less_equal(entries, mask, out=tied)
        if tied.any():
            where = np.flatnonzero(tied)
            out[where] = self.settle(columns[where], words)

    def settle(self, columns: Words, words: WordSource) -> Words:
        """Return the values of fields whose comparison bits equal those of their columns' cuts, uint64 (n,).

        Args:
            columns: uint64 (n,), the low c bits of the fields.
            words: the source of further words.
        """
        further = words(self.rests.shape[0] * columns.size).reshape(columns.size, self.rests.shape[0])
        below = np.zeros(columns.size, dtype=np.bool_)
        equal = np.ones(columns.size, dtype=np.bool_)
        for word, rest in zip(further.T, self.rests[:, columns], strict=True):
            below |= equal & (word < rest)
            equal &= word == rest
        return np.where(below, columns, self.entries[columns] & np.uint64((1 << self.column_bits) - 1))


def build(tails: Sequence[int], *, word_bits: int = 64, field_bits: int, further_words: int) -> AliasTable:
    """Build the table of a magnitude from its tails.

    Args:
        tails: e_m, about 2**B P(M > m), falling to 0 at the last one; B = field_bits + word_bits * further_words.
        word_bits: bits of a word.
        field_bits: how many bits of the first word the table may read.
        further_words: the number of words that settle a tie.

    Returns:
        A table that gives m with probability (e_(m - 1) - e_m) / 2**B exactly, where e_(-1) = 2**B. If each e_m
        is off from the true 2**B P(M > m) by less than one, its distance from the law of M is below len(tails)
        / 2**B.

    Raises:
        ValueError: the tails do not fall from at most 2**B to 0, or need more columns than the field can name.
    """
    total = 1 << (field_bits + word_bits * further_words)
    weights = [before - after for before, after in itertools.pairwise([total, *tails])]
    if not tails or tails[-1] != 0 or min(weights) < 0:
        raise ValueError("tails must fall from at most 2**B to 0")
    column_bits = max(1, (len(weights) - 1).bit_length())
    if not column_bits < field_bits:
        raise ValueError("the field has no bits left to compare")
    weights += [0] * ((1 << column_bits) - len(weights))
    cuts, aliases = _split(weights, total >> column_bits)
    entries, rests = _pack(cuts, aliases, word_bits, column_bits, further_words)
    table = AliasTable(
        word_bits=word_bits,
        field_bits=field_bits,
        column_bits=column_bits,
        entries=entries,
        rests=rests,
        total_variation_bound=Fraction(len(tails), total),
    )
    if reproduced(table) != weights:
        raise AssertionError("the finished table does not reproduce its weights")
    return table


def reproduced(table: AliasTable) -> list[int]:
    """Return the weight of each value, added up from the arrays that `look_up` reads."""
    capacity = 1 << (table.field_bits + table.word_bits * table.rests.shape[0] - table.column_bits)
    aliases = (table.entries & np.uint64((1 << table.column_bits) - 1)).tolist()
    cuts = (table.entries >> np.uint64(table.column_bits)).tolist()
    for rest in table.rests.tolist():
        cuts = [(cut << table.word_bits) | low for cut, low in zip(cuts, rest, strict=True)]
    weights = list(cuts)
    for cut, alias in zip(cuts, aliases, strict=True):
        weights[alias] += capacity - cut
    return weights


def _split(weights: list[int], capacity: int) -> tuple[list[int], list[int]]:
    """Return cuts and aliases: each column holds `capacity`, its own value up to the cut and one other value above it.

    Vose's method in integers: a column that is not full is filled from one with at least its share. What is left
    still averages one capacity per column, so there is a donor as long as any column is not full.
    """
    left = list(weights)
    aliases = list(range(len(weights)))
    cuts = [0] * len(weights)  # a full column is its own alias, so its cut does not matter
    poor = [i for i, weight in enumerate(left) if weight < capacity]
    rich = [i for i, weight in enumerate(left) if weight >= capacity]
    while poor:
        column, donor = poor.pop(), rich[-1]
        cuts[column] = left[column]
        aliases[column] = donor
        left[donor] -= capacity - left[column]
        if left[donor] < capacity:
            poor.append(rich.pop())
    return cuts, aliases


def _pack(
    cuts: list[int], aliases: list[int], word_bits: int, column_bits: int, further_words: int
) -> tuple[Words, Words]:
    """Return the entries and rests of an `AliasTable`."""
    below = (1 << word_bits) - 1
    shifts = [word_bits * k for k in reversed(range(further_words))]
    high = word_bits * further_words
    entries = [((cut >> high) << column_bits) | alias for cut, alias in zip(cuts, aliases, strict=True)]
    rests = [[(cut >> shift) & below for cut in cuts] for shift in shifts]
    return np.array(entries, dtype=np.uint64), np.array(rests, dtype=np.uint64)
