"""Partition columns as points in time: dates, texts that write weeks or months, and integers that count them.

In: the name of a column and its distinct values. Out: days since 1970, or numbers in the order of time; None where the values
are no times. Holds: they follow from the name and the values alone, so that the same table has the same axis. Not covered: texts
below an axis (`axes`).
"""

import datetime
import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ISO_WEEK = re.compile(r"(\d{4})-?W(\d{2})")
ISO_DATE = re.compile(r"\d{4}-\d{2}(-\d{2})?")
QUARTER = re.compile(r"(\d{4})-?Q([1-4])")
TIME_WORD = (
    "year|quarter|month|week|weekday|day|hour|minute|date|yyyy|yyyymm|yyyymmdd|yearmonth|yearweek|weekno|dow|doy"
)
NUMBERED_TIME = re.compile(
    rf"(?:\A(?i:{TIME_WORD})(?i:s)?|(?:_|(?<=[a-z])(?=[A-Z]))(?i:{TIME_WORD}))"
    r"(?i:_?(?:no|nr|num|number|index|id|of_year|of_month|of_week|of_day))?\Z"
)
"""Names of integer columns that count weeks, months, hours and the like, so that their order is that of time. A plural after
another word, such as `stay_days`, is a length of time."""
CYCLES: Mapping[str, tuple[int, int]] = {"week": (52, 53), "month": (12, 12)}
"""Times that begin anew each year: the least and the greatest number of the last one."""
LEAST_BREAK = 4
"""Numbers that run over the turn of a year leave out at least one in so many of a year, between the last and the first."""
EPOCH = datetime.date(1970, 1, 1).toordinal()
DISTINCT_TIMES = 100_000
"""A text column with more different values than this is no calendar."""


def numbered_times(name: str, values: pa.Array) -> Floats | None:
    """Integers that count weeks, months, hours and the like, by the name of their column; None where it names no such thing.

    Args:
        name: of the column.
        values: its distinct values; null gives NaN.

    >>> numbered_times("week", pa.array([13, 2])), numbered_times("store", pa.array([13, 2]))
    (array([13.,  2.]), None)
    """
    if not pa.types.is_integer(values.type) or NUMBERED_TIME.search(name) is None:
        return None
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def over_the_turn(name: str, numbers: Floats) -> Floats | None:
    """Number weeks or months that run over the turn of a year in the order of time; None for others.

    They do if the last one of a year and the first one are there, and all that are missing lie between: 50, 51, 52, 1, 2.

    Args:
        name: of the column.
        numbers: its distinct values, NaN for null.

    >>> over_the_turn("week", np.array([51.0, 52.0, 1.0, 2.0])), over_the_turn("week", np.array([1.0, 2.0, 3.0]))
    (array([51., 52., 53., 54.]), None)
    """
    word = next((word for word in CYCLES if word in name.lower() and "day" not in name.lower()), None)
    known = np.unique(numbers[np.isfinite(numbers)])
    if word is None or len(known) < 2 or known[0] != 1:
        return None
    least, most = CYCLES[word]
    gaps = np.diff(known)
    at = int(np.argmax(gaps))
    missing = gaps[at] - 1
    if not least <= known[-1] <= most or np.count_nonzero(gaps > 1) != 1 or missing * LEAST_BREAK < least:
        return None
    return np.where(numbers <= known[at], numbers + known[-1], numbers)


def written_dates(name: str, values: pa.Array) -> Floats | None:
    """Integers that write a date, a month or a week without dashes, such as 20260105, as days; None where one does not.

    >>> [written_dates(*pair) for pair in (("day", pa.array([19700105])), ("week", pa.array([197002])), ("day", pa.array([5])))]
    [array([4.]), array([4.]), None]
    """
    if not 0 < len(values) <= DISTINCT_TIMES:
        return None
    between = "-W" if "week" in name.lower() else "-"
    texts = [None if value is None else str(value) for value in values.to_pylist()]
    if any(text is not None and len(text) not in (6, 8) for text in texts):
        return None
    dashed = [
        text and (f"{text[:4]}-{text[4:6]}-{text[6:]}" if len(text) == 8 else f"{text[:4]}{between}{text[4:]}")
        for text in texts
    ]
    days = _calendar(pa.array(dashed, pa.string()))
    return days if days is not None and np.isfinite(days).any() else None


def days_of(values: pa.Array) -> Floats | None:
    """Points in time as days since 1970, or None where the values are none, or lie outside of the years 1 to 9999.

    Args:
        values: dates, timestamps, or texts that are ISO weeks, quarters (2026-Q1), dates or months; null gives NaN.

    >>> days_of(pa.array(["1970-W02", None])), days_of(pa.array(["tea"]))
    (array([ 4., nan]), None)
    """
    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        unit = "s" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
        per_day = 1 if pa.types.is_date32(kind) else 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        whole = values.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(kind) else values.cast(pa.int64())
        days = np.asarray(whole.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)) / per_day
    elif (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and 0 < len(values) <= DISTINCT_TIMES:
        parsed = _calendar(values)
        if parsed is None:
            return None
        days = parsed
    else:
        return None
    known = days[np.isfinite(days)]
    sound = len(known) > 0 and known.min() >= -719_162 and known.max() <= 2_932_896
    return days if sound else None


def begin_weeks(name: str, days: Floats, text: str) -> bool:
    """Return True if the dates of a column stand for the weeks that they begin.

    Args:
        name: of the column, which speaks of weeks.
        days: its distinct values as days since 1970, NaN for null: the same day of each week.
        text: of one of them, which is a date; one such as 2026-W02 says itself that it is a week.

    >>> begin_weeks("week", np.array([4.0, 18.0]), "1970-01-05"), begin_weeks("week", np.array([4.0, 5.0]), "1970-01-05")
    (True, False)
    >>> begin_weeks("day", np.array([4.0, 18.0]), "1970-01-05"), begin_weeks("week", np.array([4.0, 18.0]), "1970-W02")
    (False, False)
    """
    known = days[np.isfinite(days)]
    if "week" not in name.lower() or "day" in name.lower() or not len(known) or "W" in text:
        return False
    return bool((known % 7 == known[0] % 7).all())


def _calendar(values: pa.Array) -> Floats | None:
    """ISO weeks, quarters, dates and months as days; None where a text is something else."""
    days = np.full(len(values), np.nan)
    for at, text in enumerate(values.to_pylist()):
        if text is None:
            continue
        week, quarter = ISO_WEEK.fullmatch(text), QUARTER.fullmatch(text)
        try:
            if quarter:
                days[at] = datetime.date(int(quarter[1]), 3 * int(quarter[2]) - 2, 1).toordinal() - EPOCH
            elif week:  # refuses the 53rd week of a year that has none
                days[at] = datetime.date.fromisocalendar(int(week[1]), int(week[2]), 1).toordinal() - EPOCH
            elif ISO_DATE.fullmatch(text) and text.isascii():
                days[at] = np.datetime64(text, "D").astype(np.int64)
            else:
                return None
        except ValueError:
            return None
    return days
