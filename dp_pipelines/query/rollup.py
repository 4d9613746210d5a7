"""Rollups: levels of a stage whose published numbers add up, such as the total, regions, regions by week.

In: lists of partition columns, each a part of the next. Out: a frozen declaration, and what one level is. Holds: nothing here
depends on data: shares follow from the number of levels, fan-outs from a public list. Not covered: which query a level becomes
(`plan_stages.rollup_levels`), and how numbers are made to add up (`release.consistent`).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Annotated

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.sensitivity import Shape

LEVEL, REST = "level", "rest"
"""Columns that a rollup adds: the level's number, from 0, and True for the remainder that published siblings leave."""

STATISTICS, SELECTED = "/statistics", "/selected"
"""Internal columns of a level: its noisy statistics, and the selected groups."""

GROWTH = 4
"""By default, a level has so many times the share of the one above it: half of its noise at the same sensitivity."""

MOST_LEVELS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rollup:
    """Levels of partitions whose published numbers add up exactly: contributions are bounded once, in the finest partitions.

    Args:
        levels: lists of columns of `partition_by`, from coarse to fine, each a part of the next; the last is `partition_by`
            itself, and an empty one the total.
        shares: of the stage's budget, a number above 0 for each level. Left out, each level has four times the share of the one
            above it.

    >>> Rollup(levels=[[], ["region"], ["region", "week"]]).weights
    (0.047619047619047616, 0.19047619047619047, 0.7619047619047619)
    """

    levels: Sequence[Sequence[str]]
    shares: Sequence[Annotated[float, checks.Real(above=0, below=1e6)]] | None = None

    def __post_init__(self) -> None:
        hint = "write e.g. rollup: [[], [region], [region, week]]"
        if isinstance(self.levels, str) or not isinstance(self.levels, Sequence):
            raise RequestError(field="rollup", message="must list levels, each a list of columns", hint=hint)
        if any(isinstance(level, str) or not isinstance(level, Sequence) for level in self.levels):
            raise RequestError(field="rollup", message="must list levels, each a list of columns", hint=hint)
        levels = tuple(checks.names(list(level), "rollup") if level else () for level in self.levels)
        if not 2 <= len(levels) <= MOST_LEVELS:
            message = f"must list from 2 to {MOST_LEVELS} levels, from coarse to fine"
            raise RequestError(field="rollup", message=message, hint=hint)
        for number, (level, finer) in enumerate(itertools.pairwise(levels)):
            if not set(level) < set(finer):
                raise RequestError(
                    field=f"rollup[{number}]",
                    message=f"is no chain: {_said(level)} is not a part of the next level, {_said(finer)}",
                    hint="order the levels from coarse to fine, each with the columns of the one before and more",
                )
        object.__setattr__(self, "levels", levels)
        if self.shares is None:
            return
        if isinstance(self.shares, str) or not isinstance(self.shares, Sequence) or len(self.shares) != len(levels):
            message = f"must list one number for each of the {len(levels)} levels"
            raise RequestError(field="rollup.shares", message=message, hint="or leave it out")
        given = (checks.number(share, "rollup.shares", above=0, below=1e6) for share in self.shares)
        object.__setattr__(self, "shares", tuple(given))

    @property
    def weights(self) -> tuple[float, ...]:
        """Return the part of the stage's budget of each level, from coarse to fine."""
        shares = self.shares or [float(GROWTH**number) for number in range(len(self.levels))]
        whole = math.fsum(shares)
        return tuple(share / whole for share in shares)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RollupLevel:
    """One level of a rollup, as planning sees it.

    Args:
        number: from 0, the coarsest.
        most_leaves: finest partitions in one of its groups, at most, by a public list; None where they are private.
        groups: how many groups a public list has there; None where they are private.
        leaves: whether it is the finest, in which contributions are bounded.
    """

    number: int
    most_leaves: int | None = None
    groups: int | None = None
    leaves: bool = False

    def shape(self, finest: Shape, *, adds_up: bool) -> Shape:
        """Return how far one unit moves a statistic on this level (docs/proofs/rollup.md, lemma 1).

        Args:
            finest: how far it moves the one of the finest level.
            adds_up: whether a group's is the sum of those of its finest partitions; else a unit counts once in each group.
        """
        return finest.in_groups(1 if self.leaves or not adds_up else self.most_leaves, self.groups)


def of(asked: "Rollup | Sequence[Sequence[str]]") -> Rollup:
    """Return the declaration of a rollup; a plain list of levels has the default shares.

    >>> of([[], ["region"]]).levels
    ((), ('region',))
    """
    return asked if isinstance(asked, Rollup) else Rollup(levels=asked)


def _said(level: Sequence[str]) -> str:
    return f"[{', '.join(level)}]"
