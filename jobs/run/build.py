"""From a request and its plan to a Beam pipeline: read once, shape the rows, release each stage, stage its file.

In: a checked request, frozen stages, a staging folder. Out: steps in a pipeline. Holds: the rows are read once for all stages;
every PCollection of tables keeps the Arrow coder; labels are names from the job file and ours. Not covered: running and
publishing (`run`).
"""

import glob
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run.row_facts import FactsOfRows
from dp_pipelines.jobs.sources.event_window import RowWindow
from dp_pipelines.jobs.sources.lookup import Lookup
from dp_pipelines.jobs.sources.read_table import ReadTable
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.jobs.terminal.progress import file_opened
from dp_pipelines.kernels import sizes
from dp_pipelines.noise import entropy
from dp_pipelines.plan_stages import kept_counts, partition_groups
from dp_pipelines.plan_stages.reads import Groups, UnitFacts, UnitPartitionCounts
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import Query
from dp_pipelines.transforms import ReadCsv, ReadParquet, StageRelease
from dp_pipelines.transforms.examples import BoundedExamples
from dp_pipelines.transforms.per_unit import PartitionsOfUnits, UnitsOfARun, UnitsToShards
from dp_pipelines.transforms.private_aggregate import AttemptOfARun
from dp_pipelines.transforms.stage_rows import ScaleValues, WithoutPartitions
from dp_pipelines.transforms.whole_units import WithUnitColumns

if TYPE_CHECKING:
    from dp_pipelines.tuning.configuration import Configuration


class ShapeRows(beam.DoFn):
    """Filter, define and look up, row by row.

    Args:
        window: of event time, or None.
        rows: `where` and `columns`.
        lookup: the joined table, or None.
        columns: what the stages read.
    """

    def __init__(
        self, window: RowWindow | None, rows: RowExpressions, lookup: Lookup | None, columns: tuple[str, ...]
    ) -> None:
        super().__init__()
        self._window = window
        self._rows, self._lookup, self._columns = rows, lookup, columns

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The rows of one table that are kept, with the columns that the stages read: several tables where texts are long."""
        for table in self._rows.tables(element if self._window is None else self._window.apply(element)):
            found = table if self._lookup is None else self._lookup.apply(table)
            yield found.select(list(self._columns))


class InGroups(beam.DoFn):
    """Put rows into the groups of partitions in which a histogram of values is released.

    Args:
        partition_by: the partition columns of the stage whose bounds are chosen.
        columns: what the stage of the histogram reads beside the group.
        salt: settles the groups.
    """

    def __init__(self, partition_by: tuple[str, ...], columns: tuple[str, ...], salt: int) -> None:
        super().__init__()
        self._partition_by, self._columns, self._salt = partition_by, columns, salt

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same rows with their group."""
        yield partition_groups.of(element, self._partition_by, self._columns, self._salt)


class CountFiles(beam.DoFn):
    """Tell progress of each file: the readers give one table without rows for each, so that types are known."""

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same table."""
        if element.num_rows == 0:
            file_opened()
        yield element


def num_shards(request: Request, options: PipelineOptions) -> int:
    """The number of shards for a request; it changes no result and is seen in none.

    Args:
        request: whose files have a size.
        options: `--num_shards` where it was given; else `--parallelism` counts.
    """
    given = options.get_all_options()
    slots = max(int(given.get("parallelism") or 1), 1)
    return int(given.get("num_shards") or sizes.shards(request.source.bytes_of(request.columns), slots))


def build(
    pipeline: beam.Pipeline,
    request: Request,
    stages: Mapping[str, StagePlan],
    staging: pathlib.Path,
    without: Mapping[str, pa.Table],
) -> dict[str, pathlib.Path]:
    """Add all steps of a job to a pipeline.

    Args:
        pipeline: gets the steps.
        request: what to read.
        stages: the frozen stages of this run, by name.
        staging: the private folder.
        without: partitions whose rows a stage does not see, by its name.

    Returns:
        the staged file of each published name; they are there once the pipeline has run.
    """
    read = [request.units.get(name, query).columns for name, query in request.queries.items()]
    raw = _counted(pipeline, request)
    rows = _shaped(raw, request, tuple(dict.fromkeys(name for columns in read for name in columns)))
    shards, salt = num_shards(request, pipeline.options), int(entropy.words(1)[0])
    files = {}
    for name in stages:
        path = staging / f"{name}.parquet"
        keys = stages[name].query.partition_columns
        seen = _over_units(rows, request, stages[name], shards, salt)
        if name in without and without[name].num_rows:
            left = beam.ParDo(WithoutPartitions(without[name])).with_output_types(pa.Table)
            seen = seen | f"Without what {name} has" >> left
        release: AttemptOfARun | None = None
        match stages[name].reads:
            case UnitFacts(of=asked):
                query = _as_it_runs(request.queries[asked], stages.get(asked))
                facts = beam.ParDo(FactsOfRows(query, request.window, request.rows, request.lookup, salt))
                first = raw | f"Facts for {name}" >> facts.with_output_types(pa.Table)
                seen = (first, seen) | f"Units for {name}" >> UnitsToShards(query, shards, salt)
                release = UnitsOfARun(stages[name], num_shards=shards, salt=salt, query=query)
            case UnitPartitionCounts(of=asked):
                counts = PartitionsOfUnits(request.queries[asked], shards, salt)
                seen = seen | f"Partitions for {name}" >> counts
            case Groups(of=asked):
                others = tuple(column for column in stages[name].query.columns if column not in keys)
                grouped = InGroups(request.queries[asked].partition_columns, others, salt)
                seen = seen | f"Groups for {name}" >> beam.ParDo(grouped).with_output_types(pa.Table)
        scales = stages[name].query.scales
        join = request.lookup.apply if scales and request.lookup is not None else None
        if scales:
            seen = seen | f"Clamps of {name}" >> beam.ParDo(ScaleValues(scales)).with_output_types(pa.Table)
        (
            seen
            | f"Release {name}" >> (release or AttemptOfARun(stages[name], num_shards=shards, salt=salt, join=join))
            | f"Stage {name}" >> StageRelease(str(path), keys)
        )
        files[path.name] = path
    return files


def build_examples(
    pipeline: beam.Pipeline, request: Request, name: str, folder: pathlib.Path, salt: int, key: bytes | None = None
) -> None:
    """Add the steps that write the examples of a train stage to a pipeline.

    Args:
        pipeline: gets the steps.
        request: what to read.
        name: of the stage.
        folder: a private one, for the examples alone.
        salt: settles which rows and examples of a unit stay.
        key: divides the units, as `training.fit` takes it; see `BoundedExamples`.
    """
    task = request.tasks[name]
    (
        _shaped(_counted(pipeline, request), request, task.columns)
        | f"Examples of {name}"
        >> BoundedExamples(
            task.model,
            folder=str(folder),
            max_rows_per_unit=task.unit.max_rows_per_unit,
            reads=task.columns,
            unit_columns=task.unit.expressions,
            num_shards=num_shards(request, pipeline.options),
            salt=salt,
            key=key,
        )
    )


def build_tuning(
    pipeline: beam.Pipeline,
    request: Request,
    stage: StagePlan,
    configurations: "Sequence[Configuration]",
    path: str,
    salt: int | None = None,
) -> None:
    """Add the steps that predict the errors of all configurations of a stage. What they write is NOT private.

    Args:
        pipeline: gets the steps.
        request: what to read.
        stage: the stage, with any of the configurations: its units, partitions and columns count.
        configurations: all of them.
        path: of the file with the sums, in a private folder.
        salt: evens the load, and orders sums of floats; left out, a fresh one.
    """
    from dp_pipelines.transforms.tune import TallyErrors
    from dp_pipelines.tuning import configuration

    shards = num_shards(request, pipeline.options)
    salt = int(entropy.words(1)[0]) if salt is None else salt
    query = request.queries[stage.name]
    read = request.units[stage.name].columns if stage.name in request.units else query.columns
    seen = _over_units(_shaped(_counted(pipeline, request), request, tuple(read)), request, stage, shards, salt)
    seen | f"Tune {stage.name}" >> TallyErrors(
        stage.layout, configuration.columns(query), configurations, path, num_shards=shards, salt=salt
    )


def _over_units(
    rows: "beam.PCollection[pa.Table]", request: Request, stage: StagePlan, shards: int, salt: int
) -> "beam.PCollection[pa.Table]":
    """The rows as a stage sees them: with its unit columns, where it has some. A part of a stage sees what the stage sees."""
    asked = stage.reads.of
    if asked not in request.units:
        return rows
    unit = request.units[asked]
    return rows | f"Units of {stage.name}" >> WithUnitColumns(
        request.queries[asked].unit_columns,
        unit.columns,
        unit.expressions,
        max_rows_per_unit=unit.max_rows_per_unit,
        num_shards=shards,
        salt=salt,
    )


def _as_it_runs(query: Query, stage: StagePlan | None) -> Query:
    """A query with the bounds that were chosen for its stage; its partitions are those that were asked for."""
    if stage is None:
        return query
    return kept_counts.as_it_runs(query, stage.query.bounds, stage.query.metrics)


def _counted(pipeline: beam.Pipeline, request: Request) -> "beam.PCollection[pa.Table]":
    """The rows as they are read."""
    return _read(pipeline, request) | "CountFiles" >> beam.ParDo(CountFiles()).with_output_types(pa.Table)


def _shaped(
    rows: "beam.PCollection[pa.Table]", request: Request, columns: tuple[str, ...]
) -> "beam.PCollection[pa.Table]":
    """The rows that are kept, with the columns that are read."""
    shaped = request.rows.where is not None or request.rows.defined or request.lookup is not None
    if shaped or request.window is not None:
        shape = ShapeRows(request.window, request.rows, request.lookup, columns)
        rows = rows | "ShapeRows" >> beam.ParDo(shape).with_output_types(pa.Table)
    return rows


def _read(pipeline: beam.Pipeline, request: Request) -> "beam.PCollection[pa.Table]":
    if request.source.table:
        return pipeline | "Read" >> ReadTable(request.source.table, request.columns)
    # Beam takes patterns; these are names.
    files = [glob.escape(path) for path in request.source.files]
    if request.source.types is not None:
        types = {name: request.source.types[name] for name in request.columns}
        return pipeline | "Read" >> ReadCsv(files, types, quoted=request.file.job.source.quoted)
    return pipeline | "Read" >> ReadParquet(files, list(request.columns))
