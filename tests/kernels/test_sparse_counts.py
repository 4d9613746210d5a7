"""Sparse counts: the same as dense ones, however they are cut and put together."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.kernels import sparse_counts

PARTITIONS, WIDTH = 5, 12
ROWS = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, WIDTH - 1)), max_size=60)


def of(rows: list[tuple[int, int]]) -> sparse_counts.Spread:
    """Counts of (partition, cell)."""
    codes, cells = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    return sparse_counts.counted(codes, cells, partitions=PARTITIONS, width=WIDTH)


def table(rows: list[tuple[int, int]], width: int = WIDTH) -> list[list[int]]:
    """The same counts, dense, in plain Python."""
    counts = Counter(rows)
    return [[counts[partition, cell] for cell in range(width)] for partition in range(PARTITIONS)]


@given(ROWS, st.booleans())
def test_counts_are_those_of_the_rows_by_histogram_and_by_sort(rows: list[tuple[int, int]], small: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_counts, "SMALL", 2**22 if small else 0)
        found = of(rows)
    assert found.dense(np.arange(PARTITIONS)).tolist() == table(rows)
    assert (np.diff(found.places) > 0).all()
    assert (found.counts > 0).all()


@given(ROWS, st.sets(st.integers(0, PARTITIONS - 1)))
def test_some_partitions_have_the_counts_that_they_have_among_all(
    rows: list[tuple[int, int]], wanted: set[int]
) -> None:
    codes = np.array(sorted(wanted), np.int64)
    assert of(rows).dense(codes).tolist() == [table(rows)[code] for code in sorted(wanted)]


@given(ROWS, st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_coarser_cells_hold_the_sums_of_theirs(rows: list[tuple[int, int]], by: int) -> None:
    merged = [(partition, cell // by) for partition, cell in rows]
    assert of(rows).coarser(by).dense(np.arange(PARTITIONS)).tolist() == table(merged, WIDTH // by)


@given(st.lists(ROWS, max_size=4), st.data())
def test_parts_that_are_put_together_are_the_whole(parts: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    codes, cells, counts = [], [], []
    for part in parts:
        of_cells, of_counts = of(part).lists(PARTITIONS)
        order = data.draw(st.permutations(range(PARTITIONS)))
        codes.append(np.array(order, np.int64))
        cells.append(of_cells.take(pa.array(order)))
        counts.append(of_counts.take(pa.array(order)))
    if not parts:
        cells, counts = [pa.array([], pa.list_(pa.int32()))], [pa.array([], pa.list_(pa.int64()))]
    merged = sparse_counts.merged(
        np.concatenate([np.zeros(0, np.int64), *codes]),
        pa.concat_arrays(cells),
        pa.concat_arrays(counts),
        width=WIDTH,
    )
    rows = [row for part in parts for row in part]
    assert merged.dense(np.arange(PARTITIONS)).tolist() == table(rows)


def test_slices_of_lists_are_read_from_where_they_begin() -> None:
    cells, counts = of([(0, 3), (1, 4), (1, 4), (2, 5)]).lists(PARTITIONS)
    merged = sparse_counts.merged(np.array([0, 1]), cells.slice(1, 2), counts.slice(1, 2), width=WIDTH)
    assert merged.dense(np.array([0, 1])).tolist() == table([(0, 4), (0, 4), (1, 5)])[:2]


def test_counts_beyond_32_bits_add_up() -> None:
    lists = pa.array([[1], [1]], pa.list_(pa.int32())), pa.array([[2**40], [2**40 + 1]], pa.list_(pa.int64()))
    assert sparse_counts.merged(np.array([0, 0]), *lists, width=4).counts.tolist() == [2**41 + 1]
