"""Privacy accountant: the (epsilon, delta) that mechanism records cost together, never below the truth.

In: the records of one run and the number of runs, or several lists of records, each with its number of runs. Out: the
epsilon for a delta, or the delta for an epsilon, of everything together. Holds: everything the records describe, run
`runs` times, is (epsilon, delta)-DP when one privacy unit is added or removed, including the error of the samplers'
tables and of floating point (docs/proofs/accounting.md). It also holds if a mechanism is chosen after seeing earlier
results, as long as the records were fixed beforehand. Not covered: whether the records are true (the privacy tests
check that), and other plans over the same people (see the ledger).
"""

# Groups. A record with a `group` reads the units of that group and no others. Whatever the data, a unit is in one group
# of a plan, so the most expensive group decides: every result is the largest over the groups, each taken together with
# the records that read all units (docs/proofs/accounting.md, lemma 7). Records with the same group name belong to the
# same group in all runs and rounds.

import collections
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dp_pipelines import checks
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of

if TYPE_CHECKING:
    from dp_pipelines.accounting.composition import Composition

Rounds = list[tuple[tuple[MechanismRecord, ...], int]]
"""Records, and how often they run together."""

ACCURACY = 3e-5
"""The relative accuracy we aim at for an epsilon; docs/proofs/accounting.md, 5, gives the measurements."""

TABLES_ERROR = 2.0**-100
"""The largest total variation distance between a draw and its law (docs/proofs/noise.md)."""

MOST_RUNS = 10**9

LARGEST_EPSILON = 40.0
"""If a larger epsilon is asked for, noise from tables is held to this one: beyond it, a unit could show in the ends of
a table."""


def loss_distribution(mechanisms: Iterable[MechanismRecord], *, runs: int = 1) -> "Composition":
    """Return the composition of all records of all runs as dominating pairs. Equal pairs are counted, all Gaussians become one.

    Groups are ignored: this is what a unit in all of them would cost. `record_kinds` says which pairs a record stands
        for.

    Raises:
        RequestError: `runs` is not a number of runs.
    """
    return _composed([(tuple(mechanisms), checks.whole(runs, "runs", low=1, high=MOST_RUNS))])


def epsilon_of(
    mechanisms: Iterable[MechanismRecord], delta: float, *, runs: int = 1, accuracy: float = ACCURACY
) -> float:
    """Compute the epsilon that all runs of all records cost together at a delta; infinite if no epsilon is enough.

    Args:
        mechanisms: the records of one run.
        delta: of everything together, from 0 to below 1. As long as noise is drawn from tables, 0 is never enough; the
            least is what `tables_delta` gives.
        runs: how often they run.
        accuracy: how far above the truth the answer may be, as a relative error.

    Raises:
        RequestError: an argument is out of its range.

    >>> record = MechanismRecord(stage="s", name="rows", kind="gaussian", scale=Fraction(4096), l2_squared=1024**2, l0=1)
    >>> round(epsilon_of([record], 1e-6, runs=12), 4)
    4.1518
    """
    return epsilon_of_rounds([(tuple(mechanisms), runs)], delta, accuracy=accuracy)


def epsilon_of_rounds(
    rounds: Iterable[tuple[Sequence[MechanismRecord], int]], delta: float, *, accuracy: float = ACCURACY
) -> float:
    """Compute the epsilon of runs that differ. Otherwise like `epsilon_of`.

    Raises:
        RequestError: an argument is out of its range.

    >>> record = MechanismRecord(stage="s", name="rows", kind="gaussian", scale=Fraction(4096), l2_squared=1024**2, l0=1)
    >>> round(epsilon_of_rounds([([record], 4), ([record], 8)], 1e-6), 4)
    4.1518
    """
    kept = [(tuple(records), checks.whole(runs, "runs", low=1, high=MOST_RUNS)) for records, runs in rounds]
    delta = _from_zero(delta, "delta", 1.0)
    return max(_epsilon(of_one, delta, accuracy) for of_one in by_group(kept))


def _epsilon(kept: Rounds, delta: float, accuracy: float) -> float:
    """Compute `epsilon_of_rounds` for the records that one unit meets."""
    draws = sum(runs * record.draws for records, runs in kept for record in records)
    composed = _composed(kept)
    least = composed.epsilon(delta * (1 - 1e-12), accuracy)
    if _tables(draws, least) <= delta * 1e-12:
        return least
    # The tables matter: an epsilon up to a limit is enough if it is enough with the delta that the tables leave at the
    #     limit.
    for slack in (1.0, 1.000001, 1.001, 1.1):
        limit = least * slack
        left = delta - _tables(draws, limit)
        if left >= 0 and composed.epsilon(left, accuracy) <= limit:
            return limit
    return math.inf


def epsilon_of_groups(
    shared: Iterable[MechanismRecord],
    groups: Iterable[Iterable[MechanismRecord]],
    delta: float,
    *,
    runs: int = 1,
    accuracy: float = ACCURACY,
) -> float:
    """Compute the epsilon at a delta when units are in disjoint groups and each group has mechanisms that read only its units.

    A unit belongs to one group, whatever the data of other units. It meets the shared mechanisms and those of its
    group, so the most expensive group decides (docs/proofs/accounting.md, lemma 7).

    Args:
        shared: the records of one run of the mechanisms that read all units. A `group` of their own is respected too.
        groups: for each group, the records of one run of the mechanisms that read its units and no others.
        delta: as for `epsilon_of`.
        runs: how often everything runs, with the same groups.
        accuracy: as for `epsilon_of`.

    Raises:
        RequestError: an argument is out of its range.

    >>> record = MechanismRecord(stage="s", name="rows", kind="gaussian", scale=Fraction(4096), l2_squared=1024**2, l0=1)
    >>> epsilon_of_groups([record], [[record], [record], []], 1e-6) == epsilon_of([record, record], 1e-6)
    True
    """
    common = tuple(shared)
    each = [(*common, *group) for group in groups] or [common]
    return max(epsilon_of(records, delta, runs=runs, accuracy=accuracy) for records in each)


def delta_of(
    mechanisms: Iterable[MechanismRecord], epsilon: float, *, runs: int = 1, accuracy: float = ACCURACY
) -> float:
    """Compute the delta, at most 1, that all runs of all records cost together at an epsilon.

    Args:
        mechanisms: the records of one run.
        epsilon: of everything together, from 0.
        runs: how often they run.
        accuracy: the answer may belong to an epsilon that is above `epsilon` by this relative error.

    Raises:
        RequestError: an argument is out of its range.

    >>> record = MechanismRecord(stage="s", name="threshold", kind="delta", delta=0.25)
    >>> round(delta_of([record], 1.0, runs=2), 6)
    0.4375
    """
    epsilon, largest = _from_zero(epsilon, "epsilon", math.inf), 0.0
    for ((records, times),) in by_group([(tuple(mechanisms), checks.whole(runs, "runs", low=1, high=MOST_RUNS))]):
        draws = times * sum(record.draws for record in records)
        # What holds at a smaller epsilon also holds at a larger one, where the tables would cost more.
        at = min(epsilon, LARGEST_EPSILON) if draws else epsilon
        largest = max(largest, loss_distribution(records, runs=times).delta(at, accuracy) + _tables(draws, at))
    return min(1.0, largest)


def tables_delta(mechanisms: Iterable[MechanismRecord], *, runs: int = 1, epsilon: float) -> float:
    """Compute how much delta the samplers' tables add: (1 + exp(epsilon)) * draws that one unit can change * 2^-100.

    Beyond `LARGEST_EPSILON` it stays constant: a plan with that delta is held to that epsilon.

    Raises:
        RequestError: `epsilon` is out of its range.

    >>> tables_delta([MechanismRecord(stage="s", name="threshold", kind="delta", delta=0.1)], epsilon=1.0)
    0.0
    """
    draws = runs * max(
        sum(record.draws for record in records) for ((records, _),) in by_group([(tuple(mechanisms), 1)])
    )
    return _tables(draws, min(_from_zero(epsilon, "epsilon", math.inf), LARGEST_EPSILON))


def pure_epsilon_of(mechanisms: Iterable[MechanismRecord], *, runs: int = 1) -> Fraction | None:
    """Compute the exact epsilon of all runs of all records at delta 0 with ideal noise; None if there is none.

    >>> records = [MechanismRecord(stage="s", name=n, kind="bounded_range", epsilon=0.5, l0=1, group=n) for n in ("a", "b")]
    >>> pure_epsilon_of(records, runs=2)
    Fraction(1, 1)
    """
    largest = Fraction(0)
    for ((records, _),) in by_group([(tuple(mechanisms), 1)]):
        each = [record.pure_epsilon for record in records]
        exact = [epsilon for epsilon in each if epsilon is not None]
        if len(exact) < len(each):
            return None
        largest = max(largest, sum(exact, Fraction(0)))
    return runs * largest


def by_group(rounds: Iterable[tuple[Sequence[MechanismRecord], int]]) -> list[Rounds]:
    """Return for each group the rounds of one of its units: the records that read all units and those of the group.

    >>> all_of_it, young = (MechanismRecord(stage="s", name="n", kind="delta", delta=0.1, group=g) for g in (None, "young"))
    >>> [len(records) for ((records, runs),) in by_group([([all_of_it, young], 1)])], by_group([([all_of_it], 2)])[0][0][1]
    ([2], 2)
    """
    listed = [(tuple(records), runs) for records, runs in rounds]
    groups = {record.group: None for records, _ in listed for record in records if record.group is not None}
    if not groups:
        return [listed]
    return [
        [(tuple(r for r in records if r.group in (None, name)), runs) for records, runs in listed] for name in groups
    ]


def _tables(draws: int, epsilon: float) -> float:
    return draws * (1 + math.exp(min(epsilon, 700.0))) * TABLES_ERROR


def _composed(rounds: Iterable[tuple[Sequence[MechanismRecord], int]]) -> "Composition":
    from dp_pipelines.accounting import composition, dominating_pairs

    squares: list[float] = []
    bounded: collections.Counter[dominating_pairs.BoundedLoss] = collections.Counter()
    samples: collections.Counter[dominating_pairs.Pair] = collections.Counter()
    log_not_failed: list[float] = []
    for record, runs in ((record, runs) for records, runs in rounds for record in records):
        kind = kind_of(record)
        loss, (delta, failures) = kind.loss(record), kind.failures(record)
        squares.append(runs * loss.square)
        log_not_failed.append(failures * runs * math.log1p(-delta))
        for pair, times in loss.pairs:
            if isinstance(pair, dominating_pairs.BoundedLoss):
                bounded[pair] += times * runs
            else:
                samples[pair] += times * runs
    up = 1 + 2.0**-50  # outweighs what the operations below round down
    return composition.Composition(
        mu=math.sqrt(math.fsum(squares)) * up,
        bounded=dict(bounded),
        sampled=dict(samples),
        failure=min(1.0, -math.expm1(math.fsum(log_not_failed)) * up),
    )


def _from_zero(value: float, field: str, below: float) -> float:
    if value == 0 and not isinstance(value, bool):
        return 0.0
    return checks.number(value, field, above=0, below=below)
