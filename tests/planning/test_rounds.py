"""Splits of a budget over runs: every round's noise follows its part, and all rounds together meet the budget."""

import itertools
import json
import math
import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import (
    BudgetError,
    ContributionBounds,
    Count,
    Plan,
    PrivacyIdCount,
    PrivatePartitions,
    PublicPartitions,
    Query,
    RequestError,
    Sum,
)
from dp_pipelines.accounting import accountant
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.noise import noise_schedule
from dp_pipelines.planning import candidate, rounds
from dp_pipelines.planning.stage_choices import Choice, StageChoices

PUBLIC = PublicPartitions(keys=[("a",), ("b",)])
PARTS = {
    "linear": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    "exponential": [16 ** (n / 7) for n in range(8)],
}
PARTS |= {f"{name}_decreasing": parts[::-1] for name, parts in PARTS.items()}


def query(partitions=PUBLIC, **metrics):
    bounds = ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2)
    kept = metrics or {"rows": Count(), "total": Sum("v", min_value=0, max_value=7)}
    return Query(privacy_unit="u", partition_by="k", bounds=bounds, metrics=kept, partitions=partitions)


def plan(split, runs=8, asked=None, epsilon=2.0, delta=1e-6, **fields):
    return Plan(epsilon=epsilon, delta=delta, stages={"weekly": asked or query()}, runs=runs, split=split, **fields)


def union(planned):
    """The cost of the records that the rounds really have, each round asked for by its number."""
    records = [record for n in range(1, planned.runs + 1) for record in planned.round(n).mechanisms]
    return accountant.epsilon_of(records, planned.delta)


@pytest.mark.parametrize("split", ["constant", *PARTS])
@pytest.mark.parametrize(
    "asked",
    [
        query(),
        query(PrivatePartitions(strategy="truncated_geometric"), rows=Count()),
        query(PrivatePartitions(strategy="laplace"), users=PrivacyIdCount()),
        query(PrivatePartitions(strategy="weighted_gaussian"), rows=Count(), users=PrivacyIdCount()),
    ],
    ids=["public", "coins", "released count", "weights"],
)
def test_all_rounds_together_spend_the_budget_to_within_a_thousandth_and_never_more(split, asked):
    planned = plan(split, asked=asked)
    assert 2.0 * (1 - 1e-3) <= union(planned) <= 2.0 * (1 + 1e-4)
    assert 2.0 * (1 - 1e-3) <= planned.accounted["epsilon"] <= 2.0


def test_a_split_that_gave_each_round_the_last_one_s_noise_would_be_found():
    planned = plan("linear")
    assert accountant.epsilon_of(planned.round(8).mechanisms, 1e-6, runs=8) > 1.3 * planned.epsilon
    assert accountant.epsilon_of(planned.round(1).mechanisms, 1e-6, runs=8) < 0.3 * planned.epsilon


@pytest.mark.parametrize("split", PARTS)
def test_the_noise_of_a_round_is_in_inverse_proportion_to_its_part(split):
    planned = plan(split)
    first = planned.round(1).stages["weekly"]
    for number, part in enumerate(PARTS[split], 1):
        stage = planned.round(number).stages["weekly"]
        for one, this in zip(first.noises, stage.noises, strict=True):
            if one is not None:
                assert one.stddev / this.stddev == pytest.approx(part / PARTS[split][0], rel=1e-3)


@pytest.mark.parametrize("split", ["linear_decreasing", "exponential_decreasing"])
def test_of_a_decreasing_split_the_plan_shows_its_first_round_which_has_the_least_noise(split):
    planned = plan(split)
    first, last = (planned.round(number).stages["weekly"] for number in (1, 8))
    assert planned.stages["weekly"].noises == first.noises
    assert planned.mechanisms == planned.round(1).mechanisms
    assert first.noises[0].stddev < last.noises[0].stddev
    assert planned.to_json()["last_round_noise"] == pytest.approx(PARTS[split][0])
    again = Plan.restore(planned.frozen(), epsilon=2.0, delta=1e-6, stages={"weekly": query()}, runs=8, split=split)
    assert again.digest == planned.digest


def test_the_split_of_52_weeks_stays_sensible():
    parts = [float(rounds.ratio("exponential", 52, n)) for n in range(1, 53)]
    assert parts[0] == 1
    assert parts[-1] == noise_schedule.GROWTH
    assert [b / a for a, b in itertools.pairwise(parts)] == pytest.approx([16 ** (1 / 51)] * 51, rel=1e-5)
    assert [float(rounds.ratio("exponential", 3, n)) for n in (1, 2, 3)] == [1, 2, 4]


@given(st.sampled_from(["linear", "exponential"]), st.integers(1, rounds.MOST_ROUNDS), st.data())
def test_parts_rise_from_one_and_are_the_same_on_every_machine(split, runs, data):
    number = data.draw(st.integers(1, runs))
    part = rounds.ratio(split, runs, number)
    assert isinstance(part, Fraction)
    assert rounds.ratio(split, runs, 1) == 1
    assert number == 1 or part > rounds.ratio(split, runs, number - 1)
    assert split == "linear" or part <= noise_schedule.GROWTH


def test_with_a_constant_split_every_round_is_the_plan():
    planned = plan("constant")
    for number in (1, 5, 8):
        this = planned.round(number)
        assert this.stages == planned.stages
        assert this.mechanisms == planned.mechanisms
        assert this.accounted == planned.accounted_one_run
    assert planned.all_mechanisms() == ((planned.mechanisms, 8),)


def test_with_another_split_the_plan_shows_round_one_and_lists_all():
    planned = plan("linear")
    assert planned.mechanisms == planned.round(1).mechanisms == planned.all_mechanisms()[0][0]
    assert planned.all_mechanisms() == tuple((planned.round(n).mechanisms, 1) for n in range(1, 9))
    alone = [planned.round(n).accounted["epsilon"] for n in range(1, 9)]
    assert alone == sorted(alone)
    assert alone[0] < alone[-1]
    statement = planned.round(3).stages["weekly"].statement
    assert statement["round"] == 3
    assert statement["plan"] == planned.digest
    assert statement["accounted_one_run"] == dict(planned.round(3).accounted)


@pytest.mark.parametrize("split", ["constant", "linear"])
@pytest.mark.parametrize("number", [0, 9, -1, 1.5, True, "1", None, math.nan])
def test_a_number_that_is_no_round_is_refused(split, number):
    with pytest.raises(RequestError, match="^round: must be a whole number from 1 to 8; the plan covers 8 runs"):
        plan(split).round(number)


@pytest.mark.parametrize("split", ["linear", "exponential"])
def test_a_stored_plan_has_the_same_rounds(split):
    planned = plan(split, asked=query(PrivatePartitions(strategy="truncated_geometric"), rows=Count()))
    frozen = json.loads(json.dumps(planned.frozen()))
    stages = {"weekly": query(PrivatePartitions(strategy="truncated_geometric"), rows=Count())}
    again = Plan.restore(frozen, epsilon=2.0, delta=1e-6, stages=stages, runs=8, split=split)
    assert again.digest == planned.digest
    assert [again.round(n) for n in range(1, 9)] == [planned.round(n) for n in range(1, 9)]
    assert pickle.loads(pickle.dumps(again.round(5).stages["weekly"])) == planned.round(5).stages["weekly"]
    with pytest.raises(RequestError, match="another split"):
        Plan.restore(frozen, epsilon=2.0, delta=1e-6, stages=stages, runs=8)


def test_a_stored_plan_whose_split_was_changed_is_refused():
    frozen = plan("constant").frozen() | {"split": "linear"}
    with pytest.raises(RequestError, match="costs more than its budget"):
        Plan.restore(frozen, epsilon=2.0, delta=1e-6, stages={"weekly": query()}, runs=8, split="linear")


def test_plans_with_other_splits_have_other_digests():
    assert len({plan(split).digest for split in ("constant", "linear", "exponential")}) == 3


@pytest.mark.parametrize("split", ["quadratic", "", None, 1])
def test_what_is_no_split_is_refused(split):
    with pytest.raises(RequestError, match="^split: must be one of constant, linear, exponential"):
        plan(split)


def test_too_many_rounds_of_their_own_are_refused():
    with pytest.raises(RequestError, match="^split: .*at most 1000 runs"):
        plan("linear", runs=1001)


def test_a_first_round_that_would_drown_is_refused_with_what_to_write():
    with pytest.raises(BudgetError, match="write split: constant"):
        plan("linear", runs=400, epsilon=0.5)


@settings(max_examples=10)
@given(st.sampled_from(["linear", "exponential"]), st.integers(1, 40), st.floats(0.5, 8), st.sampled_from([0.0, 1e-6]))
def test_no_scale_leaves_what_samplers_can_draw(split, runs, epsilon, delta):
    planned = plan(split, runs=runs, epsilon=epsilon, delta=delta)
    assert planned.accounted["epsilon"] <= epsilon
    for number in (1, (runs + 1) // 2, runs):
        for noise in planned.round(number).stages["weekly"].noises:
            if noise is not None:
                law = type(noise.law).__name__
                limit = candidate.LARGEST_SCALE["gaussian" if law == "RoundedGaussian" else "laplace"]
                assert candidate.TARGET_SCALE / 2.2 <= noise.law.scale <= 1.5 * limit


def test_a_split_of_delta_zero_adds_up_epsilons():
    planned = plan("linear", delta=0)
    added = sum(record.pure_epsilon for records, _ in planned.all_mechanisms() for record in records)
    assert 2.0 * (1 - 1e-3) <= added <= 2.0


def test_thresholds_fall_with_the_noise_of_later_rounds():
    planned = plan("linear", asked=query(PrivatePartitions(strategy="gaussian"), users=PrivacyIdCount()))
    users = [planned.round(n).stages["weekly"].threshold_users for n in range(1, 9)]
    assert users == sorted(users, reverse=True)


@pytest.mark.parametrize("split", ["linear", "exponential"])
def test_dp_accounting_says_the_same_of_all_rounds(split):
    from dp_accounting.pld import privacy_loss_distribution as pld

    planned = plan(split, runs=12, asked=query(rows=Count(), total=Sum("v", min_value=0, max_value=7)))
    total = pld.identity(value_discretization_interval=1e-4)
    for records, times in planned.all_mechanisms():
        for record in records:
            assert record.kind == "gaussian"
            sigma = float(record.scale) / math.sqrt(record.l2_squared)
            one = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
            total = total.compose(one.self_compose(times))
    assert planned.accounted["epsilon"] == pytest.approx(total.get_epsilon_for_delta(1e-6), rel=1e-4)


@given(
    part=st.fractions(1, 40, max_denominator=30), scale=st.integers(64 * 700, 64 * 8000), steps=st.integers(1, 10**6)
)
def test_the_scale_of_a_round_falls_by_its_part_rounded_up_to_a_64th_of_a_step(part, scale, steps):
    kept = StageChoices(
        strategy="truncated_geometric",
        noises=FrozenMapping({"rows": Choice(law="laplace", steps=steps)}),
        selection_epsilon=0.25,
        selection_delta=1e-7,
    )
    scales = {"gaussian_scale": Fraction(scale, 64), "laplace_scale": Fraction(scale + 1, 64)}
    first = candidate.Calibrated(choices=FrozenMapping({"weekly": kept}), **scales)
    later = rounds.at(first, part)
    of_stage = later.choices["weekly"]
    assert of_stage.selection_epsilon == pytest.approx(0.25 * part)
    assert of_stage.selection_delta == 1e-7
    finer = Fraction(of_stage.noises["rows"].steps, steps)
    for law, before in scales.items():
        ideal = before * finer / part
        assert ideal <= getattr(later, law) < ideal + Fraction(1, 64)
        assert before / 2 < getattr(later, law) <= before


def test_the_most_rounds_that_may_differ_are_allowed_and_runs_that_do_not_differ_are_not_counted():
    assert rounds.check("linear", rounds.MOST_ROUNDS) == "linear"
    assert rounds.check("constant", 10**6) == "constant"
