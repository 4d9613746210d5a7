"""The command line: parses arguments, calls a command, prints its result.

In: arguments. Out: results on standard output, messages on standard error, an exit code: 0 done; 1 failed; 2 the request
is invalid by public facts, and nothing was created; 3 the budget refuses. Holds: each error is one line, prefixed `error: `;
messages are public. Slow modules are imported only by the command that needs them: `--help` needs none.
"""

import argparse
import os
import pathlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp_pipelines import extensions
from dp_pipelines.disk_errors import NO_TMPDIR, DiskError, reason_of
from dp_pipelines.errors import BudgetError, DpError, RequestError
from dp_pipelines.jobs.cli import arrow_memory, extension_command
from dp_pipelines.jobs.cli.command_parser import WRONG, CommandParser
from dp_pipelines.jobs.cli.extension_command import DONE, Command
from dp_pipelines.jobs.cli.stoppable import Stoppable
from dp_pipelines.jobs.runners import late_collection
from dp_pipelines.jobs.terminal import output

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.run import PublishedRun
    from dp_pipelines.jobs.spec.job_file import JobFile

FAILED, OVER_BUDGET = 1, 3

ON_ENGINES = ("run", "sql", "doctor", "check", "tune")
"""Commands of the core that take the options of a runner."""

WITH_ROWS = ("init", "plan", "audit", "run", "sql", "predict", "report", "check", "tune")
"""Commands of the core that need Arrow."""

SHORT = ("plan", "run", "sql")
"""Commands of the core whose process is so short that cyclic garbage is collected late."""

DESCRIPTION = "Publish differentially private reports from tables of user events."
EXAMPLES = (
    ("init data/*.parquet --unit customer", "a first job file, from names and types of columns"),
    ("plan weekly.yaml", "noise, thresholds and errors, before a row is read"),
    ("check weekly.yaml --output checked", "look at the rows, for your eyes only"),
    ("run weekly.yaml --output out/weekly", "read, release, publish"),
    ('sql "SELECT ..." --dataset shop ...', "the same for one statement, without a job file"),
    ("report out/*/", "one page of several runs: trends"),
    ("schema > job.schema.json", "for editors"),
)
"""Calls of the core's commands, and what each does."""

FIRST = (
    ("init data/*.parquet --unit customer --output first.yaml", "writes a job file from names and types of columns"),
    ("plan first.yaml", "prints noise, thresholds and expected errors, before a row is read"),
    ("run first.yaml --output out/first", "reads, releases, publishes; the same command again costs nothing"),
)
"""The calls that a newcomer needs."""

EXIT_CODES = """
exit codes: 0 done; 1 failed, nothing was published, or only what the message says; 2 invalid request, nothing was read;
            3 refused by the budget
"""


def parser(added: Mapping[str, Command] | None = None) -> CommandParser:
    """Return the parser of all commands and their options.

    Args:
        added: commands of extensions by name; left out, those of all installed built-in extensions.
    """
    added = extension_command.all_of(extensions.built_in(extension_command.KIND)) if added is None else added
    layout = argparse.RawDescriptionHelpFormatter
    examples = (*EXAMPLES, *(command.example for command in added.values()))
    lines = [f"  dp-pipelines {call:<35}   {words}" for call, words in examples]
    top = CommandParser(
        "dp-pipelines", description=DESCRIPTION, epilog="\n".join(["examples:", *lines, EXIT_CODES]),
        formatter_class=layout, allow_abbrev=False,
    )  # fmt: skip
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)

    def command(name: str, help_text: str, epilog: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(
            name,
            help=help_text.replace("%", "%%"),
            description=help_text[:1].upper() + help_text[1:] + ".",
            epilog=epilog,
            formatter_class=layout,
            allow_abbrev=False,
        )
        return made

    from dp_pipelines.jobs.cli.arguments import (
        audit_arguments,
        check_arguments,
        doctor_arguments,
        init_arguments,
        ledger_arguments,
        plan_arguments,
        predict_arguments,
        report_arguments,
        run_arguments,
        sql_arguments,
        tune_arguments,
    )

    plan_arguments.add(command)
    run_arguments.add(command)
    for room in (
        init_arguments, sql_arguments, audit_arguments, doctor_arguments, predict_arguments, report_arguments, check_arguments,
        tune_arguments, ledger_arguments,
    ):  # fmt: skip
        room.add(command)
    command(
        "schema",
        "print the JSON schema of job files, for editors",
        "example:\n  dp-pipelines schema > job.schema.json\n",
    )
    for extension in added.values():
        extension.add(command)
    return top


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
    except SystemExit:  # of the parser; those of code that runs over rows end below
        raise
    except BaseException as error:
        if reason_of(error):  # of temporary files: what a command writes for its user names the folder
            return _say(DiskError("", reason_of(error), NO_TMPDIR), FAILED)
        # A mistake of ours. Rows are in memory inside `run.run` only, which lets nothing out that may quote them.
        kind, _, frames = sys.exc_info()
        # Where, and of which kind; not what it says, since that may quote a value.
        output.note("".join(traceback.format_tb(frames)) + (kind.__name__ if kind is not None else ""))
        return _say(
            "internal error; please report the lines above; a release is published only if its folder is there", FAILED
        )


def _called(arguments: list[str], *, as_command: bool) -> int:
    core: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
        "init": _init,
        "plan": _plan,
        "audit": _audit,
        "doctor": _doctor,
        "run": _run,
        "sql": _sql,
        "ledger": _ledger,
        "runs": _runs,
        "predict": _predict,
        "report": _report,
        "check": _check,
        "tune": _tune,
        "schema": _schema,
    }
    added = extension_command.asked_for(arguments, core)
    commands = core | {name: command.run for name, command in added.items()}
    top = parser(added)
    with output.printing():  # help
        top.refuse_misspelt(arguments)
        given, rest = top.parse_known_args(arguments)
    given.as_command = as_command
    extension = added.get(given.command)
    takes_runner = given.command in ON_ENGINES if extension is None else extension.takes_runner
    if takes_runner:
        from dp_pipelines.jobs.cli.arguments import runner_arguments

        rest += runner_arguments.passed_on(given)
    if given.version:
        from dp_pipelines import __version__

        with output.printing():
            print(f"dp-pipelines {__version__}")
        return DONE
    if not arguments:
        with output.printing():
            print(_guide(top))
        return DONE
    if given.command is None:
        top.error("missing command; choose one of " + ", ".join(commands))
    if rest and not takes_runner:
        top.error(f"unknown argument {rest[0]}")
    if as_command and (given.command in SHORT if extension is None else extension.defers_collection):
        late_collection.put_off()
    if given.command in WITH_ROWS if extension is None else extension.needs_arrow:
        from dp_pipelines.jobs.sources import late_pandas

        late_pandas.put_off()
        if as_command:
            arrow_memory.choose()
    code = commands[given.command](given, rest)
    if as_command and given.command == "plan":
        # All is printed and nothing is open: to take a thousand modules apart would be a seventh of the command's time.
        sys.stderr.flush()
        os._exit(code)
    return code


def _guide(top: CommandParser) -> str:
    """What a call without arguments prints: the three commands that a newcomer needs, then the others."""
    needed = [f"  dp-pipelines {call}\n      {words}" for call, words in FIRST]
    named = {call.split()[0] for call, _ in FIRST}
    others = [f"  {name:<12} {words}" for name, words in top.described() if name not in named]
    more = "`dp-pipelines COMMAND --help` explains a command, `dp-pipelines --help` has examples and exit codes."
    return "\n".join([DESCRIPTION, "", "Start with these three:", *needed, "", "Later:", *others, "", more])


def _say(error: object, code: int) -> int:
    for line in str(error).splitlines():
        # What is indented is a command that the message recommends, to be copied.
        output.note(line if line.startswith("  ") else f"error: {line}")
    return code


def _schema(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.spec import job_schemas
    from dp_pipelines.jobs.terminal.summary import as_json

    with output.printing():
        print(as_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **job_schemas.schema()}))
    return DONE


def _init(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.init import init

    done = init.init(given)
    with output.printing("; ".join([*done.splitlines(), output.LOST])):
        print(done)
    return DONE


def _ledger(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import ledger_commands

    changes = given.subcommand in ("init", "raise") or getattr(given, "output", None) is not None
    with output.printing(f"ledger {given.subcommand} is done; {output.LOST}" if changes else ""):
        ledger_commands.ledger(given)
    return DONE


def _runs(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import ledger_commands

    changes = given.abandon is not None or given.gone is not None
    with output.printing(f"the state of the run has changed; {output.LOST}" if changes else ""):
        ledger_commands.runs(given)
    return DONE


def _predict(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.predict import predict
    from dp_pipelines.jobs.terminal import summary

    output.note(predict.NOTE)
    with Stoppable(to_the_end=given.as_command):
        done = predict.predict(given)
    if done.made_up:
        output.note(f"warning: {predict.WORTHLESS}")
    with output.printing("; ".join([*done.text.splitlines(), output.LOST])):
        print(summary.as_json(done.to_json()) if given.json else done.text)
    return DONE


def _report(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import report_command

    done = report_command.write_page(given.folders, given.output)
    with output.printing(f"{done}; {output.LOST}"):
        print(done)
    return DONE


def _check(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.check import check

    return _looked(check.check, given, rest)


def _tune(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.tune import tune

    return _looked(tune.tune, given, rest)


def _looked(look: Callable[[argparse.Namespace, list[str]], Any], given: argparse.Namespace, rest: list[str]) -> int:
    """Look at raw rows, and say where what was seen lies."""
    from dp_pipelines.jobs.terminal import summary

    with Stoppable(to_the_end=given.as_command):
        done = look(given, rest)
    with output.printing("; ".join([*done.text.splitlines(), output.LOST])):
        print(summary.as_json(done.to_json()) if given.json else done.text)
    return DONE


def _plan(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.spec import job_file
    from dp_pipelines.jobs.spec.content import is_collected

    content = job_file.content_of(given.job)
    if is_collected(content):
        from dp_pipelines.jobs.cli import collected_commands
        from dp_pipelines.jobs.spec import collected_job

        if given.against is not None:
            raise RequestError(field="--against", message="is not for jobs of collected stages", hint="drop it")
        return collected_commands.plan(collected_job.checked(content, pathlib.Path(given.job)), given)
    file = job_file.checked(content, pathlib.Path(given.job))
    if given.against is not None:
        return _plan_against(file, given)
    return _print_plan(_planned(file, given.param, given.group), given.json, explain=given.explain)


def _plan_against(file: "JobFile", given: argparse.Namespace) -> int:
    """Print what changed since an earlier job, then the plan."""
    from dp_pipelines.jobs.cli import compared_jobs, shown_plan
    from dp_pipelines.jobs.spec import job_file

    earlier = job_file.load(given.against)
    both = (
        (earlier, shown_plan.planned(earlier, given.param, note=False)),
        (file, shown_plan.planned(file, given.param)),
    )
    found = compared_jobs.compare(*both)
    plan = _planned(file, given.param, given.group) if given.group is not None else both[1][1].plan
    if given.json:
        return _print_plan({**plan, "against": found.to_json()}, True)
    return _print_plan(plan, False, explain=given.explain, above="\n".join(found.lines(given.against)))


def _print_plan(plan: dict[str, Any], as_json: bool, *, explain: bool = False, above: str = "") -> int:
    from dp_pipelines.jobs.terminal import summary

    with output.printing():
        if as_json:
            print(summary.as_json(plan))
            return DONE
        if above:
            print(above)
        summary.print_plan(plan, sys.stdout)
        if explain:
            summary.print_explanation(plan, sys.stdout)
    return DONE


def _audit(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import audit_command
    from dp_pipelines.jobs.terminal import summary

    found = audit_command.audit_job(given.job, given.param, given.replays, output.note)
    with output.printing():
        output.print_styled(summary.as_json(found.to_json()) if given.json else audit_command.text(found, sys.stdout))
    return DONE if found.agrees else FAILED


def _planned(file: "JobFile", given: list[str], group: int | None = None) -> dict[str, Any]:
    """The plan of a job as JSON values, with what a group of units is guaranteed."""
    from dp_pipelines.jobs.cli import shown_plan

    shown = shown_plan.planned(file, given, () if group is None else (group,))
    return shown.plan if not shown.groups else {**shown.plan, "group": shown.groups[0].to_json()}


def _doctor(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.runners import doctor

    with Stoppable(to_the_end=given.as_command):
        findings = doctor.doctor(given, rest)
    with output.printing():
        for finding in findings:
            print(finding.line)
    return DONE if all(finding.ok for finding in findings) else FAILED


def _run(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.run.run import run
    from dp_pipelines.jobs.spec import job_file
    from dp_pipelines.jobs.spec.content import is_collected

    content = job_file.content_of(given.job)
    _check_output(given.output)
    if is_collected(content):
        from dp_pipelines.jobs.cli import collected_commands
        from dp_pipelines.jobs.spec import collected_job

        return collected_commands.run(collected_job.checked(content, pathlib.Path(given.job)), given, rest)
    file = job_file.checked(content, pathlib.Path(given.job))
    with Stoppable(to_the_end=given.as_command) as stoppable:
        stoppable.makes(given.output)
        if file.job.parties is not None or given.party is not None:
            from dp_pipelines.jobs.parties import party_run

            if given.synthetic:
                message = "cannot make up the rows of several parties"
                raise RequestError(field="--synthetic", message=message, hint="drop parties from a copy of the job")
            published = party_run.run(
                file, given.output, party=given.party, given=given.param, run_id=given.run_id, arguments=rest,
                ledger=given.ledger, runner=given.runner, anchor=given.anchor,
            )  # fmt: skip
        elif given.synthetic:
            from dp_pipelines.jobs.run import made_up_run

            made_up_run.refuse_options(given.ledger, given.anchor, given.runner, given.run_id)
            published = made_up_run.run(file, given.output, given=given.param, arguments=rest)
        else:
            published = run(
                file, given.output, given=given.param, run_id=given.run_id, arguments=rest, ledger=given.ledger,
                runner=given.runner, anchor=given.anchor,
            )  # fmt: skip
        return _shown(published, given.json)


def _sql(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import sql_command

    file = sql_command.job_of(given)
    if given.plan:
        return _print_plan(_planned(file, []), given.json, above=sql_command.as_yaml(file))
    _check_output(given.output or "")
    with Stoppable(to_the_end=given.as_command) as stoppable:
        return _shown(sql_command.carry_out(file, given, rest, stoppable.makes), given.json)


def _shown(published: "PublishedRun", as_json: bool) -> int:
    """Show what a run has published."""
    from dp_pipelines.jobs.terminal import summary

    shown = published.folder if published.place is None else published.place.shown
    done = f"published in {shown}; its summary could not be shown here"
    try:
        with output.printing(done):
            if as_json:
                told = summary.release_json(
                    published.folder, published.manifest, again=published.again, place=str(shown)
                )
                print(summary.as_json(told))
            else:
                summary.print_release(published.folder, sys.stdout, again=published.again, place=str(shown))
    except (Exception, KeyboardInterrupt):
        # The release is visible: whatever stands in the way of showing it, the run is done. Nothing of the cause is told,
        # since it may quote a released key in a form that terminals take for a command.
        output.point_nowhere(1)
        output.note(f"note: {done}")
    if published.place is not None:
        published.place.clear()
    return DONE


def _check_output(folder: str) -> None:
    try:
        os.path.abspath(folder).encode()
    except UnicodeEncodeError:  # libraries that write files know paths as UTF-8 only
        raise RequestError(field="--output", message="is not a UTF-8 path", hint="choose another name") from None


if __name__ == "__main__":
    sys.exit(main())
