"""Public partitions: lists, constants, and what a selection has released before; never what the same pipeline computes."""

import pathlib
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp.public_partitions import listed
from tests.helpers.drop_in import M, Row, extractors, local, ours, theirs

ROWS = [Row(who, who % 2, 1.0) for who in range(2000)] + [Row("rare", "rare", 1.0)]
SELECTION = theirs.SelectPartitionsParams(max_partitions_contributed=1)
COUNT = theirs.AggregateParams(metrics=[M.COUNT], max_partitions_contributed=1, max_contributions_per_partition=1)


def selection(accountant: Any) -> Any:
    return ours.DPEngine(accountant, ours.LocalBackend()).select_partitions(ROWS, SELECTION, extractors())


def test_partitions_that_another_accountant_has_released_are_public() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    selected = selection(accountant)
    accountant.compute_budgets()
    counts = local(ours, ROWS, COUNT, public=selected)
    assert [key for key, _ in counts] == list(selected) == [0, 1]


def test_a_selection_whose_budgets_are_not_computed_is_refused() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    engine = ours.DPEngine(accountant, ours.LocalBackend())
    selected = engine.select_partitions(ROWS, SELECTION, extractors())
    with pytest.raises(RequestError, match="public_partitions: are not released yet") as refused:
        engine.aggregate(ROWS, COUNT, extractors(), public_partitions=selected)
    assert "accountant of their own" in refused.value.hint


def test_results_of_an_aggregation_are_no_keys() -> None:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    counts = ours.DPEngine(accountant, ours.LocalBackend()).aggregate(ROWS, COUNT, extractors(), [0])
    accountant.compute_budgets()
    with pytest.raises(RequestError, match=r"write \[key for key, _ in results\]"):
        listed(counts)


def counted(pipeline: beam.Pipeline, public: Any) -> Any:
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    engine = ours.DPEngine(accountant, ours.BeamBackend())
    rows = pipeline | "Rows" >> beam.Create(ROWS)
    counts = engine.aggregate(rows, COUNT, extractors(), public_partitions=public)
    accountant.compute_budgets()
    return counts


@pytest.mark.parametrize("reshuffle", [True, False])
def test_constants_of_the_program_are_public(reshuffle: bool) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    assert listed(pipeline | beam.Create(["a", "b"], reshuffle=reshuffle)) == ["a", "b"]


def test_partitions_that_the_pipeline_computes_are_refused_with_the_form_of_two_pipelines() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    accountant = ours.NaiveBudgetAccountant(1, 1e-6)
    engine = ours.DPEngine(accountant, ours.BeamBackend())
    selected = engine.select_partitions(pipeline | "All" >> beam.Create(ROWS), SELECTION, extractors())
    for public in (selected, pipeline | beam.Create([1]) | beam.Map(str)):
        with pytest.raises(RequestError, match="a worker that is lost would draw them again") as refused:
            listed(public)
        assert "run two pipelines" in refused.value.hint


@pytest.mark.slow
def test_two_pipelines_release_partitions_and_then_their_counts(tmp_path: pathlib.Path) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(1, 1e-6)
        engine = ours.DPEngine(accountant, ours.BeamBackend())
        selected = engine.select_partitions(pipeline | beam.Create(ROWS), SELECTION, extractors())
        accountant.compute_budgets()
        selected | beam.io.WriteToText(str(tmp_path / "keys"))
    keys = [int(line) for path in tmp_path.glob("keys*") for line in path.read_text().split()]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        counted(pipeline, keys) | beam.Keys() | beam.io.WriteToText(str(tmp_path / "counts"))
    found = [int(line) for path in tmp_path.glob("counts*") for line in path.read_text().split()]
    assert sorted(found) == sorted(keys) == [0, 1]


@pytest.mark.parametrize("wrong", ["north", b"north", 7])
def test_what_is_no_collection_of_keys_is_refused(wrong: Any) -> None:
    with pytest.raises(RequestError, match=f"must be partition keys, but is a {type(wrong).__name__}"):
        listed(wrong)
