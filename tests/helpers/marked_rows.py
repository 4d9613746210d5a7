"""Rows that can be recognised wherever they turn up, and a search for them in all that commands leave behind.

In: a table. Out: the same table with one more unit whose cells are marks; the places in which a mark, or the number of rows, is
found. Holds: a mark is searched for as text and as the bytes of a number, in the names and bytes of all files, in the cells of
Parquet files, which may be compressed, and in what was printed. Not covered: other encodings, such as a digest. Tests only.
"""

import pathlib
import re
import struct
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet

UNIT, WHOLE, TEXT, NUMBER = 918_273_645_546_372_819, 604_172_389_150_273_846, "only-hers-Zq", 7_315_190_234.37890625

MARKS = (
    TEXT,
    str(UNIT),
    f"{UNIT:,}",
    str(WHOLE),
    f"{WHOLE:,}",
    str(float(UNIT)),
    str(float(WHOLE)),
    str(NUMBER),
    "7,315,190,234",
)
"""The texts that nothing may show: so long that no noise shows them by chance."""

BYTES = (*map(str.encode, MARKS), *(struct.pack("<q", n) for n in (UNIT, WHOLE)), struct.pack("<d", NUMBER))

MANY = 13
"""How many rows the marked unit has."""


def marked(table: pa.Table) -> pa.Table:
    """Return a table with rows of one more unit, each cell of which is a mark; a boolean cannot be one."""
    cells: dict[str, list[object]] = {}
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            cells[field.name] = [TEXT] * MANY
        elif pa.types.is_floating(field.type):
            cells[field.name] = [NUMBER] * MANY
        elif pa.types.is_boolean(field.type):
            cells[field.name] = [True] * MANY
        else:
            cells[field.name] = [WHOLE if number else UNIT] * MANY
    return pa.concat_tables([table, pa.table(cells, schema=table.schema)])


def files_with_marks(folder: pathlib.Path, inputs: Collection[str] = ()) -> list[str]:
    """Return what lies in a folder, at any depth, and has a mark in its name or its content.

    Args:
        folder: the folder.
        inputs: what lies in it and is not searched.
    """
    found = [path for path in sorted(folder.rglob("*")) if path.relative_to(folder).parts[0] not in inputs]
    return [path.name for path in found if _in_name(path) or (path.is_file() and _in_file(path))]


def texts_with_marks(texts: Mapping[str, str]) -> list[str]:
    """Return the names of the texts in which a mark is found."""
    return [name for name, text in texts.items() if any(mark in text for mark in MARKS)]


def texts_with_number(texts: Mapping[str, str], number: int) -> list[str]:
    """Return the names of the texts in which a number of rows is found; no text may have it for another reason."""
    many = re.compile(rf"(?<![\d.,])({number}|{number:,})(?![\d,])")
    return [name for name, text in texts.items() if many.search(text)]


def _in_name(path: pathlib.Path) -> bool:
    return any(mark in path.name for mark in MARKS)


def _in_file(path: pathlib.Path) -> bool:
    content = path.read_bytes()
    return any(mark in content for mark in BYTES) or any(mark in cell for cell in _cells(content) for mark in MARKS)


def _cells(content: bytes) -> Iterator[str]:
    if content[:4] == b"PAR1":
        for column in pyarrow.parquet.read_table(pa.BufferReader(content)).columns:
            yield from map(str, column.to_pylist())
