"""`dp-pipelines audit`: compares and replays a job's plan without data, and prints the result.

In: a job file, parameters, a number of replays. Out: an audit; its text. Holds: no rows are read, nothing is charged or created,
and only public facts are shown. Not covered: what an audit does (`dp_pipelines.audit`).
"""

import io
import re
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

import rich.box
from rich.markup import escape
from rich.table import Table

from dp_pipelines.audit.audit import EVERYTHING, Audit, Line, audit
from dp_pipelines.audit.divergence import EPSILONS, Divergence
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.preview import preview
from dp_pipelines.jobs.run.run import plan_of
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.terminal.console import HarmlessConsole
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.jobs.terminal.summary import WIDTH

COVERS = """An audit checks that every field of the plan's records matches what runs: noise, samples, clips, thresholds,
selections and, for a model, the units that each release reads. It does not check the sensitivity of a kernel (the privacy
tests do), and says nothing about the rows of a source, about Beam, or about who reads this machine's memory."""

WRONG = "DOES NOT AGREE"


def replays_of(given: str | None) -> int | None:
    """The requested number of replays.

    Raises:
        RequestError: it is not a whole number.

    >>> replays_of("20000")
    20000
    """
    if given is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", given):
        raise RequestError(field="--replays", message="must be a whole number", hint="write e.g. --replays 200000")
    return int(given)


def audit_job(job: str, given: Sequence[str], replays: str | None, note: Callable[[str], None]) -> Audit:
    """Plan a job and audit the plan.

    Args:
        job: the job file.
        given: parameters, `NAME=VALUE`.
        replays: how many; None: the default.
        note: called with what could not be checked.

    Raises:
        RequestError: the job, a parameter or the number of replays is wrong.
        BudgetError: the budget cannot be met.
    """
    number, file = replays_of(replays), job_file.load(job)
    stages, unchecked = preview(file, given)
    if unchecked:
        note(f"note: {unchecked}")
    with Progress(sys.stderr) as progress:
        progress.show("planning")
        plan = plan_of(file, stages)
        try:
            return audit(plan, replays=number, tell=progress.show)
        except RequestError as error:
            if error.field != "replays":
                raise
            raise RequestError(field="--replays", message=error.message, hint=error.hint) from None


def text(found: Audit, stream: TextIO) -> str:
    """An audit in words.

    Args:
        found: the audit.
        stream: where it will be printed: a terminal gets colours.
    """
    buffer = io.StringIO()
    out = HarmlessConsole(
        file=buffer, width=WIDTH, highlight=False, force_terminal=stream.isatty(), soft_wrap=not stream.isatty()
    )
    out.print(
        f"{found.replays:,} replays of each stage, with and without one worst-case unit; no data were read. The probability "
        f"that a correct plan is reported as wrong is at most {found.false_alarms:g}."
    )
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("accounted delta / replayed")
    for epsilon in EPSILONS:
        table.add_column(f"at epsilon {epsilon:g}", justify="right")
    table.add_column("")
    for line in found.lines:
        style = "bold" if line.name == EVERYTHING else ""
        cells = [_cell(line, epsilon) for epsilon in EPSILONS]
        table.add_row(escape(_name(line)), *cells, "agrees" if line.agrees else f"[red]{WRONG}[/red]", style=style)
    out.print(table)
    for line in found.lines:
        if line.findings:
            out.print(f"[bold]{escape(_name(line))}[/bold]")
        for each in line.findings:
            mark = "" if each.evidence < found.limit else f"  [red]{WRONG}[/red]"
            out.print(f"  {escape(each.what)}: {escape(each.found)}{mark}")
    for note in found.notes:
        out.print(f"not replayed: {escape(note)}")
    out.print()
    out.print(COVERS)
    out.print()
    verdict = "As far as these replays can tell, the run matches the accounting." if found.agrees else WRONG
    out.print(f"[bold]{verdict}[/bold]", end="")
    return buffer.getvalue()


def _name(line: Line) -> str:
    return line.name if line.group is None or line.name != EVERYTHING else f"{line.name}, {line.group} units"


def _cell(line: Line, epsilon: float) -> str:
    """The direction that comes closer to the accounted delta, or exceeds it."""
    both = [each for each in line.divergences if each.epsilon == epsilon]

    def closeness(each: Divergence) -> tuple[float, float]:
        return each.evidence, each.replayed

    worst = max(both, key=closeness)
    return f"{_short(worst.accounted)} / {_short(max(0.0, worst.replayed))} ± {worst.error:.1g}"


def _short(delta: float) -> str:
    return "0" if delta == 0 else f"{delta:.4f}" if delta >= 1e-4 else f"{delta:.1g}"
