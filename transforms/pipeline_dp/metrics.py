"""From PipelineDP's parameters to a query, and from released tables back to its tuples.

In: AggregateParams or SelectPartitionsParams, whether there are public partitions. Out: a `dp_pipelines.Query`; for each released
row the pair (partition key, MetricsTuple) with the fields that PipelineDP gives, in its order. Holds: what has no counterpart
is refused by field, message and hint before a row is read. Not covered: what it costs (budget_accounting.py).
"""

import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pipeline_dp as original
import pyarrow as pa
from pipeline_dp.aggregate_params import NormKind

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp import keys
from dp_pipelines.transforms.pipeline_dp.extract import KEY_HINT, PARTITION, UNIT, VALUE

STRATEGIES = {
    original.PartitionSelectionStrategy.TRUNCATED_GEOMETRIC: "truncated_geometric",
    original.PartitionSelectionStrategy.LAPLACE_THRESHOLDING: "laplace",
    original.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING: "gaussian",
    original.PartitionSelectionStrategy.WEIGHTED_GAUSSIAN_THRESHOLDING: "weighted_gaussian",
}
NORMS = {NormKind.L1: "l1", NormKind.L2: "l2", NormKind.Linf: "linf"}
OURS_TO_THEIRS = {"min_users": "pre_threshold", "max_norm": "vector_max_norm", "size": "vector_size"}
"""Fields that PipelineDP calls otherwise."""

PERCENTILES = "percentiles"
_HALF = 0.5
"""Of what a metric weighs: a count that selects too is asked for once in PipelineDP, and by a metric and a selection here."""
_M = original.Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One field of the published tuple.

    Args:
        name: as PipelineDP has it.
        column: of the released table.
        place: in the list that the column holds, or None for a plain number.
        vector: whether the list is the value.
    """

    name: str
    column: str
    place: int | None = None
    vector: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """One aggregation.

    Args:
        query: what is released.
        fields: of the tuple; empty where the keys alone are released.
        vector_size: numbers in a value, where values are vectors.
        single: whether the one field is published without its tuple.
    """

    query: dp.Query
    fields: tuple[Field, ...]
    vector_size: int | None = None
    single: bool = False

    @property
    def reads_value(self) -> bool:
        """Whether a metric looks at values."""
        return bool(self.query.value_columns)

    def results(self, table: pa.Table) -> Iterator[Any]:
        """What PipelineDP gives for the rows of a released table."""
        found = [keys.decoded(cell) for cell in table.column(PARTITION).to_pylist()]
        if not self.fields:
            yield from found
            return
        columns = [_values(table, field) for field in self.fields]
        if self.single:
            yield from zip(found, columns[0], strict=True)
            return
        names = tuple(field.name for field in self.fields)
        for key, *values in zip(found, *columns, strict=True):
            yield key, metrics_tuple(names, values)


def _values(table: pa.Table, field: Field) -> Iterable[Any]:
    column = table.column(field.column).to_pylist()
    if field.vector:
        return [np.array(value) for value in column]
    return column if field.place is None else [value[field.place] for value in column]


_TUPLES: dict[tuple[str, ...], type] = {}


def metrics_tuple(names: tuple[str, ...], values: Iterable[Any]) -> Any:
    """A named tuple that travels between workers by its fields' names.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(metrics_tuple(("count", "sum"), (3.0, 4.5))))
    MetricsTuple(count=3.0, sum=4.5)
    """
    if names not in _TUPLES:
        make: Any = collections.namedtuple
        made = make("MetricsTuple", names)
        made.__reduce__ = lambda self: (metrics_tuple, (names, tuple(self)))
        _TUPLES[names] = made
    return _TUPLES[names](*values)


def asked(params: Any, *, public: Iterable[Any] | None, has_ids: bool) -> Asked:
    """The query of an aggregation.

    Args:
        params: AggregateParams.
        public: the public partitions, or None.
        has_ids: whether there is a privacy id extractor.

    Raises:
        RequestError: what is asked has no counterpart here.
    """
    if not isinstance(params, original.AggregateParams):
        raise RequestError(
            field="params", message="must be AggregateParams", hint="write pipeline_dp.AggregateParams(...)"
        )
    if params.custom_combiners:
        refuse_combiners("custom_combiners")
    _check_flags(params, public is not None)
    wanted = list(params.metrics or ())
    if not wanted:
        raise RequestError(
            field="metrics",
            message="must name at least one",
            hint="use select_partitions to release only the partitions",
        )
    if not has_ids:
        rows = params.max_contributions or params.max_contributions_per_partition
        summed = params.bounds_per_partition_are_set or _M.VECTOR_SUM in wanted
        if _M.PRIVACY_ID_COUNT in wanted:
            raise RequestError(
                field="metrics", message="counts privacy ids, but there are none", hint="add an extractor"
            )
        _check_without_ids(params, rows, summed=summed, public=public is not None)
    with _their_names():
        bounds = dp.ContributionBounds(
            max_partitions_contributed=params.max_partitions_contributed,
            max_contributions_per_partition=params.max_contributions_per_partition,
            max_contributions=params.max_contributions,
        )
        metrics, fields = _metrics(params, wanted)
        query = dp.Query(
            privacy_unit=UNIT,
            partition_by=PARTITION,
            bounds=bounds,
            metrics=metrics,
            partitions=_public(public) if public is not None else _private(params),
        )
    size = params.vector_size if _M.VECTOR_SUM in wanted else None
    return Asked(query=query, fields=tuple(fields), vector_size=size)


def selected(params: Any, *, has_ids: bool) -> Asked:
    """The query of a selection of partitions. Arguments and errors as for `asked`."""
    if not isinstance(params, original.SelectPartitionsParams):
        raise RequestError(
            field="params",
            message="must be SelectPartitionsParams",
            hint="write pipeline_dp.SelectPartitionsParams(...)",
        )
    if not has_ids:
        _check_without_ids(params, 1, summed=False, public=False)
    with _their_names():
        bounds = dp.ContributionBounds(max_partitions_contributed=params.max_partitions_contributed)
        query = dp.Query(privacy_unit=UNIT, partition_by=PARTITION, bounds=bounds, partitions=_private(params))
    return Asked(query=query, fields=())


def refuse_combiners(field: str) -> None:
    """Refuse functions of one's own that would add their own noise.

    Raises:
        RequestError: always.
    """
    raise RequestError(
        field=field,
        message="would draw noise of its own, which no plan accounts for",
        hint="use a metric, or SampleAndAggregate for a function of your own",
    )


def _metrics(params: Any, wanted: list[Any]) -> tuple[dict[str, dp.Metric], list[Field]]:
    """Our metrics by name, and the fields, in PipelineDP's order. Weights are such that budget is shared as it is there."""
    metrics: dict[str, dp.Metric] = {}
    fields: list[Field] = []
    clips = params.bounds_per_partition_are_set
    of_value = {"min_value": params.min_value, "max_value": params.max_value}
    of_sum = (
        {"min_sum_per_partition": params.min_sum_per_partition, "max_sum_per_partition": params.max_sum_per_partition}
        if clips
        else of_value
    )
    moment: Any = next((m for m in (_M.VARIANCE, _M.MEAN) if m in wanted), None)
    together: list[Any] = [m for m in dict.fromkeys((moment, _M.COUNT, _M.SUM, _M.MEAN)) if m in wanted]
    # PipelineDP asks once for a variance and twice for a mean, whatever else comes out of the same sums.
    whole = {None: float(len(together)), _M.VARIANCE: 1.0, _M.MEAN: 2.0}[moment]
    for metric in together:
        weight = whole / len(together)
        if metric == _M.COUNT:
            metrics["count"] = dp.Count(weight=weight)
        elif metric == _M.SUM:
            metrics["sum"] = dp.Sum(VALUE, weight=weight, **of_sum)
        elif metric == _M.MEAN:
            metrics["mean"] = dp.Mean(VALUE, weight=weight, nullable=False, **of_value)
        else:
            metrics["variance"] = dp.Variance(VALUE, weight=weight, nullable=False, **of_value)
        name = metric.name.lower()
        fields += _fields(name, params.output_noise_stddev and moment is None)
    if _M.PRIVACY_ID_COUNT in wanted:
        metrics["privacy_id_count"] = dp.PrivacyIdCount(weight=_HALF if params.post_aggregation_thresholding else 1.0)
        fields += _fields("privacy_id_count", params.output_noise_stddev and not params.post_aggregation_thresholding)
    if _M.VECTOR_SUM in wanted:
        metrics["vector_sum"] = _vector_sum(params)
        fields.append(Field(name="vector_sum", column="vector_sum", vector=True))
    percentiles = [metric.parameter for metric in wanted if metric.is_percentile]
    if percentiles and _M.VECTOR_SUM in wanted:
        raise RequestError(
            field="metrics",
            message="combine percentiles with VECTOR_SUM, whose values are not numbers",
            hint="aggregate twice",
        )
    if percentiles:
        quantiles = sorted({_quantile(percentile) for percentile in percentiles})
        metrics[PERCENTILES] = dp.Quantiles(VALUE, quantiles=quantiles, **of_value)
        for percentile in dict.fromkeys(percentiles):
            place = quantiles.index(_quantile(percentile))
            fields.append(Field(name=_percentile_name(percentile), column=PERCENTILES, place=place))
    return metrics, fields


def _fields(name: str, stddev: bool) -> list[Field]:
    found = [Field(name=name, column=name)]
    return [*found, Field(name=f"{name}_noise_stddev", column=f"{name}_stddev")] if stddev else found


def _quantile(percentile: Any) -> float:
    if isinstance(percentile, bool) or not isinstance(percentile, (int, float)) or not 0 <= percentile <= 100:
        raise RequestError(field="metrics", message="has a percentile that is not a number from 0 to 100")
    return percentile / 100


def _percentile_name(percentile: float) -> str:
    whole = round(percentile)
    digits = str(whole) if whole == percentile else np.format_float_positional(percentile)  # no 1e-05
    return "percentile_" + digits.replace(".", "_")


def _vector_sum(params: Any) -> dp.VectorSum:
    if params.vector_norm_kind not in NORMS:
        raise RequestError(
            field="vector_norm_kind",
            message="must be Linf, L1 or L2",
            hint="write pipeline_dp.NormKind.L2, for instance",
        )
    norm: Any = NORMS[params.vector_norm_kind]
    return dp.VectorSum(VALUE, size=params.vector_size, norm=norm, max_norm=params.vector_max_norm)


def _private(params: Any) -> dp.PrivatePartitions:
    strategy: Any = STRATEGIES[params.partition_selection_strategy]
    if getattr(params, "post_aggregation_thresholding", False):
        if _M.PRIVACY_ID_COUNT not in params.metrics:
            raise RequestError(
                field="post_aggregation_thresholding",
                message="needs the noisy PRIVACY_ID_COUNT for comparison",
                hint="add it to metrics, or drop the flag",
            )
        strategy = "laplace" if params.noise_kind == original.NoiseKind.LAPLACE else "gaussian"
        return dp.PrivatePartitions(strategy=strategy, min_users=params.pre_threshold or 0, weight=_HALF)
    return dp.PrivatePartitions(strategy=strategy, min_users=params.pre_threshold or 0)


def _public(partitions: Iterable[Any]) -> dp.PublicPartitions:
    listed = []
    for key in partitions:
        try:
            listed.append(keys.encode(key))
        except TypeError as error:
            raise RequestError(
                field="public_partitions",
                message=f"holds a {type(key).__name__}, which {error}",
                hint=KEY_HINT,
            ) from None
    if not listed:
        raise RequestError(field="public_partitions", message="must name at least one partition")
    return dp.PublicPartitions(keys=[(key,) for key in dict.fromkeys(listed)])


def _check_flags(params: Any, public: bool) -> None:
    if params.public_partitions_already_filtered and not public:
        raise RequestError(
            field="public_partitions_already_filtered",
            message="would publish every partition of the data: which partitions exist is private",
            hint="list public_partitions, or drop the flag",
        )
    if params.post_aggregation_thresholding and public:
        raise RequestError(
            field="post_aggregation_thresholding",
            message="applies to selected partitions, but these are public",
            hint="drop the flag, or public_partitions",
        )


def _check_without_ids(params: Any, rows: int, *, summed: bool, public: bool) -> None:
    """Each row is a unit of its own then, and the true unit is behind so many of them as the bounds say."""
    if not params.contribution_bounds_already_enforced:
        raise RequestError(
            field="privacy_id_extractor",
            message="is missing, so nobody's contributions can be bounded",
            hint="add one, or declare contribution_bounds_already_enforced=True",
        )
    if rows > 1 and (summed or not public):
        raise RequestError(
            field="privacy_id_extractor",
            message="is missing, but one person may have several rows in a partition: "
            + ("their sum cannot be clipped" if summed else "people cannot be counted for the selection"),
            hint="give one"
            + ("" if summed else ", list public_partitions")
            + ", or have only one row per person there",
        )
    if not public and params.partition_selection_strategy.is_weighted_gaussian:
        raise RequestError(
            field="privacy_id_extractor",
            message="is missing, so a person's weight cannot be spread over that person's partitions",
            hint="add one, or choose another partition_selection_strategy",
        )


@contextlib.contextmanager
def _their_names() -> Iterator[None]:
    """Errors name PipelineDP's fields."""
    try:
        yield
    except RequestError as error:
        field = OURS_TO_THEIRS.get(error.field, error.field)
        raise type(error)(field=field, message=error.message, hint=error.hint) from None
