"""What the tests of the ledger share: small real plans, runs from admission to publication, and processes that do so in a loop.

In: URLs. Out: ledgers with accounts, and functions that a process of its own can run (`tests.ledger.conftest.processes`).
Holds: the plans are real ones, made once.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import uuid
from collections.abc import Mapping

from dp_pipelines.errors import BudgetError
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.ledger import Ledger, MovedOn
from dp_pipelines.metrics.counts import Count
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.query import ContributionBounds, Query

ACCOUNT = "grocery"
SECRET = "hunter2-swordfish"


@functools.cache
def plan(epsilon: float = 0.25, delta: float = 1e-7, runs: int = 1) -> Plan:
    """A real plan, calibrated once."""
    bounds = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1)
    query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()}, bounds=bounds)
    return Plan(epsilon=epsilon, delta=delta, stages={"weekly": query}, runs=runs)


def with_account(url: str, *, anchor: str | None = None, **changes: object) -> Ledger:
    """A new ledger with an account."""
    ledger = Ledger.create(url, anchor=anchor)
    open_account(ledger, **changes)
    return ledger


def open_account(ledger: Ledger, name: str = ACCOUNT, **changes: object) -> None:
    """An account of (1, 1e-6) under the rule `reserved`, unless changed."""
    arguments: dict[str, object] = {"unit": ["customer"], "words": "one customer", "epsilon": 1.0, "delta": 1e-6}
    ledger.open_account(name, **{**arguments, **changes})  # type: ignore[arg-type]


def admit(
    ledger: Ledger, run_id: str, of: Plan | None = None, *, account: str = ACCOUNT, asked: str = "", window: str = "",
    trial: bool = False,
) -> Run:  # fmt: skip
    """Charge a run of a plan."""
    made = of or plan()
    return ledger.admit(
        account,
        run_id,
        plan=made,
        asked=asked or made.digest[:16],
        content=f"content of {run_id}",
        params={"week": run_id},
        records=lambda number: made.round(number).mechanisms,
        window=window,
        who="ann@host",
        trial=trial,
    )


def start(ledger: Ledger, run: Run) -> tuple[Run, str]:
    """Begin an attempt of a run; also gives the attempt's name."""
    attempt = uuid.uuid4().hex
    return ledger.start(run, attempt=attempt, staging=f"/nowhere/{attempt}", where={"pid": os.getpid()}), attempt


def finish(ledger: Ledger, run: Run, files: Mapping[str, bytes] | None = None) -> Run:
    """Start, stage, commit and publish a run."""
    run, attempt = start(ledger, run)
    held = dict(files) if files is not None else {"weekly.parquet": uuid.uuid4().bytes, "manifest.json": b"{}"}
    staged = {name: hashlib.sha256(held[name]).hexdigest() for name in list(held)[:1]}
    run = ledger.staged(run, attempt=attempt, files=staged)
    run = ledger.commit(run, attempt=attempt, files=held)
    return ledger.published(run, "/nowhere/out")


def work_through(url: str, run_ids: list[str], log: str, of: tuple[float, float, int] = (0.25, 1e-7, 1)) -> None:
    """A scheduler in a process of its own: bring every run to its release, or to a refusal, and log what was acknowledged."""
    ledger = Ledger.open(url)
    with pathlib.Path(log).open("a", buffering=1) as told:
        for run_id in run_ids:
            try:
                run = admit(ledger, run_id, plan(*of), asked=run_id)
            except BudgetError:
                told.write(f"refused {run_id}\n")
                continue
            told.write(f"admitted {run_id}\n")
            if run.committed:
                continue
            # Another process may have begun an attempt: this one ends it, as if its process were known to be dead.
            with contextlib.suppress(MovedOn):
                if run.attempts and not run.attempts[-1].ended:
                    run = ledger.end(run, attempt=run.attempts[-1].name, how="it is gone", destroyed=True)
                content = uuid.uuid4().bytes * 12
                run, attempt = start(ledger, run)
                digest = hashlib.sha256(content).hexdigest()
                run = ledger.staged(run, attempt=attempt, files={"weekly": digest})
                ledger.commit(run, attempt=attempt, files={"weekly": content})
                told.write(f"committed {run_id} {digest}\n")


def open_often(url: str, times: int) -> None:
    """A process that opens the ledger again and again."""
    for _ in range(times):
        Ledger.open(url).verify()


def make_and_open(url: str, log: str) -> None:
    """A process that is one of several to make the same ledger."""
    ledger = Ledger.open_or_create(url)
    pathlib.Path(log).write_text(ledger.state.ledger)


for _arguments in ((0.25, 1e-7, 1), (0.3, 1e-7, 3), (0.1, 1e-8, 1)):
    plan(*_arguments)  # before processes are forked from here
