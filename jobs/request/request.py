"""A job that is ready to be planned and run: file, parameters, sources and expressions agree with each other.

In: a job file and parameters. Out: a `Request`. Holds: everything that public facts can show to be wrong is refused here,
before anything is planned, created or read: the job file, its parameters, every file's footer or header, columns and types,
expressions, the lookup table, public lists. Not covered: what it costs; damage inside files.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.outputs import csv_columns, outputs
from dp_pipelines.jobs.outputs.outputs import Outputs
from dp_pipelines.jobs.outputs.published_schemas import published_schemas
from dp_pipelines.jobs.request import clamps, having, joined_tables, own_models, public_files
from dp_pipelines.jobs.request.joined_tables import TableRows, Tables
from dp_pipelines.jobs.request.list_order import without_order
from dp_pipelines.jobs.request.queries import queries
from dp_pipelines.jobs.request.train_tasks import Task, Unit, over_units, refuse_nested, tasks
from dp_pipelines.jobs.sources import (
    added_columns,
    declared_source,
    event_window,
    lookup,
    lookups,
    public_tables,
    source_files,
)
from dp_pipelines.jobs.spec import derived_models, job_parameters, presentation
from dp_pipelines.jobs.spec.content import Path
from dp_pipelines.jobs.spec.job_file import Job, JobFile, Stage
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.table_models import TableModel
from dp_pipelines.jobs.spec.validation_errors import JobErrors, nearest, raise_all
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.ledger.read_files import ReadFiles, read_files
from dp_pipelines.planning import json_digest
from dp_pipelines.planning.describe import asked_to_json
from dp_pipelines.query.query import Query
from dp_pipelines.query.row_unit import ROW_UNIT, is_row_unit
from dp_pipelines.query.train_model import EVALUATED, HALF, TrainModel
from dp_pipelines.release.shown_rows import ShownRows
from dp_pipelines.steps import folder_columns

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a run needs to know, all of it public but for how many rows and bytes the source has.

    Args:
        file: the job file.
        values: of the parameters.
        source: the files; where there are several tables, those of all of them, with the columns of the rows that they become.
        rows: `where` and `columns`.
        lookup: the tables that are joined, or None.
        queries: by aggregate stage.
        tasks: by train stage.
        units: what aggregate stages compute from all rows of one unit, by stage.
        columns: the source's columns that are read.
        window: of event time, or None.
        tables: what is read where the rows are made of several tables, or None.
        shown: which released rows are published, by aggregate stage that chooses among them.
        outputs: what is published beside Parquet.
    """

    file: JobFile
    values: Mapping[str, Value]
    source: source_files.Source
    rows: RowExpressions
    lookup: lookups.Lookups | None
    queries: Mapping[str, Query]
    tasks: Mapping[str, Task]
    units: Mapping[str, Unit]
    columns: tuple[str, ...]
    window: event_window.RowWindow | None = None
    tables: Tables | None = None
    shown: Mapping[str, ShownRows] = dataclasses.field(default_factory=dict)
    outputs: Outputs = dataclasses.field(default_factory=Outputs)

    @functools.cached_property
    def content(self) -> str:
        """SHA-256 of everything that the job file asks for beside the budget: what the same run id must always mean."""
        return self.content_with({name: str(value) for name, value in self.values.items()})

    def content_with(self, params: Mapping[str, str]) -> str:
        """Return the `content` of this job with other values of its parameters: a run that has it differs in them alone.

        Args:
            params: the values of all parameters, as text.
        """
        job, read = self._fixed
        given = {name: [type(self.values[name]).__name__, text] for name, text in params.items()}
        return hashlib.sha256(json.dumps([job, given, *read], sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def _fixed(self) -> tuple[dict[str, Any], list[Any]]:
        """What a run id fixes beside the parameters: the job, and the snapshots and the code that it uses."""
        # What has its default is left out, so that a later version, which knows more keys, sees the same run.
        # The snapshot that was read counts, whether or not the job names it.
        snapshots: dict[str, set[str]] = {}
        for each in self.file.job.sources.values():
            snapshots |= each.snapshot_keys
        left_out: dict[str, Any] = {
            "budget": True,
            "expect": True,
            "source": snapshots,
            "tables": {"__all__": snapshots},
        }
        job = presentation.without(self.file.job.model_dump(mode="json", exclude=left_out, exclude_defaults=True))
        job = without_order(job)
        for stage in job.get("stages", {}).values():
            for part, key, formerly in (("evaluation", "max_examples_per_unit", EVALUATED), ("fit", "average", HALF)):
                said = stage.get(part, {})
                if said.get(key) == formerly:  # the default of earlier versions
                    del said[key]
                    if not said:
                        del stage[part]
        named = zip(self.file.job.sources, self.sources, strict=True)
        read: list[Any] = [source.snapshot for _, source in sorted(named, key=lambda one: one[0]) if source.snapshot]
        own = own_models.code_digests({name: task.model for name, task in self.tasks.items()})
        read += [own] if own else []  # runs of other models keep theirs
        return job, read

    @property
    def sources(self) -> tuple[source_files.Source, ...]:
        """The files of each table, in the order of the job file."""
        if self.tables is None:
            return (self.source,)
        found = {part.name: part.source for part in self.tables.parts}
        return tuple(found[name] for name in self.file.job.tables or {})

    @property
    def read(self) -> ReadFiles | None:
        """The names of the files that are read; None where a run id fixes a snapshot instead, and where no file is read."""
        if any(source.snapshot or not source.files for source in self.sources):
            return None
        folder = str(self.file.path.resolve().parent)
        return read_files(dict.fromkeys(path for source in self.sources for path in source.files), folder)

    @property
    def snapshots(self) -> dict[str, dict[str, Any]]:
        """What is published of the snapshots of tables that are read, by the key of the job file that names them."""
        folder = self.file.path.parent
        named = declared_source.named_snapshot
        said = {key: named(one, folder, self.values) for key, one in self.file.job.sources.items()}
        return {key: one for key, one in said.items() if one is not None}

    @property
    def stages(self) -> dict[str, Query | TrainModel]:
        """What each stage asks for, in the order of the job."""
        return asked_for(self.file, self.queries, {name: task.model for name, task in self.tasks.items()})

    @property
    def window_name(self) -> str:
        """How a ledger names the window of event time; empty where there is none."""
        return self.window.name if self.window is not None else ""

    @functools.cached_property
    def asked(self) -> str:
        """SHA-256 of all that the plan is made from: two jobs that ask for the same share one frozen plan."""
        return asked_digest(self.file, self.stages)


def asked_digest(file: JobFile, stages: Mapping[str, Query | TrainModel]) -> str:
    """SHA-256 of all that a plan is made from.

    Args:
        file: the job.
        stages: what each of its stages asks for.
    """
    job = file.job
    content = {
        "queries": {name: _without_nulls(asked_to_json(asked)) for name, asked in stages.items()},
        "budget": job.budget.model_dump(mode="json", exclude_defaults=True),
        "shares": {name: stage.share for name, stage in job.stages.items()},
    }
    return json_digest.sha256(content)


def asked_for(
    file: JobFile, of_queries: Mapping[str, Query], of_tasks: Mapping[str, TrainModel]
) -> dict[str, Query | TrainModel]:
    """What each stage asks for, in the order of the job."""
    both: dict[str, Query | TrainModel] = {**of_queries, **of_tasks}
    return {name: both[name] for name in file.job.stages}


def check(file: JobFile, given: Sequence[str], held: source_files.Source | None = None) -> Request:
    """Everything about a job that is public, checked.

    Args:
        file: the job file.
        given: `NAME=VALUE` for each parameter.
        held: rows that this process holds, in place of the job's files.

    Raises:
        RequestError: what is wrong.
    """
    job = file.job
    values = job_parameters.take({name: declared.type for name, declared in job.params.items()}, given)
    tables = _tables(file, values) if job.tables is not None else None
    source = held if held is not None else _placed(file, lambda: _source(file, values, tables))
    if tables is None:
        public_files.refuse_all(file, source.files)
    rows = _placed(file, lambda: _rows(job, source, values, job.unit))
    window = _placed(file, lambda: event_window.bind(job, values, source.schema))
    available = rows.output_schema
    joined = _placed(file, lambda: _lookups(file, job, available, job.unit)) if job.lookups else None
    if joined is not None:
        available = pa.schema([*available, *joined.fields])
    raise_all([source.missing[name] for name in job.unit if name in source.missing])
    _refuse_added_unit(file, source, job.unit)
    units = over_units(file, available, values, _absent(source))
    _refuse_row_numbers(file, rows, units, window, joined)
    schemas = {name: units[name].expressions.output_schema if name in units else available for name in job.stages}
    _check_names(file, schemas, available, source)
    clamps.check(file, joined, schemas)
    of_queries, of_tasks = queries(file, schemas, values), tasks(file, units, source.files)
    shown = having.bind(file, of_queries, schemas, values)
    formulas = {name: presentation.formulas_of(job.stages[name]) for name in of_queries}
    published = published_schemas(
        of_queries, schemas, [name for name, rows in shown.items() if rows.leaves is not None]
    )
    published |= _with_computed(file, of_queries, published, formulas)
    units = {name: units[name].reading(query.columns) for name, query in of_queries.items() if name in units}
    refuse_nested(file, {**units, **{name: task.unit for name, task in of_tasks.items()}})
    read = [unit.columns for unit in units.values()] + [task.columns for task in of_tasks.values()]
    read += [query.columns for name, query in of_queries.items() if name not in units]
    used = dict.fromkeys(name for columns in read for name in columns)
    for name in joined.on if joined is not None else ():
        used.setdefault(name)
    if tables is not None and job.row_id is not None:  # tells rows apart before they become one
        used.setdefault(job.row_id)
    of_window = [window.column] if window is not None else []
    columns = tuple(dict.fromkeys(n for n in (*used, *rows.input_columns, *of_window) if n in source.schema.names))
    if is_row_unit(job.unit):
        columns += _to_count_rows(source, columns)
    return Request(
        file=file,
        values=values,
        source=source,
        rows=dataclasses.replace(rows, schema=pa.schema([source.schema.field(name) for name in columns])),
        lookup=joined,
        queries=of_queries,
        tasks=of_tasks,
        units=units,
        columns=columns,
        window=window,
        tables=tables.reading(columns) if tables is not None else None,
        shown=shown,
        outputs=_placed(
            file,
            lambda: outputs.bind(
                file,
                published,
                csv_columns.layouts_of(of_queries, shown, formulas, presentation.forms_of(job)),
                values,
            ),
        ),
    )


def _with_computed(
    file: JobFile,
    of_queries: Mapping[str, Query],
    released: Mapping[str, pa.Schema],
    formulas: Mapping[str, Collection[str]],
) -> dict[str, pa.Schema]:
    """Return the columns of tables with those that are computed from released numbers.

    Raises:
        JobErrors: a column would have the name of another one.
    """
    found, problems = {}, []
    for name, named in formulas.items():
        try:
            found[name] = derived_models.with_columns(named, of_queries[name], released[name])
        except RequestError as error:
            problems.append(file.error(("stages", name), error))
    raise_all(problems)
    return found


def _refuse_added_unit(file: JobFile, source: source_files.Source, unit: Sequence[str]) -> None:
    """Refuse a privacy unit that names of folders say, which are public, or that files may lack, whose rows would be nobody's.

    Raises:
        RequestError: as said.
    """
    added = source.added
    for name in unit:
        if name in added.folders or name in added.optional:
            where = "names of folders say, and those are public" if name in added.folders else "some files lack"
            error = RequestError(
                field="", message=f"names column {name!r}, which {where}", hint="write it into the rows of all files"
            )
            raise file.error(("privacy_unit",), error)


def _to_count_rows(source: source_files.Source, columns: Sequence[str]) -> tuple[str, ...]:
    """Return a column of the files where nothing else of them is read: lines without a column that is read would be none."""
    if source.added.of_files(columns):
        return ()
    own = [name for name in source.added.of_files(source.schema.names) if name not in source.missing]
    return tuple(own[:1])


def _refuse_row_numbers(
    file: JobFile,
    rows: RowExpressions,
    units: Mapping[str, Unit],
    window: event_window.RowWindow | None,
    joined: lookups.Lookups | None,
) -> None:
    """Refuse jobs that look at the number of a row: it depends on the rows before it, and a unit's number on other units.

    Raises:
        JobErrors: as said.
    """
    read: list[tuple[Path, Collection[str]]] = [(("where",), rows.where.columns if rows.where is not None else ())]
    read += [(("columns", item.name), item.columns) for item in rows.defined]
    conditions = ((name, unit.expressions.where) for name, unit in units.items())
    read += [(("stages", name, "where"), where.columns) for name, where in conditions if where is not None]
    read += [
        (("window",), () if window is None else (window.column,)),
        (("lookup",), () if joined is None else joined.on),
    ]
    raise_all([file.error(path, _row_number()) for path, names in read if ROW_UNIT in names])


def _row_number() -> RequestError:
    return RequestError(
        field="", message=f"names {ROW_UNIT!r}, which only tells rows apart", hint="name another column"
    )


def _without_nulls(value: Any) -> Any:
    """The same without what is not set: keys that a later version adds change no digest."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(held) for key, held in value.items() if held is not None}
    return [_without_nulls(held) for held in value] if isinstance(value, (list, tuple)) else value


def _placed(file: JobFile, step: Callable[[], Result]) -> Result:
    """The result of a step whose errors get `file:line` where they speak of the job file."""
    try:
        return step()
    except JobErrors as error:
        problems = [_at_line(file, problem) for problem in error.problems]
        raise JobErrors(list({str(problem): problem for problem in problems}.values())) from None
    except RequestError as error:
        raise _at_line(file, error) from None


def _at_line(file: JobFile, error: RequestError) -> RequestError:
    return file.error((), error) if error.field.partition(".")[0] in Job.model_fields else error


def _source(file: JobFile, values: Mapping[str, Value], tables: Tables | None = None) -> source_files.Source:
    """The rows as stages could read them."""
    if tables is not None:
        return tables.source
    source = declared_source.look(file.job.one_source("this reads one"), file.path.parent, values, file.document)
    return added_columns.with_row_numbers(source) if is_row_unit(file.job.unit) else source


def _tables(file: JobFile, values: Mapping[str, Value]) -> Tables:
    """Several tables as one. The files of all are known before any public table is read, which might be one of them."""
    sources = {
        name: joined_tables.of_table(
            file, name, functools.partial(declared_source.look, said, file.path.parent, values, file.document)
        )
        for name, said in (file.job.tables or {}).items()
    }
    public_files.refuse_all(file, [path for source in sources.values() for path in source.files])
    return joined_tables.bind(file, functools.partial(_table, file, values, sources))


def _table(
    file: JobFile,
    values: Mapping[str, Value],
    sources: Mapping[str, source_files.Source],
    name: str,
    unit: Sequence[str],
) -> TableRows:
    """One of several tables, with what becomes of its rows before they meet others."""
    declared, source = (file.job.tables or {})[name], sources[name]
    raise_all([source.missing[column] for column in unit if column in source.missing])
    _refuse_added_unit(file, source, unit)
    rows = _rows(declared, source, values, unit)
    lookup_tables = _lookups(file, declared, rows.output_schema, unit) if declared.lookups else None
    return TableRows(name=name, declared=declared, source=source, rows=rows, lookup=lookup_tables, unit=tuple(unit))


def _rows(
    said: Job | TableModel, source: source_files.Source, values: Mapping[str, Value], unit: Sequence[str]
) -> RowExpressions:
    """The `where` and `columns` of a job, or of one of its tables."""
    if said.where is None and not said.columns:
        return RowExpressions(where=None, defined=(), params=dict(values), schema=source.schema)
    from dp_pipelines.jobs.sql import expressions  # loads DuckDB

    return expressions.bind(said.where, said.columns, source.schema, unit=unit, values=values, absent=_absent(source))


def check_expressions(file: JobFile, source: source_files.Source) -> None:
    """Check the expressions over the rows of a job's one source as far as no value of a parameter decides.

    Args:
        file: the job.
        source: its source.

    Raises:
        RequestError: what is wrong.
    """
    job = file.job
    if job.where is None and not job.columns:
        return
    from dp_pipelines.jobs.sql import expressions  # loads DuckDB

    examples = job_parameters.examples({name: declared.type for name, declared in job.params.items()})
    check = functools.partial(
        expressions.check_without_values, unit=job.unit, examples=examples, absent=_absent(source)
    )
    _placed(file, lambda: check(job.where, job.columns, source.schema))


def _absent(source: source_files.Source) -> dict[str, str]:
    """What is wrong with columns that only some files have, in words."""
    return {name: f"{error.field}: {error.message}" for name, error in source.missing.items()}


def _lookups(file: JobFile, said: Job | TableModel, available: pa.Schema, unit: Sequence[str]) -> lookups.Lookups:
    """The public tables of a job, or of one of its tables, each checked against the rows as they are before it."""
    found = []
    for number, declared in enumerate(said.lookups):
        field = f"lookup.{number}" if isinstance(said.lookup, list) else "lookup"
        files = source_files.find(declared.pattern, file.path.parent, field)
        is_csv, form = declared.csv is not None, declared.form
        listed = public_tables.read_public(files, csv_types=declared.types, is_csv=is_csv, field=field, form=form)
        table = lookup.bind(
            listed,
            declared.pairs,
            available,
            unit=unit,
            most=declared.max_rows_per_key,
            field=field,
            place=functools.partial(public_tables.place_of, files, is_csv=is_csv, form=form),
        )
        available = pa.schema([*available, *table.fields])
        found.append(table)
    if any(table.most > 1 for table in found) and TWIN in available.names:
        raise RequestError(field="lookup", message=f"would shadow column {TWIN!r}", hint="rename that column")
    # Of a table that is joined all columns tell rows apart: `row_id` is one of the rows that they become.
    return lookups.Lookups(tuple(found), said.row_id if isinstance(said, Job) else None)


def _inside(name: str, columns: Sequence[str]) -> str:
    """A hint where a name seems to mean a field of a column that has fields."""
    column, _, field = name.partition(".")
    last = field.rpartition(".")[2]
    return f"define it: columns: {{{last}: '{name}'}}, and write {last} here" if last and column in columns else ""


def _in_folders(name: str, source: source_files.Source) -> str:
    """A hint where folders of the files say a column that the job does not declare."""
    said = bool(source.files) and name in folder_columns.said_in(source.files[0])
    return f"its folders are called {name}=...: add e.g. hive: {{{name}: string}} to the source" if said else ""


def _check_names(
    file: JobFile, schemas: Mapping[str, pa.Schema], available: pa.Schema, source: source_files.Source
) -> None:
    """Every column that the job names is there, once, and the unit's columns come from the source."""
    problems = []
    named: list[tuple[tuple[str | int, ...], str]] = [(("privacy_unit",), name) for name in file.job.unit]
    of_stage: dict[Path, list[str]] = {("stages", name): schema.names for name, schema in schemas.items()}
    if file.job.row_id is not None:
        named.append((("row_id",), file.job.row_id))
    for stage_name, stage in file.job.stages.items():
        if not isinstance(stage, Stage):
            continue
        place = ("stages", stage_name)
        named += [((*place, "partition_by"), name) for name in stage.partition_by]
        for key, metric in stage.metrics.items():
            column = getattr(metric, "column", None)
            if column is not None:
                named.append(((*place, "metrics", key, "column"), column))
            named += [((*place, "metrics", key, "columns"), name) for name in getattr(metric, "columns", ())]
    for path, name in named:
        if name == ROW_UNIT and path != ("privacy_unit",):
            problems.append(file.error(path, _row_number()))
        elif name in source.missing:
            problems.append(source.missing[name])
        elif name not in (names := of_stage.get(path[:2], available.names)):
            hint = _in_folders(name, source) or _inside(name, names) or nearest(name, names, "columns")
            problems.append(
                file.error(
                    path, RequestError(field="", message=f"names column {name!r}, which does not exist", hint=hint)
                )
            )
    raise_all(list({str(problem): problem for problem in problems}.values()))
