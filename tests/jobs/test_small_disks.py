"""Every command on a disk that is full or read-only: one message, nothing visible, nothing left, and the same command mends it.

In: the shop, its output on a disk of 8 MiB. Out: what a command says and leaves. Holds: the disk is a real one. Not covered:
quotas and failing hardware, whose errors `tests/test_disk_errors.py` makes.
"""

import subprocess
import sys
from collections.abc import Callable

import pytest

from dp_pipelines.ledger import events
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.release import staging
from dp_pipelines.report import report
from tests.helpers.small_disks import SmallDisk
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

_TOLD = "folder {{!r}}: {}; nothing was published; {}, or choose another folder with --output; then run the same command again"
FULL = _TOLD.format("the disk is full", "free some space on it")
READ_ONLY = _TOLD.format("the disk is read-only", "mount it for writing")


def says(said: Said, text: str, disk: SmallDisk, code: int = 1) -> None:
    """A command said this and nothing else, and left nothing."""
    assert (said.code, said.out, said.err) == (code, "", f"error: {text.format(str(disk.path))}\n")
    assert disk.names() == []


def at_step(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, does: Callable[[], object]) -> None:
    """Have something happen before a step, the first time it is taken."""
    real, done = getattr(owner, name), []

    def wrapped(*arguments: object, **options: object) -> object:
        if not done:
            done.append(1)
            does()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, wrapped)


def test_a_disk_that_is_full_before_a_run_is_refused_and_nothing_is_charged(
    shop: Shop, call: Call, small_disk: SmallDisk
) -> None:
    command = ("run", shop.job, "--output", small_disk.path / "out")
    for stop, mend, reason in (
        (small_disk.fill, small_disk.free, "the disk is full; free some space on it"),
        (small_disk.read_only, small_disk.writable, "the disk is read-only; mount it for writing"),
    ):
        stop()
        said = call(*command)
        assert (said.code, said.out) == (2, "")
        assert said.err.endswith(f"out': cannot be created: {reason}, or choose another folder with --output\n")
        assert small_disk.names() == []
        mend()
    assert Ledger.open(str(shop.folder / DEFAULT_NAME)).state.runs == {}


@pytest.mark.parametrize("ledger", ["a ledger", pytest.param("none", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("owner", "name"), [(staging, "sorted_by_key"), (report, "render")], ids=["worker", "report"])
def test_a_disk_that_fills_up_in_mid_run_is_told_and_mended(
    shop: Shop, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, ledger: str
) -> None:  # fmt: skip
    url = str(shop.folder / DEFAULT_NAME) if ledger != "none" else "none"
    command = ("run", shop.job, "--output", small_disk.path / "out", "--ledger", url)
    with monkeypatch.context() as patch:
        at_step(patch, owner, name, small_disk.fill)
        says(call(*command), FULL, small_disk)
    small_disk.free()
    assert call(*command).code == 0
    assert small_disk.names() == ["out"]
    if ledger != "none":
        assert_charged_once(url)


@pytest.mark.slow
def test_a_disk_that_fills_up_after_the_commit_is_told_and_mended(
    shop: Shop, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("run", shop.job, "--output", small_disk.path / "out")
    with monkeypatch.context() as patch:
        at_step(patch, Ledger, "release", small_disk.fill)
        says(call(*command), FULL, small_disk)
    small_disk.free()
    assert call(*command).code == 0
    assert small_disk.names() == ["out"]
    assert_charged_once(str(shop.folder / DEFAULT_NAME))


def assert_charged_once(url: str) -> None:
    """One run, one release."""
    kinds = [event.kind for event in Ledger.open(url).history]
    assert [kinds.count(kind) for kind in (events.RUN_RESERVED, events.RUN_PUBLISHED)] == [1, 1]


def test_staging_that_a_read_only_disk_keeps_is_destroyed_by_the_next_command(
    shop: Shop, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("run", shop.job, "--output", small_disk.path / "out", "--run-id", "one")
    with monkeypatch.context() as patch:
        at_step(patch, report, "render", small_disk.read_only)
        said = call(*command)
    assert (said.code, said.err) == (1, f"error: {READ_ONLY.format(str(small_disk.path))}\n")
    (left,) = small_disk.names()
    again = call("run", shop.job, "--output", shop.folder / "elsewhere", "--run-id", "one")
    assert again.code == 1
    assert f"{left}: cannot be removed: the disk is read-only; mount it for writing, or remove it" in again.err
    small_disk.writable()
    assert call("run", shop.job, "--output", shop.folder / "elsewhere", "--run-id", "one").code == 0
    assert small_disk.names() == []


@pytest.mark.slow
def test_the_next_run_of_the_ledger_destroys_what_another_one_had_to_leave(
    shop: Shop, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 2})
    with monkeypatch.context() as patch:
        at_step(patch, report, "render", small_disk.read_only)
        assert call("run", shop.job, "--output", small_disk.path / "one", "--run-id", "one").code == 1
    assert len(small_disk.names()) == 1
    assert call("run", shop.job, "--output", shop.folder / "two", "--run-id", "two").code == 0
    small_disk.writable()
    assert call("run", shop.job, "--output", shop.folder / "two", "--run-id", "two").code == 0
    assert small_disk.names() == []


@pytest.mark.slow
def test_what_is_abandoned_leaves_nothing(
    shop: Shop, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        at_step(patch, report, "render", small_disk.read_only)
        assert call("run", shop.job, "--output", small_disk.path / "out", "--run-id", "one").code == 1
    assert call("runs", shop.job, "--abandon", "one").code == 1
    small_disk.writable()
    assert call("runs", shop.job, "--abandon", "one").code == 0
    assert small_disk.names() == []


def test_a_ledger_whose_disk_is_full_or_read_only_says_so(shop: Shop, call: Call, small_disk: SmallDisk) -> None:
    url = small_disk.path / "ledger.sqlite"
    command = ("run", shop.job, "--output", shop.folder / "out", "--ledger", url)
    assert call("ledger", "init", shop.job, "--ledger", url).code == 0
    small_disk.fill()
    said = call(*command)
    assert (said.code, said.err) == (
        1, f"error: ledger {url}: the disk is full, nothing was written; free some space and run the same command again\n",
    )  # fmt: skip
    small_disk.read_only()
    said = call(*command)
    assert (said.code, said.err) == (
        1, f"error: ledger {url}: its disk is read-only; mount it for writing, or name another ledger\n",
    )  # fmt: skip
    small_disk.writable()
    small_disk.free()
    assert call(*command).code == 0
    assert sorted(small_disk.names()) == ["ledger.sqlite"]


def test_a_ledger_cannot_be_made_on_such_a_disk(shop: Shop, call: Call, small_disk: SmallDisk) -> None:
    for stop, mend, reason in (
        (small_disk.fill, small_disk.free, "the disk is full"),
        (small_disk.read_only, small_disk.writable, "the disk is read-only"),
    ):
        stop()
        said = call("ledger", "init", shop.job, "--ledger", small_disk.path / "ledger.sqlite")
        assert said.code == 1
        assert reason in said.err
        assert said.err.count("\n") == 1
        assert small_disk.names() == []
        mend()


@pytest.mark.parametrize("what", ["full", "read-only"])
def test_pages_exports_and_first_jobs_say_it_too(shop: Shop, call: Call, small_disk: SmallDisk, what: str) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    commands = (
        ("report", shop.folder / "out", "--output", small_disk.path / "page.html"),
        ("ledger", "export", shop.job, "--output", small_disk.path / "ledger.json"),
        ("init", str(shop.folder / "data" / "*.parquet"), "--unit", "customer", "--output", small_disk.path / "job.yaml"),
    )  # fmt: skip
    small_disk.fill() if what == "full" else small_disk.read_only()
    for command in commands:
        says(call(*command), FULL if what == "full" else READ_ONLY, small_disk)
    small_disk.writable()
    small_disk.free()
    for command in commands:
        assert call(*command).code == 0


@pytest.mark.slow
def test_made_up_rows_and_looks_at_rows_say_it_too(
    shop: Shop, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up = ("run", shop.job, "--synthetic", "--output", small_disk.path / "out")
    with monkeypatch.context() as patch:
        at_step(patch, staging, "write_in_order", small_disk.fill)
        says(call(*made_up), FULL, small_disk)
    small_disk.free()
    grid = "bounds.max_partitions_contributed=1,2"
    looks = (
        ("tune", shop.job, "--grid", grid, "--output", small_disk.path / "tuned"),
        ("check", shop.job, "--output", small_disk.path / "checked"),
    )
    for look in looks:
        with monkeypatch.context() as patch:
            at_step(patch, staging, "write_in_order", small_disk.fill)
            says(call(*look), FULL, small_disk)
        small_disk.free()
    for look in looks:
        assert call(*look).code == 0


@pytest.mark.slow
def test_whole_processes_say_it_in_one_line_and_the_same_command_mends_it(shop: Shop, small_disk: SmallDisk) -> None:
    start = [sys.executable, "-c", "import sys; from dp_pipelines.jobs.cli.main import main; sys.exit(main())"]
    command = [*start, "run", str(shop.job), "--output", str(small_disk.path / "out")]
    small_disk.fill(leave=2**18)  # what is probed fits; the tables of the first stage and its report do not
    groups = [[f"p{number}", store] for number in range(12_000) for store in range(1, 4)]
    shop.write(stages={"weekly": stage(partition_by=["product", "store"], partitions={"public": groups})})
    full = subprocess.run(command, cwd=shop.folder, capture_output=True, text=True, check=False, timeout=300)
    assert (full.returncode, full.stdout) == (1, "")
    assert full.stderr.splitlines()[-1:] == [f"error: {FULL.format(str(small_disk.path))}"]
    assert "Traceback" not in full.stderr
    assert small_disk.names() == []
    small_disk.free()
    assert subprocess.run(command, cwd=shop.folder, capture_output=True, check=False, timeout=300).returncode == 0
    assert small_disk.names() == ["out"]
    assert_charged_once(str(shop.folder / DEFAULT_NAME))
