"""A server of this machine that stands in for BigQuery's Storage API, over gRPC.

In: Arrow tables by name. Out: the address of a server that Google's own client asks. Holds: the messages are those of Google's
package, rows are Arrow record batches, a stream begins where it is asked to; what the service does beyond, it does not know.
Tests only.
"""

import contextlib
import datetime
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types

from dp_pipelines.extensions.lake import storage_api

PATH = "projects/acme/datasets/shop/tables/orders"
NAME = "acme.shop.orders"
TIME = "2026-01-05T00:00:00Z"


class Warehouse:
    """A running server.

    Args:
        versions: the rows of the table `NAME` from a time on.
        streams: how many a session has.
    """

    def __init__(self, versions: dict[datetime.datetime, pa.Table], streams: int = 3) -> None:
        self.versions, self._streams = versions, streams
        self.asked: list[Any] = []
        self.offsets: list[int] = []
        self.breaks_after: int | None = None
        self._held: dict[str, pa.Table] = {}
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers([self._handler()])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        """End it."""
        self._server.stop(0).wait()

    def _handler(self) -> Any:
        methods = {
            "CreateReadSession": grpc.unary_unary_rpc_method_handler(
                self._create, types.CreateReadSessionRequest.deserialize, types.ReadSession.serialize
            ),
            "ReadRows": grpc.unary_stream_rpc_method_handler(
                self._read, types.ReadRowsRequest.deserialize, types.ReadRowsResponse.serialize
            ),
        }
        return grpc.method_handlers_generic_handler("google.cloud.bigquery.storage.v1.BigQueryRead", methods)

    def _create(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        asked = request.read_session
        at = asked.table_modifiers.snapshot_time
        known = [time for time in self.versions if time <= at]
        if asked.table != PATH or not known:
            context.abort(grpc.StatusCode.NOT_FOUND, "table secret-row-value is not there")
        rows = self.versions[max(known)]
        rows = rows.select(list(asked.read_options.selected_fields) or rows.column_names)
        number = min(self._streams, request.max_stream_count or self._streams) if rows.num_rows else 0
        session = f"sessions/{len(self.asked)}"
        parts = -(-rows.num_rows // number) if number else 0
        for index in range(number):
            self._held[f"{session}/{index}"] = rows.slice(index * parts, parts)
        return types.ReadSession(
            name=session, arrow_schema={"serialized_schema": rows.schema.serialize().to_pybytes()},
            streams=[{"name": f"{session}/{index}"} for index in range(number)], estimated_row_count=rows.num_rows,
        )  # fmt: skip

    def _read(self, request: Any, context: Any) -> Iterator[Any]:
        self.offsets.append(request.offset)
        rows = self._held[request.read_stream].slice(request.offset)
        for number, batch in enumerate(rows.to_batches(max_chunksize=500)):
            if self.breaks_after is not None and number >= self.breaks_after:
                context.abort(grpc.StatusCode.UNAVAILABLE, "row secret-row-value is lost")
            yield types.ReadRowsResponse(
                arrow_record_batch={"serialized_record_batch": batch.serialize().to_pybytes()}, row_count=batch.num_rows
            )


@contextlib.contextmanager
def warehouse(patch: Any, versions: dict[datetime.datetime, pa.Table]) -> Iterator[Warehouse]:
    """A server, which the environment names, until the end of a block."""
    made = Warehouse(versions)
    patch.setenv(storage_api.EMULATOR, made.address)
    try:
        yield made
    finally:
        made.stop()
