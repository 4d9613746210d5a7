"""A published table as CSV or JSON lines: the same rows in the same order.

In: a Parquet file of a release. Out: a text file of the same rows. Holds: the bytes depend on the table alone; a null, an empty
text and an empty list stay three things; every number can be read back as it was; what a format cannot hold is refused by type,
before a row is read. Not covered: what programs make of a cell that begins with = (docs/outputs.md); rounded numbers and wide
tables (`spreadsheet_csv`).
"""

import abc
import json
import pathlib
from collections.abc import Iterator
from typing import BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dp_pipelines.kernels.columns import gather

ROWS = 2**12
"""Rows that are written at a time, few enough for one array of text. It changes no byte."""

HELD = (
    *(pa.types.is_string, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_date, pa.types.is_time, pa.types.is_timestamp, pa.types.is_null),
)
"""The types of columns that have one value in a row and can be said as text."""


def held(kind: pa.DataType) -> bool:
    """Whether values of a type can be said as text.

    >>> held(pa.list_(pa.float64())), held(pa.binary()), held(pa.duration("s"))
    (True, False, False)
    """
    inside = kind.value_type if pa.types.is_list(kind) else kind
    return any(is_one(inside) for is_one in HELD)


_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Of a fraction of a second, by the units of times."""


class TextFormat(abc.ABC):
    """Base of the text formats.

    Attributes:
        name: in job files, and the suffix of files.
        called: its name in messages.
    """

    name: ClassVar[str]
    called: ClassVar[str]

    @property
    def takes_any_order(self) -> bool:
        """Whether rows may come in any order, and not in that of their keys alone."""
        return True

    def refused(self, schema: pa.Schema) -> Iterator[tuple[str, str, str]]:
        """What it cannot hold of a table: the column, the rule, a hint.

        Args:
            schema: of the table.
        """
        for field in schema:
            if not held(field.type):
                hint = "cast it first, e.g. columns: "
                if pa.types.is_binary(field.type) or pa.types.is_fixed_size_binary(field.type):
                    hint += f'{{{field.name}_hex: "hex({field.name})"}}'
                else:
                    hint += f'{{{field.name}_text: "CAST({field.name} AS VARCHAR)"}}'
                yield field.name, f"is {field.type}, which {self.called} cannot hold", hint

    @abc.abstractmethod
    def write(self, table: pathlib.Path, to: pathlib.Path) -> None:
        """Write a table.

        Args:
            table: its Parquet file.
            to: the file that is written.
        """


class CsvText(TextFormat):
    """UTF-8 with commas and a header line; a null is an empty cell, an empty text is `""`; a list is a JSON array.

    Attributes:
        delimiter: the character between cells.
    """

    name, called = "csv", "CSV"
    delimiter: str = ","

    def refused(self, schema: pa.Schema) -> Iterator[tuple[str, str, str]]:
        """See `TextFormat`."""
        yield from super().refused(schema)
        if len(schema) == 1:
            message = "is the only column, so that a null would be an empty line, which readers of CSV skip"
            yield schema.names[0], message, "add a metric, or write jsonl"

    def write(self, table: pathlib.Path, to: pathlib.Path) -> None:
        """See `TextFormat`."""
        with pa.parquet.ParquetFile(table) as file, to.open("wb") as sink:
            header = csv_cells_of(file.schema_arrow.empty_table())
            options = pa.csv.WriteOptions(delimiter=self.delimiter)
            with pa.csv.CSVWriter(sink, header.schema, write_options=options) as writer:
                for batch in file.iter_batches(batch_size=ROWS):
                    writer.write_table(csv_cells_of(pa.table(batch)))


class TsvText(CsvText):
    """The same with tabs between cells, which the other formats of a job's files do not need."""

    name, called = "tsv", "TSV"
    delimiter = "\t"


class JsonLinesText(TextFormat):
    """One JSON object a row, whose members are the columns, all of them in every row."""

    name, called = "jsonl", "JSON"

    def write(self, table: pathlib.Path, to: pathlib.Path) -> None:
        """See `TextFormat`."""
        with pa.parquet.ParquetFile(table) as file, to.open("wb") as sink:
            for batch in file.iter_batches(batch_size=ROWS):
                write_lines(json_lines_of(pa.table(batch)), sink)


def csv_cells_of(table: pa.Table) -> pa.Table:
    """A table whose columns pyarrow's writer of CSV knows, and says as readers of CSV expect.

    Args:
        table: of columns that are `held`.
    """
    return pa.table({name: _cells(column) for name, column in zip(table.column_names, table.columns, strict=True)})


def csv_texts_of(column: pa.ChunkedArray) -> pa.Array:
    r"""Return the cells of a column as `CsvText` writes them: texts in quotation marks; a null is an empty text.

    Args:
        column: of a type that is `held`, with rows that are few enough for one array.

    >>> print(*csv_texts_of(pa.chunked_array([["a", "", None, "b,c"]])).to_pylist(), sep=";")
    "a";"";;"b,c"
    >>> csv_texts_of(pa.chunked_array([[2.0, None]])).to_pylist()
    ['2', '']
    """
    cells = _cells(column)
    texts = in_quotation_marks(cells) if pa.types.is_string(cells.type) else pc.cast(cells, pa.string())
    return pc.fill_null(texts, "")


def in_quotation_marks(texts: pa.Array) -> pa.Array:
    """Return texts as cells of CSV; null stays null."""
    return pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")


def json_lines_of(table: pa.Table) -> pa.Array:
    r"""A JSON object for each row, in their order.

    Args:
        table: at least one column, and rows that are few enough for one array.

    >>> table = pa.table({"k": ["a", None], "n": [2**53 + 1, 0], "v": pa.array([[1.5, None], []], pa.list_(pa.float64()))})
    >>> print(*json_lines_of(table).to_pylist(), sep="\n")
    {"k":"a","n":9007199254740993,"v":[1.5,null]}
    {"k":null,"n":0,"v":[]}
    """
    members = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        value = pc.fill_null(json_texts(gather.one_array(column)), "null")
        members.append(pc.binary_join_element_wise(json.dumps(name, ensure_ascii=False), value, ":"))
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*members, ","), "}", "")


def json_texts(column: pa.Array) -> pa.Array:
    """The values of a column as JSON; null stays null.

    A decimal is a text, since readers would make a binary fraction of a number; so is what no number of JSON is: "NaN",
    "Infinity" and "-Infinity". Whole numbers have all of their digits.

    Args:
        column: of a type that is `held`.
    """
    kind = column.type
    if pa.types.is_list(kind):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        inside = pc.fill_null(json_texts(column.flatten()), "null")
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, inside), ",")
        return pc.if_else(
            column.is_valid(), pc.binary_join_element_wise("[", joined, "]", ""), pa.scalar(None, pa.string())
        )
    if pa.types.is_string(kind):
        coded = column.dictionary_encode()
        said = [json.dumps(value, ensure_ascii=False) for value in coded.dictionary.to_pylist()]
        return pc.take(pa.array(said, pa.string()), coded.indices)
    text = _text(column)
    if pa.types.is_floating(kind):
        text = pc.if_else(
            pc.equal(text, "-0"), "-0.0", text
        )  # -0 is a whole number to some readers, which have no sign of zero
        others = pc.if_else(pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"'))
        return pc.if_else(pc.is_finite(column), text, others)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return text
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise('"', text, '"', "")


def _cells(column: pa.ChunkedArray) -> pa.Array:
    """A column as CSV has it: numbers, texts and times of day as pyarrow says them, others as text."""
    whole = gather.one_array(column)
    if pa.types.is_list(whole.type):
        return json_texts(whole)
    return _text(whole) if pa.types.is_decimal(whole.type) or _is_of_a_calendar(whole.type) else whole


def _text(column: pa.Array) -> pa.Array:
    """Values as text; null stays null. An instant is said in UTC, whatever its zone."""
    if _is_instant(column.type):
        local = pc.cast(column, pa.timestamp(column.type.unit))  # without a zone, so that no table of zones is needed
        return pc.binary_join_element_wise(_text(local), "Z", "")
    text = pc.cast(column, pa.string())
    if _is_of_a_calendar(column.type):
        beyond = pc.fill_null(
            pc.starts_with(text, "<"), False
        )  # years of which pyarrow says that they are out of range
        if pc.any(beyond).as_py():
            return pc.if_else(beyond, _years_beyond(column), text)
    return text


def _years_beyond(column: pa.Array) -> pa.Array:
    """Dates and times as numpy says them, which knows all years; nulls are anything."""
    if pa.types.is_date(column.type):
        days = pc.fill_null(pc.cast(pc.cast(column, pa.date32()), pa.int32()), 0)
        return pa.array(np.datetime_as_string(np.asarray(days).astype("datetime64[D]")), pa.string())
    # Second by second: to numpy the first moment of a finer unit is no time.
    digits = _DIGITS[column.type.unit]
    seconds, rest = np.divmod(np.asarray(pc.fill_null(pc.cast(column, pa.int64()), 0)), 10**digits)
    said = np.datetime_as_string(seconds.astype("datetime64[s]"))
    if digits:
        said = np.char.add(said, np.char.add(".", np.char.zfill(rest.astype(str), digits)))
    return pc.replace_substring(pa.array(said, pa.string()), "T", " ")


def _is_of_a_calendar(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def write_lines(lines: pa.Array, sink: BinaryIO) -> None:
    """Write texts, each with a line feed behind it."""
    sink.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())


FORMATS: dict[str, TextFormat] = {one.name: one for one in (CsvText(), JsonLinesText())}
"""The text formats, by their names in job files."""
