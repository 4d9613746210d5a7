"""Pairs of rows with equal keys: those of a plain program, in slices of any size.

In: key columns of every kind. Out: pairs. Holds: a null meets nothing; slices hold all pairs once, none more than it may.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.kernels.columns.matches import Matches, _sorted_by_code, loose_codes, matches

KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [None, 0, -1, 2**62]),
    (pa.string(), [None, "", "a", "longer than one word of hash"]),
    (pa.float64(), [None, 0.0, 0.5]),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[pa.Array], list[pa.Array]]:
    """Key columns of two tables."""
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    found = []
    for _ in range(2):
        rows = draw(st.integers(0, 12))
        found.append([pa.array(draw(st.lists(st.sampled_from(v), min_size=rows, max_size=rows)), k) for k, v in kinds])
    return found[0], found[1]


def pairs_of(found: Matches, most: int) -> list[tuple[int, int]]:
    """All pairs, in the order of slices; each slice is as small as it must be."""
    slices = list(found.pairs(most))
    assert all(0 < len(left) == len(right) <= most for left, right in slices)
    of_rows = [(found.left[left].tolist(), found.right[right].tolist()) for left, right in slices]
    return [pair for left, right in of_rows for pair in zip(left, right, strict=True)]


def expected(left: list[pa.Array], right: list[pa.Array]) -> list[tuple[int, int]]:
    """The pairs, row by row."""
    mine, theirs = ([tuple(row) for row in zip(*(c.to_pylist() for c in side), strict=True)] for side in (left, right))
    return [(i, j) for i, one in enumerate(mine) for j, other in enumerate(theirs) if None not in one and one == other]


@given(both=tables(), most=st.integers(1, 20))
def test_pairs_are_those_of_a_plain_program_however_they_are_sliced(
    both: tuple[list[pa.Array], list[pa.Array]], most: int
) -> None:
    found = matches(*both)
    assert sorted(pairs_of(found, most)) == sorted(expected(*both))
    assert found.alone().tolist() == sorted(set(range(len(both[0][0]))) - {i for i, _ in expected(*both)})


@given(
    codes=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**40 - 1), st.sampled_from([2**16, 2**17, 2**32]))),
    spare=st.integers(1, 2**20),
)
def test_rows_are_sorted_by_their_whole_codes_and_then_by_place(codes: list[int], spare: int) -> None:
    rows = np.array(codes, np.int64)
    order = _sorted_by_code(rows, max(codes, default=0) + spare)
    assert order.tolist() == sorted(range(len(codes)), key=lambda place: (codes[place], place))


@given(both=tables())
def test_codes_are_equal_where_keys_without_null_are(both: tuple[list[pa.Array], list[pa.Array]]) -> None:
    keys = [tuple(row) for row in zip(*(column.to_pylist() for column in both[0]), strict=True)]
    codes, number = loose_codes(both[0])
    assert all(0 <= code < number for code in codes)
    sound = [(key, code) for key, code in zip(keys, codes.tolist(), strict=True) if None not in key]
    assert all((one == other) == (mine == theirs) for one, mine in sound for other, theirs in sound)


def test_wide_ranges_of_two_columns_have_codes_that_no_table_is_too_large_for() -> None:
    one, other = np.array([0, 700, 350, 0] * 50), np.array([5, 705, 5, 705] * 50)
    codes, number = loose_codes([pa.array(one), pa.array(other)])
    assert number <= 8 * len(one)
    assert len(set(codes.tolist())) == len(set(zip(one.tolist(), other.tolist(), strict=True))) == 4


def test_a_key_with_very_many_pairs_costs_the_memory_of_a_slice() -> None:
    found = matches([pa.array(np.zeros(2**12))], [pa.array(np.zeros(2**12))])
    seen = 0
    for left, right in found.pairs(2**10):
        assert len(left) == len(right) == 2**10
        seen += len(left)
    assert seen == 2**24


def test_tables_without_rows_have_no_pairs() -> None:
    nothing = pa.array([], pa.int64())
    assert list(matches([nothing], [pa.array([1])]).pairs(5)) == []
    assert matches([pa.array([1])], [nothing]).alone().tolist() == [0]
