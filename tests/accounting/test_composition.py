"""What records cost together: against closed forms, against plain numerical composition, never below the truth."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines.accounting.accountant import epsilon_of, tables_delta
from dp_pipelines.accounting.comparison import rough_epsilon
from dp_pipelines.accounting.mechanism_record import MechanismRecord


def gaussian(multiplier: float, name: str = "g") -> MechanismRecord:
    scale = Fraction(round(multiplier * 2**20), 2**10)
    return MechanismRecord(stage="s", name=name, kind="gaussian", scale=scale, l2_squared=2**20, l0=1)


def laplace(epsilon: float, l0: int = 1) -> MechanismRecord:
    scale = Fraction(round(2**20 / epsilon), 2**10)
    return MechanismRecord(stage="s", name="l", kind="laplace", scale=scale, linf=2**10, l0=l0, l1=l0 * 2**10)


def decision(epsilon: float, delta: float, l0: int = 1) -> MechanismRecord:
    return MechanismRecord(stage="s", name="d", kind="approximate_dp", epsilon=epsilon, delta=delta, l0=l0)


def failure(delta: float) -> MechanismRecord:
    return MechanismRecord(stage="s", name="f", kind="delta", delta=delta)


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    """Balle and Wang 2018, theorem 8."""
    mu = 1 / multiplier
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


def composed_delta(epsilon: float, pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """The hockey-stick divergence of a product of finite pairs (P, Q), by listing all outcomes."""
    p, q = np.ones(1), np.ones(1)
    for one, other in pairs:
        p, q = np.multiply.outer(p, one).ravel(), np.multiply.outer(q, other).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(("multiplier", "count"), [(0.7, 1), (0.7, 12), (4.0, 12), (4.0, 365), (60.0, 1), (60.0, 365)])
def test_gaussians_meet_the_closed_form_of_their_composition(multiplier, count):
    epsilon = epsilon_of([gaussian(multiplier)], 1e-6, runs=count)
    together = multiplier / math.sqrt(count)
    assert gaussian_delta(epsilon, together) <= 1e-6
    assert gaussian_delta(epsilon * (1 - 1e-3) - 1e-6, together) > 1e-6


def test_365_daily_gaussians_cost_a_tiny_part_of_what_adding_up_says():
    daily, once = epsilon_of([gaussian(60)], 1e-6, runs=365), epsilon_of([gaussian(60)], 1e-6 / 365)
    assert daily == pytest.approx(1.378, abs=0.002)
    assert 365 * once > 15 * daily


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_a_laplace_record_follows_the_laplace_profile(epsilon):
    for delta in (1e-9, 1e-3):
        expected = max(0.0, epsilon + 2 * math.log1p(-delta))
        assert epsilon_of([laplace(epsilon)], delta) == pytest.approx(expected, rel=2e-3)
        assert epsilon_of([laplace(epsilon)], delta) >= expected - 1e-12


def test_at_a_vanishing_delta_epsilons_of_laplace_records_add_up():
    assert epsilon_of([laplace(0.25, l0=2), laplace(0.5)], 1e-25, runs=3) == pytest.approx(3.0, rel=1e-4)
    assert epsilon_of([decision(0.1, 1e-9)], 1e-10) == math.inf


def test_laplace_records_of_many_partitions_agree_with_numerical_composition():
    # The loss of one coordinate on a fine grid of outcomes, and the product of eight of them by convolution.
    shift, grid = 0.2, np.linspace(-60, 60, 2_000_001)
    p = np.exp(-np.abs(grid)) / 2
    losses = np.abs(grid - shift) - np.abs(grid)
    step = 1e-4
    bins = np.round(losses / step).astype(int)
    one = np.bincount(bins - bins.min(), p / p.sum())
    total = one
    for _ in range(7):
        total = np.convolve(total, one) if len(total) < 5000 else np.asarray(_convolved(total, one))
    values = (np.arange(len(total)) + 8 * bins.min()) * step
    epsilon = epsilon_of([laplace(shift, l0=8)], 1e-5)
    assert float((total * np.maximum(1 - np.exp(epsilon - values), 0)).sum()) == pytest.approx(1e-5, rel=0.02)


def _convolved(a, b):
    from scipy import signal

    return np.maximum(signal.fftconvolve(a, b), 0)


def test_decisions_and_failures_agree_with_the_list_of_all_outcomes():
    e, d = 0.3, 1e-4
    up, down = (1 - d) * math.exp(e) / (1 + math.exp(e)), (1 - d) / (1 + math.exp(e))
    coin = (np.array([d, up, down, 0]), np.array([0, down, up, d]))
    hidden = (np.array([1e-3, 1 - 1e-3, 0]), np.array([0, 1 - 1e-3, 1e-3]))
    epsilon = epsilon_of([decision(e, d, l0=4), failure(1e-3)], 5e-3)
    assert composed_delta(epsilon, [coin] * 4 + [hidden]) <= 5e-3
    assert composed_delta(epsilon * 0.99, [coin] * 4 + [hidden]) > 5e-3


def test_a_failure_that_alone_exceeds_delta_is_never_enough():
    assert epsilon_of([failure(2e-6)], 1e-6) == math.inf
    assert epsilon_of([failure(1e-7)], 1e-6, runs=52) == math.inf


def test_a_bound_on_the_total_alone_costs_as_any_mechanism_with_that_epsilon():
    # Forty partitions may change, each by all ten steps, but ten steps in all.
    record = MechanismRecord(stage="s", name="l", kind="laplace", scale=Fraction(100), linf=10, l0=40, l1=10)
    assert epsilon_of([record], 1e-9) == pytest.approx(0.1, rel=1e-6)


records = st.one_of(
    st.floats(0.5, 50).map(gaussian),
    st.builds(laplace, st.floats(0.01, 1), st.integers(1, 8)),
    st.builds(decision, st.floats(0.01, 0.5), st.floats(1e-12, 1e-8), st.integers(1, 4)),
    st.floats(1e-12, 1e-8).map(failure),
)


@settings(max_examples=25)
@given(st.lists(records, min_size=1, max_size=4), records)
def test_another_record_another_run_or_a_smaller_delta_never_cost_less(some, other):
    cost = epsilon_of(some, 1e-5, accuracy=1e-3)
    slack = 2e-3 * cost
    assert epsilon_of([*some, other], 1e-5, accuracy=1e-3) >= cost - slack
    assert epsilon_of(some, 1e-5, runs=2, accuracy=1e-3) >= cost - slack
    assert epsilon_of(some, 1e-6, accuracy=1e-3) >= cost - slack


@settings(max_examples=25)
@given(st.lists(records, min_size=1, max_size=4))
def test_order_and_splitting_into_equal_records_change_nothing(some):
    twice = epsilon_of(some, 1e-5, runs=2)
    assert epsilon_of([*some, *reversed(some)], 1e-5) == pytest.approx(twice, rel=1e-3, abs=1e-6)


@settings(max_examples=25)
@given(st.lists(st.floats(0.5, 50).map(gaussian), min_size=1, max_size=5))
def test_the_rough_account_is_exact_enough_for_gaussians(some):
    assert rough_epsilon(some, 1e-6) == pytest.approx(epsilon_of(some, 1e-6), rel=5e-3)


def test_what_the_tables_add_to_delta_is_counted_and_tiny():
    assert 0 < tables_delta([laplace(1.0, l0=1000)], runs=1000, epsilon=10.0) < 1e-19
    assert tables_delta([failure(1e-7)], epsilon=1.0) == 0


def test_an_account_that_forgets_the_number_of_partitions_would_be_noticed():
    # The planted fault: a record made with l0 = 1 where eight partitions change.
    honest, forgetful = epsilon_of([laplace(0.2, l0=8)], 1e-6), epsilon_of([laplace(0.2, l0=1)], 1e-6)
    assert honest > 4 * forgetful
