"""Lines of CSV: each is a row or none by what stands in it alone, whatever stands in others.

In: bytes that a fuzzer writes. Out: the rows of the reader, compared with those of a reader of ten lines that goes byte by byte.
"""

import csv
import datetime
import io
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dp_pipelines.jobs.sources.source_files import TYPES
from dp_pipelines.kernels.columns import csv_cells, csv_lines
from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat
from dp_pipelines.kernels.layout import Layout
from tests.helpers.work import calls_of

HEADER = b"customer,shop,amount\n"
PIECES = [
    b",",
    b'"',
    b'""',
    b'","',
    b"\r",
    b"\n",
    b"\r\n",
    b"a",
    b"12",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\0",
    b" ",
    b"NA",
    b"\xc3\xa9",
]

line_bytes = st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=12).map(b"".join)
good_lines = st.sampled_from([b"a,b,1", b'"x, y",b,2', b"c,,3\r", b'd,"say ""so""",4', b'e,5" disk,5'])
contents = st.lists(good_lines | line_bytes, max_size=8).map(b"\n".join)


class Drops(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, content: bytes, size: int) -> None:
        self._file, self._size = io.BytesIO(content), size

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(size, self._size))


def read(
    content: bytes, form: CsvFormat = DEFAULT, block: int = csv_lines.BLOCK, names: str = "customer shop amount"
) -> list:
    """Rows of a file, in their order."""
    tables = list(csv_lines.read(io.BytesIO(content), names.split(), form, block=block))
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def by_hand(content: bytes, form: CsvFormat = DEFAULT, longest: int = csv_lines.LONGEST_LINE) -> list:
    """The same, byte by byte."""
    listed = []
    mark, between = form.quote and form.quote.encode(), form.delimiter.encode()
    nulls = {text.encode(form.codec) for text in form.nulls}
    for whole in content.split(b"\n")[form.names is None :]:
        line = whole.rstrip(b"\r")
        cells, at, is_row = [], 0, bool(line) and len(whole) <= longest
        while is_row and at <= len(line):
            cell = bytearray()
            if mark and line[at : at + 1] == mark:
                at += 1
                while line[at : at + 1] != mark or line[at + 1 : at + 2] == mark:
                    at += line[at : at + 1] == mark
                    cell += line[at : at + 1]
                    at += 1
                    if at >= len(line):
                        is_row = False
                        break
                at += 1
            while at < len(line) and line[at : at + 1] != between:
                is_row = is_row and line[at] != 13
                cell += line[at : at + 1]
                at += 1
            cells.append(None if bytes(cell) in nulls else bytes(cell))
            at += 1
        if is_row and len(cells) == 3:
            listed.append(tuple(cells))
    return listed


FORMS = [
    DEFAULT,
    CsvFormat(quote=None),
    CsvFormat(delimiter=";", nulls=["12", "-"]),
    CsvFormat(delimiter="\t", quote="'", encoding="latin-1"),
    CsvFormat(delimiter="|", names=["customer", "shop", "amount"], nulls=[]),
    CsvFormat(delimiter=" ", quote=None, encoding="cp1252", nulls=["\u00e9", ""]),
]


def as_written(content: bytes, form: CsvFormat) -> bytes:
    """A file with commas and quotation marks as one of another format: the characters change places."""
    swapped = bytearray(range(256))
    for one, other in ((",", form.delimiter), ('"', form.quote or '"')):
        swapped[ord(one)], swapped[ord(other)] = ord(other), ord(one)
    return content.translate(bytes(swapped))


def check_each_line_alone(content: bytes, form: CsvFormat, block: int, long: int) -> None:
    """Compare both readers; small limits, so that short lines reach them."""
    longest = 40 if long == 4 else csv_lines.LONGEST_LINE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_lines, "LONG", long)
        patch.setattr(csv_lines, "LONGEST_LINE", longest)
        # Some bytes are read before the first block, for the header.
        patch.setattr(csv_lines, "LONGEST_HEADER", 24)
        whole = as_written(HEADER + content, form)
        assert read(whole, form, block) == by_hand(whole, form, longest)


blocks, longs = st.sampled_from([1, 7, 64, 2**23]), st.sampled_from([4, 2**20])


# An open quotation behind as many cells as a row has; a return inside of a cell without quotation.
@example(content=b'a,b,1,"x\nc,d,2', form=DEFAULT, block=2**23, long=2**20)
@example(content=b"f\rg,h,6\nc,d,2", form=FORMS[1], block=2**23, long=2**20)
@given(content=contents, form=st.sampled_from(FORMS), block=blocks, long=longs)
@settings(max_examples=200, derandomize=True)
def test_each_line_is_read_as_if_it_were_alone(content: bytes, form: CsvFormat, block: int, long: int) -> None:
    check_each_line_alone(content, form, block, long)


@pytest.mark.slow
@pytest.mark.long
# An open quotation behind as many cells as a row has; a return inside of a cell without quotation.
@example(content=b'a,b,1,"x\nc,d,2', form=DEFAULT, block=2**23, long=2**20)
@example(content=b"f\rg,h,6\nc,d,2", form=FORMS[1], block=2**23, long=2**20)
@given(content=contents, form=st.sampled_from(FORMS), block=blocks, long=longs)
@settings(max_examples=20_000, derandomize=True)
def test_many_lines_are_read_as_if_each_were_alone(content: bytes, form: CsvFormat, block: int, long: int) -> None:
    check_each_line_alone(content, form, block, long)


@given(line=line_bytes.filter(lambda line: b"\n" not in line and b"\r" not in line and line), quoted=st.booleans())
@settings(max_examples=150, derandomize=True)
def test_a_line_without_returns_has_the_cells_that_arrow_finds_in_it(line: bytes, quoted: bool) -> None:
    try:
        alone = pa.csv.read_csv(
            io.BytesIO(b"\n" + line + b"\n"),
            read_options=pa.csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
            parse_options=pa.csv.ParseOptions(quote_char='"' if quoted else False),
        ).num_columns
    except pa.ArrowInvalid:
        alone = 0
    assert csv_lines._cells_of(line, CsvFormat(quote='"' if quoted else None)) == alone


@given(
    others=st.lists(good_lines, max_size=6),
    mine=line_bytes,
    at=st.integers(0, 6),
    block=st.sampled_from([3, 30, 2**23]),
)
@settings(max_examples=150, derandomize=True)
def test_bytes_of_one_unit_leave_the_wire_form_of_all_other_lines(
    others: list[bytes], mine: bytes, at: int, block: int
) -> None:
    layout = Layout(
        units=("customer",),
        partitions=("shop",),
        values=(),
        row_id="amount",
        max_partitions=4,
        max_rows_per_partition=4,
    )
    kinds = {"customer": pa.string(), "shop": pa.string(), "amount": pa.int64()}

    def wire(lines: list[bytes]) -> Counter[str]:
        counted: Counter[str] = Counter()
        file = io.BytesIO(HEADER + b"\n".join(lines) + b"\n")
        for table in csv_lines.read(file, list(kinds), block=block):
            cells = {name: csv_cells.cells_as(table.column(name).chunk(0), kind) for name, kind in kinds.items()}
            counted.update(map(repr, layout.wire(pa.table(cells)).to_pylist()))
        return counted

    without, with_mine = wire(others), wire([*others[:at], mine, *others[at:]])
    assert not without - with_mine
    assert (with_mine - without).total() <= mine.count(b"\n") + 1


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_a_plain_file_is_read_as_arrow_reads_it(end: bytes, last: bool) -> None:
    lines = [f"c{i},{i % 7},{i / 4}".encode() for i in range(999)] + [
        b'"a, b","say ""so""",1',
        b"NA,,null",
        b"",
        b'"",b,c',
    ]
    content = b"\xef\xbb\xbf" + end.join([HEADER.strip(), *lines]) + (end if last else b"")
    kinds = dict.fromkeys(["customer", "shop", "amount"], pa.binary())
    convert = pa.csv.ConvertOptions(column_types=kinds, strings_can_be_null=True)
    expected = pa.csv.read_csv(io.BytesIO(content), convert_options=convert).to_pylist()
    assert read(content, block=100) == [tuple(row.values()) for row in expected]


def test_a_row_that_begins_with_the_mark_of_a_byte_order_keeps_it_wherever_blocks_begin() -> None:
    content = HEADER + b"\xef\xbb\xbfa,b,1\n" * 20
    for block in (1, 10, 12, 24, 2**23):
        assert read(content, block=block) == [(b"\xef\xbb\xbfa", b"b", b"1")] * 20


def test_a_stream_may_give_less_than_it_is_asked_for() -> None:
    content = HEADER + b"a,b,1\n" * 50
    for size in (1, 5, 1000):
        tables = csv_lines.read(Drops(content, size), ["amount"], block=64)  # type: ignore[arg-type]
        assert sum(table.num_rows for table in tables) == 50


@pytest.mark.parametrize("size", [2**24, 2**24 + 1, 2**20 + 1])
def test_a_line_is_a_row_up_to_sixteen_mebibytes_wherever_it_stands(size: int) -> None:
    long = b"x" * (size - 4) + b",b,1"
    for block in (2**23, 2**25):
        rows = read(HEADER + b"a,b,1\n" + long + b"\na,b,2\n", block=block, names="amount")
        assert rows == [(b"1",), *[(b"1",)] * (size <= 2**24), (b"2",)]


def endless(size: int) -> Iterator[bytes]:
    """Lines of others around one that goes on and on."""
    yield HEADER + b"a,b,1\n"
    for _ in range(size >> 20):
        yield b',"' * 2**19
    yield b"\na,b,2\n"


class Pieces(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, size: int = -1) -> bytes:
        return next(self._pieces, b"")


def test_a_line_without_an_end_takes_bounded_memory() -> None:
    tracemalloc.start()
    try:
        rows = [t.to_pylist() for t in csv_lines.read(Pieces(endless(2**27)), ["amount"])]  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == [[{"amount": b"1"}], [{"amount": b"2"}]]
    assert peak < 100 * 2**20


@pytest.mark.parametrize(
    "junk", [b"\n", b",\n", b'"\n', b'"a\n', b'a",""b"\n', b"\r,\r\n", b'"""\n', b'x"\r"\n', b"\xff,\n"]
)
def test_lines_that_are_no_rows_take_a_few_calls_each(junk: bytes) -> None:
    lines = HEADER + b"a,b,1\n" + junk * 20_000 + b"a,b,2\n"
    assert read(lines, names="amount") == [(b"1",), (b"2",)]
    assert calls_of(lambda: read(lines, names="amount")) < 20 * 20_000


@pytest.mark.parametrize(
    ("start", "quoted", "names"),
    [
        (b'\xef\xbb\xbf"a ""b""",c\r\n1,2', True, ('a "b"', "c")),
        (b"\n\r\na,b", True, ("a", "b")),
        (b'"a,b\n', False, ('"a', "b")),
        (b"NA,null\n", True, ("NA", "null")),
        (b"\xff,b\n", True, ("\ufffd", "b")),
        (b"", True, None),
        (b"\n\n", True, None),
        (b",\n", True, None),
        (b'"a,b\n', True, None),
        (b"a,b\r1,2\r", True, None),
        (b"a\rb\n", False, None),
        (b"a" * (2**20 + 1), True, None),
        (b"a" * 2**20, True, None),
    ],
)
def test_the_first_line_names_the_columns_or_nothing_does(start: bytes, quoted: bool, names: tuple | None) -> None:
    found = csv_lines.header(start, CsvFormat(quote='"' if quoted else None))
    assert (found and found.names) == names


def test_a_public_file_tells_which_line_is_no_row() -> None:
    assert csv_lines.not_rows(b'\xef\xbb\xbf\na,b\r\n1,2\r\n\n"x, y",3') is None
    assert csv_lines.not_rows(b"\na,b\n1,2\n1\n") == 4
    assert csv_lines.not_rows(b'a,b\n"x\ny",1\n') == 2
    assert csv_lines.not_rows(b"a\rb\n") == 1


@pytest.mark.parametrize("kind", dict.fromkeys(TYPES.values()), ids=str)
def test_cells_that_do_not_fit_take_no_call_each(kind: pa.DataType) -> None:
    cells = [b"x%d" % i for i in range(100_000)] + [b"9" * 30, b"2026-02-30", b"\xff", b"3e"] * 25_000
    found = csv_cells.cells_as(pa.array(cells), kind)
    assert calls_of(lambda: csv_cells.cells_as(pa.array(cells), kind)) < 1_000
    if not pa.types.is_string(kind) and not pa.types.is_floating(kind):
        assert found.null_count == len(cells)


CELLS = [
    "127",
    "128",
    "-129",
    "255",
    "65536",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "-0",
    "0",
    "18446744073709551615",
    "18446744073709551616",
    "0x1F",
    "0xffffffffffffffff",
    "0x",
    "1e5",
    "nan",
    "NaN(a_1)",
    "-Infinity",
    "1e400",
    "1.",
    "+",
    ".",
    "true",
    "FALSE",
    "yes",
    "2024-02-29",
    "1900-02-29",
    "2000-02-29",
    "0000-01-01",
    "2026-01-05T10:11",
    "2026-01-05T10:11:12.123456",
    "2026-01-05T10Z",
    "2026-01-05T10:11:12.5+01:30",
    "2026-01-05T10-0130",
    "2026-01-05T24:00",
    *["2026-01-05 10:11:12", " 12 ", "\u00a05", "\u0661", "1\n", "1\0", "", "0" * 40 + "7", "1 2", "caf\u00e9"],
]
cells_of_text = st.sampled_from(CELLS) | st.text("0123456789-+:.eExX TZnaif\u00a0", max_size=12)
spoilt = st.tuples(cells_of_text, st.integers(0, 12), st.sampled_from([b"", b"", b"", b"\xff", b"0", b"-", b" "]))


@given(
    cells=st.lists(spoilt.map(lambda s: s[0].encode()[: s[1]] + s[2] + s[0].encode()[s[1] :]), min_size=1, max_size=30)
)
@settings(max_examples=60, derandomize=True)
def test_a_cell_has_the_value_that_it_has_alone_and_none_is_sought_by_halves(cells: list[bytes]) -> None:
    for kind in dict.fromkeys(TYPES.values()):
        with pytest.MonkeyPatch.context() as patch:
            # The cast that may fail: once for all cells, since the expression knows which ones fit.
            patch.setattr(csv_cells, "_converted", lambda text, kind: text.cast(kind))
            found = csv_cells.cells_as(pa.array(cells), kind)
        for cell, value in zip(cells, found, strict=True):
            alone = _alone(cell, kind)
            assert value.is_valid == alone.is_valid
            assert not value.is_valid or value.equals(alone) or repr(value) == repr(alone)


def _alone(cell: bytes, kind: pa.DataType) -> pa.Scalar:
    try:
        text = pa.array([cell]).cast(pa.string())
        text = text if pa.types.is_string(kind) else pa.compute.utf8_trim_whitespace(text)
    except pa.ArrowException:
        return pa.nulls(1, kind)[0]
    local = pa.types.is_timestamp(kind) and kind.tz is None
    for parsed in (kind, pa.timestamp(kind.unit, "UTC")) if local else (kind,):
        try:
            return text.cast(parsed).cast(kind)[0]
        except pa.ArrowException:
            pass
    return pa.nulls(1, kind)[0]


INSTANTS = {
    "2013-01-01T10:00:00Z": datetime.datetime(2013, 1, 1, 10),
    "2013-01-01T10:00:00+01:30": datetime.datetime(2013, 1, 1, 8, 30),
    "2013-01-01 00:15-0030": datetime.datetime(2013, 1, 1, 0, 45),
    "2012-12-31T23:00:00.25+01": datetime.datetime(2012, 12, 31, 22, 0, 0, 250_000),
    "2013-01-01T10:00:00": datetime.datetime(2013, 1, 1, 10),
    " 2013-01-01 ": datetime.datetime(2013, 1, 1),
    "2013-01-01Z": None,
    "2013-01-01T10:00:00 Z": None,
    "2013-01-01T10:00:00+25:00": None,
}


@pytest.mark.parametrize("one_kind", [True, False])
def test_a_time_with_an_offset_is_the_instant_that_it_says_beside_whatever_other_cells(one_kind: bool) -> None:
    cells = [text.encode() for text in INSTANTS]
    groups = [[cell] for cell in cells] if one_kind else [cells]
    found = [csv_cells.cells_as(pa.array(group), pa.timestamp("us")).to_pylist() for group in groups]
    assert [value for group in found for value in group] == list(INSTANTS.values())


def test_types_that_no_expression_knows_are_converted_all_the_same() -> None:
    cells = pa.array([b"1.25", b"x", b"\xff", None, b" 2", b"1e99"])
    assert [str(v) for v in csv_cells.cells_as(cells, pa.decimal128(6, 2))] == [
        "1.25",
        "None",
        "None",
        "None",
        "2.00",
        "None",
    ]
    assert csv_cells.cells_as(pa.array([b" a ", b"\xff"]), pa.large_string()).to_pylist() == ["a", None]


def test_a_reader_of_our_own_would_be_caught_by_the_one_by_hand() -> None:
    # The twin: Python's csv joins lines at a quotation mark, and the comparison sees it.
    content = HEADER + b'"a,b,1\nc,d,2\n'
    rows = [row for row in csv.reader(io.StringIO(content.decode())) if len(row) == 3][1:]
    assert by_hand(content) == [(b"c", b"d", b"2")]
    assert rows != by_hand(content)
