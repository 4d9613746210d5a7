"""Matches between two tables: the pairs of rows with equal keys, in slices of bounded size.

In: the key columns of both tables, canonical and of the same types. Out: `Matches`: how many rows of the right table each row of
the left one meets, and their pairs. Holds: keys are compared whole, never by a hash; a null meets nothing, not even
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
"""Right rows for each left row that meets some, from which on it pays to sort the left rows too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matches:
    """The rows of a right table that each row of a left table meets.

    Args:
        left: positions of the left rows that meet some, those of one key together where each meets many.
        counts: for each of them, how many right rows it meets.
        starts: for each of them, where in `right` these begin.
        right: positions of the right rows that meet some, those of one key together.
        rows: how many left rows there are.
    """

    left: Positions
    counts: Positions
    starts: Positions
    right: Positions
    rows: int

    def pairs(self, most: int) -> Iterator[tuple[Positions, Positions]]:
        """Yield places in `left` and in `right`, in slices of at most `most` pairs.

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
            yield np.repeat(np.arange(first, last + 1), within), behind

    def alone(self) -> Positions:
        """Return the left rows without a match."""
        lonely = np.ones(self.rows, np.bool_)
        lonely[self.left] = False
        return np.flatnonzero(lonely)


def matches(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Matches:
    """Return which right rows each left row meets: those whose key columns are all equal, and none of them null.

    Args:
        left, right: the key columns of the two tables, in the same order and of the same canonical types (`kernels.keys.plain`).

    >>> found = matches([pa.array([1, 2, None])], [pa.array([2, None, 2])])
    >>> found.alone().tolist(), [(found.left[l].tolist(), found.right[r].tolist()) for l, r in found.pairs(10)]
    ([0, 2], [([1, 1], [0, 2])])
    """
    size = len(left[0])
    together = [gather.joined([mine, theirs]) for mine, theirs in zip(left, right, strict=True)]
    codes, number = loose_codes(together)
    mine, theirs = codes[:size], codes[size:]
    meets = _without_null(together)
    of_left, of_right = (None, None) if meets is None else (meets[:size], meets[size:])
    # Rows that meet nothing are left out before anything is sorted or gathered.
    met = np.zeros(number, np.bool_)
    met[mine if of_left is None else mine[of_left]] = True
    asked = met[theirs]
    right_rows = np.flatnonzero(asked if of_right is None else asked & of_right)
    asked_codes = theirs[right_rows]
    of_code = np.bincount(asked_codes, minlength=number)
    counts = of_code[mine]
    if of_left is not None:
        counts[~of_left] = 0
    left_rows = np.flatnonzero(counts)
    counts = counts[left_rows]
    if int(counts.sum()) > MANY * len(left_rows):  # what follows then bounds a unit's rows while they are together
        order = _sorted_by_code(mine[left_rows], number)
        left_rows, counts = left_rows[order], counts[order]
    starts = (np.cumsum(of_code) - of_code)[mine[left_rows]]
    right_rows = right_rows[_sorted_by_code(asked_codes, number)]
    return Matches(left=left_rows, counts=counts, starts=starts, right=right_rows, rows=size)


def loose_codes(columns: Sequence[pa.Array]) -> tuple[keys.Codes, int]:
    """Return codes of whole keys, equal only for equal keys without null, and a number above all of them.

    They are not dense where that would cost more than it saves: a table of counts may have some empty places.

    Args:
        columns: plain arrays of equal length.

    >>> loose_codes([pa.array([7, 9, 7])])[0].tolist(), loose_codes([pa.array(["a", "b", "a"])])[0].tolist()
    ([0, 2, 0], [0, 1, 0])
    """
    most = max(SPARE * len(columns[0]), 1)
    codes, number = _codes_of(columns[0], most)
    for column in columns[1:]:
        more, others = _codes_of(column, most)
        if number * others > most:
            codes, number = _closer(codes, number)
            more, others = _closer(more, others)
        # Both numbers are at most the number of rows, whose square stays below 2**62.
        codes, number = codes * others + more, number * others
        if number > most:
            dense = keys.dense([pa.array(codes)])
            codes, number = dense.codes, len(dense)
    return codes, number


def _codes_of(column: pa.Array, most: int) -> tuple[keys.Codes, int]:
    """Return the codes of one column; integers of a narrow range are their own codes."""
    kind = column.type
    if (pa.types.is_signed_integer(kind) or pa.types.is_date32(kind)) and column.null_count < len(column):
        numbers = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        ends = pc.min_max(numbers)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if high - low < most:
            if numbers.null_count:
                numbers = pc.fill_null(numbers, low)
            return np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64) - low, high - low + 1
    codes, values = keys.codes_and_values(column)
    return codes, max(len(values), 1)


def _closer(codes: keys.Codes, number: int) -> tuple[keys.Codes, int]:
    """Return the same codes without those that no row has."""
    if number <= len(codes):
        return codes, number
    occurs = np.zeros(number, np.bool_)
    occurs[codes] = True
    occurring = np.flatnonzero(occurs)
    ranks = np.empty(number, np.int64)
    ranks[occurring] = np.arange(len(occurring))
    return ranks[codes], len(occurring)


def _without_null(columns: Sequence[pa.Array]) -> NDArray[np.bool_] | None:
    """Return True for rows without a null in any column; None if there are no nulls."""
    sound = None
    for column in columns:
        if column.null_count:
            valid = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), np.bool_)
            sound = valid if sound is None else sound & valid
    return sound


def _sorted_by_code(codes: keys.Codes, number: int) -> Positions:
    """Return positions sorted by code, those of one code in their order.

    NumPy sorts words of 16 bits by counting them, several times faster than longer ones: so the lowest bits first.
    """
    order: Positions = np.argsort(codes.astype(np.uint16), kind="stable")  # the lowest 16 bits
    for shift in range(16, max(number - 1, 1).bit_length(), 16):
        word = np.uint8 if number >> shift < 2**8 else np.uint16
        order = order[np.argsort((codes >> shift).astype(word)[order], kind="stable")]
    return order
