"""Sources: Parquet and CSV files as a PCollection of Arrow tables of bounded size.

In: file patterns and column names. Out: tables of a few megabytes. Holds: only the requested columns are read; a damaged
file fails the pipeline with the file's name and no value. Not covered: anyone who watches the runner can see sizes and
times of reads.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import csv_lines, dictionary_page
from dp_pipelines.kernels.columns.csv_cells import cells_as
from dp_pipelines.kernels.columns.long_text import is_text
from dp_pipelines.kernels.sizes import BATCH_BYTES
from dp_pipelines.transforms import single_element_bundles

TOGETHER_BYTES = 64 * 2**20
"""Row groups of a file that are read as one element, by their uncompressed bytes, unless one is larger."""

BATCH_ROWS = 2**19
"""Rows of a table at most."""

TEXT_ROWS = 2**9
"""Rows that are decoded at a time where nobody knows how long a text may stand in all of them, though the file holds it once."""

LONG_ENTRY = 2**10
"""Bytes of a text: a column whose dictionary holds a longer one is read as codes, however few rows share an entry."""

AS_CODES = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED"})
"""Encodings of pages whose texts Arrow can read as codes."""


@dataclasses.dataclass
class ReadParquet(beam.PTransform):
    """Read Parquet files as Arrow tables.

    Args:
        files: a pattern, or a list of patterns or paths, on any filesystem that Beam supports.
        columns: names of the columns to read; all by default.

    >>> ReadParquet("events/*.parquet", columns=["customer", "amount"]).columns
    ['customer', 'amount']
    """

    files: str | Sequence[str]
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pbegin: beam.pvalue.PBegin) -> beam.PCollection[pa.Table]:
        """One element for some row groups that are read together, then their tables."""
        return (
            pbegin
            | "Files" >> beam.Create(matching(self.files), reshuffle=False).with_output_types(str)
            | "RowGroups" >> beam.ParDo(_RowGroups()).with_output_types(tuple[tuple[str, int], int])
            | "Read" >> beam.ParDo(_ReadRowGroups(self.columns)).with_output_types(pa.Table)
        )


@dataclasses.dataclass
class ReadCsv(beam.PTransform):
    """Read CSV files with a header line as Arrow tables.

    Args:
        files: a pattern, or a list of patterns or paths.
        types: the type of each column to read, by name: types are public facts, never guessed from the rows. A cell that is
            not of its type is null.
        quoted: whether cells may be in quotation marks. If False, a quotation mark is an ordinary character.

    Each line is a row, whatever it contains: the byte 0x0A always ends a line, even in quotation marks, so that an unclosed
    quotation mark cannot swallow the rows of others. A line is dropped if it is empty, has a different number of cells from
    the header, leaves a quotation mark open, is longer than 16 MiB, or has a carriage return outside quotation marks other
    than at its end. Files whose cells contain line breaks must be converted first (docs/jobs.md explains how).

    Not covered: separators other than the comma.

    >>> ReadCsv("events/*.csv", types={"customer": pa.string()}).files
    'events/*.csv'
    """

    files: str | Sequence[str]
    types: dict[str, pa.DataType]
    quoted: bool = dataclasses.field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.quoted, bool):
            raise RequestError(field="quoted", message="must be true or false")

    def expand(self, pbegin: beam.pvalue.PBegin) -> beam.PCollection[pa.Table]:
        """One element per file, then its tables."""
        return (
            pbegin
            | "Files" >> beam.Create(matching(self.files), reshuffle=False).with_output_types(str)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadCsvFile(dict(self.types), self.quoted)).with_output_types(pa.Table)
        )


def matching(files: str | Sequence[str]) -> list[str]:
    """The paths that match, sorted.

    Raises:
        RequestError: a pattern matches no file.
    """
    patterns = [files] if isinstance(files, str) else list(files)
    found: set[str] = set()
    for pattern, match in zip(patterns, FileSystems.match(patterns), strict=True):
        if not match.metadata_list:
            raise RequestError(field=f"files {pattern!r}", message="match no files", hint="check the path")
        found.update(metadata.path for metadata in match.metadata_list)
    return sorted(found)


class _RowGroups(beam.DoFn):
    def process(self, path: str) -> Iterator[tuple[tuple[str, int], int]]:
        with FileSystems.open(path) as stream:
            try:
                metadata = pa.parquet.ParquetFile(stream).metadata
                sizes = [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]
            except (pa.ArrowException, OSError, ValueError):
                raise DamagedInputError(f"file {path!r}: is not a complete Parquet file") from None
        # The group before the first stands for a table without rows: types are known even where there are none.
        begin, held = -1, 0
        for group, size in enumerate(sizes):
            if held and held + size > TOGETHER_BYTES:
                yield (path, begin), group
                begin, held = group, 0
            held += size
        yield (path, begin), len(sizes)


class _ReadRowGroups(single_element_bundles.OwnBundleDoFn):
    def __init__(self, columns: Sequence[str] | None) -> None:
        super().__init__()
        self._columns = None if columns is None else list(columns)

    def in_a_bundle(self, element: tuple[tuple[str, int], int]) -> Iterator[pa.Table]:
        (path, begin), end = element
        with FileSystems.open(path) as stream:
            try:
                for group in range(begin, end):
                    yield from self._tables(stream, group)
            except (pa.ArrowException, OSError, ValueError):
                raise DamagedInputError(f"file {path!r}: a row group cannot be read; it is damaged") from None

    def _tables(self, stream: BinaryIO, group: int) -> Iterator[pa.Table]:
        file = pa.parquet.ParquetFile(stream)
        if group < 0:
            empty = file.schema_arrow.empty_table()
            yield empty if self._columns is None else empty.select(self._columns)
            return
        codes = _repeating_text(file, group)
        codes += [
            chunk.path_in_schema
            for chunk in _uncertain(file, group, self._columns, codes)
            if _has_long_entry(stream, group, chunk)
        ]
        file = pa.parquet.ParquetFile(stream, read_dictionary=codes, metadata=file.metadata)
        rows = _batch_rows(file, group, self._columns)
        at_once = min(rows, TEXT_ROWS) if _decodes_text(file, group, self._columns, codes) else rows
        yield from _gathered(
            file.iter_batches(at_once, row_groups=[group], columns=self._columns, use_threads=True), rows
        )


def _gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Tables of about `rows` rows, fewer if rows are large: text comes in smaller pieces than numbers."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
        if held_rows >= 0.75 * rows or held_bytes >= 2 * BATCH_BYTES:
            yield pa.Table.from_batches(held)
            held, held_rows, held_bytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _uncertain(
    file: pa.parquet.ParquetFile, group: int, columns: list[str] | None, codes: list[str]
) -> list[pa.parquet.ColumnChunkMetaData]:
    """Text columns that are not read as codes although their dictionary may hold a long text that many rows share."""
    found = []
    for chunk in _chunks(file, group):
        field = chunk.path_in_schema
        read = (columns is None or field in columns) and field not in codes and field in file.schema_arrow.names
        if read and chunk.has_dictionary_page and AS_CODES.issuperset(chunk.encodings):
            found += [chunk] if is_text(file.schema_arrow.field(field).type) else []
    return found


def _has_long_entry(stream: BinaryIO, group: int, chunk: pa.parquet.ColumnChunkMetaData) -> bool:
    """Whether the dictionary of a column chunk holds a long text. Its first page is enough: Arrow reads the dictionary whole."""
    if dictionary_page.all_short(stream, chunk):
        return False
    name = chunk.path_in_schema
    file = pa.parquet.ParquetFile(stream, read_dictionary=[name], pre_buffer=False, buffer_size=2**20)
    for batch in file.iter_batches(1, row_groups=[group], columns=[name]):
        return bool((pc.max(pc.binary_length(batch.column(0).dictionary)).as_py() or 0) > LONG_ENTRY)
    return False


def _chunks(file: pa.parquet.ParquetFile, group: int) -> list[pa.parquet.ColumnChunkMetaData]:
    return [file.metadata.row_group(group).column(i) for i in range(file.metadata.num_columns)]


def _decodes_text(file: pa.parquet.ParquetFile, group: int, columns: list[str] | None, codes: list[str]) -> bool:
    """Whether the columns to read hold texts of any length that the file may store once for many rows.

    Columns read as codes, with a checked dictionary, or stored row by row do not count.
    """
    read = [field for field in file.schema_arrow if columns is None or field.name in columns]
    plain = {c.path_in_schema for c in _chunks(file, group) if AS_CODES.issuperset(c.encodings)}
    return any(f.name not in codes and _holds_text(f.type) and not (is_text(f.type) and f.name in plain) for f in read)


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_text(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_dictionary(kind):  # a schema that Arrow has written: read as codes
        return False
    return is_text(keys.plain_type(kind))


def _batch_rows(file: pa.parquet.ParquetFile, group: int, columns: list[str] | None) -> int:
    """The number of rows in a table of about `BATCH_BYTES`, according to the footer."""
    chunks = _chunks(file, group)
    read = [chunk for chunk in chunks if columns is None or chunk.path_in_schema.split(".")[0] in columns]
    # Numbers take eight bytes a row in memory, however few they take in the file.
    # By the rows of the group: of lists the footer counts the values inside.
    count = max(file.metadata.row_group(group).num_rows, 1)
    width = sum(max(8.0, chunk.total_uncompressed_size / count) for chunk in read)
    return int(min(max(BATCH_BYTES / max(width, 1.0), 2**12), BATCH_ROWS))


def _repeating_text(file: pa.parquet.ParquetFile, group: int) -> list[str]:
    """Text columns that take few bytes per row: they are stored as codes, and reading them as codes is much faster.

    Only text columns, never text inside a list or a struct: those must have one type whatever the rows hold, since not every
    reader accepts codes there.
    """
    plain = {
        field.name for field in file.schema_arrow if pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    }
    chunks = _chunks(file, group)
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.path_in_schema in plain
        and chunk.has_dictionary_page
        and AS_CODES.issuperset(chunk.encodings)
        and chunk.total_uncompressed_size < 4 * chunk.num_values
    ]


class _ReadCsvFile(beam.DoFn):
    def __init__(self, types: dict[str, pa.DataType], quoted: bool = True, block: int = csv_lines.BLOCK) -> None:
        super().__init__()
        self._types, self._quoted, self._block = types, quoted, block

    def process(self, path: str) -> Iterator[pa.Table]:
        with FileSystems.open(path) as stream:
            try:
                yield from self._tables(stream)
            except (pa.ArrowException, OSError, ValueError):
                raise DamagedInputError(f"file {path!r}: is not a CSV file with the declared columns") from None

    def _tables(self, stream: BinaryIO) -> Iterator[pa.Table]:
        # Cells are read as text and converted one by one: a cell that does not fit is null, and decides nothing else.
        rows = csv_lines.read(stream, list(self._types), quoted=self._quoted, block=self._block)
        yield pa.table({name: pa.array([], kind) for name, kind in self._types.items()})
        for table in rows:
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                columns = [cells_as(batch.column(name), kind) for name, kind in self._types.items()]
                yield pa.table(dict(zip(self._types, columns, strict=True)))
