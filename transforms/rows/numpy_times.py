"""Converts times of NumPy to those of Python, without the wrapping around of NumPy's own conversions.

In: one `datetime64` of any unit, or a date. Out: its year, or a date or time of Python. Holds: what no calendar of Python has
raises.
"""

import datetime

import numpy as np

_PER_YEAR = {"Y": 1, "M": 12, "W": 53, "D": 366, "h": 8_784, "m": 527_040, "s": 31_622_400}
"""Units of a year, at most; 64 bits of a smaller unit wrap around in no conversion to years."""

_FAR = 20_000


def year(cell: np.datetime64) -> int:
    """Return the year of a time, or one beyond the calendar for all those that are beyond it.

    Args:
        cell: not NaT.

    >>> year(np.datetime64("2026-01-05", "ns")), 1 <= year(np.datetime64(2**63 // 7 + 9000, "W")) <= 9999
    (2026, False)
    """
    unit, count = np.datetime_data(cell.dtype)
    if abs(int(cell.astype(np.int64))) * count > _FAR * _PER_YEAR.get(unit, 2**31 * 10**6):
        return _FAR
    return 1970 + int(cell.astype("datetime64[Y]").astype(np.int64))


def python_time(cell: np.datetime64) -> datetime.date:
    """Return a time as Python's, a `datetime` if its unit is smaller than a day.

    Args:
        cell: of any unit.

    Raises:
        ValueError: Python has no such time.

    >>> python_time(np.datetime64("2026-01-05T10:00", "ns"))
    datetime.datetime(2026, 1, 5, 10, 0)
    """
    if np.isnat(cell):
        raise ValueError("is NaT")
    if not datetime.MINYEAR <= year(cell) <= datetime.MAXYEAR:
        raise ValueError("is outside the years 1 to 9999")
    time = cell.item()
    if not isinstance(time, datetime.date):  # of nanoseconds or less
        short = cell.astype("datetime64[us]")
        if short.astype(cell.dtype) != cell:
            raise ValueError("has nanoseconds, which no time of Python has")
        time = short.item()
    made: datetime.date = time
    return made


def midnight(cell: datetime.date) -> datetime.datetime:
    """Return the first moment of a day, without a zone."""
    return datetime.datetime(cell.year, cell.month, cell.day)
