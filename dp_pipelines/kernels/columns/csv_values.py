"""Cells as values, as the format of their file says: encoding, separators within numbers, forms of dates and times.

In: cells as bytes, the column's name and type, a `CsvFormat`. Out: as many values. Holds: as for `csv_cells`: a cell's value
depends on that cell, and the time is linear in the bytes; digits count as groups of thousands only in groups of three. Not
covered: groups of other sizes.
"""

import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels.columns import csv_cells, csv_times
from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat


def values(cells: pa.Array, name: str, kind: pa.DataType, form: CsvFormat) -> pa.Array:
    """Convert cells of one column to values of its type; cells that do not fit become null.

    >>> form = CsvFormat(decimal=",", thousands=".")
    >>> values(pa.array([b"1.234,5", b"1.5", b"7"]), "price", pa.float64(), form).to_pylist()
    [1234.5, None, 7.0]
    """
    if form == DEFAULT:
        return csv_cells.cells_as(cells, kind)
    text = csv_cells.text_of(cells) if form.is_utf_8 else decoded(cells, form.codec)
    return text_values(text, name, kind, form)


def text_values(text: pa.Array, name: str, kind: pa.DataType, form: CsvFormat) -> pa.Array:
    """Convert cells that are text already to values of a type; cells that do not fit become null."""
    date = pa.types.is_date(kind)
    if date or pa.types.is_timestamp(kind):
        formats = form.formats_of(name, date=date)
        text = csv_times.iso(text, formats, date=date) if formats else text
    elif pa.types.is_floating(kind) and (form.thousands is not None or form.decimal != "."):
        text = _plain_numbers(text, form, _float(form))
    elif pa.types.is_integer(kind) and form.thousands is not None:
        text = _plain_numbers(text, form, rf"-?{_whole(form)}|0[xX][0-9a-fA-F]+")
    return csv_cells.text_as(text, kind)


def decoded(cells: pa.Array, codec: str) -> pa.Array:
    r"""Decode bytes in an encoding in which each byte is a character; a cell with an invalid byte becomes null.

    >>> decoded(pa.array([b"caf\xe9", b"\x81", None]), "cp1252").to_pylist()
    ['café', None, None]
    """
    if not len(cells) or cells.null_count == len(cells):
        return pa.nulls(len(cells), pa.string())
    octets_of, lengths_of = _table(codec)
    _, offsets, data = cells.buffers()
    ends = np.frombuffer(offsets, np.int32)[cells.offset : cells.offset + len(cells) + 1]
    raw = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.empty(0, np.uint8)
    if raw.size and raw.max() >= 128:
        lengths = lengths_of[raw]
        places = np.concatenate(([0], np.cumsum(lengths)))[ends - ends[0]]
        unknown = np.concatenate(([0], np.cumsum(lengths == 0)))[ends - ends[0]]
        written = octets_of[raw][np.arange(octets_of.shape[1]) < lengths[:, np.newaxis]]
    else:
        places, unknown, written = ends - ends[0], np.zeros_like(ends), raw
    buffers = (pa.py_buffer(part) for part in (places.astype(np.int32), np.ascontiguousarray(written)))
    text = pa.StringArray.from_buffers(len(cells), *buffers)
    known = np.diff(unknown) == 0
    return pc.if_else(pc.and_(pc.is_valid(cells), pa.array(known)), text, None)


@functools.cache
def _table(codec: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return for each byte its character in UTF-8 and the length of that; an invalid byte has length zero."""
    characters = [bytes([octet]).decode(codec, errors="ignore").encode() for octet in range(256)]
    table = np.zeros((256, max(map(len, characters))), np.uint8)
    for octet, character in enumerate(characters):
        table[octet, : len(character)] = np.frombuffer(character, np.uint8)
    return table, np.array([len(character) for character in characters], np.int64)


def _plain_numbers(text: pa.Array, form: CsvFormat, pattern: str) -> pa.Array:
    """Return numbers without separators of thousands and with a point, null where the pattern does not fit."""
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.match_substring_regex(text, rf"\A(?:{pattern})\z"), text, None)
    if form.thousands is not None:
        text = pc.replace_substring(text, form.thousands, "")
    return text if form.decimal == "." else pc.replace_substring(text, form.decimal, ".")


def _float(form: CsvFormat) -> str:
    point = rf"\x{{{ord(form.decimal):x}}}"
    number = rf"(?:{_whole(form)}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?"
    return rf"[+-]?(?:{number}|(?i:nan|inf(?:inity)?))"


def _whole(form: CsvFormat) -> str:
    if form.thousands is None:
        return r"\d+"
    return rf"(?:\d+|\d{{1,3}}(?:\x{{{ord(form.thousands):x}}}\d{{3}})+)"
