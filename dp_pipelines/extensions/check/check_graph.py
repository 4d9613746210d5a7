"""From a request and its plan to a graph that counts: rows are shaped as a run shapes them, and notes are all that is written.

In: a checked request, its planned stages, a private folder. Out: the graph, for every engine. Holds: rows are read once for all
stages; what is counted are the rows that a run would see. NOT private. Not covered: what the numbers mean (`findings`).
"""

import functools
import pathlib
from collections.abc import Mapping

from dp_pipelines.extensions.check import late_rows
from dp_pipelines.extensions.check.bound_shares import ProfiledClip, ProfiledLevel, ProfiledStage
from dp_pipelines.extensions.check.join_notes import CountMatches
from dp_pipelines.extensions.check.profile_stage import OnlyNotes, OnlyRows, notes_written, stage_profiled
from dp_pipelines.extensions.check.row_notes import LookAtRows, PlacesInRanges
from dp_pipelines.extensions.check.unit_notes import CountExamples, CountUnitColumns, by_unit
from dp_pipelines.jobs.request.joined_tables import TableRows
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run import build, pipelines, shuffled_rows, tables_read
from dp_pipelines.jobs.run.tables_read import CountFiles
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.sources.read_source import rows_of
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.metrics.sums import Sum
from dp_pipelines.noise import entropy
from dp_pipelines.planning.selection_chances import selects_of
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import Query
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.read_files import Shuffled


def run_check(
    request: Request,
    stages: Mapping[str, StagePlan],
    path: pathlib.Path,
    engine: Engine,
    progress: Progress,
    late: Source | None = None,
) -> None:
    """Run the graph.

    Args:
        request: what to read.
        stages: the planned aggregate stages, by name.
        path: of the file of notes, in a private folder.
        engine: what runs it.
        progress: is told each step.
        late: those of its files that came after the release of the window; their rows are counted once more by themselves.

    Raises:
        DamagedInputError, RunFailed: it failed.
    """
    names = list(request.file.job.stages)
    pipeline = engine.pipeline(progress, len(request.source.files), names)
    sizes = [shuffled_rows.of_unbounded(request, stage) for stage in stages.values()]
    sizes += [shuffled_rows.of_examples(request, name) for name in request.tasks]
    shuffled = Shuffled(widest=max(each.widest for each in sizes), together=sum(each.together for each in sizes))
    shards = build.num_shards(request, engine.given, shuffled)
    _Graph(request, shards, shuffled).build(engine.start(pipeline), stages, path, late)
    pipelines.wait(engine, pipeline, request, names, progress, path.parent)
    if not path.is_file():
        raise pipelines.RunFailed("what was counted was not written; no output remains")


class _Graph:
    """The graph, with the notes of all of its parts."""

    def __init__(self, request: Request, num_shards: int, shuffled: Shuffled) -> None:
        self._request, self._shards, self._shuffled = request, num_shards, shuffled
        self._salt = entropy.salt_number()
        self._notes: list[Flow] = []

    def build(self, start: Flow, stages: Mapping[str, StagePlan], path: pathlib.Path, late: Source | None) -> None:
        """Make the graph."""
        request = self._request
        rows = self._rows(start)
        if late is not None:
            read = functools.partial(rows_of, source=late, columns=request.columns, shuffled=self._shuffled)
            looked = start.inside("Read late files", read).each("LookAtLateRows", self._look(late_rows.NAME))
            self._notes.append(looked.each("Late rows: notes", OnlyNotes()))
        for name, query in request.queries.items():
            seen = rows
            if name in request.units:
                counted = CountUnitColumns(name, request.units[name], query.unit_columns, self._salt)
                seen = self._only_rows(f"Units of {name}", self._by_unit(rows, name).each(f"Units of {name}", counted))
            if query.scales:
                seen = seen.each(f"Clamps of {name}", PlacesInRanges(query.scales))
            of = profiled(stages[name], query, self._shards, self._salt)
            self._notes.append(seen.inside(f"Profile {name}", functools.partial(stage_profiled, of=of)))
        for name, task in request.tasks.items():
            found = self._by_unit(rows, name).each(f"Count {name}", CountExamples(name, task, self._salt))
            self._notes.append(found.each(f"Notes of {name}", OnlyNotes()))
        first, *others = self._notes
        first.inside("Write", lambda *parts: notes_written(parts, str(path)), *others)

    def _by_unit(self, rows: Flow, name: str) -> Flow:
        """The rows of whole units, for a stage that looks at them."""
        request = self._request
        unit = request.tasks[name].unit if name in request.tasks else request.units[name]
        names = tuple(request.file.job.unit)
        wiring = functools.partial(by_unit, unit=unit, names=names, num_shards=self._shards, salt=self._salt)
        return rows.inside(f"Rows for {name}", wiring)

    def _rows(self, start: Flow) -> Flow:
        """The rows that stages read."""
        request = self._request
        if request.tables is None:
            read = functools.partial(
                rows_of, source=request.source, columns=request.columns, shuffled=self._shuffled
            )  # fmt: skip
            raw = start.inside("Read", read).each("CountFiles", CountFiles())
        else:
            wiring = functools.partial(
                tables_read.as_one, tables=request.tables, num_shards=self._shards, salt=self._salt,
                shape=self._table, pairing=CountMatches,
            )  # fmt: skip
            raw = start.inside("Read", wiring)
            if request.tables.join is not None:
                raw = self._only_rows("Joined", raw)
        return self._only_rows("Rows", raw.each("LookAtRows", self._look("")))

    def _look(self, name: str) -> LookAtRows:
        """Return what shapes and counts the rows that stages read, under a name."""
        request = self._request
        of_stages = [request.units.get(stage, query).columns for stage, query in request.queries.items()]
        of_stages += [task.columns for task in request.tasks.values()]
        return LookAtRows(
            name,
            window=request.window,
            rows=request.rows,
            lookup=request.lookup,
            columns=tuple(dict.fromkeys(column for columns in of_stages for column in columns)),
            read=[column for column in request.columns if column != TWIN],
            unit=request.file.job.unit,
        )

    def _table(self, read: Flow, part: TableRows) -> Flow:
        """The rows of one of several tables, shaped."""
        look = LookAtRows(
            part.name, window=None, rows=part.rows, lookup=part.lookup, columns=part.reads, read=part.columns,
            unit=part.unit, on=on_of(self._request, part),
        )  # fmt: skip
        return self._only_rows("Rows", read.each("LookAtRows", look))

    def _only_rows(self, label: str, mixed: Flow) -> Flow:
        """The rows; the notes beside them are kept."""
        self._notes.append(mixed.each(f"{label}: notes", OnlyNotes()))
        return mixed.each(f"{label}: rows", OnlyRows())


def on_of(request: Request, part: TableRows) -> tuple[str, ...]:
    """The columns of a table without which its rows are dropped before they meet others.

    Args:
        request: with several tables.
        part: one of them.
    """
    assert request.tables is not None
    united = request.tables.united
    if united is None:
        return ()
    side = united.left if part.name == request.tables.parts[0].name else united.right
    return side.on if side.needs_match else ()


def profiled(stage: StagePlan, query: Query, num_shards: int, salt: int) -> ProfiledStage:
    """What is counted of a stage.

    Args:
        stage: as it is planned.
        query: as it is asked for.
        num_shards, salt: as for `ProfiledStage`.
    """
    by = stage.query.partition_columns
    levels = [
        ProfiledLevel(
            places=tuple(by.index(column) for column in level.query.partition_columns),
            listed=level.layout.listed,
            selects=selects_of(level),
        )
        for level in stage.levels
    ]
    return ProfiledStage(
        name=stage.name,
        layout=stage.layout,
        bounds_rows=query.bounds.bounds_rows,
        clips=tuple(clips(query)),
        levels=tuple(levels),
        num_shards=num_shards,
        salt=salt,
    )


def clips(query: Query) -> list[ProfiledClip]:
    """The clamps of a query's metrics: ranges of values, or of a unit's sums in a partition.

    Where a run chooses a bound, the range is that in which it is chosen; of a range that
    differs by partition, values are their places in it.
    """
    found = []
    named = {**query.metrics, **({} if query.best is None else {"best": query.best.metric})}
    for name, metric in named.items():
        column = metric.column
        if column is None:
            continue
        adds_up = metric.kept_by in ("sum", "mean")
        if metric.clips_partition_sums:
            if isinstance(metric, Sum):  # else they are vectors, of which a norm is clipped
                low, high = metric.given("min_sum_per_partition"), metric.given("max_sum_per_partition")
                found.append(ProfiledClip(metric=name, column=column, low=low, high=high, of_sums=True))
        elif metric.scale is not None:
            column = metric.scale.name
            found.append(ProfiledClip(metric=name, column=column, low=0.0, high=1.0, by_partition=True))
        elif metric.family is not None:
            column, low, high = metric.family
            found.append(ProfiledClip(metric=name, column=column, low=low, high=high, adds_up=adds_up))
        elif metric.value_range is not None and hasattr(metric, "min_value"):
            low, high = metric.value_range
            found.append(ProfiledClip(metric=name, column=column, low=low, high=high, adds_up=adds_up))
    return found
