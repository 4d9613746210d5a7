"""Counts reports of devices, and estimates from the sums: the path of a collected stage, for every engine alike.

In: tables of reports. Out: one table of estimates. Holds: counts are whole numbers that add up, so order, batches and engines
change nothing; of a unit one row counts, which its rows alone decide; there is no draw. Not covered: who sent what, where the
rows have no unit.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.collected.collected_stage import CollectedStage
from dp_pipelines.kernels.sizes import BATCH_BYTES
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import GatheringStep, Sharded, Step
from dp_pipelines.steps.whole_units import with_unit_columns

WORD = 8
"""Bytes of a count."""


def one_of_each(rows: Flow, *, unit: Sequence[str], reads: Sequence[str], num_shards: int, salt: int) -> Flow:
    """One row of each sender, by a keyed hash of what is read. Rows without a sender are dropped.

    Args:
        rows: tables of reports.
        unit: the columns that name a sender.
        reads: the columns of reports.
        num_shards: into how many groups of units the rows are cut.
        salt: a 64-bit number for the hashes of this run.
    """
    return with_unit_columns(
        rows, unit=unit, reads=reads, unit_columns=AsTheyAre(), max_rows_per_unit=1, num_shards=num_shards, salt=salt
    )


def estimated(reports: Flow, stage: CollectedStage) -> Flow:
    """The estimates of a stage, as one table.

    Args:
        reports: tables with the columns that the stage reads, each row another person's.
        stage: what is estimated.
    """
    none = reports.known("None", [(0, as_table(np.zeros(stage.width, dtype=np.int64)))], Sharded)
    counted = reports.each("Count", CountReports(stage)).with_others("WithNone", none)
    return counted.by_key("Sum").each("Estimate", PublishCounts(stage))


class AsTheyAre:
    """The rows that are kept of each unit, and nothing more."""

    def apply(self, table: pa.Table) -> pa.Table:
        """The same table."""
        return table


class CountReports(GatheringStep):
    """Count so many reports at once that the counts take no more room than they did."""

    def __init__(self, stage: CollectedStage) -> None:
        super().__init__(max(BATCH_BYTES, WORD * stage.width))
        self._stage = stage

    def compute(self, element: list[pa.Table]) -> list[tuple[int, pa.Table]]:
        """One table of counts."""
        total = np.zeros(self._stage.width, dtype=np.int64)
        for table in element:
            total += self._stage.count(table)
        return [(0, as_table(total))]


class PublishCounts(Step):
    """Add up all counts, and estimate."""

    def __init__(self, stage: CollectedStage) -> None:
        self._stage = stage

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """The table to publish."""
        total = np.zeros(self._stage.width, dtype=np.int64)
        for counts in element[1]:
            total += counts.column("count").to_numpy()
        yield self._stage.published(total)


def as_table(counts: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> pa.Table:
    """Counts as they travel."""
    return pa.table({"count": counts})
