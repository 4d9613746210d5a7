"""Metrics of a job file that are computed from released numbers: ratios and expressions, which cost nothing, and weighted means.

In: what a stage says under `metrics`. Out: a checked model of each, and its formula. Holds: none of it is part of a plan or of
what a run id fixes; a formula names counts and sums that the same stage publishes, or is refused with what to add. In place of
a weighted mean the job has the two sums that it needs, and their quotient. Not covered: the numbers (`report.derived`).
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field, ValidationError

from dp_pipelines import checks
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.content import Content, Path
from dp_pipelines.jobs.spec.metric_models import MODELS
from dp_pipelines.jobs.spec.presentation import Format, Label, Measure
from dp_pipelines.jobs.spec.validation_errors import raise_all
from dp_pipelines.metrics import registry, weighted_mean
from dp_pipelines.metrics.sums import Mean
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithWeightedMeans(Content):
    """What a job says, with two sums and their quotient in place of each weighted mean.

    Args:
        data: plain Python data.
        said: the job as it was said.
        origins: from a path to the weighted mean that stands there.
    """

    said: Content
    origins: Mapping[Path, Path]

    @property
    def in_file(self) -> bool:
        """As it was said."""
        return self.said.in_file

    def named(self, path: Path, field: str) -> str:
        """A place in the job as it was said: of what stands for a weighted mean, the place of the mean."""
        for size in range(len(path), 0, -1):
            if (origin := self.origins.get(path[:size])) is not None:
                return self.said.named(origin, _in_words(origin))
        return self.said.named(path, field)

    def delimiter(self, mark: str) -> str:
        """As it was said."""
        return self.said.delimiter(mark)

    def inside(self, path: Path, field: str, offset: int | None, words: str) -> str:
        """As the job that was said names it."""
        return self.said.inside(path, field, offset, words)


def without_weighted_means(document: Content) -> Content:
    """Return a job with two sums and their quotient in place of each weighted mean.

    Args:
        document: what a job says.

    Returns:
        the same where it has none. A mean whose own fields are wrong stays, so that its model says what is wrong.

    Raises:
        RequestError: a name that a mean needs is taken.

    >>> mean = {"kind": "mean", "column": "v", "min_value": 0, "max_value": 12, "weight_column": "w", "max_weight": 4}
    >>> stage = {"kind": "aggregate", "bounds": {"max_contributions_per_partition": 1}, "metrics": {"hours": mean}}
    >>> job = without_weighted_means(Content(data={"stages": {"all": stage}}))
    >>> [(name, metric["kind"]) for name, metric in job.data["stages"]["all"]["metrics"].items()]
    [('hours_weights', 'sum'), ('hours_weighted', 'sum'), ('hours', 'expression')]
    >>> list(job.data["columns"])
    ['w (0 to 4) of v', 'w (0 to 4) * (v (0 to 12) - 6)']
    """
    data = document.data
    stages = data.get("stages") if isinstance(data, Mapping) else None
    weighted: dict[str, dict[str, Mean]] = {}
    for stage_name, stage in stages.items() if isinstance(stages, Mapping) else ():
        metrics = stage.get("metrics") if isinstance(stage, Mapping) else None
        for name, said in metrics.items() if isinstance(metrics, Mapping) else ():
            if (mean := _weighted_mean(said)) is not None:
                weighted.setdefault(stage_name, {})[name] = mean
    columns = data.get("columns") if weighted else None
    if not weighted or not (columns is None or isinstance(columns, Mapping)):
        return document
    found = _Lowered(document, dict(columns or {}))
    for stage_name, means in weighted.items():
        found.take(stage_name, means)
    raise_all(found.problems)
    changed = {**data, "columns": found.columns, "stages": {**data["stages"], **found.stages}}
    return WithWeightedMeans(data=changed, said=document, origins=found.origins)


def _weighted_mean(said: Any) -> Mean | None:
    """Return a weighted mean that is right by itself; None of anything else."""
    if not isinstance(said, Mapping) or said.get("weight_column") is None:
        return None
    try:
        made = MODELS[Mean.kind].model_validate({**said, "label": None, "measure": None}).build()
    except ValidationError:
        return None
    return made if isinstance(made, Mean) else None


class _Lowered:
    """The parts of a job that change, stage by stage.

    Args:
        document: what the job says.
        columns: those that it defines.
    """

    def __init__(self, document: Content, columns: dict[str, Any]) -> None:
        self.document, self.columns, self.defined = document, columns, dict(columns)
        self.stages: dict[str, Any] = {}
        self.origins: dict[Path, Path] = {}
        self.problems: list[RequestError] = []

    def take(self, stage_name: str, means: Mapping[str, Mean]) -> None:
        """Replace the weighted means of a stage."""
        metrics: dict[str, Any] = {}
        stage = self.document.data["stages"][stage_name]
        if stage.get("kept") is not None or _chooses_bounds(stage):
            self._refuse_measuring(stage_name, next(iter(means)), kept=stage.get("kept") is not None)
        for name, said in stage["metrics"].items():
            made = {name: said} if name not in means else self._parts(stage_name, name, means[name], said)
            metrics |= made
        self.stages[stage_name] = {**stage, "metrics": metrics}

    def _parts(self, stage_name: str, name: str, mean: Mean, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metrics that stand for one weighted mean."""
        place = ("stages", stage_name, "metrics", name)
        assert mean.weight_column is not None
        value, weight = self._sql(mean.column), self._sql(mean.weight_column)
        sums = {
            weighted_mean.WEIGHTS: weighted_mean.weights(mean, value, weight),
            weighted_mean.WEIGHTED: weighted_mean.weighted(mean, value, weight),
        }
        found: dict[str, Any] = {}
        for ending, part in sums.items():
            metric, column = f"{name}_{ending}", part.column
            if metric in self.document.data["stages"][stage_name]["metrics"]:
                self._refuse(place, f"publishes the sum {metric!r}, which is another metric of the stage")
            if self.columns.get(column, part.expression) != part.expression:
                self._refuse(place, f"defines the column {column!r}, which the job defines in another way")
            self.columns[column] = part.expression
            found[metric] = {
                "kind": "sum", "column": column, "min_value": part.low, "max_value": part.high,
                "label": f"{str(said.get('label') or name)[:50]}: {part.label}"[:100],
                "weight": mean.weight / 2,  # a metric's weight is split over its statistics
            }  # fmt: skip
            self.origins[*place[:3], metric] = place
            self.origins.setdefault(("columns", column), place)
        of, to = (formula.quoted(f"{name}_{ending}") for ending in (weighted_mean.WEIGHTED, weighted_mean.WEIGHTS))
        shown = {key: said[key] for key in ("label", "measure", "format") if key in said}
        found[name] = {"kind": "expression", "of": weighted_mean.formula(mean, of, to), **shown}
        return found

    def _refuse_measuring(self, stage_name: str, name: str, *, kept: bool) -> None:
        """Refuse to measure what limits cut off: those of value and weight lie inside of what a row adds, and would seem wide."""
        place = ("stages", stage_name, "metrics", name)
        message = "clamps value and weight of each row, and what that cuts off cannot be measured, as "
        message += "kept: asks" if kept else "a stage without bounds does"
        hint = f"{'drop kept:' if kept else 'write bounds:'}, or move the weighted mean to a stage of its own"
        field = self.document.named(place, _in_words(place))
        self.problems.append(RequestError(field=field, message=message, hint=hint))

    def _refuse(self, place: Path, message: str) -> None:
        field = self.document.named(place, _in_words(place))
        self.problems.append(RequestError(field=field, message=message, hint="rename the mean"))

    def _sql(self, column: str) -> str:
        """Return a column in SQL: of one that the job defines what it is, since defined columns cannot name each other."""
        text = self.defined.get(column)
        return f"({text}\n)" if isinstance(text, str) else '"' + column.replace('"', '""') + '"'


def _chooses_bounds(stage: Mapping[str, Any]) -> bool:
    """Return True if a run chooses some bounds of a stage, so that it also measures what they cut off."""
    bounds = stage.get("bounds", "auto")
    return bounds == "auto" or (isinstance(bounds, Mapping) and any(_is_open(bound) for bound in bounds.values()))


def _is_open(bound: object) -> bool:
    return bound == "auto" or (isinstance(bound, list) and "auto" in bound)


def weighted_columns(document: Content) -> frozenset[str]:
    """Return the names of the columns that stand for weighted means in a job.

    Args:
        document: the job, with the sums in place of the means.
    """
    if not isinstance(document, WithWeightedMeans):
        return frozenset()
    return frozenset(str(path[1]) for path in document.origins if path[0] == "columns")


def _in_words(path: Path) -> str:
    return ".".join(map(str, path))
