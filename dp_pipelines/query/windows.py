"""Windows of event time, declared before a row is read: which of them are released, and what the guarantee protects.

In: the first window, the size and the number. Out: a frozen declaration. Holds: nothing here depends on data; every declared
window is released, whether it has rows or not. Not covered: how rows get into windows (Beam); windows of job files (one per run).
"""

import dataclasses
import datetime
from typing import Annotated, Literal, get_args

from dp_pipelines import checks
from dp_pipelines.errors import RequestError

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The columns of a window in a release: its first instant, and the first one after it."""

WindowUnit = Literal["user", "user_in_window"]

MICROSECOND = datetime.timedelta(microseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Windows:
    """Consecutive windows of one size, for a PCollection in Beam's `FixedWindows`.

    Every window is released, with the columns `window_start` and `window_end` next to the partition's; rows of other windows are
    dropped, each by itself. The bounds of the query are those of one unit in one window.

    Args:
        first: the start of the first window: an instant, or a day in UTC. An instant without a time zone is in UTC.
        size: of a window.
        count: how many windows there are.
        unit: whom the guarantee protects. `user`: all rows of a user, in all windows; the bounds count once for each window, and
            the noise grows with their number. `user_in_window`: the rows of a user in one window; who is in several windows is
            protected in each, and less over all of them.

    Raises:
        RequestError: at once, with field, message and hint.

    >>> weeks = Windows(first=datetime.date(2026, 1, 5), size=datetime.timedelta(days=7), count=2)
    >>> [str(start) for start, _ in weeks.bounds]
    ['2026-01-05 00:00:00+00:00', '2026-01-12 00:00:00+00:00']
    """

    first: datetime.datetime | datetime.date
    size: datetime.timedelta
    count: Annotated[int, checks.Whole(low=1, high=100_000)]
    unit: WindowUnit = "user"

    def __post_init__(self) -> None:
        if not isinstance(self.first, datetime.date):
            hint = "write e.g. datetime.date(2026, 1, 5)"
            raise RequestError(field="windows.first", message="must be a date or a datetime", hint=hint)
        first = self.first
        if not isinstance(first, datetime.datetime):
            first = datetime.datetime(first.year, first.month, first.day)
        first = first.replace(tzinfo=first.tzinfo or datetime.UTC).astimezone(datetime.UTC)
        object.__setattr__(self, "first", first)
        if not isinstance(self.size, datetime.timedelta) or self.size <= datetime.timedelta(0):
            hint = "write e.g. datetime.timedelta(days=7)"
            raise RequestError(field="windows.size", message="must be a timedelta above 0", hint=hint)
        checks.declared(self, "windows.")
        if self.unit not in get_args(WindowUnit):
            raise RequestError(field="windows.unit", message="must be one of " + ", ".join(get_args(WindowUnit)))
        try:
            _ = first + self.size * self.count
        except OverflowError:
            message = "ends after the year 9999"
            raise RequestError(field="windows", message=message, hint="write a smaller count or size") from None

    @property
    def start_micros(self) -> int:
        """Return the start of the first window, in microseconds since 1970."""
        assert isinstance(self.first, datetime.datetime)
        return (self.first - EPOCH) // MICROSECOND

    @property
    def size_micros(self) -> int:
        """Return the size in microseconds."""
        return self.size // MICROSECOND

    @property
    def bounds(self) -> tuple[tuple[datetime.datetime, datetime.datetime], ...]:
        """Return the start and end of each window."""
        assert isinstance(self.first, datetime.datetime)
        starts = [self.first + self.size * place for place in range(self.count)]
        return tuple((start, start + self.size) for start in starts)

    def holds(self, start: int) -> bool:
        """Return True if a window that starts at this microsecond is declared."""
        place, rest = divmod(start - self.start_micros, self.size_micros)
        return rest == 0 and 0 <= place < self.count
