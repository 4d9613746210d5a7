"""Searches for the least noise: they end on the safe side, and say when there is none."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines import BudgetError
from dp_pipelines.planning.noise_levels.noise_search import least_integer, least_level


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1e6), st.floats(1e-6, 0.1), st.floats(1.01, 4))
def test_the_level_meets_the_budget_and_a_little_less_noise_does_not(epsilon, start, tolerance, factor):
    level = least_level(lambda noise: 1 / noise, epsilon, start=start, tolerance=tolerance, factor=factor)
    assert 1 / level <= epsilon < (1 + 1.01 * tolerance) / level


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_integer_meets_the_budget_and_the_one_below_does_not(least, start):
    found = least_integer(lambda number: -number, -least, start=start, high=10**6)
    assert found == least


@given(st.floats(0.1, 10))
def test_a_cost_with_steps_is_met_as_well(epsilon):
    def cost(noise):
        return math.ceil(10 / noise) / 10

    assert cost(least_level(cost, epsilon, start=1.0, tolerance=1e-3)) <= epsilon


def test_what_no_noise_can_meet_is_refused():
    with pytest.raises(BudgetError, match="cannot be met with any amount of noise"):
        least_level(lambda noise: 2.0, 1.0, start=1.0, tolerance=1e-3)
    with pytest.raises(BudgetError, match="cannot be met with any amount of noise"):
        least_integer(lambda number: math.inf, 1.0, start=5, high=100)
    with pytest.raises(BudgetError, match="met without any noise"):
        least_level(lambda noise: 0.0, 1.0, start=1.0, tolerance=1e-3)


@pytest.mark.parametrize("start", [1, 10**6])
@pytest.mark.parametrize("least", [3, 250_000, 999_000])
def test_a_whole_number_far_from_the_start_is_found_with_few_costs_of_whole_numbers(start: int, least: int) -> None:
    asked = []

    def cost(number: int) -> float:
        asked.append(number)
        return 1.0 / number if number else math.inf

    assert least_integer(cost, 1.0 / least, start=start, high=10**6) == least
    assert all(type(number) is int for number in asked)
    assert len(asked) == len(set(asked)) < 80


def test_a_search_that_cannot_end_gives_up_soon() -> None:
    for cost, message in ((0.0, "without any noise"), (2.0, "any amount of noise")):
        asked: list[float] = []

        def known(level: float, cost: float = cost, asked: list[float] = asked) -> float:
            asked.append(level)
            return cost

        with pytest.raises(BudgetError, match=message):
            least_level(known, 1.0, start=1.0, tolerance=1e-3)
        assert len(asked) <= 11
