"""Where events are kept: added to and never changed, one writer at a time, local disks only, and no secret in a message."""

import os
import pathlib
import random
import sqlite3
import stat
import threading

import pytest
import sqlalchemy as sa

from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import disks, events
from dp_pipelines.ledger.database import PART, Database
from dp_pipelines.ledger.events import Event, chained
from dp_pipelines.ledger.places import parse
from tests.helpers import ledgers

FIRST = chained(None, events.LEDGER_CREATED, {"ledger": "l", "anchor": ""}, "")


def made(url: str) -> Database:
    database = Database(url)
    with database.creating() as writer:
        writer.append(FIRST)
    return database


def run(database: Database, *statements: str) -> None:
    """Somebody with the right to do anything, who does not go through our code."""
    engine = sa.create_engine(f"sqlite:///{database.path}" if database.is_sqlite else database._url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_a_ledger_that_another_process_makes_during_a_look_for_it_is_there_or_not(url: str) -> None:
    looked = []

    def make_one(connection, cursor, statement, parameters, context, executemany) -> None:
        if connection.engine is database._engine and not looked:
            looked.append(statement)
            made(url)

    database = Database(url)
    if database.is_sqlite:
        pytest.skip("a file takes its name when it is whole")
    sa.event.listen(database._engine, "after_cursor_execute", make_one)
    while not looked:  # the first statements may be those of connecting
        assert database.exists() in (True, False)
    assert database.exists()


def test_what_was_appended_is_read_in_order(url: str) -> None:
    database, last = made(url), FIRST
    for _ in range(4):
        last = chained(last, events.CAP_RAISED, {"ä": "\x00\ud800"}, "t")
        with database.writing() as writer:
            writer.append(last)
            assert writer.events(last.seq - 1) == [last]
    assert [event.seq for event in database.events()] == [1, 2, 3, 4, 5]
    assert database.events(3) == database.events()[3:]
    assert database.events()[-1] == last


def test_what_fails_leaves_nothing(url: str) -> None:
    database = made(url)
    with pytest.raises(KeyboardInterrupt), database.writing() as writer:
        writer.append(chained(FIRST, events.CAP_RAISED, {}, ""))
        writer.keep("a" * 64, b"x")
        raise KeyboardInterrupt
    assert database.events() == [FIRST]
    assert database.content("a" * 64) is None


def test_two_events_cannot_follow_the_same_one(url: str) -> None:
    database = made(url)
    for body in ({"n": 1}, {"n": 2}):
        event = chained(FIRST, events.CAP_RAISED, body, "")
        if body["n"] == 2:
            event = Event(**{**vars(event), "seq": 3})
            with pytest.raises(LedgerError), database.writing() as writer:
                writer.append(event)
        else:
            with database.writing() as writer:
                writer.append(event)
    assert len(database.events()) == 2


@pytest.mark.parametrize(
    "statement",
    ["UPDATE dp_events SET time = 'x'", "DELETE FROM dp_events", "UPDATE dp_contents SET part = 7", "DELETE FROM dp_contents"],
)  # fmt: skip
def test_rows_are_never_changed_or_removed(url: str, statement: str) -> None:
    database = made(url)
    with database.writing() as writer:
        writer.keep("a" * 64, b"x")
    with pytest.raises(sa.exc.DBAPIError, match="only ever added to"):
        run(database, statement)
    assert database.events() == [FIRST]
    assert database.content("a" * 64) == b"x"


def test_a_table_cannot_be_emptied_at_once(postgres: str) -> None:
    with pytest.raises(sa.exc.DBAPIError, match="only ever added to"):
        run(made(postgres), "TRUNCATE dp_events")


def drop(database: Database) -> str:
    return (
        "DROP TRIGGER dp_events_update" if database.is_sqlite else "DROP TRIGGER dp_events_only_added_to ON dp_events"
    )


def test_triggers_that_are_gone_are_found(url: str) -> None:
    database = made(url)
    database.check()
    run(database, drop(database))
    with pytest.raises(LedgerError, match="triggers against changes are missing"):
        database.check()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE dp_events DISABLE TRIGGER USER",
        "CREATE OR REPLACE FUNCTION dp_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    ],
)
def test_triggers_that_do_nothing_are_found(postgres: str, statement: str) -> None:
    database = made(postgres)
    run(database, statement)
    with pytest.raises(LedgerError, match="triggers"):
        database.check()


def test_triggers_of_another_schema_do_not_stand_in(postgres: str) -> None:
    database = made(postgres)
    run(database, "CREATE SCHEMA other", "CREATE TABLE other.t (x int)", drop(database),
        "CREATE TRIGGER dp_t_only_added_to BEFORE UPDATE ON other.t EXECUTE FUNCTION dp_only_added_to()")  # fmt: skip
    with pytest.raises(LedgerError, match="triggers"):
        database.check()


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART])
def test_bytes_come_back_whole(sqlite: str, size: int) -> None:
    database, content = made(sqlite), random.Random(size).randbytes(size)
    for _ in range(2):  # the second time they are there
        with database.writing() as writer:
            writer.keep("a" * 64, content)
    assert database.content("a" * 64) == content
    assert database.content("b" * 64) is None


def test_other_bytes_under_the_same_digest_are_refused(url: str) -> None:
    database = made(url)
    with database.writing() as writer:
        writer.keep("a" * 64, b"x")
    with pytest.raises(LedgerError, match="damaged"), database.writing() as writer:
        writer.keep("a" * 64, b"y")


def test_writers_wait_for_each_other(url: str) -> None:
    database, order = made(url), []
    inside, go = threading.Event(), threading.Event()

    def first() -> None:
        with Database(url).writing():
            inside.set()
            go.wait(60)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(60)
    threading.Timer(0.3, go.set).start()
    with database.writing():
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_writer_that_waits_too_long_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dp_pipelines.ledger.database.BUSY_SECONDS", 1)
    database = made(url)
    with (
        database.writing(),
        pytest.raises(LedgerError, match="another process has been writing"),
        Database(url).writing(),
    ):
        pass


def test_a_database_is_made_whole_or_not_at_all(url: str) -> None:
    database = Database(url)
    with pytest.raises(KeyboardInterrupt), database.creating():
        raise KeyboardInterrupt
    assert not database.exists()
    if database.path is not None:
        assert list(database.path.parent.glob("*ledger*")) == []
        assert list(database.path.parent.glob(".*ledger*")) == []
    assert made(url).exists()


def test_a_database_is_made_once(url: str) -> None:
    made(url)
    with pytest.raises(RequestError, match="already exists"):
        made(url)
    assert Database(url).events() == [FIRST]


def test_where_links_are_not_possible_a_file_is_renamed(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert made(sqlite).events() == [FIRST]


def test_asking_makes_no_file(sqlite: str, tmp_path: pathlib.Path) -> None:
    assert not Database(sqlite).exists()
    assert not pathlib.Path(sqlite).exists()


def test_a_file_that_goes_while_it_is_open_is_not_made_again(sqlite: str) -> None:
    database = made(sqlite)
    os.unlink(sqlite)
    for attempt in (database.events, lambda: database.content("a" * 64), lambda: database.writing().__enter__()):
        with pytest.raises(LedgerError, match="cannot be opened"):
            attempt()
    assert not pathlib.Path(sqlite).exists()


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_a_file_that_is_no_ledger_is_refused_and_kept(sqlite: str, content: bytes) -> None:
    pathlib.Path(sqlite).write_bytes(content)
    with pytest.raises(LedgerError, match="not hold a ledger|not a SQLite file"):
        Database(sqlite).exists()
    with pytest.raises(RequestError, match="already exists"):
        made(sqlite)
    assert pathlib.Path(sqlite).read_bytes() == content


def test_a_database_of_somebody_else_is_no_ledger(sqlite: str) -> None:
    with sqlite3.connect(sqlite) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(LedgerError, match="does not hold a ledger"):
        Database(sqlite).exists()


def test_a_file_is_for_its_user_alone(sqlite: str) -> None:
    made(sqlite)
    assert stat.S_IMODE(os.stat(sqlite).st_mode) == 0o600


def test_a_relative_path_stays_where_it_was(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    database = made("here ?#%.sqlite")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert database.events() == [FIRST]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["here ?#%.sqlite"]


def test_sqlite_is_as_durable_as_it_can_be(sqlite: str) -> None:
    database = made(sqlite)
    with database._engine.connect() as connection:
        found = [connection.execute(sa.text(f"PRAGMA {name}")).scalar_one() for name in ("synchronous", "journal_mode")]
    assert found == [3, "delete"]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_refused(kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = tmp_path / "a share"
    share.mkdir()
    mounts = tmp_path / "mounts"
    escaped = str(share).replace(" ", "\\040")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/export {escaped} {kind} rw 0 0\n")
    monkeypatch.setattr(disks, "MOUNTS", mounts)
    (tmp_path / "link").symlink_to(share)
    for path in (share / "l.sqlite", share / "not" / "yet" / "l.sqlite", tmp_path / "link" / "l.sqlite"):
        with pytest.raises(RequestError, match=rf"network file system \({kind}\)"):
            Database(str(path))
    Database(str(tmp_path / "l.sqlite"))
    mounts.write_text(mounts.read_text() + f"tmpfs {escaped} tmpfs rw 0 0\n")  # mounted over it
    Database(str(share / "l.sqlite"))


def test_without_a_list_of_mounts_nothing_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "MOUNTS", tmp_path / "none")
    assert disks.kind_of(tmp_path) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        "", "mysql://h/d", "postgresql+psycopg2://h/d", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true",
        f"postgresql:ann:{ledgers.SECRET}@h/d", f"postgresql://ann:{ledgers.SECRET}@h:port/d", "sqlite:x", "a\0b",
    ],
)  # fmt: skip
def test_a_place_that_is_none_is_refused_without_repeating_it(wrong: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse(wrong)
    assert ledgers.SECRET not in str(refused.value)
    assert refused.value.field == "--ledger"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{ledgers.SECRET}@127.0.0.1:1/budget",
        f"postgresql://ann@127.0.0.1:1/budget?password={ledgers.SECRET}",
        f"postgresql:///budget?host=/nowhere&user=ann&password={ledgers.SECRET}&sslpassword={ledgers.SECRET}",
    ],
)
def test_no_message_holds_a_password(url: str) -> None:
    database = Database(url)
    assert ledgers.SECRET not in database.shown
    assert "budget" in database.shown
    for attempt in (database.exists, database.check, database.events):
        with pytest.raises(LedgerError, match="the server cannot be reached") as refused:
            attempt()
        chain = [refused.value, refused.value.__cause__]
        assert ledgers.SECRET not in "".join(str(error) for error in chain)
        assert refused.value.__suppress_context__


def test_a_failure_while_writing_does_not_repeat_what_was_written(url: str) -> None:
    database = made(url)
    with pytest.raises(LedgerError) as refused, database.writing() as writer:
        writer.append(Event(**{**vars(FIRST), "body": ledgers.SECRET, "seq": 7}))
    assert ledgers.SECRET not in str(refused.value)
