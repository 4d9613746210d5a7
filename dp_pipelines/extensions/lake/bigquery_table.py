"""A table of BigQuery as a source: one snapshot, whose rows come as Arrow.

In: a table's name, a time, declared types or none. Out: a `Source`. Holds: the time is part of what a run id fixes; only the
columns that are read are asked for; what is refused depends on the table's name, time and schema; the number of streams that the
service makes follows from that of rows, and is not shown. Not covered: the service itself (`storage_api`).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.extensions.lake import storage_api
from dp_pipelines.extensions.lake.models import instant, table_parts
from dp_pipelines.extensions.lake.storage_api import BigQueryTable, ReadSession, WarehouseError
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.sources.readers import UNREADABLE, TableReader
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.kernels import keys
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.read_files import UNKNOWN, Shuffled
from dp_pipelines.steps.step import Step

NO_STREAM = ""
"""Stands for the table without rows that tells the types, however many streams there are."""

_BYTES_OF_TEXT = 16


def table_named(name: str, at: str) -> BigQueryTable:
    """A snapshot that a job names.

    Args:
        name: `project.dataset.table`.
        at: an instant, as ISO 8601 writes it.

    Raises:
        RequestError: one of them is none.

    >>> table_named("acme.shop.orders", "2026-01-05T02:00:00+02:00").at.isoformat()
    '2026-01-05T00:00:00+00:00'
    """
    return BigQueryTable(*table_parts(name, "source.bigquery.table"), instant(at, "source.bigquery.snapshot_time"))


def look_at_bigquery(table: BigQueryTable, declared: Mapping[str, str] | None) -> Source:
    """A snapshot of a table.

    Args:
        table: which.
        declared: the type of each column that is used, by name; None: the table tells them.

    Raises:
        RequestError: it cannot be read, or has other columns.
    """
    found = _first_look(table)
    there = pa.schema([(field.name, keys.plain_type(field.type)) for field in found.schema])
    if declared is not None:
        there = _as_declared(table, there, source_files.declared_schema(declared))
    sizes = {field.name: found.rows * _width(field.type) for field in there}
    return Source(
        files=(table.url,), schema=there, sizes=sizes, types=None, missing={}, rows=found.rows,
        reader=BigQueryReader(table), snapshot=f"bigquery {table.url} at {table.at.isoformat()}",
    )  # fmt: skip


def refuse_absent(table: BigQueryTable) -> None:
    """Refuse a snapshot at which nobody can look here. Raises: RequestError."""
    _first_look(table)


def _first_look(table: BigQueryTable) -> ReadSession:
    storage_api.needed()
    try:
        return storage_api.session(table, streams=1)
    except WarehouseError as error:
        raise RequestError(field=f"table {table.url!r}", message=error.reason, hint=error.hint) from None


def _as_declared(table: BigQueryTable, there: pa.Schema, declared: pa.Schema) -> pa.Schema:
    for field in declared:
        if there.get_field_index(field.name) < 0:
            message, hint = f"has no column {field.name!r}", "check the names in types:"
        elif there.field(field.name).type != field.type:
            found = there.field(field.name).type
            message, hint = f"has column {field.name!r} as {found}, declared as {field.type}", "declare it so"
        else:
            continue
        raise RequestError(field=f"table {table.url!r}", message=message, hint=hint)
    return declared


def _width(kind: pa.DataType) -> int:
    """Bytes of a value, roughly: the service does not tell them by column."""
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return _BYTES_OF_TEXT


@dataclasses.dataclass(frozen=True)
class BigQueryReader(TableReader):
    """Reads one snapshot of a table.

    Args:
        table: which.
    """

    table: BigQueryTable

    def tables(
        self, start: Flow, files: Sequence[str], types: Mapping[str, pa.DataType], shuffled: Shuffled = UNKNOWN
    ) -> Flow:
        """See `TableReader`. The streams are settled here, once: a worker that reads one again finds the same rows in it."""
        try:
            made = storage_api.session(self.table, list(types))
        except WarehouseError:
            raise DamagedInputError(f"file {self.table.url!r}: {UNREADABLE}") from None
        streams = start.known("Streams", [NO_STREAM, *made.streams], str)
        read = ReadBigQueryStream(self.table.url, types, made.schema.serialize().to_pybytes(), shuffled)
        return streams.spread("Spread").each("ReadBigQueryStorage", read)


class ReadBigQueryStream(Step):
    """The rows of a stream.

    Args:
        url: of the table, for messages.
        types: of the columns that are read.
        schema: of the session, as Arrow writes it.
        shuffled: what becomes of a row.
    """

    def __init__(self, url: str, types: Mapping[str, pa.DataType], schema: bytes, shuffled: Shuffled = UNKNOWN) -> None:
        self._url, self._types, self._schema = url, dict(types), schema
        self._most_rows = shuffled.most_rows()

    def process(self, stream: str) -> Iterator[pa.Table]:
        """Tables; of no stream the one without rows."""
        wanted = pa.schema(self._types.items())
        if stream == NO_STREAM:
            yield wanted.empty_table()
            return
        try:
            for batch in storage_api.batches(stream, pa.ipc.read_schema(pa.py_buffer(self._schema))):
                table = pa.Table.from_batches([batch]).select(list(self._types)).cast(wanted)
                for piece in table.to_batches(max_chunksize=self._most_rows):
                    if piece.num_rows:
                        yield pa.Table.from_batches([piece])
        except (WarehouseError, pa.ArrowException):
            raise DamagedInputError(f"file {self._url!r}: {UNREADABLE}") from None
