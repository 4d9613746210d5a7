"""Reads rows in memory the way a pipeline reads files.

In: the name of a held table. Out: Arrow tables of moderate size; the first has no rows, so types are known. Holds: only
the name is pickled. Not covered: runners whose workers are other processes, which do not have the rows.
"""

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa

from dp_pipelines.jobs.sources import tables
from dp_pipelines.jobs.sql import row_slices
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.read_files import UNKNOWN, Shuffled
from dp_pipelines.steps.step import Step


def held_tables(start: Flow, name: str, columns: Sequence[str], shuffled: Shuffled = UNKNOWN) -> Flow:
    """The rows of a held table: one table without rows, then all of them.

    Args:
        start: where sources begin.
        name: what `tables.hold` gave.
        columns: to read.
        shuffled: what becomes of a row.
    """
    return start.known("Table", [name], str).each("Rows", HeldRows(tuple(columns), shuffled))


class HeldRows(Step):
    """The tables of a held table.

    Args:
        columns: to read.
        shuffled: what becomes of a row.
    """

    def __init__(self, columns: tuple[str, ...], shuffled: Shuffled = UNKNOWN) -> None:
        self._columns, self._most_rows = columns, shuffled.most_rows()

    def process(self, element: str) -> Iterator[pa.Table]:
        """Tables, the first one without rows."""
        rows = tables.held(element).read(self._columns)
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in rows.schema], schema=rows.schema)
        for batch in itertools.chain([nothing], rows.to_batches(max_chunksize=self._most_rows)):
            # Many views may show one text.
            views = [name for name in self._columns if tables.has_views(rows.schema.field(name).type)]
            for start, stop in row_slices.cut(pa.Table.from_batches([batch]), views) if views else [(0, len(batch))]:
                columns = [tables.without_views(column) for column in batch.slice(start, stop - start).columns]
                yield pa.table(columns, names=list(self._columns))
