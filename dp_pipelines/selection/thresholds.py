"""Thresholds: a partition is kept when its noisy statistic reaches an integer that is high enough to hide a lone unit.

In: a law of integer noise, how far one unit moves the statistic (integers, in steps of the release lattice), delta. Out:
integer thresholds and squared sensitivities. Holds: a unit that is alone in all of its partitions shows up in any of them
with probability at most delta, also after rounding to the lattice; the cost of the noise itself has its own record
(docs/proofs/selection.md). Not covered: the choice of strategy and of noise (dp_pipelines.planning).
"""

# There are two statistics. The number of units: each unit adds the same number of steps to at most L0 partitions.
# Weights: a unit with d kept partitions adds floor(unit / sqrt(d)) fine steps to each, which bounds its L2 norm by
# `unit` however many partitions it has; the totals are rounded to multiples of q fine steps before the noise.
#
# Sources: thresholding of noisy counts, Korolova, Kenthapadi, Mishra, Ntoulas (WWW 2009) and Wilson et al. (PoPETs 2020);
# weighted Gaussian, Gopi, Gulhane, Kulkarni, Shen, Shokouhi, Yekhanin (ICML 2020, algorithms 1-3), whose threshold over real
# numbers is max over d of 1 / sqrt(d) + s * PhiInverse((1 - delta)^(1/d)).

import math
from typing import Any

import numpy as np

from dp_pipelines import checks
from dp_pipelines.noise.laws import Law

LARGEST_UNIT = 2**30
"""The weight of a unit in one partition, in fine steps: its square fits int64."""

MOST_PARTITIONS = 2**32


def count_threshold(law: Law, one_user: int, max_partitions: int, delta: float) -> int:
    """Return the smallest threshold that, but for probability delta, hides a unit alone in up to `max_partitions` partitions.

    Args:
        law: the noise.
        one_user: the statistic, in steps, at which a partition may first be kept (one unit; with `min_users` m, m
            units).
        max_partitions: partitions of one unit (L0).
        delta: the probability that any of them is kept, above 0 and below 1.

    Returns:
        The smallest integer T with 1 - (1 - P(one_user + X >= T))^max_partitions <= delta. Keep at or above it.

    Raises:
        RequestError: an argument is out of its range.

    >>> from fractions import Fraction
    >>> from dp_pipelines.noise.laws import FlooredLaplace
    >>> count_threshold(FlooredLaplace(Fraction(1024)), 1024, 1, 1e-6)
    14462
    """
    one_user = checks.whole(one_user, "one_user", low=0, high=2**62)
    max_partitions = checks.whole(max_partitions, "max_partitions", low=1, high=MOST_PARTITIONS)
    delta = checks.number(delta, "delta", above=0, below=1)
    return one_user + law.smallest_x_with_tail_at_most(for_each(delta, max_partitions))


def for_each(delta: float, partitions: int) -> float:
    """Return the largest probability of each independent event such that any of them happens with probability at most `delta`.

    That is 1 - (1 - delta)^(1 / partitions), rounded down by some units in the last place, which outweighs its error.

    >>> for_each(1e-6, 1) <= 1e-6
    True
    """
    return math.nextafter(-math.expm1(math.log1p(-delta) / partitions) * (1 - 2**-50), 0.0)


def weight(partitions: int, unit: int) -> int:
    """Return the weight that a unit adds to each of its kept partitions: exactly floor(unit / sqrt(partitions)) fine steps.

    >>> weight(2, 2**20)
    741455
    """
    return math.isqrt(unit * unit // partitions)


def weighted_l2_squared(unit: int, q: int, max_partitions: int) -> int:
    """Return the square of the L2 norm, in release steps, of the change that one unit makes to the rounded weights.

    With d partitions each total moves by at most c_d = ceil(weight(d) / q) steps; the result is the maximum of d * c_d^2 over
    d up to `max_partitions`.

    Raises:
        RequestError: an argument is out of its range.

    >>> weighted_l2_squared(2**20, 2**10, 1), weighted_l2_squared(2**20, 2**10, 100)
    (1048576, 1067420)
    """
    steps, partitions = _shifts(unit, q, max_partitions)
    # Up to 2**30 steps squared times partitions could pass int64: the products are below (2 * 2**30)^2 where steps > 1,
    # and at most max_partitions where steps = 1.
    return int((partitions * steps * steps).max())


def weighted_threshold(law: Law, unit: int, q: int, max_partitions: int, delta: float) -> int:
    """Return the smallest threshold that hides a unit alone in all of its partitions, however many those are.

    Args:
        law: the noise.
        unit: the weight of a unit in a single partition, in fine steps.
        q: fine steps in one release step.
        max_partitions: partitions of one unit (L0).
        delta: the probability that any of them is kept, above 0 and below 1.

    Returns:
        The smallest integer T with 1 - (1 - P(c_d + X >= T))^d <= delta for all d up to `max_partitions`.

    Raises:
        RequestError: an argument is out of its range.

    >>> from fractions import Fraction
    >>> from dp_pipelines.noise.laws import RoundedGaussian
    >>> weighted_threshold(RoundedGaussian(Fraction(4096)), 2**20, 2**10, 16, 1e-6)
    21909
    """
    steps, partitions = _shifts(unit, q, max_partitions)
    delta = checks.number(delta, "delta", above=0, below=1)
    allowed = [for_each(delta, int(d)) for d in partitions]
    threshold = -(2**62)
    # The largest number of partitions often decides, then the smallest; most others need only one look at the tail.
    for index in sorted(range(len(steps)), key=lambda i: min(i, len(steps) - 1 - i)):
        shift = int(steps[index])
        if threshold <= -(2**62) or law.tail(threshold - shift) > allowed[index]:
            threshold = shift + law.smallest_x_with_tail_at_most(allowed[index])
    return threshold


def half_keep_users(threshold: int, one_user: int) -> int:
    """Return the smallest number of units with which a partition is kept at least as often as not.

    Both laws are symmetric about minus their offset (0 or 1/2), so P(X >= x) is at least 1/2 for x = 0 and for no x above.

    Args:
        threshold: keep at or above it.
        one_user: steps that one unit adds.

    Raises:
        RequestError: `one_user` is not a positive whole number.

    >>> half_keep_users(14462, 1024)
    15
    """
    one_user = checks.whole(one_user, "one_user", low=1, high=2**62)
    return max(1, -(-threshold // one_user))


def weighted_half_keep_users(
    threshold: int, unit: int, q: int, max_partitions: int, *, having: int | None = None
) -> int:
    """Return the smallest number of units, with `having` partitions each, that keep a partition at least as often as not.

    Args:
        threshold, unit, q, max_partitions: as for `weighted_threshold`.
        having: the number of partitions each unit is assumed to have; by default `max_partitions`, the worst case.

    Raises:
        RequestError: an argument is out of its range.

    >>> weighted_half_keep_users(21909, 2**20, 2**10, 16), weighted_half_keep_users(21909, 2**20, 2**10, 16, having=1)
    (86, 22)
    """
    having = checks.whole(max_partitions if having is None else having, "having", low=1, high=max_partitions)
    # Totals are rounded to the nearest step after the sum, halves up.
    return half_keep_users(threshold * q - q // 2, weight(having, unit))


def _shifts(unit: Any, q: Any, max_partitions: Any) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    """Return the shifts c that occur, each with the largest number d of partitions that has it: for one c, that is the worst.

    c_d >= c > 0 if and only if floor(unit / sqrt(d)) > (c - 1) q, that is d ((c - 1) q + 1)^2 <= unit^2. A unit in more than
    unit^2 partitions weighs nothing, and its partitions can still be seen.
    """
    unit = checks.whole(unit, "unit", low=1, high=LARGEST_UNIT)
    q = checks.whole(q, "q", low=1, high=LARGEST_UNIT)
    max_partitions = checks.whole(max_partitions, "max_partitions", low=1, high=MOST_PARTITIONS)
    steps = np.arange(0, -(-unit // q) + 1, dtype=np.int64)
    partitions = np.append(max_partitions, np.minimum(max_partitions, unit * unit // ((steps[1:] - 1) * q + 1) ** 2))
    # A shift that no number of partitions has repeats the number of the next, so keep the largest shift of each number.
    last = np.append(partitions[1:] != partitions[:-1], True)
    return steps[last], partitions[last]
