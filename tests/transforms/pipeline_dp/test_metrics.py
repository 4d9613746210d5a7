"""What maps to what, and what is refused: before a row is read, with field, message and hint."""

import pickle
from typing import Any

import apache_beam as beam
import pytest

import dp_pipelines as dp
from dp_pipelines.errors import BudgetError, RequestError
from tests.helpers.drop_in import M, Row, extractors, metrics, ours, theirs

S = theirs.PartitionSelectionStrategy
LINEAR = {"max_partitions_contributed": 3, "max_contributions_per_partition": 2}
VALUES = {"min_value": 0, "max_value": 5}
SUMS = {"min_sum_per_partition": -1, "max_sum_per_partition": 9}


def asked(wanted: list[Any], *, public: Any = None, has_ids: bool = True, **params: Any) -> metrics.Asked:
    given = params if "max_contributions" in params else {**LINEAR, **params}
    return metrics.asked(theirs.AggregateParams(metrics=wanted, **given), public=public, has_ids=has_ids)


@pytest.mark.parametrize(
    ("wanted", "params", "found"),
    [
        ([M.COUNT], {}, {"count": dp.Count()}),
        ([M.PRIVACY_ID_COUNT], {}, {"privacy_id_count": dp.PrivacyIdCount()}),
        ([M.SUM], VALUES, {"sum": dp.Sum("value", min_value=0, max_value=5)}),
        ([M.SUM], SUMS, {"sum": dp.Sum("value", **SUMS)}),
        ([M.MEAN], VALUES, {"mean": dp.Mean("value", **VALUES, nullable=False, weight=2)}),
        ([M.VARIANCE], VALUES, {"variance": dp.Variance("value", **VALUES, nullable=False)}),
        (
            [M.PERCENTILE(99), M.PERCENTILE(50)],
            VALUES,
            {"percentiles": dp.Quantiles("value", quantiles=[0.5, 0.99], **VALUES)},
        ),
        (
            [M.VECTOR_SUM],
            {"vector_size": 4, "vector_max_norm": 2, "vector_norm_kind": ours.NormKind.Linf},
            {"vector_sum": dp.VectorSum("value", size=4, norm="linf", max_norm=2)},
        ),
    ],
)
def test_a_metric_maps_to_ours(wanted: list[Any], params: dict[str, Any], found: dict[str, Any]) -> None:
    assert dict(asked(wanted, **params).query.metrics) == found


def test_a_percentile_of_any_size_has_a_name() -> None:
    found = asked([M.PERCENTILE(1e-5), M.PERCENTILE(12.5), M.PERCENTILE(90.0)], **VALUES).fields
    names = tuple(field.name for field in found)
    assert names == ("percentile_0_00001", "percentile_12_5", "percentile_90")
    assert metrics.metrics_tuple(names, (1, 2, 3)).percentile_0_00001 == 1


def test_what_comes_out_of_the_same_sums_weighs_as_much_as_it_asks_for_in_the_original() -> None:
    def weight(*wanted: Any) -> float:
        return sum(metric.weight for metric in asked(list(wanted), **VALUES).query.metrics.values())

    assert weight(M.COUNT, M.SUM) == weight(M.MEAN) == weight(M.MEAN, M.COUNT, M.SUM) == 2
    assert weight(M.VARIANCE, M.MEAN) == 1
    assert weight(M.VARIANCE, M.MEAN, M.COUNT, M.SUM) == 1
    assert weight(M.MEAN, M.PRIVACY_ID_COUNT, M.PERCENTILE(1), M.PERCENTILE(2)) == 4


@pytest.mark.parametrize(
    ("theirs_", "strategy"),
    [
        (S.TRUNCATED_GEOMETRIC, "truncated_geometric"),
        (S.LAPLACE_THRESHOLDING, "laplace"),
        (S.GAUSSIAN_THRESHOLDING, "gaussian"),
        (S.WEIGHTED_GAUSSIAN_THRESHOLDING, "weighted_gaussian"),
    ],
)
def test_a_strategy_maps_to_ours(theirs_: Any, strategy: str) -> None:
    assert asked([M.COUNT], partition_selection_strategy=theirs_).query.partitions.strategy == strategy


def test_bounds_and_thresholds_map_to_ours() -> None:
    assert asked([M.COUNT]).query.bounds == dp.ContributionBounds(**LINEAR)
    assert asked([M.COUNT], max_contributions=7).query.bounds == dp.ContributionBounds(max_contributions=7)
    assert asked([M.COUNT], pre_threshold=7).query.partitions.min_users == 7
    compared = asked([M.COUNT, M.PRIVACY_ID_COUNT], post_aggregation_thresholding=True)
    assert compared.query.partitions.strategy == "laplace"
    assert sum(metric.weight for metric in compared.query.metrics.values()) + compared.query.partitions.weight == 2


def test_public_partitions_are_listed_once() -> None:
    query = asked([M.COUNT], public=["a", 1, "a"]).query
    assert len(query.partitions.keys) == 2


def test_a_result_travels_between_workers() -> None:
    found = metrics.metrics_tuple(("count", "sum"), (1.0, 2.0))
    assert pickle.loads(pickle.dumps(found)) == found == (1.0, 2.0)
    assert repr(found) == "MetricsTuple(count=1.0, sum=2.0)"


@pytest.mark.parametrize(
    ("field", "wanted", "params"),
    [
        ("metrics", [], {}),
        ("metrics", [M.PERCENTILE(101)], VALUES),
        ("max_value", [M.SUM], {"min_value": 0, "max_value": 0}),
        ("min_value", [M.MEAN], {"min_value": 1, "max_value": 1}),
        ("vector_norm_kind", [M.VECTOR_SUM], {"vector_size": 4, "vector_max_norm": 2}),
        ("vector_size", [M.VECTOR_SUM], {"vector_max_norm": 2, "vector_norm_kind": ours.NormKind.L1}),
        ("vector_max_norm", [M.VECTOR_SUM], {"vector_size": 2, "vector_norm_kind": ours.NormKind.L1}),
        (
            "pre_threshold",
            [M.COUNT],
            {"pre_threshold": 9, "partition_selection_strategy": S.WEIGHTED_GAUSSIAN_THRESHOLDING},
        ),
        ("public_partitions_already_filtered", [M.COUNT], {"public_partitions_already_filtered": True}),
        ("post_aggregation_thresholding", [M.COUNT], {"post_aggregation_thresholding": True}),
        ("post_aggregation_thresholding", [M.PRIVACY_ID_COUNT], {"post_aggregation_thresholding": True, "public": [1]}),
        ("public_partitions", [M.COUNT], {"public": []}),
        ("public_partitions", [M.COUNT], {"public": [object()]}),
        ("privacy_id_extractor", [M.COUNT], {"has_ids": False}),
        ("privacy_id_extractor", [M.COUNT], {"has_ids": False, "contribution_bounds_already_enforced": True}),
        (
            "privacy_id_extractor",
            [M.SUM],
            {"has_ids": False, "contribution_bounds_already_enforced": True, "public": [1], **SUMS},
        ),
        (
            "privacy_id_extractor",
            [M.COUNT],
            {
                "has_ids": False,
                "contribution_bounds_already_enforced": True,
                "max_contributions_per_partition": 1,
                "partition_selection_strategy": S.WEIGHTED_GAUSSIAN_THRESHOLDING,
            },
        ),
    ],
)
def test_what_has_no_counterpart_is_refused(field: str, wanted: list[Any], params: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        asked(wanted, **params)
    assert refused.value.field == field
    assert refused.value.message


class Combiner:
    """A combiner of one's own, as far as parameters look at it."""

    def metrics_names(self) -> list[str]:
        return ["own"]


def engine(backend: Any = None) -> Any:
    return ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-6), backend or ours.LocalBackend())


COUNT = theirs.AggregateParams(metrics=[M.COUNT], **LINEAR)


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("params", lambda: engine().aggregate([], theirs.SelectPartitionsParams(1), extractors())),
        ("params", lambda: engine().select_partitions([], COUNT, extractors())),
        ("data_extractors", lambda: engine().aggregate([], COUNT, object())),
        (
            "data_extractors",
            lambda: engine().aggregate(
                [], COUNT, theirs.data_extractors.MultiValueDataExtractors(value_extractors=[len])
            ),
        ),
        ("backend", lambda: ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-6), ours.SparkRDDBackend(None))),
        ("partition_extractor", lambda: engine().aggregate([], COUNT, extractors(partition_extractor=None))),
        (
            "value_extractor",
            lambda: engine().aggregate(
                [], theirs.AggregateParams(metrics=[M.SUM], **LINEAR, **VALUES), extractors(value_extractor=None)
            ),
        ),
        (
            "privacy_id_extractor",
            lambda: engine().select_partitions(
                [], theirs.SelectPartitionsParams(1), extractors(privacy_id_extractor=None)
            ),
        ),
        (
            "custom_combiners",
            lambda: engine().aggregate(
                [], theirs.AggregateParams(metrics=None, custom_combiners=[Combiner()], **LINEAR), extractors()
            ),
        ),
        ("col", lambda: engine().aggregate(beam.Pipeline() | beam.Create([1]), COUNT, extractors())),
        ("col", lambda: engine(ours.BeamBackend()).aggregate([1], COUNT, extractors())),
        ("col", lambda: engine().aggregate(7, COUNT, extractors())),
        (
            "public_partitions",
            lambda: engine(ours.BeamBackend()).aggregate(
                rows := beam.Pipeline() | beam.Create([1]) | beam.Map(str), COUNT, extractors(), rows
            ),
        ),
        ("public_partitions", lambda: engine().aggregate([], COUNT, extractors(), "north")),
        ("public_partitions", lambda: engine().aggregate([], COUNT, extractors(), 7)),
        ("public_partitions", lambda: engine().aggregate([], COUNT, extractors(), [10**5000])),
        (
            "metrics",
            lambda: asked(
                [M.VECTOR_SUM, M.PERCENTILE(50)],
                vector_size=2,
                vector_max_norm=1,
                vector_norm_kind=ours.NormKind.L2,
                **VALUES,
            ),
        ),
        ("add_dp_noise", lambda: engine().add_dp_noise([], None)),
        ("calculate_private_contribution_bounds", lambda: engine().calculate_private_contribution_bounds([], None)),
        ("budget_accountant", lambda: ours.DPEngine(theirs.NaiveBudgetAccountant(1, 1e-6), ours.LocalBackend())),
        ("backend", lambda: ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-6), theirs.PipelineBackend)),
        ("request_budget", lambda: ours.NaiveBudgetAccountant(1, 1e-6).request_budget(None)),
        ("plan", lambda: ours.NaiveBudgetAccountant(1, 1e-6).plan),
    ],
)
def test_what_cannot_be_done_is_refused(field: str, request_: Any) -> None:
    with pytest.raises(RequestError) as refused:
        request_()
    assert refused.value.field == field
    assert refused.value.hint


def test_a_row_that_was_invented_is_judged_aloud() -> None:
    assert ours.check_row(extractors(), Row("ann", "north", 3)) == ("ann", "north", 3)
    with pytest.raises(RequestError, match="partition_extractor: returns a list, which cannot be a key; use text"):
        ours.check_row(extractors(), Row("ann", ["north"], 3))
    with pytest.raises(AttributeError):
        ours.check_row(extractors(), "no row")


def test_a_budget_that_does_not_suffice_is_refused_before_a_row_is_read() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 0)
    ours.DPEngine(accountant, ours.LocalBackend()).aggregate(iter([]), COUNT, extractors())
    with pytest.raises((RequestError, BudgetError), match="delta: must be above 0"):
        accountant.compute_budgets()


def test_the_order_of_calls_is_checked() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6, num_aggregations=1)
    made = ours.DPEngine(accountant, ours.LocalBackend())
    result = made.aggregate([Row(1, 1, 1)], COUNT, extractors(), public_partitions=[1])
    with pytest.raises(RequestError, match="has no budget yet; call compute_budgets"):
        list(result)
    with pytest.raises(RequestError, match="has no budget yet"):
        made.explain_computations_report()
    with accountant.scope(weight=1), pytest.raises(RequestError, match="is called inside a scope"):
        accountant.compute_budgets()
    accountant.compute_budgets()
    assert len(list(result)) == 1
    assert "FlooredLaplace" in made.explain_computations_report()[0]
    with pytest.raises(RequestError, match="comes after compute_budgets"):
        made.aggregate([], COUNT, extractors())
    with pytest.raises(Exception, match="can not be called twice"):
        accountant.compute_budgets()
    with pytest.raises(ValueError, match="has to be positive"):
        ours.NaiveBudgetAccountant(1, 1e-6, num_aggregations=0)
    with pytest.raises(ValueError, match="num_aggregations"):
        ours.PLDBudgetAccountant(1, 1e-6, num_aggregations=1).compute_budgets()


def test_nothing_to_plan_is_no_error(caplog) -> None:
    ours.NaiveBudgetAccountant(1, 1e-6).compute_budgets()
    assert "no aggregation has requested budget" in caplog.text


def test_a_report_that_was_given_to_nothing_says_so() -> None:
    with pytest.raises(ValueError, match="was not passed to an aggregation"):
        ours.ExplainComputationReport().text()
