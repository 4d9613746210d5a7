"""The job file: what it may say, and what it says.

In: a YAML or JSON file. Out: a `Job`, frozen and checked as far as that needs no data: no unknown or doubled key, right
types, bounds the right way up. Holds: all that is wrong is reported at once, each with `file:line`, a message and a hint.
Not covered: whether columns exist (`request`), what the plan costs (`dp_pipelines.planning`).
"""

import datetime
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import validation_errors, yaml_lines
from dp_pipelines.jobs.spec.base_models import JobModel, OverUnits, Positive, Scalar
from dp_pipelines.jobs.spec.metric_models import AnyMetric
from dp_pipelines.jobs.spec.train_models import TrainStage
from dp_pipelines.planning.rounds import Split
from dp_pipelines.query.query import ContributionBounds, PrivatePartitions, Strategy
from dp_pipelines.selection.exponential import Choosing

LARGEST_FILE = 16 * 2**20


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[
    list[str],
    BeforeValidator(_listed),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""One column name or a list of them."""


class Param(JobModel):
    """A parameter of the job, given with `--param NAME=VALUE`."""

    type: Literal["string", "int", "float", "date"]


class BudgetModel(JobModel):
    """What all runs together may cost."""

    epsilon: Positive
    delta: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    runs: Annotated[int, Field(ge=1, le=10**6, description="How often this plan will be run under the budget.")] = 1
    split: Annotated[Split, Field(description="How the runs share the budget: each as much, or later ones more.")] = (
        "constant"
    )


class EventWindow(JobModel):
    """Each run takes one window of event time, and protects one unit within it. The account has the same windows."""

    column: Annotated[str, Field(description="A column of dates or timestamps of the source.")]
    days: Annotated[int, Field(ge=1, le=36525)]
    param: Annotated[str, Field(description="A parameter of type date: the first day of the run's window.")]


class _Files(JobModel):
    parquet: str | None = None
    csv: str | None = None
    types: dict[str, str] | None = None

    @model_validator(mode="after")
    def _one_format(self) -> "_Files":
        if (self.parquet is None) == (self.csv is None):
            raise RequestError(
                field="", message="must name files as either parquet: or csv:", hint="write one of the two"
            )
        if self.parquet is not None and self.types is not None:
            raise RequestError(field="types", message="is for csv: only; Parquet files have types", hint="drop it")
        return self

    @property
    def pattern(self) -> str:
        """The file name or glob."""
        pattern = self.parquet if self.parquet is not None else self.csv
        assert pattern is not None
        return pattern


class SourceModel(_Files):
    """The rows: files named by a glob, relative to the job file. CSV needs the type of every column that is used."""

    quoted: Annotated[
        bool, Field(description="Of CSV: whether cells may stand in quotation marks. Each line is one row either way.")
    ] = True

    @model_validator(mode="after")
    def _csv_has_types(self) -> "SourceModel":
        if self.csv is not None and not self.types:
            raise RequestError(
                field="",
                message="must declare types: for csv:, since types must not follow from the data",
                hint="write e.g. types: {CUSTOMER_ID: string, AMOUNT: double}",
            )
        if self.csv is None and not self.quoted:
            raise RequestError(field="quoted", message="is for csv: only", hint="drop it")
        return self


class LookupModel(_Files):
    """A public table whose columns are added to each row by the value of one column; its keys are unique."""

    on: str


class Bounds(JobModel):
    """How much one privacy unit may contribute."""

    max_partitions_contributed: Annotated[
        Any,  # the library says what is wrong with it
        Field(description="A whole number, or auto: chosen in each run from a noisy histogram of units."),
        WithJsonSchema({"anyOf": [{"type": "integer"}, {"const": "auto"}, {"type": "null"}]}),
    ] = None
    max_contributions_per_partition: int | None = None
    max_contributions: int | None = None
    partition_candidates: Annotated[
        list[int] | None,
        Field(description="Where max_partitions_contributed is auto: what it may be, rising, from public knowledge."),
    ] = None

    @model_validator(mode="after")
    def _sound(self) -> "Bounds":
        self.build()
        return self

    def build(self) -> ContributionBounds:
        """The library's object."""
        return ContributionBounds(**dict(self))


class Private(JobModel):
    """Partitions are chosen from the data, with noise."""

    strategy: Strategy = "auto"
    min_users: int = 0
    weight: Positive = 1.0

    @model_validator(mode="after")
    def _sound(self) -> "Private":
        self.build()
        return self

    def build(self) -> PrivatePartitions:
        """The library's object."""
        return PrivatePartitions(**dict(self))


class Partitions(JobModel):
    """Which partitions are published: chosen privately, or a public list that does not come from the data."""

    private: Private | None = None
    public: list[list[Scalar]] | None = None
    public_file: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "Partitions":
        if len(self.model_fields_set) != 1:
            raise RequestError(field="", message="must hold one of private:, public:, public_file:", hint="choose one")
        for index, key in enumerate(self.public or []):
            if not all(value is None or isinstance(value, (str, int, float, bool)) for value in key):
                raise RequestError(field=f"public.{index}", message="must be a list of plain values", hint="write [..]")
        return self


class TopPartitions(JobModel):
    """Only the partitions with the largest released values are published; it costs nothing."""

    k: Annotated[int, Field(ge=1, le=2**31)]
    by: Annotated[str, Field(description="The metric that is compared.")]


class BestPartitions(JobModel):
    """Which public partitions have the largest value of one metric; the values are not published."""

    k: Annotated[int, Field(ge=1, le=1000)] = 1
    by: Annotated[str, Field(description="The one metric of the stage, which is compared.")]
    mechanism: Choosing = "permute_and_flip"


class Stage(OverUnits):
    """One partitioned release."""

    kind: Literal["aggregate"]
    share: Annotated[Positive, Field(description="Weight of this stage in the budget.")] = 1.0
    partition_by: Names
    bounds: Bounds
    partitions: Partitions = Partitions(private=Private())
    metrics: dict[str, AnyMetric] = Field(default_factory=dict)
    top: TopPartitions | None = None
    best: BestPartitions | None = None


AnyStage = Annotated[Stage | TrainStage, Field(discriminator="kind")]


class Expect(JobModel):
    """A guess about a typical partition, for the relative errors of `plan` and for `tune --synthetic`. It decides no release."""

    users: Positive | None = None
    rows_per_partition: Positive | None = None


def _day(text: str) -> str:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        raise RequestError(field="", message="must be a date", hint="write e.g. 2026-01-05") from None
    return text


class TunedModel(JobModel):
    """A look at the raw rows by which values of this job were chosen, as `dp-pipelines tune` writes it into what it suggests."""

    stage: Annotated[str, AfterValidator(lambda name: checks.plain(name, ""))]
    date: Annotated[
        str,
        Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", description="The day of the look."),
        AfterValidator(_day),
    ]


class Job(JobModel):
    """A job of dp-pipelines: from files of rows to differentially private tables."""

    model_config = ConfigDict(title="dp-pipelines job")

    dataset: Annotated[
        str,
        Field(min_length=1, description="The account that these releases are charged to."),
        AfterValidator(lambda name: checks.plain(name, "")),
    ]
    params: dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")], Param] = Field(default_factory=dict)
    privacy_unit: Names
    row_id: Annotated[str | None, Field(description="A column that tells rows of one unit apart.")] = None
    budget: BudgetModel
    source: SourceModel
    window: EventWindow | None = None
    where: str | None = None
    columns: Annotated[dict[str, str], Field(max_length=checks.MOST_DEFINED)] = Field(default_factory=dict)
    lookup: LookupModel | None = None
    expect: Expect | None = None
    tuned: Annotated[list[TunedModel] | None, Field(description="Looks at the raw rows; each release says so.")] = None
    stages: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")], AnyStage], Field(min_length=1)
    ]


class JobFile:
    """A job and where it stands.

    Args:
        path: the file; names in it are relative to its folder.
        job: what it says.
        document: its lines.
    """

    def __init__(self, path: pathlib.Path, job: Job, document: yaml_lines.Document) -> None:
        self.path = path
        self.job = job
        self.document = document

    def error(self, path: yaml_lines.Path, error: RequestError) -> RequestError:
        """The same error with `file:line` and the place in the job file before it."""
        field, found = validation_errors.place(path, error.field, self.document)
        return RequestError(field=f"{self.document.where(found)}: {field}", message=error.message, hint=error.hint)


def load(path: str) -> JobFile:
    """Read and check a job file.

    Raises:
        RequestError: it cannot be read, or `validation_errors.JobErrors` with all that is wrong in it.
    """
    file = pathlib.Path(path)
    try:
        size = file.stat().st_size
        raw = file.read_bytes() if size <= LARGEST_FILE else b""
    except OSError as error:
        raise RequestError(
            field=path, message=f"cannot be read: {error.strerror or 'no file'}", hint="name a job file"
        ) from None
    if size > LARGEST_FILE:
        raise RequestError(field=path, message="is larger than 16 MiB", hint="put long public lists into a public_file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(field=path, message="is not UTF-8 text") from None
    return read(text, file, path)


def read(text: str, file: pathlib.Path, name: str) -> JobFile:
    """The job in a text; `name` stands in messages. Errors as for `load`."""
    document = yaml_lines.parse(text, name)
    data, problems = _without_unknown_kinds(document)
    job = None
    try:
        job = Job.model_validate(data)
    except ValidationError as error:
        problems += validation_errors.from_validation(error, document, Job)
    if problems or job is None:
        raise validation_errors.JobErrors(validation_errors.by_line(problems))
    return JobFile(file, job, document)


def _without_unknown_kinds(document: yaml_lines.Document) -> tuple[Any, list[RequestError]]:
    """The data with stages of no known kind taken for aggregates, so that all else in them is told too; and their errors."""
    stages = document.data.get("stages") if isinstance(document.data, Mapping) else None
    if not isinstance(stages, Mapping):
        return document.data, []
    problems, known = [], dict(stages)
    for name, stage in stages.items():
        kind = stage.get("kind") if isinstance(stage, Mapping) else None
        if isinstance(kind, str) and kind not in ("aggregate", "train"):
            field = f"{document.where(('stages', name, 'kind'))}: stages.{name}.kind"
            hint = "write kind: aggregate, or kind: train"
            problems.append(RequestError(field=field, message="is no kind of stage", hint=hint))
            known[name] = {**stage, "kind": "aggregate"}
    return {**document.data, "stages": known}, problems
