"""Text copies of published tables: whoever reads them back has the Parquet table, null for null and digit for digit.

In: tables of every type that a text can say, with hostile values. Out: what DuckDB, pyarrow and Python's json read. Not covered:
whole runs (`tests/jobs/run/test_outputs.py`).
"""

import csv
import datetime
import decimal
import json
import math
import pathlib
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.jobs.outputs import text_tables
from dp_pipelines.jobs.outputs.text_tables import FORMATS, CsvText, JsonLinesText, csv_cells_of, json_lines_of

TEXTS = [
    "",
    None,
    "a",
    ' "',
    '""',
    "a,b;c\td",
    "line\nbreak",
    "\r\n",
    "=1+1",
    "é\u2028\U0001f600",
    "null",
    "NaN",
    "\\",
    "\x01",
]
LARGE = [2**63 - 1, -(2**63), 2**53 + 1, None, 0]
DOUBLES = [0.1, -0.0, 1e300, 5e-324, 123456789.123456789, None, 1e22, 3.0, 2.0**-30]


def column(values: list[Any], kind: pa.DataType, rows: int = len(TEXTS)) -> pa.Array:
    """Values of a type, repeated to one length."""
    return pa.array([values[place % len(values)] for place in range(rows)], kind)


def everything() -> pa.Table:
    """A table with a column of every type."""
    day, at = datetime.date(2026, 1, 5), datetime.datetime(2026, 1, 5, 10, 11, 12, 345678)
    return pa.table(
        {
            "k": column(TEXTS, pa.string()),
            "flag": column([True, None, False], pa.bool_()),
            "large": column(LARGE, pa.int64()),
            "unsigned": column([2**64 - 1, None, 1], pa.uint64()),
            "small": column([-128, None, 127], pa.int8()),
            "number": column(DOUBLES, pa.float64()),
            "single": column([0.1, None, 3.5e38], pa.float32()),
            "money": column([decimal.Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
            "day": column([day, None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], pa.date32()),
            "at": column([at, None], pa.timestamp("us")),
            "instant": column([at, None], pa.timestamp("us", "Europe/Berlin")),
            "seconds": column([at.replace(microsecond=0), None], pa.timestamp("s")),
            "clock": column([datetime.time(23, 59, 59, 7), None], pa.time64("us")),
            "list": column([[0.1, None, 1e300], [], None, [2.0]], pa.list_(pa.float64())),
            "none": pa.nulls(len(TEXTS)),
        }
    )


def written(folder: pathlib.Path, table: pa.Table, form: str) -> pathlib.Path:
    """A copy of a table that was published."""
    pa.parquet.write_table(table, folder / "t.parquet")
    FORMATS[form].write(folder / "t.parquet", folder / f"t.{form}")
    return folder / f"t.{form}"


DUCKDB = {
    "k": "VARCHAR", "flag": "BOOLEAN", "large": "BIGINT", "unsigned": "UBIGINT", "small": "TINYINT", "number": "DOUBLE",
    "single": "FLOAT", "money": "DECIMAL(38,2)", "day": "DATE", "at": "TIMESTAMP", "instant": "TIMESTAMPTZ",
    "seconds": "TIMESTAMP_S", "clock": "TIME", "list": "DOUBLE[]", "none": "VARCHAR",
}  # fmt: skip


def in_duckdb(query: str, **given_: Any) -> list[tuple[Any, ...]]:
    """Rows of a query, in UTC."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, held in given_.items():
        connection.register(name, held)
    return connection.execute(query).fetchall()


def expected() -> list[tuple[Any, ...]]:
    """The table as DuckDB has it, with the types of `DUCKDB`."""
    table = everything()
    said = ", ".join(f'"{name}"::{kind}' for name, kind in DUCKDB.items())
    return in_duckdb(f"SELECT {said} FROM rows", rows=table)


def test_duckdb_reads_the_parquet_table_back_from_csv(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, everything(), "csv")
    types = json.dumps(DUCKDB).replace('"', "'")
    read = f"read_csv('{path}', columns = {types}, header = true, allow_quoted_nulls = false, new_line = '\\n')"
    assert in_duckdb(f"SELECT * FROM {read}") == expected()


def test_duckdb_reads_the_parquet_table_back_from_json_lines(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, everything(), "jsonl")
    types = json.dumps(DUCKDB).replace('"', "'")
    read = f"read_json('{path}', columns = {types}, format = 'newline_delimited')"
    assert in_duckdb(f"SELECT * FROM {read}") == expected()


def test_pyarrow_reads_the_parquet_table_back_from_csv(tmp_path: pathlib.Path) -> None:
    table = everything().drop_columns(["list", "instant", "seconds"])
    options = pa.csv.ConvertOptions(
        column_types=table.schema, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
    )
    parsing = pa.csv.ParseOptions(newlines_in_values=True)
    read = pa.csv.read_csv(written(tmp_path, table, "csv"), convert_options=options, parse_options=parsing)
    assert read.to_pylist() == table.to_pylist()


def test_python_reads_every_line_of_json_lines_back(tmp_path: pathlib.Path) -> None:
    table = everything()
    lines = written(tmp_path, table, "jsonl").read_bytes().split(b"\n")
    assert lines.pop() == b""
    read = [json.loads(line) for line in lines]
    plain = ["k", "flag", "large", "unsigned", "small", "number", "list", "none"]
    assert [{name: row[name] for name in plain} for row in read] == table.select(plain).to_pylist()
    assert {tuple(row) for row in read} == {tuple(table.column_names)}
    row = read[0]
    assert (row["day"], row["at"]) == ("2026-01-05", "2026-01-05T10:11:12.345678")
    assert (row["money"], row["clock"]) == ("12345678901234567890.12", "23:59:59.000007")
    assert row["instant"] == "2026-01-05T10:11:12.345678Z"


def test_what_is_no_number_of_json_is_a_text() -> None:
    table = pa.table({"n": [math.nan, math.inf, -math.inf, 1.0, None]})
    lines = json_lines_of(table).to_pylist()
    assert lines == ['{"n":"NaN"}', '{"n":"Infinity"}', '{"n":"-Infinity"}', '{"n":1}', '{"n":null}']
    inside = json_lines_of(pa.table({"v": pa.array([[math.nan, 1.0]], pa.list_(pa.float64()))}))
    assert inside.to_pylist() == ['{"v":["NaN",1]}']


def test_a_zero_below_zero_keeps_its_sign_in_python() -> None:
    table = pa.table({"n": [-0.0, 0.0], "v": pa.array([[-0.0], [1.0]], pa.list_(pa.float64()))})
    read = [json.loads(line) for line in json_lines_of(table).to_pylist()]
    assert [math.copysign(1, row["n"]) for row in read] == [-1, 1]
    assert math.copysign(1, read[0]["v"][0]) == -1


def test_csv_tells_a_null_from_an_empty_text(tmp_path: pathlib.Path) -> None:
    table = pa.table({"k": ["", None, "a"], "n": [1.5, None, 2.0]})
    assert written(tmp_path, table, "csv").read_text() == '"k","n"\n"",1.5\n,\n"a",2\n'


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_without_rows_has_its_columns_in_csv_and_no_line_in_json_lines(
    tmp_path: pathlib.Path, form: str
) -> None:
    text = written(tmp_path, everything().slice(0, 0), form).read_text()
    assert text.splitlines() == ([",".join(f'"{name}"' for name in DUCKDB)] if form == "csv" else [])


@pytest.mark.parametrize("form", FORMATS)
def test_how_many_rows_are_written_at_a_time_changes_no_byte(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    whole = written(tmp_path, everything(), form).read_bytes()
    monkeypatch.setattr(text_tables, "ROWS", 3)
    assert written(tmp_path, everything(), form).read_bytes() == whole


@given(
    st.lists(st.tuples(st.text() | st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False) | st.none()))
)
def test_any_text_and_any_number_can_be_read_back(rows: list[tuple[str | None, int, float | None]]) -> None:
    made = {"k": [row[0] for row in rows], "i": [row[1] for row in rows], "f": [row[2] for row in rows]}
    kinds = {"k": pa.string(), "i": pa.int64(), "f": pa.float64()}
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in made.items()})
    said = {"Infinity": math.inf, "-Infinity": -math.inf}
    read = [json.loads(line) for line in json_lines_of(table).to_pylist()]
    assert [
        (row["k"], row["i"], said.get(row["f"], row["f"]) if isinstance(row["f"], str) else row["f"]) for row in read
    ] == rows
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(csv_cells_of(table), sink)
    [_, *cells] = csv.reader(sink.getvalue().to_pybytes().decode().splitlines(keepends=True))
    # This reader knows no null; and a line of its own may end in more ways than one.
    if all(text is None or not set(text) & set("\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029") for text, _, _ in rows):
        floats = [float(cell[2]) if cell[2] else None for cell in cells]
        assert [(cell[0], int(cell[1]), number) for cell, number in zip(cells, floats, strict=True)] == [
            (text or "", whole, number) for text, whole, number in rows
        ]


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.binary(), "hex(k)"),
        (pa.binary(3), "hex(k)"),
        (pa.duration("s"), "VARCHAR"),
        (pa.list_(pa.binary()), "VARCHAR"),
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_a_type_that_text_cannot_say_is_refused(form: str, kind: pa.DataType, hint: str) -> None:
    (refused,) = FORMATS[form].refused(pa.schema([("k", kind), ("n", pa.float64())]))
    assert refused[0] == "k"
    assert f"is {kind}, which " in refused[1]
    assert hint in refused[2]


def test_csv_refuses_a_table_of_one_column() -> None:
    alone = pa.schema([("k", pa.string())])
    assert [column for column, _, _ in CsvText().refused(alone)] == ["k"]
    assert not list(JsonLinesText().refused(alone))


def test_every_type_that_is_not_refused_can_be_written(tmp_path: pathlib.Path) -> None:
    assert not [refused for form in FORMATS.values() for refused in form.refused(everything().schema)]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "kind",
    [
        pa.date32(),
        pa.date64(),
        *(pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "Europe/Berlin")),
    ],
    ids=str,
)
def test_every_year_is_said(tmp_path: pathlib.Path, kind: pa.DataType, form: str) -> None:
    """Also those that pyarrow cannot say, such as DuckDB's infinity, the largest date, and numpy, the first moment."""
    most = 2**31 - 1 if pa.types.is_date(kind) else 2**63 - 1
    day = 86_400_000 if kind == pa.date64() else 1
    numbers = [most, None, -most, 0, 20_000, *([] if pa.types.is_date(kind) else [-(2**63), 1 - 2**62])]
    counted = [None if number is None else number * day for number in numbers]
    whole = pa.array(counted, pa.int32() if kind == pa.date32() else pa.int64())
    path = written(tmp_path, pa.table({"k": whole.cast(kind), "n": [1.0] * len(numbers)}), form)
    said = [row["k"] for row in map(json.loads, path.read_text().splitlines())] if form == "jsonl" else None
    if said is None:
        with path.open(newline="") as file:
            said = [row["k"] or None for row in csv.DictReader(file)]
    unit = "D" if pa.types.is_date(kind) else kind.unit
    back = [
        None if text is None else int(np.datetime64(text.removesuffix("Z"), unit).astype(np.int64)) for text in said
    ]
    assert back == numbers
