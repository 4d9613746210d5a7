"""Small tables that are brought to their shards together: their rows are those of the tables one by one.

In: tables of several schemas and sizes. Out: wire tables by shard. Holds: no row is lost or doubled, and tables of different
types stay apart.
"""

import pyarrow as pa
import pytest

from dp_pipelines.kernels.lattice import Lattice
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.steps import aggregate
from dp_pipelines.steps.aggregate import ToShards

LAYOUT = Layout(
    units=("u",),
    partitions=("p",),
    values=(("n", Lattice.for_values(0, 1000)),),
    max_partitions=3,
    max_rows_per_partition=9,
)
SALT = 7


def rows_of(tables: list[pa.Table]) -> list[tuple[object, ...]]:
    """All wire rows with their shards."""
    cut = ToShards(LAYOUT, 4, SALT).compute(tables)
    return sorted((number, *row.values()) for number, wire in cut for row in wire.to_pylist())


def table(begin: int, rows: int, kind: pa.DataType) -> pa.Table:
    """Rows of units from a number on."""
    numbers = range(begin, begin + rows)
    partitions = pa.array([f"p{number % 3}" for number in numbers]).dictionary_encode()
    return pa.table({"u": pa.array(numbers, kind), "p": partitions, "n": pa.array(numbers, pa.float64())})


@pytest.mark.parametrize("small", [1, 4, 2**16])
def test_the_rows_of_small_tables_are_those_of_the_tables_one_by_one(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [table(0, 3, pa.int64()), table(3, 0, pa.int64()), table(3, 9, pa.int32()), table(12, 5, pa.int64())]
    monkeypatch.setattr(aggregate, "SMALL", small)
    alone = sorted(row for one in tables for row in rows_of([one]))
    assert rows_of(tables) == alone
    assert len(alone) == 17


def test_many_small_tables_are_brought_to_their_shards_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    wire = Layout.wire
    monkeypatch.setattr(
        Layout, "wire", lambda self, rows, texts=None: seen.append(len(rows)) or wire(self, rows, texts)
    )
    rows_of([table(10 * number, 10, pa.int64()) for number in range(50)])
    assert seen == [500]
