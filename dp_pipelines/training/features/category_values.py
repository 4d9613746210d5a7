"""The values of a category: when a value of a column is one of them, and how they are written down.

In: declared or released values, a column. Out: for each row the place of its value among them; typed JSON. Holds: a value is
text, a whole number, a truth or a day, and is never equal to a value of another kind; what cannot be equal to any value of the
column's type is simply never found. Not covered: whether a declared value fits its column (`column_types`).
"""

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.kernels import keys

_MILLISECONDS = 86_400_000


def kind_of(value: Any) -> str:
    """What a value is: `text`, `int`, `bool`, `date` or, for what no column of categories can hold, `other`.

    >>> [kind_of(value) for value in ("a", 1, True, datetime.date(2026, 1, 1), 1.5)]
    ['text', 'int', 'bool', 'date', 'other']
    """
    kinds = {str: "text", int: "int", bool: "bool", datetime.date: "date"}
    return kinds.get(type(value), "other")


def kind_of_type(data_type: pa.DataType) -> str:
    """The kind of value that a column of some type holds; `null` fits them all.

    >>> kind_of_type(pa.dictionary(pa.int8(), pa.large_string())), kind_of_type(pa.timestamp("us"))
    ('text', 'other')
    """
    plain = keys.plain_type(data_type)
    tests = {
        "text": pa.types.is_string,
        "int": pa.types.is_integer,
        "bool": pa.types.is_boolean,
        "date": pa.types.is_date,
        "null": pa.types.is_null,
    }
    return next((kind for kind, test in tests.items() if test(plain)), "other")


def as_kind(value: Any, kind: str) -> Any:
    """A value as a column of some kind holds it; None where it holds none such. Days may be written as text.

    >>> as_kind("2026-01-31", "date"), as_kind("x", "date"), as_kind(1, "bool")
    (datetime.date(2026, 1, 31), None, None)
    """
    if kind == "date" and isinstance(value, str):
        try:
            day = datetime.date.fromisoformat(value)
        except ValueError:
            return None
        return day if day.isoformat() == value else None
    return value if kind_of(value) == kind else None


def told(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python says them; None where it cannot: a day outside of its calendar.

    >>> told(pa.array([0, 2**31 - 1], pa.int32()).view(pa.date32()))
    [datetime.date(1970, 1, 1), None]
    """
    column = keys.one_array(column)
    if pa.types.is_date64(column.type):
        column = _days(column)
    if pa.types.is_date32(column.type):
        days = column.view(pa.int32())
        first, last = (datetime.date(year, month, day).toordinal() for year, month, day in ((1, 1, 1), (9999, 12, 31)))
        epoch = datetime.date(1970, 1, 1).toordinal()
        known = pc.and_(pc.greater_equal(days, first - epoch), pc.less_equal(days, last - epoch))
        column = pc.if_else(known, column, pa.scalar(None, column.type))
    found: list[Any] = column.to_pylist()
    return found


def places(column: pa.Array, listed: Sequence[Any]) -> NDArray[np.int64]:
    """For each row the place of its value in the list; -1 for nulls and for what is not listed.

    >>> places(pa.array(["b", None, "c"]), ["a", "b"]).tolist()
    [1, -1, -1]
    """
    column = keys.plain(column)
    kind = kind_of_type(column.type)
    if pa.types.is_date64(column.type):
        column = _days(column)
    found = np.full(len(column), -1, np.int64)
    if kind in ("null", "other"):
        return found
    of_kind = [(place, as_kind(value, kind)) for place, value in enumerate(listed)]
    fitting = [(place, value) for place, value in of_kind if value is not None and _holds(column.type, value)]
    if not fitting:
        return found
    wanted = pa.array([value for _, value in fitting], column.type)
    at = pc.index_in(column, value_set=wanted, skip_nulls=True)
    inside = at.is_valid().to_numpy(zero_copy_only=False)
    where = np.array([place for place, _ in fitting])
    found[inside] = where[pc.fill_null(at, 0).to_numpy(zero_copy_only=False)[inside]]
    return found


def to_json(listed: Sequence[Any]) -> list[list[Any]]:
    """Each value with its kind.

    >>> to_json(["a", 1, True, datetime.date(2026, 1, 1)])
    [['text', 'a'], ['int', 1], ['bool', True], ['date', '2026-01-01']]
    """
    written = [(kind_of(value), value) for value in listed]
    return [[kind, value.isoformat() if kind == "date" else value] for kind, value in written]


def from_json(written: Any) -> tuple[Any, ...]:
    """The values that `to_json` wrote.

    Raises:
        ValueError: it has written something else.
    """
    listed = []
    for kind, value in written:
        made = as_kind(value, kind)
        if made is None and not (kind == "other" and isinstance(value, float)):
            raise ValueError("is not a value with its kind")
        listed.append(value if made is None else made)
    return tuple(listed)


def _holds(data_type: pa.DataType, value: Any) -> bool:
    """Whether a type has room for a value of its kind."""
    try:
        pa.array([value], data_type)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False
    return True


def _days(column: pa.Array) -> pa.Array:
    """Milliseconds as days; null beyond the days that there are."""
    numbers = pc.fill_null(column.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    days = np.floor_divide(numbers, _MILLISECONDS)
    outside = np.abs(days) >= 2**31
    nulls = column.is_null().to_numpy(zero_copy_only=False) | outside
    return pa.array(np.where(outside, 0, days).astype(np.int32), mask=nulls).view(pa.date32())
