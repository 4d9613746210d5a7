"""A window of event time: the privacy unit is one user in one window, and a run reads only the rows of one window.

In: `window` of the job file, the parameter that names its first day. Out: a filter of rows. Holds: windows of one width
that begin at multiples of it do not overlap. So each row is in one of them, chosen by its own time and never by when it
is read; rows without a time are in none. Not covered: one person in two windows, whose losses add up (the report says
so).
"""

import dataclasses
import datetime
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.ledger.entries import Window


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowWindow:
    """The rows of one window.

    Args:
        column: with the time of a row: dates or timestamps; timestamps with a zone count in UTC.
        first: the first day.
        days: how many.
    """

    column: str
    first: datetime.date
    days: int

    @property
    def name(self) -> str:
        """How a ledger names the window."""
        return self.first.isoformat()

    def apply(self, table: pa.Table) -> pa.Table:
        """The rows of a table that are in the window.

        >>> window = RowWindow(column="day", first=datetime.date(2026, 1, 5), days=7)
        >>> days = [datetime.date(2026, 1, 4), datetime.date(2026, 1, 5), datetime.date(2026, 1, 12), None]
        >>> window.apply(pa.table({"day": days})).num_rows
        1
        """
        times = table.column(self.column)
        if pa.types.is_date(times.type):
            times = times.cast(pa.date32()).cast(pa.int32())
            low = (self.first - datetime.date(1970, 1, 1)).days
            inside = pc.and_(pc.greater_equal(times, low), pc.less(times, low + self.days))
        else:
            per_day = {"s": 86400, "ms": 86400 * 10**3, "us": 86400 * 10**6, "ns": 86400 * 10**9}[times.type.unit]
            times = times.cast(pa.int64())
            low = (self.first - datetime.date(1970, 1, 1)).days * per_day
            # Nanoseconds end in the year 2262: a window beyond holds no row.
            low, high = (max(-(2**63), min(end, 2**63 - 1)) for end in (low, low + self.days * per_day))
            inside = pc.and_(pc.greater_equal(times, low), pc.less(times, high))
        return table.filter(inside)

    def refuse_misfit(self, window: Window | None, account: str) -> None:
        """Refuse an account with different windows.

        Raises:
            RequestError: they are.
        """
        if window is None:
            raise RequestError(
                field="window",
                message=f"does not fit the account {account!r}, which protects all rows of a unit together",
                hint="leave it out, or open another account with --window-column",
            )
        if (window.column, window.days) != (self.column, self.days):
            raise RequestError(
                field="window",
                message=f"is not that of the account {account!r}: {window.days} days of {window.column}",
                hint=f"write window: {{column: {window.column}, days: {window.days}, param: ...}}",
            )
        if (self.first - datetime.date.fromisoformat(window.origin)).days % self.days:
            raise RequestError(
                field="window",
                message=f"is not the first day of a window of the account; these begin every {self.days} days from "
                f"{window.origin}",
                hint="give the first day of a window: overlapping windows would count a row twice",
            )


def bind(job: Job, values: Mapping[str, Value], schema: pa.Schema) -> RowWindow | None:
    """The window of a run, or None where the job has none.

    Raises:
        RequestError: its parameter is not a date, or its column is missing or not a time.
    """
    if job.window is None:
        return None
    first = values.get(job.window.param)
    if not isinstance(first, datetime.date):
        raise RequestError(
            field="window.param",
            message=f"names {job.window.param!r}, which params: does not declare as a date",
            hint=f"write params: {{{job.window.param}: {{type: date}}}}",
        )
    column = job.window.column
    if column not in schema.names or not pa.types.is_temporal(kind := schema.field(column).type):
        raise RequestError(
            field="window.column",
            message=f"names {column!r}, which is not a column of dates or timestamps in the source",
        )
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        raise RequestError(
            field="window.column", message=f"has type {kind}", hint="use a column of dates or timestamps"
        )
    return RowWindow(column=column, first=first, days=job.window.days)


def in_words(unit: str, job: Job) -> str:
    """The privacy unit with its window, where it has one."""
    return unit if job.window is None else f"{unit} in one window of {job.window.days} days"
