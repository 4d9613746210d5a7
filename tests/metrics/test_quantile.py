"""One quantile among candidates: ranks against plain Python, what one unit moves, the law of what is published, refusals."""

import json
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import duckdb
import mpmath
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines import ContributionBounds, Count, Plan, PrivatePartitions, PublicPartitions, Quantile, Query
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import accumulate
from dp_pipelines.kernels.cells import Around
from dp_pipelines.kernels.statistics import RankCounts
from dp_pipelines.mechanisms.rank_choice import spread
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.quantile import expected_rank_errors
from dp_pipelines.planning.stage import shape_of
from dp_pipelines.release.draw import draw_release
from tests.helpers import neighbours as nb
from tests.helpers.pipelines import publish
from tests.selection.test_exponential import law_of_permute_and_flip

BOUNDS = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)


def query(*, bounds: ContributionBounds = BOUNDS, private: bool = False, **metrics: Metric) -> Query:
    return Query(
        privacy_unit="customer",
        partition_by="region",
        partitions=PrivatePartitions() if private else PublicPartitions(keys=[["a"], ["b"], ["none"]]),
        bounds=bounds,
        metrics=metrics,
    )


def median(method: str = "exponential", candidates: list[float] | None = None, quantile: float = 0.5) -> Quantile:
    listed = [0, 1, 2, 5, 10, 20] if candidates is None else candidates
    return Quantile("x", quantile=quantile, candidates=listed, method=method)  # type: ignore[arg-type]


# Ranks.

values = st.floats(allow_nan=True, allow_infinity=True) | st.none() | st.sampled_from([0.0, -0.0, 1.0, 2.5])
listed = st.lists(st.floats(-1e300, 1e300) | st.sampled_from([0.0, 1.0, 2.5]), min_size=1, max_size=6, unique=True)


@given(column=st.lists(values, max_size=20), candidates=listed, part=st.integers(0, 7))
def test_scores_are_distances_of_ranks_as_plain_python_counts_them(
    column: list[float | None], candidates: list[float], part: int
) -> None:
    around = Around(candidates=tuple(sorted(c + 0.0 for c in candidates)), part=part, whole=7)
    cells = around.of(pa.array(column, pa.float64())).drop_null().to_numpy()
    counts = np.bincount(cells, minlength=around.count)[None, :]
    kept = [value for value in column if value is not None and not math.isnan(value)]
    assert len(cells) == len(kept)
    wanted = [-abs((7 - part) * sum(v < c for v in kept) - part * sum(v > c for v in kept)) for c in around.candidates]
    assert around.scores(counts).tolist() == [wanted]


def test_counts_beyond_all_rows_still_fit() -> None:
    around = Around(candidates=(1.0, 2.0), part=1, whole=10**6)
    scores = around.scores(np.array([[2**62, 2**62, 0, 0, 2**62]]))
    assert scores.min() >= -(2**61)


def table_of(unit: int, rows: list[tuple[str, float]]) -> pa.Table:
    return pa.table(
        {
            "customer": pa.array([unit] * len(rows), pa.int64()),
            "region": pa.array([region for region, _ in rows], pa.string()),
            "x": pa.array([x for _, x in rows], pa.float64()),
        }
    )


few_rows = st.lists(st.tuples(st.sampled_from(["a", "b", "none", "z"]), st.sampled_from([-1.0, 0.0, 1.5, 2.0, 9.0])))


def scores_of(table: pa.Table, stage: object, at: int) -> np.ndarray:
    (totals,) = nb.totals(table, stage.layout, stage.statistics)  # type: ignore[attr-defined]
    cells = stage.statistics[at].cells  # type: ignore[attr-defined]
    return cells.scores(totals.coarse_lists(at, np.arange(3), shift=0, step=1))


@settings(max_examples=100)
@given(others=few_rows, mine=few_rows, quantile=st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_one_unit_moves_the_scores_of_few_partitions_and_within_the_spread(
    others: list[tuple[str, float]], mine: list[tuple[str, float]], quantile: float
) -> None:
    asked = query(q=median(quantile=quantile))
    stage = Plan(epsilon=1.0, stages={"s": asked})["s"]
    before = table_of(1, others)
    after = pa.concat_tables([before, table_of(2, mine)])
    moved = scores_of(after, stage, 0) - scores_of(before, stage, 0)
    assert (np.abs(moved).max(axis=1) > 0).sum() <= 2
    allowed = spread(stage.statistics[0].cells, 3)  # type: ignore[arg-type]
    assert (moved.max(axis=1) - moved.min(axis=1) <= allowed).all()


def test_a_spread_of_one_direction_alone_would_be_found() -> None:
    stage = Plan(epsilon=1.0, stages={"s": query(q=median())})["s"]
    # The rank of candidate 1 is too low, that of 2 too high: three rows above both make one worse and the other better.
    before = pa.concat_tables(
        [table_of(1, [("a", 0.5)] * 3), table_of(3, [("a", 1.5)] * 3), table_of(4, [("a", 1.5)] * 3)]
    )
    after = pa.concat_tables([before, table_of(2, [("a", 20.0)] * 3)])
    moved = (scores_of(after, stage, 0) - scores_of(before, stage, 0))[0]
    allowed = spread(stage.statistics[0].cells, 3)  # type: ignore[arg-type]
    assert allowed / 2 < moved.max() - moved.min() <= allowed


# The plan.


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_choice_by_ranks_is_one_decision_for_each_partition_of_a_unit(delta: float) -> None:
    asked = query(median=median(), upper=median(quantile=0.9), rows=Count())
    plan = Plan(epsilon=1.0, delta=delta, stages={"s": asked})
    assert 0.99 < plan.accounted["epsilon"] <= 1.0
    kinds = Counter(record.kind for record in plan.mechanisms)
    assert kinds["approximate_dp"] == 2
    assert {record.l0 for record in plan.mechanisms} == {2}
    stage = plan["s"]
    # Both quantiles share one column of counts.
    assert len(stage.layout.cells) == 1
    for index, statistic in enumerate(stage.statistics):
        noise = stage.noises[index]
        if isinstance(statistic, RankCounts) and noise is not None:
            (record,) = [r for r in plan.mechanisms if r.name == statistic.name]
            exact = shape_of(statistic, asked).steps(noise.step).linf / noise.law.scale
            assert exact <= Fraction(record.epsilon) <= exact * Fraction(1 + 1e-12)
    shown = plan.to_json()["stages"][0]["metrics"]["median"]
    assert shown["noise"] == "permute_and_flip"
    assert shown["stddev"] is None
    assert [s["stddev"] for s in shown["statistics"].values()] == [None]
    again = Plan.restore(plan.frozen(), epsilon=1.0, delta=delta, stages={"s": asked})
    assert again.digest == plan.digest


def test_a_stored_plan_with_normal_noise_for_a_choice_is_refused() -> None:
    asked = query(median=median())
    frozen = Plan(epsilon=1.0, delta=1e-6, stages={"s": asked}).frozen()
    text = json.dumps(frozen).replace('"laplace", "steps"', '"gaussian", "steps"')
    assert text != json.dumps(frozen)
    with pytest.raises(RequestError, match="made for another query"):
        Plan.restore(json.loads(text), epsilon=1.0, delta=1e-6, stages={"s": asked})


@pytest.mark.parametrize(("partitions", "method"), [(1, "exponential"), (1000, "tree")])
def test_auto_takes_the_smaller_expected_error_of_rank(partitions: int, method: str) -> None:
    bounds = ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=3)
    asked = query(q=median("auto", candidates=[float(i) for i in range(1000)]), bounds=bounds)
    assert asked.metrics["q"].method == method  # type: ignore[attr-defined]
    errors = expected_rank_errors(1000, 0.5, partitions, 3)
    assert (errors[0] <= errors[1]) == (method == "exponential")


@pytest.mark.parametrize("partitions", [1, 200])
def test_the_expected_errors_are_near_those_of_runs(partitions: int) -> None:
    bounds = ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=1)
    made, values = {}, np.random.default_rng(3).uniform(0, 100, 20_000)
    candidates = [float(i) for i in range(101)]
    for method in ("exponential", "tree"):
        stage = Plan(
            epsilon=1.0, delta=1e-6, stages={"s": query(q=median(method, candidates=candidates), bounds=bounds)}
        )["s"]
        rows = pa.table({"customer": np.arange(20_000), "region": ["a"] * 20_000, "x": values})
        (totals,) = nb.totals(rows, stage.layout, stage.statistics)
        ranks = [abs((values < draw_release(totals, stage)["q"][0].as_py()).sum() - 10_000) for _ in range(30)]
        made[method] = float(np.mean(ranks))
    errors = expected_rank_errors(101, 0.5, partitions, 1)
    # Candidates are 200 values apart: ranks are off by up to 100 whatever the noise. And 30 runs are few.
    for method, expected in zip(("exponential", "tree"), errors, strict=True):
        assert made[method] <= 3 * expected + 150, (made, errors)


# The release.


def test_what_is_published_has_the_law_that_the_plan_pays_for() -> None:
    asked = query(q=median(candidates=[0, 1, 2]))
    stage = Plan(epsilon=4.0, stages={"s": asked})["s"]
    rows = pa.concat_tables(
        [table_of(unit, [("a", x)]) for unit, x in enumerate([0.0, 0.0, 0.5, 0.5, 0.5, 1.5, 1.5, 2.0, 3.0])]
    )
    (totals,) = nb.totals(rows, stage.layout, stage.statistics)
    drawn: Counter[float] = Counter()
    for _ in range(4000):
        drawn[draw_release(totals, stage)["q"][0].as_py()] += 1
    (record,) = stage.mechanisms

    def believable(epsilon: float) -> bool:
        # Scores of ranks in halves: |0 - 7|, |5 - 4|, |7 - 1|; three rows of a unit move each by three, either way.
        law = law_of_permute_and_flip([-7, -1, -6], Fraction(epsilon) / 6)
        tests = [
            stats.binomtest(drawn[c], 4000, float(mpmath.mpf(p))).pvalue
            for c, p in zip((0.0, 1.0, 2.0), law, strict=True)
        ]
        return min(tests) >= 1e-9 / 3

    assert record.epsilon is not None
    assert believable(record.epsilon)
    assert not believable(2 * record.epsilon)
    assert not believable(record.epsilon / 2)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("method", ["exponential", "tree"])
def test_where_one_candidate_is_far_ahead_it_is_duckdb_s_quantile(tmp_path: Path, private: bool, method: str) -> None:
    made = np.random.default_rng(2)
    x = np.concatenate([made.normal(40, 3, 4000), made.normal(70, 3, 4000)])
    events = pa.table({"customer": np.arange(8000), "region": ["a"] * 4000 + ["b"] * 4000, "x": x})
    bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    candidates = [float(i) for i in range(0, 101, 10)]
    asked = query(q=median(method, candidates=candidates), rows=Count(), private=private, bounds=bounds)
    stage = Plan(epsilon=10.0, delta=1e-6, stages={"stage": asked})["stage"]
    released = publish(stage, [events.slice(0, 3000), events.slice(3000)], tmp_path / "out")
    truth = dict(duckdb.sql("select region, quantile_cont(x, 0.5) from events group by region").fetchall())
    found = dict(zip(released["region"].to_pylist(), released["q"].to_pylist(), strict=True))
    for region in ("a", "b"):
        assert found[region] == min(candidates, key=lambda c: abs(c - truth[region]))
    assert released["q_stddev"].null_count == released.num_rows
    assert released["q_stddev"].type == pa.float64()
    assert released["rows_stddev"].null_count == 0


def test_a_partition_without_any_value_gives_some_candidate() -> None:
    stage = Plan(epsilon=1.0, stages={"s": query(q=median())})["s"]
    empty = accumulate.merge_public([], stage.layout, stage.statistics, 0, 1)
    released = draw_release(empty, stage)
    assert set(released["q"].to_pylist()) <= {0.0, 1.0, 2.0, 5.0, 10.0, 20.0}


# What is refused.


@pytest.mark.parametrize("quantile", [-0.1, 1.1, math.nan, True, "0.5", None])
def test_what_is_no_quantile_is_refused(quantile: object) -> None:
    with pytest.raises(RequestError, match="quantile: must be"):
        median(quantile=quantile)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "candidates",
    [
        [],
        "12",
        [1, 1],
        [2, 1],
        [0.0, -0.0],
        [math.nan],
        [math.inf],
        [True],
        ["1"],
        [1e301],
        None,
        range(3),
        [0.0] * 10_001,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_are_no_rising_candidates_is_refused(candidates: object) -> None:
    with pytest.raises(RequestError, match="candidates"):
        Quantile("x", quantile=0.5, candidates=candidates)  # type: ignore[arg-type]


def test_a_tree_over_one_candidate_or_too_near_ones_is_refused_and_auto_does_without() -> None:
    for candidates in ([3.0], [1.0, 1.0 + 1e-15]):
        with pytest.raises(RequestError):
            median("tree", candidates=candidates)
        bounds = ContributionBounds(max_partitions_contributed=10_000, max_contributions_per_partition=1)
        asked = query(q=median("auto", candidates=candidates), bounds=bounds)
        assert asked.metrics["q"].method == "exponential"  # type: ignore[attr-defined]


def test_a_method_that_is_none_and_a_column_of_text_are_refused() -> None:
    with pytest.raises(RequestError, match="method"):
        median("gumbel")
    check: Callable[[pa.DataType], None] = median().check_column
    with pytest.raises(RequestError, match="column 'x'"):
        check(pa.string())
