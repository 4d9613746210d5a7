"""Rows in groups of partitions: the query over them, and the column by which it is partitioned.

In: a privacy unit and metrics; a table. Out: the query whose public partitions are the groups, a unit having so many rows in all
of them together; the table with the group of each row's partition. Holds: all rows of a partition are in one group, and the group
of a row is a function of that row and the salt alone. Not covered: even groups, since a hash spreads partitions and not rows; the
name of the column, which `dp_pipelines.auto_bounds.value_bounds` keeps, since queries refuse it as a column of their own.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dp_pipelines.auto_bounds.value_bounds import COLUMN
from dp_pipelines.kernels import shard
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.metrics.base import Metric
from dp_pipelines.query.query import ContributionBounds, PublicPartitions, Query

GROUPS = 8
"""More groups would tell better how partitions differ, but each has the whole noise. 4, 6, 8 and 16 were tried."""

NAMES = tuple(f"{COLUMN}{number}" for number in range(GROUPS))


def query(
    privacy_unit: str | Sequence[str], metrics: Mapping[str, Metric], *, rows: int, row_id: str | None = None
) -> Query:
    """Metrics over each group; of a unit there are at most so many rows in all groups together.

    >>> from dp_pipelines.metrics.histogram import Histogram
    >>> query("customer", {"prices": Histogram("price", edges=[0, 1, 10])}, rows=4).bounds.max_rows
    4
    """
    return Query(
        privacy_unit=privacy_unit,
        partition_by=COLUMN,
        bounds=ContributionBounds(max_contributions=rows),
        metrics=metrics,
        partitions=PublicPartitions(keys=[(name,) for name in NAMES]),
        row_id=row_id,
    )


def of(table: pa.Table, layout: Layout, columns: Sequence[str], salt: int) -> pa.Table:
    """Some columns of the rows, and the group of each row's partition.

    >>> rows = pa.table({"customer": [7, 8, 9], "shop": ["a", "b", "a"]})
    >>> layout = Layout(units=("customer",), partitions=("shop",), max_partitions=1)
    >>> found = of(rows, layout, ["customer"], salt=1)
    >>> found.column_names, found["_all"][0] == found["_all"][2]
    (['customer', '_all'], True)
    """
    numbers = shard.shard_numbers(list(layout.wire_keys(table).values()), salt, GROUPS)
    named = pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(NAMES, pa.string()))
    return table.select(list(columns)).append_column(COLUMN, gather.decoded(named))
