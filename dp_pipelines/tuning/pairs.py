"""The (unit, partition) pairs of a table with all of their rows, for `tuning.bounding_moments`: nothing is bounded.

In: tables of events, then the rows of the units of a shard, then the pairs of the partitions of a place. Out: a wire
table with columns u0.. (unit), p0.. (partition), x0.. (numbers, NaN for a null); one row per pair with p0.., c
(partitions of the unit), x0.. (lists of the numbers of its rows), r (rows, if there are no numbers); `Pairs` of some
partitions at a time. Holds: the rows and partitions are those that a release sees (`kernels.layout`). Not covered:
privacy; only `dp_pipelines.tuning` may use this.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import keys, shard
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.lattice import numbers_and_nulls
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.tuning.bounding_moments import Pairs


def wire(table: pa.Table, layout: Layout, columns: Sequence[str]) -> pa.Table:
    """The rows of a table of events that a release sees.

    Args:
        table: events.
        layout: units, partitions and the public list, if there is one.
        columns: numbers that metrics read.
    """
    found = {n: keys.plain_unit(table.column(c)) for n, c in zip(layout.unit_names, layout.units, strict=True)}
    found |= layout.wire_keys(table)
    for i, column in enumerate(columns):
        values, nulls = numbers_and_nulls(keys.one_array(table.column(column)))
        found[f"x{i}"] = pa.array(values if nulls is None else np.where(nulls, np.nan, values))
    rows = pa.table(found)
    keep = layout.kept_rows(rows)
    return rows if keep is None else gather.filter_rows(rows, keep)


def of_units(rows: pa.Table, layout: Layout, columns: int) -> pa.Table:
    """The pairs of all units of a shard.

    Args:
        rows: wire tables of these units, as one.
        layout: as for `wire`.
        columns: how many numbers each row has.
    """
    units = keys.dense([keys.one_array(rows.column(name)) for name in layout.unit_names])
    partitions = keys.dense([keys.one_array(rows.column(name)) for name in layout.partition_names])
    order, codes = sorted_codes(units.codes * max(len(partitions), 1) + partitions.codes)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    sizes = np.diff(np.append(starts, len(codes)))
    unit_of_pair, of_pair = np.divmod(codes[starts], max(len(partitions), 1))
    named = zip(layout.partition_names, partitions.columns, strict=True)
    found = {name: gather.take(keys.encoded(column), of_pair) for name, column in named}
    found["c"] = pa.array(np.bincount(unit_of_pair, minlength=len(units))[unit_of_pair].astype(np.int32))
    if not columns:
        found["r"] = pa.array(sizes)
    offsets = pa.array(np.append(starts, len(codes)).astype(np.int32))
    for i in range(columns):
        numbers = keys.one_array(rows.column(f"x{i}")).to_numpy()[order]
        found[f"x{i}"] = pa.ListArray.from_arrays(offsets, pa.array(numbers))
    return pa.table(found)


def of_partitions(tables: Sequence[pa.Table], layout: Layout, columns: Sequence[str], most: int) -> Iterator[Pairs]:
    """The pairs of the partitions of a place, some partitions at a time.

    Args:
        tables: the results of `of_units` for all shards; at least one, possibly without rows.
        layout, columns: as for `wire`.
        most: partitions at a time.
    """
    table = shard.joined(tables)
    partitions = keys.dense([keys.plain(table.column(name)) for name in layout.partition_names])
    of_unit = table.column("c").to_numpy().astype(np.int64)
    order = np.argsort(partitions.codes, kind="stable") if len(partitions) > most else None
    for first in range(0, len(partitions), most):
        size = min(most, len(partitions) - first)
        part, codes, c = table, partitions.codes, of_unit
        if order is not None:
            sorted_codes = partitions.codes[order]
            mine = order[np.searchsorted(sorted_codes, first) : np.searchsorted(sorted_codes, first + size)]
            part, codes, c = gather.take_rows(table, mine), partitions.codes[mine] - first, of_unit[mine]
        rows, values = _numbers(part, columns)
        yield Pairs(partitions=codes, size=size, of_unit=c, rows=rows, values=values)


def _numbers(table: pa.Table, columns: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The number of rows of each pair, and their numbers by column."""
    if not columns:
        return table.column("r").to_numpy(), {}
    lists = [keys.one_array(table.column(f"x{i}")) for i in range(len(columns))]
    rows = np.diff(lists[0].offsets.to_numpy()).astype(np.int64)
    return rows, {column: found.flatten().to_numpy() for column, found in zip(columns, lists, strict=True)}


def sorted_codes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An order that sorts codes, and the codes in it."""
    size = len(codes)
    bits = max(size - 1, 0).bit_length()
    if int(codes.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(codes, kind="stable")
        return order, codes[order]
    # Sorting words that hold the position is several times faster than sorting positions.
    packed = (codes << bits) | np.arange(size)
    packed.sort()
    return packed & ((1 << bits) - 1), packed >> bits
