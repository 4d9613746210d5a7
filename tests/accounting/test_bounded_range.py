"""What choices of bounded range cost: the pair against all two-point laws, compositions against sums over all outcomes."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting import accountant, comparison, renyi
from dp_pipelines.accounting.comparison import rough_epsilon
from dp_pipelines.accounting.dominating_pairs import BoundedRange, Pair, Response, connect_dots
from dp_pipelines.accounting.mechanism_record import MechanismRecord

sizes = st.floats(1e-6, 8)


def choice(epsilon: float, l0: int = 1) -> MechanismRecord:
    return MechanismRecord(stage="s", name="best", kind="bounded_range", epsilon=epsilon, l0=l0)


def two_point_profile(size: float, top: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
    """Of the law whose loss is `top` or `top - size` (Dong, Durfee, Rogers 2020, definition 3.2)."""
    q = (mpmath.exp(-top) - mpmath.exp(-size)) / (1 - mpmath.exp(-mpmath.mpf(size)))
    laws = ((q * mpmath.exp(top), q), ((1 - q) * mpmath.exp(top - size), 1 - q))
    return mpmath.fsum(max(p - mpmath.exp(e) * q, 0) for p, q in laws)


def true_profile(size: float, e: float) -> mpmath.mpf:
    """The supremum over all places of the interval, in 50 digits: in closed form where it is inside."""
    e_, s = mpmath.mpf(e), mpmath.mpf(size)
    if abs(e_) >= s:
        return max(1 - mpmath.exp(e_), mpmath.mpf(0))
    return two_point_profile(size, (e_ + s) / 2, e_)


@given(size=sizes, share=st.floats(-1.5, 1.5), place=st.floats(0, 1))
def test_the_profile_is_that_of_the_worst_two_point_law(size: float, share: float, place: float):
    e = share * size
    profile, error = BoundedRange(size).profile(np.array([e]))
    with mpmath.workdps(50):
        assert abs(profile[0] - true_profile(size, e)) <= error[0] + mpmath.mpf(10) ** -45
        assert (
            two_point_profile(size, mpmath.mpf(place) * size, mpmath.mpf(e))
            <= true_profile(size, e) + mpmath.mpf(10) ** -40
        )


@given(size=sizes, share=st.floats(-1, 1))
def test_the_pair_is_its_own_mirror(size: float, share: float):
    with mpmath.workdps(50):
        e = mpmath.mpf(share) * size
        mirrored = 1 - mpmath.exp(e) + mpmath.exp(e) * true_profile(size, float(-e))
        assert abs(mirrored - true_profile(size, float(e))) < mpmath.mpf(10) ** -14


@given(size=st.floats(1e-3, 8), share=st.floats(-1, 1), nodes=st.integers(3, 300))
def test_masses_on_a_grid_are_never_below_the_profile(size: float, share: float, nodes: int):
    pair, interval, e = BoundedRange(size), 2 * size / nodes, share * size
    masses = connect_dots(pair, interval, pair.reach(0.5, -30.0))
    with mpmath.workdps(50):
        on_grid = mpmath.mpf(masses.infinite) + mpmath.fsum(
            mpmath.mpf(float(value)) * -mpmath.expm1(mpmath.mpf(e) - (masses.first + i) * mpmath.mpf(interval))
            for i, value in enumerate(masses.values)
            if (masses.first + i) * interval > e
        )
        assert on_grid >= true_profile(size, e) * (1 - mpmath.mpf(2) ** -50)


@pytest.mark.parametrize("size", [0.01, 0.7, 5.0])
@pytest.mark.parametrize("theta", [0.1, 1.0, 7.0])
def test_a_moment_is_that_of_the_masses(size: float, theta: float):
    pair = BoundedRange(size)
    interval = size / 10_000
    masses = connect_dots(pair, interval, pair.reach(theta, -30.0))
    losses = np.arange(masses.first, masses.last + 1) * interval
    moment = math.fsum(masses.values * np.exp(theta * losses))
    assert float(pair.log_moment(np.array([theta]))[0]) == pytest.approx(math.log(moment), rel=1e-5, abs=1e-8)


def exponential(scores: Sequence[int], rate: float) -> list[float]:
    weights = [math.exp(rate * (score - max(scores))) for score in scores]
    return [weight / math.fsum(weights) for weight in weights]


def composed_delta(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], rate: float, epsilon: float
) -> tuple[float, float]:
    """Both directions of the profile of exponential mechanisms together, from all of their outcomes."""
    laws = [(exponential(a, rate), exponential(b, rate)) for a, b in pairs]
    over = [[], []]  # type: list[list[float]]
    for outcome in itertools.product(*(range(len(p)) for p, _ in laws)):
        p = math.prod(law[0][place] for law, place in zip(laws, outcome, strict=True))
        q = math.prod(law[1][place] for law, place in zip(laws, outcome, strict=True))
        over[0].append(max(p - math.exp(epsilon) * q, 0.0))
        over[1].append(max(q - math.exp(epsilon) * p, 0.0))
    return math.fsum(over[0]), math.fsum(over[1])


neighbours = st.integers(2, 3).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-5, 5), min_size=n, max_size=n), st.lists(st.integers(0, 3), min_size=n, max_size=n)
    )
)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(neighbours, min_size=1, max_size=5), size=st.floats(0.05, 2), share=st.sampled_from([0.0, 0.3, 0.8])
)
def test_sums_over_all_outcomes_of_exponential_mechanisms_are_never_above_their_cost(
    pairs: list[tuple[list[int], list[int]]], size: float, share: float
):
    # One unit moves each score by 0 to 3, up: a spread of 3.
    before_after = [(a, [x + y for x, y in zip(a, moves, strict=True)]) for a, moves in pairs]
    epsilon = share * size * len(pairs)
    stated = accountant.delta_of([choice(size, len(pairs))], epsilon)
    assert max(composed_delta(before_after, size / 3, epsilon)) <= stated + 1e-12


def test_a_record_of_half_the_epsilon_would_be_found():
    pairs = [([0, 0], [3, 0])] * 4
    epsilon = 0.9
    truth = max(composed_delta(pairs, 1.0 / 3, epsilon))
    assert accountant.delta_of([choice(0.5, 4)], epsilon) < truth <= accountant.delta_of([choice(1.0, 4)], epsilon)


def test_one_choice_costs_its_epsilon_and_many_add_up_at_delta_zero():
    assert accountant.epsilon_of([choice(0.5)], 0.0) == pytest.approx(0.5)
    assert accountant.epsilon_of([choice(0.5)], 1e-12) == pytest.approx(0.5, rel=1e-4)
    assert choice(0.5, 3).pure_epsilon == Fraction(3, 2)
    assert choice(0.5, 3).draws == 0


def test_many_choices_cost_less_than_as_many_decisions_of_the_same_epsilon():
    decisions = MechanismRecord(stage="s", name="best", kind="approximate_dp", epsilon=0.02, delta=0.0, l0=2000)
    choices = accountant.epsilon_of([choice(0.02, 2000)], 1e-6)
    assert 0.5 < choices / accountant.epsilon_of([decisions], 1e-6) < 0.6
    assert decisions.pure_epsilon == 2000 * Fraction(0.02)


@given(size=st.floats(0.01, 4), l0=st.integers(1, 200))
def test_every_way_to_add_up_knows_choices(size: float, l0: int):
    costs = comparison.compare([([choice(size, l0)], 1)], 1e-6)
    assert costs.pld <= costs.naive * (1 + 1e-4)
    assert costs.advanced <= costs.naive * (1 + 1e-9)
    # The pair covers every place of the interval at once (docs/proofs/exponential.md, lemma 6).
    assert costs.pld <= costs.renyi * 1.16
    assert rough_epsilon([choice(size, l0)], 1e-6) > 0


@given(size=st.floats(0.01, 4), order=st.floats(1.01, 50), place=st.floats(0.001, 0.999))
def test_the_divergence_of_a_record_is_never_below_that_of_a_two_point_law(size: float, order: float, place: float):
    with mpmath.workdps(60):
        top, s = mpmath.mpf(place) * size, mpmath.mpf(size)
        q = (mpmath.exp(-top) - mpmath.exp(-s)) / (1 - mpmath.exp(-s))
        moment = q * mpmath.exp(order * top) + (1 - q) * mpmath.exp(order * (top - s))
        assert mpmath.log(moment) / (mpmath.mpf(order) - 1) <= renyi.divergence([choice(size)], order)


def test_randomized_response_of_the_whole_epsilon_dominates_the_pair():
    losses = np.linspace(-2, 2, 401)
    pairs: tuple[Pair, Pair] = (BoundedRange(1.0), Response(1.0))
    chosen, response = (pair.profile(losses)[0] for pair in pairs)
    assert (chosen <= response + 1e-15).all()
    half = Response(0.5).profile(losses)[0]
    assert (chosen >= half - 1e-15).all()


@pytest.mark.parametrize("order", [1.01, 2.0, 30.0, 1e9])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 9.0])
def test_the_divergence_of_a_record_is_no_more_than_its_formula(epsilon: float, order: float) -> None:
    record = MechanismRecord(stage="s", name="c", kind="bounded_range", epsilon=epsilon, l0=3)
    stated = 3 * min(epsilon, order * epsilon**2 / 8)
    assert renyi.divergence([record], order) == pytest.approx(stated, rel=1e-9)
