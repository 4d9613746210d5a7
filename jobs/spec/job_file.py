"""The job file: what it may say, and what it says.

In: a YAML or JSON file, or content that a program gives. Out: a `Job`, frozen and checked as far as that needs no data: no
unknown or doubled key, right types, bounds the right way up. Holds: fields that the library has too are made of its own; all that
is wrong is reported at once, each with its place, a message and a hint. Not covered: whether columns exist (`request`), what the
plan costs (`dp_pipelines.planning`).
"""

import contextlib
import copy
import functools
import json
import operator
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    create_model,
    model_validator,
)

from dp_pipelines import checks, extensions
from dp_pipelines.auto_bounds import joint_bounds, partition_bound
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.jobs.spec import derived_models, extension_keys, job_kinds, stage_keys, validation_errors, yaml_lines
from dp_pipelines.jobs.spec.base_models import (
    JobModel,
    NamesOrNone,
    OverUnits,
    Param,
    Share,
    SortColumns,
)
from dp_pipelines.jobs.spec.budget_models import BudgetModel, EventWindow
from dp_pipelines.jobs.spec.content import JOB_RUN, Content, Path
from dp_pipelines.jobs.spec.declared import DeclaredFields, DeclaredModel, descriptions, first_sentence, made_of
from dp_pipelines.jobs.spec.derived_models import DERIVED, DerivedModel
from dp_pipelines.jobs.spec.expect_models import Expect, TunedModel
from dp_pipelines.jobs.spec.extension_keys import OUTPUT, READER, OutputKeys, SourceKey
from dp_pipelines.jobs.spec.metric_models import MODELS, MetricModel
from dp_pipelines.jobs.spec.output_models import OutputsModel, with_outputs
from dp_pipelines.jobs.spec.party_models import PartiesModel
from dp_pipelines.jobs.spec.presentation import Description, Format, Title
from dp_pipelines.jobs.spec.public_keys import PublicKeys
from dp_pipelines.jobs.spec.source_models import LookupModel, SomeLookups, SourceModel, with_readers
from dp_pipelines.jobs.spec.table_models import (
    JoinModel,
    TableModel,
    UnitNames,
    check_tables,
    listed_lookups,
    refuse_beside_row_unit,
    unit_of_rows,
)
from dp_pipelines.jobs.spec.train_models import FederateStage, PateStage, TrainStage
from dp_pipelines.metrics.over_column import AUTO
from dp_pipelines.query.best import Best
from dp_pipelines.query.compare import Compare
from dp_pipelines.query.kept import Kept
from dp_pipelines.query.query import ContributionBounds, PrivatePartitions, PublicPartitions, Query, Top
from dp_pipelines.query.rollup import Rollup
from dp_pipelines.query.row_unit import is_row_unit


@made_of(ContributionBounds)
class Bounds(DeclaredModel[ContributionBounds]):
    """How much one privacy unit may contribute; `auto` has each run choose it from noisy histograms that the stage pays for."""

    @model_validator(mode="before")
    @classmethod
    def _chosen_in_a_run(cls, given: Any) -> Any:
        return dict.fromkeys((partition_bound.NAME, joint_bounds.NAME), AUTO) if given == AUTO else given


class _OrAuto:
    """The JSON schema of a part of a job file in whose place a word may stand."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"const": AUTO, "type": "string"}, handler(schema)]}


@made_of(PrivatePartitions)
class Private(DeclaredModel[PrivatePartitions]):
    """Partitions are chosen from the data, with noise."""


class Partitions(JobModel):
    """Which partitions are published: chosen privately, or a public list that does not come from the data."""

    private: Annotated[Private | None, Field(description=first_sentence(PrivatePartitions))] = None
    public: Annotated[
        PublicKeys | None,
        Field(description=descriptions(PublicPartitions)["keys"] + " Or product: the values of each column."),
    ] = None
    public_file: Annotated[
        str | None,
        Field(description="A Parquet or CSV file, relative to the job file, that lists the partitions instead."),
    ] = None
    public_sorted_file: Annotated[
        str | None,
        Field(
            description="A Parquet file of sorted keys, which may list more partitions than fit into memory; those that pass "
            "having are published."
        ),
    ] = None

    other: Annotated[bool, Field(description=descriptions(PublicPartitions)["other"])] = False

    @model_validator(mode="after")
    def _one_kind(self) -> "Partitions":
        kinds = self.model_fields_set - {"other"}
        if self.other and kinds and not kinds & {"public", "public_file"}:
            message = "is for a public list in memory: public: or public_file:"
            hint = "drop it; for private groups, the rest of a rollup has all that are not published"
            raise RequestError(field="other", message=message, hint=hint)
        if len(kinds) != 1:
            message = "must hold one of private:, public:, public_file:, public_sorted_file:"
            raise RequestError(field="", message=message, hint="choose one")
        for index, key in enumerate(self.public if isinstance(self.public, list) else ()):
            if not all(value is None or isinstance(value, (str, int, float, bool)) for value in key):
                raise RequestError(field=f"public.{index}", message="must be a list of plain values", hint="write [..]")
        return self


@made_of(Top)
class TopPartitions(DeclaredModel[Top]):
    """Only the partitions with the largest released values are published; it costs nothing."""


@made_of(Best, leave_out=("by",))
class BestPartitions(DeclaredFields):
    """Which public partitions have the largest value of one metric; the values are not published."""

    by: Annotated[str, Field(description="The one metric of the stage, which is compared.")]


@made_of(Kept, leave_out=("filters", "clamped", "summed"))
class KeptModel(DeclaredModel[Kept]):
    """What the bounds cut off, and how sound the rows are, for a share of the stage's budget."""


@made_of(Compare)
class CompareModel(DeclaredModel[Compare]):
    """Arms of a test by difference and ratio with a baseline, for a share of the stage's budget."""


@made_of(Rollup)
class RollupModel(DeclaredModel[Rollup]):
    """Levels of partitions whose published numbers add up, with the part of the budget that each has."""


SaidRollup = Annotated[
    Annotated[RollupModel, Tag("mapping")] | Annotated[list[list[str]], Tag("list")],
    Discriminator(lambda value: "mapping" if isinstance(value, (dict, RollupModel)) else "list"),
]
"""Levels, alone or with the shares of each."""


if not TYPE_CHECKING:
    StageMetric = Annotated[functools.reduce(operator.or_, (*MODELS.values(), *DERIVED)), Field(discriminator="kind")]
    """A metric of a stage, or what is computed from these."""


@made_of(Query, leave_out=("privacy_unit", "row_id", "group", "windows", "level", "parties"))
class Stage(OverUnits, DeclaredFields):
    """One partitioned release."""

    kind: Annotated[Literal["aggregate"], Field(description="One partitioned release.")]
    share: Share = 1.0
    format: Format = None
    partition_by: Annotated[NamesOrNone, Field(description=descriptions(Query)["partition_by"])]
    partitions: Annotated[Partitions, Field(description=descriptions(Query)["partitions"])] = Partitions(
        private=Private()
    )
    bounds: Annotated[Bounds, _OrAuto(), Field(description=descriptions(Query)["bounds"])] = Bounds.model_validate(AUTO)
    rollup: Annotated[SaidRollup | None, Field(description=descriptions(Query)["rollup"])] = None
    if not TYPE_CHECKING:
        metrics: Annotated[dict[str, StageMetric], Field(description=descriptions(Query)["metrics"])] = Field(
            default_factory=dict
        )
    having: Annotated[
        str | None,
        Field(
            description="Which released rows are published, in SQL over the released columns, e.g. orders > 50; with rollup, "
            "which of the finest partitions, the others being in the rest of their group."
        ),
    ] = None
    order_by: Annotated[
        SortColumns | None,
        Field(description="Released columns by which rows are printed, each with asc or desc, e.g. orders desc."),
    ] = None
    limit: Annotated[
        Annotated[int, Field(ge=1, le=10**9)] | None,
        Field(
            description="How many rows are published: the first by order_by, which it needs; with rollup, how many of the finest."
        ),
    ] = None

    _derived: dict[str, DerivedModel] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _split_derived(self) -> "Stage":
        """Keep what is computed from released numbers apart: no dump, plan or digest of a job has it."""
        metrics: Mapping[str, MetricModel | DerivedModel] = self.metrics
        derived = {name: metric for name, metric in metrics.items() if isinstance(metric, DerivedModel)}
        if derived:
            self.__dict__["metrics"] = {name: metric for name, metric in metrics.items() if name not in derived}
            self._derived = derived
            derived_models.check(self, derived)
        return self

    @property
    def derived(self) -> Mapping[str, DerivedModel]:
        """What is computed from released numbers, by name."""
        return self._derived

    @model_validator(mode="after")
    def _one_name_each(self) -> "Stage":
        shown: dict[str, MetricModel | DerivedModel] = {**self.metrics, **self.derived}
        names = [metric.label or name for name, metric in shown.items()] + list(self.partition_by)
        for name, metric in shown.items():
            if metric.label is not None and names.count(metric.label) > 1:
                field = f"metrics.{name}.label"
                raise RequestError(field=field, message="is the name of another column too", hint="choose another one")
        return self

    @model_validator(mode="after")
    def _limit_of_an_order(self) -> "Stage":
        if self.limit is not None and self.order_by is None:
            raise RequestError(
                field="limit", message="needs order_by, which says which rows are the first",
                hint="add e.g. order_by: orders desc",
            )  # fmt: skip
        return self

    if TYPE_CHECKING:  # of `Query`, what other modules read by name
        metrics: dict[str, MetricModel]
        best: BestPartitions | None
        compare: CompareModel | None
        kept: KeptModel | None
        top: object | None


AnyStage = Annotated[Stage | TrainStage | FederateStage | PateStage, Field(discriminator="kind")]


TableName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]


@made_of(Query, only=("privacy_unit", "row_id"))
class Job(DeclaredFields):
    """A job of dp-pipelines: from files of rows to differentially private tables."""

    model_config = ConfigDict(title="dp-pipelines job")

    dataset: Annotated[
        str,
        Field(min_length=1, description="The account that these releases are charged to."),
        AfterValidator(lambda name: checks.plain(name, "")),
    ]
    title: Title = None
    description: Description = None
    format: Format = None
    params: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")], Param],
        Field(description="What each run is given with `--param`, by name."),
    ] = Field(default_factory=dict)
    budget: Annotated[BudgetModel, Field(description="What all runs together may cost.")]
    privacy_unit: Annotated[
        UnitNames,
        Field(
            description=descriptions(Query)["privacy_unit"]
            + " With tables: by table, or the same names in all of them."
        ),
    ]
    source: Annotated[SourceModel | None, Field(description="The rows; or tables:, where they are several.")] = None
    tables: Annotated[
        dict[TableName, TableModel] | None,
        Field(min_length=2, description="Private tables of the same people, by name, for join: or union:."),
    ] = None
    join: Annotated[JoinModel | None, Field(description="Two tables as one, joined on the privacy unit.")] = None
    union: Annotated[
        list[str] | None, Field(min_length=2, description="Tables with the same columns as one, all rows of each.")
    ] = None
    window: Annotated[EventWindow | None, Field(description="The window of event time that each run takes.")] = None
    where: Annotated[str | None, Field(description="Which rows are read, in SQL over one row.")] = None
    columns: Annotated[
        dict[str, str],
        Field(max_length=checks.MOST_DEFINED, description="Columns that are defined in SQL over one row, by name."),
    ] = Field(default_factory=dict)
    lookup: Annotated[
        SomeLookups | None, Field(description="A public table whose columns are added, or several in their order.")
    ] = None
    outputs: Annotated[
        OutputsModel | None, Field(description="Other formats of the published tables, beside Parquet.")
    ] = None
    parties: Annotated[
        PartiesModel | None,
        Field(description="Organisations that keep their rows to themselves and publish one report."),
    ] = None
    expect: Annotated[Expect | None, Field(description="Guesses about the rows.")] = None
    tuned: Annotated[list[TunedModel] | None, Field(description="Looks at the raw rows; each release says so.")] = None
    stages: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")], AnyStage],
        Field(min_length=1, description="What is released, by name."),
    ]

    if TYPE_CHECKING:  # of `Query`
        row_id: str | None

    @model_validator(mode="after")
    def _sound_tables(self) -> "Job":
        check_tables(source=self.source, tables=self.tables, join=self.join, union=self.union, unit=self.privacy_unit)
        if self.tables is not None:
            self._refuse_beside_tables()
        if is_row_unit(self.unit):
            refuse_beside_row_unit(
                tables=self.tables,
                row_id=self.row_id,
                parties=self.parties,
                lookups={self.place_of_lookup(n): table for n, table in enumerate(self.lookups)},
                unit_columns={name: stage.unit_columns for name, stage in self.stages.items()},
                others=[name for name, stage in self.stages.items() if not isinstance(stage, Stage)],
            )
        for name, stage in self.stages.items() if self.parties is not None else ():
            if not isinstance(stage, Stage):
                hint = "put it into a job without parties"
                raise RequestError(
                    field=f"stages.{name}", message="trains, which parties cannot do together", hint=hint
                )
        return self

    def _refuse_beside_tables(self) -> None:
        """Refuse what several tables cannot have yet, or at all. Raises: RequestError by field."""
        if self.window is not None:
            message = "cannot be combined with tables:, whose rows of one window would meet rows of others"
            raise RequestError(field="window", message=message, hint="drop it, and filter each table with where:")
        for number, table in enumerate(self.lookups):
            if table.max_rows_per_key > 1 and self.join is not None:
                message, hint = "makes several rows of a joined one", "write the lookup into one of the tables"
                raise RequestError(field=self.place_of_lookup(number), message=message, hint=hint)

    def arguments(self) -> dict[str, Any]:
        """The arguments of the dataclass."""
        together = {"parties": self.parties.build()} if self.parties is not None else {}
        return {**super().arguments(), "privacy_unit": self.unit, **together}

    @property
    def unit(self) -> list[str]:
        """The columns of the privacy unit, by the names that they have where stages read rows."""
        first = self.join.left if self.join is not None else self.union[0] if self.union else None
        return unit_of_rows(self.privacy_unit, first)

    @property
    def sources(self) -> dict[str, SourceModel]:
        """All that is read, by the key of the job file that names it."""
        if self.source is not None:
            return {"source": self.source}
        return {f"tables.{name}": table for name, table in (self.tables or {}).items()}

    def one_source(self, asked: str) -> SourceModel:
        """The rows of a job that has one source.

        Args:
            asked: what needs one, in words that follow the field.

        Raises:
            RequestError: it has several tables.
        """
        if self.source is None:
            hint = "use a job with source:"
            raise RequestError(field="tables", message=f"are several, and {asked}", hint=hint)
        return self.source

    @property
    def lookups(self) -> tuple[LookupModel, ...]:
        """The public tables in their order."""
        return listed_lookups(self.lookup)

    def place_of_lookup(self, number: int) -> str:
        """How messages call a table by its number.

        Args:
            number: from 0.
        """
        return f"lookup.{number}" if isinstance(self.lookup, list) else "lookup"


def schema() -> dict[str, Any]:
    """The JSON schema of job files, with keys of stages that extensions add, and with keys of other distributions."""
    readers, outputs = (extensions.third_party(kind) for kind in (READER, OUTPUT))
    model = _with_keys(
        extension_keys.usable(READER, SourceKey, (name for name in readers if name not in TableModel.model_fields)),
        extension_keys.usable(OUTPUT, OutputKeys, (name for name in outputs if name not in OutputsModel.model_fields)),
    )
    return stage_keys.add_to_schema(_without_keys(model.model_json_schema()))


def _without_keys(whole: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without the keys whose extensions are not installed, and without the parts that only these name."""
    missing = [key for key in _keys_of_runs() if not extensions.is_installed(JOB_RUN, key)]
    for key in missing:
        del whole["properties"][key]
    while unused := [name for name in whole["$defs"] if missing and f'"#/$defs/{name}"' not in json.dumps(whole)]:
        for name in unused:
            del whole["$defs"][name]
    return whole


def _model_for(data: Any) -> type[Job]:
    """Return the model of a job: with keys of other distributions, if it has unknown ones that they offer.

    Raises:
        RequestError: such an extension cannot be used.
    """
    tables = [table for named in _parts(data, "tables") for table in _parts(named, *named)]
    readers = _offered(READER, TableModel, [*_parts(data, "source"), *tables])
    outputs = _offered(OUTPUT, OutputsModel, _parts(data, "outputs"))
    return _with_keys(
        {name: extension_keys.load(READER, name, SourceKey) for name in readers},
        {name: extension_keys.load(OUTPUT, name, OutputKeys) for name in outputs},
    )


def _parts(data: Any, *keys: str) -> list[Mapping[str, Any]]:
    """Return the parts of some data under some keys, as far as they are mappings."""
    held = [data.get(key) for key in keys] if isinstance(data, Mapping) else []
    return [part for part in held if isinstance(part, Mapping)]


def _offered(kind: str, model: type[JobModel], parts: list[Mapping[str, Any]]) -> list[str]:
    """Return the unknown keys of some parts that other distributions offer; their lists are read only if there is one."""
    unknown = {name for part in parts for name in part if name not in model.model_fields}
    unknown = {name for name in unknown if not extensions.is_built_in(kind, name)}
    return [name for name in extensions.third_party(kind) if name in unknown] if unknown else []


def _with_keys(readers: Mapping[str, SourceKey], outputs: Mapping[str, OutputKeys]) -> type[Job]:
    """Return the model of a job with keys of other distributions."""
    fields: dict[str, Any] = {}
    if readers:
        table: Any = with_readers(TableModel, readers)
        fields = {"source": with_readers(SourceModel, readers) | None, "tables": dict[TableName, table] | None}
    if outputs:
        fields["outputs"] = with_outputs(OutputsModel, outputs) | None
    if not fields:
        return Job
    changed: dict[str, Any] = {name: (kind, copy.copy(Job.model_fields[name])) for name, kind in fields.items()}
    return create_model("Job", __base__=Job, __module__=Job.__module__, __doc__=Job.__doc__, **changed)


JOB_ENDINGS = (".yaml", ".yml", ".json")


class JobFile:
    """A job and where it was said: in a file, or in the arguments of a program.

    Args:
        path: the file; names in it are relative to its folder.
        job: what it says.
        document: the same as plain data, with the places of its parts.
    """

    def __init__(self, path: pathlib.Path, job: Job, document: Content) -> None:
        self.path = path
        self.job = job
        self.document = document

    def error(self, path: Path, error: RequestError) -> RequestError:
        """The same error with `file:line` and the place in the job before it."""
        field, found = validation_errors.place(path, error.field, self.document)
        return RequestError(field=self.document.named(found, field), message=error.message, hint=error.hint)


def load(path: str) -> JobFile:
    """Read and check a job file.

    Raises:
        RequestError: it cannot be read, or `validation_errors.JobErrors` with all that is wrong in it.
    """
    return checked(content_of(path), pathlib.Path(path))


def content_of(path: str) -> Content:
    """What a job file says, whatever its stages are.

    Raises:
        RequestError: it cannot be read.
    """
    file = pathlib.Path(path)
    try:
        with file.open("rb") as stream:  # which may be a pipe, without a size
            raw = stream.read(yaml_lines.LARGEST + 1)
    except OSError as error:
        hint = "name a job file"
        if isinstance(error, FileNotFoundError):
            with contextlib.suppress(OSError):
                near = nearest(file.name, [one.name for one in file.parent.iterdir() if one.suffix in JOB_ENDINGS])
                hint = near if near.startswith("did") else hint
        raise RequestError(field=path, message=f"cannot be read: {error.strerror or 'no file'}", hint=hint) from None
    if len(raw) > yaml_lines.LARGEST:
        raise yaml_lines.too_large(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        message, hint = "is not UTF-8 text", "name a job file; `dp-pipelines init` writes one for files of rows"
        raise RequestError(field=path, message=message, hint=hint) from None
    return yaml_lines.parse(text, path)


def read(text: str, file: pathlib.Path, name: str) -> JobFile:
    """The job in a text; `name` stands in messages. Errors as for `load`."""
    return checked(yaml_lines.parse(text, name), file)


def checked(document: Content, path: pathlib.Path) -> JobFile:
    """The job that some content is; names in it are relative to the folder of `path`.

    Raises:
        RequestError: `validation_errors.JobErrors` with all that is wrong.
    """
    document = derived_models.without_weighted_means(stage_keys.replace_keys(document))
    data, problems, others = _without_unknown_kinds(document)
    if others:  # what else it says is not for this model
        raise validation_errors.JobErrors(others)
    problems += _not_installed(document)
    job = None
    model = _model_for(data)
    try:
        job = model.model_validate(data)
    except ValidationError as error:
        problems += validation_errors.from_validation(error, document, model)
    if problems or job is None:
        raise validation_errors.JobErrors(validation_errors.by_line(problems))
    return JobFile(path, job, document)


def _not_installed(document: Content) -> list[RequestError]:
    """Return an error for each key whose jobs only an extension runs that is not installed."""
    problems = []
    for key in _keys_of_runs():
        if document.holds((key,)):
            try:
                extensions.refuse_missing(JOB_RUN, key)
            except RequestError as error:
                problems.append(RequestError(field=document.named((key,), key), message=error.message, hint=error.hint))
    return problems


def _keys_of_runs() -> list[str]:
    """Return the keys whose jobs only an extension runs, whether it is installed or not."""
    return [feature.partition(":")[2] for feature in extensions.BUILT_IN if feature.startswith(f"{JOB_RUN}:")]


def _without_unknown_kinds(document: Content) -> tuple[Any, list[RequestError], list[RequestError]]:
    """Return the data with aggregates for unknown kinds, so that all errors are told; their errors; those of other jobs."""
    stages = document.data.get("stages") if isinstance(document.data, Mapping) else None
    if not isinstance(stages, Mapping):
        return document.data, [], []
    problems, others, known = [], [], dict(stages)
    for name, stage in stages.items():
        kind = stage.get("kind") if isinstance(stage, Mapping) else None
        if isinstance(kind, str) and kind not in ("aggregate", "train", "federate", "pate"):
            field = document.named(("stages", name, "kind"), f"stages.{name}.kind")
            if extensions.is_built_in(job_kinds.KIND, kind):
                others.append(job_kinds.refusal(kind, field))
                continue
            *first, last = ("aggregate", "train", "federate", "pate", *extensions.built_in(job_kinds.KIND))
            message, hint = "is no kind of stage", f"write kind: {', '.join(first)}, or {last}"
            problems.append(RequestError(field=field, message=message, hint=hint))
            known[name] = {**stage, "kind": "aggregate"}
    return {**document.data, "stages": known}, problems, others
