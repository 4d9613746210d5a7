"""JSON lines, one object a row: no byte of a line changes how another line is read.

In: paths, the type of each column. Out: Arrow tables; the first has no rows, so types are known. Holds: the byte 0x0A alone ends
a line; a line that is not one JSON object is no row, a value that does not fit its column is null, and neither is an error nor
costs another line anything; types are declared, never guessed. Not covered: objects over several lines.
"""

from collections.abc import Iterator, Mapping
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from dp_pipelines.engine import compressed
from dp_pipelines.errors import DamagedInputError
from dp_pipelines.jobs.sources.readers import UNREADABLE
from dp_pipelines.jobs.spec.job_parameters import sql_text
from dp_pipelines.jobs.sql.row_calculator import Calculator, Item
from dp_pipelines.kernels.columns import csv_cells, csv_lines
from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat
from dp_pipelines.kernels.columns.csv_values import text_values
from dp_pipelines.steps import folder_columns
from dp_pipelines.steps.flow import Flow, Opener
from dp_pipelines.steps.folder_columns import FolderColumns
from dp_pipelines.steps.read_files import UNKNOWN, Shuffled, open_local
from dp_pipelines.steps.step import Step

_BLOCK = 2**23  # half as many took a seventh longer: each block is a table that goes all the way to the shards
_LINE, _OBJECT = "line", ord("{")
_BLANKS = np.frombuffer(b" \t\r", np.uint8)


def json_lines_tables(
    files: Flow,
    types: Mapping[str, pa.DataType],
    form: CsvFormat = DEFAULT,
    shuffled: Shuffled = UNKNOWN,
    added: FolderColumns = folder_columns.NONE,
) -> Flow:
    """The tables of files of JSON lines.

    Args:
        files: their paths.
        types: of the columns that are read.
        form: how dates and times are written.
        shuffled: what becomes of a row.
        added: columns that names of folders say, which `types` has too.
    """
    own = {name: types[name] for name in added.of_files(list(types))}
    read = added.around(ReadJsonLines(own, form, files.opener, shuffled), list(types))
    return files.spread("Spread").each("Read", read)


class ReadJsonLines(Step):
    """The tables of a file of JSON lines.

    Args:
        types: of the columns that are read: names of members of the objects.
        form: how dates and times are written.
        opener: opens files.
        shuffled: what becomes of a row.
        block: bytes that are read at a time. It changes no row.
    """

    def __init__(
        self,
        types: Mapping[str, pa.DataType],
        form: CsvFormat = DEFAULT,
        opener: Opener = open_local,
        shuffled: Shuffled = UNKNOWN,
        block: int = _BLOCK,
    ) -> None:
        self._types, self._form, self._opener, self._block = dict(types), form, opener, block
        self._most_rows, self._calculator = shuffled.most_rows(), Calculator()
        self._members = Item(sql=members(list(types)), type=pa.list_(pa.string()), columns=(_LINE,))

    def process(self, path: str) -> Iterator[pa.Table]:
        """Tables, the first one without rows."""
        with self._opener(path) as stream:
            try:
                yield from self._tables(compressed.plain(path, stream))
            except compressed.DAMAGES:
                raise DamagedInputError(f"file {path!r}: {UNREADABLE}") from None

    def _tables(self, stream: BinaryIO) -> Iterator[pa.Table]:
        yield pa.table({name: pa.array([], kind) for name, kind in self._types.items()})
        start = csv_lines.start_of(stream)
        for block in csv_lines.whole_lines(start.removeprefix(csv_lines.BOM), stream, self._block):
            yield from self._rows(block)

    def _rows(self, block: bytes) -> Iterator[pa.Table]:
        lines = lines_of(block)
        (found,) = self._calculator.evaluate(pa.table({_LINE: lines}), [self._members], {})
        for piece in found.drop_null().chunks:  # null where the line is not JSON
            for first in range(0, len(piece), self._most_rows):
                part = piece.slice(first, self._most_rows)
                # Each list has a text for each column, one list after the other: `list_element` takes four times as long.
                texts, firsts = part.flatten(), np.arange(len(part)) * len(self._types)
                own = (texts.take(pa.array(firsts + place)) for place in range(len(self._types)))
                both = zip(self._types.items(), own, strict=True)
                yield pa.table({name: text_values(text, name, kind, self._form) for (name, kind), text in both})


def members(names: list[str]) -> str:
    r"""SQL for the values of members of an object, as text.

    >>> members(["who", 'a "b"'])
    'json_extract_string(line, [\'/who\', \'/a "b"\'])'
    """
    # As JSON pointers, in which no character of a name is a wildcard.
    pointers = (f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)
    listed = ", ".join(map(sql_text, pointers))
    return f"json_extract_string({_LINE}, [{listed}])"


def lines_of(block: bytes) -> pa.Array:
    r"""The lines of a block that may be objects, as text with their ends.

    Args:
        block: ends with a line's end.

    >>> lines_of(b'{"a": 1}\n[2]\n\n  {}\n').to_pylist()
    ['{"a": 1}\n', '  {}\n']
    """
    octets = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(octets == csv_lines.END) + 1
    starts = np.concatenate(([0], ends[:-1]))
    first = octets[starts]
    for number in np.flatnonzero(np.isin(first, _BLANKS)).tolist():
        line = block[starts[number] : ends[number]].lstrip()
        first[number] = line[0] if line else 0
    offsets = np.append(0, ends).astype(np.int32)
    cells = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)])
    objects = (first == _OBJECT) & (ends - starts <= csv_lines.LONGEST_LINE)
    return csv_cells.text_of(cells if objects.all() else cells.filter(pa.array(objects))).drop_null()
