"""The transforms of private collections, and the engine in pipelines: results, names of steps, and what is sent to workers."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from dp_pipelines.errors import RequestError
from tests.helpers.drop_in import M, Row, extractors, ours, private_beam, theirs
from tests.helpers.graph import proto, shuffles

ROWS = [Row(f"p{who}", ("day", who % 3), float(who % 2)) for who in range(3000)]
BOUNDS = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
VALUES = {
    "min_value": 0,
    "max_value": 1,
    "partition_extractor": lambda row: row.where,
    "value_extractor": lambda row: row.what,
}
KEY = {"partition_extractor": VALUES["partition_extractor"]}
ABOUT = {
    "sum": (private_beam.Sum, theirs.SumParams(**BOUNDS, **VALUES), 500, 150),
    "mean": (private_beam.Mean, theirs.MeanParams(**BOUNDS, **VALUES), 0.5, 0.2),
    "variance": (private_beam.Variance, theirs.VarianceParams(**BOUNDS, **VALUES), 0.25, 0.2),
    "count": (private_beam.Count, theirs.CountParams(noise_kind=theirs.NoiseKind.LAPLACE, **BOUNDS, **KEY), 1000, 150),
    "ids": (
        private_beam.PrivacyIdCount,
        theirs.PrivacyIdCountParams(theirs.NoiseKind.GAUSSIAN, max_partitions_contributed=1, **KEY),
        1000,
        150,
    ),
}


def near(value: float, tolerance: float) -> Any:
    def check(found: list[Any]) -> None:
        assert sorted(key for key, _ in found) == [("day", 0), ("day", 1), ("day", 2)]
        assert all(abs(number - value) < tolerance for _, number in found), found

    return check


def private(pipeline: beam.Pipeline, accountant: Any, rows: Any = ROWS) -> Any:
    made = pipeline | beam.Create(rows) | "Mine" >> private_beam.MakePrivate(accountant, lambda row: row.who)
    assert isinstance(made, ours.PrivatePCollection)
    return made


def test_all_metrics_of_a_private_collection_under_one_budget() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(6, 1e-5)
        rows = private(pipeline, accountant)
        results = {name: rows | name >> transform(params) for name, (transform, params, _, _) in ABOUT.items()}
        keys = rows | private_beam.SelectPartitions(theirs.SelectPartitionsParams(1), lambda row: row.where)
        accountant.compute_budgets()
        for name, (_, _, value, tolerance) in ABOUT.items():
            assert_that(results[name], near(value, tolerance), label=f"check {name}")
        assert_that(keys | beam.Map(lambda key: (key, 0)), near(0, 1), label="check keys")
    assert accountant.plan.accounted["epsilon"] <= 6


def test_map_and_flat_map_keep_the_id_and_public_partitions_are_released() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.PLDBudgetAccountant(9, 1e-6)
        pairs = private(pipeline, accountant) | private_beam.FlatMap(lambda row: [row.where, row.where, ("day", 9)])
        keys = pairs | private_beam.Map(lambda key: key[1])
        params = theirs.PrivacyIdCountParams(
            theirs.NoiseKind.LAPLACE, max_partitions_contributed=2, partition_extractor=lambda key: key
        )
        report = ours.ExplainComputationReport()
        counted = keys | private_beam.PrivacyIdCount(params, "Ids", [0, 9, 10], report)
        accountant.compute_budgets()

        def check(found: list[Any]) -> None:
            numbers = dict(found)
            assert all(abs(numbers.pop(key) - about) < 50 for key, about in {0: 1000, 9: 3000, 10: 0}.items())
            assert not numbers

        assert_that(counted, check)
    assert "units: FlooredLaplace noise" in report.text()


def test_a_pipeline_without_budgets_is_refused_when_it_is_run() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    private(pipeline, ours.NaiveBudgetAccountant(1, 1e-6)) | private_beam.Count(ABOUT["count"][1])
    with pytest.raises(RequestError, match="has no budget yet; call compute_budgets"):
        pipeline.run()


def test_a_second_run_of_a_pipeline_is_refused() -> None:
    pipeline = graph()
    pipeline.run().wait_until_finish()
    with pytest.raises(RequestError, match="has already been released by another run"):
        pipeline.run()


def graph() -> beam.Pipeline:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    rows = private(pipeline, accountant)
    for _ in range(2):
        rows | private_beam.Count(ABOUT["count"][1])
        rows | "Named" >> private_beam.Sum(ABOUT["sum"][1])
    accountant.compute_budgets()
    return pipeline


def names(pipeline: beam.Pipeline) -> list[str]:
    return sorted(transform.unique_name for transform in proto(pipeline).components.transforms.values())


def test_the_names_of_steps_do_not_depend_on_what_ran_before() -> None:
    first, second = names(graph()), names(graph())
    assert first == second
    assert {"Count", "Count_1", "Named", "Named_1"} <= set(first)


def test_two_shuffles_of_data_and_the_barrier_for_all_metrics_of_one_aggregation() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    params = theirs.AggregateParams(
        metrics=[M.COUNT, M.SUM, M.MEAN, M.PRIVACY_ID_COUNT], min_value=0, max_value=1, **BOUNDS
    )
    rows = pipeline | beam.Create(ROWS, reshuffle=False)
    ours.DPEngine(accountant, ours.BeamBackend()).aggregate(rows, params, extractors())
    accountant.compute_budgets()
    assert [name.rpartition("/")[2] for name in shuffles(pipeline)] == ["Barrier", "ByPlace", "ByShard"]


def test_workers_get_the_functions_of_our_own_transform() -> None:
    payloads = b"".join(t.spec.payload for t in proto(graph()).components.transforms.values())
    assert b"_Deferred" not in payloads


def test_rows_that_are_too_many_for_one_table_are_all_read(monkeypatch) -> None:
    monkeypatch.setattr("dp_pipelines.transforms.pipeline_dp.extract.BATCH_ROWS", 100)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(9, 1e-6)
        counted = private(pipeline, accountant) | private_beam.Count(ABOUT["count"][1])
        accountant.compute_budgets()
        assert_that(counted, near(1000, 50))


def test_no_rows_are_no_error() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(1, 1e-6)
        counted = private(pipeline, accountant, []) | private_beam.Count(ABOUT["count"][1])
        accountant.compute_budgets()
        assert_that(counted, equal_to([]))


def test_rows_without_ids_count_each_for_itself() -> None:
    params = theirs.AggregateParams(metrics=[M.COUNT], contribution_bounds_already_enforced=True, **BOUNDS)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(4, 1e-6)
        rows = pipeline | beam.Create(ROWS)
        engine = ours.DPEngine(accountant, ours.BeamBackend())
        found = engine.aggregate(rows, params, extractors(privacy_id_extractor=None))
        accountant.compute_budgets()
        assert_that(found | beam.MapTuple(lambda key, metrics: (key, metrics.count)), near(1000, 50))


KEYWORDS = {
    "variance_params": "variance",
    "mean_params": "mean",
    "sum_params": "sum",
    "count_params": "count",
    "privacy_id_count_params": "ids",
}


@pytest.mark.parametrize(("keyword", "name"), KEYWORDS.items())
def test_parameters_have_the_names_that_programs_write(keyword: str, name: str) -> None:
    transform, params, _, _ = ABOUT[name]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    made = transform(**{keyword: params}, label="Named", public_partitions=[1], out_explain_computaton_report=None)
    assert isinstance(private(pipeline, accountant) | made, beam.PCollection)
    assert made.label == "Named"


def test_parameters_of_another_metric_are_refused() -> None:
    with pytest.raises(TypeError, match="count_params: must be CountParams"):
        private_beam.Count(ABOUT["sum"][1])


@pytest.mark.parametrize(
    ("name", "transform"),
    [("Map", "Double" >> beam.Map(lambda row: row)), ("GroupByKey", beam.GroupByKey()), ("int", 3)],
)
def test_what_is_no_private_transform_is_named_in_a_type_error(name: str, transform: Any) -> None:
    rows = private(beam.Pipeline(runner=FnApiRunner()), ours.NaiveBudgetAccountant(1, 1e-6))
    with pytest.raises(TypeError, match=f"cannot be passed to {name}"):
        rows | transform


@pytest.mark.parametrize(
    ("hint", "misuse"),
    [
        ("transforms of dp_pipelines", lambda rows: rows | beam.Map(print)),
        ("MakePrivate", lambda rows: rows._rows.pcoll | private_beam.Count(ABOUT["count"][1])),
        ("SampleAndAggregate", lambda rows: rows | private_beam.CombinePerKey(None, None)),
        (
            "run two pipelines",
            lambda rows: rows | private_beam.Count(ABOUT["count"][1], public_partitions=rows._rows.pairs()),
        ),
        ("import NaiveBudget", lambda rows: private_beam.MakePrivate(theirs.NaiveBudgetAccountant(1, 1e-6), None)),
    ],
)
def test_what_a_private_collection_cannot_do_is_refused(hint: str, misuse: Any) -> None:
    rows = private(beam.Pipeline(runner=FnApiRunner()), ours.NaiveBudgetAccountant(1, 1e-6))
    with pytest.raises(RequestError) as refused:
        misuse(rows)
    assert hint in refused.value.hint
