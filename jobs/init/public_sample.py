"""Takes names and types of columns from a public sample: a file of CSV or JSON lines whose rows are nobody's.

In: a file that the user calls public, its format. Out: a type for each column, and how the file is written. Holds: only that
file is read, never one of the source. Not covered: whether it is public, which only the user knows.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from dp_pipelines.engine import compressed
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.kernels.columns import csv_lines
from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat

LONGEST = 2**26
"""Bytes of a sample at most: a few hundred rows are enough."""

LEADING_ZERO = r"^-?0[0-9]"
"""A number that is written so is a code."""

COMMA = r"^-?[0-9]+(\.[0-9]{3})*,[0-9]+$"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledColumns:
    """What a sample says.

    Args:
        types: of the columns, as a job file declares them.
        written: how the file is written, as `source:` says it.
    """

    types: Mapping[str, str]
    written: Mapping[str, Any]


def look(path: str, file_format: str, written: Mapping[str, Any]) -> SampledColumns:
    """Names and types of the columns of a public sample.

    Args:
        path: of the sample.
        file_format: `csv` or `jsonl`.
        written: of CSV: what the user says of how files are written.

    Raises:
        RequestError: it cannot be read as a file of this format.
    """
    content = _content(path)
    try:
        if file_format == "jsonl":
            return SampledColumns(types=_types_of(pyarrow.json.read_json(pa.BufferReader(content))), written=written)
        return _of_csv(content, path, with_separator(path, written))
    except (pa.ArrowException, ValueError, LookupError):
        lines = file_format == "jsonl"
        message = f"cannot be read as {'JSON lines' if lines else 'CSV'}, as the files are: {path!r}"
        hint = (
            "write one JSON object on each line of the sample" if lines else "check how it is written, e.g. --delimiter"
        )
        raise RequestError(field="--like", message=message, hint=hint) from None


def with_separator(path: str, written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the separator of a public header, where nobody says it.

    Args:
        path: of the file.
        written: what the user says.
    """
    if "delimiter" in written:
        return written
    line = _content(path, csv_lines.LONGEST_HEADER).partition(b"\n")[0]
    found = max((b",", b";", b"\t", b"|"), key=line.count)
    return written if found == b"," else {**written, "delimiter": found.decode()}


def header_of(path: str, form: CsvFormat = DEFAULT) -> tuple[str, ...]:
    """The names in a public header.

    Args:
        path: of the file.
        form: how it is written.

    Raises:
        RequestError: it has none that can be read.
    """
    start = _content(path, csv_lines.LONGEST_HEADER + 1)
    found = None if start.startswith(source_files.UTF_16) else csv_lines.header(start, form)
    if found is None:
        source_files.look_at_csv((path,), {"": "string"}, form)  # says what is wrong with the file
        raise AssertionError("look_at_csv refuses a file without a header")
    return tuple(dict.fromkeys(name for name in found.names if name))


def _content(path: str, most: int = LONGEST) -> bytes:
    try:
        with pathlib.Path(path).open("rb") as stream:
            return compressed.plain(path, stream).read(most)
    except compressed.DAMAGES:
        raise RequestError(field=f"file {path!r}", message="cannot be read", hint="check its name") from None


def _of_csv(content: bytes, path: str, written: Mapping[str, Any]) -> SampledColumns:
    table, texts = _read(content, written), _read(content, written, as_text=True)
    types, numbers = _types_of(table), 0
    for name in table.column_names:
        text = texts.column(name).drop_null()
        if types[name] == "int64" and pc.any(pc.match_substring_regex(text, LEADING_ZERO)).as_py():
            types[name] = "string"
        if types[name] == "string" and len(text) and pc.all(pc.match_substring_regex(text, COMMA)).as_py():
            types[name], numbers = "double", numbers + 1
    if numbers and "decimal" not in written and written.get("delimiter", ",") != ",":
        written = {**written, "decimal": ","}
    return SampledColumns(types=types, written=written)


def _read(content: bytes, written: Mapping[str, Any], *, as_text: bool = False) -> pa.Table:
    nulls = {} if "nulls" not in written else {"null_values": list(written["nulls"])}
    parse = pyarrow.csv.ParseOptions(delimiter=written.get("delimiter", ","), quote_char=written.get("quote", '"'))
    read = pyarrow.csv.ReadOptions(use_threads=False, encoding=written.get("encoding", "utf-8"), block_size=LONGEST)
    convert = pyarrow.csv.ConvertOptions(
        decimal_point=written.get("decimal", "."), strings_can_be_null=True, quoted_strings_can_be_null=False, **nulls
    )
    if as_text:
        names = pyarrow.csv.read_csv(
            pa.BufferReader(content), read_options=read, parse_options=parse, convert_options=convert
        ).column_names
        convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True)
    return pyarrow.csv.read_csv(
        pa.BufferReader(content), read_options=read, parse_options=parse, convert_options=convert
    )


def _types_of(table: pa.Table) -> dict[str, str]:
    """The declared type of each column that is not nested."""
    fields = (field for field in table.schema if field.name and not pa.types.is_nested(field.type))
    return {field.name: _name_of(field.type) for field in fields}


def _name_of(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    named = {pa.bool_(): "bool", pa.int64(): "int64", pa.float64(): "double", pa.date32(): "date"}
    return named.get(kind, "string")
