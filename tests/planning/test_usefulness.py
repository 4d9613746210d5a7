"""What a plan says that it is good for is true: simulated groups of the stated size meet each statement, far smaller ones do not.

In: calibrated stages, groups of values of several shapes. Out: how many of many noisy releases keep the promise. How: exact sums
are computed from the values by their definitions, noise is numpy's own of the stated law, then the metric's own `finish`. Holds:
with a false alarm rate of 1e-10 for each assertion at least 95 of 100 releases keep the promise. Not covered: what bounds cut.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

import dp_pipelines as dp
from dp_pipelines.kernels.lattice import Lattice
from dp_pipelines.kernels.rank_cells import Around
from dp_pipelines.kernels.statistics import CellCounts, Statistic
from dp_pipelines.mechanisms import rank_choice
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric, Noisy
from dp_pipelines.metrics.good_from import GoodFrom, Level, reach, shown
from dp_pipelines.planning import describe, usefulness
from dp_pipelines.planning.plan import Expectation
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.selection.exponential import permute_and_flip

Floats = np.ndarray[Any, np.dtype[np.float64]]

FALSE_ALARM = 1e-10
RELEASES = 2000
LEAST = int(stats.binom.ppf(FALSE_ALARM, RELEASES, 0.95))
"""So many releases of 2,000 keep a promise that 95 of 100 keep, but with a probability of 1e-10."""

LOW, HIGH = 2.0, 100.0
RANGE = {"min_value": LOW, "max_value": HIGH}
CANDIDATES = [2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 70.0, 90.0, 100.0]
METRICS: dict[str, Metric] = {
    "count": dp.Count(),
    "privacy_id_count": dp.PrivacyIdCount(),
    "distinct_count": dp.DistinctCount("x"),
    "sum": dp.Sum("x", **RANGE),
    "sum_of_units": dp.Sum("x", min_sum_per_partition=0, max_sum_per_partition=100),
    "mean": dp.Mean("x", **RANGE),
    "variance": dp.Variance("x", **RANGE),
    "geometric_mean": dp.GeometricMean("x", **RANGE),
    "histogram": dp.Histogram("x", edges=[0, 10, 50, 100]),
    "median": dp.Median("x", **RANGE),
    "quantiles": dp.Quantiles("x", quantiles=[0.06, 0.5, 0.94], **RANGE),
    "quantile": dp.Quantile("x", quantile=0.9, candidates=CANDIDATES, method="exponential"),
    "quantile_of_a_tree": dp.Quantile("x", quantile=0.9, candidates=CANDIDATES, method="tree"),
    "vector_sum": dp.VectorSum("v", size=2, max_norm=4.0),
    "second_moments": dp.SecondMoment(columns=["x", "y"], bounds={"x": (0, 4), "y": (-2, 8)}),
}
SAY_NOTHING = {"min": "the ends of values depend on how many lie there", "max": "as min"}
"""Metrics without statements, with the reason."""

SHAPES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "even": lambda rng, n: rng.uniform(LOW, HIGH, n),
    "all the largest": lambda rng, n: np.full(n, HIGH),
    "all the least": lambda rng, n: np.full(n, LOW),
    "both ends": lambda rng, n: np.where(np.arange(n) % 2, LOW, HIGH),
    "a long tail": lambda rng, n: np.clip(rng.lognormal(2.5, 0.8, n), LOW, HIGH),
    "two far groups": lambda rng, n: np.where(rng.random(n) < 0.85, rng.normal(12, 1, n), rng.normal(90, 2, n)),
}


def stage_of(metric: Metric, *, laplace: bool) -> StagePlan:
    """A stage whose noise is Laplace (delta 0) or, with many partitions of a unit, Gaussian."""
    bounds = dp.ContributionBounds(max_partitions_contributed=1 if laplace else 50, max_contributions_per_partition=2)
    query = dp.Query(privacy_unit="u", partition_by="k", bounds=bounds, metrics={"m": metric},
                     partitions=dp.PublicPartitions(keys=[("a",)]))  # fmt: skip
    return dp.Plan(epsilon=1.0, delta=0.0 if laplace else 1e-6, stages={"s": query})["s"]


def said(stage: StagePlan) -> GoodFrom:
    (one,) = usefulness.statements(stage)["m"]
    return one


def exact_of(statistic: Statistic, values: Floats) -> Floats:
    """What a statistic is of a group, by its definition."""
    if isinstance(statistic.lattice, Lattice):
        y = values if statistic.lattice.through is None else np.log(values)
        y = y - statistic.lattice.centre
        return np.array(np.sum(y * y - statistic.lattice.square_centre if statistic.lattice.square else y))
    if isinstance(statistic, CellCounts):
        place = np.floor((values - LOW) / (HIGH - LOW) * statistic.cells.count).astype(int)
        return np.bincount(np.clip(place, 0, statistic.cells.count - 1), minlength=statistic.cells.count).astype(float)
    return np.array(float(len(values)))


def released(stage: StagePlan, values: Floats, rng: np.random.Generator) -> Floats:
    """Many releases of one group: a row for each."""
    metric = stage.query.metrics["m"]
    noisy = {}
    for statistic, noise in zip(stage.statistics, stage.noises, strict=True):
        if noise is None:
            continue
        exact = exact_of(statistic, values)
        size = (RELEASES, *exact.shape)
        gaussian = stage.choices.noises[statistic.name].law == "gaussian"
        drawn = rng.normal(0, noise.stddev, size) if gaussian else rng.laplace(0, noise.stddev / math.sqrt(2), size)
        noisy[statistic] = Noisy(values=exact + drawn, stddev=noise.stddev)
    return metric.finish(noisy, stage.basis(metric))[0]


def kept_ranks(found: Floats, values: Floats, quantile: float, width: float) -> Floats:
    """Which released values lie between the two ranks, to the width of a leaf."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, found - width, side="left") / len(values)
    upto = np.searchsorted(ordered, found + width, side="right") / len(values)
    return (below <= quantile + 0.05) & (upto >= quantile - 0.05)


LEAF = (HIGH - LOW) / 4096
TRUTHS: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "mean": lambda found, x: np.abs(found - x.mean()) <= 0.1 * (HIGH - LOW),
    "variance": lambda found, x: np.abs(found - x.var()) <= 0.1 * ((HIGH - LOW) / 2) ** 2,
    "geometric_mean": lambda found, x: np.abs(found / np.exp(np.log(x).mean()) - 1) <= 0.1,
    "median": lambda found, x: kept_ranks(found, x, 0.5, LEAF),
    "quantiles": lambda found, x: kept_ranks(found[:, 2], x, 0.94, LEAF),
    "count": lambda found, x: np.abs(found - len(x)) <= 0.1 * len(x),
    "sum": lambda found, x: np.abs(found - x.sum()) <= 0.1 * x.sum(),
}


def kept(kind: str, shape: str, part: float, *, laplace: bool) -> int:
    """How many of the releases of a group keep the promise, where it has so many times the stated size."""
    rng, stage = np.random.default_rng(1), stage_of(METRICS[kind], laplace=laplace)
    size = said(stage).least * part
    values = np.clip(SHAPES[shape](rng, math.ceil(size)), LOW, HIGH)
    if kind == "sum":  # as many rows as reach it
        values = values[: int(np.searchsorted(np.cumsum(values), size)) + 1]
    return int(TRUTHS[kind](released(stage, values, rng), values).sum())


@pytest.mark.slow
@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", TRUTHS)
def test_groups_of_the_stated_size_keep_the_promise_whatever_their_values(kind: str, shape: str, laplace: bool) -> None:
    assert kept(kind, shape, 1.0, laplace=laplace) >= LEAST
    assert kept(kind, shape, 4.0, laplace=laplace) >= LEAST, "larger groups too"


@pytest.mark.parametrize("kind", ["count", "mean", "variance", "geometric_mean", "sum"])
def test_groups_of_the_stated_size_keep_the_promise(kind: str) -> None:
    assert kept(kind, "all the largest", 1.0, laplace=False) >= LEAST


@pytest.mark.parametrize(
    ("kind", "shape", "part"),
    [
        ("count", "even", 4), ("sum", "all the largest", 4), ("mean", "all the largest", 4), ("variance", "all the largest", 4),
        ("geometric_mean", "all the least", 4), ("quantiles", "all the least", 4), ("median", "even", 16),
    ],
)  # fmt: skip
def test_groups_of_a_small_part_of_the_size_do_not(kind: str, shape: str, part: int) -> None:
    assert kept(kind, shape, 1 / part, laplace=False) < LEAST


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize(
    ("kind", "one"),
    [("count", 1.0), ("privacy_id_count", 1.0), ("distinct_count", 1.0), ("sum", 1.0), ("sum_of_units", 1.0), ("histogram", 1.0),
     ("vector_sum", 4.0), ("second_moments", np.array([16.0, 32.0, 64.0]))],
)  # fmt: skip
def test_of_what_only_noise_is_added_to_exactly_95_in_100_keep_it(kind: str, one: Any, laplace: bool) -> None:
    stage, rng = stage_of(METRICS[kind], laplace=laplace), np.random.default_rng(2)
    (statistic,) = stage.query.metrics["m"].statistics(stage.basis(stage.query.metrics["m"]))
    noise = stage.noises[stage.statistics.index(statistic)]
    assert noise is not None
    size = (RELEASES, statistic.width) if statistic.width else (RELEASES,)
    drawn = rng.laplace(0, noise.stddev / math.sqrt(2), size) if laplace else rng.normal(0, noise.stddev, size)
    found = stage.query.metrics["m"].finish(
        {statistic: Noisy(values=drawn, stddev=noise.stddev)}, stage.basis(METRICS[kind])
    )[0]
    most = int(stats.binom.ppf(1 - FALSE_ALARM, RELEASES, 0.95))
    for of_one in (np.abs(found) <= 0.1 * one * said(stage).least).reshape(RELEASES, -1).T:
        assert LEAST <= of_one.sum() <= most
    for of_one in (np.abs(found) <= 0.1 * one * said(stage).least / 4).reshape(RELEASES, -1).T:
        assert of_one.sum() < LEAST, "of a fourth of the size far fewer do"


@pytest.mark.parametrize(("part", "keeps"), [(1.0, True), (0.02, False)])
def test_a_quantile_by_choice_is_as_near_as_stated(part: float, keeps: bool) -> None:
    stage = stage_of(METRICS["quantile"], laplace=True)
    (statistic,) = METRICS["quantile"].statistics(stage.basis(METRICS["quantile"]))
    cells, rows = statistic.cells, math.ceil(said(stage).least * part)
    assert isinstance(cells, Around)
    values = np.sort(np.random.default_rng(3).uniform(LOW, HIGH, rows))
    below, upto = (np.searchsorted(values, CANDIDATES, side=side) for side in ("left", "right"))
    # How far the part of the values below a candidate, or up to it, is from nine tenths.
    off = np.maximum(np.maximum(below / rows - 0.9, 0.9 - upto / rows), 0.0)
    calibration = stage.calibration(stage.statistics.index(statistic))
    counts = np.zeros((1, 2 * len(CANDIDATES) + 1), np.int64)
    counts[0, 0::2] = np.diff(np.concatenate([[0], below, [rows]])) - np.concatenate([[0], (upto - below)])
    counts[0, 1::2] = upto - below
    scores = cells.scores(np.repeat(counts, RELEASES, axis=0))
    spread = rank_choice.spread(cells, calibration.max_rows_per_partition)
    chosen = permute_and_flip(scores, spread=spread, epsilon=calibration.decision_epsilon)
    assert (int((off[chosen] <= off.min() + 0.05).sum()) >= LEAST) == keeps


def test_every_metric_says_what_it_is_good_for_or_why_it_says_nothing() -> None:
    named = {type(metric).kind for metric in METRICS.values()}
    assert named | set(SAY_NOTHING) == set(registry.metrics())
    for name, metric in METRICS.items():
        one = said(stage_of(metric, laplace=False))
        assert 0 < one.noise_below < one.least, name
        assert one.words.startswith(one.promise)
    for kind in SAY_NOTHING:
        metric = registry.metrics()[kind]("x", **RANGE)
        assert usefulness.statements(stage_of(metric, laplace=False))["m"] == ()


def test_a_metric_of_ones_own_says_nothing_and_works() -> None:
    class Own(dp.Count):
        """The number of rows, which says nothing of itself."""

        good_from = Metric.good_from

    described: dict[str, Any] = {"metrics": {"m": {}}}
    usefulness.add_to(described, stage_of(Own(), laplace=True), Expectation(rows_per_partition=1))
    assert described == {"metrics": {"m": {"good_from": []}}}


@pytest.mark.parametrize("shares", [(1.0, 0.0), (1.0, 0.2), (1.0, 1.0), (1.0, 3.0)])
def test_a_gaussian_and_a_laplace_noise_together_reach_no_farther_than_stated(shares: tuple[float, float]) -> None:
    rng, first, second = np.random.default_rng(4), *shares
    for laws in (("laplace", "laplace"), ("laplace", "gaussian"), ("gaussian", "laplace")):
        draws = [
            rng.laplace(0, math.sqrt(0.5), 200_000) if law == "laplace" else rng.normal(0, 1, 200_000) for law in laws
        ]
        far = reach([(share, Level(stddev=1.0, law=law)) for share, law in zip(shares, laws, strict=True)])
        inside = int((np.abs(first * draws[0] + second * draws[1]) <= far).sum())
        assert inside >= stats.binom.ppf(FALSE_ALARM, 200_000, 0.95)


def bounds(most: int = 3) -> dp.ContributionBounds:
    return dp.ContributionBounds(max_partitions_contributed=most, max_contributions_per_partition=2)


def query(most: int = 3, **changes: Any) -> dp.Query:
    fields: dict[str, Any] = {"metrics": {"orders": dp.Count()}, "bounds": bounds(most)}
    return dp.Query(**{"privacy_unit": "u", "partition_by": "k", **fields, **changes})


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("runs", [1, 3])
def test_what_a_stage_costs_the_others_is_what_a_plan_without_it_shows(delta: float, runs: int) -> None:
    public = dp.PublicPartitions(keys=[("a",), ("b",)])
    best = query(best=dp.Best(), metrics={}, partitions=public)
    stages = {"weekly": query(2, partitions=public), "daily": query(3, partitions=public), "best": best}
    common: dict[str, Any] = {"epsilon": 4.0, "delta": delta, "runs": runs}
    plan = dp.Plan(stages=stages, shares=dict.fromkeys(stages, 1.0), **common)
    told = {stage["name"]: stage["noise_of_others_without"] for stage in plan.to_json()["stages"]}
    assert set(told) == set(stages)
    compared = 0
    for left_out, part in told.items():
        others = [name for name in stages if name != left_out]
        alone = {name: stages[name] for name in others}
        without = dp.Plan(stages=alone, shares=dict.fromkeys(others, 1.0), **common)
        if any(laws(without, name) != laws(plan, name) for name in others):
            continue  # a plan may take other laws when there is more for each stage: it is better still
        for name in set(others) - {"best"}:
            noise = [p.stages[name].noises[0].stddev for p in (without, plan)]  # type: ignore[union-attr]
            assert noise[0] / noise[1] == pytest.approx(part, rel=0.1)
            compared += 1
    assert compared


def laws(plan: dp.Plan, name: str) -> dict[str, str]:
    return {key: choice.law for key, choice in plan.stages[name].choices.noises.items()}


def test_noise_that_a_metric_fixes_stays_and_a_stage_alone_costs_nobody_anything() -> None:
    fixed = query(metrics={"orders": dp.Count(stddev=500.0)}, partitions=dp.PublicPartitions(keys=[("a",)]))
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"fixed": fixed, "other": query()})
    told = {stage["name"]: stage.get("noise_of_others_without") for stage in plan.to_json()["stages"]}
    assert told["other"] is None
    assert 0.9 < told["fixed"] <= 1
    (alone,) = dp.Plan(epsilon=1.0, delta=1e-6, stages={"only": query()}).to_json()["stages"]
    assert "noise_of_others_without" not in alone


def test_nothing_is_said_of_what_stages_cost_others_where_delta_alone_pays_for_all() -> None:
    records = dp.Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query(), "daily": query()}).mechanisms
    stage_of = {record.stage: record.stage for record in records}
    assert usefulness.without_each(records, stage_of, (), 1e-6, 1).keys() == {"weekly", "daily"}
    assert usefulness.without_each(records, stage_of, (), 0.99, 1) == {}


def told(expect: Expectation | None = None, epsilon: float = 1.0, **changes: Any) -> dict[str, Any]:
    (stage,) = dp.Plan(epsilon=epsilon, delta=1e-6, stages={"s": query(**changes)}, expect=expect).to_json()["stages"][
        -1:
    ]
    return dict(stage)


def test_a_plan_warns_where_a_typical_group_is_mostly_noise() -> None:
    public = dp.PublicPartitions(keys=[(f"k{i}",) for i in range(40)])
    warned = told(Expectation(rows_per_partition=5), partitions=public)["mostly_noise"]
    assert warned["metrics"] == ["orders"]
    assert warned["words"].startswith("mostly noise in the typical group that expect declares: orders (below ")
    assert "all 40 public partitions are published all the same" in warned["words"]
    assert "mostly_noise" not in told(Expectation(rows_per_partition=5000), partitions=public)
    total = query(partition_by=[], bounds=dp.ContributionBounds(max_contributions=3))
    (stage,) = dp.Plan(epsilon=1.0, stages={"s": total}, expect=Expectation(rows_per_partition=1)).to_json()["stages"]
    assert "mostly_noise" not in stage, "a total is no typical group"


def test_without_a_guess_it_warns_where_only_a_huge_group_would_do() -> None:
    assert "mostly_noise" not in told()
    spread = dp.Variance("x", min_value=0, max_value=10)
    few = dp.ContributionBounds(max_partitions_contributed=40, max_contributions_per_partition=500)
    warned = told(epsilon=0.2, metrics={"spread": spread}, bounds=few)["mostly_noise"]["words"]
    assert warned.startswith(
        "mostly noise in groups of fewer than a million rows: spread (within 2.5, 10% of the largest"
    )


def test_what_follows_from_a_choice_of_the_run_is_a_multiple_or_left_out_with_the_reason() -> None:
    auto = {"min_value": 0, "max_value": "auto", "within": [0, 1000]}
    metrics = {"alone": dp.Sum("x", **auto), "mean": dp.Mean("y", **auto)}
    described = told(metrics=metrics)["metrics"]
    (one,) = described["alone"]["good_from"]
    assert one["of"] == "times the larger of the bounds that the run chooses"
    assert one["least"] == pytest.approx(10 * reach_of(described["alone"]))
    assert described["mean"]["good_from"] == []
    assert described["mean"]["good_from_left_out"] == "its noise follows from the bounds that the run chooses"
    open_bounds = dp.ContributionBounds(
        max_partitions_contributed="auto", partition_candidates=[1, 8], max_contributions_per_partition=2
    )
    orders = told(bounds=open_bounds)["metrics"]["orders"]
    assert orders["good_from"] == []
    assert "max_partitions_contributed" in orders["good_from_left_out"]


def test_where_the_bound_on_rows_alone_is_open_metrics_of_units_say_from_which_size_on_they_are_good() -> None:
    metrics = {"orders": dp.Count(), "buyers": dp.PrivacyIdCount()}
    bounds = dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition="auto")
    described = told(metrics=metrics, bounds=bounds)["metrics"]
    (one,) = described["buyers"]["good_from"]
    buyers = described["buyers"]
    assert one["least"] == pytest.approx(10 * reach([(buyers["stddev"], Level(stddev=1.0, law=buyers["noise"]))]))
    assert "good_from_left_out" not in buyers
    assert described["orders"]["good_from"] == []
    left_out = "its noise follows from max_contributions_per_partition, which the run chooses"
    assert described["orders"]["good_from_left_out"] == left_out


def test_beside_two_open_bounds_each_metric_names_those_that_its_noise_follows_from() -> None:
    metrics = {"orders": dp.Count(), "buyers": dp.PrivacyIdCount()}
    bounds = dp.ContributionBounds(max_partitions_contributed="auto", max_contributions_per_partition="auto")
    described = told(metrics=metrics, bounds=bounds)["metrics"]
    reasons = {name: metric["good_from_left_out"] for name, metric in described.items()}
    assert reasons == {
        "orders": "its noise follows from max_partitions_contributed and max_contributions_per_partition, "
        "which the run chooses",
        "buyers": "its noise follows from max_partitions_contributed, which the run chooses",
    }


def reach_of(described: Mapping[str, Any]) -> float:
    return reach([(described["stddev_multiple"], Level(stddev=1.0, law=described["noise"]))])


def test_a_guess_takes_values_that_are_spread_evenly() -> None:
    metrics = {"spread": dp.Variance("x", min_value=0, max_value=10), "basket": dp.Mean("x", min_value=0, max_value=10)}
    described = told(Expectation(rows_per_partition=10**6), metrics=metrics)["metrics"]
    for name, value in (("spread", 100 / 12), ("basket", 5.0)):
        entry = described[name]
        assert entry["expected_stddev"] / entry["expected_relative_error"] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("size", [0.0123, 0.99, 1.0, 9.96, 41.3, 3791.2, 99_900.0, 1e6, 2.34e11])
def test_sizes_are_rounded_up_by_less_than_a_tenth(size: float) -> None:
    assert size * (1 - 1e-9) <= float(shown(size).replace(",", "")) <= size * 1.1


def test_the_words_of_a_plan_hold_numbers_that_the_json_has() -> None:
    orders = told()["metrics"]["orders"]["good_from"][0]
    assert orders["words"] == f"within 10% from {shown(orders['least'])} rows"
    assert describe.stage_to_json(stage_of(dp.Count(), laplace=True), 1.0, None)["metrics"]["m"].keys() == {
        "noise", "stddev", "statistics",
    }, "a manifest does not repeat it"  # fmt: skip


def test_a_size_of_a_million_is_a_usual_one_and_more_is_not() -> None:
    """Of what adds 5 each, a million rows are a size of five million."""
    stage = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query()})["s"]
    for each in (1.0, 5.0):
        for least, warned in ((each * 1e6, False), (each * 1e6 + 1, True)):
            one = GoodFrom(promise="within 10%", least=least, of="rows", noise_below=1.0, each=each)
            assert (usefulness._warning({"m": (one,)}, stage, None) is not None) == warned
