"""The database that stores the events of a ledger: one SQLite file, or a PostgreSQL database for a team.

In: a URL. Out: events in order, appended by one writer at a time, and the bytes of releases. Holds: an append is durable when
it returns, or has not happened; rows are never changed or removed, and triggers refuse it; two writers can never both follow
the same event. A server that does not answer is asked again for as long as `patience` says. Not covered: what the events mean
(`state`), whether the chain is whole (`events`).
"""

# SQLite: a rollback journal with synchronous=EXTRA (a power cut loses nothing that was acknowledged), BEGIN IMMEDIATE for every
# write, an integrity check at opening, local disks only. PostgreSQL: every write locks the table of events first. With `places`
# the only module that imports SQLAlchemy.

import contextlib
import dataclasses
import os
import pathlib
import sqlite3
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event as hooks
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from dp_pipelines.disk_errors import reason_of
from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import disks, places
from dp_pipelines.ledger.events import Event
from dp_pipelines.ledger.patience import PASSING, Patience, Refused, Unreachable, refusal

Found = TypeVar("Found")

PART = 8 * 2**20
"""Bytes of a release are stored in rows of this size."""

BUSY_SECONDS = 30
"""The longest wait of a writer for another one."""

METADATA = sa.MetaData()
EVENTS = sa.Table(
    "dp_events",
    METADATA,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("previous", sa.String(64), nullable=False, unique=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
)
CONTENTS = sa.Table(
    "dp_contents",
    METADATA,
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

_SQLITE_TRIGGERS = tuple(
    f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is only ever added to'); END"
    for table in ("dp_events", "dp_contents")
    for verb in ("UPDATE", "DELETE")
)
_POSTGRES_TRIGGERS = (
    "CREATE FUNCTION dp_only_added_to() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'a ledger is only ever added to'; END $$",
    *(
        f"CREATE TRIGGER {table}_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION dp_only_added_to()"
        for table in ("dp_events", "dp_contents")
    ),
)


_POSTGRES_CHECK = """
    SELECT count(*) FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE tgrelid IN ('dp_events'::regclass, 'dp_contents'::regclass) AND tgname LIKE 'dp_%_only_added_to'
    AND tgenabled IN ('O', 'A') AND prosrc LIKE '%RAISE EXCEPTION%'
"""


class Database:
    """A connection to the place of a ledger.

    Args:
        url: a path of a SQLite file, `sqlite:///PATH` or `postgresql://...`.
        patience: with a server that does not answer; None has none.

    Raises:
        RequestError: the URL is of another kind, or the file is on a network file system.
        LedgerError: the place cannot be reached, or is damaged.
    """

    def __init__(self, url: str, patience: Patience | None = None) -> None:
        self._url = places.parse(url)
        self.patience = Patience() if patience is None else patience
        self.path = pathlib.Path(os.path.abspath(self._url.database or "")) if self.is_sqlite else None
        self.shown = str(self.path) if self.path is not None else places.shown(self._url)
        if self.path is not None:
            disks.refuse_network(self.path)
        self._engine = self._connect(self.path)

    @property
    def place(self) -> str:
        """Return the place in one spelling, links followed; without a password."""
        return self.shown if self.path is None else os.path.realpath(self.path)

    @property
    def is_sqlite(self) -> bool:
        """Return True if the ledger is a SQLite file."""
        return self._url.get_backend_name() == "sqlite"

    def exists(self) -> bool:
        """Return True if there is a ledger. Asking never creates a SQLite file.

        Raises:
            RequestError: the server does not let this user in, or has no such database.
            LedgerError: the place cannot be reached, or holds a file that is not a database.
        """
        if self.path is not None and not os.path.lexists(self.path):
            return False
        # All names by one statement: between two of them another process may make the ledger.
        try:
            names = self._read(lambda connection: sa.inspect(connection).get_table_names())
        except Refused as error:  # nothing is charged yet, and the URL is a public fact
            field, _, message = str(error).partition(": ")
            raise RequestError(field=field, message=message) from None
        tables = {EVENTS.name, CONTENTS.name} & set(names)
        if len(tables) == 2:
            return True
        if tables or self.is_sqlite:
            raise LedgerError(
                f"ledger {self.shown}: does not hold a ledger, or its tables are gone; restore the newest backup, "
                "or name another place"
            )
        return False

    @contextlib.contextmanager
    def creating(self) -> Iterator["Writer"]:
        """Make the tables and write the first events; at the end all of it is there, or nothing.

        Raises:
            RequestError: there is a ledger, or another file.
            LedgerError: it cannot be made here.
        """
        if self.path is None:
            self._read(lambda connection: None)  # waits until the server is there
            with self._told("made"), self._connected(self._engine) as connection, connection.begin():
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('dp_pipelines ledger'))"))
                if sa.inspect(connection).has_table(EVENTS.name):
                    raise self._there()
                yield _made(connection, _POSTGRES_TRIGGERS)
            return
        # Under another name until it is complete: a process that is killed in between leaves no half-made ledger.
        temporary = self.path.with_name(f".{self.path.name}.making-{uuid.uuid4().hex}")
        engine = self._connect(temporary)
        try:
            with _told_file(self.path):
                if os.path.lexists(self.path):
                    raise self._there()
                self.path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with self._told("made"), engine.connect() as connection, connection.begin():
                yield _made(connection, _SQLITE_TRIGGERS)
            with _told_file(self.path):
                self._put(temporary, self.path)
        finally:
            for left in (temporary, temporary.with_name(temporary.name + "-journal")):
                with contextlib.suppress(OSError):  # the first failure is reported
                    left.unlink(missing_ok=True)

    def _put(self, temporary: pathlib.Path, path: pathlib.Path) -> None:
        try:
            os.link(temporary, path)  # unlike a rename it never replaces anything
        except FileExistsError:
            raise self._there() from None
        except OSError:  # no second names on this file system
            if os.path.lexists(path):
                raise self._there() from None
            os.rename(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _there(self) -> RequestError:
        return RequestError(
            field=f"ledger {self.shown}", message="already exists", hint="open another account in it, or name another"
        )

    def check(self) -> None:
        """Verify the place itself: pages, tables and triggers are unchanged since `create`.

        Raises:
            LedgerError: they are not.
        """
        if not self.is_sqlite:
            if self._read(lambda connection: connection.execute(sa.text(_POSTGRES_CHECK)).scalar_one()) != 2:
                raise LedgerError(f"ledger {self.shown}: its triggers against changes are missing; restore a backup")
            return
        with self._told("read"), self._engine.connect() as connection:
            reports = connection.execute(sa.text("PRAGMA integrity_check")).scalars().all()
            triggers = (
                connection.execute(sa.text("SELECT sql FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
            )
        if reports != ["ok"]:
            raise LedgerError(f"ledger {self.shown}: the file is damaged; restore the newest backup")
        if sorted(str(text) for text in triggers) != sorted(_SQLITE_TRIGGERS):
            raise LedgerError(f"ledger {self.shown}: its triggers against changes are missing; restore a backup")

    def events(self, after: int = 0) -> list[Event]:
        """Return the events after a number, in order.

        Raises:
            LedgerError: they cannot be read.
        """
        return self._read(lambda connection: _events(connection, after))

    @contextlib.contextmanager
    def writing(self) -> Iterator["Writer"]:
        """Yield the only writer; everything it does is committed together at the end, or not at all.

        Raises:
            LedgerError: writing is not possible, and nothing was written.
            Unreachable: the connection was lost, after which nothing was written; unless that was at the very end, when the
                next writer sees what happened.
        """
        engine = self._engine.execution_options(writes=True)
        with self._told("written"), self._connected(engine) as connection, connection.begin():
            if not self.is_sqlite:
                connection.execute(sa.text("SET LOCAL synchronous_commit TO on"))
                connection.execute(sa.text(f"SET LOCAL lock_timeout TO '{BUSY_SECONDS}s'"))
                connection.execute(sa.text("LOCK TABLE dp_events IN EXCLUSIVE MODE"))
            yield Writer(connection)

    def content(self, sha256: str) -> bytes | None:
        """Return bytes by their digest, which the caller checks; None if there are none. Errors as for `contents`."""
        return next(self.contents([sha256]))

    def contents(self, digests: Iterable[str]) -> Iterator[bytes | None]:
        """Yield bytes by their digests, one after the other, over one connection.

        Raises:
            LedgerError: they cannot be read.
        """
        remaining = list(digests)
        while remaining:
            try:
                with self._told("read"), self._connected(self._engine) as connection:
                    while remaining:
                        content = _content(connection, remaining[0])
                        del remaining[0]
                        self.patience.answered(f"ledger {self.shown}")
                        yield content
            except (Unreachable, Refused) as lost:
                self.patience.again(lost, f"ledger {self.shown}")

    def _read(self, look: Callable[[sa.Connection], Found]) -> Found:
        """Return the result of a read; a read that loses its connection is repeated."""
        while True:
            try:
                with self._told("read"), self._connected(self._engine) as connection:
                    result = look(connection)
                self.patience.answered(f"ledger {self.shown}")
                return result
            except (Unreachable, Refused) as lost:
                self.patience.again(lost, f"ledger {self.shown}")

    @contextlib.contextmanager
    def _connected(self, engine: sa.Engine) -> Iterator[sa.Connection]:
        """Yield a connection.

        Raises:
            Refused: the server does not let this user in, or has no such database.
            Unreachable: the server does not answer.
        """
        try:
            connection = engine.connect()
        except DBAPIError as error:
            if self.is_sqlite:
                raise
            if meaning := refusal(str(error.orig)):
                raise Refused(f"ledger {self.shown}: {meaning}", meaning.partition(";")[0]) from None
            raise self._unreachable() from None
        with connection:
            yield connection

    def _unreachable(self) -> Unreachable:
        return Unreachable(f"ledger {self.shown}: {_MEANINGS['connection']}")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _connect(self, path: pathlib.Path | None) -> sa.Engine:
        # No connection is kept: between two steps of a run hours may pass, and servers close what is idle.
        if path is None:
            # A server whose machine is gone sends nothing: a connection that has been silent for a minute is lost.
            silent = {
                "keepalives_idle": 30,
                "keepalives_interval": 10,
                "keepalives_count": 3,
                "tcp_user_timeout": 60_000,
            }
            arguments = {"connect_timeout": BUSY_SECONDS, **silent}
            try:
                return sa.create_engine(
                    self._url, connect_args=arguments, isolation_level="READ COMMITTED", poolclass=sa.NullPool
                )
            except ModuleNotFoundError:
                raise RequestError(
                    field="--ledger", message="PostgreSQL needs psycopg", hint="pip install 'dp-pipelines[postgres]'"
                ) from None
        # mode=rw: a file that has gone is an error, never a new and empty ledger.
        place = f"file:{urllib.parse.quote(str(path))}?mode=rw"

        def opened() -> sqlite3.Connection:
            seconds = BUSY_SECONDS if self.patience.locked is None else self.patience.locked
            return sqlite3.connect(place, uri=True, timeout=seconds)

        engine = sa.create_engine("sqlite://", creator=opened, poolclass=sa.NullPool)

        @hooks.listens_for(engine, "connect")
        def _settings(connection: Any, record: Any) -> None:
            connection.isolation_level = None  # the driver's own transactions off: `begin` below is ours
            for setting in (
                "journal_mode = DELETE",
                "synchronous = EXTRA",
                "trusted_schema = OFF",
                "cell_size_check = ON",
            ):
                connection.execute(f"PRAGMA {setting}")

        @hooks.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql(
                "BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN"
            )

        return engine

    @contextlib.contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        """Convert failures of the database to our messages; its own may contain what is being written."""
        try:
            yield
        except UnicodeDecodeError:  # SQLite's own complaint repeats the damaged text
            raise LedgerError(f"ledger {self.shown}: {_MEANINGS['malformed']}") from None
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise self._unreachable() from None
            if (passing := PASSING.get(str(getattr(cause, "sqlstate", "")))) is not None:
                reason, message = passing
                raise Unreachable(f"ledger {self.shown}: {message}", reason) from None
            text = str(cause).lower()
            if self.path is not None and disks.is_read_only(self.path) and verb != "read":
                raise LedgerError(
                    f"ledger {self.shown}: its disk is read-only; mount it for writing, or name another ledger"
                ) from None
            for sign, meaning in _MEANINGS.items():
                if sign in text:
                    raise LedgerError(f"ledger {self.shown}: {meaning}") from None
            raise LedgerError(
                f"ledger {self.shown}: cannot be {verb} ({type(cause).__name__}); fix that, then run the same command again"
            ) from None


_MEANINGS = {
    "readonly": "the file cannot be written; give this user write permission for it and its folder, or name another ledger",
    "disk is full": "the disk is full, nothing was written; free some space and run the same command again",
    "disk i/o": "the disk failed; check it, then run the same command again",
    "locked": "another process has been writing to it for too long; run the same command again",
    "not a database": "is not a SQLite file, or is damaged; restore the newest backup",
    "malformed": "the file is damaged; restore the newest backup",
    "unable to open": "the file cannot be opened; check its folder and its permissions",
    "connection": "the server cannot be reached; run the same command again when it can",
}


class Writer:
    """The operations that are possible while nobody else writes."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def events(self, after: int) -> list[Event]:
        """Return the events after a number."""
        return _events(self._connection, after)

    def append(self, event: Event) -> None:
        """Add an event."""
        self._connection.execute(EVENTS.insert().values(**dataclasses.asdict(event)))

    def keep(self, sha256: str, content: bytes) -> None:
        """Add bytes under their digest, unless they are there.

        Raises:
            LedgerError: other bytes are stored under this digest.
        """
        there = _content(self._connection, sha256)
        if there is not None and there != content:
            raise LedgerError("ledger: a stored release is damaged; restore the newest backup")
        if there is None:
            for part, begin in enumerate(range(0, max(len(content), 1), PART)):
                piece = content[begin : begin + PART]
                self._connection.execute(CONTENTS.insert().values(sha256=sha256, part=part, content=piece))


def _made(connection: sa.Connection, triggers: Sequence[str]) -> Writer:
    METADATA.create_all(connection, checkfirst=False)
    for trigger in triggers:
        connection.execute(sa.text(trigger))
    return Writer(connection)


def _events(connection: sa.Connection, after: int) -> list[Event]:
    rows: Sequence[Any] = connection.execute(sa.select(EVENTS).where(EVENTS.c.seq > after).order_by(EVENTS.c.seq)).all()
    return [Event(**row._mapping) for row in rows]


def _content(connection: sa.Connection, sha256: str) -> bytes | None:
    query = sa.select(CONTENTS.c.content).where(CONTENTS.c.sha256 == sha256).order_by(CONTENTS.c.part)
    try:
        parts = connection.execute(query).scalars().all()
        return b"".join(parts) if parts else None
    except TypeError:  # a damaged file may say that bytes are text
        return b""


@contextlib.contextmanager
def _told_file(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = reason_of(error) or error.strerror or "no such folder"
        raise LedgerError(f"ledger {path}: cannot be created: {reason}; choose another place with --ledger") from None
