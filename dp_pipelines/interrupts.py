"""Whether a signal asked this process to stop.

In: signals. Out: a flag. Holds: the flag is set by signals alone, never by code that runs over rows. So a guard near rows can
swallow every error, `KeyboardInterrupt` and `SystemExit` too, and still end when a person stops the run. Where nobody watches,
as in somebody's own program with our transforms, a `KeyboardInterrupt` of the main thread, alone or in a group, is taken for a
signal; in other threads Python delivers none. Not covered: signals that no handler of Python sees, which end the process at once.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that end a run, by name: not every system has all."""

_asked = threading.Event()
_depth = 0


def note() -> None:
    """Set the flag, in a context of `watched`. Only handlers of signals call this."""
    if _depth:
        _asked.set()


def end_if_asked() -> None:
    """End what runs if a signal asked for it. Every guard near rows calls this before it swallows an error.

    Raises:
        KeyboardInterrupt: a signal came. It replaces the error that is being handled, whose text may quote a row.
    """
    if _asked.is_set() or (not _depth and _in_main_thread() and _has_interrupt(sys.exc_info()[1])):
        raise KeyboardInterrupt from None


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Note every signal that comes in this context and stops it; what handled it before still does. Contexts may be nested.

    The flag is clear at the begin and at the end of the outermost context. Other threads than the main one cannot handle
    signals, and only read the flag.
    """
    global _depth
    if not _in_main_thread():
        yield
        return
    before: dict[int, Any] = {}
    if not _depth:
        _asked.clear()
    _depth += 1
    try:
        if _depth == 1:
            _have_noted(before)
        yield
    finally:
        _depth -= 1
        try:
            for number, handler in before.items():
                signal.signal(number, handler)
        finally:  # last, since until then a signal may set it
            if not _depth:
                _asked.clear()


def _has_interrupt(error: BaseException | None) -> bool:
    """Return True for a `KeyboardInterrupt` and for a group that has one at any depth, as libraries of tasks raise it.

    Methods of a class that somebody derived from a group are not called: they might raise, or never end.
    """
    left, groups = [error], set[int]()
    while left:
        one = left.pop()
        if issubclass(type(one), KeyboardInterrupt):  # `isinstance` asks the error itself for its class
            return True
        if issubclass(type(one), BaseExceptionGroup) and id(one) not in groups:
            groups.add(id(one))
            left += BaseExceptionGroup.exceptions.__get__(one)
    return False


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _have_noted(before: dict[int, Any]) -> None:
    """Note the signals that their handlers end something for; put those handlers in `before`."""
    for number in (getattr(signal, name) for name in SIGNALS if hasattr(signal, name)):
        handler = signal.getsignal(number)
        if callable(handler):
            before[number] = handler
            signal.signal(number, _noting(handler))


def _noting(handler: Any) -> Any:
    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException:  # one that returns, as a server's that loads its settings anew, stops nothing
            note()
            raise

    return handle
