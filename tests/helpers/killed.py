"""The command line in a process that kills itself at one step of a run: a script.

In: a step, `before` or `after` it, which call of it, and the arguments of the command line. Out: a process that is dead, as by
`kill -9`, at that very place; with the step `none` an ordinary one. Holds: the product has no switch for this; the methods
are wrapped from outside.
"""

import os
import pathlib
import signal
import sys
from collections.abc import Callable
from typing import Any

from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.outputs import delta_output, text_tables
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.release import staging
from dp_pipelines.report import report

STEPS: dict[str, tuple[Any, str]] = {
    "admit": (Ledger, "admit"),
    "start": (Ledger, "start"),
    "stage a file": (staging, "write_in_order"),
    "staged": (Ledger, "staged"),
    "describe": (report, "render"),
    "commit": (Ledger, "commit"),
    "publish": (staging, "publish_folder"),
    "rename": (pathlib.Path, "rename"),
    "published": (Ledger, "published"),
    "end": (Ledger, "end"),
    "destroy": (staging, "destroy"),
    "freeze": (Ledger, "freeze"),
    "copy": (text_tables.CsvText, "write"),
    "deliver": (delta_output.DeltaOutput, "publish"),
    "add to a table": (delta_output.DeltaOutput, "_added"),
}
"""Where each step is done."""


def kill_at(step: str, when: str, which: int = 1) -> None:
    """Have this process killed at a step."""
    owner, name = STEPS[step]
    real: Callable[..., Any] = getattr(owner, name)
    calls = []

    def wrapped(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if when == "before" and len(calls) == which:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **options)
        if when == "after" and len(calls) == which:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    where, when, which, *rest = sys.argv[1:]
    if where != "none":
        kill_at(where, when, int(which))
    sys.argv[1:] = rest
    sys.exit(main.main())
