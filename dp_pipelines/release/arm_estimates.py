"""Estimates of arms from noisy sums, and 95% intervals of their differences and ratios: noise and sampling of units together.

In: of each arm noisy sums over units of two totals and of their products, and the deviations of the noise. Out: quotients with
variances; intervals. Holds: formulas of released numbers (docs/proofs/comparisons.md, 3 to 5); where a denominator may be zero,
NaN, and never an error, whatever the noise is. Not covered: what clamping cuts off; many comparisons at once.
"""

import dataclasses
from typing import Any

import numpy as np

from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.metrics.error_bars import NORMAL_POINT

NORMAL = NORMAL_POINT
"""A standard normal variable is within this distance of 0 with probability 95%."""

SURE = 5.0
"""A sum is a denominator where it lies so many of its deviations from zero: the first-order formulas then hold."""

MOST_SPREAD = 1.0
"""The largest relative variance of a variance that intervals allow for: beyond it the series for Student's t says nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmSum:
    """A noisy sum of each arm.

    Args:
        values: one for each arm.
        stddev: of the noise.
        excess: the excess kurtosis of the noise: 0 of a normal law, 3 of Laplace's.
    """

    values: Floats
    stddev: float
    excess: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "stddev", np.float64(self.stddev)
        )  # whose square may become infinite, and never an error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """The noisy sums of products from which the sampling of units is estimated.

    Args:
        above, mixed, below: sums over units of the squares of what is above, of the products, of the squares of what is below.
        units: the noisy number of units.
    """

    above: ArmSum
    mixed: ArmSum
    below: ArmSum
    units: ArmSum


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimates:
    """A quotient of each arm, with what is known of its error; NaN where the denominator may be zero.

    Args:
        values: the quotients.
        variances: of noise and, where it is known, of the sampling of units.
        doubt: the variance of `variances`.
        cumulants: the fourth cumulant of the error: that of a normal one is 0.
    """

    values: Floats
    variances: Floats
    doubt: Floats
    cumulants: Floats

    def of(self, arms: Any) -> "Estimates":
        """Return the estimates of some arms, by their places."""
        return Estimates(**{field.name: getattr(self, field.name)[arms] for field in dataclasses.fields(self)})


def quotients(above: ArmSum, below: ArmSum, sampling: Sampling | None) -> Estimates:
    """Return the quotient of two sums in each arm.

    With r the quotient and x, y the totals of a unit below and above, the error is to first order the sum of the residuals
    y - r x, whose squares add up to Q_yy - 2 r Q_xy + r^2 Q_xx, and of the noise of both sums, over the sum below (Cochran,
    Sampling Techniques, 1977, section 6.4).

    Args:
        above, below: the sums.
        sampling: None leaves the sampling of units out.

    >>> orders, units = ArmSum(values=np.array([50.0]), stddev=3.0), ArmSum(values=np.array([100.0]), stddev=4.0)
    >>> found = quotients(orders, units, None)
    >>> float(found.values[0]), round(float(found.variances[0]), 6)
    (0.5, 0.0013)
    """
    with np.errstate(all="ignore"):
        spread = np.zeros(len(below.values))
        if sampling is not None and sampling.below is not sampling.units:
            spread = np.maximum(sampling.below.values, 0.0)  # the sum below is a sum over random units
        sure = np.abs(below.values) > SURE * np.sqrt(below.stddev**2 + spread)
        if sampling is not None:
            sure &= sampling.units.values > SURE * sampling.units.stddev
        divides = np.where(sure, below.values, np.nan)
        values = above.values / divides
        # In squares of the sum below.
        noise = above.stddev**2 + (values * below.stddev) ** 2
        fourth = above.excess * above.stddev**4 + below.excess * (values * below.stddev) ** 4
        variances, doubt = noise, np.zeros(len(values))
        if sampling is not None:
            residual = sampling.above.values - 2 * values * sampling.mixed.values + values**2 * sampling.below.values
            residual = np.maximum(residual, 0.0)
            variances = noise + residual
            of_squares = (sampling.above.stddev, 2 * values * sampling.mixed.stddev, values**2 * sampling.below.stddev)
            doubt = sum(part**2 for part in of_squares) + 2 * residual**2 / np.maximum(sampling.units.values - 1, 1.0)
        scale = divides**2
        return Estimates(
            values=values, variances=variances / scale, doubt=doubt / scale**2, cumulants=fourth / scale**2
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast:
    """A number for each arm, and the ends of its interval; NaN where it is not known."""

    values: Floats
    low: Floats
    high: Floats


def differences(arms: Estimates, base: Estimates) -> Contrast:
    """Return how far each arm is above its baseline, with 95% intervals.

    Args:
        arms: one or more.
        base: as many, or one.
    """
    values = arms.values - base.values
    with np.errstate(all="ignore"):
        half = _width(arms, base, np.ones(1)) * np.sqrt(arms.variances + base.variances)
    return Contrast(values=values, low=values - half, high=values + half)


def ratios(arms: Estimates, base: Estimates) -> Contrast:
    """Return each arm over its baseline, by Fieller's method: all ratios R at which arm - R baseline does not differ from 0.

    (Fieller, JRSS B 16, 1954.) If the baseline may be zero, there is no bounded interval, and the result is null. Arguments as
    for `differences`.
    """
    with np.errstate(all="ignore"):
        arm, divides = arms.values, base.values
        values = arm / divides
        width = _width(arms, base, values) ** 2
        of_arms, of_base = width * arms.variances, width * base.variances
        below = divides * divides - of_base
        root = np.sqrt(np.maximum((arm * divides) ** 2 - below * (arm * arm - of_arms), 0.0))
        known = below > 0
        ends = [np.where(known, (arm * divides + sign * root) / below, np.nan) for sign in (-1, 1)]
        return Contrast(values=np.where(known, values, np.nan), low=ends[0], high=ends[1])


def _width(arms: Estimates, base: Estimates, times: Floats) -> Floats:
    """Return how many deviations to each side hold 95% of the error of arm - times baseline.

    Student's t with the degrees of freedom of a variance that is as uncertain as this one (Satterthwaite, Biometrics Bulletin 2,
    1946), and for an error that is not normal the correction by its fourth cumulant (Cornish, Fisher 1938).
    """
    variance = arms.variances + times**2 * base.variances
    doubt = arms.doubt + times**4 * base.doubt
    excess = (arms.cumulants + times**4 * base.cumulants) / variance**2
    uncertain = np.minimum(doubt / variance**2, MOST_SPREAD)
    cubed, fifth = NORMAL**3, NORMAL**5
    # Of t with n degrees the first terms in 1 / n = uncertain / 2 (Abramowitz, Stegun 26.7.5).
    student = (cubed + NORMAL) / 4 * (uncertain / 2) + (5 * fifth + 16 * cubed + 3 * NORMAL) / 96 * (uncertain / 2) ** 2
    return NORMAL + student + (cubed - 3 * NORMAL) / 24 * excess
