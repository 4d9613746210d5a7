"""Rows as one stage sees them: without partitions that are already released, with values scaled by their own bounds.

In: tables of rows, with the columns of a public table where bounds differ by partition. Out: the same rows without those of
released partitions (selection in rounds), or with a column for each scale. Holds: each row is judged and scaled by itself and
public or released facts; a null is a value like others; the rows and their order stay. Not covered: bounding, which clamps
scaled numbers like those of any column; released numbers (`release.rescale`).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.metrics.lookup_bound import PartitionScale
from dp_pipelines.steps.step import Step


class WithoutPartitions(Step):
    """Drop the rows of some partitions.

    Args:
        released: the partitions, under the names of the rows' columns and with their plain types.
    """

    def __init__(self, released: pa.Table) -> None:
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


class ScaleValues(Step):
    """Add the scaled column of each scale.

    Args:
        scales: the distinct scales.
    """

    def __init__(self, scales: Sequence[PartitionScale]) -> None:
        self._scales = tuple(dict.fromkeys(scales))

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same table with more columns."""
        for scale in self._scales:
            element = element.append_column(scale.name, scale.scaled(element))
        yield element
