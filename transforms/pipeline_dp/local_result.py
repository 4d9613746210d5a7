"""The result of an aggregation with LocalBackend: released when it is first read, once.

In: rows, a stage that `compute_budgets` will fill in. Out: an iterable of results. Holds: however often and by whomever it is
read, there is one release; a copy of it draws no second one. Not covered: what Beam releases (deferred.py).
"""

import collections
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError
from dp_pipelines.noise import entropy
from dp_pipelines.planning.payment import pay
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.steps.aggregate import ToPartials, ToShards
from dp_pipelines.steps.draw_release import DrawRelease
from dp_pipelines.steps.freed_memory import keep_freed_memory
from dp_pipelines.steps.release_stage import StageSteps
from dp_pipelines.transforms.pipeline_dp.budget_accounting import Planned
from dp_pipelines.transforms.pipeline_dp.extract import RowReader, tables
from dp_pipelines.transforms.pipeline_dp.metrics import Asked

SHARDS, PLACES = 4, 2
"""Groups of units, and of partitions. Few, since all are in this process; they change no result."""


class LocalResult:
    """What an aggregation or a selection releases.

    Args:
        rows: are read once.
        planned: the stage.
        reader: how rows become tables.
        asked: how a released table becomes results.
    """

    def __init__(self, rows: Iterable[Any], planned: Planned, reader: RowReader, asked: Asked) -> None:
        self._rows, self._planned, self._reader, self._asked = rows, planned, reader, asked
        self._results: list[Any] | None = None
        self._lock = threading.RLock()  # copies share it

    def __iter__(self) -> Iterator[Any]:
        # A generator: `map(..., result)` may stand before `compute_budgets()`.
        yield from self._released()

    def _released(self) -> list[Any]:
        with self._lock, interrupts.watched():
            if self._results is None:
                stage = self._planned.stage
                pay([(stage.name, stage.payment)])
                keep_freed_memory()
                found = released(tables(self._rows, self._reader), stage)
                self._results = [result for table in found for result in self._asked.results(table)]
                self._rows = ()
            return self._results

    def keys(self) -> list[Any]:
        """Selected partitions, as they are released.

        Raises:
            RequestError: this is no selection, or its budgets are not computed yet.
        """
        if self._asked.fields:
            raise RequestError(
                field="public_partitions",
                message="holds results of an aggregation, not partition keys",
                hint="write [key for key, _ in results]",
            )
        if not self._planned.ready:
            raise RequestError(
                field="public_partitions",
                message="are not released yet: their accountant has not computed its budgets",
                hint="select them with an accountant of their own, call its compute_budgets() first, and add up both budgets",
            )
        return list(self)


def released(tables: Iterable[pa.Table], stage: StagePlan) -> list[pa.Table]:
    """The released tables of a stage, in this process.

    Args:
        tables: at least one, possibly without rows.
        stage: the stage.
    """
    salt = entropy.salt_number()
    to_shards, to_partials = ToShards(stage.layout, SHARDS, salt), ToPartials(stage, PLACES, salt)
    shards: dict[int, list[pa.Table]] = collections.defaultdict(list)
    for table in tables:
        for shard, cut in to_shards.compute([table]):
            shards[shard].append(cut)
    places: dict[int, list[pa.Table]] = {place: [] for place in range(PLACES)}
    for shard in sorted(shards):
        for place, partial in to_partials.compute((shard, shards.pop(shard))):
            places[place].append(partial)
    draw = DrawRelease(stage, PLACES)
    drawn = [draw.process(element) for element in places.items()]
    together = [table for of_place in drawn for _, table in of_place]
    return list(StageSteps.of(stage, SHARDS, salt, PLACES).ungroup.process((0, together)))
