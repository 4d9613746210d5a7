"""Canonical keys: the one place that decides when two units or two partitions are the same.

In: Arrow columns of any type that a real Parquet file has. Out: plain columns, dense codes (equal codes if and only if
equal keys) and keyed 64-bit hashes. Holds: identity is decided by whole keys, never by a hash; -0.0 is 0.0, NaN is null,
text that is not valid UTF-8 is null; integers of all widths hash by their value; a privacy unit of more than 4,096 bytes
is known by its SHA-256. Not covered: Unicode normalisation (two
spellings of a character are two keys).

Float columns are refused as partitions (equality of floats is an accident of arithmetic) and allowed as units, where data
frames turn integers with nulls into floats. May import errors, numpy and pyarrow.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError

Words = NDArray[np.uint64]
Codes = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)


LONGEST_UNIT = 4096
"""Bytes of a privacy unit: a longer one is known by its SHA-256."""


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type under which a column is grouped and published: dictionaries, views and large layouts become plain.

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
                rule=f"is a float ({kind}) and cannot partition",
                mend=f'cast or bucket it first, e.g. columns: {{{column}_bucket: "CAST(floor({column} / 10) AS INTEGER)"}}',
            )
        return
    single = pa.types.is_primitive(kind) or _is_bytes(kind) or pa.types.is_null(kind)
    if pa.types.is_nested(kind) or pa.types.is_interval(kind) or not single:
        role = "partition" if partition else "privacy unit"
        raise RequestError(
            field=f"column {column!r}", rule=f"has type {kind}, which cannot be a {role}", mend="use a plain column"
        )


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array of plain type, canonical in each value.

    >>> plain(pa.array([0.0, -0.0, float("nan")])).to_pylist()
    [0.0, 0.0, None]
    """
    column = one_array(column)
    kind = plain_type(column.type)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if column.type != kind:
        column = column.cast(kind)
    if pa.types.is_floating(kind):
        not_numbers = pc.is_nan(column.cast(pa.float64()))
        column = pc.if_else(not_numbers, pa.scalar(None, kind), pc.add(column.cast(pa.float64()), 0.0).cast(kind))
    elif pa.types.is_string(kind):
        column = _valid_text(column)
    return column


def plain_unit(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array for a privacy unit: as `plain`, but text as its bytes, and integers in 32 bits where all fit.

    A unit is never published, so that its bytes need not be text.

    >>> plain_unit(pa.array(["a", None])).to_pylist(), plain_unit(pa.array([1])).type
    ([b'a', None], DataType(int32))
    """
    column = one_array(column)
    if is_text(column.type):
        if not pa.types.is_dictionary(column.type):
            return _short_unit(column.cast(pa.binary()))
        return _short_unit(column.dictionary.cast(pa.binary())).take(column.indices)
    column = plain(column)
    if not pa.types.is_int64(column.type) or len(column) == column.null_count:
        return column
    ends = pc.min_max(column)
    return column.cast(pa.int32()) if ends["min"].as_py() >= -(2**31) and ends["max"].as_py() < 2**31 else column


def _short_unit(values: pa.Array) -> pa.Array:
    """Units as bytes, those beyond `LONGEST_UNIT` as their SHA-256.

    A dictionary may hold one text for a million rows: what a file has in a few bytes would take all memory as rows.
    """
    long = np.flatnonzero(pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False) > LONGEST_UNIT)
    if not len(long):
        return values
    digests = [b"\0sha256:" + hashlib.sha256(values[int(place)].as_py()).digest() for place in long]
    places = np.zeros(len(values), np.bool_)
    places[long] = True
    return pc.replace_with_mask(values, pa.array(places), pa.array(digests, pa.binary()))


def encoded(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One dictionary-encoded array of plain type, with a dictionary that has neither doubles nor nulls.

    Canonical values are made of the dictionary alone, since the rows of a partition column repeat.

    >>> encoded(pa.array(["a", None, "a"])).indices.to_pylist()
    [0, None, 0]
    """
    column = one_array(column)
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
        indices = values.indices.take(indices)
    narrow = pa.int16() if len(values.dictionary) < 2**15 else pa.int32()
    return pa.DictionaryArray.from_arrays(indices.cast(narrow), values.dictionary)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece; the dictionaries of its pieces become one.

    >>> one_array(pa.chunked_array([[1], [2]])).to_pylist()
    [1, 2]
    """
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)  # pa.array knows no empty dictionary of dates
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        try:
            column = pa.chunked_array([_with_room(chunk) for chunk in column.chunks]).unify_dictionaries()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # e.g. nulls inside a dictionary
            return pa.concat_arrays([_decoded(chunk) for chunk in column.chunks])
    return pa.concat_arrays(column.chunks)


def _with_room(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same array with indices that fit the values of many dictionaries together."""
    if column.indices.type.bit_width >= 32:
        return column
    return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), column.dictionary)


def _decoded(column: pa.DictionaryArray) -> pa.Array:
    values = column.dictionary
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):  # cannot be taken from
        values = values.cast(plain_type(values.type))
    return values.take(column.indices)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text, plain or dictionary-encoded.

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

    def hashes(self, salt: int) -> Words:
        """The keyed hash of each code."""
        return hash_columns(self.columns, salt)

    def ranks(self) -> Codes:
        """The place of each code in an order of the keys themselves, which no batch or process changes."""
        ordered = pa.table(list(self.columns), names=[str(i) for i in range(len(self.columns))])
        by = [(name, "ascending") for name in ordered.column_names]
        ranks = np.empty(len(self), np.int64)
        ranks[pc.sort_indices(ordered, sort_keys=by).to_numpy()] = np.arange(len(self))
        return ranks


def dense(columns: Sequence[pa.Array]) -> Keys:
    """Dense codes of exact keys.

    Args:
        columns: plain arrays (or dictionaries without doubles) of equal length.

    >>> dense([pa.array(["a", None, "a"]), pa.array([1, 1, 1])]).codes.tolist()
    [0, 1, 0]
    """
    codes, values = _dense_column(columns[0])
    # Codes that a dictionary brought along may leave some of its values unused; that harms nobody.
    parts = [values]
    for column in columns[1:]:
        more, values = _dense_column(column)
        # Codes stay below the number of rows, so the product of two counts cannot overflow below 2**31 rows.
        codes, combined = _dense_integers(codes * len(values) + more)
        parts = [part.take(pa.array(combined // len(values))) for part in parts]
        parts.append(values.take(pa.array(combined % len(values))))
    return Keys(codes, tuple(parts))


def _dense_column(column: pa.Array) -> tuple[Codes, pa.Array]:
    if not pa.types.is_dictionary(column.type):
        if pa.types.is_null(column.type):
            return np.zeros(len(column), np.int64), pa.nulls(min(len(column), 1))
        encoded = column.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), encoded.dictionary
    values, indices = column.dictionary, column.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), len(values))
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    return indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), values


def _dense_integers(codes: Codes) -> tuple[Codes, Codes]:
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64, copy=False), encoded.dictionary.to_numpy()


def mix(words: Words) -> Words:
    """A bijection of 64-bit words whose output bits depend on all input bits (the finaliser of SplitMix64).

    >>> mix(np.array([1], np.uint64)).tolist()
    [6238072747940578789]
    """
    mixed = words >> np.uint64(30)
    mixed ^= words
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    shifted = mixed >> np.uint64(27)
    shifted ^= mixed
    shifted *= np.uint64(0x94D049BB133111EB)
    mixed = shifted >> np.uint64(31)
    mixed ^= shifted
    return mixed


def hash_columns(columns: Sequence[pa.Array], salt: int) -> Words:
    """Keyed 64-bit hashes of rows of plain columns. A hash spreads and orders; it never decides identity.

    Args:
        columns: plain arrays of equal length.
        salt: the run's own 64-bit number.
    """
    return hash_onto(np.full(len(columns[0]), salt % 2**64, np.uint64), columns)


def hash_onto(hashes: Words, columns: Sequence[pa.Array]) -> Words:
    """Hashes that go on from the given ones, one per row."""
    for column in columns:
        hashes = _absorb(hashes, column)
    return hashes


def _absorb(hashes: Words, column: pa.Array) -> Words:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    valid = None
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        return mix(hashes ^ _NULL)
    mixed = _absorb_bytes(hashes, column) if pa.types.is_binary(kind) or pa.types.is_string(kind) else hashes
    if mixed is hashes:
        for word in _fixed_words(column):
            mixed = mix((mixed ^ word) + _GOLDEN)
    return mixed if valid is None else np.where(valid, mixed, mix(hashes ^ _NULL))


def _fixed_words(column: pa.Array) -> list[Words]:
    """The values of a fixed-width column as 64-bit words; what stands under a null is arbitrary."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        target = pa.uint64() if kind == pa.uint64() else pa.int64()
        numbers = pc.fill_null(column, False if pa.types.is_boolean(kind) else 0).cast(target)
        return [numbers.to_numpy(zero_copy_only=False).view(np.uint64)]
    width = kind.byte_width
    padded = -(-width // 8) * 8
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return [np.zeros(len(column), np.uint64)] * (padded // 8)
    raw = np.frombuffer(data, np.uint8, len(column) * width, column.offset * width).reshape(len(column), width)
    if padded != width:
        raw = np.concatenate([raw, np.zeros((len(column), padded - width), np.uint8)], axis=1)
    words = np.ascontiguousarray(raw).view(np.uint64)
    return [np.ascontiguousarray(words[:, i]) for i in range(padded // 8)]


def _absorb_bytes(hashes: Words, column: pa.Array) -> Words:
    """Hashes of text or bytes, eight bytes at a time over all rows at once."""
    if len(column) == 0:  # may lack its buffers
        return hashes.copy()
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    size, data = int(offsets[-1] - offsets[0]), column.buffers()[2]
    # Eight bytes more, so that a word that begins at the last byte can be read.
    raw = np.zeros(size + 8, np.uint8)
    if size:
        raw[:-8] = np.frombuffer(data, np.uint8, size, int(offsets[0]))
    # A view of the same bytes in which word i begins at byte i.
    at_byte = np.ndarray((len(raw) - 7,), np.uint64, raw, 0, (1,))
    mixed = mix((hashes ^ lengths.view(np.uint64)) + _GOLDEN)
    rest = lengths
    rows: NDArray[np.int64] | None = None
    done = 0
    while len(rest) and rest.max() > 0:
        if rows is None and rest.min() > 0:
            words = at_byte[starts + done]
            mixed = mix((mixed ^ (words & _mask(rest))) + _GOLDEN)
        else:
            more = np.flatnonzero(rest > 0)
            rows = more if rows is None else rows[more]
            words = at_byte[starts[rows] + done] & _mask(rest[more])
            mixed[rows] = mix((mixed[rows] ^ words) + _GOLDEN)
            rest = rest[more]
        rest = rest - 8
        done += 8
    return mixed


def _mask(rest: Codes) -> Words:
    """Keeps the first `rest` bytes of a little-endian word, all eight where there are more."""
    bits = (np.minimum(rest, 8) * 8).astype(np.uint64)
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - bits)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_decimal(kind)
    )


def _valid_text(column: pa.Array) -> pa.Array:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_text_or_none(value) for value in column.cast(pa.binary()).to_pylist()], pa.string())
    return column


def _text_or_none(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
