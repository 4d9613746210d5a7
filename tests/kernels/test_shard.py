"""Shards: all rows of a unit in one, whatever the batch; slices that carry little; joined only where keys hash alike."""

import datetime
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys, shard, sizes
from dp_pipelines.kernels.columns import hashing
from dp_pipelines.kernels.layout import Layout
from tests.helpers import neighbours as nb

SALT = 5


def slices(table: pa.Table, names: list[str], shards: int, salt: int = SALT) -> dict[int, pa.Table]:
    found = list(shard.slices(table, names, salt, shards))
    assert [number for number, _ in found] == sorted({number for number, _ in found})
    assert all(part.num_rows and 0 <= number < shards for number, part in found)
    return dict(found)


@settings(max_examples=100)
@given(
    pair=nb.neighbours(),
    shards=st.sampled_from([1, 2, 3, 64, 256, 257, sizes.MOST_SHARDS]),
    bits=st.sampled_from([0, 2**64 - 1]),
)
def test_all_rows_of_a_unit_go_to_one_shard_and_no_row_is_lost(pair: nb.Neighbours, shards: int, bits: int) -> None:
    wire = pair.layout.wire(pair.larger)
    with pytest.MonkeyPatch.context() as patch:
        nb.weak_hashes(patch, bits)
        found = slices(wire, pair.layout.unit_names, shards)
    rows = [repr(row) for part in found.values() for row in part.to_pylist()]
    assert sorted(rows) == sorted(repr(row) for row in wire.to_pylist())
    home: dict[Any, int] = {}
    for number, part in found.items():
        for unit in part.select(pair.layout.unit_names).to_pylist():
            assert home.setdefault(tuple(unit.values()), number) == number


UNITS = [
    (pa.int32(), [1, -5]),
    (pa.string(), ["a", ""]),
    (pa.float64(), [0.0, 1.5]),
    (pa.binary(16), [b"\0" * 16, b"\1" * 16]),
    (pa.date32(), [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]),
]


@pytest.mark.parametrize(("kind", "values"), UNITS, ids=lambda part: str(part))
def test_the_shard_of_a_unit_does_not_depend_on_its_batch(kind: pa.DataType, values: list[Any]) -> None:
    columns = [pa.array(values, kind), pa.array([*values, None], kind).dictionary_encode().slice(0, 2)]
    columns += [pa.array([None, *values, *values], kind).slice(1, 2)]
    if pa.types.is_floating(kind):
        columns.append(pa.array([-0.0, *values[1:]], kind))
    for shards in (2, 7, sizes.MOST_SHARDS):
        numbers = [shard.shard_numbers([keys.plain(column)], SALT, shards).tolist() for column in columns]
        assert all(of_column == numbers[0] for of_column in numbers)


def test_integer_units_of_all_widths_share_a_shard() -> None:
    kinds = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
    numbers = [shard.shard_numbers([pa.array(range(100), kind)], SALT, 64).tolist() for kind in kinds]
    assert all(of_kind == numbers[0] for of_kind in numbers)


@pytest.mark.parametrize("shards", [2, 32, 300])
def test_units_spread_evenly_and_otherwise_for_another_salt(shards: int) -> None:
    units = [pa.array(np.arange(60_000) * 1024)]
    numbers = shard.shard_numbers(units, SALT, shards)
    sizes = np.bincount(numbers, minlength=shards)
    mean = 60_000 / shards
    assert np.abs(sizes - mean).max() < 6 * math.sqrt(mean)
    moved = numbers != shard.shard_numbers(units, SALT + 1, shards)
    assert moved.mean() == pytest.approx(1 - 1 / shards, abs=0.02)


def test_nothing_has_no_slices() -> None:
    assert slices(pa.table({"u0": pa.array([], pa.string())}), ["u0"], 8) == {}


# What travels with a slice.


def wire(rows: int, partitions: int, text: bool = True) -> pa.Table:
    names = [f"partition {i % partitions}" if text else i % partitions for i in range(rows)]
    return Layout(units=("u",), partitions=("p",), max_partitions=1).wire(pa.table({"u": range(rows), "p": names}))


@pytest.mark.parametrize("text", [True, False])
def test_a_large_dictionary_is_made_anew_for_each_slice(text: bool) -> None:
    table = wire(20_000, 20_000, text)
    for part in slices(table, ["u0"], 16).values():
        column = keys.one_array(part.column("p0"))
        assert len(column.dictionary) == part.num_rows, "keys that are not in the slice travelled with it"
        assert len(column.dictionary) == len(set(column.dictionary.to_pylist()))
    bound = max(shard.SMALL_DICTIONARY, 2 * 4000)
    mixed = pa.concat_tables([table, wire(20_000, 50, text)])
    for part in slices(mixed, ["u0"], 10).values():
        assert len(keys.one_array(part.column("p0")).dictionary) <= bound


def test_a_small_dictionary_may_travel_whole_with_every_slice() -> None:
    for part in slices(wire(5000, 100), ["u0"], 500).values():
        assert len(keys.one_array(part.column("p0")).dictionary) <= shard.SMALL_DICTIONARY


def test_compact_keeps_rows_and_nulls() -> None:
    values = pa.array([None, "x", None, *(str(i) for i in range(9000))])
    table = pa.table({"p": values.dictionary_encode(), "n": range(len(values))}).slice(0, 5)
    kept = shard.compact(table)
    assert kept.to_pylist() == table.to_pylist()
    assert keys.one_array(kept.column("p")).dictionary.to_pylist() == ["x", "0", "1"]


def test_a_slice_that_keeps_the_whole_dictionary_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "compact", lambda table: table)
    with pytest.raises(AssertionError, match="keys that are not in the slice"):
        test_a_large_dictionary_is_made_anew_for_each_slice(True)


# Slices put together.


def of_type(kind: pa.DataType, value: Any) -> pa.Table:
    return pa.table({"u0": pa.array([value], kind), "n": [1]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((pa.int32(), 7), (pa.int64(), 7)),
        ((pa.uint8(), 7), (pa.int16(), 7)),
        ((pa.uint32(), 7), (pa.uint64(), 7)),
        ((pa.null(), None), (pa.string(), "a")),
        ((pa.string(), "a"), (pa.large_string(), "a")),
    ],
    ids=str,
)
def test_tables_whose_keys_hash_alike_are_joined(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    for pair in ([one, other], [other, one]):
        tables = [of_type(*of) for of in pair]
        joined = shard.joined(tables)
        assert joined.column("u0").to_pylist() == [value for _, value in pair]
        apart = [hashing.hash_columns([keys.plain(table.column("u0"))], SALT)[0] for table in tables]
        assert hashing.hash_columns([keys.plain(joined.column("u0"))], SALT).tolist() == apart


UNLIKE = [
    ((pa.int64(), 7), (pa.float64(), 7.0)),
    ((pa.float32(), 0.5), (pa.float64(), 0.5)),
    ((pa.uint64(), 7), (pa.int64(), 7)),
    ((pa.timestamp("us"), 10**6), (pa.timestamp("s"), 1)),
    ((pa.timestamp("us", "UTC"), 1), (pa.timestamp("us"), 1)),
    ((pa.date32(), 1), (pa.date64(), 86_400_000)),
    ((pa.decimal128(5, 1), 1), (pa.decimal128(5, 2), 1)),
    ((pa.string(), "a"), (pa.binary(), b"a")),
    ((pa.string(), "1"), (pa.int64(), 1)),
    ((pa.bool_(), True), (pa.int8(), 1)),
]


@pytest.mark.parametrize(("one", "other"), UNLIKE, ids=str)
def test_tables_that_disagree_on_a_key_type_are_not_joined(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    for tables in ([of_type(*one), of_type(*other)], [of_type(*other), of_type(pa.null(), None), of_type(*one)]):
        with pytest.raises(RequestError, match="input: has tables that disagree on the type of a key column; cast"):
            shard.joined(tables)


def test_joining_what_arrow_can_convert_would_put_one_unit_into_two_shards() -> None:
    # The reason for the rule: Arrow joins integers with floats, and then 7 is 7.0; apart they have different homes.
    tables = [of_type(pa.int64(), 7), of_type(pa.float64(), 7.0)]
    together = pa.concat_tables(tables, promote_options="permissive")
    assert len(keys.dense([keys.one_array(together.column("u0"))])) == 1
    homes = {int(shard.shard_numbers([keys.one_array(t.column("u0"))], SALT, sizes.MOST_SHARDS)[0]) for t in tables}
    assert len(homes) == 2


@settings(max_examples=200)
@given(
    ends=st.lists(st.integers(0, 64).flatmap(lambda n: st.sampled_from([2**n - 1, 2**n, -(2**n), -(2**n) - 1])), max_size=3),
    kind=st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint16(), pa.uint32(), pa.uint64()]),
    null=st.booleans(),
)  # fmt: skip
def test_narrow_integers_are_the_same_and_as_narrow_as_they_can_be(
    ends: list[int], kind: pa.DataType, null: bool
) -> None:
    signed = pa.types.is_signed_integer(kind)
    low, high = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1) if signed else (0, 2**kind.bit_width - 1)
    values = [value for value in ends if low <= value <= high] + [None] * null
    table = pa.table({"a": pa.array(values, kind), "b": pa.array([repr(value) for value in values])})
    found = shard.narrow(table)
    width = found.schema.field("a").type.bit_width
    assert found.to_pylist() == table.to_pylist()
    assert pa.types.is_signed_integer(found.schema.field("a").type) == signed
    numbers = [value for value in values if value is not None]
    if not numbers:
        assert found.schema == table.schema
    elif width > 8:
        half = width // 2 - signed
        assert min(numbers) < (-(2**half) if signed else 0) or max(numbers) >= 2**half
    whole = [keys.one_array(rows.column("a")) for rows in (table, found)]
    assert hashing.hash_columns(whole[:1], SALT).tolist() == hashing.hash_columns(whole[1:], SALT).tolist()
