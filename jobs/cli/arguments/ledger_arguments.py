"""The options of the commands `ledger` and `runs`.

In: the top of the command line. Out: parsers below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

import argparse
from typing import Any

from dp_pipelines.jobs.cli import account_commands
from dp_pipelines.jobs.cli.command_parser import MakeParser

DEFAULT_LEDGER = "dp-ledger.sqlite"
RULES = ("reserved", "filter")


TOP_EPILOG = """examples:
  dp-pipelines ledger init weekly.yaml --epsilon 4 --delta 1e-5
  dp-pipelines ledger show weekly.yaml

Each command has its own `--help`.
"""
INIT_EPILOG = """examples:
  dp-pipelines ledger init weekly.yaml --epsilon 4 --delta 1e-5
  dp-pipelines ledger init --ledger postgresql://db/budget --dataset grocery --unit CUSTOMER_ID --epsilon 4 --delta 1e-5
{more}
With a job file, dataset, privacy unit and budget default to those of the job. The cap lasts forever: you can raise it, and the
ledger records that, but time gives nothing back. Only a unit that is limited to a window of event time (--window-column) has a
separate cap in each window.

rules: `reserved` (each plan reserves its whole cost as one block; best for a few plans that run often) or `filter` (each run is
charged its own divergence; best for many different plans). The rule never changes.
"""
SHOW_EPILOG = """examples:
  dp-pipelines ledger show weekly.yaml
  dp-pipelines ledger show weekly.yaml --csv > spent.csv

Prints what is used and left of the account that the job charges, and one line for each release: the day of its draw (UTC), who
ran it, job file, stages and metrics, what was charged, and the folder. Without a job it shows every account of the ledger. With
--csv or --json it gives every account to programs.
"""
RAISE_EPILOG = """examples:
  dp-pipelines ledger raise weekly.yaml --epsilon 8 --delta 1e-5
  dp-pipelines ledger raise weekly.yaml --epsilon 8

The part of the cap that is left out stays as it is. A cap can only be raised: what was promised to the people in the data becomes
weaker, and the ledger records when. The cap of an account with the rule `filter` is fixed.{more}
"""
VERIFY_EPILOG = """examples:
  dp-pipelines ledger verify --ledger dp-ledger.sqlite
  dp-pipelines ledger verify weekly.yaml --against out/*/manifest.json

Checks the file, the hash chain of all events, each stored release, and the anchor. With --against, also checks that the ledger
contains everything that the given manifests recorded of it. Only a newer anchor or manifest can reveal a rollback.
"""
EXPORT_EPILOG = "example:\n  dp-pipelines ledger export weekly.yaml --format html --output budget.html\n"
RUNS_EPILOG = """examples:
  dp-pipelines runs weekly.yaml
  dp-pipelines runs weekly.yaml --abandon 2026-W01

An abandoned run never publishes. Its budget comes back only if everything it had staged was found and destroyed unseen.
"""


def add(make: MakeParser, *, options: bool = True) -> None:
    """Add the parsers of `ledger` and `runs`.

    Args:
        make: adds a command: name, help text, epilog.
        options: whether they have the options that extensions add, which loads these.
    """
    top = make("ledger", "open accounts, and show and prove what was spent", TOP_EPILOG)
    below: Any = top.add_subparsers(dest="subcommand", metavar="COMMAND", parser_class=type(top))

    def sub(name: str, help_text: str, epilog: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = below.add_parser(
            name,
            help=help_text,
            description=help_text[:1].upper() + help_text[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        return parser

    others = account_commands.installed() if options else []
    more = "".join(f"\n{each.init_help}" for each in others)
    init = sub("init", "create a ledger, or open an account in it", INIT_EPILOG.format(more=more))
    init.add_argument("--dataset", metavar="NAME", help="name of the account: `dataset` in job files")
    init.add_argument("--unit", metavar="COLUMN", action="append", help="a column of the privacy unit; may be repeated")
    init.add_argument("--unit-words", metavar="TEXT", help="the privacy unit in words, e.g. customer")
    _add_cap(init)
    if others:
        kinds = [kind for each in others for kind in each.kinds]
        init.add_argument("--kind", choices=kinds, help="; ".join(each.kind_help for each in others))
    for each in others:
        each.add_limits(init, new=True)
    init.add_argument("--rule", choices=RULES, help="how costs add up (default: reserved)")
    init.add_argument(
        "--source",
        metavar="GLOB",
        action="append",
        default=[],
        help="files that belong to this account; may be repeated",
    )
    init.add_argument("--window-column", metavar="COLUMN", help="event time column; each window has its own cap")
    init.add_argument("--window-days", metavar="N", type=int, help="length of a window")
    init.add_argument(
        "--window-origin", metavar="DATE", default="1970-01-05", help="first day of some window (default: a Monday)"
    )
    init.add_argument(
        "--accept",
        action="store_true",
        help="start anew where this user has seen a ledger that is gone; what was spent is forgotten",
    )
    more = "".join(f" {each.raise_help}" for each in others)
    raised = sub("raise", "raise the cap of an account; the ledger records it", RAISE_EPILOG.format(more=more))
    raised.add_argument("--dataset", metavar="NAME", help="the account")
    _add_cap(raised)
    for each in others:
        each.add_limits(raised, new=False)
    show = sub("show", "show what was spent, on what, and what is left", SHOW_EPILOG)
    show.add_argument("--csv", action="store_true", help="print CSV, one line for each release")
    verify = sub("verify", "verify the integrity of a ledger", VERIFY_EPILOG)
    verify.add_argument("--accept", action="store_true", help="make a new anchor for a ledger whose anchor is lost")
    verify.add_argument(
        "--against",
        metavar="MANIFEST",
        nargs="+",
        action="extend",
        help="manifests of releases that the ledger must contain",
    )
    exported = sub("export", "export who spent what, when and on which plan, with proof", EXPORT_EPILOG)
    exported.add_argument(
        "--format", choices=("json", "csv", "html"), default="json", help="output format (default: json)"
    )
    exported.add_argument("--output", metavar="FILE", help="file to write (default: standard output)")
    runs = make("runs", "list runs and their states, or abandon one", RUNS_EPILOG)
    runs.add_argument("--abandon", metavar="ID", help="abandon this run")
    runs.add_argument("--gone", metavar="ID", help="end the attempt of this run, because its machine is gone for good")
    runs.add_argument("--dataset", metavar="NAME", help="show only runs of this account")
    for parser in (init, raised, show, verify, exported, runs):
        parser.add_argument("job", metavar="JOB", nargs="?", help="a job file; uses the ledger beside it")
        parser.add_argument("--ledger", metavar="URL", help=f"a path or postgresql://... (default: {DEFAULT_LEDGER})")
        add_anchor(parser)
    for parser in (show, runs, verify):
        parser.add_argument("--json", action="store_true", help="print JSON")


def add_anchor(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where a ledger's anchor must be."""
    parser.add_argument(
        "--anchor",
        metavar="DIR",
        help="where the ledger's anchor must be; a ledger that names another place is refused",
    )


def _add_cap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epsilon", metavar="E", type=float, help="epsilon that may be spent on each unit")
    parser.add_argument("--delta", metavar="D", type=float, help="delta that may be spent on each unit")
