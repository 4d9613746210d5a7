"""Sums over samples at the ends of what they may be: no noise or nearly no sample, epsilon 0, more steps than a grid can tell."""

import math

import mpmath
import pytest
from scipy import special

from dp_pipelines.accounting.composition import Composition
from dp_pipelines.accounting.subsampled_gaussian import Added, Removed, log_moment


def true_moment(rate: float, mu: float, order: float) -> mpmath.mpf:
    """Log of the moment, by its integral in 30 digits."""
    with mpmath.workdps(30):
        edge = mu / 2 + math.log((1 - rate) / rate) / mu

        def inside(x: mpmath.mpf) -> mpmath.mpf:
            return (1 - rate + rate * mpmath.exp(mu * x - mu * mu / 2)) ** order * mpmath.npdf(x)

        return mpmath.log(mpmath.quad(inside, sorted({-14.0, 0.0, edge, mu * order, mu * order + 14})))


@pytest.mark.parametrize(("rate", "mu", "theta"), [(0.2, 4.0, 0.25), (0.2, 5.0, 0.25), (0.05, 4.0, 0.4)])
def test_a_moment_of_a_low_broken_order_and_little_noise_is_never_below_the_integral(
    rate: float, mu: float, theta: float
) -> None:
    truth = true_moment(rate, mu, 1 + theta)
    assert truth <= log_moment(rate, mu, theta) <= truth + 1e-10


def test_a_moment_of_next_to_no_sample_is_above_nothing_and_next_to_nothing() -> None:
    # Beyond the largest mu the closed form answers: here it rounds to 0, and the truth is above 0.
    for rate in (1e-60, 1e-200):
        assert 0 < log_moment(rate, 16.0, 1e-3) < 1e-12


@pytest.mark.parametrize(("rate", "mu", "theta"), [(1e-80, 12.0, 4.0), (1e-100, 13.0, 3.0), (1e-100, 15.0, 3.0)])
def test_a_moment_whose_outcomes_no_float_holds_is_a_number_above_its_largest_part(
    rate: float, mu: float, theta: float
) -> None:
    order = 1 + theta
    largest = order * math.log(rate) + order * theta * mu * mu / 2
    assert 0 < largest < log_moment(rate, mu, theta) < order * theta * mu * mu / 2


def test_no_loss_is_above_what_is_said_to_be_the_largest() -> None:
    for part in range(1, 97):
        with mpmath.workdps(50):
            truth = -mpmath.log1p(-mpmath.mpf(part / 97))
        assert truth < Added(part / 97, 1.0).ceiling < truth * (1 + 1e-13)


def test_without_noise_to_speak_of_losses_reach_from_not_being_in_the_sample_to_as_good_as_infinity() -> None:
    for mu in (40.0, 100.0, 1000.0):
        low, high = Removed(0.5, mu).reach(1.0, -14.0)
        assert (low, high) == (pytest.approx(math.log(0.5)), 700.0)
        low, high = Added(0.5, mu).reach(1.0, -14.0)
        assert high == pytest.approx(math.log(2))


@pytest.mark.parametrize(("rate", "mu"), [(0.1, 1.0), (0.5, 0.3)])
def test_the_delta_of_one_step_at_epsilon_0_is_the_total_variation(rate: float, mu: float) -> None:
    truth = rate * float(special.ndtr(mu / 2) - special.ndtr(-mu / 2))
    assert truth <= Composition(sampled={Removed(rate, mu): 1}).delta(0.0) <= truth * (1 + 1e-4)


def test_more_steps_than_rounding_lets_a_grid_tell_cost_what_the_closed_form_says() -> None:
    steps = Composition(sampled={Removed(1e-6, 0.01): 10**14})
    assert 0 < steps.epsilon(1e-6) == steps.least_epsilon(1e-6) < 3
