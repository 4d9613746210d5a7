"""Refusals of invalid requests to a ledger: wrong caps, wrong windows, run ids that belong to something else.

In: a request, the ledger's state. Out: an error, or nothing. Holds: every refusal comes before anything is written. Not
covered: charges that do not fit a budget (`rules`).
"""

import datetime
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.ledger import release_list, sources, units
from dp_pipelines.ledger.entries import Account, PlanBlock, Run, Window

if TYPE_CHECKING:
    from dp_pipelines.ledger.account_kind import OtherAccount
    from dp_pipelines.ledger.state import State


def refuse_other(run: Run, asked: str, content: str, window: str) -> None:
    """Refuse a run id that was used for something else.

    Raises:
        RequestError: for another plan, job, window or other parameters.
    """
    if (run.plan, run.content, run.window) == (asked, content, window):
        return
    what = "another plan" if run.plan != asked else "another job, other parameters or another snapshot of a table"
    raise RequestError(
        field=f"run {run.run_id!r}",
        message=f"was charged for {what}; one run id stands for one release",
        hint=f"give this run another --run-id; {release_list.REWRITE} gives a release other files or words for free",
    )


def free_round(state: "State", block: PlanBlock, run_id: str, *, spare: bool) -> int:
    """Return the first round of a plan that no run has.

    Args:
        state: of the ledger.
        block: the plan.
        run_id: of the run that gets it, for the message.
        spare: whether it is to be one of the rounds for corrections.

    Raises:
        BudgetError: all are used.
    """
    free, others = block.free(spare=spare), block.free(spare=not spare)
    if free:
        return free[0]
    regular = block.runs - block.spare
    covered = block.spare if spare else block.runs
    kind = f"{covered} {'spare run' if spare else 'run'}{'' if covered == 1 else 's'}"
    kind += f", of them {block.spare} spare" if block.spare and not spare else ""
    more = f"runs: {regular + 1} instead of {regular} in the budget, in sql `--runs {regular + 1} --run-id ID`"
    if spare:
        more = f"spare: {block.spare + 1} instead of {block.spare} in the budget"
    hint = (
        f"repeat a --run-id for its release; {release_list.REWRITE} gives it other files or words for free; or plan anew, "
        f"which is charged: {more}"
    )
    if others and spare:
        left = "the run" if len(others) == 1 else f"one of the {len(others)} runs"
        hint = f"leave out --spare to take {left} that the plan has left; else {hint}"
    if others and not spare:
        left = "the spare run" if len(others) == 1 else f"one of the {len(others)} spare runs"
        hint = f"to correct a release, take {left} with --spare; else {hint}"
    raise BudgetError(
        field=f"run {run_id!r}",
        message=f"is one too many: the plan's budget covers {kind}, used by "
        + release_list.rounds_in_words(state, block, spare=spare),
        hint=hint,
    )


def above(value: float, field: str) -> float:
    """Check that one part of a cap is above 0, and below 1 if it is delta, and return it.

    Args:
        value: the number.
        field: `epsilon` or `delta`.
    """
    cap = units.epsilon_cap(value) if field == "epsilon" else units.delta_cap(value)
    example = f"write e.g. --{field} {1 if field == 'epsilon' else 1e-6}"
    if cap <= 0 or (field == "delta" and value >= 1):
        message = "must be above 0" if cap <= 0 else "must be below 1"
        raise RequestError(field=field, message=message, hint=example)
    return float(value)


def check_window(window: Window) -> None:
    """Refuse an invalid window."""
    if not window.column or type(window.days) is not int or window.days < 1:
        raise RequestError(field="window", message="must have a column and at least one day")
    try:
        datetime.date.fromisoformat(window.origin)
    except (TypeError, ValueError):
        raise RequestError(field="window.origin", message="must be a date", hint="write e.g. 2026-01-05") from None


def refuse_window(account: Account, window: str) -> None:
    """Refuse a run without a window if the account has windows, and a run with one if it has none."""
    if (window == "") == (account.window is None):
        return
    if account.window is None:
        raise RequestError(
            field=f"window {window!r}",
            message=f"the account {account.name!r} has no windows: its unit is all rows of {account.words}",
            hint="leave the window out of the job",
        )
    raise RequestError(
        field=f"dataset {account.name!r}",
        message=f"has a budget for each window of {account.window.days} days, but this run names none",
        hint="add the window that the run reads to the job",
    )


def _owns(account: "Account | OtherAccount", source: str, files: Sequence[str]) -> bool:
    """Return True if a pattern of files, or one of the files, is registered with an account."""
    return any(pattern == source or sources.first_match(pattern, files) for pattern in account.sources)


def owner(accounts: "Iterable[Account | OtherAccount]", source: str, files: Sequence[str]) -> str | None:
    """Return the name of the account of rows with which a pattern, or one of these files, is registered; None if there is none.

    Args:
        accounts: of a ledger.
        source: the pattern, as `sources.absolute` returns it.
        files: that match it now.
    """
    return next((each.name for each in accounts if isinstance(each, Account) and _owns(each, source, files)), None)


def foreign(accounts: "Iterable[Account | OtherAccount]", name: str, source: str, files: Sequence[str]) -> None:
    """Refuse a pattern of files, or files, that belong to another account than the named one.

    Raises:
        RequestError: they belong to another account.
    """
    for other in accounts:
        if other.name != name and _owns(other, source, files):
            raise RequestError(
                field=f"source {source!r}",
                message=f"belongs to the account {other.name!r}; under two accounts the same people would be charged separately",
                hint=f"write dataset: {other.name}" if isinstance(other, Account) else other.file_hint,
            )
