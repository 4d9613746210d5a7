"""The largest partitions of a released table: post-processing of what is released.

In: a released table, `Query.top`. Out: its rows with the largest noisy values. Holds: only noisy numbers and released keys
decide, so it costs nothing; ties go by key. Not covered: the partitions that selection did not keep.
"""

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels.columns import gather
from dp_pipelines.query.query import Query
from dp_pipelines.release.staging import sorted_by_key


def largest(table: pa.Table, query: Query) -> pa.Table:
    """Return the rows that `query.top` keeps, in the order of their keys; all of them where it is None.

    Args:
        table: released rows of all partitions.
        query: the query.
    """
    ordered = sorted_by_key(table, query.partition_columns)
    if query.top is None or ordered.num_rows <= query.top.k:
        return ordered
    # A stable sort of the rows in the order of their keys: which of two equal ones stays, the keys say.
    first = pc.sort_indices(ordered, sort_keys=[(query.top.by, "descending")])
    first_k = pc.sort_indices(first[: query.top.k])
    return sorted_by_key(gather.take_rows(ordered, gather.take(first[: query.top.k], first_k)), query.partition_columns)
