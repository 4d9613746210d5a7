"""Asks, on a terminal, whether a run is to be charged that its owner may regret.

In: a run that is about to be charged, a terminal. Out: nothing, or a refusal of the run. Holds: there is a
question only if standard input and standard error are terminals; whether there is one, and what it says, follows from the job
file, the ledger and the plan, never from rows; no name or value can begin a line of it; what was typed before it is no answer;
nothing is locked meanwhile, and the ledger checks again before it charges. Not covered: further runs of a plan that is charged,
unless they repeat the parameters of a release.
"""

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, TextIO

from dp_pipelines.accounting.shown_costs import left_number, spent_number
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request import job_fields
from dp_pipelines.jobs.terminal import silence, summary
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger import release_list
from dp_pipelines.planning import appearing_groups
from dp_pipelines.release.manifest import unit_in_words
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.words.unit_name import plural

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.ledger_account import NewCharge
    from dp_pipelines.jobs.run.run import Confirm

FEW = 3
"""A job with so many changed fields at most differs little from another one."""

LONGEST_LINE = 1200
"""Characters of a line above the question."""

QUESTION = "Charge this and run? [y/N] "


def asker() -> "Confirm | None":
    """Return `ask` if there is somebody who can answer; None if there is none."""
    return ask if _is_answered() else None


def ask(charge: "NewCharge", stream: TextIO, progress: Progress) -> None:
    """Say what is doubtful about a charge and what it costs, and ask; say nothing where nothing is doubtful.

    Args:
        charge: what will be charged.
        stream: the terminal.
        progress: what it shows until then.

    Raises:
        RequestError: the answer is not yes; nothing was charged.
    """
    doubts = doubts_of(charge)
    if not doubts:
        return
    with progress.paused():
        for line in filter(None, (*doubts, price_of(charge))):
            silence.note(stream, visible(visible(line, most=LONGEST_LINE), most=LONGEST_LINE))  # escapes count too
        answer = _answer(stream)
    if answer.strip().casefold() not in ("y", "yes"):
        raise RequestError(
            field="run",
            message="was not confirmed, so nothing was charged and no row was read",
            hint="answer y, or give --yes; `dp-pipelines plan` costs nothing",
        )


def doubts_of(charge: "NewCharge") -> list[str]:
    """Return why the owner of an account may not want a charge, in words; nothing if there is no reason to ask.

    A job differs little from one that has a release if at most `FEW` of its fields differ and a stage has the same name in both.
    A stage, a metric or another part that only one of them has counts once. The nearest of several releases is named.

    Args:
        charge: what would be charged.
    """
    if charge.repeats:
        return [charge.repeats]
    asked = job_fields.fields_of(charge.request.file.job)
    near = []
    for job in charge.released:
        changes = job_fields.changes(job.fields, asked)
        if len(changes) <= FEW and job_fields.shares_a_stage(job.fields, asked):
            near.append((changes, job))
    doubts = []
    if near:
        changes, job = min(near, key=lambda one: len(one[0]))  # of equals the newest, which is first
        name = f"run {release_list.shown_id(job.run_id)!r} of {job.day}"
        words = "; ".join(change.words for change in changes)
        doubts.append(
            f"this job has a plan of its own, but differs from {name} " + (f"only in {words}" if words else "in no key")
        )
    units = plural(unit_in_words(charge.request.file.job.unit))
    return [*charge.elsewhere, *doubts, *summary.warnings_of(appearing_groups.in_units(charge.plan.to_json(), units))]


def price_of(charge: "NewCharge") -> str:
    """Return what a charge costs and what is left for it, in words; empty if its plan is paid for.

    Args:
        charge: what would be charged.
    """
    if charge.repeats:
        return ""
    plan, dataset = charge.plan, charge.request.file.job.dataset
    cost = f"epsilon {spent_number(plan.accounted['epsilon'])} and delta {spent_number(plan.accounted['delta'])}"
    runs = f" for all of its {plan.runs} runs" if plan.runs > 1 else ""
    if charge.opens_account:
        return f"it costs {cost}{runs}, and opens the account {dataset!r} with this job's budget as its cap"
    if charge.left is None:
        return f"it costs {cost}{runs}, and the account {dataset!r} has room for it"
    left = f"epsilon {left_number(charge.left[0])} and delta {left_number(charge.left[1])}"
    return f"it costs {cost}{runs}, of {left} that the account {dataset!r} has left"


def _is_answered() -> bool:
    """Return True if standard input and standard error are a terminal's, and this process may read from it."""
    try:
        if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
    except ValueError:  # it is closed
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()  # one in the background would be stopped
    except (
        AttributeError,
        OSError,
        ValueError,
    ):  # it is not the terminal of this process, or there are no such groups here
        return True


def _answer(stream: TextIO) -> str:
    """Return the line that is typed; empty where there is none, or an interrupt came instead."""
    in_main = threading.current_thread() is threading.main_thread()
    # An interrupt is an answer here: nothing is under way that would have to be ended.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler) if in_main else None
    line = ""
    try:
        _forget_typed()
        stream.write(QUESTION)
        stream.flush()
        line = sys.stdin.readline()
    except (KeyboardInterrupt, OSError, ValueError):  # the terminal is gone, or what was typed is no text
        line = ""
    finally:
        if in_main:
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
    if not line.endswith("\n"):
        with contextlib.suppress(OSError, ValueError):
            print(file=stream, flush=True)
    return line


def _forget_typed() -> None:
    """Drop what was typed before the question: a line that was pasted with the command is no answer to it."""
    try:
        import termios
    except ImportError:  # a system without such terminals
        return
    with contextlib.suppress(termios.error, OSError, ValueError):  # it is no terminal any more
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
