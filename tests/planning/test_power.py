"""How small a difference of arms a plan says it finds: with arms of unequal size too, beside a closed form and many tests."""

import math
from typing import Any

import numpy as np
import pytest

from dp_pipelines import Compare, ContributionBounds, Count, Plan, PublicPartitions, Query, RequestError, Sum
from dp_pipelines.plan_stages.arm_moments import ArmMoments
from dp_pipelines.planning import power
from dp_pipelines.query.expectation import Expectation
from dp_pipelines.release.arm_estimates import ArmSum, Sampling, differences, quotients

TOTALS = {"paid": (20.0, 30.0)}


def query(arms: tuple[Any, ...] = ("A", "B", "C"), **changed: Any) -> Query:
    declared: dict[str, Any] = {
        "privacy_unit": "customer",
        "partition_by": "arm",
        "partitions": PublicPartitions(keys=[(arm,) for arm in arms]),
        "bounds": ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=4),
        "metrics": {"orders": Count(), "paid": Sum("price", min_sum_per_partition=0, max_sum_per_partition=200)},
        "compare": Compare(by="arm", baseline=arms[0], metrics=["paid"]),
    }
    return Query(**declared | changed)


def plan(expect: Expectation | None, asked: Query | None = None, epsilon: float = 1.0) -> Plan:
    return Plan(epsilon=epsilon, delta=1e-6, stages={"test": query() if asked is None else asked}, expect=expect)


def said(expect: Expectation | None, asked: Query | None = None, epsilon: float = 1.0) -> dict[str, Any]:
    (found,) = (stage["compare"] for stage in plan(expect, asked, epsilon).to_json()["stages"] if "compare" in stage)
    assert isinstance(found, dict)
    return found


def noise_of(made: Plan) -> tuple[float, float]:
    """The deviations of the noise of the sum and of the number of units."""
    stage = made["test.compare"]
    by_name = {
        statistic.name: noise.stddev for statistic, noise in zip(stage.statistics, stage.noises, strict=True) if noise
    }
    of = {name: metric.statistics(stage.basis(metric))[0].name for name, metric in stage.query.metrics.items()}
    return by_name[of["total_0"]], by_name[of["units"]]


def test_each_arm_has_the_variance_of_its_own_units_and_that_of_the_baseline() -> None:
    found = said(Expectation(arms={"A": 286, "B": 2371, "C": 3255}, totals=TOTALS))
    of_sum, of_units = noise_of(plan(None))
    noise = of_sum**2 + (20 * of_units) ** 2
    for entry, units in zip(found["by_arm"], (2371, 3255), strict=True):
        variance = sum((900 + noise / size) / size for size in (286, units))
        paid = entry["metrics"]["paid"]
        assert paid["difference"] == pytest.approx((1.959964 + 0.841621) * math.sqrt(variance), rel=1e-5)
        without = (1.959964 + 0.841621) * math.sqrt(sum(900 / size for size in (286, units)))
        assert paid["difference_without_noise"] == pytest.approx(without, rel=1e-5)
        assert paid["relative"] == pytest.approx(paid["difference"] / 20)
    assert [entry["arm"] for entry in found["by_arm"]] == ["B", "C"]
    assert found["baseline_units"] == 286


def test_equal_arms_are_what_users_says_of_all() -> None:
    equal = said(Expectation(arms={"A": 1000, "B": 1000, "C": 1000}, totals=TOTALS))
    usual = said(Expectation(users=1000, totals=TOTALS))
    assert equal["by_arm"][0]["metrics"] == usual["metrics"]
    assert "by_arm" not in usual
    assert said(Expectation(users=1000, arms={"B": 40}, totals=TOTALS))["by_arm"][1]["metrics"] == usual["metrics"]


def test_numbers_of_units_decide_no_release() -> None:
    assert plan(None).digest == plan(Expectation(arms={"A": 286, "B": 2371, "C": 3255})).digest


def test_the_words_name_both_arms() -> None:
    words = power.in_words(said(Expectation(arms={"A": 286, "B": 2371, "C": 3255}, totals=TOTALS)))
    assert words[1] == "with 2,371 units in B and 286 in A, 80 of 100 tests find"
    assert words[2].startswith("  paid: a difference of ")
    assert words[3] == "with 3,255 units in C and 286 in A, 80 of 100 tests find"
    assert power.in_words(said(None))[-1].startswith("declare e.g. expect: {users: 10000")


def test_arms_that_are_numbers_are_named_as_they_are_written() -> None:
    found = said(Expectation(arms={"7": 100, "8": 4000}, totals=TOTALS), query(arms=(7, 8)))
    assert [(entry["arm"], entry["units"]) for entry in found["by_arm"]] == [("8", 4000)]


@pytest.mark.parametrize(
    ("arms", "place", "rule"),
    [
        ({"A": 10, "B": 10, "D": 10}, "expect.arms.D", "is no arm that a stage compares"),
        ({"A": 10, "B": 10}, "expect.arms", "says nothing of arm 'C'"),
        ({"A": 0, "B": 10, "C": 1}, "expect.arms.A", "must be"),
        ({}, "expect.arms", "must map arms"),
    ],
)
def test_arms_that_cannot_be_are_refused(arms: dict[str, float], place: str, rule: str) -> None:
    with pytest.raises(RequestError) as refused:
        plan(Expectation(arms=arms))
    assert refused.value.field == place
    assert rule in refused.value.message
    assert refused.value.hint


def test_arms_without_a_comparison_are_refused() -> None:
    with pytest.raises(RequestError, match="there is none"):
        plan(Expectation(arms={"A": 10}), query(compare=None))


SIZES = (400, 3000)
"""Units of two arms."""


@pytest.mark.parametrize("stddev", [0.0, 60.0, 400.0])
@pytest.mark.parametrize("excess", [0.0, 3.0], ids=["gaussian", "laplace"])
def test_a_test_finds_what_its_interval_says_in_80_of_100_cases_and_half_of_it_far_less_often(
    stddev: float, excess: float
) -> None:
    """Sums of units with a standard deviation of 30 a unit; each has noise of its own. 4,000 tests of each size."""
    made, tests = np.random.default_rng(23), 4000

    def noisy(values: Any, scale: float) -> ArmSum:
        drawn = made.normal(size=tests) if excess == 0.0 else made.laplace(size=tests) / math.sqrt(2)
        return ArmSum(values=values + scale * drawn, stddev=max(scale, 1e-9), excess=excess)

    def arm(units: int, mean: float) -> Any:
        total = units * mean + 30 * math.sqrt(units) * made.normal(size=tests)
        squares = np.full(tests, units * (900.0 + mean**2))
        count, summed = noisy(float(units), stddev / 30), noisy(total, stddev)
        sampling = Sampling(above=noisy(squares, stddev * 30), mixed=summed, below=count, units=count)
        return quotients(summed, count, sampling)

    def found(difference: float) -> tuple[float, float]:
        between = differences(arm(SIZES[1], 20.0 + difference), arm(SIZES[0], 20.0))
        smallest = [power.smallest_of_interval(low, high) for low, high in zip(between.low, between.high, strict=True)]
        return float(np.mean((between.low > 0) | (between.high < 0))), float(np.nanmedian(smallest))

    none, smallest = found(0.0)
    assert none == pytest.approx(0.05, abs=0.02)
    assert found(smallest)[0] == pytest.approx(0.8, abs=0.05)
    assert found(smallest / 2)[0] < 0.4


QUOTIENT = Compare(by="arm", baseline="A", metrics=["paid / orders"])


def stddevs_of(made: Plan) -> dict[str, float]:
    """The deviation of the noise of each sum."""
    stage = made["test.compare"]
    by_name = {s.name: noise.stddev for s, noise in zip(stage.statistics, stage.noises, strict=True) if noise}
    return {
        name: by_name[metric.statistics(stage.basis(metric))[0].name] for name, metric in stage.query.metrics.items()
    }


def test_a_quotient_of_two_totals_has_the_variance_of_both_and_of_their_noise() -> None:
    """To first order: of a total less the quotient times the other, for each unit, over the mean below."""
    asked = query(compare=QUOTIENT)
    expect = Expectation(users=4000, totals={"paid": (20.0, 30.0), "orders": (4.0, 1.5)})
    (metric,) = said(expect, asked)["metrics"].values()
    moments = ArmMoments.of(asked)
    above, below, _ = moments.names(moments.compared[0])
    noises = stddevs_of(plan(None, asked))
    sampled, noise = 30.0**2 + (5 * 1.5) ** 2, noises[above] ** 2 + (5 * noises[below]) ** 2
    reach = 1.959964 + 0.841621
    assert metric["value"] == 5.0
    assert metric["difference"] == pytest.approx(reach * math.sqrt(2 * (sampled + noise / 4000) / 4000) / 4, rel=1e-5)
    assert metric["difference_without_noise"] == pytest.approx(reach * math.sqrt(2 * sampled / 4000) / 4, rel=1e-5)
    assert metric["relative"] == pytest.approx(metric["difference"] / 5)
    assert metric["declared"] is True


def test_intervals_of_the_noise_alone_find_what_the_noise_alone_hides() -> None:
    asked = query(compare=Compare(by="arm", baseline="A", metrics=["paid / orders"], intervals="noise"))
    expect = Expectation(users=4000, totals={"paid": (20.0, 30.0), "orders": (4.0, 1.5)})
    (metric,) = said(expect, asked)["metrics"].values()
    assert metric["difference_without_noise"] == 0
    assert metric["difference"] > 0


def test_what_is_not_declared_is_guessed_from_rows_with_a_geometric_number_and_values_that_are_spread_evenly() -> None:
    # Of N rows with mean m and variance m (m - 1), the sum of values between 2 and 10 has mean 6 m and variance
    # m 64/12 + 36 m (m - 1).
    metrics = {"orders": Count(), "paid": Sum("price", min_value=2, max_value=10)}
    asked = query(metrics=metrics, compare=Compare(by="arm", baseline="A", metrics=["paid", "orders"]))
    found = said(Expectation(users=1000, rows_per_partition=1500), asked)["metrics"]
    reach, rows = 1.959964 + 0.841621, 1.5
    wanted = {"paid": (6 * rows, rows * 64 / 12 + 36 * rows * 0.5), "orders": (rows, rows * 0.5)}
    for name, (mean, variance) in wanted.items():
        assert found[name]["value"] == pytest.approx(mean)
        without = reach * math.sqrt(2 * variance / 1000)
        assert found[name]["difference_without_noise"] == pytest.approx(without, rel=1e-5)
        assert found[name]["declared"] is False


def test_a_difference_is_told_as_a_part_of_the_value_wherever_there_is_one() -> None:
    metric = {"difference": 3.2, "difference_without_noise": 2.9, "relative": 0.064, "declared": True}
    found = {"baseline": "A", "arms": 3, "intervals": "noise", "units": 100.0, "metrics": {"paid": metric}}
    assert power.in_words(found)[-1] == "  paid: a difference of 3.2 or 6.4% (2.9 without noise)"
    guessed = {**metric, "relative": None, "declared": False}
    last = power.in_words(found | {"metrics": {"paid": guessed}})[-1]
    assert last == "  paid: a difference of 3.2 (2.9 without noise), with a guess of what expect does not say"
