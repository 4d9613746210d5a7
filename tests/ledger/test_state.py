"""What is impossible here is refused, whoever wrote it, although its chain is whole."""

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest

from dp_pipelines.errors import LedgerError
from dp_pipelines.ledger import events
from dp_pipelines.ledger.entries import Attempt, Cost, EngineJob
from dp_pipelines.ledger.events import Event, chained
from dp_pipelines.ledger.state import State
from tests.helpers.source import ROOT

RUN = {"account": "a", "run_id": "r"}
ACCOUNT = {
    "account": "a", "unit": ["u"], "words": "one u", "epsilon": 1.0, "delta": 1e-6, "cap": {"epsilon": "100", "delta": "10"},
    "rule": "reserved", "order": "", "window": None, "sources": ["/data/*.parquet"],
}  # fmt: skip
PLAN = {"account": "a", "window": "", "asked": "x", "plan": "p", "runs": 2, "cost": {"epsilon": "60", "delta": "5"}}
RESERVED = {
    **RUN, "window": "", "asked": "x", "content": "c", "params": {}, "round": 1, "cost": {"epsilon": "0", "delta": "0"},
}  # fmt: skip
STARTED = {**RUN, "attempt": "1", "staging": "/s", "where": {}, "admitted": ["x", "c", 1]}
JOB = {**RUN, "attempt": "1", "name": "dp-1", "runner": "flink", "endpoint": "http://cluster:8081", "job": ""}
STAGED = {**RUN, "attempt": "1", "files": {"t": "d"}}
COMMITTED = {**RUN, "attempt": "1", "files": {"t": "d", "m": "e"}}

TUNED = {"account": "a", "stage": "s", "configurations": 2, "content": "c", "grid": "g", "who": ""}

LIFE: list[tuple[str, dict[str, Any]]] = [
    (events.LEDGER_CREATED, {"ledger": "l", "anchor": ""}),
    (events.ACCOUNT_OPENED, ACCOUNT),
    (events.PLAN_FROZEN, PLAN),
    (events.RUN_RESERVED, RESERVED),
    (events.ATTEMPT_STARTED, STARTED),
    (events.RUN_STAGED, STAGED),
    (events.RUN_COMMITTED, COMMITTED),
    (events.RUN_PUBLISHED, {**RUN, "folder": "/out"}),
]


def after(steps: int, *more: tuple[str, dict[str, Any]]) -> State:
    state, last = State(), None
    for number, (kind, body) in enumerate([*LIFE[:steps], *more]):
        last = chained(last, kind, body, f"t{number}")
        state.apply(last)
    return state


IMPOSSIBLE = {
    "a look at the rows without configurations": (8, events.DATA_TUNED, {**TUNED, "configurations": 0}),
    "a look at the rows of no stage": (8, events.DATA_TUNED, {**RUN, "configurations": 2}),
    "a look at the rows before the beginning": (0, events.DATA_TUNED, TUNED),
    "a second beginning": (8, events.LEDGER_CREATED, {"ledger": "l", "anchor": ""}),
    "a beginning without a name": (0, events.LEDGER_CREATED, {"ledger": "", "anchor": ""}),
    "an account before the beginning": (0, events.ACCOUNT_OPENED, ACCOUNT),
    "a second account of a name": (2, events.ACCOUNT_OPENED, ACCOUNT),
    "a rule that is none": (1, events.ACCOUNT_OPENED, {**ACCOUNT, "rule": "best"}),
    "a cap below nothing": (1, events.ACCOUNT_OPENED, {**ACCOUNT, "cap": {"epsilon": "-1", "delta": "0"}}),
    "another account's source": (2, events.ACCOUNT_OPENED, {**ACCOUNT, "account": "b"}),
    "a cap that falls": (2, events.CAP_RAISED, {**ACCOUNT, "cap": {"epsilon": "99", "delta": "10"}}),
    "a source that is there": (2, events.SOURCE_REGISTERED, {"account": "a", "source": "/data/*.parquet"}),
    "a plan above the cap": (2, events.PLAN_FROZEN, {**PLAN, "cost": {"epsilon": "101", "delta": "0"}}),
    "a plan above the cap of delta": (2, events.PLAN_FROZEN, {**PLAN, "cost": {"epsilon": "0", "delta": "11"}}),
    "a plan that gives back": (2, events.PLAN_FROZEN, {**PLAN, "cost": {"epsilon": "-1", "delta": "0"}}),
    "a second plan above the cap": (3, events.PLAN_FROZEN, {**PLAN, "asked": "y"}),
    "a plan that is frozen": (3, events.PLAN_FROZEN, {**PLAN, "cost": {"epsilon": "0", "delta": "0"}}),
    "a plan without runs": (2, events.PLAN_FROZEN, {**PLAN, "runs": 0}),
    "a plan of nobody": (2, events.PLAN_FROZEN, {**PLAN, "account": "b"}),
    "a window where there is none": (2, events.PLAN_FROZEN, {**PLAN, "window": "2026-01-05"}),
    "a run without a plan": (2, events.RUN_RESERVED, RESERVED),
    "a run that is there": (4, events.RUN_RESERVED, {**RESERVED, "round": 2}),
    "a round that is taken": (4, events.RUN_RESERVED, {**RESERVED, "run_id": "s"}),
    "a round beyond the plan": (3, events.RUN_RESERVED, {**RESERVED, "round": 3}),
    "a round zero": (3, events.RUN_RESERVED, {**RESERVED, "round": 0}),
    "a charge of a reserved run": (3, events.RUN_RESERVED, {**RESERVED, "cost": {"epsilon": "1", "delta": "0"}}),
    "an attempt of no run": (3, events.ATTEMPT_STARTED, STARTED),
    "an attempt of a run that its name stood for before": (
        4,
        events.ATTEMPT_STARTED,
        {**STARTED, "admitted": ["y", "c", 1]},
    ),
    "a second attempt beside the first": (5, events.ATTEMPT_STARTED, {**STARTED, "attempt": "2"}),
    "a job of another attempt": (5, events.JOB_SUBMITTED, {**JOB, "attempt": "2"}),
    "a job before an attempt": (4, events.JOB_SUBMITTED, JOB),
    "a job of an attempt that has staged": (6, events.JOB_SUBMITTED, JOB),
    "a job without a name": (5, events.JOB_SUBMITTED, {**JOB, "name": ""}),
    "a job of no engine": (5, events.JOB_SUBMITTED, {**JOB, "runner": ""}),
    "an end of another attempt": (5, events.ATTEMPT_ENDED, {**RUN, "attempt": "2", "how": "x", "destroyed": True}),
    "an end without a word": (5, events.ATTEMPT_ENDED, {**RUN, "attempt": "1", "how": "", "destroyed": True}),
    "an end before a beginning": (4, events.ATTEMPT_ENDED, {**RUN, "attempt": "1", "how": "x", "destroyed": True}),
    "staging of another attempt": (5, events.RUN_STAGED, {**STAGED, "attempt": "2"}),
    "staging twice": (6, events.RUN_STAGED, STAGED),
    "a commit of what is not staged": (5, events.RUN_COMMITTED, COMMITTED),
    "a commit without a file": (6, events.RUN_COMMITTED, {**COMMITTED, "files": {"m": "e"}}),
    "a second commit": (7, events.RUN_COMMITTED, COMMITTED),
    "an attempt after the commit": (7, events.ATTEMPT_STARTED, {**STARTED, "attempt": "2"}),
    "an end after the commit": (7, events.ATTEMPT_ENDED, {**RUN, "attempt": "1", "how": "x", "destroyed": True}),
    "publishing before the commit": (6, events.RUN_PUBLISHED, {**RUN, "folder": "/out"}),
    "giving up what was committed": (7, events.RUN_ABANDONED, {**RUN, "given_back": False}),
    "giving up what is at work": (5, events.RUN_ABANDONED, {**RUN, "given_back": False}),
    "fields that are missing": (1, events.ACCOUNT_OPENED, {"account": "a"}),
    "a number that no machine holds": (1, events.ACCOUNT_OPENED, {**ACCOUNT, "epsilon": 10**400}),
    "fields of another kind": (1, events.ACCOUNT_OPENED, {**ACCOUNT, "cap": 7}),
}


def test_a_whole_life_is_possible() -> None:
    state = after(8)
    assert state.runs["a", "r"].state == "published"
    assert state.runs["a", "r"].files == COMMITTED["files"]
    assert state.accounts["a"].spent == {"": Cost(epsilon=60, delta=5)}
    assert state == after(8)
    assert state != after(7)


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_could_not_have_happened_is_refused(what: str) -> None:
    steps, kind, body = IMPOSSIBLE[what]
    after(steps)
    with pytest.raises(LedgerError, match="is impossible here"):
        after(steps, (kind, body))


def test_a_job_is_written_before_an_engine_has_it_and_again_when_it_has_said_its_own_name() -> None:
    named, called = (events.JOB_SUBMITTED, JOB), (events.JOB_SUBMITTED, {**JOB, "job": "e126"})
    other = (events.JOB_SUBMITTED, {**JOB, "name": "dp-2"})
    [attempt] = after(5, named, called, other).runs["a", "r"].attempts
    first = EngineJob(name="dp-1", runner="flink", endpoint="http://cluster:8081", job="e126")
    assert attempt.jobs == (first, dataclasses.replace(first, name="dp-2", job=""))
    elsewhere = (events.JOB_SUBMITTED, {**JOB, "job": "e126", "endpoint": "http://other:8081"})
    for again in (named, elsewhere):
        with pytest.raises(LedgerError):
            after(5, named, again)
    with pytest.raises(LedgerError):
        after(5, named, called, (events.JOB_SUBMITTED, {**JOB, "job": "f237"}))


def test_giving_back_needs_every_attempt_destroyed() -> None:
    ended = {**RUN, "attempt": "1", "how": "x"}
    kept, gone = {**ended, "destroyed": False}, {**ended, "destroyed": True}
    with pytest.raises(LedgerError):
        after(5, (events.ATTEMPT_ENDED, kept), (events.RUN_ABANDONED, {**RUN, "given_back": True}))
    stays = after(5, (events.ATTEMPT_ENDED, kept), (events.RUN_ABANDONED, {**RUN, "given_back": False}))
    assert stays.plans["a", "", "x"].rounds == {1: "r"}
    back = after(5, (events.ATTEMPT_ENDED, gone), (events.RUN_ABANDONED, {**RUN, "given_back": True}))
    assert back.plans["a", "", "x"].rounds == {}


def test_a_name_that_is_admitted_again_is_a_new_run_to_which_no_old_attempt_belongs() -> None:
    given_up = [
        (events.ATTEMPT_ENDED, {**RUN, "attempt": "1", "how": "x", "destroyed": True}),
        (events.RUN_ABANDONED, {**RUN, "given_back": True}),
        (events.RUN_RESERVED, RESERVED),
    ]
    assert after(5, *given_up).runs["a", "r"].attempts == ()
    for late in [(events.RUN_STAGED, STAGED), (events.RUN_COMMITTED, COMMITTED)]:
        with pytest.raises(LedgerError):
            after(5, *given_up, late)
        with pytest.raises(LedgerError):
            after(5, *given_up, (events.ATTEMPT_STARTED, {**STARTED, "attempt": "2"}), late)


ENDLESS = json.dumps({**TUNED, "configurations": "?"}).replace('"?"', "1e999")


@pytest.mark.parametrize("body", ["{", "[" * 100_000, ENDLESS], ids=["no end", "too deep", "an endless number"])
def test_the_body_of_an_event_may_be_no_json_or_none_that_can_be_held_and_is_refused(body: str) -> None:
    state = after(1)
    with pytest.raises(LedgerError):
        state.apply(Event(seq=2, previous="", kind=events.DATA_TUNED, time="", body=body, hash=""))


def test_optimised_python_refuses_as_well() -> None:
    """`python -O` removes every assert."""
    cases = [[steps, kind, body] for steps, kind, body in IMPOSSIBLE.values()]
    code = f"""
import json, sys
sys.path.insert(0, {str(ROOT)!r})
from dp_pipelines.errors import LedgerError
from dp_pipelines.ledger.events import chained
from dp_pipelines.ledger.state import State
refused = 0
for steps, kind, body in json.loads({json.dumps(json.dumps(cases))}):
    state, last = State(), None
    for one, what in [*json.loads({json.dumps(json.dumps(LIFE))})[:steps], (kind, body)]:
        last = chained(last, one, what, "")
        try:
            state.apply(last)
        except LedgerError:
            refused += 1
print(refused)
"""
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(IMPOSSIBLE)


def test_a_look_at_the_rows_is_kept_and_charges_nothing() -> None:
    seen, before = after(8, (events.DATA_TUNED, TUNED), (events.DATA_TUNED, {**TUNED, "account": "b"})), after(8)
    assert [(tuning.account, tuning.time) for tuning in seen.tunings] == [("a", "t8"), ("b", "t9")]
    assert seen.accounts == before.accounts
    assert seen.runs == before.runs


def test_a_draw_is_frozen_once_under_its_name_and_another_name_is_another_draw() -> None:
    draw = (events.DRAW_FROZEN, {**RUN, "attempt": "1", "name": "sample", "sha256": "d"})
    other = (events.DRAW_FROZEN, {**RUN, "attempt": "1", "name": "noise", "sha256": "e"})
    assert after(5, draw, other).runs["a", "r"].drawn == {"sample": "d", "noise": "e"}
    for again in ("d", "e"):
        with pytest.raises(LedgerError, match="is impossible here"):
            after(5, draw, (events.DRAW_FROZEN, {**draw[1], "sha256": again}))


def test_what_an_attempt_has_made_is_not_destroyed_until_somebody_says_so() -> None:
    assert Attempt(name="1", staging="/s", where={}).destroyed is False
    assert [attempt.destroyed for attempt in after(5).runs["a", "r"].attempts] == [False]
