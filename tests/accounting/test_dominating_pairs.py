"""Pairs: profiles against 50 digits, moments against sums, and masses on a grid that are never below the profile."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.accounting.dominating_pairs import (
    BoundedLoss,
    Floats,
    Gaussian,
    Laplace,
    Masses,
    Pair,
    Response,
    connect_dots,
)

pairs = st.builds(
    lambda kind, size: kind(size),
    st.sampled_from([Gaussian, Laplace, Response]),
    st.floats(1e-7, 8),
)


def true_profile(pair: Pair, epsilon: float) -> mpmath.mpf:
    """The profile from its definition, in 50 digits."""
    e = mpmath.mpf(epsilon)
    if isinstance(pair, Gaussian):
        mu = mpmath.mpf(pair.mu)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
    assert isinstance(pair, BoundedLoss)
    s = mpmath.mpf(pair.largest)
    if isinstance(pair, Response):
        truth = 1 / (1 + mpmath.exp(-s))
        return sum(max(p - mpmath.exp(e) * q, 0) for p, q in ((truth, 1 - truth), (1 - truth, truth)))
    # Laplace(0) puts more than e^e times as much as Laplace(s) on everything below some point.
    if e >= s:
        return mpmath.mpf(0)
    if e <= -s:
        return 1 - mpmath.exp(e)
    x = (s - e) / 2
    below_p = 1 - mpmath.exp(-x) / 2 if x >= 0 else mpmath.exp(x) / 2
    below_q = mpmath.exp(x - s) / 2
    return below_p - mpmath.exp(e) * below_q


def grid_profile(masses: Masses, interval: float, epsilon: float) -> mpmath.mpf:
    """The profile of masses on a grid, in 50 digits."""
    e, h = mpmath.mpf(epsilon), mpmath.mpf(interval)
    total = mpmath.mpf(masses.infinite)
    for i, value in enumerate(masses.values):
        loss = (masses.first + i) * h
        if loss > e and value:
            total += mpmath.mpf(float(value)) * -mpmath.expm1(e - loss)
    return total


@given(pair=pairs, share=st.floats(-3, 3), together=st.sampled_from([1, 100]))
def test_a_profile_is_as_near_the_truth_as_it_says(pair: Pair, share: float, together: int):
    width = max(20 * pair.mu, pair.mu**2) if isinstance(pair, Gaussian) else pair.largest  # type: ignore[attr-defined]
    epsilon = share * width / 3
    profile, error = pair.profile(np.full(together, epsilon))  # few and many are computed in different ways
    with mpmath.workdps(50):
        assert abs(profile[0] - true_profile(pair, epsilon)) <= error[0] + mpmath.mpf(10) ** -45


@given(pair=pairs, coarseness=st.floats(-4, 1), share=st.floats(-1, 1))
def test_masses_on_a_grid_are_never_below_the_profile(pair: Pair, coarseness: float, share: float):
    reach = pair.reach(0.5, -30.0)
    interval = (reach[1] - reach[0]) / 2 * 10 ** max(coarseness, -2)
    masses = connect_dots(pair, interval, reach)
    assert math.fsum(masses.values) + masses.infinite == pytest.approx(1, abs=1e-12)
    assert (masses.values >= 0).all()
    epsilon = (reach[0] + reach[1]) / 2 + share * (reach[1] - reach[0])
    with mpmath.workdps(50):
        truth = true_profile(pair, epsilon)
        assert grid_profile(masses, interval, epsilon) >= truth - truth * mpmath.mpf(2) ** -50


@given(pair=pairs, end=st.floats(0.05, 1), share=st.floats(0, 1))
def test_masses_on_a_grid_that_ends_early_are_never_below_the_profile(pair: Pair, end: float, share: float):
    low, high = pair.reach(0.5, -30.0)
    interval = (high - low) / 40
    masses = connect_dots(pair, interval, (low, low + end * (high - low)))
    assert math.fsum(masses.values) + masses.infinite == pytest.approx(1, abs=1e-12)
    epsilon = low + share * (high - low)
    with mpmath.workdps(50):
        truth = true_profile(pair, epsilon)
        assert grid_profile(masses, interval, epsilon) >= truth - truth * mpmath.mpf(2) ** -50


def test_masses_rounded_to_the_nearest_node_would_be_found_below_the_profile():
    pair, interval = Laplace(1.0), 0.25
    masses = connect_dots(pair, interval, (-1.0, 1.0))
    nearest = np.zeros_like(masses.values)
    losses = np.linspace(-1, 1, 20001)
    density = np.exp((losses - 1) / 2) / 4 * (losses[1] - losses[0])
    np.add.at(nearest, np.round((losses + 1) / interval).astype(int), density)
    nearest[-1] += 0.5
    nearest[0] += math.exp(-1) / 2
    wrong = Masses(first=masses.first, values=nearest / nearest.sum(), infinite=0.0)
    epsilons = np.linspace(-0.9, 0.9, 37)
    assert all(grid_profile(masses, interval, e) >= true_profile(pair, e) for e in epsilons)
    assert any(grid_profile(wrong, interval, e) < true_profile(pair, e) for e in epsilons)


@pytest.mark.parametrize("pair", [Gaussian(0.3), Laplace(0.7), Response(0.7)], ids=repr)
def test_masses_meet_the_profile_at_the_nodes(pair: Pair):
    reach = pair.reach(2.0, -30.0)
    interval = 0.05
    masses = connect_dots(pair, interval, reach)
    for node in range(masses.first, masses.last + 1, 5):
        truth = float(true_profile(pair, node * interval))
        assert float(grid_profile(masses, interval, node * interval)) == pytest.approx(truth, rel=1e-7, abs=1e-13)


@pytest.mark.parametrize("pair", [Gaussian(0.3), Gaussian(2.0), Laplace(0.7), Laplace(5.0), Response(0.7)], ids=repr)
@pytest.mark.parametrize("theta", [0.1, 1.0, 7.0])
def test_a_moment_is_that_of_the_masses(pair: Pair, theta: float):
    reach = pair.reach(theta, -30.0)
    interval = (reach[1] - reach[0]) / 20_000
    masses = connect_dots(pair, interval, reach)
    losses = np.arange(masses.first, masses.last + 1) * interval
    moment = math.fsum(masses.values * np.exp(theta * losses))
    assert float(pair.log_moment(np.array([theta]))[0]) == pytest.approx(math.log(moment), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("pair", [Gaussian(0.01), Gaussian(3.0)], ids=repr)
def test_what_a_gaussian_leaves_above_its_reach_is_negligible(pair: Gaussian):
    for theta, log_delta in ((0.1, -14.0), (9 / pair.mu, -14.0), (1 / pair.mu, -200.0)):
        masses = connect_dots(pair, pair.mu / 50, pair.reach(theta, log_delta))
        assert 0 < masses.infinite < math.exp(log_delta - 20)


@dataclasses.dataclass(frozen=True)
class Blurred(BoundedLoss):
    """A profile of one half at every loss above 0, which is known badly at the largest one."""

    def profile(self, losses: Floats) -> tuple[Floats, Floats]:
        return np.where(losses > 0, 0.5, 1.0), np.where(losses >= self.largest, 0.25, 0.0)

    def log_moment(self, theta: Floats) -> Floats:
        return theta * self.largest


def test_no_more_is_put_at_infinity_than_lies_at_the_highest_node_and_above() -> None:
    masses = connect_dots(Blurred(20.0), 10.0, (0.0, 20.0))
    assert (masses.values >= 0).all()
    assert 0.5 <= masses.infinite < 0.5 + 1e-4
    assert float(masses.values.sum()) + masses.infinite == pytest.approx(1.0)
