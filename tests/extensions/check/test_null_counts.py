"""Nulls and NaN are counted wherever Arrow keeps them."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.check.null_counts import nulls_of, rows_with_null
from dp_pipelines.kernels.columns import gather
from tests.privacy.test_full_dictionaries import MOST, columns

VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int16(), st.none() | st.integers(-5, 5)),
    (pa.float64(), st.none() | st.sampled_from([0.0, math.nan, math.inf])),
    (pa.float32(), st.none() | st.sampled_from([0.0, math.nan])),
    (pa.string(), st.none() | st.sampled_from(["a", "NaN", ""])),
    (pa.bool_(), st.none() | st.booleans()),
    (pa.list_(pa.int8()), st.none() | st.lists(st.integers(0, 3), max_size=2)),
    (pa.null(), st.none()),
]


def is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


@given(st.data())
def test_they_are_those_of_the_values(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(VALUES))
    chunks = data.draw(st.lists(st.lists(values, max_size=6), max_size=3))
    column = pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)
    if pa.types.is_string(kind) and data.draw(st.booleans()):
        column = column.dictionary_encode()
    wanted = [is_nothing(value) for chunk in chunks for value in chunk]
    assert nulls_of(column) == sum(wanted)
    table = pa.table({"a": column, "b": pa.array([1] * len(wanted))})
    assert rows_with_null(table, ["b", "a"]).tolist() == wanted
    assert not rows_with_null(table, ["b"]).any()


@pytest.mark.parametrize("indices", [[0, 1, 1, None], [0, 0, 0, 0]])
def test_a_null_that_a_dictionary_holds_counts_for_each_row(indices: list[int | None]) -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(["a", None]))
    column = pa.chunked_array([coded])
    wanted = [index is None or index == 1 for index in indices]
    assert nulls_of(column) == sum(wanted)
    assert rows_with_null(pa.table({"a": column}), ["a"]).tolist() == wanted


@pytest.mark.parametrize("index", MOST, ids=str)
def test_full_codes_have_the_nulls_of_their_values(index: pa.DataType) -> None:
    for column in columns(index).values():
        plain = pa.chunked_array([gather.plain(chunk) for chunk in column.chunks])
        assert nulls_of(column) == nulls_of(plain)
        named, wanted = pa.table({"a": column}), pa.table({"a": plain})
        assert rows_with_null(named, ["a"]).tolist() == rows_with_null(wanted, ["a"]).tolist()
