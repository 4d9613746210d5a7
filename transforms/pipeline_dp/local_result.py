"""The result of an aggregation with LocalBackend: released when it is first read, once.

In: rows, a stage that `compute_budgets` will fill in. Out: an iterable of results. Holds: however often and by whomever it is
read, there is one release; a copy of it draws no second one. Not covered: what Beam releases (deferred.py).
"""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.planning.payment import pay
from dp_pipelines.transforms.pipeline_dp import deferred
from dp_pipelines.transforms.pipeline_dp.budget_accounting import Planned
from dp_pipelines.transforms.pipeline_dp.extract import RowReader, tables
from dp_pipelines.transforms.pipeline_dp.metrics import Asked


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
        with self._lock:
            if self._results is None:
                stage = self._planned.stage
                pay([(stage.name, stage.payment)])
                found: list[pa.Table] = deferred.released(tables(self._rows, self._reader), stage)
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
