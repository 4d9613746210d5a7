"""The command line: parses arguments, calls a command, prints its result.

In: arguments. Out: results on standard output, messages on standard error, an exit code: 0 done; 1 failed; 2 the request
is invalid by public facts, and nothing was created; 3 the budget refuses. Holds: each error is one line, prefixed `error: `;
messages are public. Slow modules are imported only by the command that needs them: `--help` needs none.
"""

import argparse
import importlib
import os
import pathlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

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
    from dp_pipelines.jobs.spec.job_file import JobFile

FAILED, OVER_BUDGET = 1, 3

ON_ENGINES = ("run", "doctor")
"""Commands of the core that take the options of a runner."""

WITH_ROWS = ("init", "plan", "audit", "run", "predict", "report")
"""Commands of the core that need Arrow."""

SHORT = ("plan", "run")
"""Commands of the core whose process is so short that cyclic garbage is collected late."""

DESCRIPTION = "Publish differentially private reports from tables of user events."
EXAMPLES = (
    ("init data/*.parquet --unit customer", "a first job file, from names and types of columns"),
    ("plan weekly.yaml", "noise, thresholds and errors, before a row is read"),
    ("run weekly.yaml --output out/weekly", "read, release, publish"),
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


PARSERS = {
    "plan": "plan_arguments",
    "run": "run_arguments",
    "init": "init_arguments",
    "audit": "audit_arguments",
    "doctor": "doctor_arguments",
    "predict": "predict_arguments",
    "report": "report_arguments",
    "ledger": "ledger_arguments",
    "runs": "ledger_arguments",
    "schema": "schema_arguments",
}
"""The commands of the core, in the order of the help, each with the module of `arguments` that adds its parser."""

WITH_OPTIONS = ("run_arguments", "ledger_arguments")
"""Modules of commands to which extensions add options."""


def parser(
    added: Mapping[str, Command] | None = None, only: str | None = None, *, options: bool = True
) -> CommandParser:
    """Return the parser of all commands and their options.

    Args:
        added: commands of extensions by name; left out, those of all installed built-in extensions.
        only: the command of the core that a command line names first. Others are left out, since to make their options takes
            longer than to parse its own.
        options: whether commands of the core have the options that extensions add, which loads these.
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

    for module in dict.fromkeys(PARSERS.values()) if only is None else [PARSERS[only]]:
        more = {"options": options} if module in WITH_OPTIONS else {}
        importlib.import_module(f"dp_pipelines.jobs.cli.arguments.{module}").add(command, **more)
    for extension in added.values():
        extension.add(command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    >>> main(["--version"])
    dp-pipelines 0.2.0
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
        "ledger": _ledger,
        "runs": _runs,
        "predict": _predict,
        "report": _report,
        "schema": _schema,
    }
    added = extension_command.asked_for(arguments, core)
    commands = core | {name: command.run for name, command in added.items()}
    needs_help = not {"-h", "--help"}.isdisjoint(arguments)
    only = arguments[0] if arguments and arguments[0] in core else None
    top = parser(added, only, options=needs_help)
    with output.printing():  # help
        top.refuse_misspelt(arguments)
        given, rest = top.parse_known_args(arguments)
        had_rest = bool(rest)
        if had_rest and not needs_help:  # an extension may know it
            top = parser(added, only)
            given, rest = top.parse_known_args(arguments)
    given.as_command, given.has_options = as_command, had_rest
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
    for note in done.notes:
        output.note(note)
    if done.made_up:
        output.note(f"warning: {predict.WORTHLESS}")
    summary.print_result(done, in_json=given.json)
    return DONE


def _report(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import report_command

    said: list[str] = []
    if given.csv is not None:
        done = report_command.write_csv(given.folders, given.csv, given.output, given.job)
    else:
        done, said = report_command.write(given.folders, given.output, given.job)
    for note in [*said, *report_command.notes(given.folders[0], given.job)]:
        output.note(f"note: {note}")
    with output.printing(f"{done}; {output.LOST}"):
        print(done)
    return DONE


def _plan(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import plan_account, shown_plan
    from dp_pipelines.jobs.spec import job_file, job_kinds

    content = job_file.content_of(given.job)
    if (kind := job_kinds.of(content)) is not None:
        return kind.plan(content, pathlib.Path(given.job), given)
    file = job_file.checked(content, pathlib.Path(given.job))
    if given.against is not None:
        return _plan_against(file, given)
    shown = shown_plan.planned(file, given.param, () if given.group is None else (given.group,))
    account = None if given.json else plan_account.look(file, shown.request)
    shown_plan.print_plan(shown, in_json=given.json, explain=given.explain, account=account)
    return DONE


def _plan_against(file: "JobFile", given: argparse.Namespace) -> int:
    """Print what changed since an earlier job, then the plan."""
    import dataclasses

    from dp_pipelines.jobs.cli import compared_jobs, plan_account, shown_plan
    from dp_pipelines.jobs.spec import job_file

    earlier = job_file.load(given.against)
    groups = () if given.group is None else (given.group,)
    now = shown_plan.planned(file, given.param, groups)
    try:
        declared = [said for said in given.param if said.partition("=")[0] in (earlier.job.params or {})]
        before = shown_plan.planned(earlier, declared, note=False)
    except RequestError as error:
        raise RequestError(
            field=f"--against {given.against}: {error.field}", message=error.message, hint=error.hint
        ) from None
    found = compared_jobs.compare((earlier, before), (file, now))
    if given.json:
        now = dataclasses.replace(now, plan={**now.plan, "against": found.to_json()})
        shown_plan.print_plan(now, in_json=True)
        return DONE
    above, account = "\n".join(found.lines(given.against)), plan_account.look(file, now.request)
    shown_plan.print_plan(now, in_json=False, explain=given.explain, above=above, account=account)
    return DONE


def _audit(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import audit_command
    from dp_pipelines.jobs.terminal import summary

    found = audit_command.audit_job(given.job, given.param, given.replays, output.note)
    with output.printing():
        output.print_styled(summary.as_json(found.to_json()) if given.json else audit_command.text(found, sys.stdout))
    return DONE if found.agrees else FAILED


def _doctor(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.runners import doctor

    with Stoppable(to_the_end=given.as_command):
        findings = doctor.doctor(given, rest)
    with output.printing():
        for finding in findings:
            print(finding.line)
    return DONE if all(finding.ok for finding in findings) else FAILED


def _run(given: argparse.Namespace, rest: list[str]) -> int:
    from dp_pipelines.jobs.cli import job_runs, run_commands, run_option, run_question, shown_run
    from dp_pipelines.jobs.run.run import run
    from dp_pipelines.jobs.spec import job_file, job_kinds

    content = job_file.content_of(given.job)
    shown_run.refuse_output(given.output)
    if (kind := job_kinds.of(content)) is not None:
        run_option.refuse_all(given, "is only for jobs over tables")
        return kind.run(content, pathlib.Path(given.job), given, rest)
    file = job_file.checked(content, pathlib.Path(given.job))
    with Stoppable(to_the_end=given.as_command) as stoppable, run_option.Followers() as followers:
        names = run_commands.names_of(file, given)
        filled = argparse.Namespace(**{**vars(given), "output": names.output, "run_id": names.run_id})
        # First: events have the time at which the command began, however long it takes to finish an earlier run.
        followers.begin(file, filled)
        run_commands.finish_earlier(file, given, names, rest)
        given = filled
        stoppable.makes(given.output)
        if (way := job_runs.of(file.job, given)) is not None:
            published = way.run(file, given, rest)
        elif given.synthetic:
            from dp_pipelines.jobs.made_up import made_up_run

            made_up_run.refuse_options(given.ledger, given.anchor, given.runner, given.run_id)
            published = made_up_run.run(file, given.output, given=given.param, arguments=rest)
        else:
            published = run(
                file, given.output, given=given.param, run_id=given.run_id, arguments=rest, ledger=given.ledger,
                runner=given.runner, anchor=given.anchor, spare=given.spare,
                confirm=None if given.yes else run_question.asker(),
                as_new=given.as_new,
            )  # fmt: skip
        notes = [names.point_to(published), *followers.published(published)]
        shown_run.print_run(published, file.job, in_json=given.json)
        for note in filter(None, notes):
            output.note(f"note: {note}")
        return DONE


if __name__ == "__main__":
    sys.exit(main())
