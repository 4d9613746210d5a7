"""What a terminal shows of a run: the same words in every run of a job, and nothing that fails where the terminal is gone."""

import io
import itertools
import time

import pytest

from dp_pipelines.jobs.terminal import progress as progress_module
from dp_pipelines.jobs.terminal.progress import READING, Progress


class Terminal(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    """A terminal that has hung up."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def shown(steps: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is shown of some steps; before the last of them a file is opened."""
    said: list[str] = []
    monkeypatch.setattr(Progress, "show", lambda self, text: said.append(text))
    progress = Progress(io.StringIO())
    progress.begin(len(steps), 1)
    for name, words in steps[:-1]:
        progress.step(name, words)
    progress.file()
    progress.step(*steps[-1])
    return said


def test_the_order_of_steps_that_only_prepare_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [("files", READING), ("places a", "a"), ("places b", "b")]
    ways = {
        tuple(shown([*order, ("read", READING), ("release a", "a")], monkeypatch))
        for order in itertools.permutations(first)
    }
    assert ways == {
        (
            "step 1 of 5 · 0 of 1 files",
            "step 2 of 5 · 0 of 1 files",
            "step 3 of 5 · 0 of 1 files",
            "step 4 of 5 · 0 of 1 files",
            "step 4 of 5 · 1 of 1 files",
            "step 5 of 5 · a",
        )
    }


def test_a_stage_is_shown_where_no_file_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Progress, "show", lambda self, text: said.append(text))
    progress = Progress(io.StringIO())
    progress.begin(3, 1)
    for step in (("files", READING), ("read", READING), ("release a", "a")):
        progress.step(*step)
    assert said[-1] == "step 3 of 3 · a"


def test_a_terminal_that_is_gone_stops_nothing() -> None:
    progress = Progress(Gone())
    assert progress._status is not None
    with Progress(Terminal()) as alive:
        alive.show("planning")
    progress.show("planning")
    progress.__exit__(None, None, None)


def test_a_log_gets_a_line_now_and_then_until_the_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress_module.ENVIRONMENT, "0.01")
    log = io.StringIO()
    with Progress(log) as progress:
        progress.show("planning")
        while log.getvalue().count("\n") < 2:
            time.sleep(0.01)
        progress.show("running on flink")
        while "running" not in log.getvalue():
            time.sleep(0.01)
    said = log.getvalue()
    assert set(said.splitlines()) == {"progress: planning", "progress: running on flink"}
    time.sleep(0.05)
    assert log.getvalue() == said, "nothing is said once the work has ended"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, 10), ("3", 3), ("0", 0), ("", 10), ("often", 10), ("nan", 10), ("-1", 10), ("inf", 10)],
)
def test_a_variable_sets_how_often(given: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress_module.ENVIRONMENT, raising=False)
    if given is not None:
        monkeypatch.setenv(progress_module.ENVIRONMENT, given)
    assert progress_module._seconds() == seconds


def test_quick_work_leaves_no_line_in_a_log() -> None:
    log = io.StringIO()
    with Progress(log) as progress:
        progress.show("planning")
    assert log.getvalue() == ""


def test_a_closed_log_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress_module.ENVIRONMENT, "0.01")
    log = io.StringIO()
    with Progress(log) as progress:
        progress.show("planning")
        log.close()
        time.sleep(0.05)
        progress.show("reading")


def test_a_note_has_a_line_of_its_own_on_a_terminal_also_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    with Progress(terminal) as progress:
        progress.show("planning 1 stages")
        progress.note("a job of before [still] runs \x1b[31m" + "x" * 300)
        progress.show("step 1 of 5")
    progress.note("its engine said more")
    lines = [line.rpartition("\r")[2] for line in terminal.getvalue().split("\n")]
    [noted] = [line for line in lines if "a job of before" in line]
    before, _, said = noted.rpartition("note: ")
    assert "planning" not in before.rpartition("\x1b[2K")[2]
    assert said.startswith("a job of before [still] runs \\u001b[31m" + "x" * 300)
    assert lines[-2].endswith("note: its engine said more")


def test_a_note_on_a_terminal_that_is_gone_stops_nothing() -> None:
    Progress(Gone()).note("nobody reads it")
