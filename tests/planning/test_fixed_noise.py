"""Noise that a metric asks for: it is met, it is in the total, and the rest is calibrated on what it leaves."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import (
    BudgetError,
    ContributionBounds,
    Count,
    Mean,
    Plan,
    PrivacyIdCount,
    PrivatePartitions,
    PublicPartitions,
    Query,
    RequestError,
    Sum,
    Variance,
)
from dp_pipelines.accounting import accountant
from dp_pipelines.planning.stage import shape_of

PUBLIC = PublicPartitions(keys=[("a",), ("b",)])


def query(partitions=PUBLIC, **metrics):
    bounds = ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2)
    return Query(privacy_unit="u", partition_by="k", bounds=bounds, metrics=metrics, partitions=partitions)


def plan(asked, epsilon=1.0, delta=1e-6, **fields):
    return Plan(epsilon=epsilon, delta=delta, stages={"weekly": asked}, **fields)


def stddev(planned, metric):
    return planned.to_json()["stages"][0]["metrics"][metric]["stddev"]


@settings(max_examples=20)
@given(st.floats(12, 3000), st.sampled_from([0.0, 1e-9, 1e-6]))
def test_the_noise_that_is_asked_for_is_the_noise_that_is_drawn(wanted, delta):
    metrics = {
        "rows": Count(stddev=wanted),
        "users": PrivacyIdCount(stddev=wanted / 2),
        "total": Sum("v", min_value=-3, max_value=7, stddev=wanted * 7),
        "clipped": Sum("w", min_sum_per_partition=0, max_sum_per_partition=0.5, stddev=wanted / 4),
    }
    for name, metric in metrics.items():
        planned = plan(query(**{name: metric}), delta=delta)
        assert stddev(planned, name) == pytest.approx(metric.stddev, rel=1e-4)
        assert planned.accounted["epsilon"] <= 1.0


@pytest.mark.parametrize("partitions", [PUBLIC, PrivatePartitions()], ids=["public", "private"])
def test_the_rest_is_calibrated_on_what_fixed_noise_leaves(partitions):
    def planned(**metrics):
        return plan(query(partitions, **metrics))

    mixed = planned(rows=Count(stddev=40), total=Sum("v", min_value=0, max_value=7))
    assert stddev(mixed, "rows") == pytest.approx(40, rel=1e-4)
    assert 0.999 <= accountant.epsilon_of(mixed.mechanisms, 1e-6) <= 1.0 + 1e-4
    cheaper = planned(rows=Count(stddev=400), total=Sum("v", min_value=0, max_value=7))
    assert stddev(cheaper, "total") < stddev(mixed, "total")


def test_the_released_count_that_is_compared_with_the_threshold_may_have_fixed_noise():
    planned = plan(query(PrivatePartitions(strategy="gaussian"), users=PrivacyIdCount(stddev=20)))
    assert planned["weekly"].selection.released
    assert stddev(planned, "users") == pytest.approx(20, rel=1e-4)
    assert planned.accounted["epsilon"] <= 1.0


def test_a_sum_with_fixed_noise_is_never_counted_from_the_middle_of_its_range():
    mean = Mean("v", min_value=100, max_value=200)
    assert any("middle" in s.name for s in plan(query(mean=mean))["weekly"].statistics)
    planned = plan(query(mean=mean, total=Sum("v", min_value=100, max_value=200, stddev=9000)))
    assert not any("middle" in s.name for s in planned["weekly"].statistics)
    assert stddev(planned, "total") == pytest.approx(9000, rel=1e-4)
    assert 0.999 <= planned.accounted["epsilon"] <= 1.0


def test_fixed_noise_is_the_same_in_every_round_and_the_rest_follows_its_part():
    planned = plan(query(rows=Count(stddev=200), users=PrivacyIdCount()), runs=4, split="linear")
    rounds = [planned.round(n) for n in (1, 4)]
    (rows, users), (later_rows, later_users) = ([n.stddev for n in r.stages["weekly"].noises] for r in rounds)
    assert rows == later_rows
    assert users / later_users == pytest.approx(4, rel=1e-3)
    records = [record for n in range(1, 5) for record in planned.round(n).mechanisms]
    assert 0.999 <= accountant.epsilon_of(records, 1e-6) <= 1.0 + 1e-4


def test_noise_that_alone_costs_more_than_the_budget_is_refused_and_what_would_fit_fits():
    with pytest.raises(
        BudgetError, match=r"^stages\.weekly\.metrics\.rows\.stddev: .*weekly\.metrics\.rows\.stddev: 11\.4 would fit$"
    ):
        plan(query(rows=Count(stddev=2)))
    assert plan(query(rows=Count(stddev=11.4))).accounted["epsilon"] <= 1.0
    with pytest.raises(BudgetError):
        plan(query(rows=Count(stddev=11.2)))


def test_where_more_is_released_what_would_fit_leaves_half_of_epsilon_to_the_rest():
    asked = {"rows": Count(stddev=2), "users": PrivacyIdCount(stddev=1), "mean": Mean("v", min_value=0, max_value=5)}
    with pytest.raises(
        BudgetError, match="rows.stddev: 45.3, weekly.metrics.users.stddev: 22.7 would fit and leave half of epsilon"
    ):
        plan(query(**asked))
    fits = plan(query(**{**asked, "rows": Count(stddev=45.3), "users": PrivacyIdCount(stddev=22.7)}))
    alone = [record for record in fits.mechanisms if record.name in ("rows", "units")]
    assert accountant.epsilon_of(alone, 1e-6) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("kind", [Mean, Variance])
def test_a_mean_or_variance_takes_no_fixed_noise(kind):
    with pytest.raises(RequestError, match=f"^stddev: is not for {kind.__name__}, .*write a weight instead"):
        kind("v", min_value=0, max_value=1, stddev=3)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True, "3"])
def test_a_noise_level_that_is_no_positive_number_is_refused(wrong):
    with pytest.raises(RequestError, match="^stddev: must be a"):
        Count(stddev=wrong)


def test_a_metric_asks_for_a_weight_or_a_noise_level():
    with pytest.raises(RequestError, match="^stddev: stands beside a weight"):
        Count(weight=2, stddev=3)


def test_contradicting_and_useless_noise_levels_are_refused_by_name():
    with pytest.raises(RequestError, match=r"^stages\.weekly\.metrics\.b\.stddev: differs"):
        plan(query(a=Count(stddev=20), b=Count(stddev=30)))
    assert stddev(plan(query(a=Count(stddev=20), b=Count(stddev=20))), "b") == pytest.approx(20, rel=1e-4)
    with pytest.raises(RequestError, match="thousands of times the effect of one unit; write at most 16300"):
        plan(query(a=Count(stddev=1e6)))
    assert stddev(plan(query(a=Count(stddev=16300))), "a") == pytest.approx(16300, rel=1e-4)
    with pytest.raises(BudgetError, match="would fit"):
        plan(query(a=Count(stddev=1e-12)))


def test_a_stored_plan_has_the_same_fixed_noise_and_another_noise_is_another_plan():
    asked = query(rows=Count(stddev=40), users=PrivacyIdCount())
    planned = plan(asked)
    frozen = json.loads(json.dumps(planned.frozen()))
    assert Plan.restore(frozen, epsilon=1.0, delta=1e-6, stages={"weekly": asked}).digest == planned.digest
    assert plan(query(rows=Count(stddev=41), users=PrivacyIdCount())).digest != planned.digest
    with pytest.raises(RequestError, match="costs more than its budget"):
        cheaper = query(rows=Count(stddev=15), users=PrivacyIdCount())
        Plan.restore(frozen, epsilon=1.0, delta=1e-6, stages={"weekly": cheaper})


@settings(max_examples=20)
@given(st.floats(50, 5e4))
def test_the_records_of_fixed_noise_are_those_of_the_noise_that_is_drawn(wanted):
    asked = query(rows=Count(stddev=wanted / 7), total=Sum("v", min_value=-3, max_value=7, stddev=wanted))
    planned = plan(asked, epsilon=30.0)
    stage = planned["weekly"]
    for statistic, noise in zip(stage.statistics, stage.noises, strict=True):
        if noise is not None:
            (record,) = [r for r in planned.mechanisms if r.name == statistic.name]
            shape = shape_of(statistic, asked)
            assert record.scale == noise.law.scale
            # A change of `unit` fine steps crosses at most this many release steps, in each partition that it can reach.
            steps = -(-shape.unit // noise.step) * shape.per_coordinate
            assert (record.l2_squared or record.linf**2 * record.l0) == steps**2 * shape.coordinates
