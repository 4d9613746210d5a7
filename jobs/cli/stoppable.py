"""Work that a signal may stop, but never in the middle of cleaning up.

In: a block of work, and the folder that it makes. Out: a KeyboardInterrupt where it was stopped. Holds: staging is removed
whatever stops the work; once the folder is there, nothing stops the work any more, since it has succeeded. Not covered: a
process that is killed outright; the next command finds what it left.
"""

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from dp_pipelines import interrupts

STOPPING = interrupts.SIGNALS
"""Signals that end a run, by name: not every system has all."""

PATIENCE = 5.0
"""Seconds during which further signals are ignored. After that another one counts: the first may have been lost."""

AGAIN = 0.5
"""Seconds after which a signal that arrived during an exception is sent again."""


class Stoppable:
    """Ctrl-C, a request to terminate and a hangup all stop the work in this context, so that staging is removed.

    Beam may turn the interrupt into a failure of the step that it hits; whichever came first is reported. Cleanup is never
    cut short: a signal that arrives while the work is already ending changes nothing. Nor does one that arrives when the output
    is visible: what follows is short, and to report a failure would be wrong.

    Args:
        to_the_end: the process exits after this; nothing may interrupt its exit.
    """

    def __init__(self, *, to_the_end: bool = False) -> None:
        self._to_the_end = to_the_end
        self._output: str | None = None
        self._stopped = False
        self._until = 0.0
        self._later: threading.Timer | None = None
        self._before: dict[int, Any] = {}
        self._watched = interrupts.watched()

    def __enter__(self) -> "Stoppable":
        if threading.current_thread() is not threading.main_thread():
            return self  # Python takes no handlers there
        for number in (getattr(signal, name) for name in STOPPING if hasattr(signal, name)):
            before = signal.getsignal(number)
            if number == signal.SIGINT or before != signal.SIG_IGN:  # nohup has a hangup ignored
                self._before[number] = signal.signal(number, self._stop)
        self._watched.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        try:
            if self._before:
                self._watched.__exit__(None, None, None)  # the handlers are `_stop` again, until they are given back
        finally:
            self._leave(failure[0] is not None)

    def _leave(self, failed: bool) -> None:
        """Give the signals back to their handlers. Raises: KeyboardInterrupt, in place of what failed because of one."""
        if self._later is not None:
            self._later.cancel()
        stopped = self._stopped and failed
        over = stopped or self._visible()
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if over and self._to_the_end else handler)
        if stopped:
            raise KeyboardInterrupt from None

    def makes(self, output: str | os.PathLike[str]) -> None:
        """Say which folder the work makes visible, by one rename when all is done. One that is there before says nothing."""
        self._output = None if os.path.lexists(output) else os.path.abspath(output)

    def _visible(self) -> bool:
        """Whether the work has made its folder visible. The disk says so: no flag could change in the same moment as a name."""
        return self._output is not None and os.path.lexists(self._output)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._visible() or (self._stopped and time.monotonic() < self._until):
            return
        self._stopped = True
        interrupts.note()
        self._until = time.monotonic() + PATIENCE
        if sys.exc_info()[0] is None:
            raise KeyboardInterrupt
        # An exception is on its way, and perhaps staging is being removed. If it was only a small one, the work goes on.
        self._until = 0.0
        if self._later is not None:
            self._later.cancel()
        self._later = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
        self._later.daemon = True
        self._later.start()
