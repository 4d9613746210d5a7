"""A run that is killed at any place, as by a power cut, and the same command again: one release, charged once, nothing left.

In: the shop, real processes that die at a point (`tests.helpers.killed`) or at a random moment. Out: the ledger and the folder
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
import yaml

from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.run import ledgered_run
from dp_pipelines.ledger import events
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.baseline import forms
from tests.helpers import warm_process
from tests.helpers.postgres import Server
from tests.jobs.conftest import Said, Shop, fill, stage

Call = Callable[..., Said]

OF_OTHER_COMMANDS = {
    events.CAP_RAISED: "ledger raise",
    events.RUN_ABANDONED: "runs --abandon",
    events.DATA_TUNED: "tune and check",
    events.JOB_SUBMITTED: "run on a runner that has jobs (tests/jobs/runners/test_orphaned_jobs.py)",
    events.ATTEMPT_ENDED: "a run after a failed one (`AGAIN`)",
    events.DRAW_FROZEN: "a run of several pipelines, or of training (see below)",
}
"""Kinds of events that the first run of a plain job does not write, and the command that does. Only the last three are points of
other tests, which the text names."""

POINTS = [
    *((kind, when, 1) for kind in events.KINDS if kind not in OF_OTHER_COMMANDS for when in ("before", "after")),
    ("publish", "before", 1),
    ("publish", "after", 1),
    ("stage a file", "before", 1),
    ("stage a file", "after", 1),
    ("stage a file", "after", 2),
    ("describe", "before", 1),
    ("describe", "after", 1),
]
"""Each kind of event that the run writes is a point, also one that is added later; see `tests.helpers.killed`."""

QUICK = [
    (events.RUN_STAGED, "after", 1),
    (events.RUN_COMMITTED, "after", 1),
    ("publish", "after", 1),
]
"""Before the charge is final, after it, and after the release is published; the other points are tried where there is time."""

AGAIN = [
    ((events.ATTEMPT_STARTED, "after", 1), (events.ATTEMPT_ENDED, "before", 1)),
    (("stage a file", "after", 1), ("destroy", "before", 1)),
    (("stage a file", "after", 1), (events.ATTEMPT_ENDED, "after", 1)),
    ((events.RUN_STAGED, "after", 1), (events.RUN_COMMITTED, "before", 1)),
    ((events.RUN_COMMITTED, "before", 1), (events.RUN_COMMITTED, "after", 1)),
    ((events.RUN_COMMITTED, "after", 1), ("publish", "before", 1)),
    (("publish", "before", 1), ("publish", "after", 1)),
]
"""A kill, and another one of the command that mends it."""


def two_stages(shop: Shop) -> Shop:
    """The shop with a job of two files."""
    shop.write(stages={"weekly": stage(), "listed": stage(partitions={"public": [["p0"], ["p1"]]})})
    return shop


def command(shop: Shop, ledger: str) -> list[str]:
    """The arguments of the run; without the name of a ledger it takes the one next to the job, or makes it."""
    named = ["--ledger", ledger] if ledger else []
    return ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one", *named]


def kill(shop: Shop, ledger: str, point: str, when: str, which: int) -> None:
    """Run the command in a process that dies at a point."""
    warm_process.kill(command(shop, ledger), folder=shop.folder, point=point, when=when, which=which)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The kinds of events that a run of two stages writes which makes its ledger itself, in order."""
    folder = tmp_path_factory.mktemp("undisturbed")
    fill(folder)
    shop = two_stages(Shop(folder))
    assert main.main(command(shop, "")) == 0
    return kinds_in(str(folder / DEFAULT_NAME))


def kinds_in(url: str) -> list[str]:
    """Return the kinds of the events of a ledger, in order."""
    ledger = Ledger.open(url)
    try:
        return [event.kind for event in ledger.history]
    finally:
        ledger.close()


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


def test_every_kind_of_event_is_written_by_a_run_or_by_another_command_that_is_named(written: list[str]) -> None:
    assert set(written) & set(OF_OTHER_COMMANDS) == set()
    assert set(written) | set(OF_OTHER_COMMANDS) == set(events.KINDS), (
        "a kind of event is not written by the run of these tests: name the command that writes it in OF_OTHER_COMMANDS, and say "
        "which test kills it"
    )


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=[] if point in QUICK else [pytest.mark.slow]) for point in POINTS],
    ids=lambda point: f"{point[1]} {point[0]} {point[2]}",
)
def test_a_kill_at_any_point_is_mended_by_the_same_command(
    shop: Shop, call: Call, written: list[str], point: tuple[str, str, int]
) -> None:
    makes_ledger = point[0] in written[: written.index(events.PLAN_FROZEN)]
    if makes_ledger:
        shop.without_ledger()  # the run makes it, as in `written`
    kill(two_stages(shop), "", *point)
    if point == (events.RUN_STAGED, "after", 1):
        assert "the last attempt of one was killed: process " in call("runs", shop.job).out
    said = call(*command(shop, ""))
    opened = [line for line in said.err.splitlines() if makes_ledger and line.startswith("note: opens the account ")]
    assert (said.code, said.err.splitlines()) == (0, opened[:1])
    assert "was killed" not in call("runs", shop.job).out
    # A process that dies while it makes the ledger leaves the unfinished file, which has tables and no row.
    for path in shop.folder.glob(f".{DEFAULT_NAME}.making-*"):
        assert point[:2] == (events.LEDGER_CREATED, "before")
        path.unlink()
    assert_one_release(shop, str(shop.folder / DEFAULT_NAME))


SEVERAL_DRAWS = {
    "strategy sips": (("after",), ()),
    "auto bounds of values": (("before", "after"), pytest.mark.slow),
    "auto bound on partitions": (("before", "after"), pytest.mark.slow),
    "train linear": (("before", "after"), pytest.mark.slow),
    "train with found features": (("before", "after"), pytest.mark.slow),
    "federate with correlated noise": (("before", "after"), pytest.mark.slow),
    "pate": (("before", "after"), pytest.mark.slow),
}
"""Forms whose runs freeze draws; how each is killed around every one of them; the mark of its test."""


@pytest.mark.parametrize(
    ("form", "moments"), [pytest.param(form, moments, marks=marks) for form, (moments, marks) in SEVERAL_DRAWS.items()]
)
def test_kills_around_every_frozen_draw_cost_no_second_draw(
    tmp_path: pathlib.Path, form: str, moments: tuple[str, ...]
) -> None:
    forms.write(tmp_path)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(forms.JOBS[form]))
    shop, url = Shop(tmp_path), str(tmp_path / DEFAULT_NAME)
    deaths = 0
    while all(dies(shop, events.DRAW_FROZEN, when) for when in moments):
        deaths += 1
        assert kinds_in(url).count(events.DRAW_FROZEN) == deaths
    assert deaths > 0
    ledger = Ledger.open(url)
    names = [event.content["name"] for event in ledger.history if event.kind == events.DRAW_FROZEN]
    ledger.close()
    assert len(names) == len(set(names)) == deaths
    kinds = kinds_in(url)
    once = (events.PLAN_FROZEN, events.RUN_RESERVED, events.RUN_COMMITTED, events.RUN_PUBLISHED)
    assert [kinds.count(kind) for kind in once] == [1, 1, 1, 1]
    assert kinds.count(events.ATTEMPT_STARTED) == kinds.count(events.ATTEMPT_ENDED) + 1
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert not list(tmp_path.glob(".out.staging-*"))


def dies(shop: Shop, point: str, when: str) -> bool:
    """Run the command in a process that dies at a point; return False if it succeeds without reaching the point."""
    ended = warm_process.run(command(shop, ""), folder=shop.folder, point=point, when=when)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0


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
@pytest.mark.parametrize(
    "step", [(events.ATTEMPT_STARTED, "after", 1), (events.RUN_COMMITTED, "before", 1), ("publish", "before", 1)]
)
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
