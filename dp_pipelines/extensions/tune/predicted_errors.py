"""Predicts the error of a metric in each partition, by cause.

In: moments of what is kept (`bounding_moments`), a configuration. Out: for each partition the probability of
being kept, the expected squared error if it is kept, and its parts: what the bound on partitions drops, what the bound
on rows drops, what clipping takes, the choice of what is kept, the noise, and the bias of publishing only what reached
a threshold. Holds: a count or a sum is predicted from exact moments, with normal noise or not; a mean, being a
quotient, is integrated over its denominator, with its numerator normal and clipped. Not covered: privacy; noise in a
quotient that is not normal.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.extensions.tune.bounding_moments import KeptMoments
from dp_pipelines.extensions.tune.configuration import Configuration, Estimate
from dp_pipelines.extensions.tune.variables import UNITS, WEIGHTS, KeptValues, Variable
from dp_pipelines.planning.selection_chances import MASS, POINTS, Selected, Selects, public, selected

Floats = NDArray[np.float64]

Reader = Callable[[Variable], Floats]

SMALLEST_COUNT = 1.0
"""The smallest divisor of a release (`metrics.Mean`)."""

HARDLY_EVER = 1e-5
"""A partition kept with a smaller probability is ignored, which saves the integral."""

PARTS = ("partitions", "rows", "clipping", "selection", "choice", "noise")
"""The parts of an error: four biases, with their signs, and two standard deviations."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Error:
    """The error of one metric in each partition.

    Args:
        truth: the value without privacy; NaN if there is nothing to average.
        square: the expected squared error if the partition is kept.
        parts: by name of `PARTS`.
    """

    truth: Floats
    square: Floats
    parts: dict[str, Floats]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Moments:
    """Expectations and covariances of what is kept under one pair of bounds."""

    kept: KeptMoments
    partitions: int
    rows: int

    def mean(self, variable: Variable) -> Floats:
        return np.asarray(self.kept.mean(variable)[self.partitions, self.rows])

    def any_partitions(self, variable: Variable) -> Floats:
        """Without a bound on partitions."""
        return np.asarray(self.kept.mean(variable)[-1, self.rows])

    def covariance(self, one: Variable, other: Variable) -> Floats:
        return np.asarray(self.kept.covariance(one, other)[self.partitions, self.rows])


def errors(
    kept: KeptMoments, configuration: Configuration, partitions: int, rows: int
) -> tuple[Selected, dict[str, Error]]:
    """How often each partition is kept, and the errors of each metric in it.

    Args:
        kept: the partitions.
        configuration: bounds, clips and noise.
        partitions, rows: the places of its two bounds among the candidates of `bounding_moments`.
    """
    moments = _Moments(kept=kept, partitions=partitions, rows=rows)
    selects = configuration.selects
    with np.errstate(all="ignore"):  # overflows and missing answers become NaN, which every sum leaves out
        if selects is None:
            found = public(len(moments.mean(UNITS)))
        else:
            on = _decides(selects)
            found = selected(selects, moments.mean(on), moments.covariance(on, on))
        return found, {
            estimate.name: _error(estimate, configuration, moments, found) for estimate in configuration.estimates
        }


def _error(estimate: Estimate, configuration: Configuration, moments: _Moments, found: Selected) -> Error:
    selects = configuration.selects
    if estimate.total == UNITS and selects is not None and selects.released:
        return _of_what_was_compared(estimate, moments, found)
    on = None if selects is None else _decides(selects)
    return _of_mean(estimate, moments, found, on) if estimate.divides else _of_sum(estimate, moments, found, on)


def _decides(selects: Selects) -> Variable:
    """Return the variable that decides which partitions are selected."""
    return WEIGHTS if selects.by_weight else UNITS


def _of_what_was_compared(estimate: Estimate, moments: _Moments, found: Selected) -> Error:
    """The error of a number of units whose own noisy value decided that it is published."""
    truth, mean = moments.kept.whole(UNITS), moments.mean(UNITS)
    parts = _no_parts(truth) | {
        "partitions": mean - truth,
        "selection": found.mean - mean,
        "choice": _root(moments.covariance(UNITS, UNITS)),
        "noise": np.full(len(truth), estimate.total_stddev),
    }
    return Error(truth=truth, square=found.square - 2 * truth * found.mean + truth**2, parts=parts)


def _of_sum(estimate: Estimate, moments: _Moments, found: Selected, on: Variable | None) -> Error:
    total, count, centre = estimate.total, estimate.count, estimate.total.centre

    def both(of: Reader) -> Floats:
        """The total, including its centre."""
        return of(total) if count is None else of(total) + centre * of(count)

    truth, unbounded = moments.kept.whole(estimate.raw), both(moments.kept.whole)
    any_partitions, mean = both(moments.any_partitions), both(moments.mean)
    variance = both(lambda variable: moments.covariance(variable, total))
    noise = estimate.total_stddev**2
    if count is not None:
        variance = variance + centre * both(lambda variable: moments.covariance(variable, count))
        noise += (centre * estimate.count_stddev) ** 2
    shift, variance = _as_kept(variance, None if on is None else both(lambda v: moments.covariance(v, on)), found)
    parts = _no_parts(truth) | {
        "partitions": mean - any_partitions,
        "rows": any_partitions - unbounded,
        "clipping": unbounded - truth,
        "selection": shift,
        "choice": _root(variance),
        "noise": np.full(len(truth), math.sqrt(noise)),
    }
    return Error(truth=truth, square=(mean + shift - truth) ** 2 + np.maximum(variance, 0) + noise, parts=parts)


def _of_mean(estimate: Estimate, moments: _Moments, found: Selected, on: Variable | None) -> Error:
    total, count, centre = estimate.total, estimate.count, estimate.total.centre
    assert count is not None
    whole, values = moments.kept.whole, KeptValues(estimate.raw.column)
    truth = whole(estimate.raw) / whole(values)

    def quotient(of: Reader) -> Floats:
        return centre + of(total) / np.maximum(of(count), SMALLEST_COUNT)

    any_partitions, expected = quotient(moments.any_partitions), quotient(moments.mean)
    of_total, of_count, both = (moments.covariance(*pair) for pair in ((total, total), (count, count), (total, count)))
    mean_total, mean_count = moments.mean(total), moments.mean(count)
    shift = np.zeros(len(truth))
    if on is not None:
        with_total, with_count = moments.covariance(total, on), moments.covariance(count, on)
        mean_total, mean_count = mean_total + with_total * found.shift, mean_count + with_count * found.shift
        of_total, of_count = (
            variance + covariance**2 * found.narrowing
            for variance, covariance in ((of_total, with_total), (of_count, with_count))
        )
        both = both + with_total * with_count * found.narrowing
        shift = mean_total / np.maximum(mean_count, SMALLEST_COUNT) + centre - expected
    ratio = mean_total / np.maximum(mean_count, SMALLEST_COUNT)
    choice = _root(of_total - 2 * ratio * both + ratio**2 * of_count) / np.maximum(mean_count, SMALLEST_COUNT)
    bias = expected + shift - truth
    square = bias**2
    seen = np.flatnonzero(found.keep > HARDLY_EVER)
    square[seen] = _square_of_quotient(
        estimate,
        truth[seen],
        (mean_total[seen], np.maximum(of_total[seen], 0) + estimate.total_stddev**2),
        (mean_count[seen], np.maximum(of_count[seen], 0) + estimate.count_stddev**2),
        both[seen],
    )
    parts = _no_parts(truth) | {
        "partitions": expected - any_partitions,
        "rows": any_partitions - quotient(whole),
        "clipping": quotient(whole) - truth,
        "selection": shift,
        "choice": choice,
        "noise": _root(square - bias**2 - choice**2),
    }
    return Error(truth=truth, square=square, parts=parts)


def _square_of_quotient(
    estimate: Estimate, truth: Floats, total: tuple[Floats, Floats], count: tuple[Floats, Floats], both: Floats
) -> Floats:
    """The expected square of clip(centre + T / max(C, 1)) - truth; total and count as (mean, variance)."""
    stddev = np.sqrt(count[1])
    slope = np.where(count[1] > 0, both / count[1], 0.0)
    rest = np.sqrt(np.maximum(total[1] - slope * both, 0))
    square = np.zeros(len(truth))
    for point, mass in zip(POINTS, MASS, strict=True):
        divisor = np.maximum(count[0] + point * stddev, SMALLEST_COUNT)
        mean = estimate.total.centre + (total[0] + slope * point * stddev) / divisor
        square += mass * _clipped_square(mean - truth, rest / divisor, estimate.low - truth, estimate.high - truth)
    return square


def _clipped_square(mean: Floats, stddev: Floats, low: Floats, high: Floats) -> Floats:
    """The expected square of a normal number that is clipped to [low, high]."""
    from scipy import special

    stddev = np.maximum(stddev, 1e-300)
    a, b = (low - mean) / stddev, (high - mean) / stddev
    below, above = special.ndtr(a), special.ndtr(-b)
    inside = np.maximum(1 - below - above, 0)
    at_a, at_b = (np.exp(-(np.minimum(np.abs(x), 40.0) ** 2) / 2) / math.sqrt(2 * math.pi) for x in (a, b))
    a, b = np.clip(a, -40, 40), np.clip(b, -40, 40)
    return np.asarray(
        low**2 * below
        + high**2 * above
        + mean**2 * inside
        + 2 * mean * stddev * (at_a - at_b)
        + stddev**2 * (inside + a * at_a - b * at_b)
    )


def _as_kept(variance: Floats, covariance: Floats | None, found: Selected) -> tuple[Floats, Floats]:
    """How far a mean moves in kept partitions, and its variance there."""
    if covariance is None:
        return np.zeros(len(variance)), variance
    return covariance * found.shift, variance + covariance**2 * found.narrowing


def _root(square: Floats) -> Floats:
    return np.sqrt(np.maximum(square, 0))


def _no_parts(like: Floats) -> dict[str, Floats]:
    return {name: np.zeros(len(like)) for name in PARTS}
