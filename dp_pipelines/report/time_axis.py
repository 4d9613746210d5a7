"""The axis of plots over time: its ends, the usual step, and the moments that have a text.

In: a partition column of times, and the rows that are plotted. Out: `TimeAxis`. Holds: each text is that of a released key, as
short as the keys allow: 2026 for years, 2026-03 for months, 2026-03-09 for days. Not covered: how many texts have room
(`figures`).
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from dp_pipelines.report.released_table import GRAINS, Codes, Key

MANY = 24
"""Of more moments only those that begin a longer period get a text, such as days among hours."""

FEW = 3
"""If fewer moments than this begin a longer period, any moment may get a text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeAxis:
    """Points of time below a plot, in days since 1970.

    Args:
        texts: every point with its text, in rising order.
        marks: those of them whose texts may stand below the axis.
        step: the usual distance between two neighbouring points; wider gaps stay open.
    """

    texts: Mapping[float, str]
    marks: Mapping[float, str]
    step: float

    @property
    def first(self) -> float:
        """The first point."""
        return min(self.texts)

    @property
    def last(self) -> float:
        """The last point."""
        return max(self.texts)


def axis_of_time(time: Key, rows: Codes) -> TimeAxis:
    """The axis below some rows.

    Args:
        time: a column of times.
        rows: what is plotted, at one point of time at least.
    """
    assert time.days is not None
    codes = np.unique(time.codes[rows])
    codes = codes[np.argsort(time.days[codes], kind="stable")]
    texts = {float(time.days[code]): time.short(int(code)) for code in codes}
    distinct = np.unique(time.days[np.isfinite(time.days)])
    return TimeAxis(texts=texts, marks=_marks(texts, time), step=float(np.median(np.diff(distinct))))


def _marks(texts: Mapping[float, str], time: Key) -> Mapping[float, str]:
    """Of many days those that begin a month, of many hours those that begin a day; all where there are not enough of these."""
    if len(texts) <= MANY or time.grain not in ("day", "minute"):
        return texts
    ending, length = ("-01", GRAINS["month"]) if time.grain == "day" else (" 00:00", GRAINS["day"])
    longer = {day: text[:length] for day, text in texts.items() if text.endswith(ending)}
    return longer if len(longer) >= FEW else texts
