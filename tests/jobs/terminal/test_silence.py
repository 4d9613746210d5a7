"""Silence while rows are in memory, and the one line of progress that is allowed."""

import io
import logging
import os
import subprocess
import sys
import threading
import warnings

import pytest

from dp_pipelines.jobs.runners.direct import CountingRunner
from dp_pipelines.jobs.terminal.progress import READING, Progress, file_opened, heard
from dp_pipelines.jobs.terminal.silence import silence


def test_nothing_that_is_said_inside_is_heard_and_what_is_said_after_is(capfd: pytest.CaptureFixture[str]) -> None:
    with silence():
        print("row 4711")
        print("row 4711", file=sys.stderr)
        os.write(1, b"row 4711\n")
        os.write(2, b"row 4711\n")
        logging.getLogger("apache_beam").critical("row 4711")
        warnings.warn("row 4711", stacklevel=1)
        subprocess.run([sys.executable, "-c", "print('row 4711')"], check=True)
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    print("after")
    assert capfd.readouterr().out == "after\n"


def test_silence_ends_with_a_failure_too(capfd: pytest.CaptureFixture[str]) -> None:
    before = logging.root.manager.disable
    with pytest.raises(ZeroDivisionError), silence():
        raise ZeroDivisionError
    assert logging.root.manager.disable == before
    print("after", file=sys.stderr)
    assert capfd.readouterr().err == "after\n"


def test_our_own_stream_reaches_the_real_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with silence() as stream:
        stream.write("progress\n")
    assert capfd.readouterr().err == "progress\n"


def test_progress_is_silent_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.begin(3)
        progress.step("a", "reading 2 files")
    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_counts_steps_once_and_in_public_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown: list[str] = []
    with Progress(Terminal()) as progress:
        monkeypatch.setattr(progress, "show", shown.append)
        progress.begin(3)
        for name in ("a", "a", "b", "c", "d"):
            progress.step(name, "weekly")
    assert shown == [f"step {n} of 3 · weekly" for n in (1, 1, 2, 3, 3)]


def test_files_are_counted_as_they_are_opened_and_only_while_somebody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    with Progress(io.StringIO()) as progress:
        monkeypatch.setattr(progress, "show", shown.append)
        progress.begin(3, 2)
        file_opened()
        with heard(progress):
            progress.step("a", READING)
            file_opened()
            file_opened()
            file_opened()
        file_opened()
    assert shown == [f"step 1 of 3 · {n} of 2 files" for n in (0, 1, 2, 2)]


def test_steps_are_told_by_the_names_of_the_job() -> None:
    runner = CountingRunner(Progress(io.StringIO()), 12, ["weekly", "daily"])
    assert runner._words("((Read/Files)+(Read/RowGroups))") == READING
    assert runner._words("(weekly/ByShard/Read)+(daily/ToPartials)") == "weekly, daily"
    assert runner._words("(something else)") == ""
