"""BigQuery's Storage API: sessions over one snapshot of a table, and the rows of a session's streams as Arrow.

In: a table, a time, columns. Out: a session, record batches. Holds: a stream that breaks goes on at the row where it broke, as
often as rows come in between, then a few times; what fails is told in words of ours. Not covered: what the service does: it was
never asked here (docs/sources/bigquery.md). Google's client, from the extra `bigquery`, is imported on use.
"""

import dataclasses
import datetime
import functools
import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError

EMULATOR = "BIGQUERY_STORAGE_EMULATOR_HOST"
"""A variable of the environment: HOST:PORT of a server that stands in for Google's, without encryption or credentials."""

ANSWER_SECONDS, ATTEMPTS = 60.0, 5

_CLIENT = "google.cloud.bigquery_storage_v1.services.big_query_read"
_REASONS = {
    "NotFound": (
        "is not there, or was not at that time",
        "check the table and snapshot_time: BigQuery keeps seven days",
    ),
    "InvalidArgument": ("cannot be read so", "name a table, no view, and a snapshot_time of the last seven days"),
    "FailedPrecondition": ("cannot be read so", "name a table, no view, and a snapshot_time of the last seven days"),
    "PermissionDenied": ("may not be read by this account", "grant roles/bigquery.readSessionUser and dataViewer"),
    "Forbidden": ("may not be read by this account", "grant roles/bigquery.readSessionUser and dataViewer"),
    "Unauthenticated": ("may not be read without credentials", "run gcloud auth application-default login"),
    "DefaultCredentialsError": ("may not be read without credentials", "run gcloud auth application-default login"),
}
_UNCLEAR = ("cannot be asked for", "check the network and the credentials of Google's services")
_BROKEN = ("ServiceUnavailable", "Unknown", "InternalServerError", "DeadlineExceeded", "GatewayTimeout", "Aborted")
"""How a stream ends that may be gone on with."""


class WarehouseError(Exception):
    """The service does not give out a table.

    Args:
        reason: why, in words of ours.
        hint: what to do.
    """

    def __init__(self, reason: str, hint: str) -> None:
        self.reason, self.hint = reason, hint
        super().__init__(f"{reason}; {hint}")


@dataclasses.dataclass(frozen=True)
class BigQueryTable:
    """One snapshot of a table.

    Args:
        project, dataset, table: its name.
        at: the time of the snapshot, in UTC.
    """

    project: str
    dataset: str
    table: str
    at: datetime.datetime

    @property
    def url(self) -> str:
        """What it is called in messages and in the ledger."""
        return f"bigquery://{self.project}.{self.dataset}.{self.table}"


@dataclasses.dataclass(frozen=True)
class ReadSession:
    """What the service reads out.

    Args:
        schema: of the columns.
        streams: their names; each row is in one of them.
        rows: how many, roughly. They are somebody's.
    """

    schema: pa.Schema
    streams: tuple[str, ...]
    rows: int


def needed() -> None:
    """Refuse to go on without the packages. Raises: RequestError."""
    try:
        importlib.import_module("google.cloud.bigquery_storage_v1")
    except ImportError:
        hint = "install the extra: pip install 'dp-pipelines[bigquery]'"
        raise RequestError(
            field="source.bigquery", message="needs packages that are not installed", hint=hint
        ) from None


def session(table: BigQueryTable, columns: Sequence[str] = (), streams: int = 0) -> ReadSession:
    """Have the service read a snapshot out.

    Args:
        table: of which table.
        columns: their names; none: all.
        streams: the most that there may be; 0: as many as the service likes.

    Raises:
        WarehouseError: it does not.
    """
    try:
        types: Any = importlib.import_module("google.cloud.bigquery_storage_v1.types")
        asked = types.ReadSession(
            table=f"projects/{table.project}/datasets/{table.dataset}/tables/{table.table}",
            data_format=types.DataFormat.ARROW,
            table_modifiers={"snapshot_time": table.at},
            read_options={"selected_fields": list(columns)},
        )
        request = types.CreateReadSessionRequest(
            parent=f"projects/{billed(table)}", read_session=asked, max_stream_count=streams
        )
        made = _client(os.environ.get(EMULATOR)).create_read_session(request, retry=_patience(), timeout=ANSWER_SECONDS)
        schema = pa.ipc.read_schema(pa.py_buffer(made.arrow_schema.serialized_schema))
    except Exception as error:  # of the client, of the credentials, of the network
        raise WarehouseError(*_REASONS.get(type(error).__name__, _UNCLEAR)) from None
    return ReadSession(schema, tuple(stream.name for stream in made.streams), int(made.estimated_row_count))


def billed(table: BigQueryTable) -> str:
    """The project that pays for the reading: the one that the environment names, else the table's."""
    return os.environ.get("GOOGLE_CLOUD_PROJECT") or table.project


def batches(stream: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a stream.

    Args:
        stream: its name.
        schema: of its session.

    Raises:
        WarehouseError: the service does not give them out to the end.
    """
    done, left = 0, ATTEMPTS
    answers: Iterator[pa.RecordBatch] | None = None
    while True:
        try:
            answers = _from(stream, done, schema) if answers is None else answers
            batch = next(answers, None)
        except BaseException as error:  # as above
            answers = None
            interrupts.end_if_asked()
            left -= 1
            if type(error).__name__ not in _BROKEN or not left:
                raise WarehouseError(*_REASONS.get(type(error).__name__, _UNCLEAR)) from None
            continue
        if batch is None:
            return
        yield batch  # outside of the guard: whoever takes it may close this generator
        done, left = done + batch.num_rows, ATTEMPTS


def _from(stream: str, offset: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    answers = _client(os.environ.get(EMULATOR)).read_rows(
        {"read_stream": stream, "offset": offset}, retry=_patience(), timeout=86_400.0
    )
    for answer in answers:
        content = pa.py_buffer(answer.arrow_record_batch.serialized_record_batch)
        yield pa.ipc.read_record_batch(content, schema)


def _patience() -> Any:
    """How long it is tried to reach the service."""
    exceptions: Any = importlib.import_module("google.api_core.exceptions")
    retry: Any = importlib.import_module("google.api_core.retry")
    return retry.Retry(
        predicate=retry.if_exception_type(exceptions.ServiceUnavailable), initial=0.2, timeout=ANSWER_SECONDS / ATTEMPTS
    )


@functools.lru_cache(maxsize=2)
def _client(emulator: str | None) -> Any:
    """Google's client, one in a process."""
    service: Any = importlib.import_module(_CLIENT)
    if emulator is None:
        return service.BigQueryReadClient()
    grpc: Any = importlib.import_module("grpc")
    transports: Any = importlib.import_module(f"{_CLIENT}.transports")
    longest = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(emulator, options=longest)
    return service.BigQueryReadClient(transport=transports.BigQueryReadGrpcTransport(channel=channel))
