"""Which rows of two tables have equal keys, and their pairs in slices of bounded size.

In: the key columns of both tables, canonical and of the same types. Out: `Matches`: how many rows of the right table each row of
the left one meets, and positions of the pairs. Holds: keys are compared whole, never by a hash; a null meets nothing, not even
another null; a slice has at most as many pairs as it may, however many one key has. Not covered: which rows are kept of a unit.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.gather import Positions

SPARE = 8
"""Codes may be so many times as many as rows."""


MANY = 2
"""Right rows for each left row, from which on it pays to sort the left rows too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matches:
    """The rows of a right table that each row of a left table meets.

    Args:
        left: positions of left rows, those of one unit together where each meets many.
        counts: for each of them, how many right rows it meets.
        starts: for each of them, where in `right` these begin.
        right: positions of right rows, those of one key together.
    """

    left: Positions
    counts: Positions
    starts: Positions
    right: Positions

    def pairs(self, most: int) -> Iterator[tuple[Positions, Positions]]:
        """Positions of left rows and of right rows, in slices of at most `most` pairs.

        Args:
            most: pairs of a slice; a single left row may be in several.
        """
        ends = np.cumsum(self.counts)
        total = int(ends[-1]) if len(ends) else 0
        for begin in range(0, total, most):
            end = min(begin + most, total)
            first, last = (int(place) for place in np.searchsorted(ends, [begin, end - 1], side="right"))
            before = ends[first : last + 1] - self.counts[first : last + 1]
            within = np.minimum(ends[first : last + 1], end) - np.maximum(before, begin)
            behind = np.arange(begin, end) + np.repeat(self.starts[first : last + 1] - before, within)
            yield np.repeat(self.left[first : last + 1], within), self.right[behind]

    def alone(self) -> Positions:
        """The left rows that meet nothing."""
        return np.sort(self.left[self.counts == 0])


def matches(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Matches:
    """Which right rows each left row meets: those whose key columns are all equal, and none of them null.

    Args:
        left, right: the key columns of the two tables, in the same order and of the same canonical types (`kernels.keys.plain`).

    >>> found = matches([pa.array([1, 2, None])], [pa.array([2, None, 2])])
    >>> found.alone().tolist(), [(l.tolist(), r.tolist()) for l, r in found.pairs(10)]
    ([0, 2], [([1, 1], [0, 2])])
    """
    size = len(left[0])
    together = [gather.joined([mine, theirs]) for mine, theirs in zip(left, right, strict=True)]
    meets = _without_null(together)
    codes, number = _codes(together)
    sound = np.arange(size, len(codes)) if meets is None else np.flatnonzero(meets[size:]) + size
    order = _sorted_by_code(codes[sound])
    of_code = np.bincount(codes[sound], minlength=number)
    counts = of_code[codes[:size]]
    if meets is not None:
        counts[~meets[:size]] = 0
    starts = (np.cumsum(of_code) - of_code)[codes[:size]]
    of_left = np.arange(size)
    if int(counts.sum()) > MANY * size:  # then what follows bounds the rows of each unit while they are together
        of_left = _sorted_by_code(codes[:size])
        counts, starts = counts[of_left], starts[of_left]
    return Matches(left=of_left, counts=counts, starts=starts, right=sound[order] - size)


def _codes(columns: Sequence[pa.Array]) -> tuple[keys.Codes, int]:
    """Codes of whole keys, equal where keys are that have no null, and a number above all of them.

    They are not dense where that would cost more than it saves: a table of counts may have some empty places.
    """
    most = max(SPARE * len(columns[0]), 1)
    codes, number = _codes_of(columns[0])
    for column in columns[1:]:
        more, others = _codes_of(column)
        # Both numbers are at most a few times the number of rows, whose square stays below 2**62.
        codes, number = codes * others + more, number * others
        if number > most:
            dense = keys.dense([pa.array(codes)])
            codes, number = dense.codes, len(dense)
    return codes, number


def _codes_of(column: pa.Array) -> tuple[keys.Codes, int]:
    """The same for one column: integers of a narrow range are codes as they are."""
    kind = column.type
    if (pa.types.is_signed_integer(kind) or pa.types.is_date32(kind)) and column.null_count < len(column):
        numbers = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        ends = pc.min_max(numbers)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if high - low < len(column):
            values = np.asarray(pc.fill_null(numbers, low).to_numpy(zero_copy_only=False), np.int64)
            return values - low, high - low + 1
    codes, found = keys.codes_and_values(column)
    return codes, max(len(found), 1)


def _without_null(columns: Sequence[pa.Array]) -> NDArray[np.bool_] | None:
    """Which rows have no null in any column; None: all."""
    sound = None
    for column in columns:
        if column.null_count:
            valid = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), np.bool_)
            sound = valid if sound is None else sound & valid
    return sound


def _sorted_by_code(codes: keys.Codes) -> Positions:
    """Positions sorted by code, those of one code in their order: code and position are one word, which sorts fast."""
    bits = max(len(codes) - 1, 1).bit_length()
    packed = (codes << bits) | np.arange(len(codes))  # both are below the number of rows, so below 2**31
    packed.sort()
    order: Positions = packed & ((1 << bits) - 1)
    return order
