"""Metrics of a job file that are computed from released numbers: ratios and expressions. They cost nothing.

In: what a stage says under `metrics`. Out: a checked model of each, and its formula. Holds: none of it is part of a plan or of
what a run id fixes; a formula names counts and sums that the same stage publishes, or is refused with what to add. Not covered:
the numbers (`report.derived`).
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field

from dp_pipelines import checks
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.presentation import Format, Label, Measure
from dp_pipelines.metrics import registry
from dp_pipelines.query.query import Query
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.report.derived import derived_columns, formula, part_noise

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.job_file import Stage

COSTS_NOTHING = "computed from released numbers; costs nothing, and may be added to a released job"


def _read(text: str) -> str:
    formula.read(text)
    return text


class DerivedModel(JobModel):
    """Base of what is computed from released numbers of the same row."""

    label: Label = None
    measure: Measure = None
    format: Format = None

    @property
    def formula(self) -> str:
        """What it is, as `report.derived.formula` reads it."""
        raise NotImplementedError

    def names_by_key(self) -> Mapping[str, tuple[str, ...]]:
        """Return the metrics that each of its keys names, of a row or as a total."""
        raise NotImplementedError


class TotalOf(JobModel):
    """The sum of a metric over all groups of the table."""

    total: Annotated[str, Field(min_length=1, max_length=200, description="The metric, a count or a sum.")]


class RatioMetric(DerivedModel):
    """One released count or sum divided by another one of the same row, or by a total; costs nothing."""

    kind: Annotated[Literal["ratio"], Field(description=f"One released number divided by another, {COSTS_NOTHING}.")]
    of: Annotated[str, Field(min_length=1, max_length=200, description="The metric that is divided, a count or a sum.")]
    to: Annotated[
        Annotated[str, Field(min_length=1, max_length=200)] | TotalOf,
        Field(description="The metric that it is divided by, or {total: NAME} for a share of the sum over all groups."),
    ]

    @property
    def formula(self) -> str:
        """See `DerivedModel`."""
        if isinstance(self.to, TotalOf):
            return f"{formula.quoted(self.of)} / {formula.TOTAL}({formula.quoted(self.to.total)})"
        return f"{formula.quoted(self.of)} / {formula.quoted(self.to)}"

    def names_by_key(self) -> Mapping[str, tuple[str, ...]]:
        """See `DerivedModel`."""
        return {"of": (self.of,), "to": (self.to.total if isinstance(self.to, TotalOf) else self.to,)}


class ExpressionMetric(DerivedModel):
    """Released counts and sums of the same row, with + - * / and brackets; costs nothing."""

    kind: Annotated[
        Literal["expression"], Field(description=f"Released numbers with + - * / between them, {COSTS_NOTHING}.")
    ]
    of: Annotated[
        str,
        Field(
            min_length=1,
            max_length=formula.MOST_CHARACTERS,
            description="What is computed: names of counts and sums of the stage, numbers, + - * / and brackets, e.g. "
            "100 * cost / revenue; total(cost) is the sum over all groups. A name that is no single word stands in double "
            "quotes.",
        ),
        AfterValidator(_read),
    ]

    @property
    def formula(self) -> str:
        """See `DerivedModel`."""
        return self.of

    def names_by_key(self) -> Mapping[str, tuple[str, ...]]:
        """See `DerivedModel`."""
        return {"of": formula.read(self.of).metrics}


DERIVED: tuple[type[DerivedModel], ...] = (RatioMetric, ExpressionMetric)
"""All kinds."""


def check(stage: "Stage", derived: Mapping[str, DerivedModel]) -> None:
    """Refuse what cannot be computed from what a stage publishes.

    Args:
        stage: with `metrics` that are released, and no others.
        derived: by name.

    Raises:
        RequestError: by field of the stage.
    """
    for key in ("best", "compare"):
        if getattr(stage, key) is not None:
            message = f"is computed from released numbers, and a stage with {key}: publishes none for each group"
            raise RequestError(field=f"metrics.{next(iter(derived))}", message=message, hint=f"drop it, or {key}:")
    for name, model in derived.items():
        checks.metric_name(name, "metrics")
        for key, parts in model.names_by_key().items():
            for part in parts:
                _check_part(stage, derived, part, f"metrics.{name}.{key}")
        try:
            read = formula.read(model.formula)
        except RequestError as error:
            raise RequestError(field=f"metrics.{name}", message=error.message, hint=error.hint) from None
        for total in read.totals:
            _check_total(stage, total, f"metrics.{name}")


def _check_total(stage: "Stage", name: str, field: str) -> None:
    """Refuse the total of a metric, or over rows, that is no total of what somebody asks for. Raises: RequestError."""
    listed = stage.partitions.public_sorted_file is not None
    said = {"having": stage.having, "limit": stage.limit, "top": stage.top, "public_sorted_file": listed}
    chosen = [key for key, choice in said.items() if choice]
    if stage.rollup is not None:
        message = f"names the total of {name!r} beside rollup:, whose groups share their noise with their total"
        raise RequestError(field=field, message=message, hint="put the finest groups into a stage without rollup")
    if chosen:
        message = f"names the total of {name!r}, and {chosen[0]}: chooses rows by their numbers"
        raise RequestError(field=field, message=message, hint=f"drop {chosen[0]}:, or the total")
    kind = registry.of_kind(stage.metrics[name].tag["kind"])
    if kind is None or kind.rolls_up != "sum":
        message = f"names the total of {name!r}, whose units may be in several groups and would count in each"
        raise RequestError(field=field, message=message, hint="name a count of rows or a sum")
    if stage.metrics[name].build().scale is not None:
        message = f"names the total of {name!r}, whose clamp and noise differ by group"
        raise RequestError(field=field, message=message, hint="clamp all groups alike, or drop the total")


def with_columns(derived: Collection[str], query: Query, released: pa.Schema) -> pa.Schema:
    """Return the columns of a published table with those of computed numbers.

    Args:
        derived: their names.
        query: of the stage.
        released: the columns of its table without them.

    Raises:
        RequestError: a column would have the name of another one; by field of the stage.
    """
    levels, ranged = (LEVEL, REST) if query.rollup is not None else (), query.kept is not None
    try:
        derived_columns.refuse_taken(derived, [*released.names, *levels], ranged=ranged)
    except RequestError as error:
        raise RequestError(field=f"metrics.{error.field}", message=error.message, hint=error.hint) from None
    return pa.schema([*released, *derived_columns.fields(derived, ranged=ranged)], metadata=released.metadata)


def _check_part(stage: "Stage", derived: Mapping[str, DerivedModel], part: str, field: str) -> None:
    """Refuse a name that is no released count or sum. Raises: RequestError."""
    if part in derived:
        message, hint = f"names {part!r}, which is computed itself", f"name counts and sums, as {part!r} does"
        raise RequestError(field=field, message=message, hint=hint)
    sums = [name for name, metric in stage.metrics.items() if part_noise.is_sum(metric.tag["kind"])]
    if part in sums:
        return
    if part not in stage.metrics:
        near = nearest(part, sums, "counts and sums")
        add = f"add it, e.g. {part}: {{kind: count}}, which costs a part of the budget and is another plan"
        hint = near if near.startswith("did") else "; ".join(text for text in (add, near) if text)
        raise RequestError(field=field, message=f"names {part!r}, which this stage does not publish", hint=hint)
    message = f"names {part!r}, which is no count and no sum"
    hint = "a mean is a sum over a count: publish both and divide them"
    raise RequestError(field=field, message=message, hint=hint)
