"""Removes the rows of partitions that are already released from the input of the next selection round.

In: tables of events, released partitions. Out: the tables without rows of those. Holds: each row is judged by its own
partition; a null is a value like others.
"""

from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather


class WithoutPartitions(beam.DoFn):
    """Drop the rows of some partitions.

    Args:
        released: the partitions, under the names of the rows' columns and with their plain types.
    """

    def __init__(self, released: pa.Table) -> None:
        super().__init__()
        self._released = released

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The rows of other partitions."""
        length = self._released.num_rows
        if length == 0 or element.num_rows == 0:
            yield element
            return
        both = []
        for name in self._released.column_names:
            # Digests of long keys on both sides: the rows' texts, each in its row, might be too many bytes.
            mine = keys.plain(keys.encoded(element.column(name)))
            listed = keys.comparable(self._released.column(name))
            # What was released came from such a column, so it fits back; a row need not fit what Parquet made of it.
            null = pa.types.is_null(mine.type)
            both.append(gather.joined([listed, mine.cast(listed.type)] if null else [listed.cast(mine.type), mine]))
        codes = keys.dense(both).codes
        released = np.isin(codes[length:], codes[:length])
        yield gather.filter_rows(element, ~released)
