"""Parquet and CSV files as Arrow tables of bounded size, by steps.

In: paths. Out: tables of a few megabytes, first one without rows that tells the types. Holds: only the requested columns are
read; a damaged file fails the run with the file's name and no value. Not covered: which files there are (`transforms.read`,
`jobs.sources`); anyone who watches can see sizes and times of reads.
"""

import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from dp_pipelines.engine import compressed
from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import csv_lines, dictionary_page
from dp_pipelines.kernels.columns.column_types import (
    has_fixed_lists_inside,
    readable,
    readable_schema,
    refused_for_rows,
    restored,
)
from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat
from dp_pipelines.kernels.columns.csv_values import values
from dp_pipelines.kernels.columns.long_text import is_text
from dp_pipelines.kernels.sizes import BATCH_BYTES
from dp_pipelines.steps import folder_columns
from dp_pipelines.steps.flow import Flow, Opener
from dp_pipelines.steps.folder_columns import FolderColumns
from dp_pipelines.steps.step import Step

TOGETHER_BYTES = 64 * 2**20
"""Row groups of a file are read together as one element up to this many bytes; one of twice as many is read in parts."""

FEW_BYTES = 8 * 2**20
"""The same for engines whose threads share the row groups of a file."""

BATCH_ROWS = 2**19
"""The most rows of a table."""

LEAST_ROWS = 2**12
"""Tables have so many rows, however much these take in files: fewer would cost more than they hold."""

LEAST_WIDE_ROWS = 2**8
"""The same where rows travel wide, as vectors of thousands of numbers do: then each costs much itself."""

TEXT_ROWS = 2**9
"""How many rows are decoded at a time if a long text, held once by the file, may appear in all of them."""

LONG_ENTRY = 2**10
"""Bytes of a text. A column whose dictionary holds a longer one is read as codes, even if few rows share each entry."""

AS_CODES = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED"})
"""The page encodings whose texts Arrow can read as codes."""

NO_ROWS = -1
"""Where a file begins: a table without rows comes first."""


@dataclasses.dataclass(frozen=True)
class Shuffled:
    """Bytes of a row as it is shuffled: one column of a file may travel as many.

    Args:
        widest: in the stage in which it takes most, where it is joined to most rows.
        together: in all stages.
    """

    widest: int = 0
    together: int = 0

    def most_rows(self) -> int:
        """The most rows of a table that is read: what becomes of them should be as small as they are."""
        return max(min(BATCH_ROWS, BATCH_BYTES // max(self.widest, 1)), LEAST_WIDE_ROWS)


UNKNOWN = Shuffled()


def parquet_tables(
    files: Flow,
    columns: Sequence[str] | None,
    shuffled: Shuffled = UNKNOWN,
    added: FolderColumns = folder_columns.NONE,
) -> Flow:
    """The tables of Parquet files.

    Args:
        files: their paths.
        columns: to read; None: all, of files that hold them themselves.
        shuffled: what becomes of a row.
        added: columns that files do not hold themselves.
    """
    # Whoever computes in as many threads as there are cores needs no more of them inside Arrow.
    together = FEW_BYTES if files.own_threads else TOGETHER_BYTES
    own = None if columns is None else added.of_files(columns)
    read: Step = ReadRowGroups(
        own,
        use_threads=not files.own_threads,
        opener=files.opener,
        shuffled=shuffled,
        optional=frozenset(added.optional),
    )
    read = added.around(read, columns or ())
    return files.each("RowGroups", RowGroups(together, files.opener, shuffled)).each("Read", read)


def csv_tables(
    files: Flow,
    types: dict[str, pa.DataType],
    form: CsvFormat = DEFAULT,
    shuffled: Shuffled = UNKNOWN,
    added: FolderColumns = folder_columns.NONE,
) -> Flow:
    """The tables of CSV files.

    Args:
        files: their paths.
        types, form: as for `ReadCsvFile`.
        shuffled: what becomes of a row.
        added: columns that names of folders say, which `types` has too.
    """
    own = {name: types[name] for name in added.of_files(list(types))}
    read = added.around(ReadCsvFile(own, form, opener=files.opener, shuffled=shuffled), list(types))
    return files.spread("Spread").each("Read", read)


def open_local(path: str) -> BinaryIO:
    """A file of this machine, read without Python's lock."""
    return cast(BinaryIO, pa.OSFile(path))


def open_parquet(file: Any, **options: Any) -> pa.parquet.ParquetFile:
    """A Parquet file of rows, or of public values. Files from elsewhere are opened by this function alone.

    Times of 96 bits become microseconds. Arrow's default is nanoseconds, in which times before 1677 or after 2262 wrap around to
    other years without an error. `readable` is for the tables.

    Args:
        file: a path, or the open file.
        options: of Arrow.
    """
    return pa.parquet.ParquetFile(file, coerce_int96_timestamp_unit="us", **options)


def batches_of(
    stream: Any, file: pa.parquet.ParquetFile, columns: Sequence[str], at_once: int, **options: Any
) -> Iterator[pa.RecordBatch]:
    """Some columns of a file, with nulls in lists of a fixed size, and with more values than their stored type has codes for.

    Arrow refuses a whole file where one such list is null, since Parquet stores it without values, and where a column of narrow
    codes has too many values. These columns are read as if nobody had stored their Arrow type, and get its readable form.

    Args:
        stream: what the file was opened from.
        file: the file, as `open_parquet` gave it.
        columns: to read.
        at_once: rows of a batch at most.
        options: of `ParquetFile.iter_batches`.

    Raises:
        RequestError: a column has lists of a fixed size inside it, and a null in these would end the reading.
    """
    stored = {name: file.schema_arrow.field(name).type for name in columns}
    stored = {name: kind for name, kind in stored.items() if refused_for_rows(kind)}
    for name, kind in stored.items():
        if has_fixed_lists_inside(kind):
            message = "has lists of a fixed size inside it, of which Arrow can read no nulls"
            hint = "write them as lists without a fixed size, or read other columns"
            raise RequestError(field=f"column {name!r}", message=message, hint=hint)
    if not stored:
        yield from file.iter_batches(at_once, columns=list(columns), **options)
        return
    footer = io.BytesIO()
    file.metadata.write_metadata_file(footer)
    # As many bytes as before, so that the footer stays whole.
    unnamed = footer.getvalue().replace(b"ARROW:schema", b"ARROW:unused")
    codes = [name for name, kind in stored.items() if pa.types.is_dictionary(kind)]
    plain = open_parquet(stream, metadata=pa.parquet.read_metadata(io.BytesIO(unnamed)), read_dictionary=codes)
    others = [name for name in columns if name not in stored]
    read = {True: plain.iter_batches(at_once, columns=list(stored), **options)}
    if others:
        read[False] = file.iter_batches(at_once, columns=others, **options)
    for parts in _side_by_side(read):
        arrays = [
            restored(parts[True].column(name), stored[name]) if name in stored else parts[False].column(name)
            for name in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def whole_table(file: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file of public values, or of a list of deleted rows, in readable types.

    Args:
        file: a path, or the open file.
        columns: to read, if the file has them; None: all.
    """
    opened = open_parquet(file)
    fields = [field for field in opened.schema_arrow if columns is None or field.name in columns]
    names = [field.name for field in fields]
    if not any(refused_for_rows(field.type) for field in fields):
        return readable(opened.read(columns=names))
    schema = readable_schema(pa.schema(fields))
    tables = [readable(pa.Table.from_batches([batch])) for batch in batches_of(file, opened, names, BATCH_ROWS)]
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])


def _side_by_side(read: Mapping[bool, Iterator[pa.RecordBatch]]) -> Iterator[dict[bool, pa.RecordBatch]]:
    """Batches of the same rows from readers that cut them differently."""
    parts = {which: next(batches, None) for which, batches in read.items()}
    while all(part is not None for part in parts.values()):
        whole = {which: part for which, part in parts.items() if part is not None}
        rows = min(part.num_rows for part in whole.values())
        yield {which: part.slice(0, rows) for which, part in whole.items()}
        parts = {
            which: part.slice(rows) if part.num_rows > rows else next(read[which], None)
            for which, part in whole.items()
        }


class RowGroups(Step):
    """Which rows of a Parquet file are read together: row groups, or parts of one.

    Args:
        together: up to how many bytes, uncompressed or as they are shuffled; None: `TOGETHER_BYTES`.
        opener: opens files.
        shuffled: what becomes of a row.
    """

    gives = tuple[tuple[str, int], int]

    def __init__(self, together: int | None = None, opener: Opener = open_local, shuffled: Shuffled = UNKNOWN) -> None:
        self._together, self._opener = TOGETHER_BYTES if together is None else together, opener
        self._shuffled = shuffled

    def process(self, path: str) -> Iterator[tuple[tuple[str, int], int]]:
        """File and first row, with the row after the last."""
        with self._opener(path) as stream:
            try:
                metadata = open_parquet(stream).metadata
                groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
                sizes = [(group.num_rows, group.total_byte_size) for group in groups]
            except (pa.ArrowException, OSError, ValueError):
                raise DamagedInputError(f"file {path!r}: is not a complete Parquet file") from None
        # The row before the first stands for a table without rows: types are known even where there are none.
        begin, end, held = NO_ROWS, 0, 0
        for rows, size in sizes:
            wide = rows * self._shuffled.together
            size = max(size, wide)
            if held and held + size > self._together:
                yield (path, begin), end
                begin, held = end, 0
            # A part is decoded from where its group begins, which costs little beside what makes rows wide.
            part = rows if wide <= 2 * TOGETHER_BYTES else -(-rows * TOGETHER_BYTES // wide)
            for cut in range(end + part, end + rows, max(part, 1)):
                yield (path, begin), cut
                begin = cut
            held, end = held + size, end + rows
        yield (path, begin), end


class ReadRowGroups(Step):
    """The tables of rows that are read together.

    Args:
        columns: to read; None: all.
        use_threads: whether Arrow decodes columns in threads of its own.
        opener: opens files.
        shuffled: what becomes of a row.
        optional: columns that are left out of the tables of a file that lacks them.
    """

    alone = True

    def __init__(
        self,
        columns: Sequence[str] | None,
        use_threads: bool = True,
        opener: Opener = open_local,
        shuffled: Shuffled = UNKNOWN,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self._columns, self._use_threads = None if columns is None else list(columns), use_threads
        self._opener, self._most_rows, self._optional = opener, shuffled.most_rows(), optional

    def process(self, element: tuple[tuple[str, int], int]) -> Iterator[pa.Table]:
        """Tables, the first one without rows if the file begins here."""
        (path, begin), end = element
        yield from self.rows(path, begin, end, self._columns)

    def rows(self, path: str, begin: int, end: int, columns: list[str] | None) -> Iterator[pa.Table]:
        """The rows of a file from one place to another, in their order.

        Args:
            path: of the file.
            begin: the first row; `NO_ROWS`: a table without rows first, then all from the first row on.
            end: the row after the last.
            columns: to read; None: all.
        """
        with self._opener(path) as stream:
            try:
                file = open_parquet(stream)
                if columns is not None and self._optional:
                    held = set(file.schema_arrow.names)
                    columns = [name for name in columns if name in held or name not in self._optional]
                if begin == NO_ROWS:
                    empty = readable_schema(file.schema_arrow).empty_table()
                    yield empty if columns is None else empty.select(columns)
                first = 0
                for group in range(file.metadata.num_row_groups):
                    rows = file.metadata.row_group(group).num_rows
                    start, stop = max(begin - first, 0), min(end - first, rows)
                    if start < stop:
                        yield from map(readable, self._tables(stream, file, group, start, stop, columns))
                    first += rows
            except (pa.ArrowException, OSError, ValueError):
                raise DamagedInputError(f"file {path!r}: a row group cannot be read; it is damaged") from None

    def _tables(
        self,
        stream: BinaryIO,
        file: pa.parquet.ParquetFile,
        group: int,
        start: int,
        stop: int,
        columns: list[str] | None,
    ) -> Iterator[pa.Table]:
        """Some rows of a group."""
        codes = _repeating_text(file, group)
        codes += [
            chunk.path_in_schema
            for chunk in _uncertain(file, group, columns, codes)
            if _has_long_entry(stream, group, chunk)
        ]
        file = open_parquet(stream, read_dictionary=codes, metadata=file.metadata)
        rows = min(_batch_rows(file, group, columns), self._most_rows)
        at_once = min(rows, TEXT_ROWS) if _decodes_text(file, group, columns, codes) else rows
        names = file.schema_arrow.names if columns is None else columns
        read = batches_of(stream, file, names, at_once, row_groups=[group], use_threads=self._use_threads)
        whole = stop - start == file.metadata.row_group(group).num_rows
        yield from _gathered(read if whole else _between(read, start, stop), rows)


def _between(batches: Iterable[pa.RecordBatch], start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Some rows of several batches, and no batch after them."""
    first = 0
    for batch in batches:
        begin, end = max(start - first, 0), min(stop - first, batch.num_rows)
        if begin < end:
            yield batch.slice(begin, end - begin)
        first += batch.num_rows
        if first >= stop:
            return


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
    """Text columns that are not read as codes, although their dictionary may hold a long text shared by many rows."""
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
    file = open_parquet(stream, read_dictionary=[name], pre_buffer=False, buffer_size=2**20)
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
    return int(min(max(BATCH_BYTES / max(width, 1.0), LEAST_ROWS), BATCH_ROWS))


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


class ReadCsvFile(Step):
    """The tables of a CSV file.

    Args:
        types: of the columns that are read.
        form: of the file.
        block: bytes that are read at a time.
        opener: opens files.
        shuffled: what becomes of a row.
    """

    def __init__(
        self,
        types: dict[str, pa.DataType],
        form: CsvFormat = DEFAULT,
        block: int = csv_lines.BLOCK,
        opener: Opener = open_local,
        shuffled: Shuffled = UNKNOWN,
    ) -> None:
        self._types, self._form, self._block, self._opener = types, form, block, opener
        self._most_rows = shuffled.most_rows()

    def process(self, path: str) -> Iterator[pa.Table]:
        """Tables, the first one without rows."""
        with self._opener(path) as stream:
            try:
                yield from self._tables(compressed.plain(path, stream))
            except compressed.DAMAGES:
                raise DamagedInputError(f"file {path!r}: is not a CSV file with the declared columns") from None

    def _tables(self, stream: BinaryIO) -> Iterator[pa.Table]:
        # Cells are read as text and converted one by one: a cell that does not fit is null, and decides nothing else.
        rows = csv_lines.read(stream, list(self._types), self._form, block=self._block)
        yield pa.table({name: pa.array([], kind) for name, kind in self._types.items()})
        for table in rows:
            for batch in table.to_batches(max_chunksize=self._most_rows):
                columns = [values(batch.column(name), name, kind, self._form) for name, kind in self._types.items()]
                yield pa.table(dict(zip(self._types, columns, strict=True)))
