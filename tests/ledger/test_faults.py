"""What machines and people do to a ledger: kills, full disks, lost connections, flipped bits, changes by hand.

In: real processes, real servers, real files. Holds after each fault: nothing above the cap, nothing lost that was acknowledged,
nothing half there, and an error that says what to do.
"""

import os
import pathlib
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile

import pytest
import sqlalchemy as sa

from dp_pipelines.errors import BudgetError, LedgerError, RequestError
from dp_pipelines.ledger.database import Database
from dp_pipelines.ledger.entries import FILTER, Cost, Window
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers.ledgers import ACCOUNT, admit, finish, open_account, plan, start, with_account

SMALL = (0.1, 1e-8, 1)


def rich(url: str) -> Ledger:
    """A ledger with several accounts, plans, runs and stored releases."""
    ledger = with_account(url, patterns=["/data/*.parquet"])
    open_account(ledger, "adaptive", rule=FILTER)
    open_account(ledger, "weekly", window=Window(column="t", days=7, origin="2026-01-05"))
    finish(
        ledger, admit(ledger, "r1", plan(0.3, 1e-7, 3)), {"a": random.Random(1).randbytes(6000), "manifest.json": b"{}"}
    )
    ledger.abandon(admit(ledger, "r2", plan(0.3, 1e-7, 3)))
    finish(ledger, admit(ledger, "r3", account="adaptive"))
    start(ledger, admit(ledger, "r4", account="weekly", window="2026-01-05"))
    ledger.raise_cap("weekly", epsilon=2.0, delta=1e-6)
    return ledger


def releases(ledger: Ledger) -> dict[tuple[str, str], dict[str, bytes]]:
    return {key: ledger.release(run) for key, run in ledger.state.runs.items()}


def decisions(ledger: Ledger) -> list[str]:
    """What the ledger says to a run that is there, one that fits, one too many, and one that is too large."""
    said = []
    for run_id, of, asked in [
        ("r1", (0.3, 1e-7, 3), ""),
        ("n1", (0.3, 1e-7, 3), ""),
        ("n2", SMALL, "x"),
        ("n3", SMALL, "y"),
    ]:
        try:
            said.append(repr(admit(ledger, run_id, plan(*of), asked=asked).round))
        except BudgetError as refused:
            said.append(str(refused).replace(ledger.shown, ""))
    try:
        ledger.admit("weekly", "big", plan=plan(), asked="big", content="c", params={}, window="2026-01-05",
                     records=lambda _: plan().mechanisms)  # fmt: skip
        said.append("taken")
    except BudgetError as refused:
        said.append(str(refused))
    return [*said, repr({name: account.spent for name, account in ledger.state.accounts.items()})]


def flip(folder: pathlib.Path, times: int, chance: random.Random) -> tuple[int, int]:
    """Flip single bits of a ledger; gives how often that was refused, and how often it had no effect."""
    original = rich(str(folder / "original.sqlite"))
    whole = (folder / "original.sqlite").read_bytes()
    place = folder / "flipped.sqlite"
    anchors = pathlib.Path(os.environ["XDG_STATE_HOME"])
    kept = folder / "anchors"
    shutil.copytree(anchors, kept)

    def decided(content: bytes) -> tuple[object, ...]:
        place.write_bytes(content)
        ledger = Ledger.open(str(place))
        ledger.verify()
        found = (ledger.state, releases(ledger), decisions(ledger))
        shutil.rmtree(anchors)
        shutil.copytree(kept, anchors)
        return found

    state, held, _ = expected = decided(whole)
    assert (state.runs["weekly", "r4"], held) == (original.state.runs["weekly", "r4"], releases(original))
    refused = 0
    for _ in range(times):
        at = chance.randrange(len(whole) * 8)
        content = bytearray(whole)
        content[at // 8] ^= 1 << at % 8
        place.with_name(place.name + "-journal").unlink(missing_ok=True)
        try:
            found = decided(bytes(content))
        except (LedgerError, RequestError):
            refused += 1
            shutil.rmtree(anchors)
            shutil.copytree(kept, anchors)
            continue
        assert found[1:] == expected[1:], f"bit {at} was flipped"
        assert found[0].accounts.keys() == state.accounts.keys()
    return refused, times - refused


@pytest.mark.slow
def test_no_flipped_bit_changes_a_decision_or_a_release_unnoticed(quick: pathlib.Path) -> None:
    refused, harmless = flip(quick, 300, random.Random(20260105))
    assert refused > 75
    assert harmless > 0, "a bit in free space has no effect: without one the test says little"


def test_tables_whose_definition_is_damaged_are_refused_in_our_words(sqlite: str) -> None:
    """SQLite repeats the damaged text in its complaint, and that may be no text at all."""
    rich(sqlite)
    whole = pathlib.Path(sqlite).read_bytes()
    begin = whole.index(b"CREATE TABLE dp_events")
    refused = 0
    for at in range(begin, begin + 120):
        content = bytearray(whole)
        content[at] ^= 0x80
        pathlib.Path(sqlite).write_bytes(content)
        try:
            Ledger.open(sqlite).verify()
        except LedgerError:
            refused += 1
    assert refused > 30


@pytest.mark.slow
@pytest.mark.long
def test_1500_flipped_bits_change_nothing_unnoticed(quick: pathlib.Path, seed: int) -> None:
    refused, _ = flip(quick, 1500, random.Random(seed))
    assert refused > 375


def test_a_truncated_file_is_refused(sqlite: str) -> None:
    rich(sqlite)
    whole = pathlib.Path(sqlite).read_bytes()
    for size in [0, 1, 99, 100, 4095, 4096, 8192, len(whole) // 2, len(whole) - 4096, len(whole) - 1]:
        pathlib.Path(sqlite).write_bytes(whole[:size])
        for attempt in (Ledger.open, Ledger.open_or_create, Ledger.accept):
            with pytest.raises(LedgerError):
                attempt(sqlite)
    pathlib.Path(sqlite).write_bytes(whole)
    assert Ledger.open(sqlite).verify() > 10


BY_HAND = {
    "a cap": "UPDATE dp_events SET body = replace(body, '\"epsilon\":1.0', '\"epsilon\":9.0') WHERE kind = 'account_opened'",
    "a charge": "UPDATE dp_events SET body = replace(body, '\"cost\"', '\"was\"') WHERE kind = 'plan_frozen'",
    "a time": "UPDATE dp_events SET time = '2020-01-01' WHERE seq = 3",
    "a kind": "UPDATE dp_events SET kind = 'run_abandoned' WHERE kind = 'run_published'",
    "an event that is gone": "DELETE FROM dp_events WHERE kind = 'run_reserved'",
    "the last events gone": "DELETE FROM dp_events WHERE seq > 4",
    "all events gone": "DELETE FROM dp_events",
    "two events that changed places": "UPDATE dp_events SET seq = CASE seq WHEN 5 THEN 106 WHEN 6 THEN 105 ELSE seq + 100 END",
    "an event that was added": "INSERT INTO dp_events SELECT seq + 1, hash, kind, time, body, "
    "substr(hash, 33) || substr(hash, 1, 32) FROM dp_events WHERE seq = (SELECT max(seq) FROM dp_events)",
    "the hash of the last": "UPDATE dp_events SET hash = replace(hash, substr(hash, 1, 1), 'g') WHERE seq = "
    "(SELECT max(seq) FROM dp_events)",
}  # fmt: skip


@pytest.mark.parametrize("what", BY_HAND)
def test_what_was_changed_by_hand_is_found(url: str, what: str) -> None:
    rich(url)
    with_hands(url, BY_HAND[what])
    for attempt in (Ledger.open, Ledger.open_or_create, Ledger.accept):
        with pytest.raises(LedgerError):
            attempt(url)


def with_hands(url: str, statement: str) -> None:
    """Somebody who knows of the triggers, takes them off and puts them back."""
    database = Database(url)
    with database._engine.begin() as connection:
        if database.is_sqlite:
            query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            found = connection.exec_driver_sql(query).all()
            for name, _ in found:
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
        else:
            connection.execute(sa.text("ALTER TABLE dp_events DISABLE TRIGGER USER"))
        # Keys are checked row by row: out of the way first.
        if "CASE" in statement:
            connection.execute(sa.text(statement.replace("seq + 100", "seq")))
            connection.execute(sa.text("UPDATE dp_events SET seq = seq - 100 WHERE seq > 100"))
        else:
            connection.exec_driver_sql(statement)
        if database.is_sqlite:
            for _, sql in found:
                connection.exec_driver_sql(sql)
        else:
            connection.execute(sa.text("ALTER TABLE dp_events ENABLE TRIGGER USER"))


def test_a_change_by_hand_is_found_by_a_process_that_is_at_work(url: str) -> None:
    ledger = with_account(url)
    admit(ledger, "r")
    with_hands(url, "UPDATE dp_events SET time = 'x' WHERE seq = (SELECT max(seq) FROM dp_events)")
    with pytest.raises(LedgerError, match="was replaced"):
        admit(ledger, "s", asked="2")
    with pytest.raises(LedgerError):
        admit(ledger, "s", asked="2")


def fill_up(ledger: Ledger, say: str = "the disk", name: str = "r") -> int:
    """Commit releases until there is no room; gives how many fitted."""
    for number in range(2000):
        try:
            run = admit(ledger, f"{name}{number}", plan(*SMALL), asked=f"{name}{number}")
            finish(ledger, run, {"weekly": random.Random(f"{name}{number}").randbytes(20_000)})
        except LedgerError as error:
            if say not in str(error):
                raise
            return number
    raise AssertionError("the disk is never full")


def after_full(url: str, done: int) -> None:
    """What holds once the disk was full."""
    ledger = Ledger.open(url)
    ledger.verify()
    committed = [run for run in ledger.state.runs.values() if run.committed]
    assert done <= len(committed) <= done + 1
    assert ledger.account(ACCOUNT).spent[""] == sum((block.cost for block in ledger.state.plans.values()), Cost())


def test_a_full_disk_loses_and_halves_nothing(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        url = str(place / "ledger.sqlite")
        ledger = with_account(url, epsilon=100.0, delta=1e-3)
        done = fill_up(ledger, "the disk is full, nothing was written; free some space")
        assert done > 1
        after_full(url, done)
        fill_up(Ledger.open(url), "the disk is full", "again")
        after_full(url, done)
        subprocess.run(["mount", "-o", "remount,size=4m", str(place)], check=True)
        run = admit(ledger, f"r{done}", plan(*SMALL), asked=f"r{done}")  # the same command again
        if run.attempts and not run.attempts[-1].ended:
            run = ledger.end(run, attempt=run.attempts[-1].name, how="disk full", destroyed=True)
        assert run.committed or finish(ledger, run).committed
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _limited(url: str, log: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ledger = Ledger.open(url)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    pathlib.Path(log).write_text(str(fill_up(ledger)))


def test_a_file_that_cannot_grow_loses_and_halves_nothing(sqlite: str, tmp_path: pathlib.Path) -> None:
    with_account(sqlite, epsilon=100.0, delta=1e-3)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _limited(sqlite, str(tmp_path / "log"))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    after_full(sqlite, int((tmp_path / "log").read_text()))


def _as_nobody(url: str) -> str:
    """What is said to a user who may not write."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    ledger = Ledger.open(url)
    assert ledger.verify() == 2
    for run_id in ("a", "b"):
        try:
            admit(ledger, run_id)
        except LedgerError as error:
            said = str(error)
        else:
            return "it was written"
    return said


@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o555), (0o444, 0o777), (0o666, 0o555)])
def test_a_ledger_that_cannot_be_written_says_so_and_charges_nothing(file: int, folder: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        url = str(place / "ledger.sqlite")
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        with_account(url)
        (place / "state").chmod(0o755)
        for path in (place / "state").rglob("*"):
            path.chmod(0o755)
        os.chmod(url, file)
        place.chmod(folder)
        said, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(told, _as_nobody(url).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(told)
        with os.fdopen(said) as stream:
            text = stream.read()
        place.chmod(0o755)
        assert "cannot be written" in text or "cannot be opened; check its folder" in text
        assert Ledger.open(url).state.runs == {}


def test_a_lost_connection_in_the_middle_charges_nothing(postgres: str, server) -> None:
    ledger = with_account(postgres)
    name = sa.make_url(postgres).database

    def cut(number: int) -> list:
        server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        return plan().mechanisms

    arguments = {"plan": plan(), "asked": "x", "content": "c", "params": {}}
    for _ in range(2):
        with pytest.raises(LedgerError, match="server cannot be reached; run the same command again"):
            ledger.admit(ACCOUNT, "r", records=cut, **arguments)
        assert ledger.state == Ledger.open(postgres).state
        assert ledger.state.runs == {}
    run = ledger.admit(ACCOUNT, "r", records=lambda _: plan().mechanisms, **arguments)
    server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    assert finish(ledger, run).committed


def test_a_connection_that_is_lost_in_the_commit_charges_once(postgres: str, tmp_path: pathlib.Path) -> None:
    """The server has committed, and nobody heard it: the ledger is read again before anything is believed."""
    from tests.ledger.proxy import DeafProxy

    real = with_account(postgres)
    with DeafProxy(postgres, tmp_path) as proxy:
        ledger = Ledger.open(proxy.url)
        run, attempt, spent = None, "", {}
        for step in ("admit", "commit"):
            proxy.deaf = True
            with pytest.raises(LedgerError, match="the server cannot be reached"):
                if step == "admit":
                    admit(ledger, "r")
                else:
                    ledger.commit(run, attempt=attempt, files={"weekly": b"x"})
            proxy.deaf = False
            real.refresh()
            assert ledger.state == real.state
            assert real.run(ACCOUNT, "r").committed == (step == "commit")
            if step == "admit":
                spent = real.account(ACCOUNT).spent
                run, attempt = start(ledger, admit(ledger, "r"))
                run = ledger.staged(run, attempt=attempt, files={})
        assert ledger.account(ACCOUNT).spent == spent
        assert [event.kind for event in ledger.history].count("run_reserved") == 1
        assert ledger.release(ledger.run(ACCOUNT, "r")) == {"weekly": b"x"}


def test_a_server_that_is_not_there_is_told(postgres: str, server) -> None:
    ledger = with_account(postgres)
    name = sa.make_url(postgres).database
    server.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    with pytest.raises(LedgerError):
        admit(ledger, "r")
    server.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert admit(ledger, "r").state == "reserved"


def test_a_journal_that_a_dead_process_left_is_taken_back(sqlite: str) -> None:
    """A process dies with pages already in the file: the next one rolls them back."""
    ledger = with_account(sqlite)
    before = ledger.state
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(sqlite, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        for part in range(40):
            connection.execute(
                "INSERT INTO dp_contents VALUES ('x', ?, ?)", (part, random.Random(part).randbytes(8000))
            )
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert pathlib.Path(sqlite + "-journal").exists()
    assert Ledger.open(sqlite).state == before
    assert Database(sqlite).content("x") is None
