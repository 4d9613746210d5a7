"""A release that is put into a bucket: whole, its manifest last, never over anything.

In: a release of the shop, a store in this process. Out: what the store holds. Holds: Google's own client is tried against a small
server that knows the two calls we make; without that client (extra `dataflow`) the test is skipped, and its message says so. Not
covered: Google's service.
"""

import hashlib
import http.server
import json
import pathlib
import threading
import urllib.parse
from collections.abc import Callable, Iterator

import pytest

from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.extensions.dataflow import upload
from dp_pipelines.release import manifest
from tests.extensions.dataflow.test_dataflow_requirements import installed
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]


class InMemory:
    """A folder of a store; it can be told to fail."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.order: list[str] = []
        self.fails_at = ""

    def read(self, name: str) -> bytes | None:
        return self.held.get(name)

    def create(self, name: str, content: bytes) -> bool:
        if name == self.fails_at:
            raise OSError("row 17 could not be sent")
        self.order.append(name)
        return self.held.setdefault(name, content) == content and self.order.count(name) == 1


@pytest.fixture
def released(shop: Shop, call: Call) -> pathlib.Path:
    """A published folder."""
    assert call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one").code == 0
    return shop.folder / "out"


def test_a_release_is_put_whole_with_its_manifest_last(released: pathlib.Path) -> None:
    place = InMemory()
    assert upload.put(released, place, "gs://b/out") is False
    assert place.order == ["report.html", "weekly.parquet", "manifest.json"]
    assert place.held == {path.name: path.read_bytes() for path in released.iterdir()}
    assert upload.put(released, place, "gs://b/out") is True


def test_a_command_that_was_killed_goes_on_where_it_was(released: pathlib.Path) -> None:
    place = InMemory()
    place.fails_at = "weekly.parquet"
    with pytest.raises(PublishError) as failed:
        upload.put(released, place, "gs://b/out")
    assert "row 17" not in str(failed.value)
    assert "manifest.json" not in place.held
    place.fails_at = ""
    upload.put(released, place, "gs://b/out")
    assert "manifest.json" in place.held


@pytest.mark.parametrize("name", ["weekly.parquet", "report.html", "manifest.json"])
def test_nothing_is_overwritten(released: pathlib.Path, name: str) -> None:
    place = InMemory()
    place.held[name] = b"of another release"
    with pytest.raises(RequestError, match="holds another release"):
        upload.put(released, place, "gs://b/out")
    assert place.held[name] == b"of another release"
    assert name == "manifest.json" or "manifest.json" not in place.held


def test_a_folder_that_is_not_whole_is_not_put_anywhere(released: pathlib.Path, tmp_path: pathlib.Path) -> None:
    place = InMemory()
    (released / "weekly.parquet").write_bytes(b"changed")
    for folder in (released, tmp_path):
        with pytest.raises(RequestError, match="does not hold a complete release"):
            upload.put(folder, place, "gs://b/out")
    assert place.held == {}


def test_the_store_gets_what_the_manifest_says(released: pathlib.Path) -> None:
    place = InMemory()
    upload.put(released, place, "gs://b/out")
    listed = manifest.read_manifest(released)["files"]
    assert {name: hashlib.sha256(place.held[name]).hexdigest() for name in listed} == {
        name: facts["sha256"] for name, facts in listed.items()
    }


@pytest.mark.parametrize("url", ["gs://bucket", "s3://b/out", "out", "gs://b/"])
def test_a_place_that_is_no_folder_of_a_bucket_is_refused(
    url: str, released: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert upload.main([str(released), url]) == 2
    assert "is not a folder in a bucket" in capfd.readouterr().err


# Google's client.


class Service(http.server.BaseHTTPRequestHandler):
    """The two calls of Google's store that we make: an upload that may have a condition, and a download."""

    held: dict[str, bytes] = {}  # noqa: RUF012 - one store for the test that clears it
    conditions: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        asked = urllib.parse.parse_qs(parts.query)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        boundary = self.headers["Content-Type"].partition("boundary=")[2].strip("'\"").encode()
        _, described, sent, _ = body.split(b"--" + boundary)
        described = json.loads(described.partition(b"\r\n\r\n")[2])
        name = asked.get("name", [described.get("name")])[0]
        self.conditions.append(asked.get("ifGenerationMatch", ["none"])[0])
        if self.conditions[-1] == "0" and name in self.held:
            self._answer(412, b"{}")
            return
        self.held[name] = sent.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        self._answer(200, json.dumps({"name": name}).encode())

    def do_GET(self) -> None:
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path.rpartition("/o/")[2])
        self._answer(200 if name in self.held else 404, self.held.get(name, b"{}"))

    def _answer(self, code: int, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json" if code != 200 else "application/octet-stream")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given: object) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Service]]:
    """The server, to which Google's client is pointed."""
    Service.held.clear()
    Service.conditions.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        yield Service
        server.shutdown()
        thread.join()


@pytest.mark.skipif(
    not installed("google.cloud.storage"), reason="needs the extra `dataflow`: pip install 'apache-beam[gcp]'"
)
def test_googles_client_creates_each_object_only_where_there_is_none(
    service: type[Service], released: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [str(released), "gs://bucket/out/one"]
    assert upload.main(command) == 0
    assert service.held == {f"out/one/{path.name}": path.read_bytes() for path in released.iterdir()}
    assert set(service.conditions) == {"0"}
    assert list(service.held)[-1] == "out/one/manifest.json"
    assert upload.main(command) == 0
    assert "already there" in capfd.readouterr().out
    service.held["out/two/report.html"] = b"of another release"
    assert upload.main([str(released), "gs://bucket/out/two"]) == 2
    assert service.held["out/two/report.html"] == b"of another release"
