"""Rows of Beam's windows as tables with the start and end of their window as columns, in the global window.

In: rows or tables in `FixedWindows`. Out: tables, in any window; `WindowInto(GlobalWindows())` follows. Holds: a row is stamped
by its own window alone, and dropped where that window is not declared; which windows have rows decides nothing else. Not
covered: what makes every window appear (public partitions).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp

from dp_pipelines.query.windows import WINDOW_END, WINDOW_START, Windows
from dp_pipelines.transforms.rows.to_tables import ToTables

INSTANT = pa.timestamp("us", "UTC")

STAMPS = {WINDOW_START: INSTANT, WINDOW_END: INSTANT}
"""The columns that are added, with their types."""


class StampedTables(ToTables):
    """As `ToTables`, with the columns of the window.

    Args:
        types, missing, unsaid: as for `ToTables`.
        windows: that are declared.
    """

    def __init__(
        self, types: Mapping[str, pa.DataType] | None, windows: Windows, *, missing: tuple[str, ...] = (), unsaid: bool
    ) -> None:
        super().__init__(types, missing=missing, unsaid=unsaid)
        self._windows = windows
        self._starts: list[int] = []

    def start_bundle(self) -> None:
        """Nothing is gathered."""
        super().start_bundle()
        self._starts = []

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterable[pa.Table]:
        """A table for a table; a row is gathered, with its window."""
        start = window.start.micros
        table, declared = self.whole(element), self._windows.holds(start)
        if table is not None:
            kept = table if declared else table.slice(0, 0)
            return (self._stamped(kept, np.full(kept.num_rows, start, np.int64)),)
        if not declared or not self.has_row_types:
            return ()
        self._starts.append(start)
        return self.gather(element)

    def tables(self, rows: list[Any]) -> Iterable[pa.Table]:
        """One table of all rows, whatever their windows are."""
        starts, self._starts = self._starts, []
        return [self._stamped(table, np.array(starts, np.int64)) for table in super().tables(rows)]

    def end(self) -> BoundedWindow:
        """A window that is the same whatever the rows are."""
        start = self._windows.start_micros
        return IntervalWindow(Timestamp(micros=start), Timestamp(micros=start + self._windows.size_micros))

    def _stamped(self, table: pa.Table, starts: Any) -> pa.Table:
        for name, of_rows in {WINDOW_START: starts, WINDOW_END: starts + self._windows.size_micros}.items():
            if name in table.column_names:  # a column that nobody reads
                table = table.drop_columns([name])
            table = table.append_column(name, pa.array(of_rows).cast(INSTANT))
        return table
