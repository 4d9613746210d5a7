"""Kills the process of the command line at one point of a run.

In: a point, `before` or `after` it, and which time it is reached. Out: a process that is dead, as by `kill -9`, at that very
place (`tests.helpers.warm_process` runs the command line in it). Holds: the product has no switch for this; a few functions are
wrapped from outside. A point is a kind of event of the ledger, one of `events.KINDS`: `before` is when the event is made and its
transaction is not written, `after` is when the transaction is complete. So a new kind of event is a new point. Changes of files,
which the ledger does not know of, are listed in `FILES`.
"""

import importlib
import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

from dp_pipelines.jobs.outputs import text_tables
from dp_pipelines.ledger import events, journal
from dp_pipelines.release import staging
from dp_pipelines.report import report

DELTA = "dp_pipelines.extensions.lake.delta_output"

FILES: dict[str, tuple[Any, str]] = {
    "stage a file": (staging, "write_in_order"),
    "describe": (report, "render"),
    "publish": (staging, "publish_folder"),
    "rename": (pathlib.Path, "rename"),
    "destroy": (staging, "destroy"),
    "copy": (text_tables.CsvText, "write"),
    "deliver": (DELTA, "DeltaOutput.publish"),
    "add to a table": (DELTA, "DeltaOutput._added"),
}
"""Where files are written, moved and removed, by name: what has the function, or the module of an extension, and its name."""


class Killer:
    """Kills this process when a point is reached the given number of times.

    Args:
        when: `before` or `after`.
        which: the number, from 1.
    """

    def __init__(self, when: str, which: int) -> None:
        self._when, self._which, self._begun, self._ended = when, which, 0, 0

    def begin(self) -> None:
        """Note that the point begins."""
        self._begun += 1
        if self._when == "before" and self._begun == self._which:
            os.kill(os.getpid(), signal.SIGKILL)

    def end(self) -> None:
        """Note that it has ended."""
        if self._when == "after" and self._ended < self._which <= self._begun:
            os.kill(os.getpid(), signal.SIGKILL)
        self._ended = self._begun


def kill_at_files(point: str, killer: Killer) -> None:
    """Have this process killed at a change of files."""
    owner, name = FILES[point]
    if isinstance(owner, str):  # imported for its own points alone
        cls, _, name = name.partition(".")
        owner = getattr(importlib.import_module(owner), cls)
    real: Callable[..., Any] = getattr(owner, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        killer.begin()
        result = real(*arguments, **options)
        killer.end()
        return result

    setattr(owner, name, wrapped)


def kill_at_event(kind: str, killer: Killer) -> None:
    """Have this process killed where the ledger writes an event of a kind."""
    add, write, create = journal.Adder.__call__, journal.Journal.write, journal.Journal.create.__func__

    def added(self: journal.Adder, added_kind: str, *given: Any, **named: Any) -> None:
        if added_kind == kind:
            killer.begin()
        add(self, added_kind, *given, **named)

    def written(self: journal.Journal, *given: Any, **named: Any) -> None:
        write(self, *given, **named)
        killer.end()

    def created(cls: type[journal.Journal], *given: Any, **named: Any) -> journal.Journal:
        made: journal.Journal = create(cls, *given, **named)
        killer.end()
        return made

    journal.Adder.__call__ = added  # type: ignore[method-assign]
    journal.Journal.write = written  # type: ignore[method-assign]
    journal.Journal.create = classmethod(created)  # type: ignore[assignment]


def kill_at(point: str, when: str, which: int = 1) -> None:
    """Have this process killed at a point, a kind of event or one of `FILES`."""
    if point not in events.KINDS and point not in FILES:
        raise ValueError(f"{point!r} is no point: {', '.join((*events.KINDS, *FILES))}")
    (kill_at_event if point in events.KINDS else kill_at_files)(point, Killer(when, which))
