"""What a weight buys: of Laplace noise a part of epsilon, of Gaussian noise a part of the inverse of the variance."""

import math

import pytest

import dp_pipelines as dp
from dp_pipelines.planning import stage as stages
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan

PUBLIC = dp.PublicPartitions(keys=[("a",), ("b",)])
METRICS = {
    "orders": dp.Count(),
    "price": dp.Mean("price", min_value=0, max_value=60),
    "spread": dp.Variance("price", min_value=0, max_value=60, weight=0.7),
    "buyers": dp.PrivacyIdCount(weight=2),
}
BOUNDS = (1, 2, 3, 4, 5, 7, 10, 17, 30, 63, 100, 150, 211, 300, 401, 500)


def query(metrics, partitions=PUBLIC, **bounds) -> dp.Query:
    return dp.Query(
        privacy_unit="customer",
        partition_by="region",
        metrics=metrics,
        bounds=dp.ContributionBounds(**bounds),
        partitions=partitions,
    )


def bought(planned: StagePlan) -> dict[str, list[float]]:
    """By law, what each statistic has of the budget, in proportion to its weight."""
    weights = dict(stages.noisy_statistics(planned.query, planned.choices.centred))
    selects = planned.choices.strategy in ("laplace", "gaussian")
    found: dict[str, list[float]] = {}
    for record in planned.mechanisms:
        if record.scale is not None:
            weight = weights.get(record.name, 0.0) + (selects and record.name in ("units", "selection"))
            part = math.sqrt(record.l2_squared / weight) if record.kind == "gaussian" else record.l1 / weight
            found.setdefault(record.kind, []).append(part / float(record.scale))
    return found


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("form", ["rows in all", "partitions", "rows in each"])
def test_weights_are_met_within_two_percent_for_every_bound(private: bool, form: str) -> None:
    for most in BOUNDS:
        bounds = {
            "rows in all": {"max_contributions": most},
            "partitions": {"max_partitions_contributed": most, "max_contributions_per_partition": 1},
            "rows in each": {"max_partitions_contributed": 5, "max_contributions_per_partition": most},
        }[form]
        partitions = dp.PrivatePartitions(strategy="gaussian") if private else PUBLIC
        planned = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query(METRICS, partitions, **bounds)})["weekly"]
        for parts in bought(planned).values():
            assert max(parts) < 1.02 * min(parts), (most, planned.choices)


def test_gaussian_noise_of_shared_statistics_is_that_of_the_least_weighted_logarithms() -> None:
    metrics = {"rows": dp.Count(), "total": dp.Sum("x", min_value=0, max_value=50), "units": dp.PrivacyIdCount()}
    asked = query(
        metrics,
        dp.PrivatePartitions(strategy="gaussian"),
        max_partitions_contributed=16,
        max_contributions_per_partition=1,
    )
    planned = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": asked})["weekly"]
    noise = {s.name.partition("(")[0]: n.stddev for s, n in zip(planned.statistics, planned.noises, strict=True) if n}
    assert noise == pytest.approx({"rows": 34.9, "sum": 1746, "units": 24.7}, rel=0.02)


def test_the_two_statistics_of_a_mean_weigh_like_one_metric() -> None:
    bounds = {"max_partitions_contributed": 16, "max_contributions_per_partition": 1}
    metrics = {"orders": dp.Count(), "price": dp.Mean("price", min_value=0, max_value=60)}
    planned = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query(metrics, **bounds)})["weekly"]
    squares = {r.name: r.l2_squared / float(r.scale) ** 2 for r in planned.mechanisms}
    of_mean = math.fsum(part for name, part in squares.items() if name != "rows")
    assert of_mean == pytest.approx(squares["rows"], rel=0.04)


@pytest.mark.parametrize("k", [1, 5])
def test_a_choice_of_the_best_costs_another_stage_at_most_a_third_more_noise(k: int) -> None:
    bounds = {"max_partitions_contributed": 8, "max_contributions_per_partition": 1}
    counted = query({"orders": dp.Count()}, **bounds)
    listed = dp.PublicPartitions(keys=[(str(number),) for number in range(100)])
    best = dp.Query(
        privacy_unit="customer",
        partition_by="region",
        bounds=counted.bounds,
        best=dp.Best(k=k, by=dp.Count()),
        partitions=listed,
    )
    alone = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": counted})["weekly"].noises[0].stddev
    beside = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": counted, "best": best})["weekly"].noises[0].stddev
    assert alone < beside < 1.34 * alone
    equal = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": counted, "best": best}, shares={"weekly": 1, "best": 1})
    assert equal["weekly"].noises[0].stddev > 1.9 * alone


def test_a_default_share_and_the_same_number_are_one_plan() -> None:
    bounds = {"max_partitions_contributed": 2, "max_contributions_per_partition": 1}
    stages_ = {"weekly": query({"orders": dp.Count()}, **bounds)}
    written = Plan(epsilon=1.0, delta=1e-6, stages=stages_, shares={"weekly": 1})
    assert Plan(epsilon=1.0, delta=1e-6, stages=stages_, shares={"weekly": None}).digest == written.digest
