"""The strength of evidence against a claim: logarithms of bounds on the probability of a false alarm.

In: observed counts, claimed probabilities. Out: `evidence`, a number x that is reached with probability at most exp(-x) if
the claim holds. Holds: for counts at every sample size (Chernoff's bounds, no normal approximation); for squares too,
given their fourth moment; for correlations of normal variables. Not covered: the power of a test to find errors.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def entropy(found: float, claimed: float) -> float:
    """Return the relative entropy of two coins: n times it is the exponent of Chernoff's bound, on either side.

    Args:
        found: the observed share, from 0 to 1.
        claimed: the claimed probability.

    >>> entropy(0.5, 0.5), entropy(1.0, 0.0), round(entropy(0.6, 0.5), 4)
    (0.0, inf, 0.0201)
    """
    total = 0.0
    for a, b in ((found, claimed), (1 - found, 1 - claimed)):
        if a > 0:
            total += a * math.log(a / b) if b > 0 else math.inf
    return max(0.0, total)


def excess(hits_p: int, hits_q: int, n: int, *, epsilon: float, delta: float) -> float:
    """Return the evidence that P(event) > exp(epsilon) Q(event) + delta, from n draws under each.

    For any P and Q that obey the claim, the entropies of the two counts, each on its side, add up to a or more with
    probability at most (1 + a) exp(-a). We take the smallest sum over all such P and Q.

    Args:
        hits_p, hits_q: how many draws were in the event.
        n: draws under P, and draws under Q.
        epsilon, delta: of the claim.

    >>> excess(600, 500, 1000, epsilon=0.0, delta=0.1)
    0.0
    >>> excess(700, 500, 1000, epsilon=0.0, delta=0.1) > 5
    True
    """
    p, q, growth = hits_p / n, hits_q / n, math.exp(epsilon)
    low, high = q, (p - delta) / growth
    if not high > low:
        return 0.0

    def total(claimed: float) -> float:
        return n * (entropy(p, min(1.0, delta + growth * claimed)) + entropy(q, claimed))

    for _ in range(100):  # it is convex
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if total(left) <= total(right) else (left, high)
    a = total((low + high) / 2)
    return a - math.log1p(a) if math.isfinite(a) else math.inf


def deficit(mean_square: float, n: int, fourth: float) -> float:
    """Return the evidence that independent numbers have a variance below 1, from the mean of their squares.

    The lower tail of a mean of numbers that are not negative is at most exp(-n e^2 / (2 E X^2)).

    Args:
        mean_square: of n numbers.
        n: how many.
        fourth: the mean of the fourth power, as the claim has it.

    >>> deficit(1.01, 1000, 3.0), round(deficit(0.9, 6000, 3.0), 9)
    (0.0, 10.0)
    """
    return n * max(0.0, 1 - mean_square) ** 2 / (2 * fourth)


def related(largest: float, n: int, pairs: int) -> float:
    """Return the evidence that some pairs of normal variables are correlated, from the largest mean product of n of each.

    E exp(t X Y) = (1 - t^2)^(-1/2) for independent standard normal variables.

    Args:
        largest: the largest mean product.
        n: how many products each mean has.
        pairs: how many pairs there are.

    >>> related(0.01, 10_000, 10), related(0.2, 10_000, 10) > 150
    (0.0, True)
    """
    t = min(largest, 0.5)
    return max(0.0, n * (t * largest + math.log1p(-t * t) / 2) - math.log(2 * max(1, pairs)))


def unlike(counts: Sequence[int], claimed: Sequence[float]) -> float:
    """Return the evidence that outcomes do not have the claimed probabilities, from how often each occurred.

    Args:
        counts: by outcome.
        claimed: probabilities by outcome.

    >>> unlike([500, 500], [0.5, 0.5]), unlike([600, 400], [0.5, 0.5]) > 15
    (0.0, True)
    """
    n = sum(counts)
    if not n:
        return 0.0
    worst = max(n * entropy(count / n, min(1.0, share)) for count, share in zip(counts, claimed, strict=True))
    return max(0.0, worst - math.log(2 * len(counts)))
