"""Plans: what they promise, what they choose, and what they refuse."""

import dataclasses
import json
import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import (
    BudgetError,
    ContributionBounds,
    Count,
    Expectation,
    GeometricMean,
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

METRICS = {
    "rows": Count(),
    "units": PrivacyIdCount(),
    "total": Sum("v", min_value=0, max_value=200),
    "mean": Mean("v", min_value=0, max_value=200, nullable=False),
}
PUBLIC = PublicPartitions(keys=[("a",), ("b",)])


def bounds(partitions=4, rows=2):
    return ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=rows)


def query(metrics=METRICS, partitions=PrivatePartitions(), limits=None, **fields):
    return Query(
        privacy_unit="u", partition_by="k", bounds=limits or bounds(), metrics=metrics, partitions=partitions, **fields
    )


def plan(asked=None, **fields):
    return Plan(**{"epsilon": 1.0, "delta": 1e-6, "stages": {"weekly": asked or query()}, **fields})


def stddev(planned, metric):
    return planned.to_json()["stages"][0]["metrics"][metric]["stddev"]


@pytest.mark.parametrize("runs", [1, 52])
@pytest.mark.parametrize("strategy", ["auto", "truncated_geometric", "laplace", "gaussian", "weighted_gaussian"])
def test_a_plan_spends_its_budget_to_within_a_thousandth_and_never_more(strategy, runs):
    planned = plan(query(partitions=PrivatePartitions(strategy=strategy)), runs=runs)
    cost = accountant.epsilon_of(planned.mechanisms, planned.delta, runs=runs, accuracy=1e-5)
    assert 0.999 <= cost <= 1.0
    assert planned.accounted["epsilon"] <= 1.0


@pytest.mark.parametrize(("runs", "stages"), [(1, 1), (1, 3), (52, 1), (4, 2)])
@pytest.mark.parametrize("strategy", ["truncated_geometric", "laplace"])
def test_the_selections_of_all_stages_and_runs_together_may_fail_with_half_of_delta(strategy, runs, stages):
    asked = {f"s{number}": query({}, PrivatePartitions(strategy=strategy)) for number in range(stages)}
    planned = Plan(epsilon=1.0, delta=1e-6, stages=asked, runs=runs)
    each = [planned[name, run].choices.selection_delta for name in asked for run in range(1, runs + 1)]
    assert math.fsum(each) == pytest.approx(0.5e-6, rel=1e-12)


@settings(max_examples=12)
@given(
    st.floats(0.1, 8),
    st.sampled_from([1e-10, 1e-6, 1e-4]),
    st.integers(1, 300),
    st.integers(1, 20),
    st.sampled_from(["auto", "truncated_geometric", "weighted_gaussian"]),
)
def test_whatever_is_declared_the_records_meet_the_budget(epsilon, delta, partitions, rows, strategy):
    asked = query(partitions=PrivatePartitions(strategy=strategy), limits=bounds(partitions, rows))
    planned = plan(asked, epsilon=epsilon, delta=delta)
    assert planned.accounted["epsilon"] <= epsilon
    assert accountant.epsilon_of(planned.mechanisms, delta) <= epsilon * (1 + 1e-9)
    assert all(noise.law.scale > 0 for noise in planned["weekly"].noises if noise is not None)


def test_52_weekly_releases_need_less_than_half_the_noise_of_an_even_split_with_laplace():
    asked = query({"rows": Count()}, PUBLIC, bounds(1, 1))
    assert stddev(plan(asked, runs=52), "rows") <= 0.42 * 52 * math.sqrt(2)


def test_one_statistic_with_one_partition_gets_laplace_and_many_partitions_get_gaussian():
    few = plan(query({"rows": Count()}, PUBLIC, bounds(1, 1)))
    many = plan(query({"rows": Count()}, PUBLIC, bounds(50, 1)))
    assert few["weekly"].choices.noises["rows"].law == "laplace"
    assert stddev(few, "rows") == pytest.approx(math.sqrt(2), rel=0.01)
    assert many["weekly"].choices.noises["rows"].law == "gaussian"


def test_a_mean_counts_from_the_middle_of_its_range_and_a_lone_sum_does_not():
    mean = plan(query({"mean": Mean("v", min_value=100, max_value=200)}, PUBLIC))
    total = plan(query({"total": Sum("v", min_value=100, max_value=200)}, PUBLIC))
    assert any("from the middle" in statistic.name for statistic in mean["weekly"].statistics)
    assert not any("from the middle" in statistic.name for statistic in total["weekly"].statistics)


@pytest.mark.parametrize("make", [Mean, GeometricMean])
def test_a_mean_of_a_column_declared_without_nulls_shares_the_count_of_rows(make):
    shared = plan(query({"rows": Count(), "mean": make("v", min_value=1, max_value=2, nullable=False)}, PUBLIC))
    apart = plan(query({"rows": Count(), "mean": make("v", min_value=1, max_value=2)}, PUBLIC))
    assert len(shared["weekly"].mechanisms) == 2
    assert len(apart["weekly"].mechanisms) == 3
    assert stddev(shared, "rows") < stddev(apart, "rows")


def test_a_metric_with_more_weight_gets_less_noise():
    heavy = plan(query({"rows": Count(weight=4), "units": PrivacyIdCount()}, PUBLIC))
    even = plan(query({"rows": Count(), "units": PrivacyIdCount()}, PUBLIC))
    assert stddev(heavy, "rows") < stddev(even, "rows")
    assert stddev(heavy, "units") > stddev(even, "units")


@pytest.mark.parametrize(("partitions", "law", "ratio"), [(1, "laplace", 3.0), (30, "gaussian", 3.0**0.5)])
def test_shares_of_stages_move_the_noise_between_them(partitions, law, ratio):
    bounds = ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=1)
    stages = {name: dataclasses.replace(query({"rows": Count()}, PUBLIC), bounds=bounds) for name in ("a", "b")}
    planned = Plan(epsilon=1.0, delta=1e-6, stages=stages, shares={"a": 3, "b": 1})
    first, second = (stage["metrics"]["rows"] for stage in planned.to_json()["stages"])
    assert first["noise"] == second["noise"] == law
    assert second["stddev"] / first["stddev"] == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize("shares", [(1, 1), (1, 1, 1), (3, 0.4, 1.6)])
@pytest.mark.parametrize("partitions", [1, 4, 20])
def test_stages_together_need_no_more_noise_than_each_with_its_part_of_epsilon(shares, partitions):
    """On average of logarithms: to each stage alone the plan may give a little more."""
    asked = {f"s{place}": query({"rows": Count()}, PUBLIC, bounds(partitions)) for place in range(len(shares))}
    together = Plan(epsilon=1.0, delta=1e-6, stages=asked, shares=dict(zip(asked, shares, strict=True)))
    scale = 2 * partitions * math.sqrt(2)
    alone = [scale * math.fsum(shares) / share for share in shares]
    of_plan = [stage["metrics"]["rows"]["stddev"] for stage in together.to_json()["stages"]]
    assert math.fsum(math.log(one / other) for one, other in zip(of_plan, alone, strict=True)) < 0.002 * len(shares)


def test_thresholding_the_released_count_of_users_pays_for_its_noise_once():
    planned = plan(query({"users": PrivacyIdCount()}, PrivatePartitions(strategy="gaussian")))
    assert [record.name for record in planned.mechanisms] == ["units", "selection threshold"]
    assert planned["weekly"].selection.released


def test_auto_keeps_partitions_at_least_as_small_as_any_strategy_it_could_have_taken():
    def half(strategy):
        return plan(query({}, PrivatePartitions(strategy=strategy)))["weekly"].half_keep_users

    others = [half(strategy) for strategy in ("truncated_geometric", "laplace", "gaussian")]
    assert half("auto") <= min(others) * 1.35  # weighted selection counts its users at their worst here


@pytest.mark.parametrize(("partitions", "expected"), [(1, 14), (2, 28), (4, 55)])
def test_selection_alone_reaches_the_known_half_keep_points_of_the_geometric(partitions, expected):
    asked = query({}, PrivatePartitions(strategy="truncated_geometric"), bounds(partitions, 1))
    assert plan(asked)["weekly"].half_keep_users == pytest.approx(expected, abs=3)


def test_min_users_moves_the_threshold_by_as_many_users():
    low = plan(query({}, PrivatePartitions(strategy="laplace")))["weekly"]
    high = plan(query({}, PrivatePartitions(strategy="laplace", min_users=101)))["weekly"]
    assert high.threshold_users - low.threshold_users == pytest.approx(100, abs=0.5)


def test_a_plan_without_delta_uses_laplace_alone_and_says_what_the_tables_cost():
    planned = plan(query(METRICS, PUBLIC), delta=0)
    assert {record.kind for record in planned.mechanisms} == {"laplace"}
    assert 0 < planned.accounted["delta"] < 1e-20
    with pytest.raises(RequestError, match=r"^delta: must be above 0 .*public partitions"):
        plan(delta=0)


def test_a_plan_is_restored_from_its_frozen_choices_to_the_same_digest():
    planned = plan(runs=3)
    frozen = json.loads(json.dumps(planned.frozen()))
    again = Plan.restore(frozen, epsilon=1.0, delta=1e-6, stages={"weekly": query()}, runs=3)
    assert again.digest == planned.digest
    assert again.mechanisms == planned.mechanisms


def test_a_restored_plan_with_less_noise_than_it_paid_for_is_refused():
    frozen = plan().frozen()
    frozen["calibrated"]["gaussian_scale"] = "1"
    frozen["calibrated"]["laplace_scale"] = "1"
    with pytest.raises(RequestError, match="costs more than its budget"):
        Plan.restore(frozen, epsilon=1.0, delta=1e-6, stages={"weekly": query()})


@pytest.mark.parametrize(
    ("made_for", "asked"),
    [
        (query({}, PrivatePartitions(strategy="weighted_gaussian")), query({}, PrivatePartitions(min_users=400))),
        (query({}, PrivatePartitions(strategy="weighted_gaussian")), query({}, PrivatePartitions(strategy="laplace"))),
        (query({"rows": Count()}, PUBLIC), query({"rows": Count()})),
        (query({"rows": Count()}), query({"rows": Count()}, PUBLIC)),
        (query({"rows": Count()}, PUBLIC), query({"users": PrivacyIdCount()}, PUBLIC)),
    ],
    ids=["min_users beside weights", "another strategy", "private, not public", "public, not private", "other metrics"],
)
def test_choices_that_were_made_for_another_query_are_refused(made_for, asked):
    frozen = plan(made_for).frozen()
    with pytest.raises(RequestError, match="was made for another query"):
        Plan.restore(frozen, epsilon=1.0, delta=1e-6, stages={"weekly": asked})


def test_a_weighted_selection_whose_stored_law_is_laplace_is_refused():
    asked = query({}, PrivatePartitions(strategy="weighted_gaussian"))
    frozen = plan(asked).frozen()
    dict(frozen["calibrated"]["choices"]["weekly"]["noises"])["selection"]["law"] = "laplace"
    with pytest.raises(RequestError, match="was made for another query"):
        Plan.restore(frozen, epsilon=1.0, delta=1e-6, stages={"weekly": asked})


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": 1.001},
        {"delta": 2e-6},
        {"runs": 2},
        {"stages": {"other": query()}},
        {"stages": {"weekly": query(row_id="r")}},
        {"stages": {"weekly": query(limits=bounds(5))}},
        {"stages": {"weekly": query(partitions=PublicPartitions(keys=[("1",)]))}},
    ],
    ids=str,
)
def test_whatever_changes_a_plan_changes_its_digest(changed):
    assert plan(**changed).digest != plan().digest


def test_public_keys_of_other_types_are_other_plans():
    text = plan(query(partitions=PublicPartitions(keys=[("1",)])))
    number = plan(query(partitions=PublicPartitions(keys=[(1,)])))
    assert text.digest != number.digest


def test_stages_travel_to_workers_by_pickle():
    stage = plan()["weekly"]
    assert pickle.loads(pickle.dumps(stage)) == stage


def test_the_json_of_a_plan_has_what_scripts_rely_on():
    shown = plan(expect=Expectation(users=500, rows_per_partition=900)).to_json()
    assert {"epsilon", "delta", "accounted", "accounted_one_run", "stages", "mechanisms"} <= set(shown)
    (stage,) = shown["stages"]
    assert {"name", "kind", "metrics", "selection"} <= set(stage)
    assert stage["metrics"]["mean"]["stddev"] is None
    assert stage["metrics"]["rows"]["noise"] in ("laplace", "gaussian")
    assert {"strategy", "threshold", "half_keep_users"} <= set(stage["selection"])
    assert 0 < stage["metrics"]["mean"]["expected_relative_error"] < 1
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True, "1", None, 10**400])
def test_an_epsilon_that_is_no_positive_number_is_refused_by_name(bad):
    with pytest.raises(RequestError, match="^epsilon: .*write e.g. epsilon"):
        plan(epsilon=bad)


@pytest.mark.parametrize("bad", [-1e-9, 1, 2, math.nan, True, "1e-6", None])
def test_a_delta_that_is_no_probability_is_refused_by_name(bad):
    with pytest.raises(RequestError, match="^delta: "):
        plan(delta=bad)


@pytest.mark.parametrize("bad", [0, 1.5, True, "3", 10**7])
def test_runs_that_are_no_number_of_runs_are_refused_by_name(bad):
    with pytest.raises(RequestError, match="^runs: must be a whole number"):
        plan(runs=bad)


def test_a_budget_that_would_drown_everything_is_refused_with_what_to_change():
    with pytest.raises(BudgetError, match="raise epsilon or delta, lower the contribution bounds"):
        plan(query(limits=bounds(100_000, 1)), epsilon=0.001, delta=1e-12)


def test_variance_and_clipped_sums_take_part_in_a_plan():
    metrics = {
        "variance": Variance("v", min_value=-10, max_value=10),
        "clipped": Sum("v", min_sum_per_partition=-5, max_sum_per_partition=50),
    }
    planned = plan(query(metrics, PUBLIC))
    assert len(planned.mechanisms) == 4
    assert stddev(planned, "clipped") > 50 / 3


@pytest.mark.parametrize("runs", [1, 52])
@pytest.mark.parametrize("partitions", [PUBLIC, PrivatePartitions()], ids=["public", "private"])
def test_a_plan_of_50_mechanisms_leaves_at_most_a_thousandth_of_epsilon(partitions, runs):
    metrics = {f"s{n}": Sum(f"v{n}", min_value=0, max_value=1 + n, weight=1 + n % 5) for n in range(50)}
    planned = plan(query(metrics, partitions), runs=runs)
    assert len(planned.mechanisms) >= 50
    assert 0.999 <= accountant.epsilon_of(planned.mechanisms, 1e-6, runs=runs, accuracy=1e-5) <= 1.0


def test_many_stages_of_different_kinds_leave_at_most_a_thousandth_of_epsilon():
    stages = {
        f"s{n}": query(
            {"mean": Mean("v", min_value=0, max_value=1 + n), "users": PrivacyIdCount()},
            PrivatePartitions() if n % 2 else PUBLIC,
            bounds(1 + n, 1 + n % 3),
        )
        for n in range(15)
    }
    planned = Plan(epsilon=1.0, delta=1e-6, stages=stages)
    assert len(planned.mechanisms) >= 45
    assert 0.999 <= accountant.epsilon_of(planned.mechanisms, 1e-6, accuracy=1e-5) <= 1.0


def test_each_round_of_a_growing_budget_costs_what_its_own_records_cost():
    planned = plan(query(partitions=PUBLIC), runs=3, split="linear")
    for number in (1, 2, 3):
        this = planned.round(number)
        alone = accountant.epsilon_of(this.mechanisms, 1e-6)
        assert dict(this.accounted) == {"epsilon": pytest.approx(alone, rel=1e-3), "delta": 1e-6}
