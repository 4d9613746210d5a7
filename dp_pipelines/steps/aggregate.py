"""The two shuffles of a stage: contributions to the shard of their unit, partial aggregates to the place of their partition.

In: tables of events. Out: partial tables of merged totals, grouped by partition. Holds: all rows of a unit meet in one
shard and all partials of a partition in one place; elements stay below `sizes.ELEMENT_BYTES`, unless a single row is
larger; the text of a long partition key arrives wherever its digest does, once for each batch, and then for each shard.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dp_pipelines.kernels import accumulate, contributions, shard, sizes
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.kernels.columns.long_text import Texts, apart, restored, with_texts
from dp_pipelines.kernels.keys import one_array
from dp_pipelines.kernels.lattice import Flags
from dp_pipelines.kernels.layout import LARGEST_BATCH, Layout
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.steps import row_bytes
from dp_pipelines.steps.step import GatheringStep, GroupStep, Sharded, Step, plain_bytes

SMALL = 2**16
"""Tables of fewer rows are put together, as those of a source of many files are."""


class ToShards(GatheringStep):
    """Cut tables of events into wire tables by the shard of their unit; each table is bounded first if that pays."""

    def __init__(self, layout: Layout, shards: int, salt: int) -> None:
        super().__init__(sizes.gathered_bytes(shards))
        self._layout, self._shards, self._salt = layout, shards, salt

    def bytes_of(self, table: pa.Table) -> int:
        """What it takes now, or as a wire table: one column may be clamped in many ways."""
        return max(plain_bytes(table), int(table.num_rows) * row_bytes.of_wire(self._layout, table.schema))

    def compute(self, element: list[pa.Table]) -> list[Sharded]:
        """Wire tables, each with its shard. Shard 0 always gets one, so that types are known even without rows."""
        alike: dict[pa.Schema, list[contributions.Hashed]] = {}
        texts: Texts = {}
        for table in _together(element):
            for part in self._parts(table, texts):
                alike.setdefault(part.wire.schema, []).append(part)
        cut: list[Sharded] = []
        # Tables of different types stay apart: where it matters, the shard as a whole shows the difference.
        for parts in alike.values():
            cut.append((0, shard.compact(parts[0].wire.slice(0, 0), spare=0)))
            whole = contributions.together(parts)
            cut += shard.slices(
                whole.wire, self._layout.unit_names, self._salt, self._shards, whole.hashes, whole.travels
            )
        return list(with_texts(cut, self._layout.text_names, texts))

    def _parts(self, table: pa.Table, texts: Texts) -> Iterator[contributions.Hashed]:
        """The wire form of a table of events, with the rows of frequent units reduced. Works without rows too."""
        for begin in range(0, max(table.num_rows, 1), LARGEST_BATCH):
            wire = self._layout.wire(table.slice(begin, LARGEST_BATCH), texts)
            yield from contributions.reduce_frequent(wire, self._layout, self._salt)


def _together(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, small tables of one schema as one: to bring a table to its shards costs a while, however few rows it has."""
    waiting: dict[pa.Schema, list[pa.Table]] = {}
    for table in tables:
        if table.num_rows >= SMALL:
            yield table
            continue
        held = waiting.setdefault(table.schema, [])
        held.append(table)
        if sum(one.num_rows for one in held) >= SMALL:
            yield pa.concat_tables(waiting.pop(table.schema))
    for held in waiting.values():
        yield pa.concat_tables(held)


class BoundedWire(Step):
    """The kept rows of a shard, as a wire table with whole partition keys."""

    def __init__(self, layout: Layout, salt: int) -> None:
        self._layout, self._salt = layout, salt

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """One table with the kept contributions of a shard's units."""
        rows, texts = apart(element[1])
        wire = shard.joined(rows)
        kept = gather.take_rows(wire, contributions.bound(wire, self._layout, self._salt).bounded.rows)
        texts |= self._layout.listed_texts()
        for name in self._layout.partition_names:
            kept = kept.set_column(kept.schema.get_field_index(name), name, restored(kept.column(name), texts))
        yield kept


class ToPartials(GroupStep):
    """The partial aggregates of a shard, cut by the place of their partition.

    Public partitions travel as their index in the list, and indices are dealt to places in turn; those of a `KeyFile` travel as
    they are, and each place has some of its buckets.
    """

    def __init__(self, stage: StagePlan, places: int, salt: int) -> None:
        self._stage, self._places, self._salt = stage, places, salt

    def compute(self, element: tuple[int, list[pa.Table]]) -> list[Sharded]:
        """Partial tables of one shard, each with its place. Shard 0 sends every place one, so types are known without rows."""
        layout = self._stage.layout
        rows, texts = apart(element[1])
        above = [[layout.partitions.index(name) for name in level.layout.partitions] for level in self._stage.coarser]
        counts = self._in_listed_groups if isinstance(layout.public, KeyFile) and above else None
        finest, *coarser = accumulate.partials_of_levels(
            shard.joined(rows), layout, self._stage.statistics, self._salt, above, counts
        )
        cut = (
            self._by_bucket(finest, layout.public, first=element[0] == 0)
            if isinstance(layout.public, KeyFile)
            else self._dealt(finest, layout, texts, first=element[0] == 0)
        )
        for level, (stage, partial) in enumerate(zip(self._stage.coarser, coarser, strict=True), 1):
            # The places of a level come behind those of the levels before it.
            dealt = self._dealt(partial, stage.layout, texts, first=element[0] == 0)
            cut += [(level * self._places + place, piece) for place, piece in dealt]
        return cut

    def _in_listed_groups(self, leaves: pa.Table) -> Flags:
        """Which partitions are in a listed group of the level next above: those of a `KeyFile` that count in the levels above.

        Others, which its filter let through, would be in the total and in none of the groups that must add up to it.
        """
        above = self._stage.coarser[-1].layout
        names = [f"p{self._stage.layout.partitions.index(name)}" for name in above.partitions] or ["p0"]
        places, listed = above.public_places(leaves.select(names).rename_columns(above.partition_names))
        found: Flags = places < listed
        return found

    def _dealt(self, partial: pa.Table, layout: Layout, texts: Texts, *, first: bool) -> list[Sharded]:
        """The partial aggregates of one level, each with its place."""
        if layout.public is not None:
            partial = accumulate.by_public_index(partial, layout)
            numbers = partial.column("p0").to_numpy() % self._places
            dealt = ((place, gather.filter_rows(partial, numbers == place)) for place in range(self._places))
            return [(place, piece) for place, rows in dealt for piece in shard.pieces(rows)]
        cut = shard.slices(partial, layout.partition_names, self._salt, self._places)
        return [*self._types(partial, first=first), *with_texts(cut, layout.text_names, texts)]

    def _by_bucket(self, partial: pa.Table, listed: KeyFile, *, first: bool) -> list[Sharded]:
        """Partial tables with whole keys, each with the place of its buckets of the list."""
        names = self._stage.layout.partition_names
        hashes = listed.hashes([one_array(partial.column(name)) for name in names])
        cut = shard.slices(partial, names, self._salt, self._places, listed.dealt(hashes))
        return [*self._types(partial, first=first), *cut]

    def _types(self, partial: pa.Table, *, first: bool) -> list[Sharded]:
        """The columns alone, for every place, out of the first shard."""
        return [(place, partial.slice(0, 0)) for place in range(self._places)] if first else []
