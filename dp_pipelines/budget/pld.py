"""What mechanism records cost together: their privacy loss distributions, composed by dp-accounting.

In: records of one run, and how many runs. Out: the smallest epsilon at a delta. Holds: each record becomes a distribution that
dominates what it stands for (docs/proofs/accounting.md), dp-accounting's estimates are pessimistic, and so nothing is ever
accounted below the truth. Not covered: subsampling, and parallel composition over disjoint units.

May import budget.mechanism. dp-accounting is imported when a number is asked for: it takes a second.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dp_pipelines.budget.mechanism import Mechanism

MOST_NODES = 2**20
"""Losses on a grid are at most about this many; where that is too few, the grid is coarser and epsilon higher, never lower."""

TABLES_ERROR = 2.0**-100
"""Total variation between a draw and its law, at most (docs/proofs/noise.md)."""

Pair = tuple[str, float, float]
"""A kind of dominating pair and its parameters: what is equal is composed at once."""


def epsilon_of(records: Iterable[Mechanism], delta: float, *, runs: int = 1, accuracy: float = 1e-4) -> float:
    """The smallest epsilon such that all records, run `runs` times, are (epsilon, delta)-DP, rounded up.

    Args:
        records: of one run.
        delta: from 0 to below 1. At 0 the answer is for ideal noise; `tables_delta` says what its tables add to delta.
        runs: how often all of them happen.
        accuracy: about the relative error of the answer that is aimed at; it is on the safe side.

    Returns:
        Epsilon, or infinity where no epsilon will do.

    >>> from fractions import Fraction
    >>> one = Mechanism(stage="s", name="n", kind="laplace", scale=Fraction(10), linf=5, l0=2, l1=10)
    >>> round(epsilon_of([one], 1e-9), 6), 0.6 < epsilon_of([one], 1e-1) < 1.0
    (1.0, True)
    """
    listed = list(records)
    pairs = _pairs(listed, runs)
    added = _added(pairs)
    if delta == 0:
        return added
    rest = delta - tables_delta(listed, runs=runs, epsilon=min(added, 40.0))
    if rest < 0:
        return math.inf
    if not pairs or rest == 0:
        return added
    # A rough answer tells how large epsilon is; the grid is made fine enough for it.
    rough = rough_epsilon(listed, delta, runs=runs)
    interval = accuracy * (rough if 0 < rough < math.inf else 1.0)
    return min(added, _composed(pairs, interval, rest))


def rough_epsilon(records: Iterable[Mechanism], delta: float, *, runs: int = 1) -> float:
    """About the epsilon of `epsilon_of`, in microseconds: to compare plans with, never to account with.

    Each record counts as a Gaussian with about the same variance of its privacy loss (Dong, Roth, Su 2022, section 3), or all
    epsilons are added up where that is less.

    >>> rough_epsilon([Mechanism(stage="s", name="n", kind="approximate_dp", epsilon=0.5, delta=1e-9, l0=1)], 1e-6)
    0.5
    """
    pairs = _pairs(list(records), runs)
    rest = delta - math.fsum(mass * count for (_, _, mass), count in pairs.items())
    if rest < 0:
        return math.inf
    added = _added(Counter({(kind, shift, 0.0): count for (kind, shift, _), count in pairs.items()}))
    mu = math.sqrt(math.fsum(count * min(shift, shift**2) for (_, shift, _), count in pairs.items()))
    if mu == 0 or rest == 0:
        return added
    low, high = 0.0, mu * mu + mu * math.sqrt(2 * math.log(1 / rest))
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        under_p = math.erfc((middle / mu - mu / 2) / math.sqrt(2)) / 2
        under_q = math.erfc((middle / mu + mu / 2) / math.sqrt(2)) / 2
        tail = under_p - math.exp(min(middle, 700)) * under_q
        low, high = (middle, high) if tail > rest else (low, middle)
    return min(added, high)


def tables_delta(records: Sequence[Mechanism], *, runs: int = 1, epsilon: float) -> float:
    """What the finite tables of the samplers may add to delta (docs/proofs/noise.md, theorem 5): far below 2**-30."""
    draws = runs * sum(record.draws for record in records)
    return draws * (1 + math.exp(min(epsilon, 40.0))) * TABLES_ERROR


def _up(value: float) -> float:
    """A float above: what is computed from integers is rounded to the nearest, so one step up is on the safe side."""
    return math.nextafter(value, math.inf)


def _added(pairs: Counter[Pair]) -> float:
    """The sum of all epsilons at delta 0; infinite where a pair has none."""
    if any(kind == "gaussian" or mass for kind, _, mass in pairs):
        return math.inf
    return _up(math.fsum(shift * count for (_, shift, _), count in pairs.items()))


def _pairs(records: Sequence[Mechanism], runs: int) -> Counter[Pair]:
    """The dominating pairs of some records, and how often each is composed."""
    pairs: Counter[Pair] = Counter()
    squared = infinite = 0.0
    for record in records:
        l0, linf, l1 = record.l0 or 1, record.linf or 0, record.l1 or 0
        if record.kind == "gaussian":
            # Gaussians compose to one: the squares of the shifts, in standard deviations, add up.
            squared = _up(squared + _up(float((record.l2_squared or 0) / (record.scale or 1) ** 2)))
        elif record.kind == "laplace" and l1 >= l0 * linf:
            pairs["laplace", _up(float(linf / (record.scale or 1))), 0.0] += l0 * runs
        elif record.kind == "laplace":
            # Only the sum of the changes is bounded: taken as any mechanism with this epsilon.
            pairs["decision", _up(float(l1 / (record.scale or 1))), 0.0] += runs
        elif record.kind == "approximate_dp":
            pairs["decision", record.epsilon or 0.0, record.delta or 0.0] += l0 * runs
        else:
            infinite += (record.delta or 0.0) * runs
    if squared:
        pairs["gaussian", _up(math.sqrt(_up(squared * runs))), 0.0] += 1
    if infinite:
        pairs["decision", 0.0, min(_up(infinite), 1.0)] += 1
    return pairs


def _composed(pairs: Counter[Pair], interval: float, delta: float) -> float:
    """Epsilon of the composition on a grid of losses with the given spacing, or a coarser one where that is too fine."""
    from dp_accounting.pld import common, privacy_loss_distribution

    spread = math.sqrt(math.fsum(count * shift**2 for (_, shift, _), count in pairs.items()))
    largest = max(shift for _, shift, _ in pairs)
    interval = max(interval, 40 * (spread + largest) / MOST_NODES)
    total: Any = None
    for (kind, shift, mass), count in pairs.items():
        if kind == "gaussian":
            one = privacy_loss_distribution.from_gaussian_mechanism(1 / shift, value_discretization_interval=interval)
        elif kind == "laplace":
            one = privacy_loss_distribution.from_laplace_mechanism(1 / shift, value_discretization_interval=interval)
        else:
            parameters = common.DifferentialPrivacyParameters(shift, mass)
            one = privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=interval)
        composed = one.self_compose(count) if count > 1 else one
        total = composed if total is None else total.compose(composed)
    return float(total.get_epsilon_for_delta(delta))
