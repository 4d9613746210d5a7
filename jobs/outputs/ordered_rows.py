"""Rows of a published table in the order of the job, for text files that people read.

In: a published Parquet file and the entry of its stage in the manifest. Out: a Parquet file with the same rows in the order
of `order_by` or `top`. Holds: the order follows from released numbers alone; what is published as Parquet stays sorted by
key. Not covered: rollups, whose levels stay together, and tables too large for memory: they stay sorted by key.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.release import shown_rows

MOST_ROWS, MOST_BYTES = 1_000_000, 256 << 20
"""Tables with more rows, or larger ones, stay sorted by key."""


def in_order_of_job(table: pathlib.Path, stage: Mapping[str, Any], to: pathlib.Path) -> pathlib.Path:
    """Return a file with the rows of a table in the order of the job.

    Args:
        table: the published Parquet file.
        stage: the entry of its stage in the manifest.
        to: where the file is written, if the order is another one than that of the table.

    Returns:
        `to`, or the table itself where it has that order already, or is too large.
    """
    order = shown_rows.order_of(stage)
    if not order:
        return table
    with pa.parquet.ParquetFile(table) as file:
        if file.metadata.num_rows > MOST_ROWS or not {one.column for one in order} <= {*file.schema_arrow.names}:
            return table
        rows = file.read()
    if rows.nbytes > MOST_BYTES:
        return table
    keys = [name for name in stage.get("partition_by") or () if name in rows.column_names]
    try:
        places = shown_rows.in_order(rows, order, keys)
    except pa.ArrowException:  # lists have no order
        return table
    pa.parquet.write_table(rows.take(pa.array(places)), to)
    return to
