"""An aggregation as a transform of a Beam pipeline: rows to tables, the release, its results.

In: a PCollection of rows, a stage that `compute_budgets` will fill in. Out: a PCollection of results. Holds: Beam is loaded with
this module, and so only by programs that use it. Not covered: LocalBackend (local_result.py).
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pipeline_dp as original
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp.budget_accounting import Planned
from dp_pipelines.transforms.pipeline_dp.deferred import DeferredRelease
from dp_pipelines.transforms.pipeline_dp.extract import Columns, RowReader
from dp_pipelines.transforms.pipeline_dp.metrics import Asked


@dataclasses.dataclass(eq=False)
class ReleaseRows(beam.PTransform):
    """From rows to results.

    Args:
        planned: the stage.
        reader: how rows become tables.
        asked: how a released table becomes results.
        params: what annotators are told.
        backend: calls the annotators.
    """

    planned: Planned
    reader: RowReader
    asked: Asked
    params: Any
    backend: original.BeamBackend

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Read, release, decode, annotate."""
        released = pcoll | "Rows" >> ReadRows(self.reader) | "Release" >> DeferredRelease(self.planned)
        results = released | "Results" >> beam.FlatMap(self.asked.results).with_output_types(Any)
        return self.backend.annotate(results, "annotation", params=self.params, budget=self.planned.budgets)


def check_batch(pcoll: beam.PCollection[Any]) -> None:
    """Refuse rows that are not released as one batch.

    Raises:
        RequestError: the PCollection is unbounded or windowed.
    """
    if not pcoll.is_bounded:
        raise RequestError(field="col", message="is unbounded", hint="release batches: read a bounded source")
    if not isinstance(pcoll.windowing.windowfn, GlobalWindows):
        raise RequestError(
            field="col",
            message="is windowed: each window would be a release of its own, and no plan knows how many there are",
            hint="make the window a part of the partition key and put WindowInto(GlobalWindows()) behind it",
        )


@dataclasses.dataclass(eq=False)
class ReadRows(beam.PTransform):
    """Turn the rows of a PCollection into tables; one of them is without rows, so that types are known where there are none."""

    reader: RowReader

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Gather the rows of a bundle."""
        made = pcoll | "ToTables" >> beam.ParDo(_Gather(self.reader)).with_output_types(pa.Table)
        types = beam.Create(list(self.reader.tables([])), reshuffle=False).with_output_types(pa.Table)
        return (made, pcoll.pipeline | "Types" >> types) | "Tables" >> beam.Flatten()


class _Gather(beam.DoFn):
    """Rows of a bundle to tables. Rows are kept for a moment only: those that live long are looked at again and again."""

    def __init__(self, reader: RowReader) -> None:
        super().__init__()
        self._reader, self._chunk = reader, reader.chunk

    def start_bundle(self) -> None:
        self._rows: list[Any] = []
        self._columns = Columns(self._reader)

    def process(self, element: Any) -> Iterable[pa.Table]:
        # Not a generator: a row costs an append.
        self._rows.append(element)
        return () if len(self._rows) < self._chunk else self._added()

    def _added(self) -> Iterable[pa.Table]:
        rows, self._rows = self._rows, []
        return self._columns.added(rows)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for table in self._added():
            yield _in_global_window(table)
        if len(self._columns):
            yield _in_global_window(self._columns.taken())


def _in_global_window(table: pa.Table) -> WindowedValue:
    return WindowedValue(table, GlobalWindow().max_timestamp(), [GlobalWindow()])
