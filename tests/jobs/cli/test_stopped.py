"""A run that is stopped, and streams that the shell has closed: what is left, what is said and how it ends.

In: the shop. Out: real processes. Holds: the pipeline waits for ever in the middle, so that no test depends on the machine's
speed.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from dp_pipelines.jobs.cli import stoppable
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers import warm_process
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]

# Reading waits for ever: the pipeline is stopped in the middle, whatever the machine's speed.
WAIT = "import time\nfrom dp_pipelines.release import staging\nstaging.write_in_order = lambda *a: time.sleep(3600)\n"
# Removing takes a while and says when it has begun.
SLOW_END = """
import pathlib, shutil
removed = shutil.rmtree
def slowly(folder, **options):
    pathlib.Path("data/removing").touch()
    time.sleep(2)
    removed(folder, **options)
shutil.rmtree = slowly
"""
FAIL = "from dp_pipelines.release import staging\nimport time\ndef fail(*a): 1 / 0\nstaging.write_in_order = fail\n"


# After the rename, while the summary is printed, and at the very end of the process: each moment lasts for a while.
LASTING = """
import atexit, pathlib, time
from dp_pipelines.jobs.terminal import summary
from dp_pipelines.release import staging
def moment(name):
    pathlib.Path("data", name).touch()
    time.sleep(1.5)
synced, printed = staging._sync, summary.print_release
def sync(path):
    synced(path)
    if (path / "out" / "manifest.json").exists():
        moment("visible")
def show(*arguments, **options):
    moment("printing")
    printed(*arguments, **options)
staging._sync, summary.print_release = sync, show
atexit.register(moment, "ending")
"""


def started(*arguments: str, cwd: pathlib.Path, start: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    # Where nohup has started the tests, a hang-up would not be heard.
    heard = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)"
    code = f"{heard}\n{start}\nimport sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main())"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(found: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until something is there, or the process has ended."""
    for _ in range(4800):
        if found() or process.poll() is not None:
            return
        time.sleep(0.05)


def staged(shop: Shop) -> list[pathlib.Path]:
    """Staging folders below the shop."""
    return list(shop.folder.glob("a/b/.out.staging-*"))


@pytest.mark.parametrize(
    "signum",
    [signal.SIGINT, *(pytest.param(other, marks=pytest.mark.slow) for other in (signal.SIGTERM, signal.SIGHUP))],
)
def test_a_run_that_is_stopped_leaves_nothing(shop: Shop, signum: signal.Signals) -> None:
    running = started("run", "job.yaml", "--output", "a/b/out", cwd=shop.folder, start=WAIT)
    wait_for(lambda: staged(shop), running)
    assert [folder.stat().st_mode & 0o777 for folder in staged(shop)] == [0o700]
    time.sleep(1)
    running.send_signal(signum)
    out, err = running.communicate(timeout=240)
    assert (running.returncode, out, err) == (1, "", "error: interrupted; run the same command again to continue\n")
    assert shop.left() == []


@pytest.mark.parametrize("first", ["a signal", pytest.param("a failure", marks=pytest.mark.slow)])
def test_signals_while_a_run_cleans_up_change_nothing(shop: Shop, first: str) -> None:
    start = (WAIT if first == "a signal" else FAIL) + SLOW_END
    running = started("run", "job.yaml", "--output", "a/b/out", cwd=shop.folder, start=start)
    if first == "a signal":
        wait_for(lambda: staged(shop), running)
        time.sleep(1)
        running.send_signal(signal.SIGINT)
    wait_for((shop.folder / "data" / "removing").exists, running)
    for signum in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        running.send_signal(signum)
        time.sleep(0.1)
    out, err = running.communicate(timeout=240)
    assert (running.returncode, out, err) == (1, "", "error: interrupted; run the same command again to continue\n")
    assert shop.left() == []


@pytest.mark.slow
@pytest.mark.parametrize("ledger", [(), ("--ledger", "none")], ids=["ledger", "no ledger"])
def test_signals_after_the_release_is_visible_change_nothing_and_the_command_has_succeeded(
    ledger: tuple[str, ...], shop: Shop
) -> None:
    running = started("run", "job.yaml", "--output", "a/b/out", *ledger, cwd=shop.folder, start=LASTING)
    for moment in ("visible", "printing", "ending"):
        wait_for((shop.folder / "data" / moment).exists, running)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            running.send_signal(signum)
    out, err = running.communicate(timeout=240)
    assert (running.returncode, err) == (0, "")
    assert "weekly" in out
    assert [path.name for path in (shop.folder / "a" / "b").iterdir()] == ["out"]
    if not ledger:
        opened = Ledger.open(str(shop.folder / DEFAULT_NAME))
        assert [run.state for run in opened.state.runs.values()] == ["published"]
        opened.close()


def test_a_signal_counts_until_the_folder_that_the_work_makes_is_there(tmp_path: pathlib.Path) -> None:
    with stoppable.Stoppable() as work:
        work.makes(tmp_path / "out")
        (tmp_path / "out").mkdir()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt), stoppable.Stoppable() as work:
        work.makes(tmp_path / "out")  # it is there already, and says nothing about this work
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)


def test_a_hangup_that_nohup_ignores_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable.Stoppable():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_that_something_swallows_can_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stoppable, "PATIENCE", 3600.0)
    work, heard = stoppable.Stoppable(), []
    with pytest.raises(KeyboardInterrupt), work:
        for _ in range(3):
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
            except KeyboardInterrupt:
                heard.append("first")
        work._until = 0.0  # as if so much time had passed
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    assert heard == ["first"]


def test_an_interrupt_while_a_small_exception_is_handled_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stoppable, "AGAIN", 0.1)
    handled = []
    with pytest.raises(KeyboardInterrupt), stoppable.Stoppable():
        try:
            raise ValueError
        except ValueError:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
            handled.append("whole")
        time.sleep(60)
        handled.append("too much")
    assert handled == ["whole"]


def shell(shop: Shop, command: str) -> subprocess.CompletedProcess[str]:
    """A command in a shell; `@` stands for the command line."""
    line = command.replace(
        "@", f"{sys.executable} -c 'from dp_pipelines.jobs.cli.main import main; raise SystemExit(main())'"
    )
    return subprocess.run(["sh", "-c", line], cwd=shop.folder, capture_output=True, text=True, check=False, timeout=240)


UNHEARD = "error: standard output: cannot be written; the result is not shown\n"


@pytest.mark.parametrize("arguments", ["plan job.yaml", "plan job.yaml --json", "schema", "--version", "--help"])
@pytest.mark.parametrize("stream", [">&-", ">/dev/full", "<&- >&-"])
def test_a_result_that_nobody_can_get_is_one_line_and_exit_code_1(shop: Shop, arguments: str, stream: str) -> None:
    if "full" in stream:  # known only after the start, unlike a stream that is closed
        done = warm_process.run(arguments.split(), folder=shop.folder, output="/dev/full")
    else:
        done = shell(shop, f"@ {arguments} {stream}")
    assert (done.returncode, done.stderr) == (1, UNHEARD)


@pytest.mark.slow
def test_messages_that_nobody_can_get_change_nothing_else(shop: Shop) -> None:
    heard = shell(shop, "@ plan job.yaml")
    assert heard.returncode == 0
    for stream in ("2>&-", "<&- 2>&-", "2>/dev/full"):
        done = shell(shop, f"@ plan job.yaml {stream}")
        assert (done.returncode, done.stdout) == (0, heard.stdout)
        done = shell(shop, f"@ plan none.yaml {stream}")
        assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
def test_a_release_is_published_whatever_is_closed(shop: Shop) -> None:
    done = shell(shop, "@ run job.yaml --output out --ledger none >&-")
    note = f"note: published in {shop.folder / 'out'}; its summary could not be shown here\n"
    assert (done.returncode, done.stderr) == (0, note)
    done = shell(shop, "@ run job.yaml --output other --ledger none <&- >&- 2>&-")
    assert done.returncode == 0
    names = sorted(path.name for path in (shop.folder / "other").iterdir())
    assert names == ["manifest.json", "report.html", "weekly.parquet"]


def test_a_summary_that_cannot_be_shown_is_a_note_about_a_release_that_stands(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dp_pipelines.jobs.terminal import summary

    def fails(*arguments: object, **options: object) -> None:
        raise ValueError("p3")

    monkeypatch.setattr(summary, "print_release", fails)
    out = os.dup(1)
    try:
        said = call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none")
    finally:
        os.dup2(out, 1)
        os.close(out)
    assert (said.code, said.out) == (0, "")
    assert said.err == f"note: published in {shop.folder / 'out'}; its summary could not be shown here\n"
    assert (shop.folder / "out" / "manifest.json").is_file()
