"""The options of commands that read a job: its parameters; and where a look at its raw rows is kept.

In: the parser of a command. Out: the same with these options. Holds: nothing slow is imported, since `--help` needs nothing.
"""

import argparse

from dp_pipelines.jobs.cli.arguments import runner_arguments
from dp_pipelines.jobs.cli.arguments.ledger_arguments import add_anchor


def add_parameters(parser: argparse.ArgumentParser) -> None:
    """Add `--param`.

    Args:
        parser: of a command that takes a job file.
    """
    parser.add_argument(
        "--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the job; may be repeated"
    )


def add_look(parser: argparse.ArgumentParser) -> None:
    """Add what a look at raw rows takes: parameters, the ledger that records it, what is printed, and the runner.

    Args:
        parser: of a command whose output is private.
    """
    add_parameters(parser)
    parser.add_argument(
        "--ledger",
        metavar="URL",
        help="ledger that records the look (default: dp-ledger.sqlite beside JOB; none: nowhere)",
    )
    add_anchor(parser)
    parser.add_argument("--json", action="store_true", help="print the location of the folder as JSON")
    runner_arguments.add(parser, here=True)
