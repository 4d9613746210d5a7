"""Progress of a run: its steps and the number of files, never rows, users or partitions.

In: public facts about the run. Out: on a terminal one line that is rewritten; elsewhere, as in a log file, a line every ten
seconds. Holds: the job determines everything shown except how fast it moves. Not covered: that speed, which the number of
lines in a log shows too.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TextIO

from rich.status import Status
from rich.text import Text

from dp_pipelines.jobs.terminal import silence
from dp_pipelines.jobs.terminal.console import HarmlessConsole
from dp_pipelines.jobs.terminal.harmless import harmless

READING = "reading"
"""The words of the reading step; shown as a number of files."""


LOG_SECONDS = 10.0
"""How often a log gets a line. A run that is faster leaves none."""

ENVIRONMENT = "DP_PIPELINES_PROGRESS_SECONDS"
"""The variable that sets other seconds than `LOG_SECONDS`; 0 keeps logs empty, e.g. where cron sends mail for each line."""


class _Console(HarmlessConsole):
    """A console that survives a closed pipe, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True


class _Log:
    """Repeats the last text every `LOG_SECONDS`, where there is no terminal.

    Args:
        stream: of the log.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text, self._over = stream, "", threading.Event()
        self._seconds = _seconds()
        self._thread = threading.Thread(target=self._repeat, name="progress", daemon=True)

    def start(self) -> None:
        if self._seconds > 0:
            self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def update(self, text: str) -> None:
        self._text = text

    def _repeat(self) -> None:
        while not self._over.wait(self._seconds):
            if self._text:
                with contextlib.suppress(OSError, ValueError):  # the log may be closed
                    print(f"progress: {harmless(self._text)}", file=self._stream, flush=True)


def _seconds() -> float:
    """The seconds between two lines of a log."""
    try:
        given = float(os.environ.get(ENVIRONMENT, ""))
    except ValueError:
        return LOG_SECONDS
    return given if 0 <= given <= threading.TIMEOUT_MAX else LOG_SECONDS


class Progress:
    """A line of progress.

    Args:
        stream: standard error.

    >>> import io
    >>> with Progress(io.StringIO()) as progress:
    ...     progress.show("planning")
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        console = _Console(file=stream)
        self._status = Status("", console=console) if console.is_terminal else _Log(stream)
        self._total, self._files, self._begun = 0, 0, 0
        self._words = ""
        self._done: dict[str, None] = {}
        self._reads: set[str] = set()

    def __enter__(self) -> "Progress":
        self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._status.stop()

    def show(self, text: str) -> None:
        """Show what is being done."""
        with contextlib.suppress(OSError):
            if isinstance(self._status, Status):  # in a string rich would look for markup, and fail where it is broken
                self._status.update(Text(harmless(text)))
            else:
                self._status.update(text)

    def note(self, text: str) -> None:
        """Say something of the run, on a line of its own; on a terminal above the line of progress.

        Threads of an engine may say something too, also after the end.

        >>> import sys
        >>> Progress(sys.stdout).note("a job of before still runs")
        note: a job of before still runs
        """
        if not isinstance(self._status, Status):
            silence.note(self._stream, text)
            return
        with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            self._status.console.print(Text(f"note: {harmless(text)}"), soft_wrap=True)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within this context the terminal shows no progress, so that somebody can be asked."""
        if not isinstance(self._status, Status):
            yield
            return
        with contextlib.suppress(OSError):
            self._status.stop()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._status.start()

    def begin(self, total: int, files: int = 0) -> None:
        """A pipeline of `total` steps over so many files starts."""
        self._total, self._files, self._begun = total, files, 0
        self._done.clear()
        self._reads.clear()

    def step(self, name: str, words: str) -> None:
        """A step runs; the same step may run in several pieces, and counts once.

        Args:
            name: tells steps apart.
            words: what it does, in public words.
        """
        self._done.setdefault(name)
        if words == READING:
            self._reads.add(name)
        # Files are first listed and then read. What else runs before that only prepares, in an order that Beam leaves to chance.
        prepares = self._files > 0 and self._begun == 0 and len(self._reads) < 2
        self._words = READING if prepares else words
        self._show_step()

    def file(self) -> None:
        """A file has been opened."""
        self._begun = min(self._begun + 1, self._files)
        self._show_step()

    def _show_step(self) -> None:
        reading = f"{self._begun} of {self._files} files" if self._words == READING else self._words
        self.show(f"step {min(len(self._done), self._total)} of {self._total} · {reading}")


_current: list[Progress] = []


@contextlib.contextmanager
def heard(progress: Progress) -> Iterator[None]:
    """Within this context, `file_opened` of steps in this process is reported."""
    _current.append(progress)
    try:
        yield
    finally:
        _current.remove(progress)


def file_opened() -> None:
    """Called by the pipeline for each file; has no effect in other processes."""
    for progress in _current:
        progress.file()
