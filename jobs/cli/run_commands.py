"""What the command `run` does around a run: names with parameters, the run before that was not finished, the link to the newest.

In: the arguments of the command. Out: the folder and the id of the run, messages. Holds: all that can be refused here is refused
before anything is charged; what becomes of an earlier run never stops the one that is asked for. Not covered: the run.
"""

import argparse
import dataclasses
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dp_pipelines.errors import DpError, RequestError
from dp_pipelines.jobs.run import run_names
from dp_pipelines.jobs.run.run import NO_LEDGER, PublishedRun, check_run_id, run
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.terminal import output

if TYPE_CHECKING:
    from dp_pipelines.jobs.outputs.latest_link import LatestLink, LatestObject
    from dp_pipelines.ledger.entries import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunNames:
    """The names of a run, with the values of its parameters.

    Args:
        output: the folder to publish.
        run_id: of the run, or None.
        latest: the link that leads to its release afterwards, or None.
        values: of the parameters.
    """

    output: str
    run_id: str | None
    latest: "LatestLink | LatestObject | None"
    values: Mapping[str, Value]

    def point_to(self, published: PublishedRun) -> str:
        """Have the link lead to a release, and return what was done, in words; empty without a link.

        Args:
            published: the run.

        Raises:
            PublishError: the link cannot be written.
        """
        if self.latest is None:
            return ""
        from dp_pipelines.report.trends.published_runs import ReleasedRun

        shown = str(published.folder) if published.place is None else published.place.shown
        return self.latest.point_to(ReleasedRun(folder=published.folder, content=published.manifest), shown)


def names_of(file: JobFile, given: argparse.Namespace) -> RunNames:
    """Return the names of the run that a command asks for.

    Args:
        file: the job.
        given: the arguments of `run`.

    Raises:
        RequestError: a name cannot be filled in, or the link cannot be written.
    """
    if given.spare and (given.synthetic or file.job.parties is not None):
        message = "is for a run that a ledger charges" if given.synthetic else "is not for several parties"
        raise RequestError(field="--spare", message=message, hint="drop it")
    values: Mapping[str, Value] = {}
    if any("{" in text for text in (given.output, given.run_id, given.latest) if text is not None):
        values = run_names.values_of(file, given.param)
    target = run_names.filled(given.output, values, "--output")
    run_id = None if given.run_id is None else run_names.filled(given.run_id, values, "--run-id")
    latest = None
    if given.latest is not None:
        from dp_pipelines.jobs.outputs import latest_link

        if given.synthetic:
            message = "is for releases, and a report of made-up rows is none"
            raise RequestError(field=latest_link.OPTION, message=message, hint="drop it")
        latest = latest_link.link_of(run_names.filled(given.latest, values, latest_link.OPTION))
        latest.refuse_unfit(target)
    return RunNames(output=target, run_id=run_id, latest=latest, values=values)


def finish_earlier(file: JobFile, given: argparse.Namespace, names: RunNames, rest: list[str]) -> None:
    """Finish the newest run of a pattern of run ids that has no release yet, before a new one is opened.

    A failure of the earlier run is told, and the new run goes on: a day whose files are damaged must not stop all days after it.

    Args:
        file: the job.
        given: the arguments of `run`, with the patterns.
        names: of the run that is asked for.
        rest: options of Beam.

    Raises:
        LedgerError: the ledger cannot be used.
    """
    if names.run_id is None or names.run_id == given.run_id or given.ledger == NO_LEDGER or given.synthetic:
        return
    check_run_id(names.run_id, file)
    earlier = run_names.unfinished(file, given.run_id, names.run_id, given.ledger, given.anchor)
    if earlier is None:
        return
    called = f"run {earlier.run_id!r}"
    if process := _at_work(earlier):
        output.note(f"note: {called} has no release yet, and is left to process {process}, which is working on it")
        return
    try:
        target = run_names.filled(given.output, earlier.params, "--output")
    except RequestError:  # the job had other parameters then
        target = names.output
    if target == names.output or file.job.parties is not None:
        output.note(f"note: {called} has no release yet; finish it with: {_command(file, given, earlier)}")
        return
    output.note(f"note: {called} has no release yet, and is finished first")
    try:
        run(
            file, target, given=[f"{name}={value}" for name, value in earlier.params.items()], run_id=earlier.run_id,
            arguments=rest, ledger=given.ledger, runner=given.runner, anchor=given.anchor,
        )  # fmt: skip
    except DpError as error:
        output.note(f"note: {called} could not be finished: {error}")
    else:
        output.note(f"note: {called} is published in {target}")


def _at_work(earlier: "Run") -> int | None:
    """Return the number of the process of this machine that is working on a run; None if none is known."""
    from dp_pipelines.jobs.runners import processes

    last = earlier.attempts[-1] if earlier.attempts else None
    if last is None or last.ended or not processes.alive(last.where):
        return None
    return int(last.where["pid"])


def _command(file: JobFile, given: argparse.Namespace, earlier: "Run") -> str:
    """Return the command that finishes a run."""
    parts = ["dp-pipelines", "run", str(file.path), "--run-id", earlier.run_id]
    for name, value in earlier.params.items():
        parts += ["--param", f"{name}={value}"]
    for option in ("ledger", "anchor", "party"):
        if getattr(given, option, None) is not None:
            parts += [f"--{option}", getattr(given, option)]
    return shlex.join(parts) + " --output DIR"
