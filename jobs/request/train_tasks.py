"""From a job file to what its train stages learn, from which rows, and what stages compute from all rows of one unit.

In: a checked job file; once the files are known, the schema of its rows. Out: one `Task` for each train stage, one `Unit` for
each stage that looks at whole units. Holds: all that is wrong by public facts is told before anything is charged, with
`file:line`: a label or a feature that is no column, or of a type that cannot be one, a model whose library is missing. Not
covered: what training costs (`dp_pipelines.planning`) and how it runs (`training`).
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request import own_models, public_files
from dp_pipelines.jobs.sources import public_tables, source_files
from dp_pipelines.jobs.spec.content import Path
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.train_models import ModelStage, PateStage
from dp_pipelines.jobs.spec.validation_errors import JobErrors, nearest, raise_all
from dp_pipelines.kernels import keys
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.training import libraries
from dp_pipelines.training.features import category_values, encoder, input_types
from dp_pipelines.training.teachers import public_examples

if TYPE_CHECKING:
    from dp_pipelines.jobs.sql.windows import unit_columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """What a stage computes from all rows of one unit.

    Args:
        expressions: the windows, and which rows stay.
        max_rows_per_unit: rows of one unit that they see.
        columns: what the stage and its windows read of the rows as stages see them.
    """

    expressions: "unit_columns.UnitExpressions"
    max_rows_per_unit: int
    columns: tuple[str, ...]

    def reading(self, used: Iterable[str]) -> "Unit":
        """The same, for a stage that reads these columns besides."""
        read = dict.fromkeys((*used, *self.expressions.input_columns))
        there = self.expressions.schema.names
        return dataclasses.replace(self, columns=tuple(column for column in read if column in there))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One train stage: what is learnt, from which rows, and of one whose teachers vote the public table."""

    model: TrainModel
    unit: Unit
    public: pa.Table | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What it reads of the rows as stages see them."""
        return self.unit.columns


def over_units(
    file: JobFile, schema: pa.Schema, values: Mapping[str, Value], absent: Mapping[str, str]
) -> dict[str, Unit]:
    """What stages compute from all rows of one unit: of every train stage, and of aggregates that ask for something.

    Args:
        file: the job.
        schema: of the rows as stages see them, with defined and looked-up columns.
        values: of the parameters.
        absent: what is wrong with columns that only some files have.

    Raises:
        RequestError: all that is wrong.
    """
    found: dict[str, Unit] = {}
    problems: list[RequestError] = []
    for name, stage in file.job.stages.items():
        if not (isinstance(stage, ModelStage) or stage.unit_columns or stage.where is not None):
            continue
        from dp_pipelines.jobs.sql.windows import unit_columns  # loads DuckDB

        try:
            unit = file.job.unit
            bound = unit_columns.bind(stage.unit_columns, stage.where, schema, unit=unit, values=values, absent=absent)
        except JobErrors as errors:
            problems += [file.error(("stages", name), error) for error in errors.problems]
        except RequestError as error:
            problems.append(file.error(("stages", name), error))
        else:
            found[name] = Unit(expressions=bound, max_rows_per_unit=stage.max_rows_per_unit, columns=())
    raise_all(problems)
    return found


def models(file: JobFile) -> dict[str, TrainModel]:
    """What each train stage learns, as far as that can be known without files.

    Raises:
        RequestError: all that is wrong.
    """
    found: dict[str, TrainModel] = {}
    problems: list[RequestError] = []
    for name, stage in file.job.stages.items():
        if not isinstance(stage, ModelStage):
            continue
        try:
            checks.stage_name(name, "")
            checks.number(stage.share, "share", above=0, below=1e6)
            found[name] = stage.build(file.job.unit)
            libraries.refuse_missing(found[name].model, local=isinstance(found[name], libraries.LOCAL))
            own_models.refuse_unnamed(found[name].model)
            encoder.Encoder.skeleton(found[name])
        except RequestError as error:
            problems.append(file.error(("stages", name), error))
    if found and file.job.budget.delta == 0:
        message, hint = "must be above 0 to train a model", "write e.g. delta: 1.0e-6"
        problems.append(file.error(("budget",), RequestError(field="delta", message=message, hint=hint)))
    raise_all(problems)
    return found


def refuse_nested(file: JobFile, units: Mapping[str, Unit]) -> None:
    """Refuse lists and the like in stages that look at whole units, whose rows are gathered column by column.

    Raises:
        RequestError: all that is wrong.
    """
    problems = []
    for name, unit in units.items():
        for column in unit.columns:
            kind = keys.plain_type(unit.expressions.schema.field(column).type)
            if pa.types.is_nested(kind) or pa.types.is_interval(kind):
                message = f"looks at whole units, so it cannot read column {column!r} of type {kind}"
                hint = "extract what you need with columns: first, or leave out unit_columns and where"
                problems.append(file.error(("stages", name), RequestError(field="", message=message, hint=hint)))
    raise_all(problems)


def tasks(file: JobFile, units: Mapping[str, Unit], private: Collection[str] = ()) -> dict[str, Task]:
    """What each train stage learns, and from which rows.

    Args:
        file: the job.
        units: what each computes from all rows of a unit.
        private: the files of the source.

    Raises:
        RequestError: all that is wrong.
    """
    found: dict[str, Task] = {}
    problems: list[RequestError] = []
    for name, model in models(file).items():
        stage = file.job.stages[name]
        assert isinstance(stage, ModelStage)
        wrong = _wrong_columns(file, ("stages", name), stage, model, units[name].expressions.output_schema)
        public = None
        try:
            public = _public(file, name, stage, model, private)
            if public is not None and not wrong:
                wrong += _other_kinds(
                    file, ("stages", name), model, units[name].expressions.output_schema, public.schema
                )
        except RequestError as error:
            wrong.append(error)
        problems += wrong
        if not wrong:
            found[name] = Task(model=model, unit=units[name].reading(model.columns), public=public)
    raise_all(problems)
    return found


def _public(
    file: JobFile, name: str, stage: ModelStage, model: TrainModel, private: Collection[str]
) -> pa.Table | None:
    """The public table of a stage whose teachers vote.

    Raises:
        RequestError: it is read as rows of units too, it cannot be read, or teachers cannot vote on it.
    """
    if not isinstance(stage, PateStage) or not isinstance(model, PateModel):
        return None
    place, declared = ("stages", name, "public"), stage.public
    field = ".".join(place)
    try:
        files = source_files.find(declared.pattern, file.path.parent, field)
        public_files.refuse_shared(files, private)
        is_csv, form = declared.csv is not None, declared.form
        table = public_tables.read_public(files, csv_types=declared.types, is_csv=is_csv, field=field, form=form)
        public_examples.refuse_unfit(model, table)
        return table.select(list(model.feature_columns))
    except RequestError as error:
        said = error.field.removeprefix(field).removeprefix(public_examples.FIELD).strip(":. ")
        message = f"{said} {error.message}".strip()
        raise file.error(place, RequestError(field="", message=message, hint=error.hint)) from None


def _other_kinds(
    file: JobFile, place: Path, model: TrainModel, schema: pa.Schema, public: pa.Schema
) -> list[RequestError]:
    """Categories found in the public table that no row of a unit has, since its column holds another kind of values.

    Args:
        file: the job.
        place: of the stage.
        model: what is learnt.
        schema: of the examples.
        public: of the public table.
    """
    problems = []
    for name, category in training_parts.chosen(model).items():
        own, found = (category_values.kind_of_type(of.field(category.column).type) for of in (schema, public))
        read_as_days = own is category_values.DATE and found is category_values.TEXT
        if own is not found and category_values.NULL not in (own, found) and not read_as_days:
            message = (
                f"holds {own.words} in the rows of units and {found.words} in the public table, which are never equal"
            )
            hint = f'cast one of them, e.g. columns: {{{category.column}_text: "CAST({category.column} AS VARCHAR)"}}'
            problems.append(file.error((*place, "features", name), RequestError(field="", message=message, hint=hint)))
    return problems


def _wrong_columns(
    file: JobFile, place: Path, stage: ModelStage, model: TrainModel, schema: pa.Schema
) -> list[RequestError]:
    """What is wrong with the columns of the label and the features, each at its line."""
    problems: list[RequestError] = []
    named: list[tuple[Path, str]] = [((*place, "label", "column"), model.label.column)]
    for name, feature in model.features.items():
        own = stage.features[name].column is not None
        named.append(((*place, "features", name, *(("column",) if own else ())), feature.column))
    if (by := model.evaluation_by) is not None:
        named.append(((*place, "evaluation", "by", "column"), by.column))
    for path, column in named:
        if schema.names.count(column) != 1:
            hint = nearest(column, schema.names, "columns")
            problem = RequestError(field="", message=f"names column {column!r}, which does not exist", hint=hint)
            problems.append(file.error(path, problem))
    if problems:
        return problems
    for field, error in encoder.wrong_types(schema, model).items():
        path = (*place, "label", "column") if field == "label" else (*place, "features", field)
        problems.append(
            file.error(path, RequestError(field="", message=f"{error.field} {error.message}", hint=error.hint))
        )
    if (unfit := input_types.of_groups(schema, model)) is not None:
        wrong = RequestError(field="", message=f"{unfit.field} {unfit.message}", hint=unfit.hint)
        problems.append(file.error((*place, "evaluation", "by"), wrong))
    return problems or _not_encoded(file, place, model, schema)


def _not_encoded(file: JobFile, place: Path, model: TrainModel, schema: pa.Schema) -> list[RequestError]:
    """What the encoder refuses of the columns: it is tried on a table without a row, so that a run meets nothing new."""
    try:
        skeleton, empty = encoder.Encoder.skeleton(model), schema.empty_table()
        skeleton.encode(empty)
        skeleton.labels(empty)
    except RequestError as error:
        return [file.error((*place, "features"), error)]
    except pa.ArrowException as error:
        message = f"cannot be encoded: {error}"
        return [file.error((*place, "features"), RequestError(field="", message=message, hint="cast their columns"))]
    return []
