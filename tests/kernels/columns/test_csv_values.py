"""Cells under declared formats: encodings, numbers, dates and times.

In: files that Python's csv module writes, and cells that a fuzzer spoils. Out: the values of our reader, compared with those of
Python. Holds: a cell has the value that it has alone.
"""

import csv
import datetime
import io
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import csv_lines, csv_times, csv_values
from dp_pipelines.kernels.columns.csv_format import CsvFormat

FORMS = [
    CsvFormat(delimiter=";"),
    CsvFormat(delimiter="\t", quote="'"),
    CsvFormat(delimiter="|", nulls=["", "NA"]),
    CsvFormat(encoding="latin-1", nulls=[]),
    CsvFormat(encoding="cp1252", delimiter=";", nulls=["é", "-"]),
    CsvFormat(names=["a", "b"], nulls=["NULL"]),
    CsvFormat(quote=None, delimiter="\t"),
]
TEXT = st.text("ab,;\t|'\" 1é€ß-NAUL", max_size=6) | st.sampled_from(["NA", "NULL", "é", "-", ""])


def written(rows: Sequence[tuple[str, str]], form: CsvFormat) -> bytes:
    """A file as Python's csv module writes it."""
    file = io.StringIO(newline="")
    writer = csv.writer(
        file,
        delimiter=form.delimiter,
        quotechar=form.quote,
        lineterminator="\n",
        quoting=csv.QUOTE_NONE if form.quote is None else csv.QUOTE_MINIMAL,
    )
    writer.writerows(rows if form.names else [("a", "b"), *rows])
    return file.getvalue().encode(form.codec)


@given(rows=st.lists(st.tuples(TEXT, TEXT), max_size=6), form=st.sampled_from(FORMS))
@settings(max_examples=150, derandomize=True, deadline=None)
def test_a_well_formed_file_has_the_cells_that_python_wrote(rows: list[tuple[str, str]], form: CsvFormat) -> None:
    if form.quote is None:
        rows = [(one.replace("\t", " "), other.replace("\t", " ")) for one, other in rows]
    if form.codec == "iso8859-1":
        rows = [(one.replace("€", ""), other.replace("€", "")) for one, other in rows]
    found = []
    for table in csv_lines.read(io.BytesIO(written(rows, form)), ["b", "a"], form):
        columns = [csv_values.values(table.column(name).chunk(0), name, pa.string(), form) for name in "ab"]
        found += list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert found == [tuple(None if cell in form.nulls else cell for cell in row) for row in rows]


FORMATS = [
    "%d.%m.%Y %H:%M",
    "%m/%d/%Y %I:%M:%S %p",
    "%Y%m%d%H%M%S",
    "%d %b %Y %H:%M:%S.%f",
    "%A, %B %d, %Y %H:%M",
    "%y-%m-%dT%H:%M%z",
    "%d/%m/%y %H%%%M",
]
moments = st.datetimes(datetime.datetime(1000, 1, 1), datetime.datetime(9999, 12, 31))


@given(
    moment=moments,
    form=st.sampled_from(FORMATS),
    at=st.integers(0, 25),
    put=st.sampled_from(["", "", "0", "9", "x", ":"]),
)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_a_time_is_read_as_strptime_reads_it(moment: datetime.datetime, form: str, at: int, put: str) -> None:
    cell = moment.replace(tzinfo=datetime.UTC).strftime(form)
    cell = cell[:at] + put + cell[at + len(put) :]
    try:
        expected = datetime.datetime.strptime(cell, form)
        if expected.tzinfo is not None:
            expected = expected.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        expected = None
    # Where only `%f` or letter case differ, both readers agree: cells are spoilt by digits, letters and colons alone.
    found = csv_values.values(pa.array([cell.encode()]), "t", pa.timestamp("us"), CsvFormat(timestamp_formats=[form]))
    assert found.to_pylist() == [expected]


SPOILT = [b"1.234,5", b"1,5", b"1.5", b"12.34.567", b"-1.234.567", b"7", b" 3 ", b"0x1F", b"", b"x", b"\xff", b"1e3"]
SPOILT += [b"05.01.2026", b"2026-01-05", b"31.02.2026", b"5 Jan 2026", b"1 234,25", b"nan", b"+2,", b",5", None]
GERMAN = CsvFormat(
    decimal=",",
    thousands=".",
    date_formats=["%d.%m.%Y", "iso8601"],
    timestamp_formats=["%d.%m.%Y"],
    formats={"own": ["%d %b %Y"]},
    encoding="cp1252",
)


@given(cells=st.lists(st.sampled_from(SPOILT), min_size=1, max_size=12), name=st.sampled_from(["shared", "own"]))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_a_cell_has_the_value_that_it_has_alone_under_every_format(cells: list[bytes | None], name: str) -> None:
    for kind in (pa.string(), pa.float64(), pa.int16(), pa.date32(), pa.timestamp("us")):
        together = csv_values.values(pa.array(cells, pa.binary()), name, kind, GERMAN).to_pylist()
        alone = [csv_values.values(pa.array([cell], pa.binary()), name, kind, GERMAN)[0].as_py() for cell in cells]
        assert repr(together) == repr(alone)


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        ("1.234,5", pa.float64(), 1234.5),
        ("1.5", pa.float64(), None),
        ("12.34", pa.float64(), None),
        (",5", pa.float64(), 0.5),
        ("-1.234.567", pa.int64(), -1234567),
        ("1.23", pa.int64(), None),
        ("1,0", pa.int64(), None),
        ("05.01.2026", pa.date32(), datetime.date(2026, 1, 5)),
        ("2026-01-05", pa.date32(), datetime.date(2026, 1, 5)),
        ("31.02.2026", pa.date32(), None),
        ("caf\xe9 \u20ac", pa.string(), "café €"),
    ],
)
def test_german_cells(cell: str, kind: pa.DataType, value: object) -> None:
    assert csv_values.values(pa.array([cell.encode("cp1252")]), "x", kind, GERMAN).to_pylist() == [value]


def test_each_byte_of_an_encoding_is_the_character_that_python_decodes() -> None:
    cells = pa.array([bytes([octet]) for octet in range(256)]).slice(1)
    for codec in ("cp1252", "iso8859-15", "cp866"):
        expected = [bytes([octet]).decode(codec, errors="ignore") or None for octet in range(1, 256)]
        assert csv_values.decoded(cells, codec).to_pylist() == expected


@pytest.mark.parametrize(
    ("said", "field", "words"),
    [
        ({"delimiter": ";;"}, "delimiter", r'write e.g. delimiter: ";", or "\t" for a tab'),
        ({"delimiter": "a"}, "delimiter", "no letter"),
        ({"delimiter": "\n"}, "delimiter", "no letter, digit or line end"),
        ({"quote": ","}, "quote", "is the delimiter too"),
        ({"decimal": "·"}, "decimal", "must be '.' or ','"),
        ({"thousands": "."}, "thousands", 'write decimal: "," beside'),
        ({"decimal": ",", "quote": None}, "decimal", "is the delimiter too"),
        (
            {"encoding": "utf-16"},
            "encoding",
            "one row's bytes could shift all that follow; convert the files, e.g. iconv",
        ),
        ({"encoding": "iso2022_jp"}, "encoding", "one row's bytes could shift"),
        ({"encoding": "shift_jis"}, "encoding", "one row's bytes could shift"),
        ({"encoding": "latin-0"}, "encoding", "or name UTF-8, latin-1, cp1252"),
        ({"nulls": ["€"], "encoding": "latin-1"}, "nulls", "which latin-1 cannot write"),
        ({"nulls": "NA"}, "nulls", "must be a list of texts"),
        ({"names": ["a", "b", "a"]}, "names", "names column 'a' twice"),
        ({"date_formats": ["%d.%m"]}, "date_format", "must have one of %Y or %y"),
        ({"timestamp_formats": ["%Y-%m-%d %Q"]}, "timestamp_format", "the unknown directive '%Q'; use %Y, %y"),
        ({"timestamp_formats": ["%Y-%m-%d %I:%M"]}, "timestamp_format", "must have %I and %p together"),
        ({"formats": {"t": "%Y %Y"}}, "formats.t", "'%Y' twice"),
        ({"formats": {"t": "%Y-%m-%d %"}}, "formats.t", "ends with a single %"),
    ],
)
def test_a_format_that_no_file_can_have_is_refused(said: dict, field: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        CsvFormat(**said)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_a_format_is_made_again_from_what_it_says_of_itself() -> None:
    for form in (*FORMS, GERMAN):
        assert CsvFormat(**form.to_json()) == form


def test_the_first_format_that_fits_counts() -> None:
    text = pa.array(["01/02/2026", "13/02/2026", "02/13/2026"])
    formats = ["%d/%m/%Y", "%m/%d/%Y"]
    assert csv_times.iso(text, formats, date=True).to_pylist() == ["2026-02-01", "2026-02-13", "2026-02-13"]
