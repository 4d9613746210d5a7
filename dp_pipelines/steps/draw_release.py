"""Selection and noise, in one step for each place; then the barrier.

In: the partial tables of a place. Out: released tables. Holds: selection and all noise of a partition are decided in one
call; no later step of the pipeline depends on what was drawn, so a place that is computed again is another complete
release of its partitions, and only one is ever visible.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dp_pipelines.kernels import accumulate, shard
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.kernels.columns.listed_keys import ListedKeys
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import draw, gate
from dp_pipelines.release.draw import draw_release
from dp_pipelines.release.large_lists import draw_passing
from dp_pipelines.steps import party_tables
from dp_pipelines.steps.step import Sharded, Step

RECEIPT = "\0place"
"""The only column of a receipt: the place that was drawn. No column of a job has such a name."""


def receipt(place: int) -> pa.Table:
    """Return a note that a place was drawn, which travels with its release through the barrier."""
    return pa.table({RECEIPT: [place]})


def without_receipts(tables: Iterable[pa.Table], stage: str, count: int) -> Iterator[pa.Table]:
    """Yield the released tables of a stage, and check at their end that each place was drawn once.

    Args:
        tables: of all places, with their receipts.
        stage: its name.
        count: how many places there are, of all levels together.

    Raises:
        GateError: a place was drawn twice, or not at all.
    """
    drawn: list[int] = []
    for table in tables:
        if table.column_names == [RECEIPT]:
            drawn += table.column(RECEIPT).to_pylist()
        else:
            yield table
    gate.check_places(stage, drawn, count)


class DrawRelease(Step):
    """Merge the partials of a place, select partitions and add noise."""

    gives = Sharded

    def __init__(self, stage: StagePlan, places: int) -> None:
        gate.check(stage)  # where the graph is made; a worker checks again before it draws
        self._stage, self._places = stage, places

    @property
    def stage(self) -> StagePlan:
        """What is drawn."""
        return self._stage

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
        """The released table of one place, in pieces with one common key, so that a single writer gets them all; a receipt."""
        yield from ((0, piece) for table in self.drawn(element) for piece in shard.pieces(table))
        yield 0, receipt(element[0])

    def drawn(self, element: tuple[int, Iterable[pa.Table]]) -> Iterable[pa.Table]:
        """The released tables of one place; of a list on disk one for each bucket."""
        if isinstance(self._stage.layout.public, KeyFile):
            return draw_passing(
                self.totals(element), self._stage, element[0], self._places, gate.open_gate(self._stage)
            )
        return [draw_release(self.totals(element), self._stage, gate.open_gate(self._stage))]

    def totals(self, element: tuple[int, Iterable[pa.Table]]) -> Totals:
        """The merged totals of one place."""
        place, tables = element
        partials = [table for table in tables if table.num_columns]
        layout, statistics = self._stage.layout, self._stage.statistics
        if isinstance(layout.public, ListedKeys):
            return accumulate.merge_public(partials, layout, statistics, place, self._places)
        # An input without a single table, not even an empty one, leaves the types of the partitions unknown.
        partials = partials or [accumulate.no_partials(layout.partition_names, statistics)]
        return accumulate.merge(partials, layout.partition_names, statistics)


class DrawPartyTable(DrawRelease):
    """The same for one of several parties: whole numbers with noise, of which only sums with those of others are published."""

    def drawn(self, element: tuple[int, Iterable[pa.Table]]) -> Iterable[pa.Table]:
        """The noisy numbers of one place."""
        permits = gate.open_gate(self._stage)
        return [party_tables.noisy(self.totals(element), self._stage, element[0], self._places, permits)]


class DrawLevels(DrawRelease):
    """The same for all levels of a rollup, whose places come one level behind the other: the finest, then from the coarsest."""

    def __init__(self, stage: StagePlan, places: int) -> None:
        super().__init__(stage, places)
        self._levels = [DrawRelease(level, places) for level in (stage, *stage.coarser)]

    def drawn(self, element: tuple[int, Iterable[pa.Table]]) -> Iterable[pa.Table]:
        """The released tables of one place, with its level."""
        place, tables = element
        level, of_level = self._levels[place // self._places], (place % self._places, tables)
        if isinstance(level.stage.layout.public, KeyFile):
            return (draw.of_level(table, level.stage) for table in level.drawn(of_level))
        return [draw.draw_level(level.totals(of_level), level.stage, gate.open_gate(level.stage))]
