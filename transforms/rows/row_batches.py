"""Gathers the rows of a bundle into tables.

In: rows of any kind, a function that makes a table from many. Out: tables, in the global window; one of them has no rows, so
that types are known even without rows. Holds: nothing is carried over between bundles. Not covered: how a row is converted;
rows in other windows than the global one, which callers refuse (`input_tables.check_batch`) or take out of them first.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow, GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dp_pipelines.transforms.coder import register

register()

Tables = Callable[[list[Any]], Iterable[pa.Table]]
"""Makes tables of rows; of no rows at least one, without rows."""


def tables_of(rows: beam.PCollection[Any], tables: Tables, most: int) -> beam.PCollection[pa.Table]:
    """Tables of all rows.

    Args:
        rows: of any kind.
        tables: makes them; it travels to the workers.
        most: rows that are gathered.
    """
    made = rows | "ToTables" >> beam.ParDo(GatherRows(tables, most)).with_output_types(pa.Table)
    return with_types(made, list(tables([])))


def with_types(made: beam.PCollection[pa.Table], empty: list[pa.Table]) -> beam.PCollection[pa.Table]:
    """The tables, and tables without rows beside them, from which types are known whatever the data hold."""
    types = made.pipeline | "Types" >> beam.Create(empty, reshuffle=False).with_output_types(pa.Table)
    return (made, types) | "Tables" >> beam.Flatten()


class GatherRows(beam.DoFn):
    """Gather rows, and hand out the tables of many together.

    Args:
        tables: makes tables of rows; a subclass may define the method instead.
        most: rows that are gathered.
    """

    def __init__(self, tables: Tables | None, most: int) -> None:
        super().__init__()
        self._made_by, self._most = tables, most
        self._rows: list[Any] = []

    def tables(self, rows: list[Any]) -> Iterable[pa.Table]:
        """The tables of rows."""
        assert self._made_by is not None
        return self._made_by(rows)

    def start_bundle(self) -> None:
        """Nothing is gathered."""
        self._rows = []

    def process(self, element: Any) -> Iterable[pa.Table]:
        """Gather a row. Not a generator: a row costs an append."""
        self._rows.append(element)
        return () if len(self._rows) < self._most else self._taken()

    gather = process
    """The same, where a subclass processes elements in its own way."""

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Hand out the rest."""
        if self._rows:
            for table in self._taken():
                yield WindowedValue(table, self.end().max_timestamp(), [self.end()])

    def end(self) -> BoundedWindow:
        """The window of what a bundle hands out at its end."""
        return GlobalWindow()

    def _taken(self) -> Iterable[pa.Table]:
        rows, self._rows = self._rows, []
        return self.tables(rows)
