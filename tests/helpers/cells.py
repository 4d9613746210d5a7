"""Statistics that are more than one number for a partition, or no sum: cells and different values, over neighbouring data sets.

In: pairs of `tests.helpers.neighbours`. Out: the same pairs with a column of keys more and with statistics over cells and
different values; counts by partition and cell as Python integers. Holds: the oracles look at rows one by one and share
nothing with the kernels but the wire form and the hash of a value. Tests only.
"""

import bisect
import dataclasses
import datetime
import decimal
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from dp_pipelines.kernels import accumulate, bounding, keys, lattice
from dp_pipelines.kernels.cells import Bins, Categories, TreeLevel
from dp_pipelines.kernels.columns import hashing
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import (
    CellCounts,
    DistinctValues,
    RowCount,
    Statistic,
    UnitCount,
    cells_of,
    distinct_of,
)
from tests.helpers import neighbours as nb
from tests.helpers import oracle

Counts = dict[tuple[tuple[Any, ...], int], int]

DAY = datetime.date(2026, 1, 1)
KEYS: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.string(), [None, "", "a", "a\0", "longer than one word of hash"], ["a", "", "nobody's"]),
    (pa.dictionary(pa.int8(), pa.large_string()), ["x", "y", None, "z"], ["z", "x"]),
    (pa.int64(), [0, -1, 2**53 + 1, 2**53, -(2**63), None], [2**53, -(2**63), 5]),
    (pa.uint64(), [2**64 - 1, 2**63, 0, None], [2**64 - 1, 1]),
    (pa.bool_(), [True, False, None], [False, True]),
    (
        pa.decimal128(20, 2),
        [decimal.Decimal(v) for v in ("0.00", "0.01", "-7.00")] + [None],
        [decimal.Decimal("-7"), decimal.Decimal("0.01")],
    ),
    (pa.date32(), [DAY, DAY + datetime.timedelta(1), None], [DAY]),
    (pa.null(), [None], ["a"]),
]
"""Types of key columns, values of rows and declared categories."""

EDGES = [(0.0, 1.0), (-1.0, -0.0, 0.1, 1.5, 2.0**53), (-1e308, 1e308), (-5e-324, 5e-324, 1.0), (0.0, 7.0, 1e9)]
TREES = [(0.0, 8.0, 2, 3), (-1.0, 1.0, 4, 2), (-1e150, 1e150, 3, 1), (0.001, 1e9, 8, 2)]


@st.composite
def with_cells(draw: st.DrawFn, *, modes: Sequence[str] = nb.MODES) -> nb.Neighbours:
    """Neighbours with column k0 of keys, and statistics over cells of it and of every number, and different values of it."""
    pair = draw(nb.neighbours(modes=modes))
    kind, values, categories = draw(st.sampled_from(KEYS))

    def more(table: pa.Table) -> pa.Table:
        drawn = draw(st.lists(st.sampled_from(values), min_size=table.num_rows, max_size=table.num_rows))
        return table.append_column("k0", nb.array_of(kind, drawn))

    statistics = [RowCount(), UnitCount()]
    statistics.append(CellCounts(column="k0", cells=Categories(values=tuple(categories))))
    for name in pair.smaller.column_names:
        if name.startswith("n"):
            statistics.append(CellCounts(column=name, cells=Bins(edges=draw(st.sampled_from(EDGES)))))
            low, high, branching, depth = draw(st.sampled_from(TREES))
            tree = {"low": low, "high": high, "branching": branching, "depth": depth}
            statistics += [
                CellCounts(column=name, cells=TreeLevel(level=level, **tree)) for level in range(1, depth + 1)
            ]
    if pair.layout.max_rows is None:
        most = draw(st.sampled_from([None, 1, 2, 5]))
        statistics += [DistinctValues(column="k0", most=most) for most in {most, 2}]
    layout = dataclasses.replace(
        pair.layout, cells=tuple(cells_of(statistics)), distinct=tuple(distinct_of(statistics))
    )
    return dataclasses.replace(
        pair, smaller=more(pair.smaller), extra=more(pair.extra), layout=layout, statistics=tuple(statistics)
    )


def counts(merged: Sequence[accumulate.Totals], statistic: int) -> Counts:
    """The cells of a statistic that count something, by partition."""
    return {
        (key, cell): count
        for part in merged
        for key, row in zip(nb._keys(part), dense(part, statistic), strict=True)
        for cell, count in enumerate(row)
        if count
    }


def coarse(merged: Sequence[accumulate.Totals], statistic: int, shift: int, step: int) -> Counts:
    """Every cell of a statistic on the lattice of its release."""
    return {
        (key, cell): count
        for part in merged
        for key, row in zip(
            nb._keys(part),
            lattice.coarse_counts(np.array(dense(part, statistic), np.int64), shift=shift, step=step).tolist(),
            strict=True,
        )
        for cell, count in enumerate(row)
    }


def dense(part: accumulate.Totals, statistic: int) -> list[list[int]]:
    """All cells of all partitions."""
    found: list[list[int]] = part.cells[statistic].dense(np.arange(len(part.partitions[0]))).tolist()
    return found


def too_sensitive(pair: nb.Neighbours, way: nb.Way = nb.STRAIGHT, other_way: nb.Way = nb.STRAIGHT) -> list[str]:
    """The statistics over cells that one unit moves by more than is declared, fine and after coarse rounding."""
    without = nb.totals(pair.smaller, pair.layout, pair.statistics, way)
    with_unit = nb.totals(pair.larger, pair.layout, pair.statistics, other_way)
    broken = []
    for index, statistic in enumerate(pair.statistics):
        if statistic.cells is None:
            continue
        shape, shift = pair.shape(statistic), statistic.fine_bits
        moved = nb.distances(counts(without, index), counts(with_unit, index))
        if not nb._within(moved, shape, shape.unit >> shift):
            broken.append(f"{statistic.name}, fine")
        for number in (1, 7, 1024, 3000):
            step = -(-shape.unit // number)
            moved = nb.distances(*(coarse(of, index, shift, step) for of in (without, with_unit)))
            if not nb._within(moved, shape, -(-shape.unit // step)):
                broken.append(f"{statistic.name}, in steps of {step}")
    return broken


def number(value: Any) -> float | None:
    """A cell of a table as a number; None where it is null or NaN."""
    return None if value is None or math.isnan(value) else float(value)


def cell_of(statistic: Statistic, value: Any) -> int | None:
    """The cell of one value, without arrays."""
    cells = statistic.cells
    if isinstance(cells, Categories):
        return cells.values.index(value) if value is not None and value in cells.values else None
    found = number(value)
    if found is None:
        return None
    if isinstance(cells, Bins):
        if not cells.edges[0] <= found <= cells.edges[-1]:
            return None
        return min(bisect.bisect_right(cells.edges, found), cells.count) - 1
    assert isinstance(cells, TreeLevel)
    leaves = cells.finest.count
    part = (min(max(found, cells.low), cells.high) / 2 - cells.low / 2) / (cells.high / 2 - cells.low / 2)
    return min(int(part * leaves), leaves - 1) // (leaves // cells.count)


def expected_counts(table: pa.Table, layout: Layout, statistic: Statistic, salt: int) -> Counts:
    """The cells of a statistic in plain Python, for a table all of whose rows are kept."""
    values = keys.plain(table.column(statistic.column)).to_pylist()
    if pa.types.is_floating(keys.plain_type(table.schema.field(statistic.column).type)):
        values = keys.one_array(table.column(statistic.column)).to_pylist()
    found: Counter[Any] = Counter()
    columns = [keys.plain(table.column(name)).to_pylist() for name in layout.partitions]
    units = [keys.plain_unit(table.column(name)).to_pylist() for name in layout.units]
    listed = set(layout.public) if layout.public is not None else None
    for key, unit, value in zip(zip(*columns, strict=True), zip(*units, strict=True), values, strict=True):
        cell = cell_of(statistic, value)
        if cell is not None and None not in unit and (listed is None or key in listed):
            found[tuple(map(repr, key)), cell] += 1
    return dict(found)


def expected_distinct(table: pa.Table, layout: Layout, most: int | None, salt: int) -> dict[tuple[Any, ...], int]:
    """How many different values of k0 each partition has: those with the smallest hashes of each kept unit and partition."""
    kept = {(pair.unit, pair.partition) for pair in oracle.pairs(table, layout, salt)}
    texts = layout.listed_texts()
    wire = layout.wire(table, texts)
    units, partitions = (
        [keys.plain(wire.column(name)) for name in names] for names in (layout.unit_names, layout.partition_names)
    )
    hashes = bounding.hash_pairs(hashing.hash_columns(units, salt), hashing.hash_columns(partitions, salt))
    of_pair: dict[Any, dict[Any, tuple[int, Any]]] = defaultdict(dict)
    lists = keys.one_array(wire.column("d0"))
    for row in range(wire.num_rows):
        unit, partition = (tuple(column[row].as_py() for column in columns) for columns in (units, partitions))
        partition = tuple(oracle.whole(value, texts) for value in partition)
        if (unit, partition) not in kept:
            continue
        values = lists.slice(row, 1).flatten()
        for value in values.to_pylist():
            order = int(hashing.hash_onto(hashes[row : row + 1], [values])[0])
            by_key = value.encode() if isinstance(value, str) else value
            of_pair[unit, partition][by_key] = (order, by_key)
    found: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for (_, partition), orders in of_pair.items():
        chosen = sorted(orders, key=orders.__getitem__)[: most or layout.max_rows_per_partition]
        found[tuple(map(repr, partition))].update(chosen)
    return {key: len(values) for key, values in found.items()}
