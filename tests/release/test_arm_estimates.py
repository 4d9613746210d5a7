"""Estimates of arms: their intervals are those of the formulas, and no noise raises or turns an end around."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines.release.arm_estimates import (
    NORMAL,
    ArmSum,
    Contrast,
    Estimates,
    Sampling,
    _width,
    differences,
    quotients,
    ratios,
)

ANY = st.floats(allow_nan=False, allow_infinity=False)
DEVIATION = st.floats(min_value=1e-3, max_value=1e200)


def of(values: list[float], stddev: float = 0.0, excess: float = 0.0) -> ArmSum:
    return ArmSum(values=np.array(values), stddev=stddev, excess=excess)


def known(values: list[float], variances: list[float]) -> Estimates:
    """Estimates whose variances are known exactly, with normal errors."""
    nothing = np.zeros(len(values))
    return Estimates(values=np.array(values), variances=np.array(variances), doubt=nothing, cumulants=nothing)


def compared(found: Estimates, contrast) -> Contrast:
    return contrast(found.of([1]), found.of([0]))


def test_a_difference_has_the_interval_of_two_independent_means() -> None:
    found = compared(known([10.0, 12.0], [0.9, 1.6]), differences)
    half = NORMAL * math.sqrt(2.5)
    assert (found.values[0], found.low[0], found.high[0]) == pytest.approx((2.0, 2 - half, 2 + half))


def test_the_ends_of_a_ratio_are_where_arm_less_ratio_times_baseline_is_at_the_edge_of_its_interval() -> None:
    found = compared(known([10.0, 12.0], [0.9, 1.6]), ratios)
    for end in (float(found.low[0]), float(found.high[0])):
        assert abs(12 - end * 10) == pytest.approx(NORMAL * math.sqrt(1.6 + end * end * 0.9))
    assert found.low[0] < 1.2 < found.high[0]


def test_a_ratio_to_what_may_be_zero_is_none() -> None:
    found = compared(known([1.9, 12.0], [1.0, 1.0]), ratios)
    assert np.isnan([found.values[0], found.low[0], found.high[0]]).all()
    assert not np.isnan(compared(known([2.0, 12.0], [1.0, 1.0]), ratios).low[0])


def test_the_variance_of_a_mean_over_units_is_that_of_the_units_and_of_the_noise() -> None:
    values = np.array([1.0, 2.0, 6.0, 3.0] * 100)
    units = of([400.0], 2.0)
    total = of([float(values.sum())], 30.0)
    sampling = Sampling(above=of([float((values**2).sum())], 5.0), mixed=total, below=units, units=units)
    found = quotients(total, units, sampling)
    assert found.values[0] == 3.0
    assert found.variances[0] == pytest.approx(values.var() / 400 + (30**2 + (3 * 2) ** 2) / 400**2)
    assert quotients(total, units, None).variances[0] == pytest.approx((30**2 + (3 * 2) ** 2) / 400**2)


def test_an_arm_whose_units_do_not_stand_out_of_the_noise_has_no_number() -> None:
    for units, told in ((9.9, False), (10.1, True)):
        found = quotients(of([50.0], 3.0), of([units], 2.0), None)
        assert bool(np.isfinite(found.values[0])) == told


def test_few_degrees_of_freedom_and_laplace_noise_make_intervals_wider() -> None:
    sums = {"units": of([100.0, 100.0], 1.0), "total": of([500.0, 500.0], 10.0)}
    widths = []
    for excess, doubt in ((0.0, 0.1), (3.0, 0.1), (3.0, 100.0)):
        total = of([500.0, 500.0], 10.0, excess)
        squares = of([2600.0, 2600.0], doubt)
        sampling = Sampling(above=squares, mixed=total, below=sums["units"], units=sums["units"])
        found = compared(quotients(total, sums["units"], sampling), differences)
        widths.append(float(found.high[0] - found.low[0]))
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_noise_alone_has_a_variance_that_is_known_exactly() -> None:
    found = quotients(of([50.0, 80.0], 3.0, 3.0), of([100.0, 90.0], 2.0, 3.0), None)
    assert found.doubt.tolist() == [0.0, 0.0]


@given(
    quotient=st.floats(0.1, 10),
    below=st.floats(100, 1e6),
    part=st.floats(1e-4, 0.1),
    excess=st.floats(0, 6),
)
def test_the_excess_of_a_quotient_is_that_of_its_only_noise_and_half_of_it_where_two_weigh_the_same(
    quotient: float, below: float, part: float, excess: float
) -> None:
    """Fourth cumulants of independent noises add up, and have the fourth power of a factor."""
    noise = part * below
    for above_noise, below_noise, wanted in (
        (quotient * noise, 0.0, excess),
        (0.0, noise, excess),
        (quotient * noise, noise, excess / 2),
    ):
        found = quotients(of([quotient * below], above_noise, excess), of([below], below_noise, excess), None)
        assert found.cumulants[0] / found.variances[0] ** 2 == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    # Noises of different laws: each counts with its own excess.
    for above_excess, below_excess in ((excess, 0.0), (0.0, excess)):
        above = of([quotient * below], quotient * noise, above_excess)
        found = quotients(above, of([below], noise, below_excess), None)
        assert found.cumulants[0] / found.variances[0] ** 2 == pytest.approx(excess / 4, rel=1e-9, abs=1e-12)


def sampled(values: dict[str, float], stddevs: dict[str, float]) -> Estimates:
    """A quotient of one arm with its sampling, from sums by name; noise where a deviation is named."""
    sums = {name: of([value], stddevs.get(name, 0.0)) for name, value in values.items()}
    sampling = Sampling(above=sums["yy"], mixed=sums["xy"], below=sums["xx"], units=sums["units"])
    return quotients(sums["y"], sums["x"], sampling)


SUMS = {"y": 900.0, "x": 300.0, "yy": 9000.0, "xy": 1900.0, "xx": 700.0, "units": 150.0}


@pytest.mark.parametrize("noisy", ["yy", "xy", "xx"])
def test_noise_of_a_sum_of_products_makes_the_variance_as_uncertain_as_it_follows_that_sum(noisy: str) -> None:
    stddev = 20.0
    slope = (sampled({**SUMS, noisy: SUMS[noisy] + 1}, {}).variances[0] - sampled(SUMS, {}).variances[0]) / 1.0
    more = sampled(SUMS, {noisy: stddev}).doubt[0] - sampled(SUMS, {}).doubt[0]
    assert more == pytest.approx((slope * stddev) ** 2, rel=1e-6)
    assert abs(slope) > 0


@pytest.mark.parametrize("units", [20, 50, 400])
def test_without_noise_the_interval_of_a_mean_is_that_of_students_t(units: int) -> None:
    values = np.random.default_rng(units).normal(40.0, 1.0, units)
    total, number = of([float(values.sum())]), of([float(units)])
    sampling = Sampling(above=of([float((values**2).sum())]), mixed=total, below=number, units=number)
    found = differences(quotients(total, number, sampling), known([0.0], [0.0]))
    half = stats.t.ppf(0.975, units - 1) * values.std() / math.sqrt(units)
    assert (found.high[0] - found.low[0]) / 2 == pytest.approx(half, rel=2e-4)
    assert found.low[0] + found.high[0] == pytest.approx(2 * found.values[0])


def test_an_error_with_the_kurtosis_of_a_known_law_has_its_quantile() -> None:
    """Of Student's t with many degrees of freedom, as a law of an error whose variance is known: to the first order."""
    degrees = 200
    arm = dataclasses.replace(known([0.0], [1.0]), cumulants=np.array([6 / (degrees - 4)]))
    wanted = stats.t.ppf(0.975, degrees) * math.sqrt((degrees - 2) / degrees)
    assert _width(arm, known([0.0], [0.0]), np.ones(1))[0] == pytest.approx(wanted, abs=1e-4)
    assert wanted > NORMAL + 1e-3


@pytest.mark.parametrize("times", [1.0, 2.0, -3.0])
def test_the_error_of_an_arm_less_so_many_baselines_is_as_wide_as_that_of_one_estimate_with_their_moments(
    times: float,
) -> None:
    """Variances have the second power of a factor; cumulants and the variance of a variance have the fourth."""

    def one(variance: float, doubt: float, cumulant: float) -> Estimates:
        arrays = (np.array([number]) for number in (10.0, variance, doubt, cumulant))
        return Estimates(**dict(zip(("values", "variances", "doubt", "cumulants"), arrays, strict=True)))

    arm, base = one(0.5, 0.01, 0.2), one(0.25, 0.002, 0.1)
    whole = one(0.5 + times**2 * 0.25, 0.01 + times**4 * 0.002, 0.2 + times**4 * 0.1)
    width = _width(arm, base, np.array([times]))
    assert width == pytest.approx(_width(whole, one(0.0, 0.0, 0.0), np.array([times])), rel=1e-12)
    assert width[0] > NORMAL


@given(data=st.data(), stddevs=st.tuples(*[DEVIATION] * 5))
def test_no_noise_raises_or_turns_an_interval_around(data: st.DataObject, stddevs: tuple[float, ...]) -> None:
    def arms() -> list[float]:
        return [data.draw(ANY), data.draw(ANY)]

    above, below, squares, mixed, others = (of(arms(), stddev, 3.0) for stddev in stddevs)
    for sampling in (None, Sampling(above=squares, mixed=mixed, below=others, units=below)):
        found = quotients(above, below, sampling)
        for contrast in (differences, ratios):
            one = compared(found, contrast)
            if np.isfinite(one.low[0]) and np.isfinite(one.high[0]):
                assert one.low[0] <= one.high[0]
