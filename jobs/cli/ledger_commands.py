"""The commands `ledger` and `runs`: open accounts, show, verify and export them, list and abandon runs.

In: parsed arguments. Out: text or JSON on standard output. Holds: only public facts are printed: requests and their
charges. Not covered: admitting and following runs (`ledgered_run`).
"""

import argparse
import dataclasses
import datetime
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.cli import account_commands, page_place, shown_ledger
from dp_pipelines.jobs.cli.account_commands import AccountCommands, NewAccount
from dp_pipelines.jobs.cli.shown_ledger import shown
from dp_pipelines.jobs.run import ledgered_run, witnesses
from dp_pipelines.jobs.runners import orphaned_jobs, processes
from dp_pipelines.jobs.spec import job_file, job_kinds
from dp_pipelines.jobs.spec.job_file import Job, JobFile
from dp_pipelines.jobs.spec.job_kinds import OtherJobFile
from dp_pipelines.jobs.terminal import output, summary
from dp_pipelines.ledger import default_places, export, release_list, sources
from dp_pipelines.ledger.database import Database
from dp_pipelines.ledger.entries import FILTER, Account, EngineJob, Run, Window
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.ledger.patience import A_MINUTE, Patience
from dp_pipelines.ledger.pins import OtherAnchor
from dp_pipelines.ledger.rules import check_cap
from dp_pipelines.release.manifest import unit_in_words
from dp_pipelines.release.staging import write_whole
from dp_pipelines.report.key_text import visible

KILLED = "killed"

ENDS = {"it failed": "failed", "it was interrupted": "interrupted", ledgered_run.GONE: KILLED}
"""What became of an attempt, in a word, where the ledger has it in several; others stand as they are."""

COLUMNS_OF_RUNS = ("run", "account", "state", "round", "attempts", "last", "drawn", "since", "job", "folder")

RELEASED = ("committed", "published")
"""States of runs that have a release."""

SETTLED = ("committed", "published", "abandoned")
"""States of runs that no attempt changes any more."""


def ledger(given: argparse.Namespace) -> None:
    """Run `ledger ...`."""
    commands = {"init": _init, "raise": _raise, "show": _show, "verify": _verify, "export": _export}
    if given.subcommand is None:
        raise RequestError(field="ledger", message="needs one of " + ", ".join(commands), hint="see `--help`")
    commands[given.subcommand](given)


def runs(given: argparse.Namespace) -> None:
    """Run `runs`."""
    file, book = _opened(given)
    dataset = given.dataset or (file.job.dataset if file is not None else None)
    chosen = [run for run in book.state.runs.values() if dataset in (None, run.account)]
    if given.gone is not None:
        ended = ledgered_run.gone(book, _one(chosen, given.gone, book), _stop)
        print(
            f"ended the attempt of {ended.run_id}; its charge stays; run the same `dp-pipelines run` command to continue"
        )
        return
    if given.abandon is not None:
        given_up = ledgered_run.abandon(book, _one(chosen, given.abandon, book), _stop)
        stays = "its charge stays, because nothing proves that its staged files were destroyed unseen"
        if given_up.account in book.state.others:
            stays = book.state.others[given_up.account].charge_stays
        said = _given_back(book, given_up) if given_up.given_back else stays
        print(f"abandoned {given_up.run_id}; {said}")
        return
    listed = [export.run_to_json(book, run) | {"last_attempt": _last_attempt(run)} for run in chosen]
    if given.json:
        print(summary.as_json(listed))
        return
    out = summary.console(sys.stdout)
    if listed:
        shown_ledger.print_table(out, COLUMNS_OF_RUNS, [_cells_of_run(run) for run in listed])
    else:
        out.print("no runs")
    for run in listed:
        last = run["last_attempt"]
        if last is not None and last["state"] == KILLED and run["state"] not in SETTLED:
            out.print(
                f"the last attempt of {shown(run['run_id'])} was killed: process {shown(str(last['pid']))} on "
                f"{shown(str(last['host']))} ended without a word, as for want of memory or after a reboot; the same "
                "`dp-pipelines run` command continues, and nothing is charged again",
                soft_wrap=True,
            )


def _given_back(book: Ledger, run: Run) -> str:
    """Return in words who may use what a given-up run has given back."""
    if book.account(run.account).rule == FILTER:
        return "its charge is back in the account, for any job"
    block = book.state.plans[run.account, run.window, run.plan]
    what = shown(release_list.contents_in_words(release_list.stages_of(book.state, block)))
    return (
        f"its place in the plan is free again: a run of the same plan ({what}; {block.left} of {block.runs} runs are "
        f"left{block.spare_in_words}) may use it, and no other plan can, since a plan is paid for as a whole"
    )


def _cells_of_run(run: dict[str, Any]) -> list[str]:
    last, near = run["last_attempt"], shown_ledger.near
    return [
        run["run_id"],
        run["account"] + (f" {run['window']}" if run["window"] else ""),
        run["state"],
        f"{run['round']} of {run['runs']}" if run["runs"] else f"{run['round']}",
        str(run["attempts"]),
        "-" if last is None else last["state"],
        run.get("drawn", "") if run["state"] in RELEASED else "-",
        run["times"].get(run["state"], ""),
        near(run.get("job", "")) or "-",
        ", ".join(near(folder) for folder in run["folders"]) or "-",
    ]


def _last_attempt(run: Run) -> dict[str, Any] | None:
    """What has become of a run's last attempt, as far as this machine can tell; None where none has begun."""
    if not run.attempts:
        return None
    last = run.attempts[-1]
    state = ENDS.get(last.ended, last.ended)
    if not last.ended:
        state = {True: "at work", False: KILLED, None: "unknown here"}[processes.alive(last.where)]
    return {"state": state, "host": last.where.get("host", ""), "pid": last.where.get("pid", "")}


def _stop(job: EngineJob) -> None:
    orphaned_jobs.stop(job, lambda text: output.note(f"note: {text}"))


def _one(chosen: Sequence[Run], run_id: str, book: Ledger) -> Run:
    found = [run for run in chosen if run.run_id == run_id]
    if len(found) != 1:
        message = "is in several accounts" if found else f"is not in the ledger {book.shown}"
        raise RequestError(field=f"run {run_id!r}", message=message, hint="name the account with --dataset")
    return found[0]


def _init(given: argparse.Namespace) -> None:
    file = _loaded(given)
    url = _url(given, file)
    commands = _other_commands(given, file)
    new: TablesAccount | NewAccount | None
    if commands is not None:
        new = commands.new_account(given, file)
    else:
        assert file is None or isinstance(file, JobFile)  # the job of another kind charges an account of its kind
        new = _tables_account(given, file)
    there = Ledger.exists(url, patience=_patience())
    if new is None and there:
        raise RequestError(
            field=f"ledger {Database(url).shown}",
            message="already exists",
            hint="to open an account in it, add --dataset ...",
        )
    if not there:
        book = Ledger.create(url, anchor=given.anchor, patience=_patience(), anew=given.accept)
        print(f"created the ledger {book.shown}")
    else:
        try:
            book = Ledger.open(url, anchor=given.anchor, patience=_patience())
        except OtherAnchor:
            if given.anchor is None:
                raise
            message = "is fixed when a ledger is created, and this ledger has a different one"
            raise RequestError(field="--anchor", message=message, hint="leave it out") from None
    if new is None:
        return
    files = [name for pattern in new.patterns for name in sources.matching(pattern)]
    print(new.open(book, files))
    here = default_places.AccountPlace(account=new.name, ledger=book.state.ledger, shown=book.shown)
    for warning in default_places.charged_before(here, files, "--ledger"):
        output.note(f"note: {warning}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesAccount:
    """An account of tables that somebody wants to open. Arguments as for `Ledger.open_account`."""

    name: str
    unit: Sequence[str]
    words: str
    epsilon: float
    delta: float
    rule: str
    window: Window | None
    patterns: Sequence[str]

    def open(self, book: Ledger, files: Sequence[str]) -> str:
        """Open it; gives what to say. Errors as for `Ledger.open_account`."""
        account = book.open_account(files=files, **vars(self))
        return f"opened the account {account.name!r}: {_both(account)} for each {visible(account.words)}, rule {account.rule}"


def _other_commands(given: argparse.Namespace, file: JobFile | OtherJobFile | None) -> AccountCommands | None:
    """Return the commands of the account that a job or `--kind` names; None: it is one of tables."""
    kind = getattr(given, "kind", None)
    return next(
        (
            each
            for each in account_commands.installed()
            if kind in each.kinds or (file is not None and each.is_charged_by(file))
        ),
        None,
    )


def _refuse_options_of_others(given: argparse.Namespace) -> None:
    """Refuse options of accounts of other kinds for one of tables.

    Raises:
        RequestError: one is given.
    """
    for commands in account_commands.installed():
        commands.refuse_options(given)


def _tables_account(given: argparse.Namespace, file: JobFile | None) -> TablesAccount | None:
    """The account that options and job say; None where they say none, and only a ledger is made.

    Raises:
        RequestError: they say half of one, or one that cannot be. A mistake is told before a ledger is created.
    """
    _refuse_options_of_others(given)
    job = file.job if file is not None else None
    dataset = given.dataset or (job.dataset if job is not None else None)
    unit = given.unit or (list(job.unit) if job is not None else None)
    epsilon = given.epsilon if given.epsilon is not None or job is None else job.budget.epsilon
    delta = given.delta if given.delta is not None or job is None else job.budget.delta
    wanted = {"--dataset": dataset, "--unit": unit, "--epsilon": epsilon, "--delta": delta}
    missing = [name for name, value in wanted.items() if value is None]
    if missing and len(missing) < len(wanted):
        raise RequestError(
            field=missing[0], message="is required to open an account", hint="add it, or name a job file"
        )
    window = _window(given, job)
    if dataset is None or unit is None:
        return None
    rule = given.rule or "reserved"
    check_cap(rule, epsilon, delta)
    checks.plain(str(dataset), "dataset")
    words = given.unit_words or unit_in_words(unit)
    if window is not None:
        words += f" in one window of {window.days} days"
    patterns = [sources.absolute(pattern, ".") for pattern in given.source]
    if not given.source and file is not None:
        patterns = [sources.absolute(each.pattern, str(file.path.parent)) for each in file.job.sources.values()]
    return TablesAccount(
        name=dataset, unit=unit, words=words, epsilon=epsilon, delta=delta, rule=rule, window=window, patterns=patterns
    )


def _window(given: argparse.Namespace, job: Job | None) -> Window | None:
    column, days = given.window_column, given.window_days
    if column is None and days is None:
        if job is None or job.window is None:
            return None
        column, days = job.window.column, job.window.days
    if column is None or days is None or days < 1:
        raise RequestError(
            field="--window-days", message="and --window-column go together", hint="give both, with at least 1 day"
        )
    try:
        origin = datetime.date.fromisoformat(given.window_origin).isoformat()
    except ValueError:
        raise RequestError(field="--window-origin", message="must be a date", hint="write e.g. 2026-01-05") from None
    return Window(column=column, days=days, origin=origin)


def _raise(given: argparse.Namespace) -> None:
    file, book = _opened(given)
    dataset = given.dataset or (file.job.dataset if file is not None else None)
    if dataset is None:
        raise RequestError(field="--dataset", message="is required", hint="add it, or name a job file")
    commands = _other_commands(given, file) or next(
        (each for each in account_commands.installed() if file is None and each.owns(book, dataset)), None
    )
    if commands is not None:
        print(commands.raise_limits(given, book, dataset))
        return
    _refuse_options_of_others(given)
    if given.epsilon is None and given.delta is None:
        raise RequestError(field="--epsilon", message="or --delta is required", hint="add the new cap to the command")
    now = book.account(dataset)
    epsilon, delta = (
        held if value is None else value for value, held in ((given.epsilon, now.epsilon), (given.delta, now.delta))
    )
    account = book.raise_cap(dataset, epsilon=epsilon, delta=delta)
    left = release_list.left_in_words(book.state, account, "") if account.window is None else ""
    print(f"the cap of {account.name!r} is now {_both(account)}" + (f"; left: {left}" if left else ""))


def _both(account: Account) -> str:
    """A cap in words."""
    return f"epsilon {summary.spent_number(account.epsilon)} and delta {summary.spent_number(account.delta)}"


def _show(given: argparse.Namespace) -> None:
    file, book = _opened(given)
    if given.csv:
        sys.stdout.write(shown_ledger.to_csv(book))
        return
    answers = [account.to_json() for account in book.state.others.values()]
    if given.json:
        head = {"seq": book.head.seq, "hash": book.head.hash}
        tunings = [vars(tuning) for tuning in book.state.tunings]
        told = {"ledger": book.state.ledger, "head": head, "accounts": _accounts(book), "answers_accounts": answers}
        missing = {"not_installed": export.missing_to_json(book)} if book.state.missing else {}
        print(summary.as_json({**told, **missing, "tunings": tunings}))
        return
    out = summary.console(sys.stdout)
    looked_at = sorted({tuning.account for tuning in book.state.tunings} - set(book.state.accounts))
    names = [*book.state.accounts, *book.state.others, *book.state.missing, *looked_at]
    wanted = names if file is None else [file.job.dataset]
    out.print(f"ledger   {shown(book.shown)} · {book.head.seq} events · head {book.head.hash[:16]}")
    for name, account in book.state.accounts.items():
        if name not in wanted:
            continue
        out.print()
        shown_ledger.show_account(book, account, out)
    for name, other in book.state.others.items():
        if name not in wanted:
            continue
        commands = next((each for each in account_commands.installed() if each.owns(book, name)), None)
        heading, *lines = ["of another kind"] if commands is None else commands.lines(other.to_json())
        out.print()
        out.print(f"[bold]{shown(name)}[/bold] · {escape(heading)}")
        for line in lines:
            out.print(f"  {escape(line)}", soft_wrap=True)
    for name, error in book.state.missing.items():
        if name in wanted:
            out.print()
            words = f"{error.message}; nothing can be added to this ledger"
            out.print(f"[bold]{shown(name)}[/bold] · {escape(words)}", soft_wrap=True)
    opened = {*book.state.accounts, *book.state.others, *book.state.missing}
    for name in looked_at if file is None else sorted({*wanted} - opened):
        out.print()
        out.print(f"[bold]{shown(name)}[/bold] · no account yet")
        for tuning in export.tunings_to_json(book, name):
            out.print(f"  {shown_ledger.look_in_words(tuning)}", soft_wrap=True)
    if others := len({*names} - {*wanted}):
        out.print()
        where = shown(shlex.quote(shown_ledger.near(book.shown)))
        accounts = "1 other account: it is" if others == 1 else f"{others} other accounts: they are"
        out.print(f"this ledger has {accounts} shown by dp-pipelines ledger show --ledger {where}", soft_wrap=True)


def _accounts(book: Ledger) -> list[dict[str, Any]]:
    """The accounts of tables, with their plans, releases and looks."""
    return [
        export.account_to_json(account)
        | {
            "plans": _plans(book, name),
            "releases": [entry.to_json() for entry in release_list.entries(book.state, account)],
            "tunings": export.tunings_to_json(book, name),
        }
        for name, account in book.state.accounts.items()
    ]


def _plans(book: Ledger, account: str) -> list[dict[str, Any]]:
    """The frozen plans of an account: how many of their runs are used, and the joint cost of those."""
    return [
        {
            "plan": block.plan,
            "window": block.window,
            "runs": block.runs,
            "used": len(block.rounds),
            "epsilon": export.cost_of_used(block),
            "delta": block.body["accounted"]["delta"],
            "accounted": block.body["accounted"],
        }
        for block in book.state.plans.values()
        if block.account == account
    ]


def _verify(given: argparse.Namespace) -> None:
    url = _url(given, _loaded(given))
    found = witnesses.read(given.against or [])
    looked: list[int] = []

    def look(book: Ledger) -> None:
        looked[:] = book.verify(accepted=not given.accept), witnesses.refuse_missing(book, found)

    if given.accept:
        book = Ledger.accept(url, anchor=given.anchor, check=look)
    else:
        book = Ledger.open(url, anchor=given.anchor, patience=_patience())
        look(book)
    count, held = looked
    if given.json:
        said = {"ledger": book.state.ledger, "events": count, "head": book.head.hash, "sound": True}
        print(summary.as_json(said if given.against is None else said | {"manifests": held}))
        return
    print(f"sound: {count} events, head {book.head.hash}")
    if given.against is not None:
        without = f"; {len(found) - held} without a ledger" if held < len(found) else ""
        print(f"matches {held} of {len(found)} manifests{without}")


def _export(given: argparse.Namespace) -> None:
    _, book = _opened(given)
    if given.format == "csv":
        text = export.to_csv(book)
    elif given.format == "html":
        from dp_pipelines.report import ledger_page

        text = ledger_page.render(export.to_json(book))
    else:
        text = summary.as_json(export.to_json(book)) + "\n"
    if given.output is None:
        sys.stdout.write(text)
    else:
        page_place.refuse_other(pathlib.Path(given.output), text.encode())
        write_whole(pathlib.Path(given.output), text.encode())


def _opened(given: argparse.Namespace) -> tuple[JobFile | OtherJobFile | None, Ledger]:
    file = _loaded(given)
    return file, Ledger.open(_url(given, file), anchor=given.anchor, patience=_patience())


def _loaded(given: argparse.Namespace) -> JobFile | OtherJobFile | None:
    """Return the job that the command names, of any kind."""
    if given.job is None:
        return None
    content, path = job_file.content_of(given.job), pathlib.Path(given.job)
    kind = job_kinds.of(content)
    return job_file.checked(content, path) if kind is None else kind.read(content, path)


def _patience() -> Patience:
    """With a server that restarts."""
    return Patience(A_MINUTE, lambda text: output.note(f"note: {text}"))


def _url(given: argparse.Namespace, file: JobFile | OtherJobFile | None) -> str:
    if given.ledger is not None:
        return str(given.ledger)
    return default_places.beside(file.path) if file is not None else DEFAULT_NAME
