"""Renyi divergences of records: against 40 digits, integrals, dp_accounting's accountant, and never below any of them."""

import math
from collections.abc import Callable
from fractions import Fraction

import dp_accounting
import mpmath
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting import accountant, divergences, renyi
from dp_pipelines.accounting.mechanism_record import MechanismRecord

ORDERS = st.sampled_from([1.01, 1.05, 1.5, 2.0, 3.7, 29.0, 199.5, 2.0**20, 2.0**39])


def gaussian(scale: int, l2_squared: int = 1) -> MechanismRecord:
    return MechanismRecord(stage="s", name="g", kind="gaussian", scale=Fraction(scale), l2_squared=l2_squared, l0=1)


def laplace(scale: int, linf: int = 1, l0: int = 1, l1: int | None = None) -> MechanismRecord:
    total = linf * l0 if l1 is None else l1
    return MechanismRecord(stage="s", name="l", kind="laplace", scale=Fraction(scale), linf=linf, l0=l0, l1=total)


def decision(epsilon: float, delta: float = 0.0, l0: int = 1) -> MechanismRecord:
    return MechanismRecord(stage="s", name="d", kind="approximate_dp", epsilon=epsilon, delta=delta, l0=l0)


def exact_laplace(shift: Fraction, order: float) -> mpmath.mpf:
    """Mironov 2017, proposition 6, as it stands there, with as many digits as it takes."""
    with mpmath.workdps(80):
        a, s = mpmath.mpf(order), mpmath.mpf(shift.numerator) / shift.denominator
        moment = a / (2 * a - 1) * mpmath.exp((a - 1) * s) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * s)
        return mpmath.log(moment) / (a - 1)


def exact_response(epsilon: float, order: float) -> mpmath.mpf:
    """From the two outcomes."""
    with mpmath.workdps(80):
        a, e = mpmath.mpf(order), mpmath.exp(mpmath.mpf(epsilon))
        truth, lie = e / (1 + e), 1 / (1 + e)
        return mpmath.log(truth**a * lie ** (1 - a) + lie**a * truth ** (1 - a)) / (a - 1)


@settings(max_examples=100)
@given(st.integers(1, 2**40), st.integers(1, 2**12), ORDERS)
@example(2**40, 1, 1.01)
@example(2**40, 1, 2.0**39)
def test_a_laplace_divergence_is_the_closed_form_and_never_below_it(scale: int, linf: int, order: float) -> None:
    true, found = exact_laplace(Fraction(linf, scale), order), renyi.divergence([laplace(scale, linf)], order)
    assert true <= found <= float(true) * (1 + 1e-6) + min(float(Fraction(linf, scale)) ** 3, 1e-11) * order


@settings(max_examples=100)
@given(st.floats(1e-9, 40), ORDERS)
@example(1e-9, 1.01)
def test_a_decision_s_divergence_is_that_of_two_outcomes_and_never_below_it(epsilon: float, order: float) -> None:
    true, found = exact_response(epsilon, order), renyi.divergence([decision(epsilon)], order)
    assert true <= found <= float(true) * (1 + 1e-6) + min(epsilon**3, 1e-11) * order


@pytest.mark.parametrize("order", [1.05, 2.0, 7.5])
@pytest.mark.parametrize("shift", [0.05, 1.0, 5.0])
def test_divergences_agree_with_the_integral_of_their_densities(order: float, shift: float) -> None:
    step = 2**20
    change = math.ceil(shift * step)
    moved = change / step

    def integral(log_density: Callable[[mpmath.mpf], mpmath.mpf], ends: list[float]) -> float:
        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.exp(order * log_density(x) + (1 - order) * log_density(x - moved))

        return float(mpmath.log(mpmath.quad(integrand, ends)) / (order - 1))

    flat = integral(lambda x: -abs(x) - mpmath.log(2), [-80, 0, moved, 80])
    assert renyi.divergence([laplace(step, change)], order) == pytest.approx(flat, rel=1e-9)
    normal = integral(lambda x: -(x**2) / 2 - mpmath.log(2 * mpmath.pi) / 2, [-60, -20, 0, 20, 60])
    assert renyi.divergence([gaussian(step, change**2)], order) == pytest.approx(normal, rel=1e-9)


def test_divergences_add_up_and_the_worst_spread_counts() -> None:
    parts = [gaussian(10, 7), laplace(64, 16), laplace(64, 16), laplace(64, 8), decision(0.1, 1e-9, 3)]
    added = sum(renyi.divergence([part], 4.0) for part in parts)
    assert renyi.divergence([gaussian(10, 7), laplace(64, 16, 9, 40), decision(0.1, 1e-9, 3)], 4.0) == pytest.approx(
        added
    )
    # The planted fault: the same change, spread evenly over five, would cost less.
    assert renyi.divergence([laplace(64, 8, 5)], 4.0) < 0.7 * renyi.divergence([laplace(64, 16, 9, 40)], 4.0)


def test_dp_accounting_s_renyi_accountant_says_the_same() -> None:
    orders = [1.5, 2.0, 4.0, 8.0, 29.0, 64.0, 256.0]
    theirs = dp_accounting.rdp.RdpAccountant(orders)
    theirs.compose(dp_accounting.GaussianDpEvent(5.0), 12)
    theirs.compose(dp_accounting.LaplaceDpEvent(4.0), 3)
    ours = [renyi.divergence([*[gaussian(5)] * 12, laplace(64, 16, 3)], order) for order in orders]
    assert ours == pytest.approx(list(theirs._rdp), rel=1e-9)
    best = min(renyi.to_epsilon(value, order, 1e-6) for value, order in zip(ours, orders, strict=True))
    assert best == pytest.approx(theirs.get_epsilon(1e-6), rel=1e-6)


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.integers(2, 200).map(gaussian),
            st.builds(laplace, st.integers(2, 200), st.integers(1, 8), st.integers(1, 9), st.integers(1, 30)),
            st.builds(decision, st.floats(1e-3, 0.5), st.floats(0, 1e-9), st.integers(1, 9)),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1.5, 4.0, 29.0, 120.0]),
    st.sampled_from([1e-3, 1e-6, 1e-9]),
)
def test_no_order_gives_less_than_the_loss_distribution(
    some: list[MechanismRecord], order: float, delta: float
) -> None:
    # What does not fail alone: the rest of delta pays for failures on both sides.
    left = delta - renyi.failure(some, 1.0)
    assume(left > 0)
    by_order = renyi.to_epsilon(renyi.divergence(some, order), order, left)
    assert accountant.epsilon_of(some, delta) <= by_order * (1 + 1e-4) + 1e-9


def test_what_fails_is_added_up_over_decisions_thresholds_and_tables() -> None:
    threshold = MechanismRecord(stage="s", name="t", kind="delta", delta=1e-7)
    assert renyi.failure([decision(0.1, 1e-9, 3), threshold], 1.0) == pytest.approx(1.03e-7)
    assert renyi.failure([gaussian(5)], 1.0) == pytest.approx(accountant.tables_delta([gaussian(5)], epsilon=1.0))


@given(st.floats(0.01, 30), st.sampled_from([1.5, 2.0, 29.0, 199.0]), st.sampled_from([1e-3, 1e-6, 1e-15]))
def test_from_epsilon_is_the_inverse(epsilon: float, order: float, delta: float) -> None:
    assert renyi.to_epsilon(renyi.from_epsilon(epsilon, order, delta), order, delta) == pytest.approx(epsilon, rel=1e-9)


def test_a_divergence_becomes_an_epsilon_that_holds() -> None:
    # The profile of a Gaussian is known: at the epsilon that an order gives, its delta is at most the one asked for.
    for order in (2.0, 8.0, 29.0):
        epsilon = renyi.to_epsilon(renyi.divergence([gaussian(4)], order), order, 1e-6)
        assert accountant.delta_of([gaussian(4)], epsilon) <= 1e-6


@pytest.mark.parametrize("order", [1.5, 3.7, 29.0, 199.5])
def test_a_divergence_is_above_the_truth_before_it_is_raised_with_the_sum(order: float) -> None:
    for high in (1.0, 1.5, 2.0, 7.3, 30.0):
        loss = high / (order - 1) * (1 + 2.0**-30)
        assert exact_laplace(Fraction(loss), order) < divergences.laplace(loss, order)
        assert exact_response(loss, order) < divergences.response(loss, order)


@pytest.mark.parametrize("order", [1.5, 3.0, 20.0])
@pytest.mark.parametrize("times", [1, 40])
def test_a_sample_of_nearly_everybody_costs_what_the_whole_costs(order: float, times: int) -> None:
    nearly = MechanismRecord(
        stage="s", name="n", kind="sampled_gaussian", scale=4, l2_squared=9, l0=1, rate=1 - 1e-9, times=times
    )
    whole = times * order * (9 / 16) / 2
    assert whole * (1 - 1e-6) <= renyi.divergence([nearly], order) <= whole * (1 + 1e-3)
