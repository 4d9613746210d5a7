"""What a group of units is guaranteed: never less than the truth, exact for noise, and said where people look."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.accounting.accountant import epsilon_of, tables_delta
from dp_pipelines.accounting.group_privacy import group_guarantee
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError


def gaussian(l2_squared: int = 1024**2, group: str | None = None) -> MechanismRecord:
    return MechanismRecord(
        stage="s", name="rows", kind="gaussian", scale=Fraction(4096), l2_squared=l2_squared, l0=1, group=group
    )


def laplace() -> MechanismRecord:
    return MechanismRecord(stage="s", name="rows", kind="laplace", scale=Fraction(4096), linf=512, l0=8, l1=2048)


def decisions(epsilon: float) -> MechanismRecord:
    return MechanismRecord(stage="s", name="keys", kind="approximate_dp", epsilon=epsilon, delta=1e-9, l0=1)


def test_a_group_of_one_is_one_unit() -> None:
    for records in ([gaussian(), laplace()], [gaussian(), decisions(0.1)]):
        epsilon = epsilon_of(records, 1e-6)
        group = group_guarantee([(records, 1)], units=1, epsilon=epsilon, delta=1e-6)
        assert (group.epsilon, group.delta) == pytest.approx((epsilon, 1e-6), rel=1e-4)


@pytest.mark.parametrize("units", [2, 4, 10])
def test_gaussian_noise_costs_a_group_what_a_change_so_many_times_as_large_costs(units: int) -> None:
    group = group_guarantee([([gaussian()], 3)], units=units, epsilon=9.9, delta=1e-6)
    assert group.scaled
    assert group.epsilon == pytest.approx(epsilon_of([gaussian(1024**2 * units**2)], 1e-6, runs=3), rel=1e-4)


def test_a_household_of_four_loses_epsilon_4_6_where_gaussian_noise_gives_one_unit_epsilon_1() -> None:
    # The scale at which one unit has (1, 1e-6).
    low, high = 1.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        record = MechanismRecord(
            stage="s", name="n", kind="gaussian", scale=Fraction(round(middle * 2**20), 2**10), l2_squared=2**20, l0=1
        )
        low, high = (low, middle) if epsilon_of([record], 1e-6) <= 1 else (middle, high)
    group = group_guarantee([([record], 1)], units=4, epsilon=1.0, delta=1e-6)
    assert group.epsilon == pytest.approx(4.59, abs=0.01)


def test_laplace_noise_costs_a_group_its_multiple_without_delta() -> None:
    group = group_guarantee([([laplace()], 1)], units=3, epsilon=0.5, delta=1e-9)
    assert group.epsilon <= 3 * 0.5
    assert group.epsilon == pytest.approx(1.5, rel=1e-3)


def test_a_unit_of_another_group_of_the_plan_counts_too() -> None:
    """Two of a household may be on both sides of a split, so what one unit never meets together, the household does."""
    apart = [gaussian(group="training"), gaussian(group="held out")]
    together = group_guarantee([(apart, 1)], units=2, epsilon=9.9, delta=1e-6)
    assert together.epsilon == pytest.approx(epsilon_of([gaussian(2 * 4 * 1024**2)], 1e-6), rel=1e-4)


@given(epsilon=st.floats(0.01, 2.0), delta=st.floats(1e-9, 1e-3), units=st.integers(2, 6))
def test_the_law_of_groups_holds_for_the_worst_mechanism(epsilon: float, delta: float, units: int) -> None:
    """Randomized response that fails with delta is the worst (epsilon, delta) mechanism; a chain of it reaches the law."""
    told = group_guarantee([([decisions(epsilon)], 1)], units=units, epsilon=epsilon, delta=delta)
    assert not told.scaled
    # The largest P_k(S) that the recursion P_i(S) <= e^epsilon P_(i-1)(S) + delta allows, from P_0(S) = 0.
    largest = 0.0
    for _ in range(units):
        largest = math.exp(epsilon) * largest + delta
    assert told.delta >= min(1.0, largest)
    assert told.delta == pytest.approx(min(1.0, largest), rel=1e-9)
    assert told.epsilon >= units * epsilon


@given(units=st.integers(2, 8), scale=st.integers(1, 64))
def test_the_scaled_guarantee_is_never_weaker_than_the_general_law(units: int, scale: int) -> None:
    record = MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(scale), linf=1, l0=1, l1=1)
    exact = group_guarantee([([record], 1)], units=units, epsilon=1 / scale, delta=1e-6)
    assert exact.epsilon <= units / scale * (1 + 1e-3)


def test_a_large_group_has_no_guarantee_and_no_overflow() -> None:
    told = group_guarantee([([decisions(1.0)], 1)], units=1000, epsilon=5.0, delta=1e-6)
    assert told.delta == 1.0


@pytest.mark.parametrize(("units", "epsilon"), [(2, 705.0), (2, 1e6), (3, 360.0), (1000, 0.71)])
def test_what_exceeds_every_number_guarantees_nothing_and_is_no_error(units: int, epsilon: float) -> None:
    told = group_guarantee([([decisions(1.0)], 1)], units=units, epsilon=epsilon, delta=1e-9)
    assert (told.delta, told.useful) == (1.0, False)


def test_a_large_group_whose_units_lose_little_keeps_a_guarantee() -> None:
    told = group_guarantee([([decisions(1e-3)], 1)], units=1000, epsilon=1e-3, delta=1e-9)
    assert told.useful
    assert told.epsilon == pytest.approx(1.0)
    assert told.delta == pytest.approx(1e-9 * math.expm1(1.0) / math.expm1(1e-3))


@pytest.mark.parametrize("units", [0, -1, 1001, 2.5, True])
def test_a_size_that_is_none_is_refused(units: object) -> None:
    with pytest.raises(RequestError, match="group"):
        group_guarantee([([laplace()], 1)], units=units, epsilon=1.0, delta=1e-6)  # type: ignore[arg-type]


def test_a_plan_without_delta_guarantees_a_group_the_multiple_of_epsilon() -> None:
    """Its delta is that of the noise tables, more of which a group touches."""
    records = [MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(64), linf=64, l0=1, l1=64)]
    told = group_guarantee([(records, 1)], units=4, epsilon=1.0, delta=tables_delta(records, epsilon=1.0))
    assert told.epsilon == pytest.approx(4.0, rel=1e-4)
    assert told.delta < 1e-26
    assert told.useful


def test_what_no_epsilon_bounds_is_null_in_json() -> None:
    records = [MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(64), linf=64, l0=1, l1=64)]
    told = group_guarantee([(records, 1)], units=100, epsilon=1.0, delta=1e-20)
    assert not told.useful
    assert told.to_json()["epsilon"] is None
