"""A server of this machine that speaks S3 (moto's), and copies of local folders in it.

In: folders. Out: the address of a server, URLs. Holds: all that is said goes over HTTP to the server's port, as to a real store;
the environment names it, with made-up keys; an object is created in one step. Not covered: Amazon's own service. Tests only.
"""

import contextlib
import io
import logging
import os
import pathlib
import re
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

BUCKET = "shop-bucket"
SECRET = "made-up-secret-0123456789"

_one_at_a_time = threading.Lock()
_put = S3Response.put_object


def _put_in_one_step(asked: S3Response) -> Any:
    """Moto looks for an object and then writes it, and another request may come in between: a store does both in one step."""
    with _one_at_a_time:
        return _put(asked)


S3Response.put_object = _put_in_one_step


class Store:
    """A running server with one bucket.

    Args:
        empty: whether it forgets what an earlier one of this process holds.
    """

    def __init__(self, empty: bool = True) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, self.port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{self.port}"
        self.client: Any = boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1", aws_access_key_id="made-up-key",
            aws_secret_access_key=SECRET,
        )  # fmt: skip
        if empty:
            urllib.request.urlopen(f"{self.endpoint}/moto-api/reset", data=b"", timeout=60).close()
        self.client.create_bucket(Bucket=BUCKET)

    def environment(self) -> dict[str, str]:
        """The variables of somebody who uses it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "made-up-key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def put(self, folder: pathlib.Path, prefix: str) -> str:
        """Copy a folder; its URL."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                key = f"{prefix}/{path.relative_to(folder).as_posix()}"
                self.client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
        return f"s3://{BUCKET}/{prefix}"

    def get(self, url: str) -> bytes:
        """The bytes of an object."""
        bucket, _, key = url.removeprefix("s3://").partition("/")
        return bytes(self.client.get_object(Bucket=bucket, Key=key)["Body"].read())

    def names(self, prefix: str) -> list[str]:
        """The keys of all objects below a prefix, without it."""
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
        return sorted(entry["Key"].removeprefix(f"{prefix}/") for entry in found)

    def stop(self) -> None:
        """End it: nobody answers at its port any more."""
        self._server.stop()


@contextlib.contextmanager
def store(*, empty: bool = True) -> Iterator[Store]:
    """A server, which the environment names, until the end of a block. `empty` as for `Store`."""
    made = Store(empty)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
            patch.delenv(name)
        for name, value in made.environment().items():
            patch.setenv(name, value)
        try:
            yield made
        finally:
            made.stop()


def in_store(made: Store, source: dict[str, Any], folder: pathlib.Path, prefix: str) -> dict[str, Any]:
    """The `source:` of a copy of a local one (`tests.helpers.copies`).

    Args:
        made: the store.
        source: of the local copy.
        folder: that holds its files.
        prefix: of the names of the objects.
    """
    url = f"s3://{BUCKET}/{prefix}"
    if "iceberg" in source:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                _move(path, f"file://{folder}", url)
    made.put(folder, prefix)
    (form,) = set(source) - {"types"}
    named = source[form]
    moved = {**named, "path": named["path"].replace(str(folder), url)} if isinstance(named, dict) else None
    return {**source, form: moved or named.replace(str(folder), url)}


def _move(path: pathlib.Path, old: str, new: str) -> None:
    """Replace the names of places in a file of an Iceberg table."""
    if path.suffix == ".json":
        path.write_text(path.read_text().replace(old, new))
    elif path.suffix == ".avro":
        with path.open("rb") as stream:
            reader = fastavro.reader(stream)
            rows, schema, facts = list(reader), reader.writer_schema, reader.metadata
        kept = {name: value for name, value in facts.items() if not re.match("avro", name)}
        made = io.BytesIO()
        fastavro.writer(made, schema, [_replaced(row, old, new) for row in rows], codec="deflate", metadata=kept)
        path.write_bytes(made.getvalue())
    elif path.name.endswith("-deletes.parquet"):
        table = pa.parquet.read_table(path)
        moved = [text.replace(old, new) for text in table["file_path"].to_pylist()]
        pa.parquet.write_table(table.set_column(0, table.schema.field(0), pa.array(moved)), path)


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(held, old, new) for name, held in value.items()}
    if isinstance(value, list):
        return [_replaced(held, old, new) for held in value]
    return value.replace(old, new) if isinstance(value, str) else value
