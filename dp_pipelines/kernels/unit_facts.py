"""Facts that are counted once for each privacy unit: how much of its rows the bounds keep, and facts about one of its rows.

In: wire rows of the units of a shard, or facts about their rows. Out: one vector for each unit, with at most one in each group of
coordinates. Holds: a unit's vector depends on that unit's rows alone, and not on their order, batches or shards: a batch that was
reduced before the shuffle carries how many rows it had, as one number for each unit, so that a unit with ten million rows costs
no memory, but for one row of each of its partitions, up to the last cell, where these are counted. Rows that agree in all
columns that are read are one row in the draw of the row that is looked at.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.kernels import amounts, contributions, keys
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.hashing import Words
from dp_pipelines.kernels.contributions import Contributions, Hashed
from dp_pipelines.kernels.keys import Codes
from dp_pipelines.kernels.layout import Layout

ROW = "__row"
"""The column that distinguishes rows of one unit; columns of users do not begin with two underscores."""

TWIN = "(row of the lookup)"
"""The column that tells rows apart that a public table has made of one row: the row id of stages that read such rows."""

HASH = "h"
"""The column with the hash of a row in tables of facts."""

OF_UNIT, OF_PAIR = "rows_of_unit", "rows_of_pair"
"""Further columns of a wire row: how many rows of its unit, and of its unit in its partition, it represents."""

PARTS = 2**10
"""A unit's part that is kept is rounded down to a multiple of 1 / 2**10, so that both parts add up to one exactly."""

Vectors = NDArray[np.float32]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitCells:
    """The coordinates of a unit's vector: groups, in each of which one unit has at most one, in one coordinate or shared by two.

    Args:
        edges: rising numbers of rows from 1 at which cells begin; the last cell has no end.
        clamped: columns whose values are compared with their clamps.
        facts: what is asked about one row.
        pairs: the same of numbers of partitions; none: these are not counted.
        amounts: where cells of amounts begin (`kernels.amounts`).
        sums: sums of which the amounts are measured.

    >>> UnitCells(edges=(1, 2, 4), clamped=1, facts=2).width
    15
    """

    edges: tuple[int, ...]
    clamped: int
    facts: int
    pairs: tuple[int, ...] = ()
    amounts: tuple[int, ...] = ()
    sums: int = 0

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return self.before_facts + 2 * self.facts

    @property
    def before_clamped(self) -> int:
        """Return the number of coordinates of whole units and of rows.

        They are: whole or not, then for each cell the part kept, then the part cut off.
        """
        return 2 + 2 * len(self.edges)

    @property
    def before_pairs(self) -> int:
        """Return the number of coordinates before those of partitions: for each clamped column below, within and above."""
        return self.before_clamped + 3 * self.clamped

    @property
    def before_sums(self) -> int:
        """Return the number of coordinates before those of amounts: for each cell of partitions the part kept, then cut off."""
        return self.before_pairs + 2 * len(self.pairs)

    @property
    def before_facts(self) -> int:
        """Return the number of coordinates before those of facts: for each sum and cell of amounts the parts kept and cut off."""
        return self.before_sums + 2 * len(self.amounts) * self.sums

    @property
    def l2_squared(self) -> int:
        """Return the square of the L2 norm of one unit's vector: at most one for each group (docs/proofs/kept.md)."""
        return 2 + self.clamped + bool(self.pairs) + self.sums + self.facts

    def counted_pairs(self, layout: Layout) -> Layout | None:
        """Return the layout by which a unit's partitions are counted, one row of each; None if they are not counted.

        Args:
            layout: the bounds.
        """
        if not self.pairs:
            return None
        most = max(self.pairs[-1], layout.max_partitions)
        return dataclasses.replace(layout, max_partitions=most, max_rows_per_partition=1, max_rows=None)


def row_hashes(table: pa.Table, columns: Sequence[str], salt: int) -> Words:
    """Return the keyed hash of each row's content, nested columns left out.

    Args:
        table: rows.
        columns: which of its columns count.
        salt: the run's own 64-bit number.
    """
    flat = [name for name in columns if not pa.types.is_nested(keys.plain_type(table.schema.field(name).type))]
    start = np.full(table.num_rows, salt % 2**64, np.uint64)
    return hashing.hash_onto(start, [keys.comparable(table.column(name)) for name in flat])


def wire_of(table: pa.Table, layout: Layout, row_columns: Sequence[str], salt: int, *, bounds_rows: bool) -> pa.Table:
    """Return the wire form of a table of events, in which each wire row represents one row.

    Args:
        table: events.
        layout: with `ROW` as row id.
        row_columns: distinguish rows of one unit; empty if no row is looked at.
        salt: the run's own 64-bit number.
        bounds_rows: as for `kept_of_units`.
    """
    numbers = row_hashes(table, row_columns, salt) if row_columns else np.zeros(table.num_rows, np.uint64)
    wire = layout.wire(table.append_column(ROW, pa.array(numbers)))
    ones = pa.array(np.ones(wire.num_rows, np.int32))  # of a batch there are at most 2**20
    wire = wire.append_column(OF_UNIT, ones)
    for index in range(len(layout.amounts)):
        wire = wire.append_column(of_amount(index), wire.column(f"a{index}"))
    return wire if bounds_rows else wire.append_column(OF_PAIR, ones)


def of_amount(index: int) -> str:
    """Return the name of the column with the amounts of a unit that a wire row represents."""
    return f"amounts_of_unit{index}"


def reduce_frequent(wire: pa.Table, layout: Layout, salt: int, cells: UnitCells) -> list[Hashed]:
    """Return the same rows, those of units with many of them reduced: see `contributions.reduce_frequent`."""
    hashes = contributions.unit_hashes(wire, layout, salt)
    frequent = contributions.frequent_rows(wire, layout, hashes)
    if not frequent.any():
        return [Hashed(wire, hashes)]
    reduced = reduce(gather.filter_rows(wire, frequent), layout, salt, cells)
    return [Hashed(wire, hashes, ~frequent), Hashed(reduced, contributions.unit_hashes(reduced, layout, salt))]


def reduce(wire: pa.Table, layout: Layout, salt: int, cells: UnitCells) -> pa.Table:
    """Return the kept rows of a wire table. The first row of a unit, and of each pair, carries the number of rows.

    Where partitions are counted, one row stays of each that may count.
    """
    bounded = contributions.bound(wire, layout, salt)
    rows, starts = bounded.bounded.rows, bounded.bounded.starts
    counted_pairs = cells.counted_pairs(layout)
    if counted_pairs is not None:
        pairs = contributions.bound(wire, counted_pairs, salt).bounded.rows
        rows = np.concatenate([rows, pairs[~np.isin(pairs, rows)]])
    firsts = starts[bounded.bounded.first_of_unit]
    units = _units(wire, layout)
    of_first = units.codes[rows[firsts]]
    of_unit = np.zeros(len(rows), np.int32)
    of_unit[firsts] = _totals(units.codes, _numbers(wire, OF_UNIT), len(units))[of_first]
    carried: dict[str, NDArray[Any]] = {OF_UNIT: of_unit}
    for index in range(len(layout.amounts)):
        whole = amounts.sums(units.codes, _numbers(wire, of_amount(index)), len(units))
        carried[of_amount(index)] = np.zeros(len(rows), np.int64)
        carried[of_amount(index)][firsts] = whole[of_first]
    if OF_PAIR in wire.column_names:
        carried[OF_PAIR] = np.zeros(len(rows), np.int32)
        carried[OF_PAIR][starts] = _of_pairs(wire, bounded, units.codes)
    reduced = gather.take_rows(wire, rows)
    for name, numbers in carried.items():
        reduced = reduced.set_column(reduced.schema.get_field_index(name), name, pa.array(numbers))
    return reduced


def kept_of_units(
    wire: pa.Table, layout: Layout, cells: UnitCells, salt: int, *, bounds_rows: bool
) -> tuple[pa.Table, Vectors]:
    """Return for each unit of a shard how much of its rows the bounds keep, and on which side of the clamps one kept row lies.

    Args:
        wire: all (reduced) rows of the units, as `wire_of` makes them.
        layout: the bounds; its cells are those of the clamped columns.
        cells: the coordinates.
        salt: the run's own 64-bit number.
        bounds_rows: whether rows in a partition are bounded; else all rows of a kept partition are kept.

    Returns:
        the unit's columns u0.., and one vector for each unit, with zeros in the places of facts.
    """
    bounded = contributions.bound(wire, layout, salt)
    rows, starts = bounded.bounded.rows, bounded.bounded.starts
    firsts = starts[bounded.bounded.first_of_unit]
    units = _units(wire, layout)
    codes = units.codes[rows]
    totals = _totals(units.codes, _numbers(wire, OF_UNIT), len(units))[codes[firsts]]
    if bounds_rows:
        counted = np.diff(np.append(firsts, len(rows)))
    else:
        counted = _totals(codes[starts], _of_pairs(wire, bounded, units.codes), len(units))[codes[firsts]]
    vectors = np.zeros((len(firsts), cells.width), np.float32)
    each, whole = np.arange(len(firsts)), counted == totals
    vectors[each, np.where(whole, 0, 1)] = 1
    place = 2 + np.searchsorted(np.array(cells.edges), totals, side="right") - 1
    # Of 2**10 parts, in whole numbers: a unit of which a single row is lost is not whole.
    part = counted * PARTS // np.maximum(totals, 1) / PARTS
    vectors[each, place] = part
    vectors[each, place + len(cells.edges)] = 1 - part
    counted_pairs = cells.counted_pairs(layout)
    if counted_pairs is not None:
        stay = bounded.bounded.partitions_of_unit()[bounded.bounded.first_of_unit]
        every = _pairs_of_units(wire, counted_pairs, units.codes, salt, len(units))[codes[firsts]]
        _split(vectors, cells.before_pairs, cells.pairs, stay, every)
    for index in range(cells.sums):
        whole_amounts = amounts.sums(units.codes, _numbers(wire, of_amount(index)), len(units))[codes[firsts]]
        of_rows = np.minimum(_numbers(wire, f"a{index}")[rows], amounts.PARTS_OF_END)
        stay = amounts.sums(codes, of_rows, len(units))[codes[firsts]]
        _split(vectors, cells.before_sums + 2 * len(cells.amounts) * index, cells.amounts, stay, whole_amounts)
    if layout.cells:
        looked_at = _least_rows(wire, layout, bounded, codes)
        for index in range(len(layout.cells)):
            sides = keys.one_array(wire.column(f"c{index}"))
            known = sides.is_valid().to_numpy(zero_copy_only=False)[looked_at]
            at = cells.before_clamped + 3 * index + pc.fill_null(sides, 0).to_numpy()[looked_at]
            vectors[each[known], at[known]] = 1
    return pa.table({name: gather.take(wire.column(name), rows[firsts]) for name in layout.unit_names}), vectors


def _split(vectors: Vectors, before: int, edges: tuple[int, ...], stay: Codes, whole: Codes) -> None:
    """Put each unit into the cell of its whole number, in two parts: how much of it stays, and how much is cut off.

    Args:
        vectors: one for each unit, which get the parts.
        before: coordinates before those of these cells.
        edges: where cells begin.
        stay, whole: numbers of each unit.
    """
    each, place = np.arange(len(whole)), before + np.searchsorted(np.array(edges), whole, side="right") - 1
    stay = np.minimum(stay, whole)
    part = np.where(whole > 0, stay * PARTS // np.maximum(whole, 1), PARTS) / PARTS
    vectors[each, place] = part
    vectors[each, place + len(edges)] = 1 - part


def _pairs_of_units(wire: pa.Table, layout: Layout, units: Codes, salt: int, size: int) -> Codes:
    """Count the partitions of each unit, including those that the bounds cut off."""
    bounded = contributions.bound(wire, layout, salt).bounded
    firsts = bounded.rows[bounded.starts[bounded.first_of_unit]]
    counts = np.zeros(size, np.int64)
    counts[units[firsts]] = bounded.partitions_of_unit()[bounded.first_of_unit]
    return counts


def _least_rows(wire: pa.Table, layout: Layout, kept: Contributions, codes: Codes) -> Codes:
    """Return for each unit the kept row with the least hash of its content, in the order of the units' kept rows.

    Where two hashes are equal, the cells decide: rows that agree in them are the same here.
    """
    rows = kept.bounded.rows
    content = gather.take(wire.column("r"), rows)
    hashes = hashing.hash_onto(kept.pair_hashes[rows], [content])
    sides = [gather.take(wire.column(f"c{index}"), rows) for index in range(len(layout.cells))]
    ties = [pc.fill_null(column, -1).to_numpy(zero_copy_only=False) for column in sides]
    order = np.lexsort((*ties, hashes, codes))
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    least = rows[order[firsts]]
    # Units are in the order of their codes here; their vectors are in the order of their first kept rows.
    of_code = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    of_code[codes[order[firsts]]] = least
    return of_code[codes[kept.bounded.starts[kept.bounded.first_of_unit]]]


def _units(wire: pa.Table, layout: Layout) -> keys.Keys:
    return keys.dense([keys.one_array(wire.column(name)) for name in layout.unit_names])


def _numbers(wire: pa.Table, name: str) -> Codes:
    numbers: Codes = keys.one_array(wire.column(name)).to_numpy().astype(np.int64)
    return numbers


def _totals(codes: Codes, numbers: Codes, size: int) -> Codes:
    totals = np.zeros(size, np.int64)
    np.add.at(totals, codes, numbers)
    return totals


def _of_pairs(wire: pa.Table, kept: Contributions, units: Codes) -> Codes:
    """Return the number of rows of each kept (unit, partition), those among them that were not kept."""
    pairs = units * np.int64(len(kept.partitions)) + kept.partitions.codes
    firsts = pairs[kept.bounded.rows[kept.bounded.starts]]
    order = np.argsort(firsts)
    numbers = _numbers(wire, OF_PAIR)
    if not len(firsts):
        return np.zeros(0, np.int64)
    at = np.minimum(np.searchsorted(firsts[order], pairs), len(firsts) - 1)
    inside = firsts[order][at] == pairs
    totals = np.zeros(len(firsts), np.int64)
    np.add.at(totals, order[at[inside]], numbers[inside])
    return totals


def facts_of_rows(table: pa.Table, units: Sequence[str], hashes: Words, facts: NDArray[np.bool_]) -> pa.Table:
    """Return facts about rows as they travel: the unit's columns u0.., the row's hash h, and the facts as words f0...

    Args:
        table: rows with the unit's columns; those without a unit are left out.
        units: names of these.
        hashes: one for each row.
        facts: (rows, facts).
    """
    columns: dict[str, Any] = {f"u{i}": keys.plain_unit(table.column(name)) for i, name in enumerate(units)}
    columns[HASH] = pa.array(hashes)
    padded = np.zeros((len(facts), -(-facts.shape[1] // 64) * 64), np.bool_)
    padded[:, : facts.shape[1]] = facts
    words = np.packbits(padded, axis=1, bitorder="little").view("<u8")
    columns |= {f"f{i}": pa.array(np.ascontiguousarray(words[:, i])) for i in range(words.shape[1])}
    travelling = pa.table(columns)
    for i in range(len(units)):
        if travelling.column(f"u{i}").null_count:
            travelling = gather.filter_rows(travelling, pc.is_valid(travelling.column(f"u{i}")))
    return travelling


def not_null(table: pa.Table, columns: Sequence[str]) -> NDArray[np.bool_]:
    """Return True for values of some columns that are neither null nor NaN.

    Returns:
        (rows, columns).

    >>> not_null(pa.table({"a": [1.0, float("nan"), None], "b": ["x", None, "y"]}), ["a", "b"]).tolist()
    [[True, True], [False, False], [False, True]]
    """
    flags = np.zeros((table.num_rows, len(columns)), np.bool_)
    for place, name in enumerate(columns):
        column = keys.one_array(table.column(name))
        there = column.is_valid()
        if pa.types.is_floating(column.type):  # half floats have no comparison
            there = pc.and_(there, pc.invert(pc.fill_null(pc.is_nan(column.cast(pa.float64())), True)))
        flags[:, place] = there.to_numpy(zero_copy_only=False)
    return flags


def first_rows(travelling: pa.Table) -> pa.Table:
    """Return for each unit the row with the least hash; if two hashes are equal, the facts decide.

    >>> flags = np.array([[True], [False], [True]])
    >>> rows = facts_of_rows(pa.table({"u": [7, 7, 8]}), ["u"], np.array([5, 3, 9], np.uint64), flags)
    >>> first_rows(rows).to_pydict()
    {'u0': [7, 8], 'h': [3, 9], 'f0': [0, 1]}
    """
    names = [name for name in travelling.column_names if name.startswith("u")]
    codes = keys.dense([keys.one_array(travelling.column(name)) for name in names]).codes
    ties = [
        keys.one_array(travelling.column(name)).to_numpy() for name in reversed(travelling.column_names[len(names) :])
    ]
    order = np.lexsort((*ties, codes))
    return gather.take_rows(travelling, order[np.flatnonzero(np.diff(codes[order], prepend=-1))])


def vectors_of_facts(first: pa.Table, cells: UnitCells) -> Vectors:
    """Return one vector for each unit out of its first row: for each fact a one where it holds, or where it does not.

    Args:
        first: what `first_rows` gave.
        cells: the coordinates.
    """
    if not cells.facts:  # as of a total that reads no column
        return np.zeros((first.num_rows, cells.width), np.float32)
    words = [keys.one_array(first.column(name)).to_numpy() for name in first.column_names if name.startswith("f")]
    packed = np.ascontiguousarray(np.stack(words, axis=1).astype("<u8")).view(np.uint8)
    holds = np.unpackbits(packed, axis=1, bitorder="little")[:, : cells.facts].astype(np.bool_)
    vectors = np.zeros((first.num_rows, cells.width), np.float32)
    vectors[:, cells.before_facts :: 2] = holds
    vectors[:, cells.before_facts + 1 :: 2] = ~holds
    return vectors
