"""The discrete Gaussian law, a part of wide noise: its probabilities, its table and its draws against sums in high precision."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines.noise import alias_tables, interval_arithmetic, magnitudes, samplers
from dp_pipelines.noise.laws import DiscreteGaussian, RoundedGaussian
from dp_pipelines.noise.samplers import Sampler

ALPHA = 1e-9
SCALES = [Fraction(1, 3), Fraction(7, 3), Fraction(64), Fraction(4096)]


def weight(scale: Fraction, x: int) -> mpmath.mpf:
    """exp(-x^2 / (2 s^2)), by the definition."""
    return mpmath.exp(-(mpmath.mpf(x) ** 2) * scale.denominator**2 / (2 * scale.numerator**2))


def true_tail(scale: Fraction, x: int) -> mpmath.mpf:
    """P(X >= x) in 80 digits, by sums."""
    far = math.ceil(30 * scale) + 30
    total = mpmath.fsum(weight(scale, y) for y in range(-far, far + 1))
    return mpmath.fsum(weight(scale, y) for y in range(x, far + abs(x))) / total


@settings(max_examples=60, deadline=None)
@given(scale=st.fractions(min_value=Fraction(1, 4), max_value=20, max_denominator=100), share=st.floats(-1, 1))
def test_a_tail_is_never_below_the_truth_and_hardly_above_it(scale: Fraction, share: float) -> None:
    law, x = DiscreteGaussian(scale), int(share * 10 * scale)
    with mpmath.workdps(80):
        truth = true_tail(scale, x)
        assert min(truth, 1) <= law.tail(x) <= truth * (1 + mpmath.mpf(2) ** -51)
        assert abs(law.pmf(x) - (truth - true_tail(scale, x + 1))) <= truth * 2.0**-52


@pytest.mark.parametrize("scale", [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(7, 3), Fraction(64)], ids=str)
def test_the_standard_deviation_is_that_of_the_probabilities(scale: Fraction) -> None:
    far = math.ceil(40 * scale) + 2
    weights = [float(weight(scale, x)) for x in range(-far, far + 1)]
    square = math.fsum(x * x * w for x, w in zip(range(-far, far + 1), weights, strict=True)) / math.fsum(weights)
    assert DiscreteGaussian(scale).stddev == pytest.approx(math.sqrt(square), rel=1e-13)


def furthest_from_truth(law: DiscreteGaussian, other: Fraction, bits: int, every: int) -> float:
    """The largest distance, in units, of the tails from those of a law of another scale, at 400 bits."""
    tails = magnitudes.tails(law, bits)
    with interval_arithmetic.precision(400):
        weights, rest = DiscreteGaussian(other).weights(0, arb(2) ** (-bits - 40))
        sums = [rest]
        for one in reversed(weights):
            sums.append(sums[-1] + one)
        sums.reverse()
        total = 2 * sums[0] - 1
        true = (2 * sums[m + 1] / total * arb(2) ** bits - tails[m] for m in range(0, len(tails), every))
        return max(float(abs(difference).upper()) for difference in true)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_tails_are_within_one_unit_of_the_law_and_not_of_its_neighbour(scale: Fraction) -> None:
    law, every = DiscreteGaussian(scale), 1 if scale <= 64 else 97
    assert furthest_from_truth(law, scale, 127, every) < 1
    assert furthest_from_truth(law, scale * (1 + Fraction(1, 10**30)), 127, every) > 1


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(7, 3), Fraction(20)], ids=str)
@pytest.mark.parametrize("bits", [12, 20])
def test_a_table_is_as_near_to_the_law_as_it_says(scale: Fraction, bits: int) -> None:
    law, total = DiscreteGaussian(scale), 1 << (bits + 7)
    table = alias_tables.build(magnitudes.tails(law, bits + 7), word_bits=7, field_bits=bits, further_words=1)
    drawn = alias_tables.reproduced(table)
    with mpmath.workdps(60):
        far = math.ceil(40 * scale) + 40
        weights = [weight(scale, 0), *(2 * weight(scale, m) for m in range(1, far))]
        whole = mpmath.fsum(weights)
        drawn += [0] * (far - len(drawn))
        differences = [abs(w / whole - mpmath.mpf(d) / total) for w, d in zip(weights, drawn, strict=False)]
        distance = mpmath.fsum(differences) / 2
        assert (
            0 < distance < mpmath.mpf(table.total_variation_bound.numerator) / table.total_variation_bound.denominator
        )


def chi_square(scale: Fraction, draws: np.ndarray) -> float:
    """The p-value of draws under the law."""
    s = float(scale)
    far = math.ceil(40 * s) + 2
    x = np.arange(-far, far + 1)
    masses = np.exp(-((x / s) ** 2) / 2)
    below = np.cumsum(masses / masses.sum())
    group = np.unique(np.minimum((below - masses / masses.sum() / 2) * 300, 299).astype(int), return_inverse=True)[1]
    expected = np.bincount(group, weights=masses / masses.sum()) * draws.size
    observed = np.bincount(group, weights=np.bincount(draws + far, minlength=x.size))
    keep = expected > 5
    statistic = float(((observed - expected)[keep] ** 2 / expected[keep]).sum())
    return float(stats.chi2.sf(statistic, keep.sum() - 1))


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_a_million_draws_follow_the_law_and_a_scale_two_percent_off_is_rejected(scale: Fraction) -> None:
    draws = Sampler(DiscreteGaussian(scale)).draw(1_000_000)
    assert chi_square(scale, draws) > ALPHA
    for factor in (Fraction(98, 100), Fraction(102, 100)):
        assert chi_square(scale * factor, draws) < ALPHA


@pytest.mark.parametrize("scale", [*SCALES, Fraction(2**14)], ids=str)
def test_every_draw_is_within_the_promised_distance_of_its_law(scale: Fraction) -> None:
    assert 0 < Sampler(DiscreteGaussian(scale)).total_variation_bound <= samplers.TOTAL_VARIATION_BOUND


def test_it_is_another_law_than_the_rounded_gaussian() -> None:
    # Poisson summation: the weights add up to sqrt(2 pi) (1 + 2 exp(-2 pi^2) + ...).
    whole = math.sqrt(2 * math.pi) * (1 + 2 * math.exp(-2 * math.pi**2))
    assert DiscreteGaussian(Fraction(1)).pmf(0) == pytest.approx(1 / whole, rel=1e-12)
    assert RoundedGaussian(Fraction(1)).pmf(0) < 0.39 < DiscreteGaussian(Fraction(1)).pmf(0)


@pytest.mark.parametrize("parts", [12, 20, 25, 37])
def test_a_scale_far_below_a_step_leaves_one_and_minus_one_as_good_as_alone(parts: int) -> None:
    assert DiscreteGaussian(Fraction(1, parts)).stddev == pytest.approx(
        math.sqrt(2) * math.exp(-(parts**2) / 4), rel=1e-9
    )


@pytest.mark.parametrize("scale", [Fraction(1, 20), Fraction(3, 50), Fraction(3, 40), Fraction(1, 10)])
def test_the_standard_deviation_of_a_law_that_is_nearly_always_0_is_that_of_its_two_neighbours(scale: Fraction) -> None:
    nearest = math.sqrt(2 * math.exp(-1 / (2 * float(scale) ** 2)))
    assert DiscreteGaussian(scale).stddev == pytest.approx(nearest, rel=1e-9, abs=0)
