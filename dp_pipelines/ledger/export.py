"""Exports of a ledger for its owner or an auditor: accounts, spending, runs, events.

In: an open ledger. Out: JSON values, CSV. Holds: nothing but public facts of requests and what was charged for them; the proof
of the chain goes along. Not covered: the HTML page (`report.ledger_page`).
"""

import csv
import io
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dp_pipelines.accounting import renyi
from dp_pipelines.ledger import release_list, rules, units
from dp_pipelines.ledger.entries import FILTER, Account, Cost, PlanBlock, Run

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger


def budget_of(account: Account, window: str) -> dict[str, Any]:
    """Return cap, spent and left of an account in a window, as numbers to show.

    Under the rule `filter`, the spent divergence and failures are converted to (epsilon, delta).


    Args:
        account: the account.
        window: of event time; empty if there are none.
    """
    spent = account.spent.get(window, Cost())
    cap = {"epsilon": account.epsilon, "delta": account.delta}
    if account.rule != FILTER:
        left = account.left(window)
        return {
            "cap": cap,
            "spent": {"epsilon": units.epsilon_of(spent.epsilon), "delta": units.delta_of(spent.delta)},
            "left": {"epsilon": units.epsilon_of(left.epsilon), "delta": units.delta_of(left.delta)},
        }
    if spent == Cost():
        return {"cap": cap, "spent": {"epsilon": 0.0, "delta": 0.0}, "left": cap, "used": 0.0}
    order, part = float(Fraction(account.order)), rules.conversion(account.delta)
    epsilon = min(renyi.to_epsilon(float(spent.epsilon * units.EPSILON_UNIT), order, part), account.epsilon)
    delta = min(part + units.delta_of(spent.delta), account.delta)
    return {
        "cap": cap,
        "spent": {"epsilon": epsilon, "delta": delta},
        "left": {"epsilon": account.epsilon - epsilon, "delta": account.delta - delta},
        "used": max(_share(spent.epsilon, account.cap.epsilon), _share(spent.delta, account.cap.delta)),
    }


def cost_of_used(block: PlanBlock) -> float:
    """Compute the joint epsilon of those rounds of a plan that runs have taken, at the plan's delta."""
    # Imported here: composing losses takes long to load, and other exports do not need it.
    from dp_pipelines.accounting.accountant import epsilon_of_rounds
    from dp_pipelines.accounting.mechanism_record import MechanismRecord

    used, first = [], 1
    # With a constant split all rounds are equal.
    for records, times in block.body.get("groups") or [[block.body["mechanisms"], block.runs]]:
        count = sum(first <= number < first + times for number in block.rounds)
        if count:
            used.append(([MechanismRecord.from_json(record) for record in records], count))
        first += times
    return epsilon_of_rounds(used, block.body["accounted"]["delta"]) if used else 0.0


def account_to_json(account: Account) -> dict[str, Any]:
    """Return an account and each of its windows as JSON values."""
    return {
        "account": account.name,
        "privacy_unit": account.words,
        "unit_columns": list(account.unit),
        "rule": account.rule,
        "order": account.order or None,
        "window": None if account.window is None else vars(account.window),
        "sources": list(account.sources),
        "budgets": {window: budget_of(account, window) for window in sorted(account.spent) or [""]},
    }


def run_to_json(ledger: "Ledger", run: Run) -> dict[str, Any]:
    """Return a run as `dp-pipelines runs --json` lists it."""
    if run.account in ledger.state.others:
        return ledger.state.others[run.account].run_to_json(run)
    block = ledger.state.plans[run.account, run.window, run.plan]
    return {
        "account": run.account,
        "run_id": run.run_id,
        "state": run.state,
        "window": run.window,
        "params": run.params,
        "round": run.round,
        "runs": block.runs,
        "plan": block.plan,
        "attempts": len(run.attempts),
        "jobs": [vars(job) for attempt in run.attempts for job in attempt.jobs],
        "times": {state: release_list.iso_time(time) for state, time in run.times.items()},
        "drawn": release_list.time_of_draw(run)[:10],
        "who": run.who,
        "job": run.job,
        "stages": {name: list(metrics) for name, metrics in run.stages.items()},
        "folders": list(run.folders),
        "files": run.files,
    }


def missing_to_json(ledger: "Ledger") -> dict[str, str]:
    """Return the accounts whose rules are not installed, each with the reason."""
    return {name: error.message for name, error in ledger.state.missing.items()}


def tunings_to_json(ledger: "Ledger", account: str) -> list[dict[str, Any]]:
    """Return the looks at the raw rows of an account as JSON values."""
    return [vars(tuning) for tuning in ledger.state.tunings if tuning.account == account]


def to_json(ledger: "Ledger") -> dict[str, Any]:
    """Return everything, with the chain: enough to verify it with ten lines of any language."""
    return {
        "ledger": ledger.state.ledger,
        "head": {"seq": ledger.head.seq, "hash": ledger.head.hash},
        "chain": "hash = sha256 of the JSON list [1, seq, previous, kind, time, body], written as Python's json.dumps does",
        "accounts": [account_to_json(account) for account in ledger.state.accounts.values()],
        "answers_accounts": [account.to_json() for account in ledger.state.others.values()],
        "runs": [run_to_json(ledger, run) for run in ledger.state.runs.values()],
        **({"not_installed": missing_to_json(ledger)} if ledger.state.missing else {}),
        "tunings": [vars(tuning) for tuning in ledger.state.tunings],
        "events": [
            {
                "seq": event.seq,
                "time": event.time,
                "kind": event.kind,
                "body": event.body,
                "previous": event.previous,
                "hash": event.hash,
            }
            for event in ledger.history
        ],
    }


def to_csv(ledger: "Ledger") -> str:
    """Return one line for each event: who, when, what, on which plan, at which cost, and the chain.

    Costs of answers have columns of their own, and are never added to those of tables.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            *(
                "seq",
                "time",
                "kind",
                "account",
                "window",
                "run_id",
                "who",
                "plan",
                "epsilon",
                "delta",
                "previous",
                "hash",
            ),
            *("answers_epsilon", "answers_delta"),
        ]
    )
    for event in ledger.history:
        body = event.content
        cost = Cost.from_json(body["cost"]) if "cost" in body else None
        amounts = ["", ""] if cost is None else [units.epsilon_of(cost.epsilon), units.delta_of(cost.delta)]
        of_answers = "asking" in body
        writer.writerow(
            [
                event.seq,
                event.time,
                event.kind,
                spreadsheet_cell(body.get("account", "")),
                spreadsheet_cell(body["window"]) if isinstance(body.get("window"), str) else "",
                spreadsheet_cell(body.get("run_id", "")),
                spreadsheet_cell(body.get("who", "")),
                body.get("plan", ""),
                *(["", ""] if of_answers else amounts),
                event.previous,
                event.hash,
                *(amounts if of_answers else ["", ""]),
            ]
        )
    return out.getvalue()


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def spreadsheet_cell(text: Any) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    return f"'{text}" if str(text).startswith(("=", "+", "-", "@", "\t", "\r")) else str(text)


def spent(ledger: "Ledger", run_: Run) -> dict[str, Any]:
    """Return the manifest's entry about the ledger: the account so far, this run's round, the head of the chain."""
    if run_.account in ledger.state.others:
        return ledger.state.others[run_.account].spent_json(ledger, run_)
    account = ledger.account(run_.account)
    block = ledger.block(run_.account, run_.window, run_.plan)
    return {
        "id": ledger.state.ledger,
        "account": account.name,
        "unit": account.words,
        "rule": account.rule,
        "window": run_.window,
        "round": run_.round,
        "runs": block.runs if block is not None else 1,
        **({"spare": block.spare} if block is not None and block.spare else {}),
        "drawn": release_list.time_of_draw(run_)[:10],
        "head": {"seq": ledger.head.seq, "hash": ledger.head.hash},
        **budget_of(account, run_.window),
        **({"so_far": {"epsilon": cost_of_used(block)}} if block is not None and block.runs > 1 else {}),
        "note": f"charged once, to the account {account.name!r}",
    }
