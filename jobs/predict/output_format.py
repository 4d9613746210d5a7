"""The format of a file of predictions, by the end of its name: Parquet, or text that may be compressed.

In: the name of the output, tables of predictions. Out: a file in that format. Holds: what the format cannot hold is refused by
the types of columns, before anything is predicted. Not covered: the bytes of text (`outputs.text_tables`).
"""

import pathlib
from collections.abc import Iterator, Mapping

import pyarrow as pa

from dp_pipelines.engine import compressed
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.outputs.text_tables import CsvText, JsonLinesText, TextFormat, TsvText

PARQUET = ".parquet"

TEXTS: Mapping[str, TextFormat] = {f".{text.name}": text for text in (CsvText(), TsvText(), JsonLinesText())}
"""What is written in place of Parquet, by the end of the output's name."""


def text_format(output: pathlib.Path) -> TextFormat | None:
    """Return the text format that the end of the output's name says; None for Parquet, also where it has no ending.

    Args:
        output: what will be written.

    Raises:
        RequestError: it says none, or compresses a Parquet file, whose columns are compressed already.
    """
    ending, codec = compressed.ending_of(_with_stem(output.name)), compressed.codec_of(_with_stem(output.name))
    if ending in TEXTS:
        return TEXTS[ending]
    if ending in ("", PARQUET) and codec is None:
        return None
    message = "would be Parquet that is compressed as a whole" if ending == PARQUET else "has an unknown ending"
    texts, codecs = ", ".join(TEXTS), ", ".join(compressed.CODECS)
    hint = f"name a file that ends in {PARQUET}, {texts}, or one of the latter with {codecs} behind it"
    raise RequestError(field=f"output {str(output)!r}", message=message, hint=hint)


def _with_stem(name: str) -> str:
    """Return the name of a file with something before its ending, also where the ending is the whole name: `.csv`.

    >>> _with_stem(".csv.gz"), _with_stem("scores.csv")
    ('_.csv.gz', '_scores.csv')
    """
    return f"_{name}"


def refused_first(tables: Iterator[pa.Table], text: TextFormat | None, output: pathlib.Path) -> Iterator[pa.Table]:
    """Yield tables of one schema, after the format of the output was asked whether it can hold their columns.

    Raises:
        RequestError: it cannot; of the tables only the first one, which has no rows, was made.
    """
    for number, table in enumerate(tables):
        if text is not None and number == 0:
            for column, rule, _ in text.refused(table.schema):
                hint = f"name an output that ends in {PARQUET}"
                raise RequestError(field=f"output {str(output)!r}", message=f"column {column!r} {rule}", hint=hint)
        yield table


def as_named(table: pathlib.Path, text: TextFormat | None, output: pathlib.Path) -> pathlib.Path:
    """The predictions in the format of the output, compressed where its name says so.

    Args:
        table: their Parquet file.
        text: the format; None for Parquet.
        output: what will be written.
    """
    if text is None:
        return table
    named = table.with_suffix(f".{text.name}")
    text.write(table, named)
    table.unlink()
    codec = compressed.codec_of(_with_stem(output.name))
    if codec is None:
        return named
    packed = table.with_suffix(".packed")
    with (
        named.open("rb") as source,
        pa.OSFile(str(packed), "wb") as sink,
        pa.CompressedOutputStream(sink, codec) as stream,
    ):
        while block := source.read(compressed.BLOCK):
            stream.write(block)
    named.unlink()
    return packed
