"""Contribution bounding and every statistic again, in plain Python: dictionaries, sorting, integers without end.

In: a table of events, a layout, statistics. Out: kept rows; partition to exact statistics. Holds: only the wire form and the
hash of a single value come from the kernels; grouping, choosing, tie-breaking and adding are written anew, for clarity.
Tests only.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.kernels import bounding, keys
from dp_pipelines.kernels.columns import hashing, long_text
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import Statistic

Key = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the wire form: keys, the lattice values and summands by wire name, and what orders it.

    The partition is whole; where hashes are equal, rows and partitions go by what travels, digests among it.
    """

    unit: Key
    partition: Key
    travels: Key
    numbers: dict[str, int | None]
    pair_hash: int
    hash: int
    content: Key


def rows(table: pa.Table, layout: Layout, salt: int) -> list[Row]:
    """The rows of a table that have a unit and, with a public list, a listed partition."""
    texts = layout.listed_texts()
    wire = layout.wire(table, texts)
    columns = {name: keys.plain(wire.column(name)) for name in wire.column_names}
    unit_hashes = hashing.hash_columns([columns[name] for name in layout.unit_names], salt)
    partition_hashes = hashing.hash_columns([columns[name] for name in layout.partition_names], salt)
    pair_hashes = bounding.hash_pairs(unit_hashes, partition_hashes)
    hashes = hashing.hash_onto(pair_hashes, [columns[name] for name in layout.content_names])
    names = [name for name in wire.column_names if name[0] in "vs"]
    made = []
    for i in range(wire.num_rows):
        value = {name: column[i].as_py() for name, column in columns.items()}
        made.append(
            Row(
                unit=tuple(value[name] for name in layout.unit_names),
                partition=tuple(whole(value[name], texts) for name in layout.partition_names),
                travels=tuple(value[name] for name in layout.partition_names),
                numbers={name: value[name] for name in names},
                pair_hash=int(pair_hashes[i]),
                hash=int(hashes[i]),
                content=tuple(value[name] for name in [*layout.content_names, *layout.value_names]),
            )
        )
    return made


def whole(value: Any, texts: long_text.Texts) -> Any:
    """A partition key as it is published: the text of a digest."""
    if isinstance(value, str):
        return texts.get(value.encode(), value.encode()).decode()
    return texts.get(value, value) if isinstance(value, bytes) else value


def _nulls_last(key: Key) -> list[tuple[bool, Any]]:
    return [(value is None, value.encode() if isinstance(value, str) else value) for value in key]


def _by_content(row: Row) -> tuple[Any, ...]:
    return (row.hash, _nulls_last(row.travels), _nulls_last(row.content))


@dataclasses.dataclass
class Pair:
    """What is kept of one unit in one partition: some rows, and all rows for clipped sums."""

    unit: Key
    partition: Key
    kept: list[Row]
    every: list[Row]


def pairs(table: pa.Table, layout: Layout, salt: int) -> list[Pair]:
    """What bounding keeps, unit by unit."""
    of_unit: dict[Key, list[Row]] = defaultdict(list)
    for row in rows(table, layout, salt):
        of_unit[row.unit].append(row)
    found = []
    for unit, own in of_unit.items():
        if layout.max_rows is not None:
            own = sorted(own, key=_by_content)[: layout.max_rows]
        of_partition: dict[Key, list[Row]] = defaultdict(list)
        for row in own:
            of_partition[row.partition].append(row)
        order = sorted(
            of_partition, key=lambda p: (of_partition[p][0].pair_hash, _nulls_last(of_partition[p][0].travels))
        )
        if layout.max_rows is None:
            order = order[: layout.max_partitions]
        for partition in order:
            every = sorted(of_partition[partition], key=_by_content)
            kept = every if layout.max_rows is not None else every[: layout.max_rows_per_partition]
            found.append(Pair(unit=unit, partition=partition, kept=kept, every=every))
    return found


def sums(table: pa.Table, layout: Layout, statistics: Sequence[Statistic], salt: int) -> dict[Key, tuple[int, ...]]:
    """Partition to its exact statistics; partitions as representations of their values."""
    found = pairs(table, layout, salt)
    listed = layout.public if layout.public is not None else (pair.partition for pair in found)
    totals: dict[Key, list[int]] = {tuple(map(repr, key)): [0] * len(statistics) for key in listed}
    partitions_of: dict[Key, int] = defaultdict(int)
    for pair in found:
        partitions_of[pair.unit] += 1
    for pair in found:
        own = totals[tuple(map(repr, pair.partition))]
        for i, statistic in enumerate(statistics):
            own[i] += _contribution(statistic, pair, layout, partitions_of[pair.unit])
    return {key: tuple(of_key) for key, of_key in totals.items()}


def _contribution(statistic: Statistic, pair: Pair, layout: Layout, partitions: int) -> int:
    """What one unit adds to a statistic of one partition."""
    if statistic.kind == "rows":
        return len(pair.kept)
    if statistic.kind == "units":
        return 1
    if statistic.kind == "weights":
        return math.isqrt(4**20 // partitions)
    if statistic.kind == "clipped_sum":
        name = f"s{layout.summands.index((statistic.column, statistic.lattice))}"
        low, high = statistic.lattice.clip_bounds
        return min(max(sum(row.numbers[name] for row in pair.every), low), high)
    columns = [column for column, _ in layout.values]
    if statistic.kind == "not_null":
        name = f"v{columns.index(statistic.column)}"
        return sum(row.numbers[name] is not None for row in pair.kept)
    name = f"v{layout.values.index((statistic.column, statistic.lattice))}"
    return sum(row.numbers[name] or 0 for row in pair.kept)
