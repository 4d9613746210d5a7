"""Contribution bounding: what a plain Python program keeps, whatever the order, the cut and the quality of the hash."""

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.kernels import bounding, contributions, keys
from dp_pipelines.kernels.columns import long_text
from dp_pipelines.kernels.lattice import Lattice
from dp_pipelines.kernels.layout import Layout
from tests.helpers import neighbours as nb
from tests.helpers import oracle
from tests.helpers.examples import examples

LOW_BITS, HIGH_BITS, NO_BITS, ALL_BITS = 3, 3 << 62, 0, 2**64 - 1


def kept(table: pa.Table, layout: Layout, salt: int = nb.SALT) -> Counter[Any]:
    """Kept rows as (unit, partition, what tells them apart)."""
    texts = layout.listed_texts()
    wire = layout.wire(table, texts)
    rows = wire.take(pa.array(contributions.bound(wire, layout, salt).bounded.rows))
    for name in layout.partition_names:
        whole = long_text.restored(keys.plain(rows.column(name)), texts)
        rows = rows.set_column(rows.schema.get_field_index(name), name, whole)
    rows = rows.to_pylist()
    names = [*layout.unit_names, *layout.partition_names, *layout.content_names, *layout.value_names]
    return Counter(tuple(row[name] for name in names) for row in rows)


def kept_by_oracle(table: pa.Table, layout: Layout, salt: int = nb.SALT) -> Counter[Any]:
    found = oracle.pairs(table, layout, salt)
    return Counter((*row.unit, *row.partition, *row.content) for pair in found for row in pair.kept)


@pytest.mark.parametrize("fewest_hash_bits", [20, 65], ids=["packed sort", "full sort"])
@pytest.mark.parametrize("bits", [ALL_BITS, LOW_BITS, HIGH_BITS, NO_BITS], ids=["strong", "low", "high", "none"])
@settings(max_examples=examples(30, 100))
@given(pair=nb.neighbours())
def test_what_is_kept_is_what_plain_python_keeps(pair: nb.Neighbours, bits: int, fewest_hash_bits: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounding, "FEWEST_HASH_BITS", fewest_hash_bits)
        nb.weak_hashes(patch, bits)
        assert kept(pair.larger, pair.layout) == kept_by_oracle(pair.larger, pair.layout)


@pytest.mark.parametrize("bits", [LOW_BITS, NO_BITS], ids=["low", "none"])
@settings(max_examples=examples(30, 100))
@given(pair=nb.neighbours(), copies=st.integers(1, 3))
def test_a_look_for_copies_changes_no_place_of_what_is_kept(pair: nb.Neighbours, bits: int, copies: int) -> None:
    wire = pair.layout.wire(pa.concat_tables([pair.larger] * copies))
    whole = contributions._row_order
    with pytest.MonkeyPatch.context() as patch:
        nb.weak_hashes(patch, bits)
        found = contributions.bound(wire, pair.layout, nb.SALT).bounded
        patch.setattr(contributions, "_row_order", lambda *given: dataclasses.replace(whole(*given), alike=None))
        expected = contributions.bound(wire, pair.layout, nb.SALT).bounded
    assert found.rows.tolist() == expected.rows.tolist()


def test_only_rows_that_are_tied_with_others_are_put_in_order() -> None:
    # Copies of one row, then two rows of one hash, then copies again: ranks are asked of the two alone.
    asked: list[list[int]] = []
    content = np.array([5, 5, 5, 9, 3, 7, 7])
    hashes = np.array([1, 1, 1, 2, 2, 3, 3], np.uint64)

    def ranks(positions: keys.Codes) -> keys.Codes:
        asked.append(positions.tolist())
        return content[positions]

    rows = bounding.RowOrder(hashes=lambda at: hashes[at], ranks=ranks, alike=lambda a, b: content[a] == content[b])
    everything = np.arange(len(content))
    order = everything.copy()
    bounding._settle_ties(order, np.zeros(len(content), np.int64), hashes, rows, everything)
    assert (order.tolist(), asked) == ([0, 1, 2, 4, 3, 5, 6], [[3, 4]])


@settings(max_examples=60)
@given(pair=nb.neighbours())
def test_the_parts_of_a_bounded_table_fit_each_other(pair: nb.Neighbours) -> None:
    layout = pair.layout
    wire = layout.wire(pair.larger)
    found = contributions.bound(wire, layout, nb.SALT)
    bounded, codes = found.bounded, found.partitions.codes
    units = keys.dense([keys.one_array(wire.column(name)) for name in layout.unit_names]).codes
    ends = np.append(bounded.starts, len(bounded.rows))[1:]
    groups = [bounded.rows[begin:end] for begin, end in zip(bounded.starts, ends, strict=True)]
    of_groups = [{(units[row], codes[row]) for row in group} for group in groups]
    assert all(len(of_group) == 1 for of_group in of_groups), "a group is one unit in one partition"
    named = [next(iter(of_group)) for of_group in of_groups]
    assert len(set(named)) == len(named)
    firsts = [i == 0 or named[i - 1][0] != unit for i, (unit, _) in enumerate(named)]
    assert bounded.first_of_unit.tolist() == firsts
    number_of = Counter(unit for unit, _ in named)
    assert bounded.partitions_of_unit().tolist() == [number_of[unit] for unit, _ in named]
    if layout.summands:
        assert bounded.pair_of_row is not None
        expected = [named.index(key) if key in named else -1 for key in zip(units, codes, strict=True)]
        assert bounded.pair_of_row.tolist() == expected


LAYOUT = Layout(
    units=("u",),
    partitions=("p",),
    values=(("n", Lattice.for_values(0.0, 1000.0)),),
    max_partitions=3,
    max_rows_per_partition=2,
)


def events(rows: int) -> pa.Table:
    """Units of very different sizes, with repeated rows."""
    numbers = np.arange(rows)
    return pa.table({"u": (numbers % 97) * (numbers % 5 > 0), "p": numbers * numbers % 41, "n": numbers % 7})


@pytest.mark.parametrize(
    "layout", [LAYOUT, dataclasses.replace(LAYOUT, max_rows=5, max_partitions=5)], ids=["L0", "L1"]
)
@pytest.mark.parametrize("bits", [ALL_BITS, HIGH_BITS, 255], ids=["strong", "high", "low"])
def test_a_table_of_some_size_is_bounded_as_plain_python_does(
    layout: Layout, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nb.weak_hashes(monkeypatch, bits)
    table = events(5000)
    assert kept(table, layout) == kept_by_oracle(table, layout)


@pytest.mark.parametrize("salt", range(3))
def test_the_choice_is_fair_over_salts(salt: int) -> None:
    # One unit with 40 partitions keeps 10: over 200 salts each partition is kept 50 times, give or take.
    layout = Layout(units=("u",), partitions=("p",), max_partitions=10)
    wire = layout.wire(pa.table({"u": ["a"] * 40, "p": range(40)}))
    times = np.zeros(40, np.int64)
    for number in range(200):
        found = contributions.bound(wire, layout, salt * 200 + number)
        times[found.partitions.columns[0].take(pa.array(found.partitions.codes[found.bounded.rows])).to_numpy()] += 1
    assert times.sum() == 2000
    # A binomial of 200 coins at 1/4 has standard deviation 6.1; the salts are fixed, so this cannot fail by chance.
    assert 20 < times.min() <= 50 <= times.max() < 80


def test_different_units_keep_different_partitions() -> None:
    layout = Layout(units=("u",), partitions=("p",), max_partitions=1)
    wire = layout.wire(pa.table({"u": np.repeat(np.arange(500), 8), "p": np.tile(np.arange(8), 500)}))
    found = contributions.bound(wire, layout, nb.SALT)
    times = np.bincount(found.partitions.codes[found.bounded.rows])
    assert times.sum() == 500
    assert times.min() > 30


def test_nothing_is_lost_where_no_bound_binds() -> None:
    wire = LAYOUT.wire(events(500))
    wide = dataclasses.replace(LAYOUT, max_partitions=41, max_rows_per_partition=500)
    assert sorted(contributions.bound(wire, wide, nb.SALT).bounded.rows.tolist()) == list(range(500))
    assert sorted(
        contributions.bound(wire, dataclasses.replace(wide, max_rows=500), nb.SALT).bounded.rows.tolist()
    ) == list(range(500))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30), st.integers(1, 3), st.integers(1, 3))
def test_partitions_are_bounded_though_hashes_are_all_alike(pairs: list[tuple[int, int]], most: int, rows: int) -> None:
    units = np.array([unit for unit, _ in pairs], np.int64)
    partitions = keys.dense([pa.array([partition for _, partition in pairs], pa.int64())])
    alike = np.full(len(pairs), 2**64 - 1, np.uint64)
    order = bounding.RowOrder(hashes=lambda at: alike[at], ranks=lambda at: np.zeros(len(at), np.int64))
    found = bounding.bound_partitions(
        units, 4, partitions, alike, order, max_partitions=most, max_rows_per_partition=rows
    )
    kept_pairs = Counter(pairs[row] for row in found.rows)
    expected: Counter[tuple[int, int]] = Counter()
    for unit in range(4):
        smallest = sorted({partition for u, partition in pairs if u == unit})[:most]
        expected.update({(unit, p): min(rows, pairs.count((unit, p))) for p in smallest})
    assert kept_pairs == expected


# Planted faults.


def by_place(found: bounding.RowOrder) -> bounding.RowOrder:
    """Rows in the order in which they were read, as a LIMIT or a reservoir would have it."""
    return dataclasses.replace(found, hashes=lambda at: at.astype(np.uint64))


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([0, 2**63])), max_size=40),
    fewest_hash_bits=st.sampled_from([20, 65]),
)
def test_rows_are_sorted_by_group_and_whole_hash_then_place(
    rows: list[tuple[int, int, int]], fewest_hash_bits: int
) -> None:
    groups = np.array([group for group, _, _ in rows], np.int64)
    hashes = np.array([low | high for _, low, high in rows], np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounding, "FEWEST_HASH_BITS", fewest_hash_bits)
        order = bounding._sorted_by_hash(groups, 4, hashes)
    assert order.tolist() == sorted(range(len(rows)), key=lambda place: (groups[place], int(hashes[place]), place))


def test_choosing_rows_by_their_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row_order = contributions._row_order
    monkeypatch.setattr(contributions, "_row_order", lambda *args: by_place(row_order(*args)))
    table = events(3000)
    assert kept(table, LAYOUT) != kept_by_oracle(table, LAYOUT)
    assert kept(table, LAYOUT) != kept(table.take(pa.array(range(2999, -1, -1))), LAYOUT)


def test_settling_ties_of_partitions_by_their_codes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    nb.weak_hashes(monkeypatch, NO_BITS)
    monkeypatch.setattr(keys.Keys, "ranks", lambda self: np.arange(len(self)))
    table = events(3000)
    assert kept(table, LAYOUT) != kept_by_oracle(table, LAYOUT)


def test_leaving_ties_of_rows_to_the_sort_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    nb.weak_hashes(monkeypatch, HIGH_BITS)
    monkeypatch.setattr(bounding, "_settle_ties", lambda *args: None)
    table = events(3000)
    assert kept(table, LAYOUT) != kept_by_oracle(table, LAYOUT)
    assert kept(table, dataclasses.replace(LAYOUT, max_rows=5)) != kept_by_oracle(
        table, dataclasses.replace(LAYOUT, max_rows=5)
    )
