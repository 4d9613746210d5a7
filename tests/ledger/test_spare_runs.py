"""Runs of a plan that are set aside for corrections, and when the last run of a plan will be.

In: a ledger with a plan of several runs. Out: rounds, refusals, sentences. Not covered: the option of the command
(tests/jobs/run/test_ledgered_run.py).
"""

import datetime
import pathlib

import pytest

from dp_pipelines.errors import BudgetError
from dp_pipelines.ledger import release_list
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers import ledgers
from tests.helpers.ledgers import ACCOUNT


def admit(ledger: Ledger, run_id: str, *, runs: int, spare_runs: int = 0, spare: bool = False) -> Run:
    """Charge a run of a plan of some regular runs and some for corrections."""
    made = ledgers.plan(0.3, 1e-7, runs + spare_runs)
    return ledger.admit(
        ACCOUNT, run_id, plan=made, asked="a", content=run_id, params={}, spare_runs=spare_runs, spare=spare,
        records=lambda number: made.round(number).mechanisms,
    )  # fmt: skip


def test_corrections_have_runs_of_their_own_that_no_other_run_takes(tmp_path: pathlib.Path) -> None:
    ledger = ledgers.with_account(str(tmp_path / "ledger.sqlite"))
    rounds = [admit(ledger, name, runs=2, spare_runs=1).round for name in ("a", "b")]
    with pytest.raises(
        BudgetError, match=r"covers 3 runs, of them 1 spare, used by .* take the spare run with --spare; else"
    ):
        admit(ledger, "c", runs=2, spare_runs=1)
    correction = admit(ledger, "a-corrected", runs=2, spare_runs=1, spare=True)
    assert [*rounds, correction.round] == [1, 2, 3]
    assert admit(ledger, "a-corrected", runs=2, spare_runs=1) == correction  # a retry need not say it
    with pytest.raises(BudgetError, match="covers 1 spare run, used by "):
        admit(ledger, "b-corrected", runs=2, spare_runs=1, spare=True)
    with pytest.raises(BudgetError) as refused:
        admit(ledger, "c", runs=2, spare_runs=1)
    assert "--spare" not in str(refused.value)
    replayed = Ledger.open(str(tmp_path / "ledger.sqlite")).block(ACCOUNT, "", "a")
    assert replayed is not None
    assert (replayed.spare, replayed.free(), replayed.free(spare=True)) == (1, [], [])


def test_a_plan_without_spare_runs_is_frozen_as_before(tmp_path: pathlib.Path) -> None:
    ledger = ledgers.with_account(str(tmp_path / "ledger.sqlite"))
    admit(ledger, "a", runs=3)
    block = ledger.block(ACCOUNT, "", "a")
    assert block is not None
    assert "spare" not in block.body
    assert (block.free(), block.free(spare=True)) == ([2, 3], [])


@pytest.mark.parametrize(
    ("days", "runs", "words"),
    [
        ((0, 7, 14), 5, "at the pace so far, a run every 7 days, the last one is about 2026-02-02"),
        ((0, 1), 10, "at the pace so far, a run every day, the last one is about 2026-01-14"),
        ((0, 0, 0), 5, ""),  # several runs of one day tell no pace
        ((0,) * 50 + (1,), 100, ""),  # nor does a backfill with one run after it
        ((0,) * 24 + (1,) * 24, 100, ""),  # nor runs of every hour
        ((0,) * 20 + (7, 14, 21), 25, "at the pace so far, a run every 7 days, the last one is about 2026-02-09"),
        ((0, 1, 2, 30, 31), 7, "at the pace so far, a run every day, the last one is about 2026-02-07"),
        ((0, 0, 1, 1), 7, "at the pace so far, a run every 0.5 days, the last one is about 2026-01-07"),
        ((0,), 5, ""),
        ((0, 7), 2, ""),
    ],
)
def test_the_pace_of_the_runs_tells_when_the_last_one_is(
    tmp_path: pathlib.Path, days: tuple[int, ...], runs: int, words: str
) -> None:
    now = [datetime.datetime(2026, 1, 5, 3, tzinfo=datetime.UTC)]
    ledger = Ledger.create(str(tmp_path / "ledger.sqlite"), clock=lambda: now[0].strftime("%Y-%m-%dT%H:%MZ"))
    ledgers.open_account(ledger)
    for number, day in enumerate(days):
        now[0] = datetime.datetime(2026, 1, 5, 3, tzinfo=datetime.UTC) + datetime.timedelta(days=day)
        admit(ledger, f"run {number}", runs=runs)
    block = ledger.block(ACCOUNT, "", "a")
    assert block is not None
    assert release_list.ending_in_words(ledger.state, block) == words


def test_spare_runs_tell_no_pace(tmp_path: pathlib.Path) -> None:
    now = ["2026-01-05T03:00Z"]
    ledger = Ledger.create(str(tmp_path / "ledger.sqlite"), clock=lambda: now[0])
    ledgers.open_account(ledger)
    for day, spare in ((5, False), (6, True), (8, True), (12, False), (13, True)):
        now[0] = f"2026-01-{day:02}T03:00Z"
        admit(ledger, f"run {day}", runs=4, spare_runs=3, spare=spare)
    block = ledger.block(ACCOUNT, "", "a")
    assert block is not None
    words = "at the pace so far, a run every 7 days, the last one is about 2026-01-26"
    assert release_list.ending_in_words(ledger.state, block) == words


def test_only_the_last_runs_of_many_are_announced(tmp_path: pathlib.Path) -> None:
    ledger = ledgers.with_account(str(tmp_path / "ledger.sqlite"))
    announced = []
    for number in range(6):
        admit(ledger, str(number), runs=6, spare_runs=1)
        block = ledger.block(ACCOUNT, "", "a")
        assert block is not None
        announced.append(release_list.is_ending(block))
    assert announced == [False, False, False, False, True, True]
