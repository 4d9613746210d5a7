"""What PipelineDP's own tests assert of its private transforms, asserted of the drop-in. See original_tests.txt."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from tests.helpers.drop_in import ours, private_beam, theirs

BOUNDS = {"noise_kind": theirs.NoiseKind.GAUSSIAN, "max_partitions_contributed": 1}
ROWS = {"max_contributions_per_partition": 1, "partition_extractor": lambda row: row[1]}
VALUES = {"min_value": 1.5, "max_value": 2.5, "value_extractor": lambda row: row[2]}
CASES = {
    # 30 values below the range and 10 above: their mean, the variance between the ends, their sum.
    "variance": (private_beam.Variance(theirs.VarianceParams(**BOUNDS, **ROWS, **VALUES)), 0.1875, 0.1),
    "mean": (private_beam.Mean(theirs.MeanParams(**BOUNDS, **ROWS, **VALUES)), 1.75, 0.1),
    "sum": (private_beam.Sum(theirs.SumParams(**BOUNDS, **ROWS, **VALUES)), 70, 10),
    "count": (private_beam.Count(theirs.CountParams(**BOUNDS, **ROWS)), 40, 5),
    "people": (
        private_beam.PrivacyIdCount(theirs.PrivacyIdCountParams(**BOUNDS, partition_extractor=lambda row: row[1])),
        40,
        5,
    ),
}
PUBLIC = {
    "mean": (private_beam.Mean(theirs.MeanParams(**BOUNDS, **ROWS, **VALUES), public_partitions=["a", "b"]), 1.75, 0.2),
    "sum": (private_beam.Sum(theirs.SumParams(**BOUNDS, **ROWS, **VALUES), public_partitions=["a", "b"]), 70, 10),
    "count": (private_beam.Count(theirs.CountParams(**BOUNDS, **ROWS), public_partitions=["a", "b"]), 40, 5),
}


def data() -> list[tuple[str, str, float]]:
    low = [(f"low {who}", "a", -100.0) for who in range(30)]
    return low + [(f"high {who}", "a", 100.0) for who in range(10)]


def private(pipeline: beam.Pipeline, accountant: Any, rows: list[Any]) -> Any:
    return pipeline | beam.Create(rows) | private_beam.MakePrivate(accountant, lambda row: row[0])


def near(expected: dict[str, float], tolerance: float) -> Any:
    def check(found: list[Any]) -> None:
        assert sorted(key for key, _ in found) == sorted(expected)
        assert all(abs(number - expected[key]) <= tolerance for key, number in found), found

    return check


@pytest.mark.slow
def test_each_metric_of_a_private_collection_is_near_the_truth_under_a_large_budget() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(39, 0.9, num_aggregations=len(CASES))
        rows = private(pipeline, accountant, data())
        found = {name: rows | name >> transform for name, (transform, _, _) in CASES.items()}
        accountant.compute_budgets()
        for name, (_, value, tolerance) in CASES.items():
            # A fifth of the budget each: as much noise as the tolerances of five.
            assert_that(found[name], near({"a": value}, 5 * tolerance), label=f"check {name}")


@pytest.mark.slow
def test_public_partitions_of_a_private_collection_are_released_and_no_others() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(800, 0.999, num_aggregations=len(PUBLIC))
        rows = private(pipeline, accountant, data() + [(f"else {who}", "c", 100.0) for who in range(30)])
        found = {name: rows | name >> transform for name, (transform, _, _) in PUBLIC.items()}
        accountant.compute_budgets()
        assert_that(found["sum"], near({"a": 70, "b": 0}, 10), label="sums")
        assert_that(found["count"], near({"a": 40, "b": 0}, 5), label="counts")
        # A mean of no rows is anywhere in the range.
        assert_that(found["mean"], near({"a": 1.75, "b": 2.0}, 0.6), label="means")


def test_partitions_of_a_private_collection_are_selected() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(800, 0.999, num_aggregations=1)
        rows = private(pipeline, accountant, [(f"{who}", f"pk{who % 2}", 0.0) for who in range(100)])
        selection = private_beam.SelectPartitions(
            select_partitions_params=theirs.SelectPartitionsParams(2),
            partition_extractor=lambda row: row[1],
            label="Selected",
        )
        keys = rows | selection
        accountant.compute_budgets()
        assert_that(keys | beam.Map(lambda key: (key, 0)), near({"pk0": 0, "pk1": 0}, 0))


def test_a_private_collection_knows_its_accountant_after_each_step() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    accountant = ours.NaiveBudgetAccountant(1, 0.01)
    rows = private(pipeline, accountant, data())
    for step in (private_beam.Map(fn=lambda row: row[2]), private_beam.FlatMap(lambda row: [row, row])):
        made = rows | step
        assert isinstance(made, private_beam.PrivatePCollection)
        assert rows._budget_accountant is made._budget_accountant is accountant


def test_private_collections_of_one_pipeline_need_no_labels() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    accountant = ours.NaiveBudgetAccountant(1, 0.01)
    rows = pipeline | beam.Create(data())
    for _ in range(2):
        assert isinstance(
            rows | private_beam.MakePrivate(accountant, lambda row: row[0]), private_beam.PrivatePCollection
        )


def test_a_combiner_with_noise_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="CombinePerKey: would draw noise of its own"):
        private_beam.CombinePerKey(None, None)
