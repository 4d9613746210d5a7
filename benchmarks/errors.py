"""Errors of many releases against the truth, with intervals. Pure: arrays in, numbers out.

In: for each system and run the released values on a grid of partitions (NaN: not released), and a true value for each
partition. Out: root mean square errors, their ratio, and 95% intervals over runs. Holds: a run is one observation; its
partitions share bounding and are never treated as independent.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 2 if abs(self.value) < 20 else 0
        return f"{self.value:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def mean_interval(values: Floats, outside: float = 0.05) -> Interval:
    """The mean of the runs that have a value, with Student's interval, outside of which the true mean is as rarely as said.

    >>> mean_interval(np.array([1.0, 2.0, 3.0]))
    Interval(value=2.0, low=-0.48..., high=4.48...)
    """
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return Interval(float(values.mean()) if len(values) else np.nan, np.nan, np.nan)
    half = stats.t.isf(outside / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return Interval(float(values.mean()), float(values.mean() - half), float(values.mean() + half))


def ratio_interval(above: Floats, below: Floats) -> Interval:
    """mean(above) / mean(below), with a percentile bootstrap over the runs of each."""
    above, below = above[np.isfinite(above)], below[np.isfinite(below)]
    if len(above) < 2 or len(below) < 2:
        return Interval(np.nan, np.nan, np.nan)
    random = np.random.default_rng(0)  # fixed, so that a page can be made again; no release depends on it
    ratios = _resampled(above, random) / _resampled(below, random)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Interval(float(above.mean() / below.mean()), float(low), float(high))


def _resampled(values: Floats, random: np.random.Generator) -> Floats:
    return np.asarray(random.choice(values, (RESAMPLES, len(values))).mean(axis=1), dtype=np.float64)


def rmse(released: Floats, truth: Floats, where: Bools) -> Floats:
    """For each run the root mean square error over the partitions of `where`; NaN for a run that has none.

    Args:
        released: (runs, partitions), NaN where not released.
        truth: (partitions,).
        where: (runs, partitions), true only where released.

    >>> rmse(np.array([[3.0, np.nan]]), np.array([0.0, 5.0]), np.array([[True, False]]))
    array([3.])
    """
    squared = np.where(where, (released - truth) ** 2, 0.0)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.sqrt(squared.sum(axis=1) / where.sum(axis=1)), dtype=np.float64)
