"""The values of a category: how they are found in a column, and how they are written down.

In: declared or released values, a column. Out: for each row the index of its value among them; typed JSON. Holds: a
value is text, a whole number, a boolean or a date, and never equals a value of another kind; a value that no value of
the column's type can equal is simply never found. Not covered: whether a declared value fits its column
(`input_types`).
"""

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys

_MILLISECONDS = 86_400_000
_STRING = pa.string()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueKind:
    """A kind of value.

    Args:
        name: as files write it.
        words: what such a column holds, in words.
        of_type: whether columns of an Arrow type hold such values.
        of_value: the type of such a value in Python.
        usual: the type of such a column if no schema gives one.
        numeric: whether such a column can be a number feature.
        listed: whether such a column can be a category feature.
    """

    name: str
    words: str
    of_type: Callable[[pa.DataType], bool]
    of_value: type | None = None
    usual: pa.DataType = _STRING
    numeric: bool = False
    listed: bool = True

    def fitting(self, value: Any) -> Any:
        """A value as a column of this kind holds it; None if it cannot hold it."""
        return value if kind_of(value) is self else None

    def written(self, value: Any) -> Any:
        """A value of this kind as JSON."""
        return value


class DateKind(ValueKind):
    """Days, which may be written as text.

    >>> DATE.fitting("2026-01-31"), DATE.fitting("x"), DATE.written(datetime.date(2026, 1, 31))
    (datetime.date(2026, 1, 31), None, '2026-01-31')
    """

    def fitting(self, value: Any) -> Any:
        """See `ValueKind`."""
        if not isinstance(value, str):
            return super().fitting(value)
        try:
            day = datetime.date.fromisoformat(value)
        except ValueError:
            return None
        return day if day.isoformat() == value else None

    def written(self, value: Any) -> Any:
        """See `ValueKind`."""
        return value.isoformat()


class NullKind(ValueKind):
    """Columns without a type: every value fits, and none is found."""

    def fitting(self, value: Any) -> Any:
        """See `ValueKind`."""
        return value


TEXT = ValueKind(name="text", words="text", of_type=pa.types.is_string, of_value=str)
INT = ValueKind(
    name="int", words="whole numbers", of_type=pa.types.is_integer, of_value=int, usual=pa.int64(), numeric=True
)
BOOL = ValueKind(
    name="bool", words="truths", of_type=pa.types.is_boolean, of_value=bool, usual=pa.bool_(), numeric=True
)
DATE = DateKind(name="date", words="dates", of_type=pa.types.is_date, of_value=datetime.date, usual=pa.date32())
NULL = NullKind(name="null", words="nulls", of_type=pa.types.is_null, numeric=True)
REAL = ValueKind(
    name="other",
    words="numbers",
    of_type=lambda plain: bool(pa.types.is_floating(plain) or pa.types.is_decimal(plain)),
    numeric=True,
    listed=False,
)
OTHER = ValueKind(name="other", words="other values", of_type=lambda plain: True, listed=False)

OF_VALUES: Mapping[str, ValueKind] = {kind.name: kind for kind in (TEXT, INT, BOOL, DATE, OTHER)}
"""The kinds that a value can be, by name."""


def kind_of(value: Any) -> ValueKind:
    """The kind of a value; `OTHER` if no column of categories can hold it.

    >>> [kind_of(value).name for value in ("a", 1, True, datetime.date(2026, 1, 1), 1.5)]
    ['text', 'int', 'bool', 'date', 'other']
    """
    return next((kind for kind in OF_VALUES.values() if type(value) is kind.of_value), OTHER)


def kind_of_type(data_type: pa.DataType) -> ValueKind:
    """The kind of value that a column of some type holds.

    >>> kind_of_type(pa.dictionary(pa.int8(), pa.large_string())).name, kind_of_type(pa.timestamp("us")).name
    ('text', 'other')
    """
    plain = keys.plain_type(data_type)
    return next(kind for kind in (TEXT, INT, BOOL, DATE, NULL, REAL, OTHER) if kind.of_type(plain))


def told(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python objects; None for a date outside Python's calendar.

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


def of_one_kind(listed: Sequence[Any], column: str) -> ValueKind:
    """The kind of all values of a list; text if there are none.

    Raises:
        RequestError: they are of several kinds, of which a column can only hold one.

    >>> of_one_kind([1, 2], "x").name, of_one_kind([], "x").name
    ('int', 'text')
    """
    kinds = list({kind_of(value).name: kind_of(value) for value in listed}.values())
    if len(kinds) > 1:
        message = "has categories of several kinds, of which a column holds one at most"
        raise RequestError(field=f"column {column!r}", message=message, hint="use `dp-pipelines predict`")
    return kinds[0] if kinds else TEXT


def places(column: pa.Array, listed: Sequence[Any]) -> NDArray[np.int64]:
    """For each row the index of its value in the list; -1 for nulls and unlisted values.

    >>> places(pa.array(["b", None, "c"]), ["a", "b"]).tolist()
    [1, -1, -1]
    """
    column = keys.plain(column)
    kind = kind_of_type(column.type)
    if pa.types.is_date64(column.type):
        column = _days(column)
    found = np.full(len(column), -1, np.int64)
    if not kind.listed:
        return found
    of_kind = [(place, kind.fitting(value)) for place, value in enumerate(listed)]
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
    return [[kind.name, kind.written(value)] for kind, value in ((kind_of(value), value) for value in listed)]


def from_json(written: Any) -> tuple[Any, ...]:
    """The values that `to_json` wrote.

    Raises:
        ValueError: `to_json` did not write this.
    """
    listed = []
    for name, value in written:
        kind = OF_VALUES.get(name) if isinstance(name, str) else None
        made = None if kind is None else kind.fitting(value)
        if made is None:
            raise ValueError("is not a value with its kind")
        listed.append(made)
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
