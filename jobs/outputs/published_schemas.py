"""The columns of every table that a job publishes, known before a row is read.

In: the queries of the stages, the schemas of their rows. Out: an Arrow schema for each published table. Holds: they are those of
the Parquet files, whatever the rows are. Not covered: models, which are no tables.
"""

from collections.abc import Collection, Mapping

import pyarrow as pa

from dp_pipelines.query.compare import METRIC, number_columns
from dp_pipelines.query.query import Query
from dp_pipelines.query.range_columns import range_fields
from dp_pipelines.query.released_schema import released_schema
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.report.compare_text import FILE as COMPARISON


def published_schemas(
    queries: Mapping[str, Query], schemas: Mapping[str, pa.Schema], with_rest: Collection[str] = ()
) -> dict[str, pa.Schema]:
    """The columns of every published table, by its name, without those that are computed from released numbers.

    Args:
        queries: by stage.
        schemas: of the rows of each stage.
        with_rest: the stages with levels of which some of the finest partitions are not shown, but in a rest.

    >>> from dp_pipelines import *
    >>> bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()}, bounds=bounds)
    >>> found = published_schemas({"weekly": query}, {"weekly": pa.schema([("region", pa.string())])})
    >>> found["weekly"].names
    ['region', 'orders', 'orders_stddev']
    """
    found = {}
    for name, query in queries.items():
        found[name] = released = released_schema(query, schemas[name])
        if name in with_rest and REST not in released.names:
            place = 1 + max(released.get_field_index(column) for column in (LEVEL, *query.partition_columns))
            found[name] = released.insert(place, pa.field(REST, pa.bool_()))
        for field in range_fields(query):
            found[name] = found[name].append(field)
        if query.compare is not None:
            numbers = [(column, pa.float64()) for column in number_columns(query.compare.intervals)]
            by = released.field(query.compare.by)
            found[f"{name}.{COMPARISON}"] = pa.schema([by, pa.field(METRIC, pa.string()), *numbers])
    return found
