"""Statements of `plan` about a metric before a row is read: from which size of a group its released number is good.

In: the noise of each statistic. Out: statements that metrics make about themselves (`Metric.good_from`). Holds: a statement is
about noise alone, and true of any values: of groups of the stated size or larger, at least 95 in 100 meet it. Not covered: rows
of a group that bounds cut off, and that a group just above a threshold was published because its noise was high.
"""

# Each statement inverts the noise. A count with noise Z is within a part t of n where |Z| <= t n, so from n = reach / t on,
# where the interval [-reach, reach] holds 95% of Z. A quotient, as a mean, is worked out in the class of its metric.

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal

from dp_pipelines.metrics.error_bars import LAPLACE_BAR, NORMAL_POINT
from dp_pipelines.metrics.weighted_mean import SumPair

WITHIN = 0.1
"""The error up to which a number counts as good: a tenth of itself, or of its range."""

POINTS = 0.05
"""The same for the rank of a quantile."""

REACH = {"gaussian": round(NORMAL_POINT, 6), "laplace": LAPLACE_BAR}
"""By law, the number of standard deviations that holds 95% of the noise, to both sides together; 97.5% to one side."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Level:
    """The noise of a statistic.

    Args:
        stddev: of the noise, in units of the statistic.
        law: of the noise, `gaussian` or `laplace`.
        behind: if a decision without noise replaces the statistic: how many rows it is at most behind the best one, in
            95 of 100 cases.
    """

    stddev: float
    law: str
    behind: float | None = None


def reach(parts: Iterable[tuple[float, Level]]) -> float:
    """Return how far independent noises, each times a factor, together move a number: no farther in 95 of 100 cases.

    In standard deviations this is largest for Laplace noise alone, and least for Gaussian noise: a sum of both lies between.

    Args:
        parts: factors and noises.

    >>> round(reach([(1.0, Level(stddev=3.0, law="gaussian")), (2.0, Level(stddev=2.0, law="gaussian"))]), 2)
    9.8
    """
    listed = [(factor * level.stddev, REACH[level.law]) for factor, level in parts if factor]
    return max((of_law for _, of_law in listed), default=0.0) * math.hypot(*(stddev for stddev, _ in listed))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GoodFrom:
    """A statement: of groups of at least this size, at least 95 in 100 have a number that keeps the promise.

    Args:
        promise: how near the number is to the one without noise.
        least: the size.
        of: what the size counts: `rows`, `values` (rows that are not null), `users`; empty where it is the number itself.
        noise_below: the size below which the number tells next to nothing: its 95% bar is as long as the number itself, or covers
            its whole range.
        guessed_by: which part of a job's `expect` says how large groups are; None: none does.
        each: what one of these rows or users adds to the size; of a sum, a guess.
        example: what reaches the size, in words.
    """

    promise: str
    least: float
    of: str
    noise_below: float
    guessed_by: Literal["rows", "users"] | None = None
    each: float = 1.0
    example: str = ""

    @property
    def words(self) -> str:
        """Return the statement for people.

        >>> GoodFrom(promise="within 10%", least=3791.2, of="rows", noise_below=379.1).words
        'within 10% from 3,800 rows'
        """
        size = f"from {shown(self.least)} {self.of}" if self.of else f"where it is at least {shown(self.least)}"
        return f"{self.promise} {size}" + (f" ({self.example})" if self.example else "")


def of_count(
    level: Level, of: str, guessed_by: Literal["rows", "users"] | None, *, each: float = 1.0, what: str = ""
) -> GoodFrom:
    """Return the statement about a noisy count: within a tenth of the count.

    Args:
        level: of the count.
        of, guessed_by, each: see `GoodFrom`.
        what: is counted, where it is not the group.
    """
    far = reach([(1.0, level)])
    promise = f"{what} within {WITHIN:.0%}".strip()
    return GoodFrom(promise=promise, least=far / WITHIN, of=of, noise_below=far, guessed_by=guessed_by, each=each)


def of_amount(far: float, bounds: tuple[float, float], of: Literal["rows", "users"]) -> GoodFrom:
    """Return the statement about a noisy sum: within a tenth of the sum.

    How many rows that takes depends on their values.

    Args:
        far: the reach of its noise.
        bounds: of what a row or user adds; the example has the middle of them, or the largest where the middle is 0.
        of: what adds to it.
    """
    least = far / WITHIN
    one, typical = one_in_range(*bounds)
    where = "the middle of the range" if typical else "the largest"
    example = f"{shown(least / one)} {of} of {one:.4g}, {where}"
    return GoodFrom(
        promise=f"within {WITHIN:.0%}", least=least, of="", noise_below=far, guessed_by=of, each=one, example=example
    )


def one_in_range(low: float, high: float) -> tuple[float, bool]:
    """Return the magnitude that one value adds to a sum in the middle of its range, and True; the largest if the middle is 0.

    Args:
        low, high: the range.

    >>> one_in_range(0.0, 200.0), one_in_range(-5.0, 5.0)
    ((100.0, True), (5.0, False))
    """
    middle, largest = abs(low / 2 + high / 2), max(abs(low), abs(high))
    return (middle, True) if middle > 1e-9 * largest else (largest, False)


def of_mean(
    total: Level, count: Level, *, farthest: float, near: float, of: str, promise: str, most: float
) -> GoodFrom:
    """Return the statement about a mean from a noisy sum and a noisy count.

    With the sum N m of distances m from the centre and noises S and C, (N m + S) / (N + C) is within t of m where
    S - (m + t) C <= t N and -S + (m - t) C <= t N: from N = reach of S and (|m| + t) C, over t, on, each with 97.5%. The largest
    |m| is taken. Where both hold, the noisy count is not negative.

    Args:
        total, count: of the sum and the count.
        farthest: the largest distance of a mean from the centre.
        near: how near the mean is to be.
        of: what the count counts.
        promise: in words.
        most: how far off a mean is that tells nothing.
    """

    def least(t: float) -> float:
        return reach([(1.0, total), (farthest + t, count)]) / t

    return GoodFrom(promise=promise, least=least(near), of=of, noise_below=least(most), guessed_by="rows")


def of_weighted_mean(pair: SumPair, weighted: Level, weights: Level) -> GoodFrom:
    """Return the statement about a weighted mean, as that about a mean, with the sum of weights in place of the count.

    Args:
        pair: the mean.
        weighted, weights: the noise of its two sums.
    """
    near, half = WITHIN * (pair.high - pair.low), (pair.high - pair.low) / 2
    promise = f"within {near:.4g}, {WITHIN:.0%} of its range,"
    good = of_mean(weighted, weights, farthest=half, near=near, of="in weights", promise=promise, most=half)
    each = pair.largest / 2
    example = f"{shown(good.least / each)} rows of weight {each:.4g}"
    return dataclasses.replace(good, each=each, example=example)


def shown(size: float) -> str:
    """Format a size with two digits, rounded up, so that its promise stays true; plain digits below ten thousand millions.

    >>> shown(3791.2), shown(41.0), shown(0.37), shown(2.3e11)
    ('3,800', '41', '0.37', '2.3e+11')
    """
    if not 0 < size < math.inf:
        return f"{size:g}"
    digits = math.floor(math.log10(size)) - 1
    whole = math.ceil(size / 10.0**digits * (1 - 1e-12))
    if digits < 0:
        return f"{whole * 10.0**digits:.{-digits}f}"
    return f"{whole * 10**digits:,}" if digits < 9 else f"{whole * 10.0**digits:.2g}"
