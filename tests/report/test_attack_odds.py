"""What an (epsilon, delta) allows an attacker, against mechanisms whose best attack is known.

In: epsilons, deltas, shares. Out: bounds. Holds: randomised response reaches the bound, no Gaussian mechanism is above it, and
nothing is above certainty.
"""

import math

from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from dp_pipelines.report.attack_odds import example, found_at_most, in_a_hundred

SHARES = st.floats(1e-6, 1 - 1e-6)


@given(st.floats(0, 20))
def test_randomised_response_reaches_the_bound(epsilon: float) -> None:
    lie = 1 / (1 + math.exp(epsilon))
    assert math.isclose(found_at_most(epsilon, 0.0, lie), 1 - lie, rel_tol=1e-9)
    percent = math.ceil(100 * (1 - lie) - 1e-9)
    assert example(epsilon, 0.0) == (str(percent) if percent < 100 else None)


@given(st.floats(0.01, 4), st.floats(0.01, 6), SHARES)
def test_no_test_of_a_gaussian_is_above_the_bound(mu: float, epsilon: float, share: float) -> None:
    # The delta of a Gaussian mechanism at this epsilon (Balle and Wang 2018, theorem 8).
    delta = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    best = ndtr(ndtri(share) + mu)
    assert best <= found_at_most(epsilon, max(0.0, float(delta)), share) + 1e-9


@given(st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 1))
def test_a_bound_is_a_share_and_never_below_a_blind_guess(epsilon: float, delta: float, share: float) -> None:
    found = found_at_most(epsilon, delta, share)
    assert share - 1e-12 <= found <= 1
    assert float(in_a_hundred(found)) >= 100 * found - 1e-6
