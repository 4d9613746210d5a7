"""Pairs of a table with all of their rows: any cut of the rows, any number of places, beside plain Python."""

import collections
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.tune import pairs
from dp_pipelines.kernels import shard
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.steps import unbounded_rows

LAYOUT = Layout(units=("who",), partitions=("where", "when"), max_partitions=1)
LISTED = Layout(units=("who",), partitions=("where", "when"), max_partitions=1, public=(("a", "b"), (1, 2)))

ROW = st.tuples(
    st.one_of(st.none(), st.integers(0, 4)),
    st.sampled_from(["a", "b", None]),
    st.integers(1, 2),
    st.one_of(st.none(), st.integers(-5, 5).map(float), st.just(float("nan"))),
)


def table(rows: list[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = {"who": pa.int64(), "where": pa.string(), "when": pa.int32(), "x": pa.float64()}
    return pa.table({name: pa.array(cells, kind) for (name, kind), cells in zip(kinds.items(), columns, strict=True)})


def expected(rows: list[Any], layout: Layout) -> list[Any]:
    """For each pair: partitions of its unit, and its numbers."""
    of_pair = collections.defaultdict(list)
    for who, where, when, x in rows:
        if who is not None and (layout.public is None or (where, when) in (("a", 1), ("b", 2))):
            of_pair[who, where, when].append(None if x is None or x != x else x)
    of_unit = collections.Counter(who for who, _, _ in of_pair)
    listed = [(where, when, of_unit[who], sorted(map(repr, xs))) for (who, where, when), xs in of_pair.items()]
    return sorted(collections.Counter(repr(each[2:]) for each in listed).items()), len({each[:2] for each in listed})


def found(tables: list[pa.Table], layout: Layout, shards: int, places: int, most: int) -> Any:
    cut = collections.defaultdict(list)
    for each in tables:
        for number, part in shard.slices(unbounded_rows.wire_rows(each, layout, ["x"]), layout.unit_names, 7, shards):
            cut[number].append(part)
    by_place = collections.defaultdict(list)
    for parts in cut.values():
        of_units = pairs.of_units(shard.joined(parts), layout, 1)
        for number, part in shard.slices(of_units, layout.partition_names, 7, places):
            by_place[number].append(part)
    listed, partitions = [], 0
    for parts in by_place.values():
        for some in pairs.of_partitions(parts, layout, ["x"], most):
            partitions += len(np.unique(some.partitions))
            assert some.size == len(np.unique(some.partitions)) <= most
            ends = np.cumsum(some.rows)
            for c, begin, end in zip(some.of_unit.tolist(), some.starts.tolist(), ends.tolist(), strict=True):
                numbers = some.values["x"][begin:end].tolist()
                listed.append((c, sorted(repr(None if x != x else x) for x in numbers)))
    return sorted(collections.Counter(map(repr, listed)).items()), partitions


@pytest.mark.parametrize("layout", [LAYOUT, LISTED])
@given(
    rows=st.lists(ROW, max_size=25), at=st.integers(0, 25), shards=st.integers(1, 3), places=st.integers(1, 3),
    most=st.integers(1, 5),
)  # fmt: skip
def test_pairs_are_those_of_the_rows_however_these_are_cut(
    layout: Layout, rows: list[Any], at: int, shards: int, places: int, most: int
) -> None:
    tables = [table(rows[:at]), table(rows[at:])]
    assert found(tables, layout, shards, places, most) == expected(rows, layout)


def test_without_numbers_rows_are_counted() -> None:
    rows = table([(1, "a", 1, 0.0), (1, "a", 1, 1.0), (2, "b", 1, 2.0)])
    of_units = pairs.of_units(unbounded_rows.wire_rows(rows, LAYOUT, []), LAYOUT, 0)
    (some,) = pairs.of_partitions([of_units], LAYOUT, [], 10)
    assert sorted(some.rows.tolist()) == [1, 2]
    assert some.values == {}
