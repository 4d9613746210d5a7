"""CSV for spreadsheets: digits, intervals, grids, delimiters and marks, as DuckDB and Python's csv read them.

In: tables like those that are published, with hostile keys. Out: cells. Not covered: whole runs and refusals of jobs
(`tests/jobs/run/test_spreadsheet_runs.py`).
"""

import csv
import dataclasses
import datetime
import decimal
import itertools
import pathlib
import string
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.outputs import spreadsheet_csv, text_tables, wide_table
from dp_pipelines.jobs.outputs.csv_columns import CsvLayout, NumberColumns
from dp_pipelines.jobs.outputs.spreadsheet_csv import SpreadsheetCsv
from dp_pipelines.jobs.outputs.text_tables import CsvText
from dp_pipelines.jobs.outputs.wide_table import headings_of
from dp_pipelines.jobs.spec.output_models import OutputsModel, SpreadsheetOptions
from tests.jobs.outputs.test_text_tables import everything

HOSTILE = [
    "",
    None,
    "null",
    '"null"',
    "a;b,c\t|",
    'say "hi"',
    "line\nbreak",
    "\r\n",
    "=1+1",
    "+1",
    "-1",
    "@x",
    "\tx",
    "é",
    " ",
]
"""Keys: separators, quotation marks, line breaks, nulls, and what spreadsheets take for formulas."""

ORDERS = NumberColumns(value="orders", stddev="orders_stddev", whole=True)
MEAN = NumberColumns(value="mean", stddev="mean_stddev", whole=False)


def grid_table(first: list[Any] = HOSTILE, second: list[Any] = HOSTILE) -> pa.Table:
    """A number for each pair of keys, all of them different; the last pair is not there."""
    pairs = list(itertools.product(first, second))[:-1]
    return pa.table(
        {
            "k": pa.array([pair[0] for pair in pairs]),
            "v": pa.array([pair[1] for pair in pairs]),
            "orders": pa.array([float(place) + 0.3 for place in range(len(pairs))]),
            "orders_stddev": pa.array([4.0] * len(pairs)),
        }
    )


LAYOUT = CsvLayout(keys=("k", "v"), numbers=(ORDERS,))


def written(
    folder: pathlib.Path, table: pa.Table, layout: CsvLayout = LAYOUT, **options: Any
) -> tuple[pathlib.Path, SpreadsheetCsv]:
    """A copy of a table that was published."""
    pa.parquet.write_table(table, folder / "t.parquet")
    spreadsheet = SpreadsheetCsv(layout=layout, **options)
    spreadsheet.write(folder / "t.parquet", folder / "t.csv")
    return folder / "t.csv", spreadsheet


def rows_of(path: pathlib.Path, delimiter: str = ",", encoding: str = "utf-8") -> list[list[str]]:
    """All lines as Python's csv reads them."""
    with path.open(newline="", encoding=encoding) as file:
        return list(csv.reader(file, delimiter=delimiter, strict=True))


def in_duckdb(path: pathlib.Path, delimiter: str = ",") -> list[tuple[Any, ...]]:
    """All lines as DuckDB reads them, as text; an empty cell is null."""
    read = f"read_csv('{path}', header = false, all_varchar = true, delim = '{delimiter}', quote = '\"', escape = '\"'"
    return duckdb.sql(
        f"FROM {read}, allow_quoted_nulls = false, new_line = '\\n', auto_detect = false, columns = {columns(path, delimiter)})"
    ).fetchall()


def columns(path: pathlib.Path, delimiter: str) -> dict[str, str]:
    """Names for as many columns as a file has."""
    return {f"c{place}": "VARCHAR" for place in range(len(rows_of(path, delimiter)[0]))}


def test_without_options_the_bytes_are_those_of_csv(tmp_path: pathlib.Path) -> None:
    table = everything()
    path, _ = written(tmp_path, table, CsvLayout(keys=()))
    CsvText().write(tmp_path / "t.parquet", tmp_path / "plain.csv")
    assert path.read_bytes() == (tmp_path / "plain.csv").read_bytes()
    path, _ = written(tmp_path, table, CsvLayout(keys=()), bom=True)
    assert path.read_bytes() == b"\xef\xbb\xbf" + (tmp_path / "plain.csv").read_bytes()


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " ", ",", "#"])
def test_hostile_keys_are_read_back_with_any_delimiter(tmp_path: pathlib.Path, delimiter: str) -> None:
    table = grid_table()
    path, _ = written(tmp_path, table, delimiter=delimiter)
    wanted = list(zip(*(table.column(name).to_pylist() for name in ("k", "v")), strict=True))
    assert [row[:2] for row in in_duckdb(path, delimiter)[1:]] == wanted
    if delimiter != "\t":
        assert [tuple(row[:2]) for row in rows_of(path, delimiter)[1:]] == [(a or "", b or "") for a, b in wanted]


def test_people_are_whole_and_other_numbers_have_the_digits_of_the_page(tmp_path: pathlib.Path) -> None:
    table = pa.table(
        {
            "k": ["a", "b", "c", "d"],
            "orders": [2087.7, -0.2, None, 12345678901.4],
            "orders_stddev": [3.5, 3.5, 3.5, 1e6],
            "mean": [4.71828, 13546.9, float("nan"), 2.5],
            "mean_stddev": [0.0123, 14074.9, 0.5, None],
        }
    )
    layout = CsvLayout(keys=("k",), numbers=(ORDERS, MEAN))
    pa.parquet.write_table(table, tmp_path / "before.parquet")
    path, _ = written(tmp_path, table, layout, rounded=True, interval=True)
    assert rows_of(path) == [
        ["k", "orders", "orders_stddev", "orders_from", "orders_to", "mean", "mean_stddev", "mean_from", "mean_to"],
        ["a", "2088", "3.5", "2081", "2095", "4.718", "0.012", "4.694", "4.742"],
        ["b", "0", "3.5", "-7", "7", "13547", "14075", "-14040", "41134"],
        ["c", "", "3.5", "", "", "", "0.50", "", ""],
        ["d", "12345678901", "1000000", "12343718901", "12347638901", "2.5", "", "", ""],
    ]
    assert (tmp_path / "t.parquet").read_bytes() == (tmp_path / "before.parquet").read_bytes()


def test_what_is_exact_or_large_keeps_its_digits_when_rounded(tmp_path: pathlib.Path) -> None:
    table = pa.table(
        {
            "k": ["a", "b", "c", "d"],
            "mean": [123456.75, 1234567.8, 1e-7, 1.2345678e16],
            "mean_stddev": [None, 0.0, None, 1e6],
        }
    )
    layout = CsvLayout(keys=("k",), numbers=(MEAN,))
    assert rows_of(written(tmp_path, table, layout, rounded=True, interval=True)[0])[1:] == [
        ["a", "123456.75", "", "", ""],
        ["b", "1234567.8", "0", "1234567.8", "1234567.8"],
        ["c", "1e-7", "", "", ""],
        ["d", "12345678000000000", "1000000", "12345677998040000", "12345678001960000"],
    ]
    compared = pa.table({"arm": ["B"], "value": [1.2345678e16], "difference": [None], "difference_low": [None]})
    layout = CsvLayout(keys=("arm",), compared=("value", "difference", "difference_low"))
    assert rows_of(written(tmp_path, compared, layout, rounded=True)[0])[1] == ["B", "12345678000000000.00", "", ""]


def test_the_interval_has_all_digits_where_nothing_is_rounded(tmp_path: pathlib.Path) -> None:
    path, _ = written(tmp_path, grid_table(["a"], ["x", "y"]), interval=True)
    assert rows_of(path)[1] == ["a", "x", "0.3", "4", str(0.3 - 1.96 * 4), str(0.3 + 1.96 * 4)]


def test_lists_are_rounded_in_their_cells(tmp_path: pathlib.Path) -> None:
    table = pa.table(
        {
            "k": ["a", "b", "c"],
            "mean": pa.array([[1.23456, None, 9.0], None, []], pa.list_(pa.float64())),
            "mean_stddev": pa.array([[0.1, 0.1, None], None, []], pa.list_(pa.float64())),
        }
    )
    layout = CsvLayout(keys=("k",), numbers=(MEAN,))
    path, _ = written(tmp_path, table, layout, rounded=True, interval=True)
    assert rows_of(path)[1:] == [
        ["a", "[1.23,null,9]", "[0.10,null,null]", "[1.03,null,null]", "[1.43,null,null]"],
        ["b", "", "", "", ""],
        ["c", "[]", "[]", "[]", "[]"],
    ]
    path, _ = written(tmp_path, table, layout, interval=True)
    assert [row[3] for row in rows_of(path)[1:]] == [f"[{1.23456 - 1.96 * 0.1},null,null]", "", "[]"]


def test_ranges_and_comparisons_are_rounded_too(tmp_path: pathlib.Path) -> None:
    ends = ("n_estimate", "n_low", "n_high")
    numbers = dataclasses.replace(ORDERS, value="n", stddev="n_stddev", ends=ends)
    table = pa.table(
        {"k": ["a", "b"], "n": [5.5, 1.2], "n_stddev": [1.0, 1.0], "n_estimate": [1120.3, None], "n_low": [1050.4, 0.9],
         "n_high": [1189.2, None]}
    )  # fmt: skip
    path, _ = written(tmp_path, table, CsvLayout(keys=("k",), numbers=(numbers,)), rounded=True)
    assert [row[3:] for row in rows_of(path)[1:]] == [["1120", "1050", "1190"], ["", "0", ""]]
    compared = pa.table({"arm": ["B"], "metric": ["n"], "value": [17.40612], "difference": [3.2612345]})
    compared = compared.append_column("difference_low", [[2.49]]).append_column("difference_high", [[4.02]])
    layout = CsvLayout(keys=("arm",), compared=("value", "difference", "difference_low", "difference_high"))
    path, spreadsheet = written(tmp_path, compared, layout, rounded=True, interval=True, wide=True)
    assert rows_of(path)[1] == ["B", "n", "17.41", "3.26", "2.49", "4.02"]
    assert not list(spreadsheet.refused_options(compared.schema)), "its stage is asked"


def test_a_grid_has_each_number_in_the_cell_of_its_keys(tmp_path: pathlib.Path) -> None:
    table = grid_table()
    path, _ = written(tmp_path, table, wide=True, delimiter=";")
    header, *body = in_duckdb(path, ";")
    headings = headings_of(pa.array([*sorted({v for v in HOSTILE if v is not None}), None]))
    assert header == ("k", *(f"orders: {heading}" for heading in headings))
    assert len(set(header)) == len(HOSTILE) + 1
    wanted = {(row["k"], row["v"]): row["orders"] for row in table.to_pylist()}
    values = [*sorted({v for v in HOSTILE if v is not None}), None]
    found = {
        (row[0], value): float(cell)
        for row in body
        for value, cell in zip(values, row[1:], strict=True)
        if cell is not None
    }
    assert found == wanted
    assert [row[0] for row in body] == HOSTILE, "the order in which they first appear"


def test_a_grid_has_a_block_of_columns_for_each_metric_and_no_standard_deviations(tmp_path: pathlib.Path) -> None:
    table = grid_table(["a", "b"], ["x", "y"]).append_column("mean", [[1.0, 2.0, 3.0]])
    table = table.append_column("mean_stddev", [[1.0] * 3])
    layout = CsvLayout(keys=("k", "v"), numbers=(ORDERS, MEAN))
    path, _ = written(tmp_path, table, layout, wide=True, rounded=True)
    assert rows_of(path) == [
        ["k", "orders: x", "orders: y", "mean: x", "mean: y"],
        ["a", "0", "1", "1.0", "2.0"],
        ["b", "2", "", "3.0", ""],
    ]
    path, _ = written(tmp_path, table, layout, wide=True, rounded=True, interval=True)
    assert rows_of(path)[0][3:7] == ["orders_from: x", "orders_from: y", "orders_to: x", "orders_to: y"]
    path, _ = written(tmp_path, table.slice(0, 0), layout, wide=True)
    assert rows_of(path) == [["k"]], "nothing was released, so that no value of the last key is known"


@given(
    st.dictionaries(
        st.tuples(*[st.text('ab",;\n=', max_size=3) | st.none()] * 3), st.integers(-(10**9), 10**9), max_size=30
    ),
    st.integers(1, 5),
)
def test_any_keys_give_a_grid_whose_numbers_are_those_of_the_table(
    tmp_path_factory: pytest.TempPathFactory, made: dict[tuple[str | None, ...], int], cells: int
) -> None:
    table = pa.table(
        {
            **{n: pa.array([key[at] for key in made], pa.string()) for at, n in enumerate("abc")},
            "orders": pa.array([float(number) for number in made.values()], pa.float64()),
            "orders_stddev": pa.array([1.0] * len(made), pa.float64()),
        }
    )
    layout = CsvLayout(keys=("a", "b", "c"), numbers=(ORDERS,))
    folder = tmp_path_factory.mktemp("grid")
    whole = written(folder, table, layout, wide=True, rounded=True)[0].read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide_table, "CELLS", cells)
        assert written(folder, table, layout, wide=True, rounded=True)[0].read_bytes() == whole
    header, *body = rows_of(folder / "t.csv")
    known = {f"orders: {heading_of(key[2])}" for key in made}
    assert header[:2] == ["a", "b"]
    assert set(header[2:]) == known
    assert sorted(int(cell) for row in body for cell in row[2:] if cell) == sorted(made.values())
    assert len(body) == len({key[:2] for key in made})
    for key, number in made.items():
        place = header.index(f"orders: {heading_of(key[2])}")
        assert str(number) in [row[place] for row in body if (row[0], row[1]) == (key[0] or "", key[1] or "")]


def heading_of(value: str | None) -> str:
    return headings_of(pa.array([value], pa.string()))[0]


COLLIDING = ("orders", "orders: b")
"""Metrics of which a heading of one can be a heading of the other."""


def colliding_table() -> tuple[pa.Table, CsvLayout]:
    """Return a table whose wide form would have the heading `orders: b: c` twice."""
    pairs = [("x", "c"), ("x", "b: c"), ("x", "z"), ("y", "c"), ("y", "b: c"), ("y", "z")]
    columns: dict[str, list[Any]] = {"k": [pair[0] for pair in pairs], "v": [pair[1] for pair in pairs]}
    for factor, name in enumerate(COLLIDING):
        columns |= {name: [float(place + 10 * factor) for place in range(6)], f"{name}_stddev": [1.0] * 6}
    numbers = tuple(NumberColumns(value=name, stddev=f"{name}_stddev", whole=True) for name in COLLIDING)
    return pa.table(columns), CsvLayout(keys=("k", "v"), numbers=numbers)


def test_metrics_whose_headings_could_be_equal_are_refused() -> None:
    table, layout = colliding_table()
    for interval in (False, True):
        (said,) = refused(layout, table.schema, wide=True, interval=interval)
        assert said.startswith("wide: has column 'orders: b', which a column of the numbers 'orders' could be called")
    assert not refused(layout, table.schema, interval=True)
    apart = table.rename_columns(["k", "v", "orders", "orders_stddev", "orders b", "orders b_stddev"])
    others = dataclasses.replace(layout.numbers[1], value="orders b", stddev="orders b_stddev")
    assert not refused(dataclasses.replace(layout, numbers=(layout.numbers[0], others)), apart.schema, wide=True)


def test_a_grid_loses_no_column_whatever_its_headings_are(tmp_path: pathlib.Path) -> None:
    table, layout = colliding_table()
    path, _ = written(tmp_path, table, layout, wide=True)
    header, *body = rows_of(path)
    assert header == ["k", *(f"{name}: {value}" for name in COLLIDING for value in ("b: c", "c", "z"))]
    assert body == [["x", "1", "0", "2", "11", "10", "12"], ["y", "4", "3", "5", "14", "13", "15"]]


def test_headings_of_days_have_no_time_of_day() -> None:
    moments = pa.array(["2026-01-05", "2026-01-12", None]).cast(pa.timestamp("us"))
    assert headings_of(moments) == ("2026-01-05", "2026-01-12", "null")
    assert headings_of(pa.array(["2026-01-05", "2026-01-12 10:00"]).cast(pa.timestamp("s"))) == (
        "2026-01-05 00:00:00", "2026-01-12 10:00:00",
    )  # fmt: skip
    for zone in ("UTC", "Europe/Berlin"):
        assert headings_of(moments.cast(pa.timestamp("us", zone))) == ("2026-01-05", "2026-01-12", "null")
    assert headings_of(pa.array([0, 3600]).cast(pa.timestamp("s", "UTC"))) == (
        "1970-01-01 00:00:00Z", "1970-01-01 01:00:00Z",
    )  # fmt: skip
    assert headings_of(moments.cast(pa.date32())) == ("2026-01-05", "2026-01-12", "null")
    assert headings_of(pa.array([True, False, None])) == ("true", "false", "null")
    assert headings_of(pa.array([1.5, 2.0])) == ("1.5", "2")


def test_how_many_rows_are_written_at_a_time_changes_no_byte(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"rounded": True, "interval": True}
    whole = written(tmp_path, grid_table(), **options)[0].read_bytes()
    monkeypatch.setattr(text_tables, "ROWS", 3)
    assert written(tmp_path, grid_table(), **options)[0].read_bytes() == whole


@pytest.mark.parametrize(
    ("limit", "value", "why"),
    [
        ("MOST_COLUMNS", 15, "would have 16 columns, and at most 15 are written"),
        ("MOST_CELLS", 239, "would have 240 cells, and at most 239 are written"),
        ("MOST_ROWS", 200, "has more than 200 rows"),
        ("MOST_BYTES", 2**10, "takes more than 0 MiB"),
    ],
)
def test_what_is_too_large_for_a_grid_is_written_row_by_row(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, why: str
) -> None:
    path, spreadsheet = written(tmp_path, grid_table(), wide=True)
    assert spreadsheet.why_long(tmp_path / "t.parquet") == ""
    monkeypatch.setattr(spreadsheet_csv, limit, value)
    assert spreadsheet.why_long(tmp_path / "t.parquet") == why
    wide = path.read_bytes()
    spreadsheet.write(tmp_path / "t.parquet", path)
    assert path.read_bytes() != wide
    CsvText().write(tmp_path / "t.parquet", tmp_path / "plain.csv")
    assert path.read_bytes() == (tmp_path / "plain.csv").read_bytes()


def test_partitions_far_apart_are_no_grid_of_empty_cells(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreadsheet_csv, "MOST_CELLS", 2**14)
    rows = 200
    table = pa.table(
        {"k": [f"u{n}" for n in range(rows)], "v": [n % 99 for n in range(rows)], "orders": [1.0] * rows,
         "orders_stddev": [1.0] * rows}
    )  # fmt: skip
    path, spreadsheet = written(tmp_path, table, wide=True)
    assert spreadsheet.why_long(tmp_path / "t.parquet") == "would have 20,000 cells, and at most 16,384 are written"
    assert len(rows_of(path)[0]) == 4
    dense = table.set_column(0, "k", pa.array([f"u{n // 99}" for n in range(rows)]))
    path, spreadsheet = written(tmp_path, dense, wide=True)
    assert spreadsheet.why_long(tmp_path / "t.parquet") == "", "the same width and rows, but few combinations"
    assert len(rows_of(path)[0]) == 100


def refused(layout: CsvLayout, schema: pa.Schema, **options: Any) -> list[str]:
    return [
        f"{option}: {message}; {hint}"
        for option, message, hint in SpreadsheetCsv(layout=layout, **options).refused_options(schema)
    ]


def test_an_interval_takes_no_name_that_is_there() -> None:
    schema = grid_table().schema.append(pa.field("Orders_From", pa.float64()))
    (said,) = refused(LAYOUT, schema, interval=True)
    assert said.startswith(
        "interval: would publish column 'Orders_From' twice: it is an end of the interval of 'orders'"
    )
    assert not refused(LAYOUT, schema)


def test_what_is_no_grid_is_refused() -> None:
    schema = grid_table().schema
    replace = dataclasses.replace
    assert "levels of a rollup" in refused(replace(LAYOUT, levels=True), schema, wide=True)[0]
    assert "the best partitions" in refused(replace(LAYOUT, ranks=True), schema, wide=True)[0]
    assert "fewer than two columns in partition_by" in refused(replace(LAYOUT, keys=("k",)), schema, wide=True)[0]
    assert "has no metric" in refused(replace(LAYOUT, numbers=()), schema, wide=True)[0]
    odd = pa.schema([("orders: x", pa.string()), *schema])
    (said,) = refused(replace(LAYOUT, keys=("orders: x", "v")), odd, wide=True)
    assert (
        said
        == "wide: has column 'orders: x', which a column of the numbers 'orders' could be called, too; rename one of them"
    )
    listed = [("a", number) for number in range(1000)]
    assert (
        "would have 1,001 columns, and at most 1,000" in refused(replace(LAYOUT, listed=listed), schema, wide=True)[0]
    )
    assert not refused(replace(LAYOUT, listed=listed[1:]), schema, wide=True)
    apart = [[number, number % 999] for number in range(16_794)]
    assert (
        "would have 16,794,000 cells, and at most 16,777,216"
        in refused(replace(LAYOUT, listed=apart), schema, wide=True)[0]
    )
    assert not refused(replace(LAYOUT, listed=apart[:16_777]), schema, wide=True)
    assert not refused(replace(LAYOUT, keys=("k",)), schema, rounded=True, interval=True)


TAKEN = {*string.ascii_letters, *string.digits, *"\"'`\\+-.:\n\r\0", "", ";;", "é", "\x07"}


@pytest.mark.parametrize("mark", sorted(TAKEN))
def test_a_mark_that_cells_hold_is_no_delimiter(mark: str) -> None:
    with pytest.raises(RequestError, match="must be one ASCII character"):
        SpreadsheetOptions._separates_cells(SpreadsheetOptions.model_construct(delimiter=mark))  # type: ignore[operator]


def test_a_decimal_comma_is_in_numbers_alone_and_reads_back_as_the_same_number(tmp_path: pathlib.Path) -> None:
    table = pa.table(
        {
            "k": ["a.b", '1.5;"'],
            "at": pa.array([datetime.time(1, 2, 3, 500_000), None]),
            "d": pa.array([decimal.Decimal("1.25"), None]),
            "x": [0.5, 1e-7],
            "orders": [2.5, -1e300],
            "orders_stddev": [0.25, 1.5],
            "list": pa.array([[1.5, 2.0], None]),
        }
    )
    layout = CsvLayout(keys=("k",), numbers=(ORDERS,))
    path, _ = written(tmp_path, table, layout, interval=True, delimiter=";", decimal=",")
    header, first, second = rows_of(path, ";")
    cells = dict(zip(header, first, strict=True))
    assert (cells["k"], cells["at"], cells["list"]) == ("a.b", "01:02:03.500000", "[1.5,2]")
    assert (cells["d"], cells["x"], cells["orders"], cells["orders_stddev"]) == ("1,25", "0,5", "2,5", "0,25")
    assert (cells["orders_from"], cells["orders_to"]) == ("2,01", "2,99")
    assert second[0] == '1.5;"'
    read = duckdb.sql(f"FROM read_csv('{path}', delim = ';', decimal_separator = ',')").fetchall()
    assert [row[header.index("orders")] for row in read] == table["orders"].to_pylist()
    rounded, _ = written(tmp_path, table, layout, rounded=True, wide=False, delimiter=";", decimal=",")
    assert dict(zip(*rows_of(rounded, ";")[:2], strict=True))["orders_stddev"] == "0,25"


def test_a_grid_has_decimal_commas_too(tmp_path: pathlib.Path) -> None:
    path, _ = written(tmp_path, grid_table(), wide=True, delimiter=";", decimal=",")
    header, *body = rows_of(path, ";")
    assert {cell for row in body for cell in row[1:] if cell} == {
        f"{place},3" for place in range(grid_table().num_rows)
    }
    point, _ = written(tmp_path, grid_table(), wide=True, delimiter=";")
    assert rows_of(point, ";")[0] == header, "headings are as they were"


def test_a_decimal_separator_that_is_the_delimiter_is_refused() -> None:
    for said in ({"decimal": ","}, {"decimal": ",", "delimiter": ","}):
        with pytest.raises(ValueError, match="decimal: must not be the delimiter") as error:
            OutputsModel.model_validate({"files": [{"csv": said}]})
        assert 'add delimiter: ";"' in str(error.value)
    OutputsModel.model_validate({"files": [{"csv": {"decimal": ",", "delimiter": ";"}}]})


def test_options_that_are_all_left_out_are_none() -> None:
    plain = OutputsModel.model_validate({"files": ["csv"]})
    for said in ({}, {"rounded": False}, {"delimiter": ","}):
        assert OutputsModel.model_validate({"files": [{"csv": said}]}) == plain
    assert plain.spreadsheet is None
    both = OutputsModel.model_validate({"files": ["jsonl", {"csv": {"bom": True}}]})
    assert both.formats == ("jsonl", "csv")
    assert both.spreadsheet == (1, SpreadsheetOptions(bom=True))
    assert both.model_dump(mode="json", exclude_defaults=True) == {"files": ["jsonl", {"csv": {"bom": True}}]}


@pytest.mark.parametrize("name", [name for name in everything().column_names if name != "list"])
def test_a_key_of_any_type_can_be_either_key_of_a_grid(tmp_path: pathlib.Path, name: str) -> None:
    keys = everything().column(name).unique()
    made = {"k": keys, "v": pa.array(range(len(keys))), "orders": pa.array([1.0] * len(keys))}
    table = pa.table({**made, "orders_stddev": pa.array([1.0] * len(keys))})
    for names in (("k", "v"), ("v", "k")):
        path, _ = written(tmp_path, table, CsvLayout(keys=names, numbers=(ORDERS,)), wide=True, rounded=True)
        header, *body = rows_of(path)
        assert len(set(header)) == len(header) == len(keys) + 1
        assert sorted(cell for row in body for cell in row[1:]) == [""] * (len(keys) ** 2 - len(keys)) + ["1"] * len(
            keys
        )
