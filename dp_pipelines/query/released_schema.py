"""The columns of a stage's released table, known before a row is read.

In: a query, the types of its partition columns. Out: an Arrow schema. Holds: partition columns have their plain types, as they
are published; every other number is a double. Not covered: which rows are released.
"""

import pyarrow as pa

from dp_pipelines.kernels import keys
from dp_pipelines.query.best import RANK
from dp_pipelines.query.query import Query
from dp_pipelines.query.rollup import LEVEL, REST


def released_schema(query: Query, available: pa.Schema) -> pa.Schema:
    """Return the columns of a stage's released table: partition columns, a rank, then the columns of each metric.

    Args:
        query: of the stage.
        available: the columns of its rows, of which those that partition are looked up.

    >>> from dp_pipelines import *
    >>> bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()}, bounds=bounds)
    >>> released_schema(query, pa.schema([("region", pa.string())])).names
    ['region', 'orders', 'orders_stddev']
    """
    fields = [(column, keys.plain_type(available.field(column).type)) for column in query.partition_by]
    fields += [(column, pa.bool_()) for column in query.partition_columns[len(fields) :]]
    if query.best is not None:
        fields.append((RANK, pa.int64()))
    if query.rollup is not None:
        fields.insert(0, (LEVEL, pa.int64()))
        fields += [(REST, pa.bool_())] if REST in query.published_keys else []
    for name, metric in query.metrics.items():
        kind = pa.list_(pa.float64()) if metric.many else pa.float64()
        fields += [(column, kind) for column in query.released_columns(name)]
    return pa.schema(fields)
