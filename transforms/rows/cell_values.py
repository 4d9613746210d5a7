"""Converts cells of rows to the declared type of their column: what loses nothing is converted, anything else is null.

In: Python, NumPy, Beam and Arrow values; a public type. Out: Arrow arrays of that type. Holds: the class of a cell and its own
value decide what it becomes, and nothing else does; no cell raises. Two conversions lose a little, as their column declares:
numbers become the nearest number of a floating type, and times are cut to the unit of their column, which for a date is the UTC
day. docs/beam.md has the table. Not covered: extension types, whose cells Arrow converts.
"""

import collections
import datetime
import decimal
import fractions
import functools
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.kernels.columns import column_casts
from dp_pipelines.transforms.rows import time_cells
from dp_pipelines.transforms.rows.no_fit import Convert, NoFitError, same

MOST_DIGITS = 400
"""Digits of a Decimal that becomes a whole number: no column has more."""


def column(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return cells as a column; those that do not fit are null.

    Args:
        cells: anything.
        kind: the type of the column, as `declared_types` accepts it.

    >>> column([1, 1.0, 1.9, True, None], pa.int64()).to_pylist()
    [1, 1, None, None, None]
    >>> column([datetime.datetime(2026, 1, 5, 9, 30), "2026-01-05T09:30:00Z", 20458], pa.date32()).to_pylist()
    [datetime.date(2026, 1, 5), datetime.date(2026, 1, 5), None]
    """
    if pa.types.is_dictionary(kind):
        return column_casts.encoded(column(cells, kind.value_type), kind)
    converts = _converters_of(cells, kind)
    if converts is None:
        cells = [_or_null(converter(type(cell), kind), cell) for cell in cells]
    elif any(convert is not same for convert in converts.values()):
        cells = [_or_null(converts[type(cell)], cell) for cell in cells]
    return column_casts.column(cells, kind)


def why_null(cell: Any, kind: pa.DataType) -> str | None:
    """Return why a cell becomes null, in words without its value; None where it fits.

    >>> why_null(1.9, pa.int64())
    'is not a whole number'
    """
    if cell is None:
        return "is None"
    plain = column_casts.plain_kind(kind)
    try:
        value = converter(type(cell), plain)(cell)
    except NoFitError as error:
        return str(error)
    except Exception:  # a class of the user's may raise anything
        return f"does not become {plain}"
    if value is None:
        return "is missing"
    return f"is outside the range of {plain}" if column([cell], plain).null_count else None


def converter(cls: type, kind: pa.DataType) -> Convert:
    """Return what converts the cells of one class.

    Args:
        cls: of cells. Classes are asked, not cells, whose answers might raise.
        kind: the type of the column, without dictionaries.

    >>> converter(int, pa.int64()) is same
    True
    """
    key: Any = cls
    try:
        return _converter(key, kind)
    except BaseException:  # a class of a class of classes: without a hash, or without the name of its module
        interrupts.end_if_asked()
        return functools.partial(_refused, reason=f"does not become {kind}")


def _converters_of(cells: Sequence[Any], kind: pa.DataType) -> dict[type, Convert] | None:
    """Return what converts the cells of each class; None if one has no hash."""
    try:
        return {cls: converter(cls, kind) for cls in set(map(type, cells))}
    except BaseException:  # of a class of classes
        interrupts.end_if_asked()
        return None


@functools.lru_cache(maxsize=4096)
def _converter(cls: type, kind: pa.DataType) -> Convert:
    if cls is type(None):
        return same
    if cls.__module__.partition(".")[0] == "pandas" and cls.__name__ in ("NaTType", "NAType"):
        return _missing
    if issubclass(cls, pa.Scalar):
        return lambda cell: _value(cell.as_py(), kind)
    table = _converters(kind)
    if table is None:
        return same
    for base in cls.__mro__:
        if base in table:
            return table[base]
    if cls is np.ndarray and not _is_list(kind):
        return functools.partial(_of_array, kind=kind)
    return functools.partial(_refused, reason=f"is a {cls.__name__}, which does not become {kind}")


def fits_never(cls: type, kind: pa.DataType) -> bool:
    """Return True if no cell of a class fits a column: public facts, known before there are cells."""
    convert = converter(cls, column_casts.plain_kind(kind))
    return (convert.func if isinstance(convert, functools.partial) else convert) in (
        _refused,
        _no_number,
        time_cells.no_time,
    )


def _value(cell: Any, kind: pa.DataType) -> Any:
    return converter(type(cell), kind)(cell)


def _or_null(convert: Convert, cell: Any) -> Any:
    try:
        return convert(cell)
    except BaseException:  # whatever a cell raises costs that cell alone
        interrupts.end_if_asked()
        return None


def _refused(cell: Any, *, reason: str) -> NoReturn:
    raise NoFitError(reason)


def _missing(cell: Any) -> None:
    return None


def _converters(kind: pa.DataType) -> dict[type, Convert] | None:
    """Return the converters for a type by the classes of cells, of which subclasses follow; None: Arrow converts any cell."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _TEXTS
    if types.is_integer(kind):
        return _INTEGERS
    if types.is_float64(kind):
        return _DOUBLES
    if types.is_floating(kind):
        return {cls: functools.partial(_narrow, convert, kind) for cls, convert in _DOUBLES.items()}
    if types.is_boolean(kind):
        return {bool: same, np.bool_: same}
    if types.is_date(kind):
        return time_cells.DAYS
    if types.is_timestamp(kind):
        return time_cells.times(kind.unit)
    if types.is_time(kind):
        return {datetime.time: functools.partial(time_cells.time_of_day, unit=kind.unit)}
    if types.is_duration(kind):
        return time_cells.durations(kind.unit)
    if types.is_interval(kind):
        return {pa.MonthDayNano: same}
    if types.is_null(kind):
        return {}
    if types.is_run_end_encoded(kind):
        return _converters(kind.value_type)
    if types.is_decimal(kind):
        return {bool: _no_number, np.timedelta64: _no_number, int: same, np.integer: int, decimal.Decimal: same}
    binaries = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    if any(is_kind(kind) for is_kind in binaries):
        return dict.fromkeys((bytes, bytearray, memoryview, str), same)
    if _is_list(kind):
        masked = functools.partial(_refused, reason="is a masked array, some of whose values are hidden")
        return {**dict.fromkeys(_SEQUENCES, functools.partial(_list, kind=kind.value_type)), np.ma.MaskedArray: masked}
    if types.is_struct(kind):
        return {dict: functools.partial(_struct, kind=kind)}
    return None


_SEQUENCES = (list, tuple, set, frozenset, collections.deque, np.ndarray)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    checks = (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    )
    return any(is_kind(kind) for is_kind in checks)


def _no_number(cell: Any) -> NoReturn:
    raise NoFitError(f"is a {type(cell).__name__}, which is no number")


# Whole numbers


def _whole(cell: Any) -> int:
    if not cell.is_integer():
        raise NoFitError("is not a whole number")
    return int(cell)


def _whole_decimal(cell: decimal.Decimal) -> int:
    if not cell.is_finite() or cell.adjusted() >= MOST_DIGITS or cell != cell.to_integral_value():
        raise NoFitError("is not a whole number of a usual size")
    return int(cell)


def _whole_fraction(cell: fractions.Fraction) -> int:
    if cell.denominator != 1:
        raise NoFitError("is not a whole number")
    return int(cell.numerator)


_INTEGERS: dict[type, Convert] = {
    bool: _no_number,
    np.timedelta64: _no_number,  # a subclass of NumPy's integers
    int: same,
    np.integer: same,
    float: _whole,
    np.floating: _whole,
    decimal.Decimal: _whole_decimal,
    fractions.Fraction: _whole_fraction,
}


# Floating numbers


def _nearest(cell: Any) -> float:
    number = float(cell)  # raises where no double is near
    is_infinite = isinstance(cell, (decimal.Decimal, np.longdouble)) and cell in (math.inf, -math.inf)
    if math.isinf(number) and not is_infinite:
        raise NoFitError("is outside the range of double")
    return number


def _narrow(convert: Convert, kind: pa.DataType, cell: Any) -> float:
    number = float(convert(cell))
    if math.isfinite(number) and abs(number) > float(np.finfo(kind.to_pandas_dtype()).max):
        raise NoFitError(f"is outside the range of {kind}")
    return number


_DOUBLES: dict[type, Convert] = {
    bool: _no_number,
    np.timedelta64: _no_number,
    float: same,
    np.longdouble: _nearest,
    np.floating: same,
    int: float,
    np.integer: float,
    decimal.Decimal: _nearest,
    fractions.Fraction: _nearest,
}


# Text


def _digits(cell: int) -> str:
    return int.__repr__(cell)  # also of an enumeration, whose own text is its name


_TEXTS: dict[type, Convert] = {
    str: same,
    bytes: same,
    bool: functools.partial(_refused, reason="is a bool, which is no text"),
    np.timedelta64: functools.partial(_refused, reason="is a timedelta64, which is no text"),
    int: _digits,
    np.integer: lambda cell: str(int(cell)),
    uuid.UUID: str,
}


# Values of several values: one that does not fit makes the whole null, since a list without it would be another list


def _list(cell: Any, *, kind: pa.DataType) -> Any:
    if isinstance(cell, np.ndarray):
        if cell.dtype in (np.float64, np.float32) and cell.dtype.isnative and pa.types.is_float64(kind):
            return cell
        if cell.ndim == 0:
            raise NoFitError("is an array of no dimensions, which is no list")
    items = list(cell)
    converts = _converters_of(items, kind)
    if converts is None:
        return [_value(item, kind) for item in items]
    if all(convert is same for convert in converts.values()):
        return items
    return [converts[type(item)](item) for item in items]


def _struct(cell: Mapping[str, Any], *, kind: pa.DataType) -> dict[str, Any]:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    return {field.name: _value(cell.get(field.name), field.type) for field in fields}


def _of_array(cell: Any, *, kind: pa.DataType) -> Any:
    if cell.ndim:
        raise NoFitError("is an array of several values")
    return _value(cell[()], kind)
