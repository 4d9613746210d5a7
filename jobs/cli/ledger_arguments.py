"""The options of the commands `ledger` and `runs`.

In: the top of the command line. Out: parsers below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

import argparse
from collections.abc import Callable
from typing import Any

DEFAULT_LEDGER = "dp-ledger.sqlite"
RULES = ("reserved", "filter")

MakeParser = Callable[[str, str, str], argparse.ArgumentParser]

TOP_EPILOG = """examples:
  dp-pipelines ledger init weekly.yaml --epsilon 4 --delta 1e-5
  dp-pipelines ledger show weekly.yaml

Each command has its own `--help`.
"""
INIT_EPILOG = """examples:
  dp-pipelines ledger init weekly.yaml --epsilon 4 --delta 1e-5
  dp-pipelines ledger init --ledger postgresql://db/budget --dataset grocery --unit CUSTOMER_ID --epsilon 4 --delta 1e-5

With a job file its dataset, privacy unit and budget are what is not given. The cap is for ever: it can be raised, on
the record, but time gives nothing back. Only a unit that is bounded to a window of event time (--window-column) has a cap of
its own in each window.

rules: `reserved` (each plan holds its whole cost as one block; best for few plans that run often) or `filter` (each run is
charged its own divergence; best for many different plans). It never changes.
"""
SHOW_EPILOG = "example:\n  dp-pipelines ledger show weekly.yaml\n"
RAISE_EPILOG = "example:\n  dp-pipelines ledger raise weekly.yaml --epsilon 8 --delta 1e-5\n"
VERIFY_EPILOG = """examples:
  dp-pipelines ledger verify --ledger dp-ledger.sqlite
  dp-pipelines ledger verify weekly.yaml --against out/*/manifest.json

Checks the file, the chain of every event, each stored release, and the anchor; with --against also that the ledger holds what
manifests of releases have seen of it. Only an anchor or a manifest that is newer finds a ledger that was rolled back.
"""
EXPORT_EPILOG = "example:\n  dp-pipelines ledger export weekly.yaml --format html --output budget.html\n"
RUNS_EPILOG = """examples:
  dp-pipelines runs weekly.yaml
  dp-pipelines runs weekly.yaml --abandon 2026-W01

An abandoned run never publishes. Its budget comes back only where all that it had staged was found and destroyed unseen.
"""


def add(make: MakeParser) -> None:
    """Add the parsers of `ledger` and `runs`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    top = make("ledger", "open accounts, show and prove what was spent", TOP_EPILOG)
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

    init = sub("init", "make a ledger, or open an account in it", INIT_EPILOG)
    init.add_argument("--dataset", metavar="NAME", help="the account: `dataset` in job files")
    init.add_argument("--unit", metavar="COLUMN", action="append", help="a column of the privacy unit; may be repeated")
    init.add_argument("--unit-words", metavar="TEXT", help="the privacy unit in words, e.g. customer")
    _add_cap(init)
    init.add_argument("--rule", choices=RULES, default="reserved", help="how costs add up (default: reserved)")
    init.add_argument(
        "--source", metavar="GLOB", action="append", default=[], help="files of this account; may be repeated"
    )
    init.add_argument("--window-column", metavar="COLUMN", help="event time: each window has a cap of its own")
    init.add_argument("--window-days", metavar="N", type=int, help="the width of a window")
    init.add_argument("--window-origin", metavar="DATE", default="1970-01-05", help="a first day (default: a Monday)")
    raised = sub("raise", "raise the cap of an account, on the record", RAISE_EPILOG)
    raised.add_argument("--dataset", metavar="NAME", help="the account")
    _add_cap(raised)
    show = sub("show", "what was spent, and what is left", SHOW_EPILOG)
    verify = sub("verify", "check everything that a ledger holds", VERIFY_EPILOG)
    verify.add_argument("--accept", action="store_true", help="anchor a ledger anew whose anchor is lost")
    verify.add_argument(
        "--against", metavar="MANIFEST", nargs="+", action="extend", help="manifests of releases that it must hold"
    )
    exported = sub("export", "who spent what, when, on which plan, with the proof", EXPORT_EPILOG)
    exported.add_argument("--format", choices=("json", "csv", "html"), default="json", help="(default: json)")
    exported.add_argument("--output", metavar="FILE", help="(default: standard output)")
    runs = make("runs", "list runs and their states, or give one up", RUNS_EPILOG)
    runs.add_argument("--abandon", metavar="ID", help="give this run up")
    runs.add_argument("--gone", metavar="ID", help="its attempt ran on a machine that is gone for good: end it")
    runs.add_argument("--dataset", metavar="NAME", help="of this account alone")
    for parser in (init, raised, show, verify, exported, runs):
        parser.add_argument("job", metavar="JOB", nargs="?", help="a job file; the ledger is the one beside it")
        parser.add_argument("--ledger", metavar="URL", help=f"a path or postgresql://... (default: {DEFAULT_LEDGER})")
        add_anchor(parser)
    for parser in (show, runs, verify):
        parser.add_argument("--json", action="store_true", help="print JSON")


def add_anchor(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where a ledger's anchor must be."""
    parser.add_argument(
        "--anchor",
        metavar="DIR",
        help="where the ledger's head is kept a second time; a ledger that says otherwise is refused",
    )


def _add_cap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epsilon", metavar="E", type=float, help="what may be spent on each unit")
    parser.add_argument("--delta", metavar="D", type=float, help="what may be spent on each unit")
