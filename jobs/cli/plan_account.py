"""Tells, beside a plan, what its account has left, whether a run would be refused now, and where its files were charged before.

In: a job file and, where its files were checked, the request. Out: a line. Holds: a ledger is opened only if its file is beside
the job; the run is admitted on trial, as `run` does before it asks, which writes nothing; a ledger that cannot be used
fails no plan. No row is read. Not covered: ledgers elsewhere, which only `run --ledger` names.
"""

import contextlib
import dataclasses
import pathlib
import shlex
from typing import TYPE_CHECKING

from dp_pipelines.accounting.shown_costs import left_number, spent_number
from dp_pipelines.errors import BudgetError, DpError, LedgerError, RequestError
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run.charged_elsewhere import charged_elsewhere, charged_files
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.ledger import default_places

if TYPE_CHECKING:
    from dp_pipelines.ledger.entries import Account
    from dp_pipelines.ledger.ledger import Ledger


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountBeside:
    """What the account beside a job says.

    Args:
        words: what it has left, and which other accounts the files were charged to; empty if neither is known.
        unit: its privacy unit without a window; empty where there is no account.
    """

    words: str
    unit: str = ""


def look(file: JobFile, request: Request | None) -> AccountBeside:
    """Return what the account of a job says.

    Args:
        file: the job.
        request: of its checked files; None says what is left and no more.
    """
    place = default_places.beside(file.path)
    if file.job.parties is not None:
        return AccountBeside(words="")
    if not pathlib.Path(place).exists():
        return AccountBeside(words="" if request is None else "; ".join(charged_elsewhere(request, "")))
    try:
        return _look(file.job.dataset, place, request)
    except DpError as error:
        return AccountBeside(words=f"what {file.job.dataset!r} has left is not known: {error}")


def _look(dataset: str, place: str, request: Request | None) -> AccountBeside:
    """Return the same. Raises: DpError, if the ledger cannot be used."""
    from dp_pipelines.ledger import export
    from dp_pipelines.ledger.ledger import Ledger  # loads SQLAlchemy
    from dp_pipelines.ledger.patience import A_MOMENT, Patience

    with contextlib.closing(Ledger.open(place, patience=Patience(locked=A_MOMENT))) as ledger:
        account = ledger.state.accounts.get(dataset)
        if account is None:
            ledger.refuse_other_kind(dataset)
            words = f"the ledger has no account {dataset!r} yet; " + _of_first_run(request, ledger)
            return AccountBeside(words="; ".join([words, *_elsewhere(request, ledger)]))
        if account.window is not None and request is None:
            words = f"{dataset!r}: each window has a budget of its own; give the parameters with --param"
            return AccountBeside(words=words, unit=_unit_of(account))
        budget = export.budget_of(account, "" if request is None else request.window_name)
        cap, left = budget["cap"], budget["left"]
        parts = [f"{name} {left_number(left[name])} of {spent_number(cap[name])}" for name in cap]
        words = f"{dataset!r}: {' and '.join(parts)} left"
        if request is not None:
            words = "; ".join([words, _on_trial(request, ledger), *_elsewhere(request, ledger)])
        return AccountBeside(words=words, unit=_unit_of(account))


def _unit_of(account: "Account") -> str:
    """Return the privacy unit of an account without its window, which every group of a release lies in."""
    window = account.window
    return account.words if window is None else account.words.removesuffix(f" in one window of {window.days} days")


def _elsewhere(request: Request | None, ledger: "Ledger") -> list[str]:
    """Return warnings about other accounts that were charged for the same files; none where the files were not checked."""
    return [] if request is None else charged_elsewhere(request, ledger.state.ledger)


def _of_first_run(request: Request | None, ledger: "Ledger") -> str:
    """Return what the first run of an account would do: open it, or be refused since its files belong to another account."""
    opens = "the first run opens it with this job's budget as its cap"
    if request is None:
        return opens
    try:
        for pattern, files in charged_files(request):
            ledger.refuse_foreign(request.file.job.dataset, pattern, files)
    except RequestError as error:
        return f"a run would be refused: {error}"
    return opens


def _on_trial(request: Request, ledger: "Ledger") -> str:
    """Return whether the ledger would admit a run."""
    from dp_pipelines.jobs.run.ledger_account import Book
    from dp_pipelines.jobs.run.run import admission, cached_plan, identity_of, plan_of

    try:
        with Book(request, None, _unheard, opened=ledger) as book:
            frozen = book.frozen()
            if frozen is None:
                plan = cached_plan(request.file, request.stages, request.asked)
            else:
                plan = plan_of(request.file, request.stages, frozen)
            identity = identity_of(plan, request)
            if book.committed(identity):
                return "this job has its release, which the same run gives again for free"
            try:
                book.tried(admission(request, plan, identity, trial=True))
            except BudgetError as error:
                cap = book.cap_for(plan)
                if cap is None:
                    return f"a run would be refused: {error.message.removeprefix('is one too many: ')}"
                job, epsilon, delta = shlex.quote(str(request.file.path)), *map(spent_number, cap)
                return f"a run would be refused: dp-pipelines ledger raise {job} --epsilon {epsilon} --delta {delta}"
            if frozen is None:
                return "a run fits"
            return f"this plan is paid for, and {book.runs_left()}"
    except RequestError as error:
        return f"a run would be refused: {error}"
    except LedgerError as error:
        return f"whether a run fits is not known: {error}"


def _unheard(words: str) -> None:
    """For notes about the ledger, which `run` tells."""
