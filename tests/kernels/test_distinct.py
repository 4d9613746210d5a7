"""Different values: counted once, bounded for each unit and partition, joined over shards exactly."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import accumulate, distinct, shard
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import DistinctValues
from tests.helpers import cells as wide
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples

MODES = [mode for mode in nb.MODES if mode != "rows in all"]


def numbers(merged: list[accumulate.Totals], index: int) -> dict[Any, int]:
    """Partition to its number of different values, those with none left out."""
    return {key: of_key[index] for key, of_key in nb.exact(merged).items() if of_key[index]}


@pytest.mark.parametrize("bits", [2**64 - 1, 7, 0], ids=["strong", "low", "none"])
@settings(max_examples=examples(40, 120))
@given(data=st.data())
def test_every_way_of_the_rows_gives_the_numbers_of_plain_python(bits: int, data: st.DataObject) -> None:
    pair = data.draw(wide.with_cells(modes=MODES))
    table = pair.larger
    order = data.draw(st.permutations(range(table.num_rows)))
    way = data.draw(nb.ways(table.num_rows))
    with pytest.MonkeyPatch.context() as patch:
        nb.weak_hashes(patch, bits)
        merged = nb.totals(table.take(pa.array(order)), pair.layout, pair.statistics, way)
        for index, statistic in enumerate(pair.statistics):
            if statistic.kind == "distinct":
                expected = wide.expected_distinct(table, pair.layout, statistic.most, nb.SALT)
                assert numbers(merged, index) == {key: count for key, count in expected.items() if count}


def heavy(rows: int = 4000) -> tuple[pa.Table, Layout]:
    """A unit that holds every value, and units with few; repeated rows."""
    at = np.arange(rows)
    table = pa.table({
        "u": np.where(at % 2, 0, at % 97),
        "p": pa.array([f"p{n % 5}" for n in at]),
        "k": pa.array([None if n % 13 == 0 else f"value {n * 7919 % 301}" for n in at]),
    })  # fmt: skip
    layout = Layout(units=("u",), partitions=("p",), distinct=(("k", 3),), max_partitions=4)
    return table, layout


WAYS = [
    nb.Way(cuts=(100, 1500, 1501), shards=3, places=2),
    nb.Way(cuts=(1000, 2000), reduced=(True, False), shards=300, places=8, backwards=True),
    nb.Way(cuts=tuple(range(0, 4000, 70)), reduced=(True,), shards=2),
]


@pytest.mark.parametrize("way", WAYS, ids=range(len(WAYS)))
def test_a_table_with_a_unit_of_every_value_has_one_result(way: nb.Way) -> None:
    table, layout = heavy()
    statistics = [DistinctValues(column="k", most=3)]
    order = pa.array(np.argsort(np.arange(4000) * 1_000_003 % 4001))
    found = numbers(nb.totals(table.take(order), layout, statistics, way), 0)
    assert found == wide.expected_distinct(table.rename_columns(["u", "p", "k"]), layout, 3, nb.SALT)


def test_repeated_rows_of_one_value_crowd_no_other_value_out() -> None:
    layout = Layout(units=("u",), partitions=("p",), distinct=(("k", 2),), max_partitions=1)
    table = pa.table({"u": [1] * 1001, "p": ["p"] * 1001, "k": ["often"] * 1000 + ["once"]})
    found = nb.totals(table, layout, [DistinctValues(column="k", most=2)], nb.Way(cuts=(1000,), reduced=(True,)))
    assert numbers(found, 0) == {("'p'",): 2}


@settings(max_examples=60)
@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 5), st.permutations(range(40)))
def test_a_bound_that_binds_keeps_that_many_whatever_others_hold(
    values: list[int], most: int, order: list[int]
) -> None:
    layout = Layout(units=("u",), partitions=("p",), distinct=(("k", most),), max_partitions=1)
    statistic = DistinctValues(column="k", most=most)
    mine = pa.table({"u": pa.array([1] * len(values), pa.int64()), "p": pa.array(["p"] * len(values), pa.string()),
                     "k": pa.array(values, pa.int64())})  # fmt: skip
    others = pa.table({"u": [2] * 3, "p": ["q"] * 3, "k": [1, 2, 3]})
    both = pa.concat_tables([mine, others])
    shuffled = both.take(pa.array([i for i in order if i < both.num_rows]))
    assert numbers(nb.totals(mine, layout, [statistic]), 0).get(("'p'",), 0) == min(most, len(set(values)))
    # Which values stay is read off the lists that travel: the same with others beside it and in another order.
    wires = [layout.wire(table) for table in (mine, shuffled)] if both.num_rows <= 40 else []
    kept = []
    for wire in wires:
        partial = accumulate.partials(wire, layout, [statistic], nb.SALT).to_pydict()
        kept.append({key: sorted(found) for key, found in zip(partial["p0"], partial["d0"], strict=True)}.get("p", []))
    assert all(values == kept[0] for values in kept)


def test_shards_that_hold_the_same_values_are_joined_by_the_values() -> None:
    layout = Layout(units=("u",), partitions=("p",), distinct=(("k", 1000),), max_partitions=1)
    table = pa.table({"u": range(1000), "p": ["p"] * 1000, "k": [i % 10 for i in range(1000)]})
    statistics = [DistinctValues(column="k", most=1000)]
    assert numbers(nb.totals(table, layout, statistics, nb.Way(shards=50)), 0) == {("'p'",): 10}


def test_a_file_whose_values_are_all_null_has_no_type_and_joins_the_others() -> None:
    layout = Layout(units=("u",), partitions=("p",), distinct=(("k", 2),), max_partitions=1)
    statistics = [DistinctValues(column="k", most=2)]
    tables = [
        pa.table({"u": [1], "p": ["p"], "k": pa.nulls(1)}),
        pa.table({"u": [2], "p": ["p"], "k": pa.array(["a"]).dictionary_encode()}),
        pa.table({"u": [3], "p": ["p"], "k": pa.array(["b"], pa.large_string())}),
    ]
    for public in (None, (("p", "empty"),)):
        listed = dataclasses.replace(layout, public=public)
        wires = [listed.wire(table) for table in tables]
        partials = [
            accumulate.partials(wire, listed, statistics, 1) for wire in (shard.joined(wires[:2]), wires[2], wires[0])
        ]
        if public is None:
            merged = accumulate.merge(partials, ["p0"], statistics)
            assert merged.low[0].tolist() == [2]
        else:
            indexed = [accumulate.by_public_index(partial, listed) for partial in partials]
            assert accumulate.merge_public(indexed, listed, statistics, 0, 1).low[0].tolist() == [2, 0]
            assert accumulate.merge_public([], listed, statistics, 0, 1).low[0].tolist() == [0, 0]


def test_integers_of_different_widths_are_one_value_and_other_kinds_are_refused() -> None:
    layout = Layout(units=("u",), partitions=("p",), distinct=(("k", 9),), max_partitions=1)

    def wire(values: pa.Array) -> pa.Table:
        return layout.wire(pa.table({"u": [1] * len(values), "p": ["p"] * len(values), "k": values}))

    statistic = DistinctValues(column="k", most=9)
    joined = shard.joined([wire(pa.array([1, 2], pa.int8())), wire(pa.array([2, 3], pa.int64()))])
    assert sorted(accumulate.partials(joined, layout, [statistic], 1).column("d0").to_pylist()[0]) == [1, 2, 3]
    with pytest.raises(RequestError, match="disagree"):
        shard.joined([wire(pa.array([1])), wire(pa.array(["1"]))])


@pytest.mark.parametrize(
    "kind",
    [pa.float64(), pa.float16(), pa.dictionary(pa.int8(), pa.float32()), pa.list_(pa.int8()), pa.struct([])],
    ids=str,
)
def test_floats_and_nested_columns_have_no_different_values(kind: pa.DataType) -> None:
    with pytest.raises(RequestError, match="different values cannot be counted"):
        distinct.check_values(kind, "k")


def test_nothing_and_nulls_alone_are_no_value() -> None:
    layout = Layout(units=("u",), partitions=("p",), distinct=(("k", 2),), max_partitions=1)
    statistics = [DistinctValues(column="k", most=2)]
    empty = pa.table({"u": pa.array([], pa.int64()), "p": pa.array([], pa.string()), "k": pa.array([], pa.string())})
    assert nb.exact(nb.totals(empty, layout, statistics)) == {}
    nulls = pa.table({"u": [1, 2], "p": ["p", "p"], "k": pa.nulls(2, pa.string())})
    assert nb.exact(nb.totals(nulls, layout, statistics)) == {("'p'",): (0,)}
