"""The privacy unit that is one row, for tables in which each row is a person and no column identifies them.

In: the columns of a privacy unit. Out: whether rows are the unit, and the bounds that follow. Holds: a row is in one group, once,
so that bounds of 1 cut nothing off and no draw decides which rows count. Not covered: stages that choose or split units by a hash
(training, sample and aggregate): the number of a row depends on the rows before it, so that removing one would move others.
"""

from collections.abc import Sequence

from dp_pipelines.query.contribution_bounds import ContributionBounds

ROW_UNIT = "(row)"
"""The column with the number of a row. Readers add it; no expression, group or metric of a job can name it."""

ROW = "row"
"""The name of this unit in manifests."""

ONE_ROW = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
"""The contribution bounds of one row."""


def is_row_unit(columns: Sequence[str]) -> bool:
    """Return True if the privacy unit is one row.

    >>> is_row_unit(["(row)"]), is_row_unit(["customer"])
    (True, False)
    """
    return list(columns) == [ROW_UNIT]
