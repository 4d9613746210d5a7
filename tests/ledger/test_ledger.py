"""Accounts and runs: charged once, released once, fenced, given back only with proof; on SQLite and PostgreSQL alike."""

import copy
import dataclasses
import hashlib
import itertools
import time
from collections.abc import Callable

import pytest

from dp_pipelines.errors import BudgetError, DpError, LedgerError, RequestError
from dp_pipelines.ledger import events
from dp_pipelines.ledger.entries import FILTER, Cost, EngineJob, Window
from dp_pipelines.ledger.ledger import Ledger, MovedOn
from tests.helpers import ledgers
from tests.helpers.ledgers import ACCOUNT, admit, finish, open_account, plan, start, with_account

FILES = {"weekly.parquet": b"rows", "manifest.json": b"{}"}
STAGED = {"weekly.parquet": hashlib.sha256(b"rows").hexdigest()}
WINDOW = Window(column="SOLD_AT", days=7, origin="2026-01-05")


def test_a_ledger_is_made_once_and_opened_often(url: str) -> None:
    made = with_account(url)
    with pytest.raises(RequestError, match="already exists"):
        Ledger.create(url)
    assert Ledger.open(url).state == made.state
    assert Ledger.open_or_create(url).state == made.state
    assert Ledger.exists(url)


def test_a_ledger_that_is_not_there_is_not_made_by_opening_it(url: str) -> None:
    for attempt in (Ledger.open, Ledger.accept):
        with pytest.raises(RequestError, match="does not exist; create it with `dp-pipelines ledger init`, or"):
            attempt(url)
    assert not Ledger.exists(url)


WRONG = {
    "no name": {"name": ""}, "no unit": {"unit": []}, "an empty column": {"unit": [""]}, "another rule": {"rule": "best"},
    "no epsilon": {"epsilon": 0.0}, "less than nothing": {"epsilon": -1.0}, "not a number": {"epsilon": float("nan")},
    "no end": {"epsilon": float("inf")}, "no delta": {"delta": 0.0}, "a delta of one": {"delta": 1.0}, "huge": {"epsilon": 1e7},
    "a cap below a unit": {"epsilon": 1e-13}, "a delta below zero": {"delta": -1e-9}, "truth": {"epsilon": True},
    "no days": {"window": Window(column="t", days=0, origin="2026-01-05")},
    "no day": {"window": Window(column="t", days=7, origin="monday")},
    "no column": {"window": Window(column="", days=7, origin="2026-01-05")},
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_account_is_refused(sqlite: str, what: str) -> None:
    ledger = Ledger.create(sqlite)
    with pytest.raises(RequestError):
        open_account(ledger, **WRONG[what])
    assert Ledger.open(sqlite).state.accounts == {}


def test_an_account_is_opened_once(url: str) -> None:
    ledger = with_account(url)
    with pytest.raises(RequestError, match="has an account"):
        open_account(Ledger.open(url), epsilon=100.0)
    assert ledger.account(ACCOUNT).epsilon == 1.0
    with pytest.raises(RequestError, match="existing accounts: grocery"):
        ledger.account("grocer")


def test_a_cap_can_be_raised_on_the_record_and_never_lowered(url: str) -> None:
    ledger = with_account(url)
    for epsilon, delta in [(0.5, 1e-6), (2.0, 1e-7), (-1.0, 1e-6), (float("nan"), 1e-6)]:
        with pytest.raises(RequestError):
            ledger.raise_cap(ACCOUNT, epsilon=epsilon, delta=delta)
    ledger.raise_cap(ACCOUNT, epsilon=2.0, delta=1e-6)
    assert Ledger.open(url).account(ACCOUNT).left("") == Cost(epsilon=2 * 10**12, delta=10**54)


def test_the_cap_of_a_filter_is_fixed(sqlite: str) -> None:
    with pytest.raises(RequestError, match="cap is fixed"):
        with_account(sqlite, rule=FILTER).raise_cap(ACCOUNT, epsilon=2.0, delta=1e-6)


def test_a_source_belongs_to_one_account(url: str) -> None:
    ledger = with_account(url, patterns=["/data/shop/*.parquet"])
    open_account(ledger, "other")
    ledger.claim_source(ACCOUNT, "/data/shop/*.parquet")
    ledger.claim_source(ACCOUNT, "/more/*.csv")
    late = Ledger.open(url)
    for source, files in [("/more/*.csv", []), ("/data/**/*.parquet", ["/data/shop/a.parquet"])]:
        with pytest.raises(RequestError, match="belongs to the account 'grocery'"):
            late.claim_source("other", source, files)
    late.claim_source("other", "/data/**/*.parquet", ["/data/home/a.parquet"])
    with pytest.raises(RequestError):
        open_account(ledger, "third", patterns=["/more/*.csv"])
    assert ledger.head.seq == 5


def test_a_run_is_charged_once_and_keeps_its_round(url: str) -> None:
    ledger = with_account(url)
    first = admit(ledger, "r", plan(0.3, 1e-7, 3))
    spent = ledger.account(ACCOUNT).spent[""]
    for again in (ledger, Ledger.open(url)):
        assert admit(again, "r", plan(0.3, 1e-7, 3)) == first
    assert ledger.account(ACCOUNT).spent[""] == spent
    assert spent.within(Cost(epsilon=3 * 10**11, delta=10**53))
    assert [admit(ledger, name, plan(0.3, 1e-7, 3)).round for name in ("s", "r", "t")] == [2, 1, 3]
    assert ledger.account(ACCOUNT).spent[""] == spent, "under the rule reserved all runs of a plan are one block"
    with pytest.raises(BudgetError, match="covers 3 runs, used by 'r' of .* runs: 4 instead of 3 in the budget"):
        admit(ledger, "u", plan(0.3, 1e-7, 3))
    admit(ledger, "alone", plan(0.1, 1e-8, 1))
    with pytest.raises(BudgetError, match="covers 1 run, used by "):
        admit(ledger, "too many", plan(0.1, 1e-8, 1))


def test_one_run_id_stands_for_one_release(url: str) -> None:
    ledger = with_account(url)
    admit(ledger, "r")
    given = {"plan": plan(), "asked": plan().digest[:16], "content": "content of r", "window": ""}
    for change, what in [
        ({"asked": "x"}, "another plan"),
        ({"content": "x"}, "another job, other parameters or another snapshot of a table"),
    ]:
        with pytest.raises(RequestError, match=f"was charged for {what}"):
            ledger.admit(ACCOUNT, "r", params={}, records=lambda _: plan().mechanisms, **{**given, **change})
    assert len(ledger.state.runs) == 1


def test_a_plan_that_is_not_the_frozen_one_is_refused(url: str) -> None:
    """Another version may calibrate the same request to other noise: what was charged for is what runs."""
    ledger = with_account(url)
    admit(ledger, "r", plan(0.3, 1e-7, 3), asked="same")
    for run_id in ("r", "s"):
        with pytest.raises(RequestError, match="differs from the one that the ledger has frozen"):
            admit(ledger, run_id, plan(0.25, 1e-7), asked="same")


def test_ten_plans_of_a_tenth_fit_exactly(url: str) -> None:
    ledger = with_account(url, epsilon=10.0)
    for number in range(10):
        admit(ledger, f"r{number}", plan(0.25, 1e-7), asked=f"{number}")
    assert ledger.account(ACCOUNT).left("").delta == 0
    with pytest.raises(BudgetError, match="nothing more fits"):
        admit(ledger, "more", plan(0.25, 1e-7), asked="more")


def test_what_does_not_fit_leaves_nothing(url: str) -> None:
    ledger = with_account(url, epsilon=0.5)
    admit(ledger, "r", plan(0.3, 1e-7, 3))
    before = ledger.head
    with pytest.raises(BudgetError, match="what would fit: a plan with at most epsilon 0.2"):
        admit(ledger, "s", plan(0.25, 1e-7))
    assert ledger.head == before == Ledger.open(url).head
    assert ledger.block(ACCOUNT, "", plan(0.25, 1e-7).digest[:16]) is None


def test_under_a_filter_a_refused_run_freezes_no_plan(sqlite: str) -> None:
    ledger = with_account(sqlite, rule=FILTER, epsilon=0.05, delta=1e-7)
    with pytest.raises(BudgetError, match="the same run with"):
        admit(ledger, "s", plan(0.3, 1e-7, 3))
    assert Ledger.open(sqlite).state.plans == {} == ledger.state.plans


def test_each_window_has_a_cap_of_its_own(url: str) -> None:
    ledger = with_account(url, epsilon=0.3, window=WINDOW)
    for window in ("2026-01-05", "2026-01-12"):
        admit(ledger, f"r{window}", plan(0.25, 1e-7), window=window)
        with pytest.raises(BudgetError, match=f"window {window}"):
            admit(ledger, f"s{window}", plan(0.1, 1e-8), asked="x", window=window)
    spent = ledger.account(ACCOUNT).spent
    assert set(spent) == {"2026-01-05", "2026-01-12"}
    assert len(set(map(repr, spent.values()))) == 1


def test_an_account_with_windows_takes_no_run_without_one_nor_the_other_way_round(url: str) -> None:
    ledger = with_account(url, window=WINDOW)
    open_account(ledger, "plain")
    with pytest.raises(RequestError, match="has a budget for each window of 7 days, but this run names none"):
        admit(ledger, "r")
    with pytest.raises(RequestError, match="has no windows"):
        admit(ledger, "r", account="plain", window="2026-01-05")
    assert ledger.state.plans == {}


def test_a_run_goes_from_admission_to_publication(url: str) -> None:
    ledger = with_account(url)
    run = finish(ledger, admit(ledger, "r"), FILES)
    assert (run.state, run.folders) == ("published", ("/nowhere/out",))
    assert list(run.times) == ["reserved", "started", "staged", "committed", "published"]
    late = Ledger.open(url)
    assert late.release(run) == FILES
    assert late.verify() == 8
    assert admit(late, "r").committed
    assert late.published(run, "/nowhere/out").folders == ("/nowhere/out",)
    assert late.published(run, "/else").folders == ("/nowhere/out", "/else")


def test_equal_files_are_kept_once(sqlite: str) -> None:
    ledger = with_account(sqlite)
    for number in range(3):
        finish(ledger, admit(ledger, f"{number}", plan(0.3, 1e-7, 3)), {"a": b"same", "b": b"same"})
    with ledger._database._engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM dp_contents").scalar_one() == 1


def test_a_superseded_attempt_cannot_stage_or_commit(url: str) -> None:
    ledger, other = with_account(url), Ledger.open(url)
    run, old = start(ledger, admit(ledger, "r"))
    seen = admit(other, "r")
    with pytest.raises(MovedOn):
        start(other, seen)  # the first attempt has not ended
    other.end(seen, attempt=old, how="its process is gone", destroyed=False)
    with pytest.raises(MovedOn):
        ledger.staged(run, attempt=old, files=STAGED)
    _, new = start(other, seen)
    for late in (
        lambda: ledger.staged(run, attempt=old, files=STAGED),
        lambda: ledger.commit(run, attempt=old, files=FILES),
        lambda: ledger.end(run, attempt=old, how="it failed", destroyed=True),
    ):
        with pytest.raises(MovedOn, match="nothing from this attempt is published"):
            late()
    other.staged(seen, attempt=new, files=STAGED)
    with pytest.raises(MovedOn):
        ledger.commit(run, attempt=old, files=FILES)
    other.commit(seen, attempt=new, files=FILES)
    with pytest.raises(MovedOn):
        ledger.commit(run, attempt=old, files={"weekly.parquet": b"other rows"})
    assert Ledger.open(url).release(admit(ledger, "r")) == FILES
    assert ledger._database.content(hashlib.sha256(b"other rows").hexdigest()) is None


def test_a_commit_must_hold_what_was_staged(url: str) -> None:
    ledger = with_account(url)
    run, attempt = start(ledger, admit(ledger, "r"))
    with pytest.raises(MovedOn):
        ledger.commit(run, attempt=attempt, files=FILES)
    run = ledger.staged(run, attempt=attempt, files=STAGED)
    with pytest.raises(MovedOn):
        ledger.commit(run, attempt=attempt, files={"manifest.json": b"{}"})
    assert ledger.commit(run, attempt=attempt, files=FILES).committed


@pytest.mark.parametrize("rule", ["reserved", FILTER])
@pytest.mark.parametrize("proofs", [[], [True], [True, True], [False], [False, True]])
def test_budget_comes_back_only_where_every_attempt_was_destroyed_unseen(
    sqlite: str, rule: str, proofs: list[bool]
) -> None:
    ledger = with_account(sqlite, rule=rule)
    run = admit(ledger, "r", plan(0.3, 1e-7, 3))
    charged = ledger.account(ACCOUNT).spent[""]
    for destroyed in proofs:
        run, attempt = start(ledger, run)
        ledger.end(run, attempt=attempt, how="it failed", destroyed=destroyed)
    stale = dataclasses.replace(run, attempts=())  # what the caller believes proves nothing
    run = ledger.abandon(stale)
    block = ledger.state.plans[ACCOUNT, "", run.plan]
    assert run.given_back == all(proofs)
    assert (block.rounds == {}) == all(proofs)
    assert ledger.account(ACCOUNT).spent[""] == (Cost() if all(proofs) and rule == FILTER else charged)
    again = admit(Ledger.open(sqlite), "r", plan(0.3, 1e-7, 3))
    assert (again.state, again.round, again.attempts) == ("reserved", 1 if all(proofs) else 2, ())


def test_what_is_at_work_or_released_cannot_be_given_up(url: str) -> None:
    ledger = with_account(url)
    run, attempt = start(ledger, admit(ledger, "r"))
    with pytest.raises(RequestError, match="has an unfinished attempt"):
        ledger.abandon(run)
    ledger.end(run, attempt=attempt, how="it failed", destroyed=True)
    ledger.abandon(run)
    with pytest.raises(RequestError, match="already abandoned"):
        ledger.abandon(run)
    done = finish(ledger, admit(ledger, "r"))
    with pytest.raises(RequestError, match="already has a release"):
        ledger.abandon(done)


@pytest.mark.parametrize("rule", ["reserved", FILTER])
def test_a_trial_says_what_admitting_would_do_and_leaves_the_ledger_as_it_was(url: str, rule: str) -> None:
    ledger = with_account(url, rule=rule)
    before, head = copy.deepcopy(ledger.account(ACCOUNT)), ledger.head
    of = plan(0.3, 1e-7, 2)
    assert admit(ledger, "r", of, trial=True).round == 1
    assert (ledger.account(ACCOUNT), ledger.head, ledger.run(ACCOUNT, "r")) == (before, head, None)
    assert Ledger.open(url).head == head
    run = admit(ledger, "r", of)
    charged = ledger.head
    assert admit(ledger, "r", of, trial=True) == run
    assert admit(ledger, "s", of, trial=True).round == 2
    with pytest.raises(BudgetError):
        admit(ledger, "t", plan(0.9, 1e-6), trial=True)
    with pytest.raises(RequestError):
        admit(ledger, "r", plan(0.2, 1e-7), trial=True)
    assert ledger.head == Ledger.open(url).head == charged


def test_a_run_that_was_given_up_may_be_admitted_for_something_else(url: str) -> None:
    ledger = with_account(url)
    ledger.abandon(admit(ledger, "r", plan(0.3, 1e-7, 3)))
    assert finish(ledger, admit(ledger, "r", plan(0.25, 1e-7))).state == "published"
    assert Ledger.open(url).state == ledger.state


def clock(*times: str) -> Callable[[], str]:
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_a_clock_that_goes_backwards_changes_nothing(url: str) -> None:
    Ledger.create(url, clock=clock("2026-01-02"))
    ledger = Ledger.open(url, clock=clock("2026-01-01", "1970-01-01", "9999-12-31", "", "never", "2025-01-01"))
    open_account(ledger)
    run = finish(ledger, admit(ledger, "r"), FILES)
    late = Ledger.open(url, clock=clock("1900-01-01"))
    assert admit(late, "r") == run
    assert late.release(run) == FILES
    assert late.verify() == 8


def test_all_that_an_attempt_does_bears_the_time_of_its_beginning(sqlite: str) -> None:
    """How long an attempt takes tells how many rows there are."""
    with_account(sqlite)
    numbers = itertools.count()
    ledger = Ledger.open(sqlite, clock=lambda: f"moment {next(numbers)}")
    run, attempt = start(ledger, admit(ledger, "r"))
    ledger.submitted(run, attempt=attempt, job=EngineJob(name="r-1", runner="DataflowRunner"))
    ledger.freeze(run, attempt=attempt, name="weekly", content=b"rows")
    ledger.end(run, attempt=attempt, how="it failed", destroyed=False)
    run = finish(ledger, run, FILES)
    history = list(ledger.history)
    begins = [place for place, event in enumerate(history) if event.kind == events.ATTEMPT_STARTED]
    of_attempts = [history[begins[0] : begins[1]], history[begins[1] :]]
    assert [len(of_one) for of_one in of_attempts] == [4, 4]
    times = [{event.time for event in of_one} for of_one in of_attempts]
    assert [len(of_one) for of_one in times] == [1, 1]
    assert times[0] != times[1]
    # Whoever asks for it again, later and elsewhere, takes no time that depends on rows.
    ledger.published(run, "/else")
    assert ledger.history[-1].time not in times[1]


def test_replaying_the_events_gives_the_same_state(url: str) -> None:
    ledger = with_account(url, rule=FILTER)
    finish(ledger, admit(ledger, "r"))
    ledger.abandon(admit(ledger, "s", plan(0.3, 1e-7, 3)))
    for again in (Ledger.open(url), Ledger.accept(url)):
        assert again.state == ledger.state
        assert again.history == ledger.history


def test_what_others_write_is_seen_after_a_refresh(url: str) -> None:
    ledger, other = with_account(url), Ledger.open(url)
    admit(other, "r")
    assert ledger.run(ACCOUNT, "r") is None
    ledger.refresh()
    assert ledger.state == other.state
    ledger.refresh()
    assert ledger.state == other.state


def test_what_fails_in_the_middle_is_forgotten(url: str) -> None:
    ledger = with_account(url)
    before = ledger.head

    def stopped(number: int) -> list:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.admit(ACCOUNT, "r", plan=plan(), asked="x", content="c", params={}, records=stopped)
    assert ledger.head == before
    assert ledger.state == Ledger.open(url).state
    assert finish(ledger, admit(ledger, "r")).committed


def test_messages_hold_nothing_but_names_and_numbers(sqlite: str) -> None:
    """What is staged and released never stands in a message, whichever way an operation fails."""
    ledger = with_account(sqlite)
    secret = ledgers.SECRET
    run, attempt = start(ledger, admit(ledger, "r"))
    run = ledger.staged(run, attempt=attempt, files={"weekly": hashlib.sha256(secret.encode()).hexdigest()})
    with pytest.raises(DpError) as failed:
        ledger.commit(run, attempt=attempt, files={"other": secret.encode()})
    said = [str(failed.value)]
    run = ledger.commit(run, attempt=attempt, files={"weekly": secret.encode()})
    with ledger._database._engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER dp_contents_update")
        connection.exec_driver_sql("UPDATE dp_contents SET content = ?", (f"damaged {secret}".encode(),))
    with pytest.raises(LedgerError) as failed:
        ledger.release(run)
    said.append(str(failed.value))
    assert not [text for text in said if secret in text]


def test_opening_thousands_of_events(sqlite: str, record_property: Callable[[str, object], None]) -> None:
    """Prints how long it takes; what is asserted is that all of them are there."""
    from dp_pipelines.ledger import events
    from dp_pipelines.ledger.events import chained

    ledger = with_account(sqlite, epsilon=1e5, delta=0.9)
    admit(ledger, "first", plan(0.1, 1e-8))
    frozen = next(event for event in ledger.history if event.kind == events.PLAN_FROZEN).content
    reserved = ledger.head.content
    with ledger._database.writing() as writer:
        last = ledger.head
        for number in range(1250):
            asked = {"asked": f"{number}"}
            name = {"run_id": f"r{number}"}
            attempt = {"account": ACCOUNT, **name, "attempt": "a"}
            for kind, body in [
                (events.PLAN_FROZEN, {**frozen, **asked}),
                (events.RUN_RESERVED, {**reserved, **asked, **name}),
                (
                    events.ATTEMPT_STARTED,
                    {**attempt, "staging": "/s", "where": {}, "admitted": [asked["asked"], reserved["content"], 1]},
                ),
                (events.RUN_STAGED, {**attempt, "files": {}}),
            ]:
                last = chained(last, kind, body, "t")
                writer.append(last)
    begun = time.perf_counter()
    opened = Ledger.open(sqlite)
    record_property("seconds to open 5,000 events", time.perf_counter() - begun)
    print(f"opened {opened.head.seq} events in {time.perf_counter() - begun:.2f} s")
    assert opened.head.seq == 5004
    begun = time.perf_counter()
    admit(opened, "one more", plan(0.1, 1e-8), asked="more")
    print(f"admitted one more in {time.perf_counter() - begun:.3f} s")
