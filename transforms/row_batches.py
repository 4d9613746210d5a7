"""Gathers the rows of a bundle into tables.

In: rows of any kind, a function that makes a table from many. Out: tables, in the global window; one of them has no rows, so
that types are known even without rows. Holds: nothing is carried over between bundles. Not covered: how a row is converted.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

Tables = Callable[[list[Any]], Iterable[pa.Table]]
"""Makes tables of rows; of no rows at least one, without rows."""


def tables_of(rows: beam.PCollection[Any], tables: Tables, most: int) -> beam.PCollection[pa.Table]:
    """Tables of all rows.

    Args:
        rows: of any kind.
        tables: makes them; it travels to the workers.
        most: rows that are gathered.
    """
    made = rows | "ToTables" >> beam.ParDo(_Gather(tables, most)).with_output_types(pa.Table)
    empty = beam.Create(list(tables([])), reshuffle=False).with_output_types(pa.Table)
    return (made, rows.pipeline | "Types" >> empty) | "Tables" >> beam.Flatten()


class _Gather(beam.DoFn):
    def __init__(self, tables: Tables, most: int) -> None:
        super().__init__()
        self._tables, self._most = tables, most
        self._rows: list[Any] = []

    def start_bundle(self) -> None:
        self._rows = []

    def process(self, element: Any) -> Iterable[pa.Table]:
        # Not a generator: a row costs an append.
        self._rows.append(element)
        return () if len(self._rows) < self._most else self._taken()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._rows:
            for table in self._taken():
                yield WindowedValue(table, GlobalWindow().max_timestamp(), [GlobalWindow()])

    def _taken(self) -> Iterable[pa.Table]:
        rows, self._rows = self._rows, []
        return self._tables(rows)
