"""A public table joined row by row."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources.lookup import bind

ROWS = pa.schema([("user", pa.int64()), ("store", pa.int64()), ("price", pa.float64()), ("code", pa.string())])
STORES = pa.table({"store": pa.array([3, 1], pa.int32()), "city": ["Bonn", "Oslo"], "size": [7, None]})


def test_each_row_gets_the_columns_of_its_key() -> None:
    table = pa.table({"store": [1, 3, 2, None, 1]})
    found = bind(STORES, "store", ROWS, unit=["user"]).apply(table)
    assert found.column("city").to_pylist() == ["Oslo", "Bonn", None, None, "Oslo"]
    assert found.column("size").to_pylist() == [None, 7, None, None, None]
    assert found.column("store").to_pylist() == [1, 3, 2, None, 1]


@given(st.lists(st.none() | st.integers(-5, 5)), st.integers(0, 20))
def test_rows_are_looked_up_by_themselves(keys: list[int | None], cut: int) -> None:
    table = pa.table({"store": pa.array(keys, pa.int64())})
    stores = bind(STORES, "store", ROWS, unit=["user"])
    apart = pa.concat_tables([stores.apply(table.slice(0, cut)), stores.apply(table.slice(cut))])
    assert stores.apply(table).to_pylist() == apart.to_pylist()
    city = {3: "Bonn", 1: "Oslo"}
    assert apart.column("city").to_pylist() == [city.get(key) for key in keys]  # type: ignore[call-overload]


def test_text_keys_come_in_any_encoding() -> None:
    table = pa.table({"code": pa.array(["b", "a", None, "b"]).dictionary_encode()})
    listed = pa.table({"code": pa.array(["a", "b"], pa.large_string()), "n": [1, 2]})
    assert bind(listed, "code", ROWS, unit=["user"]).apply(table).column("n").to_pylist() == [2, 1, None, 2]


def test_a_lookup_travels() -> None:
    stores = bind(STORES, "store", ROWS, unit=["user"])
    table = pa.table({"store": [3]})
    assert pickle.loads(pickle.dumps(stores)).apply(table).equals(stores.apply(table))
    assert [field.name for field in stores.fields] == ["city", "size"]


@pytest.mark.parametrize(
    ("listed", "on", "words"),
    [
        (pa.table({"store": [1, 1], "city": ["a", "b"]}), "store", "duplicate keys"),
        (pa.table({"store": [1, None], "city": ["a", "b"]}), "store", "null"),
        (pa.table({"store": ["1"], "city": ["a"]}), "store", "int64 in the rows and string in the lookup table"),
        (pa.table({"store": [1], "user": [1]}), "store", "shadow column 'user'"),
        (pa.table({"store": [1], "Price": [1]}), "store", "shadow column 'Price'"),
        (pa.table({"store": [1]}), "stor", "which the rows do not have; did you mean 'store'?"),
        (pa.table({"shop": [1]}), "store", "which the table does not have"),
        (pa.table({"price": [1.0], "x": [1]}), "price", "cannot be compared"),
        (pa.Table.from_arrays([pa.array([1])] * 3, names=["store", "a", "a"]), "store", "two columns"),
    ],
)
def test_a_table_that_cannot_be_joined_row_by_row_is_refused(listed: pa.Table, on: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        bind(listed, on, ROWS, unit=["user"])
    assert words in str(caught.value)
    assert caught.value.field.startswith("lookup")
