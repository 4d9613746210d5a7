"""A proxy before a PostgreSQL server that can cut the line at a COMMIT: after it, before the answer; or before the COMMIT itself.

In: the URL of a server on a Unix socket. Out: a URL of its own. Holds: what it passes on is passed on whole. Not covered: TLS.
"""

import contextlib
import pathlib
import socket
import tempfile
import threading
from types import TracebackType
from typing import Any

import sqlalchemy as sa


class DeafProxy:
    """Use as a context. Where `deaf` is set, a COMMIT is passed on, and nobody hears the answer; where `mute` is, it is not."""

    def __init__(self, url: str, folder: pathlib.Path) -> None:
        parsed = sa.make_url(url)
        host = str(parsed.query.get("host") or parsed.host)
        self._target = f"{host}/.s.PGSQL.{parsed.port or 5432}"
        self._folder = tempfile.TemporaryDirectory(prefix="pg")  # the path of a socket is short
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder.name}/.s.PGSQL.5432")
        self._listener.listen()
        self.url = parsed.set(host=None, port=None, query={"host": self._folder.name}).render_as_string(False)
        self.deaf = self.mute = False

    def __enter__(self) -> "DeafProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            cut = threading.Event()
            for source, target, upwards in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass, args=(source, target, cut, upwards), daemon=True).start()

    def _pass(self, source: Any, target: Any, cut: threading.Event, upwards: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if upwards and self.mute and b"COMMIT\0" in data:
                    break
                if upwards and self.deaf and b"COMMIT\0" in data:
                    cut.set()
                if not upwards and cut.is_set():
                    break  # the server has answered: it has committed
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
