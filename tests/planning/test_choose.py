"""How a plan chooses: bases of sums, parts of the budget, and the other law for a single statistic only where that pays.

In: small queries. Out: candidates and chosen plans. Holds: a mirrored range has the same answer; no step of the search makes a
plan worse. Not covered: scores (test_expected_error), what a budget buys (test_plan).
"""

import math

import pytest

import dp_pipelines as dp
from dp_pipelines.planning import choose
from dp_pipelines.planning.candidate import TotalBudget
from dp_pipelines.planning.choose import centring_pays
from dp_pipelines.planning.expected_error import ExpectedErrors

BUDGET = TotalBudget(epsilon=1.0, delta=1e-6, runs=1)


def pays(low: float, high: float, **metrics: dp.Metric) -> bool:
    """Whether centring pays for metrics over this range of a column, beside a mean over another range of it."""
    query = dp.Query(
        privacy_unit="who",
        partition_by="k",
        bounds=dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
        metrics={**metrics, "other": dp.Mean("paid", min_value=5, max_value=6)},
        partitions=dp.PublicPartitions(keys=[("a",)]),
    )
    return centring_pays(query, ("paid", float(low), float(high)))


@pytest.mark.parametrize("ends", [(10, 30), (0, 1), (29.9, 30), (-1, 3), (1e-290, 1e290), (0, 1e-290)])
@pytest.mark.parametrize("side", [1, -1])
def test_a_mean_over_a_range_whose_middle_is_not_0_is_counted_from_the_middle(
    ends: tuple[float, float], side: int
) -> None:
    low, high = sorted(side * end for end in ends)
    mean = dp.Mean("paid", min_value=low, max_value=high)
    total = dp.Sum("paid", min_value=low, max_value=high, weight=5)
    assert pays(low, high, mean=mean)
    assert pays(low, high, mean=mean, total=total)
    assert not pays(low, high, total=total)
    fixed = dp.Sum("paid", min_value=low, max_value=high, stddev=1000 * max(abs(low), abs(high)))
    assert not pays(low, high, mean=mean, total=fixed)


@pytest.mark.parametrize("end", [1e-9, 1.0, 7.3, 1e200])
def test_a_range_whose_middle_is_0_is_counted_from_there_already(end: float) -> None:
    assert not pays(-end, end, mean=dp.Mean("paid", min_value=-end, max_value=end))


def test_another_range_of_the_column_decides_nothing() -> None:
    mean = dp.Mean("paid", min_value=10, max_value=30)
    bounds = dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2)
    listed = dp.PublicPartitions(keys=[("a",)])
    alone = dp.Query(privacy_unit="who", partition_by="k", bounds=bounds, metrics={"mean": mean}, partitions=listed)
    assert centring_pays(alone, ("paid", 10.0, 30.0))
    assert not pays(10, 30, mean=dp.Mean("paid", min_value=10, max_value=31))
    assert pays(5, 6, total=dp.Sum("paid", min_value=10, max_value=30, stddev=10**6))


def asked(partitions: object = None, most: int = 3) -> dp.Query:
    """A query of a few statistics, which one unit moves in different ways."""
    return dp.Query(
        privacy_unit="who",
        partition_by="k",
        bounds=dp.ContributionBounds(max_partitions_contributed=most, max_contributions_per_partition=9),
        metrics={
            "rows": dp.Count(weight=3),
            "people": dp.PrivacyIdCount(),
            "sizes": dp.Histogram("paid", edges=[0, 1, 5, 20]),
            "paid": dp.Sum("paid", min_value=0, max_value=9, stddev=500),
        },
        partitions=partitions or dp.PublicPartitions(keys=[("a",)]),
    )


@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize("partitions", [None, dp.PrivatePartitions(weight=2.0)], ids=["public", "private"])
def test_the_weights_of_a_stage_are_its_share_in_proportion_to_those_that_were_asked_for(
    share: float, partitions: object
) -> None:
    for candidate in choose.candidates(asked(partitions), share, BUDGET):
        assert math.fsum(candidate.weights.values()) == pytest.approx(share)
        assert set(candidate.fixed) == set(candidate.laws) - set(candidate.weights)
        assert candidate.of_weight * 3 == pytest.approx(candidate.weights["rows"])
        others = {item: weight / candidate.of_weight for item, weight in candidate.weights.items()}
        users = 1 + 2 * (candidate.strategy in ("laplace", "gaussian"))
        assert others.pop("units") == pytest.approx(users)
        compared = others.pop("coin", None) or others.pop("selection", None)
        assert compared == (None if partitions is None or users > 1 else pytest.approx(2.0))
        assert sorted(others.values()) == pytest.approx([1.0, 3.0])


@pytest.mark.parametrize("most", [1, 4, 8])
def test_a_single_statistic_takes_the_other_law_only_where_the_expected_error_falls(most: int) -> None:
    query = dp.Query(
        privacy_unit="who",
        partition_by="k",
        bounds=dp.ContributionBounds(max_partitions_contributed=most, max_contributions_per_partition=1),
        metrics={"rows": dp.Count(), "vector": dp.VectorSum("embedding", size=20, max_norm=1.0)},
        partitions=dp.PublicPartitions(keys=[("a",)]),
    )
    options = {"weekly": list(choose.candidates(query, 1.0, BUDGET))}
    for start in options["weekly"]:
        plan = ExpectedErrors({"weekly": query}, options, BUDGET).of({"weekly": start})
        before = plan.score
        after = choose._with_single_flips({"weekly": query}, plan, BUDGET)
        changed = {item for item, law in after.chosen["weekly"].laws.items() if law != start.laws[item]}
        assert after.score <= before - choose.GAIN * len(changed)
        if most > 1 and set(start.laws.values()) == {"laplace"}:
            # Of a vector the L2 norm is bounded, so that Laplace noise pays for the root of its size.
            assert any(item.startswith("vector_sum") for item in changed)
