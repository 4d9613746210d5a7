"""Tables of files under readable types: the same values, whatever their layout."""

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dp_pipelines.jobs.sql import row_calculator
from dp_pipelines.kernels.columns import column_types


def viewed(kind: type[Any]) -> pa.Array:
    """Views of lists that are out of order, overlap, leave gaps and are null with a size."""
    index = pa.int32() if kind is pa.ListViewArray else pa.int64()
    return kind.from_arrays(
        pa.array([4, 0, 2, 1, 0], index), pa.array([1, 2, 0, 2, 1], index), pa.array(["a", "b", "c", "d", "e"]),
        mask=pa.array([False, True, False, False, False]),
    )  # fmt: skip


def around(views: pa.Array) -> list[pa.Array]:
    """Nested values, five each, that have the views inside."""
    missing = pa.array([False, False, True, False, False])
    offsets = pa.array([0, 1, 1, 3, 4, 5], pa.int32())
    return [
        views,
        pa.StructArray.from_arrays([views], ["x"], mask=missing),
        pa.ListArray.from_arrays(offsets, views, mask=missing),
        pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), views),
        pa.FixedSizeListArray.from_arrays(pa.concat_arrays([views, views]), 2),
        pa.MapArray.from_arrays(offsets, pa.array(list("vwxyz")), views),
        pa.ListViewArray.from_arrays(
            pa.array([3, 1, 0, 2, 0], pa.int32()), pa.array([2, 0, 3, 1, 1], pa.int32()), views
        ),
    ]


@pytest.mark.parametrize("kind", [pa.ListViewArray, pa.LargeListViewArray])
def test_views_of_lists_keep_their_values_at_any_depth(kind: type[Any]) -> None:
    for values in around(viewed(kind)):
        for part in (values, values.slice(1), values.slice(2, 2), values.slice(3, 0)):
            made = column_types.readable(pa.table({"x": part}))
            made.validate(full=True)
            assert made.schema == column_types.readable_schema(pa.schema({"x": values.type}))
            assert made["x"].to_pylist() == part.to_pylist(), values.type


LEAVES: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (pa.null(), pa.null(), [None]),
    (pa.large_string(), pa.string(), ["a", None, ""]),
    (pa.string_view(), pa.string(), ["a" * 40, None, "b"]),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string(), ["a", None, "b"]),
    (pa.float16(), pa.float32(), [np.float16(1.5), None]),
    (pa.decimal32(5, 2), pa.decimal128(5, 2), [decimal.Decimal("1.25"), None]),
]
"""Types inside of nested ones, the plain type of each, and values."""

LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


@st.composite
def nested(draw: st.DrawFn) -> tuple[pa.DataType, pa.DataType, list[Any]]:
    """A nested type, its plain form, and a row for each of some draws."""
    of, plain, leaves = draw(st.sampled_from(LEAVES))
    rows: st.SearchStrategy[Any] = st.sampled_from(leaves)
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(["list", "struct", "map", "two", "none"]))
        if shape == "list":
            of, plain, rows = draw(st.sampled_from(LISTS))(of), pa.list_(plain), st.lists(rows, max_size=3)
        elif shape == "struct":
            of, plain = pa.struct([("x", of)]), pa.struct([("x", plain)])
            rows = st.fixed_dictionaries({"x": rows})
        elif shape == "map":
            of, plain = pa.map_(pa.string(), of), pa.map_(pa.string(), plain)
            rows = st.lists(st.tuples(st.just("k"), rows), max_size=2)
        else:
            size = 2 if shape == "two" else 0
            of, plain, rows = pa.list_(of, size), pa.list_(plain, size), st.lists(rows, min_size=size, max_size=size)
        rows = st.none() | rows
    return of, plain, draw(st.lists(rows, max_size=6))


@given(of=nested(), start=st.integers(0, 5))
@example(of=(pa.large_list(pa.list_(pa.null())), pa.list_(pa.list_(pa.null())), [[[None, None]], [[]]]), start=0)
@settings(max_examples=200)
def test_nested_values_keep_their_values_under_a_plain_type_whatever_other_rows_have(
    of: tuple[pa.DataType, pa.DataType, list[Any]], start: int
) -> None:
    kind, plain, rows = of
    values = pa.array(rows, kind).slice(start)
    made = column_types.in_layout(values, plain)
    made.validate(full=True)
    assert made.type == plain
    assert made.to_pylist() == pa.array(rows, plain).slice(start).to_pylist()
    cleaned = row_calculator.clean(pa.chunked_array([values]))
    assert cleaned.to_pylist() == [
        row_calculator.clean(pa.chunked_array([row])).to_pylist()[0] for row in split(values)
    ]


def split(values: pa.Array) -> list[pa.Array]:
    """Return each row as an array of its own."""
    return [values.slice(at, 1) for at in range(len(values))]
