"""Bounding applied to the wire form: a batch before the shuffle, all rows of a shard after it, by the same law.

In: a wire table (kernels.layout). Out: the kept rows, as positions with their partitions, or as a smaller wire table with
the same contributions. Holds: `reduce` then `bound` keeps what `bound` alone keeps; a unit's summands of clipped
sums travel whole.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import distinct, keys, shard, vectors
from dp_pipelines.kernels.bounding import Bounded, Flags, Positions, RowOrder, bound_partitions, bound_rows, hash_pairs
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.hashing import Words
from dp_pipelines.kernels.keys import Codes, Keys
from dp_pipelines.kernels.layout import Layout

FREQUENT = 64
"""A unit with more rows in a batch is bounded before the shuffle. Which units are never changes a result."""

BUCKET_BITS = 18
"""Rows are counted by so many bits of the hash of their unit: hardly a unit with few rows shares them with a frequent unit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contributions:
    """The kept contributions of a wire table.

    Args:
        partitions: dense codes of the partition of every row of the table.
        bounded: which rows are kept.
        pair_hashes: the keyed hash of the unit and partition of every row.
    """

    partitions: Keys
    bounded: Bounded
    pair_hashes: Words


class Hashed(NamedTuple):
    """Rows on their way to the shards of their units.

    Args:
        wire: a wire table.
        hashes: the keyed hash of the unit of each row.
        travels: which of the rows travel; None: all.
    """

    wire: pa.Table
    hashes: Words
    travels: Flags | None = None


def bound(wire: pa.Table, layout: Layout, salt: int) -> Contributions:
    """Bound the contributions of each unit in a wire table.

    Args:
        wire: all rows of its units (or of a batch, whose result is bounded again).
        layout: the bounds.
        salt: the run's own 64-bit number, the same for all batches.
    """
    units = keys.dense([keys.one_array(wire.column(name)) for name in layout.unit_names])
    partitions = keys.dense([keys.one_array(wire.column(name)) for name in layout.partition_names])
    pair_hashes = hash_pairs(units.hashes(salt)[units.codes], partitions.hashes(salt)[partitions.codes])
    rows = _row_order(wire, layout, partitions, pair_hashes)
    if layout.max_rows is not None:
        bounded = bound_rows(units.codes, len(units), partitions, rows, max_rows=layout.max_rows)
    else:
        bounded = bound_partitions(
            units.codes,
            len(units),
            partitions,
            pair_hashes,
            rows,
            max_partitions=layout.max_partitions,
            max_rows_per_partition=layout.max_rows_per_partition,
            assign_all_rows=bool(layout.summands or layout.distinct or layout.vectors),
        )
    return Contributions(partitions=partitions, bounded=bounded, pair_hashes=pair_hashes)


def reduce(wire: pa.Table, layout: Layout, salt: int) -> pa.Table:
    """Return a smaller wire table with the same kept contributions.

    The first kept row of each (unit, partition) carries the summands and different values of all its rows, the others none.
    """
    bounded_rows = bound(wire, layout, salt)
    bounded = bounded_rows.bounded
    reduced = gather.take_rows(wire, bounded.rows)
    for i in range(len(layout.summands)):
        carried = np.zeros(len(bounded.rows), np.int64)
        carried[bounded.starts] = sums_of_pairs(wire, bounded, i)
        reduced = reduced.set_column(reduced.schema.get_field_index(f"s{i}"), f"s{i}", pa.array(carried))
    for i in range(len(layout.distinct)):
        pairs, values = different_values(wire, layout, bounded_rows, i)
        lists = distinct.listed(bounded.starts[pairs], values, len(bounded.rows))
        reduced = reduced.set_column(reduced.schema.get_field_index(f"d{i}"), f"d{i}", lists)
    for i in range(len(layout.vectors)):
        rows, starts = rows_of_pairs(bounded)
        of_rows = vectors.matrix(keys.one_array(wire.column(f"w{i}")))
        carried = np.zeros((len(bounded.rows), of_rows.shape[1]), np.int64)
        carried[bounded.starts] = vectors.sums_of_groups(of_rows, rows, starts)
        whole = vectors.listed(vectors.narrow(carried))
        reduced = reduced.set_column(reduced.schema.get_field_index(f"w{i}"), f"w{i}", whole)
    return reduced


def different_values(wire: pa.Table, layout: Layout, kept: Contributions, index: int) -> tuple[Codes, pa.Array]:
    """Return the different values of a column in each kept (unit, partition), of which the bound leaves the first by keyed hash.

    Returns:
        places among the kept pairs, rising, and the values.
    """
    most = layout.distinct[index][1] or layout.max_rows_per_partition
    rows, values = distinct.flat(wire.column(f"d{index}"))
    assert kept.bounded.pair_of_row is not None, "rows in all are not bounded beside different values"
    pairs = kept.bounded.pair_of_row[rows]
    inside = pairs >= 0
    hashes = kept.pair_hashes[kept.bounded.rows[kept.bounded.starts]]
    return distinct.least(pairs[inside], hashes, gather.filtered(values, inside), most)


def rows_of_pairs(bounded: Bounded) -> tuple[Positions, Positions]:
    """Return all rows of the kept (unit, partition) pairs, pair by pair, and where in them each pair begins."""
    assert bounded.pair_of_row is not None, "rows in all are not bounded beside sums of vectors"
    inside = np.flatnonzero(bounded.pair_of_row >= 0)
    pairs = bounded.pair_of_row[inside]
    order = np.argsort(pairs, kind="stable")
    # Each pair has a row, so that the pairs are 0, 1, 2, ...
    return inside[order], np.flatnonzero(np.diff(pairs[order], prepend=-1))


def sums_of_pairs(wire: pa.Table, bounded: Bounded, summand: int) -> Codes:
    """Return sums of a summand over all rows of each kept (unit, partition) of a batch of at most 2**20 rows: exact in int64."""
    values = keys.one_array(wire.column(f"s{summand}")).to_numpy()
    assert bounded.pair_of_row is not None
    inside = bounded.pair_of_row >= 0
    sums = np.zeros(len(bounded.starts), np.int64)
    np.add.at(sums, bounded.pair_of_row[inside], values[inside])
    return sums


def reduce_frequent(wire: pa.Table, layout: Layout, salt: int) -> list[Hashed]:
    """Return the same contributions, those of the units with more than `FREQUENT` rows reduced.

    Whether a unit is reduced depends on that unit's rows alone, so no other unit's rows can make one unit's travel in full.

    Returns:
        the table, of which the rows of other units travel, and the reduced rows of the frequent ones, if there are any.
    """
    hashes = unit_hashes(wire, layout, salt)
    frequent = frequent_rows(wire, layout, hashes)
    if not frequent.any():
        return [Hashed(wire, hashes)]
    reduced = reduce(gather.filter_rows(wire, frequent), layout, salt)
    return [Hashed(wire, hashes, ~frequent), Hashed(reduced, unit_hashes(reduced, layout, salt))]


def together(parts: Sequence[Hashed]) -> Hashed:
    """Join several parts, tables of one schema with their hashes, into one."""
    if len(parts) == 1:
        return parts[0]
    all_of = [np.ones(part.wire.num_rows, np.bool_) if part.travels is None else part.travels for part in parts]
    wire = shard.joined([part.wire for part in parts])
    return Hashed(wire, np.concatenate([part.hashes for part in parts]), np.concatenate(all_of))


def unit_hashes(wire: pa.Table, layout: Layout, salt: int) -> Words:
    """Return the keyed hash of the unit of each row."""
    return hashing.hash_columns([keys.one_array(wire.column(name)) for name in layout.unit_names], salt)


def frequent_rows(wire: pa.Table, layout: Layout, hashes: Words) -> Flags:
    """Return True for rows of a unit that has more than `FREQUENT` rows in the table, by the hash of each row's unit."""
    if wire.num_rows <= FREQUENT:
        return np.zeros(wire.num_rows, np.bool_)
    buckets = (hashes >> np.uint64(64 - BUCKET_BITS)).view(np.int64)
    counts = np.bincount(buckets, minlength=1)
    if counts.max() <= FREQUENT:
        return np.zeros(wire.num_rows, np.bool_)
    # A bucket may hold rows of several units: those that look frequent are counted again by their whole keys.
    places = np.flatnonzero(counts[buckets] > FREQUENT)
    units = [gather.take(wire.column(name), places) for name in layout.unit_names]
    codes = keys.dense(units).codes
    frequent = np.zeros(wire.num_rows, np.bool_)
    frequent[places] = np.bincount(codes)[codes] > FREQUENT
    return frequent


def _row_order(wire: pa.Table, layout: Layout, partitions: Keys, pair_hashes: Words) -> RowOrder:
    def content(positions: Positions, names: list[str]) -> list[pa.Array]:
        return [gather.take(wire.column(name), positions) for name in names]

    def hashes(positions: Positions) -> Words:
        return hashing.hash_onto(pair_hashes[positions], content(positions, layout.content_names))

    def ranks(positions: Positions) -> Codes:
        of_partition = partitions.ranks()[partitions.codes[positions]]
        # Rows with the same row id are still ordered by their values, never by their place.
        rows = keys.dense([pa.array(of_partition), *content(positions, [*layout.content_names, *layout.value_names])])
        return rows.ranks()[rows.codes]

    def alike(positions: Positions, others: Positions) -> Flags:
        same: Flags = partitions.codes[positions] == partitions.codes[others]
        for name in dict.fromkeys([*layout.content_names, *layout.value_names]):
            same &= keys.equal_values(keys.one_array(wire.column(name)), positions, others)
        return same

    return RowOrder(hashes=hashes, ranks=ranks, alike=alike)
