"""The declaration of `kept`: a share of a stage's budget for released figures on the rows that the bounds cut off.

In: a share and, where declared, the number of rows at which the cells end. Out: a frozen declaration. Holds: nothing here depends
on data. Not covered: which counts they are (`plan_stages.kept_counts`) and what is computed from them (`release.kept_shares`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from dp_pipelines import checks
from dp_pipelines.errors import RequestError

COLUMN = "_kept"
"""The column with the counts of a unit."""

MOST_COLUMNS = 1000
"""The most columns of one stage in which nulls are counted."""

LARGEST_END = 2**40
"""The largest number of rows of a unit at which the cells may end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept:
    """Released figures on how much the limits of a stage keep and how sound its rows are, for a share of the stage's budget.

    Released are the share of units that the limits leave whole, an estimate of the share of rows that is counted, and, of one row
    of each unit, how many values lie below, within and above the clamps of each column, how many rows pass `where` and are found
    in the lookup, and how many are not null in each column. Of one row, since nothing bounds how many rows a unit has.

    Args:
        share: of the stage's budget, above 0 and below 1.
        up_to: units with at least so many rows are counted together; 64 times the limit of a unit's rows if left out. It must not
            come from the data.
        each_metric: true measures also which share of people in groups, and of each sum whose range begins or ends at 0, the
            limits keep, so that these and their means have ranges too.
        filters: what decides about rows before the query sees them, of which a job file knows: `where`, `lookup`.
        clamped, summed: the metrics that represent the clamped columns and the measured sums, if a run has chosen their
            bounds since; None: what the metrics say.

    >>> Kept(share=0.02).share
    0.02
    """

    share: Annotated[float, checks.Real(above=0, below=1, hint="write e.g. share: 0.02, or leave kept out")]
    up_to: (
        Annotated[int, checks.Whole(low=2, high=LARGEST_END, hint="leave it out, or write e.g. up_to: 1000")] | None
    ) = None
    each_metric: bool = False
    filters: Sequence[str] = ()
    clamped: tuple[str, ...] | None = None
    summed: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        checks.declared(self, "kept.")
        if not isinstance(self.each_metric, bool):
            hint = "write each_metric: true, or leave it out"
            raise RequestError(field="kept.each_metric", message="must be true or false", hint=hint)
        object.__setattr__(self, "filters", tuple(self.filters))


BESIDE_AUTO = Kept(share=0.08, up_to=4096, each_metric=True)
"""The default of job files in which the run chooses the bound on rows: without it, nobody would learn how much a choice cut
off. With 0.03, a third fewer of 18 tables had a range at epsilon 0.3; 0.08 makes all other noise 2.6% larger."""
