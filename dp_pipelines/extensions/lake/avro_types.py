"""Types of Avro's columns: what a writer's schema says, what stands in the bytes, and the Arrow type of the values.

In: the type of a field. Out: a column, or the words for a type that is not read. Holds: bytes are decoded as plain numbers and
bytes, and become times, texts and decimals here, value by value, so that none can fail for others.
"""

import dataclasses
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels.columns import column_casts, csv_cells

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
}
_TIMES = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{("long", f"timestamp-{name}s"): pa.timestamp(unit, "UTC") for name, unit in
       (("milli", "ms"), ("micro", "us"), ("nano", "ns"))},
    **{("long", f"local-timestamp-{name}s"): pa.timestamp(unit) for name, unit in
       (("milli", "ms"), ("micro", "us"), ("nano", "ns"))},
}  # fmt: skip
_WIDEST_DECIMAL = 38

Values = Callable[[pa.Array], pa.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AvroColumn:
    """A column of an Avro file.

    Args:
        type: of its values.
        plain: Avro's type of the same bytes, without a meaning.
        plain_type: the Arrow type of that.
        convert: from plain values to values.
        is_flat: whether a value is one number or one text.
    """

    type: pa.DataType
    plain: Any
    plain_type: pa.DataType
    convert: Values
    is_flat: bool = True

    def values(self, plain: pa.ChunkedArray) -> pa.ChunkedArray:
        """The values of decoded cells."""
        chunks = [self.convert(chunk.cast(self.plain_type)) for chunk in plain.chunks]
        return pa.chunked_array(chunks, self.type)


def columns_of(schema: Mapping[str, Any]) -> dict[str, AvroColumn | str]:
    """The columns of a record by name; words in place of those that are not read.

    Args:
        schema: of the record, as fastavro has parsed it.
    """
    enums: dict[str, Any] = {}
    return {field["name"]: column_of(field["type"], enums) for field in schema["fields"]}


def column_of(kind: Any, enums: dict[str, Any]) -> AvroColumn | str:
    """The column of a field's type; words where such a column is not read.

    Args:
        kind: the type.
        enums: those that came before it, by name, to which those inside of it are added.

    >>> column_of(["null", {"type": "long", "logicalType": "timestamp-micros"}], {}).type
    TimestampType(timestamp[us, tz=UTC])
    >>> column_of({"type": "map", "values": "long"}, {})
    'map'
    """
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        if len(others) != 1 or len(kind) > 2:
            return "a union of several types"
        inner = column_of(others[0], enums)
        if isinstance(inner, str) or len(kind) == 1:
            return inner
        plain = [inner.plain if one != "null" else "null" for one in kind]
        return dataclasses.replace(inner, plain=plain)
    said = kind if isinstance(kind, dict) else enums.get(kind, {"type": kind})
    name, logical = said["type"], said.get("logicalType")
    if name == "string":
        return _column(pa.string(), "bytes", csv_cells.text_of)
    if name == "enum":
        symbols = list(said["symbols"])
        enums[said["name"]] = said
        return _column(pa.string(), "int", lambda cells: _symbols(cells, symbols))
    if name == "array":
        inner = column_of(said["items"], enums)
        if isinstance(inner, str) or not inner.is_flat:
            return "array of another type than numbers or text"
        return _array(inner)
    if name == "bytes" and logical == "decimal":
        precision, scale = said.get("precision"), said.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return "decimal without a precision"
        if not 0 < precision <= _WIDEST_DECIMAL:
            return f"decimal of {precision} digits"
        to = pa.decimal128(precision, scale)
        return _column(to, "bytes", lambda cells: _decimals(cells, scale, to))
    if name not in _PLAIN:
        return name if name in ("record", "map", "fixed", "null", "error") else "type of another name"
    to_type = _TIMES.get((name, str(logical)))
    if to_type is None:
        return _column(_PLAIN[name], name, lambda cells: cells)
    return _column(to_type, name, lambda cells: cells.view(to_type))


def encoded(number: int) -> bytes:
    r"""A number as Avro writes it.

    >>> encoded(1), encoded(-1), encoded(64)
    (b'\x02', b'\x01', b'\x80\x01')
    """
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _column(to: pa.DataType, plain: str, convert: Values) -> AvroColumn:
    return AvroColumn(type=to, plain=plain, plain_type=_PLAIN[plain], convert=convert)


def _array(inner: AvroColumn) -> AvroColumn:
    def convert(cells: pa.Array) -> pa.Array:
        values = inner.convert(cells.values)
        return pa.ListArray.from_arrays(cells.offsets, values, type=pa.list_(inner.type), mask=pc.is_null(cells))

    return AvroColumn(
        type=pa.list_(inner.type),
        plain={"type": "array", "items": inner.plain},
        plain_type=pa.list_(inner.plain_type),
        convert=convert,
        is_flat=False,
    )


def _symbols(cells: pa.Array, symbols: Sequence[str]) -> pa.Array:
    known = pc.and_(pc.greater_equal(cells, 0), pc.less(cells, len(symbols)))
    return pa.array(symbols, pa.string()).take(pc.if_else(known, cells, None))


def _decimals(cells: pa.Array, scale: int, to: pa.DataType) -> pa.Array:
    with decimal.localcontext(prec=2 * _WIDEST_DECIMAL):
        found = [None if cell is None else _decimal(cell, scale) for cell in cells.to_pylist()]
    return column_casts.column(found, to)


def _decimal(cell: bytes, scale: int) -> decimal.Decimal | None:
    if len(cell) > 2 * _WIDEST_DECIMAL:
        return None
    number = int.from_bytes(cell, "big", signed=True)
    return decimal.Decimal(number).scaleb(-scale) if abs(number) < 10**_WIDEST_DECIMAL else None
