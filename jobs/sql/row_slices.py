"""Splits rows by bytes, so that no step over text comes near the 2 GiB limit of Arrow's 32-bit offsets.

In: a table, the columns that a step reads. Out: ranges of rows whose values take at most `SLICE_BYTES` once dictionaries are
decoded; a larger row gets a range of its own. Holds: sizes are computed from lengths, without decoding. Where a cut falls depends
on all rows, so the next step must be a function of each row alone. Not covered: the size of that step's results (`guards`).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Bytes = NDArray[np.int64]

SLICE_BYTES = 64 * 2**20
"""The most bytes of the decoded values of a slice, unless a single row is larger."""

_FIXED, ROW_BYTES = 8, 16
"""Bytes counted for every value and every row besides its text."""


def cut(table: pa.Table, names: Sequence[str], most: int | None = None) -> Iterator[tuple[int, int]]:
    """Ranges of rows, in order; one empty range for a table without rows.

    Args:
        table: the rows.
        names: the columns whose bytes count.
        most: the most bytes of a range; `SLICE_BYTES` by default.

    >>> rows = pa.table({"note": pa.DictionaryArray.from_arrays([0, 0, 0, 0, 0], ["x" * 40])})
    >>> list(cut(rows, ["note"], 140))
    [(0, 2), (2, 4), (4, 5)]
    """
    most = SLICE_BYTES if most is None else most
    columns = [table.column(name) for name in names]
    if ROW_BYTES * table.num_rows + sum(_at_most(column) for column in columns) <= most:
        yield 0, table.num_rows
        return
    ends = np.cumsum(sum((_of_column(column) for column in columns), np.full(table.num_rows, ROW_BYTES)))
    start = 0
    while start < table.num_rows:
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        yield start, stop
        start = stop


def decoded_bytes(column: pa.ChunkedArray) -> int:
    """The bytes of each value of a column, with dictionaries decoded."""
    return int(sum(int(text_bytes(chunk).sum()) for chunk in column.chunks))


def text_bytes(array: pa.Array) -> Bytes:
    """The bytes of each value, decoded: of text, of bytes, and of the values inside lists and structs.

    >>> text_bytes(pa.array([["ab", "c"], None, []])).tolist()
    [27, 8, 8]
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return text_bytes(array.storage)
    if pa.types.is_dictionary(kind):
        entries = np.append(text_bytes(array.dictionary), _FIXED)
        places = pc.fill_null(array.indices.cast(pa.int64()), len(array.dictionary))
        return np.asarray(entries[places.to_numpy(zero_copy_only=False)], np.int64)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _of_views(array)
    if _is_text(kind):
        return _of_text(array)
    if pa.types.is_struct(kind):
        parts = [np.full(len(array), _FIXED), *map(text_bytes, array.flatten())]
        return np.asarray(np.sum(parts, axis=0), np.int64)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        ends = np.append(0, np.cumsum(text_bytes(array.values)))[np.asarray(array.offsets)]
        return np.asarray(np.diff(ends) + _FIXED, np.int64)
    if pa.types.is_fixed_size_list(kind):
        of_values = text_bytes(array.values)[array.offset * kind.list_size :][: len(array) * kind.list_size]
        return np.asarray(of_values.reshape(len(array), kind.list_size).sum(axis=1) + _FIXED, np.int64)
    return np.full(len(array), max(-(-int(array.nbytes) // max(len(array), 1)), _FIXED), np.int64)


def _of_column(column: pa.ChunkedArray) -> Bytes:
    return np.concatenate([np.zeros(0, np.int64), *(text_bytes(chunk) for chunk in column.chunks)])


def _at_most(column: pa.ChunkedArray) -> int:
    """At least what a column takes decoded; found without a look at each row where its values have one width."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        longest = (int(text_bytes(chunk.dictionary).max(initial=_FIXED)) for chunk in column.chunks)
        return sum(most * len(chunk) for most, chunk in zip(longest, column.chunks, strict=True))
    if _is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return int(column.nbytes)
    return decoded_bytes(column)


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def _of_text(array: pa.Array) -> Bytes:
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    return np.asarray(lengths.astype(np.int64) + _FIXED)


def _of_views(array: pa.Array) -> Bytes:
    """Lengths of texts in views: the first four of each view's sixteen bytes."""
    if len(array) == 0:
        return np.zeros(0, np.int64)
    views = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)
    known = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return np.asarray(np.where(known, views[0::4], 0), np.int64) + _FIXED
