"""Take, filter and join Arrow values without ever passing the limit of Arrow's 32-bit offsets.

In: arrays, chunked arrays and tables of any type. Out: the same values, in one array or one table. Holds: Arrow computes the
offsets of text, bytes and lists in 32 bits and lets them wrap beyond 2 GiB without an error, so a result whose bytes could pass
`LIMIT` is made with 64-bit offsets instead; which of the two is made changes no value. Every other module of the rows' path
calls these functions and no operation of Arrow's own (tests/kernels/columns/test_guarded_arrow.py). Not covered: running out of
memory.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

LIMIT = 2**30
"""Bytes of texts, or values of lists, in one array with 32-bit offsets at most: half of what Arrow can address."""

Positions = NDArray[np.int64]


def take(column: pa.Array | pa.ChunkedArray, positions: "Positions | pa.Array") -> pa.Array:
    """Return the values at some positions, as one array; its offsets have 64 bits where the values are too many bytes for 32.

    >>> take(pa.array(["a", "b"]), np.array([1, 1, 0])).to_pylist()
    ['b', 'b', 'a']
    """
    column, positions = one_array(column), _numbers(positions)
    if _bytes_at(column, positions) > LIMIT:
        column = column.cast(_wide(column.type))
    return column.take(pa.array(positions))


def filtered(column: pa.Array | pa.ChunkedArray, mask: Any) -> pa.Array:
    """Return the values where a mask is true, as one array.

    >>> filtered(pa.array(["a", "b"]), np.array([False, True])).to_pylist()
    ['b']
    """
    return take(column, np.flatnonzero(_truths(mask)))


def take_rows(table: pa.Table, positions: "Positions | pa.Array") -> pa.Table:
    """Return the rows at some positions; every column keeps its type, but for the width of codes.

    >>> take_rows(pa.table({"a": ["x", "y"]}), np.array([1])).to_pydict()
    {'a': ['y']}
    """
    positions = _numbers(positions)
    columns = [as_type(take(column, positions), column.type) for column in table.columns]
    return pa.table(columns, names=table.column_names).replace_schema_metadata(table.schema.metadata)


def filter_rows(table: pa.Table, mask: Any) -> pa.Table:
    """Return the rows where a mask is true; every column keeps its type. Filtering never makes a column larger.

    >>> filter_rows(pa.table({"a": ["x", "y"]}), np.array([True, False])).to_pydict()
    {'a': ['x']}
    """
    mask = pa.array(_truths(mask))
    rows: pa.Table = table.filter(mask)
    return rows


def decoded(column: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary-encoded array, each in its row.

    >>> decoded(pa.array(["a", None, "a"]).dictionary_encode()).to_pylist()
    ['a', None, 'a']
    """
    values, indices = column.dictionary, column.indices
    if not len(values):  # what is below a null of a nested column may have codes of nothing
        return pa.nulls(len(column), values.type)
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):  # cannot be taken from
        values = values.cast(pa.string() if pa.types.is_string_view(values.type) else pa.binary())
    if indices.null_count == 0:
        return take(values, indices)
    if _most_bytes(values, len(indices)) > LIMIT:
        values = values.cast(_wide(values.type))
    return values.take(indices)


def plain(column: pa.Array) -> pa.Array:
    """Return the values of an array in each of its rows, whether it holds codes or not.

    >>> plain(pa.array(["a", None, "a"]).dictionary_encode()).to_pylist()
    ['a', None, 'a']
    """
    return decoded(column) if pa.types.is_dictionary(column.type) else column


def joined(arrays: Sequence[pa.Array]) -> pa.Array:
    """Join arrays of one type; offsets have 64 bits if those of an array have, or if the bytes are too many for 32.

    Args:
        arrays: at least one; integers may have several widths, and get the largest.

    >>> joined([pa.array(["a"]), pa.array(["b"], pa.large_string())]).to_pylist()
    ['a', 'b']
    >>> joined([pa.array([1], pa.int8()), pa.array([2], pa.int16())]).type
    DataType(int16)
    """
    kind = arrays[0].type
    if _is_wide(kind) and all(array.type == kind for array in arrays):
        return pa.concat_arrays(arrays)  # as numbers are: there are no offsets
    if all(pa.types.is_integer(array.type) for array in arrays):
        widest = max((array.type for array in arrays), key=lambda other: other.bit_width)
        return pa.concat_arrays([array.cast(widest) for array in arrays])
    wide = {array.type: _wide(array.type) for array in arrays}
    if len(wide) > 1 or sum(_bytes(array) for array in arrays) > LIMIT:
        arrays = [array.cast(wide[array.type]) for array in arrays]
    return pa.concat_arrays(arrays)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece; the dictionaries of its pieces become one.

    >>> one_array(pa.chunked_array([[1], [2]])).to_pylist()
    [1, 2]
    """
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)  # pa.array knows no empty dictionary of dates
    if column.num_chunks == 1:
        return column.chunk(0)
    return _one_dictionary(column) if pa.types.is_dictionary(column.type) else joined(column.chunks)


def _one_dictionary(column: pa.ChunkedArray) -> pa.Array:
    different = {id(chunk.dictionary): chunk.dictionary for chunk in column.chunks}.values()
    if sum(_bytes(dictionary) for dictionary in different) <= LIMIT:
        # Codes stay as narrow as they are where all values together are few enough for them.
        for chunks in (column.chunks, map(_with_room, column.chunks)):
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # e.g. nulls inside a dictionary
                return pa.concat_arrays(pa.chunked_array(chunks).unify_dictionaries().chunks)
    return joined([decoded(chunk) for chunk in column.chunks])


def _with_room(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the same array with indices that fit the values of many dictionaries together."""
    if column.indices.type.bit_width >= 32:
        return column
    return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), column.dictionary)


def replaced(values: pa.Array, mask: NDArray[np.bool_], replacement: pa.Array | None) -> pa.Array:
    """Replace some values of text or bytes, in order, or by null. Offsets have 64 bits if the bytes are too many for 32.

    Args:
        values: text or bytes, plain.
        mask: which values are replaced.
        replacement: as many values as are replaced, whose bytes suit the type of `values`.

    >>> replaced(pa.array(["a", "b"]), np.array([True, False]), pa.array([b"c"])).to_pylist()
    ['c', 'b']
    """
    if replacement is None:
        return pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)
    wide = _wide(values.type)
    kind = wide if _text_bytes(values) + _text_bytes(replacement) > LIMIT else values.type
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        replacement = replacement.cast(pa.large_binary()).cast(pa.large_string())
    return pc.replace_with_mask(values.cast(kind), pa.array(mask), replacement.cast(kind))


def whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in one piece, or in as few as its bytes allow.

    >>> whole(pa.chunked_array([["a"], ["b"]])).num_chunks
    1
    """
    return as_type(one_array(column), column.type)


def byte_slices(lengths: NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Return consecutive ranges of rows, each with at most `most` bytes; a larger row is a range by itself.

    >>> byte_slices(np.array([3, 3, 9, 1]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(lengths)
    slices, begin, before = [], 0, 0
    while begin < len(lengths):
        end = max(int(np.searchsorted(ends, before + most, side="right")), begin + 1)
        slices.append((begin, end))
        begin, before = end, int(ends[end - 1])
    return slices


def narrow(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column under its plain type. Its bytes must be few enough for 32-bit offsets.

    A slice keeps the offsets of the whole, and Arrow refuses to cast those beyond 32 bits: they are counted from zero first.

    >>> narrow(pa.array(["a", "b"], pa.large_string())[1:], pa.string()).to_pylist()
    ['b']
    """
    return column if column.type == kind else pa.concat_arrays([column]).cast(kind)


def as_type(column: pa.Array, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column under its plain type, in several pieces if one would have too many bytes for 32-bit offsets.

    >>> as_type(pa.array(["a"], pa.large_string()), pa.string()).type
    DataType(string)
    """
    if column.type == kind or pa.types.is_dictionary(kind):  # dictionaries that became one may have wider codes
        return pa.chunked_array([column])
    parts = byte_slices(_lengths(column), LIMIT)
    return pa.chunked_array([narrow(column[begin:end], kind) for begin, end in parts], kind)


def _wide(kind: pa.DataType) -> pa.DataType:
    """Return the type with offsets of 64 bits; a type without offsets as it is."""
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_wide(kind.value_type))
    return kind


def _is_wide(kind: pa.DataType) -> bool:
    return bool(_wide(kind) == kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _bytes(column: pa.Array) -> int:
    """Return the bytes of the values that 32-bit offsets must address; 0 where there are no such offsets."""
    if _is_wide(column.type) or len(column) == 0:
        return 0
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    size = int(offsets[-1]) - int(offsets[0])
    if _is_text(column.type):
        return size
    return max(size, _bytes(column.values[int(offsets[0]) : int(offsets[-1])]))


def _text_bytes(values: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(values)).as_py() or 0)


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of each value that offsets must address, at least of text and bytes; of a list at least its length."""
    if len(column) == 0:
        return np.zeros(0, np.int64)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = column.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)
    if _is_wide(column.values.type) and not _is_large_text(column.values.type):
        return sizes
    inner = np.concatenate(([0], np.cumsum(_lengths(column.values[int(offsets[0]) : int(offsets[-1])]))))
    places = offsets - offsets[0]
    return np.maximum(sizes, inner[places[1:]] - inner[places[:-1]])


def _is_large_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _most_bytes(column: pa.Array, times: int) -> int:
    """Return an upper bound on the bytes of so many values of a column."""
    if _is_wide(column.type) or len(column) == 0:
        return 0
    whole = _bytes(column)
    return whole * times if whole * times <= LIMIT else int(_lengths(column).max()) * times


def _bytes_at(column: pa.Array, positions: Positions) -> int:
    """Return the bytes of the values at some positions."""
    if _is_wide(column.type) or len(column) == 0 or _most_bytes(column, len(positions)) <= LIMIT:
        return 0
    return int(_lengths(column)[positions].sum())


def _numbers(positions: "Positions | pa.Array") -> Positions:
    numbers: Positions = positions.to_numpy() if isinstance(positions, pa.Array) else positions
    return numbers


def _truths(mask: Any) -> NDArray[np.bool_]:
    """Convert a mask to numpy; null is false."""
    if isinstance(mask, pa.ChunkedArray):
        mask = one_array(mask)
    if isinstance(mask, pa.Array):
        mask = (mask.fill_null(False) if mask.null_count else mask).to_numpy(zero_copy_only=False)
    truths: NDArray[np.bool_] = mask
    return truths
