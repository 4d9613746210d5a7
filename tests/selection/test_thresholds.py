"""Thresholds: the smallest integers that keep their promise, by trying all, and the numbers of the literature."""

import math
import statistics
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.noise import FlooredLaplace, Law, RoundedGaussian
from dp_pipelines.selection import thresholds
from tests.helpers.work import calls_of, most_memory_of

laws = st.builds(
    lambda kind, scale: kind(scale),
    st.sampled_from([RoundedGaussian, FlooredLaplace]),
    st.fractions(min_value=Fraction(1, 4), max_value=300, max_denominator=64),
)
deltas = st.floats(-12, -0.3).map(lambda x: 10**x)


def any_reaches(law: Law, shift: int, threshold: int, partitions: int) -> mpmath.mpf:
    """The probability that any of some partitions, each at `shift` before noise, reaches the threshold; in 40 digits."""
    with mpmath.workdps(40):
        scale = mpmath.mpf(law.scale.numerator) / law.scale.denominator
        x = mpmath.mpf(threshold - shift)
        if isinstance(law, RoundedGaussian):
            tail = mpmath.erfc((x - mpmath.mpf(1) / 2) / scale / mpmath.sqrt(2)) / 2
        else:
            tail = mpmath.exp(-x / scale) / 2 if x >= 0 else 1 - mpmath.exp(x / scale) / 2
        return -mpmath.expm1(partitions * mpmath.log1p(-tail))


@settings(max_examples=150)
@given(law=laws, one_user=st.integers(0, 5000), partitions=st.integers(1, 10**6), delta=deltas)
def test_a_lone_unit_shows_with_probability_delta_and_hardly_less(
    law: Law, one_user: int, partitions: int, delta: float
):
    threshold = thresholds.count_threshold(law, one_user, partitions, delta)
    assert any_reaches(law, one_user, threshold, partitions) <= delta
    assert any_reaches(law, one_user, threshold - 1, partitions) > delta * (1 - 1e-14)


@pytest.mark.parametrize("law", [RoundedGaussian(Fraction(40)), FlooredLaplace(Fraction(40))], ids=repr)
def test_a_threshold_for_one_partition_would_be_found_too_low_for_eight(law: Law):
    threshold = thresholds.count_threshold(law, 40, 1, 1e-6)
    assert any_reaches(law, 40, threshold, 1) <= 1e-6 < any_reaches(law, 40, threshold, 8)


def test_a_threshold_counts_from_where_a_partition_may_first_be_kept():
    law = RoundedGaussian(Fraction(1000))
    one = thresholds.count_threshold(law, 500, 4, 1e-8)
    assert thresholds.count_threshold(law, 500 * 20, 4, 1e-8) == one + 500 * 19
    assert thresholds.half_keep_users(one + 500 * 19, 500) == thresholds.half_keep_users(one, 500) + 19


def gaussian_noise(epsilon: float, delta: float) -> float:
    """The least noise of the Gaussian mechanism at sensitivity 1 (Balle and Wang 2018), by bisection."""
    normal = statistics.NormalDist()
    low, high = 1e-3, 1e3
    for _ in range(100):
        mu = 2 / (low + high)
        cost = normal.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)
        low, high = ((low + high) / 2, high) if cost > delta else (low, (low + high) / 2)
    return high


@pytest.mark.parametrize(
    ("partitions", "users"), [(1, 22), (2, 32), (3, 40), (4, 46), (8, 66), (16, 96), (50, 174), (200, 362)]
)
def test_half_of_the_partitions_are_kept_by_gaussian_noise_where_was_measured_before(partitions: int, users: int):
    # Epsilon 1, delta 1e-6, half of it for the threshold (rounded to whole units there), on a lattice of 256 steps a unit.
    steps = 256
    noise = gaussian_noise(1.0, 5e-7) * math.sqrt(partitions)
    law = RoundedGaussian(Fraction(math.ceil(noise * steps)))
    assert thresholds.count_threshold(law, steps, partitions, 5e-7) / steps == pytest.approx(users, abs=0.6)


@pytest.mark.parametrize(("partitions", "users"), [(1, 15), (8, 123), (50, 853), (200, 3686)])
def test_half_of_the_partitions_are_kept_by_laplace_noise_where_was_measured_before(partitions: int, users: int):
    steps = 256
    law = FlooredLaplace(Fraction(partitions * steps))
    threshold = thresholds.count_threshold(law, steps, partitions, 1e-6)
    assert thresholds.half_keep_users(threshold, steps) == users


@given(law=laws, threshold=st.integers(1, 10**5), one_user=st.integers(1, 1000))
def test_the_half_way_number_is_the_smallest_that_is_kept_half_the_time(law: Law, threshold: int, one_user: int):
    half = thresholds.half_keep_users(threshold, one_user)
    assert law.tail(threshold - half * one_user) >= 0.5
    assert half == 1 or law.tail(threshold - (half - 1) * one_user) < 0.5


@given(partitions=st.integers(1, 2**24), unit=st.integers(1, 2**30))
def test_a_weight_is_the_largest_integer_within_the_norm(partitions: int, unit: int):
    weight = thresholds.weight(partitions, unit)
    assert partitions * weight**2 <= unit**2 < partitions * (weight + 1) ** 2


def shift(partitions: int, unit: int, q: int) -> int:
    """How far a unit with some partitions moves a rounded total in each: ceil(floor(unit / sqrt(d)) / q)."""
    return -(-thresholds.weight(partitions, unit) // q)


units = st.integers(1, 2**20)


@settings(max_examples=100)
@given(unit=units, q=units, most=st.integers(1, 300))
def test_the_norm_of_a_change_is_the_largest_of_all_numbers_of_partitions(unit: int, q: int, most: int):
    brute = max(d * shift(d, unit, q) ** 2 for d in range(1, most + 1))
    assert thresholds.weighted_l2_squared(unit, q, most) == brute


@settings(max_examples=60)
@given(law=laws, unit=units, q=units, most=st.integers(1, 60), delta=deltas)
def test_the_weighted_threshold_is_the_largest_of_all_numbers_of_partitions(
    law: Law, unit: int, q: int, most: int, delta: float
):
    threshold = thresholds.weighted_threshold(law, unit, q, most, delta)
    worst = max(any_reaches(law, shift(d, unit, q), threshold, d) for d in range(1, most + 1))
    assert worst <= delta
    worst = max(any_reaches(law, shift(d, unit, q), threshold - 1, d) for d in range(1, most + 1))
    assert worst > delta * (1 - 1e-14)


def test_a_weighted_threshold_for_the_most_partitions_alone_would_be_found():
    law = RoundedGaussian(Fraction(20))
    for only in (1, 16):
        threshold = shift(only, 2**20, 2**10) + law.smallest_x_with_tail_at_most(thresholds.for_each(1e-6, only))
        worst = max(any_reaches(law, shift(d, 2**20, 2**10), threshold, d) for d in range(1, 17))
        assert (worst <= 1e-6) == (only == 1)
    law = RoundedGaussian(Fraction(4000))
    for only in (1, 16):
        threshold = shift(only, 2**20, 2**10) + law.smallest_x_with_tail_at_most(thresholds.for_each(1e-6, only))
        worst = max(any_reaches(law, shift(d, 2**20, 2**10), threshold, d) for d in range(1, 17))
        assert (worst <= 1e-6) == (only == 16)


@pytest.mark.parametrize("most", [1, 4, 16, 200])
@pytest.mark.parametrize("noise", [0.5, 4.2, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 5e-7, 1e-10])
def test_the_weighted_threshold_is_that_of_the_real_numbers_within_two_steps(most: int, noise: float, delta: float):
    # Gopi et al. 2020, algorithm 3: max over d of 1 / sqrt(d) + s * PhiInverse((1 - delta)^(1 / d)).
    steps = 1024
    normal = statistics.NormalDist()
    real = max(
        1 / math.sqrt(d) - noise * normal.inv_cdf(-math.expm1(math.log1p(-delta) / d)) for d in range(1, most + 1)
    )
    law = RoundedGaussian(Fraction(math.ceil(noise * steps)))
    threshold = thresholds.weighted_threshold(law, 2**20, 2**20 // steps, most, delta)
    assert real * steps - 1 <= threshold <= real * steps * (1 + 1 / steps) + 2


@settings(max_examples=50)
@given(
    total=st.integers(0, 2**40), unit=st.integers(1, 2**20), q=st.integers(1, 2**20), partitions=st.integers(1, 10**4)
)
def test_rounding_a_total_moves_it_by_no_more_than_the_shift(total: int, unit: int, q: int, partitions: int):
    weight = thresholds.weight(partitions, unit)
    moved = (total + weight + q // 2) // q - (total + q // 2) // q
    assert 0 <= moved <= shift(partitions, unit, q)


def test_users_with_few_partitions_keep_one_sooner():
    law = RoundedGaussian(Fraction(4300))
    threshold = thresholds.weighted_threshold(law, 2**20, 2**10, 16, 5e-7)
    users = [thresholds.weighted_half_keep_users(threshold, 2**20, 2**10, 16, having=d) for d in (1, 4, 16)]
    assert users[0] * 2 == pytest.approx(users[1], rel=0.05)
    assert users[1] * 2 == pytest.approx(users[2], rel=0.05)
    assert users[2] == thresholds.weighted_half_keep_users(threshold, 2**20, 2**10, 16)
    for having, half in zip((1, 4, 16), users, strict=True):
        reached = [(n * thresholds.weight(having, 2**20) + 2**9) // 2**10 for n in (half - 1, half)]
        assert reached[0] < threshold <= reached[1]


def test_many_partitions_take_no_time_and_no_memory():
    law = RoundedGaussian(Fraction(4096))
    for most in (10**5, 2**24, 2**32):
        assert thresholds.weighted_threshold(law, 2**20, 2**8, most, 1e-6) > 0
        assert thresholds.weighted_l2_squared(2**20, 2**8, most) >= 2**24
        assert calls_of(lambda most=most: thresholds.weighted_threshold(law, 2**20, 2**8, most, 1e-6)) < 10**6
        assert most_memory_of(lambda most=most: thresholds.weighted_threshold(law, 2**20, 2**8, most, 1e-6)) < 2**24


def test_products_near_the_end_of_64_bits_are_exact():
    assert thresholds.weighted_l2_squared(2**30, 2**16, 2**32) == max(
        d * shift(d, 2**30, 2**16) ** 2
        for d in (*range(1, 2000), *np.geomspace(2000, 2**32, 500).astype(int).tolist(), 2**32)
    )
    assert thresholds.weighted_l2_squared(2**30, 2**30, 2**32) == 2**32


def test_events_that_are_each_rare_enough_are_together_rare_enough():
    for delta in (1e-300, 1e-9, 0.3, 1 - 2**-53):
        for partitions in (1, 2, 1000, 2**32):
            each = thresholds.for_each(delta, partitions)
            with mpmath.workdps(50):
                together = -mpmath.expm1(partitions * mpmath.log1p(-mpmath.mpf(each)))
                assert delta * (1 - 1e-13) <= together <= delta


LAW = RoundedGaussian(Fraction(100))


@pytest.mark.parametrize("delta", [0, 1, -1, math.nan, True, "1", None])
def test_a_delta_that_is_no_probability_is_refused(delta: object):
    with pytest.raises(RequestError, match="delta"):
        thresholds.count_threshold(LAW, 1, 1, delta)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="delta"):
        thresholds.weighted_threshold(LAW, 1, 1, 1, delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, math.nan, True, "1", None, 2**63])
def test_what_is_no_positive_whole_number_is_refused(wrong: object):
    with pytest.raises(RequestError, match="max_partitions"):
        thresholds.count_threshold(LAW, 1, wrong, 1e-6)  # type: ignore[arg-type]
    for position, field in enumerate(("unit", "q", "max_partitions")):
        arguments = [2**20, 2**10, 4]
        arguments[position] = wrong  # type: ignore[call-overload]
        with pytest.raises(RequestError, match=field):
            thresholds.weighted_l2_squared(*arguments)
        with pytest.raises(RequestError, match=field):
            thresholds.weighted_threshold(LAW, *arguments, 1e-6)
    with pytest.raises(RequestError, match="one_user"):
        thresholds.half_keep_users(100, wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="having"):
        thresholds.weighted_half_keep_users(100, 2**20, 2**10, 4, having=5 if wrong is None else wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, 1.5, math.nan, True, "1", None])
def test_a_first_statistic_that_is_no_number_of_steps_is_refused(wrong: object):
    with pytest.raises(RequestError, match="one_user"):
        thresholds.count_threshold(LAW, wrong, 1, 1e-6)  # type: ignore[arg-type]


def test_the_ends_of_the_ranges_are_taken_and_what_lies_beyond_is_refused():
    unit, most = 2**30, 2**32
    assert thresholds.count_threshold(LAW, 2**62, 1, 1e-6) > 2**62
    assert thresholds.count_threshold(LAW, 1, most, 1e-6) > thresholds.count_threshold(LAW, 1, most // 2, 1e-6)
    assert thresholds.weighted_l2_squared(unit, unit, most) >= most
    assert thresholds.weighted_threshold(LAW, unit, 2**20, most, 1e-6) > 0
    for arguments, named in [
        ((2**62 + 1, 1), "one_user"),
        ((1, most + 1), "max_partitions"),
    ]:
        with pytest.raises(RequestError, match=named):
            thresholds.count_threshold(LAW, *arguments, 1e-6)
    for beyond, named in [
        ((unit + 1, 1, 1), "unit"),
        ((1, unit + 1, 1), "q"),
        ((1, 1, most + 1), "max_partitions"),
    ]:
        with pytest.raises(RequestError, match=named):
            thresholds.weighted_l2_squared(*beyond)


def test_a_weighted_threshold_with_a_large_delta_is_the_smallest_though_it_is_far_below_0() -> None:
    law, delta = RoundedGaussian(Fraction(4096)), 0.9
    found = thresholds.weighted_threshold(law, 2**20, 2**10, 1, delta)
    assert found < -1000
    assert law.tail(found - 2**10) <= delta < law.tail(found - 1 - 2**10)
