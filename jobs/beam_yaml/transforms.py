"""Transforms for Beam YAML, and for other languages over an expansion service: rows come in, released rows go out.

In: rows with a schema, and settings that are plain YAML, with the keys and metrics of job files. Out: rows of the released table.
Holds: what is wrong is told by key, message and hint when the pipeline is built, before a row is read; the statistics go the way
of every other pipeline (`PrivateAggregate`). Not covered: a ledger. What runs inside somebody's pipeline can be run again by
anybody, so that nothing is accounted across runs, and a pipeline has to say so: `ledger: none`. `dp-pipelines run` has one.

Where a lost worker is replaced, a sink of the user's may write rows twice, and of two draws: `output` publishes one, once.
"""

import contextlib
import inspect
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
from apache_beam.transforms.window import GlobalWindows

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import run
from dp_pipelines.jobs.run.tables_read import ShapeRows
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec import from_query, yaml_lines
from dp_pipelines.jobs.spec.job_file import JobFile, Stage
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import staging
from dp_pipelines.transforms.beam_flow import do_fn
from dp_pipelines.transforms.private_aggregate import PrivateAggregate
from dp_pipelines.transforms.publish import PublishRelease
from dp_pipelines.transforms.read import ReadParquet
from dp_pipelines.transforms.rows.from_rows import FromRows
from dp_pipelines.transforms.rows.schema_rows import ToSchemaRows, arrow_schema


class _RowsToRelease(beam.PTransform):
    """From rows to the rows of a release: what both transforms share.

    Args:
        stage: as in a job file.
        settings: the arguments that both transforms have.
        others: arguments that no transform has.
    """

    takes_lists_in_files: ClassVar[bool] = True
    """Whether a setting may name a file, which is read when the pipeline is built."""

    shards_left_out: ClassVar[int | None] = None
    """The number of shards where `num_shards` is left out; None: the pipeline's runner decides."""

    def __init__(self, stage: Mapping[str, Any], settings: Mapping[str, Any], others: Mapping[str, Any]) -> None:
        super().__init__()
        for key in others:
            message, hint = "unknown key", nearest(key, inspect.signature(type(self)).parameters, "known keys")
            if key == "error_handling":
                message, hint = "would hand rows on as they are", "leave it out: a cell that does not fit is null here"
            if key in ("having", "order_by", "limit"):
                message = "chooses among released rows, which `dp-pipelines run` does when its pipeline has ended"
                hint = "filter the rows that come out of this transform"
            raise RequestError(field=key, message=message, hint=hint)
        if settings["ledger"] != "none":
            message = "must be none: what runs inside a pipeline is not accounted across runs"
            hint = "write ledger: none, or use `dp-pipelines run`, which has one"
            raise RequestError(field="ledger", message=message, hint=hint)
        self._name, self._output, self._num_shards = (settings[key] for key in ("name", "output", "num_shards"))
        if self._num_shards is None:
            self._num_shards = self.shards_left_out
        checks.stage_name(self._name, "name")
        if self._output is not None:
            _refuse_place(self._output)
        content = {
            "dataset": "none",
            "privacy_unit": settings["privacy_unit"],
            "row_id": settings.get("row_id"),
            "budget": {"epsilon": settings["epsilon"], "delta": settings["delta"]},
            "source": {"parquet": "rows"},
            "where": settings["where"],
            "columns": {} if settings["columns"] is None else _read("columns", settings["columns"]),
            "stages": {
                self._name: {"kind": "aggregate", **{key: held for key, held in stage.items() if held is not None}}
            },
        }
        self._file = from_query.read(content, self._name, pathlib.Path.cwd())
        if not self.takes_lists_in_files:
            _refuse_files(self._file)
        _refuse_computed(self._file)

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Rows to tables, the release, tables to rows."""
        if not isinstance(pcoll.windowing.windowfn, GlobalWindows):
            raise RequestError(
                field="input",
                message="is in windows, and a release here is one batch",
                hint="leave WindowInto out, or write it with windowing: {type: global} before this transform; to release by "
                "time, define a column in columns: and name it in partition_by",
            )
        request = self._request(pcoll)
        plan = run.plan_of(self._file, request.stages)
        schema, _ = arrow_schema(pcoll.element_type)
        tables = pcoll | "FromRows" >> FromRows({name: schema.field(name).type for name in request.columns})
        if request.rows.where is not None or request.rows.defined:
            shape = ShapeRows(None, request.rows, None, request.queries[self._name].columns)
            tables = tables | "ShapeRows" >> beam.ParDo(do_fn(shape)).with_output_types(pa.Table)
        stage = _ready(plan, self._name)
        released = tables | "Release" >> PrivateAggregate(stage, num_shards=self._num_shards)
        if self._output is not None:  # what is published is what goes on: one draw, whatever is tried again
            folder = released | "Publish" >> PublishRelease(self._output)
            released = folder | "Published" >> beam.ParDo(_Published(self._name)).with_output_types(pa.Table)
        return released | "ToRows" >> ToSchemaRows(stage.output_schema(request.rows.output_schema))

    def _request(self, pcoll: beam.PCollection[Any]) -> Request:
        schema, others = arrow_schema(pcoll.element_type)
        missing = {
            column: RequestError(
                field=f"column {column!r}",
                message=f"has the type {kind}, which cannot be read here",
                hint="declare a plain type before, e.g. output_type in MapToFields",
            )
            for column, kind in others.items()
        }
        source = Source(files=(), schema=schema, sizes={}, types=None, missing=missing)
        return check(self._file, (), source)


class DpAggregate(_RowsToRelease):
    """Release metrics of rows by partition, with differential privacy.

    Args:
        epsilon: of this transform.
        delta: of this transform; 0 where partitions are public.
        privacy_unit: the column or columns that identify whom the guarantee protects.
        partition_by: the column or columns of the partitions.
        bounds: how much one unit may contribute, as in job files.
        metrics: what is released, by name, as in job files.
        ledger: must be none: nothing here is accounted across runs.
        partitions: as in job files; left out, chosen privately.
        row_id: a column that tells rows of one unit apart.
        where: which rows are read, in SQL over one row.
        columns: defined columns, in SQL over one row.
        top: publishes only the partitions with the largest released values, as in job files.
        best: publishes the best public partitions and no values, as in job files.
        rollup: levels of partitions whose published numbers add up, as in job files.
        name: of the stage; it names the published file.
        output: a folder that is published: the table, a report and a manifest. It must not exist.
        num_shards: into how many groups units are cut; left out, as for `PrivateAggregate`.

    Settings with keys of their own may also be text, in YAML or JSON, for languages without such values.

    >>> DpAggregate(epsilon=1.0, delta=1e-6, ledger="none", privacy_unit="customer", partition_by="region",
    ...             bounds={"max_partitions_contributed": 2, "max_contributions_per_partition": 1},
    ...             metrics={"orders": {"kind": "count"}}).label
    'DpAggregate'
    """

    def __init__(
        self,
        epsilon: Any = None,
        privacy_unit: Any = None,
        partition_by: Any = None,
        bounds: Any = None,
        metrics: Any = None,
        delta: float = 0.0,
        ledger: str = "",
        partitions: Any = None,
        row_id: str | None = None,
        where: str | None = None,
        columns: Any = None,
        top: Any = None,
        best: Any = None,
        rollup: Any = None,
        name: str = "aggregate",
        output: str | None = None,
        num_shards: int | None = None,
        **others: Any,
    ) -> None:
        _need(epsilon=epsilon, privacy_unit=privacy_unit, partition_by=partition_by, bounds=bounds)
        settings = {
            "epsilon": epsilon, "delta": delta, "ledger": ledger, "privacy_unit": privacy_unit, "row_id": row_id, "where": where,
            "columns": columns, "name": name, "output": output, "num_shards": num_shards,
        }  # fmt: skip
        stage = {
            "partition_by": partition_by,
            "bounds": _read("bounds", bounds),
            "metrics": _read("metrics", metrics),
            "partitions": _read("partitions", partitions),
            "top": _read("top", top),
            "best": _read("best", best),
            "rollup": _read("rollup", rollup),
        }
        super().__init__(stage, settings, others)


class DpSelectPartitions(_RowsToRelease):
    """Release which partitions there are, with differential privacy, and nothing else.

    Args:
        epsilon: of this transform.
        delta: of this transform.
        privacy_unit: the column or columns that identify whom the guarantee protects.
        partition_by: the column or columns of the partitions.
        max_partitions_contributed: of how many partitions a unit may be a part.
        ledger: must be none: nothing here is accounted across runs.
        strategy: as in job files.
        min_users: a partition of fewer is never released.
        where: which rows are read, in SQL over one row.
        columns: defined columns, in SQL over one row.
        name: of the stage; it names the published file.
        output: a folder that is published. It must not exist.
        num_shards: into how many groups units are cut; left out, as for `PrivateAggregate`.

    >>> DpSelectPartitions(epsilon=1.0, delta=1e-6, ledger="none", privacy_unit="customer", partition_by="region",
    ...                    max_partitions_contributed=2).label
    'DpSelectPartitions'
    """

    def __init__(
        self,
        epsilon: Any = None,
        delta: Any = None,
        privacy_unit: Any = None,
        partition_by: Any = None,
        max_partitions_contributed: Any = None,
        ledger: str = "",
        strategy: str = "auto",
        min_users: int = 0,
        where: str | None = None,
        columns: Any = None,
        name: str = "partitions",
        output: str | None = None,
        num_shards: int | None = None,
        **others: Any,
    ) -> None:
        _need(
            epsilon=epsilon, delta=delta, privacy_unit=privacy_unit, partition_by=partition_by,
            max_partitions_contributed=max_partitions_contributed,
        )  # fmt: skip
        settings = {
            "epsilon": epsilon, "delta": delta, "ledger": ledger, "privacy_unit": privacy_unit, "where": where,
            "columns": columns, "name": name, "output": output, "num_shards": num_shards,
        }  # fmt: skip
        stage = {
            "partition_by": partition_by,
            "bounds": {"max_partitions_contributed": max_partitions_contributed},
            "partitions": {"private": {"strategy": strategy, "min_users": min_users}},
        }
        super().__init__(stage, settings, others)


class DpReadParquet(beam.PTransform):
    """Read Parquet files as rows with a schema, dates and times included, which Beam's own reader has not.

    Args:
        files: a file name or pattern.
        columns: to read; left out, all whose types rows can have.
    """

    _yaml_requires_inputs = False

    def __init__(self, files: Any = None, columns: Sequence[str] | None = None) -> None:
        super().__init__()
        _need(files=files)
        if not isinstance(files, str):
            raise RequestError(
                field="files", message="must be one file name or pattern", hint="write files: data/*.parquet"
            )
        columns = None if columns is None else _listed(columns)
        self._source = source_files.look_at_parquet(source_files.find(files, pathlib.Path.cwd()))
        for column in columns or ():
            if column in self._source.missing:
                raise self._source.missing[column]
            if column not in self._source.schema.names:
                hint = nearest(column, self._source.schema.names, "columns")
                raise RequestError(field="columns", message=f"names column {column!r}, which does not exist", hint=hint)
        wanted = self._source.schema.names if columns is None else columns
        rows = ToSchemaRows(pa.schema([self._source.schema.field(column) for column in wanted]))
        left_out = [column for column in columns or () if column not in rows.names]
        if left_out:
            message = f"has type {self._source.schema.field(left_out[0]).type}, which rows cannot have"
            raise RequestError(
                field=f"column {left_out[0]!r}", message=message, hint="leave it out, or cast it in the files"
            )
        self._rows = rows

    def expand(self, pbegin: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Tables, then rows."""
        return pbegin | "Read" >> ReadParquet(list(self._source.files), list(self._rows.names)) | "ToRows" >> self._rows


class _Published(beam.DoFn):
    """The table that lies in a published folder."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def process(self, element: str) -> Iterator[pa.Table]:
        with pyarrow.parquet.ParquetFile(pathlib.Path(element) / f"{self._name}.parquet") as file:
            yield file.read()


def _need(**settings: Any) -> None:
    """Refuse what is left out by its key: Python's own words for that are none that may be shown.

    Raises:
        RequestError: one is missing.
    """
    for key, value in settings.items():
        if value is None:
            raise RequestError(field=key, message="is missing", hint="add it")


def _refuse_files(file: JobFile) -> None:
    """Refuse partitions that are not written out, before a list is opened; a key that is unknown here is refused too.

    Raises:
        RequestError: a setting names a file.
    """
    for stage in file.job.stages.values():
        for key in sorted(
            stage.partitions.model_fields_set - {"private", "public"} if isinstance(stage, Stage) else ()
        ):
            message = "is not taken from another program: a file would be read as the user of the expansion service"
            raise RequestError(field=f"partitions.{key}", message=message, hint="list the keys under public")


def _refuse_computed(file: JobFile) -> None:
    """Refuse what is computed from a published table, which a pipeline has none of.

    Raises:
        RequestError: a stage computes something.
    """
    for stage in file.job.stages.values():
        for name in stage.derived if isinstance(stage, Stage) else ():
            message, hint = (
                "is computed from a published table, and not in a pipeline",
                "compute it with what comes out",
            )
            raise RequestError(field=f"metrics.{name}", message=message, hint=hint)


def _refuse_place(output: Any) -> None:
    """Refuse what no folder can be, before a row is read.

    Raises:
        RequestError: it is no text, or no folder can be made there.
    """
    if not isinstance(output, str):
        raise RequestError(field="output", message="must be the name of a folder", hint="write e.g. output: out/weekly")
    target = staging.local_path(output)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.lstat(target)  # a file may stand on the way, or a name may be too long
        reached = next(parent for parent in target.parents if parent.exists())
        possible = os.access(reached, os.W_OK)
    except (OSError, ValueError):
        possible = False
    if not possible:
        raise RequestError(field="output", message="cannot be created", hint="choose a folder that can be written")


def _listed(columns: Any) -> tuple[str, ...]:
    """The columns to read.

    Raises:
        RequestError: they are no names, or one stands twice.
    """
    named = (columns,) if isinstance(columns, str) else columns
    texts = isinstance(named, Sequence) and all(isinstance(name, str) for name in named)
    if not texts or not named or len(set(named)) < len(named):
        message, hint = "must be a list of different column names", "write e.g. columns: [customer, paid]"
        raise RequestError(field="columns", message=message, hint=hint)
    return tuple(named)


def _ready(plan: Plan, name: str) -> StagePlan:
    """The one stage of a plan, if one pipeline can release it.

    Raises:
        RequestError: it takes several pipelines, of which each follows from the one before.
    """
    if plan.kept:
        message = "says what its bounds cut off, which takes a release of its own"
        raise RequestError(field="kept", message=message, hint="leave it out here, or run it with `dp-pipelines run`")
    if plan.compared:
        message = "compares arms, which takes a release of its own"
        raise RequestError(
            field="compare", message=message, hint="leave it out here, or run it with `dp-pipelines run`"
        )
    if len(plan.phases) > 1 or {*plan.stages} != {name, *plan.rolled.get(name, ())}:
        message = "needs several pipelines, one after the other (sips, or bounds that are chosen)"
        raise RequestError(
            field=f"stage {name!r}", message=message, hint="run it with `dp-pipelines run`, or write numbers"
        )
    return plan[name]


def _read(key: str, value: Any) -> Any:
    """A setting with keys of its own, which may be text.

    Raises:
        RequestError: the text is neither YAML nor JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return yaml_lines.parse(value, key).data
    except RequestError as error:
        raise RequestError(field=key, message=error.message, hint=error.hint) from None
