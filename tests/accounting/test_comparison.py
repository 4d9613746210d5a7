"""Four ways to add up losses, beside each other; and users in disjoint groups, of which the dearest decides."""

import itertools
import json
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query, RequestError, Sum
from dp_pipelines.accounting import accountant, comparison, composition, dominating_pairs
from dp_pipelines.accounting.accountant import delta_of, epsilon_of, epsilon_of_groups, epsilon_of_rounds
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.noise import FlooredLaplace, RoundedGaussian


def gaussian(scale, l2_squared=1, stage="s"):
    return MechanismRecord(stage=stage, name="g", kind="gaussian", scale=Fraction(scale), l2_squared=l2_squared, l0=1)


def laplace(scale, linf=1, l0=1, l1=None):
    l1 = linf * l0 if l1 is None else l1
    return MechanismRecord(stage="s", name="l", kind="laplace", scale=Fraction(scale), linf=linf, l0=l0, l1=l1)


def decision(epsilon, delta, l0=1):
    return MechanismRecord(stage="s", name="d", kind="approximate_dp", epsilon=epsilon, delta=delta, l0=l0)


def failure(delta):
    return MechanismRecord(stage="s", name="f", kind="delta", delta=delta)


records = st.one_of(
    st.integers(1, 200).map(gaussian),
    st.builds(laplace, st.integers(2, 200), st.integers(1, 8), st.integers(1, 9), st.integers(1, 30)),
    st.builds(decision, st.floats(1e-3, 0.5), st.floats(0, 1e-10), st.integers(1, 9)),
    st.floats(1e-12, 1e-10).map(failure),
)


def with_interval(question, *arguments):
    """An answer, and the interval of the last grid that was made for it; 0 where there was none."""
    made, real = [0.0], composition._interval

    def noted(*given, **named):
        made.append(real(*given, **named))
        return made[-1]

    with mock.patch.object(composition, "_interval", noted):
        return question(*arguments), made[-1]


def off_the_nodes(some, runs, interval):
    """How many of the composed pairs have losses that lie between nodes: all but decisions of a whole number of intervals."""
    pairs = accountant.loss_distribution(some, runs=runs)
    fits = [pair for pair in pairs.bounded if isinstance(pair, dominating_pairs.Response) and interval]
    fits = [pair for pair in fits if abs(pair.largest / interval - round(pair.largest / interval)) < 1e-9]
    return (pairs.mu > 0) + sum(times for pair, times in pairs.bounded.items() if pair not in fits)


# What the answer may be above the truth beside the grid's rounding, relatively: additions against floating point.
FLOATS = 1e-5


@settings(max_examples=40)
@given(st.lists(records, min_size=1, max_size=5), st.integers(1, 60), st.sampled_from([1e-3, 1e-6, 1e-7]))
@example([decision(0.25, 0.0, 5), decision(0.125, 0.0, 4)], 1, 1e-6)
@example([decision(0.25, 0.0, 5), decision(0.125, 0.0, 4)], 1, 1e-5)
@example([decision(0.3, 0.0, 2), laplace(35, 2, 9, 1)], 2, 1e-7)
@example([laplace(2, 3)], 16, 1e-7)  # the tables use up 3e-12 of delta, and 24.0176 was said
def test_no_way_says_less_than_the_loss_distribution_and_advanced_never_more_than_naive(some, runs, delta):
    costs, interval = with_interval(comparison.compare, [(some, runs)], delta)
    assert costs.advanced <= costs.naive
    # Splitting a loss between two nodes moves it up by an interval h at most, and raises its Renyi divergence of an order a
    # by at most a h^2 / 8 (docs/proofs/accounting.md, 5): so k pairs with losses between nodes put the grid's answer above
    # Renyi's by at most k times the smaller of both. Five decisions of 0.25 and four of 0.125 show it: 0.25 is 113
    # intervals, so 0.125 lies in the middle between two nodes, and 1.75000 is said where 1.749776 is true.
    blur = off_the_nodes(some, runs, interval) * interval * min(1.0, (costs.order or math.inf) * interval / 8)
    # Beyond 30 the samplers' tables show, which only the last way counts.
    assert costs.renyi > 30 or costs.pld <= costs.renyi * (1 + FLOATS) + 1e-9 + blur
    assert costs.advanced > 30 or costs.pld <= costs.advanced * (1 + FLOATS) + 1e-9


def true_epsilon(decisions, delta):
    """Of some decisions together, from the sum over all of their outcomes."""
    each = [epsilon for epsilon, times in decisions for _ in range(times)]
    outcomes = {0.0: 1.0}
    for epsilon in each:
        truth, after = 1 / (1 + math.exp(-epsilon)), {}
        for (loss, mass), (change, part) in itertools.product(
            outcomes.items(), ((epsilon, truth), (-epsilon, 1 - truth))
        ):
            after[loss + change] = after.get(loss + change, 0.0) + mass * part
        outcomes = after
    low, high = 0.0, math.fsum(each)
    for _ in range(60):
        middle = (low + high) / 2
        enough = (
            math.fsum(-mass * math.expm1(middle - loss) for loss, mass in outcomes.items() if loss > middle) <= delta
        )
        low, high = (low, middle) if enough else (middle, high)
    return high


sizes = st.one_of(st.sampled_from([0.0625, 0.1, 0.125, 0.25, 1 / 3, 0.5]), st.floats(1e-3, 0.5))


@settings(max_examples=40)
@given(
    st.lists(st.tuples(sizes, st.integers(1, 5)), min_size=1, max_size=2),
    st.sampled_from([1e-3, 1e-5, 1e-6, 1e-7]),
)
@example([(0.25, 5), (0.125, 4)], 1e-5)
@example([(0.25, 5), (0.125, 4)], 1e-6)
@example([(0.25, 5), (0.125, 4)], 1e-7)
def test_an_epsilon_is_above_the_truth_by_at_most_an_interval_for_each_pair_with_losses_between_nodes(decisions, delta):
    some = [decision(epsilon, 0.0, times) for epsilon, times in decisions]
    found, interval = with_interval(epsilon_of, some, delta)
    true = true_epsilon(decisions, delta)
    above = off_the_nodes(some, 1, interval) * interval
    assert true * (1 - 1e-9) - 1e-12 <= found <= true * (1 + FLOATS) + 1e-9 + above
    assert found <= math.fsum(epsilon * times for epsilon, times in decisions) * (1 + 1e-12)


def test_decisions_of_which_all_lie_on_nodes_cost_the_truth_and_others_up_to_a_part_in_ten_thousand_more():
    assert epsilon_of([decision(0.25, 0.0, 9)], 1e-6) == pytest.approx(true_epsilon([(0.25, 9)], 1e-6), rel=1e-9)
    mixed, true = [decision(0.25, 0.0, 5), decision(0.125, 0.0, 4)], true_epsilon([(0.25, 5), (0.125, 4)], 1e-6)
    found, interval = with_interval(epsilon_of, mixed, 1e-6)
    assert (round(true, 6), round(found, 6), round(0.25 / interval)) == (1.749776, 1.75, 113)
    assert off_the_nodes(mixed, 1, interval) == 4


def test_365_daily_gaussian_reports_cost_1_38_where_adding_up_says_21_3_or_29_2():
    costs = comparison.compare([([gaussian(60)], 365)], 1e-6)
    assert costs.pld == pytest.approx(1.38, abs=0.005)
    assert costs.renyi == pytest.approx(1.483, abs=0.005)
    # Epsilons added up, each at delta 1e-6: then the deltas add up to 365e-6 besides. At the same delta in all it is worse.
    assert 365 * epsilon_of([gaussian(60)], 1e-6) == pytest.approx(21.30, abs=0.01)
    assert costs.naive == pytest.approx(365 * epsilon_of([gaussian(60)], 1e-6 / 365), rel=1e-6)
    assert costs.naive == pytest.approx(29.2, abs=0.1)


def test_52_weekly_releases_get_at_most_0_42_of_the_noise_of_an_even_split_with_laplace():
    bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    keys = PublicPartitions(keys=[("a",)])
    asked = Query(privacy_unit="u", partition_by="k", bounds=bounds, metrics={"rows": Count()}, partitions=keys)
    weekly = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": asked}, runs=52)["weekly", 1].noises[0].stddev
    even = Plan(epsilon=1 / 52, delta=0.0, stages={"weekly": asked})["weekly"].noises[0].stddev
    assert even == pytest.approx(52 * math.sqrt(2), rel=0.01)
    assert weekly <= 0.42 * even


def test_naive_composition_adds_up_epsilons_and_deltas():
    some = [laplace(10, 1, 3), decision(0.1, 1e-8, 2), failure(1e-8)]
    assert comparison.compare([(some, 4)], 1e-6).naive == pytest.approx(4 * (0.3 + 0.2))
    assert comparison.compare([(some, 4)], 1.2e-7 * (1 - 1e-9)).naive == math.inf
    assert comparison.compare([(some, 4)], 1.2e-7 * (1 - 1e-9)).renyi == math.inf


def test_advanced_composition_is_the_formula_of_its_theorem():
    # Kairouz, Oh, Viswanath 2015, theorem 3.5, by hand for 1000 mechanisms of epsilon 0.01.
    k, e, delta = 1000, 0.01, 1e-6 * 0.95
    mean = k * e * (math.exp(e) - 1) / (math.exp(e) + 1)
    by_log = mean + math.sqrt(2 * k * e * e * math.log(1 / delta))
    other = mean + math.sqrt(2 * k * e * e * math.log(math.e + math.sqrt(k * e * e) / delta))
    assert comparison.compare([([laplace(100)], k)], 1e-6).advanced == pytest.approx(
        min(by_log, other, k * e), rel=1e-9
    )


def test_at_delta_zero_all_ways_add_up_epsilons():
    costs = comparison.compare([([laplace(10, 1, 3)], 4)], 0.0)
    assert (costs.naive, costs.advanced, costs.renyi, costs.pld) == pytest.approx((1.2,) * 4)
    assert comparison.compare([([gaussian(10)], 1)], 0.0).pld == math.inf


def test_runs_that_differ_cost_what_their_records_cost_together():
    lists = [([gaussian(9), laplace(30, 1, 4)], 3), ([gaussian(5)], 1), ([], 7)]
    together = epsilon_of([*[gaussian(9), laplace(30, 1, 4)] * 3, gaussian(5)], 1e-6)
    assert epsilon_of_rounds(lists, 1e-6) == pytest.approx(together, rel=1e-6)
    with pytest.raises(RequestError, match="^runs: "):
        epsilon_of_rounds([([gaussian(9)], 0)], 1e-6)


def test_a_plan_explains_each_stage_alone_and_all_together():
    bounds = ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=1)
    keys = PublicPartitions(keys=[("a",)])
    common = {"privacy_unit": "u", "partition_by": "k", "bounds": bounds, "partitions": keys}
    stages = {
        "a": Query(metrics={"rows": Count()}, **common),
        "b": Query(metrics={"total": Sum("v", min_value=0, max_value=9)}, **common),
    }
    for split in ("constant", "linear"):
        planned = Plan(epsilon=1.0, delta=1e-6, stages=stages, runs=6, split=split)
        said = planned.explain()
        assert json.loads(json.dumps(said)) == said
        assert said["total"]["pld"] == pytest.approx(planned.accounted["epsilon"], rel=1e-3)
        assert said["total"]["pld"] < said["total"]["renyi"] < said["total"]["naive"]
        assert set(said["stages"]) == set(said["records"]) == {"a", "b"}
        assert all(cost["pld"] < said["total"]["pld"] for cost in said["stages"].values())
        listed = [record for of_stage in said["records"].values() for record in of_stage]
        assert listed == [record.to_json() for record in planned.mechanisms]


def test_of_disjoint_groups_the_dearest_counts_on_top_of_what_all_share():
    shared, first, second = [gaussian(9)], [laplace(20, 1, 4)], [laplace(10, 1, 4), failure(1e-8)]
    cost = epsilon_of_groups(shared, [first, second, []], 1e-6, runs=3)
    assert cost == epsilon_of([*shared, *second], 1e-6, runs=3)
    assert cost < epsilon_of([*shared, *first, *second], 1e-6, runs=3)
    assert epsilon_of_groups(shared, [], 1e-6) == epsilon_of(shared, 1e-6)
    with pytest.raises(RequestError, match="^delta: "):
        epsilon_of_groups(shared, [first], -1.0)


@settings(max_examples=20)
@given(st.lists(records, max_size=2), st.lists(st.lists(records, max_size=2), min_size=1, max_size=3))
def test_groups_cost_at_least_each_group_and_at_most_all_in_one(shared, groups):
    cost = epsilon_of_groups(shared, groups, 1e-6)
    assert all(cost >= epsilon_of([*shared, *group], 1e-6) for group in groups)
    assert cost <= epsilon_of([*shared, *(record for group in groups for record in group)], 1e-6) * (1 + 2e-4) + 1e-9


@pytest.mark.parametrize("member", [0, 1])
def test_a_sum_over_all_outcomes_of_two_groups_is_never_above_their_cost(member):
    # A unit of either group moves the shared integer and its own group's, and nothing of the other group.
    laws = [RoundedGaussian(Fraction(3)), FlooredLaplace(Fraction(2)), FlooredLaplace(Fraction(4))]
    shifts = [1, int(member == 0), int(member == 1)]
    p = q = np.ones(())
    for law, shift in zip(laws, shifts, strict=True):
        xs = range(-80, 81)
        at = {x: law.pmf(x) for x in range(-81, 82)}
        p = np.multiply.outer(p, np.array([at[x] for x in xs]))
        q = np.multiply.outer(q, np.array([at[x - shift] for x in xs]))
    for epsilon in (0.3, 0.6, 0.9):
        true = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        assert true <= delta_of([gaussian(3), laplace(2)], epsilon) + 1e-11
        if true > 1e-6:
            assert epsilon_of_groups([gaussian(3)], [[laplace(2)], [laplace(4)]], true * (1 - 1e-6)) >= epsilon
    # The planted fault: leaving the dearer group out is found.
    if member == 0:
        assert true > delta_of([gaussian(3), laplace(4)], 0.9) + 1e-3
