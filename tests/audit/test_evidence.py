"""The evidence of an audit: a bound on false alarms at every sample size, and enough of it where something is wrong.

In: laws that can be added up exactly. Out: tails beside their bounds. Not covered: what an audit does with it.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dp_pipelines.audit import evidence
from dp_pipelines.audit.divergence import compare, threshold
from dp_pipelines.audit.residuals import Products, Squares, Steady, fourth_moment
from dp_pipelines.audit.samples import of_sizes, of_units
from dp_pipelines.noise.laws import FlooredLaplace, RoundedGaussian

LEVELS = [0.5, 1.0, 2.0, 4.0, 8.0]


def draws(n: int) -> np.ndarray:
    """Normal numbers from the quantiles of their law, in an order that a key settles: no test here may fail by chance."""
    return np.random.default_rng(20260101).permutation(stats.norm.ppf((np.arange(n) + 0.5) / n))


@pytest.mark.parametrize("q", [0.0, 0.02, 0.3, 0.6])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.0, 0.2), (0.5, 0.01), (1.0, 1e-6)])
def test_an_excess_is_rarer_than_its_evidence_says_for_every_sample(q: float, epsilon: float, delta: float) -> None:
    n, p = 25, min(1.0, delta + math.exp(epsilon) * q)  # as bad as the claim allows
    ways = [
        (evidence.excess(a, b, n, epsilon=epsilon, delta=delta), stats.binom.pmf(a, n, p) * stats.binom.pmf(b, n, q))
        for a, b in itertools.product(range(n + 1), repeat=2)
    ]
    for level in LEVELS:
        assert math.fsum(chance for found, chance in ways if found >= level) <= math.exp(-level)


def test_an_excess_of_five_standard_errors_is_evidence() -> None:
    n = 100_000
    error = math.sqrt(2 * 0.25 / n)
    assert evidence.excess(int(n * (0.6 + 6 * error)), n // 2, n, epsilon=0.0, delta=0.1) > 14
    assert evidence.excess(int(n * (0.6 + 1 * error)), n // 2, n, epsilon=0.0, delta=0.1) < 0.5


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5])
def test_unlike_counts_are_rarer_than_their_evidence_says(share: float) -> None:
    n = 60
    for level in LEVELS:
        found = [evidence.unlike([k, n - k], [share, 1 - share]) for k in range(n + 1)]
        tail = math.fsum(stats.binom.pmf(k, n, share) for k in range(n + 1) if found[k] >= level)
        assert tail <= math.exp(-level)


@pytest.mark.parametrize("n", [10, 1000, 100_000])
def test_a_deficit_is_rarer_than_its_evidence_says(n: int) -> None:
    for found in (0.3, 0.9, 0.97, 0.999):
        assert stats.chi2.cdf(found * n, n) <= math.exp(-evidence.deficit(found, n, 3.0))
    assert evidence.deficit(0.95**2, 20_000, 3.0) > 30


@pytest.mark.parametrize("law", [RoundedGaussian(1), FlooredLaplace(1), RoundedGaussian(100), FlooredLaplace(100)])
def test_the_fourth_moment_is_above_that_of_the_law(law: RoundedGaussian | FlooredLaplace) -> None:
    most = int(60 * law.scale)
    offset = float(law.offset)
    exact = math.fsum((x + offset) ** 4 * law.pmf(x) for x in range(-most, most)) / law.stddev**4
    assert exact < fourth_moment(law) < 1.05 * exact


def test_columns_and_portions_that_are_related_are_seen_and_others_are_not() -> None:
    noise = draws(40_000).reshape(-1, 4)

    def found(*portions: np.ndarray) -> float:
        related = Products()
        for portion in portions:
            related.add(portion)
        return related.evidence

    assert found(noise) < 1
    assert found(noise[:5000], noise[5000:]) < 1
    twice = noise.copy()
    twice[:, 3] = twice[:, 0]
    assert found(twice) > 1000
    assert found(noise[:5000], noise[:5000]) > 1000


def test_a_step_with_other_noise_is_seen_and_more_noise_in_all_is_no_deficit() -> None:
    noise = draws(40_000).reshape(-1, 4)
    for factor, wrong in (([1, 1, 1, 1], False), ([1, 1, 0.9, 1], True), ([1, 1, 1.1, 1], True)):
        steady = Steady()
        steady.add(noise * factor)
        assert (steady.evidence > 20) == wrong
    squares = Squares(3.0)
    squares.add(1.1 * noise)
    assert squares.evidence == 0
    assert squares.ratio == pytest.approx(1.1, rel=1e-3)


def test_counts_of_another_spread_than_binomial_are_seen() -> None:
    even = (np.arange(20_000) + 0.5) / 20_000
    assert of_units(stats.binom.ppf(even, 10, 0.2).astype(int), 10, 0.2) < 1
    assert of_units(np.full(20_000, 2), 10, 0.2) > 1000
    assert of_units(2 * stats.binom.ppf(even, 5, 0.2).astype(int), 10, 0.2) > 1000
    assert of_sizes([(stats.binom.ppf(even, 500, 0.2).astype(int), 500), (np.array([7]), 40)], 0.2) < 1
    assert of_sizes([(np.full(100, 100), 500)], 0.2) > 50


def test_a_divergence_is_that_of_the_laws_in_both_directions() -> None:
    with_unit, without = draws(200_000) + 1, draws(200_000)
    for each in compare(with_unit, without, {0.0: 0.3829, 1.0: 0.1269}):
        assert abs(each.replayed - each.accounted) < 4 * each.error
        assert each.evidence < 5
    for each in compare(with_unit, without, {0.0: 0.36, 1.0: 0.11}):
        assert each.evidence > 10


def test_where_one_law_never_has_more_no_score_is_high_enough() -> None:
    assert threshold(np.array([1.0, 2.0]), np.array([1.0, 2.0]), 1.0) == math.inf
    assert threshold(np.array([1.0, 2.0]), np.array([0.0, 1.0]), 0.0) == 2.0
