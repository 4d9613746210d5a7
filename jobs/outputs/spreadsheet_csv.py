"""CSV for spreadsheets: rounded numbers, intervals of the noise, a grid, another delimiter or decimal mark, a byte order mark.

In: a Parquet file of a release, the options of a job. Out: a CSV file. Holds: the bytes depend on the released table and the
options alone; without options they are those of `CsvText`; what the options cannot do is refused by public facts, before
anything is charged, or is left out with a note where only the released rows tell. Not covered: the digits (`csv_columns`).
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from dp_pipelines.jobs.outputs import text_tables
from dp_pipelines.jobs.outputs.csv_columns import CsvLayout, cells_of, columns_of, columns_with_decimals
from dp_pipelines.jobs.outputs.text_tables import CsvText, in_quotation_marks, write_lines
from dp_pipelines.jobs.outputs.wide_table import SEPARATOR, combinations, grid_of

MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, by which Excel knows the encoding of a file."""

MOST_COLUMNS = 1_000
"""Columns of a wide table."""

MOST_ROWS = 2**20
"""Rows of a table that is written wide: as many as a spreadsheet has."""

MOST_CELLS = 2**24
"""Cells of a wide table, empty ones too: few partitions far apart make a large file."""

MOST_BYTES = 2**28
"""Of a table that is written wide, since it is held in memory as text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpreadsheetCsv(CsvText):
    """CSV as the options of a job say.

    Args:
        layout: of the table.
        rounded: whether numbers have the digits that their noise leaves meaningful.
        interval: whether the 95% interval of the noise follows each standard deviation.
        wide: whether there is a column for each value of the last key; then there are no standard deviations, which mostly are
            the same in all cells.
        delimiter: the character between cells.
        decimal: the decimal separator of numbers. Lists are JSON and keep the point.
        bom: whether the file begins with a byte order mark.
    """

    layout: CsvLayout
    rounded: bool = False
    interval: bool = False
    wide: bool = False
    delimiter: str = ","
    decimal: str = "."
    bom: bool = False

    @property
    def takes_any_order(self) -> bool:
        """See `TextFormat`. A grid has its rows and columns in the order of their keys."""
        return not self.wide

    def refused_options(self, schema: pa.Schema) -> Iterator[tuple[str, str, str]]:
        """Yield which options the table cannot have: the option, the rule, a hint.

        Args:
            schema: of the table.
        """
        if self.interval:
            taken = {name.casefold(): name for name in schema.names}
            for numbers in self.layout.numbers:
                for end in numbers.interval:
                    if end.casefold() in taken:
                        message = (
                            f"would publish column {taken[end.casefold()]!r} twice: it is an end of the interval of "
                        )
                        yield "interval", message + repr(numbers.value), "rename one, or drop interval: true"
        if self.wide and not self.layout.compared:
            yield from self._not_wide(schema)

    def _not_wide(self, schema: pa.Schema) -> Iterator[tuple[str, str, str]]:
        """Yield why the table cannot be a grid."""
        layout = self.layout
        if layout.levels or layout.ranks:
            what = "levels of a rollup" if layout.levels else "the best partitions only"
            yield "wide", f"has {what}, which are no grid", "drop wide: true, or put the stage into a job of its own"
        elif layout.other:
            message = "has a group of all other keys, which is in no column of a grid"
            yield "wide", message, "drop other: true, or wide: true, or put the stage into a job of its own"
        elif len(layout.keys) < 2:
            message = "has fewer than two columns in partition_by, and the last one becomes columns"
            yield "wide", message, "add one, drop wide: true, or put the stage into a job of its own"
        elif not layout.numbers:
            yield "wide", "has no metric, so no cell would hold anything", "add one, or drop wide: true"
        else:
            columns = self._repeated(schema)
            for name in columns:
                for other in (*layout.keys[:-1], *columns):
                    if other.startswith(f"{name}{SEPARATOR}"):
                        message = f"has column {other!r}, which a column of the numbers {name!r} could be called, too"
                        yield "wide", message, "rename one of them"
                        break  # its interval is called alike
            if layout.listed is not None:
                width = self._width(len({key[-1] for key in layout.listed}), columns)
                if too_large := _too_large(len({tuple(key[:-1]) for key in layout.listed}), width):
                    yield "wide", too_large, "put a key with fewer values last, or drop wide: true"

    def _repeated(self, schema: pa.Schema) -> list[str]:
        """Return the columns that a grid has for each value of the last key: all but standard deviations."""
        left_out = {*self.layout.keys, *(numbers.stddev for numbers in self.layout.numbers)}
        columns = columns_of(schema.names, self.layout, interval=self.interval)
        return [name for name in columns if name not in left_out]

    def _cells(self, table: pa.Table) -> dict[str, pa.Array]:
        """Return the cells of rows by column."""
        cells = cells_of(table, self.layout, rounded=self.rounded, interval=self.interval)
        if self.decimal != ".":
            for name in columns_with_decimals(table.schema, self.layout, interval=self.interval):
                cells[name] = pc.replace_substring(cells[name], ".", self.decimal)
        return cells

    def _width(self, values: int, repeated: list[str]) -> int:
        """Return how many columns a grid has."""
        return len(self.layout.keys) - 1 + values * len(repeated)

    def why_long(self, table: pathlib.Path) -> str:
        """Return why the table is not written as a grid although the job asks for it; empty where it is.

        Args:
            table: its Parquet file. Its rows are released, so what they are like is public.
        """
        with pa.parquet.ParquetFile(table) as file:
            why, _ = self._rows_of_grid(file)
        return why

    def _rows_of_grid(self, file: pa.parquet.ParquetFile) -> tuple[str, pa.Table | None]:
        """Return why a table is no grid, and its rows where it is one. No reason is needed where the job asks for none."""
        if not self.wide or self.layout.compared:
            return "", None
        if file.metadata.num_rows > MOST_ROWS:
            return f"has more than {MOST_ROWS:,} rows", None
        rows = file.read()
        if rows.nbytes > MOST_BYTES:
            return f"takes more than {MOST_BYTES >> 20} MiB", None
        values = len(pc.unique(rows.column(self.layout.keys[-1])))
        width = self._width(values, self._repeated(rows.schema))
        why = _too_large(rows.num_rows, width)
        if why:
            why = _too_large(combinations([rows.column(key) for key in self.layout.keys[:-1]]), width)
        return why, None if why else rows

    def write(self, table: pathlib.Path, to: pathlib.Path) -> None:
        """See `TextFormat`."""
        with pa.parquet.ParquetFile(table) as file, to.open("wb") as sink:
            if self.bom:
                sink.write(MARK)
            _, rows = self._rows_of_grid(file)
            if rows is not None:
                self._write_grid(rows, sink)
                return
            self._write_header(columns_of(file.schema_arrow.names, self.layout, interval=self.interval), sink)
            for batch in file.iter_batches(batch_size=text_tables.ROWS):
                self._write_cells([*self._cells(pa.table(batch)).values()], sink)

    def _write_grid(self, table: pa.Table, sink: BinaryIO) -> None:
        """Write a table as a grid."""
        keys, grid = self.layout.keys, grid_of([table.column(key) for key in self.layout.keys])
        cells = self._cells(table)
        before = {key: cells[key] for key in keys[:-1]}
        numbers = {name: cells[name] for name in self._repeated(table.schema)}
        self._write_header(grid.names(list(before), list(numbers)), sink)
        for part in grid.parts(before, numbers):
            self._write_cells(part, sink)

    def _write_header(self, names: list[str], sink: BinaryIO) -> None:
        self._write_cells([in_quotation_marks(pa.array([name])) for name in names], sink)

    def _write_cells(self, columns: Sequence[pa.Array], sink: BinaryIO) -> None:
        write_lines(pc.binary_join_element_wise(*columns, self.delimiter), sink)


def _too_large(rows: int, width: int) -> str:
    """Return why a grid of so many rows and columns is not written; empty where it is."""
    if width > MOST_COLUMNS:
        return f"would have {width:,} columns, and at most {MOST_COLUMNS:,} are written"
    if rows * width > MOST_CELLS:
        return f"would have {rows * width:,} cells, and at most {MOST_CELLS:,} are written"
    return ""
