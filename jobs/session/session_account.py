"""The account of a session: opened with its cap, or found and compared with what the session says.

In: a ledger's place or nothing, a dataset, a privacy unit, a cap. Out: the ledger's place and what is left. Holds: as for jobs,
a ledger that was named must exist and have the account, since a slip of the pen would otherwise start with a full budget; a
cap that is said again is the account's own, or refused. Not covered: accounts with windows of event time; jobs have them.
"""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dp_pipelines.accounting.shown_costs import number
from dp_pipelines.errors import RequestError
from dp_pipelines.ledger import default_places, export, places, sources
from dp_pipelines.ledger.entries import Account, Cost
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.release.manifest import unit_in_words


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionBudget:
    """An epsilon and a delta.

    >>> SessionBudget(epsilon=2.666700029301, delta=8.88888889e-07)
    SessionBudget(epsilon=2.667, delta=8.889e-07)
    """

    epsilon: float
    delta: float

    def __repr__(self) -> str:
        """Return it rounded for people; the fields have all digits."""
        return f"{type(self).__name__}(epsilon={number(self.epsilon)}, delta={number(self.delta)})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionAccount:
    """An account of a ledger.

    Args:
        place: of the ledger.
        shown: the same without a password.
        name: of the account.
    """

    place: str
    shown: str
    name: str

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, verified and as it stands now. Errors as for `Ledger.open`."""
        opened = Ledger.open(self.place)
        try:
            yield opened
        finally:
            opened.close()

    def budget(self, more: Cost | None = None) -> dict[str, SessionBudget]:
        """The account's `cap`, and what is `spent` and `left` now, or would be with one more cost."""
        with self.ledger() as opened:
            return budget_of(opened.account(self.name), more)


def budget_of(account: Account, more: Cost | None = None) -> dict[str, SessionBudget]:
    """`cap`, `spent` and `left` of an account, with one more cost."""
    spent = account.spent.get("", Cost()) + (more or Cost())
    numbers = export.budget_of(dataclasses.replace(account, spent={**account.spent, "": spent}), "")
    return {
        name: SessionBudget(**{k: max(v, 0.0) for k, v in numbers[name].items()}) for name in ("cap", "spent", "left")
    }


def account_of(
    ledger: str | None,
    folder: pathlib.Path,
    *,
    dataset: str,
    unit: Sequence[str],
    words: str | None,
    epsilon: float | None,
    delta: float | None,
    rule: str | None,
    pattern: str,
    files: Sequence[str],
    tell: Callable[[str], None],
) -> SessionAccount:
    """The account of a session.

    Args:
        ledger: what was named, or None for the file in the folder.
        folder: the session's.
        dataset, unit, words, epsilon, delta, rule: what the session says; None where it leaves that to the account.
        pattern, files: of its source.
        tell: says something to the user.

    Raises:
        RequestError: there is no such account and none may be opened, or it is another one.
        LedgerError: the ledger cannot be used.
    """
    if not isinstance(dataset, str) or not dataset:
        raise RequestError(field="dataset", message="must name an account", hint='write e.g. dataset="grocery"')
    if ledger == "none":
        message, hint = "cannot be none: a session's budget is what a ledger remembers", "leave it out"
        raise RequestError(field="ledger", message=message, hint=hint)
    place = str(folder / DEFAULT_NAME) if ledger is None else _fixed(ledger, folder)
    cap = {"epsilon": epsilon, "delta": delta}
    if ledger is not None or Ledger.exists(place):
        opened = Ledger.open(place)
    else:
        _need_cap(cap)
        opened = Ledger.open_or_create(place)
    try:
        if ledger is None and dataset not in opened.state.accounts:
            _open(opened, dataset, unit, words, _need_cap(cap), rule, pattern, files)
        _refuse_other(opened.account(dataset), unit, cap, rule)
        opened.claim_source(dataset, pattern, files)
        here = default_places.AccountPlace(account=dataset, ledger=opened.state.ledger, shown=opened.shown)
        for warning in default_places.remember(here, pattern, files, "ledger="):
            tell(warning)
    finally:
        opened.close()
    return SessionAccount(place=place, shown=opened.shown, name=dataset)


def _fixed(ledger: str, folder: pathlib.Path) -> str:
    """A ledger's place that stays the same one when the notebook moves to another folder."""
    url = places.parse(ledger)
    return os.path.join(folder, url.database or "") if url.get_backend_name() == "sqlite" else ledger


def _open(
    ledger: Ledger,
    dataset: str,
    unit: Sequence[str],
    words: str | None,
    cap: SessionBudget,
    rule: str | None,
    pattern: str,
    files: Sequence[str],
) -> None:
    ledger.open_account(
        dataset,
        unit=unit,
        words=words or unit_in_words(list(unit)),
        epsilon=cap.epsilon,
        delta=cap.delta,
        rule=rule or "reserved",
        patterns=[pattern],
        files=files,
    )


def _need_cap(cap: dict[str, float | None]) -> SessionBudget:
    for name, value in cap.items():
        if value is None:
            message = "is needed: the account is new, and this is the most that may ever be spent on one unit"
            raise RequestError(
                field=name, message=message, hint=f"write e.g. {name}={3 if name == 'epsilon' else '1e-6'}"
            )
    return SessionBudget(**cap)  # type: ignore[arg-type]  # none is None


def _refuse_other(account: Account, unit: Sequence[str], cap: dict[str, float | None], rule: str | None) -> None:
    if tuple(unit) != account.unit:
        raise RequestError(
            field="privacy_unit",
            message=f"is not that of the account {account.name!r}, which protects each {account.words}",
            hint=f"write privacy_unit={list(account.unit)}; other rows have a dataset of their own",
        )
    if account.window is not None:
        wrong = f"names the account {account.name!r}, which has windows of {account.window.days} days"
        raise RequestError(
            field="dataset", message=wrong, hint="run a job file with a window, or charge another dataset"
        )
    said: dict[str, Any] = {**cap, "rule": rule}
    for name, value in said.items():
        held = getattr(account, name)
        if value is not None and value != held:
            shown = f"{held:g}" if isinstance(held, float) else held
            hint = "leave it out" + ("" if name == "rule" else ", or raise the cap with `dp-pipelines ledger raise`")
            raise RequestError(
                field=name, message=f"is {shown} for the account {account.name!r}, on the record", hint=hint
            )


def registered(pattern: str, folder: pathlib.Path) -> str:
    """A pattern as ledgers register it."""
    return sources.absolute(pattern, str(folder))
