"""The metrics of a job file, and the library's metrics that they become.

In: what stands under `metrics`. Out: checked models, and back from the library's metrics. Holds: bounds are the right way up,
edges rise; what is wrong is told by the library's own errors.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, WithJsonSchema, model_validator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.base_models import Model, Positive, Scalar
from dp_pipelines.metrics.base import Count, Mean, Metric, PrivacyIdCount, Sum, Variance
from dp_pipelines.metrics.distinct import DistinctCount
from dp_pipelines.metrics.histogram import Histogram
from dp_pipelines.metrics.quantile import Method, Quantile
from dp_pipelines.metrics.quantiles import Max, Median, Min, Quantiles
from dp_pipelines.metrics.vectors import Norm, SecondMoment, VectorSum

Bound = Annotated[
    Any,  # the metric says what is wrong with it, in words that are the same for both kinds
    Field(description="A number, or auto: chosen from a noisy histogram."),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"const": "auto"}, {"type": "null"}]}),
]
Within = Annotated[
    list[float] | None, Field(description="Where a bound is auto: the range, from public knowledge, in which it lies.")
]


class _MetricModel(Model):
    weight: Positive = 1.0
    stddev: Annotated[
        Positive | None, Field(description="Instead of a weight: the noise of a count or sum, in its own units.")
    ] = None

    @model_validator(mode="after")
    def _sound(self) -> "_MetricModel":
        self.build()
        return self

    def build(self) -> Metric:
        """The library's metric."""
        raise NotImplementedError

    def _rest(self) -> dict[str, Any]:
        return {name: value for name, value in self if name not in ("kind", "column")}


class CountMetric(_MetricModel):
    """The number of rows."""

    kind: Literal["count"]

    def build(self) -> Metric:
        return Count(**self._rest())


class PrivacyIdCountMetric(_MetricModel):
    """The number of different privacy units."""

    kind: Literal["privacy_id_count"]

    def build(self) -> Metric:
        return PrivacyIdCount(**self._rest())


class SumMetric(_MetricModel):
    """The sum of a column; each value is clamped, or each unit's sum in each partition."""

    kind: Literal["sum"]
    column: str
    min_value: Bound = None
    max_value: Bound = None
    within: Within = None
    min_sum_per_partition: float | None = None
    max_sum_per_partition: float | None = None

    def build(self) -> Metric:
        return Sum(self.column, **self._rest())


class MeanMetric(_MetricModel):
    """The mean of a column; `nullable: false` declares that it holds no nulls."""

    kind: Literal["mean"]
    column: str
    min_value: Bound = None
    max_value: Bound = None
    within: Within = None
    nullable: bool = True

    def build(self) -> Metric:
        return Mean(self.column, **self._rest())


class VarianceMetric(MeanMetric):
    """The population variance of a column."""

    kind: Literal["variance"]  # type: ignore[assignment]  # another kind of the same shape

    def build(self) -> Metric:
        return Variance(self.column, **self._rest())


class HistogramMetric(_MetricModel):
    """The number of rows in each bin, or of each category."""

    kind: Literal["histogram"]
    column: str
    edges: list[float] | None = None
    categories: list[Scalar] | None = None

    def build(self) -> Metric:
        return Histogram(self.column, **self._rest())


class MedianMetric(_MetricModel):
    """The median of a column."""

    kind: Literal["median"]
    column: str
    min_value: float
    max_value: float

    def build(self) -> Metric:
        return Median(self.column, **self._rest())


class MinMetric(MedianMetric):
    """About the least value of a column: the lower end of what stands out of the noise."""

    kind: Literal["min"]  # type: ignore[assignment]  # another kind of the same shape

    def build(self) -> Metric:
        return Min(self.column, **self._rest())


class MaxMetric(MedianMetric):
    """About the greatest value of a column: the upper end of what stands out of the noise."""

    kind: Literal["max"]  # type: ignore[assignment]  # as above

    def build(self) -> Metric:
        return Max(self.column, **self._rest())


class DistinctCountMetric(_MetricModel):
    """The number of different values of a column."""

    kind: Literal["distinct_count"]
    column: str
    max_values_per_partition: int | None = None

    def build(self) -> Metric:
        return DistinctCount(self.column, **self._rest())


class QuantileMetric(_MetricModel):
    """One quantile of a column, as one of some declared candidates."""

    kind: Literal["quantile"]
    column: str
    quantile: float
    candidates: list[float]
    method: Method = "auto"

    def build(self) -> Metric:
        return Quantile(self.column, **self._rest())


class QuantilesMetric(_MetricModel):
    """Quantiles of a column: as many as wanted, for one price."""

    kind: Literal["quantiles"]
    column: str
    quantiles: list[float]
    min_value: float
    max_value: float

    def build(self) -> Metric:
        return Quantiles(self.column, **self._rest())


class VectorSumMetric(_MetricModel):
    """The sum of lists of numbers; each unit's sum in each partition is clipped to a norm."""

    kind: Literal["vector_sum"]
    column: str
    size: Annotated[int, Field(description="How many numbers a list has; others count as null.")]
    norm: Norm = "l2"
    max_norm: float

    def build(self) -> Metric:
        return VectorSum(self.column, **self._rest())


class SecondMomentsMetric(_MetricModel):
    """The sums of products of each two of some columns: the upper triangle of a matrix, row by row."""

    kind: Literal["second_moments"]
    columns: list[str]
    bounds: Annotated[
        dict[str, list[float]] | None, Field(description="For each column the least and the greatest value.")
    ] = None
    max_norm: Annotated[float | None, Field(description="Instead: the L2 norm to which each row is clipped.")] = None

    def build(self) -> Metric:
        return SecondMoment(**self._rest())


AnyMetric = Annotated[
    CountMetric
    | PrivacyIdCountMetric
    | SumMetric
    | MeanMetric
    | VarianceMetric
    | HistogramMetric
    | MedianMetric
    | MinMetric
    | MaxMetric
    | DistinctCountMetric
    | QuantileMetric
    | QuantilesMetric
    | VectorSumMetric
    | SecondMomentsMetric,
    Field(discriminator="kind"),
]
"""Any metric, told apart by its kind."""

_MODELS: Mapping[type[Metric], type[_MetricModel]] = {
    Count: CountMetric,
    PrivacyIdCount: PrivacyIdCountMetric,
    Sum: SumMetric,
    Mean: MeanMetric,
    Variance: VarianceMetric,
    Histogram: HistogramMetric,
    Median: MedianMetric,
    Min: MinMetric,
    Max: MaxMetric,
    DistinctCount: DistinctCountMetric,
    Quantile: QuantileMetric,
    Quantiles: QuantilesMetric,
    VectorSum: VectorSumMetric,
    SecondMoment: SecondMomentsMetric,
}


def described(name: str, metric: Metric) -> dict[str, Any]:
    """A library's metric as it stands in a job file.

    Args:
        name: of the metric; it stands in messages.
        metric: what it is.

    Raises:
        RequestError: job files know no such metric.

    >>> described("revenue", Sum("price", min_value=0, max_value=20))["kind"]
    'sum'
    """
    model = _MODELS.get(type(metric))
    if model is None:
        rule, mend = f"is a {type(metric).__name__}, which job files do not know", "run it in a pipeline of your own"
        raise RequestError(field=f"metrics.{name}", rule=rule, mend=mend)
    (kind,) = get_args(model.model_fields["kind"].annotation)
    fields = {field: getattr(metric, field) for field in model.model_fields if field != "kind"}
    return {"kind": kind, **{field: value for field, value in fields.items() if value is not None}}
