"""Evaluates all configurations of a grid in one pass: rows by unit, pairs by partition, errors into one table. NOT private.

In: tables of events. Out: a Parquet file with sums of errors (`tuning.tally`). Holds: two shuffles of data for any number of
configurations, columns and metrics, as a release has; nothing but the one small table leaves, and it is written into a private
folder. Not covered: privacy; nothing here is a release.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.kernels import shard
from dp_pipelines.kernels.layout import LARGEST_BATCH, Layout
from dp_pipelines.release import staging
from dp_pipelines.transforms.aggregate import Sharded
from dp_pipelines.transforms.prefetch import AheadDoFn
from dp_pipelines.transforms.private_aggregate import check_input
from dp_pipelines.tuning import pairs, tally
from dp_pipelines.tuning.configuration import Configuration


@dataclasses.dataclass
class TallyErrors(beam.PTransform):
    """Predict the errors of all configurations from the raw rows, and write their sums. NOT private.

    Args:
        layout: units, partitions and the public list, if there is one.
        columns: numbers that metrics read.
        configurations: all of them.
        path: of the Parquet file; its folder exists and is private. A file that is there already stays.
        num_shards: into how many groups of units and of partitions the data are cut. It changes no result.
        salt: a 64-bit number that evens the load.

    Input: a PCollection of pa.Table, as for `PrivateAggregate`. Output: a PCollection with the path.
    """

    layout: Layout
    columns: Sequence[str]
    configurations: Sequence[Configuration]
    path: str
    num_shards: int
    salt: int

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[str]:
        """Shard, pair, tally, write."""
        check_input(pcoll)
        of_places = (
            pcoll
            | "ToShards" >> beam.ParDo(_ToShards(self)).with_output_types(tuple[int, pa.Table])
            | "ByShard" >> beam.GroupByKey()
            | "ToPlaces" >> beam.ParDo(_ToPlaces(self)).with_output_types(tuple[int, pa.Table])
            | "ByPlace" >> beam.GroupByKey()
            | "Tally" >> beam.ParDo(_Tally(self)).with_output_types(tuple[int, pa.Table])
        )
        # Were there no rows, there would be nothing to gather.
        nothing = pcoll.pipeline | "Nothing" >> beam.Create([(0, tally.nothing())], reshuffle=False).with_output_types(
            tuple[int, pa.Table]
        )
        return (
            (of_places, nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_Write(self)).with_output_types(str)
        )


class _ToShards(AheadDoFn):
    """Cut a table of events by the shard of its units; nothing is bounded."""

    def __init__(self, of: TallyErrors) -> None:
        super().__init__()
        self._layout, self._columns, self._shards, self._salt = of.layout, of.columns, of.num_shards, of.salt

    def compute(self, element: pa.Table) -> list[Sharded]:
        cut: list[Sharded] = []
        for begin in range(0, element.num_rows, LARGEST_BATCH):
            rows = pairs.wire(element.slice(begin, LARGEST_BATCH), self._layout, self._columns)
            cut += shard.slices(rows, self._layout.unit_names, self._salt, self._shards)
        return cut


class _ToPlaces(AheadDoFn):
    """The pairs of a shard, cut by the place of their partition."""

    def __init__(self, of: TallyErrors) -> None:
        super().__init__()
        self._layout, self._columns, self._places, self._salt = of.layout, len(of.columns), of.num_shards, of.salt

    def load(self, element: tuple[int, Iterable[pa.Table]]) -> list[pa.Table]:
        return list(element[1])

    def compute(self, element: list[pa.Table]) -> list[Sharded]:
        found = pairs.of_units(shard.joined(element), self._layout, self._columns)
        return list(shard.slices(found, self._layout.partition_names, self._salt, self._places))


class _Tally(beam.DoFn):
    """The sums of the partitions of a place."""

    def __init__(self, of: TallyErrors) -> None:
        super().__init__()
        self._layout, self._columns, self._configurations = of.layout, of.columns, of.configurations

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
        most = tally.partitions_at_a_time(
            *tally.candidates(self._configurations), len(tally.variables(self._configurations))
        )
        some = pairs.of_partitions(list(element[1]), self._layout, self._columns, most)
        yield 0, tally.merged(tally.tally(each, self._configurations) for each in some)


class _Write(beam.DoFn):
    """The sums of all places, with the public partitions that no row is of."""

    def __init__(self, of: TallyErrors) -> None:
        super().__init__()
        self._path, self._configurations, self._columns = of.path, of.configurations, of.columns
        self._listed = of.layout.listed

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        found = tally.merged(element[1])
        empty = max(self._listed - tally.partitions_of(found), 0)
        whole = tally.merged([found, tally.empty_partitions(self._configurations, self._columns, empty)])
        staging.write_release(whole, self._path, tally.KEYS)
        yield self._path
