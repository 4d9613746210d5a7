"""Renyi divergences of mechanism records: privacy filters add them up, and plans are compared by them.

In: records and an order. Out: an upper bound on the Renyi divergence of the whole (in both directions), and the
probability that the bound fails. Holds: results are rounded up by more than the error of floating point. Not covered:
the real cost of a plan that is fixed beforehand; `accountant` gives a better answer.
"""

# If records have groups, the most expensive group counts, as everywhere. A unit may be in one group of this plan and in
# another group of the next: the sum over runs and plans takes the most that any unit loses in each.
#
# accounting.record_kinds gives the divergence of each kind of record. A change with a bounded sum is worst in as few
# pieces as possible (docs/proofs/accounting.md, lemma 3: one pair dominates the other, so each divergence of the other
# is at most as large).

import math
from collections.abc import Iterable

from dp_pipelines.accounting import accountant
from dp_pipelines.accounting.divergences import UP
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of


def divergence(records: Iterable[MechanismRecord], order: float) -> float:
    """Compute the Renyi divergence between neighbours of all records together, for the most expensive group.

    Args:
        records: of one run.
        order: above 1.

    >>> from fractions import Fraction
    >>> record = MechanismRecord(stage="s", name="rows", kind="gaussian", scale=Fraction(10), l2_squared=100, l0=1)
    >>> round(divergence([record], 4.0), 6)
    2.0
    """
    by_group = accountant.by_group([(tuple(records), 1)])
    return (
        max(math.fsum(kind_of(record).divergence(record, order) for record in of_one) for ((of_one, _),) in by_group)
        * UP
    )


def failure(records: Iterable[MechanismRecord], epsilon: float) -> float:
    """Compute the probability that the bound on the divergence fails: thresholds, coins, the samplers' tables.

    Args:
        records: of one run.
        epsilon: the epsilon at which the tables are counted.
    """
    most = 0.0
    for ((of_one, _),) in accountant.by_group([(tuple(records), 1)]):
        parts = [math.prod(kind_of(record).failures(record)) for record in of_one]
        # These are the records of one unit, so their own groups count as one group.
        most = max(most, math.fsum([*parts, accountant.tables_delta(of_one, epsilon=epsilon)]))
    return most * UP


def to_epsilon(renyi: float, order: float, delta: float) -> float:
    """Return the epsilon at delta that follows from a Renyi divergence of an order; infinite if delta is 0.

    Source: Canonne, Kamath, Steinke 2020, proposition 12.

    Args:
        renyi: the divergence.
        order: above 1.
        delta: from 0 to below 1.
    """
    if not delta > 0:
        return math.inf
    return max(0.0, renyi + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1))


def from_epsilon(epsilon: float, order: float, delta: float) -> float:
    """Return the largest Renyi divergence of an order at which (epsilon, delta) holds; the inverse of `to_epsilon`.

    Args:
        epsilon: of the guarantee.
        order: above 1.
        delta: above 0 and below 1.

    >>> round(to_epsilon(from_epsilon(1.0, 20.0, 1e-6), 20.0, 1e-6), 9)
    1.0
    """
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)
