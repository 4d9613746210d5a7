"""Rows that are equal to listed ones: as Python's tuples are, with null equal to null and NaN to NaN."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.kernels.columns.equal_rows import among

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
