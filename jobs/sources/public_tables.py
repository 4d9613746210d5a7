"""Public tables: a job's lookup tables and lists of partitions, whole in memory.

In: files of one format. Out: an Arrow table; where one of its rows stands. Holds: whatever is wrong is an error that names the
file and, in CSV, the line and the column; types that are not declared follow from the cells, which are public. Not covered:
tables too large for memory.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources.source_files import TYPES
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import csv_lines, csv_values
from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat
from dp_pipelines.steps.read_files import open_parquet, whole_table


def read_public(
    files: Sequence[str],
    *,
    csv_types: Mapping[str, str] | None,
    is_csv: bool,
    field: str,
    form: CsvFormat = DEFAULT,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """A small public table whole: a lookup table or a list of partitions.

    Args:
        files: of the table.
        csv_types: of some columns of CSV files.
        is_csv: the format of the files; else they are Parquet.
        field: the name for errors.
        form: how CSV files are written.
        columns: of Parquet files to read, if they have them; None: all.

    Raises:
        RequestError: it cannot be read.
    """
    try:
        if is_csv:
            kinds = _types(csv_types or {}, field)
            tables = [_csv(path, kinds, field, form) for path in files]
        else:
            tables = [_parquet(path, columns, field) for path in files]
        return pa.concat_tables(tables)
    except RequestError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        listed = ", ".join(repr(path) for path in files[:3])
        message = f"cannot be read as {'CSV' if is_csv else 'Parquet'}: {listed}"
        raise RequestError(field=field, message=message, hint="check the file") from None


def place_of(files: Sequence[str], row: int, *, is_csv: bool, form: CsvFormat = DEFAULT) -> str:
    """Where a row of a public table stands, in words: the line of a CSV file, or the row of a Parquet file.

    Args:
        files: of the table, in the order in which it was read.
        row: of all files together, from 0.
        is_csv: their format.
        form: how CSV files are written.
    """
    for path in files:
        if is_csv:
            places = [number for number, _ in _lines(pathlib.Path(path).read_bytes(), form)]
        else:
            with open_parquet(path) as file:
                places = list(range(1, file.metadata.num_rows + 1))
        if row < len(places):
            return f"{'line' if is_csv else 'row'} {places[row]} of {path!r}"
        row -= len(places)
    return "the lookup table"


def _parquet(path: str, columns: Sequence[str] | None, field: str) -> pa.Table:
    try:
        return whole_table(path, columns)
    except RequestError as error:
        raise RequestError(field=field, message=f"{error.field} of {path!r} {error.message}", hint=error.hint) from None


def _types(declared: Mapping[str, str], field: str) -> dict[str, pa.DataType]:
    for name, kind in declared.items():
        if kind not in TYPES:
            hint = nearest(kind, TYPES, "types")
            raise RequestError(field=f"{field}.types.{name}", message=f"unknown type {kind!r}", hint=hint)
    return {name: TYPES[kind] for name, kind in declared.items()}


def _lines(content: bytes, form: CsvFormat) -> Iterator[tuple[int, bytes]]:
    """The lines that are rows of a file in which every line is one or empty, with their numbers."""
    header = form.names is None
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.rstrip(b"\r"):
            if not header:
                yield number, line
            header = False


def _csv(path: str, kinds: Mapping[str, pa.DataType], field: str, form: CsvFormat) -> pa.Table:
    """A public file, in which every line must be a row and every cell fit: an error gives the number of a line that does not."""
    content = pathlib.Path(path).read_bytes()
    if not content.strip() and form.names is None:
        raise ValueError("a file without a header")
    number = csv_lines.not_rows(content, form)
    if number is not None:
        message = f"has a line {number} in {path!r} that does not fit the columns of the header"
        hint = "a line feed ends a row, even inside quotation marks; give each row as many cells as the header"
        raise RequestError(field=field, message=message, hint=hint)
    _refuse_other_bytes(content, path, field, form)
    first = csv_lines.header(content[: csv_lines.LONGEST_HEADER + 1], form)
    mark = csv_lines.other_separator(first.names, kinds) if first is not None else ""
    if mark:
        message = f"has a header of one column in {path!r}; its separator seems to be {mark!r}"
        raise RequestError(field=field, message=message, hint="declare it as delimiter:")
    for name in kinds:
        if first is not None and name not in first.names:
            hint = nearest(name, first.names, "columns")
            raise RequestError(field=f"{field}.types.{name}", message=f"is no column of {path!r}", hint=hint)
    content = content.decode(form.codec).encode() if not form.is_utf_8 else content
    reading = pa.csv.ReadOptions(block_size=min(len(content) + 1, 2**31 - 1), column_names=form.names)
    # Declared columns are read as they are written, so that a cell that does not fit is known by its line.
    parsed = pa.csv.read_csv(
        pa.BufferReader(content),
        read_options=reading,
        parse_options=pa.csv.ParseOptions(delimiter=form.delimiter, quote_char=form.quote or False),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(kinds, pa.string()), null_values=form.nulls, decimal_point=form.decimal
        ),
    )
    for name, kind in kinds.items():
        if not pa.types.is_string(kind):
            place = parsed.schema.get_field_index(name)
            text = keys.one_array(parsed.column(name))
            parsed = parsed.set_column(place, name, _typed(text, name, kind, path, field, form))
    return parsed


def _typed(text: pa.Array, name: str, kind: pa.DataType, path: str, field: str, form: CsvFormat) -> pa.Array:
    """A declared column. Raises: RequestError for a cell that is neither null nor of the type."""
    said = pc.invert(pc.is_in(text, pa.array(form.nulls, pa.string())))
    found = csv_values.text_values(text, name, kind, form)
    wrong = pc.and_(said, pc.is_null(found))
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        place = place_of([path], row, is_csv=True, form=form)
        message = f"has a cell in column {name!r} that is no {kind}, in {place}"
        raise RequestError(field=field, message=message, hint="correct the cell, or declare another type or null token")
    return pc.if_else(said, found, None)


def _refuse_other_bytes(content: bytes, path: str, field: str, form: CsvFormat) -> None:
    """Refuse bytes that the encoding does not have. Raises: RequestError with the line."""
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            line.decode(form.codec)
        except UnicodeDecodeError:
            message = f"has a line {number} in {path!r} that is not {form.encoding}"
            raise RequestError(field=field, message=message, hint="declare encoding:, e.g. latin-1 or cp1252") from None
