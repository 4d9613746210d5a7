"""Vectors on the lattice and second moments: exact as Python's integers, each from its own row, whatever way the rows took."""

import dataclasses
import decimal
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import moments, shard, vectors
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.moments import LARGEST, Moments, sums_of_products
from dp_pipelines.kernels.statistics import ProductSums, Statistic, UnitCount, VectorSums
from dp_pipelines.kernels.vectors import Parts, VectorLattice, clipped, listed, matrix, narrow, sums_of_groups
from tests.helpers import neighbours as nb
from tests.helpers import oracle

NORMS: list[vectors.Norm] = ["l1", "l2", "linf"]
INTEGERS = (
    st.integers(-(2**61), 2**61) | st.sampled_from([0, 1, -1, 2**24, -(2**24), 2**25, 2**53 + 1]) | st.integers(-9, 9)
)
NUMBERS = st.floats(width=32) | st.floats(-3, 3, width=32) | st.sampled_from([0.0, 64.0, 128.0, -200.0, 2.0**-149])


def length(vector: Any, norm: str) -> int:
    """An L1 or Linf norm, or the square of an L2 norm, in Python's integers."""
    parts = [abs(int(x)) for x in vector]
    return sum(p * p for p in parts) if norm == "l2" else sum(parts) if norm == "l1" else max(parts)


# From lists to integers.


@pytest.mark.parametrize("norm", NORMS)
@given(rows=st.lists(st.lists(NUMBERS, min_size=3, max_size=3), max_size=6), norm_bits=st.integers(-40, 40))
def test_rows_are_rounded_exactly_or_scaled_down_as_a_whole(norm: vectors.Norm, rows: Any, norm_bits: int) -> None:
    lattice = VectorLattice(size=3, norm=norm, max_norm=1.5 * 2.0**norm_bits)
    found = matrix(lattice.integers(pa.array(rows, pa.list_(pa.float64())))).tolist()
    for row, integers in zip(rows, found, strict=True):
        largest = max(abs(x) for x in row) if not any(map(math.isnan, row)) else math.nan
        if math.isnan(largest):
            assert integers == [0, 0, 0]
        elif largest * 2.0**lattice.exponent <= 2**30:
            assert integers == [round(Fraction(x) * Fraction(2) ** lattice.exponent) for x in row]
        else:
            assert max(map(abs, integers)) == 2**30
            assert all(x == 0 or (x > 0) == (y > 0) for x, y in zip(integers, row, strict=True))
            assert (
                math.isinf(largest)
                or norm == "linf"
                or integers == [pytest.approx(x / largest * 2**30, abs=1) for x in row]
            )


@given(
    rows=st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=6),
    e=st.integers(-130, 130) | st.sampled_from([-800, 800]),
)
def test_float32_lists_give_what_the_same_numbers_in_float64_give(rows: Any, e: int) -> None:
    lattice = VectorLattice(size=2, norm="l2", max_norm=2.0**e)
    narrow_lists, wide = (pa.array(rows, pa.list_(kind)) for kind in (pa.float32(), pa.float64()))
    assert lattice.integers(narrow_lists).equals(lattice.integers(wide))


ROWS = [[1.0, 2.0], None, [3.0, None], [], [1.0], [1.0, 2.0, 3.0], [math.nan, 1.0], [-5.0, 0.5], [math.inf, 1.0]]
KEPT = [[1.0, 2.0], None, None, None, None, None, None, [-5.0, 0.5], [math.inf, 1.0]]


def fixed(rows: Any, kind: pa.DataType) -> pa.Array:
    """Lists of two, with a null for any other."""
    return pa.array([row if row is not None and len(row) == 2 else None for row in rows], pa.list_(kind, 2))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(ROWS, pa.list_(pa.float64())),
        pa.array(ROWS, pa.large_list(pa.float32())),
        pa.array(ROWS, pa.list_view(pa.float64())),
        pa.array(ROWS, pa.large_list_view(pa.float64())),
        fixed(ROWS, pa.float64()),
        pa.array([[7.0, 7.0], *ROWS, [7.0]], pa.list_(pa.float64()))[1:-1],
        fixed([[7.0, 7.0], *ROWS, None, [1.0, 1.0]], pa.float32())[1:-2],
        pa.DictionaryArray.from_arrays(pa.array(range(9), pa.int8()), pa.array(ROWS, pa.list_(pa.float64()))),
        pa.ExtensionArray.from_storage(
            pa.opaque(pa.list_(pa.float64()), "t", "v"), pa.array(ROWS, pa.list_(pa.float64()))
        ),
    ],
    ids=lambda column: str(column.type)[:30],
)
def test_every_kind_of_list_gives_the_same_and_uneven_ones_are_null(column: pa.Array) -> None:
    lattice = VectorLattice(size=2, norm="l2", max_norm=4.0)
    found = lattice.integers(column)
    assert found.to_pylist() == lattice.integers(pa.array(KEPT, pa.list_(pa.float64()))).to_pylist()
    assert found.to_pylist()[:2] == [[2**21, 2**22], [0, 0]]
    assert found.to_pylist()[-1] == [2**30, 0]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (pa.int8(), [1, 2]),
        (pa.uint64(), [1, 2]),
        (pa.bool_(), [True, False]),
        (pa.float16(), [np.float16(1), np.float16(2)]),
        (pa.decimal128(9, 2), [decimal.Decimal("1.00"), decimal.Decimal("2.00")]),
        (pa.dictionary(pa.int8(), pa.float64()), [1.0, 2.0]),
    ],
)
def test_lists_of_any_kind_of_number_are_read(kind: pa.DataType, row: Any) -> None:
    lattice = VectorLattice(size=2, norm="l2", max_norm=1.0)
    column = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), pa.array(row, kind))
    assert lattice.integers(column).to_pylist() == [[int(x) * 2**23 for x in row], [0, 0]]


def test_one_array_that_all_rows_share_counts_in_each() -> None:
    values = pa.array([0.5, 0.25])
    shared = pa.ListViewArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array([2, 2, 1], pa.int32()), values)
    found = VectorLattice(size=2, norm="l2", max_norm=1.0).integers(shared)
    assert found.to_pylist() == [[2**22, 2**21]] * 2 + [[0, 0]]


@given(rows=st.lists(st.lists(NUMBERS, min_size=2, max_size=2) | st.none(), max_size=9), block=st.integers(1, 9))
def test_a_row_becomes_the_same_alone_and_among_others(rows: Any, block: int) -> None:
    lattice = VectorLattice(size=2, norm="l1", max_norm=1.0)
    column = pa.array(rows, pa.list_(pa.float32()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "BLOCK", block)
        together = lattice.integers(column).to_pylist()
    assert together == [lattice.integers(column[i : i + 1]).to_pylist()[0] for i in range(len(rows))]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.float64(), "is no list of numbers; name a list column"),
        (pa.list_(pa.string()), "which is no number"),
        (pa.list_(pa.list_(pa.float64())), "which is no number"),
        (pa.list_(pa.float32(), 3), "holds lists of 3 numbers, not of 2; declare size: 3"),
        (pa.struct([("a", pa.float64())]), "is no list of numbers"),
    ],
)
def test_types_that_are_no_lists_of_numbers_are_refused_by_the_schema(kind: pa.DataType, message: str) -> None:
    layout = layout_of("l2", 2)
    table = pa.table({"unit": [1], "key": ["a"], "v": pa.nulls(1, kind)})
    for rows in (table, table.slice(0, 0)):
        with pytest.raises(RequestError, match=message) as error:
            layout.wire(rows)
        assert error.value.field == "column 'v'"


# Clipping.


@pytest.mark.parametrize("norm", NORMS)
@given(rows=st.lists(st.lists(INTEGERS, min_size=3, max_size=3), min_size=1, max_size=5), bound=st.integers(1, 2**24))
def test_clipped_vectors_keep_the_norm_in_integers_and_their_direction(
    norm: vectors.Norm, rows: Any, bound: int
) -> None:
    found = clipped(np.array(rows, np.int64), norm, bound)
    most = bound * bound if norm == "l2" else bound
    for row, short in zip(rows, found.tolist(), strict=True):
        assert length(short, norm) <= most
        if length(row, norm) <= most:
            assert short == row
        elif norm == "linf":
            assert short == [min(max(x, -bound), bound) for x in row]
        else:
            exact = math.sqrt(length(row, norm)) if norm == "l2" else length(row, norm)
            # A step by rounding, and what a shift of 25 leading bits cuts off.
            off = 1.01 + bound * 2.0**-22
            assert all(abs(y) <= abs(x) * bound / exact + 1e-6 * bound for x, y in zip(row, short, strict=True))
            assert short == [pytest.approx(x * bound / exact, abs=off) for x in row]
        assert clipped(np.array([row], np.int64), norm, bound).tolist() == [short]


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_largest_vectors_of_all_are_clipped_without_overflow(norm: vectors.Norm) -> None:
    sums = np.full((2, 4096), 2**61, np.int64) * np.array([[1], [-1]])
    found = clipped(sums, norm, 2**24)
    assert abs(length(found[0], norm) / (2**48 if norm == "l2" else 2**24) - 1) < 1e-3
    assert (found[0] == -found[1]).all()


def test_a_norm_just_above_the_bound_is_clipped_and_one_at_it_is_not() -> None:
    at, above = np.array([[3 * 2**20, 4 * 2**20]]), np.array([[3 * 2**20, 4 * 2**20 + 1]])
    assert clipped(at, "l2", 5 * 2**20).tolist() == at.tolist()
    assert length(clipped(above, "l2", 5 * 2**20)[0], "l2") <= (5 * 2**20) ** 2 < length(above[0], "l2")


# Sums.


@given(
    groups=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=6),
    block=st.integers(1, 12),
    few=st.integers(1, 4),
)
def test_sums_of_groups_are_those_of_plain_python(groups: list[list[int]], block: int, few: int) -> None:
    rows = np.array([[1, -(2**30)], [2**30, 5], [7, 7], [0, 1], [-1, 2**31 - 1]], np.int32)
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "BLOCK", block)
        patch.setattr(vectors, "FEW", few)
        found = sums_of_groups(rows, np.concatenate(groups), starts)
    assert found.tolist() == [[sum(int(rows[i][c]) for i in group) for c in range(2)] for group in groups]


@given(parts=st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**62), 2**62)), max_size=9), small=st.booleans())
def test_partial_sums_of_any_size_add_up_in_two_words(parts: list[tuple[int, int]], small: bool) -> None:
    numbers = [(code, value >> 34 if small else value) for code, value in parts]
    vector = narrow(np.array([[value] for _, value in numbers], np.int64).reshape(-1, 1))
    held = Parts.of(np.array([code for code, _ in numbers], np.int64), listed(vector))
    high, low = held.words(np.array([0, 2, 3]))
    for place, code in enumerate((0, 2, 3)):
        assert (int(high[place, 0]) << 32) + int(low[place, 0]) == sum(v for c, v in numbers if c == code)


def test_batches_of_narrow_and_of_wide_sums_meet_in_one_shard() -> None:
    tables = [pa.table({"w0": listed(np.array([[1, 2]], kind))}) for kind in (np.int32, np.int64)]
    assert shard.joined(tables).column("w0").to_pylist() == [[1, 2]] * 2


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), *[st.integers(-LARGEST, LARGEST)] * 3), max_size=20),
    long=st.integers(1, 9),
    exact=st.integers(1, 5),
    block=st.integers(1, 30),
)
def test_sums_of_products_are_those_of_pythons_integers(rows: Any, long: int, exact: int, block: int) -> None:
    table = np.array(rows, np.int64).reshape(-1, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "LONG", long)
        patch.setattr(moments, "EXACT_ROWS", exact)
        patch.setattr(moments, "BLOCK", block)
        found = sums_of_products(table[:, 1:].astype(np.int16), table[:, 0], 3)
    for code in range(3):
        mine = [row[1:] for row in rows if row[0] == code]
        assert found[code].tolist() == [sum(r[i] * r[j] for r in mine) for i in range(3) for j in range(i, 3)]


def test_sums_of_products_of_the_largest_features_are_exact_where_floats_would_not_be() -> None:
    many = np.full((2**18 + 1, 2), LARGEST, np.int16)
    many[0, 0] = 1
    found = sums_of_products(many, np.zeros(len(many), np.int64), 1)[0].tolist()
    assert found == [2**18 * LARGEST**2 + 1, 2**18 * LARGEST**2 + LARGEST, (2**18 + 1) * LARGEST**2]


@given(st.lists(st.tuples(NUMBERS, NUMBERS | st.none()), max_size=8), st.sampled_from([1e-100, 0.7, 1e100]))
def test_rows_of_features_keep_their_norm_in_integers(rows: list[tuple[Any, Any]], norm: float) -> None:
    features = Moments(columns=("a", "b"), max_norm=norm)
    columns = [pa.array([row[i] for row in rows], pa.float64()) for i in range(2)]
    found = np.stack([column.to_numpy() for column in features.integers(columns)], axis=1).tolist()
    for row, integers in zip(rows, found, strict=True):
        assert length(integers, "l2") <= LARGEST**2
        if any(x is None or math.isnan(x) for x in row):
            assert integers == [0, 0]
        elif math.hypot(*row) <= 0.999 * norm:
            assert integers == [pytest.approx(x * features.scales[0], abs=0.51) for x in row]
        elif math.isinf(math.hypot(*row)) or math.hypot(*row) >= norm:
            assert math.sqrt(length(integers, "l2")) >= LARGEST - 3


# The whole way.


def layout_of(norm: vectors.Norm, size: int, **changes: Any) -> Layout:
    """Vectors and moments of the same rows."""
    lattice = VectorLattice(size=size, norm=norm, max_norm=1.0)
    return dataclasses.replace(
        Layout(
            units=("unit",), partitions=("key",), vectors=(("v", lattice),), max_partitions=3, max_rows_per_partition=2
        ),
        **changes,
    )


def rows_of(number: int = 1500) -> pa.Table:
    """A unit with a third of all rows, partitions of all sizes, vectors within and far beyond the norm."""
    made = np.random.default_rng(7)
    lists = made.standard_normal((number, 3)) * 10.0 ** made.integers(-4, 3, number)[:, None]
    return pa.table({
        "unit": np.where(made.random(number) < 0.3, 0, made.integers(1, 60, number)),
        "key": pa.array([None if k == 9 else f"k{k}" for k in made.geometric(0.3, number)]),
        "v": pa.array([None if i % 50 == 0 else row for i, row in enumerate(lists.tolist())], pa.list_(pa.float32())),
        "a": lists[:, 0],
        "b": pa.array([None if i % 70 == 0 else x for i, x in enumerate(lists[:, 1].tolist())]),
    })  # fmt: skip


WAYS = [
    nb.STRAIGHT,
    nb.Way(cuts=(100, 1499), shards=3, places=2),
    nb.Way(cuts=(400, 900), reduced=(True, False), shards=300, places=8, backwards=True),
    nb.Way(cuts=tuple(range(0, 1500, 60)), reduced=(True,), shards=2),
]


def exact(table: pa.Table, layout: Layout, statistic: Statistic, way: nb.Way) -> dict[Any, list[int]]:
    """Partition to the integers of a statistic with vectors."""
    sums: dict[Any, list[int]] = {}
    for part in nb.totals(table, layout, (UnitCount(), statistic), way):
        rows = part.coarse_lists(1, np.arange(len(part.partitions[0])), shift=0, step=1)
        sums |= dict(zip(part.partitions[0].to_pylist(), rows.tolist(), strict=True))
    return sums


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("public", [None, (("k1", "k2", "none"),)], ids=["private", "public"])
def test_every_way_of_the_rows_gives_the_clipped_sums_of_plain_python(norm: vectors.Norm, public: Any) -> None:
    table, layout = rows_of(), layout_of(norm, 3, public=public)
    lattice = layout.vectors[0][1]
    statistic = VectorSums(column="v", vectors=lattice)
    integers = matrix(lattice.integers(table.column("v").combine_chunks())).tolist()
    numbered = table.append_column("n", pa.array(range(table.num_rows)))
    # The oracle bounds; a summand that is the number of the row tells which rows a pair has.
    expected: dict[Any, list[int]] = {key: [0] * 3 for key in (public or [[]])[0]}
    bounded = dataclasses.replace(layout, vectors=(), row_id="n")
    for pair in oracle.pairs(numbered, bounded, nb.SALT):
        rows = [integers[row.content[0]] for row in pair.every]
        total = np.array([[sum(row[i] for row in rows) for i in range(3)]], np.int64)
        own = expected.setdefault(pair.partition[0], [0] * 3)
        expected[pair.partition[0]] = [x + int(y) for x, y in zip(own, lattice.clipped(total)[0], strict=True)]
    order = pa.array(np.argsort(np.arange(1500) * 1_000_003 % 1501))
    for way in WAYS:
        assert exact(table.take(order), layout, statistic, way) == expected


@pytest.mark.parametrize("max_rows", [None, 4], ids=["partitions and rows", "rows in all"])
def test_every_way_of_the_rows_gives_the_same_second_moments(max_rows: int | None) -> None:
    features = Moments(columns=("a", "b"), ranges=((-2.0, 2.0), (0.0, 1.0)))
    changes: dict[str, Any] = {"vectors": (), "moments": (features,), "max_rows": max_rows}
    layout = layout_of("l2", 3, **changes, **({"max_partitions": 4} if max_rows else {}))
    statistic, table = ProductSums(vectors=features), rows_of()
    integers = np.stack([c.to_numpy() for c in features.integers([table.column(n).combine_chunks() for n in "ab"])], 1)
    numbered = table.append_column("n", pa.array(range(table.num_rows)))
    layout = dataclasses.replace(layout, row_id="n")
    expected: dict[Any, list[int]] = {}
    for pair in oracle.pairs(numbered, dataclasses.replace(layout, moments=()), nb.SALT):
        own = expected.setdefault(pair.partition[0], [0] * 3)
        for row in pair.kept:
            x, y = (int(value) for value in integers[row.content[0]])
            own[0], own[1], own[2] = own[0] + x * x, own[1] + x * y, own[2] + y * y
    for way in WAYS:
        assert exact(numbered, layout, statistic, way) == expected


def test_rows_that_differ_in_their_features_alone_are_chosen_without_their_place() -> None:
    features = Moments(columns=("a", "b"), max_norm=1.0)
    layout = layout_of("l2", 3, vectors=(), moments=(features,), max_rows_per_partition=1)
    table, statistic = rows_of(), ProductSums(vectors=features)
    backwards = table.take(pa.array(np.arange(1500)[::-1]))
    assert exact(table, layout, statistic, WAYS[0]) == exact(backwards, layout, statistic, WAYS[2])


def test_the_wire_takes_four_bytes_a_coordinate() -> None:
    wire = layout_of("l2", 3).wire(rows_of())
    assert str(wire.schema.field("w0").type) == "fixed_size_list<item: int32>[3]"
    assert wire.column("w0").nbytes <= 1500 * 3 * 4 + 1500 // 8 + 8


@settings(max_examples=20)
@given(st.sampled_from(["l1", "l2", "linf"]), st.floats(1e-250, 1e250))
def test_the_norm_in_steps_is_that_which_was_declared(norm: vectors.Norm, max_norm: float) -> None:
    lattice = VectorLattice(size=1, norm=norm, max_norm=max_norm)
    assert 2**23 <= lattice.bound <= 2**24
    assert (1 - 2.0**-23) * max_norm <= lattice.bound * lattice.step <= max_norm
