"""Several schedulers at once, and processes that are killed: never above the cap, nothing acknowledged lost, none half there.

In: real processes, forked from one that has loaded everything. Holds: what a process was told it has writes to a log, with
which the ledger is compared.
"""

import pathlib
import random
import time

import pytest

from dp_pipelines.ledger import rules
from dp_pipelines.ledger.database import Database
from dp_pipelines.ledger.entries import FILTER, RESERVED, Cost
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers import ledgers
from tests.helpers.ledgers import ACCOUNT, plan, with_account

SMALL = (0.1, 1e-8, 1)


ALL = [(count, same, rule) for count in (2, 4) for same in (True, False) for rule in (RESERVED, FILTER)]
QUICK = [(2, True, RESERVED), (4, False, RESERVED), (4, True, FILTER)]


@pytest.mark.parametrize(
    ("count", "same", "rule"), [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in ALL]
)
def test_schedulers_at_once_never_overspend_and_use_all_of_it(url: str, spawn, tmp_path, count, same, rule) -> None:
    ledger = with_account(url, rule=rule, epsilon=0.8, delta=3e-7)
    account = ledger.account(ACCOUNT)
    made = plan()
    one = rules.plan_cost(account, made.accounted["epsilon"], made.accounted["delta"])
    one += rules.run_cost(account, made.mechanisms)
    room = min(account.cap.epsilon // one.epsilon, account.cap.delta // one.delta)
    assert 2 <= room <= 12
    ids = [f"r{number}" for number in range(room + 2)]
    lists = (
        [ids] * count
        if same
        else [[f"{process}-{name}" for name in ids[: room // count + 2]] for process in range(count)]
    )
    logs = [tmp_path / f"log{process}" for process in range(count)]
    begun = [spawn(ledgers.work_through, url, names, str(log)) for names, log in zip(lists, logs, strict=True)]
    for process in begun:
        process.join(60)
        assert process.exitcode == 0
    late = Ledger.open(url)
    late.verify()
    runs = late.state.runs
    assert len(runs) == room, "all of it is usable"
    assert late.account(ACCOUNT).spent[""] == Cost(epsilon=one.epsilon * room, delta=one.delta * room)
    assert all(run.committed for run in runs.values())
    kinds = [event.kind for event in late.history]
    assert kinds.count("run_reserved") == kinds.count("run_committed") == room
    told = [line.split() for log in logs for line in log.read_text().splitlines()]
    committed = [words for words in told if words[0] == "committed"]
    assert {name: digest for _, name, digest in committed} == {run.run_id: run.files["weekly"] for run in runs.values()}
    assert len(committed) == room


def kill_at_random(url: str, spawn, tmp_path: pathlib.Path, times: int) -> None:
    """Kill a process again and again while it admits and commits, and look after each kill."""
    with_account(url, epsilon=1000.0, delta=1e-3)
    log, moments = tmp_path / "log", random.Random(times)
    log.touch()
    done = 0
    for turn in range(times):
        ids = [f"{turn // 3}-{number}" for number in range(400)]
        process = spawn(ledgers.work_through, url, ids, str(log), SMALL)
        before = log.stat().st_size
        for _ in range(400):  # until it has begun
            if log.stat().st_size > before or not process.is_alive():
                break
            time.sleep(0.005)
        time.sleep(moments.random() * 0.15)
        done += process.is_alive()
        process.kill()
        process.join()
        late = Ledger.open(url)
        late.verify()
        spent = Cost()
        for block in late.state.plans.values():
            spent += block.cost
        assert spent == late.account(ACCOUNT).spent.get("", Cost())
        for line in log.read_text().splitlines():
            what, run_id, *digest = line.split()
            run = late.run(ACCOUNT, run_id)
            assert run is not None, "acknowledged, and lost"
            assert what == "admitted" or run.files["weekly"] == digest[0]
    assert done >= times // 2, "most were killed at work"


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_moment_loses_nothing(url: str, spawn, tmp_path: pathlib.Path) -> None:
    kill_at_random(url, spawn, tmp_path, 20 if Database(url).is_sqlite else 10)


@pytest.mark.slow
@pytest.mark.long
def test_sixty_kills_lose_nothing(url: str, spawn, tmp_path: pathlib.Path) -> None:
    kill_at_random(url, spawn, tmp_path, 60)


def test_a_process_that_is_killed_while_it_makes_a_ledger_is_mended_by_the_same_command(url, spawn, tmp_path) -> None:
    moments = random.Random(8)
    for _ in range(8):
        process = spawn(ledgers.make_and_open, url, str(tmp_path / "log"))
        time.sleep(moments.random() * 0.06)
        process.kill()
        process.join()
        if Ledger.exists(url):
            break
    assert Ledger.open_or_create(url).verify() == 1


def test_processes_that_make_the_same_ledger_make_one(url: str, spawn, tmp_path: pathlib.Path) -> None:
    logs = [tmp_path / f"log{number}" for number in range(4)]
    for process in [spawn(ledgers.make_and_open, url, str(log)) for log in logs]:
        process.join(60)
        assert process.exitcode == 0
    assert {log.read_text() for log in logs} == {Ledger.open(url).state.ledger}
