"""Made-up rows follow the laws that are said of them, in every type that a column can have; nothing is drawn."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.jobs.made_up import synthetic_rows
from dp_pipelines.jobs.made_up.synthetic_rows import Assumptions, Values
from dp_pipelines.kernels import keys

TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
    pa.decimal128(5, 2), pa.decimal128(38, 0), pa.decimal128(3, 5), pa.decimal256(76, 10), pa.decimal64(9, 2), pa.date32(),
    pa.date64(), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.time32("s"), pa.time64("ns"), pa.duration("us"), pa.string(),
    pa.large_string(), pa.binary(), pa.binary(1), pa.binary(16), pa.dictionary(pa.int8(), pa.string()), pa.string_view(),
    pa.uuid(),
]  # fmt: skip

NUMBERS = [
    kind for kind in TYPES[1:] if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
]


def assumed(**changes: object) -> Assumptions:
    whole: dict[str, object] = {
        "users": 20_000, "partitions": 300, "listed": False, "partitions_of_user": 5.0, "rows_each": 2.0,
        "values": {"price": Values(low=0, high=20, middle=10), "balance": Values(low=-8, high=8, middle=1)},
    }  # fmt: skip
    return Assumptions(**{**whole, **changes})  # type: ignore[arg-type]


def made(law: Assumptions, kind: pa.DataType = pa.float64()) -> pa.Table:
    places = {"place": synthetic_rows.made_keys(law.partitions, [pa.int64()])[0]}
    return synthetic_rows.table(law, {"user": pa.int64()}, places, dict.fromkeys(("price", "balance"), kind))


def test_contributions_and_values_follow_the_declared_laws() -> None:
    table = made(assumed())
    assert table.num_rows == pytest.approx(assumed().rows, rel=0.02)
    pairs = table.group_by(["user", "place"]).aggregate([([], "count_all")])
    own = pairs.group_by("user").aggregate([([], "count_all")])["count_all"].to_numpy()
    each = pairs["count_all"].to_numpy()
    assert len(own) == 20_000
    # A lognormal with median m is above x with probability 1 - Phi(ln(x / m)); a rounded one above 9 where it reaches 9.5.
    assert np.mean(own > 9) == pytest.approx(0.2604, abs=0.01)
    assert np.mean(each > 3) == pytest.approx(0.2879, abs=0.01)
    assert np.mean(table["price"].to_numpy() > 20) == pytest.approx(0.2441, abs=0.01)
    assert np.mean(table["balance"].to_numpy() > 5) == pytest.approx(0.1587, abs=0.01)
    popular = pairs.group_by("place").aggregate([([], "count_all")]).sort_by([("count_all", "descending")])
    assert popular["place"].to_pylist()[:3] == [0, 1, 2]
    assert table["price"].null_count == 0


def test_users_places_rows_and_values_do_not_depend_on_each_other() -> None:
    table = made(assumed())
    pairs = table.group_by(["user", "place"]).aggregate([([], "count_all"), ("price", "mean"), ("balance", "mean")])
    found = [pairs[name].to_numpy().astype(float) for name in ("user", "count_all", "price_mean", "balance_mean")]
    correlated = np.corrcoef(found)[np.triu_indices(len(found), 1)]
    assert np.abs(correlated).max() < 0.02
    planted = found[1] + found[0] / np.std(found[0])
    assert np.corrcoef([found[0], planted])[0, 1] > 0.1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.floats(0.01, 50))
def test_each_pair_is_there_once_and_every_partition_is_one_that_there_is(
    users: int, partitions: int, median: float
) -> None:
    law = assumed(users=users, partitions=partitions, partitions_of_user=median, rows_each=1e-6)
    table = made(law)
    pairs = list(zip(table["user"].to_pylist(), table["place"].to_pylist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert {user for user, _ in pairs} == set(range(users))
    assert {place for _, place in pairs} <= set(range(partitions))


def test_who_has_all_partitions_has_each_of_them_once() -> None:
    pairs = made(assumed(users=40, partitions=7, partitions_of_user=1e6, rows_each=1e-6))
    assert pairs.num_rows == 40 * 7
    assert pairs.group_by(["user", "place"]).aggregate([]).num_rows == 40 * 7


def test_the_same_assumptions_make_the_same_rows() -> None:
    assert made(assumed()).equals(made(assumed()))
    assert not made(assumed()).equals(made(assumed(rows_each=2.5)))


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_keys_of_every_type_are_different_and_keep_their_type(kind: pa.DataType) -> None:
    number = min(synthetic_rows.most([kind]), 70_000)
    (column,) = synthetic_rows.made_keys(number, [kind])
    column.validate(full=True)
    assert column.type == keys.plain_type(kind)
    assert len(keys.dense([keys.plain(column)])) == number


def test_keys_of_several_columns_are_different_together() -> None:
    columns = synthetic_rows.made_keys(1000, [pa.bool_(), pa.int8(), pa.string()])
    assert len(set(zip(*(column.to_pylist() for column in columns), strict=True))) == 1000
    assert synthetic_rows.most([pa.bool_(), pa.int8()]) == 2 * 128


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("high", [1.0, 1e4, 1e30])
def test_values_of_every_type_of_number_fit_it(kind: pa.DataType, high: float) -> None:
    laws = {"price": Values(low=0, high=high, middle=high / 2), "balance": Values(low=-high, high=high, middle=0)}
    table = made(assumed(users=500, values=laws), kind)
    for name in laws:
        column = keys.one_array(table[name])
        column.validate(full=True)
        assert column.type == keys.plain_type(kind)
        assert column.null_count == 0
    assert pc.min(table["price"]).as_py() >= 0
