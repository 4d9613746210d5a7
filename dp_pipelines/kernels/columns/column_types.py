"""Checks the types of columns: numbers that can be summed, and declared values in the data's own type.

In: types, declared values. Out: plain Arrow columns, or an error that names the column; tables without layouts that few functions
of Arrow know. Holds: types are public facts; no value of the data decides anything.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import csv_cells, gather


def readable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type under which a column of a file is read.

    Views become plain text, bytes and lists with wide offsets, also inside other types.

    Narrow codes become codes of 32 bits, and values where they are inside lists or structs (`has_narrow_codes`).

    >>> str(readable_type(pa.list_(pa.string_view()))), str(readable_type(pa.list_view(pa.int8())))
    ('list<item: large_string>', 'large_list<item: int8>')
    >>> readable_type(pa.dictionary(pa.int8(), pa.string())).index_type
    DataType(int32)
    """
    if pa.types.is_dictionary(kind) and has_narrow_codes(kind):
        return pa.dictionary(pa.int32(), readable_type(kind.value_type), kind.ordered)
    return _readable_value(kind)


def has_narrow_codes(kind: pa.DataType) -> bool:
    """Return True if codes of a type, also inside it, have fewer than 32 bits, or are what an extension type stores.

    A column of a file may have more values than its type has codes for, since each part of it may have its own few values; Arrow
    then refuses to read the column. Batches of codes under an extension type end the process.

    >>> has_narrow_codes(pa.list_(pa.dictionary(pa.int16(), pa.string()))), has_narrow_codes(pa.int8())
    (True, False)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return bool(pa.types.is_dictionary(kind.storage_type)) or has_narrow_codes(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return bool(kind.index_type.bit_width < 32)
    return any(has_narrow_codes(kind.field(place).type) for place in range(kind.num_fields))


def refused_for_rows(kind: pa.DataType) -> bool:
    """Return True if Arrow may refuse to read a column of this stored type because of what rows have in it."""
    return bool(pa.types.is_fixed_size_list(kind)) or has_fixed_lists_inside(kind) or has_narrow_codes(kind)


def _readable_value(kind: pa.DataType) -> pa.DataType:
    """Return the readable type of values inside others, which have no narrow codes."""
    if pa.types.is_dictionary(kind) and has_narrow_codes(kind):
        return _readable_value(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        stored = readable_type(kind.storage_type)
        return stored if stored != kind.storage_type or has_narrow_codes(kind) else kind
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable_value(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(_readable_value(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if not hasattr(kind, "value_field"):
        return kind
    inner = kind.value_field.with_type(_readable_value(kind.value_field.type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner, kind.list_size)
    return pa.list_(inner) if pa.types.is_list(kind) else pa.large_list(inner)


def fixed_lists(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert lists to lists of a fixed size, with null for one of another size.

    >>> fixed_lists(pa.array([[1, 2], None, [3]]), pa.list_(pa.int64(), 2)).to_pylist()
    [[1, 2], None, None]
    """
    size = kind.list_size
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    first = column.offsets.to_numpy()[:-1]
    fits = lengths == size
    places = np.where(fits[:, None], first[:, None] + np.arange(size), 0).ravel()
    listed = column.values.take(pa.array(places, mask=np.repeat(~fits, size)))
    return pa.FixedSizeListArray.from_arrays(listed.cast(kind.value_type), type=kind, mask=pa.array(~fits))


def has_fixed_lists_inside(kind: pa.DataType) -> bool:
    """Return True if a nested type has lists of a fixed size inside it. Arrow cannot read nulls in them."""
    inner = [kind.field(place).type for place in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return any(pa.types.is_fixed_size_list(each) or has_fixed_lists_inside(each) for each in inner)


def readable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the tables that `readable` gives."""
    return pa.schema([field.with_type(readable_type(field.type)) for field in schema], schema.metadata)


def readable(table: pa.Table) -> pa.Table:
    """Return a table of a file with each column under its readable type. Arrow cannot filter, take or compare views.

    >>> readable(pa.table({"a": pa.array(["x"], pa.string_view())})).schema.field("a").type
    DataType(large_string)
    """
    for place, field in enumerate(table.schema):
        kind = readable_type(field.type)
        if kind != field.type:
            column = table.column(place)
            chunks = [in_layout(chunk, kind) for chunk in column.chunks]
            table = table.set_column(place, field.with_type(kind), pa.chunked_array(chunks, kind))
    return table


def restored(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values of a column that was read without its stored Arrow type, under the readable form of that type.

    Args:
        values: as Parquet has them; codes where the column itself has narrow codes.
        kind: the stored type: lists of a fixed size, or a type with narrow codes.

    >>> restored(pa.array(["a"]).dictionary_encode(), pa.dictionary(pa.int8(), pa.large_string())).type.value_type
    DataType(large_string)
    """
    kind = readable_type(kind)
    return fixed_lists(values, kind) if pa.types.is_fixed_size_list(kind) else in_layout(values, kind)


def in_layout(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same values under a type that has other layouts of text, bytes, lists and codes, also inside.

    Nested values are converted part by part: how Arrow casts them as a whole depends on the rows. It takes views of lists as if
    they were in order and without gaps, and finds some lists of lists of nulls out of bounds.

    >>> in_layout(pa.array([[[None], []], None], pa.large_list(pa.list_(pa.null()))), pa.list_(pa.list_(pa.null()))).to_pylist()
    [[[None], []], None]
    """
    if values.type == kind:
        return values
    if isinstance(values.type, pa.BaseExtensionType):
        return in_layout(values.storage, kind)
    if pa.types.is_dictionary(kind) and pa.types.is_dictionary(values.type):
        parts = in_layout(values.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(values.indices.cast(kind.index_type), parts, ordered=kind.ordered)
    if pa.types.is_dictionary(values.type):
        return in_layout(gather.decoded(values), kind)
    if not pa.types.is_nested(kind):
        return values.cast(kind)
    missing = values.is_null()
    if pa.types.is_struct(kind):
        parts = [in_layout(part, field.type) for part, field in zip(values.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        entries = [part.slice(first, last - first) for part in (values.keys, values.items)]
        parts = [in_layout(part, of) for part, of in zip(entries, (kind.key_type, kind.item_type), strict=True)]
        offsets = pc.subtract(values.offsets, values.offsets[0])
        return pa.MapArray.from_arrays(offsets, *parts, type=kind, mask=missing)
    if pa.types.is_fixed_size_list(kind):
        inner = values.values.slice(values.offset * kind.list_size, len(values) * kind.list_size)
        # Not from_arrays, which divides by the size, also by 0.
        valid = values.is_valid().buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [valid], children=[in_layout(inner, kind.value_type)])
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    make = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
    offsets = pa.array(ends).cast(pa.int32() if pa.types.is_list(kind) else pa.int64())
    return make.from_arrays(offsets, in_layout(pc.list_flatten(values), kind.value_type), type=kind, mask=missing)


def public_column(name: str, kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    """Return one column of a public list as a plain array of the type that the data have.

    Args:
        name: of the column, for errors.
        kind: the type of the data.
        values: declared ones, or an array of released ones.

    Raises:
        RequestError: a value is not of this type.

    >>> public_column("region", pa.string(), ["a", None]).to_pylist()
    ['a', None]
    >>> public_column("hour", pa.timestamp("us"), ["2026-01-05T10:00:00Z"]).to_pylist()
    [datetime.datetime(2026, 1, 5, 10, 0)]
    """
    try:
        listed = arrow_values(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        raise _not_of_kind(name, keys.plain_type(kind)) from None
    return column_of_kind(name, kind, listed, declared=not isinstance(values, pa.Array))


def column_of_kind(name: str, kind: pa.DataType, listed: pa.Array, *, declared: bool) -> pa.Array:
    """Return `public_column` for values that are already an array.

    Args:
        name, kind: as for `public_column`.
        listed: the values.
        declared: whether somebody wrote them, and they must be of the column's kind; else they are cast.
    """
    plain = keys.plain_type(kind)
    try:
        if not declared and listed.type != plain:
            return keys.plain(listed.cast(plain))
        if pa.types.is_integer(listed.type) and pa.types.is_decimal(plain):
            return pa.array(listed.to_pylist(), plain)
        if pa.types.is_null(listed.type) or listed.type == plain:
            return keys.plain(listed.cast(plain))
        text_for_number = keys.is_text(listed.type) and pa.types.is_integer(plain)
        of_truth = pa.types.is_boolean(listed.type) or pa.types.is_boolean(plain)
        if text_for_number or of_truth or (keys.is_text(plain) and not keys.is_text(listed.type)):
            raise pa.ArrowInvalid("kinds differ")
        if keys.is_text(listed.type) and pa.types.is_timestamp(plain):
            # As in the cells of a CSV file: with `Z` or an offset it is that instant.
            times = csv_cells.text_as(listed.cast(pa.string()), plain)
            if times.null_count > listed.null_count:
                raise pa.ArrowInvalid("not a time")
            return keys.plain(times)
        return keys.plain(listed.cast(plain))
    except (pa.ArrowException, OverflowError, UnicodeError):
        raise _not_of_kind(name, plain) from None


def _not_of_kind(name: str, plain: pa.DataType) -> RequestError:
    return RequestError(
        field=f"public, column {name!r}",
        message=f"lists a value that is not of the column's type {plain}",
        hint="write the values as that type",
    )


def arrow_values(values: Sequence[object]) -> pa.Array:
    """Convert declared values to an array; released keys are one already, with the type of the data.

    Raises:
        pa.ArrowException: they are of different kinds.
    """
    if isinstance(values, pa.Array):
        return values
    listed = list(values)
    try:
        return pa.array(listed)
    except OverflowError:  # by default Arrow reads whole numbers as int64
        return pa.array(listed, pa.uint64())


def check_value_type(data_type: pa.DataType, column: str) -> None:
    """Refuse types that cannot be summed.

    Raises:
        RequestError: for anything but integers, floats, decimals and booleans.

    >>> check_value_type(pa.string(), "amount")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: column 'amount': has type string, which is no number; cast it first, e.g. columns: {amount_number: "CAST(amount AS DOUBLE)"}
    """
    kind = keys.plain_type(data_type)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (number or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise RequestError(
            field=f"column {column!r}",
            message=f"has type {kind}, which is no number",
            hint=f'cast it first, e.g. columns: {{{column}_number: "CAST({column} AS DOUBLE)"}}',
        )
