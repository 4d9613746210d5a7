"""The options of the command `check`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.arguments import job_arguments
from dp_pipelines.jobs.cli.command_parser import MakeParser

EPILOG = """examples:
  dp-pipelines check weekly.yaml --output checked
  dp-pipelines check weekly.yaml --param week=2026-01-05 --output checked --ledger ledger.sqlite

Reads the rows once and writes a page: nulls of each column and expression, rows that where keeps, rows without a match in a
lookup or a join, rows without a privacy unit, groups by size, what each bound and clip keeps, and advice. Costs no budget.

ITS OUTPUT IS PRIVATE: it is computed from the raw rows without any privacy protection, into a folder that only you can read,
and the ledger records that it happened. Do not publish any of it; no guarantee covers decisions based on it. The terminal
shows where the folder is, and nothing of the rows.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `check`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("check", "look at the rows before the budget is touched; its output is PRIVATE", EPILOG)
    parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    parser.add_argument("--output", metavar="DIR", required=True, help="the private folder; it must not exist")
    job_arguments.add_look(parser)
