"""What PipelineDP's own tests assert of its engine, asserted of the drop-in. original_tests.txt says which stands for which."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from tests.helpers.drop_in import M, Row, extractors, local, ours, theirs

LAPLACE, GAUSSIAN = theirs.NoiseKind.LAPLACE, theirs.NoiseKind.GAUSSIAN
S = theirs.PartitionSelectionStrategy
LARGE = {"epsilon": 1000.0, "delta": 0.99}
"""A budget under which numbers are nearly exact, and everything is kept."""

TINY = 1e-13
"""A delta with which a partition of up to three people is published with a probability below 1e-11."""

ONE_ROW = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
NO_IDS = extractors(privacy_id_extractor=None)


def params(*metrics: Any, **more: Any) -> Any:
    return theirs.AggregateParams(**{"metrics": list(metrics), "noise_kind": GAUSSIAN, **ONE_ROW, **more})


def rows_of(**people: int) -> list[Row]:
    """So many people with a row in each of these partitions, each person in one."""
    return [Row((where, who), where, 1.0) for where, count in people.items() for who in range(count)]


COUNT = params(M.COUNT)
SELECTION = theirs.SelectPartitionsParams(max_partitions_contributed=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"col": None},
        {"params": None},
        {"params": 7},
        {"data_extractors": None},
        {"data_extractors": 7},
    ],
    ids=["no rows", "no parameters", "other parameters", "no extractors", "other extractors"],
)
def test_a_wrong_argument_is_refused_when_the_aggregation_is_declared(wrong: dict[str, Any]) -> None:
    engine = ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-10), ours.LocalBackend())
    right = {"col": [Row(1, 1, 1.0)], "params": COUNT, "data_extractors": extractors()}
    with pytest.raises((ValueError, TypeError)):
        engine.aggregate(**{**right, **wrong})


@pytest.mark.parametrize("wrong", [{"col": None}, {"params": COUNT}, {"params": None}, {"data_extractors": 7}])
def test_a_wrong_argument_is_refused_when_the_selection_is_declared(wrong: dict[str, Any]) -> None:
    engine = ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-10), ours.LocalBackend())
    with pytest.raises((ValueError, TypeError)):
        engine.select_partitions(**{"col": [1], "params": SELECTION, "data_extractors": extractors(), **wrong})


def test_an_engine_needs_an_accountant_and_a_backend() -> None:
    for accountant, backend in ((None, ours.LocalBackend()), (ours.NaiveBudgetAccountant(1, 1e-6), None)):
        with pytest.raises(ValueError, match="import NaiveBudgetAccountant|must be BeamBackend"):
            ours.DPEngine(accountant, backend)


def test_no_rows_decide_no_error() -> None:
    """The original refuses an empty list; whether there are rows is private."""
    assert local(ours, [], COUNT) == []
    assert [key for key, _ in local(ours, [], COUNT, public=["a"])] == ["a"]


def test_a_threshold_on_counts_of_people_needs_that_count() -> None:
    with pytest.raises(ValueError, match="post_aggregation_thresholding: needs the noisy PRIVACY_ID_COUNT"):
        local(ours, [], params(M.COUNT, post_aggregation_thresholding=True))


def test_reports_tell_parameters_bounds_and_selection_of_each_aggregation() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-10)
    engine = ours.DPEngine(accountant, ours.LocalBackend())
    values = {"min_value": 1, "max_value": 5}
    engine.aggregate(
        [], params(M.PRIVACY_ID_COUNT, M.COUNT, M.MEAN, max_partitions_contributed=3, **values), extractors()
    )
    engine.aggregate([], params(M.SUM, M.MEAN, max_contributions_per_partition=2, **values), extractors(), [1, 2])
    engine.select_partitions([], theirs.SelectPartitionsParams(2), extractors())
    accountant.compute_budgets()
    first, second, third = engine.explain_computations_report()
    for words in ("method: aggregate", "['PRIVACY_ID_COUNT', 'COUNT', 'MEAN']", "noise_kind=gaussian", "max_value=5"):
        assert words in first
    assert "private partitions" in first
    assert "by a keyed hash: 3; rows in each: 1" in first
    assert "Private partition selection by truncated_geometric" in first
    assert "metrics=['SUM', 'MEAN']" in second
    assert "public partitions" in second
    assert "rows in each: 2" in second
    assert "method: select_partitions" in third
    assert "max_partitions_contributed=2" in third


@pytest.mark.parametrize("more", [{}, {"perform_cross_partition_contribution_bounding": False}], ids=["on", "off"])
def test_one_person_counts_in_one_partition_and_with_one_row_there(more: dict[str, Any]) -> None:
    rows = [Row("busy", where, 1.0) for where in range(10) for _ in range(20)]
    found = local(ours, rows, params(M.COUNT, **more), public=list(range(10)), **LARGE)
    assert abs(sum(metrics.count for _, metrics in found) - 1) < 2


@pytest.mark.parametrize("more", [{}, {"perform_cross_partition_contribution_bounding": False}], ids=["on", "off"])
def test_the_sum_of_one_person_in_a_partition_is_clipped_whatever_the_rows(more: dict[str, Any]) -> None:
    rows = [Row("one", 0, value) for value in [1.0] * 1000 + [-1.0] * 1005]
    clipped = params(M.SUM, min_sum_per_partition=-3, max_sum_per_partition=1, **more)
    ((_, metrics),) = local(ours, rows, clipped, public=[0], **LARGE)
    assert abs(metrics.sum + 3) < 2


def test_partitions_that_are_not_listed_are_dropped_and_listed_ones_without_rows_are_there() -> None:
    rows = [Row(who, f"pk{who}", 1.0) for who in range(10)]
    asked = params(M.COUNT, M.SUM, M.PRIVACY_ID_COUNT, min_value=0, max_value=1)
    found = local(ours, rows, asked, public=["pk0", "pk10", "pk11"], **LARGE)
    assert [key for key, _ in found] == ["pk0", "pk10", "pk11"]
    for (_, metrics), exact in zip(found, (1, 0, 0), strict=True):
        assert all(abs(number - exact) < 1 for number in metrics)


def test_a_promise_that_rows_are_filtered_publishes_no_partition_that_is_not_listed() -> None:
    """The original publishes every partition of the rows then."""
    asked = params(M.COUNT, public_partitions_already_filtered=True)
    found = local(ours, rows_of(a=1, secret=5), asked, public=["a", "b"])
    assert [key for key, _ in found] == ["a", "b"]


@pytest.mark.parametrize("strategy", [S.TRUNCATED_GEOMETRIC, S.LAPLACE_THRESHOLDING, S.GAUSSIAN_THRESHOLDING])
def test_partitions_with_many_people_are_kept_and_others_dropped(strategy: Any) -> None:
    asked = params(M.COUNT, partition_selection_strategy=strategy)
    found = local(ours, rows_of(many=300, few=2), asked, epsilon=2, delta=TINY)
    assert [key for key, _ in found] == ["many"]


@pytest.mark.parametrize("strategy", [S.TRUNCATED_GEOMETRIC, S.LAPLACE_THRESHOLDING, S.GAUSSIAN_THRESHOLDING])
def test_partitions_below_a_declared_number_of_people_are_dropped(strategy: Any) -> None:
    selection = theirs.SelectPartitionsParams(1, partition_selection_strategy=strategy, pre_threshold=100)
    assert local(ours, rows_of(small=60, large=400), selection, epsilon=2) == ["large"]
    asked = params(M.COUNT, partition_selection_strategy=strategy, pre_threshold=100)
    assert [key for key, _ in local(ours, rows_of(small=60, large=400), asked, epsilon=2)] == ["large"]


def test_a_large_budget_keeps_everything_nearly_as_it_is() -> None:
    found = local(ours, rows_of(a=10, b=20), COUNT, epsilon=1e5, delta=1e-10)
    assert [key for key, _ in found] == ["a", "b"]
    assert all(abs(metrics.count - exact) < 1 for (_, metrics), exact in zip(found, (10, 20), strict=True))


def test_a_small_budget_drops_partitions_of_one_person() -> None:
    assert local(ours, [Row(who, who, 1.0) for who in range(100)], COUNT, delta=TINY) == []


def test_only_a_partition_of_many_people_after_bounding_is_selected() -> None:
    rows = rows_of(**{"many people": 80})
    rows += [Row(("loud", number // 10), "many rows of few", 1.0) for number in range(30)]
    rows += rows_of(**{"few people": 3})
    rows += [Row(("everywhere", who), f"shared {where}", 1.0) for where in range(30) for who in range(25)]
    assert local(ours, rows, SELECTION, delta=TINY) == ["many people"]


@pytest.mark.parametrize(("partitions", "kept"), [(1, ["medium", "many"]), (100, ["many"])])
def test_each_row_is_a_person_where_bounds_are_enforced_already(partitions: int, kept: list[str]) -> None:
    selection = theirs.SelectPartitionsParams(partitions, contribution_bounds_already_enforced=True)
    rows = [Row(None, "many", 1.0)] * 8000 + [Row(None, "medium", 1.0)] * 80 + [Row(None, "few", 1.0)]
    assert sorted(local(ours, rows, selection, of=NO_IDS, delta=TINY)) == sorted(kept)


def test_sums_without_ids_are_sums() -> None:
    asked = params(M.SUM, min_value=0, max_value=1, contribution_bounds_already_enforced=True)
    found = local(ours, rows_of(a=1, b=1, c=1), asked, of=NO_IDS, public=["a", "b", "c"], **LARGE)
    assert all(abs(metrics.sum - 1) < 1 for _, metrics in found)


def test_people_cannot_be_counted_without_ids_where_they_have_several_rows() -> None:
    asked = params(M.COUNT, max_contributions_per_partition=42, contribution_bounds_already_enforced=True)
    with pytest.raises(ValueError, match="privacy_id_extractor: is missing"):
        local(ours, rows_of(a=1), asked, of=NO_IDS)


@pytest.mark.parametrize("pld", [False, True])
def test_a_count_of_one_public_partition_is_one_result_with_a_report(pld: bool) -> None:
    accountant = (ours.PLDBudgetAccountant if pld else ours.NaiveBudgetAccountant)(1, 1e-3, num_aggregations=1)
    report = ours.ExplainComputationReport()
    asked = params(M.COUNT, M.SUM, M.MEAN, min_value=0, max_value=1)
    engine = ours.DPEngine(accountant, ours.LocalBackend())
    found = engine.aggregate([Row(1, 1, 1.0)], asked, extractors(), [2], report)
    accountant.compute_budgets()
    assert [key for key, _ in found] == [2]
    assert "metrics=['COUNT', 'SUM', 'MEAN']" in report.text()


@pytest.mark.slow
def test_a_large_budget_keeps_partitions_in_beam_too() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(1e5, 0.99, num_aggregations=1)
        rows = pipeline | beam.Create(rows_of(**{str(where): 2 for where in range(5)}))
        asked = params(M.COUNT, M.SUM, noise_kind=LAPLACE, min_value=1, max_value=10)
        found = ours.DPEngine(accountant, ours.BeamBackend()).aggregate(rows, asked, extractors())
        accountant.compute_budgets()

        def check(results: list[Any]) -> None:
            assert sorted(key for key, _ in results) == ["0", "1", "2", "3", "4"]

        assert_that(found, check)


def test_counts_of_people_above_the_threshold_are_what_is_released() -> None:
    rows = [Row((where, who), where, 1.0) for where in range(1000) for who in range(3)]
    asked = params(M.PRIVACY_ID_COUNT, noise_kind=LAPLACE, post_aggregation_thresholding=True)
    found = local(ours, rows, asked, epsilon=10, delta=1e-10)
    # On average 24 are kept, each by its own noise: none with a probability of 3e-11.
    assert 0 < len(found) < 1000
    assert min(metrics.privacy_id_count for _, metrics in found) > 3.0


def test_a_variance_is_released_under_either_accountant() -> None:
    """The original refuses it under its PLD accountant."""
    asked = params(M.VARIANCE, min_value=0, max_value=1)
    rows = [Row(who, 1, float(who % 2)) for who in range(2000)]
    ((_, metrics),) = local(ours, rows, asked, public=[1], pld=True)
    assert abs(metrics.variance - 0.25) < 0.1


def test_a_bound_on_rows_in_all_works_for_a_variance_too() -> None:
    """The original refuses it."""
    asked = theirs.AggregateParams(metrics=[M.VARIANCE], max_contributions=1, min_value=0, max_value=1)
    rows = [Row(who, 1, float(who % 2)) for who in range(2000) for _ in range(2)]
    ((_, metrics),) = local(ours, rows, asked, public=[1])
    assert abs(metrics.variance - 0.25) < 0.1


def test_numbers_that_were_aggregated_elsewhere_get_no_noise_here() -> None:
    engine = ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-8), ours.LocalBackend())
    with pytest.raises(ValueError, match="add_dp_noise: .+; aggregate the rows"):
        engine.add_dp_noise([(0, 0)], theirs.AddDPNoiseParams(LAPLACE, l0_sensitivity=1, linf_sensitivity=1))


def test_bounds_from_the_data_are_left_to_a_job_file() -> None:
    engine = ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-8), ours.LocalBackend())
    with pytest.raises(ValueError, match="max_partitions_contributed: auto"):
        engine.calculate_private_contribution_bounds([], None, extractors(), [])
