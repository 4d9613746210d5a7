"""From tables of events to one row per privacy unit with its number of partitions, as input for a histogram of units.

In: tables of events. Out: tables with the unit's columns under their own names, the number, and the constant column by which
the histogram is partitioned. Holds: see `kernels.partitions_per_unit`; NOT private: for `PrivateAggregate`, which keeps one row
of a unit whatever comes. One shuffle.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.auto_bounds import partition_bound
from dp_pipelines.kernels import partitions_per_unit, shard
from dp_pipelines.kernels.columns.long_text import apart
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.plan_stages import one_partition
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.transforms.aggregate import ToShards


def layout_of(query: Query) -> Layout:
    """What is counted: different partitions of a unit, listed ones where they are public, up to the largest candidate."""
    public = query.partitions.keys if isinstance(query.partitions, PublicPartitions) else None
    return Layout(
        units=query.unit_columns,
        partitions=query.partition_columns,
        max_partitions=query.bounds.max_partitions,
        public=None if public is None else tuple(zip(*public, strict=True)),
    )


@dataclasses.dataclass
class PartitionsOfUnits(beam.PTransform):
    """Count the partitions of each unit.

    Args:
        query: whose bound on partitions is to be chosen.
        num_shards, salt: as for `PrivateAggregate`.
    """

    query: Query
    num_shards: int
    salt: int

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection[pa.Table]) -> beam.PCollection[pa.Table]:
        """Shard, bound, count."""
        layout = layout_of(self.query)
        return (
            pcoll
            | "ToShards"
            >> beam.ParDo(ToShards(layout, self.num_shards, self.salt)).with_output_types(tuple[int, pa.Table])
            | "ByShard" >> beam.GroupByKey()
            | "Count" >> beam.ParDo(_Count(layout, self.salt)).with_output_types(pa.Table)
        )


class _Count(beam.DoFn):
    def __init__(self, layout: Layout, salt: int) -> None:
        super().__init__()
        self._layout, self._salt = layout, salt

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        rows, _ = apart(element[1])
        found = partitions_per_unit.partitions_of_units(shard.joined(rows), self._layout, self._salt)
        units = found.select(self._layout.unit_names).rename_columns(list(self._layout.units))
        yield one_partition.of(units).append_column(partition_bound.COLUMN, found.column("partitions"))
