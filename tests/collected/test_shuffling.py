"""What a shuffler makes of a local epsilon: the printed bound against exact divergences.

In: numbers of people, epsilons, deltas. Out: bounds and exact values. Holds: a bound that is too small is found. Not covered:
mechanisms other than Warner's, which the proof note reduces to it.
"""

import decimal
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines.collected.shuffling import amplified, local_epsilon_for, most_local_epsilon
from dp_pipelines.errors import RequestError


def exact_divergence(local: float, people: int, epsilon: float) -> float:
    """The hockey-stick divergence of the number of ones, where all others have the value 0 and one person has 1, or 0."""
    flip = 1 / (math.exp(local) + 1)
    others = stats.binom.pmf(np.arange(people), people - 1, flip)
    padded = np.concatenate(([0.0], others, [0.0]))
    says_one, says_none = padded[:-1], padded[1:]
    with_one = (1 - flip) * says_one + flip * says_none
    with_none = flip * says_one + (1 - flip) * says_none
    both = ((with_one, with_none), (with_none, with_one))
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in both)


GRID = [(n, e, d) for n in (1000, 30_000, 1_000_000) for e in ("0.5", "1", "2", "3") for d in (1e-4, 1e-6, 1e-9)]


@pytest.mark.parametrize(
    ("people", "local", "delta"), [g for g in GRID if float(g[1]) <= math.log(g[0] / (16 * math.log(2 / g[2])))]
)
def test_the_bound_holds_for_warners_response_exactly(people: int, local: str, delta: float) -> None:
    epsilon = amplified(Decimal(local), reports=people, delta=delta)
    assert epsilon <= float(local)
    assert exact_divergence(float(local), people, epsilon) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("delta", [0.2, 1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize(("people", "local"), [(10_000, "0.5"), (30_000, "1"), (1_000_000, "4.8616")])
def test_the_bound_is_that_of_the_theorem(people: int, local: str, delta: float) -> None:
    """Feldman, McMillan, Talwar, SODA 2023, theorem 3.1, written down a second time, in decimal numbers.

    Nothing exact is near this bound, so that no divergence shows a smaller constant in it. A large delta shows every one.
    """
    with decimal.localcontext(decimal.Context(prec=40)):
        e, n, log_term = Decimal(local).exp(), Decimal(people), (4 / Decimal(delta)).ln()
        theorem = ((e - 1) * (4 * (2 * log_term / ((e + 1) * n)).sqrt() + 4 / n) + 1).ln()
    found = amplified(Decimal(local), reports=people, delta=delta)
    assert found == pytest.approx(float(min(theorem, Decimal(local))), rel=1e-12)
    assert Decimal(found) >= min(theorem, Decimal(local)) * (1 - Decimal("1e-30"))


@pytest.mark.parametrize("delta", [0.5, 0.2, 1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("people", [1, 20, 23, 233, 1000, 30_000, 10**12])
def test_the_largest_local_epsilon_is_that_of_the_condition(people: int, delta: float) -> None:
    """Feldman, McMillan, Talwar, FOCS 2021, theorem 3.1: at most log(n / (16 log(2 / delta))), here in decimal numbers."""
    with decimal.localcontext(decimal.Context(prec=40)):
        condition = (people / (16 * (2 / Decimal(delta)).ln())).ln()
        wanted = max(Decimal(0), condition.quantize(Decimal("0.0001"), decimal.ROUND_FLOOR))
    assert most_local_epsilon(people, delta) == wanted
    if wanted:
        assert amplified(wanted, reports=people, delta=delta) <= float(wanted)
        with pytest.raises(RequestError, match=f"must be at most {wanted}"):
            amplified(wanted + Decimal("0.0001"), reports=people, delta=delta)


def test_no_bound_is_rounded_below_the_theorem() -> None:
    for number in range(300):
        people, local, delta = 20_000 + 7919 * number, Decimal(1 + number % 40) / 20, 1 / (2.0 + number**3)
        with decimal.localcontext(decimal.Context(prec=40)):
            e, log_term = local.exp(), (4 / Decimal(delta)).ln()
            theorem = ((e - 1) * (4 * (2 * log_term / ((e + 1) * people)).sqrt() + Decimal(4) / people) + 1).ln()
        assert theorem <= Decimal(amplified(local, reports=people, delta=delta)) <= theorem * (1 + Decimal("3e-15"))


def test_numbers_of_reports_are_those_that_are_proven() -> None:
    amplified(Decimal(1), reports=10**12, delta=1e-6)
    with pytest.raises(RequestError, match="^reports"):
        amplified(Decimal(1), reports=10**12 + 1, delta=1e-6)


def test_an_answer_costs_no_more_behind_a_shuffler_than_without_one() -> None:
    assert amplified(Decimal("0.001"), reports=233, delta=1e-6) == 0.001  # the theorem alone says .00104
    assert local_epsilon_for(1e-9, reports=1_000_000, delta=1e-6) == 0


def test_a_bound_a_fifth_as_large_is_found() -> None:
    epsilon = amplified(Decimal(3), reports=30_000, delta=1e-9)
    assert exact_divergence(3.0, 30_000, epsilon / 5) > 1e-9


@given(st.decimals("0.01", "6", places=2), st.integers(10**6, 10**9), st.floats(1e-9, 1e-4))
def test_more_people_and_less_of_a_local_epsilon_never_cost_more(local: Decimal, people: int, delta: float) -> None:
    epsilon = amplified(local, reports=people, delta=delta)
    assert 0 < epsilon <= float(local)
    assert amplified(local, reports=people * 2, delta=delta) <= epsilon
    assert amplified(local / 2, reports=people, delta=delta) <= epsilon


def test_nothing_is_claimed_beyond_what_is_proven() -> None:
    with pytest.raises(RequestError, match=r"^epsilon: must be at most 1.4604 for 1,000 honest reports"):
        amplified(Decimal(2), reports=1000, delta=1e-6)
    assert most_local_epsilon(100, 1e-6) == 0
    for wrong in (0, -1, 2.5):
        with pytest.raises(RequestError, match="^reports"):
            amplified(Decimal(1), reports=wrong, delta=1e-6)  # type: ignore[arg-type]
    for wrong_delta in (0.0, 1.0, math.nan):
        with pytest.raises(RequestError, match="^delta"):
            amplified(Decimal(1), reports=1000, delta=wrong_delta)


@pytest.mark.parametrize("central", [0.05, 0.2, 0.8])
def test_the_largest_local_epsilon_for_a_central_one_is_the_largest(central: float) -> None:
    local = local_epsilon_for(central, reports=1_000_000, delta=1e-6)
    assert amplified(local, reports=1_000_000, delta=1e-6) <= central
    assert amplified(local + Decimal("0.0001"), reports=1_000_000, delta=1e-6) > central
