"""Threads that share tasks, and what is heavy in a task where one of them has nothing to do.

In: tasks, what does one. Out: all of them done, or the first error. Holds: the main thread only waits, so that signals reach
it; whatever ends the wait, no thread begins anything more. Not covered: what a task means (`local`).
"""

import collections
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

POLL = 0.2
"""Seconds after which the main thread looks up, for signals."""

PATIENCE = 2.0
"""Seconds that an interrupted run waits for its threads. One in the middle of a longer step ends with the process."""


class Stopped(Exception):
    """The run ends; nobody wants this result any more."""


class Worker(Protocol):
    """What one thread does; it may keep things between its tasks."""

    def begin(self, task: Any) -> None:
        """Do a task."""

    def take_over(self, work: Any) -> None:
        """Do what another worker handed over."""

    def finish(self) -> None:
        """No task is left: do what was kept."""


class Crew:
    """Threads at work on the tasks of one step.

    Args:
        threads: how many.
        tasks: of the step.
    """

    def __init__(self, threads: int, tasks: Iterable[Any]) -> None:
        self._threads, self._tasks = threads, collections.deque(tasks)
        self._handed: collections.deque[Any] = collections.deque()
        self._changed = threading.Condition()
        self._idle = self._busy = self._alive = 0
        self._error: BaseException | None = None
        self._stopped = False

    def check(self) -> None:
        """Called between elements.

        Raises:
            Stopped: the run ends.
        """
        if self._stopped:
            raise Stopped

    def hand_over(self, work: Any) -> bool:
        """Give work to a thread that has none; whether there was one."""
        if self._idle <= len(self._handed):  # without the lock: often nobody is idle
            return False
        with self._changed:
            if self._idle <= len(self._handed):
                return False
            self._handed.append(work)
            self._changed.notify_all()  # one of those who wait is the main thread, which does no work
            return True

    def run(self, workers: Callable[[], Worker]) -> None:
        """Do all tasks.

        Args:
            workers: makes one for each thread.

        Raises:
            BaseException: the first error of a thread, or what interrupted the wait.
        """
        threads: Sequence[threading.Thread] = [
            threading.Thread(target=self._work, args=(workers(),), name=f"dp-local-{place}", daemon=True)
            for place in range(self._threads)
        ]
        self._alive = len(threads)
        patience: float | None = PATIENCE
        try:
            for thread in threads:
                thread.start()
            with self._changed:
                while self._alive:
                    self._changed.wait(POLL)
            patience = None
        finally:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()
            end = None if patience is None else time.monotonic() + patience
            for thread in threads:
                if thread.ident is not None:
                    thread.join(None if end is None else max(end - time.monotonic(), 0.0))
        if self._error is not None:
            raise self._error

    def _work(self, worker: Worker) -> None:
        try:
            while (found := self._next()) is not None:
                do, what = (worker.take_over, found[1]) if found[0] else (worker.begin, found[1])
                do(what)
                del found, what
                with self._changed:
                    self._busy -= 1
                    if not self._busy:
                        self._changed.notify_all()
            worker.finish()
        except Stopped:
            pass
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._stopped = True
        finally:
            with self._changed:
                self._alive -= 1
                self._changed.notify_all()

    def _next(self) -> tuple[bool, Any] | None:
        """A task, or work that was handed over; None: there will be none."""
        with self._changed:
            while not self._stopped:
                if self._handed:
                    self._busy += 1
                    return True, self._handed.popleft()
                if self._tasks:
                    self._busy += 1
                    return False, self._tasks.popleft()
                if not self._busy:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            raise Stopped
