"""The entries of a ledger: accounts with their caps, frozen plans, runs with their attempts, looks at raw rows.

In: the content of events. Out: frozen values. Holds: a cost is whole and never negative. Not covered: how they arise
(`state`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dp_pipelines.ledger.read_files import ReadFiles
from dp_pipelines.planning.plan import Plan

RESERVED, FILTER = "reserved", "filter"
RULES = (RESERVED, FILTER)

TUNE, CHECK = "tune", "check"
"""The commands that look at raw rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """An amount of epsilon (or Renyi divergence at the account's order) and delta, in whole units."""

    epsilon: int = 0
    delta: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(epsilon=self.epsilon + other.epsilon, delta=self.delta + other.delta)

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(epsilon=self.epsilon - other.epsilon, delta=self.delta - other.delta)

    def within(self, cap: "Cost") -> bool:
        """Return True if neither part exceeds its cap."""
        return self.epsilon <= cap.epsilon and self.delta <= cap.delta

    def to_json(self) -> dict[str, str]:
        """Return the cost as text, since few programs read whole numbers of sixty digits."""
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}

    @classmethod
    def from_json(cls, values: dict[str, str]) -> "Cost":
        """Return the cost that `to_json` wrote."""
        cost = cls(epsilon=int(values["epsilon"]), delta=int(values["delta"]))
        if cost.epsilon < 0 or cost.delta < 0:
            raise ValueError("a cost is never negative")
        return cost


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A window of event time to which the privacy unit is bounded: the only sound way to start again with a full budget.

    Args:
        column: the column with the time of a row.
        days: the width.
        origin: a day (ISO) on which a window begins.
    """

    column: str
    days: int
    origin: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
    """A group of people, the most that may be spent on them, and the rule for it.

    Args:
        name: the `dataset` of job files.
        unit: the columns of the privacy unit.
        words: the privacy unit in words.
        epsilon, delta: the cap as it was declared.
        cap: the same in whole units; under the rule `filter` the allowed divergence and the purse of delta.
        rule: `reserved` or `filter`.
        order: the order of Renyi divergence that the rule `filter` adds up, as text; empty for `reserved`.
        window: see `Window`; None where a unit is all rows of a person.
        sources: patterns of files that belong to this account.
        spent: by window (by `""` where there are none): what is charged.
    """

    name: str
    unit: tuple[str, ...]
    words: str
    epsilon: float
    delta: float
    cap: Cost
    rule: str
    order: str = ""
    window: Window | None = None
    sources: tuple[str, ...] = ()
    spent: dict[str, Cost] = dataclasses.field(default_factory=dict)

    def left(self, window: str) -> Cost:
        """Return the amount that is left in a window."""
        return self.cap - self.spent.get(window, Cost())


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanBlock:
    """A frozen plan, and the amount of its account that it reserves.

    Args:
        account, window: whose budget.
        asked: digest of the request from which the plan was made.
        plan: the digest of the plan.
        runs: how often it may run.
        cost: what is charged for all of its runs; nothing under the rule `filter`.
        body: the whole event: budget, accounted cost, calibration, mechanism records.
        rounds: the runs that hold each round.
        looks: how many looks at raw rows the ledger noted before the plan was frozen.
    """

    account: str
    window: str
    asked: str
    plan: str
    runs: int
    cost: Cost
    body: dict[str, Any]
    rounds: dict[int, str] = dataclasses.field(default_factory=dict)
    looks: int = 0

    @property
    def spare(self) -> int:
        """Return how many of its runs, the last ones, are for corrections."""
        return int(self.body.get("spare", 0))

    @property
    def left(self) -> int:
        """How many of its runs no run holds, those for corrections among them."""
        return self.runs - len(self.rounds)

    @property
    def spare_in_words(self) -> str:
        """How many of the runs that are left are for corrections, as more words behind their number; empty if none is."""
        spare = len(self.free(spare=True))
        return f", of them {spare} spare" if spare else ""

    @property
    def job_fields(self) -> Mapping[str, str]:
        """Return the keys of the job file with their values; empty before version 0.2.0 and for plans without a job file."""
        return {str(key): str(text) for key, text in self.body.get("job_fields", {}).items()}

    def free(self, *, spare: bool = False) -> list[int]:
        """Return the rounds that no run holds: those for corrections, or the others.

        Args:
            spare: which.
        """
        regular = self.runs - self.spare
        numbers = range(regular + 1, self.runs + 1) if spare else range(1, regular + 1)
        return [number for number in numbers if number not in self.rounds]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineJob:
    """A job that an attempt hands to an engine, which may outlive the driver.

    Args:
        name: the unique name under which the engine lists it; it is recorded before the engine gets the job.
        runner: which engine.
        endpoint: where another process can ask about it, without secrets; empty if the job ends with its driver.
        job: the engine's own id for it; empty until the engine has reported it.
    """

    name: str
    runner: str
    endpoint: str = ""
    job: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try of a run.

    Args:
        name: unique among attempts.
        staging: its private folder.
        where: host and process, as the driver wrote them.
        jobs: the jobs it has submitted to an engine, in order.
        staged: once its files are complete, their seals by name: digests under a key that only its staging holds.
        ended: how it ended, or empty.
        destroyed: whether its staging is known to be gone without anyone having seen it.
    """

    name: str
    staging: str
    where: dict[str, Any]
    jobs: tuple[EngineJob, ...] = ()
    staged: dict[str, str] = dataclasses.field(default_factory=dict)
    ended: str = ""
    destroyed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run, its only charge and its attempts.

    Args:
        account, run_id: its name.
        window: of event time, or empty.
        plan: digest of its plan.
        content: digest of the job and the parameters.
        params: the parameters, as text.
        round: which of the plan's runs it is, from 1.
        cost: what is charged for it alone (rule `filter`).
        state: reserved, started, staged, committed, published or abandoned.
        attempts: in order.
        drawn: digests of the releases of its earlier pipelines, by stage: a later attempt continues from there.
        files: digests of the release by name, once committed.
        folders: where it was published.
        times: when each state was reached.
        given_back: whether it was abandoned and its budget is free again.
        looks: how many looks at raw rows the ledger noted before the run was admitted.
        who: user and host that admitted it.
        job: the job file; empty where there is none, as in a notebook, and in events before version 0.2.0.
        stages: what it releases: the names of metrics by stage; empty in events before version 0.2.0.
        read: the files that were there when it was admitted; None for tables with snapshots, rows of a program and older events.
    """

    account: str
    run_id: str
    window: str
    plan: str
    content: str
    params: dict[str, str]
    round: int
    cost: Cost
    state: str = "reserved"
    attempts: tuple[Attempt, ...] = ()
    drawn: dict[str, str] = dataclasses.field(default_factory=dict)
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    folders: tuple[str, ...] = ()
    times: dict[str, str] = dataclasses.field(default_factory=dict)
    given_back: bool = False
    looks: int = 0
    who: str = ""
    job: str = ""
    stages: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    read: ReadFiles | None = None

    @property
    def committed(self) -> bool:
        """Return True if its release is fixed forever."""
        return self.state in ("committed", "published")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """A look at the raw rows: `dp-pipelines tune` or `check`. It charges nothing, and no guarantee covers what is done with it.

    Args:
        account: the `dataset` of the job; it may have no account yet.
        stage: which was tuned; the names of all that were checked.
        configurations: how many were compared; 1 of a check.
        content: digest of the job and the parameters.
        grid: digest of the grid and the goal; empty of a check.
        time: when it began.
        who: for the auditor.
        sources: patterns of the files that were looked at; none in events of version 0.1.0.
        command: `tune` or `check`.
    """

    account: str
    stage: str
    configurations: int
    content: str
    grid: str
    time: str
    who: str
    sources: tuple[str, ...] = ()
    command: str = TUNE


def frozen_body(account: str, window: str, asked: str, plan: Plan, cost: dict[str, str], who: str) -> dict[str, Any]:
    """Return the content of the event that freezes a plan.

    Args:
        account, window: whose budget.
        asked: digest of the request from which the plan was made.
        plan: the plan.
        cost: of all of its runs, as `Cost.to_json` returns it.
        who: for the auditor.
    """
    return {
        "account": account,
        "window": window,
        "asked": asked,
        "plan": plan.digest,
        "runs": plan.runs,
        "budget": {"epsilon": plan.epsilon, "delta": plan.delta},
        "accounted": dict(plan.accounted),
        "accounted_one_run": dict(plan.accounted_one_run),
        "frozen": plan.frozen(),
        "mechanisms": [record.to_json() for record in plan.mechanisms],
        "groups": [[[record.to_json() for record in records], times] for records, times in plan.all_mechanisms()]
        if plan.split != "constant"
        else None,
        "cost": cost,
        "who": who,
    }
