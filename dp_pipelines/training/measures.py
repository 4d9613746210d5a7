"""Measures of a model as functions of noisy counts, each with its two errors.

In: released counts of held-out examples by cell. Out: `EstimatedMeasure`: a value, its standard deviation due to the
noise, and an upper bound on that due to the choice of held-out units. Holds: measures depend only on released counts
and public numbers (post-processing); no counts make them raise; if the counts do not stand out from their noise, there
is no value.
"""

# Both errors come from the delta method: the error of a measure f of the counts c is about the sum of f'(c) times the
# error of each count. Noise is independent with one variance s^2, so its part is s |f'(c)|. Multiplying all counts by
# one number
# changes no measure here, so another choice of units moves it by the same derivatives: for independent examples the
# variance is the sum of c f'(c)^2, and a unit with at most k of them makes that at most k times larger. Both errors use
# the counts in place of their expectations; the second counts negative ones as zero. What bins hide is a third one, of the AUC
# alone: pairs of a true and a false example in one bin count half, and the model may rank them better than that.

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEW = 4.0
"""A divisor must be this many standard deviations of its noise above zero; otherwise there is no value."""

MOST_POINTS = 12
"""Points of a calibration plot: neighbouring bins are merged until each has its share of the examples."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EstimatedMeasure:
    """A measure with its errors.

    Args:
        value: None if the counts do not tell.
        noise: the standard deviation due to the noise of the release.
        sampling: an upper bound on the standard deviation due to the choice of held-out units.
        hidden: how far off the value may be beside these, since bins do not tell their scores apart; None: it is exact,
            or
            the bins are part of what it says.
    """

    value: float | None
    noise: float | None = None
    sampling: float | None = None
    hidden: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """JSON values."""
        plain = {"value": self.value, "noise_stddev": self.noise, "sampling_stddev": self.sampling}
        return plain if self.hidden is None else {**plain, "hidden_by_bins": self.hidden}


NOTHING = EstimatedMeasure(value=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """Predictions in a range: the average prediction and the average truth.

    Args:
        low, high: the range.
        predicted: the mean of the bins' middles.
        observed: the share that was true, or the mean of the true values.
        examples: the number of examples.
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
        per_unit: the most examples of one unit.
    """

    values: Floats
    stddev: float
    per_unit: int

    def estimate(
        self, value: float, gradient: Floats, *, low: float = -math.inf, high: float = math.inf
    ) -> EstimatedMeasure:
        """A measure that does not change when all counts are multiplied by one number.

        Args:
            value: of the measure; it is clamped to [low, high].
            gradient: its derivative with respect to each count.
            low, high: its possible range.
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
        """The quotient of two weighted totals."""
        if not self.stands_out(below):
            return NOTHING
        total = float(below @ self.values)
        value = float(above @ self.values) / total
        return self.estimate(value, (above - value * below) / total, low=low, high=high)

    def share(self, above: Floats, below: Floats) -> EstimatedMeasure:
        """A share of a whole, between 0 and 1."""
        return self.ratio(above, below, low=0.0, high=1.0)


def auc(seen: Counts, bins: Floats) -> tuple[EstimatedMeasure, float | None]:
    """The probability that a true example scores higher than a false one, with ties counted half; and the share of ties.

    Args:
        seen: counts of false examples by bin, then of true ones.
        bins: the edges, in probabilities.

    >>> auc(Counts(values=np.array([3.0, 1.0, 1.0, 3.0]), stddev=0.0, per_unit=1), np.array([0.0, 0.5, 1.0]))[0].value
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
    tied = (np.maximum(false, 0) / falses) * (np.maximum(true, 0) / trues)
    ties = float(tied.sum())
    found = seen.estimate(value, gradient, low=0.0, high=1.0)
    if found.value is None or not math.isfinite(ties):
        return found, None
    return dataclasses.replace(found, hidden=min(float(tied @ _ranked_inside(bins)) / 2, 0.5)), min(ties, 1.0)


def _ranked_inside(bins: Floats) -> Floats:
    """How much better than by chance examples of one bin may be ranked, for each bin: 1 is without an error.

    Where the odds of a true example rise by a factor r^2 over a bin, the examples at its two ends are ranked by (r - 1) / (r + 1)
    better than by chance, and no others are ranked better. The factor is the square of what the edges say, so that a model may be
    half as sure as it should be. It is unbounded in the first and in the last bin.

    >>> _ranked_inside(np.array([0.0, 0.5, 0.75, 1.0])).tolist()
    [1.0, 0.5, 1.0]
    """
    low, high = bins[:-1], bins[1:]
    rising: Floats = (high - low) / (high + low - 2 * low * high)
    return rising


@dataclasses.dataclass(frozen=True, kw_only=True)
class Threshold:
    """What is found among the examples whose score is at least that of an edge.

    Args:
        above: the edge.
        part: of all examples.
        recall: of the true ones.
        precision: how many of those above it are true.
        lift: how many times as many as among all examples.
    """

    above: float
    part: EstimatedMeasure
    recall: EstimatedMeasure
    precision: EstimatedMeasure
    lift: EstimatedMeasure

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        fields = {name: getattr(self, name).to_json() for name in ("part", "recall", "precision", "lift")}
        return {"above": self.above, **fields}


def thresholds(seen: Counts, bins: Floats) -> tuple[Threshold, ...]:
    """What is found above each edge between bins, from the highest down.

    Args:
        seen: counts of false examples by bin, then of true ones.
        bins: the edges.

    >>> (half,) = thresholds(Counts(values=np.array([3.0, 1.0, 1.0, 3.0]), stddev=0.0, per_unit=1), np.array([0.0, 0.5, 1.0]))
    >>> half.part.value, half.recall.value, half.precision.value, half.lift.value
    (0.5, 0.75, 0.75, 1.5)
    """
    count = len(bins) - 1
    everything, true = np.ones(2 * count), np.repeat([0.0, 1.0], count)
    found = []
    for edge in range(count - 1, 0, -1):
        above = np.tile((np.arange(count) >= edge).astype(float), 2)
        found.append(
            Threshold(
                above=float(bins[edge]),
                part=seen.share(above, everything),
                recall=seen.share(above * true, true),
                precision=seen.share(above * true, above),
                lift=_lift(seen, above, true),
            )
        )
    return tuple(found)


def _lift(seen: Counts, above: Floats, true: Floats) -> EstimatedMeasure:
    """The share of true examples above an edge over that among all."""
    everything = np.ones(len(true))
    if not (seen.stands_out(above) and seen.stands_out(true) and seen.stands_out(everything)):
        return NOTHING
    both, of_above, of_true, of_all = (float(of @ seen.values) for of in (above * true, above, true, everything))
    scale = of_all / (of_above * of_true)
    value = both * scale
    gradient = above * true * scale + value * (everything / of_all - above / of_above - true / of_true)
    return seen.estimate(value, gradient, low=0.0)


def largest_share(seen: Counts, groups: Sequence[Floats]) -> EstimatedMeasure:
    """The share of the largest of some groups: the accuracy of always saying the same.

    Args:
        seen: counts.
        groups: for each the weight of each count.

    >>> largest_share(Counts(values=np.array([1.0, 3.0]), stddev=0.0, per_unit=1), [np.eye(2)[0], np.eye(2)[1]]).value
    0.75
    """
    largest = max(groups, key=lambda of: float(of @ seen.values))
    return seen.share(largest, np.ones(len(seen.values)))


def around_mean(seen: Counts, true: Floats) -> EstimatedMeasure:
    """The root mean squared distance of true values from their mean: the error of always saying the mean."""
    if not seen.stands_out(np.ones(len(true))):
        return NOTHING
    middle = float(true @ seen.values) / float(seen.values.sum())
    return root(seen.ratio((true - middle) ** 2, np.ones(len(true))))


def mean(parts: Sequence[EstimatedMeasure]) -> EstimatedMeasure:
    """The mean of estimates that share no count; no value if one of them has none."""
    values = [part.value for part in parts if part.value is not None]
    if not parts or len(values) < len(parts):
        return NOTHING
    noise = math.sqrt(sum((part.noise or 0.0) ** 2 for part in parts)) / len(parts)
    # Units may have examples of several classes, in which case errors may add up.
    sampling = sum(part.sampling or 0.0 for part in parts) / len(parts)
    return EstimatedMeasure(value=sum(values) / len(values), noise=noise, sampling=sampling)


def root(square: EstimatedMeasure) -> EstimatedMeasure:
    """The square root of an estimate; if the noise is larger than the value, its error is the root of the noise."""
    if square.value is None or square.noise is None or square.sampling is None:
        return NOTHING
    value = math.sqrt(max(square.value, 0.0))
    least = math.sqrt(max(square.value, square.noise, square.sampling, 1e-300))
    return EstimatedMeasure(value=value, noise=square.noise / (2 * least), sampling=square.sampling / (2 * least))


def explained(seen: Counts, true: Floats, said: Floats) -> EstimatedMeasure:
    """The share of the variance of true values that predictions explain.

    Args:
        seen: counts.
        true, said: the true value and the prediction that represent each cell.
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
    """Predictions beside the truth. Neighbouring bins are merged until they stand out from the noise and have their share.

    Args:
        seen: counts by cell.
        bins: the edges of the predictions' bins.
        said, true: the prediction and the truth of each cell.
        at: the bin of each cell.
        share: whether the truth lies between 0 and 1.
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
    runs[-1] = (runs[-1][0], count - 1)  # the rest does not stand out by itself
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
