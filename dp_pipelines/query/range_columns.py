"""Names of the columns with estimates and ranges, for stages that release how much their limits cut off.

In: a query. Out: names of columns, by metric. Holds: they follow from the query alone, so that they are known before a row is
read; no other column of the stage has their names, in capitals or not. Not covered: their numbers (`release.ranges`).
"""

import pyarrow as pa

from dp_pipelines.query.query import Query

ENDS = ("estimate", "low", "high")
"""The columns of a metric: an estimate of its true number, and both ends of its range."""


def range_columns(query: Query) -> dict[str, tuple[str, str, str]]:
    """Return the columns of each metric that has some: estimate, low and high.

    Args:
        query: of a stage.

    Returns:
        nothing without `kept`; a metric one of whose columns another column has the name of is left out.

    >>> from dp_pipelines import ContributionBounds, Count, Kept, Query
    >>> query = Query(privacy_unit="customer", partition_by="region", kept=Kept(share=0.02),
    ...               bounds=ContributionBounds(max_contributions=4), metrics={"orders": Count()})
    >>> range_columns(query)
    {'orders': ('orders_estimate', 'orders_low', 'orders_high')}
    """
    if query.kept is None:
        return {}
    taken = {column.casefold() for column in query.published_keys}
    taken |= {column.casefold() for name in query.metrics for column in query.released_columns(name)}
    named = {name: (f"{name}_estimate", f"{name}_low", f"{name}_high") for name in query.metrics}
    return {name: columns for name, columns in named.items() if not taken & {column.casefold() for column in columns}}


def range_fields(query: Query) -> list[pa.Field]:
    """Return the fields of these columns, in the order in which they follow the other columns of a table."""
    return [pa.field(column, pa.float64()) for columns in range_columns(query).values() for column in columns]
