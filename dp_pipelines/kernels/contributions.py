"""Bounding applied to the wire form: a batch before the shuffle, all rows of a shard after it, by the same law.

In: a wire table (kernels.layout). Out: the kept rows, as positions with their partitions, or as a smaller wire table that
stands for the same contributions. Holds: `reduce` then `bound` keeps what `bound` alone keeps; a unit's summands of clipped
sums travel whole. May import kernels.bound, kernels.distinct, kernels.keys, kernels.layout, numpy, pyarrow.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import distinct, keys, vectors
from dp_pipelines.kernels.bound import Bounded, Positions, RowOrder, bound_partitions, bound_rows, hash_pairs
from dp_pipelines.kernels.keys import Codes, Keys, Words
from dp_pipelines.kernels.layout import Layout

SAMPLE = 4096
"""Rows that are looked at to judge whether bounding a batch before the shuffle pays. It never changes a result."""


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
    """A smaller wire table with the same kept contributions.

    The first kept row of each (unit, partition) carries the summands and different values of all its rows, the others none.
    """
    kept = bound(wire, layout, salt)
    bounded = kept.bounded
    reduced = wire.take(pa.array(bounded.rows))
    for i in range(len(layout.summands)):
        carried = np.zeros(len(bounded.rows), np.int64)
        carried[bounded.starts] = sums_of_pairs(wire, bounded, i)
        reduced = reduced.set_column(reduced.schema.get_field_index(f"s{i}"), f"s{i}", pa.array(carried))
    for i in range(len(layout.distinct)):
        pairs, values = different_values(wire, layout, kept, i)
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
    """The different values of a column in each kept (unit, partition), of which the bound leaves the first by keyed hash.

    Returns:
        places among the kept pairs, rising, and the values.
    """
    most = layout.distinct[index][1] or layout.max_rows_per_partition
    rows, values = distinct.flat(keys.one_array(wire.column(f"d{index}")))
    assert kept.bounded.pair_of_row is not None, "rows in all are not bounded beside different values"
    pairs = kept.bounded.pair_of_row[rows]
    inside = pairs >= 0
    hashes = kept.pair_hashes[kept.bounded.rows[kept.bounded.starts]]
    return distinct.least(pairs[inside], hashes, values.filter(pa.array(inside)), most)


def rows_of_pairs(bounded: Bounded) -> tuple[Positions, Positions]:
    """All rows of the kept (unit, partition) pairs, pair by pair, and where in them each pair begins."""
    assert bounded.pair_of_row is not None, "rows in all are not bounded beside sums of vectors"
    inside = np.flatnonzero(bounded.pair_of_row >= 0)
    pairs = bounded.pair_of_row[inside]
    order = np.argsort(pairs, kind="stable")
    # Each pair has a row, so that the pairs are 0, 1, 2, ...
    return inside[order], np.flatnonzero(np.diff(pairs[order], prepend=-1))


def sums_of_pairs(wire: pa.Table, bounded: Bounded, summand: int) -> Codes:
    """Sums of a summand over all rows of each kept (unit, partition) of a batch of at most 2**20 rows: exact in int64."""
    values = keys.one_array(wire.column(f"s{summand}")).to_numpy()
    assert bounded.pair_of_row is not None
    inside = bounded.pair_of_row >= 0
    sums = np.zeros(len(bounded.starts), np.int64)
    np.add.at(sums, bounded.pair_of_row[inside], values[inside])
    return sums


def reducing_pays(wire: pa.Table, layout: Layout, salt: int) -> bool:
    """Whether units repeat so much in a batch that bounding it before the shuffle saves more than it costs."""
    rows = wire.num_rows
    if rows < 2:
        return False
    positions = np.linspace(0, rows - 1, min(SAMPLE, rows)).astype(np.int64)
    sample = wire.select(layout.unit_names).take(pa.array(positions))
    hashes = keys.hash_columns([keys.one_array(column) for column in sample.columns], salt)
    # Thinned to one row in `rows / SAMPLE`, a unit with that many rows is seen about once: repeats mean heavy units.
    return bool(len(np.unique(hashes)) < 0.75 * len(hashes))


def _row_order(wire: pa.Table, layout: Layout, partitions: Keys, pair_hashes: Words) -> RowOrder:
    def content(positions: Positions, names: list[str]) -> list[pa.Array]:
        taken = pa.array(positions)
        return [keys.one_array(wire.column(name)).take(taken) for name in names]

    def hashes(positions: Positions) -> Words:
        return keys.hash_onto(pair_hashes[positions], content(positions, layout.content_names))

    def ranks(positions: Positions) -> Codes:
        of_partition = partitions.ranks()[partitions.codes[positions]]
        # Rows that share a row id are told apart by their values all the same, never by their place.
        rows = keys.dense([pa.array(of_partition), *content(positions, [*layout.content_names, *layout.value_names])])
        return rows.ranks()[rows.codes]

    return RowOrder(hashes=hashes, ranks=ranks)
