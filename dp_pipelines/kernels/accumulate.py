"""Partial aggregates per partition, and their exact merge.

In: kept contributions, or partial aggregates of shards. Out: one row per partition with one int64 per statistic; merged,
two int64 words per statistic, whose value is high * 2**32 + low. Statistics with cells have a list of those that count
something (`sparse_counts`). Holds: integers only, so that order, batch split and shard count change nothing; every intermediate
sum has proven headroom (stated where it is made); groups of the levels of a rollup are about the same kept rows as partitions.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import contributions, distinct, keys, moments, shard, sparse_counts, vectors
from dp_pipelines.kernels.bounding import Bounded, KeptPairs
from dp_pipelines.kernels.cells import Cells
from dp_pipelines.kernels.columns import gather, long_text
from dp_pipelines.kernels.columns.unique_codes import unique_codes
from dp_pipelines.kernels.keys import Codes
from dp_pipelines.kernels.lattice import (
    VALUE_BITS,
    Flags,
    Integers,
    Lattice,
    SummandLattice,
    coarse_counts,
    coarse_words,
)
from dp_pipelines.kernels.layout import Layout, everything
from dp_pipelines.kernels.moments import Moments
from dp_pipelines.kernels.sparse_counts import Spread
from dp_pipelines.kernels.statistics import (
    WEIGHT_BITS,
    DistinctValues,
    Statistic,
    UnitCount,
    cells_of,
    distinct_of,
    vectors_of,
)
from dp_pipelines.kernels.vectors import Parts, VectorLattice

EXACT_ROWS = 2**22
"""Integers of at most 2**30, added in float64 over so many rows, stay below 2**53 and are therefore exact."""

LOW = np.int64(2**32 - 1)


def partials(wire: pa.Table, layout: Layout, statistics: Sequence[Statistic], salt: int) -> pa.Table:
    """Return the statistics of one shard, per partition that has a kept row.

    Args:
        wire: all (reduced) wire rows of the units of a shard.
        layout: the bounds.
        statistics: what to accumulate; column a{i} of the result is the i-th.
        salt: the run's own 64-bit number.

    Returns:
        A table with the partition's columns p0.. and int64 columns a0.. A shard of at most 2**31 rows adds up within int64.
        For each of `cells_of(statistics)` there are lists n{j} of cells and m{j} of their counts instead, for each of
        `distinct_of(statistics)` lists d{j} of different values, for each of `vectors_of(statistics)` a list w{j} of sums.
    """
    return partials_of_levels(wire, layout, statistics, salt, ())[0]


def partials_of_levels(
    wire: pa.Table,
    layout: Layout,
    statistics: Sequence[Statistic],
    salt: int,
    levels: Sequence[Sequence[int]],
    counts: Callable[[pa.Table], Flags] | None = None,
) -> list[pa.Table]:
    """Return the statistics of one shard, per partition as in `partials`, then per group of each level above.

    Args:
        wire, layout, statistics, salt: as for `partials`.
        levels: for each the places of its columns among the partition columns.
        counts: which partitions count in the levels above, by their keys alone; None: all.
    """
    bounded = contributions.bound(wire, layout, salt)
    size = len(bounded.partitions)
    codes = bounded.partitions.codes[bounded.bounded.rows]
    rows = _Shard(wire=wire, layout=layout, bounded=bounded.bounded, codes=codes, size=size)
    units = rows.units()
    used = np.flatnonzero(units)
    columns = {n: gather.take(c, used) for n, c in zip(layout.partition_names, bounded.partitions.columns, strict=True)}
    for i, statistic in enumerate(statistics):
        if not statistic.in_lists:
            columns[f"a{i}"] = pa.array(statistic.per_partition(rows)[used])
    for j, (column, cells) in enumerate(cells_of(statistics)):
        cell_counts = sparse_counts.counted(*rows.cells(column, cells), partitions=size, width=cells.count)
        columns[f"n{j}"], columns[f"m{j}"] = (gather.take(lists, used) for lists in cell_counts.lists(size))
    for j, declared in enumerate(distinct_of(statistics)):
        pairs, values = contributions.different_values(wire, layout, bounded, layout.distinct.index(declared))
        of_partitions = distinct.each_once(codes[bounded.bounded.starts][pairs], values)
        columns[f"d{j}"] = gather.take(distinct.listed(*of_partitions, size), used)
    for j, statistic in enumerate(vectors_of(statistics)):
        columns[f"w{j}"] = vectors.listed(vectors.narrow(rows.vectors(statistic)[used]))
    finest = pa.table(columns)
    if not levels:
        return [finest]
    place = np.zeros(size, np.int64)
    place[used] = np.arange(len(used))
    behind = KeptPairs(rows=place[codes[bounded.bounded.starts]], first_of_unit=bounded.bounded.first_of_unit)
    leaves = finest
    if counts is not None:
        stay = counts(finest)
        leaves, behind = gather.filter_rows(finest, stay), behind.among(stay)
    return [finest, *(of_level(leaves, places, statistics, behind) for places in levels)]


def of_level(leaves: pa.Table, places: Sequence[int], statistics: Sequence[Statistic], pairs: KeptPairs) -> pa.Table:
    """Return the partial aggregates of one level.

    Args:
        leaves: those of the finest partitions, as `accumulate.partials` gives them.
        places: of the level's columns among the partition columns; none: one group holds everything.
        statistics: of the columns a0..: each one integer for a partition.
        pairs: behind `leaves`.

    Returns:
        A table with p0.. and a0... Sums of a shard's partitions are sums of a shard, so that they stay within int64.
    """
    if places:
        codes = keys.dense([keys.plain(leaves.column(f"p{place}")) for place in places])
        groups, size = codes.codes, len(codes)
        columns = {f"p{i}": column for i, column in enumerate(codes.columns)}
    else:
        groups, size = np.zeros(leaves.num_rows, np.int64), min(leaves.num_rows, 1)
        columns = {"p0": gather.take(everything(), np.zeros(size, np.int64))}
    for i, statistic in enumerate(statistics):
        if isinstance(statistic, UnitCount):
            totals = pairs.units_of(groups, size)
        else:
            assert statistic.adds_up
            assert not statistic.in_lists
            totals = np.zeros(size, np.int64)
            np.add.at(totals, groups, keys.one_array(leaves.column(f"a{i}")).to_numpy())
        columns[f"a{i}"] = pa.array(totals)
    return pa.table(columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shard:
    """The kept rows of a shard: `kernels.statistics.ShardRows`, and what travels as lists."""

    wire: pa.Table
    layout: Layout
    bounded: Bounded
    codes: Codes
    size: int

    def rows(self) -> Integers:
        return np.bincount(self.codes, minlength=self.size)

    def units(self) -> Integers:
        return np.bincount(self._codes_of_pairs(), minlength=self.size)

    def weights(self) -> Integers:
        return sums_by_code(self._codes_of_pairs(), unit_weights(self.bounded.partitions_of_unit()), self.size)

    def not_null(self, column: str) -> Integers:
        place = [name for name, _ in self.layout.values].index(column)
        _, nulls = self._values(place)
        return np.bincount(self.codes if nulls is None else self.codes[~nulls], minlength=self.size)

    def sums(self, column: str, lattice: Lattice) -> Integers:
        values, nulls = self._values(self.layout.values.index((column, lattice)))
        if nulls is None:
            return sums_by_code(self.codes, values, self.size)
        return sums_by_code(self.codes[~nulls], values[~nulls], self.size)

    def clipped_sums(self, column: str, lattice: SummandLattice) -> Integers:
        return self.sums_of_units(self._clipped(column, lattice))

    def unit_totals(self, total: Statistic) -> Integers:
        if isinstance(total.lattice, SummandLattice):
            return self._clipped(total.column or "", total.lattice)
        of_rows = np.ones(len(self.codes), np.int64)
        if total.column is not None:
            place = [name for name, _ in self.layout.values].index(total.column)
            if isinstance(total.lattice, Lattice):
                place = self.layout.values.index((total.column, total.lattice))
            values, nulls = self._values(place)
            of_rows = values.astype(np.int64) if total.lattice is not None else of_rows
            if nulls is not None:
                of_rows[nulls] = 0
        starts = self.bounded.starts
        # At most 2**24 rows of 2**30 each.
        return np.add.reduceat(of_rows, starts) if len(starts) else np.zeros(0, np.int64)

    def sums_of_units(self, of_units: Integers) -> Integers:
        return sums_by_code(self._codes_of_pairs(), of_units, self.size)

    def _clipped(self, column: str, lattice: SummandLattice) -> Integers:
        """Return the clipped sum of each kept (unit, partition)."""
        index = self.layout.summands.index((column, lattice))
        values = keys.one_array(self.wire.column(f"s{index}")).to_numpy()
        pair_of_row = self.bounded.pair_of_row
        assert pair_of_row is not None
        inside = pair_of_row >= 0
        high, low = exact_sums(pair_of_row[inside], values[inside], len(self.bounded.starts))
        # Beyond 2**20 in the high word a sum lies far outside any clip bound, which is below 2**25.
        near = np.clip(high, -(2**20), 2**20)
        return np.clip((near << np.int64(32)) + low, *lattice.clip_bounds)

    def cells(self, column: str, cells: Cells) -> tuple[Codes, Integers]:
        """Return the partition code and the cell of each kept row that is in one."""
        wire = keys.one_array(self.wire.column(f"c{self.layout.cells.index((column, cells))}"))
        if not wire.null_count:
            return self.codes, wire.to_numpy()[self.bounded.rows].astype(np.int64)
        inside = wire.is_valid().to_numpy(zero_copy_only=False)[self.bounded.rows]
        return self.codes[inside], wire.fill_null(0).to_numpy()[self.bounded.rows][inside].astype(np.int64)

    def vectors(self, statistic: Statistic) -> Integers:
        """Return the integers of each partition code."""
        if isinstance(statistic.vectors, VectorLattice):
            lattice = statistic.vectors
            index = self.layout.vectors.index((statistic.column or "", lattice))
            of_rows = vectors.matrix(keys.one_array(self.wire.column(f"w{index}")))
            pairs = contributions.rows_of_pairs(self.bounded)
            return vectors.clipped_sums(lattice, of_rows, *pairs, self._codes_of_pairs(), self.size)
        assert isinstance(statistic.vectors, Moments)
        names = self.layout.feature_names(statistic.vectors)
        features = [keys.one_array(self.wire.column(name)).to_numpy()[self.bounded.rows] for name in names]
        return moments.sums_of_products(np.stack(features, axis=1), self.codes, self.size)

    def _codes_of_pairs(self) -> Codes:
        """Return the partition code of each kept (unit, partition)."""
        return self.codes[self.bounded.starts]

    def _values(self, place: int) -> tuple[Integers, Flags | None]:
        """Return the lattice values of the kept rows, and which of them are null."""
        column = keys.one_array(self.wire.column(f"v{place}"))
        nulls = None
        if column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)[self.bounded.rows]
            column = column.fill_null(0)
        return column.to_numpy()[self.bounded.rows], nulls


def unit_weights(partitions_of_unit: Codes) -> Integers:
    """Return the weight of a unit with d partitions in each of them: floor(2**20 / sqrt(d)).

    Its L2 norm is then at most 2**20.

    >>> unit_weights(np.array([1, 4])).tolist()
    [1048576, 524288]
    """
    most = int(partitions_of_unit.max(initial=1))
    # isqrt(floor(4**20 / d)) = floor(2**20 / sqrt(d)) in integers, for each d that occurs.
    table = np.zeros(most + 1, np.int64)
    occurring = unique_codes(partitions_of_unit)
    table[occurring] = np.floor(np.sqrt((1 << 2 * WEIGHT_BITS) // np.maximum(occurring, 1)))
    return table[partitions_of_unit]


def sums_by_code(codes: Codes, values: Integers, size: int) -> Integers:
    """Return exact sums of integers of magnitude at most 2**30 by code, through the fast float64 histogram in exact portions."""
    sums = np.zeros(size, np.int64)
    for begin in range(0, len(codes), EXACT_ROWS):
        part = values[begin : begin + EXACT_ROWS]
        assert max(-int(part.min()), int(part.max())) <= 1 << VALUE_BITS, "a lattice value exceeds its bound"
        sums += np.bincount(codes[begin : begin + EXACT_ROWS], part, minlength=size).astype(np.int64)
    return sums


def exact_sums(codes: Codes, values: Integers, size: int) -> tuple[Integers, Integers]:
    """Return exact sums of any int64 by code, as (high, low) with sum = high * 2**32 + low and 0 <= low < 2**32.

    Up to 2**31 summands per code: the low words then stay below 2**63.

    >>> exact_sums(np.array([0, 0]), np.array([2**62, 2**62]), 1)
    (array([2147483648]), array([0]))
    """
    high, low = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(high, codes, values >> np.int64(32))
    np.add.at(low, codes, values & LOW)
    return high + (low >> np.int64(32)), low & LOW


@dataclasses.dataclass(frozen=True, kw_only=True)
class Totals:
    """Merged statistics, one row per partition.

    Args:
        partitions: plain partition columns.
        high, low: for each statistic the words of its total, high * 2**32 + low; zero for one with cells or vectors.
        cells: for each statistic with cells what they count, by the statistic's place.
        vectors: for each statistic with vectors their partial sums, by the statistic's place.
        texts: the texts of long partition keys, whose digests are in `partitions`.
    """

    partitions: tuple[pa.Array, ...]
    high: tuple[Integers, ...]
    low: tuple[Integers, ...]
    cells: Mapping[int, Spread] = dataclasses.field(default_factory=dict)
    vectors: Mapping[int, Parts] = dataclasses.field(default_factory=dict)
    texts: Mapping[bytes, bytes] = dataclasses.field(default_factory=dict)

    def keys(self, positions: Integers) -> list[pa.ChunkedArray]:
        """Return the whole keys of some partitions, as columns that share no memory with those of other partitions."""
        taken = [gather.take(column, positions) for column in self.partitions]
        return [
            long_text.restored(column, self.texts) if self.texts else pa.chunked_array([column]) for column in taken
        ]

    def coarse(self, statistic: int, *, shift: int, step: int) -> Integers:
        """Return totals * 2**shift in units of `step` fine lattice steps, rounded to the nearest (halves up).

        Rounding is floor((a + step // 2) / step), so that a change of a by d moves the result by at most ceil(d / step).
        Results are clipped to 2**52, after the sum and monotonically, which can only bring two results closer.
        """
        return coarse_words(self.high[statistic], self.low[statistic], shift=shift, step=step)

    def coarse_lists(self, statistic: int, partitions: Integers, *, shift: int, step: int) -> Integers:
        """Return the lists of a statistic with cells or vectors, rounded as in `coarse`: one row for each of some partitions.

        Args:
            statistic: its place.
            partitions: rising codes.
            shift, step: see `coarse`.
        """
        if statistic in self.vectors:
            return coarse_words(*self.vectors[statistic].words(partitions), shift=shift, step=step)
        return coarse_counts(self.cells[statistic].dense(partitions), shift=shift, step=step)


def merge(tables: Sequence[pa.Table], partition_names: Sequence[str], statistics: Sequence[Statistic]) -> Totals:
    """Return the totals of partial aggregates, per partition that occurs.

    Args:
        tables: partial aggregates with columns p0.., a0..; at least one, possibly without rows; and the texts of long keys.
        partition_names: p0..
        statistics: what the columns a0.. hold.
    """
    rows, texts = long_text.apart(tables)
    table = shard.joined(rows)
    merged = keys.dense([keys.plain(table.column(name)) for name in partition_names])
    return dataclasses.replace(_summed(table, merged.columns, merged.codes, len(merged), statistics), texts=texts)


def no_partials(partition_names: Sequence[str], statistics: Sequence[Statistic]) -> pa.Table:
    """Return partial aggregates of nothing, with partition columns of no type."""
    columns = {name: pa.nulls(0) for name in partition_names}
    columns |= {f"a{i}": pa.array([], pa.int64()) for i, statistic in enumerate(statistics) if not statistic.in_lists}
    for j in range(len(cells_of(statistics))):
        columns[f"n{j}"], columns[f"m{j}"] = pa.array([], pa.list_(pa.int32())), pa.array([], pa.list_(pa.int64()))
    for j, statistic in enumerate(vectors_of(statistics)):
        columns[f"w{j}"] = vectors.listed(np.zeros((0, statistic.width or 0), np.int32))
    columns |= {f"d{j}": pa.array([], pa.list_(pa.null())) for j in range(len(distinct_of(statistics)))}
    return pa.table(columns)


def by_public_index(partial: pa.Table, layout: Layout) -> pa.Table:
    """Return partial aggregates whose partition columns are replaced by p0, the index in the public list."""
    index, _ = layout.public_places(partial)
    return pa.table({"p0": pa.array(index), **{n: partial.column(n) for n in partial.column_names if n[0] in "adnmw"}})


def merge_public(
    tables: Sequence[pa.Table], layout: Layout, statistics: Sequence[Statistic], place: int, places: int
) -> Totals:
    """Return the totals of the public partitions `place`, `place + places`, ..., zero where no partial names them.

    The keys come out as they were listed, whatever the data hold.
    """
    listed = layout.listed_columns()
    mine = np.arange(place, len(listed[0]), places)
    partitions = tuple(gather.take(column, mine) for column in listed)
    table = shard.joined(tables or [no_partials(["p0"], statistics)])
    codes = np.zeros(0, np.int64) if table.num_rows == 0 else table.column("p0").to_numpy() // places
    return _summed(table, partitions, codes, len(mine), statistics)


def nothing_summed(partitions: tuple[pa.Array, ...], statistics: Sequence[Statistic]) -> Totals:
    """Return the totals of partitions of which no row is: zero everywhere."""
    none = no_partials(["p0"], statistics)
    return _summed(none, partitions, np.zeros(0, np.int64), len(partitions[0]), statistics)


def _summed(
    table: pa.Table, partitions: tuple[pa.Array, ...], codes: Codes, size: int, statistics: Sequence[Statistic]
) -> Totals:
    finest = cells_of(statistics)
    sums = [
        sparse_counts.merged(
            codes,
            keys.one_array(table.column(f"n{j}")),
            keys.one_array(table.column(f"m{j}")),
            width=cells.count,
        )
        for j, (_, cells) in enumerate(finest)
    ]
    words, spreads, parts = [], {}, {}
    for i, statistic in enumerate(statistics):
        if isinstance(statistic, DistinctValues):
            j = distinct_of(statistics).index((statistic.column or "", statistic.most))
            rows, values = distinct.flat(table.column(f"d{j}"))
            once, _ = distinct.each_once(codes[rows], values)
            words.append((np.zeros(size, np.int64), np.bincount(once, minlength=size)))
        elif statistic.vectors is not None:
            j = vectors_of(statistics).index(statistic)
            parts[i] = Parts.of(codes, keys.one_array(table.column(f"w{j}")))
            words.append((np.zeros(size, np.int64), np.zeros(size, np.int64)))
        elif statistic.cells is None:
            words.append(exact_sums(codes, keys.one_array(table.column(f"a{i}")).to_numpy(), size))
        else:
            leaves = statistic.cells.finest
            whole = sums[finest.index((statistic.column or "", leaves))]
            spreads[i] = whole.coarser(leaves.count // statistic.cells.count)
            words.append((np.zeros(size, np.int64), np.zeros(size, np.int64)))
    high, low = (tuple(pair[word] for pair in words) for word in range(2))
    return Totals(partitions=partitions, high=high, low=low, cells=spreads, vectors=parts)
