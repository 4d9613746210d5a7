"""Shows what was spent, and on what: an account in words, with one line for each release.

In: an open ledger. Out: lines and tables on a console, or CSV. Holds: nothing is cut: a terminal that is too narrow for
the table gets lists, and where output is no terminal each release is one line. Not covered: accounts of answers
(`account_commands`).
"""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from typing import Any

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from dp_pipelines.jobs.terminal import summary
from dp_pipelines.ledger import export, release_list
from dp_pipelines.ledger.entries import FILTER, TUNE, Account
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.ledger.release_list import ReleaseEntry
from dp_pipelines.report.key_text import visible

WIDE = 100_000
"""More columns than any table needs."""

STATES = {"abandoned": "given up", "unused": "set aside, no run yet", "committed": "released, not yet in a folder"}
"""What stands in place of a folder."""

COLUMNS = ("day", "run", "who", "job", "stages and metrics", "epsilon", "delta", "folder")


def show_account(book: Ledger, account: Account, out: Console) -> None:
    """Print an account: what is used and left in words, and its releases.

    Args:
        book: the ledger.
        account: which.
        out: where to.
    """
    out.print(f"[bold]{shown(account.name)}[/bold] · protects each {shown(account.words)}")
    listed = release_list.entries(book.state, account)
    for window in sorted(account.spent) or [""]:
        place = f"{shown(window)}: " if window else ""
        count = sum(1 for one in listed if one.window == window and one.run_id)
        for line in _budget_lines(book, account, window, count):
            out.print(f"  {place}{line}", soft_wrap=True)
    if listed:
        print_table(out, COLUMNS, [_cells(one) for one in listed], right=("epsilon", "delta"))
    if any(one.runs > 1 for one in listed):
        out.print(
            "  a plan of several runs is paid for with its first run; the others cost nothing more", soft_wrap=True
        )
    for tuning in book.state.tunings:
        if tuning.account == account.name:
            out.print(f"  {look_in_words(vars(tuning))}", soft_wrap=True)
    out.print(f"  rule {account.rule} · {_number(len(account.sources), 'registered source')}")


def _budget_lines(book: Ledger, account: Account, window: str, count: int) -> Iterable[str]:
    budget = export.budget_of(account, window)
    cap, spent, left = budget["cap"], budget["spent"], budget["left"]
    part = max(spent[name] / cap[name] if cap[name] else 0.0 for name in cap)
    yield (
        f"used  epsilon {summary.spent_number(spent['epsilon'])} of {summary.spent_number(cap['epsilon'])} and delta "
        f"{summary.spent_number(spent['delta'])} of {summary.spent_number(cap['delta'])} ({part:.0%}), by {_number(count, 'run')}"
    )
    if account.rule == FILTER:
        yield (
            f"left  epsilon {summary.left_number(left['epsilon'])} and delta {summary.left_number(left['delta'])}; the epsilon "
            "of a release below is what it costs alone, and together they cost less than their sum"
        )
    else:
        yield f"left  {release_list.left_in_words(book.state, account, window)}"
    for block in release_list.plans_of_several_runs(book.state, account, window):
        used = len(block.rounds)
        stages = shown(release_list.contents_in_words(release_list.stages_of(book.state, block)))
        rest = f"; {_number(block.runs - used, 'run')} paid for and not used" if used < block.runs else ""
        rest += block.spare_in_words
        yield (
            f"plan  {stages}: {used} of {block.runs} runs used, at a joint cost of epsilon "
            f"{summary.spent_number(export.cost_of_used(block))} of "
            f"{summary.spent_number(block.body['accounted']['epsilon'])}{rest}"
        )
        if ending := release_list.ending_in_words(book.state, block):
            yield f"      {ending}"


def _cells(entry: ReleaseEntry) -> list[str]:
    run = release_list.shown_id(entry.run_id) if entry.run_id else "-"
    if entry.runs > 1 and entry.round:
        run += f" ({entry.round} of {entry.runs})"
    free = entry.epsilon == 0 and entry.delta == 0
    return [
        (f"{entry.window} / " if entry.window else "") + (entry.day or "-"),
        run,
        entry.who,
        near(entry.job) or "-",
        entry.contents,
        "0" if free else summary.spent_number(entry.epsilon),
        "0" if free else summary.spent_number(entry.delta),
        ", ".join(near(folder) for folder in entry.folders) or STATES.get(entry.state, "not finished"),
    ]


def print_table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table whose cells are never cut.

    Args:
        out: where to.
        columns: their headings.
        rows: cells, as they are.
        right: the columns that are aligned right.
    """
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    listed = [[shown(cell) for cell in row] for row in rows]
    for row in listed:
        table.add_row(*row)
    width = out.width
    wide = Measurement.get(out, out.options.update(width=WIDE), table).maximum
    if out.is_terminal and wide > width:
        for row in listed:
            named = [f"{name} {cell}" for name, cell in zip(columns[1:], row[1:], strict=True)]
            out.print(f"  [bold]{row[0]}[/bold] · {' · '.join(named)}", soft_wrap=True)
        return
    out.width = max(width, wide)
    out.print(table)
    out.width = width


def to_csv(book: Ledger) -> str:
    """One line for each release of each account, with the columns of `--json`."""
    text = io.StringIO()
    names = (
        "day",
        "time",
        "account",
        "window",
        "run_id",
        "state",
        "who",
        "job",
        "stages",
        "round",
        "runs",
        "epsilon",
        "delta",
    )
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "folders"])
    for account in book.state.accounts.values():
        for entry in release_list.entries(book.state, account):
            values = {**vars(entry), "day": entry.day, "stages": entry.contents}
            cells = [export.spreadsheet_cell(values[name]) for name in names]
            writer.writerow([*cells, export.spreadsheet_cell("; ".join(entry.folders))])
    return text.getvalue()


def look_in_words(tuning: dict[str, Any]) -> str:
    """A look at the raw rows, in words.

    Args:
        tuning: what `export.tunings_to_json` gives.
    """
    tuned = tuning["command"] == TUNE
    compared = f", {tuning['configurations']} configurations" if tuned else ""
    return (
        f"{'tuned on' if tuned else 'checked'} the raw rows at {release_list.iso_time(tuning['time'])}: stage "
        f"{shown(tuning['stage'])}{compared}; nothing was charged; no guarantee covers decisions based on it"
    )


def near(path: str) -> str:
    """A path as somebody in this folder would write it, if it is below it."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here) if path.startswith(here) else path


def shown(text: str) -> str:
    """User text made safe for a terminal, at its whole length: no escape sequences and none of our own markup."""
    return escape(visible(text, most=len(text)))


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
