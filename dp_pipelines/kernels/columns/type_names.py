"""The names of column types: what a job file or a program writes for an Arrow type.

In: a name, or a type of pyarrow. Out: the Arrow type, or an error with the nearest name. Holds: the names are public.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dp_pipelines.errors import RequestError, nearest

TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float": pa.float64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
"""Types that a column can be declared to have, by the names that job files use."""


def declared_types(types: Any, field: str = "types") -> dict[str, pa.DataType]:
    """Return declared types by column.

    Args:
        types: maps column names to names of types or to types of pyarrow.
        field: what it is called in messages.

    Raises:
        RequestError: it is not such a mapping, a name is unknown, or cells cannot become values of a type.

    >>> declared_types({"customer": "int64", "day": pa.date32()})
    {'customer': DataType(int64), 'day': DataType(date32[day])}
    >>> declared_types({"customer": "in64"})
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: types['customer']: unknown type 'in64'; did you mean 'int64'?
    """
    if not isinstance(types, Mapping) or not types or not all(isinstance(name, str) for name in types):
        message = "must map column names to types"
        raise RequestError(field=field, message=message, hint='write e.g. {"customer": "string", "amount": "double"}')
    by_column = {}
    for name, type_name in types.items():
        if not isinstance(type_name, pa.DataType) and (not isinstance(type_name, str) or type_name not in TYPES):
            unknown = (
                f"unknown type {type_name!r}"
                if isinstance(type_name, str)
                else f"must be a type, not {type(type_name).__name__}"
            )
            hint = (
                nearest(str(type_name), TYPES, "types")
                if isinstance(type_name, str)
                else "write e.g. 'int64' or pa.int64()"
            )
            raise RequestError(field=f"{field}[{name!r}]", message=unknown, hint=hint)
        by_column[name] = type_name if isinstance(type_name, pa.DataType) else TYPES[type_name]
        inside = by_column[name].value_type if pa.types.is_dictionary(by_column[name]) else by_column[name]
        if not _safe(inside) or (inside is not by_column[name] and pa.types.is_nested(inside)):
            raise RequestError(
                field=f"{field}[{name!r}]",
                message=f"is the type {by_column[name]}, to which cells are not converted",
                hint="declare a plain type, e.g. 'string', or take such values apart before",
            )
    return by_column


def _safe(kind: pa.DataType) -> bool:
    """Return True if no cell of the type crashes Arrow: maps, unions, and dictionaries inside other types do."""
    if pa.types.is_map(kind) or pa.types.is_dictionary(kind) or pa.types.is_union(kind):
        return False
    return all(_safe(kind.field(place).type) for place in range(kind.num_fields))
