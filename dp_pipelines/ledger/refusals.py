"""Refuses invalid requests to a ledger: wrong caps, wrong windows, run ids that belong to something else.

In: what is asked, what is known. Out: an error, or nothing. Holds: all of it is said before anything is written. Not covered:
what does not fit into a budget (`rules`).
"""

import datetime
from collections.abc import Iterable, Sequence

from dp_pipelines.errors import RequestError
from dp_pipelines.ledger import sources, units
from dp_pipelines.ledger.entries import Account, Run, Window


def refuse_other(run: Run, asked: str, content: str, window: str) -> None:
    """Refuse a run id that stands for something else.

    Raises:
        RequestError: for another plan, job, window or other parameters.
    """
    if (run.plan, run.content, run.window) == (asked, content, window):
        return
    what = "another plan" if run.plan != asked else "another job or other parameters"
    raise RequestError(
        field=f"run {run.run_id!r}",
        message=f"was charged for {what}; one run id stands for one release",
        hint="give this run another --run-id",
    )


def above(value: float, field: str) -> float:
    """A part of a cap that is above 0, and below 1 where it is a delta."""
    cap = units.epsilon_cap(value) if field == "epsilon" else units.delta_cap(value)
    example = f"write e.g. --{field} {1 if field == 'epsilon' else 1e-6}"
    if cap <= 0 or (field == "delta" and value >= 1):
        message = "must be above 0" if cap <= 0 else "must be below 1"
        raise RequestError(field=field, message=message, hint=example)
    return float(value)


def check_window(window: Window) -> None:
    """Refuse a window that is none."""
    if not window.column or type(window.days) is not int or window.days < 1:
        raise RequestError(field="window", message="must have a column and at least one day")
    try:
        datetime.date.fromisoformat(window.origin)
    except (TypeError, ValueError):
        raise RequestError(field="window.origin", message="must be a date", hint="write e.g. 2026-01-05") from None


def refuse_window(account: Account, window: str) -> None:
    """Refuse a run without a window where the account has them, and the other way round."""
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


def foreign(accounts: Iterable[Account], name: str, source: str, files: Sequence[str]) -> None:
    """Refuse a pattern of files, or files, that belong to another account than the named one.

    Raises:
        RequestError: they do.
    """
    for other in accounts:
        theirs = other.name != name and any(
            pattern == source or sources.first_match(pattern, files) for pattern in other.sources
        )
        if theirs:
            raise RequestError(
                field=f"source {source!r}",
                message=f"belongs to the account {other.name!r}; under two accounts the same people would be charged separately",
                hint=f"write dataset: {other.name}",
            )
