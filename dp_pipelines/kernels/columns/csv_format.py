"""The format of a CSV file: separator, quotation, null tokens, header, encoding, numbers and times.

In: a declaration. Out: a `CsvFormat`. Holds: each encoding that is accepted writes the byte 0x0A for a line's end and
nothing else, and every byte below 0x80 for its ASCII character, so that lines and cells are found before a byte is decoded; a
declaration that contradicts itself is refused. Not covered: the content of files.
"""

import codecs
import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import csv_times

NULLS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""Cells that are null unless something else is declared."""

SEPARATORS: Mapping[str, str] = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
"""Common separators of the cells of a line, with their names."""

_SINGLE_BYTE = re.compile(r"ascii|iso8859-\d{1,2}|cp125[0-8]|cp437|cp85[028]|cp866|koi8-[ru]")
_UTF_8 = ("utf-8", "utf-8-sig")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """The format of a CSV file.

    Args:
        delimiter: separates the cells of a line: one ASCII character other than a letter or digit.
        quote: opens and closes a quotation, inside of which two of them mean one; None: there are no quotations.
        decimal: the decimal separator of floats, `.` or `,`.
        thousands: what may separate groups of three digits in numbers; None: nothing.
        nulls: cells that are null, as they are written.
        names: of all columns in their order, for files without a header line; None: the first line names them.
        encoding: UTF-8, or an encoding in which every byte is one character.
        date_formats: of all `date` columns, as for strptime, tried in their order; none: ISO 8601.
        timestamp_formats: of all `timestamp` and `timestamptz` columns.
        formats: of single columns, by name.

    >>> CsvFormat(delimiter=";", decimal=",", encoding="latin-1").codec
    'iso8859-1'
    """

    delimiter: str = ","
    quote: str | None = '"'
    decimal: str = "."
    thousands: str | None = None
    nulls: Sequence[str] = NULLS
    names: Sequence[str] | None = None
    encoding: str = "utf-8"
    date_formats: Sequence[str] = ()
    timestamp_formats: Sequence[str] = ()
    formats: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_marks()
        self._check_numbers()
        if not isinstance(self.encoding, str) or not self._is_known():
            rule = "is not an encoding in which a line feed is always the byte 0x0A"
            message = f"{rule}: one row's bytes could shift all that follow"
            hint = "convert the files, e.g. iconv -f UTF-16 -t UTF-8, or name UTF-8, latin-1, cp1252, ..."
            raise RequestError(field="encoding", message=message, hint=hint)
        object.__setattr__(self, "nulls", _texts(self.nulls, "nulls", 'write e.g. nulls: ["", "-"]'))
        for text in self.nulls:
            if "\n" in text or "\r" in text:
                raise RequestError(
                    field="nulls", message="lists a text with a line break, which no cell has", hint="drop it"
                )
            try:
                text.encode(self.codec)
            except UnicodeEncodeError:
                message = f"lists {text!r}, which {self.encoding} cannot write"
                raise RequestError(field="nulls", message=message, hint="drop it") from None
        if self.names is not None:
            names = _texts(self.names, "names", "write the name of each column in the order of the cells")
            object.__setattr__(self, "names", names)
            doubled = [name for name in names if names.count(name) > 1]
            if doubled or not any(names):
                message = f"names column {doubled[0]!r} twice" if doubled else "names no column"
                raise RequestError(field="names", message=message, hint="name each column once")
        for field in ("date_formats", "timestamp_formats"):
            object.__setattr__(self, field, csv_times.checked(getattr(self, field), field[:-1]))
        if not isinstance(self.formats, Mapping):
            raise RequestError(
                field="formats", message="must map column names to formats", hint='write e.g. {DAY: "%d.%m.%Y"}'
            )
        listed = {name: csv_times.checked(formats, f"formats.{name}") for name, formats in self.formats.items()}
        object.__setattr__(self, "formats", listed)

    def _check_marks(self) -> None:
        for field, mark in (("delimiter", self.delimiter), ("quote", self.quote)):
            if field == "quote" and mark is None:
                continue
            if not isinstance(mark, str) or len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in "\n\r\0":
                hint = (
                    'write e.g. delimiter: ";", or "\\t" for a tab'
                    if field == "delimiter"
                    else 'write e.g. quote: "\'"'
                )
                message = "must be one ASCII character, and no letter, digit or line end"
                raise RequestError(field=field, message=message, hint=hint)
        if self.quote == self.delimiter:
            raise RequestError(field="quote", message="is the delimiter too", hint="choose another character")

    def _check_numbers(self) -> None:
        if self.decimal not in (".", ","):
            raise RequestError(field="decimal", message="must be '.' or ','", hint='write decimal: ","')
        mark = self.thousands
        if mark is not None:
            if not isinstance(mark, str) or len(mark) != 1 or mark.isalnum() or mark in "+-\n\r\0":
                message = "must be one character, and no letter, digit or sign"
                raise RequestError(field="thousands", message=message, hint='write e.g. thousands: ","')
            if mark == self.decimal:
                hint = 'write decimal: "," beside thousands: "."' if mark == "." else "choose another character"
                raise RequestError(field="thousands", message="is the decimal separator too", hint=hint)
        for field in ("decimal", "thousands"):
            if getattr(self, field) == self.delimiter and self.quote is None:
                message = "is the delimiter too, and no cell stands in quotation marks"
                raise RequestError(field=field, message=message, hint="declare the delimiter of the files")

    def _is_known(self) -> bool:
        try:
            return self.codec in _UTF_8 or bool(_SINGLE_BYTE.fullmatch(self.codec))
        except LookupError:
            return False

    @functools.cached_property
    def codec(self) -> str:
        """Return the encoding by the name that Python gives it."""
        return codecs.lookup(self.encoding).name

    @property
    def is_utf_8(self) -> bool:
        """Return True if cells are UTF-8; else every byte is a character, or invalid."""
        return self.codec in _UTF_8

    @property
    def separator(self) -> int:
        """Return the byte between cells."""
        return ord(self.delimiter)

    @property
    def mark(self) -> int | None:
        """Return the byte around quotations."""
        return None if self.quote is None else ord(self.quote)

    def formats_of(self, name: str, *, date: bool) -> Sequence[str]:
        """Return the formats of a column of dates or timestamps; empty for ISO 8601.

        Args:
            name: of the column.
            date: True for dates, False for timestamps.
        """
        return self.formats.get(name, self.date_formats if date else self.timestamp_formats)

    def to_json(self) -> dict[str, Any]:
        """Return the settings that differ from the default, as JSON values: arguments that make the same format again.

        >>> CsvFormat(delimiter="|").to_json()
        {'delimiter': '|'}
        """
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        changed = {name: value for name, value in plain.items() if value != getattr(DEFAULT, name)}
        if "formats" in changed:
            changed["formats"] = {name: list(formats) for name, formats in self.formats.items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}


def _texts(value: Any, field: str, hint: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
        raise RequestError(field=field, message="must be a list of texts", hint=hint)
    return tuple(value)


DEFAULT = CsvFormat()
"""UTF-8 with commas, a header line, and quotation marks where a cell needs them."""
