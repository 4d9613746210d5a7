"""The laws: probabilities, tails and thresholds against independent high-precision arithmetic, and what they cost."""

import math
import pickle
import subprocess
import sys
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.noise import FlooredLaplace, Law, RoundedGaussian

LAWS = [
    RoundedGaussian(Fraction(1, 2)),
    RoundedGaussian(Fraction(7, 3)),
    RoundedGaussian(Fraction(64)),
    FlooredLaplace(Fraction(1, 2)),
    FlooredLaplace(Fraction(7, 3)),
    FlooredLaplace(Fraction(64)),
]
laws = st.builds(
    lambda kind, scale: kind(scale),
    st.sampled_from([RoundedGaussian, FlooredLaplace]),
    st.fractions(min_value=Fraction(1, 8), max_value=5000, max_denominator=1000),
)


def true_tail(law: Law, x: int) -> mpmath.mpf:
    """P(X >= x) in 80 digits, from the definition by the continuous law."""
    scale = mpmath.mpf(law.scale.numerator) / law.scale.denominator
    if isinstance(law, RoundedGaussian):
        return mpmath.erfc((x - mpmath.mpf(1) / 2) / scale / mpmath.sqrt(2)) / 2
    return mpmath.exp(-x / scale) / 2 if x >= 0 else 1 - mpmath.exp(x / scale) / 2


def reach(law: Law) -> int:
    """Nothing that a float can see lies further out."""
    return math.ceil(40 * law.scale) if isinstance(law, RoundedGaussian) else math.ceil(760 * law.scale)


@settings(max_examples=300, deadline=None)
@given(law=laws, share=st.floats(-1, 1))
def test_a_tail_is_never_below_the_truth_and_hardly_above_it(law: Law, share: float) -> None:
    x = int(share * reach(law))
    with mpmath.workdps(80):
        truth = true_tail(law, x)
        assert law.tail(x) >= min(truth, 1)
        assert law.tail(x) <= truth * (1 + mpmath.mpf(2) ** -51) + mpmath.mpf(2) ** -1073


def test_a_tail_rounded_to_the_nearest_float_would_be_found() -> None:
    law = LAWS[1]
    with mpmath.workdps(80):
        assert any(math.nextafter(law.tail(x), 0) < true_tail(law, x) for x in range(1, 20))
        assert any(float(true_tail(law, x)) < true_tail(law, x) for x in range(1, 20))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_a_tail_is_accurate_down_to_the_smallest_floats_and_never_zero(law: Law) -> None:
    x = law.smallest_x_with_tail_at_most(1e-300) - 1
    with mpmath.workdps(80):
        assert abs(law.tail(x) / true_tail(law, x) - 1) < 1e-15
    assert 0 < law.tail(100 * reach(law)) <= 5e-324
    assert law.tail(-100 * reach(law)) == 1


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_probabilities_sum_to_one_and_to_the_tails(law: Law) -> None:
    n = min(reach(law), 60 * math.ceil(law.scale))
    pmf = {x: law.pmf(x) for x in range(-n, n)}
    assert math.fsum(pmf.values()) == pytest.approx(1, abs=1e-15)
    for x in (-n // 4, -2, -1, 0, 1, 2, n // 8):
        # Mass beyond n is below exp(-60).
        assert law.tail(x) == pytest.approx(math.fsum(p for y, p in pmf.items() if y >= x), rel=1e-12, abs=1e-24)


@settings(max_examples=200, deadline=None)
@given(law=laws, share=st.floats(-0.5, 0.5))
def test_probabilities_are_those_of_the_continuous_law_between_the_rounding_points(law: Law, share: float) -> None:
    x = int(share * reach(law))
    with mpmath.workdps(400):
        truth = true_tail(law, x) - true_tail(law, x + 1)
        assert abs(law.pmf(x) - truth) <= truth * 2.0**-53 + mpmath.mpf(2) ** -1074
    assert law.pmf(x) == law.pmf(-x - int(2 * law.offset))


@settings(max_examples=100, deadline=None)
@given(law=laws, exponent=st.floats(-300, -0.001))
def test_a_threshold_is_the_smallest_integer_whose_tail_is_at_most_delta(law: Law, exponent: float) -> None:
    delta = 10**exponent
    x = law.smallest_x_with_tail_at_most(delta)
    assert law.tail(x) <= delta < law.tail(x - 1)


def test_a_threshold_for_a_large_delta_lies_below_zero() -> None:
    assert RoundedGaussian(Fraction(100)).smallest_x_with_tail_at_most(0.9999) == -371
    assert FlooredLaplace(Fraction(100)).smallest_x_with_tail_at_most(Fraction(1, 2)) > 0
    assert FlooredLaplace(Fraction(100)).smallest_x_with_tail_at_most(0.500001) == 0


@pytest.mark.parametrize("delta", [0, 1, -1e-9, math.nan, math.inf, True, "1e-6", None])
def test_a_delta_that_is_no_probability_is_refused(delta: object) -> None:
    with pytest.raises(RequestError, match="delta"):
        LAWS[0].smallest_x_with_tail_at_most(delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("law", [*LAWS, RoundedGaussian(Fraction(1, 10)), FlooredLaplace(Fraction(1, 10))], ids=repr)
def test_the_standard_deviation_is_that_of_the_probabilities(law: Law) -> None:
    n = 60 * math.ceil(law.scale)
    offset = float(law.offset)
    mean = math.fsum((x + offset) * law.pmf(x) for x in range(-n, n))
    square = math.fsum((x + offset) ** 2 * law.pmf(x) for x in range(-n, n))
    assert mean == pytest.approx(0, abs=1e-12 * float(law.scale))
    assert law.stddev == pytest.approx(math.sqrt(square), rel=1e-13)


@pytest.mark.parametrize("kind", [RoundedGaussian, FlooredLaplace])
@pytest.mark.parametrize("scale", [0, -1, Fraction(-1, 3), 2**62 + 1, True, 1.5, math.nan, math.inf, "3", None])
def test_a_scale_that_is_no_positive_rational_is_refused(kind: type[Law], scale: object) -> None:
    with pytest.raises(RequestError, match="scale"):
        kind(scale)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [Fraction(1, 2**62), 2**62])
def test_the_ends_of_the_range_of_scales_have_noise_and_finite_numbers(scale: Fraction) -> None:
    for law in (RoundedGaussian(Fraction(scale)), FlooredLaplace(Fraction(scale))):
        assert math.isfinite(law.stddev)
        assert 0 < law.tail(1) <= math.nextafter(0.5, 1)
        assert law.smallest_x_with_tail_at_most(1e-9) >= 1


def test_laws_are_values() -> None:
    law, same = RoundedGaussian(Fraction(3)), RoundedGaussian(Fraction(6, 2))
    whole = RoundedGaussian(3)  # type: ignore[arg-type]
    assert law == same == whole == pickle.loads(pickle.dumps(law))
    assert len({law, same, whole, FlooredLaplace(Fraction(3))}) == 2


def hockey_stick(p: dict[int, float], shift: int, epsilon: float) -> float:
    """The smallest delta with which a release of X is (epsilon, delta)-close to one of X + shift."""
    return math.fsum(max(0.0, mass - math.exp(epsilon) * p.get(x - shift, 0.0)) for x, mass in p.items())


def gaussian_delta(scale: float, shift: int, epsilon: float) -> float:
    """The same for the continuous Gaussian (Balle and Wang 2018, theorem 8)."""
    mu = shift / scale
    phi = [math.erfc(-z / math.sqrt(2)) / 2 for z in (mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu)]
    return phi[0] - math.exp(epsilon) * phi[1]


def laplace_delta(scale: float, shift: int, epsilon: float) -> float:
    """The same for the continuous Laplace law."""
    return max(0.0, -math.expm1((epsilon - shift / scale) / 2))


EPSILONS = [0.05 * i for i in range(60)]


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(4)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_a_rounded_law_costs_no_more_than_the_continuous_law(scale: Fraction, shift: int) -> None:
    n = 60 * math.ceil(scale)
    pairs = [(RoundedGaussian(scale), gaussian_delta), (FlooredLaplace(scale), laplace_delta)]
    for law, continuous in pairs:
        p = {x: law.pmf(x) for x in range(-n, n + shift)}
        for epsilon in EPSILONS:
            assert hockey_stick(p, shift, epsilon) <= continuous(float(scale), shift, epsilon) + 1e-12


def test_the_discrete_laws_cost_more_than_the_continuous_laws_and_that_test_would_see_it() -> None:
    gaussian = {x: math.exp(-(x**2) / 2 / 1.5**2) for x in range(-60, 60)}
    laplace = {x: math.exp(-abs(x)) for x in range(-60, 60)}
    for weights, continuous, scale in ((gaussian, gaussian_delta, 1.5), (laplace, laplace_delta, 1.0)):
        total = math.fsum(weights.values())
        p = {x: weight / total for x, weight in weights.items()}
        assert any(hockey_stick(p, 1, epsilon) > continuous(scale, 1, epsilon) + 1e-3 for epsilon in EPSILONS)


def test_laws_import_without_the_library_for_balls() -> None:
    code = (
        "import sys; sys.modules['flint'] = None; from dp_pipelines.noise import laws; laws.RoundedGaussian(3).stddev"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
