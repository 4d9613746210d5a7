"""The command `check` of the command line: its options, and how its result is shown.

In: the top of the command line; parsed arguments. Out: a parser below it; lines on standard output. Holds: nothing slow is
imported before the command runs, since `--help` needs nothing. Not covered: what the private folder holds (`check`).
"""

import argparse

from dp_pipelines.jobs.cli.arguments import job_arguments
from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.cli.extension_command import DONE, Command
from dp_pipelines.jobs.cli.stoppable import Stoppable

EPILOG = """examples:
  dp-pipelines check weekly.yaml --output checked
  dp-pipelines check weekly.yaml --param week=2026-01-05 --output checked --ledger ledger.sqlite

Reads the rows once and writes a page: nulls of each column and expression, rows that where keeps, rows without a match in a
lookup or a join, rows without a privacy unit, groups by size, what each bound and clip keeps, and advice. Costs no budget.

ITS OUTPUT IS PRIVATE: it is computed from the raw rows without any privacy protection, into a folder that only you can read,
and the ledger records that it happened. Do not publish any of it; no guarantee covers decisions based on it. The terminal
shows where the folder is, and nothing of the rows.
"""


class _Check:
    """The command `check`."""

    example = ("check weekly.yaml --output checked", "look at the rows, for your eyes only")
    takes_runner = True
    needs_arrow = True
    defers_collection = False

    def add(self, make: MakeParser) -> None:
        """Add the parser of `check`."""
        parser = make("check", "look at the rows before the budget is touched; its output is PRIVATE", EPILOG)
        parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
        parser.add_argument("--output", metavar="DIR", required=True, help="the private folder; it must not exist")
        job_arguments.add_look(parser)

    def run(self, given: argparse.Namespace, rest: list[str]) -> int:
        """Look at the rows and print where the private folder is."""
        from dp_pipelines.extensions.check import check
        from dp_pipelines.jobs.terminal import summary

        with Stoppable(to_the_end=given.as_command):
            done = check.check(given, rest)
        summary.print_result(done, in_json=given.json)
        return DONE


CHECK: Command = _Check()
