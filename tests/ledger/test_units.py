"""Costs are whole numbers: what is no cost is refused, what a person writes is exact, and nothing is lost by rounding."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.ledger import units
from dp_pipelines.ledger.entries import Cost

CONVERSIONS = [units.epsilon_charge, units.delta_charge, units.epsilon_cap, units.delta_cap]
WRONG = [-1.0, -1e-300, math.nan, math.inf, -math.inf, 1e300, 10**400, -(10**400), True, "1", None, Fraction(1, 2)]


@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize("value", WRONG, ids=[str(value)[:8] for value in WRONG])
def test_what_is_no_cost_is_refused(convert, value) -> None:
    with pytest.raises(RequestError):
        convert(value)


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, 1e300])
def test_a_computed_cost_that_is_no_cost_is_refused(value: float) -> None:
    with pytest.raises(RequestError):
        units.charge(value, units.DELTA_UNIT)


def test_zero_is_a_cost() -> None:
    assert [convert(0) for convert in CONVERSIONS] == [0, 0, 0, 0]


@pytest.mark.parametrize(("part", "times", "cap"), [(1e-7, 10, 1e-6), (1e-9, 1000, 1e-6), (0.1, 10, 1), (0.1, 3, 0.3)])
def test_parts_that_people_write_fit_exactly(part: float, times: int, cap: float) -> None:
    assert units.delta_charge(part) * times == units.delta_cap(cap)
    assert units.epsilon_charge(part) * times == units.epsilon_cap(cap)


def test_floats_would_not_add_up() -> None:
    assert 0.1 * 3 > 0.3
    assert sum([1e-9] * 1000) != 1e-6


@given(st.floats(0, 1e6))
def test_a_cap_is_never_above_what_was_written_and_a_charge_never_below(value: float) -> None:
    exact = units.written(value)
    assert exact - units.EPSILON_UNIT < units.epsilon_cap(value) * units.EPSILON_UNIT <= exact
    assert exact <= units.epsilon_charge(value) * units.EPSILON_UNIT < exact + units.EPSILON_UNIT
    assert Fraction(value) <= units.charge(value, units.DELTA_UNIT) * units.DELTA_UNIT


@given(st.floats(0, 1))
def test_delta_is_kept_to_sixty_digits(value: float) -> None:
    exact = units.written(value)
    assert exact - units.DELTA_UNIT < units.delta_cap(value) * units.DELTA_UNIT <= exact
    assert exact <= units.delta_charge(value) * units.DELTA_UNIT < exact + units.DELTA_UNIT


@given(st.floats(0, 1e6))
def test_a_written_number_is_the_float_to_half_of_its_last_bit(value: float) -> None:
    assert float(units.written(value)) == value
    assert abs(units.written(value) - Fraction(value)) <= Fraction(math.ulp(value)) / 2


@given(st.lists(st.floats(0, 1e-3), max_size=40))
def test_sums_do_not_depend_on_their_order(parts: list[float]) -> None:
    costs = [Cost(epsilon=units.epsilon_charge(part), delta=units.delta_charge(part)) for part in parts]
    assert sum(costs, Cost()) == sum(reversed(costs), Cost())
    assert sum(costs, Cost()).epsilon * units.EPSILON_UNIT >= sum(map(units.written, parts))


@given(st.integers(0, 10**60), st.integers(0, 10**60))
def test_a_cost_survives_being_written_down(epsilon: int, delta: int) -> None:
    cost = Cost(epsilon=epsilon, delta=delta)
    assert Cost.from_json(cost.to_json()) == cost


@pytest.mark.parametrize("fields", [{"epsilon": "-1", "delta": "0"}, {"epsilon": "0", "delta": "-1"}])
def test_a_negative_cost_cannot_be_read_back(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="negative"):
        Cost.from_json(fields)


def test_what_is_shown_is_the_number_that_was_written() -> None:
    assert units.epsilon_of(units.epsilon_cap(0.3)) == 0.3
    assert units.delta_of(units.delta_cap(3e-7)) == 3e-7
