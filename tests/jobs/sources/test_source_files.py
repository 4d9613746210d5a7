"""The files of a job, checked by footers and headers alone."""

import datetime
import pathlib

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import public_tables, source_files
from dp_pipelines.kernels.columns.csv_format import CsvFormat


def write(folder: pathlib.Path, name: str, **columns: pa.Array) -> str:
    """A Parquet file."""
    pa.parquet.write_table(pa.table(columns), folder / name)
    return str(folder / name)


def test_files_are_found_in_order_and_relative_to_the_job_file(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "a[1]"
    folder.mkdir()
    for name in ("b.parquet", "a.parquet", "c.csv"):
        (folder / name).write_bytes(b"")
    found = source_files.find("*.parquet", folder)
    assert [pathlib.Path(path).name for path in found] == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("*.parquet", "matches no file"), ("gs://b/*", "no file system here supports"), ("*", "not a file")],
)
def test_a_pattern_that_names_no_files_is_refused(tmp_path: pathlib.Path, pattern: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(RequestError, match=words):
        source_files.find(pattern, tmp_path)


def test_gzipped_files_are_refused_once_by_name(tmp_path: pathlib.Path) -> None:
    for name in ("a.csv.gz", "b.CSV.GZ", "c.csv"):
        (tmp_path / name).write_bytes(b"")
    words = (
        r"a.csv.gz' and 1 more: is compressed; only CSV and JSON lines of a source are read .*; unpack it with gunzip"
    )
    with pytest.raises(RequestError, match=words) as caught:
        source_files.find("*", tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_encodings_of_one_type_are_one_type(tmp_path: pathlib.Path) -> None:
    words = pa.array(["x", "y"])
    files = [
        write(tmp_path, "a", k=words),
        write(tmp_path, "b", k=words.dictionary_encode()),
        write(tmp_path, "c", k=words.cast(pa.large_string())),
    ]
    source = source_files.look_at_parquet(files)
    assert source.schema == pa.schema([("k", pa.string())])
    assert not source.missing


def test_a_mixed_schema_is_an_error_of_the_column_that_is_mixed(tmp_path: pathlib.Path) -> None:
    one = write(tmp_path, "a.parquet", k=pa.array([1], pa.int64()), same=pa.array([1]), only=pa.array([1]))
    two = write(tmp_path, "b.parquet", k=pa.array([1], pa.int32()), same=pa.array([1]), other=pa.array([1]))
    source = source_files.look_at_parquet([one, two])
    assert source.schema.names == ["same"]
    assert str(source.missing["k"]) == (
        f"file {two!r}: has column 'k' as int32, but 'a.parquet' has it as int64; give the column one type in all files"
    )
    assert "has no column 'only'" in str(source.missing["only"])
    assert source.missing["only"].field == f"file {two!r}"
    assert source.missing["other"].field == f"file {one!r}"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_what_is_no_parquet_file_is_refused_by_name(tmp_path: pathlib.Path, content: bytes) -> None:
    good = write(tmp_path, "a.parquet", k=pa.array([1]))
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(RequestError, match=r"b\.parquet.*footer"):
        source_files.look_at_parquet([good, str(tmp_path / "b.parquet")])


def test_a_truncated_parquet_file_is_refused_wherever_it_is_cut(tmp_path: pathlib.Path) -> None:
    whole = pathlib.Path(write(tmp_path, "a.parquet", k=pa.array(range(1000)))).read_bytes()
    cut = tmp_path / "cut.parquet"
    for length in (0, 4, 100, len(whole) // 2, len(whole) - 8, len(whole) - 1):
        cut.write_bytes(whole[:length])
        with pytest.raises(RequestError, match=r"cut\.parquet"):
            source_files.look_at_parquet([str(cut)])


def test_all_broken_files_are_named_at_once(tmp_path: pathlib.Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(RequestError) as caught:
        source_files.look_at_parquet([str(tmp_path / "a"), str(tmp_path / "b")])
    assert len(str(caught.value).splitlines()) == 2


def test_a_column_that_stands_twice_is_an_error_when_it_is_used(tmp_path: pathlib.Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["k", "k"])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    source = source_files.look_at_parquet([str(tmp_path / "a.parquet")])
    assert "twice" in str(source.missing["k"])


def test_sizes_are_those_of_the_columns(tmp_path: pathlib.Path) -> None:
    source = source_files.look_at_parquet(
        [write(tmp_path, "a", k=pa.array(range(10_000)), small=pa.array([1] * 10_000))]
    )
    assert source.bytes_of(["k"]) > 20_000 > source.bytes_of(["small"])
    assert source.bytes_of(["none"]) == 0


def test_csv_has_the_declared_types(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeff"customer id",amount,day\n1,2,2026-01-05\n'.encode())
    source = source_files.look_at_csv([str(path)], {"customer id": "string", "day": "date"})
    assert source.schema == pa.schema([("customer id", pa.string()), ("day", pa.date32())])


@pytest.mark.parametrize(
    ("header", "types", "words"),
    [
        ("a,b\n", {"c": "string"}, "has no column 'c'"),
        ("amount\n", {"amout": "int64"}, "has no column 'amout'; check the header line and the names in types:"),
        (
            "x, Amount\n",
            {"amount": "int64"},
            "has no column 'amount'; the file has it with different capitals, or with spaces",
        ),
        (
            "amount\r1\r",
            {"amount": "int64"},
            "no readable header line; write CSV with column names, in UTF-8, each",
        ),
        ("a\n", {"a": "strng"}, "did you mean 'string'?"),
        ("a,a\n", {"a": "int64"}, "twice"),
        ("", {"a": "int64"}, "no readable header line"),
        ("a,b", {"c": "string"}, "has no column 'c'; check the header line and the names in types:"),
    ],
)
def test_a_csv_file_without_the_declared_columns_is_refused(
    tmp_path: pathlib.Path, header: str, types: dict[str, str], words: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(header)
    with pytest.raises(RequestError) as caught:
        source_files.look_at_csv([str(path)], types)
    assert words in str(caught.value)


@pytest.mark.parametrize(("separator", "words"), [(";", "';'"), ("\t", "a tab"), ("|", r"'\|'")])
def test_a_header_of_one_cell_says_which_separator_it_seems_to_have_in_one_line(
    tmp_path: pathlib.Path, separator: str, words: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(separator.join(["id", '"day"', "amount"]) + "\n")
    with pytest.raises(RequestError, match=f"a header of one column; its separator seems to be {words}; ") as caught:
        source_files.look_at_csv([str(path)], {"day": "date", "amount": "double", "id": "int"})
    assert len(str(caught.value).splitlines()) == 1


def test_a_row_of_one_cell_where_the_header_should_be_says_nothing_of_its_separators(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    said = set()
    for first in ("7;2026-01-05;3", "7"):
        path.write_text(f"{first}\n")
        with pytest.raises(RequestError) as caught:
            source_files.look_at_csv([str(path)], {"id": "int"})
        said.add(str(caught.value))
    assert len(said) == 1


def test_a_row_where_the_header_should_be_is_not_quoted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    # Cells that are alike, as a did-you-mean would find them.
    path.write_text("customer7,mount\nbert,18\n")
    with pytest.raises(RequestError) as caught:
        source_files.look_at_csv([str(path)], {"customer": "string", "amount": "int64"})
    assert "customer7" not in str(caught.value)
    assert "'mount'" not in str(caught.value)
    for name, line in zip(("customer", "amount"), str(caught.value).splitlines(), strict=True):
        assert line == (f"file {str(path)!r}: has no column {name!r}; check the header line and the names in types:")


def test_a_header_line_without_an_end_is_a_header(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("customer,amount")
    assert source_files.look_at_csv([str(path)], {"amount": "int64"}).schema.names == ["amount"]


def test_in_a_header_without_quotation_marks_they_are_part_of_names(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"a,b\n')
    assert source_files.look_at_csv([str(path)], {"b": "string"}, CsvFormat(quote=None)).schema.names == ["b"]
    with pytest.raises(RequestError, match="has no readable header line"):
        source_files.look_at_csv([str(path)], {"b": "string"})


def test_a_file_whose_name_is_not_utf_8_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a\udcff.parquet").write_bytes(b"x")
    with pytest.raises(RequestError, match="has a name that is not UTF-8"):
        source_files.find("*.parquet", tmp_path)


def public(folder: pathlib.Path, content: bytes) -> pa.Table:
    (folder / "public.csv").write_bytes(content)
    return public_tables.read_public([str(folder / "public.csv")], csv_types={"a": "int8"}, is_csv=True, field="lookup")


def test_a_public_table_of_csv_has_one_row_a_line_or_is_refused_by_the_line(tmp_path: pathlib.Path) -> None:
    assert public(tmp_path, b'\xef\xbb\xbfa,b\r\n1,"x, y"\r\n\r\n2,z').to_pylist() == [
        {"a": 1, "b": "x, y"},
        {"a": 2, "b": "z"},
    ]
    for content, number in ((b'a,b\n1,2\n1,"x\ny"\n', 3), (b"a,b\n1\n", 2), (b'"a\n', 1), (b"a,b\n1,\r2\n", 2)):
        with pytest.raises(
            RequestError, match=f"lookup: has a line {number} in .* that does not fit the columns of the header"
        ):
            public(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "form", "words"),
    [
        (b"a,b\n1,x\n999,y\n", CsvFormat(), "a cell in column 'a' that is no int8, in line 3 of"),
        (b"a;b\n\n1;x\n1,5;y\n", CsvFormat(delimiter=";"), "is no int8, in line 4 of"),
        (b"a;b\n1;x\n", CsvFormat(), "its separator seems to be ';'; declare it as delimiter:"),
        (b"a,b\n1,x\n2,caf\xe9\n", CsvFormat(), "has a line 3 in .* that is not utf-8; declare encoding:"),
        (b"c,b\n1,x\n", CsvFormat(), "types.a: is no column of"),
        (b"1,x\n-,y\nz,w\n", CsvFormat(names=["a", "b"], nulls=["-"]), "is no int8, in line 3 of"),
    ],
)
def test_a_public_table_with_a_bad_cell_is_refused_by_the_line(
    tmp_path: pathlib.Path, content: bytes, form: CsvFormat, words: str
) -> None:
    (tmp_path / "public.csv").write_bytes(content)
    files = [str(tmp_path / "public.csv")]
    with pytest.raises(RequestError, match=words):
        public_tables.read_public(files, csv_types={"a": "int8"}, is_csv=True, field="lookup", form=form)


def test_a_public_table_has_the_declared_format(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "public.csv"
    path.write_bytes("1;caf\xe9;1,5;05.01.2026\n-;NA;2,5;-\n".encode("latin-1"))
    form = CsvFormat(
        names=["a", "b", "c", "d"],
        delimiter=";",
        decimal=",",
        nulls=["-"],
        encoding="latin-1",
        date_formats=["%d.%m.%Y"],
    )
    types = {"a": "int8", "d": "date"}
    found = public_tables.read_public([str(path)], csv_types=types, is_csv=True, field="lookup", form=form)
    assert found.to_pylist() == [
        {"a": 1, "b": "café", "c": 1.5, "d": datetime.date(2026, 1, 5)},
        {"a": None, "b": "NA", "c": 2.5, "d": None},
    ]


def test_rows_are_counted_by_footers_and_estimated_for_csv(tmp_path: pathlib.Path) -> None:
    paths = [write(tmp_path, name, x=pa.array(range(rows))) for name, rows in (("a.parquet", 30), ("b.parquet", 0))]
    assert source_files.look_at_parquet(paths).rows == 30
    text = tmp_path / "a.csv"
    text.write_text("customer,amount\n" + "".join(f"{n:06},{n % 7}.25\n" for n in range(200_000)))
    found = source_files.look_at_csv([str(text)], {"customer": "int", "amount": "float"})
    assert found.rows == pytest.approx(200_000, rel=0.1)
