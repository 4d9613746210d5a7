"""Dates and times of cells that are not written as ISO 8601 says.

In: text, formats as for strptime. Out: the same texts as ISO 8601 writes them, null where no format fits. Holds: each cell is
read by itself; names of months and days are English, whatever the locale; the whole cell must fit, but for spaces around it.
Not covered: whether there is such a day (the parser of ISO 8601 decides); other directives than those listed here.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError

ISO = "iso8601"
"""The name of ISO 8601 in a list of formats."""

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _names(names: Sequence[str], letters: int | None) -> str:
    return "(?i:" + "|".join(name[:letters] for name in names) + ")"


_DIRECTIVES: Mapping[str, str] = {
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "m": "1[0-2]|0?[1-9]",
    "B": _names(_MONTHS, None),
    "b": _names(_MONTHS, 3),
    "d": r"3[01]|[12]\d|0?[1-9]",
    "A": _names(_DAYS, None),
    "a": _names(_DAYS, 3),
    "H": r"2[0-3]|[01]\d|\d",
    "I": "1[0-2]|0?[1-9]",
    "p": "(?i:am|pm)",
    "M": r"[0-5]\d|\d",
    "S": r"[0-5]\d|\d",
    "f": r"\d{1,6}",
    "z": r"Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d",
}
"""The expression for what a directive reads."""

_TIME = frozenset("HIpMSfz")


def checked(formats: Any, field: str) -> tuple[str, ...]:
    """Check formats, each of which must have a day and no directive twice, and return them.

    Args:
        formats: one or several texts.
        field: the name for errors.

    Raises:
        RequestError: a directive is unknown, doubled or missing.

    >>> checked("%d.%m.%Y", "date_format")
    ('%d.%m.%Y',)
    """
    listed = (formats,) if isinstance(formats, str) else formats
    if isinstance(listed, Mapping) or not isinstance(listed, Sequence) or not all(isinstance(f, str) for f in listed):
        raise RequestError(field=field, message="must be a text or a list of texts", hint='write e.g. "%d.%m.%Y %H:%M"')
    for text in listed:
        if text != ISO:
            _check(text, field)
    return tuple(listed)


def has_time(text: str) -> bool:
    """Return True if a format has directives of a time of day."""
    return text != ISO and not _TIME.isdisjoint(_parts(text))


def has_zone(text: str) -> bool:
    """Return True if a format reads instants."""
    return text == ISO or "z" in _parts(text)


def iso(text: pa.Array, formats: Sequence[str], *, date: bool = False) -> pa.Array:
    """Convert texts to ISO 8601, days alone for a date; the first format that fits counts.

    >>> iso(pa.array(["5.1.2026 7:03 pm", "x"]), ["%d.%m.%Y %I:%M %p"]).to_pylist()
    ['2026-01-05T19:03:00.0', None]
    """
    text = pc.utf8_trim_whitespace(text)
    times = pa.nulls(len(text), pa.string())
    for each in formats:
        times = pc.if_else(pc.is_valid(times), times, text if each == ISO else _iso(text, each, date))
    return times


def _check(text: str, field: str) -> None:
    parts = _parts(text)
    unknown = [part for part in parts if part not in _DIRECTIVES]
    if unknown:
        known = ", ".join(f"%{part}" for part in _DIRECTIVES)
        message = f"has the unknown directive '%{unknown[0]}'" if unknown[0] else "ends with a single %"
        raise RequestError(field=field, message=message, hint=f"use {known} and %%")
    doubled = [part for part in parts if parts.count(part) > 1]
    if doubled:
        raise RequestError(field=field, message=f"has the directive '%{doubled[0]}' twice", hint="write it once")
    for one_of in (("Y", "y"), ("m", "b", "B"), ("d",)):
        if sum(part in parts for part in one_of) != 1:
            listed = " or ".join(f"%{part}" for part in one_of)
            message = f"must have {'one of ' if len(one_of) > 1 else ''}{listed}"
            raise RequestError(field=field, message=message, hint='write e.g. "%d.%m.%Y %H:%M", or "iso8601"')
    if ("I" in parts) != ("p" in parts) or ("I" in parts and "H" in parts):
        raise RequestError(field=field, message="must have %I and %p together, or %H", hint="write e.g. %I:%M %p")


def _parts(text: str) -> list[str]:
    return [part for part in re.findall(r"%(.?)", text, re.DOTALL) if part != "%"]


@functools.cache
def _expression(text: str) -> str:
    """Return the expression for a whole cell, with a group for each directive."""
    pieces = []
    for piece in re.findall(r"%.|\s+|.", text, re.DOTALL):
        if piece[0] == "%" and piece != "%%":
            pieces.append(f"(?P<{piece[1]}>{_DIRECTIVES[piece[1]]})")
        elif piece.isspace():
            pieces.append(r"\s+")
        else:
            pieces.append(rf"\x{{{ord(piece[-1]):x}}}")
    return rf"\A{''.join(pieces)}\z"


def _iso(text: pa.Array, form: str, date: bool) -> pa.Array:
    fields = pc.extract_regex(text, _expression(form))
    # Where a cell does not fit, its groups are empty texts: only whole cells that fit count.
    fits = pc.is_valid(fields)
    groups = {part: pc.if_else(fits, pc.struct_field(fields, part), None) for part in _parts(form)}

    def two(part: str) -> pa.Array | str:
        return pc.utf8_lpad(groups[part], 2, "0") if part in groups else "00"

    year = groups["Y"] if "Y" in groups else _century(groups["y"])
    month = two("m") if "m" in groups else _month(groups["b"] if "b" in groups else groups["B"])
    day = (year, "-", month, "-", two("d"))
    if date:
        return pc.binary_join_element_wise(*day, "")
    hour = _of_half_a_day(groups["I"], groups["p"]) if "I" in groups else two("H")
    fraction, zone = groups.get("f", "0"), groups.get("z", "")
    time = ("T", hour, ":", two("M"), ":", two("S"), ".", fraction, zone)
    return pc.binary_join_element_wise(*day, *time, "")


def _century(years: pa.Array) -> pa.Array:
    """Add the century to years of two digits as POSIX does: 69 to 99 are of the last century."""
    return pc.binary_join_element_wise(pc.if_else(pc.less(years, "69"), "20", "19"), years, "")


def _month(names: pa.Array) -> pa.Array:
    firsts = pa.array([name[:3] for name in _MONTHS])
    places = pc.index_in(pc.utf8_lower(pc.utf8_slice_codeunits(names, 0, 3)), firsts)
    return pc.utf8_lpad(pc.cast(pc.add(places, 1), pa.string()), 2, "0")


def _of_half_a_day(hours: pa.Array, halves: pa.Array) -> pa.Array:
    late = pc.equal(pc.utf8_lower(halves), "pm")
    numbers = pc.if_else(pc.is_in(hours, pa.array(["12"])), 0, pc.cast(hours, pa.int64()))
    return pc.utf8_lpad(pc.cast(pc.add(numbers, pc.if_else(late, 12, 0)), pa.string()), 2, "0")
