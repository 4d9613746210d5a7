"""What a terminal shows of a run: the same words in every run of a job, and nothing that fails where the terminal is gone."""

import io
import itertools

import pytest

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
