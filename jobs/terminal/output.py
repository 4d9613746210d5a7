"""Prints the output of commands, even if the reader may be gone.

In: text on standard output inside `printing`; lines for standard error. Out: the same, written at once when the work is done, so
that a reader who leaves never stops it halfway. Holds: a reader who left (`... | head -1`) is not a failure, as with any Unix
tool; output that cannot be written (a full disk, a closed stream) is an error if printing it was the only task, and a note if the
work is done and stays; nothing is left for the interpreter to write at exit. Not covered: what others print.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from dp_pipelines.errors import DpError
from dp_pipelines.jobs.terminal.harmless import harmless

UNSHOWN = "standard output: cannot be written; the result is not shown"

LOST = "its output could not be shown here"
"""What follows the result of a command that is done, where standard output cannot be written."""


class _Styled(io.StringIO):
    """Text held back for later, escape sequences of styles in it; looks like the stream that will receive it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        """Whether a terminal will show it."""
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"


class _Held(_Styled):
    """Text held back for later, with nothing in it that acts on a terminal."""

    @property
    def styled(self) -> TextIO:
        """The same text, for a `HarmlessConsole`, whose styles stay."""
        return _Through(self)

    def write(self, text: str) -> int:
        """Add text."""
        return super().write(harmless(text))


class _Through(_Styled):
    """Adds styled text to what is held back."""

    def __init__(self, held: _Held) -> None:
        super().__init__(held._stream)
        self._held = held

    def write(self, text: str) -> int:
        """Add text."""
        return io.StringIO.write(self._held, text)


@contextlib.contextmanager
def printing(done: str = "") -> Iterator[None]:
    """Hold back what is written to standard output inside, and print it at the end if possible.

    Args:
        done: what the command has done, if it did more than print; written to standard error if the text is lost.

    Raises:
        DpError: the text cannot be written, and printing it was the only task.

    >>> with printing():
    ...     print("all of it")
    all of it
    """
    held = _Held(sys.stdout)
    try:
        with contextlib.redirect_stdout(held):
            yield
    except SystemExit:  # help
        _show(held, done)
        raise
    except BaseException:  # what was said before stays true
        with contextlib.suppress(DpError):
            _show(held, done)
        raise
    _show(held, done)


def _show(held: _Held, done: str) -> None:
    text = held.getvalue().encode(held.encoding, "backslashreplace").decode(held.encoding)
    if not text:  # a full device refuses even nothing
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    except BrokenPipeError:
        point_nowhere(1)  # or Python would try again at its end
    except (OSError, ValueError):
        point_nowhere(1)
        if not done:
            raise DpError(UNSHOWN) from None
    if done:
        note(f"note: {done}")


def print_styled(text: str) -> None:
    """Print what a `HarmlessConsole` has made, inside of `printing`."""
    stream: TextIO = getattr(sys.stdout, "styled", sys.stdout)
    stream.write(text + "\n")


def note(line: str) -> None:
    """A line on standard error, if anybody can read it: after a hangup nobody can."""
    try:
        print(harmless(line), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        point_nowhere(2)


def open_what_is_closed() -> None:
    """Put something behind the standard streams that the shell has closed, so that no file of ours takes their places.

    What is said on standard error is then lost; writing to standard output fails, as it should.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            point_nowhere(descriptor, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def leave_nothing() -> None:
    """Write what libraries have left in the streams, or drop it: a failure at Python's own end would change the exit code."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            point_nowhere(descriptor)


def point_nowhere(descriptor: int, way: int = os.O_WRONLY) -> None:
    """What is written to a descriptor from now on, and what its stream still holds, is lost."""
    nowhere = os.open(os.devnull, way)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
