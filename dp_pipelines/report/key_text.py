"""Keys and other texts of a release, made visible: null, empty text, bytes, times and control characters as a reader sees them.

In: Arrow scalars of partition columns, strings of a manifest. Out: text on one line, not yet escaped for HTML. Holds: every
scalar gives a text; no character in it moves, hides or reorders others; a long one is cut, and says so.
"""

import datetime
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LONGEST = 100
"""So many characters of a key are shown; the Parquet file has the rest."""

NULL, EMPTY = "null", "empty text"

ISOLATE, END_ISOLATE = "\u2068", "\u2069"

_MOVES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TIME_OF_DAY = pa.time64("ns")
_HARMLESS = re.compile(r"[ -~]*")


def visible(text: str, most: int = LONGEST) -> str:
    r"""A text in which nothing is hidden: control and direction characters as escapes, cut to a length.

    Joiners stay where they join emoji or letters.

    Args:
        text: any text.
        most: how many of its characters are kept.

    >>> visible("a\x00b\u202ec"), visible("abcdef", most=4)
    ('a\\u0000b\\u202ec', 'abcd…')
    """
    cut = text[:most]
    if not _HARMLESS.fullmatch(cut):
        cut = "".join(_seen(character) for character in cut)
    return cut + "…" if len(text) > most else cut


def key_text(scalar: pa.Scalar) -> str | None:
    """A value of a partition column as text, None for null. Not yet made visible.

    >>> key_text(pa.scalar(True)), key_text(pa.scalar(b"ab")), key_text(pa.scalar(None, pa.int64()))
    ('true', '0x6162', None)
    """
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _moment(scalar)
    try:
        # Python's times of day have no nanoseconds: Arrow refuses them or, where pandas is installed, drops them.
        value = pc.cast(scalar, pa.string()).as_py() if kind == _TIME_OF_DAY else scalar.as_py()
    except (ValueError, OverflowError, ArithmeticError, ImportError):
        value = pc.cast(scalar, pa.string()).as_py()
    return plain(value)


def label(text: str | None, most: int = LONGEST) -> str:
    """A key on a plot: visible, with words for what has no characters.

    >>> label(None), label(""), label("tea")
    ('null', 'empty text', 'tea')
    """
    return NULL if text is None else shown_key(text, most) if text else EMPTY


def shown_key(text: str, most: int = LONGEST) -> str:
    """A key in which nothing is hidden: as `visible`, and spaces at its ends can be seen.

    >>> shown_key(" tea "), shown_key("green tea")
    ('␣tea␣', 'green tea')
    """
    seen = visible(text, most)
    inner = seen.strip(" ")
    before = len(seen) - len(seen.lstrip(" "))
    return "␣" * before + inner + "␣" * (len(seen) - before - len(inner))


def joined(parts: Sequence[str]) -> str:
    """Labels of several keys in one text; each keeps its own direction of writing.

    >>> joined(["tea"]), joined(["tea", "2026-W01"])
    ('tea', '\u2068tea\u2069 · \u20682026-W01\u2069')
    """
    if len(parts) == 1:
        return parts[0]
    return " · ".join(f"{ISOLATE}{part}{END_ISOLATE}" for part in parts)


def plain(value: Any) -> str:
    """A value of Python as text: of a key, or of a category that a manifest declares.

    >>> plain(True), plain(b"ab"), plain(3)
    ('true', '0x6162', '3')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "0x" + value[:LONGEST].hex()
    if isinstance(value, datetime.time):
        return value.isoformat()
    return str(value)


def _moment(scalar: pa.Scalar) -> str:
    kind = scalar.type
    if pa.types.is_date(kind):
        unit = "D" if pa.types.is_date32(kind) else "ms"
        return str(np.array(scalar.value).astype(f"datetime64[{unit}]").astype("datetime64[D]"))
    if kind.tz is not None:
        try:
            return str(scalar.as_py().isoformat(sep=" "))
        except (ValueError, OverflowError, ArithmeticError, LookupError, ImportError, OSError):
            pass  # a zone that is not known here, nanoseconds, or a year that Python has not: as UTC
    # Second by second: to numpy the first moment of a finer unit is no time.
    second, rest = divmod(scalar.value, _PER_SECOND[kind.unit])
    moment = str(np.array(second).astype("datetime64[s]")).replace("T", " ")
    fraction = f".{rest:0{len(str(_PER_SECOND[kind.unit])) - 1}d}" if rest else ""
    return moment + fraction + ("Z" if kind.tz is not None else "")


def _seen(character: str) -> str:
    if unicodedata.category(character) not in _MOVES or character in _JOINERS:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
