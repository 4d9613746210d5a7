"""Finds the ledger and the account that a run is charged to.

In: a checked request, `--ledger` or nothing. Out: an open ledger that has the job's account, with the job's files registered.
Holds: a ledger that was named must exist and have the account, since a slip of the pen would otherwise start with a full
budget; where none is named, the file beside the job is made, and its account gets the job's budget as its cap. The account's
privacy unit is the job's, or the run is refused.
"""

import dataclasses
import pathlib
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.accounting.shown_costs import spent_number
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run.charged_elsewhere import charged_elsewhere, charged_files
from dp_pipelines.jobs.runners import processes
from dp_pipelines.jobs.sources import event_window
from dp_pipelines.ledger import default_places, release_list, rules, sources, units
from dp_pipelines.ledger.entries import FILTER, TUNE, Account, Cost, PlanBlock, Run, Window
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.ledger.patience import A_MINUTE, Patience
from dp_pipelines.planning.plan import Plan
from dp_pipelines.release.manifest import unit_in_words

if TYPE_CHECKING:
    from dp_pipelines.ledger.state import State

WHAT_THEN = 'docs/schedule.md says what then ("When the runs are used up")'
"""Where a user reads what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedJob:
    """A job that has a release.

    Args:
        run_id: of its last release.
        day: of the draw (UTC).
        fields: what the ledger has noted of its job file (`request.job_fields`).
    """

    run_id: str
    day: str
    fields: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewCharge:
    """A run that is about to be charged, with the public facts by which its owner may decide.

    Args:
        request: the run.
        plan: its plan.
        released: other jobs of the account that have a release, the newest first.
        left: epsilon and delta that the account has left; None if it is not there yet, or does not count in these (rule
            `filter`).
        opens_account: whether the account will be opened, with the job's budget as its cap.
        repeats: what `Book.repeats` says of it, if its plan is charged already.
        elsewhere: warnings about other accounts that were charged for the same files.
    """

    request: Request
    plan: Plan
    released: tuple[ReleasedJob, ...]
    left: tuple[float, float] | None
    opens_account: bool
    repeats: str = ""
    elsewhere: tuple[str, ...] = ()


def released_jobs(state: "State", account: str, window: str) -> tuple[ReleasedJob, ...]:
    """Return the jobs of an account that have a release, one for each plan, the newest first.

    Args:
        state: of the ledger.
        account, window: their names; the window is empty where the account has none.
    """
    released = dict[str, ReleasedJob]()
    for run in reversed(list(state.runs_of(account))):
        block = state.plans[account, run.window, run.plan]
        if run.committed and run.window == window and run.plan not in released and block.job_fields:
            day = release_list.time_of_draw(run)[:10]
            released[run.plan] = ReleasedJob(run_id=run.run_id, day=day, fields=block.job_fields)
    return tuple(released.values())


class Book:
    """The ledger of a run.

    Args:
        request: the run.
        url: what was named, or None.
        anchor: where the ledger's anchor must be, or None.
        beside: the folder of the ledger where none was named; None is that of the job file.
        tell: says something to the user.
        opened: the ledger, where somebody has opened it already; it is closed with the book.

    Raises:
        RequestError: a ledger was named that is not there, or the account is another one's.
        LedgerError: the ledger cannot be used.
    """

    def __init__(
        self,
        request: Request,
        url: str | None,
        tell: Callable[[str], None],
        *,
        anchor: str | None = None,
        beside: pathlib.Path | None = None,
        opened: Ledger | None = None,
    ) -> None:
        self._request, self._url, self._tell, self._anchor = request, url, tell, anchor
        by_default = default_places.beside(request.file.path) if beside is None else str(beside / DEFAULT_NAME)
        self._place = by_default if url is None else url
        self._patience = Patience(A_MINUTE, tell)
        self._ledger = opened

    def __enter__(self) -> "Book":
        # What is not there yet is made once everything else is known to be right (`open`).
        if self._ledger is None and (self._url is not None or Ledger.exists(self._place, patience=self._patience)):
            self._ledger = Ledger.open(self._place, anchor=self._anchor, patience=self._patience)
        if self._ledger is not None:
            self._ledger.refuse_other_kind(self._request.file.job.dataset)
            if self._url is not None or self._request.file.job.dataset in self._ledger.state.accounts:
                self._refuse_other_account(self._ledger)
        return self

    def __exit__(self, *failure: object) -> None:
        if self._ledger is not None:
            close(self._ledger, self._tell)

    def frozen(self) -> Mapping[str, Any] | None:
        """What the ledger has kept of this run's plan, or None."""
        block = self._block
        return None if block is None else dict(block.body["frozen"])

    @property
    def _block(self) -> PlanBlock | None:
        """The frozen plan of this run, or None."""
        if self._ledger is None:
            return None
        request = self._request
        return self._ledger.block(request.file.job.dataset, request.window_name, request.asked)

    def others(self) -> bool:
        """Whether the account holds plans already."""
        if self._ledger is None:
            return False
        key = (self._request.file.job.dataset, self._request.window_name)
        return any((block.account, block.window) == key for block in self._ledger.state.plans.values())

    def new_charge(self, plan: Plan, repeats: str = "") -> NewCharge:
        """Return what there is to know before a run is charged.

        Args:
            plan: of the run.
            repeats: what `repeats` says of it.
        """
        name, window = self._request.file.job.dataset, self._request.window_name
        account = None if self._ledger is None else self._ledger.state.accounts.get(name)
        known_as = "" if self._ledger is None else self._ledger.state.ledger
        elsewhere = tuple(charged_elsewhere(self._request, known_as))
        if self._ledger is None or account is None:
            return NewCharge(
                request=self._request, plan=plan, released=(), left=None, opens_account=True, elsewhere=elsewhere
            )
        left = account.left(window)
        return NewCharge(
            request=self._request,
            plan=plan,
            released=released_jobs(self._ledger.state, name, window),
            left=None if account.rule == FILTER else (units.epsilon_of(left.epsilon), units.delta_of(left.delta)),
            opens_account=False,
            repeats=repeats,
            elsewhere=elsewhere,
        )

    def repeats(self, run_id: str) -> str:
        """Return what to say of a new run if the same job has a release with its parameters already; empty if there is none.

        Jobs without parameters read other files under each run id, so nothing is said of them.

        Args:
            run_id: of the run.
        """
        request, run = self._request, self._run(run_id)
        if self._ledger is None or not request.values or (run is not None and run.state != "abandoned"):
            return ""
        account = request.file.job.dataset
        block = self._ledger.block(account, request.window_name, request.asked)
        if block is None:
            return ""
        alike = [
            other
            for other in self._ledger.state.runs_of(account)
            if other.committed
            and (other.window, other.plan) == (block.window, block.asked)
            and other.content == request.content
        ]
        if not alike:
            return ""
        runs, spare = block.runs, f", of which {block.spare} are spare" if block.spare else ""
        return (
            f"these parameters were released before, by run {release_list.shown_id(alike[-1].run_id)!r} of "
            f"{release_list.time_of_draw(alike[-1])[:10]}; this run draws anew and takes another of the "
            f"{runs} run{'' if runs == 1 else 's'} of its plan{spare}"
        )

    def cap_for(self, plan: Plan) -> tuple[float, float] | None:
        """Return the epsilon and delta of a cap that has room for a plan; None if no cap helps or there is no such account.

        Args:
            plan: it is not charged yet.
        """
        name, window = self._request.file.job.dataset, self._request.window_name
        account = None if self._ledger is None else self._ledger.state.accounts.get(name)
        if account is None or account.rule == FILTER or self.frozen() is not None:
            return None
        needed = account.spent.get(window, Cost()) + rules.plan_cost(
            account, plan.accounted["epsilon"], plan.accounted["delta"]
        )
        return max(account.epsilon, units.epsilon_of(needed.epsilon)), max(account.delta, units.delta_of(needed.delta))

    def runs_left(self) -> str:
        """Return how many runs of the job's plan no run holds, in words; empty if it is not charged yet."""
        request = self._request
        block = self._ledger and self._ledger.block(request.file.job.dataset, request.window_name, request.asked)
        if not block:
            return ""
        return f"{block.left} run{' is' if block.left == 1 else 's are'} left{block.spare_in_words}"

    def committed(self, run_id: str) -> bool:
        """Whether a run has its release already."""
        known = self._run(run_id)
        return known is not None and known.committed

    def next_round(self, run_id: str, *, spare: bool) -> int:
        """Return the round that a run has, or gets if no other process takes it first. No charge is tried.

        Args:
            run_id: of the run.
            spare: whether it is one of those for corrections.
        """
        known = self._run(run_id)
        if known is not None and known.state != "abandoned":
            return known.round
        free = [] if self._block is None else self._block.free(spare=spare)
        return free[0] if free else 1

    def runs_of_window(self) -> list[Run]:
        """Return the committed runs of the window of event time that this job reads, the last one last; none without a window."""
        if self._ledger is None or self._request.window is None:
            return []
        runs = self._ledger.state.runs_of(self._request.file.job.dataset)
        return [run for run in runs if run.committed and run.window == self._request.window_name]

    def changed_files(self, run_id: str) -> str:
        """Return what to say where a run has its release and its files are others by now; empty where they are the same.

        Args:
            run_id: of a committed run.
        """
        run, now = self._run(run_id), self._request.read
        changes = "" if run is None or run.read is None or now is None else run.read.changes(now)
        if run is None or self._ledger is None or not changes:
            return ""
        block = self._ledger.state.plans[run.account, run.window, run.plan]
        left = len(block.free())
        anew = f"give another --run-id, of which the plan has {left} left"
        if left == 0:
            runs = block.runs - block.spare + 1
            anew = f"write runs: {runs} into the job's budget, which is another plan and charged anew, and give another --run-id"
        day = release_list.time_of_draw(run)[:10]
        return f"this is the release of {day}, of the files that were there then; since then {changes}; to release anew, {anew}"

    def ending(self, run_id: str) -> str:
        """Return what to say after a run if few runs of its plan are left; empty otherwise.

        Args:
            run_id: of the run.
        """
        run = self._run(run_id)
        block = None if run is None or self._ledger is None else self._ledger.block(run.account, run.window, run.plan)
        if block is None or self._ledger is None or not release_list.is_ending(block):
            return ""
        left = block.left
        runs = "no run" if left == 0 else "1 run" if left == 1 else f"{left} runs"
        words = f"{runs} of the {block.runs} of this plan {'are' if left > 1 else 'is'} left{block.spare_in_words}"
        when = release_list.ending_in_words(self._ledger.state, block)
        return f"{words}{f'; {when}' if when else ''}; {WHAT_THEN}"

    def _run(self, run_id: str) -> Run | None:
        return None if self._ledger is None else self._ledger.run(self._request.file.job.dataset, run_id)

    @property
    def known_as(self) -> str:
        """What tells this ledger from any other: its id, or where it will be made."""
        if self._ledger is not None:
            return str(self._ledger.state.ledger)
        here = processes.here()
        return f"{here['host']} {here['machine']} {pathlib.Path(self._place).absolute()}"

    def tried(self, admit: Callable[[Ledger], Run]) -> int:
        """The round that a run would get, of which nothing is charged.

        Args:
            admit: admits it on trial.

        Raises:
            RequestError, BudgetError: the ledger would refuse it.
        """
        job = self._request.file.job
        if self._ledger is None:  # it will be made
            return 1
        for pattern, files in charged_files(self._request):
            self._ledger.refuse_foreign(job.dataset, pattern, files)
        if job.dataset not in self._ledger.state.accounts:  # its cap will be the job's budget
            return 1
        return admit(self._ledger).round

    def open(self) -> Ledger:
        """The ledger with the run's account and its files registered; made, where none was named and there is none.

        Raises:
            RequestError: the files belong to another account.
            LedgerError: the ledger cannot be made or used.
        """
        job = self._request.file.job
        if self._ledger is None:
            self._ledger = self._opened_or_created()
        if job.dataset not in self._ledger.state.accounts:
            for pattern, files in charged_files(self._request):
                self._ledger.refuse_foreign(job.dataset, pattern, files)  # or the account would be opened for nothing
            try:
                _open_account(self._ledger, self._request)
            except RequestError:
                self._ledger.refresh()
                if job.dataset not in self._ledger.state.accounts:
                    raise
                # Another first run was faster.
                self._refuse_other_account(self._ledger)
                return self._with_sources(self._ledger)
            cap = f"epsilon {spent_number(job.budget.epsilon)} and delta {spent_number(job.budget.delta)}"
            self._tell(
                f"opens the account {job.dataset!r} in the ledger {self._ledger.shown} with this job's budget as its cap, {cap}: "
                f"all jobs on these data together can never spend more; raise the cap with: {self._raise_command()}"
            )
        return self._with_sources(self._ledger)

    def _opened_or_created(self) -> Ledger:
        return Ledger.open_or_create(self._place, anchor=self._anchor, patience=self._patience)

    def _raise_command(self) -> str:
        """A command that works as it stands, with numbers for E and D."""
        file = self._request.file
        shown = self._place if self._ledger is None else self._ledger.shown
        if not file.document.in_file:
            account = f"--dataset {shlex.quote(file.job.dataset)} --ledger {shlex.quote(shown)}"
        else:
            named = "" if self._url is None else f" --ledger {shlex.quote(shown)}"
            account = f"{shlex.quote(str(file.path))}{named}"
        return f"dp-pipelines ledger raise {account} --epsilon E --delta D"

    def note_look(self, *, stage: str, who: str, configurations: int = 1, grid: str = "", command: str = TUNE) -> None:
        """Note that the rows are about to be looked at. The ledger is made where none was named and there is none; no account is.

        Args:
            stage: which is tuned, or all that are checked.
            who: for the auditor.
            configurations, grid: how many are compared, and their digest.
            command: `tune` or `check`.

        Raises:
            RequestError: the files belong to another account, where nobody would look for the note.
            LedgerError: the ledger cannot be made or used.
        """
        if self._ledger is None:
            self._ledger = self._opened_or_created()
        job, seen = self._request.file.job, []
        for pattern, files in charged_files(self._request):
            self._ledger.refuse_foreign(job.dataset, pattern, files)
            seen += [pattern, *sources.behind_links(pattern, files)]
        self._ledger.note_tuning(
            job.dataset, stage=stage, configurations=configurations, content=self._request.content,
            grid=grid, who=who, sources=seen, command=command,
        )  # fmt: skip

    def _with_sources(self, ledger: Ledger) -> Ledger:
        dataset, read = self._request.file.job.dataset, charged_files(self._request)
        for pattern, files in read:  # of several tables none becomes the account's where another is somebody else's
            ledger.refuse_foreign(dataset, pattern, files)
        place = default_places.AccountPlace(account=dataset, ledger=ledger.state.ledger, shown=ledger.shown)
        for pattern, files in read:
            ledger.claim_source(dataset, pattern, files)
            # Where this user has charged one of these files to another account, this one has started with a full budget.
            for warning in default_places.remember(place, pattern, files, "--ledger"):
                self._tell(warning)
        return ledger

    def _refuse_other_account(self, ledger: Ledger) -> None:
        account = ledger.account(self._request.file.job.dataset)
        _refuse_other_unit(account, self._request)
        _refuse_other_windows(account, self._request)


def _open_account(ledger: Ledger, request: Request) -> None:
    job = request.file.job
    ledger.open_account(
        job.dataset,
        unit=job.unit,
        words=event_window.in_words(unit_in_words(job.unit), job),
        window=_window(request),
        epsilon=job.budget.epsilon,
        # A budget with delta 0 is met but for what the tables of noise may be off by, which is far below this.
        delta=max(job.budget.delta, 1e-20),
    )


def _refuse_other_unit(account: Account, request: Request) -> None:
    job = request.file.job
    if tuple(job.unit) != account.unit:
        raise request.file.error(
            (),
            RequestError(
                field="privacy_unit",
                message=f"is not that of the account {account.name!r}, which protects each {account.words}",
                hint=f"write privacy_unit: [{', '.join(account.unit)}]; the losses of two units of the same rows are never added",
            ),
        )


def _window(request: Request) -> Window | None:
    """The windows of an account that this run opens: its own is one of them."""
    if request.window is None:
        return None
    return Window(column=request.window.column, days=request.window.days, origin=request.window.name)


def _refuse_other_windows(account: Account, request: Request) -> None:
    try:
        if request.window is not None:
            request.window.refuse_misfit(account.window, account.name)
        elif account.window is not None:
            raise RequestError(
                field="dataset",
                message=f"names the account {account.name!r}, which protects each unit in one window of "
                f"{account.window.days} days, but the job reads rows of all times",
                hint=f"write window: {{column: {account.window.column}, days: {account.window.days}, param: ...}}",
            )
    except RequestError as error:
        raise request.file.error((), error) from None


def close(ledger: Ledger, tell: Callable[[str], None]) -> None:
    """Close a ledger, and tell if its anchor could not be written.

    Args:
        ledger: an open one.
        tell: takes the sentence.
    """
    if ledger.anchor_trouble:
        tell(f"{ledger.anchor_trouble}; an old copy of the ledger would not be noticed")
    ledger.close()
