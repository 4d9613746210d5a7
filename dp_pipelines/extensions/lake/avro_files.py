"""Avro files: their schemas, and their rows as Arrow tables of bounded size.

In: paths, the columns that are read. Out: the common schema of all files; tables, of each file first one without rows. Holds:
types follow from the writers' schemas alone; no value decides more than its own cell: a text that is not UTF-8, a number that its
type does not hold, an unknown symbol is null; a damaged container fails the run with the file's name. Not covered: records, maps
and unions of several types as columns, which are refused where they are used.
"""

import dataclasses
import importlib.util
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.extensions.lake.avro_types import AvroColumn, columns_of, encoded
from dp_pipelines.jobs.sources.readers import DAMAGED_BLOCK, TableReader, known
from dp_pipelines.jobs.sources.source_files import MOST_ERRORS, Source, common, each, size_of, stream_of
from dp_pipelines.jobs.spec.validation_errors import raise_all
from dp_pipelines.kernels.columns import column_casts
from dp_pipelines.kernels.sizes import BATCH_BYTES
from dp_pipelines.steps.flow import Flow, Opener
from dp_pipelines.steps.read_files import UNKNOWN, Shuffled, open_local
from dp_pipelines.steps.step import Step

_SYNC = bytes(16)
"""Between the blocks that are decoded together; those of the file were compared by then."""


@dataclasses.dataclass(frozen=True)
class AvroReader(TableReader):
    """Reads Avro files."""

    def tables(
        self, start: Flow, files: Sequence[str], types: Mapping[str, pa.DataType], shuffled: Shuffled = UNKNOWN
    ) -> Flow:
        """See `TableReader`."""
        read = ReadAvro(types, start.opener, shuffled)
        return known(start, files).spread("Spread").each("Read", read)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AvroHeader:
    """What the beginning of an Avro file says.

    Args:
        columns: by name, those that can be read.
        others: of other columns, their types in words.
        codec: how its blocks are compressed.
        row_bytes: about how many bytes of the file a row takes; private.
    """

    columns: Mapping[str, AvroColumn]
    others: Mapping[str, str]
    codec: str
    row_bytes: int


def header_of(stream: BinaryIO) -> AvroHeader | None:
    """The beginning of an Avro file whose rows are records, or None.

    Args:
        stream: where the file begins.
    """
    import fastavro

    try:
        blocks = fastavro.block_reader(stream)
        schema, codec = blocks.writer_schema, str(blocks.codec)
    except BaseException:  # whatever the bytes are; Polars panics with errors of no usual class
        interrupts.end_if_asked()
        return None
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        return None
    names = [field["name"] for field in schema["fields"]]
    if len(set(names)) < len(names):
        return None
    try:
        first = next(blocks, None)
        row_bytes = 1 if first is None else -(-first.size // max(first.num_records, 1))
    except Exception:  # damaged, or of a codec that is not here: what is public decides elsewhere
        row_bytes = 1
    found = columns_of(schema)
    return AvroHeader(
        columns={name: column for name, column in found.items() if isinstance(column, AvroColumn)},
        others={name: words for name, words in found.items() if isinstance(words, str)},
        codec=codec,
        row_bytes=max(row_bytes, 1),
    )


def codec_is_known(codec: str) -> bool:
    """Whether blocks of a codec can be read here.

    >>> codec_is_known("deflate"), codec_is_known("zip")
    (True, False)
    """
    import fastavro

    try:
        stream = io.BytesIO()
        fastavro.writer(stream, {"type": "record", "name": "r", "fields": []}, [{}], codec=codec)
        return len(list(fastavro.reader(io.BytesIO(stream.getvalue())))) == 1
    except Exception:  # unknown, or its library is not installed
        return False


def unknown_codec(path: str, codec: str) -> RequestError:
    """The error for a file whose blocks cannot be read here."""
    hint = "install the extra: pip install 'dp-pipelines[avro]', or write the file with codec deflate"
    return RequestError(field=f"file {path!r}", message=f"has codec {codec!r}, which cannot be read here", hint=hint)


class ReadAvro(Step):
    """The tables of an Avro file.

    Args:
        types: of the columns that are read, as the writers' schemas have them.
        opener: opens files.
        shuffled: what becomes of a row.
        quick: whether Polars decodes what it can, if it is installed; the same values either way.
    """

    def __init__(
        self,
        types: Mapping[str, pa.DataType],
        opener: Opener = open_local,
        shuffled: Shuffled = UNKNOWN,
        quick: bool = True,
    ) -> None:
        self._types, self._opener, self._most_rows, self._quick = dict(types), opener, shuffled.most_rows(), quick

    def process(self, path: str) -> Iterator[pa.Table]:
        """Tables, the first one without rows."""
        yield pa.table({name: pa.array([], kind) for name, kind in self._types.items()})
        with self._opener(path) as stream:
            tables = self._tables(stream)
            while True:
                try:
                    table = next(tables, None)
                except BaseException as error:  # of the libraries; what it says may quote bytes
                    interrupts.end_if_asked()
                    raise DamagedInputError(f"file {path!r}: {DAMAGED_BLOCK}") from (
                        error if isinstance(error, DamagedInputError) else None
                    )
                if table is None:
                    return
                yield table

    def _tables(self, stream: BinaryIO) -> Iterator[pa.Table]:
        import fastavro

        blocks = fastavro.block_reader(stream)
        schema: Any = blocks.writer_schema
        decoder = _Decoder(schema, columns_of(schema), list(self._types), self._quick)
        for together in _together(blocks):
            found = decoder.rows(together)
            for batch in found.to_batches(max_chunksize=self._most_rows):
                yield pa.Table.from_batches([batch])


def _together(blocks: Any) -> Iterator[list[tuple[int, bytes]]]:
    """Blocks without compression, each with its number of rows; several at a time."""
    held: list[tuple[int, bytes]] = []
    size = 0
    for block in blocks:
        held.append((int(block.num_records), block.bytes_.getvalue()))
        size += len(held[-1][1])
        if size >= BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


class _Decoder:
    """Decodes blocks of one file by a schema of plain numbers and bytes: what these mean is settled afterwards.

    Args:
        schema: the writer's.
        columns: of all fields, as `columns_of` gives them.
        read: names of those that are read.
        quick: whether Polars may do it.
    """

    def __init__(
        self, schema: Mapping[str, Any], columns: Mapping[str, AvroColumn | str], read: list[str], quick: bool
    ) -> None:
        plain = [
            {"name": field["name"], "type": column.plain if isinstance(column, AvroColumn) else field["type"]}
            for field, column in zip(schema["fields"], columns.values(), strict=True)
        ]
        self._columns = {name: column for name in read if isinstance(column := columns[name], AvroColumn)}
        if list(self._columns) != read:
            raise ValueError("a column of another type")
        known_shapes = all(isinstance(column, AvroColumn) and column.is_flat for column in columns.values())
        self._quick = quick and known_shapes and importlib.util.find_spec("polars") is not None
        # Names of types may repeat inside of fields that are not read.
        record = {"type": "record", "name": "rows", "fields": plain}
        self._record = record if known_shapes else {**schema, "fields": plain}

    def rows(self, blocks: list[tuple[int, bytes]]) -> pa.Table:
        """The rows of some blocks."""
        file = self._container(blocks)
        # Polars makes room for as many rows as a block says that it has, and a process that cannot get it ends at once.
        possible = all(0 <= number <= len(data) for number, data in blocks)
        found = self._by_polars(file) if self._quick and possible else self._by_fastavro(file)
        rows = sum(number for number, _ in blocks)
        if found.num_rows != rows:
            raise ValueError("rows were lost")
        return pa.table({name: column.values(found.column(name)) for name, column in self._columns.items()})

    def _container(self, blocks: list[tuple[int, bytes]]) -> io.BytesIO:
        import fastavro

        stream = io.BytesIO()
        fastavro.writer(stream, self._record, [], codec="null", sync_marker=_SYNC)
        stream.seek(0, io.SEEK_END)
        for number, data in blocks:
            for part in (encoded(number), encoded(len(data)), data, _SYNC):
                stream.write(part)
        stream.seek(0)
        return stream

    def _by_polars(self, file: io.BytesIO) -> pa.Table:
        import polars

        try:
            return polars.read_avro(file, columns=list(self._columns)).to_arrow()
        except MemoryError:
            raise
        except BaseException:
            # Polars panics on some damages, with an exception that is none of Python's usual ones.
            interrupts.end_if_asked()
            raise ValueError("cannot be decoded") from None

    def _by_fastavro(self, file: io.BytesIO) -> pa.Table:
        import fastavro

        # Objects take much more than their bytes: some thousand rows at a time.
        pieces = []
        rows = fastavro.reader(file)
        while some := list(itertools.islice(rows, 2**13)):
            cells = {name: [row[name] for row in some] for name in self._columns}  # type: ignore[index,call-overload]
            pieces.append(
                pa.table({name: column_casts.column(cells[name], of.plain_type) for name, of in self._columns.items()})
            )
        empty = pa.schema([(name, of.plain_type) for name, of in self._columns.items()]).empty_table()
        return pa.concat_tables([empty, *pieces])


def look_at_avro(files: Sequence[str]) -> Source:
    """The common schema of Avro files, from every header.

    Raises:
        RequestError: a file is no Avro file of records, or of a codec that cannot be read here.
    """
    schemas: dict[str, pa.Schema] = {}
    missing: dict[str, RequestError] = {}
    problems = []
    rows = 0
    sizes = dict(zip(files, each(size_of, files), strict=True))
    for path, header in zip(files, each(_header, files), strict=True):
        if header is None:
            message = "is not an Avro file of records: its header cannot be read"
            problems.append(
                RequestError(field=f"file {path!r}", message=message, hint="write it again, or leave it out")
            )
        elif not codec_is_known(header.codec):
            problems.append(unknown_codec(path, header.codec))
        else:
            schemas[path] = pa.schema([(name, column.type) for name, column in header.columns.items()])
            rows += sizes[path] // header.row_bytes
            for name, words in header.others.items():
                message, hint = f"has column {name!r} as {words}, which is not read", "write it as plain columns"
                missing.setdefault(name, RequestError(field=f"file {path!r}", message=message, hint=hint))
    raise_all(problems[:MOST_ERRORS])
    schema, differ = common(schemas)
    schema = pa.schema([field for field in schema if field.name not in missing])
    share = {name: sum(sizes.values()) // max(len(schema), 1) for name in schema.names}
    return Source(
        files=tuple(files), schema=schema, sizes=share, types=None, missing={**differ, **missing}, rows=rows,
        reader=AvroReader(),
    )  # fmt: skip


def _header(path: str) -> AvroHeader | None:
    try:
        with stream_of(path) as stream:
            return header_of(stream)
    except OSError:
        return None
