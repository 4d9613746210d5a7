"""From a job file to the library's queries.

In: a checked job file and, once the files are known, the schema of its rows. Out: one `Query` for each stage. Holds: all that
is wrong is told at once, with `file:line`; the values of a public list have the types of their columns. Not covered: what the
queries cost (`dp_pipelines.planning`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import key_lists, public_tables
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.content import Path
from dp_pipelines.jobs.spec.job_file import JobFile, Stage
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.public_keys import MOST_PUBLIC, ProductModel
from dp_pipelines.jobs.spec.validation_errors import raise_all
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import column_types as kinds
from dp_pipelines.kernels.columns.listed_keys import ListedKeys
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.metrics.base import RAW, Metric
from dp_pipelines.plan_stages.kept_counts import LOOKUP, WHERE
from dp_pipelines.query.best import Best
from dp_pipelines.query.contribution_bounds import ContributionBounds
from dp_pipelines.query.kept import BESIDE_AUTO, Kept
from dp_pipelines.query.large_list import Condition, LargeList
from dp_pipelines.query.query import PrivatePartitions, PublicPartitions, Query
from dp_pipelines.query.row_unit import ONE_ROW, is_row_unit
from dp_pipelines.report.key_text import visible


def queries(
    file: JobFile,
    schemas: Mapping[str, pa.Schema] | None = None,
    values: Mapping[str, Value] = MappingProxyType({}),
) -> dict[str, Query]:
    """The query of each aggregate stage.

    Args:
        file: the job.
        schemas: for each stage of the rows as it sees them; None where no file is known yet.
        values: of the parameters, which a condition over a list sorted on disk may name.

    Raises:
        RequestError: all that is wrong.
    """
    result: dict[str, Query] = {}
    problems: list[RequestError] = []
    for name, stage in file.job.stages.items():
        if not isinstance(stage, Stage):
            continue
        place = ("stages", name)
        try:
            checks.stage_name(name, "")
            checks.number(stage.share, "share", above=0, below=1e6)
            own = {**file.job.arguments(), **stage.arguments(), **_compared(stage)}
            if "partitions" in stage.model_fields_set or stage.partition_by:
                own["partitions"] = _partitions(file, stage, (schemas or {}).get(name), values)
            else:  # a total has none
                del own["partitions"]
            own["bounds"] = _bounds(own["bounds"], file, stage)
            own["kept"] = own["kept"] or _kept_beside(own["bounds"], own["metrics"], stage)
            query = _counting_filters(Query(**own), file, stage)
        except RequestError as error:
            problems.append(file.error(_place_of(error.field, place), error))
            continue
        if file.job.budget.delta == 0 and isinstance(query.partitions, PrivatePartitions):
            message, hint = "must be above 0 to select partitions privately", "write e.g. delta: 1.0e-6"
            wrong_delta = RequestError(field="delta", message=message, hint=f"{hint}, or list public partitions")
            problems.append(file.error(("budget",), wrong_delta))
        if schemas is not None:
            schema = schemas[name]
            wrong = _wrong_columns(query, schema, place)
            problems += [file.error(path, error) for path, error in wrong]
            in_memory = isinstance(query.partitions, PublicPartitions) and not isinstance(query.partitions, LargeList)
            if not wrong and in_memory and not query.is_total:
                try:
                    query = _typed(query, schema)
                except RequestError as error:
                    where = "public_file" if stage.partitions.public_file is not None else "public"
                    problems.append(file.error((*place, "partitions", where), error))
                    continue
        result[name] = _telling_twins_apart(query, file)
    # A wrong unit is wrong in every stage; say it once.
    raise_all(list({str(problem): problem for problem in problems}.values()))
    return result


def _place_of(field: str, stage: tuple[str, ...]) -> tuple[str, ...]:
    """Where in the job file a field of a query stands."""
    if field in ("privacy_unit", "row_id", "parties"):
        return ()
    if field in ("public", "other") or field.startswith(("public[", "public.")):
        return (*stage, "partitions")
    if field == "strategy":
        return (*stage, "partitions", "private")
    return (*stage, "bounds") if field.startswith(("max_", "partition_candidates", "row_candidates")) else stage


def _bounds(bounds: ContributionBounds, file: JobFile, stage: Stage) -> ContributionBounds:
    """The bounds of a stage, which nobody needs to choose where each row is a unit.

    Raises:
        RequestError: they allow a row more than its one group and its one row there.
    """
    if not is_row_unit(file.job.unit):
        return bounds
    said = (bounds.max_partitions_contributed, bounds.max_contributions_per_partition, bounds.max_contributions)
    if not bounds.auto and any(bound not in (None, 1) for bound in said):
        message = "allow more than one row of a privacy unit, and each row is one (privacy_unit: {row: true})"
        raise RequestError(field="bounds", message=message, hint="leave bounds out")
    return ONE_ROW if bounds.auto or stage.partition_by else bounds


def _kept_beside(bounds: ContributionBounds, metrics: Mapping[str, Metric], stage: Stage) -> Kept | None:
    """What a stage releases of what its bounds cut off if it says nothing of it; None unless the run chooses that on rows."""
    combines = not stage.unit_columns and stage.where is None and stage.compare is None and stage.best is None
    measured = bool(metrics) and all(metric.scale is None for metric in metrics.values())
    return BESIDE_AUTO if bounds.auto_rows and combines and measured else None


def _counting_filters(query: Query, file: JobFile, stage: Stage) -> Query:
    """The query that, where it tells what bounds cut off, also counts what `where` and the lookup leave."""
    if query.kept is None:
        return query
    if stage.unit_columns or stage.where is not None:
        message = (
            "cannot be combined with unit_columns or a where of the stage: rows would be dropped that it does not see"
        )
        raise RequestError(field="kept", message=message, hint="drop it here, or use the where of the job")
    present = {WHERE: file.job.where, LOOKUP: file.job.lookup}
    filters = tuple(name for name, declared in present.items() if declared is not None)
    return dataclasses.replace(query, kept=dataclasses.replace(query.kept, filters=filters))


def _telling_twins_apart(query: Query, file: JobFile) -> Query:
    """The query whose choice of rows follows all that they were made of, where one row may become several."""
    explodes = file.job.join is not None or any(table.max_rows_per_key > 1 for table in file.job.lookups)
    return dataclasses.replace(query, row_id=TWIN) if explodes else query


def _compared(stage: Stage) -> dict[str, Any]:
    """The arguments of a query that chooses the best partitions: its one metric is compared and not published."""
    if stage.best is None:
        return {}
    if list(stage.metrics) != [stage.best.by]:
        message = "must name the only metric of its stage, which is compared but not published"
        raise RequestError(field="best.by", message=message, hint="put other metrics in a separate stage")
    return {"best": Best(by=stage.metrics[stage.best.by].build(), **stage.best.arguments()), "metrics": {}}


def _partitions(
    file: JobFile, stage: Stage, schema: pa.Schema | None, values: Mapping[str, Value]
) -> PrivatePartitions | PublicPartitions:
    declared = stage.partitions
    if declared.public_sorted_file is not None:
        return _large_list(file, stage, declared.public_sorted_file, schema, values)
    if declared.private is not None:
        return declared.private.build()
    if isinstance(declared.public, ProductModel):
        return PublicPartitions(keys=declared.public.keys(stage.partition_by), other=declared.other)
    if declared.public is not None:
        return PublicPartitions(keys=declared.public, other=declared.other)
    if declared.public_file is not None:
        return PublicPartitions(keys=_listed(file, declared.public_file, stage.partition_by), other=declared.other)
    return PrivatePartitions()


def _large_list(
    file: JobFile, stage: Stage, name: str, schema: pa.Schema | None, values: Mapping[str, Value]
) -> LargeList:
    """The partitions of a list that is sorted on disk, and what of them is published."""
    from dp_pipelines.jobs.sql import comparisons  # loads DuckDB

    conditions: tuple[Condition, ...] = ()
    if stage.having is not None:
        declared = [*job_parameters.undeclared(stage.having, values)]
        if any(parameter in file.job.params for parameter in declared):
            message = f"needs the value of parameter {declared[0]!r}"
            raise RequestError(field="having", message=message, hint="give the parameters with --param")
        try:
            # Beside levels a metric has its number as noise left it too, which is the one that may be compared.
            raw = [f"{metric}{RAW}" for metric in stage.metrics] if stage.rollup is not None else []
            conditions = comparisons.read(stage.having, [*stage.metrics, *raw], stage.partition_by, values)
        except RequestError as error:
            raise RequestError(field="having", message=error.message, hint=error.hint) from None
    known = schema is not None and set(stage.partition_by) <= set(schema.names)
    kinds_of = [schema.field(column).type for column in stage.partition_by] if known and schema is not None else None
    for column, kind in zip(stage.partition_by, kinds_of or [], strict=False):
        keys.check_key_type(kind, column, partition=True)
    # Before a list is sorted, which may take minutes, all else that can be wrong with it is known.
    listed = key_lists.sorted_list(file.path.parent / name, name, stage.partition_by, kinds_of)
    return LargeList(keys=listed, conditions=conditions)


def _listed(file: JobFile, name: str, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
    """The partitions in a public file."""
    path = file.path.parent / name
    if not path.is_file():
        raise RequestError(field="partitions.public_file", message=f"file not found: {name!r}", hint="check the path")
    table = public_tables.read_public(
        [str(path)],
        csv_types=None,
        is_csv=path.suffix.lower() == ".csv",
        field="partitions.public_file",
        columns=columns,
    )
    for column in columns:
        if table.column_names.count(column) != 1:
            message = f"must have exactly one column {column!r}"
            raise RequestError(
                field="partitions.public_file", message=message, hint="name its columns as in partition_by"
            )
    if table.num_rows > MOST_PUBLIC:
        message = f"lists more than {MOST_PUBLIC} partitions"
        raise RequestError(
            field="partitions.public_file", message=message, hint="list fewer, or use public_sorted_file"
        )
    try:
        return ListedKeys.of_arrays([keys.plain(table.column(column)) for column in columns])
    except (ValueError, OverflowError):
        message = "lists times with nanoseconds, or dates outside the calendar"
        raise RequestError(
            field="partitions.public_file", message=message, hint="cast them to microseconds or text"
        ) from None


def _wrong_columns(query: Query, schema: pa.Schema, stage: Path) -> list[tuple[Path, RequestError]]:
    """Where it stands, and what is wrong, for each column that cannot play its part."""
    found: list[tuple[Path, RequestError]] = []
    if query.other_column in schema.names:
        message = f"adds a column {query.other_column!r}, which the rows have"
        hint = "give partition_by a column of another name, defined under columns:"
        found.append(((*stage, "partitions", "other"), RequestError(field="", message=message, hint=hint)))

    def note(path: Path, error: RequestError) -> None:
        found.append((path, RequestError(field="", message=f"{error.field} {error.message}", hint=error.hint)))

    parts: list[tuple[str, Path, bool]] = [(name, (*stage, "partition_by"), True) for name in query.partition_by]
    parts += [(name, ("privacy_unit",), False) for name in query.unit_columns]
    parts += [(query.row_id, ("row_id",), False)] if query.row_id is not None else []
    for name, path, partition in parts:
        try:
            keys.check_key_type(schema.field(name).type, name, partition=partition)
        except RequestError as error:
            note(path, error)
    asked = list(query.metrics.items()) if query.best is None else [("best", query.best.metric)]
    for key, metric in asked:
        for column in metric.reads:
            try:
                kind = schema.field(column).type
                if metric.column is not None:
                    metric.check_column(kind)
                else:  # of several columns each is a number
                    kinds.check_value_type(kind, column)
            except RequestError as error:
                note((*stage, "metrics", key, "column" if metric.column is not None else "columns"), error)
    return found


def _typed(query: Query, schema: pa.Schema) -> Query:
    """The query with its public list in the types of the columns, each partition once."""
    assert isinstance(query.partitions, PublicPartitions)
    names = tuple(query.partition_by)
    kinds_of = [schema.field(name).type for name in names]
    try:
        plain = ListedKeys.of_arrays(query.partitions.listed.typed(names, kinds_of))
        typed = dataclasses.replace(query.partitions, keys=plain)
        doubled = typed.listed.places(names, kinds_of).has_doubles
    except RequestError as error:
        raise RequestError(field="", message=error.message, hint=error.hint) from None
    if doubled:
        key = typed.listed.doubled(names, kinds_of) or ()
        named = ", ".join("null" if value is None else str(value) for value in key)
        raise RequestError(
            field="", message=f"lists a partition twice: [{visible(named, most=100)}]", hint="list each partition once"
        )
    return dataclasses.replace(query, partitions=typed)
