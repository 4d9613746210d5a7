"""The command line: parses, calls, prints; decides nothing.

In: arguments. Out: results on standard output, messages on standard error, an exit code: 0 done; 1 it failed; 2 the request
is wrong by public facts, and nothing was created; 3 the budget refuses. Holds: an error is a line for each thing that is wrong,
prefixed `error: `; what is said is public. What is slow is imported only by the command that needs
it: `--help` needs nothing.

May import everything below.
"""

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from dp_pipelines.errors import BudgetError, DpError, RequestError

if TYPE_CHECKING:
    from dp_pipelines.jobs.job_file import JobFile

DONE, FAILED, WRONG, OVER_BUDGET = 0, 1, 2, 3

DESCRIPTION = "Publish differentially private reports from tables of user events."
EPILOG = """examples:
  dp-pipelines plan weekly.yaml                      noise, thresholds and errors, before a row is read
  dp-pipelines run weekly.yaml --output out/weekly   read, release, publish
  dp-pipelines schema > job.schema.json              for editors

exit codes: 0 done; 1 it failed, nothing is visible; 2 the request is wrong, nothing was read; 3 the budget refuses
"""
PLAN_EPILOG = """example:
  dp-pipelines plan weekly.yaml --json | jq '.stages[0].metrics'

Files are checked if they are there; a plan needs none. Standard deviations are those of the noise alone.
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
    """Says what is wrong in one line, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}; see `{self.prog} --help`", file=sys.stderr)
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
    plan.add_argument("--json", action="store_true", help="print JSON, with every mechanism record")
    _add_param(plan)
    run = command("run", "read, release and publish a job", RUN_EPILOG)
    run.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    run.add_argument("--output", metavar="DIR", required=True, help="the folder to publish; it must not exist")
    _add_param(run)
    run.add_argument("--run-id", metavar="ID", help="names this run; needed where the budget is for several runs")
    run.add_argument("--ledger", metavar="URL", help="`none`; others arrive with a later version")
    run.add_argument("--runner", metavar="NAME", default="direct", help="`direct`; others arrive with a later version")
    run.add_argument("--json", action="store_true", help="print JSON instead of the summary")
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
    """Run a command and give its exit code.

    >>> main(["--version"])
    dp-pipelines 0.1.0
    0
    """
    top = parser()
    given, rest = top.parse_known_args(list(sys.argv[1:] if arguments is None else arguments))
    if given.version:
        from dp_pipelines import __version__

        print(f"dp-pipelines {__version__}")
        return DONE
    commands: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
        "plan": _plan,
        "run": _run,
        "schema": _schema,
    }
    if given.command is None:
        top.error("a command is missing: one of " + ", ".join(commands))
    if rest and given.command != "run":
        top.error(f"unknown argument {rest[0]}")
    try:
        return commands[given.command](given, rest)
    except BudgetError as error:
        return _say(error, OVER_BUDGET)
    except RequestError as error:
        return _say(error, WRONG)
    except DpError as error:
        return _say(error, FAILED)
    except BrokenPipeError:
        # The reader of our output is gone; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except KeyboardInterrupt:
        _say("interrupted; nothing was published", FAILED)
        if arguments is None:
            # As a command: threads of Beam that the interrupt cut off from their end would keep the process alive for ever.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(FAILED)
        return FAILED
    except Exception:
        # A mistake of ours. Rows are in memory inside `run.run` only, which lets nothing out that may quote them.
        traceback.print_exc()
        return _say("internal error, please report the lines above; nothing was published", FAILED)


def _say(error: object, code: int) -> int:
    for line in str(error).splitlines():
        print(f"error: {line}", file=sys.stderr)
    return code


def _schema(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.job_file import Job
    from dp_pipelines.jobs.summary import as_json

    print(as_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **Job.model_json_schema()}))
    return DONE


def _plan(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs import job_file, summary

    plan = _planned(job_file.load(given.job), given.param)
    if given.json:
        print(summary.as_json(plan))
    else:
        summary.print_plan(plan, sys.stdout)
    return DONE


def _planned(file: "JobFile", given: list[str]) -> dict[str, Any]:
    """The plan of a job as JSON values, from the cache if it is there."""
    from dp_pipelines import __version__
    from dp_pipelines.budget.describe import query_to_json
    from dp_pipelines.jobs import cache
    from dp_pipelines.jobs.preview import preview

    queries, note = preview(file, given)
    if note:
        print(f"note: {note}", file=sys.stderr)
    content = {
        "queries": {name: query_to_json(query) for name, query in queries.items()},
        "budget": file.job.budget.model_dump(),
        "shares": {name: stage.share for name, stage in file.job.stages.items()},
        "expect": file.job.expect.model_dump() if file.job.expect else None,
    }
    name = cache.key(content, __version__)
    plan = cache.load(name)
    if plan is None:
        from dp_pipelines.jobs.run import plan_of

        plan = plan_of(file, queries).to_json()
        cache.store(name, plan)
    return plan


def _run(given: argparse.Namespace, rest: list[str]) -> int:
    if given.ledger not in (None, "none"):
        raise RequestError(
            field="--ledger", rule="must be none: ledgers arrive with a later version", mend="leave it out for now"
        )
    if given.runner.lower() != "direct":
        raise RequestError(
            field="--runner", rule="must be direct: others arrive with a later version", mend="leave it out for now"
        )
    from dp_pipelines.jobs import job_file, summary
    from dp_pipelines.jobs.run import run

    file = job_file.load(given.job)
    with _Stoppable():
        published = run(file, given.output, given=given.param, run_id=given.run_id, arguments=rest)
    try:
        if given.json:
            print(summary.as_json(summary.release_json(published.folder, published.manifest, again=published.again)))
        else:
            summary.print_release(published.folder, sys.stdout, again=published.again)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt):
        # The release is visible: whatever stands in the way of showing it, the run is done. Nothing of the cause is told,
        # since it may quote a released key in a form that terminals take for a command.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"note: published in {published.folder}; its summary could not be shown here", file=sys.stderr)
    return DONE


class _Stoppable:
    """Ctrl-C and a request to terminate end the work inside alike, so that staging is removed.

    Beam may turn the interrupt into a failure of the step that it hits; what came first is what is told.
    """

    def __init__(self) -> None:
        self._stopped = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python takes no handlers
            self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._stopped and failure[0] is not None:
            raise KeyboardInterrupt from None

    def _stop(self, number: int, frame: FrameType | None) -> NoReturn:
        self._stopped = True
        raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
