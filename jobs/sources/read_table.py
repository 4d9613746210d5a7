"""Reads rows in memory the way a pipeline reads files.

In: the name of a held table. Out: Arrow tables of moderate size; the first has no rows, so types are known. Holds: only
the name is pickled. Not covered: runners whose workers are other processes, which do not have the rows.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.jobs.sources import tables
from dp_pipelines.jobs.sql import row_slices
from dp_pipelines.transforms.read import BATCH_ROWS


@dataclasses.dataclass
class ReadTable(beam.PTransform):
    """Read a held table.

    Args:
        name: what `tables.hold` gave.
        columns: to read.
    """

    name: str
    columns: Sequence[str]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pbegin: beam.pvalue.PBegin) -> "beam.PCollection[pa.Table]":
        """One table without rows, then all of them."""
        return (
            pbegin
            | "Table" >> beam.Create([self.name], reshuffle=False).with_output_types(str)
            | "Rows" >> beam.ParDo(_Rows(tuple(self.columns))).with_output_types(pa.Table)
        )


class _Rows(beam.DoFn):
    def __init__(self, columns: tuple[str, ...]) -> None:
        super().__init__()
        self._columns = columns

    def process(self, element: str) -> Iterator[pa.Table]:
        rows = tables.held(element).read(self._columns)
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in rows.schema], schema=rows.schema)
        for batch in itertools.chain([nothing], rows.to_batches(max_chunksize=BATCH_ROWS)):
            # Many views may show one text.
            views = [name for name in self._columns if tables.has_views(rows.schema.field(name).type)]
            for start, stop in row_slices.cut(pa.Table.from_batches([batch]), views) if views else [(0, len(batch))]:
                columns = [tables.without_views(column) for column in batch.slice(start, stop - start).columns]
                yield pa.table(columns, names=list(self._columns))
