"""Rows in memory have the types that they declare, and no cell decides anything else."""

import datetime
import uuid

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import tables
from dp_pipelines.kernels.columns import column_casts


def read(data, types=None):
    """All columns of held rows."""
    name, source = tables.hold(data, types)
    try:
        return source.schema, tables.held(name).read(source.schema.names)
    finally:
        tables.release(name)


def test_a_pandas_column_of_objects_is_text_whatever_its_cells_are():
    cells = [["a", "b"], ["a", None], ["a", 1], [1.5, float("nan")], [object(), 7], [None, None], ["a", "\ud800"], []]
    for listed in cells:
        schema, table = read(pd.DataFrame({"x": pd.Series(listed, dtype=object)}))
        assert schema.field("x").type == pa.string()
        assert table["x"].to_pylist() == [c if c in ("a", "b") else None for c in listed]


def test_a_declared_column_has_its_type_and_what_does_not_fit_is_null():
    day = datetime.date(2025, 1, 6)
    frame = pd.DataFrame({"day": pd.Series([day, "soon", None], dtype=object)})
    schema, table = read(frame, {"day": pa.date32()})
    assert schema.field("day").type == pa.date32()
    assert table["day"].to_pylist() == [day, None, None]


@pytest.mark.parametrize("rows", [0, 3])
def test_types_of_pandas_do_not_follow_from_rows(rows):
    frame = pd.DataFrame(
        {
            "whole": pd.Series([1] * rows, dtype="int32"),
            "maybe": pd.Series([None] * rows, dtype="Int64"),
            "float": pd.Series([float("nan")] * rows, dtype="float64"),
            "text": pd.Series([None] * rows, dtype=object),
            "kind": pd.Series([None] * rows, dtype=pd.CategoricalDtype(["a"])),
            "at": pd.Series([pd.NaT] * rows, dtype="datetime64[us]"),
            "yes": pd.Series([None] * rows, dtype="boolean"),
        }
    )
    schema, table = read(frame)
    expected = [pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.string(), pa.timestamp("us"), pa.bool_()]
    assert schema.types == expected
    assert table["float"].null_count == rows


def test_categories_of_text_are_text():
    schema, table = read(pd.DataFrame({"kind": pd.Categorical(["b", None, "a"])}))
    assert schema.field("kind").type == pa.string()
    assert table["kind"].to_pylist() == ["b", None, "a"]


def test_views_and_large_layouts_are_plain_to_a_job():
    frame = pl.DataFrame({"text": ["a"], "kind": ["b"]}).with_columns(pl.col("kind").cast(pl.Categorical))
    assert read(frame)[0].types == [pa.string(), pa.string()]


def test_a_dtype_that_arrow_lacks_is_named():
    frame = pd.DataFrame({"z": pd.Series([1 + 2j])})
    with pytest.raises(RequestError, match="column 'z': has dtype complex128, which Arrow does not have; cast it"):
        read(frame)


def test_released_rows_are_kept_no_longer():
    name, _ = tables.hold(pa.table({"x": [1]}))
    tables.release(name)
    with pytest.raises(KeyError):
        tables.held(name)


def test_every_cell_is_fitted_alone():
    class Rude:
        def __index__(self):
            raise ValueError("secret")

    cells = [1, "x", Rude(), 2**70, None, 3.5, True]
    alone = [column_casts.column([cell], pa.int64())[0].as_py() for cell in cells]
    assert column_casts.column(cells, pa.int64()).to_pylist() == alone
    assert alone[0] == 1
    assert alone[2] is None


def test_a_class_made_from_a_frame_of_pandas_is_one():
    class Ours(pd.DataFrame):
        pass

    for cells in (["a", "b"], ["a", 1], [1, 2], [None, None]):
        schema, table = read(Ours({"x": pd.Series(cells, dtype=object)}))
        assert schema.field("x").type == pa.string()
        assert table["x"].to_pylist() == [cell if cell in ("a", "b") else None for cell in cells]


def test_objects_of_polars_are_no_column_since_equal_ones_would_differ():
    same = [uuid.UUID(int=1), uuid.UUID(int=1)]
    name, source = tables.hold(pl.DataFrame({"customer": same, "x": [1, 2]}))
    tables.release(name)
    assert source.schema.names == ["x"]
    with pytest.raises(RequestError, match="column 'customer': has dtype Object, which Arrow does not have; cast it"):
        raise source.missing["customer"]


def test_types_that_are_no_mapping_are_refused():
    with pytest.raises(RequestError, match="types: must map column names"):
        read(pd.DataFrame({"x": ["a"]}), ["x"])
