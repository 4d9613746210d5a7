"""Partial aggregates and their merge: exact as Python's integers, and the same whatever way the rows took."""

import dataclasses
import decimal
import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import accumulate, contributions, lattice, layout
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import ClippedUnitSum, RowCount, UnitCount
from tests.helpers import neighbours as nb
from tests.helpers import oracle

STRONG, LOW_BITS, HIGH_BITS, NO_BITS = 2**64 - 1, 7, 7 << 61, 0
ROWS, UNITS = RowCount(), UnitCount()

INT64 = st.sampled_from([2**63 - 1, -(2**63), 2**62, -1, 0, 1, 2**32, 2**32 - 1]) | st.integers(-(2**63), 2**63 - 1)


# The whole way.


@pytest.mark.parametrize("bits", [STRONG, LOW_BITS, HIGH_BITS, NO_BITS], ids=["strong", "low", "high", "none"])
@settings(max_examples=50)
@given(data=st.data())
def test_every_way_of_the_rows_gives_the_statistics_of_plain_python(bits: int, data: st.DataObject) -> None:
    pair = data.draw(nb.neighbours())
    table = pair.larger
    order = data.draw(st.permutations(range(table.num_rows)))
    way = data.draw(nb.ways(table.num_rows))
    with pytest.MonkeyPatch.context() as patch:
        nb.weak_hashes(patch, bits)
        found = nb.exact(nb.totals(table.take(pa.array(order)), pair.layout, pair.statistics, way))
        assert found == oracle.sums(table, pair.layout, pair.statistics, nb.SALT)


WAYS = [
    nb.Way(cuts=(100, 1500, 1501), shards=3, places=2),
    nb.Way(cuts=(1000, 2000), reduced=(True, False), shards=300, places=8, backwards=True),
    nb.Way(cuts=tuple(range(0, 3000, 70)), reduced=(True,), shards=2),
    nb.Way(reduced=(True,), shards=40),
]


def heavy() -> tuple[pa.Table, Layout]:
    """A unit with half of all rows, a partition with half of all rows, null partitions, values of every kind."""
    numbers = np.arange(3000)
    values = np.array([0.0, -0.0, 0.1, 1e308, -1e308, math.inf, 5e-324, 2.0**53 + 2, 7.25, math.nan])[numbers % 10]
    table = pa.table({
        "unit": np.where(numbers % 2, 0, numbers % 173),
        "region": pa.array([None if n % 11 == 0 else f"r{n % 23 if n % 4 > 1 else 0}" for n in numbers]),
        "week": pa.array(numbers % 5, pa.int16()),
        "a": values,
        "b": pa.array([None if n % 3 == 0 else int(n) * 2**40 for n in numbers]),
    })  # fmt: skip
    wide = Layout(
        units=("unit",),
        partitions=("region", "week"),
        values=(
            ("a", lattice.Lattice.for_values(-5.0, 100.0, centred=True)),
            ("a", lattice.Lattice.for_squares(-5.0, 100.0)),
            ("b", lattice.Lattice.for_values(0.0, 1e14)),
        ),
        summands=(
            ("a", lattice.SummandLattice.for_sums(-10.0, 300.0)),
            ("b", lattice.SummandLattice.for_sums(0.0, 1e15)),
        ),
        max_partitions=7,
        max_rows_per_partition=3,
    )
    return table, wide


@pytest.mark.parametrize("way", WAYS, ids=range(len(WAYS)))
@pytest.mark.parametrize("mode", ["partitions and rows", "rows in all"])
def test_a_table_with_heavy_units_and_partitions_has_one_result(way: nb.Way, mode: str) -> None:
    table, wide = heavy()
    if mode == "rows in all":
        wide = dataclasses.replace(wide, summands=(), max_partitions=9, max_rows_per_partition=9, max_rows=9)
    statistics = nb.statistics_of(wide)
    order = np.argsort(np.arange(3000) * 1_000_003 % 3001)
    found = nb.exact(nb.totals(table.take(pa.array(order)), wide, statistics, way))
    assert found == oracle.sums(table, wide, statistics, nb.SALT)


def test_rows_that_share_a_row_id_are_still_chosen_without_their_place() -> None:
    table, wide = heavy()
    table = table.append_column("id", pa.array(np.arange(3000) % 2))
    wide = dataclasses.replace(wide, row_id="id")
    statistics = nb.statistics_of(wide)
    backwards = table.take(pa.array(np.arange(3000)[::-1]))
    assert nb.exact(nb.totals(table, wide, statistics)) == nb.exact(nb.totals(backwards, wide, statistics, WAYS[1]))


def test_the_types_of_partitions_survive_a_shard_that_holds_only_nulls() -> None:
    wide = Layout(units=("u",), partitions=("p",), max_partitions=1)
    parts = [
        pa.table({"u": [1], "p": pa.nulls(1)}),
        pa.table({"u": [2], "p": ["a"]}),
        pa.table(
            {
                "u": [3],
                "p": [
                    None,
                ],
            }
        ),
    ]
    merged = accumulate.merge([accumulate.partials(wide.wire(p), wide, [ROWS], 1) for p in parts], ["p0"], [ROWS])
    assert dict(zip(merged.partitions[0].to_pylist(), merged.low[0].tolist(), strict=True)) == {None: 2, "a": 1}
    nothing = accumulate.merge([accumulate.no_partials(["p0", "p1"], [ROWS, UNITS])], ["p0", "p1"], [ROWS, UNITS])
    assert [len(column) for column in (*nothing.partitions, *nothing.high, *nothing.low)] == [0] * 6


# Sums.


@given(st.lists(st.tuples(st.integers(0, 3), INT64), max_size=40))
def test_exact_sums_are_those_of_pythons_integers(items: list[tuple[int, int]]) -> None:
    codes = np.array([code for code, _ in items], np.int64)
    high, low = accumulate.exact_sums(codes, np.array([value for _, value in items], np.int64), 4)
    assert low.min() >= 0
    assert low.max() < 2**32
    for code in range(4):
        assert (int(high[code]) << 32) + int(low[code]) == sum(value for c, value in items if c == code)


def test_a_plain_int64_sum_would_have_been_found() -> None:
    values = np.array([2**63 - 1, 1], np.int64)
    high, low = accumulate.exact_sums(np.zeros(2, np.int64), values, 1)
    assert (int(high[0]) << 32) + int(low[0]) == 2**63 != int(values.sum())


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-(2**30), 2**30)), max_size=30), st.integers(1, 7))
def test_sums_by_code_are_exact_in_any_portions(items: list[tuple[int, int]], portion: int) -> None:
    codes, values = (np.array([item[i] for item in items], np.int64) for i in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accumulate, "EXACT_ROWS", portion)
        found = accumulate.sums_by_code(codes, values, 3)
    assert found.tolist() == [sum(value for c, value in items if c == code) for code in range(3)]


def test_a_full_portion_of_the_largest_integers_is_exact() -> None:
    size = accumulate.EXACT_ROWS + 3
    values = np.full(size, 2**30, np.int64)
    values[-1] -= 1
    assert accumulate.sums_by_code(np.zeros(size, np.int64), values, 1).tolist() == [size * 2**30 - 1]
    assert accumulate.EXACT_ROWS << lattice.VALUE_BITS <= 2**53


@pytest.mark.parametrize("value", [2**30 + 1, -(2**30) - 1])
def test_a_lattice_value_beyond_its_bound_stops_the_sum(value: int) -> None:
    with pytest.raises(AssertionError, match="exceeds its bound"):
        accumulate.sums_by_code(np.array([0, 0]), np.array([1, value]), 1)


def test_clipped_sums_hold_where_summands_overflow_int64_together() -> None:
    # 2**24 rows of 2**40 would be 2**64: here a few rows that each stand for a whole reduced batch.
    wide = Layout(
        units=("u",), partitions=("p",), summands=(("n", lattice.SummandLattice.for_sums(-2.0, 1.0)),), max_partitions=9
    )
    statistic = ClippedUnitSum(column="n", lattice=wide.summands[0][1])
    wire = wide.wire(pa.table({"u": [1] * 24, "p": [0] * 16 + [1] * 8, "n": [1.0] * 24}))
    carried = np.array([2**60] * 16 + [2**60, -(2**60), 3, 0, 0, 0, 0, 0])
    for factor, expected in ((1, [2**22, 3]), (-1, [-(2**23), -3])):
        reduced = wire.set_column(wire.schema.get_field_index("s0"), "s0", pa.array(carried * factor))
        found = accumulate.partials(reduced, wide, [statistic], 1)
        assert dict(zip(*(found.column(name).to_pylist() for name in ("p0", "a0")), strict=True)) == dict(
            enumerate(expected)
        )


def test_a_full_batch_of_the_largest_summands_adds_up_within_int64() -> None:
    most = lattice.SummandLattice.for_sums(0.0, 1.0).integers(np.array([math.inf]))[0]
    assert int(most) * layout.LARGEST_BATCH < 2**63


# Weights.


def test_weights_are_the_floor_of_the_exact_root_and_have_an_l2_norm_of_at_most_one() -> None:
    partitions = np.arange(1, 100_001)
    weights = accumulate.unit_weights(partitions).tolist()
    assert weights == [math.isqrt(4**20 // d) for d in partitions.tolist()]
    assert all(d * w * w <= 4**20 for d, w in zip(partitions.tolist(), weights, strict=True))


@given(st.lists(st.integers(1, 2**24), min_size=1, max_size=20))
def test_weights_are_exact_for_as_many_partitions_as_are_allowed(partitions: list[int]) -> None:
    assert accumulate.unit_weights(np.array(partitions)).tolist() == [math.isqrt(4**20 // d) for d in partitions]


def test_nobody_has_no_weight() -> None:
    assert accumulate.unit_weights(np.array([], np.int64)).tolist() == []


def test_rounding_weights_to_the_nearest_would_be_found() -> None:
    assert any(d * round(2**20 / math.sqrt(d)) ** 2 > 4**20 for d in range(1, 100))


# Coarse rounding.


def of_numbers(numbers: list[int]) -> Totals:
    return Totals(
        partitions=(pa.array(range(len(numbers))),),
        high=(np.array([n >> 32 for n in numbers], np.int64),),
        low=(np.array([n & 2**32 - 1 for n in numbers], np.int64),),
    )


TOTALS = st.integers(-(2**62), 2**62) | st.integers(-(2**94), 2**94) | st.integers(-100, 100)
STEPS = st.sampled_from([1, 2, 3, 2**31, 2**60, 2**61, 2**70 + 1]) | st.integers(1, 2**64)


@given(st.lists(TOTALS, max_size=6), st.sampled_from([0, 20]), STEPS)
def test_coarse_totals_are_those_of_pythons_integers(numbers: list[int], shift: int, step: int) -> None:
    expected = [max(min(((n << shift) + step // 2) // step, 2**52), -(2**52)) for n in numbers]
    assert of_numbers(numbers).coarse(0, shift=shift, step=step).tolist() == expected


@given(TOTALS, st.integers(0, 2**70) | st.integers(0, 50), st.sampled_from([0, 20]), STEPS)
def test_a_change_by_d_moves_a_coarse_total_by_at_most_d_over_step_rounded_up(
    a: int, d: int, shift: int, step: int
) -> None:
    low, high = (int(of_numbers([n]).coarse(0, shift=shift, step=step)[0]) for n in (a, a + d))
    assert 0 <= high - low <= -(-(d << shift) // step)


@given(st.lists(TOTALS, min_size=1, max_size=3), TOTALS, st.sampled_from([0, 20]), STEPS)
def test_a_coarse_total_does_not_show_the_size_of_another(
    numbers: list[int], other: int, shift: int, step: int
) -> None:
    alone = of_numbers(numbers).coarse(0, shift=shift, step=step)
    assert of_numbers([*numbers, other]).coarse(0, shift=shift, step=step)[:-1].tolist() == alone.tolist()


def test_small_and_huge_totals_take_both_ways_and_meet() -> None:
    small, huge = 2**61 - 2**32, 2**62
    for step in (1, 2, 1000):
        assert (
            of_numbers([small]).coarse(0, shift=0, step=step)[0]
            == of_numbers([small, huge]).coarse(0, shift=0, step=step)[0]
        )


def test_a_coarse_way_that_clips_only_huge_totals_would_be_found() -> None:
    # The fast way without its clip, as it once was: another partition's size then shows by 2**60.
    total = of_numbers([2**60])
    fast = ((total.high[0] << 32) + total.low[0] + 0) // 1
    assert int(fast[0]) - int(of_numbers([2**60, 2**62]).coarse(0, shift=0, step=1)[0]) > 2**59


# Public partitions.

PUBLIC_KEYS = [("a", 1), (None, None), ("never seen", 5), ("b", None), ("", 0), ("b", 7)]


def public_layout(keys: list[tuple[Any, ...]], **bounds: int) -> Layout:
    columns = tuple(zip(*keys, strict=True))
    return Layout(units=("u",), partitions=("p", "q"), public=columns, **{"max_partitions": 3, **bounds})


@settings(max_examples=50)
@given(
    st.permutations(PUBLIC_KEYS),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([*PUBLIC_KEYS, ("c", 1), ("b", 1), (None, 1)])), max_size=12),
    st.integers(1, 4),
)
def test_public_partitions_come_out_as_listed_whatever_the_data_hold(
    keys: list[tuple[Any, ...]], number: int, rows: list[tuple[int, tuple[Any, ...]]], places: int
) -> None:
    listed = keys[:number]
    wide = public_layout(listed, max_partitions=10)
    table = pa.table({
        "u": pa.array([unit for unit, _ in rows], pa.int64()),
        "p": pa.array([key[0] for _, key in rows], pa.string()),
        "q": pa.array([key[1] for _, key in rows], pa.int32()),
    })  # fmt: skip
    found = nb.totals(table, wide, [UNITS], nb.Way(places=places, shards=3))
    out = [list(zip(*(column.to_pylist() for column in part.partitions), strict=True)) for part in found]
    assert out == [listed[place::places] for place in range(places)], "exactly the list, in its order"
    counts = {
        key: int(n)
        for keys_of, part in zip(out, found, strict=True)
        for key, n in zip(keys_of, part.low[0], strict=True)
    }
    assert counts == {key: len({unit for unit, other in rows if other == key}) for key in listed}


def test_public_partitions_come_out_though_there_are_no_data_at_all() -> None:
    wide = public_layout(PUBLIC_KEYS)
    found = [accumulate.merge_public([], wide, [ROWS, UNITS], place, 4) for place in range(4)]
    rows = [list(zip(*(column.to_pylist() for column in part.partitions), strict=True)) for part in found]
    assert sorted(itertools.chain(*rows), key=repr) == sorted(PUBLIC_KEYS, key=repr)
    assert all(not words.any() for part in found for words in (*part.high, *part.low))
    assert [len(part.high) for part in found] == [2] * 4


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        (pa.int8(), [1, None, -128]),
        (pa.uint64(), [2**64 - 1, 0]),
        (pa.decimal128(10, 2), [decimal.Decimal("1.50"), None]),
        (pa.decimal128(10, 2), [1, 2]),
        (pa.bool_(), [True, None]),
        (pa.large_string(), ["x", ""]),
        (pa.binary(), [b"\xff", b""]),
        (pa.dictionary(pa.int8(), pa.string()), ["x", None]),
        (pa.null(), [None]),
    ],
    ids=str,
)
def test_public_keys_of_many_types_find_their_rows(kind: pa.DataType, listed: list[Any]) -> None:
    wide = Layout(units=("u",), partitions=("p",), public=(tuple(listed),), max_partitions=5)
    table = pa.table({"u": [1, 2, 3], "p": nb.array_of(kind, [listed[0], listed[0], listed[-1]])})
    [found] = nb.totals(table, wide, [ROWS])
    assert found.partitions[0].to_pylist() == listed
    expected = [sum(index == place % len(listed) for place in (0, 0, -1)) for index in range(len(listed))]
    assert found.low[0].tolist() == expected


def test_a_public_list_with_doubles_after_conversion_is_refused() -> None:
    for kind, listed in ((pa.int64(), [1, 1.0]), (pa.string(), ["a", "b", "a"]), (pa.int8(), [None, None])):
        wide = Layout(units=("u",), partitions=("p",), public=(tuple(listed),), max_partitions=1)
        with pytest.raises(RequestError, match="public: lists a partition twice; list each partition once"):
            wide.wire(pa.table({"u": [1], "p": pa.nulls(1, kind)}))


# Planted faults: each breaks the law of the first test on a table that shows it.


def _changed(patch: pytest.MonkeyPatch, target: Any, name: str, value: Any) -> bool:
    """Whether, with a fault in place, some way gives other statistics than plain Python."""
    table, wide = heavy()
    statistics = nb.statistics_of(wide)
    expected = oracle.sums(table, wide, statistics, nb.SALT)
    assert nb.exact(nb.totals(table, wide, statistics, WAYS[1])) == expected
    patch.setattr(target, name, value)
    return any(nb.exact(nb.totals(table, wide, statistics, way)) != expected for way in WAYS)


def test_summands_that_do_not_travel_whole_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_kept_rows(wire: pa.Table, bounded: Any, summand: int) -> Any:
        return np.add.reduceat(wire.column(f"s{summand}").to_numpy()[bounded.rows], bounded.starts)

    assert _changed(monkeypatch, contributions, "sums_of_pairs", of_kept_rows)


def test_rows_told_apart_by_the_summands_they_carry_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table, wide = heavy()
    statistics = nb.statistics_of(wide)
    both = property(lambda self: [*self.value_names, *(f"s{i}" for i in range(len(self.summands)))])
    monkeypatch.setattr(Layout, "content_names", both)
    results = [nb.exact(nb.totals(table, wide, statistics, way)) for way in WAYS]
    assert any(result != results[0] for result in results)


def test_nulls_that_count_as_values_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    values = accumulate._Shard._values
    assert _changed(
        monkeypatch, accumulate._Shard, "_values", lambda self, statistic: (values(self, statistic)[0], None)
    )
