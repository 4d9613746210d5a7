"""The command line: parses arguments, calls a command, prints its result.

In: arguments. Out: results on standard output, messages on standard error, an exit code: 0 done; 1 failed; 2 the request
is invalid by public facts, and nothing was created; 3 the budget refuses. Holds: each error is one line, prefixed `error: `;
messages are public. Slow modules are imported only by the command that needs them: `--help` needs none.
"""

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from dp_pipelines.errors import BudgetError, DpError, RequestError
from dp_pipelines.jobs.terminal import output

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.job_file import JobFile

DONE, FAILED, WRONG, OVER_BUDGET = 0, 1, 2, 3

LOST = "its output could not be shown here"

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that end a run, by name: not every system has all."""

PATIENCE = 5.0
"""Seconds during which further signals are ignored. After that another one counts: the first may have been lost."""

AGAIN = 0.5
"""Seconds after which a signal that arrived during an exception is sent again."""

DESCRIPTION = "Publish differentially private reports from tables of user events."
EPILOG = """examples:
  dp-pipelines plan weekly.yaml                      noise, thresholds and errors, before a row is read
  dp-pipelines run weekly.yaml --output out/weekly   read, release, publish
  dp-pipelines report out/*/                         one page of several runs: trends
  dp-pipelines schema > job.schema.json              for editors

exit codes: 0 done; 1 failed, nothing was published; 2 invalid request, nothing was read; 3 refused by the budget
"""
PLAN_EPILOG = """example:
  dp-pipelines plan weekly.yaml --json | jq '.stages[0].metrics'

Source files are checked if they exist, but a plan does not need them. Standard deviations cover only the noise.
"""
RUN_EPILOG = """example:
  dp-pipelines run weekly.yaml --output out/2026-W01 --param week=2026-W01

a job file:
  dataset: grocery
  privacy_unit: CUSTOMER_ID
  budget: {epsilon: 1.0, delta: 1.0e-6}
  source: {parquet: "data/*.parquet"}
  stages:
    weekly:
      kind: aggregate
      partition_by: [PRODUCT]
      bounds: {max_partitions_contributed: 8, max_contributions_per_partition: 2}
      metrics:
        orders: {kind: count}
        revenue: {kind: sum, column: PRICE, min_value: 0, max_value: 100}

Any other option goes to Beam; write it as --name=value, after the job file.
"""


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        output.note(f"error: {message}; see `{self.prog} --help`")
        sys.exit(WRONG)


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    layout = argparse.RawDescriptionHelpFormatter
    top = _Parser("dp-pipelines", description=DESCRIPTION, epilog=EPILOG, formatter_class=layout, allow_abbrev=False)
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)

    def command(name: str, help_text: str, epilog: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=help_text,
            description=help_text[:1].upper() + help_text[1:] + ".",
            epilog=epilog,
            formatter_class=layout,
            allow_abbrev=False,
        )

    plan = command("plan", "print noise, thresholds and expected errors, before a row is read", PLAN_EPILOG)
    plan.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    plan.add_argument(
        "--explain",
        action="store_true",
        help="also print every record, and the cost of all runs under four accounting methods",
    )
    plan.add_argument("--json", action="store_true", help="print JSON, including every mechanism record")
    _add_param(plan)
    run = command("run", "run a job: read, release and publish", RUN_EPILOG)
    run.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    run.add_argument("--output", metavar="DIR", required=True, help="the folder to publish; it must not exist")
    _add_param(run)
    run.add_argument("--run-id", metavar="ID", help="name of this run; required if the budget covers several runs")
    run.add_argument(
        "--ledger",
        metavar="URL",
        help="the ledger (default: dp-ledger.sqlite beside JOB; none: no accounting across runs)",
    )
    from dp_pipelines.jobs.cli import (
        audit_arguments,
        doctor_arguments,
        ledger_arguments,
        predict_arguments,
        report_arguments,
        tune_arguments,
    )

    ledger_arguments.add_anchor(run)
    run.add_argument(
        "--runner", metavar="NAME", default="direct", help="direct (default), portable, flink, spark or dataflow"
    )
    run.add_argument("--json", action="store_true", help="print JSON instead of the summary")
    for room in (
        audit_arguments, doctor_arguments, predict_arguments, report_arguments, tune_arguments, ledger_arguments,
    ):  # fmt: skip
        room.add(command)
    command(
        "schema",
        "print the JSON schema of job files, for editors",
        "example:\n  dp-pipelines schema > job.schema.json\n",
    )
    return top


def _add_param(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the job; may be repeated"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    >>> main(["--version"])
    dp-pipelines 0.1.0
    0
    """
    output.open_what_is_closed()
    try:
        return _ended(list(sys.argv[1:] if arguments is None else arguments), as_command=arguments is None)
    finally:
        output.leave_nothing()


def _ended(arguments: list[str], *, as_command: bool) -> int:
    """The exit code of a command, whatever it ends with."""
    try:
        return _called(arguments, as_command=as_command)
    except BudgetError as error:
        return _say(error, OVER_BUDGET)
    except RequestError as error:
        return _say(error, WRONG)
    except DpError as error:
        return _say(error, FAILED)
    except KeyboardInterrupt:
        _say("interrupted; run the same command again to continue", FAILED)
        if as_command:
            # As a command: threads of Beam that the interrupt cut off from their end would keep the process alive for ever.
            os._exit(FAILED)
        return FAILED
    except Exception:
        # A mistake of ours. Rows are in memory inside `run.run` only, which lets nothing out that may quote them.
        kind, _, frames = sys.exc_info()
        # Where, and of which kind; not what it says, since that may quote a value.
        output.note("".join(traceback.format_tb(frames)) + (kind.__name__ if kind is not None else ""))
        return _say("internal error; please report the lines above; nothing was published", FAILED)


def _called(arguments: list[str], *, as_command: bool) -> int:
    top = parser()
    with output.printing():  # help
        given, rest = top.parse_known_args(arguments)
    given.as_command = as_command
    if given.version:
        from dp_pipelines import __version__

        with output.printing():
            print(f"dp-pipelines {__version__}")
        return DONE
    commands: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
        "plan": _plan,
        "audit": _audit,
        "doctor": _doctor,
        "run": _run,
        "ledger": _ledger,
        "runs": _runs,
        "predict": _predict,
        "report": _report,
        "tune": _tune,
        "schema": _schema,
    }
    if given.command is None:
        top.error("missing command; choose one of " + ", ".join(commands))
    if rest and given.command not in ("run", "doctor", "tune"):
        top.error(f"unknown argument {rest[0]}")
    return commands[given.command](given, rest)


def _say(error: object, code: int) -> int:
    for line in str(error).splitlines():
        output.note(f"error: {line}")
    return code


def _schema(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.spec.job_file import Job
    from dp_pipelines.jobs.terminal.summary import as_json

    with output.printing():
        print(as_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **Job.model_json_schema()}))
    return DONE


def _ledger(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import ledger_commands

    changes = given.subcommand in ("init", "raise") or getattr(given, "output", None) is not None
    with output.printing(f"ledger {given.subcommand} is done; {LOST}" if changes else ""):
        ledger_commands.ledger(given)
    return DONE


def _runs(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import ledger_commands

    changes = given.abandon is not None or given.gone is not None
    with output.printing(f"the state of the run has changed; {LOST}" if changes else ""):
        ledger_commands.runs(given)
    return DONE


def _predict(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.predict import predict
    from dp_pipelines.jobs.terminal import summary

    output.note(predict.NOTE)
    with _Stoppable(to_the_end=given.as_command):
        done = predict.predict(given)
    with output.printing("; ".join([*done.text.splitlines(), LOST])):
        print(summary.as_json(done.to_json()) if given.json else done.text)
    return DONE


def _report(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import report_command

    done = report_command.write_page(given.folders, given.output)
    with output.printing(f"{done}; {LOST}"):
        print(done)
    return DONE


def _tune(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.terminal import summary
    from dp_pipelines.jobs.tune import tune

    with _Stoppable(to_the_end=given.as_command):
        done = tune.tune(given, rest)
    with output.printing("; ".join([*done.text.splitlines(), LOST])):
        print(summary.as_json(done.to_json()) if given.json else done.text)
    return DONE


def _plan(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.spec import job_file
    from dp_pipelines.jobs.terminal import summary

    plan = _planned(job_file.load(given.job), given.param)
    with output.printing():
        if given.json:
            print(summary.as_json(plan))
        else:
            summary.print_plan(plan, sys.stdout)
            if given.explain:
                summary.print_explanation(plan, sys.stdout)
    return DONE


def _audit(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import audit_command
    from dp_pipelines.jobs.terminal import summary

    found = audit_command.audit_job(given.job, given.param, given.replays, output.note)
    with output.printing():
        print(summary.as_json(found.to_json()) if given.json else audit_command.text(found, sys.stdout))
    return DONE if found.agrees else FAILED


def _planned(file: "JobFile", given: list[str]) -> dict[str, Any]:
    """The plan of a job as JSON values, from the cache if it is there."""
    from dp_pipelines.jobs.cli import plan_cache
    from dp_pipelines.jobs.request.preview import preview
    from dp_pipelines.planning.describe import asked_to_json

    stages, note = preview(file, given)
    if note:
        output.note(f"note: {note}")
    content = {
        "queries": {name: asked_to_json(asked) for name, asked in stages.items()},
        "budget": file.job.budget.model_dump(),
        "shares": {name: stage.declared_share for name, stage in file.job.stages.items()},
        "expect": file.job.expect.model_dump() if file.job.expect else None,
    }
    name = plan_cache.key(content, plan_cache.code())
    plan = plan_cache.load(name)
    if plan is None:
        from dp_pipelines.jobs.run.run import plan_of

        plan = plan_of(file, stages).to_json()
        plan_cache.store(name, plan)
    return plan


def _doctor(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.runners import doctor

    with _Stoppable(to_the_end=given.as_command):
        findings = doctor.doctor(given, rest)
    with output.printing():
        for finding in findings:
            print(finding.line)
    return DONE if all(finding.ok for finding in findings) else FAILED


def _run(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.run.run import run
    from dp_pipelines.jobs.spec import job_file
    from dp_pipelines.jobs.terminal import summary

    file = job_file.load(given.job)
    _check_output(given.output)
    with _Stoppable(to_the_end=given.as_command):
        published = run(
            file, given.output, given=given.param, run_id=given.run_id, arguments=rest, ledger=given.ledger,
            runner=given.runner, anchor=given.anchor,
        )  # fmt: skip
    done = f"published in {published.folder}; its summary could not be shown here"
    try:
        with output.printing(done):
            if given.json:
                print(
                    summary.as_json(summary.release_json(published.folder, published.manifest, again=published.again))
                )
            else:
                summary.print_release(published.folder, sys.stdout, again=published.again)
    except (Exception, KeyboardInterrupt):
        # The release is visible: whatever stands in the way of showing it, the run is done. Nothing of the cause is told,
        # since it may quote a released key in a form that terminals take for a command.
        output.point_nowhere(1)
        output.note(f"note: {done}")
    return DONE


def _check_output(folder: str) -> None:
    try:
        os.path.abspath(folder).encode()
    except UnicodeEncodeError:  # libraries that write files know paths as UTF-8 only
        raise RequestError(field="--output", message="is not a UTF-8 path", hint="choose another name") from None


class _Stoppable:
    """Ctrl-C, a request to terminate and a hangup all stop the work in this context, so that staging is removed.

    Beam may turn the interrupt into a failure of the step that it hits; whichever came first is reported. Cleanup is never
    cut short: a signal that arrives while the work is already ending changes nothing.

    Args:
        to_the_end: the process exits after this; nothing may interrupt its exit.
    """

    def __init__(self, *, to_the_end: bool = False) -> None:
        self._to_the_end = to_the_end
        self._stopped = False
        self._until = 0.0
        self._later: threading.Timer | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python takes no handlers there
        for number in (getattr(signal, name) for name in STOPPING if hasattr(signal, name)):
            before = signal.getsignal(number)
            if number == signal.SIGINT or before != signal.SIG_IGN:  # nohup has a hangup ignored
                self._before[number] = signal.signal(number, self._stop)

    def __exit__(self, *failure: object) -> None:
        if self._later is not None:
            self._later.cancel()
        stopped = self._stopped and failure[0] is not None
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if stopped and self._to_the_end else handler)
        if stopped:
            raise KeyboardInterrupt from None

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._stopped and time.monotonic() < self._until:
            return
        self._stopped = True
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


if __name__ == "__main__":
    sys.exit(main())
