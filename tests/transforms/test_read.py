"""CSV files that are not quite as they should be: a header without an end, quotation marks that nobody closes.

In: small files. Out: the rows that the reader gives.
"""

import datetime
import pathlib

import apache_beam as beam
import pyarrow as pa
import pytest

from dp_pipelines import DamagedInputError, RequestError
from dp_pipelines.steps import read_files
from dp_pipelines.transforms import CsvFormat, ReadCsv

TYPES = {"customer": pa.string(), "amount": pa.int64()}


def rows(path: pathlib.Path, content: str, *, quoted: bool = True) -> list[dict[str, object]]:
    """The rows of a file."""
    path.write_text(content, newline="")
    tables = list(read_files.ReadCsvFile(TYPES, CsvFormat(quote='"' if quoted else None)).process(str(path)))
    assert all(table.schema == pa.schema(TYPES) for table in tables)
    return pa.concat_tables(tables).to_pylist()


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
@pytest.mark.parametrize("quoted", [True, False])
def test_a_header_alone_is_a_table_without_rows(tmp_path: pathlib.Path, end: str, quoted: bool) -> None:
    assert rows(tmp_path / "a.csv", "customer,amount" + end, quoted=quoted) == []


@pytest.mark.parametrize("content", ["", "customer", "a,b\n1,2\n", "a" * (2**20 + 1)])
def test_what_is_no_header_with_the_columns_is_damage(tmp_path: pathlib.Path, content: str) -> None:
    with pytest.raises(DamagedInputError, match="is not a CSV file with the declared columns"):
        rows(tmp_path / "a.csv", content)


def test_without_quotation_each_line_is_a_row_whatever_stands_in_another(tmp_path: pathlib.Path) -> None:
    lines = [f"u{i},{i}" for i in range(100)]
    stray = 'u"50,50'
    broken = ['"' + lines[20], lines[30].replace("u", 'u"'), '"', '"",""']
    good = rows(tmp_path / "a.csv", "\n".join(["customer,amount", *lines, stray]), quoted=False)
    assert good[-1] == {"customer": 'u"50', "amount": 50}
    assert rows(tmp_path / "b.csv", "\n".join(["customer,amount", *broken, *lines, stray]), quoted=False)[-101:] == good


def test_with_quotation_a_mark_that_nobody_closes_takes_in_its_own_line_alone(tmp_path: pathlib.Path) -> None:
    lines = [f'"u, {i}",{i}' for i in range(100)]
    broken = ['"' + "u,1", '"', 'u,"3', "u,5,6", "u"]
    good = rows(tmp_path / "a.csv", "\n".join(["customer,amount", *lines]))
    assert good[7] == {"customer": "u, 7", "amount": 7}
    for at in (0, 50, 100):
        assert rows(tmp_path / "b.csv", "\n".join(["customer,amount", *lines[:at], *broken, *lines[at:]])) == good


def test_a_line_that_is_neither_text_nor_a_row_decides_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"customer,amount\neve,caf\xe9, tea\nanna,1\n\xff,2\n")
    (_, table) = read_files.ReadCsvFile(TYPES).process(str(path))
    assert table.to_pylist() == [{"customer": "anna", "amount": 1}, {"customer": None, "amount": 2}]


def test_the_option_reaches_the_reader(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('customer,amount\n"a,1\nb,2\n')
    with beam.Pipeline("FnApiRunner") as pipeline:
        counted = (
            pipeline
            | ReadCsv(str(path), TYPES, quoted=False)
            | beam.Map(lambda table: table.num_rows)
            | beam.CombineGlobally(sum)
            | beam.Map(lambda total: _same(total, 2))
        )
    assert counted is not None
    with pytest.raises(RequestError, match="quoted: must be true or false"):
        ReadCsv(str(path), TYPES, quoted="no")  # type: ignore[arg-type]


def _same(found: int, expected: int) -> None:
    assert found == expected


def test_a_file_of_another_format_is_read_as_it_is_declared(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("anna;1.234,5;05.01.2026 10:11\nJos\xe9;-;2026-01-05T10:11:00+01:00\nbert;1\n".encode("latin-1"))
    types = {"at": pa.timestamp("us"), "customer": pa.string(), "paid": pa.float64()}
    form = CsvFormat(
        delimiter=";",
        decimal=",",
        thousands=".",
        nulls=["-"],
        names=["customer", "paid", "at"],
        encoding="latin-1",
        timestamp_formats=["%d.%m.%Y %H:%M", "iso8601"],
    )
    found = pa.concat_tables(read_files.ReadCsvFile(types, form).process(str(path))).to_pylist()
    assert found == [
        {"at": datetime.datetime(2026, 1, 5, 10, 11), "customer": "anna", "paid": 1234.5},
        {"at": datetime.datetime(2026, 1, 5, 9, 11), "customer": "José", "paid": None},
    ]


def test_a_format_that_is_none_is_refused() -> None:
    with pytest.raises(RequestError, match="format: must be a CsvFormat"):
        ReadCsv("a.csv", TYPES, format="excel")  # type: ignore[arg-type]
