"""Private collections that a program makes itself, and private transforms of its own."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.periodicsequence import PeriodicImpulse

from dp_pipelines.errors import RequestError
from tests.helpers.drop_in import M, Row, ours, private_beam, theirs

ROWS = [Row(f"p{who}", who % 2, 1.0) for who in range(1000)]
KEY = theirs.CountParams(theirs.NoiseKind.LAPLACE, 1, 1, partition_extractor=lambda row: row.where)
COUNT = theirs.AggregateParams(metrics=[M.COUNT], max_partitions_contributed=1, max_contributions_per_partition=1)


class Twice(private_beam.PrivatePTransform):
    """Every row twice."""

    def expand(self, pcol: Any) -> Any:
        return pcol | beam.FlatMap(lambda pair: [pair, pair])


class Counted(private_beam.PrivatePTransform):
    """What an aggregation releases, rounded."""

    def expand(self, pcol: Any) -> Any:
        _, engine = self._create_dp_engine()
        extractors = theirs.DataExtractors(
            privacy_id_extractor=lambda pair: pair[0], partition_extractor=lambda pair: pair[1].where
        )
        counts = engine.aggregate(pcol, COUNT, extractors)
        return counts | beam.MapTuple(lambda key, metrics: (key, round(metrics.count, -2)))


class Leaking(private_beam.PrivatePTransform):
    """Gives rows as if they were released."""

    def expand(self, pcol: Any) -> Any:
        return pcol | beam.Map(lambda pair: pair[1])


class LeakingBesideReleased(Counted):
    """Gives rows together with what is released, as a side input."""

    def expand(self, pcol: Any) -> Any:
        return super().expand(pcol) | beam.Map(lambda result, rows: (result, rows), beam.pvalue.AsList(pcol))


def private(pipeline: beam.Pipeline, accountant: Any) -> Any:
    return pipeline | beam.Create(ROWS) | private_beam.MakePrivate(accountant, lambda row: row.who)


def near(expected: dict[int, int]) -> Any:
    def check(found: list[Any]) -> None:
        assert sorted(key for key, _ in found) == sorted(expected)
        assert all(abs(number - expected[key]) <= 50 for key, number in found), found

    return check


def test_pairs_of_id_and_row_make_a_private_collection() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(4, 1e-6)
        pairs = pipeline | beam.Create([(row.who, row) for row in ROWS])
        counts = private_beam.PrivatePCollection(pairs, accountant) | private_beam.Count(KEY)
        accountant.compute_budgets()
        assert_that(counts, near({0: 500, 1: 500}))


def test_a_transform_of_the_programs_own_keeps_ids_and_bounds() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(4, 1e-6)
        rows = private(pipeline, accountant) | private_beam.Map(lambda row: row._replace(where=0))
        twice = rows | "Mine" >> Twice(return_anonymized=False)
        assert isinstance(twice, private_beam.PrivatePCollection)
        counts = twice | private_beam.Count(KEY)
        accountant.compute_budgets()
        assert_that(counts, near({0: 1000}))  # one row of each person, although there are two


def test_a_transform_of_the_programs_own_returns_what_it_has_released() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = ours.NaiveBudgetAccountant(4, 1e-6)
        rows = private(pipeline, accountant)
        first, second = (rows | Counted(return_anonymized=True) for _ in range(2))
        accountant.compute_budgets()
        assert_that(first, equal_to([(0, 500.0), (1, 500.0)]))
        assert_that(second, equal_to([(0, 500.0), (1, 500.0)]), label="second")


@pytest.mark.parametrize("leaking", [Leaking, LeakingBesideReleased])
def test_rows_are_not_returned_as_released(leaking: Any) -> None:
    rows = private(beam.Pipeline(runner=FnApiRunner()), ours.NaiveBudgetAccountant(1, 1e-6))
    with pytest.raises(RequestError, match=f"{leaking.__name__}: would return rows that no aggregation has released"):
        rows | leaking(return_anonymized=True)


def test_rows_on_which_a_function_raises_are_not_heard_of_before_a_transform_of_ones_own() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.Create([*ROWS, "secret"])
        made = rows | private_beam.MakePrivate(ours.NaiveBudgetAccountant(1, 1e-6), lambda row: row.who)
        steps = made | private_beam.FlatMap(lambda row: [row.what, 1 / (row.where - 1)])
        assert_that(steps._rows.pairs() | beam.combiners.Count.Globally(), equal_to([1000]))


@pytest.mark.parametrize("windows", [beam.window.FixedWindows(60), beam.window.Sessions(60)])
def test_windowed_rows_are_refused_with_a_way_out(windows: Any) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    rows = pipeline | beam.Create(ROWS) | beam.WindowInto(windows)
    made = rows | private_beam.MakePrivate(ours.NaiveBudgetAccountant(1, 1e-6), lambda row: row.who)
    with pytest.raises(RequestError, match="col: is windowed: .+; make the window a part of the partition key"):
        made | private_beam.Count(KEY)


def test_unbounded_rows_are_refused() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    rows = pipeline | PeriodicImpulse(0, 1, 1)
    engine = ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-6), ours.BeamBackend())
    with pytest.raises(RequestError, match="col: is unbounded"):
        engine.aggregate(rows, COUNT, theirs.DataExtractors(lambda row: row, lambda row: row))


def test_data_frames_are_refused_with_a_way_out() -> None:
    import pyarrow as pa

    engine = ours.DPEngine(ours.NaiveBudgetAccountant(1, 1e-6), ours.LocalBackend())
    with pytest.raises(RequestError, match="is a Table, which is no collection of rows; pass its rows") as refused:
        engine.aggregate(pa.table({"who": [1]}), COUNT, theirs.DataExtractors(lambda row: row, lambda row: row))
    assert "Session" in refused.value.hint
