"""Evaluates all configurations of a grid in one pass: rows by unit, pairs by partition, errors into one table. NOT private.

In: tables of events. Out: a Parquet file with sums of errors (`tally`). Holds: two shuffles of data for any number of
configurations, columns and metrics, as a release has; nothing but the one small table leaves, and it is written into a private
folder. Not covered: privacy; nothing here is a release.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from dp_pipelines.extensions.tune import pairs, tally
from dp_pipelines.extensions.tune.configuration import Configuration
from dp_pipelines.kernels import shard
from dp_pipelines.kernels.layout import LARGEST_BATCH, Layout
from dp_pipelines.release import staging
from dp_pipelines.steps import unbounded_rows
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import AheadStep, Sharded, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tallied:
    """What is tallied.

    Args:
        layout: units, partitions and the public list, if there is one.
        columns: numbers that metrics read.
        configurations: all of them.
        path: the Parquet file to write; its folder exists and is private. An existing file is kept.
        num_shards: the number of groups into which units and partitions are cut. It changes no result.
        salt: a 64-bit number that evens the load.
    """

    layout: Layout
    columns: Sequence[str]
    configurations: Sequence[Configuration]
    path: str
    num_shards: int
    salt: int


def errors_tallied(tables: Flow, of: Tallied) -> Flow:
    """Predict the errors of all configurations from the raw rows, and write their sums. NOT private.

    Args:
        tables: of events.
        of: what is tallied.

    Returns:
        the path.
    """
    of_places = (
        tables.each("ToShards", _ToShards(of))
        .by_key("ByShard")
        .each("ToPlaces", _ToPlaces(of))
        .by_key("ByPlace")
        .each("Tally", _Tally(of))
    )
    # Without rows there would be nothing to gather.
    nothing = tables.known("Nothing", [(0, tally.nothing())], Sharded)
    return of_places.with_others("WithNothing", nothing).by_key("Gather").each("Write", _Write(of))


class _ToShards(AheadStep):
    """Cut a table of events by the shard of its units; nothing is bounded."""

    def __init__(self, of: Tallied) -> None:
        self._layout, self._columns, self._shards, self._salt = of.layout, of.columns, of.num_shards, of.salt

    def compute(self, element: pa.Table) -> list[Sharded]:
        cut: list[Sharded] = []
        for begin in range(0, element.num_rows, LARGEST_BATCH):
            rows = unbounded_rows.wire_rows(element.slice(begin, LARGEST_BATCH), self._layout, self._columns)
            cut += shard.slices(rows, self._layout.unit_names, self._salt, self._shards)
        return cut


class _ToPlaces(AheadStep):
    """The pairs of a shard, cut by the place of their partition."""

    def __init__(self, of: Tallied) -> None:
        self._layout, self._columns, self._places, self._salt = of.layout, len(of.columns), of.num_shards, of.salt

    def load(self, element: tuple[int, Iterable[pa.Table]]) -> list[pa.Table]:
        return list(element[1])

    def compute(self, element: list[pa.Table]) -> list[Sharded]:
        found = pairs.of_units(shard.joined(element), self._layout, self._columns)
        return list(shard.slices(found, self._layout.partition_names, self._salt, self._places))


class _Tally(Step):
    """The sums of the partitions of a place."""

    gives = Sharded

    def __init__(self, of: Tallied) -> None:
        self._layout, self._columns, self._configurations = of.layout, of.columns, of.configurations

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
        most = tally.partitions_at_a_time(
            *tally.candidates(self._configurations), len(tally.variables(self._configurations))
        )
        some = pairs.of_partitions(list(element[1]), self._layout, self._columns, most)
        yield 0, tally.merged(tally.tally(each, self._configurations) for each in some)


class _Write(Step):
    """The sums of all places, including public partitions without rows."""

    gives = str

    def __init__(self, of: Tallied) -> None:
        self._path, self._configurations, self._columns = of.path, of.configurations, of.columns
        self._listed = of.layout.listed

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        found = tally.merged(element[1])
        empty = max(self._listed - tally.partitions_of(found), 0)
        whole = tally.merged([found, tally.empty_partitions(self._configurations, self._columns, empty)])
        staging.write_release(whole, self._path, tally.KEYS)
        yield self._path
