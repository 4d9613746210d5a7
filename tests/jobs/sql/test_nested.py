"""Expressions over nested columns: however a writer has coded what is inside, a row gives the same value.

In: tables as the reader gives them, whole and in slices. Out: values. Holds: what is compared is types and values.
"""

import pathlib

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.sql import row_calculator
from dp_pipelines.jobs.sql.expressions import bind
from dp_pipelines.steps import read_files

ROWS = 40
WORDS = ["x", "y", None, "x"]


def coded(kind: pa.DataType = pa.string()) -> pa.Array:
    """Words as codes."""
    return pa.array([WORDS[i % 4] for i in range(ROWS)], kind).dictionary_encode()


def table() -> pa.Table:
    """Nested columns with codes, large layouts and nulls inside."""
    ends = pa.array([None if i == 7 else i for i in range(ROWS + 1)], pa.int32())
    numbers = pa.array(range(ROWS))
    absent = pa.array([i % 5 == 0 for i in range(ROWS)])
    return pa.table(
        {
            "tags": pa.ListArray.from_arrays(ends, coded()),
            "large": pa.LargeListArray.from_arrays(ends.cast(pa.int64()), coded(pa.large_string())),
            "geo": pa.StructArray.from_arrays([coded(), numbers], ["country", "n"], mask=absent),
            "deep": pa.StructArray.from_arrays([pa.ListArray.from_arrays(ends, coded())], ["tags"]),
            "kind": coded(),
        }
    )


EXPRESSIONS = {
    "a": "tags[1]",
    "b": "list_contains(tags, 'x')",
    "c": "large[1] || 'z'",
    "d": "geo.country",
    "e": "coalesce(geo.country, kind) = 'y'",
    "f": "deep.tags[1]",
    "g": "len(tags) + geo.n",
}


def readers_tables(folder: pathlib.Path) -> list[pa.Table]:
    """The tables that the reader makes of two files with different codes."""
    made = []
    for number, piece in enumerate((table(), table().slice(3, 20))):
        path = folder / f"{number}.parquet"
        pa.parquet.write_table(piece, path)
        made += [t for t in read_files.ReadRowGroups(None).process(((str(path), 0), piece.num_rows)) if t.num_rows]
    return made


def test_expressions_of_a_table_are_those_of_its_slices(tmp_path: pathlib.Path) -> None:
    made = [table(), table().slice(5, 9), pa.concat_tables([table(), table().slice(2, 11)]), *readers_tables(tmp_path)]
    files = [str(path) for path in sorted(tmp_path.glob("*.parquet"))]
    assert len(made) == 5
    for schema in (table().schema, source_files.look_at_parquet(files).schema):
        rows = bind("geo.n IS NULL OR geo.n <> 2", EXPRESSIONS, schema, unit=["id"], values={})
        for whole in made:
            together = rows.apply(whole).select(list(EXPRESSIONS))
            alone = [rows.apply(whole.slice(i, 1)).select(list(EXPRESSIONS)) for i in range(whole.num_rows)]
            assert together.equals(pa.concat_tables(alone))
            assert together.num_rows in (whole.num_rows, whole.num_rows - 1, whole.num_rows - 2)
            assert all(together.column(name).null_count < whole.num_rows for name in EXPRESSIONS)


@pytest.mark.parametrize("name", ["tags", "large", "geo", "deep", "kind"])
def test_what_expressions_see_is_plain_at_every_depth(name: str) -> None:
    column = table().column(name)
    seen = row_calculator.clean(column)
    for word in ("dictionary", "large"):
        assert word not in str(seen.type)
    assert seen.to_pylist() == column.to_pylist()
    assert row_calculator.clean(column.slice(4, 7)).to_pylist() == column.slice(4, 7).to_pylist()


@pytest.mark.parametrize(
    "kind", [pa.large_list(pa.large_string()), pa.list_view(pa.string_view()), pa.list_(pa.string())]
)
def test_a_value_too_long_for_plain_offsets_is_null_and_costs_no_other_row(
    kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_calculator, "LONGEST_VALUE", 1000)
    values = pa.array([["a"], ["b" * 400, None, "c" * 700], None, ["d" * 900]], kind)
    cleaned = row_calculator.clean(pa.chunked_array([values]))
    assert cleaned.type == pa.list_(pa.string())
    assert cleaned.to_pylist() == [["a"], None, None, ["d" * 900]]
