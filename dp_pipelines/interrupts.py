"""Whether a signal asked this process to stop.

In: signals. Out: a flag. Holds: the flag is set by signals alone, never by code that runs over rows. So a guard near rows can
swallow every error, `KeyboardInterrupt` and `SystemExit` too, and still end when a person stops the run. Not covered: signals
that no handler of Python sees, which end the process at once.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that end a run, by name: not every system has all."""

_asked = threading.Event()
_depth = 0


def note() -> None:
    """Set the flag. Only handlers of signals call this."""
    _asked.set()


def end_if_asked() -> None:
    """End what runs if a signal asked for it. Every guard near rows calls this before it swallows an error.

    Raises:
        KeyboardInterrupt: a signal came. It replaces the error that is being handled, whose text may quote a row.
    """
    if _asked.is_set():
        raise KeyboardInterrupt from None


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Note every signal that comes in this context; what handled it before still does. Contexts may be nested.

    The flag is cleared at the end of the outermost context. Other threads than the main one cannot handle signals, and only
    read the flag.
    """
    global _depth
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {} if _depth else _noted()
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _asked.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def _noted() -> dict[int, Any]:
    """Have the handlers of signals note them first; return those handlers."""
    before = {}
    for number in (getattr(signal, name) for name in SIGNALS if hasattr(signal, name)):
        handler = signal.getsignal(number)
        if callable(handler):
            before[number] = handler
            signal.signal(number, _noting(handler))
    return before


def _noting(handler: Any) -> Any:
    def handle(number: int, frame: FrameType | None) -> None:
        note()
        handler(number, frame)

    return handle
