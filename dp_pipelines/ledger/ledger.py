"""The ledger of a driver: open accounts, admit runs, and follow each run to its one release.

In: a URL; what a run asks for. Out: admitted runs, stored releases, refusals. The life of a run: admitted (its plan is frozen
and its round reserved, all in one step), started (an attempt says where it stages), staged (its files are complete), committed
(the ledger holds the very bytes: only now may anyone see them), published.
"""

# Holds: each run id is charged once; a committed run returns its stored release forever; only the attempt that started
# last can commit, so only one of all attempts is ever seen; nothing is given back without proof; a charge above the cap
# is refused by the same transaction that would write it. Clocks decide nothing. Not covered: what cannot be seen from
# here, such as a ledger that is restored together with its anchor.

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dp_pipelines import checks
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import BudgetError, LedgerError, RequestError
from dp_pipelines.ledger import events, refusals, release_list, rules, sources
from dp_pipelines.ledger.account_kind import OtherAccount
from dp_pipelines.ledger.default_places import DEFAULT_NAME as DEFAULT_NAME
from dp_pipelines.ledger.entries import RULES, TUNE, Account, Cost, EngineJob, PlanBlock, Run, Window, frozen_body
from dp_pipelines.ledger.journal import Adder, Journal
from dp_pipelines.ledger.read_files import ReadFiles
from dp_pipelines.ledger.refusals import refuse_other as refuse_other
from dp_pipelines.planning.plan import Plan

OF_AN_ATTEMPT = (
    events.JOB_SUBMITTED,
    events.DRAW_FROZEN,
    events.RUN_STAGED,
    events.ATTEMPT_ENDED,
    events.RUN_COMMITTED,
)


class MovedOn(LedgerError):
    """Another process has begun an attempt of the same run, or ended it."""


class _TakenBack(Exception):
    """An exception that ends a trial, whose events are not written."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


class Ledger(Journal):
    """An open ledger.

    Use `Ledger.create`, `Ledger.open` or `Ledger.open_or_create`.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> ledger = Ledger.create(str(folder / "ledger.sqlite"), anchor=str(folder / "anchor"))
    >>> account = ledger.open_account("grocery", unit=["CUSTOMER"], words="one customer", epsilon=1.0, delta=1e-6)
    >>> ledger.state.accounts["grocery"].left("").epsilon
    1000000000000
    """

    def account(self, name: str) -> Account:
        """Return an account of rows.

        Raises:
            RequestError: there is none with that name, or it is of another kind.
        """
        self.refuse_other_kind(name)
        if name not in self.state.accounts:
            known = ", ".join(self.state.accounts) or "none"
            raise RequestError(
                field=f"dataset {name!r}",
                message=f"has no account in the ledger {self.shown}",
                hint=f"open one with `dp-pipelines ledger init JOB --epsilon E --delta D`; existing accounts: {known}",
            )
        return self.state.accounts[name]

    def refuse_other_kind(self, name: str) -> None:
        """Refuse an account of another kind if one of tables is expected.

        Raises:
            RequestError: it is one, or its rules are not installed.
        """
        if name in self.state.others:
            raise self.state.others[name].not_of_tables(self.shown)
        if name in self.state.missing:
            missing = self.state.missing[name]
            raise RequestError(field=f"dataset {name!r}", message=missing.message, hint=missing.hint)

    def run(self, account: str, run_id: str) -> Run | None:
        """Return a run, or None."""
        return self.state.runs.get((account, run_id))

    def block(self, account: str, window: str, asked: str) -> PlanBlock | None:
        """Return a frozen plan by the digest of its request, or None.

        Args:
            account, window: whose budget.
            asked: digest of the request from which the plan was made.
        """
        return self.state.plans.get((account, window, asked))

    def open_account(
        self,
        name: str,
        *,
        unit: Sequence[str],
        words: str,
        epsilon: float,
        delta: float,
        rule: str = "reserved",
        window: Window | None = None,
        patterns: Sequence[str] = (),
        files: Sequence[str] = (),
    ) -> Account:
        """Open an account. Its rule and its window never change.

        Args:
            name: the `dataset` of jobs.
            unit: the columns of the privacy unit.
            words: the privacy unit in words.
            epsilon, delta: what may ever be spent on each unit (in each window, if there are windows).
            rule: `reserved` or `filter`.
            window: see `Window`.
            patterns: of files, as `sources.absolute` returns them.
            files: the files that match them now.

        Raises:
            RequestError: an argument is wrong, the account exists, or a source belongs to another one.
        """
        if not isinstance(name, str) or not name:
            raise RequestError(field="dataset", message="must be a name", hint="write e.g. --dataset grocery")
        checks.plain(name, "dataset")
        if rule not in RULES:
            raise RequestError(field="rule", message="must be one of " + ", ".join(RULES))
        if not unit or not all(isinstance(column, str) and column for column in unit):
            raise RequestError(
                field="unit", message="must name the columns of the privacy unit", hint="write e.g. --unit CUSTOMER"
            )
        if window is not None:
            refusals.check_window(window)
        cap, order = rules.check_cap(rule, epsilon, delta)

        def step(add: Adder) -> None:
            self.refuse_other_kind(name)
            self.claim_new(name, patterns, files)
            body = {
                "account": name,
                "unit": list(unit),
                "words": words.removeprefix("one ").removeprefix("each "),
                "epsilon": float(epsilon),
                "delta": float(delta),
                "cap": cap.to_json(),
                "rule": rule,
                "order": order,
                "window": None if window is None else vars(window),
                "sources": list(dict.fromkeys(patterns)),
            }
            add(events.ACCOUNT_OPENED, body)

        self.write(step)
        return self.state.accounts[name]

    def claim_source(self, name: str, source: str, files: Sequence[str] = ()) -> None:
        """Register a pattern of files with an account of any kind, unless it already is.

        Args:
            name: the account's name.
            source: the pattern, as `sources.absolute` returns it.
            files: the files that match it now. For links, their targets are registered too.

        Raises:
            RequestError: the pattern, or one of the files, belongs to another account.
        """
        patterns = [source, *sources.behind_links(source, files)]
        self.refuse_foreign(name, source, files)
        if set(patterns) <= set(self._owner(name).sources):
            return

        def step(add: Adder) -> None:
            self.refuse_foreign(name, source, files)
            for one in patterns:
                if one not in self._owner(name).sources:
                    add(events.SOURCE_REGISTERED, {"account": name, "source": one})

        self.write(step)

    def refuse_foreign(self, name: str, source: str, files: Sequence[str] = ()) -> None:
        """Refuse a pattern of files, or files, that belong to another account than the named one.

        Raises:
            RequestError: they do.
        """
        refusals.foreign(self.state.owners, name, source, files)

    def _owner(self, name: str) -> Account | OtherAccount:
        return self.state.others[name] if name in self.state.others else self.state.accounts[name]

    def claim_new(self, name: str, patterns: Sequence[str], files: Sequence[str]) -> None:
        """Claim the name of a new account, and check that neither it nor its files belong to another one.

        Args:
            name: of the account.
            patterns: of its files.
            files: the files that match them now.

        Raises:
            RequestError: one does.
        """
        if name in [other.name for other in self.state.owners]:
            raise RequestError(
                field=f"dataset {name!r}",
                message=f"already has an account in the ledger {self.shown}",
                hint="raise its cap with `dp-pipelines ledger raise`",
            )
        for pattern in patterns:
            self.refuse_foreign(name, pattern, files)
        self._anchor.claim(name)

    def raise_cap(self, name: str, *, epsilon: float, delta: float) -> Account:
        """Raise the cap. This is impossible under the rule `filter`, whose order depends on the cap.

        Args:
            name: of the account.
            epsilon, delta: the new cap.

        Raises:
            RequestError: it would be lowered, or cannot be raised.
        """
        account = self.account(name)
        if account.order:
            raise RequestError(field=f"dataset {name!r}", message="has the rule filter, whose cap is fixed")
        cap, _ = rules.cap_of(account.rule, refusals.above(epsilon, "epsilon"), refusals.above(delta, "delta"))

        def step(add: Adder) -> None:
            if not self.account(name).cap.within(cap):
                raise RequestError(field=f"dataset {name!r}", message="its cap can only be raised")
            add(
                events.CAP_RAISED,
                {"account": name, "epsilon": float(epsilon), "delta": float(delta), "cap": cap.to_json()},
            )

        self.write(step)
        return self.state.accounts[name]

    def admit(
        self,
        account: str,
        run_id: str,
        *,
        plan: Plan,
        asked: str,
        content: str,
        params: Mapping[str, str],
        records: Callable[[int], Sequence[MechanismRecord]],
        window: str = "",
        who: str = "",
        job: str = "",
        stages: Mapping[str, Sequence[str]] | None = None,
        read: ReadFiles | None = None,
        spare_runs: int = 0,
        spare: bool = False,
        job_fields: Mapping[str, str] | None = None,
        trial: bool = False,
    ) -> Run:
        """Charge a run once: freeze its plan unless it already is, and reserve one of its rounds.

        Args:
            account, run_id: the name of the run.
            plan: its plan.
            asked: digest of the request from which the plan was made.
            content: digest of the job and the parameters.
            params: the parameters, as text.
            records: the mechanism records of a round.
            window: of event time.
            who: for the auditor.
            job: the job file, or empty.
            stages: the names of metrics by stage, for people who read the ledger.
            read: the files that are read, by which a later command tells new ones; None notes none.
            spare_runs: how many runs of a plan that is frozen now, its last ones, are for corrections.
            spare: whether this run is one of them.
            job_fields: the keys of the job file with what they say, noted with a plan that is frozen now, so that a later
                command can say how another job differs; None notes none.
            trial: take all of it back, so that nothing is charged: whether it would be refused, and which round it would get.

        Returns:
            the run; one that was admitted before is charged no more.

        Raises:
            RequestError: the run id belongs to another plan or other parameters; the plan is not the one that was frozen for
                `asked`; the account has windows and none is given, or vice versa.
            BudgetError: the account or the plan has no room for it.
        """

        def step(add: Adder) -> None:
            owner = self.account(account)
            refusals.refuse_window(owner, window)
            known = self.run(account, run_id)
            block = self.block(account, window, asked)
            if known is not None and known.state != "abandoned":
                refuse_other(known, asked, content, window)
            if block is not None and block.plan != plan.digest:
                raise RequestError(
                    field=f"run {run_id!r}",
                    message="its plan differs from the one that the ledger has frozen for this job",
                    hint="run the same command again, with the version of dp_pipelines that made the plan",
                )
            if known is not None and known.state != "abandoned":
                return
            if block is None:
                cost = rules.plan_cost(owner, plan.accounted["epsilon"], plan.accounted["delta"])
                self._refuse_above(owner, window, cost)
                frozen = frozen_body(account, window, asked, plan, cost.to_json(), who)
                frozen |= {"spare": spare_runs} if spare_runs else {}
                add(events.PLAN_FROZEN, frozen | ({"job_fields": dict(job_fields)} if job_fields else {}))
                block = self.state.plans[account, window, asked]
            free = refusals.free_round(self.state, block, run_id, spare=spare)
            cost = rules.run_cost(owner, records(free))
            self._refuse_above(owner, window, cost)
            body = {
                "account": account,
                "run_id": run_id,
                "window": window,
                "asked": asked,
                "content": content,
                "params": dict(params),
                "round": free,
                "cost": cost.to_json(),
                "who": who,
            }
            if job:
                body["job"] = job
            if stages:
                body["stages"] = [[name, list(metrics)] for name, metrics in stages.items()]  # in the order of the job
            if read is not None:
                body["read"] = read.to_json()
            add(events.RUN_RESERVED, body)

        def tried(add: Adder) -> None:
            step(add)
            raise _TakenBack(self.state.runs[account, run_id])

        try:
            self.write(tried if trial else step)
        except _TakenBack as found:
            return found.run
        return self.state.runs[account, run_id]

    def _refuse_above(self, owner: Account, window: str, cost: Cost) -> None:
        """Refuse a charge that does not fit, and name the releases that used the budget up.

        Raises:
            BudgetError: as said.
        """
        try:
            rules.refuse_above(owner, window, cost)
        except BudgetError as error:
            used = release_list.used_in_words(self.state, owner, window)
            hint = "; ".join(part for part in (used, error.hint) if part)
            raise BudgetError(field=error.field, message=error.message, hint=hint) from None

    def start(self, run: Run, *, attempt: str, staging: str, where: Mapping[str, Any]) -> Run:
        """Begin an attempt, which from now on is the only one that can commit.

        Args:
            run: as the caller last saw it.
            attempt: its name.
            staging: its private folder.
            where: host and process.

        Raises:
            LedgerError: the run's state is not the one that the caller expects.
        """
        # Check what the caller was admitted for: meanwhile the id may have been abandoned and belong to another run.
        admitted = [run.plan, run.content, run.round]
        return self._follow(
            run, events.ATTEMPT_STARTED, attempt=attempt, staging=staging, where=dict(where), admitted=admitted
        )

    def submitted(self, run: Run, *, attempt: str, job: EngineJob) -> Run:
        """Note that an attempt is about to submit a job to an engine, or that the engine has named it.

        Args:
            run, attempt: of the job.
            job: as far as it is known.

        Raises:
            LedgerError: another attempt has begun since.
        """
        return self._follow(run, events.JOB_SUBMITTED, attempt=attempt, **vars(job))

    def end(self, run: Run, *, attempt: str, how: str, destroyed: bool) -> Run:
        """Note that an attempt has ended without a release.

        Args:
            run, attempt: which.
            how: in public words.
            destroyed: whether its staging was found and destroyed, so nobody can have kept it without our knowledge.
        """
        return self._follow(run, events.ATTEMPT_ENDED, attempt=attempt, how=how, destroyed=destroyed)

    def freeze(self, run: Run, *, attempt: str, name: str, content: bytes) -> Run:
        """Fix the release of an earlier pipeline of a run: it is never drawn again, whatever fails later.

        Args:
            run, attempt: which.
            name: of the stage.
            content: its released table.

        Raises:
            LedgerError: another attempt has begun since; this draw may not be used.
        """
        sha256 = hashlib.sha256(content).hexdigest()

        def step(add: Adder) -> None:
            add.writer.keep(sha256, content)
            self._add_to(add, run, events.DRAW_FROZEN, {"attempt": attempt, "name": name, "sha256": sha256})

        self.write(step, charges=False)
        return self.state.runs[run.account, run.run_id]

    def drawn(self, run: Run, name: str) -> bytes | None:
        """Return the content that `freeze` has stored under a name, or None.

        Raises:
            LedgerError: its bytes are damaged.
        """
        known = self.state.runs[run.account, run.run_id].drawn.get(name)
        return None if known is None else next(self._contents([known]))

    def staged(self, run: Run, *, attempt: str, files: Mapping[str, str]) -> Run:
        """Note that all files of an attempt are complete.

        A seal must reveal nothing once the files are destroyed. From a plain digest of a small table, its first draw
        could be found by trial and compared with the second one, which is published.

        Args:
            run, attempt: of the files.
            files: their seals by name.
        """
        return self._follow(run, events.RUN_STAGED, attempt=attempt, files=dict(files))

    def commit(self, run: Run, *, attempt: str, files: Mapping[str, bytes]) -> Run:
        """Fix the release of a run id, forever.

        Args:
            run, attempt: which.
            files: the whole release by name.

        Raises:
            LedgerError: another attempt has begun since; these files may never be seen.
        """
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}

        def step(add: Adder) -> None:
            for name, content in files.items():
                add.writer.keep(digests[name], content)
            self._add_to(add, run, events.RUN_COMMITTED, {"attempt": attempt, "files": digests})

        self.write(step, charges=False)
        return self.state.runs[run.account, run.run_id]

    def published(self, run: Run, folder: str) -> Run:
        """Note that the release is in a folder."""
        known = self.state.runs[run.account, run.run_id]
        if folder in known.folders:
            return known
        return self._follow(run, events.RUN_PUBLISHED, folder=folder)

    def abandon(self, run: Run) -> Run:
        """Give a run up. Its budget comes back only if all of its staging is known to be destroyed unseen.

        Raises:
            RequestError: it has a release, or an attempt has not ended.
        """

        def step(add: Adder) -> None:
            known = self.state.runs[run.account, run.run_id]
            ended = all(attempt.ended for attempt in known.attempts)
            if known.committed or known.state == "abandoned" or not ended:
                message = "has an unfinished attempt"
                if ended:
                    message = "already has a release" if known.committed else "is already abandoned"
                raise RequestError(field=f"run {run.run_id!r}", message=f"{message}, and cannot be abandoned")
            given_back = not known.drawn and all(attempt.destroyed for attempt in known.attempts)
            given_back = given_back and run.account not in self.state.others  # such as: people have answered
            self._add_to(add, run, events.RUN_ABANDONED, {"given_back": given_back})

        self.write(step, charges=False)
        return self.state.runs[run.account, run.run_id]

    def release(self, run: Run) -> dict[str, bytes]:
        """Return the stored release of a committed run, by name.

        Raises:
            LedgerError: its bytes are damaged.
        """
        return dict(zip(run.files, self._contents(list(run.files.values())), strict=True))

    def note_tuning(
        self, account: str, *, stage: str, configurations: int, content: str, grid: str, who: str = "",
        sources: Sequence[str] = (), command: str = TUNE,
    ) -> None:  # fmt: skip
        """Note that somebody is about to look at the raw rows. This charges nothing. Arguments as for `entries.Tuning`."""
        body = {"account": account, "stage": stage, "configurations": configurations, "content": content}
        body |= {"grid": grid, "who": who, "sources": list(sources)}
        if command != TUNE:  # versions that know no other command read the rest, and mark releases all the same
            body["command"] = command
        self.write(lambda add: add(events.DATA_TUNED, body))

    def verify(self, *, accepted: bool = True) -> int:
        """Verify everything, including every stored byte, and return the number of events.

        Before a person's `accept` (`accepted` is False), a missing anchor is not an error, and nothing is noted.

        Raises:
            LedgerError: something is not what was written.
        """
        again = type(self)(self._database, self._clock, self._pinned)
        again._load(needed=accepted)
        stored = {sha for event in again.history for sha in _stored(event)}
        for _ in again._contents(sorted(stored)):
            pass
        self.refresh()
        return again.head.seq

    def _contents(self, digests: Sequence[str]) -> Iterator[bytes]:
        for sha256, content in zip(digests, self._database.contents(digests), strict=True):
            if content is None or hashlib.sha256(content).hexdigest() != sha256:
                raise LedgerError(f"ledger {self.shown}: a stored release is damaged; restore the newest backup")
            yield content

    def _follow(self, run: Run, kind: str, **body: Any) -> Run:
        self.write(lambda add: self._add_to(add, run, kind, body), charges=False)
        return self.state.runs[run.account, run.run_id]

    def _add_to(self, add: Adder, run: Run, kind: str, body: dict[str, Any]) -> None:
        # The duration of an attempt reveals the number of rows, so everything it does is recorded with its start time.
        known = self.state.runs.get((run.account, run.run_id), run)
        within = kind in OF_AN_ATTEMPT or (kind == events.RUN_PUBLISHED and not known.folders)
        try:
            time = known.times.get("started") if within else None
            add(kind, {"account": run.account, "run_id": run.run_id, **body}, time)
        except LedgerError:
            raise MovedOn(
                f"run {run.run_id!r}: was continued by another process in the meantime; nothing from this attempt is "
                "published; run the same command again"
            ) from None


def _stored(event: events.Event) -> list[str]:
    """Return the digests of the contents that the ledger keeps with an event."""
    if event.kind == events.DRAW_FROZEN:
        return [str(event.content["sha256"])]
    return [str(sha256) for sha256 in event.content["files"].values()] if event.kind == events.RUN_COMMITTED else []
