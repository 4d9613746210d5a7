"""The options of a command that say how its CSV files are written, as the keys of `source:` in a job file.

In: a parser of the command line, its result. Out: the options in it; the keys that they stand for. Holds: nothing slow is
imported, since `--help` needs nothing; a tab may be written in letters. Not covered: whether the values are right
(`source_models`).
"""

import argparse
from typing import Any

HELP = {
    "delimiter": ("CHARACTER", "of CSV: what separates cells, e.g. ';', or tab (default: a comma)"),
    "quote": ("CHARACTER", 'of CSV: the quotation mark (default: ")'),
    "decimal": ("CHARACTER", "of CSV: the decimal separator of numbers, a point (default) or a comma"),
    "thousands": ("CHARACTER", "of CSV: what may separate groups of three digits (default: nothing)"),
    "encoding": ("NAME", "of CSV: utf-8 (default), latin-1, cp1252, ..."),
    "nulls": ("CELL", "of CSV: a cell that is null, in place of those of the usual list; may be repeated"),
    "date_format": ("FORMAT", "of CSV: how date columns are written, e.g. %%d.%%m.%%Y (default: ISO 8601)"),
    "timestamp_format": ("FORMAT", "of CSV: how timestamp columns are written (default: ISO 8601)"),
}
"""Of each key: what its option takes, and its help text."""

TABS = ("tab", "\\t")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    for key, (what, text) in HELP.items():
        parser.add_argument(option(key), metavar=what, help=text, action="append" if key == "nulls" else "store")


def keys(given: argparse.Namespace) -> dict[str, Any]:
    r"""What was given, as a job file says it.

    Args:
        given: the result of a parser with these options.

    >>> parser = argparse.ArgumentParser()
    >>> add(parser)
    >>> keys(parser.parse_args(["--delimiter", "tab", "--nulls", "-"]))
    {'delimiter': '\t', 'nulls': ['-']}
    """
    found = {key: value for key in HELP if (value := getattr(given, key)) is not None}
    if found.get("delimiter") in TABS:
        found["delimiter"] = "\t"
    return found


def option(key: str) -> str:
    """The option of a key.

    >>> option("date_format")
    '--date-format'
    """
    return "--" + key.replace("_", "-")


def shown(delimiter: str) -> str:
    r"""The option that says which character separates cells, as a shell takes it.

    >>> shown("\t"), shown(";")
    ('--delimiter tab', "--delimiter ';'")
    """
    return f"{option('delimiter')} " + ("tab" if delimiter == "\t" else f"'{delimiter}'")
