"""Silence while rows are in memory: no library may print, log or warn, since that may quote a row.

In: nothing. Out: a context in which standard output and error go nowhere, for Python and for native code alike, and a stream
to the real standard error for our own progress and notes. Holds: both are restored, whatever happens. Not covered: files that
a library writes on its own.
"""

import contextlib
import io
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import TextIO

from dp_pipelines.jobs.terminal.harmless import harmless


@contextlib.contextmanager
def silence() -> Iterator[TextIO]:
    """Silence everything; gives a text stream to the standard error that was there before.

    >>> with silence():
    ...     print("a row")
    """
    sys.stdout.flush()
    sys.stderr.flush()
    before = logging.root.manager.disable
    hook = threading.excepthook
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        real = stack.enter_context(_copy_of(2))
        for descriptor in (1, 2):
            stack.enter_context(_pointed_at(descriptor, nowhere.fileno()))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        logging.disable(logging.CRITICAL)
        threading.excepthook = lambda args: None
        try:
            yield real
        finally:
            threading.excepthook = hook
            logging.disable(before)


def note(stream: TextIO, text: str) -> None:
    """Say something of the run on the stream that `silence` gives; where that is closed, nobody reads it.

    >>> import sys
    >>> note(sys.stdout, "a job of before still runs")
    note: a job of before still runs
    """
    with contextlib.suppress(OSError, ValueError):
        print(f"note: {harmless(text)}", file=stream, flush=True)


@contextlib.contextmanager
def _copy_of(descriptor: int) -> Iterator[TextIO]:
    """A stream of its own to where a descriptor points now; into memory where it is closed."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        yield io.StringIO()
        return
    stream = open(copy, "w", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below, whatever it still holds
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):  # its reader may have gone, which is no failure of the work inside
            stream.close()


@contextlib.contextmanager
def _pointed_at(descriptor: int, target: int) -> Iterator[None]:
    try:
        saved = os.dup(descriptor)
    except OSError:  # closed: nothing can be printed to it
        yield
        return
    os.dup2(target, descriptor)
    try:
        yield
    finally:
        os.dup2(saved, descriptor)
        os.close(saved)
