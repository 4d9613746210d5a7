"""Group privacy: the guarantee of a plan for several privacy units together, such as a household of four customers.

In: the records of a plan, the guarantee for one unit, the size of a group. Out: an (epsilon, delta) for the group. Holds: all
rows of the group's units may be added or removed together, and the answer is never below the truth. Not covered: units whose
rows depend on each other without being removed together.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from dp_pipelines import checks
from dp_pipelines.accounting.accountant import epsilon_of_rounds, tables_delta
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of

LARGEST_GROUP = 1000

USELESS_DELTA = 0.01
"""From here on, a group's delta is not shown as a guarantee."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupGuarantee:
    """The guarantee for a group of units.

    Args:
        units: the size of the group.
        epsilon: for the group.
        delta: for the group, at most 1. At 1, nothing is guaranteed.
        scaled: whether the sensitivity of every record was scaled, which is exact for noise; else the group's guarantee
            follows from that of one unit.
    """

    units: int
    epsilon: float
    delta: float
    scaled: bool

    @property
    def useful(self) -> bool:
        """Return True if epsilon is finite and delta small enough for a reader to use the guarantee."""
        return math.isfinite(self.epsilon) and self.delta < USELESS_DELTA

    def to_json(self) -> dict[str, int | float | None]:
        """Return the guarantee as `plan --json` shows it; an infinite epsilon is null."""
        return {
            "units": self.units,
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
        }


def group_guarantee(
    rounds: Iterable[tuple[Sequence[MechanismRecord], int]], *, units: int, epsilon: float, delta: float
) -> GroupGuarantee:
    """Compute the guarantee for a group of units from the guarantee for one.

    If all records are noise added to integers, a group of k units changes these by at most k times as much as one unit (the
    triangle inequality), so scaled records give the group's epsilon at the same delta. Otherwise the group gets
    (k epsilon, delta (1 + exp(epsilon) + ... + exp((k - 1) epsilon))): Vadhan 2017, lemma 2.2, with the sum left as it is
    (docs/proofs/accounting.md, 12).

    Args:
        rounds: lists of records, each with its number of runs.
        units: the size of the group, from 1 to 1000.
        epsilon: what all runs together cost one unit, at `delta`.
        delta: of all runs together.

    Raises:
        RequestError: the size is out of its range.

    >>> from fractions import Fraction
    >>> record = MechanismRecord(stage="s", name="rows", kind="gaussian", scale=Fraction(4096), l2_squared=1024**2, l0=1)
    >>> group = group_guarantee([([record], 1)], units=4, epsilon=1.0, delta=1e-6)
    >>> round(group.epsilon, 3), group.delta, group.scaled
    (4.887, 1e-06, True)
    >>> decision = MechanismRecord(stage="s", name="keys", kind="delta", delta=1e-7)
    >>> group = group_guarantee([([record, decision], 1)], units=4, epsilon=1.0, delta=1e-6)
    >>> round(group.epsilon, 6), round(group.delta, 7), group.scaled
    (4.0, 3.12e-05, False)
    """
    units = checks.whole(units, "group", low=1, high=LARGEST_GROUP)
    listed = [(tuple(records), runs) for records, runs in rounds]
    scaled = [([_for_group(record, units) for record in records], runs) for records, runs in listed]
    if all(record is not None for records, _ in scaled for record in records):
        noise = [([record for record in records if record is not None], runs) for records, runs in scaled]
        # A group changes more integers, each of which adds the error of a noise table to delta.
        least = sum(tables_delta(records, runs=runs, epsilon=units * epsilon) for records, runs in noise)
        delta = max(delta, 1.01 * least)  # just above, so that an epsilon is found
        return GroupGuarantee(units=units, epsilon=epsilon_of_rounds(noise, delta), delta=delta, scaled=True)
    with_up = 1 + 2.0**-40  # outweighs what the operations below round down
    exponent = (units - 1) * epsilon
    if exponent > 700:
        total = 1.0
    else:
        total = delta * math.fsum(math.exp(n * epsilon) for n in range(units)) * with_up
    return GroupGuarantee(units=units, epsilon=units * epsilon * with_up, delta=min(1.0, total), scaled=False)


def _for_group(record: MechanismRecord, units: int) -> MechanismRecord | None:
    """Return the record of the same noise if a group changes the integers; None if its kind has no such record.

    A group may have units in all disjoint groups of a plan, so the record counts for everybody.
    """
    changes = kind_of(record).changes_of_group(record, units)
    return None if changes is None else dataclasses.replace(record, **changes, group=None)
