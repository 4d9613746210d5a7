"""Costs of records by four ways to add up losses: for `plan --explain` and the benchmark, never for accounting.

In: groups of records, how often each runs, and delta. Out: an epsilon for each method. Holds: each method is a theorem,
so each answer is an upper bound on the truth; plans are accounted with the last. Not covered: the error of the
samplers' tables, except in `pld`.
"""

# * `naive`: epsilons and deltas add up. Each Gaussian record of each run gets an equal part of the delta that failures
#   leave. A sum over a sample is amplified: log(1 + rate (e^epsilon - 1)) at rate * delta (Balle, Barthe, Gaboardi 2018,
#   theorem 8).
# * `advanced`: Kairouz, Oh, Viswanath 2015, theorem 3.5, for mechanisms that differ; Gaussian records get equal parts
#   of delta. The part left to the theorem is the best of a grid.
# * `renyi`: Renyi divergences add up (Mironov 2017); the best of a grid of orders.
# * `pld`: privacy loss distributions (`accountant`).
#
# Only `pld` counts the samplers' tables; the other three assume ideal noise. At delta 0, where all noise counts as
# ideal, epsilons add up and all four agree. If records have groups, each method gives the cost of its most expensive
# group.

import collections
import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dp_pipelines import checks
from dp_pipelines.accounting import accountant, divergences, renyi
from dp_pipelines.accounting.estimate import Terms, rough
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of
from dp_pipelines.kernels.lattice import Floats

Groups = Iterable[tuple[Sequence[MechanismRecord], int]]
"""Records, and how often they run together."""

ORDERS = tuple(1 + 2.0 ** (n / 6 - 5) for n in range(180))
"""Orders of Renyi divergences."""

SLACKS = (0.0, *(n / 20 for n in range(1, 20)))
"""The parts of delta that advanced composition may use itself; the first is naive composition."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """Epsilon at one delta, by four methods; infinite if a method has no answer.

    Args:
        naive, advanced, renyi, pld: see the top of this module.
        order: the order that `renyi` took; None if it has no answer or delta is 0.
    """

    naive: float
    advanced: float
    renyi: float
    pld: float
    order: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """Return the costs as JSON values, null for infinite."""
        fields = dataclasses.asdict(self)
        return {name: value if value is not None and math.isfinite(value) else None for name, value in fields.items()}


def compare(groups: Groups, delta: float) -> Costs:
    """Compute the epsilon of all runs of all records at a delta, by four methods.

    Args:
        groups: records, and how often they run.
        delta: of everything together, from 0 to below 1.

    Raises:
        RequestError: an argument is out of its range.

    >>> from fractions import Fraction
    >>> daily = MechanismRecord(stage="s", name="rows", kind="gaussian", scale=Fraction(60), l2_squared=1, l0=1)
    >>> costs = compare([([daily], 365)], 1e-6)
    >>> round(costs.naive, 1), round(costs.advanced, 1), round(costs.renyi, 2), round(costs.pld, 2)
    (29.2, 9.7, 1.48, 1.38)
    """
    listed = [
        (tuple(records), checks.whole(runs, "runs", low=1, high=accountant.MOST_RUNS)) for records, runs in groups
    ]
    each = [_compare(of_one, delta) for of_one in accountant.by_group(listed)]
    return Costs(
        naive=max(costs.naive for costs in each),
        advanced=max(costs.advanced for costs in each),
        renyi=max(costs.renyi for costs in each),
        pld=max(costs.pld for costs in each),
        order=max(each, key=lambda costs: costs.renyi).order,
    )


def _compare(kept: Sequence[tuple[tuple[MechanismRecord, ...], int]], delta: float) -> Costs:
    """Compute `compare` for the records that one unit meets."""
    if delta == 0:
        added = _composed(kept, 0.0, (0.0,))
        return Costs(naive=added, advanced=added, renyi=added, pld=added)
    pld = accountant.epsilon_of_rounds(kept, delta)
    renyi_epsilon, order = _renyi(kept, delta)
    return Costs(
        naive=_composed(kept, delta, (0.0,)),
        advanced=_composed(kept, delta, SLACKS),
        renyi=renyi_epsilon,
        pld=pld,
        order=order,
    )


def explain(groups: Groups, delta: float) -> dict[str, Any]:
    """Return the cost of all stages together and of each alone at the same delta, and each stage's records of its first run.

    Args:
        groups: records, and how often they run.
        delta: of everything together.

    Returns:
        JSON values: `delta`, `total`, `stages` (by name) and `records` (by name of stage).
    """
    listed = [(tuple(records), runs) for records, runs in groups]
    stages = dict.fromkeys(record.stage for records, _ in listed for record in records)
    by_stage = [(_by_stage(records), runs) for records, runs in listed]
    alone = {name: [(tuple(of_stages.get(name, ())), runs) for of_stages, runs in by_stage] for name in stages}
    total = compare(listed, delta).to_json()
    # Stages whose records differ in nothing but names cost the same.
    costs: dict[Any, dict[str, float | None]] = {}
    each = {}
    for name, of_stage in alone.items():
        unnamed = tuple((tuple(_unnamed(record) for record in records), runs) for records, runs in of_stage)
        if unnamed not in costs:
            costs[unnamed] = total if len(stages) == 1 else compare(of_stage, delta).to_json()
        each[name] = costs[unnamed]
    records = {name: [record.to_json() for record in of_stage[0][0]] for name, of_stage in alone.items()}
    return {"delta": delta, "total": total, "stages": each, "records": records}


def _by_stage(records: Iterable[MechanismRecord]) -> dict[str, list[MechanismRecord]]:
    """Return the records of each stage, in their order."""
    of_stages: dict[str, list[MechanismRecord]] = {}
    for record in records:
        of_stages.setdefault(record.stage, []).append(record)
    return of_stages


def _unnamed(record: MechanismRecord) -> MechanismRecord:
    """Return a record that differs in its names alone, which cost nothing."""
    return dataclasses.replace(record, stage="s", name="n")


def rough_epsilon(records: Iterable[MechanismRecord], delta: float, *, runs: int = 1) -> float:
    """Estimate the epsilon of all records of all runs at a delta, by `estimate.rough`, for the most expensive group.

    Args:
        records: of one run.
        delta: of all runs.
        runs: how many.

    >>> rough_epsilon([MechanismRecord(stage="s", name="n", kind="approximate_dp", epsilon=0.5, delta=1e-9, l0=1)], 1e-6)
    0.5
    """
    by_group = accountant.by_group([(tuple(records), 1)])
    return max(rough([kind_of(r).terms(r) for r in of_one], delta, runs=runs) for ((of_one, _),) in by_group)


def _composed(
    groups: Sequence[tuple[tuple[MechanismRecord, ...], int]], delta: float, slacks: Iterable[float]
) -> float:
    """Compute the smallest epsilon by composition theorems over all slacks: parts of delta that the theorem uses itself."""
    left = delta - _failure(groups)
    if left < 0:
        return math.inf
    squares, rates, normal, pure = _losses(groups)
    times = np.append(normal, [float(many) for _, many in pure])
    deltas = [(left * slack, left * (1 - slack) / max(float(normal.sum()), 1.0)) for slack in slacks]
    deltas = [(own, each) for own, each in deltas if not len(squares) or each > 0]
    # All slacks at once: the search for an epsilon has sixty steps, however many it searches for.
    sampled = [np.minimum(each / rates, 1.0) for _, each in deltas]
    of_slacks = _gaussian_epsilons(np.sqrt(squares), np.array(sampled).reshape(len(deltas), len(squares)))
    best = math.inf
    for (own, _), epsilons in zip(deltas, of_slacks, strict=True):
        # Beyond 500 amplification gains nothing, and computing it would overflow.
        amplified = np.log1p(rates * np.expm1(np.minimum(epsilons, 500.0)))
        epsilons = np.where((rates < 1) & (epsilons < 500), amplified, epsilons)
        epsilons = np.append(epsilons, [epsilon for epsilon, _ in pure])
        best = min(best, _total(times * epsilons))
        if own > 0:
            best = min(best, _advanced(epsilons, times, own))
    return best


def _advanced(epsilons: Floats, times: Floats, delta: float) -> float:
    """Compute the epsilon of mechanisms with different epsilons by Kairouz, Oh, Viswanath 2015, theorem 3.5."""
    squares = _total(times * epsilons**2)
    mean = _total(times * (epsilons * np.tanh(epsilons / 2)))
    first = math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / delta))
    return mean + min(first, math.sqrt(2 * squares * math.log(1 / delta)))


def _total(numbers: Floats) -> float:
    """Return the sum, the same on every processor.

    BLAS, which `@` calls, picks an order of additions that suits the processor.
    """
    return float(numbers.sum())


def _losses(
    groups: Iterable[tuple[tuple[MechanismRecord, ...], int]],
) -> tuple[Floats, Floats, Floats, list[tuple[float, float]]]:
    """Return Gaussian sums as squared shifts, sampling rates and counts; all other mechanisms as epsilons and counts."""
    # Counts start from the integer 0, so none is rounded before the end.
    normal: dict[tuple[float, float], float] = collections.defaultdict(int)
    pure: dict[float, float] = collections.defaultdict(int)
    for records, runs in groups:
        for record in records:
            terms = kind_of(record).terms(record)
            for times, rate, square in ((1, 1.0, terms.squares), *terms.sampled):
                if square:
                    normal[square, rate] += times * runs
            for times, loss in terms.losses:
                if loss:
                    pure[loss] += times * runs
    squares, rates = (np.array([key[n] for key in normal], np.float64) for n in (0, 1))
    return squares, rates, np.array([*normal.values()], np.float64), list(pure.items())


def _gaussian_epsilons(mu: Floats, deltas: Floats) -> Floats:
    """Compute an upper bound on the epsilon of each Gaussian mechanism at its delta (Balle and Wang 2018, theorem 8).

    Args:
        mu: shifts, in standard deviations.
        deltas: a row for each way to split delta, with a column for each mechanism.
    """
    from dp_pipelines.accounting.dominating_pairs import normal_law

    if not deltas.size:
        return deltas
    # Row by row where NumPy and scipy round by the length of an array: a row has the bits that it has alone.
    logs = np.array([np.log(row) for row in deltas])
    low: Floats = np.zeros_like(deltas)
    high: Floats = mu * (mu / 2 + np.sqrt(-2 * logs) + 1)
    for _ in range(60):
        middle = (low + high) / 2
        away = middle / mu
        above, below = mu / 2 - away, -mu / 2 - away
        tails = np.empty_like(deltas)
        for place, row in enumerate(middle):
            under_p, log_under_q = normal_law(above[place], below[place])
            tails[place] = under_p - np.exp(row + log_under_q)
        enough = tails <= deltas
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _renyi(groups: Sequence[tuple[tuple[MechanismRecord, ...], int]], delta: float) -> tuple[float, float | None]:
    """Return the smallest epsilon over the grid of orders, and its order.

    Equal records are merged and counted, because in a plan of many runs most of them are equal.
    """
    gaussian: list[tuple[tuple[MechanismRecord, ...], int]] = []
    others: collections.Counter[MechanismRecord] = collections.Counter()
    for record, runs in ((record, runs) for records, runs in groups for record in records):
        terms = kind_of(record).terms(record)
        if terms == Terms(squares=terms.squares):
            gaussian.append(((record,), runs))
        else:
            others[_unnamed(record)] += runs
    # The divergence of Gaussian noise is proportional to its square, so all of it counts as one.
    squares, _, normal, _ = _losses(gaussian)
    together = _total(normal * squares)
    best, best_order, left = math.inf, None, delta - _failure(groups)
    for order in ORDERS:
        parts = [renyi.divergence([record], order) * runs for record, runs in others.items()]
        added = math.fsum([divergences.gaussian(together, order), *parts]) * divergences.UP
        epsilon = renyi.to_epsilon(added, order, left)
        if epsilon < best:
            best, best_order = epsilon, order
    return best, best_order


def _failure(groups: Sequence[tuple[tuple[MechanismRecord, ...], int]]) -> float:
    failures = ((kind_of(record).failures(record), runs) for records, runs in groups for record in records)
    return math.fsum(runs * delta * times for (delta, times), runs in failures)
