"""The files of a job's tables as one flow of rows: read, shaped table by table, then joined or put one under the other.

In: where an engine's sources begin, `Tables`. Out: a flow of rows with the columns that stages read. Holds: `where`, `columns`
and `lookup` of a table apply before its rows are capped; rows of all tables name the unit alike. Not covered: what becomes of
the rows afterwards (`build`).
"""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from dp_pipelines.jobs.request.joined_tables import TableRows, Tables
from dp_pipelines.jobs.sources.event_window import RowWindow
from dp_pipelines.jobs.sources.lookups import Lookups
from dp_pipelines.jobs.sources.read_source import rows_of
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.jobs.terminal.progress import file_opened
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import Step
from dp_pipelines.steps.unit_join import JoinRows, joined_on_unit


class ShapeRows(Step):
    """Filter, define and look up, row by row.

    Args:
        window: of event time, or None.
        rows: `where` and `columns`.
        lookup: the joined tables, or None.
        columns: what the stages read.
    """

    def __init__(
        self, window: RowWindow | None, rows: RowExpressions, lookup: Lookups | None, columns: tuple[str, ...]
    ) -> None:
        self._window = window
        self._rows, self._lookup, self._columns = rows, lookup, columns

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The rows of one table that are kept, with the columns that the stages read: several tables where texts are long."""
        for table in self._rows.tables(element if self._window is None else self._window.apply(element)):
            for found in [table] if self._lookup is None else self._lookup.shaped(table):
                yield found.select(list(self._columns))


class CountFiles(Step):
    """Tell progress of each file: the readers give one table without rows for each, so that types are known."""

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same table."""
        if element.num_rows == 0:
            file_opened()
        yield element


class AsFirstTable(Step):
    """Rows of a table of a union under the names, and with the types, that the unit has in the first.

    Args:
        names: of the columns, by their names in the first table.
        kinds: types, by these names; what has none stays as it is.
    """

    def __init__(self, names: Mapping[str, str], kinds: Mapping[str, pa.DataType]) -> None:
        self._names, self._kinds = names, kinds

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same rows."""
        columns = {name: element.column(mine) for name, mine in self._names.items()}
        for name, kind in self._kinds.items():
            if pa.types.is_integer(kind):  # all others are of one type, but for how texts are laid out
                columns[name] = columns[name].cast(kind)
        yield pa.table(columns)


def as_one(
    start: Flow,
    tables: Tables,
    num_shards: int,
    salt: int,
    *,
    shape: Callable[[Flow, TableRows], Flow] | None = None,
    pairing: type[JoinRows] = JoinRows,
) -> Flow:
    """The rows that several tables become.

    Args:
        start: where sources begin.
        tables: what is read of them.
        num_shards: into how many groups of units they are cut where they are joined.
        salt: a 64-bit number for the hashes of this run.
        shape: from the rows of a table as they are read to those that meet others; left out, as `ShapeRows` does.
        pairing: the step that joins rows.
    """

    def of_table(begin: Flow, part: TableRows) -> Flow:
        read = rows_of(begin, part.source, part.columns, part.shuffled).each("CountFiles", CountFiles())
        return _shaped(read, part) if shape is None else shape(read, part)

    rows = [start.inside(part.name, lambda begin, part=part: of_table(begin, part)) for part in tables.parts]
    if tables.united is not None:
        return joined_on_unit(rows[0], rows[1], tables.united, num_shards, salt, pairing)
    first, alike = tables.parts[0], []
    for part, found in zip(tables.parts, rows, strict=True):
        names = {**dict(zip(first.unit, part.unit, strict=True)), **{n: n for n in first.reads if n not in first.unit}}
        alike.append(found.each(f"Rename {part.name}", AsFirstTable(names, tables.key_types)))
    return alike[0].with_others("Union", *alike[1:])


def _shaped(read: Flow, part: TableRows) -> Flow:
    """The rows of one table, shaped."""
    return read.each("ShapeRows", ShapeRows(None, part.rows, part.lookup, part.reads))
