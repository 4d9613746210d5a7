"""Groups of units: the dearest counts, in every account, and no unit is in two of a plan."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting import accountant, renyi
from dp_pipelines.accounting.accountant import delta_of, epsilon_of, epsilon_of_groups, epsilon_of_rounds, tables_delta
from dp_pipelines.accounting.comparison import compare, explain, rough_epsilon
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.noise import RoundedGaussian


def gaussian(scale: int, group: str | None = None, l0: int = 1) -> MechanismRecord:
    return MechanismRecord(
        stage="s", name="g", kind="gaussian", scale=Fraction(scale), l2_squared=1, l0=l0, group=group
    )


def decision(epsilon: float, delta: float, group: str | None = None) -> MechanismRecord:
    return MechanismRecord(stage="d", name="d", kind="approximate_dp", epsilon=epsilon, delta=delta, l0=1, group=group)


def training(sigma: int, group: str | None = None) -> MechanismRecord:
    return MechanismRecord(
        stage="t",
        name="t",
        kind="sampled_gaussian",
        scale=Fraction(sigma * 1024),
        l2_squared=1024**2,
        l0=4,
        rate=0.1,
        times=100,
        group=group,
    )


def bare(records: list[MechanismRecord]) -> list[MechanismRecord]:
    return [dataclasses.replace(record, group=None) for record in records]


records = st.lists(
    st.one_of(
        st.builds(gaussian, st.integers(3, 40), st.sampled_from([None, "a", "b", "c"])),
        st.builds(decision, st.floats(0.01, 0.3), st.sampled_from([0.0, 1e-8]), st.sampled_from([None, "a", "b"])),
        st.builds(training, st.integers(3, 9), st.sampled_from([None, "a"])),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=12, deadline=None)
@given(plan=records, runs=st.integers(1, 4))
def test_each_account_is_the_largest_over_the_groups(plan: list[MechanismRecord], runs: int):
    names = {record.group for record in plan} - {None} or {None}
    met = [bare([record for record in plan if record.group in (None, name)]) for name in names]
    assert epsilon_of(plan, 1e-6, runs=runs) == max(epsilon_of(of_one, 1e-6, runs=runs) for of_one in met)
    assert delta_of(plan, 0.5, runs=runs) == max(delta_of(of_one, 0.5, runs=runs) for of_one in met)
    assert tables_delta(plan, runs=runs, epsilon=1.0) == max(tables_delta(m, runs=runs, epsilon=1.0) for m in met)
    assert renyi.divergence(plan, 7.5) == max(renyi.divergence(of_one, 7.5) for of_one in met)
    assert renyi.failure(plan, 1.0) == max(renyi.failure(of_one, 1.0) for of_one in met)
    assert rough_epsilon(plan, 1e-6) == max(rough_epsilon(of_one, 1e-6) for of_one in met)
    for way in ("naive", "advanced", "renyi", "pld"):
        assert getattr(compare([(plan, runs)], 1e-6), way) == max(getattr(compare([(m, runs)], 1e-6), way) for m in met)


def test_a_group_costs_less_than_all_groups_added_up_and_as_much_as_its_own_records():
    plan = [gaussian(10), gaussian(5, "train"), gaussian(4, "held out")]
    assert epsilon_of(plan, 1e-6) == epsilon_of([gaussian(10), gaussian(4)], 1e-6)
    assert epsilon_of(plan, 1e-6) < epsilon_of(bare(plan), 1e-6)
    assert epsilon_of_groups([plan[0]], [[plan[1]], [plan[2]]], 1e-6) == epsilon_of(plan, 1e-6)


def test_records_of_one_name_are_of_one_group_in_all_rounds():
    rounds = [([gaussian(9, "a")], 3), ([gaussian(9, "a"), gaussian(12, "b")], 1)]
    assert epsilon_of_rounds(rounds, 1e-6) == pytest.approx(epsilon_of([gaussian(9)], 1e-6, runs=4), rel=1e-12)
    # Another order of names in each round would be found: four rounds of the same people are not two of each.
    mixed = [([gaussian(9, "a")], 2), ([gaussian(9, "b")], 2)]
    assert epsilon_of_rounds(mixed, 1e-6) < 0.75 * epsilon_of_rounds([([gaussian(9, "a")], 4)], 1e-6)


def test_the_dearest_group_may_be_another_at_another_delta():
    plan = [gaussian(8, "a"), decision(0.6, 0.0, "b")]
    assert epsilon_of(plan, 1e-9) == epsilon_of([gaussian(8)], 1e-9) > 0.6
    assert epsilon_of(plan, 1e-2) == epsilon_of([decision(0.6, 0.0)], 1e-2) > epsilon_of([gaussian(8)], 1e-2)


def test_pure_epsilons_add_up_within_a_group():
    plan = [decision(0.25, 0.0), decision(0.5, 0.0, "a"), decision(0.125, 0.0, "b"), decision(0.125, 0.0, "b")]
    assert accountant.pure_epsilon_of(plan, runs=4) == 3
    assert accountant.pure_epsilon_of(bare(plan)) == 1
    assert accountant.pure_epsilon_of([*plan, gaussian(3, "b")]) is None
    assert accountant.pure_epsilon_of([]) == 0
    assert math.isinf(epsilon_of([*plan, training(3, "b")], 0.0))


def test_two_groups_of_real_noise_cost_no_more_than_is_said_and_one_left_out_would_be_found():
    # The unit is in group a: what is released of group b has the same law with it and without it.
    plan = [gaussian(3), gaussian(2, "a"), gaussian(4, "b")]
    xs = range(-60, 61)
    shared, own, other = (RoundedGaussian(scale) for scale in (3, 2, 4))

    def law(moved: int) -> np.ndarray:
        first = np.array([shared.pmf(x - moved) for x in xs])
        second = np.array([own.pmf(x - moved) for x in xs])
        third = np.array([other.pmf(x) for x in range(-24, 25)])
        return np.multiply.outer(np.multiply.outer(first, second), third)

    without, with_it = law(0), law(1)
    for epsilon in (0.0, 0.3, 1.0):
        truth = float(np.maximum(with_it - math.exp(epsilon) * without, 0).sum())
        assert truth <= delta_of(plan, epsilon) + 1e-9
        assert truth > delta_of([plan[0], plan[2]], epsilon) * 1.05


def test_an_explanation_of_stages_heeds_groups():
    plan = [gaussian(10), training(3, "train"), decision(0.1, 0.0, "held out")]
    told = explain([(plan, 1)], 1e-6)
    assert told["total"]["pld"] == pytest.approx(epsilon_of([plan[0], bare(plan)[1]], 1e-6))
    assert set(told["stages"]) == {"s", "t", "d"}
    assert told["records"]["t"] == [plan[1].to_json()]
    costs = compare([([plan[1]], 1)], 1e-6)
    assert costs.pld <= costs.renyi <= costs.advanced <= costs.naive


def test_samples_are_amplified_where_epsilons_add_up():
    one = dataclasses.replace(training(3), times=1)
    whole = MechanismRecord(stage="t", name="t", kind="gaussian", scale=one.scale, l2_squared=one.l2_squared, l0=4)
    epsilon = epsilon_of([whole], 1e-5)
    assert compare([([one], 1)], 1e-6).naive == pytest.approx(math.log1p(0.1 * math.expm1(epsilon)), rel=1e-6)
