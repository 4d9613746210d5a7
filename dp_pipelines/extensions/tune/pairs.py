"""The (unit, partition) pairs of a table with all of their rows, for `bounding_moments`: nothing is bounded.

In: the rows of the units of a shard (`steps.unbounded_rows`), then the pairs of the partitions of a place. Out: one row per pair
with p0.., c (partitions of the unit), x0.. (lists of the numbers of its rows), r (rows, if there are no numbers); `Pairs` of some
partitions at a time. Holds: the rows and partitions are those that a release sees (`kernels.layout`). Not covered: privacy; only
`dp_pipelines.extensions.tune` may use this.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.extensions.tune.bounding_moments import Pairs
from dp_pipelines.kernels import keys, shard
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.steps import unbounded_rows


def of_units(rows: pa.Table, layout: Layout, columns: int) -> pa.Table:
    """The pairs of all units of a shard.

    Args:
        rows: wire tables of these units, as one.
        layout: units, partitions and the public list, if there is one.
        columns: how many numbers each row has.
    """
    units = keys.dense([keys.one_array(rows.column(name)) for name in layout.unit_names])
    partitions = keys.dense([keys.one_array(rows.column(name)) for name in layout.partition_names])
    order, codes = unbounded_rows.sorted_codes(units.codes * max(len(partitions), 1) + partitions.codes)
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
        layout: as for `of_units`.
        columns: numbers that metrics read.
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
            in_order = partitions.codes[order]
            mine = order[np.searchsorted(in_order, first) : np.searchsorted(in_order, first + size)]
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
