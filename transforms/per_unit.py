"""From tables of events to one row per privacy unit, with its number of partitions or with what is counted of it once.

In: tables of events. Out: tables with the unit's columns under their own names, a number or a vector, and the constant column by
which what follows is partitioned; or the noisy sum of units' vectors. Holds: see `kernels.partitions_per_unit` and
`kernels.unit_facts`; the rows made here are NOT private: what releases them keeps one row of a unit, or clips its sum, whatever
comes.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dp_pipelines.auto_bounds import partition_bound
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import accumulate, partitions_per_unit, shard, sizes, unit_facts, vectors
from dp_pipelines.kernels.columns.long_text import Texts, apart
from dp_pipelines.kernels.contributions import Hashed
from dp_pipelines.kernels.layout import LARGEST_BATCH, Layout
from dp_pipelines.plan_stages import kept_counts, one_partition
from dp_pipelines.plan_stages.kept_counts import KeptCounts
from dp_pipelines.plan_stages.reads import UnitFacts
from dp_pipelines.planning import resolve
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query import kept
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.release import kept_shares
from dp_pipelines.transforms.aggregate import Sharded, ToShards
from dp_pipelines.transforms.prefetch import AheadDoFn, GatheringDoFn
from dp_pipelines.transforms.private_aggregate import AttemptOfARun, PrivateAggregate, check_input, drawn


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


@dataclasses.dataclass
class UnitsToShards(beam.PTransform):
    """Bring to one shard what `kept` says of a unit: how many rows it has, those that the bounds may keep, and facts of one row.

    Args:
        query: with `kept`, and with all bounds as numbers.
        num_shards, salt: as for `PrivateAggregate`.

    Input: two PCollections: tables that `kernels.unit_facts.facts_of_rows` makes of rows, before any of them is filtered, and the
    rows that the stage sees. Output: tables with the shard of their units, for `UnitsOfAPlan` and `UnitsOfARun`.
    """

    query: Query
    num_shards: int
    salt: int

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, pcolls: tuple[beam.PCollection[pa.Table], beam.PCollection[pa.Table]]
    ) -> beam.PCollection[Sharded]:
        """Reduce each batch, then cut it by the shard of its units."""
        facts, rows = pcolls
        first = _FirstToShards(len(self.query.unit_columns), self.num_shards, self.salt)
        counted = _CountedToShards.of(self.query, self.num_shards, self.salt)
        both = (
            facts | "Facts" >> beam.ParDo(first).with_output_types(Sharded),
            rows | "Rows" >> beam.ParDo(counted).with_output_types(Sharded),
        )
        return both | "Both" >> beam.Flatten()


class _CountedToShards(ToShards):
    """As `ToShards`, of rows that say for how many rows they stand."""

    def __init__(
        self, layout: Layout, shards: int, salt: int, row_columns: tuple[str, ...], *, bounds_rows: bool
    ) -> None:
        super().__init__(layout, shards, salt)
        self._row_columns, self._bounds_rows = row_columns, bounds_rows

    @classmethod
    def of(cls, query: Query, shards: int, salt: int) -> "_CountedToShards":
        """Those of a query."""
        layout = kept_counts.layout_of(query, query.metrics)
        # Where no value is compared, no row is looked at, and none need be told apart.
        read = query.columns if layout.cells else ()
        told_apart = (query.row_id,) if query.row_id else read
        return cls(layout, shards, salt, told_apart, bounds_rows=query.bounds.bounds_rows)

    def _parts(self, table: pa.Table, texts: Texts) -> Iterator[Hashed]:
        """The wire form; no key is published, so no text travels."""
        for begin in range(0, max(table.num_rows, 1), LARGEST_BATCH):
            part = table.slice(begin, LARGEST_BATCH)
            wire = unit_facts.wire_of(part, self._layout, self._row_columns, self._salt, bounds_rows=self._bounds_rows)
            yield from unit_facts.reduce_frequent(wire, self._layout, self._salt)


class _FirstToShards(GatheringDoFn):
    """Cut facts by the shard of their unit, one row of each unit of a batch."""

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


class UnitsToPartials(AheadDoFn):
    """The partial aggregates of a shard's units: the sum of their vectors, each clipped as one.

    Args:
        query: with `kept`, and with all bounds as numbers.
        stage: that releases the sum.
        salt: as for `PrivateAggregate`.
    """

    def __init__(self, query: Query, stage: StagePlan, salt: int) -> None:
        super().__init__()
        self._query, self._stage, self._salt = query, stage, salt

    def load(self, element: tuple[int, Iterable[pa.Table]]) -> tuple[int, list[pa.Table]]:
        """The tables of a shard."""
        return element[0], list(element[1])

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


@dataclasses.dataclass
class UnitsOfAPlan(PrivateAggregate):
    """Release the sum of the vectors of units that `UnitsToShards` has brought together.

    Args:
        stage, num_shards, salt: as for `PrivateAggregate`.
        query: with `kept`, and with all bounds as numbers.
    """

    query: Query | None = None
    made_of_units = True

    def _wired(
        self, pcoll: beam.PCollection[Any], steps: Mapping[str, beam.ParDo], count: int
    ) -> beam.PCollection[pa.Table]:
        return _of_units(pcoll, self, self.query, steps, count)


@dataclasses.dataclass
class UnitsOfARun(AttemptOfARun):
    """The same as `UnitsOfAPlan`, for one attempt of a run: see `AttemptOfARun`."""

    query: Query | None = None
    made_of_units = True

    def _wired(
        self, pcoll: beam.PCollection[Any], steps: Mapping[str, beam.ParDo], count: int
    ) -> beam.PCollection[pa.Table]:
        return _of_units(pcoll, self, self.query, steps, count)


def _of_units(
    pcoll: beam.PCollection[Any],
    release: PrivateAggregate,
    query: Query | None,
    steps: Mapping[str, beam.ParDo],
    count: int,
) -> beam.PCollection[pa.Table]:
    assert query is not None
    assert release.salt is not None
    partials = beam.ParDo(UnitsToPartials(query, release.stage, release.salt)).with_output_types(Sharded)
    return drawn(pcoll | "ByShard" >> beam.GroupByKey() | "ToPartials" >> partials, steps, count)


@dataclasses.dataclass
class KeptShares(beam.PTransform):
    """Release what the bounds of a stage cut off, beside the stage itself.

    Args:
        of: the stage, whose query has `kept`: `plan["name"]`.
        kept: the stage that pays for it: `plan["name.kept"]`.
        num_shards, salt: as for `PrivateAggregate`.

    Input: as for `PrivateAggregate`. Output: a PCollection of one text: JSON with the shares and their standard deviations,
    as a stage has in the `kept.json` of a job (`release.kept_shares`).

    >>> from dp_pipelines import *
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()}, kept=Kept(share=0.1),
    ...               bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1))
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
    >>> rows = pa.table({"customer": range(1000), "region": ["north", "south"] * 500})
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     events = pipeline | beam.Create([rows]).with_output_types(pa.Table)
    ...     shares = events | KeptShares(plan["weekly"], plan["weekly.kept"])
    """

    of: StagePlan
    kept: StagePlan
    num_shards: int = 32
    salt: int | None = None

    def __post_init__(self) -> None:
        super().__init__()
        if not self._of_one_plan():
            message = "must be the stage of the same plan that says what the bounds of the other one cut off"
            raise RequestError(field="kept", message=message, hint='write KeptShares(plan["name"], plan["name.kept"])')
        if resolve.is_open(self.of):
            message = "has bounds that another pipeline must release first"
            hint = "run it with `dp-pipelines run`, or write the bounds as numbers"
            raise RequestError(field=f"stage {self.of.name!r}", message=message, hint=hint)
        self._release = UnitsOfAPlan(self.kept, num_shards=self.num_shards, salt=self.salt, query=self.of.query)

    def _of_one_plan(self) -> bool:
        if not (isinstance(self.of, StagePlan) and isinstance(self.kept, StagePlan)):
            return False
        plans = {None if stage.payment is None else stage.payment.plan for stage in (self.of, self.kept)}
        return self.kept.reads == UnitFacts(of=self.of.name) and len(plans) == 1

    def expand(self, pcoll: beam.PCollection[pa.Table]) -> beam.PCollection[str]:
        """One vector of each unit, one noisy sum, shares."""
        check_input(pcoll)
        query, salt = self.of.query, self._release.salt
        assert salt is not None
        facts = pcoll | "Facts" >> beam.ParDo(_FactsOfTables(query, salt)).with_output_types(pa.Table)
        units = (facts, pcoll) | "Units" >> UnitsToShards(query, self.num_shards, salt)
        return (
            units | "Release" >> self._release | "Shares" >> beam.Map(_shares, query, self.kept).with_output_types(str)
        )


def _shares(table: pa.Table, query: Query, stage: StagePlan) -> str:
    noisy = np.array(table.column(kept_counts.UNITS).to_pylist()[0], np.float64)
    return json.dumps(kept_shares.of_stage(noisy, stage, query, query.metrics))


class _FactsOfTables(beam.DoFn):
    """Which columns are not null, row by row; whatever filtered the rows before is not known here."""

    def __init__(self, query: Query, salt: int) -> None:
        super().__init__()
        self._query, self._salt = query, salt

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        rows = element.select(list(self._query.columns))
        hashes = unit_facts.row_hashes(rows, rows.column_names, self._salt)
        facts = unit_facts.not_null(rows, KeptCounts.of(self._query).columns)
        yield unit_facts.facts_of_rows(rows, self._query.unit_columns, hashes, facts)
