"""Checks the types of columns: numbers that can be summed, and declared values in the data's own type.

In: types, declared values. Out: plain Arrow columns, or an error that names the column. Holds: types are public facts;
no value of the data is read.
"""

from collections.abc import Sequence

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import csv_cells


def public_column(name: str, kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    """One column of a public list as a plain array of the type that the data have.

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
    """The same of values that are an array.

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
    """Declared values as Arrow sees them; released keys are an array already, with the type that the data had.

    Raises:
        pa.ArrowException: they are of different kinds.
    """
    if isinstance(values, pa.Array):
        return values
    listed = list(values)
    try:
        return pa.array(listed)
    except OverflowError:  # Arrow takes whole numbers for int64 unless told otherwise
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
