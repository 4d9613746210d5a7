"""CSV files, one line a row: no byte of a line changes how another line is read.

In: a stream of bytes, its format, the columns to read. Out: Arrow tables of cells as bytes. Holds: the byte 0x0A alone ends a
line, in quotation marks too; a line that has not as many cells as the header, that leaves a quotation mark open, that is too
long or has a carriage return outside of quotation marks is not a row; this depends on that line alone. A header
that cannot be read is an error; nothing else is. Not covered: what cells mean (`csv_values`).
"""

import contextlib
import csv
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from dp_pipelines.kernels.columns.csv_format import DEFAULT, SEPARATORS, CsvFormat

Bytes: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = npt.NDArray[np.intp]

BLOCK = 2**23
"""Bytes that are read and parsed at once; a line that is longer makes a larger block."""

LONGEST_LINE = 2**24
"""The most bytes of a line; a longer one is not a row."""

LONGEST_HEADER = 2**20
"""Bytes before the end of the first line at most."""

LONG = 2**20
"""Lines beyond so many bytes are judged one by one, so that one of separators alone takes no memory for each of them."""

BOM = b"\xef\xbb\xbf"
END, RETURN = b"\n\r"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a file.

    Args:
        names: of the columns. They may be somebody's row, where the header is missing: a message may repeat one only where
            it is the name of a declared column.
        begin: where the next line begins.
    """

    names: tuple[str, ...]
    begin: int


def header(start: bytes, form: CsvFormat = DEFAULT) -> Header | None:
    r"""Return the first line that is not empty, or None where it cannot be read; the declared names of a file without one.

    Args:
        start: the file's first bytes, `LONGEST_HEADER + 1` of them unless it is shorter.
        form: of the file.

    >>> header(b"customer,amount\n1,2\n")
    Header(names=('customer', 'amount'), begin=16)
    >>> header(b"customer\ramount\r") is None
    True
    """
    begin = len(BOM) if form.is_utf_8 and start.startswith(BOM) else 0
    if form.names is not None:
        return Header(names=tuple(form.names), begin=begin)
    begin += len(start) - begin - len(start[begin:].lstrip(b"\r\n"))
    end = start.find(END, begin)
    if end < 0:
        end = len(start)
    line = start[begin:end].rstrip(b"\r")
    if end > LONGEST_HEADER or not _cells_of(line, form):
        return None
    text = line.decode(form.codec, errors="replace")
    plain: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if form.quote is None else {"quotechar": form.quote}
    try:
        (names,) = csv.reader([text], delimiter=form.delimiter, **plain)
    except (csv.Error, ValueError):
        return None
    return Header(names=tuple(names), begin=min(end + 1, len(start))) if any(names) else None


def read(
    stream: BinaryIO, columns: Sequence[str], form: CsvFormat = DEFAULT, *, block: int = BLOCK
) -> Iterator[pa.Table]:
    r"""Yield the rows of a file, cells as bytes, null for the declared null tokens.

    Args:
        stream: where the file begins.
        columns: names in the header, each once.
        form: of the file.
        block: bytes that are read at once. It changes no row.

    Raises:
        ValueError: the header cannot be read, or lacks a column.

    >>> import io
    >>> file = io.BytesIO(b'customer,amount\nanna,1\n"bert,2\ncleo,3\n')
    >>> [table.to_pylist() for table in read(file, ["amount"])]
    [[{'amount': b'1'}, {'amount': b'3'}]]
    """
    start = start_of(stream)
    first = header(start, form)
    if first is None:
        raise ValueError("no header")
    places = [first.names.index(name) for name in columns]
    parsed = (
        _parsed(rows, places, len(first.names), form).rename_columns(list(columns))
        for lines in whole_lines(start[first.begin :], stream, block)
        if (rows := b"".join(_rows(lines, len(first.names), form)))
    )
    return parsed if places else iter(())


def not_rows(content: bytes, form: CsvFormat = DEFAULT) -> int | None:
    r"""Return the first line of a public file that is neither empty nor a row, counted from one, or None.

    >>> not_rows(b"a,b\n1,2\n1,2,3\n")
    3
    """
    first = header(content[: LONGEST_HEADER + 1], form)
    if first is None:
        return 1
    for number, line in enumerate(content[first.begin :].split(b"\n"), 1 + content[: first.begin].count(b"\n")):
        # Judged without what may follow the line's end; the header is line 1 and has ended here.
        bare = line.rstrip(b"\r")
        if bare and (len(line) > LONGEST_LINE or _cells_of(bare, form) != len(first.names)):
            return number
    return None


def other_separator(names: Sequence[str], declared: Collection[str]) -> str:
    r"""Return the likely separator of a header that seems to have one column; empty if there is none.

    A line of one cell may be somebody's row. It counts as a header if a declared name is found by splitting it.

    >>> other_separator(["customer;amount"], ["amount"]), other_separator(["anna;7"], ["amount"])
    (';', '')
    """
    if len(names) == 1:
        for separator in SEPARATORS:
            if not {name.strip(' "') for name in names[0].split(separator)}.isdisjoint(declared):
                return separator if separator in names[0] else ""
    return ""


def start_of(stream: BinaryIO) -> bytes:
    """Return the bytes that may contain the header of a file, and one byte more."""
    return _exactly(stream, LONGEST_HEADER + 1)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """Read so many bytes, fewer only at the end of the file: a stream may return less than it is asked for."""
    data = stream.read(size)
    pieces = [data]
    total = len(data)
    while data and total < size:
        data = stream.read(size - total)
        pieces.append(data)
        total += len(data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def whole_lines(start: bytes, stream: BinaryIO, block: int) -> Iterator[bytes]:
    r"""Yield pieces of a file that end with a line's end; too long lines may be left out, so that none takes much memory.

    Args:
        start: what was read of it.
        stream: the rest of it.
        block: bytes that are read at once.

    >>> import io
    >>> list(whole_lines(b"a\nb", io.BytesIO(b"c"), 8))
    [b'a\n', b'bc\n']
    """
    rest, too_long = bytearray(), False
    for data in _pieces(start, stream, block):
        if too_long:
            after = data.find(END) + 1
            too_long = not after
            data = data[after:] if after else b""
        end = data.rfind(END) + 1
        if end:
            yield b"".join((rest, memoryview(data)[:end]))
            rest = bytearray()
        rest += memoryview(data)[end:]
        if len(rest) > LONGEST_LINE:
            rest, too_long = bytearray(), True
    if rest:
        yield bytes(rest + b"\n")


def _pieces(start: bytes, stream: BinaryIO, block: int) -> Iterator[bytes]:
    yield start
    while data := _exactly(stream, block):
        yield data


def _rows(lines: bytes, cells: int, form: CsvFormat) -> Iterable[bytes | memoryview]:
    """Yield the lines that are rows, in their order, in as few pieces as possible."""
    octets = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(octets == END) + 1
    starts = np.concatenate(([0], ends[:-1]))
    long = np.flatnonzero(ends - starts > LONG)
    whole, begin = memoryview(lines), 0
    for number in long.tolist():
        yield from _short_rows(whole[begin : starts[number]], cells, form)
        begin = int(ends[number])
        line = lines[starts[number] : begin - 1]
        if len(line) <= LONGEST_LINE and _cells_of(line.rstrip(b"\r"), form) == cells:
            yield whole[starts[number] : begin]
    yield from _short_rows(whole[begin:], cells, form)


def _short_rows(lines: memoryview, cells: int, form: CsvFormat) -> Iterator[memoryview]:
    if not lines:
        return
    octets = np.frombuffer(lines, np.uint8)
    quoted = form.mark is not None and bytes(lines).find(form.mark) >= 0
    ends, good, unsure = (_judged_quoted if quoted else _judged)(octets, cells, form)
    starts = np.concatenate(([0], ends[:-1]))
    stray = _stray_returns(octets)
    if stray.size:
        at = np.searchsorted(ends, stray, side="right")
        good[at] = False
        unsure = np.union1d(unsure, at) if quoted else unsure
    for number in unsure.tolist():
        line = bytes(lines[starts[number] : ends[number] - 1])
        good[number] = _cells_of(line.rstrip(b"\r"), form) == cells
    if good.all():
        yield lines
        return
    # Neighbours stay together: a piece begins and ends where good and bad lines meet.
    change = np.flatnonzero(np.diff(good.view(np.int8), prepend=0, append=0))
    for first, last in zip(starts[change[::2]].tolist(), ends[change[1::2] - 1].tolist(), strict=True):
        yield lines[first:last]


def _judged(octets: Bytes, cells: int, form: CsvFormat) -> tuple[Places, Flags, Places]:
    """Return where each line ends, and True for lines with the right number of cells, in a format without quotation marks."""
    marks = np.flatnonzero((octets == END) | (octets == form.separator))
    last = np.flatnonzero(octets[marks] == END)
    return marks[last] + 1, np.diff(last, prepend=-1) == cells, np.empty(0, np.intp)


def _judged_quoted(octets: Bytes, cells: int, form: CsvFormat) -> tuple[Places, Flags, Places]:
    """Return the same as `_judged`, and the lines with a quotation mark that only reading from the left can interpret.

    Elsewhere a mark opens a quotation if it is the first, third, fifth... of its line: each of those is at the beginning of
    a cell, or follows the one before it, which is how a quotation writes the mark itself.
    """
    marks = np.flatnonzero((octets == END) | (octets == form.separator) | (octets == form.mark))
    kinds = octets[marks]
    is_mark = kinds == form.mark
    last = np.flatnonzero(kinds == END)
    # Sums of bytes wrap, and stay right about even and odd.
    inside = (np.cumsum(is_mark, dtype=np.uint8) & 1).view(np.bool_)
    left_open = inside[last]
    if left_open.any():
        before = np.concatenate(([False], left_open[:-1]))
        inside ^= np.repeat(before, np.diff(last, prepend=-1))
    separators = np.flatnonzero(~(is_mark | inside))
    counts = np.diff(np.searchsorted(separators, last, side="right"), prepend=0)
    # The byte before the first one belongs to another line; only separators, ends and marks are listed here.
    opening = is_mark & inside
    opening[0] &= bool(marks[0])
    opening[1:] &= marks[1:] - marks[:-1] != 1
    unsure = np.unique(np.searchsorted(last, np.flatnonzero(opening)))
    return marks[last] + 1, (counts == cells) & ~inside[last], unsure


def _stray_returns(octets: Bytes) -> Places:
    """Return the carriage returns that are not followed by a line's end, directly or after more of them."""
    returns = np.flatnonzero(octets == RETURN)
    if not returns.size:
        return returns
    last = np.append(np.flatnonzero(np.diff(returns) != 1), returns.size - 1)
    stray = octets[returns[last] + 1] != END
    return returns[np.repeat(stray, np.diff(last, prepend=-1))]


def _cells_of(line: bytes, form: CsvFormat) -> int:
    """Return the number of cells of one line without its end; zero if it is not a row.

    As Arrow reads it: a quotation mark opens a quotation where a cell begins and nowhere else; two are one inside of it.

    >>> _cells_of(b'5" disk,"a ""b"", c",d', DEFAULT), _cells_of(b'a,"b', DEFAULT), _cells_of(b'a,"b', CsvFormat(quote=None))
    (3, 0, 2)
    """
    separator, mark = form.separator, form.mark
    if mark is None:
        return 0 if RETURN in line else line.count(separator) + 1
    cells, at = 0, 0
    while True:
        cells += 1
        if line.startswith(b"%c" % mark, at):
            at = _closed(line, at + 1, mark)
            if not at:
                return 0
        next_one = line.find(separator, at)
        if line.find(RETURN, at, len(line) if next_one < 0 else next_one) >= 0:
            return 0
        if next_one < 0:
            return cells
        at = next_one + 1


def _closed(line: bytes, at: int, mark: int) -> int:
    """Return where a quotation has ended that began before a place; zero if it has not ended."""
    while True:
        end = line.find(mark, at)
        if end < 0:
            return 0
        if not line.startswith(b"%c" % mark, end + 1):
            return end + 1
        at = end + 2


def _parsed(rows: bytes, places: Iterable[int], cells: int, form: CsvFormat) -> pa.Table:
    """Parse some cells of lines that are all rows."""
    names = [str(place) for place in range(cells)]
    chosen = [names[place] for place in places]
    reading = pa.csv.ReadOptions(use_threads=False, block_size=len(rows) + 1, column_names=names)
    parse = pa.csv.ParseOptions(
        delimiter=form.delimiter,
        quote_char=form.quote or False,
        # All lines are rows. Were one not, it would be none here either.
        invalid_row_handler=lambda row: "skip",
    )
    convert = pa.csv.ConvertOptions(
        include_columns=chosen,
        column_types=dict.fromkeys(chosen, pa.binary()),
        strings_can_be_null=True,
        null_values=[text.encode(form.codec) for text in form.nulls],
    )
    # Arrow takes a mark of the byte order away wherever it begins to read, and skips empty lines.
    safe = b"\n" + rows if rows.startswith(BOM) else rows
    with contextlib.closing(pa.BufferReader(safe)) as source:
        return pa.csv.read_csv(source, read_options=reading, parse_options=parse, convert_options=convert)
