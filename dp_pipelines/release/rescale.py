"""From scaled numbers to values: each partition's released numbers times its own clamp, where bounds differ by partition.

In: a released table and a public table of bounds, joined by the partition's key. Out: the same table in units of the columns.
Holds: post-processing: a released number is multiplied and moved by public numbers of its own partition. Not covered: how
values were scaled before they were bounded (`metrics.lookup_bound`).
"""

import pyarrow as pa

from dp_pipelines.metrics.lookup_bound import Join
from dp_pipelines.query.query import Query


def in_values(table: pa.Table, query: Query, join: Join | None) -> pa.Table:
    """Return the table with values and standard deviations in units of the columns.

    Args:
        table: released rows.
        query: the query.
        join: adds the columns of the public table; None where no bound differs by partition.
    """
    scaled = {name: metric for name, metric in query.metrics.items() if metric.scale is not None}
    if not scaled or join is None or not table.num_rows:
        return table
    # The keys alone: a metric may have the name of one of the public table's columns.
    joined = join(table.select(query.partition_columns))
    for name, metric in scaled.items():
        assert metric.scale is not None
        ends = metric.scale.ends(joined)
        names = metric.published(name)
        for columns in zip(names[::2], names[1::2], strict=True):
            values, stddevs = (table.column(column).to_numpy() for column in columns)
            for column, numbers in zip(columns, metric.unscaled((values, stddevs), *ends), strict=True):
                table = table.set_column(table.column_names.index(column), column, pa.array(numbers))
    return table
