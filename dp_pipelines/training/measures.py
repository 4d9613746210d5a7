"""Measures of a model as functions of noisy counts, each with the two errors that it has.

In: released counts of held-out examples by cell. Out: `EstimatedMeasure`: a value, the standard deviation that the noise gives
it, and at most what the choice of held-out units gives it. Holds: functions of released counts and public numbers
(post-processing); no counts make them raise; where the counts do not stand out of their noise there is no value.
"""

# Both errors are those of the delta method: a measure f of the counts c has about the error sum of f'(c) times that of each
# count. Noise is independent with one variance s^2, so its part is s |f'(c)|. Every measure here stays the same when all
# counts are multiplied by one number, so that another choice of units moves it by the same derivatives: for independent
# examples the variance is sum of c f'(c)^2, and a unit with at most k of them makes that at most k times larger. The counts
# stand in for their expectations in both, negative ones as zero in the second. What bins hide is in neither.

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEW = 4.0
"""What is divided by must be so many standard deviations of its noise above zero; below, there is no value."""

MOST_POINTS = 12
"""Points of a calibration plot: neighbouring bins are merged until each has its part of the examples."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EstimatedMeasure:
    """A measure with its errors.

    Args:
        value: None where the counts do not say.
        noise: standard deviation of what the noise of the release adds.
        sampling: at most the standard deviation of what another choice of held-out units would change.
    """

    value: float | None
    noise: float | None = None
    sampling: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """JSON values."""
        return {"value": self.value, "noise_stddev": self.noise, "sampling_stddev": self.sampling}


NOTHING = EstimatedMeasure(value=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """Predictions in a range: what was said on average, and what was so.

    Args:
        low, high: the range.
        predicted: the mean of the bins' middles.
        observed: the part that was true, or the mean of what was true.
        examples: how many.
    """

    low: float
    high: float
    predicted: float
    observed: EstimatedMeasure
    examples: EstimatedMeasure

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "low": self.low,
            "high": self.high,
            "predicted": self.predicted,
            "observed": self.observed.to_json(),
            "examples": self.examples.to_json(),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """Released counts by cell.

    Args:
        values: the counts.
        stddev: of the noise of each.
        per_unit: examples of one unit at most.
    """

    values: Floats
    stddev: float
    per_unit: int

    def estimate(
        self, value: float, gradient: Floats, *, low: float = -math.inf, high: float = math.inf
    ) -> EstimatedMeasure:
        """A measure that does not change when all counts are multiplied by one number.

        Args:
            value: of the measure; moved to the nearest of [low, high].
            gradient: its derivative by each count.
            low, high: what it can be.
        """
        noise = self.stddev * float(np.linalg.norm(gradient))
        sampling = math.sqrt(self.per_unit * float(np.maximum(self.values, 0.0) @ gradient**2))
        if not all(map(math.isfinite, (value, noise, sampling))):
            return NOTHING
        return EstimatedMeasure(value=min(max(value, low), high), noise=noise, sampling=sampling)

    def stands_out(self, of: Floats) -> bool:
        """Whether a weighted total of the counts is surely above zero."""
        total = float(of @ self.values)
        return total > FEW * self.stddev * float(np.linalg.norm(of)) and total > 1e-300

    def number(self, of: Floats) -> EstimatedMeasure:
        """A total of counts."""
        value, noise = float(of @ self.values), self.stddev * float(np.linalg.norm(of))
        return EstimatedMeasure(value=value, noise=noise) if math.isfinite(value) and math.isfinite(noise) else NOTHING

    def ratio(
        self, above: Floats, below: Floats, *, low: float = -math.inf, high: float = math.inf
    ) -> EstimatedMeasure:
        """One weighted total over another."""
        if not self.stands_out(below):
            return NOTHING
        total = float(below @ self.values)
        value = float(above @ self.values) / total
        return self.estimate(value, (above - value * below) / total, low=low, high=high)

    def share(self, above: Floats, below: Floats) -> EstimatedMeasure:
        """A part of a whole, between 0 and 1."""
        return self.ratio(above, below, low=0.0, high=1.0)


def auc(seen: Counts) -> tuple[EstimatedMeasure, float | None]:
    """The probability that a true example has a higher score than a false one, equal bins counted half; and the part of ties.

    Args:
        seen: counts of false examples by bin, then of true ones.

    >>> auc(Counts(values=np.array([3.0, 1.0, 1.0, 3.0]), stddev=0.0, per_unit=1))[0].value
    0.75
    """
    false, true = np.split(seen.values, 2)
    ones, zeros = np.ones(len(false)), np.zeros(len(false))
    if not (seen.stands_out(np.concatenate([ones, zeros])) and seen.stands_out(np.concatenate([zeros, ones]))):
        return NOTHING, None
    falses, trues = float(false.sum()), float(true.sum())
    below = (np.cumsum(false) - false / 2) / falses
    above = 1 - (np.cumsum(true) - true / 2) / trues
    value = float(true @ below) / trues
    gradient = np.concatenate([(above - value) / falses, (below - value) / trues])
    ties = float((np.maximum(false, 0) / falses) @ (np.maximum(true, 0) / trues))
    return seen.estimate(value, gradient, low=0.0, high=1.0), min(ties, 1.0) if math.isfinite(ties) else None


def mean(parts: Sequence[EstimatedMeasure]) -> EstimatedMeasure:
    """The mean of estimates that share no count; nothing where one of them is."""
    values = [part.value for part in parts if part.value is not None]
    if not parts or len(values) < len(parts):
        return NOTHING
    noise = math.sqrt(sum((part.noise or 0.0) ** 2 for part in parts)) / len(parts)
    # Units may have examples of several classes: their errors may then add up.
    sampling = sum(part.sampling or 0.0 for part in parts) / len(parts)
    return EstimatedMeasure(value=sum(values) / len(values), noise=noise, sampling=sampling)


def root(square: EstimatedMeasure) -> EstimatedMeasure:
    """The square root of an estimate; where the noise is larger than the value, its error is that of the noise's root."""
    if square.value is None or square.noise is None or square.sampling is None:
        return NOTHING
    value = math.sqrt(max(square.value, 0.0))
    least = math.sqrt(max(square.value, square.noise, square.sampling, 1e-300))
    return EstimatedMeasure(value=value, noise=square.noise / (2 * least), sampling=square.sampling / (2 * least))


def explained(seen: Counts, true: Floats, said: Floats) -> EstimatedMeasure:
    """The part of the variance of true values that predictions take away.

    Args:
        seen: counts.
        true, said: the value and the prediction that stand for each cell.
    """
    if not seen.stands_out(np.ones(len(true))):
        return NOTHING
    middle = float(true @ seen.values) / float(seen.values.sum())
    apart, missed = (true - middle) ** 2, (true - said) ** 2
    if not seen.stands_out(apart):
        return NOTHING
    total = float(apart @ seen.values)
    left = float(missed @ seen.values) / total
    return seen.estimate(1 - left, -(missed - left * apart) / total, high=1.0)


def points(
    seen: Counts, bins: Floats, said: Floats, true: Floats, at: NDArray[np.int64], *, share: bool = True
) -> tuple[Point, ...]:
    """What was predicted and what was so. Neighbouring bins are merged until they stand out and have their part.

    Args:
        seen: counts by cell.
        bins: the edges of the predictions' bins.
        said, true: the prediction and what was so, of each cell.
        at: the bin of each cell.
        share: whether what was so lies between 0 and 1.
    """
    count = len(bins) - 1
    least = max(float(seen.values.sum()), 0.0) / MOST_POINTS
    inside = [(at == place).astype(float) for place in range(count)]
    runs: list[tuple[int, int]] = []
    first = 0
    for last in range(count):
        of = np.sum(inside[first : last + 1], axis=0)
        if seen.stands_out(of) and float(of @ seen.values) >= least:
            runs.append((first, last))
            first = last + 1
    if not runs:
        return ()
    runs[-1] = (runs[-1][0], count - 1)  # what is left stands out of nothing by itself
    found = []
    for first, last in runs:
        of = np.sum(inside[first : last + 1], axis=0)
        low, high = (0.0, 1.0) if share else (float(true.min()), float(true.max()))
        observed = seen.ratio(of * true, of, low=low, high=high)
        weights = np.maximum(seen.values, 0.0) * of
        if observed.value is None or not weights.sum() > 0:
            continue
        predicted = float((weights / weights.sum()) @ said)
        found.append(
            Point(
                low=float(bins[first]),
                high=float(bins[last + 1]),
                predicted=predicted,
                observed=observed,
                examples=seen.number(of),
            )
        )
    return tuple(found)
