"""The state of a ledger after its events: accounts, frozen plans and runs.

In: events, in order. Out: a `State`. Holds: the state is a function of the events and nothing else, so that replaying them
gives it back; an event that could not have happened (a run without a plan, a second commit, a charge above the cap) is
refused, no matter who wrote it, and with Python's -O too: nothing here rests on `assert`. Not covered: whether the chain is whole
(`events`).
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import events
from dp_pipelines.ledger.account_kind import OtherAccount, rules_of
from dp_pipelines.ledger.entries import (
    CHECK,
    FILTER,
    RESERVED,
    RULES,
    TUNE,
    Account,
    Attempt,
    Cost,
    EngineJob,
    PlanBlock,
    Run,
    Tuning,
    Window,
)
from dp_pipelines.ledger.events import Event
from dp_pipelines.ledger.read_files import ReadFiles


class State:
    """Accounts, plans, runs and looks at raw rows after some events."""

    def __init__(self) -> None:
        self.ledger = ""
        self.anchor = ""
        self.accounts: dict[str, Account] = {}
        self.others: dict[str, OtherAccount] = {}
        """The accounts of kinds that extensions add."""
        self.missing: dict[str, RequestError] = {}
        """The accounts whose rules are not installed, with the reason. Their events are not applied."""
        self.plans: dict[tuple[str, str, str], PlanBlock] = {}
        self.runs: dict[tuple[str, str], Run] = {}
        self.tunings: list[Tuning] = []
        self.last: Event | None = None

    def apply(self, event: Event) -> None:
        """Apply one more event.

        Raises:
            LedgerError: it could not have happened here.
        """
        steps: dict[str, Callable[[dict[str, Any], str], None]] = {
            events.LEDGER_CREATED: self._created,
            events.ACCOUNT_OPENED: self._opened,
            events.CAP_RAISED: self._raised,
            events.SOURCE_REGISTERED: self._registered,
            events.PLAN_FROZEN: self._frozen,
            events.RUN_RESERVED: self._reserved,
            events.ATTEMPT_STARTED: self._started,
            events.JOB_SUBMITTED: self._submitted,
            events.ATTEMPT_ENDED: self._ended,
            events.DRAW_FROZEN: self._drawn,
            events.RUN_STAGED: self._staged,
            events.RUN_COMMITTED: self._committed,
            events.RUN_PUBLISHED: self._published,
            events.RUN_ABANDONED: self._abandoned,
            events.DATA_TUNED: self._tuned,
        }
        try:
            need((self.last is None) == (event.kind == events.LEDGER_CREATED))
            name = event.content.get("account")
            if event.kind not in steps:
                need(isinstance(name, str))
                self._apply_other(event, str(name))
            elif name not in self.missing or event.kind == events.DATA_TUNED:
                steps[event.kind](event.content, event.time)
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise LedgerError(
                f"ledger: event {event.seq} ({event.kind}) is impossible here; some other program has written to the ledger"
            ) from error
        self.last = event

    def _apply_other(self, event: Event, name: str) -> None:
        """Apply an event of an account of another kind, or note that its rules are not installed."""
        if name in self.missing:
            return
        try:
            rules = rules_of(event.kind)
        except RequestError as error:
            need(name not in self.accounts)
            self.missing[name] = error
            self.others.pop(name, None)
            self.runs = {key: run for key, run in self.runs.items() if run.account != name}
            return
        rules.apply(self, event)

    def __eq__(self, other: object) -> bool:
        """Return True if both have the same accounts, plans, runs and last event."""
        return isinstance(other, State) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def runs_of(self, account: str) -> Iterator[Run]:
        """Return the runs of an account, in the order in which they were admitted."""
        return (run for run in self.runs.values() if run.account == account)

    @property
    def owners(self) -> list[Account | OtherAccount]:
        """Return all accounts: no two share a name or a file."""
        return [*self.accounts.values(), *self.others.values()]

    def _created(self, body: dict[str, Any], time: str) -> None:
        self.ledger, self.anchor = str(body["ledger"]), str(body["anchor"])
        need(self.ledger != "")

    def _opened(self, body: dict[str, Any], time: str) -> None:
        self.need_new(body)
        need(body["rule"] in RULES)
        self.accounts[body["account"]] = Account(
            name=str(body["account"]),
            unit=tuple(body["unit"]),
            words=str(body["words"]),
            epsilon=float(body["epsilon"]),
            delta=float(body["delta"]),
            cap=Cost.from_json(body["cap"]),
            rule=str(body["rule"]),
            order=str(body["order"]),
            window=Window(**body["window"]) if body["window"] is not None else None,
            sources=tuple(body["sources"]),
        )

    def _raised(self, body: dict[str, Any], time: str) -> None:
        account = self.accounts[body["account"]]
        cap = Cost.from_json(body["cap"])
        need(account.rule == RESERVED)
        need(account.cap.within(cap))
        self._keep(account, epsilon=float(body["epsilon"]), delta=float(body["delta"]), cap=cap)

    def _registered(self, body: dict[str, Any], time: str) -> None:
        need(not any(body["source"] in other.sources for other in self.owners))
        (account,) = (owner for owner in self.owners if owner.name == body["account"])
        sources = (*account.sources, str(body["source"]))
        if isinstance(account, Account):
            self._keep(account, sources=sources)
        else:
            self.others[account.name] = account.with_sources(sources)

    def need_new(self, body: Mapping[str, Any]) -> None:
        """Require that the name and the sources of a new account belong to no other one."""
        need(body["account"] not in [other.name for other in self.owners])
        need(not {source for other in self.owners for source in other.sources} & set(body["sources"]))

    def _frozen(self, body: dict[str, Any], time: str) -> None:
        account = self.accounts[body["account"]]
        key = (account.name, str(body["window"]), str(body["asked"]))
        need(key not in self.plans)
        need((body["window"] == "") == (account.window is None))
        need(body["runs"] >= 1)
        cost = Cost.from_json(body["cost"])
        need(account.rule == RESERVED or cost == Cost())
        self._charge(account, key[1], cost)
        self.plans[key] = PlanBlock(
            account=account.name,
            window=key[1],
            asked=key[2],
            plan=str(body["plan"]),
            runs=int(body["runs"]),
            cost=cost,
            body=body,
            looks=len(self.tunings),
        )

    def _reserved(self, body: dict[str, Any], time: str) -> None:
        account = self.accounts[body["account"]]
        run_id = str(body["run_id"])
        block = self.plans[account.name, body["window"], body["asked"]]
        number = int(body["round"])
        need(1 <= number <= block.runs)
        need(number not in block.rounds)
        cost = Cost.from_json(body["cost"])
        need(account.rule == FILTER or cost == Cost())
        self._charge(account, block.window, cost)
        block.rounds[number] = run_id
        run = Run(
            account=account.name,
            run_id=run_id,
            window=block.window,
            plan=block.asked,
            content=str(body["content"]),
            params=dict(body["params"]),
            round=number,
            cost=cost,
            times={"reserved": time},
            looks=len(self.tunings),
            who=str(body.get("who", "")),
            job=str(body.get("job", "")),
            stages={str(name): tuple(map(str, metrics)) for name, metrics in dict(body.get("stages", {})).items()},
            read=ReadFiles.from_json(body["read"]) if "read" in body else None,
        )
        self.admit(run)

    def admit(self, run: Run) -> None:
        """Add a run. Its id belongs to no other run, or to one that was abandoned.

        Raises:
            ValueError: it does not.
        """
        key = (run.account, run.run_id)
        need(key not in self.runs or self.runs[key].state == "abandoned")
        self.runs.pop(key, None)  # an abandoned run that is asked for again is a new one, admitted now
        self.runs[key] = run

    def _started(self, body: dict[str, Any], time: str) -> None:
        run = self._run(body)
        need(run.state in ("reserved", "started", "staged"))
        need(body["admitted"] == [run.plan, run.content, run.round])
        # A driver that begins an attempt has first made sure that nothing of an earlier one can still be seen.
        need(all(attempt.ended for attempt in run.attempts))
        attempt = Attempt(name=str(body["attempt"]), staging=str(body["staging"]), where=dict(body["where"]))
        need(attempt.name not in [other.name for other in run.attempts])
        self._change(run, time, state="started", attempts=(*run.attempts, attempt))

    def _submitted(self, body: dict[str, Any], time: str) -> None:
        run = self._run(body)
        need(run.state == "started")
        attempt = self._current(run, body)
        fields = {name: str(body[name]) for name in ("name", "runner", "endpoint", "job")}
        job, known = EngineJob(**fields), {job.name: job for job in attempt.jobs}
        need(job.name != "" and job.runner != "")
        # Written twice: before the engine gets it, and when the engine has named it.
        need(job.name not in known or known[job.name] == dataclasses.replace(job, job="") != job)
        jobs = tuple({**known, job.name: job}.values())
        attempts = (*run.attempts[:-1], dataclasses.replace(attempt, jobs=jobs))
        self._change(run, time, state="started", attempts=attempts)

    def _ended(self, body: dict[str, Any], time: str) -> None:
        run = self._run(body)
        need(run.state in ("started", "staged"))
        attempt = self._current(run, body)
        ended = dataclasses.replace(attempt, ended=str(body["how"]), destroyed=bool(body["destroyed"]))
        need(ended.ended != "")
        self._change(run, time, state="reserved", attempts=(*run.attempts[:-1], ended))

    def _drawn(self, body: dict[str, Any], time: str) -> None:
        run = self._run(body)
        need(run.state == "started")
        self._current(run, body)
        need(body["name"] not in run.drawn)
        drawn = {**run.drawn, str(body["name"]): str(body["sha256"])}
        self._change(run, time, state="started", drawn=drawn)

    def _staged(self, body: dict[str, Any], time: str) -> None:
        run = self._run(body)
        need(run.state == "started")
        staged = dataclasses.replace(self._current(run, body), staged=dict(body["files"]))
        self._change(run, time, state="staged", attempts=(*run.attempts[:-1], staged))

    def _committed(self, body: dict[str, Any], time: str) -> None:
        run = self._run(body)
        need(run.state == "staged")
        attempt = self._current(run, body)
        files = dict(body["files"])
        need(set(attempt.staged) <= set(files))
        done = dataclasses.replace(attempt, ended="committed")
        self._change(run, time, state="committed", attempts=(*run.attempts[:-1], done), files=files)

    def _published(self, body: dict[str, Any], time: str) -> None:
        run = self._run(body)
        need(run.committed)
        folders = dict.fromkeys([*run.folders, str(body["folder"])])
        self._change(run, time, state="published", folders=tuple(folders))

    def _abandoned(self, body: dict[str, Any], time: str) -> None:
        run = self._run(body)
        need(run.state == "reserved")
        given_back = bool(body["given_back"])
        if given_back:
            need(not run.drawn)
            need(all(attempt.destroyed for attempt in run.attempts))
            account = self.accounts[run.account]  # one of tables: no other kind gives anything back
            account.spent[run.window] = account.spent.get(run.window, Cost()) - run.cost
            del self.plans[run.account, run.window, run.plan].rounds[run.round]
        self._change(run, time, state="abandoned", given_back=given_back)

    def _tuned(self, body: dict[str, Any], time: str) -> None:
        fields = {name: str(body[name]) for name in ("account", "stage", "content", "grid", "who")}
        need(body["configurations"] >= 1)
        patterns = tuple(str(pattern) for pattern in body.get("sources", ()))
        command = str(body.get("command", TUNE))
        need(command in (TUNE, CHECK))
        configurations = int(body["configurations"])
        self.tunings.append(
            Tuning(**fields, configurations=configurations, time=time, sources=patterns, command=command)
        )

    def _run(self, body: dict[str, Any]) -> Run:
        return self.runs[body["account"], body["run_id"]]

    def _current(self, run: Run, body: dict[str, Any]) -> Attempt:
        attempt = run.attempts[-1]
        need(attempt.name == body["attempt"])
        need(not attempt.ended)
        return attempt

    def _charge(self, account: Account, window: str, cost: Cost) -> None:
        spent = account.spent.get(window, Cost()) + cost
        need(spent.within(account.cap))
        account.spent[window] = spent

    def _keep(self, account: Account, **changes: Any) -> None:
        self.accounts[account.name] = dataclasses.replace(account, **changes)

    def _change(self, run: Run, time: str, **changes: Any) -> None:
        times = {**run.times, str(changes["state"]): time}
        self.runs[run.account, run.run_id] = dataclasses.replace(run, times=times, **changes)


def need(condition: bool) -> None:
    """Require a condition without which an event cannot have happened."""
    if not condition:
        raise ValueError
