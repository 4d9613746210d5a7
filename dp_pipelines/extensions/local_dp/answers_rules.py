"""The events and rules of accounts of answers, as the ledger finds them by name.

In: an event. Out: the changed state of a ledger. Holds: an event that could not have happened (limits that fall, a charge above a
limit, an estimate of what nobody was asked) is refused, no matter who wrote it. Not covered: the life of a run after it was
admitted, which is that of all runs (`dp_pipelines.ledger.state`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dp_pipelines.extensions.local_dp.answers import (
    ANSWERS_OPENED,
    ANSWERS_RAISED,
    ESTIMATE_ADMITTED,
    PEOPLE_ASKED,
    AnswerLimits,
    AnswersAccount,
    Asking,
    accounts_of,
)
from dp_pipelines.ledger.entries import Cost, Run
from dp_pipelines.ledger.events import Event
from dp_pipelines.ledger.state import State, need


class AnswersRules:
    """Accounts of answers, as `AccountKind` asks for them."""

    events = (ANSWERS_OPENED, ANSWERS_RAISED, PEOPLE_ASKED, ESTIMATE_ADMITTED)

    def apply(self, state: State, event: Event) -> None:
        """See `AccountKind`."""
        steps = dict(zip(self.events, (_opened, _raised, _asked, _estimated), strict=True))
        steps[event.kind](state, event.content, event.time)


ANSWERS = AnswersRules()


def _opened(state: State, body: Mapping[str, Any], time: str) -> None:
    state.need_new(body)
    name, kind, limits = str(body["account"]), str(body["kind"]), AnswerLimits(**body["limits"])
    limits.check(kind)
    state.others[name] = AnswersAccount(name=name, kind=kind, limits=limits, sources=tuple(body["sources"]))


def _raised(state: State, body: Mapping[str, Any], time: str) -> None:
    account, limits = accounts_of(state)[body["account"]], AnswerLimits(**body["limits"])
    limits.check(account.kind)
    need(account.limits.within(limits))
    state.others[account.name] = dataclasses.replace(account, limits=limits)


def _asked(state: State, body: Mapping[str, Any], time: str) -> None:
    account, asking = accounts_of(state)[body["account"]], Asking.from_json(body["asking"])
    need(account.cost_of(asking) == Cost.from_json(body["cost"]))
    state.others[account.name] = account.charged(asking)


def _estimated(state: State, body: Mapping[str, Any], time: str) -> None:
    account = accounts_of(state)[body["account"]]
    need(len(body["askings"]) > 0)
    need(all(account.asked[key].answers >= answers for key, answers in body["askings"].items()))
    number = account.estimates + 1
    run = Run(
        account=account.name,
        run_id=str(body["run_id"]),
        window="",
        plan=str(body["asked"]),
        content=str(body["content"]),
        params=dict(body["params"]),
        round=number,
        cost=Cost(),
        times={"reserved": time},
        looks=len(state.tunings),
    )
    state.admit(run)
    state.others[account.name] = dataclasses.replace(account, estimates=number)
