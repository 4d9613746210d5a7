"""Shrinkage: means of many partitions, each pulled towards the others as far as its noise makes that likely.

In: noisy sums and counts of all released partitions, the deviations of their noise, the declared range. Out: for each
partition the posterior mean and the posterior deviation of its true mean. Holds: it reads released and public numbers alone
(docs/proofs/shrinkage.md); what it gives is finite and within the range, whatever the noise is. Not covered: what clamping
cuts off; a partition unlike all others is pulled too far.
"""

import dataclasses
import math
import sys
from collections.abc import Iterator

import numpy as np

from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.metrics.base import Noisy, ReleasedValues

SPREADS: Floats = 2.0 ** (np.arange(-100, 1) / 5)
"""The grid of the deviation of the true means, in halves of the declared range: from a millionth to 1, the largest possible."""

USUAL_SPREAD = 0.25
"""The scale of its half-Cauchy prior (Gelman, Bayesian Analysis 2006, section 4.3): an eighth of the range is as likely exceeded
as not."""

CENTRE_VARIANCE = 1 / 3
"""The variance of the centre's normal prior, in squared halves of the range: that of a uniform law over the range."""

COUNT_SPREADS: Floats = 2.0 ** (np.arange(-28, 81) / 4)
"""The grid of the deviation of the true counts, in deviations of the noise of a count."""

PASSES = 3
"""The passes that recompute the variance caused by noisy counts, at the latest means. It depends on them weakly."""

PORTION = 2**13
"""Partitions that are in memory at a time, each with a number for every spread."""

NEGLIGIBLE = 1e-9
"""Spreads with less posterior probability are left out."""

LARGEST, LEAST = 1e40, 1e-60
"""The largest scaled number, and the least variance of noise, so that no product or quotient of them overflows."""


def shrunk(total: Noisy, count: Noisy, *, centre: float, low: float, high: float) -> ReleasedValues:
    """Compute the posterior means of all partitions, within the range, and their posterior deviations.

    In a partition with the true mean m, the noisy sum S of distances from the centre c and the noisy count N,
    S - (m - c) N is normal around 0 with variance var(S) + (m - c)^2 var(N). The true means are normal around an unknown
    centre with an unknown spread; the counts are normal around an unknown centre with an unknown spread, and not negative.

    Args:
        total: noisy sums of values, each counted from `centre`.
        count: noisy numbers of values.
        centre: public.
        low, high: the declared range of values.

    Source: Gelman et al., Bayesian Data Analysis (2013), section 5.4: the centre is integrated in closed form, the spread over
    a grid.

    >>> sums = Noisy(values=np.array([-4000.0, 100.0, -10.0]), stddev=50.0)
    >>> counts = Noisy(values=np.array([1000.0, -3.0, 10.0]), stddev=10.0)
    >>> means, stddevs = shrunk(sums, counts, centre=5.0, low=0.0, high=10.0)
    >>> bool(abs(means[0] - 1) < 0.2), bool(stddevs[0] < stddevs[2]), bool((means >= 0).all() and (means <= 10).all())
    (True, True, True)
    """
    if len(total.values) == 0:
        return np.zeros(0), np.zeros(0)
    half, middle = max(high / 2 - low / 2, sys.float_info.min), high / 2 + low / 2
    with np.errstate(all="ignore"):  # what overflows is cut off
        offset = float(_cut((middle - centre) / half))
        counts = _likely_counts(_cut(count.values), float(_cut(max(count.stddev, 1 / LARGEST))))
        sums = _cut(_cut(total.values / half) - offset * counts.values)
        model = _Model(sums=sums, variance=float(_cut(total.stddev / half)) ** 2, counts=counts, offset=offset)
        means, variances = np.zeros(len(sums)), np.full(len(sums), CENTRE_VARIANCE)
        for _ in range(PASSES):
            means, variances = model.solved(means, variances)
        return np.clip(middle + half * means, low, high), half * np.sqrt(variances)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Counts:
    """The posterior of the counts: expectations and variances for each partition, and the covariance of any two."""

    values: Floats
    variances: Floats
    shared: float


def _likely_counts(noisy: Floats, stddev: float) -> _Counts:
    """Compute the posterior of the counts: normal around an unknown centre with an unknown spread, then cut at zero."""
    from scipy import special

    scaled, number = noisy / stddev, len(noisy)
    centre = float(scaled.mean())
    squares = float(((scaled - centre) ** 2).sum())
    spread = 1 + COUNT_SPREADS**2  # the variance of a noisy count
    weights = _normalised(np.log(COUNT_SPREADS) - (number - 1) / 2 * np.log(spread) - squares / (2 * spread))
    pulls = 1 / spread  # how far a count goes to the centre; the centre itself has the variance `spread / number`
    pull = float(weights @ pulls)
    values = scaled + (centre - scaled) * pull
    variances = float(weights @ (pulls * (COUNT_SPREADS**2 + 1 / number))) + (scaled - centre) ** 2 * max(
        0.0, float(weights @ pulls**2) - pull**2
    )
    spreads = np.sqrt(variances)
    least = -values / spreads
    # The density of a standard normal over the probability above `least`.
    hazard = np.sqrt(2 / np.pi) / special.erfcx(least / np.sqrt(2))
    values = np.maximum(values + spreads * hazard, 0.0)
    variances = variances * np.clip(1 + least * hazard - hazard**2, 0.0, 1.0)
    return _Counts(
        values=_cut(values * stddev), variances=_cut(variances * stddev**2), shared=pull / number * stddev**2
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Model:
    """The model in halves of the range, with means counted from its middle.

    Args:
        sums: of distances from the middle.
        variance: of the noise of each sum.
        counts: their posterior.
        offset: the middle of the range, counted from where noisy sums count from.
    """

    sums: Floats
    variance: float
    counts: _Counts
    offset: float

    def solved(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Compute posterior means and variances.

        Args:
            means, variances: approximations, for the variance that noisy counts cause.
        """
        moved = (means + self.offset) ** 2 + variances
        noise = np.maximum(self.variance + moved * self.counts.variances, LEAST)
        start = _weighted_mean(self.sums, self.counts.values, noise)
        residuals = self.sums - start * self.counts.values
        shared = float(moved.mean()) * self.counts.shared
        weights, centres, doubts = _centres(residuals, self.counts.values, noise, shared, start)
        likely = weights > NEGLIGIBLE
        weights, centres, doubts = weights[likely] / weights[likely].sum(), centres[likely], doubts[likely]
        posterior, spread = np.empty(len(means)), np.empty(len(means))
        for part in _portions(len(means)):
            n, squared = self.counts.values[part, None], SPREADS[likely] ** 2
            total = noise[part, None] + squared * n * n
            rest = noise[part, None] / total  # what is left of the pull to the centre
            each = centres * rest + squared * n * residuals[part, None] / total
            posterior[part] = each @ weights
            spread[part] = ((each - posterior[part, None]) ** 2 + rest * rest * doubts + squared * rest) @ weights
        return np.clip(start + posterior, -1.0, 1.0), np.minimum(spread, 1.0)


def _weighted_mean(sums: Floats, counts: Floats, noise: Floats) -> float:
    """Estimate the mean of all, within the range. Numbers are counted from it, so that nothing is lost to rounding."""
    weight = float(counts @ (counts / noise))
    return min(1.0, max(-1.0, float(counts @ (sums / noise)) / weight)) if weight > 0 else 0.0


def _centres(
    residuals: Floats, counts: Floats, noise: Floats, shared: float, start: float
) -> tuple[Floats, Floats, Floats]:
    """Return for each spread its posterior probability, and the mean and the variance of the centre, counted from `start`.

    Given the spread t, a residual r is normal around the centre's distance times the count n, with variance noise + t^2 n^2, and
    any two have the covariance `shared`, since they share the doubt about all counts together.
    """
    logs, sums = np.zeros(len(SPREADS)), np.zeros((6, len(SPREADS)))
    for part in _portions(len(counts)):
        n, r = counts[part], residuals[part]
        total = noise[part, None] + SPREADS**2 * (n * n)[:, None]
        logs += np.log(total).sum(axis=0)
        sums += np.stack([np.ones(len(n)), n, r, n * n, n * r, r * r]) @ (1 / total)
    ones, by_ones, ones_by, squares, by, across = sums
    # The inverse of a diagonal matrix and one more of rank one (Sherman and Morrison).
    less = shared / (1 + shared * ones)
    precision = squares - less * by_ones**2 + 1 / CENTRE_VARIANCE
    pulled = by - less * by_ones * ones_by - start / CENTRE_VARIANCE
    fit = across - less * ones_by**2 - pulled**2 / precision
    evidence = -(logs + np.log1p(shared * ones) + np.log(precision) + fit) / 2
    prior = np.log(SPREADS) - np.log1p((SPREADS / USUAL_SPREAD) ** 2)  # density, times the distance of grid points
    return _normalised(evidence + prior), pulled / precision, 1 / precision


def _normalised(logs: Floats) -> Floats:
    """Return probabilities, given their logarithms up to a constant; equal ones if these are not finite."""
    weights: Floats = np.exp(logs - logs.max())
    total = float(weights.sum())
    return weights / total if math.isfinite(total) and total > 0 else np.full(len(logs), 1 / len(logs))


def _portions(number: int) -> Iterator[slice]:
    return (slice(begin, begin + PORTION) for begin in range(0, number, PORTION))


def _cut(values: Floats | float) -> Floats:
    """Return finite numbers of magnitude at most `LARGEST`; NaN becomes 0."""
    finite: Floats = np.clip(np.nan_to_num(np.asarray(values, float), nan=0.0), -LARGEST, LARGEST)
    return finite
