"""Converts Beam schema rows, as Beam YAML and other languages use them, to Arrow tables and back.

In: a PCollection whose element type is a row type, or Arrow tables of a public schema. Out: the other of the two. Holds: types
come from declarations, never from rows; a cell that does not fit is null. Times are UTC, in microseconds. Not covered: columns
of columns and mappings; they are left out when rows are made, and refused when they are read.
"""

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints import native_type_compatibility, row_type, typehints
from apache_beam.utils.timestamp import Timestamp

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import column_casts, gather

_TO_ARROW: dict[Any, pa.DataType] = {
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    np.int8: pa.int8(),
    np.int16: pa.int16(),
    np.int32: pa.int32(),
    np.int64: pa.int64(),
    np.uint8: pa.uint8(),
    np.uint16: pa.uint16(),
    np.uint32: pa.uint32(),
    np.float32: pa.float32(),
    np.float64: pa.float64(),
    datetime.date: pa.date32(),
    Timestamp: pa.timestamp("us"),
}

_TO_BEAM: dict[pa.DataType, Any] = {
    pa.string(): str,
    pa.binary(): bytes,
    pa.bool_(): bool,
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.int16,
    pa.uint16(): np.int32,
    pa.uint32(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.date32(): datetime.date,
}


def arrow_schema(element_type: Any) -> tuple[pa.Schema, dict[str, Any]]:
    """Return the columns of rows by their element type, and the Python types of those whose column type it does not say.

    Raises:
        RequestError: the elements are no rows with a schema.

    >>> arrow_schema(row_type.RowTypeConstraint.from_fields([("customer", str), ("paid", Optional[float])]))[0].types
    [DataType(string), DataType(double)]
    """
    typed = isinstance(element_type, row_type.RowTypeConstraint)
    rows = element_type if typed else row_type.RowTypeConstraint.from_user_type(element_type)
    if rows is None:
        raise RequestError(
            field="input",
            message="holds no rows with a schema",
            hint="put a transform with declared types before it, e.g. MapToFields, or with_output_types(...)",
        )
    known, others = {}, {}
    # Beam has no public way to the fields of a row type that does not go through its schemas, which refuse fields without a type.
    for name, kind in rows._fields:
        arrow = arrow_type(kind)
        if arrow is None:
            others[str(name)] = kind
        else:
            known[str(name)] = arrow
    return pa.schema(known.items()), others


def arrow_type(kind: Any) -> pa.DataType | None:
    """The column type of values of a Python type; None where no table can hold them.

    >>> arrow_type(Optional[int])
    DataType(int64)
    """
    kind = native_type_compatibility.convert_to_beam_type(kind)
    if isinstance(kind, typehints.UnionConstraint):
        inside = [one for one in kind.union_types if one is not type(None)]
        return arrow_type(inside[0]) if len(inside) == 1 else None
    if isinstance(kind, (typehints.SequenceTypeConstraint, typehints.CollectionTypeConstraint)):
        inner = arrow_type(kind.inner_type)
        return None if inner is None else pa.list_(inner)
    try:
        return _TO_ARROW.get(kind)
    except TypeError:
        return None


def beam_type(kind: pa.DataType) -> Any:
    """The type of a column in rows, or None where rows have none.

    >>> beam_type(pa.int32())
    <class 'numpy.int32'>
    """
    kind = keys.plain_type(kind)
    if pa.types.is_timestamp(kind):
        return Timestamp
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = beam_type(kind.value_type)
        return None if inner is None else _list_of(inner)
    return _TO_BEAM.get(kind)


def _list_of(kind: Any) -> Any:
    return Sequence[Optional[kind]]  # noqa: UP045 - a type that is computed


def or_null(kind: Any) -> Any:
    """The type of values that may be null."""
    return Optional[kind]  # noqa: UP045 - a type that is computed


@dataclasses.dataclass(eq=False)
class ToSchemaRows(beam.PTransform):
    """Turn Arrow tables into rows with a schema.

    Args:
        schema: of the tables; columns of types that rows lack are left out.
        times_as_text: whether dates and times become text by ISO 8601.

    >>> ToSchemaRows(pa.schema({"customer": pa.string(), "paid": pa.struct({"x": pa.int64()})})).names
    ('customer',)
    """

    schema: pa.Schema
    times_as_text: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that rows have."""
        return tuple(field.name for field in self.schema if beam_type(field.type) is not None)

    def expand(self, pcoll: beam.PCollection[pa.Table]) -> beam.PCollection[Any]:
        """A row for each row."""
        texts = [
            name for name in self.names if self.times_as_text and pa.types.is_temporal(self.schema.field(name).type)
        ]
        types = {name: str if name in texts else beam_type(self.schema.field(name).type) for name in self.names}
        fields = [(name, or_null(kind)) for name, kind in types.items()]
        rows = row_type.RowTypeConstraint.from_fields(fields)
        return pcoll | "ToRows" >> beam.ParDo(_ToRows(self.names, frozenset(texts))).with_output_types(rows)


class _ToRows(beam.DoFn):
    def __init__(self, names: tuple[str, ...], texts: frozenset[str]) -> None:
        super().__init__()
        self._names, self._texts = names, texts

    def process(self, element: pa.Table) -> Iterator[Any]:
        columns = [
            _texts(element.column(name)) if name in self._texts else cells_of(element.column(name))
            for name in self._names
        ]
        for cells in zip(*columns, strict=True):
            yield beam.Row(**dict(zip(self._names, cells, strict=True)))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Dates and times by ISO 8601; a time that is an instant ends in Z."""
    kind = keys.plain_type(column.type)
    if not pa.types.is_timestamp(kind):
        return [None if cell is None else cell.isoformat() for cell in cells_of(column)]
    zone = "" if kind.tz is None else "Z"
    return [None if at is None else at.isoformat() + zone for at in map(_datetime, cells_of(column))]


def _datetime(at: Timestamp | None) -> datetime.datetime | None:
    """Return the time, or None if no calendar of Python has it."""
    try:
        return None if at is None else at.to_utc_datetime()
    except OverflowError:
        return None


def cells_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, as rows have them."""
    kind = keys.plain_type(column.type)
    if pa.types.is_timestamp(kind):
        # Not the values of Arrow, which gives no nanoseconds here without an error on some rows.
        micros = [column_casts.rounded_down(gather.plain(part), pa.timestamp("us", kind.tz)) for part in column.chunks]
        return [Timestamp(micros=at.value) if at.is_valid else None for part in micros for at in part]
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # a day that no calendar of Python has
        return [_cell(scalar) for scalar in column]


def _cell(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None
