"""From which size of a group on private selection publishes it: half of the time, and one time in a thousand.

In: a calibrated stage. Out: numbers of units, words. Holds: they follow from the plan alone, so that they say nothing of the
rows; they are those of selection itself (`selection`). Not covered: which groups a table has, which `dp-pipelines check` shows.
"""

import dataclasses
import math
from typing import Any

from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.selection import truncated_geometric

RARELY = 0.001
"""The chance below which a group does not appear in practice."""


@dataclasses.dataclass(frozen=True)
class AppearingSizes:
    """From which size on groups appear.

    Args:
        half: units of a group that appears half of the time.
        rarely: units of a group that appears one time in a thousand.
    """

    half: int
    rarely: int

    @property
    def words(self) -> str:
        """Return both sizes in words.

        >>> AppearingSizes(67, 40).words
        'half of the groups of 67 users appear, one in a thousand of 40'
        """
        return f"half of the groups of {self.half:,} users appear, one in a thousand of {self.rarely:,}"

    def to_json(self) -> dict[str, Any]:
        """Return the sizes as JSON values."""
        return {"half": self.half, "thousandth": self.rarely, "words": self.words}

    def warning(self, expected: float | None) -> dict[str, Any] | None:
        """Return a warning where a group as the job expects it will seldom appear, else None.

        Args:
            expected: users of a typical group; None where the job says nothing.
        """
        if expected is None or expected >= self.half:
            return None
        often = "almost none" if expected < self.rarely else "less than half"
        words = (
            f"of groups of {expected:,.0f} users, as expect declares them, {often} will appear; use larger groups (fewer "
            "columns in partition_by, longer windows), more budget, or a public list"
        )
        return {"expected": expected, "words": words}


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
