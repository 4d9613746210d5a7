"""What all parts of a job file share: the base of its models, and common types."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from dp_pipelines import checks
from dp_pipelines.engine import object_store
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import example_parts
from dp_pipelines.jobs.spec.presentation import Description, Title
from dp_pipelines.query.order_by import read_all

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[
    Positive,
    Field(
        description="Weight of this stage in the budget; left out: 1, or 1/4 for a stage that chooses the best partitions."
    ),
]
Scalar = Annotated[Any, WithJsonSchema({"type": ["string", "number", "boolean", "null"]})]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[
    list[str],
    BeforeValidator(_listed),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""One column name or a list of them."""

NamesOrNone = Annotated[
    list[str],
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""The same, or an empty list."""


def _one_spelling(texts: list[str]) -> list[str]:
    return [column.text for column in read_all(texts)]


SortColumns = Annotated[
    list[str],
    BeforeValidator(_listed),
    Field(min_length=1),
    AfterValidator(_one_spelling),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""One column with `asc` or `desc`, or a list of them."""


class JobModel(BaseModel):
    """Base of all parts of a job file: unknown keys are errors, nothing is converted, nothing changes."""

    # Deferred: a job file is checked by the schema of the whole job, which is built once, and not by each part's own.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, defer_build=True, json_schema_extra=example_parts.into_schema
    )


class Param(JobModel):
    """A parameter of the job, given with `--param NAME=VALUE`."""

    type: Annotated[Literal["string", "int", "float", "date"], Field(description="What its values are.")]


class OverUnits(JobModel):
    """What a stage may compute from all rows of one privacy unit, before anything else sees its rows, and its heading."""

    title: Title = None
    description: Description = None
    unit_columns: Annotated[
        dict[str, str],
        Field(max_length=checks.MOST_DEFINED, description="Columns that are windows over one unit's own rows, in SQL."),
    ] = Field(default_factory=dict)
    where: Annotated[str | None, Field(description="Which rows the stage sees; may name unit columns.")] = None
    max_rows_per_unit: Annotated[
        int, Field(ge=1, le=2**20, description="Rows of one unit that its windows see; others are dropped by a hash.")
    ] = 10_000

    @property
    def declared_share(self) -> float | None:
        """The share that the job declares, or None: the plan then takes its default for the kind of stage."""
        share: float = getattr(self, "share")  # noqa: B009 - each kind of stage has it
        return share if "share" in self.model_fields_set else None


def refuse_credentials(url: str, field: str) -> None:
    """Refuse a URL that holds credentials, since the ledger and pages show it. Raises: RequestError."""
    if object_store.has_credentials(url):
        message = f"names {object_store.without_credentials(url)!r} with somebody's credentials"
        hint = "leave them out; for s3:// set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise RequestError(field=field, message=message, hint=hint)
