"""Rows that are equal to listed ones: as Python's tuples are, with null equal to null and NaN to NaN."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.lake.equal_rows import among

CELLS = st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, "", "a", "b"]))


def table(rows: list[tuple[int | None, str | None]], of_numbers: pa.DataType) -> pa.Table:
    return pa.table(
        {"x": pa.array([row[0] for row in rows], of_numbers), "y": pa.array([row[1] for row in rows], pa.string())}
    )


@given(rows=st.lists(CELLS), listed=st.lists(CELLS), wide=st.booleans())
def test_a_row_is_among_the_listed_ones_if_all_of_its_cells_are(
    rows: list[tuple[int | None, str | None]], listed: list[tuple[int | None, str | None]], wide: bool
) -> None:
    found = among(table(rows, pa.int32()), table(listed, pa.int64() if wide else pa.int32()))
    assert found.tolist() == [row in listed for row in rows]


def test_codes_and_nan_are_values() -> None:
    rows = pa.table({"x": pa.array(["a", "b", None]).dictionary_encode(), "y": [float("nan"), 1.0, float("nan")]})
    listed = pa.table({"x": ["a", None], "y": [float("nan"), float("nan")]})
    assert among(rows, listed).tolist() == [True, False, True]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("encoded", [False, True])
def test_nan_equals_nan_whatever_its_bits(kind: type[np.floating[Any]], encoded: bool) -> None:
    literal = np.array([np.nan, 1.0], kind)
    values = pa.array(np.concatenate([-literal, literal, literal]), mask=np.arange(6) > 4)
    assert values.to_numpy(zero_copy_only=False)[:1].tobytes() != literal[:1].tobytes()
    codes = pa.array(np.arange(6), mask=np.arange(6) > 4)
    rows = pa.table({"x": pa.DictionaryArray.from_arrays(codes, values) if encoded else values})
    flags = [True, False, True, False, True, False]
    for listed in (literal[:1], -literal[:1]):
        assert among(rows, pa.table({"x": listed})).tolist() == flags
    both = pa.table({"x": pa.array(literal), "y": ["a", "a"]})
    listed = pa.table({"x": pa.array(np.array([-literal[0], literal[0]])), "y": ["b", "a"]})
    assert among(both, listed).tolist() == [True, False]


def test_a_listed_value_that_does_not_fit_equals_nothing_and_no_row_decides_about_another() -> None:
    whole = pa.table({"x": pa.array([1, None, 0, 2**31 - 1], pa.int32())})
    listed = pa.table({"x": [1.5, 2.0**40, math.nan, 1.0]})
    assert among(whole, listed).tolist() == [True, False, False, False]
    floats = pa.table({"x": [-0.0, 0.0, 1.5, math.nan, None]})
    for rows in (floats, floats.slice(0, 2)):
        flags = among(rows, pa.table({"x": pa.array([0, 7], pa.int32())})).tolist()
        assert flags == [False, True, False, False, False][: rows.num_rows]
    pairs = pa.table({"x": pa.array([None, 1], pa.int32()), "y": ["a", "a"]})
    assert among(pairs, pa.table({"x": [1.5, None], "y": ["a", "b"]})).tolist() == [False, False]


def test_codes_of_long_texts_are_not_decoded() -> None:
    codes = pa.array([0, 1, None] * 300_000, pa.int32())
    texts = pa.DictionaryArray.from_arrays(codes, pa.array(["x" * 4096, None]))
    assert len(codes) // 3 * 4096 > 2**30
    assert among(pa.table({"t": texts}), pa.table({"t": ["x" * 4096]})).sum() == 300_000
    assert among(pa.table({"t": texts}), pa.table({"t": pa.array([None], pa.string())})).sum() == 600_000
