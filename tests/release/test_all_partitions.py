"""What is made of all released partitions together: shrunk means, whatever the partitions are and however they were split.

In: totals of a few partitions. Out: released tables. Holds: nothing here is statistical. Not covered: the model
(tests/metrics/test_shrinkage.py); whole runs (tests/jobs/run/test_shrunk_means.py).
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import (
    ContributionBounds,
    Count,
    Mean,
    Plan,
    PublicPartitions,
    Query,
    RequestError,
    Sum,
    Top,
    Variance,
)
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.metrics.base import Noisy
from dp_pipelines.planning import describe
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import draw
from dp_pipelines.release.all_partitions import published
from dp_pipelines.release.draw import draw_release
from tests.helpers import quiet

COLUMNS = ["key", "basket", "basket_stddev", "basket_raw", "basket_raw_stddev"]


def query_of(**changes: Any) -> Query:
    said: dict[str, Any] = {
        "privacy_unit": "who",
        "partition_by": "key",
        "bounds": ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
        "metrics": {"basket": Mean("paid", min_value=0, max_value=10, shrink=True)},
        "partitions": PublicPartitions(keys=[("a",)]),
    }
    return Query(**{**said, **changes})


def stage_of(**changes: Any) -> StagePlan:
    return Plan(epsilon=1.0, delta=1e-6, stages={"s": query_of(**changes)})["s"]


def totals_of(stage: StagePlan, means: list[float], rows: list[int]) -> Totals:
    """Exact totals of partitions with these means."""
    exact = []
    for statistic in stage.statistics:
        whole = np.array(rows, np.int64)
        if statistic.lattice is not None:
            steps = (np.array(means) - statistic.lattice.offset) * whole / statistic.fine_step
            whole = np.round(steps).astype(np.int64)
        exact.append(whole)
    return Totals(
        partitions=(pa.array([f"k{number:02}" for number in range(len(rows))]),),
        high=tuple(whole >> 32 for whole in exact),
        low=tuple(whole & 0xFFFFFFFF for whole in exact),
    )


def test_the_raw_mean_and_its_deviation_stand_beside_the_shrunk_one() -> None:
    stage, plain = stage_of(), stage_of(metrics={"basket": Mean("paid", min_value=0, max_value=10)})
    means, rows = [4.0, 6.0, 5.0, 5.5], [400, 30, 900, 5]
    shrunk = published(draw_release(totals_of(stage, means, rows), stage, samplers=quiet.NoNoise), stage)
    raw = published(draw_release(totals_of(plain, means, rows), plain, samplers=quiet.NoNoise), plain)
    assert shrunk.column_names == COLUMNS
    assert raw.column_names == COLUMNS[:3]
    assert shrunk["basket_raw"].equals(raw["basket"])
    assert shrunk["basket_raw_stddev"].equals(raw["basket_stddev"])
    assert np.ptp(shrunk["basket"].to_numpy()) < np.ptp(means)
    bars, raw_bars = shrunk["basket_stddev"].to_numpy(), raw["basket_stddev"].to_numpy()
    assert (bars < 1.1 * raw_bars).all()
    assert (bars[[1, 3]] < raw_bars[[1, 3]] / 2).all(), "where there are few rows, the others say more"


def test_it_is_the_posterior_of_the_noisy_statistics() -> None:
    stage = stage_of()
    (metric,) = stage.query.metrics.values()
    drawn = draw_release(totals_of(stage, [4.0, 6.0, 5.0], [400, 30, 900]), stage)
    values = np.array(drawn["basket"].to_pylist())
    stddevs = {s: n.stddev for s, n in zip(stage.statistics, stage.noises, strict=True) if n is not None}
    basis = stage.basis(metric)
    noisy = {s: Noisy(values=values[:, at], stddev=stddevs[s]) for at, s in enumerate(metric.statistics(basis))}
    found = published(drawn, stage)
    for column, wanted in zip(("basket", "basket_stddev"), metric.over_all(noisy, basis), strict=True):
        assert found[column].to_pylist() == wanted.tolist()
    raw, raw_stddev = metric.finish(noisy, basis)
    assert found["basket_raw"].to_pylist() == raw.tolist()
    # No deviation that is published is above half of the range, which noise in few rows may exceed.
    half = (metric.max_value - metric.min_value) / 2
    assert found["basket_raw_stddev"].to_pylist() == np.minimum(raw_stddev, half).tolist()


def test_how_partitions_were_split_and_in_which_order_they_came_changes_no_bit() -> None:
    stage = stage_of()
    drawn = draw_release(totals_of(stage, [5.0] * 30, list(range(10, 310, 10))), stage)
    whole = published(drawn, stage)
    pieces = [drawn.slice(20), drawn.slice(0, 7), drawn.slice(7, 0), drawn.slice(7, 13)]
    assert published(pa.concat_tables(pieces), stage).equals(whole)


def test_portions_of_the_draw_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of()
    totals = totals_of(stage, [5.0, 4.0, 3.0], [90, 50, 10])
    whole = published(draw_release(totals, stage, samplers=quiet.NoNoise), stage)
    monkeypatch.setattr(draw, "LARGEST_PORTION", 1)
    assert published(draw_release(totals, stage, samplers=quiet.NoNoise), stage).equals(whole)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-9e299, 9e299), (1e9, 1e9 + 1), (0.0, 1e-290)])
@pytest.mark.parametrize("rows", [[], [0], [7], [0, 0, 0], [3, 0, 10**12]])
@pytest.mark.parametrize("others", [{}, {"total": Sum}])
def test_any_table_has_numbers_within_the_range(
    bounds: tuple[float, float], rows: list[int], others: dict[str, type[Sum]]
) -> None:
    low, high = bounds
    ends = {"min_value": low, "max_value": high}
    metrics = {"basket": Mean("paid", shrink=True, **ends), **{n: made("paid", **ends) for n, made in others.items()}}
    stage = stage_of(metrics=metrics)
    totals = totals_of(stage, [0.0] * len(rows), [0] * len(rows))
    whole = [np.array(rows, np.int64)] * len(stage.statistics)
    totals = Totals(
        partitions=totals.partitions, high=tuple(w >> 32 for w in whole), low=tuple(w & 0xFFFFFFFF for w in whole)
    )
    for _ in range(5):
        table = published(draw_release(totals, stage), stage)
        found, spread = table["basket"].to_numpy(), table["basket_stddev"].to_numpy()
        assert len(found) == len(rows)
        assert ((low <= found) & (found <= high)).all()
        assert ((spread >= 0) & (spread <= high / 2 - low / 2)).all()


def test_top_compares_shrunk_values() -> None:
    stage = stage_of(top=Top(k=1, by="basket"))
    # Of the second partition next to nothing is known, and its raw mean is the largest by far.
    totals = totals_of(stage, [6.0, 10.0, 5.0, 5.2], [5000, 2, 5000, 5000])
    table = published(draw_release(totals, stage, samplers=quiet.NoNoise), stage)
    assert table["key"].to_pylist() == ["k00"]


def test_a_plan_without_it_says_nothing_of_it() -> None:
    plain = query_of(metrics={"basket": Mean("paid", min_value=0, max_value=10)})
    assert "shrink" not in describe.query_to_json(plain)["metrics"]["basket"]
    assert describe.query_to_json(query_of())["metrics"]["basket"]["shrink"] is True


def test_it_costs_nothing() -> None:
    plain = stage_of(metrics={"basket": Mean("paid", min_value=0, max_value=10)})
    assert stage_of().mechanisms == plain.mechanisms
    assert stage_of().noises == plain.noises


@pytest.mark.parametrize("shrink", [1, "yes", None, 0.5])
def test_what_is_no_boolean_is_refused(shrink: Any) -> None:
    with pytest.raises(RequestError, match="shrink: must be true or false"):
        Mean("paid", min_value=0, max_value=10, shrink=shrink)


def test_the_column_of_raw_means_is_nobody_elses() -> None:
    shrunk = Mean("paid", min_value=0, max_value=10, shrink=True)
    for metrics in ({"m": shrunk, "m_raw": Count()}, {"m_raw": Count(), "m": shrunk}):
        with pytest.raises(RequestError, match="twice"):
            query_of(metrics=metrics)
    with pytest.raises(RequestError, match="twice"):
        query_of(metrics={"m": shrunk}, partition_by="m_raw")


def test_only_means_have_it() -> None:
    for other in (Sum, Variance):
        with pytest.raises(TypeError, match="shrink"):
            other("paid", min_value=0, max_value=10, shrink=True)  # type: ignore[call-arg]
