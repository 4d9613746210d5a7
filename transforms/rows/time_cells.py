"""Converts cells that are times, times of day and durations to the values of columns: cut to the unit of the column, else exact.

In: times of Python, NumPy, Beam and pandas, and text by ISO 8601. Out: values that Arrow takes for the type. Holds: what is in no
calendar of Python, also by its zone, raises `NoFitError`; a time without a zone is UTC; a number says no unit and is no time.
"""

import datetime
import decimal
import fractions
import functools
import re
from typing import Any, NoReturn

import numpy as np
from apache_beam.utils.timestamp import Duration, Timestamp

from dp_pipelines.transforms.rows import numpy_times
from dp_pipelines.transforms.rows.no_fit import Convert, NoFitError, same

_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)  # of what Python reads, the forms without a second meaning

_FRACTION = re.compile(r"\.(\d{1,9})", re.ASCII)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds since 1970 of the first and the last time of the years 1 to 9999."""

_DAY = 86_400 * 10**9
_MOST_DAYS = datetime.timedelta.max.days

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def no_time(cell: Any) -> NoReturn:
    """Refuse a number as a time."""
    raise NoFitError(f"is a {type(cell).__name__}, which says no unit: convert it to a time before")


def _in_calendar(cell: datetime.datetime) -> datetime.datetime:
    year = cell.year  # that of pandas may be any; a zone may leave the calendar at its ends
    if datetime.MINYEAR < year < datetime.MAXYEAR or (
        year in (datetime.MINYEAR, datetime.MAXYEAR) and _is_in_utc(cell)
    ):
        return cell
    raise NoFitError("is outside the years 1 to 9999")


def _is_in_utc(cell: datetime.datetime) -> bool:
    """Return True if a time of the first or the last year is one in UTC too."""
    offset = cell.utcoffset()
    naive = cell.replace(tzinfo=None)
    if offset is None:
        return True
    return naive - datetime.datetime.min >= offset and datetime.datetime.max - naive >= -offset


def _in_years(cell: Timestamp) -> int:
    """Return the microseconds of a time of Beam, most of whose range no calendar has."""
    if not _FIRST <= cell.micros <= _LAST:
        raise NoFitError("is outside the years 1 to 9999")
    return int(cell.micros)


def _day(cell: datetime.datetime) -> datetime.date:
    return (cell if cell.utcoffset() is None else cell.astimezone(datetime.UTC)).date()


def _of_iso(cell: str) -> datetime.datetime:
    if _ISO.fullmatch(cell) is None:
        raise NoFitError("is text that is no date or time by ISO 8601, e.g. 2026-01-05 or 2026-01-05T10:00:00Z")
    try:
        time = datetime.datetime.fromisoformat(cell)
    except ValueError:
        raise NoFitError("is text whose date or time does not exist") from None
    return _in_calendar(time)


def _nanoseconds_of_iso(cell: str) -> int:
    time = _of_iso(cell)
    time = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    seconds = (time - _EPOCH) // datetime.timedelta(seconds=1)
    fraction = _FRACTION.search(cell)
    return seconds * 10**9 + (int(fraction[1].ljust(9, "0")) if fraction else 0)


def _of_numpy(cell: np.datetime64) -> datetime.datetime:
    if np.isnat(cell):
        raise NoFitError("is NaT")
    if not datetime.MINYEAR <= numpy_times.year(cell) <= datetime.MAXYEAR:  # NumPy's own conversion would wrap around
        raise NoFitError("is outside the years 1 to 9999")
    time: datetime.datetime = cell.astype("datetime64[us]").item()
    return time


def _numpy_nanoseconds(cell: np.datetime64) -> int:
    if np.isnat(cell):
        raise NoFitError("is NaT")
    if not 1678 <= numpy_times.year(cell) <= 2261:
        raise NoFitError("is outside the years 1678 to 2261")
    return int(cell.astype("datetime64[ns]").astype(np.int64))


_NO_TIMES: dict[type, Convert] = dict.fromkeys(
    (int, np.integer, float, np.floating, decimal.Decimal, fractions.Fraction), no_time
)

DAYS: dict[type, Convert] = {
    **_NO_TIMES,
    datetime.datetime: lambda cell: _day(_in_calendar(cell)),
    datetime.date: same,
    Timestamp: lambda cell: (_EPOCH + datetime.timedelta(microseconds=_in_years(cell))).date(),
    np.datetime64: lambda cell: _day(_of_numpy(cell)),
    str: lambda cell: _day(_of_iso(cell)),
}


@functools.cache
def times(unit: str) -> dict[type, Convert]:
    """Return the converters for timestamps of a unit; those without a zone are taken for UTC."""
    return {
        **_NO_TIMES,
        datetime.datetime: _in_calendar,
        datetime.date: numpy_times.midnight,
        Timestamp: lambda cell: _in_years(cell) * 1000 // _NANOSECONDS[unit],
        np.datetime64: _numpy_nanoseconds if unit == "ns" else _of_numpy,
        str: _nanoseconds_of_iso if unit == "ns" else _of_iso,
    }


def time_of_day(cell: datetime.time, *, unit: str) -> int:
    """Return a time of day as a number of units.

    Args:
        cell: without a zone.
        unit: of the column, "s" to "ns".
    """
    if cell.tzinfo is not None:
        raise NoFitError("is a time of day with a zone, which no column has")
    seconds = (cell.hour * 60 + cell.minute) * 60 + cell.second
    return (seconds * 10**9 + cell.microsecond * 1000) // _NANOSECONDS[unit]


def _nanoseconds_of(cell: datetime.timedelta) -> int:
    whole = (cell.days * 86_400 + cell.seconds) * 10**9 + cell.microseconds * 1000
    return whole + int(getattr(cell, "nanoseconds", 0))  # of pandas


def _nanoseconds_of_numpy(cell: np.timedelta64) -> int:
    unit, count = np.datetime_data(cell.dtype)
    if np.isnat(cell):
        raise NoFitError("is NaT")
    if unit not in _ATTOSECONDS:
        raise NoFitError("has a unit of no fixed length")
    return int(cell.astype(np.int64)) * count * _ATTOSECONDS[unit] // 10**9


_ATTOSECONDS = {"as": 1, "fs": 10**3, "ps": 10**6, "ns": 10**9, "us": 10**12, "ms": 10**15, "s": 10**18} | {
    unit: seconds * 10**18 for unit, seconds in {"m": 60, "h": 3600, "D": 86_400, "W": 7 * 86_400}.items()
}


@functools.cache
def durations(unit: str) -> dict[type, Convert]:
    """Return the converters for durations of a unit."""

    def units(nanoseconds: int) -> int:
        if not -_MOST_DAYS <= nanoseconds // _DAY <= _MOST_DAYS:
            raise NoFitError("is longer than any duration of Python")
        return nanoseconds // _NANOSECONDS[unit]

    return {
        **_NO_TIMES,
        datetime.timedelta: lambda cell: units(_nanoseconds_of(cell)),
        np.timedelta64: lambda cell: units(_nanoseconds_of_numpy(cell)),
        Duration: lambda cell: units(cell.micros * 1000),
    }
