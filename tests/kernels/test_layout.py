"""The wire form: each row from one row alone, nobody's rows dropped, and every wrong column refused by public facts."""

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
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.column_types import check_value_type, public_column
from dp_pipelines.kernels.columns.listed_keys import ListedKeys
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.layout import Layout
from tests.helpers import neighbours as nb

AMOUNT, AMOUNT_SUM = Lattice.for_values(0.0, 10.0), SummandLattice.for_sums(0.0, 10.0)
LAYOUT = Layout(
    units=("customer",),
    partitions=("region", "week"),
    values=(("amount", AMOUNT),),
    summands=(("amount", AMOUNT_SUM),),
    row_id="order",
    max_partitions=2,
)


def events(**columns: Any) -> pa.Table:
    return pa.table({
        "customer": [1, 2, None, 4],
        "region": ["n", None, "s", "n"],
        "week": [1, 2, 3, None],
        "amount": [1.0, math.nan, 3.0, math.inf],
        "order": ["a", "b", "c", None],
        "unread": [{}, {}, {}, {}],
        **columns,
    })  # fmt: skip


def test_the_wire_form_holds_what_is_read_and_no_more() -> None:
    wire = LAYOUT.wire(events())
    assert wire.column_names == ["u0", "p0", "p1", "v0", "r", "s0"]
    assert wire.drop_columns(["v0", "s0"]).to_pylist() == [
        {"u0": 1, "p0": "n", "p1": 1, "r": "a"},
        {"u0": 2, "p0": None, "p1": 2, "r": "b"},
        {"u0": 4, "p0": "n", "p1": None, "r": None},
    ]
    # 10 spans 2**30 * 10 / 16 steps; infinity clamps, NaN is null and adds nothing to a clipped sum.
    assert wire.column("v0").to_pylist() == [1 << 26, None, 10 << 26]
    assert wire.column("s0").to_pylist() == [1 << 20, 0, 1 << 40]


def test_a_key_that_is_not_listed_is_null_and_apart_from_a_listed_null() -> None:
    listed = ListedKeys([("n", None), (1, 2)]).with_other
    layout = Layout(
        units=("customer",), partitions=("region", "week", "flag"), public=listed, other=True, max_partitions=2
    )
    table = events(customer=[1, 2, 3, 4])
    assert layout.wire(table).select(["p0", "p1", "p2"]).to_pylist() == [
        {"p0": "n", "p1": 1, "p2": False},
        {"p0": None, "p1": 2, "p2": False},
        {"p0": None, "p1": None, "p2": True},
        {"p0": None, "p1": None, "p2": True},
    ]
    # Each row by itself, with a column of nulls alone, and with codes.
    rows = [layout.wire(table.slice(place, 1)).select(["p0", "p1", "p2"]) for place in range(4)]
    assert [row for part in rows for row in part.to_pylist()] == layout.wire(table).select(
        ["p0", "p1", "p2"]
    ).to_pylist()
    nothing = layout.wire(events(customer=[1, 2, 3, 4], region=pa.nulls(4)))
    assert nothing.column("p2").to_pylist() == [True, False, True, True]
    codes = layout.wire(events(customer=[1, 2, 3, 4], region=pa.array(["n", None, "s", "n"]).dictionary_encode()))
    assert codes.column("p2").to_pylist() == [False, False, True, True]


def test_a_row_is_dropped_where_any_column_of_the_unit_is_null() -> None:
    wide = Layout(units=("a", "b"), partitions=("p",), max_partitions=1)
    table = pa.table({"a": [1.0, math.nan, None, 4.0], "b": ["x", "x", "x", None], "p": [0, 1, 2, 3]})
    assert wide.wire(table).column("p0").to_pylist() == [0]
    assert wide.wire(table.slice(1)).num_rows == 0


@settings(max_examples=60)
@given(pair=nb.neighbours(), data=st.data())
def test_each_row_of_the_wire_form_is_made_from_one_row_alone(pair: nb.Neighbours, data: st.DataObject) -> None:
    table = pair.larger
    rows = [pair.layout.wire(table.slice(i, 1)).to_pylist() for i in range(table.num_rows)]
    order = data.draw(st.permutations(range(table.num_rows)))
    shuffled = pair.layout.wire(table.take(pa.array(order, pa.int64())))
    assert repr(shuffled.to_pylist()) == repr([row for i in order for row in rows[i]])


@settings(max_examples=40)
@given(pair=nb.neighbours())
def test_values_on_the_wire_lie_within_their_lattice(pair: nb.Neighbours) -> None:
    wire = pair.layout.wire(pair.larger)
    for i, (_, lattice) in enumerate(pair.layout.values):
        values = [value for value in wire.column(f"v{i}").to_pylist() if value is not None]
        assert all(lattice.lowest <= value <= lattice.highest for value in values)


def test_the_input_is_left_as_it_was() -> None:
    amounts = np.array([1.0, math.nan, 3.0, math.inf])
    table = events(amount=pa.array(amounts))
    before = repr(table.to_pylist())
    assert LAYOUT.wire(table).equals(LAYOUT.wire(table))
    assert repr(table.to_pylist()) == before
    assert np.array_equal(amounts, [1.0, math.nan, 3.0, math.inf], equal_nan=True)


def test_units_keep_their_value_where_they_are_narrowed() -> None:
    wide = Layout(units=("u",), partitions=("p",), max_partitions=1)
    for values in ([0, -(2**31), 2**31 - 1], [0, 2**31], [-(2**31) - 1, None], [None, None], []):
        wire = wide.wire(pa.table({"u": pa.array(values, pa.int64()), "p": pa.array([1] * len(values), pa.int8())}))
        assert wire.column("u0").to_pylist() == [value for value in values if value is not None]


def test_partitions_travel_as_codes_without_doubles_or_nulls_in_the_dictionary() -> None:
    wide = Layout(units=("u",), partitions=("p",), max_partitions=1)
    for size in (3, 2**15 - 1, 2**15, 2**15 + 5):
        column = pa.chunked_array([pa.nulls(1, pa.int64()), pa.array(range(size)), pa.array(range(size))])
        wire = wide.wire(pa.table({"u": [1] * len(column), "p": column}))
        encoded = keys.one_array(wire.column("p0"))
        assert encoded.dictionary.to_pylist() == list(range(size))
        assert encoded.to_pylist() == [None, *range(size), *range(size)]


# Wrong columns.


@pytest.mark.parametrize("missing", ["customer", "region", "week", "amount", "order"])
def test_a_missing_column_is_named(missing: str) -> None:
    with pytest.raises(RequestError, match=f"column '{missing}': is not a column of the input"):
        LAYOUT.wire(events().drop_columns([missing]))


def test_a_doubled_column_is_named() -> None:
    with pytest.raises(RequestError, match=r"column 'week': .*not a single one"):
        LAYOUT.wire(events().append_column("week", pa.array([1, 2, 3, 4])))


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ("customer", pa.list_(pa.int8()), "'customer': has type .* cannot be a privacy unit; use a plain column"),
        ("region", pa.struct([("a", pa.int8())]), "'region': has type .* cannot be a partition; use a plain column"),
        ("week", pa.float32(), "'week': is a float .*cannot partition; cast or bucket it first"),
        ("order", pa.list_(pa.int8()), "'order': has type .*; use a plain column"),
        (
            "amount",
            pa.string(),
            r"'amount': has type string, which is no number; cast it first.*CAST\(amount AS DOUBLE\)",
        ),
        ("amount", pa.date32(), "'amount': has type .*no number"),
        ("amount", pa.list_(pa.float64()), "'amount': has type .*no number"),
        ("amount", pa.dictionary(pa.int8(), pa.string()), "'amount': has type string, which is no number"),
    ],
)
def test_a_type_that_cannot_play_its_part_is_refused_without_a_row(
    column: str, kind: pa.DataType, message: str
) -> None:
    table = events(**{column: pa.nulls(4, kind)}).slice(0, 0)
    with pytest.raises(RequestError, match=message):
        LAYOUT.wire(table)


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.decimal32(5, 1), pa.decimal256(60, 2), pa.null(),
     pa.dictionary(pa.int8(), pa.int64())],
    ids=str,
)  # fmt: skip
def test_every_numeric_type_can_be_summed(kind: pa.DataType) -> None:
    check_value_type(kind, "amount")
    assert LAYOUT.wire(events(amount=pa.nulls(4, kind))).column("v0").to_pylist() == [None, None, None]


# Public lists.


def test_with_a_public_list_rows_of_other_partitions_are_dropped() -> None:
    listed = dataclasses.replace(LAYOUT, public=(("n", "n", None), (None, 1, 3)))
    assert listed.wire(events()).column("u0").to_pylist() == [1, 4]
    assert listed.wire(events(region=pa.nulls(4))).num_rows == 0, "nobody with a unit has week 3"
    assert listed.wire(events(region=pa.nulls(4), customer=[1, 2, 3, 4])).column("u0").to_pylist() == [3]


DAY = datetime.date(2026, 1, 2)

FITTING: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.string(), ["a", None, ""], ["a", None, ""]),
    (pa.dictionary(pa.int8(), pa.large_string()), ["a"], ["a"]),
    (pa.int8(), [1, -128, None], [1, -128, None]),
    (pa.int32(), [1.0, 2.0], [1, 2]),
    (pa.uint64(), [2**64 - 1, 0], [2**64 - 1, 0]),
    (pa.bool_(), [True, None], [True, None]),
    (pa.decimal128(6, 2), [1, 2], [decimal.Decimal("1.00"), decimal.Decimal("2.00")]),
    (pa.decimal128(6, 2), [1.25], [decimal.Decimal("1.25")]),
    (pa.decimal32(6, 2), [decimal.Decimal("0.1")], [decimal.Decimal("0.10")]),
    (pa.date32(), [DAY], [DAY]),
    (pa.date32(), ["2026-01-02"], [DAY]),
    (pa.timestamp("us"), ["2026-01-02T00:00:00"], [datetime.datetime(2026, 1, 2)]),
    (pa.binary(), [b"\xff"], [b"\xff"]),
    (pa.int64(), [None], [None]),
]


@pytest.mark.parametrize(("kind", "listed", "expected"), FITTING, ids=str)
def test_listed_values_take_the_type_of_their_column(kind: pa.DataType, listed: list[Any], expected: list[Any]) -> None:
    column = public_column("c", kind, listed)
    assert column.type == keys.plain_type(kind)
    assert column.to_pylist() == expected


UNFIT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), ["1"]),
    (pa.int64(), [True]),
    (pa.int64(), [1.5]),
    (pa.int64(), [math.nan]),
    (pa.int64(), [2**63]),
    (pa.int64(), [2**70]),
    (pa.int8(), [128]),
    (pa.uint64(), [-1]),
    (pa.bool_(), [1]),
    (pa.bool_(), ["true"]),
    (pa.string(), [1]),
    (pa.string(), [True]),
    (pa.string(), [b"a"]),
    (pa.string(), ["\udcff"]),
    (pa.string(), ["a", 1]),
    (pa.date32(), ["yesterday"]),
    (pa.int64(), [...]),
    (pa.int64(), [[1]]),
    (pa.decimal128(3, 2), [100]),
]


@pytest.mark.parametrize(("kind", "listed"), UNFIT, ids=str)
def test_listed_values_of_another_kind_are_refused(kind: pa.DataType, listed: list[Any]) -> None:
    with pytest.raises(
        RequestError, match="public, column 'c': lists a value that is not of the column's type"
    ) as caught:
        public_column("c", kind, listed)
    assert repr(listed[0]) not in str(caught.value)


@pytest.mark.parametrize("listed", [("a", 1), (2**70,), ("\udcff",)])
def test_a_list_that_is_no_column_at_all_is_refused(listed: tuple[Any, ...]) -> None:
    wide = Layout(units=("u",), partitions=("p",), public=(listed,), max_partitions=1)
    with pytest.raises(RequestError, match=r"public, column 'p': .*"):
        wide.listed_columns()
    with pytest.raises(RequestError, match=r"public, column 'p': .*"):
        wide.wire(pa.table({"u": [1], "p": pa.nulls(1)}))
