"""Annotators that a program has registered are called, once for each aggregation, with its parameters and budget."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from pipeline_dp import pipeline_backend

from tests.helpers.drop_in import M, Row, extractors, ours, private_beam, theirs

COUNT = theirs.AggregateParams(metrics=[M.COUNT], max_partitions_contributed=1, max_contributions_per_partition=1)
SELECTION = theirs.SelectPartitionsParams(max_partitions_contributed=2)


class Notes(pipeline_backend.Annotator):
    """Notes what it is called with, and adds a step."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def annotate(self, col: Any, backend: Any, stage_name: str, **kwargs: Any) -> Any:
        self.calls.append(kwargs)
        return backend.map(col, lambda result: result, f"Noted {stage_name}")


@pytest.fixture
def notes(monkeypatch) -> Notes:
    annotator = Notes()
    monkeypatch.setattr(pipeline_backend, "_annotators", registered := [])
    monkeypatch.setattr("pipeline_dp.beam_backend._annotators", registered)
    pipeline_backend.register_annotator(annotator)
    return annotator


def test_each_aggregation_in_beam_is_annotated_with_its_share(notes: Notes) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    accountant = ours.NaiveBudgetAccountant(3, 1e-4, num_aggregations=3)
    rows = pipeline | beam.Create([Row(1, 1, 1.0)])
    engine = ours.DPEngine(accountant, ours.BeamBackend())
    engine.select_partitions(rows, SELECTION, extractors())
    engine.aggregate(rows, COUNT, extractors(), [1])
    of_count = theirs.CountParams(theirs.NoiseKind.LAPLACE, 1, 1, partition_extractor=lambda row: row.where)
    private = rows | private_beam.MakePrivate(accountant, lambda row: row.who)
    counted = private | private_beam.Count(of_count, public_partitions=[1])
    accountant.compute_budgets()
    assert [call["params"] for call in notes.calls[:2]] == [SELECTION, COUNT]
    assert notes.calls[2]["params"].metrics == [M.COUNT]
    shares = [[(one.epsilon, one.delta) for one in call["budget"]] for call in notes.calls]
    assert shares == [[(1.0, pytest.approx(1e-4 / 3))]] * 3
    assert "Noted annotation" in str(counted.producer.full_label)


def test_shares_are_told_where_weights_are_declared_and_nowhere_else(notes: Notes) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    rows = pipeline | beam.Create([Row(1, 1, 1.0)])
    for weights, share in (([1, 3], 3.0), (None, None)):
        accountant = ours.PLDBudgetAccountant(4, 1e-6, aggregation_weights=weights)
        engine = ours.DPEngine(accountant, ours.BeamBackend(suffix=str(share)))
        for weight in (1, 3):
            engine.select_partitions(rows, theirs.SelectPartitionsParams(1, budget_weight=weight), extractors())
        accountant.compute_budgets()
        assert [one.epsilon for one in notes.calls[-1]["budget"]] == ([] if share is None else [share])


def test_a_local_backend_may_annotate(notes: Notes) -> None:
    class Annotated(theirs.LocalBackend):
        def annotate(self, col: Any, stage_name: str, **kwargs: Any) -> Any:
            return notes.annotate(col, self, stage_name, **kwargs)

    accountant = ours.NaiveBudgetAccountant(1, 1e-6, num_aggregations=1)
    result = ours.DPEngine(accountant, Annotated()).aggregate([Row(1, 1, 1.0)], COUNT, extractors(), [1])
    accountant.compute_budgets()
    assert [key for key, _ in result] == [1]
    assert len(notes.calls) == 1
