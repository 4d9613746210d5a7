"""Statistics before the noise, off any runner: the job's own pipeline, in which one step writes what it would have drawn from.

In: a job file, an engine. Out: for each stage a table with its partitions and, as text, all exact totals; for each train stage
digests of its examples. Holds: everything up to the draw is the product's, and so is everything after it; the product has no
switch for this: the class of the one step is replaced while the pipeline is built, and workers get the replacement by name.
Not covered: noise and selection. Tests only.
"""

import functools
import hashlib
import pathlib
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.request import request
from dp_pipelines.jobs.run import build, pipelines
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.release.staging import sorted_by_key
from dp_pipelines.steps import release_stage
from dp_pipelines.steps.draw_release import DrawLevels, DrawRelease, receipt, without_receipts
from dp_pipelines.steps.release_stage import Ungroup

SALT = 0x5EED
SHARDS = 7

Dump = dict[str, Any]


class WriteTotals(DrawRelease):
    """Stands in for `DrawRelease`: the same merged totals, written down instead of drawn from."""

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
        """The totals of one place."""
        yield 0, as_text(self.totals(element), self._stage)
        yield 0, receipt(element[0])


class WriteLevels(DrawLevels):
    """Stands in for `DrawLevels`: the merged totals of each level."""

    def drawn(self, element: tuple[int, Iterable[pa.Table]]) -> Iterable[pa.Table]:
        """The totals of one place of one level."""
        place, tables = element
        level = self._levels[place // self._places]
        table = as_text(level.totals((place % self._places, tables)), level.stage)
        assert level.stage.query.level is not None
        return [table.append_column(LEVEL, pa.array([level.stage.query.level.number] * table.num_rows, pa.int64()))]


class Together(Ungroup):
    """Stands in for `Ungroup`: the totals of all levels in one order."""

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """One table."""
        if not self._stage.coarser:
            yield from super().process(element)
            return
        levels = without_receipts(element[1], self._stage.name, self._count)
        together = pa.concat_tables(list(levels), promote_options="permissive")
        if REST in self._stage.query.sorted_by:
            together = together.append_column(REST, pa.array([False] * together.num_rows, pa.bool_()))
        yield sorted_by_key(together, self._stage.query.sorted_by)


def as_text(totals: Totals, stage: StagePlan) -> pa.Table:
    """Partitions with all their totals as exact text."""
    keys = totals.partitions if stage.query.partition_columns else ()  # everything has a key of ours alone
    columns = dict(zip(stage.query.partition_columns, keys, strict=True))
    rows = range(len(totals.partitions[0]))
    for place, statistic in enumerate(stage.statistics):
        columns[f"{place} {statistic.name}"] = pa.array([_value(totals, place, row) for row in rows], pa.string())
    return pa.table(columns)


def _value(totals: Totals, place: int, row: int) -> str:
    one = np.array([row])
    if place in totals.cells:
        return str(totals.cells[place].dense(one)[0].tolist())
    if place in totals.vectors:
        high, low = totals.vectors[place].words(one)
        return str([int(h) * 2**32 + int(lo) for h, lo in zip(high[0], low[0], strict=True)])
    return str(int(totals.high[place][row]) * 2**32 + int(totals.low[place][row]))


def dump(job: pathlib.Path, engine: Engine, progress: Progress, folder: pathlib.Path) -> Dump:
    """All exact statistics of a job.

    Args:
        job: the job file. Its stages have no `top`, since nothing is released by which one could rank.
        engine: runs the pipelines.
        progress: is told each step.
        folder: empty; for staged files.
    """
    asked, plan = _planned(job)
    found: Dump = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_stage, "DrawRelease", WriteTotals)
        patch.setattr(release_stage, "DrawLevels", WriteLevels)
        patch.setattr(release_stage, "Ungroup", Together)
        patch.setattr(build, "entropy", SimpleNamespace(salt_number=lambda: SALT))
        patch.setattr(build, "num_shards", lambda *given: SHARDS)
        if plan is not None:
            above = {part for parts in plan.rolled.values() for part in parts}
            stages = {name: stage for name, stage in plan.round(1).stages.items() if name not in above}
            files = pipelines.run_pipeline(asked, stages, folder, engine, progress)
            for name, path in files.items():
                found[name] = pyarrow.parquet.read_table(path)
        for name in asked.tasks:
            examples = folder / f"{name}.examples"
            examples.mkdir(mode=0o700)
            pipelines.run_examples(asked, name, examples, SALT, engine, progress, b"key")
            for path in sorted(examples.glob("shard-*")):
                found[f"{name}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@functools.cache
def _planned(job: pathlib.Path) -> tuple[request.Request, Plan | None]:
    """What a job asks for; no plan where it only trains: examples need none."""
    file = job_file.load(str(job))
    asked = request.check(file, [])
    return asked, running.cached_plan(file, asked.stages, asked.asked) if asked.queries else None


def misfits(dump: Dump, statistics: Iterable[str]) -> list[str]:
    """Where the totals of groups are not the sums of those of the groups below them.

    Args:
        dump: of a job.
        statistics: what adds up, by the beginning of its name.
    """
    found = []
    for name, table in dump.items():
        if not isinstance(table, pa.Table) or LEVEL not in table.column_names:
            continue
        rows = table.to_pylist()
        keys = [key for key in table.column_names if key[0] not in "0123456789" and key not in (LEVEL, REST)]
        for level in range(max((row[LEVEL] for row in rows), default=0)):
            by = [key for key in keys if any(row[key] is not None for row in rows if row[LEVEL] == level)]
            for column in table.column_names:
                if not column.split(" ", 1)[-1].startswith(tuple(statistics)):
                    continue
                sums = [dict[tuple[Any, ...], int](), dict[tuple[Any, ...], int]()]
                for row in rows:
                    if row[LEVEL] in (level, level + 1):
                        mine, key = sums[row[LEVEL] - level], tuple(row[part] for part in by)
                        mine[key] = mine.get(key, 0) + int(row[column])
                # Of a list on disk only those are there that have rows.
                above, below = ({key: value for key, value in each.items() if value} for each in sums)
                found += [f"{name}, level {level}: {column}"] if above != below else []
    return found


def differences(one: Dump, other: Dump) -> list[str]:
    """The names of what two engines have computed differently, types included."""
    names = sorted({*one, *other})
    return [name for name in names if name not in one or name not in other or not _same(one[name], other[name])]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, pa.Table) and isinstance(other, pa.Table):
        return bool(one.schema.equals(other.schema) and one.to_pylist() == other.to_pylist())
    return bool(one == other)
