"""Cells: each value has one at most, the one that plain Python gives it; types that have none are refused."""

import dataclasses
import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import lattice
from dp_pipelines.kernels.cells import Bins, Categories, Cells, TreeLevel
from dp_pipelines.kernels.statistics import CellCounts
from tests.helpers import cells as wide
from tests.helpers import neighbours as nb

NUMBER = (
    st.floats() | st.sampled_from([0.0, -0.0, 0.1, 1.0, -1.0, 5e-324, 1e308, math.inf, -math.inf, math.nan]) | st.none()
)
TREES = st.sampled_from([*wide.TREES, (-1e300, 1e300, 4, 6), (0.0, 1e-300, 4, 6), (1e15, 1e15 + 4096, 2, 12)])


@st.composite
def rising(draw: st.DrawFn) -> tuple[float, ...]:
    """Edges of bins."""
    finite = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1.0, 0.1, 5e-324])
    return tuple(sorted(draw(st.sets(finite, min_size=2, max_size=6))))


@given(rising(), st.lists(NUMBER, max_size=20))
def test_a_bin_holds_its_lower_edge_and_the_last_one_both(edges: tuple[float, ...], values: list[Any]) -> None:
    bins = Bins(edges=edges)
    statistic = CellCounts(column="n", cells=bins)
    values += list(edges)
    expected = [wide.cell_of(statistic, value) for value in values]
    assert bins.of(pa.array(values, pa.float64())).to_pylist() == expected
    for value, cell in zip(values, expected, strict=True):
        if cell is not None:
            assert edges[cell] <= value
            assert value < edges[cell + 1] or (value == edges[-1] and cell == bins.count - 1)


@given(TREES, st.lists(NUMBER, max_size=20))
def test_a_leaf_is_within_the_tree_and_rises_with_the_value(tree: Any, values: list[Any]) -> None:
    low, high, branching, depth = tree
    level = TreeLevel(low=low, high=high, branching=branching, depth=depth, level=depth)
    statistic = CellCounts(column="n", cells=level)
    values += [low, high]
    found = level.of(pa.array(values, pa.float64())).to_pylist()
    assert found == [wide.cell_of(statistic, value) for value in values]
    assert found[-2:] == [0, level.count - 1]
    ordered = sorted((value, cell) for value, cell in zip(values, found, strict=True) if cell is not None)
    assert [cell for _, cell in ordered] == sorted(cell for _, cell in ordered)
    assert all(0 <= cell < level.count for _, cell in ordered)


@pytest.mark.parametrize("kind", [k for k, _ in nb.NUMBERS] + [pa.bool_(), pa.null(), pa.float16()], ids=str)
def test_numbers_of_every_type_have_cells_and_slices_have_those_of_their_rows(kind: pa.DataType) -> None:
    values: list[Any] = {str(k): v for k, v in nb.NUMBERS}.get(str(kind), [None])
    values = [True, False, None] if pa.types.is_boolean(kind) else values * 3
    whole = nb.array_of(kind, values)
    for cells in (Bins(edges=(-1.0, 0.0, 1.0, 1e9)), TreeLevel(low=-1.0, high=1.0, branching=4, depth=2, level=2)):
        statistic = CellCounts(column="n", cells=cells)
        found = cells.of(whole).to_pylist()
        assert found == [wide.cell_of(statistic, value) for value in whole.to_pylist()]
        assert cells.of(whole.slice(1, 2)).to_pylist() == found[1:3]
        cells.check(kind, "n")


@pytest.mark.parametrize(("kind", "values", "categories"), wide.KEYS, ids=lambda part: str(part)[:20])
def test_a_category_is_found_by_its_whole_value(kind: pa.DataType, values: list[Any], categories: list[Any]) -> None:
    cells = Categories(values=tuple(categories))
    column = nb.array_of(kind, values)
    expected = [categories.index(v) if v is not None and v in categories else None for v in values]
    assert cells.of(column).to_pylist() == expected
    assert cells.of(column.slice(1)).to_pylist() == expected[1:]
    cells.check(kind, "k")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), (1,)),
        (pa.dictionary(pa.int8(), pa.float32()), (1,)),
        (pa.list_(pa.string()), ("a",)),
        (pa.int64(), ("1",)),
        (pa.string(), (1,)),
        (pa.bool_(), (1,)),
        (pa.int8(), (1, 300)),
        (pa.int64(), (10**30,)),
        (pa.string(), ("\ud800",)),
        (pa.date32(), ("no date",)),
    ],
    ids=str,
)
def test_categories_that_are_none_of_the_columns_are_refused_without_a_value_in_the_words(
    kind: pa.DataType, values: tuple[Any, ...]
) -> None:
    with pytest.raises(RequestError, match="column 'k'") as caught:
        Categories(values=values).check(kind, "k")
    assert not any(str(value) in caught.value.message for value in values if value not in (1, "1", "a"))


@pytest.mark.parametrize("cells", [Bins(edges=(0.0, 1.0)), TreeLevel(low=0.0, high=1.0, branching=2, depth=1, level=1)])
@pytest.mark.parametrize("kind", [pa.string(), pa.date32(), pa.list_(pa.float64())], ids=str)
def test_what_is_no_number_has_no_bins(cells: Cells, kind: pa.DataType) -> None:
    with pytest.raises(RequestError, match="no number"):
        cells.check(kind, "k")


def test_different_cells_have_different_names_and_the_same_ones_the_same() -> None:
    trees = [TreeLevel(low=0.0, high=h, branching=2, depth=3, level=n) for n in (1, 2, 3) for h in (1.0, 8.0)]
    many: list[Cells] = [
        Bins(edges=(0.0, 1.0, 2.0)),
        Bins(edges=(0.0, 1.5, 2.0)),
        Categories(values=("1",)),
        Categories(values=(1,)),
        Categories(values=(True,)),
        Categories(values=(decimal.Decimal(1),)),
        Categories(values=(datetime.date(2026, 1, 1),)),
        *trees,
    ]
    assert len({cells.name for cells in many}) == len(many)
    assert Bins(edges=(0.0, 1.0, 2.0)).name == many[0].name


def test_the_levels_of_a_tree_share_their_leaves() -> None:
    levels = [TreeLevel(low=0.0, high=8.0, branching=2, depth=3, level=level) for level in (1, 2, 3)]
    assert {level.finest for level in levels} == {levels[2]}
    assert [level.count for level in levels] == [2, 4, 8]


# The whole way.


def _wide(pair: nb.Neighbours) -> nb.Neighbours:
    """The same statistics under bounds that keep every row."""
    many = {"max_partitions": 1000, "max_rows_per_partition": 1000}
    rows = {"max_rows": None if pair.layout.max_rows is None else 1000}
    return dataclasses.replace(pair, layout=dataclasses.replace(pair.layout, **many, **rows))


@settings(max_examples=100)
@given(data=st.data())
def test_every_way_of_the_rows_gives_the_counts_of_plain_python(data: st.DataObject) -> None:
    pair = _wide(data.draw(wide.with_cells()))
    table = pair.larger
    order = data.draw(st.permutations(range(table.num_rows)))
    way = data.draw(nb.ways(table.num_rows))
    merged = nb.totals(table.take(pa.array(order)), pair.layout, pair.statistics, way)
    for index, statistic in enumerate(pair.statistics):
        if statistic.cells is not None:
            assert wide.counts(merged, index) == wide.expected_counts(table, pair.layout, statistic, nb.SALT)


@settings(max_examples=60)
@given(data=st.data())
def test_order_batches_shards_and_places_change_no_count_under_bounds_that_bind(data: st.DataObject) -> None:
    pair = data.draw(wide.with_cells())
    table = pair.larger
    order = data.draw(st.permutations(range(table.num_rows)))
    way = data.draw(nb.ways(table.num_rows))
    straight = nb.totals(table, pair.layout, pair.statistics)
    other = nb.totals(table.take(pa.array(order)), pair.layout, pair.statistics, way)
    assert nb.exact(straight) == nb.exact(other)
    for index, statistic in enumerate(pair.statistics):
        if statistic.cells is not None:
            assert wide.counts(straight, index) == wide.counts(other, index)


# Coarse rounding.


@given(st.lists(st.integers(0, 2**62), max_size=6), st.integers(1, 2**62), st.sampled_from([0, 20]))
def test_coarse_counts_are_those_of_pythons_integers(counts: list[int], step: int, shift: int) -> None:
    expected = [max(-(2**52), min(2**52, ((min(c, 2**40) << shift) + step // 2) // step)) for c in counts]
    assert lattice.coarse_counts(np.array(counts, np.int64), shift=shift, step=step).tolist() == expected


@given(st.integers(0, 2**41), st.integers(0, 2**24), st.integers(1, 2**44))
def test_a_count_that_moves_by_d_moves_by_d_over_step_rounded_up_at_most(count: int, moved: int, step: int) -> None:
    low, high = lattice.coarse_counts(np.array([count, count + moved]), shift=20, step=step).tolist()
    assert 0 <= high - low <= -(-(moved << 20) // step)
