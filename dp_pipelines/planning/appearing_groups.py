"""From which size of a group on private selection publishes it: half of the time, and one time in a thousand.

In: a calibrated stage. Out: numbers of units, words. Holds: they follow from the plan alone, so that they say nothing of the
rows; they are those of selection itself (`selection`). Not covered: which groups a table has, which `dp-pipelines check` shows.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from dp_pipelines.planning import resolve
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.selection import truncated_geometric

RARELY = 0.001
"""The chance below which a group does not appear in practice."""

SIZES, BY_BOUND, WARNING = "appear", "appear_by_bound", "mostly_missing"
"""Entries of a stage in `plan --json`: the sizes, those by the bound that a run chooses, a warning about small groups."""


@dataclasses.dataclass(frozen=True)
class AppearingSizes:
    """From which size on groups appear.

    Args:
        half: units of a group that appears half of the time.
        rarely: units of a group that appears one time in a thousand.
    """

    half: int
    rarely: int

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "AppearingSizes":
        """Return the sizes of an entry that `to_json` made."""
        return cls(half=entry["half"], rarely=entry["thousandth"])

    def words(self, units: str = "users") -> str:
        """Return both in words.

        Args:
            units: what several privacy units are called.

        >>> AppearingSizes(67, 40).words("customers")
        'half of the groups of 67 customers appear, one in a thousand of 40'
        """
        return f"half of the groups of {self.half:,} {units} appear, one in a thousand of {self.rarely:,}"

    def to_json(self, units: str = "users") -> dict[str, Any]:
        """Return JSON values. Arguments as for `words`."""
        return {"half": self.half, "thousandth": self.rarely, "words": self.words(units)}

    def warning(self, expected: float | None, units: str = "users") -> dict[str, Any] | None:
        """Return a warning where a group as the job expects it will seldom appear, else None.

        Args:
            expected: privacy units of a typical group; None where the job says nothing.
            units: what several privacy units are called.
        """
        if expected is None or expected >= self.half:
            return None
        often = "almost none" if expected < self.rarely else "less than half"
        words = (
            f"of groups of {expected:,.0f} {units}, as expect declares them, {often} will appear; use larger groups (fewer "
            "columns in partition_by, longer windows), more budget, or a public list"
        )
        return {"expected": expected, "words": words}


def add_to(described: dict[str, Any], stage: StagePlan, expected: float | None) -> None:
    """Add to a stage as `plan --json` shows it from which size on its groups appear, and a warning where few will.

    Where the run chooses the bound on partitions, the sizes are those with the smallest and with the largest bound, and the
    warning is there if few groups appear with either of them.

    Args:
        described: the stage.
        stage: calibrated.
        expected: privacy units of a typical group; None where the job says nothing.
    """
    if (sizes := appearing(stage)) is not None:
        described[SIZES] = sizes.to_json()
    if by_bound := appearing_by_bound(stage):
        described[BY_BOUND] = {str(bound): sizes.to_json() for bound, sizes in by_bound.items()}
    if (best := _best_of(described)) is not None and (warning := best.warning(expected)):
        described[WARNING] = warning


def _best_of(described: Mapping[str, Any]) -> AppearingSizes | None:
    """Return the sizes under the bound with which the smallest groups appear; None if no group is selected by its size.

    Args:
        described: a stage as `plan --json` shows it.
    """
    entries = [described[SIZES]] if SIZES in described else described.get(BY_BOUND, {}).values()
    return min(map(AppearingSizes.from_json, entries), key=lambda sizes: sizes.half, default=None)


def in_units(plan: Mapping[str, Any], units: str) -> dict[str, Any]:
    """Return a plan whose sentences about groups have the name of the privacy unit.

    Args:
        plan: what `plan --json` prints; it is not changed.
        units: what several privacy units are called.

    >>> stage = {"name": "weekly", "appear": AppearingSizes(67, 40).to_json()}
    >>> in_units({"stages": [stage]}, "customers")["stages"][0]["appear"]["words"]
    'half of the groups of 67 customers appear, one in a thousand of 40'
    """
    return {**plan, "stages": [_in_units(stage, units) for stage in plan["stages"]]}


def _in_units(stage: Mapping[str, Any], units: str) -> dict[str, Any]:
    new = dict(stage)
    if SIZES in stage:
        new[SIZES] = AppearingSizes.from_json(stage[SIZES]).to_json(units)
    if BY_BOUND in stage:
        entries = stage[BY_BOUND].items()
        new[BY_BOUND] = {bound: AppearingSizes.from_json(entry).to_json(units) for bound, entry in entries}
    if WARNING in stage and (best := _best_of(stage)) is not None:
        new[WARNING] = best.warning(stage[WARNING]["expected"], units)
    return new


def appearing_by_bound(stage: StagePlan) -> dict[int, AppearingSizes]:
    """Return from which size on groups appear with the smallest and the largest bound on partitions that a run may choose.

    It is empty where the run does not choose this bound, and where no group is selected by its size.

    Args:
        stage: calibrated.
    """
    bounds = stage.query.bounds
    if not bounds.auto_partitions or stage.selection is None:
        return {}
    rows = None if bounds.row_candidates is None else bounds.row_candidates[-1]
    found = {}
    for bound in (bounds.candidates[0], bounds.candidates[-1]):
        if (sizes := appearing(resolve.with_partitions(stage, bound, rows))) is not None:
            found[bound] = sizes
    return found


def appearing(stage: StagePlan) -> AppearingSizes | None:
    """Return from which size groups of a stage appear; None if none is selected by its size, or the run chooses bounds first.

    Args:
        stage: calibrated.
    """
    half, selection = stage.half_keep_users, stage.selection
    if half is None or selection is None or stage.query.bounds.auto_partitions:
        return None
    fewest = max(selection.min_users, 1)
    if selection.noise is None:
        rarely = _coin(selection.epsilon, selection.delta) + fewest - 1
    else:
        # With n units a group is at n / half of the threshold, and noise must add the rest.
        reach = selection.noise.law.smallest_x_with_tail_at_most(RARELY) * math.sqrt(selection.noise.draws)
        share = max(1 - reach / selection.threshold, 0.0) if selection.threshold > 0 else 0.0
        rarely = math.ceil(half * share)
    return AppearingSizes(half=math.ceil(half), rarely=max(min(rarely, math.ceil(half)), fewest))


def _coin(epsilon: float, delta: float) -> int:
    """Return the smallest number of units with which a coin publishes a group one time in a thousand."""
    low, high = 0, truncated_geometric.half_keep_users(epsilon, delta)
    while high - low > 1:
        middle = (low + high) // 2
        if float(truncated_geometric.keep_probability(middle, epsilon, delta)) >= RARELY:
            high = middle
        else:
            low = middle
    return high
