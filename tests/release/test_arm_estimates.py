"""Estimates of arms: their intervals are those of the formulas, and no noise raises or turns an end around."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.release.arm_estimates import (
    NORMAL,
    ArmSum,
    Contrast,
    Estimates,
    Sampling,
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
