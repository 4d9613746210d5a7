"""From a request and its plan to a graph of steps: read once, shape the rows, release each stage, stage its file.

In: a checked request, frozen stages, a staging folder, where an engine's sources begin. Out: the graph, for every engine alike.
Holds: the rows are read once for all stages; labels are names from the job file and ours. Not covered: running and publishing
(`run`).
"""

import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run import shuffled_rows, tables_read
from dp_pipelines.jobs.run.row_facts import FactsOfRows
from dp_pipelines.jobs.run.tables_read import CountFiles, ShapeRows
from dp_pipelines.jobs.sources.read_source import rows_of
from dp_pipelines.kernels import sizes
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.noise import entropy
from dp_pipelines.plan_stages import kept_counts, partition_groups
from dp_pipelines.plan_stages.reads import Groups, UnitFacts, UnitPartitionCounts
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import Query
from dp_pipelines.steps import party_tables
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.read_files import Shuffled
from dp_pipelines.steps.release_stage import released
from dp_pipelines.steps.stage_rows import ScaleValues, WithoutPartitions
from dp_pipelines.steps.step import Step
from dp_pipelines.steps.unit_rows import layout_of, partitions_of_units, units_released, units_to_shards
from dp_pipelines.steps.whole_units import with_unit_columns
from dp_pipelines.steps.write_examples import examples_written
from dp_pipelines.steps.write_stage import WriteStage, written


class InGroups(Step):
    """Put rows into the groups of partitions in which a histogram of values is released.

    Args:
        layout: of the keys of the stage whose bounds are chosen.
        columns: what the stage of the histogram reads beside the group.
        salt: settles the groups.
    """

    def __init__(self, layout: Layout, columns: tuple[str, ...], salt: int) -> None:
        self._layout, self._columns, self._salt = layout, columns, salt

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same rows with their group."""
        yield partition_groups.of(element, self._layout, self._columns, self._salt)


Writer = Callable[[pathlib.Path, tuple[str, ...]], Step]
"""What writes the staged file of a stage, sorted by these columns."""


def num_shards(request: Request, given: Mapping[str, Any], shuffled: Shuffled) -> int:
    """The number of shards for a request; it changes no result and is seen in none.

    Args:
        request: whose source has rows, as private as they are.
        given: the engine's options: `num_shards` where it was given; else `parallelism` counts.
        shuffled: what becomes of a row.
    """
    slots = max(int(given.get("parallelism") or 1), 1)
    widest = max(shuffled.widest, request.tables.widest if request.tables is not None else 0)
    return int(given.get("num_shards") or sizes.shards(request.source.rows * widest, slots))


def build(
    start: Flow,
    request: Request,
    stages: Mapping[str, StagePlan],
    staging: pathlib.Path,
    without: Mapping[str, pa.Table],
    shards: int,
    writer: Writer | None = None,
    salt: int | None = None,
) -> dict[str, pathlib.Path]:
    """Make the graph of all steps of a job.

    Args:
        start: where the engine's sources begin.
        request: what to read.
        stages: the frozen stages of this run, by name.
        staging: the private folder.
        without: partitions whose rows a stage does not see, by its name.
        shards: the number of groups of units.
        writer: writes the files; by default into the folder.
        salt: settles which rows and partitions of a unit stay; left out, a fresh one.

    Returns:
        the staged file of each published name; they are there once the graph has run.
    """
    read = [request.units.get(name, query).columns for name, query in request.queries.items()]
    salt = entropy.salt_number() if salt is None else salt
    raw = _counted(start, request, shuffled_rows.of_stages(request, stages), shards, salt)
    rows = _shaped(raw, request, tuple(dict.fromkeys(name for columns in read for name in columns)))
    files = {}
    for name, stage in stages.items():
        path = staging / f"{name}.parquet"
        keys = stage.query.sorted_by if stage.query.parties is None else (party_tables.PLACE,)
        seen = _over_units(rows, request, stage, shards, salt)
        if name in without and without[name].num_rows:
            seen = seen.each(f"Without what {name} has", WithoutPartitions(without[name]))
        release = None
        match stage.reads:
            case UnitFacts(of=asked):
                query = _as_it_runs(request.queries[asked], stages.get(asked))
                facts = FactsOfRows(query, request.window, request.rows, request.lookup, salt)
                together = functools.partial(units_to_shards, query=query, num_shards=shards, salt=salt)
                seen = raw.each(f"Facts for {name}", facts).inside(f"Units for {name}", together, seen)
                release = functools.partial(units_released, query=query, stage=stage, num_shards=shards, salt=salt)
            case UnitPartitionCounts(of=asked):
                counts = functools.partial(
                    partitions_of_units, query=request.queries[asked], num_shards=shards, salt=salt
                )
                seen = seen.inside(f"Partitions for {name}", counts)
            case Groups(of=asked):
                by = stage.query.partition_columns
                others = tuple(column for column in stage.query.columns if column not in by)
                seen = seen.each(f"Groups for {name}", InGroups(layout_of(request.queries[asked]), others, salt))
        scales = stage.query.scales
        clamping = [column for scale in scales for column in scale.lookups]
        joined = request.lookup.of(clamping) if request.lookup is not None else None
        join = joined.apply if joined is not None else None
        if scales:
            seen = seen.each(f"Clamps of {name}", ScaleValues(scales))
        release = release or functools.partial(released, stage=stage, num_shards=shards, salt=salt, join=join)
        write = WriteStage(str(path), keys) if writer is None else writer(path, keys)
        staged = functools.partial(written, writer=write)
        seen.inside(f"Release {name}", release, shown=stage).inside(f"Stage {name}", staged)
        files[path.name] = path
    return files


def build_examples(
    start: Flow, request: Request, name: str, folder: pathlib.Path, salt: int, shards: int, key: bytes | None = None
) -> None:
    """Make the graph that writes the examples of a train stage.

    Args:
        start: where the engine's sources begin.
        request: what to read.
        name: of the stage.
        folder: a private one, for the examples alone.
        salt: settles which rows and examples of a unit stay.
        shards: the number of groups of units.
        key: divides the units, as `training.fit` takes it; see `BoundedExamples`.
    """
    task = request.tasks[name]
    wiring = functools.partial(
        examples_written,
        task=task.model,
        folder=str(folder),
        max_rows_per_unit=task.unit.max_rows_per_unit,
        reads=task.columns,
        unit_columns=task.unit.expressions,
        num_shards=shards,
        salt=salt,
        key=key,
    )
    rows = _counted(start, request, shuffled_rows.of_examples(request, name), shards, salt)
    _shaped(rows, request, task.columns).inside(f"Examples of {name}", wiring)


def rows_of_stage(start: Flow, request: Request, stage: StagePlan, shards: int, salt: int) -> Flow:
    """Return the rows as a stage sees them, before any of its bounds, with all columns that its metrics read.

    Args:
        start: where the engine's sources begin.
        request: what to read.
        stage: its units, partitions and columns count.
        shards: the number of groups of units.
        salt: evens the load, and orders sums of floats.
    """
    query = request.queries[stage.name]
    read = request.units[stage.name].columns if stage.name in request.units else query.columns
    rows = _counted(start, request, shuffled_rows.of_unbounded(request, stage), shards, salt)
    return _over_units(_shaped(rows, request, tuple(read)), request, stage, shards, salt)


def _over_units(rows: Flow, request: Request, stage: StagePlan, shards: int, salt: int) -> Flow:
    """The rows as a stage sees them: with its unit columns, where it has some. A part of a stage sees what the stage sees."""
    asked = stage.reads.of
    if asked not in request.units:
        return rows
    unit = request.units[asked]
    wiring = functools.partial(
        with_unit_columns,
        unit=request.queries[asked].unit_columns,
        reads=unit.columns,
        unit_columns=unit.expressions,
        max_rows_per_unit=unit.max_rows_per_unit,
        num_shards=shards,
        salt=salt,
    )
    return rows.inside(f"Units of {stage.name}", wiring)


def _as_it_runs(query: Query, stage: StagePlan | None) -> Query:
    """A query with the bounds that were chosen for its stage; its partitions are those that were asked for."""
    if stage is None:
        return query
    return kept_counts.as_it_runs(query, stage.query.bounds, stage.query.metrics)


def _counted(start: Flow, request: Request, shuffled: Shuffled, shards: int, salt: int) -> Flow:
    """The rows as they are read; of several tables, as these become one."""
    if request.tables is not None:
        as_one = functools.partial(tables_read.as_one, tables=request.tables, num_shards=shards, salt=salt)
        return start.inside("Read", as_one)
    read = functools.partial(rows_of, source=request.source, columns=request.columns, shuffled=shuffled)
    return start.inside("Read", read).each("CountFiles", CountFiles())


def _shaped(rows: Flow, request: Request, columns: tuple[str, ...]) -> Flow:
    """The rows that are kept, with the columns that are read."""
    shaped = request.rows.where is not None or request.rows.defined or request.lookup is not None
    if shaped or request.window is not None:
        rows = rows.each("ShapeRows", ShapeRows(request.window, request.rows, request.lookup, columns))
    return rows
