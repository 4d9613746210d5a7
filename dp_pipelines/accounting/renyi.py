"""Renyi divergence of mechanism records: what a filter adds up, and what plans are compared with.

In: records and an order. Out: an upper bound on the Renyi divergence of the whole (both ways), and the probability with which
it fails. Holds: rounded upwards by more than floating point rounds. Not covered: what a plan that is fixed beforehand really
costs: `accountant` knows that better.
"""

# Of records with groups the dearest group counts, as everywhere. A unit may be in one group of this plan and in another of
# the next: what is added up over runs and plans is the most that any unit loses in each.
#
# Formulas: Mironov 2017, proposition 7 (Gaussian) and proposition 6 (Laplace); Mironov, Talwar, Zhang 2019 (Gaussian sums over
# samples, accounting.subsampled_gaussian); randomized response from its two outcomes. A change
# that is bounded in sum is worst in as few pieces as possible (docs/proofs/accounting.md, lemma 3: one pair dominates the
# other, so each of its divergences is at most as large).

import math
from collections.abc import Iterable

from dp_pipelines.accounting import accountant
from dp_pipelines.accounting.mechanism_record import Mechanism

UP = 1 + 2.0**-40
"""More than a few dozen operations on floats round, relative to positive summands."""


def divergence(records: Iterable[Mechanism], order: float) -> float:
    """The Renyi divergence of an order above 1 between neighbours, of all records together; of the dearest group.

    Args:
        records: of one run.
        order: above 1.

    >>> from fractions import Fraction
    >>> record = Mechanism(stage="s", name="rows", kind="gaussian", scale=Fraction(10), l2_squared=100, l0=1)
    >>> round(divergence([record], 4.0), 6)
    2.0
    """
    by_group = accountant.by_group([(tuple(records), 1)])
    return max(math.fsum(_of_record(record, order) for record in of_one) for ((of_one, _),) in by_group) * UP


def failure(records: Iterable[Mechanism], epsilon: float) -> float:
    """The probability with which the bound on the divergence does not hold: thresholds, coins, the samplers' tables.

    Args:
        records: of one run.
        epsilon: at which the tables are counted.
    """
    most = 0.0
    for ((of_one, _),) in accountant.by_group([(tuple(records), 1)]):
        parts = [(r.delta or 0.0) * (r.l0 or 1) for r in of_one if r.kind in ("approximate_dp", "delta")]
        # The records of one unit: their own groups are one group.
        most = max(most, math.fsum([*parts, accountant.tables_delta(of_one, epsilon=epsilon)]))
    return most * UP


def to_epsilon(renyi: float, order: float, delta: float) -> float:
    """The epsilon at delta that a Renyi divergence of an order gives; infinite for no delta.

    Source: Canonne, Kamath, Steinke 2020, proposition 12.
    """
    if not delta > 0:
        return math.inf
    return max(0.0, renyi + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1))


def from_epsilon(epsilon: float, order: float, delta: float) -> float:
    """The largest Renyi divergence of an order with which (epsilon, delta) holds; the inverse of `to_epsilon`.

    >>> round(to_epsilon(from_epsilon(1.0, 20.0, 1e-6), 20.0, 1e-6), 9)
    1.0
    """
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)


def _of_record(record: Mechanism, order: float) -> float:
    if record.kind == "gaussian":
        assert record.scale is not None
        assert record.l2_squared is not None
        return order * float(record.l2_squared / record.scale**2) / 2
    if record.kind == "sampled_gaussian":
        from dp_pipelines.accounting import subsampled_gaussian

        assert record.scale is not None
        assert record.l2_squared is not None
        assert record.rate is not None
        mu = math.sqrt(float(record.l2_squared / record.scale**2)) * UP
        return (record.times or 1) * subsampled_gaussian.log_moment(record.rate, mu, order - 1) / (order - 1)
    if record.kind == "laplace":
        return math.fsum(times * _laplace(float(shift) * UP, order) for shift, times in accountant.worst_shifts(record))
    if record.kind == "approximate_dp":
        return (record.l0 or 1) * _response(record.epsilon or 0.0, order)
    if record.kind == "bounded_range":
        epsilon = record.epsilon or 0.0
        # docs/proofs/exponential.md, lemma 6.
        return (record.l0 or 1) * min(epsilon, order * epsilon * epsilon / 8)
    return 0.0


def _laplace(shift: float, order: float) -> float:
    """Of Laplace noise of scale 1 that is shifted."""
    whole = 2 * order - 1
    return _capped(shift, order, (order / whole, (order - 1) / whole), -order * shift)


def _response(epsilon: float, order: float) -> float:
    """Of an answer that is true with probability e^epsilon / (1 + e^epsilon)."""
    lie = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return _capped(epsilon, order, (1 / (1 + math.exp(-epsilon)), lie), (1 - order) * epsilon)


def _capped(loss: float, order: float, weights: tuple[float, float], low: float) -> float:
    """Log of the mean of exp((order - 1) loss) and exp(low) by weights, over order - 1, and no more than a loss can give.

    What has no loss larger than this has a divergence of at most it, and of at most order loss^2 / 2 (Bun and Steinke 2016,
    proposition 3.3): that is the nearer one where the loss is so small that the two exponentials cancel.
    """
    high, (heavy, light) = (order - 1) * loss, weights
    if high < 1:
        up, down = heavy * math.expm1(high), light * math.expm1(low)
        total = math.log1p(up + down) + 2.0**-48 * (up - down)
    else:
        total = high + math.log(heavy + light * math.exp(low - high)) + 2.0**-48 * (1 + high)
    return min(loss, order * loss * loss / 2, total / (order - 1))
