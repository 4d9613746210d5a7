"""Values as numbers that mean the same in every partition, where bounds differ by partition.

In: tables of rows with the columns of a public table. Out: the same rows with a column for each scale. Holds: the number of a
row depends on that row and public numbers alone; the rows and their order stay. Not covered: bounding, which clamps these
numbers like those of any column; released numbers (`release.rescale`).
"""

from collections.abc import Iterator, Sequence

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.metrics.lookup_bound import PartitionScale


class ScaleValues(beam.DoFn):
    """Add the scaled column of each scale.

    Args:
        scales: each once.
    """

    def __init__(self, scales: Sequence[PartitionScale]) -> None:
        super().__init__()
        self._scales = tuple(dict.fromkeys(scales))

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same table with more columns."""
        for scale in self._scales:
            element = element.append_column(scale.name, scale.scaled(element))
        yield element
