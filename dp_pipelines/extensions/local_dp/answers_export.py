"""Exports of accounts of answers for their owner or an auditor: limits, questions, and the entry of a manifest.

In: an open ledger. Out: JSON values. Holds: they are in separate lists, each with its neighbours, and no sum adds these
and accounts of rows; nothing but public facts. Not covered: the chain, which `export` exports.
"""

from typing import TYPE_CHECKING, Any

from dp_pipelines.accounting.shown_costs import spent_number
from dp_pipelines.extensions.local_dp.answers import (
    KINDS,
    NEIGHBOURS,
    AnswerLimits,
    AnswersAccount,
    Asking,
    accounts_of,
)
from dp_pipelines.ledger import units
from dp_pipelines.ledger.entries import Cost, Run

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger


def account_to_json(account: AnswersAccount) -> dict[str, Any]:
    """Return an account as JSON values: who keeps the promise, its limits, the questions and what is left."""
    limits = account.limits
    return {
        "account": account.name,
        "kind": account.kind,
        "neighbours": NEIGHBOURS,
        "kept": KINDS[account.kind].by,
        "cap": {"epsilon": limits.epsilon, "delta": limits.delta},
        "spent": _amounts(account.spent),
        "left": _amounts(account.left),
        "questions": {"limit": limits.questions, "asked": len(account.questions_with())},
        "answers_limit": limits.answers,
        "question_epsilon_limit": limits.question_epsilon,
        "asked": [asking_to_json(asking) for asking in account.asked.values()],
        "estimates": account.estimates,
        "sources": list(account.sources),
    }


def asking_to_json(asking: Asking) -> dict[str, Any]:
    """Return the questions to a person at once, and the cost of all declared answers."""
    cost = Cost(epsilon=asking.each.epsilon * asking.answers, delta=asking.each.delta * asking.answers)
    return {**asking.to_json(), "cost": _amounts(cost)}


def run_to_json(run: Run) -> dict[str, Any]:
    """Return a run that estimates from answers as `dp-pipelines runs --json` lists it."""
    return {
        "account": run.account,
        "run_id": run.run_id,
        "state": run.state,
        "window": "",
        "params": run.params,
        "round": run.round,
        "runs": None,
        "plan": run.plan,
        "attempts": len(run.attempts),
        "jobs": [vars(job) for attempt in run.attempts for job in attempt.jobs],
        "times": run.times,
        "folders": list(run.folders),
        "files": run.files,
    }


def spent(ledger: "Ledger", run: Run) -> dict[str, Any]:
    """Return the entry about the ledger for the manifest of estimates: the account, and the head of the chain."""
    account = account_to_json(accounts_of(ledger.state)[run.account])
    fields = ("account", "kind", "neighbours", "kept", "cap", "spent", "left", "questions")
    return {
        "id": ledger.state.ledger,
        **{name: account[name] for name in fields},
        "estimate": run.round,
        "head": {"seq": ledger.head.seq, "hash": ledger.head.hash},
        "note": f"each question is charged once to a person, to the account {run.account!r} of kind {account['kind']}",
    }


def limits_in_words(kind: str, limits: AnswerLimits) -> str:
    """Format limits for readers."""
    behind = f" and delta {spent_number(limits.delta)} behind the shuffler" if KINDS[kind].has_delta else ""
    return (
        f"{'' if behind else 'local '}epsilon {spent_number(limits.epsilon)}{behind} for all answers of a person, questions: "
        f"{limits.questions:,}, answers to each: {limits.answers:,}, of local epsilon at most "
        f"{spent_number(limits.question_epsilon)}"
    )


def _amounts(cost: Cost) -> dict[str, float]:
    return {"epsilon": units.epsilon_of(cost.epsilon), "delta": units.delta_of(cost.delta)}
