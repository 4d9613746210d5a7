"""All rows as one partition: the query, and the constant column by which it is partitioned.

In: a privacy unit and metrics; a table. Out: the query whose one public partition has every row; the table with that
partition's column. Holds: nothing about partitions is taken from rows. Not covered: the name of the column, which
`dp_pipelines.auto_bounds.value_bounds` keeps, since queries refuse it as a column of their own.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dp_pipelines.auto_bounds.value_bounds import COLUMN
from dp_pipelines.metrics.base import Metric
from dp_pipelines.query.query import ContributionBounds, PublicPartitions, Query


def query(
    privacy_unit: str | Sequence[str],
    metrics: Mapping[str, Metric],
    *,
    rows: int = 1,
    row_id: str | None = None,
    group: str | None = None,
) -> Query:
    """Metrics over all rows, of which each unit has at most so many.

    >>> from dp_pipelines import PrivacyIdCount
    >>> query("customer", {"users": PrivacyIdCount()}).partition_columns
    ('_all',)
    """
    return Query(
        privacy_unit=privacy_unit,
        partition_by=COLUMN,
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=rows),
        metrics=metrics,
        partitions=PublicPartitions(keys=[(COLUMN,)]),
        row_id=row_id,
        group=group,
    )


def of(table: pa.Table) -> pa.Table:
    """The rows with the constant column, in place of one of that name.

    >>> of(pa.table({"customer": [7, 8]})).column_names
    ['customer', '_all']
    """
    rows = table.select([name for name in table.column_names if name != COLUMN])
    return rows.append_column(COLUMN, pa.array([COLUMN] * table.num_rows, pa.string()))


def for_stage(table: pa.Table, partitions: Sequence[str]) -> pa.Table:
    """The rows as a stage with these partition columns reads them: with the constant column, where it is the only one.

    >>> for_stage(pa.table({"customer": [7]}), ["week"]).column_names
    ['customer']
    """
    return of(table) if tuple(partitions) == (COLUMN,) else table
