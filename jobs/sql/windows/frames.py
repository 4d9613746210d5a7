"""Orders the rows of each privacy unit, by that unit alone, and finds the frame of each row.

In: unit columns, all columns of the rows, the values that windows partition and order by. Out: places, and for each place the
places of its frame. Holds: `UnitRows` puts the rows of each unit in the order of their content (by hash, equal hashes by the
content itself), so that the order in which rows arrived is forgotten; rows that agree in all columns are one row twice. What
follows sorts stably, and numbers that compare rows are only ever compared within one unit, so that each frame is a function
of its unit's rows; which place in the table a unit gets depends on others, and decides nothing. Nothing here can fail for
what a row holds. Not covered: what is done with frames (`window_functions`).
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import hashing

Places = NDArray[np.int64]
Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_SIGN = np.int64(_SMALLEST)

FEWEST_HASH_BITS = 16
"""Rows are sorted by a packed word while at least so many bits of the hash fit beside unit and position."""

MOST_OFFSET = 2**62
"""The farthest that a RANGE frame reaches, in units of the column's own resolution."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameEnd:
    """One end of a frame.

    Args:
        kind: "all", "peers", "row", or "offset".
        offset: for "offset", how far after the row; negative before it. In rows, or in units of the order's codes (of the
            order's values themselves where they are floats).
    """

    kind: str
    offset: int | float = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    """Which rows of its partition a row's window holds.

    Args:
        by_rows: offsets count rows; else they are distances in the value that orders.
        start, end: both within the frame.
    """

    by_rows: bool
    start: FrameEnd
    end: FrameEnd


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """Values that order rows.

    Args:
        values: one per row of the table.
        descending, nulls_first: as in SQL.
    """

    values: pa.Array
    descending: bool
    nulls_first: bool


def valid_of(array: pa.Array) -> Flags:
    """Which values are not null."""
    return np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_)


def float_codes(values: NDArray[np.float64]) -> Codes:
    """Integers in the order of floats that are not NaN; equal if and only if these are.

    >>> float_codes(np.array([-1.5, 0.0, 2.0])).tolist() == sorted(float_codes(np.array([-1.5, 0.0, 2.0])).tolist())
    True
    """
    bits = (values + 0.0).view(np.int64)
    return np.where(bits < 0, ~bits ^ _SIGN, bits)


def codes_of(array: pa.Array) -> Codes:
    """Integers in the order of the values; equal if and only if these are. Under a null stands any number.

    Only numbers, times and booleans have codes that are the same in every table; codes of text are places in the order of the
    texts that this table holds, which compare alike in every table.

    Args:
        array: plain (`keys.plain`), without NaN.
    """
    kind = array.type
    if pa.types.is_floating(kind):
        return float_codes(pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False))
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(kind) and kind.bit_width == 128 and kind.precision <= 18:
        return np.array(limbs(array)[0], copy=True)
    if pa.types.is_integer(array.type):
        numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
        if array.type == pa.uint64():
            return np.asarray(numbers.view(np.int64) ^ _SIGN)
        return np.asarray(numbers.astype(np.int64, copy=False))
    encoded = array.dictionary_encode()
    ranks = np.zeros(len(encoded.dictionary) + 1, np.int64)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    indices = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return np.asarray(ranks[indices])


def limbs(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The low and the high 64 bits of 128-bit decimals."""
    if len(array) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset)
    return words[0::2], words[1::2]


def sorted_places(by: Sequence[Codes]) -> Places:
    """Places in the order of the first code, then of the second, ..; places that agree in all stay in order.

    Args:
        by: codes of all places.

    >>> sorted_places([np.array([2, 1, 2, 1]), np.array([0, 5, -7, 5])]).tolist()
    [1, 3, 2, 0]
    """
    size = len(by[0])
    if size == 0:
        return np.zeros(0, np.int64)
    ends = [(int(codes.min()), int(codes.max())) for codes in by]
    bits = [(high - low).bit_length() for low, high in ends]
    shift = (size - 1).bit_length()
    if sum(bits) + shift > 64:
        return np.lexsort([codes for codes, width in zip(by, bits, strict=True) if width][::-1])
    # Words that hold their own place sort several times faster than places sort by keys.
    packed = np.zeros(size, np.uint64)
    for codes, (low, _), width in zip(by, ends, bits, strict=True):
        if width:
            packed = (packed << np.uint64(width)) | (codes.view(np.uint64) - np.uint64(low % 2**64))
    packed = (packed << np.uint64(shift)) | np.arange(size, dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << shift) - 1)).astype(np.int64)


def starts_of(by: Sequence[Codes]) -> Flags:
    """Which places differ from the one before them in any code."""
    begins = np.zeros(len(by[0]), np.bool_)
    begins[:1] = True
    for codes in by:
        begins[1:] |= codes[1:] != codes[:-1]
    return begins


def _ends(begins: Flags) -> tuple[Places, Places]:
    """For each place, where its group begins and where it ends."""
    firsts = np.flatnonzero(begins)
    sizes = np.diff(np.append(firsts, len(begins)))
    return np.repeat(firsts, sizes), np.repeat(firsts + sizes, sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitRows:
    """All rows, unit by unit, those of a unit in the order of their content.

    Args:
        rows: the row of the table at each place.
        units: the unit's number at each place; rising.
    """

    rows: Places
    units: Codes

    @classmethod
    def of(cls, units: Sequence[pa.Array], content: Sequence[pa.Array]) -> "UnitRows":
        """Put rows in order.

        Args:
            units: `keys.plain_unit` of the unit's columns.
            content: plain columns, in an order that does not depend on the table.

        >>> UnitRows.of([pa.array([7, 8, 7])], [pa.array(["a", "b", "a"])]).units.tolist()
        [0, 0, 1]
        """
        codes = keys.dense(units).codes
        # The hash only spreads rows out: where two are equal, the content decides.
        hashes = hashing.hash_columns(content, 0) if content else np.zeros(len(codes), np.uint64)
        size = len(codes)
        taken = max(size - 1, 0).bit_length() + (int(codes.max()) if size else 0).bit_length()
        short = hashes >> np.uint64(taken) if 64 - taken >= FEWEST_HASH_BITS else hashes
        order = sorted_places([codes, short.view(np.int64)])
        tied = _tied(codes[order], short[order])
        if tied.any():
            slots = np.flatnonzero(tied)
            order[slots] = _in_full(order[slots], codes, hashes, short, content)
        return cls(rows=order, units=codes[order])

    def partitioned(self, partitions: Sequence[pa.Array], orders: Sequence[Order]) -> "FrameLayout":
        """The rows of each unit and partition together, in the order that a window wants.

        Args:
            partitions: plain arrays, one value per row of the table; null is a partition.
        """
        by: list[Codes] = [self.units]
        for array in partitions:
            by += self._placed(array)
        partition_keys = len(by)
        for order in orders:
            flags, codes = self._placed(order.values)
            codes = ~codes if order.descending else codes  # the order reversed, without overflow
            by += [-flags if order.nulls_first else flags, codes]
        places = sorted_places(by)
        of_sorted = [codes[places] for codes in by]
        begins = starts_of(of_sorted[:partition_keys])
        start, end = _ends(begins)
        first = None
        if orders:
            nulls, codes = of_sorted[partition_keys : partition_keys + 2]
            first = First(order=orders[0], codes=codes, nulls=nulls != 0)
        peer_start, peer_end = _ends(begins | starts_of(of_sorted[partition_keys:])) if orders else (start, end)
        return FrameLayout(
            rows=self.rows[places],
            start=start,
            end=end,
            peer_start=peer_start,
            peer_end=peer_end,
            first=first,
        )

    def _placed(self, array: pa.Array) -> list[Codes]:
        """Whether a value is null, and its code, at each place."""
        nulls = ~valid_of(array)
        codes = codes_of(array)
        if nulls.any():
            sound = codes[~nulls]
            codes = np.where(nulls, sound[0] if len(sound) else np.int64(0), codes)
        return [nulls[self.rows].astype(np.int64), codes[self.rows]]


def _tied(units: Codes, hashes: Words) -> Flags:
    """Which places share unit and hash with a neighbour."""
    same = (units[1:] == units[:-1]) & (hashes[1:] == hashes[:-1])
    tied = np.zeros(len(units), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    return tied


def _in_full(rows: Places, units: Codes, hashes: Words, short: Words, content: Sequence[pa.Array]) -> Places:
    """Rows in order of unit and leading bits of the hash, those that agree in both by the whole hash, then by what they hold.

    How many bits lead depends on the table: that must not show.
    """
    if not content:
        return rows
    group = np.cumsum(starts_of([units[rows], short[rows].view(np.int64)]))
    order = np.lexsort((hashes[rows], group))
    rows, group = rows[order], group[order]
    held = keys.dense([column.take(pa.array(rows)) for column in content])
    same = (group[1:] == group[:-1]) & (hashes[rows[1:]] == hashes[rows[:-1]])
    if not (same & (held.codes[1:] != held.codes[:-1])).any():
        return rows  # only rows that agree in everything are left together: they are interchangeable
    return rows[np.lexsort((held.ranks()[held.codes], hashes[rows], group))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class First:
    """The first ORDER BY at each place.

    Args:
        order: its values, by row.
        codes: their codes, rising in each partition but for nulls.
        nulls: where they are null.
    """

    order: Order
    codes: Codes
    nulls: Flags


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameLayout:
    """Places for one way to partition and order.

    Args:
        rows: the row of the table at each place.
        start, end: of the place's partition.
        peer_start, peer_end: of the places that no ORDER BY tells apart.
        first: the first ORDER BY, or None.
    """

    rows: Places
    start: Places
    end: Places
    peer_start: Places
    peer_end: Places
    first: First | None

    def frame(self, frame: Frame) -> tuple[Places, Places]:
        """For each place, the first place of its frame and the one behind its last; an empty frame has none between."""
        low = self._edge(frame.start, frame.by_rows, first=True)
        high = self._edge(frame.end, frame.by_rows, first=False)
        return low, np.maximum(low, high)

    def _edge(self, bound: FrameEnd, by_rows: bool, *, first: bool) -> Places:
        here = np.arange(len(self.rows))
        if bound.kind == "all":
            return self.start if first else self.end
        if bound.kind == "row":
            return here if first else here + 1
        if bound.kind == "peers":
            return self.peer_start if first else self.peer_end
        if by_rows:
            return np.clip(here + int(bound.offset) + (0 if first else 1), self.start, self.end)
        return self._distant(bound.offset, first=first)

    def _distant(self, offset: int | float, *, first: bool) -> Places:
        """The first place whose value is at least (or, for an end, above) the row's value and the offset."""
        assert self.first is not None
        order, codes = self.first.order, self.first.codes
        low, high = self._not_null
        below = above = np.zeros(len(codes), np.bool_)
        if isinstance(offset, float):
            values = pc.fill_null(order.values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)[self.rows]
            with np.errstate(over="ignore"):  # infinite is right, and a warning would tell of a row
                wanted = float_codes(values - offset if order.descending else values + offset)
            wanted = ~wanted if order.descending else wanted
        else:
            below = codes < _SMALLEST - min(offset, 0)
            above = codes > _LARGEST - max(offset, 0)
            wanted = codes + np.int64(offset)  # where that leaves 64 bits, the end of all values is meant
        found = self._search(self.first, wanted, right=not first)
        found = np.where(below, low, np.where(above, high, found))
        return np.where(self.first.nulls, self.peer_start if first else self.peer_end, found)

    @functools.cached_property
    def _not_null(self) -> tuple[Places, Places]:
        """Where in each partition the values begin and end that are not null."""
        assert self.first is not None
        before = np.concatenate([[0], np.cumsum(self.first.nulls)])
        missing = before[self.end] - before[self.start]
        if self.first.order.nulls_first:
            return self.start + missing, self.end
        return self.start, self.end - missing

    def _search(self, by: First, wanted: Codes, *, right: bool) -> Places:
        """The first place in each partition, nulls left out, whose code is at least `wanted`, or above it."""
        low, high = self._not_null
        if len(low) == 0:
            return low
        least, most = int(by.codes.min()), int(by.codes.max())
        bits = (most - least + 3).bit_length()
        if bits + len(low).bit_length() > 63 or least == _SMALLEST or most == _LARGEST:
            return _halved(by.codes, low, high, wanted, right=right)
        # One rising number of partition and code for each place: 0 or the largest for nulls, which are never found.
        partition = np.cumsum(starts_of([self.start])) << np.int64(bits)
        nulls = 0 if by.order.nulls_first else (1 << bits) - 1
        numbers = partition + np.where(by.nulls, np.int64(nulls), by.codes - np.int64(least - 1))
        sought = partition + (np.clip(wanted, least - 1, most + 1) - np.int64(least - 1))
        return np.clip(np.searchsorted(numbers, sought, side="right" if right else "left"), low, high)


def _halved(codes: Codes, low: Places, high: Places, wanted: Codes, *, right: bool) -> Places:
    """The same by halving all ranges at once: where codes are too far apart for one number.

    >>> _halved(np.array([1, 5, 5]), np.array([0]), np.array([3]), np.array([5]), right=False).tolist()
    [1]
    """
    low, high = low.copy(), high.copy()
    last = len(codes) - 1
    for _ in range(int((high - low).max()).bit_length()):
        middle = (low + high) >> 1
        there = codes[np.minimum(middle, last)]
        further = (low < high) & ((there <= wanted) if right else (there < wanted))
        low = np.where(further, middle + 1, low)
        high = np.where(further, high, middle)
    return low
