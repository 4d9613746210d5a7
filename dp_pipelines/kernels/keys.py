"""Canonical keys: the one place that decides when two units or two partitions are the same.

In: Arrow columns of any type that a real Parquet file has. Out: plain columns, dense codes (equal codes if and only if equal
keys) and keyed 64-bit hashes. Holds: identity is decided by whole keys, or by a 256-bit digest of a text of more than 64 bytes
(`kernels.columns.long_text`), never by a 64-bit hash; -0.0 is 0.0; NaN, text that is not valid UTF-8 and times that no Parquet file
can hold are null; integers of all widths hash by their value. Floats cannot partition (their equality is an accident of arithmetic) and may be units, where data
frames turn integers with nulls into floats. Not covered: Unicode normalisation (two spellings of a character are two keys).
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import gather, hashing, long_text, storable_times
from dp_pipelines.kernels.columns.gather import one_array as one_array
from dp_pipelines.kernels.columns.long_text import LONGEST_KEY, Texts

Codes = NDArray[np.int64]

VALIDATED = 2**10
"""Values of a text column that are validated together, so that one that is not UTF-8 costs no more than so many."""


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type under which a column is grouped and published: dictionaries, views and large layouts become plain.

    >>> str(plain_type(pa.dictionary(pa.int8(), pa.large_string())))
    'string'
    """
    if pa.types.is_dictionary(data_type):
        return plain_type(data_type.value_type)
    if isinstance(data_type, pa.BaseExtensionType):  # what Parquet calls a UUID is 16 bytes with a name
        return plain_type(data_type.storage_type)
    if pa.types.is_decimal(data_type) and data_type.bit_width < 128:  # narrow ones cannot be grouped by Arrow
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type):
        return pa.string()
    if pa.types.is_large_binary(data_type) or pa.types.is_binary_view(data_type):
        return pa.binary()
    return pa.float32() if pa.types.is_float16(data_type) else data_type


def check_key_type(data_type: pa.DataType, column: str, *, partition: bool) -> None:
    """Refuse types that cannot be a key.

    Raises:
        RequestError: for nested types, and for floats that partition.

    >>> check_key_type(pa.float64(), "price", partition=True)
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: column 'price': is a float (double) and cannot partition; cast or bucket it first, e.g. columns: {price_bucket: "CAST(floor(price / 10) AS INTEGER)"}
    """
    kind = plain_type(data_type)
    if pa.types.is_floating(kind):
        if partition:
            raise RequestError(
                field=f"column {column!r}",
                message=f"is a float ({kind}) and cannot partition",
                hint=f'cast or bucket it first, e.g. columns: {{{column}_bucket: "CAST(floor({column} / 10) AS INTEGER)"}}',
            )
        return
    single = pa.types.is_primitive(kind) or _is_bytes(kind) or pa.types.is_null(kind)
    if pa.types.is_nested(kind) or pa.types.is_interval(kind) or not single:
        role = "partition" if partition else "privacy unit"
        raise RequestError(
            field=f"column {column!r}", message=f"has type {kind}, which cannot be a {role}", hint="use a plain column"
        )


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array of plain type, canonical in each value; with offsets of 64 bits where its texts are too many bytes for 32.

    >>> plain(pa.array([0.0, -0.0, float("nan")])).to_pylist()
    [0.0, 0.0, None]
    """
    column = one_array(column)
    kind = plain_type(column.type)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = gather.decoded(column)
    if long_text.is_text(kind):
        column = _plain_text(column)
        return _valid_text(column) if pa.types.is_string(kind) else column
    if column.type != kind:
        column = column.cast(kind)
    return _plain_floats(column) if pa.types.is_floating(kind) else storable_times.storable(column)


def _plain_floats(column: pa.Array) -> pa.Array:
    """Return floats with null for NaN and 0.0 for -0.0."""
    kind = column.type
    if len(column) and not column.null_count:
        numbers = column.to_numpy() + 0.0
        if not np.isnan(numbers.min()):  # NaN where any of them is; one pass, where a mask would take three
            return pa.array(numbers)
    not_numbers = pc.is_nan(column.cast(pa.float64()))
    return pc.if_else(not_numbers, pa.scalar(None, kind), pc.add(column.cast(pa.float64()), 0.0).cast(kind))


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as `plain` does, with digests of texts of more than 64 bytes: to compare values, never to publish them.

    >>> len(comparable(pa.array(["a" * 5000]))[0].as_py())
    65
    """
    return plain(_short(column))


def plain_unit(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array for a privacy unit: as `comparable`, but text as its bytes, and integers in 32 bits where all fit.

    A unit is never published, so that its bytes need not be text.

    >>> plain_unit(pa.array(["a", None])).to_pylist(), plain_unit(pa.array([1])).type
    ([b'a', None], DataType(int32))
    """
    if is_text(column.type):
        column = one_array(_short(column, as_bytes=True))
        return gather.decoded(column) if pa.types.is_dictionary(column.type) else column
    column = comparable(column)
    if not pa.types.is_int64(column.type) or len(column) == column.null_count:
        return column
    ends = pc.min_max(column)
    return column.cast(pa.int32()) if ends["min"].as_py() >= -(2**31) and ends["max"].as_py() < 2**31 else column


def encoded(column: pa.Array | pa.ChunkedArray, texts: Texts | None = None) -> pa.Array:
    """Return a dictionary-encoded array of plain type for a partition; its dictionary has no doubles or nulls.

    Canonical values are made of the dictionary alone, since the rows of a partition column repeat. A text of more than 64
    bytes is its digest; one of more than `LONGEST_KEY` bytes is null.

    Args:
        column: of a partition.
        texts: takes up the texts of the digests.

    >>> encoded(pa.array(["a", None, "a"])).indices.to_pylist()
    [0, None, 0]
    """
    column = one_array(_short(column, texts=texts, longest=LONGEST_KEY))
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_null(kind) or pa.types.is_decimal(kind):
        column = plain(column)  # what Arrow cannot encode as it is
    if pa.types.is_null(column.type):
        return column
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = plain(column.dictionary).dictionary_encode()
    indices = column.indices
    if len(values.dictionary) != len(column.dictionary):
        indices = gather.take(values.indices, indices) if not indices.null_count else values.indices.take(indices)
    narrow = pa.int16() if len(values.dictionary) < 2**15 else pa.int32()
    return pa.DictionaryArray.from_arrays(indices.cast(narrow), values.dictionary)


def null_unless(column: pa.Array, mask: NDArray[np.bool_]) -> pa.Array:
    """Return an encoded column, null where a mask is false.

    >>> null_unless(encoded(pa.array(["a", "b"])), np.array([False, True])).to_pylist()
    [None, 'b']
    """
    if pa.types.is_null(column.type):
        return column
    indices = pc.if_else(pa.array(mask), column.indices, pa.scalar(None, column.indices.type))
    return pa.DictionaryArray.from_arrays(indices, column.dictionary)


def _short(
    column: pa.Array | pa.ChunkedArray,
    *,
    as_bytes: bool = False,
    texts: Texts | None = None,
    longest: int | None = None,
) -> pa.Array | pa.ChunkedArray:
    """Return a column with a digest for each long text, piece by piece: joined first, its texts might be too many bytes."""

    def short(values: pa.Array) -> pa.Array:
        values = _plain_text(values)
        # Published text must be text; what is only compared may be any bytes.
        values = values.cast(_bytes_type(values.type)) if as_bytes else _valid_text(values)
        return long_text.shortened(values, texts=texts, longest=longest)

    if not long_text.is_text(plain_type(column.type)):
        return column
    if isinstance(column, pa.ChunkedArray) and column.num_chunks != 1:
        pieces = [_of_values(chunk, short) for chunk in column.chunks]
        return pa.chunked_array(pieces) if pieces else _of_values(one_array(column), short)
    return _of_values(one_array(column), short)


def with_values(column: pa.Array | pa.ChunkedArray, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return a column of text or bytes, as bytes, with its values changed: piece by piece, each entry of a dictionary once.

    Args:
        column: of any kind of text.
        change: of bytes to bytes; afterwards all values together should be few enough bytes.
    """

    def changed(values: pa.Array) -> pa.Array:
        values = _plain_text(values)
        return change(values.cast(_bytes_type(values.type)))

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    pieces = [_of_values(chunk, changed) for chunk in chunks] or [_of_values(one_array(column), changed)]
    joined = one_array(pa.chunked_array(pieces))
    return gather.decoded(joined) if pa.types.is_dictionary(joined.type) else joined


def _of_values(column: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return an array with its values changed; those of a dictionary alone where it has one."""
    if isinstance(column.type, pa.BaseExtensionType):
        return _of_values(column.storage, change)
    if not pa.types.is_dictionary(column.type):
        return _plain_or_wide(change(column))
    return pa.DictionaryArray.from_arrays(column.indices, _plain_or_wide(_of_values(column.dictionary, change)))


def _plain_text(values: pa.Array) -> pa.Array:
    """Return text or bytes with offsets of 32 bits where they suffice; not of the kind that Arrow calls views."""
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return _plain_or_wide(values)


def _plain_or_wide(values: pa.Array) -> pa.Array:
    kind = plain_type(values.type)
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    return (
        gather.narrow(values, kind)
        if wide and (pc.sum(pc.binary_length(values)).as_py() or 0) <= gather.LIMIT
        else values
    )


def _bytes_type(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else pa.binary()


def is_text(kind: pa.DataType) -> bool:
    """Return True if a type is text, plain or dictionary-encoded.

    >>> is_text(pa.dictionary(pa.int8(), pa.string()))
    True
    """
    return bool(pa.types.is_string(plain_type(kind)))


@dataclasses.dataclass(frozen=True)
class Keys:
    """Dense codes of keys over one or several columns.

    Args:
        codes: int64, one per row, from 0; two rows have equal codes if and only if they have equal keys.
        columns: for each key column, the value of each code.
    """

    codes: Codes
    columns: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    def hashes(self, salt: int) -> hashing.Words:
        """Return the keyed hash of each code."""
        return hashing.hash_columns(self.columns, salt)

    def ranks(self) -> Codes:
        """Return the place of each code in an order of the keys themselves, which no batch or process changes."""
        ordered = pa.table(list(self.columns), names=[str(i) for i in range(len(self.columns))])
        by = [(name, "ascending") for name in ordered.column_names]
        ranks = np.empty(len(self), np.int64)
        ranks[pc.sort_indices(ordered, sort_keys=by).to_numpy()] = np.arange(len(self))
        return ranks


def dense(columns: Sequence[pa.Array]) -> Keys:
    """Return dense codes of exact keys.

    Args:
        columns: plain arrays (or dictionaries without doubles) of equal length.

    >>> dense([pa.array(["a", None, "a"]), pa.array([1, 1, 1])]).codes.tolist()
    [0, 1, 0]
    """
    codes, values = codes_and_values(columns[0])
    # Codes that a dictionary brought along may leave some of its values unused; that harms nobody.
    parts = [values]
    for column in columns[1:]:
        more, values = codes_and_values(column)
        # Codes stay below the number of rows, so the product of two counts cannot overflow below 2**31 rows.
        codes, combined = _dense_integers(codes * len(values) + more)
        parts = [gather.take(part, combined // len(values)) for part in parts]
        parts.append(gather.take(values, combined % len(values)))
    return Keys(codes, tuple(parts))


def codes_and_values(column: pa.Array) -> tuple[Codes, pa.Array]:
    """Return a code for each row, and the value of each code, which has no doubles; null has a code like others.

    Args:
        column: plain, or a dictionary without doubles.
    """
    if not pa.types.is_dictionary(column.type):
        if pa.types.is_null(column.type):
            return np.zeros(len(column), np.int64), pa.nulls(min(len(column), 1))
        encoded = column.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), encoded.dictionary
    values, indices = column.dictionary, column.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), len(values))
        values = gather.joined([values, pa.nulls(1, values.type)])
    return indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), values


def equal_values(column: pa.Array, positions: Codes, others: Codes) -> NDArray[np.bool_]:
    """Return True if the value at each position is certainly the one at another position. Two nulls are equal, two NaNs are not.

    >>> equal_values(pa.array([1, 2, None, None, 1]), np.array([0, 0, 2, 2]), np.array([4, 1, 3, 0])).tolist()
    [True, False, True, False]
    """
    if pa.types.is_integer(column.type) and not column.null_count:
        values = column.to_numpy()
        return np.asarray(values[positions] == values[others], np.bool_)
    if pa.types.is_null(column.type):  # Arrow compares none of these two kinds
        return np.ones(len(positions), np.bool_)
    if pa.types.is_nested(column.type):  # the caller has another way
        return np.zeros(len(positions), np.bool_)
    mine, theirs = gather.take(column, positions), gather.take(column, others)
    both = pc.and_(pc.is_null(mine), pc.is_null(theirs))
    same = pc.or_(pc.fill_null(pc.equal(mine, theirs), False), both)
    return np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)


def _dense_integers(codes: Codes) -> tuple[Codes, Codes]:
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64, copy=False), encoded.dictionary.to_numpy()


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_decimal(kind)
    )


def _valid_text(column: pa.Array) -> pa.Array:
    """Return text with null for invalid UTF-8; bytes unchanged."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or _is_valid(column):
        return column
    pieces = [column[begin : begin + VALIDATED] for begin in range(0, len(column), VALIDATED)]
    return gather.joined([piece if _is_valid(piece) else _valid_one_by_one(piece) for piece in pieces])


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _valid_one_by_one(column: pa.Array) -> pa.Array:
    sound = np.array([_is_valid(column[place : place + 1]) for place in range(len(column))])
    return gather.replaced(column, ~sound, None)
