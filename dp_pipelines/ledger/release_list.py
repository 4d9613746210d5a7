"""Lists of the releases from an account, one entry for each release, and sentences on what is used and left.

In: the state of a ledger. Out: entries for people, JSON and CSV; sentences. Holds: the charges of the entries of an account
add up to what it has spent (rule `reserved`); only public facts of requests. Not covered: accounts of answers (`answers_export`).
"""

import collections
import dataclasses
import datetime
import itertools
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.accounting.shown_costs import left_number, spent_number
from dp_pipelines.ledger import units
from dp_pipelines.ledger.entries import FILTER, Account, Cost, PlanBlock, Run

if TYPE_CHECKING:
    from dp_pipelines.ledger.state import State

REWRITE = "`dp-pipelines report FOLDER --job JOB --output NEW`"
"""The command that writes a release with the files and the words of a job file as it is now. It costs nothing."""

NAMED = 5
"""The most releases that a refusal names."""

LAST_RUNS = 10
"""If so few runs of a plan are left, each run says so."""

FEWEST_RUNS = 5
"""Plans of fewer runs do not say so; of longer plans the last fifth does, if that is less than `LAST_RUNS`."""

SHORTEST_PACE = 0.5
"""The fewest days between two runs for a forecast: faster runs may be a backfill."""

HOUR = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)\+00:00\Z")
"""A time as version 0.1.0 wrote it."""

DERIVED = re.compile(r"[0-9a-f]{24}-[0-9a-f]{24}\Z")
"""The id of a run that was given none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseEntry:
    """One release, or a plan that nobody has run yet.

    Args:
        time: when it was drawn, as ISO 8601, to the hour.
        account, window: whose budget.
        run_id: its name; empty for a plan without a run.
        state: `published`, `committed`, `abandoned`, ..., or `unused` for a plan without a run.
        who: user and host.
        job: the job file; empty where there is none or the ledger is too old to say.
        stages: the names of metrics by stage.
        round, runs: which run of how many of its plan.
        epsilon, delta: what the account was charged with it. A plan of several runs is charged with the first of them, so that
            the others are charged 0. Under the rule `filter`: what this run costs alone; such costs do not add up.
        folders: where it was published.
    """

    time: str
    account: str
    window: str
    run_id: str
    state: str
    who: str
    job: str
    stages: Mapping[str, tuple[str, ...]]
    round: int
    runs: int
    epsilon: float
    delta: float
    folders: tuple[str, ...]

    @property
    def day(self) -> str:
        """Return the day of the draw (UTC)."""
        return self.time[:10]

    @property
    def contents(self) -> str:
        """Return stages and metrics in words: `weekly: orders, revenue`."""
        return contents_in_words(self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        return {
            **dataclasses.asdict(self),
            "stages": {name: list(metrics) for name, metrics in self.stages.items()},
            "folders": list(self.folders),
        }


def iso_time(text: str) -> str:
    """Return a time of an event as ISO 8601; version 0.1.0 wrote hours only.

    >>> iso_time("2026-01-05T03+00:00"), iso_time("2026-01-05T03:00Z")
    ('2026-01-05T03:00Z', '2026-01-05T03:00Z')
    """
    return HOUR.sub(r"\1:00Z", text)


def time_of_draw(run: Run) -> str:
    """Return when a run was drawn, as ISO 8601, to the hour: when its last attempt began, or when it was admitted."""
    return iso_time(run.times.get("started", run.times["reserved"]))


def contents_in_words(stages: Mapping[str, Iterable[str]]) -> str:
    """Return stages and their metrics in words.

    >>> contents_in_words({"weekly": ("orders", "revenue"), "model": ()})
    'weekly: orders, revenue; model'
    """
    return "; ".join(f"{name}: {', '.join(metrics)}" if metrics else name for name, metrics in stages.items())


def entries(state: "State", account: Account) -> list[ReleaseEntry]:
    """Return the releases of an account in the order in which they were admitted, and its plans that nobody has run.

    Args:
        state: of the ledger.
        account: which.
    """
    paid: set[tuple[str, str]] = set()
    listed = [_entry(state, account, run, paid) for run in state.runs_of(account.name)]
    unused = [
        _unused(state, block)
        for block in _blocks(state, account)
        if account.rule != FILTER and (block.window, block.asked) not in paid
    ]
    return [*listed, *unused]


def _entry(state: "State", account: Account, run: Run, paid: set[tuple[str, str]]) -> ReleaseEntry:
    block = state.plans[run.account, run.window, run.plan]
    epsilon, delta = 0.0, 0.0
    if account.rule == FILTER:
        if not run.given_back:
            alone = block.body["accounted_one_run"]
            epsilon, delta = float(alone["epsilon"]), float(alone["delta"])
    elif not run.given_back and (block.window, block.asked) not in paid:
        paid.add((block.window, block.asked))
        epsilon, delta = _cost(block)
    return ReleaseEntry(
        time=time_of_draw(run),
        account=run.account,
        window=run.window,
        run_id=run.run_id,
        state=run.state,
        who=run.who,
        job=run.job,
        stages=run.stages or _drawing_stages(block),
        round=run.round,
        runs=block.runs,
        epsilon=epsilon,
        delta=delta,
        folders=run.folders,
    )


def _unused(state: "State", block: PlanBlock) -> ReleaseEntry:
    epsilon, delta = _cost(block)
    return ReleaseEntry(
        time="",
        account=block.account,
        window=block.window,
        run_id="",
        state="unused",
        who=str(block.body.get("who", "")),
        job="",
        stages=stages_of(state, block),
        round=0,
        runs=block.runs,
        epsilon=epsilon,
        delta=delta,
        folders=(),
    )


def _cost(block: PlanBlock) -> tuple[float, float]:
    return units.epsilon_of(block.cost.epsilon), units.delta_of(block.cost.delta)


def stages_of(state: "State", block: PlanBlock) -> Mapping[str, tuple[str, ...]]:
    """Return the names of metrics by stage of a plan, as its runs say them.

    Args:
        state: of the ledger.
        block: the plan.
    """
    key = (block.account, block.window, block.asked)
    runs = (run for run in state.runs_of(block.account) if (run.account, run.window, run.plan) == key and run.stages)
    return next((run.stages for run in runs), _drawing_stages(block))


def _drawing_stages(block: PlanBlock) -> dict[str, tuple[str, ...]]:
    """Return the names of the stages that draw noise, for events that say no more."""
    return {str(record["stage"]): () for record in block.body["mechanisms"]}


def _blocks(state: "State", account: Account, window: str | None = None) -> Iterator[PlanBlock]:
    for block in state.plans.values():
        if block.account == account.name and window in (None, block.window):
            yield block


def used_in_words(state: "State", account: Account, window: str) -> str:
    """Return which releases have used up the budget of an account, those that cost most first; empty if there are none.

    Args:
        state: of the ledger.
        account, window: which.
    """
    charged = [one for one in entries(state, account) if one.window == window and (one.epsilon > 0 or one.delta > 0)]
    if not charged:
        return ""
    charged.sort(key=lambda one: one.epsilon, reverse=True)
    named = "; ".join(_named(one) for one in charged[:NAMED])
    return f"used by: {named}" + (f"; and {len(charged) - NAMED} more" if len(charged) > NAMED else "")


def _named(entry: ReleaseEntry) -> str:
    cost = f"epsilon {spent_number(entry.epsilon)}"
    what = f"{entry.contents}" + (f" of {entry.job}" if entry.job else "")
    if not entry.run_id:
        return f"a plan that no run uses ({what}, {cost})"
    runs = f" for all {entry.runs} runs of its plan" if entry.runs > 1 else ""
    return f"run {shown_id(entry.run_id)!r} of {entry.day} ({what}, {cost}{runs})"


def shown_id(run_id: str) -> str:
    """Return a run id as text for people: one that was made of digests is cut.

    >>> shown_id("2026-W01"), shown_id("0123456789abcdef01234567-0123456789abcdef01234567")
    ('2026-W01', '01234567...')
    """
    return f"{run_id[:8]}..." if DERIVED.match(run_id) else run_id


def rounds_in_words(state: "State", block: PlanBlock, *, spare: bool = False) -> str:
    """Return the runs that hold the rounds of a plan, with their days.

    Args:
        state: of the ledger.
        block: the plan.
        spare: True for those alone that hold rounds for corrections.
    """
    first = block.runs - block.spare + 1 if spare else 1
    runs = [state.runs[block.account, block.rounds[number]] for number in sorted(block.rounds) if number >= first]
    named = [f"{run.run_id!r} of {iso_time(run.times['reserved'])[:10]}" for run in runs]
    if len(named) > 2 * NAMED:
        named = [*named[:NAMED], f"{len(named) - 2 * NAMED} more", *named[-NAMED:]]
    return ", ".join(named)


def ending_in_words(state: "State", block: PlanBlock) -> str:
    """Return when the last run of a plan will be at the pace of its runs so far; empty if they tell no pace.

    The pace is the usual time between two days with runs, for the usual number of runs of such a day, so that a backfill of many
    runs on one day does not change it. Spare runs, which come when a release is wrong, are left out.

    Args:
        state: of the ledger.
        block: the plan.
    """
    left = len(block.free())
    regular = [run_id for number, run_id in block.rounds.items() if number <= block.runs - block.spare]
    times = (iso_time(state.runs[block.account, run_id].times["reserved"]) for run_id in regular)
    runs_of = collections.Counter(datetime.date.fromisoformat(time[:10]) for time in times)
    days = sorted(runs_of)
    if left == 0 or len(days) < 2:
        return ""
    between = statistics.median((after - before).days for before, after in itertools.pairwise(days))
    pace = between / statistics.median(runs_of.values())
    if pace < SHORTEST_PACE:
        return ""
    try:
        last = days[-1] + datetime.timedelta(days=left * pace)
    except OverflowError:
        return ""
    every = round(pace, 1)
    return f"at the pace so far, a run every {'day' if every == 1 else f'{every:g} days'}, the last one is about {last}"


def is_ending(block: PlanBlock) -> bool:
    """Return True if so few runs of a plan are left that its owner should decide what comes then."""
    regular = block.runs - block.spare
    return regular >= FEWEST_RUNS and len(block.free()) <= min(LAST_RUNS, regular // FEWEST_RUNS)


def left_in_words(state: "State", account: Account, window: str) -> str:
    """Return what is left of an account, and for how many more plans like the last one that is enough.

    Args:
        state: of the ledger.
        account, window: which.
    """
    left = account.left(window)
    if account.rule == FILTER:
        return ""
    epsilon, delta = units.epsilon_of(left.epsilon), units.delta_of(left.delta)
    amount = f"epsilon {left_number(epsilon)} and delta {left_number(delta)}"
    blocks = list(_blocks(state, account, window))
    more = _times(left, blocks[-1].cost) if blocks and blocks[-1].cost != Cost() else None
    if more == 0:
        return f"{amount}: too little for another plan like the last one; `dp-pipelines ledger raise` raises the cap"
    plans = "" if more is None else f": enough for {more} more plan{'s' if more > 1 else ''} like the last one"
    return f"{amount}{plans}"


def _times(left: Cost, cost: Cost) -> int:
    """Return how often a cost fits."""
    fits = [part // each for part, each in ((left.epsilon, cost.epsilon), (left.delta, cost.delta)) if each > 0]
    return max(0, min(fits))


def plans_of_several_runs(state: "State", account: Account, window: str) -> list[PlanBlock]:
    """Return the plans of an account that may run more than once.

    Args:
        state: of the ledger.
        account, window: which.
    """
    return [block for block in _blocks(state, account, window) if block.runs > 1]
