"""Composition: never below the truth, and hardly above it, where the truth is known from elsewhere."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting import composition, convolution
from dp_pipelines.accounting.composition import Composition
from dp_pipelines.accounting.dominating_pairs import BoundedLoss, Gaussian, Laplace, Pair, Response
from tests.helpers.work import calls_of, most_memory_of


def responses_delta(epsilon: float, s: float, times: int) -> mpmath.mpf:
    """The profile of composed randomized responses: a sum over the number of truths (Kairouz, Oh, Viswanath 2015)."""
    e, truth = mpmath.mpf(epsilon), 1 / (1 + mpmath.exp(-mpmath.mpf(s)))
    total = mpmath.mpf(0)
    for k in range(times + 1):
        p = mpmath.binomial(times, k) * truth**k * (1 - truth) ** (times - k)
        q = mpmath.binomial(times, k) * truth ** (times - k) * (1 - truth) ** k
        total += max(p - mpmath.exp(e) * q, 0)
    return total


def gaussian_delta(epsilon: mpmath.mpf, mu: float) -> mpmath.mpf:
    """Balle and Wang 2018, theorem 8."""
    m = mpmath.mpf(mu)
    return mpmath.ncdf(m / 2 - epsilon / m) - mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m)


def mixed_delta(epsilon: float, mu: float, s: float) -> mpmath.mpf:
    """One Gaussian and one Laplace: the Gaussian's profile averaged over the Laplace's loss."""
    e, shift = mpmath.mpf(epsilon), mpmath.mpf(s)
    atoms = gaussian_delta(e - shift, mu) / 2 + mpmath.exp(-shift) / 2 * gaussian_delta(e + shift, mu)
    between = mpmath.quad(
        lambda loss: mpmath.exp((loss - shift) / 2) / 4 * gaussian_delta(e - loss, mu),
        mpmath.linspace(-shift, shift, 9),
    )
    return atoms + between


def two_laplaces_delta(epsilon: float, a: float, b: float) -> mpmath.mpf:
    """Two Laplaces, exactly: docs/proofs/accounting.md, lemma 2."""
    e = abs(mpmath.mpf(epsilon))
    together = mpmath.mpf(a) + mpmath.mpf(b)
    kept = min(1, mpmath.exp((mpmath.mpf(epsilon) - together) / 2), mpmath.exp(mpmath.mpf(epsilon)))
    overlap = max(0, min(2 * min(mpmath.mpf(a), mpmath.mpf(b)), together - e))
    return 1 - kept - mpmath.exp((mpmath.mpf(epsilon) - together) / 2) * overlap / 4


@settings(max_examples=60)
@given(
    s=st.floats(1e-3, 2), times=st.integers(2, 40), share=st.floats(0.1, 0.95), accuracy=st.sampled_from([1e-4, 1e-3])
)
def test_composed_responses_cost_what_the_sum_over_truths_says(s: float, times: int, share: float, accuracy: float):
    composed = Composition(bounded={Response(s): times})
    epsilon = share * s * times
    with mpmath.workdps(60):
        truth = responses_delta(epsilon, s, times)
        assume(truth < 0.1)
        assert composed.delta(epsilon, accuracy) >= truth
        answer = composed.epsilon(float(truth), accuracy)
        assert epsilon * (1 - 1e-9) <= answer <= epsilon * (1 + accuracy) + 1e-12


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-6, 1e-12, 1e-30, 1e-100])
@pytest.mark.parametrize(("mu", "times"), [(0.1, 16), (1.0, 3), (0.001, 400), (0.02, 10_000)])
def test_gaussians_on_the_grid_cost_what_the_closed_form_says(mu: float, times: int, delta: float):
    # The accountant merges Gaussians; here each is composed on the grid, to test the grid at every delta.
    together = Composition(mu=mu * math.sqrt(times))
    truth = together.epsilon(delta)
    theta = max(1e-3, math.sqrt(2 * math.log(1 / delta)) / together.mu)
    interval = composition._interval({Gaussian(mu): times}, theta, math.log(delta), truth, 1e-4)
    part = convolution.Tilted.of(Gaussian(mu), times, interval, theta, math.log(delta))
    composed = convolution.compose([part], math.log(delta), math.inf)
    assert composed is not None
    assert truth * (1 - 1e-12) <= composed.epsilon(delta) <= truth * (1 + 1e-4) + 1e-12
    with mpmath.workdps(40):
        exact = gaussian_delta(mpmath.mpf(composed.epsilon(delta)), mu * math.sqrt(times))
        assert exact <= delta * (1 + mpmath.mpf(10) ** -12)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9, 1.2])
@pytest.mark.parametrize(("mu", "s"), [(0.2, 0.1), (0.05, 0.5), (1.0, 2.0), (0.001, 0.003)])
def test_a_gaussian_and_a_laplace_cost_what_the_integral_says(mu: float, s: float, share: float):
    epsilon = share * (s + 4 * mu)
    with mpmath.workdps(30):
        truth = mixed_delta(epsilon, mu, s)
        answer = Composition(mu=mu, bounded={Laplace(s): 1}).delta(epsilon, 1e-5)
        assert truth <= answer <= truth * (1 + mpmath.mpf("1e-3"))


@settings(max_examples=60)
@given(a=st.floats(1e-3, 3), ratio=st.floats(0.01, 1), share=st.floats(0, 0.98))
def test_two_laplaces_cost_what_their_exact_profile_says(a: float, ratio: float, share: float):
    epsilon = share * a * (1 + ratio)
    bounded = {Laplace(a): 1, Laplace(a * ratio): 1} if ratio < 1 else {Laplace(a): 2}
    with mpmath.workdps(40):
        answer = Composition(bounded=bounded).delta(epsilon, 1e-5)
        assert two_laplaces_delta(epsilon, a, a * ratio) <= answer
        assert answer <= two_laplaces_delta(epsilon - 3e-3 * a, a, a * ratio) + 1e-12


def buckets_below(pairs: dict[Pair, int], epsilon: float, interval: float) -> float:
    """A delta below the truth: each loss rounded down to a node, and convolved without an FFT."""
    total = np.ones(1)
    first = 0
    for pair, count in pairs.items():
        low, high = pair.reach(1.0, -40.0)
        start, stop = math.floor(low / interval), math.ceil(high / interval)
        survival = above(pair, np.arange(start, stop + 1) * interval)
        # What lies at or below the first node counts as nothing, what lies above the last as the last.
        values = np.append(survival[:-1] - survival[1:], survival[-1])
        for _ in range(count):
            total = np.convolve(total, values)
            first += start
    losses = (first + np.arange(len(total))) * interval
    keep = losses > epsilon
    return float(np.sum(total[keep] * -np.expm1(epsilon - losses[keep])))


def above(pair: Pair, losses: np.ndarray) -> np.ndarray:
    """P(L >= loss), for losses that are not above the largest."""
    if isinstance(pair, Gaussian):
        return np.array([math.erfc((x / pair.mu - pair.mu / 2) / math.sqrt(2)) / 2 for x in losses])
    s = pair.largest  # type: ignore[attr-defined]
    inside = losses <= s * (1 + 1e-12)
    if isinstance(pair, Response):
        return np.where(losses <= -s, 1.0, np.where(inside, 1 / (1 + math.exp(-s)), 0.0))
    return np.where(losses <= -s, 1.0, np.where(inside, 1 - np.exp((losses - s) / 2) / 2, 0.0))


@settings(max_examples=25)
@given(
    mu=st.floats(0.02, 0.6),
    laplace=st.floats(0.01, 0.3),
    response=st.floats(0.01, 0.3),
    counts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    share=st.floats(0.1, 0.8),
)
def test_mixtures_cost_no_less_than_a_bound_from_below(
    mu: float, laplace: float, response: float, counts: tuple[int, int], share: float
):
    bounded = {Laplace(laplace): counts[0], Response(response): counts[1]}
    epsilon = share * (3 * mu + laplace * counts[0] + response * counts[1])
    interval = (mu + laplace + response) / 400
    below = buckets_below({Gaussian(mu): 1, **bounded}, epsilon, interval)
    answer = Composition(mu=mu, bounded=bounded).delta(epsilon)
    assert answer >= below
    # A node too low in every one of the pairs is all that the lower bound can be off by.
    off = interval * (1 + sum(counts))
    assert answer <= buckets_below({Gaussian(mu): 1, **bounded}, epsilon - off, interval) * 1.01 + 1e-12


def test_an_account_that_leaves_out_one_pair_is_found_below_the_truth():
    with mpmath.workdps(30):
        truth = responses_delta(1.0, 0.2, 20)
        assert Composition(bounded={Response(0.2): 19}).delta(1.0) < truth
        assert Composition(bounded={Response(0.199): 20}).delta(1.0) < truth
        assert Composition(bounded={Response(0.2): 20}).delta(1.0) >= truth
        truth = mixed_delta(0.5, 0.2, 0.1)
        assert Composition(mu=0.2).delta(0.5) < truth
        assert Composition(mu=0.1998, bounded={Laplace(0.1): 1}).delta(0.5) < truth


@pytest.mark.parametrize("failure", [0.0, 1e-9, 1e-3, 0.4])
@pytest.mark.parametrize("bounded", [{}, {Laplace(0.1): 5}], ids=["gaussian", "mixed"])
def test_a_failure_adds_to_what_is_left(failure: float, bounded: dict[Laplace, int]):
    without = Composition(mu=0.3, bounded=bounded)
    whole = Composition(mu=0.3, bounded=bounded, failure=failure)
    for epsilon in (0.0, 0.2, 1.0, 3.0):
        assert whole.delta(epsilon) == pytest.approx(failure + (1 - failure) * without.delta(epsilon), rel=1e-6)
    assert whole.epsilon(failure + 1e-6 * (1 - failure)) == pytest.approx(without.epsilon(1e-6), rel=1e-6)
    assert math.isinf(whole.epsilon(failure * 0.999)) or failure == 0
    assert math.isinf(whole.epsilon(failure))


def test_without_noise_of_unbounded_loss_a_delta_of_zero_costs_the_sum():
    composed = Composition(bounded={Laplace(0.25): 3, Response(0.5): 2})
    assert composed.epsilon(0.0) == pytest.approx(1.75, rel=1e-12)
    assert composed.delta(1.76) == 0
    assert Composition(failure=0.1).epsilon(0.1) == 0
    assert math.isinf(Composition(failure=1.0).epsilon(0.5))
    assert Composition().epsilon(0.0) == 0 == Composition().delta(0.0)


def test_closed_forms_alone_are_never_below_the_grid_nor_far_above_it():
    composed = Composition(mu=0.3, bounded={Laplace(0.05): 16})
    for delta in (1e-3, 1e-6, 1e-12):
        assert 1 <= composed.least_epsilon(delta) / composed.epsilon(delta) < 2
    for epsilon in (0.5, 1.0, 2.0):
        assert composed.largest_delta(epsilon) >= composed.delta(epsilon)


@pytest.mark.parametrize(
    ("bounded", "delta"),
    [
        ({Laplace(0.000847): 20}, 1.7e-9),
        ({Laplace(0.3): 1}, 1e-4),
        ({Response(0.5): 2}, 0.15),
        ({Laplace(0.0625): 4}, 0.01),
        ({Laplace(0.05): 16, Response(0.2): 1}, 1e-6),
    ],
    ids=repr,
)
def test_a_gaussian_that_tells_nothing_costs_nothing(bounded: dict[BoundedLoss, int], delta: float):
    # Few bounded losses make jumps in the tail, where closed forms are far off and a tilt made for them would fail.
    without = Composition(bounded=bounded).epsilon(delta)
    largest = max(pair.largest for pair in bounded)
    assert without * (1 - 1e-4) <= Composition(mu=largest / 1000, bounded=bounded).epsilon(delta) < without * (1 + 1e-3)


@pytest.mark.parametrize(
    "composed",
    [
        Composition(mu=1e-9, bounded={Laplace(1e-9): 8}),
        Composition(mu=1e-3, bounded={Laplace(1e-6): 10**4, Response(2.5e-7): 10**6}),
        Composition(bounded={Laplace(1e-5): 10**8}),
        Composition(bounded={Response(1e-9): 10**13}),
        Composition(mu=50.0, bounded={Laplace(20.0): 400}),
        Composition(mu=1e6, bounded={Laplace(1e6): 10**9}),
        Composition(mu=0.1, bounded={Laplace(0.001 * i): i for i in range(1, 100)}),
        Composition(mu=1e-12, bounded={Laplace(3.0): 1}),
    ],
    ids=repr,
)
def test_no_plan_takes_long_or_much_memory(composed: Composition):
    epsilon = composed.epsilon(1e-6)
    delta = composed.delta(min(epsilon, 1e3))
    assert calls_of(lambda: composed.epsilon(1e-6)) < 500_000
    assert most_memory_of(lambda: composed.epsilon(1e-6)) < 2**28
    assert 0 <= epsilon <= composed.least_epsilon(1e-6)
    assert delta <= 1.2e-6 or epsilon > 1e3


@settings(max_examples=40)
@given(
    mu=st.floats(0, 1),
    laplace=st.floats(1e-4, 0.5),
    count=st.integers(1, 200),
    delta=st.floats(-12, -2),
    factor=st.floats(1.001, 3),
)
def test_more_of_anything_costs_more(mu: float, laplace: float, count: int, delta: float, factor: float):
    def cost(mu: float, laplace: float, count: int, delta: float) -> float:
        return Composition(mu=mu, bounded={Laplace(laplace): count}).epsilon(delta)

    # Each answer is above its truth by at most a part in 10^4.
    here = cost(mu, laplace, count, 10**delta) * (1 - 1e-4)
    assert cost(mu * factor, laplace, count, 10**delta) >= here
    assert cost(mu, laplace * factor, count, 10**delta) >= here
    assert cost(mu, laplace, count + 1, 10**delta) >= here
    assert cost(mu, laplace, count, 10**delta / factor) >= here


def test_a_million_small_decisions_cost_what_the_gaussian_does_that_they_add_up_to():
    for loss, times in ((0.01, 10**6), (0.001, 10**7), (0.03, 10**5)):
        together = Composition(bounded={Response(loss): times}).epsilon(1e-6, 1e-6)
        assert together == pytest.approx(Composition(mu=loss * math.sqrt(times)).epsilon(1e-6, 1e-6), rel=1e-3)
