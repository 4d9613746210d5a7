"""A run that is killed at any place, as by a power cut, and the same command again: one release, charged once, nothing left.

In: the shop, real processes that die at a step (`tests.helpers.killed`) or at a random moment. Out: the ledger and the folder
after the second command. Holds: the second command runs in another process than the one that died. Not covered: disks that
lose what they acknowledged.
"""

import contextlib
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from dp_pipelines.jobs.run import ledgered_run
from dp_pipelines.ledger import events
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers.postgres import Server
from tests.helpers.source import ROOT
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

STEPS = [
    *(
        (step, when, 1)
        for step in ("admit", "start", "staged", "commit", "publish", "published")
        for when in ("before", "after")
    ),
    ("stage a file", "before", 1),
    ("stage a file", "after", 1),
    ("stage a file", "after", 2),
    ("describe", "before", 1),
    ("describe", "after", 1),
]
QUICK = [
    ("staged", "after", 1),
    ("commit", "after", 1),
    ("publish", "after", 1),
]
"""Before the charge is final, after it, and after the release is published; the other steps are tried where there is time."""

AGAIN = [
    (("start", "after", 1), ("end", "before", 1)),
    (("stage a file", "after", 1), ("destroy", "before", 1)),
    (("stage a file", "after", 1), ("end", "after", 1)),
    (("staged", "after", 1), ("commit", "before", 1)),
    (("commit", "before", 1), ("commit", "after", 1)),
    (("commit", "after", 1), ("publish", "before", 1)),
    (("publish", "before", 1), ("publish", "after", 1)),
]
"""A kill, and another one of the command that mends it."""


def two_stages(shop: Shop) -> Shop:
    """The shop with a job of two files."""
    shop.write(stages={"weekly": stage(), "listed": stage(partitions={"public": [["p0"], ["p1"]]})})
    return shop


def command(shop: Shop, ledger: str) -> list[str]:
    """The arguments of the run."""
    return ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one", "--ledger", ledger]


def kill(shop: Shop, ledger: str, step: str, when: str, which: int) -> None:
    """Run the command in a process that dies at a step."""
    script = [
        sys.executable,
        str(ROOT / "tests" / "helpers" / "killed.py"),
        step,
        when,
        str(which),
        *command(shop, ledger),
    ]
    dead = subprocess.run(script, cwd=shop.folder, capture_output=True, text=True, check=False, timeout=240)
    assert dead.returncode == -signal.SIGKILL, dead.stderr


def assert_one_release(shop: Shop, url: str) -> None:
    """One release, charged once, in the ledger and in the folder; and nothing else."""
    ledger = Ledger.open(url)
    kinds = [event.kind for event in ledger.history]
    once = (events.PLAN_FROZEN, events.RUN_RESERVED, events.RUN_COMMITTED, events.RUN_PUBLISHED)
    assert [kinds.count(kind) for kind in once] == [1, 1, 1, 1]
    assert kinds.count(events.ATTEMPT_STARTED) <= kinds.count(events.ATTEMPT_ENDED) + 1
    run = ledger.run("shop", "one")
    assert run is not None
    assert run.state == "published"
    assert (
        ledger.account("shop").spent[""].epsilon == 0
        or ledger.account("shop").spent[""] == next(iter(ledger.state.plans.values())).cost
    )
    out = shop.folder / "out"
    assert {path.name: path.read_bytes() for path in out.iterdir()} == ledger.release(run)
    assert set(run.files) == {"listed.parquet", "manifest.json", "report.html", "weekly.parquet"}
    assert [path for path in shop.left() if path != "out" and not path.startswith("out/")] == []
    assert ledger.verify() == len(kinds)
    ledger.close()


@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=[] if step in QUICK else [pytest.mark.slow]) for step in STEPS],
    ids=lambda step: f"{step[1]} {step[0]} {step[2]}",
)
def test_a_kill_at_any_step_is_mended_by_the_same_command(shop: Shop, call: Call, step: tuple[str, str, int]) -> None:
    ledger = str(shop.folder / DEFAULT_NAME)
    kill(two_stages(shop), ledger, *step)
    if step == ("staged", "after", 1):
        assert "the last attempt of one was killed: process " in call("runs", shop.job).out
    said = call(*command(shop, ledger))
    assert (said.code, said.err) == (0, "")
    assert "was killed" not in call("runs", shop.job).out
    assert_one_release(shop, ledger)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), AGAIN, ids=lambda step: f"{step[1]} {step[0]}")
def test_a_kill_of_the_command_that_mends_a_kill_is_mended_too(
    shop: Shop, call: Call, first: tuple[str, str, int], second: tuple[str, str, int]
) -> None:
    ledger = str(shop.folder / DEFAULT_NAME)
    kill(two_stages(shop), ledger, *first)
    kill(shop, ledger, *second)
    said = call(*command(shop, ledger))
    assert (said.code, said.err) == (0, "")
    assert_one_release(shop, ledger)


@pytest.mark.slow
@pytest.mark.parametrize("step", [("start", "after", 1), ("commit", "before", 1), ("publish", "before", 1)])
def test_a_kill_is_mended_on_a_postgresql_server_too(
    shop: Shop, call: Call, postgres: str, step: tuple[str, str, int]
) -> None:
    two_stages(shop)
    shop.without_ledger()
    assert call("ledger", "init", shop.job, "--ledger", postgres).code == 0
    kill(shop, postgres, *step)
    said = call(*command(shop, postgres))
    assert (said.code, said.err) == (0, "")
    assert_one_release(shop, postgres)


@pytest.mark.parametrize("ends", [False, True], ids=["for a moment", "for longer than a command waits"])
def test_a_server_that_takes_no_writes_costs_no_staged_release(
    shop: Shop, call: Call, postgres: str, server: Server, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    name = str(sa.make_url(postgres).database)
    two_stages(shop)
    shop.without_ledger()
    assert call("ledger", "init", shop.job, "--ledger", postgres).code == 0
    monkeypatch.setattr(ledgered_run, "TEN_MINUTES", 1.0 if ends else 60.0)
    begun = []

    def commit(*given: object) -> object:
        if not begun:
            server.do(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            back = f"ALTER DATABASE {name} RESET default_transaction_read_only"
            begun.append(threading.Timer(0.0 if ends else 2.0, lambda: None if ends else server.do(back)))
            begun[0].start()
        return real(*given)  # type: ignore[arg-type]

    real = ledgered_run._commit
    monkeypatch.setattr(ledgered_run, "_commit", commit)
    said = call(*command(shop, postgres))
    assert "the server takes no writes now, as a standby or in maintenance; trying again for" in said.err
    assert said.code == (1 if ends else 0)
    if ends:
        assert "the server takes no writes, as a standby or in maintenance; run the same command again" in said.err
        server.do(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        assert call(*command(shop, postgres)).code == 0
    kinds = [event.kind for event in Ledger.open(postgres).history]
    assert kinds.count(events.RUN_STAGED) == 1, "it was computed once"
    assert_one_release(shop, postgres)


OUTAGES = {
    "takes no writes": (
        "ALTER DATABASE {name} SET default_transaction_read_only = on",
        "ALTER DATABASE {name} RESET default_transaction_read_only",
    ),
    "takes no connections": (
        "ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false",
        "ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true",
    ),
}
"""What ends the use of a database, as a failover does, and what makes it usable again. The second one is a refusal."""


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("ends", [False, True], ids=["for a moment", "for longer than a command waits"])
@pytest.mark.parametrize("step", ["staged", "commit"])
def test_an_outage_that_began_while_rows_were_read_costs_no_release(
    shop: Shop,
    call: Call,
    postgres: str,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    outage: str,
    ends: bool,
    step: str,
) -> None:
    """The first that a run hears of an outage may be at the end, when it tells the ledger what is staged."""
    name = str(sa.make_url(postgres).database)
    begins, back = (statement.format(name=name) for statement in OUTAGES[outage])
    two_stages(shop)
    shop.without_ledger()
    assert call("ledger", "init", shop.job, "--ledger", postgres).code == 0
    monkeypatch.setattr(ledgered_run, "TEN_MINUTES", 1.0 if ends else 60.0)
    real, begun = getattr(Ledger, step), []

    def cut_off(*given: object, **named: object) -> object:
        if not begun:
            server.do(begins)
            server.do(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            begun.append(threading.Timer(2.0, lambda: None if ends else server.do(back)))
            begun[0].start()
        return real(*given, **named)

    monkeypatch.setattr(Ledger, step, cut_off)
    said = call(*command(shop, postgres))
    assert "trying again for" in said.err
    assert said.code == (1 if ends else 0)
    if ends:
        server.do(back)
        assert call(*command(shop, postgres)).code == 0
    kinds = [event.kind for event in Ledger.open(postgres).history]
    assert (kinds.count(events.ATTEMPT_STARTED), kinds.count(events.RUN_STAGED)) == (1, 1), "it was computed once"
    assert_one_release(shop, postgres)


@pytest.mark.parametrize("step", ["staged", "commit"])
def test_a_ledger_in_a_file_that_is_locked_for_too_long_costs_no_release(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    two_stages(shop)
    ledger = str(shop.folder / DEFAULT_NAME)
    monkeypatch.setattr("dp_pipelines.ledger.database.BUSY_SECONDS", 1)
    real = getattr(Ledger, step)

    def locked(*given: object, **named: object) -> object:
        with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            return real(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, step, locked)
        said = call(*command(shop, ledger))
    assert said.code == 1
    assert call(*command(shop, ledger)).code == 0
    kinds = [event.kind for event in Ledger.open(ledger).history]
    assert (kinds.count(events.ATTEMPT_STARTED), kinds.count(events.RUN_STAGED)) == (1, 1), "it was computed once"
    assert_one_release(shop, ledger)


@pytest.mark.slow
def test_a_killed_run_in_another_folder_leaves_its_first_folder_clean(shop: Shop, call: Call) -> None:
    ledger = str(shop.folder / DEFAULT_NAME)
    kill(two_stages(shop), ledger, "stage a file", "after", 1)
    (staged,) = shop.folder.glob(".out.staging-*")
    assert staged.stat().st_mode & 0o777 == 0o700
    other = [part.replace(str(shop.folder / "out"), str(shop.folder / "other")) for part in command(shop, ledger)]
    assert call(*other).code == 0
    assert sorted({path.split("/")[0] for path in shop.left()}) == ["other"]


@pytest.mark.slow
def test_a_kill_before_the_rename_leaves_nothing_that_others_may_read_without_a_ledger_too(
    shop: Shop, call: Call
) -> None:
    kill(two_stages(shop), "none", "rename", "before", 1)
    (staged,) = shop.folder.glob(".out.staging-*")
    assert staged.stat().st_mode & 0o777 == 0o700
    assert len(list(staged.rglob("*.parquet"))) == 2  # a whole draw, and the next command makes another
    assert call(*command(shop, "none")).code == 0
    assert {path.name for path in (shop.folder / "out").iterdir()} == {
        "listed.parquet", "manifest.json", "report.html", "weekly.parquet",
    }  # fmt: skip
    assert {path.split("/")[0] for path in shop.left()} == {"out"}


def kill_at_random(shop: Shop, call: Call, times: int) -> None:
    """Kill a real command at random moments, run it again, and look."""
    two_stages(shop)
    ledger, script = (
        str(shop.folder / DEFAULT_NAME),
        [sys.executable, "-c", "import sys; from dp_pipelines.jobs.cli.main import main; sys.exit(main())"],
    )
    begin = time.monotonic()
    assert (
        subprocess.run(
            [*script, *command(shop, "none")], cwd=shop.folder, capture_output=True, check=False, timeout=240
        ).returncode
        == 0
    )
    takes = time.monotonic() - begin
    moments = random.Random(times)
    for _ in range(times):
        shutil.rmtree(shop.folder / "out", ignore_errors=True)
        shop.without_ledger()
        made = Ledger.create(ledger)
        made.open_account("shop", unit=["customer"], words="one customer", epsilon=1000.0, delta=0.5)
        made.close()
        running = subprocess.Popen(
            [*script, *command(shop, ledger)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=shop.folder
        )
        time.sleep(takes * moments.uniform(0.2, 1.0))
        running.kill()
        running.wait()
        assert call(*command(shop, ledger)).code == 0
        assert_one_release(shop, ledger)


@pytest.mark.slow
def test_kills_at_random_moments_are_mended_by_the_same_command(shop: Shop, call: Call) -> None:
    kill_at_random(shop, call, 8)


@pytest.mark.slow
@pytest.mark.long
def test_sixty_kills_at_random_moments_are_mended_by_the_same_command(shop: Shop, call: Call) -> None:
    kill_at_random(shop, call, 60)


@pytest.mark.slow
def test_a_step_that_kills_nobody_is_seen(shop: Shop) -> None:
    with pytest.raises(AssertionError):
        kill(two_stages(shop), str(shop.folder / DEFAULT_NAME), "none", "before", 1)
    assert pathlib.Path(shop.folder / "out" / "manifest.json").is_file()
