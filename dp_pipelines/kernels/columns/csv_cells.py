"""Cells of text as values of a declared type: a cell that does not fit is null, and costs no other cell its value.

In: cells as bytes, a type. Out: as many values. Holds: a cell's value depends only on that cell; the time is linear in
the bytes, whatever they are, for every type that a job file can declare. Not covered: types that Arrow cannot parse
from text.
"""

import functools

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels.columns import gather

_UTF_8 = (
    r"\A(?:[\x00-\x7F]|[\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}"
    r"|\xED[\x80-\x9F][\x80-\xBF]|\xF0[\x90-\xBF][\x80-\xBF]{2}|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2})*\z"
)
"""Bytes that are UTF-8, as an expression over bytes."""

_LEAP = r"\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00"
_DATE = (
    r"\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    rf"|02-(?:0[1-9]|1\d|2[0-8]))|(?:{_LEAP})-02-29"
)
_HOUR, _MINUTE = r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_FLOAT = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:nan(?:\([a-z0-9_]*\))?|inf(?:inity)?))"
_DIGITS = {"s": "", "ms": r"(?:\.\d{1,3})?", "us": r"(?:\.\d{1,6})?", "ns": r"(?:\.\d{1,9})?"}


def cells_as(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert cells of text (as bytes) to values of a type; cells that do not fit, or are not UTF-8, become null.

    A timestamp without a zone is the time that the cell says; where the cell says `Z` or an offset, that instant in UTC.

    >>> cells_as(pa.array([b"1", b"x", None, b" 3"]), pa.int64()).to_pylist()
    [1, None, None, 3]
    >>> cells_as(pa.array([b"2026-01-05T10:00:00+01:00"]), pa.timestamp("us")).to_pylist()
    [datetime.datetime(2026, 1, 5, 9, 0)]
    """
    return text_as(text_of(cells), kind)


def text_as(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert text to values of a type; texts that do not fit become null.

    >>> text_as(pa.array(["2026-01-05", "5 Jan"]), pa.date32()).to_pylist()
    [datetime.date(2026, 1, 5), None]
    """
    if pa.types.is_string(kind):
        return text
    pattern = _pattern(kind)
    if pattern is not None:
        try:
            return text.cast(kind)
        except pa.ArrowException:
            if pa.types.is_timestamp(kind) and kind.tz is None:
                return _times(text, kind)
            text = _fitting(pc.utf8_trim_whitespace(text), kind)
    else:
        text = pc.utf8_trim_whitespace(text)
    return _converted(text, kind)


def _times(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert text to timestamps without a zone; those with a zone are instants, written in UTC."""
    zoned = pa.timestamp(kind.unit, "UTC")
    try:
        return text.cast(zoned).cast(kind)
    except pa.ArrowException:
        text = pc.utf8_trim_whitespace(text)
        instants = _converted(_fitting(text, zoned), zoned).cast(kind)
        return pc.if_else(pc.is_valid(instants), instants, _converted(_fitting(text, kind), kind))


def _fitting(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the texts that Arrow parses as a type, null in place of others."""
    return pc.if_else(pc.match_substring_regex(text, _pattern(kind)), text, None)


def text_of(cells: pa.Array) -> pa.Array:
    """Convert cells to text; cells that are not UTF-8 become null."""
    try:
        return cells.cast(pa.string())
    except pa.ArrowException:
        return pc.if_else(pc.match_substring_regex(cells, _UTF_8), cells, None).cast(pa.string())


def _converted(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert text by halving until each part fits or is one cell: for types that no expression can check beforehand."""
    try:
        return text.cast(kind)
    except pa.ArrowException:
        if len(text) == 1:
            return pa.nulls(1, kind)
        middle = len(text) // 2
        return gather.joined([_converted(text[:middle], kind), _converted(text[middle:], kind)])


@functools.cache
def _pattern(kind: pa.DataType) -> str | None:
    """Return an expression for the texts that Arrow parses as a type, or None if there is none."""
    if pa.types.is_boolean(kind):
        body = "(?i:true|false)|0|1"
    elif pa.types.is_integer(kind):
        body = _integers(kind)
    elif pa.types.is_floating(kind) and kind != pa.float16():
        body = _FLOAT
    elif pa.types.is_date(kind):
        body = _DATE
    elif pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else rf"(?:Z|[+-]{_HOUR}(?::?{_MINUTE})?)"
        time = rf"[ T]{_HOUR}(?::{_MINUTE}(?::{_MINUTE}{_DIGITS[kind.unit]})?)?{zone}"
        body = rf"(?:{_DATE})(?:{time})" + ("?" if kind.tz is None else "")
    else:
        return None
    return rf"\A(?:{body})\z"


def _integers(kind: pa.DataType) -> str:
    """Return an expression for decimal digits within the type's range, or as many hexadecimal ones as it has room for."""
    signed = pa.types.is_signed_integer(kind)
    most = 2 ** (kind.bit_width - signed) - 1
    negative = f"|-0*(?:{_at_most(most + 1)})" if signed else ""
    return f"0*(?:{_at_most(most)}){negative}|0[xX][0-9a-fA-F]{{1,{kind.bit_width // 4}}}"


def _at_most(most: int) -> str:
    r"""Return an expression for the digits of numbers up to `most`, without leading zeros or with.

    >>> _at_most(127)
    '\\d{1,2}|1[0-1]\\d{1}|12[0-6]\\d{0}|127'
    """
    digits = str(most)
    listed = [rf"\d{{1,{len(digits) - 1}}}"]
    for place, digit in enumerate(digits):
        if digit != "0" and (place or digit != "1"):
            low = "0" if place else "1"
            listed.append(rf"{digits[:place]}[{low}-{int(digit) - 1}]\d{{{len(digits) - place - 1}}}")
    return "|".join([*listed, digits])
