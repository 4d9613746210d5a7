"""A PostgreSQL that restarts, and lines that are lost at a COMMIT: waited for, read back, never written twice.

In: a real server, stopped and started; a proxy that cuts the line. Out: the ledger's events and what was told. Holds: the clock
decides nothing but how often a step is tried. Not covered: servers of which a copy takes over.
"""

import contextlib
import pathlib
import socket
import socketserver
import struct
import threading
import uuid
from collections.abc import Iterator, Sequence

import pytest
import sqlalchemy as sa

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import database, patience
from dp_pipelines.ledger.database import Database
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.ledger.patience import Patience, Unreachable
from tests.helpers import ledgers
from tests.helpers.ledgers import ACCOUNT, admit, finish, start, with_account
from tests.ledger.conftest import Server
from tests.ledger.proxy import DeafProxy

WAITS = "the server does not answer; trying again for"


@pytest.fixture(autouse=True)
def quick_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.05)


def kinds(url: str) -> list[str]:
    """The kinds of all events, verified."""
    ledger = Ledger.open(url)
    ledger.verify()
    return [event.kind for event in ledger.history]


def test_without_patience_nobody_waits() -> None:
    lost = Unreachable("away")
    with pytest.raises(Unreachable) as told:
        Patience().again(lost, "ledger")
    assert told.value is lost


def test_a_wait_is_told_when_it_begins_once_a_minute_and_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    now = [1000.0]
    monkeypatch.setattr(patience.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(patience.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 20))
    waits = Patience(600.0, heard.append)
    for _ in range(5):
        waits.again(Unreachable("away"), "ledger x")
    waits.answered("ledger x")
    waits.answered("ledger x")
    assert heard == [
        "ledger x: the server does not answer; trying again for 10 minutes",
        "ledger x: the server does not answer; trying again for 9 minutes",
        "ledger x: the server answers again",
    ]
    with pytest.raises(Unreachable):
        for _ in range(100):
            waits.again(Unreachable("away"), "ledger x")
    assert len(heard) == 3 + 10


@contextlib.contextmanager
def restarting(server: Server, seconds: float = 0.5) -> Iterator[None]:
    """A server that is stopped before a block, and started while the block runs."""
    server.stop()
    begun = threading.Timer(seconds, server.start)
    begun.start()
    try:
        yield
    finally:
        begun.join()


def test_a_server_that_restarts_between_two_steps_or_within_one_is_waited_for(postgres: str, server: Server) -> None:
    heard: list[str] = []
    with_account(postgres).close()
    ledger = Ledger.open(postgres, patience=Patience(60.0, heard.append))
    with contextlib.ExitStack() as within:

        def records(number: int) -> Sequence[MechanismRecord]:
            if not heard:
                within.enter_context(restarting(server))  # with the transaction open
            return ledgers.plan().mechanisms

        arguments = {"plan": ledgers.plan(), "asked": "x", "content": "c", "params": {}}
        run = ledger.admit(ACCOUNT, "r", records=records, **arguments)
    run, attempt = start(ledger, run)
    run = ledger.staged(run, attempt=attempt, files={})
    with restarting(server):
        run = ledger.commit(run, attempt=attempt, files={"weekly": b"x" * 100})
    with restarting(server):
        assert ledger.release(run) == {"weekly": b"x" * 100}
    with restarting(server):
        ledger.refresh()
    assert [WAITS in line for line in heard] == [True, False] * 4
    assert all("postgresql" in line for line in heard)
    assert [kinds(postgres).count(kind) for kind in ("plan_frozen", "run_reserved", "run_committed")] == [1, 1, 1]


def test_opening_waits_too_and_so_does_making(server: Server) -> None:
    heard: list[str] = []
    url = server.url(f"t{uuid.uuid4().hex}")
    with restarting(server):
        ledger = Ledger.open_or_create(url, patience=Patience(60.0, heard.append))
    assert [WAITS in line for line in heard] == [True, False]
    assert Ledger.open(url).state == ledger.state


def test_a_server_that_stays_away_is_told_after_the_wait(postgres: str, server: Server) -> None:
    with_account(postgres).close()
    ledger = Ledger.open(postgres, patience=Patience(0.3))
    server.stop()
    try:
        for _ in range(2):  # each wait ends
            with pytest.raises(
                Unreachable, match="the server cannot be reached; run the same command again when it can"
            ):
                admit(ledger, "r")
        with pytest.raises(Unreachable):
            ledger.refresh()
    finally:
        server.start()
    assert finish(ledger, admit(ledger, "r")).committed


def read_only(server: Server, name: str, on: bool) -> None:
    server.run(f"ALTER DATABASE {name} SET default_transaction_read_only = {'on' if on else 'off'}")


def test_a_server_that_takes_no_writes_for_a_moment_is_waited_for(postgres: str, server: Server) -> None:
    with_account(postgres).close()
    name = str(sa.make_url(postgres).database)
    heard: list[str] = []

    def hears(text: str) -> None:
        heard.append(text)
        read_only(server, name, on=False)

    ledger = Ledger.open(postgres, patience=Patience(60.0, hears))
    read_only(server, name, on=True)
    run, attempt = start(ledger, admit(ledger, "r"))
    run = ledger.staged(run, attempt=attempt, files={})
    read_only(server, name, on=True)
    assert ledger.commit(run, attempt=attempt, files={"weekly": b"x"}).committed
    waits = "the server takes no writes now, as a standby or in maintenance; trying again for"
    assert [waits in line for line in heard] == [True, False] * 2
    assert [kinds(postgres).count(kind) for kind in ("run_reserved", "run_committed")] == [1, 1]


def test_a_lock_of_another_session_is_waited_for(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 1)
    with_account(postgres).close()
    heard: list[str] = []
    with contextlib.ExitStack() as locked:
        engine = sa.create_engine(sa.make_url(postgres).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
        other = locked.enter_context(engine.begin())
        other.execute(sa.text("LOCK TABLE dp_events IN ACCESS SHARE MODE; LOCK TABLE dp_events IN SHARE MODE"))

        def hears(text: str) -> None:
            heard.append(text)
            locked.close()

        ledger = Ledger.open(postgres, patience=Patience(60.0, hears))
        admit(ledger, "r")
    waits = "another session has locked the ledger's tables; trying again for"
    assert [waits in line for line in heard] == [True, False]
    assert kinds(postgres).count("run_reserved") == 1


def test_what_passes_by_itself_and_lasts_too_long_keeps_what_is_staged(postgres: str, server: Server) -> None:
    with_account(postgres).close()
    name = str(sa.make_url(postgres).database)
    ledger = Ledger.open(postgres, patience=Patience(0.2))
    read_only(server, name, on=True)
    with pytest.raises(Unreachable, match="takes no writes.*name the server that does"):
        admit(ledger, "r")
    read_only(server, name, on=False)


@pytest.mark.parametrize("wrong", ["a database", "a user", "a host"])
def test_what_a_server_refuses_is_told_at_once(wrong: str, postgres: str) -> None:
    heard: list[str] = []
    right = sa.make_url(postgres)
    changed = {
        "a database": right.set(database="none"),
        "a user": right.set(username="nobody"),
        "a host": sa.make_url("postgresql://ann@no-such-host.invalid/budget"),
    }[wrong]
    words = {
        "a database": "the server has no database of this name",
        "a user": "the server knows no user of this name",
        "a host": "no machine has this name",
    }[wrong]
    place = Database(changed.render_as_string(hide_password=False), Patience(3600.0, heard.append))
    with pytest.raises(LedgerError, match=words):
        place.events()
    with pytest.raises(RequestError, match=words):  # which ends a command with code 2: nothing is charged yet
        place.exists()
    assert heard == []


@contextlib.contextmanager
def refusing(code: str, message: str) -> Iterator[str]:
    """The URL of a server that refuses every connection with a SQLSTATE and a message, as PostgreSQL words it."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asks = True
            while asks:  # for encryption first, which is answered by N for "no"
                size, kind = struct.unpack(">II", self.request.recv(8, socket.MSG_WAITALL))
                self.request.recv(size - 8, socket.MSG_WAITALL)
                asks = kind in (80877103, 80877104)
                if asks:
                    self.request.sendall(b"N")
            fields = {"S": "FATAL", "V": "FATAL", "C": code, "M": message}
            body = b"".join(f"{key}{text}\0".encode() for key, text in fields.items()) + b"\0"
            self.request.sendall(b"E" + struct.pack(">I", len(body) + 4) + body)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"postgresql://ann:x@127.0.0.1:{listening.server_address[1]}/budget"
        listening.shutdown()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("53300", 'too many connections for role "ann"'),
        ("53300", 'too many connections for database "budget"'),
        ("53300", "sorry, too many clients already"),
        ("53300", 'remaining connection slots are reserved for roles with privileges of the "pg_use_reserved" role'),
        ("57P03", "the database system is starting up"),
    ],
)
def test_a_server_without_room_is_waited_for(code: str, message: str) -> None:
    heard: list[str] = []
    with refusing(code, message) as url, pytest.raises(Unreachable):
        Database(url, Patience(0.2, heard.append)).exists()
    assert [WAITS.partition(";")[0] in line for line in heard] == [True]


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        ("28000", 'role "ann" is not permitted to log in', "the server does not let this user log in"),
        ("28000", 'role "ann" does not exist', "the server knows no user of this name"),
        ("3D000", 'database "budget" does not exist', "the server has no database of this name"),
        ("42501", 'permission denied for database "budget"', "this user may not use the database"),
    ],
)
def test_a_refusal_is_told_as_what_it_is(code: str, message: str, words: str) -> None:
    heard: list[str] = []
    with refusing(code, message) as url, pytest.raises(RequestError, match=words):
        Database(url, Patience(3600.0, heard.append)).exists()
    assert heard == []


def test_a_certificate_that_is_missing_is_no_missing_database() -> None:
    """What libpq says where the file with certificates is not there."""
    text = 'root certificate file "certificates/root.crt" does not exist'
    assert patience.refusal(text).startswith("the server's certificate is not accepted")
    assert patience.refusal('relation "x" does not exist') == ""


@pytest.mark.parametrize("arrived", [True, False], ids=["commit arrived", "commit was lost"])
@pytest.mark.parametrize("others", [True, False], ids=["others wrote meanwhile", "nobody wrote meanwhile"])
def test_a_commit_without_an_answer_is_looked_for_before_it_is_repeated(
    arrived: bool, others: bool, postgres: str, tmp_path: pathlib.Path
) -> None:
    real = with_account(postgres)
    runs = iter(["s1", "s2"])

    def line_is_back(text: str) -> None:
        if WAITS in text:
            proxy.deaf = proxy.mute = False
            if others:
                name = next(runs)
                admit(real, name, ledgers.plan(0.1, 1e-8, 1), asked=name)

    with DeafProxy(postgres, tmp_path) as proxy:
        ledger = Ledger.open(proxy.url, patience=Patience(60.0, line_is_back))

        def cut() -> None:
            proxy.deaf, proxy.mute = arrived, not arrived

        cut()
        run = admit(ledger, "r")
        assert run.state == "reserved"
        run, attempt = start(ledger, run)
        run = ledger.staged(run, attempt=attempt, files={})
        cut()
        run = ledger.commit(run, attempt=attempt, files={"weekly": b"x"})
        assert run.committed
        assert not proxy.deaf
        assert not proxy.mute
        assert ledger.release(run) == {"weekly": b"x"}
        real.refresh()
        assert ledger.state == real.state
    found = kinds(postgres)
    assert [found.count(kind) for kind in ("run_reserved", "run_committed")] == [1 + 2 * others, 1]


def test_an_attempt_that_others_have_ended_meanwhile_commits_nothing(postgres: str, tmp_path: pathlib.Path) -> None:
    real = with_account(postgres)

    def ended_by_others(text: str) -> None:
        proxy.mute = False
        if WAITS in text:
            real.refresh()
            real.end(real.state.runs[ACCOUNT, "r"], attempt=attempt, how="its machine is gone", destroyed=False)

    with DeafProxy(postgres, tmp_path) as proxy:
        ledger = Ledger.open(proxy.url, patience=Patience(60.0, ended_by_others))
        run, attempt = start(ledger, admit(ledger, "r"))
        run = ledger.staged(run, attempt=attempt, files={})
        proxy.mute = True
        with pytest.raises(LedgerError, match="was continued by another process"):
            ledger.commit(run, attempt=attempt, files={"weekly": b"x"})
    assert "run_committed" not in kinds(postgres)


@pytest.mark.parametrize("word", ["certificate", "permission denied", "pg_hba.conf", "authentication failed"])
def test_names_of_servers_users_and_databases_are_no_refusals(word: str) -> None:
    """Such a server was never waited for."""
    for text in (
        f'connection to server at "{word}-db.example" (127.0.0.1), port 5432 failed: Connection refused',
        f'connection failed: connection to server at "{word}", port 5432 failed: Connection refused',
        f'connection to server on socket "/tmp/{word}/.s.PGSQL.5432" failed: No such file or directory',
        f'connection to server at "h", port 5432 failed: FATAL:  too many connections for role "{word}"',
    ):
        assert patience.refusal(text) == "", text
    named = f'connection to server at "{word}", port 5432 failed: FATAL:  role "{word}" does not exist'
    assert "no user of this name" in patience.refusal(named)
    assert "no machine" in patience.refusal(f"failed to resolve host '{word}': [Errno -2] Name or service not known")


def test_a_refusal_is_waited_for_once_something_is_charged() -> None:
    """A name that fails over to another machine is unknown for a moment."""
    heard: list[str] = []
    waiting = Patience(0.2, heard.append)
    waiting.refusals = True
    with pytest.raises(patience.Refused, match="no machine has this name"):
        Database("postgresql://ann@no-such-host.invalid/budget", waiting).events()
    assert ["no machine has this name; trying again for" in line for line in heard] == [True]
