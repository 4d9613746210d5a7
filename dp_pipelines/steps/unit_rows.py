"""From tables of events to one row per privacy unit, with its number of partitions or with what is counted of it once.

In: tables of events. Out: tables with the unit's columns under their own names, a number or a vector, and the constant column by
which what follows is partitioned; or the sum of units' vectors. Holds: see `kernels.partitions_per_unit` and
`kernels.unit_facts`; the rows made here are NOT private: what releases them keeps one row of a unit, or clips its sum, whatever
comes.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.auto_bounds import joint_bounds, partition_bound
from dp_pipelines.kernels import accumulate, partitions_per_unit, shard, sizes, unit_facts, vectors
from dp_pipelines.kernels.columns.long_text import Texts, apart
from dp_pipelines.kernels.contributions import Hashed
from dp_pipelines.kernels.layout import LARGEST_BATCH, Layout
from dp_pipelines.kernels.unit_facts import UnitCells
from dp_pipelines.plan_stages import kept_counts, one_partition
from dp_pipelines.plan_stages.kept_counts import KeptCounts
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query import kept
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.steps.aggregate import ToShards
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.release_stage import StageSteps, drawn, places_of
from dp_pipelines.steps.step import GatheringStep, GroupStep, Sharded, Step


def layout_of(query: Query) -> Layout:
    """What is counted of a unit: its distinct partitions (only listed ones if they are public), up to the largest candidate.

    If the bound on rows is open, also the rows in one of them.
    """
    return Layout(
        units=query.unit_columns,
        partitions=query.partition_columns,
        summands=((joint_bounds.COLUMN, partitions_per_unit.ONE),) if query.bounds.auto_rows else (),
        max_partitions=query.bounds.max_partitions,
        public=query.partitions.columns if isinstance(query.partitions, PublicPartitions) else None,
        other=query.other_column is not None,
    )


def partitions_of_units(tables: Flow, query: Query, num_shards: int, salt: int) -> Flow:
    """Count the partitions of each unit.

    Args:
        tables: of events.
        query: the query whose bound on partitions is to be chosen.
        num_shards, salt: as for `release_stage.released`.
    """
    layout = layout_of(query)
    if query.bounds.row_candidates is None:
        counted, most = tables, None
    else:
        counted, most = tables.each("Ones", Ones()), joint_bounds.most_rows(query.bounds.row_candidates)
    return (
        counted.each("ToShards", ToShards(layout, num_shards, salt))
        .by_key("ByShard")
        .each("Count", CountPartitions(layout, salt, most))
    )


class Ones(Step):
    """A column of ones, whose sum is the number of rows."""

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The table with it."""
        # Another stage may read a column of that name; this one does not, or its query would be refused.
        rows = element.select([name for name in element.column_names if name != joint_bounds.COLUMN])
        yield rows.append_column(joint_bounds.COLUMN, pa.array(np.ones(element.num_rows, np.int8)))


class CountPartitions(Step):
    """One row for each unit of a shard, with the number of its partitions, and of its rows in one of them if these are counted.

    Args:
        layout, salt: as for `partitions_per_unit.partitions_of_units`.
        most_rows: the most rows that are told apart; None if they are not counted.
    """

    def __init__(self, layout: Layout, salt: int, most_rows: int | None = None) -> None:
        self._layout, self._salt, self._most_rows = layout, salt, most_rows

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """One table."""
        rows, _ = apart(element[1])
        found = partitions_per_unit.partitions_of_units(shard.joined(rows), self._layout, self._salt)
        units = found.select(self._layout.unit_names).rename_columns(list(self._layout.units))
        counted = one_partition.of(units).append_column(partition_bound.COLUMN, found.column("partitions"))
        if self._most_rows is not None:
            rows = pc.min_element_wise(found.column("rows"), pa.scalar(self._most_rows, pa.int64()))
            counted = counted.append_column(joint_bounds.COLUMN, rows)
        yield counted


def units_to_shards(facts: Flow, rows: Flow, query: Query, num_shards: int, salt: int) -> Flow:
    """Bring to one shard what `kept` says of a unit: how many rows it has, those that the bounds may keep, and facts of one row.

    Args:
        facts: tables that `kernels.unit_facts.facts_of_rows` makes of rows, before any of them is filtered.
        rows: that the stage sees.
        query: with `kept`, and with all bounds as numbers.
        num_shards, salt: as for `release_stage.released`.

    Returns:
        tables with the shard of their units, for `units_released`.
    """
    first = FirstToShards(len(query.unit_columns), num_shards, salt)
    counted = CountedToShards.of(query, num_shards, salt)
    return facts.each("Facts", first).with_others("Both", rows.each("Rows", counted))


def units_released(units: Flow, query: Query, stage: StagePlan, num_shards: int, salt: int) -> Flow:
    """Release the sum of the vectors of units.

    Args:
        units: what `units_to_shards` has brought together.
        query: with `kept`, and with all bounds as numbers.
        stage: what is released.
        num_shards, salt: as for `release_stage.released`.
    """
    count = places_of(stage, num_shards)
    partials = units.by_key("ByShard").each("ToPartials", UnitsToPartials(query, stage, salt))
    return drawn(partials, StageSteps.of(stage, num_shards, salt, count), count)


class CountedToShards(ToShards):
    """Like `ToShards`, for rows that each stand for a stated number of rows."""

    def __init__(
        self,
        layout: Layout,
        shards: int,
        salt: int,
        row_columns: tuple[str, ...],
        cells: UnitCells,
        *,
        bounds_rows: bool,
    ) -> None:
        super().__init__(layout, shards, salt)
        self._row_columns, self._cells, self._bounds_rows = row_columns, cells, bounds_rows

    @classmethod
    def of(cls, query: Query, shards: int, salt: int) -> "CountedToShards":
        """Those of a query."""
        layout = kept_counts.layout_of(query, query.metrics)
        # If no value is compared, no row is looked at, and rows need not be told apart.
        read = query.columns if layout.cells else ()
        told_apart = (query.row_id,) if query.row_id else read
        cells = KeptCounts.of(query).cells
        return cls(layout, shards, salt, told_apart, cells, bounds_rows=query.bounds.bounds_rows)

    def _parts(self, table: pa.Table, texts: Texts) -> Iterator[Hashed]:
        """The wire form; no key is published, so no text travels."""
        for begin in range(0, max(table.num_rows, 1), LARGEST_BATCH):
            part = table.slice(begin, LARGEST_BATCH)
            wire = unit_facts.wire_of(part, self._layout, self._row_columns, self._salt, bounds_rows=self._bounds_rows)
            yield from unit_facts.reduce_frequent(wire, self._layout, self._salt, self._cells)


class FirstToShards(GatheringStep):
    """Cut facts by the shard of their unit, with one row for each unit of a batch."""

    def __init__(self, units: int, shards: int, salt: int) -> None:
        super().__init__(sizes.gathered_bytes(shards))
        self._names, self._shards, self._salt = [f"u{i}" for i in range(units)], shards, salt

    def compute(self, element: list[pa.Table]) -> list[Sharded]:
        """Rows of some tables, each with its shard; shard 0 also learns the types, were there no rows."""
        alike: dict[pa.Schema, list[pa.Table]] = {}
        for table in element:
            alike.setdefault(table.schema, []).append(unit_facts.first_rows(table))
        cut: list[Sharded] = []
        for tables in alike.values():
            first = unit_facts.first_rows(shard.joined(tables))
            cut.append((0, first.slice(0, 0)))
            cut += shard.slices(first, self._names, self._salt, self._shards)
        return cut


class UnitsToPartials(GroupStep):
    """The partial aggregates of a shard's units: the sum of their vectors, each clipped as one.

    Args:
        query: with `kept`, and with all bounds as numbers.
        stage: the stage that releases the sum.
        salt: as for `PrivateAggregate`.
    """

    def __init__(self, query: Query, stage: StagePlan, salt: int) -> None:
        self._query, self._stage, self._salt = query, stage, salt

    def compute(self, element: tuple[int, list[pa.Table]]) -> list[Sharded]:
        """One partial table, for the place of the one partition."""
        layout = self._stage.layout
        wires = [layout.wire(rows) for rows in self.rows(element[1])]
        if not wires:
            return []
        partial = accumulate.partials(shard.joined(wires), layout, self._stage.statistics, self._salt)
        return [(0, accumulate.by_public_index(partial, layout))]

    def rows(self, tables: list[pa.Table]) -> Iterator[pa.Table]:
        """What the stage reads of a shard's units: of each one row with its facts, and one with what the bounds keep of it."""
        cells = KeptCounts.of(self._query).cells
        facts = [table for table in tables if unit_facts.HASH in table.column_names]
        if facts:
            first = unit_facts.first_rows(shard.joined(facts))
            units = first.select([f"u{i}" for i in range(len(self._query.unit_columns))])
            yield self._row(units, unit_facts.vectors_of_facts(first, cells))
        counted, _ = apart(table for table in tables if unit_facts.HASH not in table.column_names)
        if counted:
            layout, bounds_rows = (
                kept_counts.layout_of(self._query, self._query.metrics),
                self._query.bounds.bounds_rows,
            )
            yield self._row(
                *unit_facts.kept_of_units(shard.joined(counted), layout, cells, self._salt, bounds_rows=bounds_rows)
            )

    def _row(self, units: pa.Table, counted: unit_facts.Vectors) -> pa.Table:
        named = units.rename_columns(list(self._query.unit_columns))
        return one_partition.of(named).append_column(kept.COLUMN, vectors.listed(counted))


class FactsOfTables(Step):
    """Which columns are not null, row by row. Filters that came before are unknown here."""

    def __init__(self, query: Query, salt: int) -> None:
        self._query, self._salt = query, salt

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The facts of one table."""
        rows = element.select(list(self._query.columns))
        hashes = unit_facts.row_hashes(rows, rows.column_names, self._salt)
        facts = unit_facts.not_null(rows, KeptCounts.of(self._query).columns)
        yield unit_facts.facts_of_rows(rows, self._query.unit_columns, hashes, facts)
