"""A rough account of records, in microseconds: to compare plans with, never to account with.

In: records of one run, and how many runs. Out: about the epsilon that `budget.accountant` finds. Holds: nothing is promised;
what is spent is decided by the accountant alone. May import budget.mechanism.
"""

import math
from collections.abc import Iterable

from dp_pipelines.budget.mechanism import Mechanism


def rough_epsilon(records: Iterable[Mechanism], delta: float, *, runs: int = 1) -> float:
    """About the epsilon of all records of all runs at a delta.

    Each record counts as a Gaussian with about the same variance of its privacy loss (Dong, Roth, Su 2022, section 3), or all
    epsilons are added up where that is less.

    >>> rough_epsilon([Mechanism(stage="s", name="n", kind="approximate_dp", epsilon=0.5, delta=1e-9, l0=1)], 1e-6)
    0.5
    """
    kept = squares = added = 0.0
    for record in records:
        l0, linf, l1 = record.l0 or 1, record.linf or 0, record.l1 or 0
        kept += l0 * runs * math.log1p(-(record.delta or 0.0))
        if record.kind == "gaussian":
            squares += runs * float((record.l2_squared or 0) / (record.scale or 1) ** 2)
            added = math.inf
            continue
        number, loss = l0, record.epsilon or 0.0
        if record.kind == "laplace":
            spread = l1 >= l0 * linf
            number, loss = (l0 if spread else 1), float((linf if spread else l1) / (record.scale or 1))
        squares += runs * number * min(loss, loss**2)
        added += runs * number * loss
    rest, mu = delta + math.expm1(kept), math.sqrt(squares)
    if rest < 0:
        return math.inf
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
