"""A run that a ledger remembers: charged once, released once, given back for ever, and refused where it must be.

In: the shop. Out: folders, ledgers, messages. Holds: runs are real. Not covered: kills (`test_kills`), what an account
adds up (`tests/ledger`).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.run import ledgered_run, pipelines, production
from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger import events
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger, MovedOn
from dp_pipelines.release import staging
from tests.helpers import warm_process
from tests.jobs.conftest import Said, Shop, purchases, stage
from tests.jobs.run.test_run import damage

Call = Callable[..., Said]


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    """A folder's files."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def opened(shop: Shop) -> Ledger:
    """The shop's ledger."""
    return Ledger.open(str(shop.folder / DEFAULT_NAME))


def kinds(shop: Shop) -> list[str]:
    """What has happened in the shop's ledger."""
    return [event.kind for event in opened(shop).history]


def killed(shop: Shop, step: str) -> list[str]:
    """A run of the shop whose process is killed after a step; the command that mends it."""
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    warm_process.kill(command, folder=shop.folder, point=step, when="after")
    return command


def kill_at_draw(shop: Shop, command: list[str], which: int) -> None:
    """Run a command in a process that is killed when the ledger has kept a number of draws.

    Args:
        shop: with the job.
        command: of the run.
        which: the number of draws.
    """
    warm_process.kill(command, folder=shop.folder, point=events.DRAW_FROZEN, when="after", which=which)


def the_run(shop: Shop, run_id: str = "one") -> Run:
    """A run of the shop."""
    run = opened(shop).run("shop", run_id)
    assert run is not None
    return run


def the_run_of(shop: Shop) -> Run:
    """The only run of the shop."""
    (run,) = opened(shop).state.runs.values()
    return run


def started(shop: Shop, *arguments: str) -> subprocess.Popen[str]:
    """The command line in a process that waits in the middle of its pipeline until the file `data/go` is there."""
    code = (
        "import pathlib, sys, time\nfrom dp_pipelines.release import staging\nreal = staging.write_in_order\n"
        "def wait(*given):\n"
        "    pathlib.Path('data/waits').touch()\n"
        "    while not pathlib.Path('data/go').exists(): time.sleep(0.02)\n"
        "    real(*given)\n"
        "staging.write_in_order = wait\n"
        "from dp_pipelines.jobs.cli.main import main\nsys.exit(main())"
    )
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, cwd=shop.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(found: Callable[[], object]) -> None:
    """Wait until something is so."""
    for _ in range(4800):
        if found():
            return
        time.sleep(0.05)
    raise AssertionError("waited for four minutes")


def test_the_same_id_gives_the_release_bit_for_bit_into_any_folder_at_no_charge(shop: Shop, call: Call) -> None:
    out, job = shop.folder / "out", shop.job
    assert call("run", job, "--output", out, "--run-id", "one").code == 0
    before, spent = files_of(out), opened(shop).account("shop").spent[""]
    for place in ("out", "other", "a/b/third"):
        said = call("run", job, "--output", shop.folder / place, "--run-id", "one")
        assert (said.code, said.err) == (0, "")
        assert "was already published" in said.out
        assert files_of(shop.folder / place) == before
    assert opened(shop).account("shop").spent[""] == spent
    assert kinds(shop).count(events.RUN_RESERVED) == kinds(shop).count(events.RUN_COMMITTED) == 1
    assert the_run(shop).folders == tuple(str(shop.folder / place) for place in ("out", "other", "a/b/third"))


def test_a_release_of_the_same_run_by_another_ledger_is_in_the_way_before_anything_is_charged(
    shop: Shop, call: Call
) -> None:
    command = ("run", shop.job, "--output", shop.folder / "out")
    assert call(*command).code == 0
    other = shop.folder / "data" / "other.sqlite"
    assert call("ledger", "init", shop.job, "--ledger", other).code == 0
    said = call(*command, "--ledger", other)
    assert (said.code, said.err.splitlines()[-1]) == (
        2, f"error: output {str(shop.folder / 'out')!r}: already exists; choose a new folder, or remove it",
    )  # fmt: skip
    assert Ledger.open(str(other)).state.runs == {}


def add_file(shop: Shop, name: str = "part-2.parquet") -> pathlib.Path:
    """A copy of a file of the shop's rows, under another name."""
    return pathlib.Path(shutil.copy(shop.folder / "data" / "part-0.parquet", shop.folder / "data" / name))


def test_a_stored_release_says_of_which_day_it_is_and_which_files_are_new(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    new = add_file(shop)
    said = call("run", shop.job, "--output", shop.folder / "other")
    day = the_run_of(shop).times["started"][:10]
    assert (said.code, len(said.err.splitlines())) == (0, 1)
    assert f"note: this is the release of {day}, of the files that were there then; since then" in said.err
    assert "1 file is new (data/part-2.parquet); to release anew, write runs: 2 into the job's budget" in said.err
    assert f"already published and drawn on {day}" in said.out
    assert (
        f'oise drawn on <bdi><span class="t">{day}</span></bdi>' in (shop.folder / "other" / "report.html").read_text()
    )
    assert day in call("runs", shop.job).out
    assert files_of(shop.folder / "out") == files_of(shop.folder / "other")
    assert json.loads(call("run", shop.job, "--output", shop.folder / "out", "--json").out)["drawn"] == day
    new.unlink()
    (shop.folder / "data" / "part-1.parquet").unlink()
    assert "1 file is gone (data/part-1.parquet)" in call("run", shop.job, "--output", shop.folder / "third").err


def test_of_a_command_that_is_refused_nothing_is_said_about_a_stored_release(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one").code == 0
    add_file(shop)
    shop.write(where="price > 1")
    said = call("run", shop.job, "--output", shop.folder / "other", "--run-id", "one")
    assert said.code == 2
    assert "this is the release of" not in said.err


def test_other_rows_in_files_of_the_same_names_change_no_message(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    file = shop.folder / "data" / "part-1.parquet"
    pa.parquet.write_table(purchases(9, rows=40), file)
    os.utime(file, (0, 0))
    assert call("run", shop.job, "--output", shop.folder / "other").err == ""


def test_a_plan_of_several_runs_says_how_many_are_left_for_new_files(shop: Shop, call: Call) -> None:
    job = shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3})
    assert call("run", job, "--output", shop.folder / "out", "--run-id", "one").code == 0
    for number in range(2, 6):
        add_file(shop, f"part-{number}.parquet")
    said = call("run", job, "--output", shop.folder / "other", "--run-id", "one")
    assert "4 files are new (data/part-2.parquet, data/part-3.parquet, data/part-4.parquet and 1 more)" in said.err
    assert "give another --run-id, of which the plan has 2 left" in said.err


def test_an_output_with_an_older_release_says_of_which_run_and_day_it_is(shop: Shop, call: Call) -> None:
    job = shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 2})
    assert call("run", job, "--output", shop.folder / "out", "--run-id", "one").code == 0
    said = call("run", job, "--output", shop.folder / "out", "--run-id", "two")
    assert said.code == 2
    assert f"holds another run's release, of run 'one', drawn on {the_run(shop).times['started'][:10]};" in said.err
    assert opened(shop).run("shop", "two") is None


def test_a_release_whose_folder_was_deleted_comes_back(shop: Shop, call: Call) -> None:
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out).code == 0
    before = files_of(out)
    shutil.rmtree(out)
    assert call("run", shop.job, "--output", out).code == 0
    assert files_of(out) == before


def test_the_release_is_given_back_after_the_rows_are_gone(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    for number in range(2):
        damage(shop.folder / "data" / f"part-{number}.parquet")
    assert call("run", shop.job, "--output", shop.folder / "other").code == 0
    assert files_of(shop.folder / "other") == files_of(shop.folder / "out")


@pytest.mark.parametrize("what", ["budget", "where", "stage", "param"])
def test_the_same_id_for_something_else_is_refused(shop: Shop, call: Call, what: str) -> None:
    changed: dict[str, Any] = {"params": {"low": {"type": "float"}}, "where": "price > {low}"}
    first = ("run", shop.write(**changed), "--run-id", "one", "--param", "low=5")
    assert call(*first, "--output", shop.folder / "out").code == 0
    before = kinds(shop)
    other = {
        "budget": {**changed, "budget": {"epsilon": 7.0, "delta": 1e-5}},
        "where": {**changed, "where": "price >= {low}"},
        "stage": {**changed, "stages": {"weekly": stage(partition_by=["store"])}},
        "param": changed,
    }[what]
    low = "low=6" if what == "param" else "low=5"
    said = call("run", shop.write(**other), "--run-id", "one", "--param", low, "--output", shop.folder / "other")
    assert (said.code, said.out) == (2, "")
    assert "one run id stands for one release" in said.err
    assert kinds(shop) == before
    assert not (shop.folder / "other").exists()


def test_as_many_runs_as_were_planned_are_admitted_and_no_more(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3})
    for number in range(3):
        assert call("run", job, "--output", shop.folder / f"out{number}", "--run-id", f"w{number}").code == 0
    assert [the_run(shop, f"w{number}").round for number in range(3)] == [1, 2, 3]
    before = kinds(shop)
    # No row can be read any more, and no pipeline is built.
    for number in range(2):
        damage(shop.folder / "data" / f"part-{number}.parquet")
    built: list[object] = []
    monkeypatch.setattr(production, "run_pipeline", lambda *given: built.append(given))
    said = call("run", job, "--output", shop.folder / "a" / "out3", "--run-id", "w3")
    assert (said.code, said.out) == (3, "")
    assert "is one too many: the plan's budget covers 3 runs" in said.err
    assert built == []
    assert kinds(shop) == before
    assert not (shop.folder / "a").exists()
    # The others are still there.
    assert call("run", job, "--output", shop.folder / "again", "--run-id", "w1").code == 0
    assert files_of(shop.folder / "again") == files_of(shop.folder / "out1")


def test_a_run_that_is_admitted_does_build_a_pipeline(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []
    monkeypatch.setattr(production, "run_pipeline", lambda *given: built.append(given))
    call("run", shop.job, "--output", shop.folder / "out")
    assert len(built) == 1


def test_a_failed_run_keeps_its_charge_and_the_same_command_succeeds_later(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (shop.folder / "data" / "part-1.parquet").read_bytes()
    damage(shop.folder / "data" / "part-1.parquet")
    command = ("run", shop.job, "--output", shop.folder / "out", "--run-id", "one")
    for _ in range(2):
        assert call(*command).code == 1
        assert the_run(shop).state == "reserved"
        assert shop.left() == []
    spent = opened(shop).account("shop").spent[""]
    assert spent.epsilon > 0
    (shop.folder / "data" / "part-1.parquet").write_bytes(whole)
    assert call(*command).code == 0
    assert opened(shop).account("shop").spent[""] == spent
    run = the_run(shop)
    assert [attempt.ended for attempt in run.attempts] == ["it failed", "it failed", "committed"]
    assert all(attempt.destroyed for attempt in run.attempts[:2])
    assert kinds(shop).count(events.RUN_RESERVED) == 1


def test_a_complete_attempt_of_a_dead_process_is_released_and_not_drawn_again(shop: Shop, call: Call) -> None:
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    warm_process.kill(command, folder=shop.folder, point="run_staged", when="after")
    (folder,) = shop.folder.glob(".out.staging-*")
    staged = (folder / "weekly.parquet").read_bytes()
    assert call(*command).code == 0
    assert (shop.folder / "out" / "weekly.parquet").read_bytes() == staged
    assert len(the_run(shop).attempts) == 1
    assert shop.left()[0] == "out"


def test_a_complete_attempt_that_was_changed_since_is_destroyed(shop: Shop, call: Call) -> None:
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    warm_process.kill(command, folder=shop.folder, point="run_staged", when="after")
    (folder,) = shop.folder.glob(".out.staging-*")
    (folder / "weekly.parquet").write_bytes(b"something else")
    assert call(*command).code == 0
    assert [attempt.destroyed for attempt in the_run(shop).attempts] == [True, False]
    assert call(*command).code == 0
    assert shop.left()[0] == "out"


def test_an_attempt_that_another_one_has_followed_cannot_publish(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def superseded(*given: Any) -> Mapping[str, pathlib.Path]:
        files = pipelines.run_pipeline(*given)
        ledger = opened(shop)
        run = ledger.state.runs["shop", "one"]
        run = ledger.end(run, attempt=run.attempts[-1].name, how="taken for dead", destroyed=False)
        ledger.start(run, attempt="next", staging=str(shop.folder / "none"), where=processes.here())
        return files

    monkeypatch.setattr(production, "run_pipeline", superseded)
    command = ("run", shop.job, "--output", shop.folder / "out", "--run-id", "one")
    said = call(*command)
    assert (said.code, said.out) == (1, "")
    assert "nothing from this attempt is published" in said.err
    assert shop.left() == []
    assert [attempt.name for attempt in the_run(shop).attempts][1:] == ["next"]
    # The one that followed was of this process, which does not work on it: the same command goes on.
    monkeypatch.undo()
    assert call(*command).code == 0
    assert kinds(shop).count(events.RUN_COMMITTED) == 1


@pytest.mark.slow
def test_two_processes_with_one_id_give_one_release(shop: Shop) -> None:
    begun = [started(shop, "run", "job.yaml", "--output", f"out{n}", "--run-id", "one") for n in (0, 1)]
    begun.append(started(shop, "run", "job.yaml", "--output", "out0", "--run-id", "one"))
    wait_for((shop.folder / "data" / "waits").exists)
    time.sleep(1)
    assert all(process.poll() is None for process in begun)
    (shop.folder / "data" / "go").touch()
    for process in begun:
        out, err = process.communicate(timeout=240)
        assert (process.returncode, err) == (0, "")
        assert "orders" in out
    assert files_of(shop.folder / "out0") == files_of(shop.folder / "out1")
    assert len(the_run(shop).attempts) == 1
    assert kinds(shop).count(events.RUN_COMMITTED) == 1
    assert sorted({path.split("/")[0] for path in shop.left()}) == ["out0", "out1"]


@pytest.mark.slow
def test_a_run_that_is_at_work_cannot_be_abandoned(shop: Shop, call: Call) -> None:
    process = started(shop, "run", "job.yaml", "--output", "out", "--run-id", "one")
    wait_for((shop.folder / "data" / "waits").exists)
    said = call("runs", shop.job, "--abandon", "one")
    assert (said.code, said.out) == (2, "")
    assert f"process {process.pid} is working on it" in said.err
    (shop.folder / "data" / "go").touch()
    process.communicate(timeout=240)
    assert process.returncode == 0
    said = call("runs", shop.job, "--abandon", "one")
    assert said.code == 2
    assert "cannot be abandoned" in said.err
    assert call("runs", shop.job, "--abandon", "two").code == 2


@pytest.mark.parametrize(
    ("step", "when", "back"),
    [
        pytest.param("run_reserved", "after", True, marks=pytest.mark.slow),
        ("stage a file", "after", True),
        pytest.param("run_staged", "after", True, marks=pytest.mark.slow),
    ],
)
def test_a_dead_run_that_is_abandoned_gives_its_round_back_where_its_staging_was_destroyed(
    shop: Shop, call: Call, step: str, when: str, back: bool
) -> None:
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    warm_process.kill(command, folder=shop.folder, point=step, when=when)
    said = call("runs", shop.job, "--abandon", "one")
    assert said.code == 0
    assert "a run of the same plan (weekly: orders, revenue; 1 of 1 runs are left) may use it" in said.out
    assert shop.left() == []
    assert the_run(shop).given_back is back
    # Its only round is free: for another id, and then not for the first one.
    assert call(*command[:-1], "two").code == 0
    assert call("run", shop.job, "--output", shop.folder / "third", "--run-id", "one").code == 3


def test_a_run_whose_staging_has_vanished_keeps_its_charge_when_it_is_abandoned(shop: Shop, call: Call) -> None:
    command = killed(shop, "stage a file")
    (folder,) = shop.folder.glob(".out.staging-*")
    folder.rename(shop.folder / "kept by somebody")
    said = call("runs", shop.job, "--abandon", "one")
    assert said.code == 0
    assert "its charge stays" in said.out
    assert call(*command[:-1], "two").code == 3


def test_an_abandoned_id_that_is_asked_for_again_is_a_new_run(shop: Shop, call: Call) -> None:
    command = killed(shop, "attempt_started")
    call("runs", shop.job, "--abandon", "one")
    assert the_run(shop).state == "abandoned"
    said = call(*command)
    assert (said.code, the_run(shop).state) == (0, "published") if the_run(shop).given_back else (3, "abandoned")


@pytest.mark.slow
def test_an_attempt_on_another_machine_that_has_not_ended_is_left_alone(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = killed(shop, "stage a file")
    here = processes._machine()
    monkeypatch.setattr(processes, "_machine", lambda: {**here, "machine": "other", "boot": "other"})
    for said in (call(*command), call("runs", shop.job, "--abandon", "one")):
        assert (said.code, said.out) == (1, "")
        assert "run the same command there" in said.err
    assert len(list(shop.folder.glob(".out.staging-*"))) == 1
    # The same machine, started anew: the process is gone.
    monkeypatch.setattr(processes, "_machine", lambda: {**here, "machine": here["machine"], "boot": "other"})
    assert call(*command).code == (0 if here["machine"] else 1)


@pytest.mark.slow
def test_a_run_whose_machine_is_gone_goes_on_elsewhere_once_its_owner_says_so(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = killed(shop, "stage a file")
    here = processes._machine()
    monkeypatch.setattr(processes, "_machine", lambda: {**here, "machine": "other", "boot": "other"})
    said = call("runs", shop.job, "--gone", "one")
    assert (said.code, said.err) == (0, "")
    assert not list(shop.folder.glob(".out.staging-*"))
    assert call("runs", shop.job, "--gone", "one").code == 2
    assert call(*command).code == 0
    assert len(the_run(shop).attempts) == 2
    assert [event.kind for event in Ledger.open(str(shop.folder / DEFAULT_NAME)).history].count("run_reserved") == 1


def test_files_that_were_changed_in_a_published_folder_are_refused_and_come_back_elsewhere(
    shop: Shop, call: Call
) -> None:
    out = shop.folder / "out"
    command = ("run", shop.job, "--run-id", "one", "--output")
    assert call(*command, out).code == 0
    before = files_of(out)
    for name in ("weekly.parquet", "report.html", "manifest.json"):
        (out / name).write_bytes(before[name] + b"\n")
        said = call(*command, out)
        assert (said.code, said.out) == (2, "")
        assert "its files differ from those that were released" in said.err
        (out / name).write_bytes(before[name])
    (out / "weekly.parquet").unlink()
    assert call(*command, out).code == 2
    assert call(*command, shop.folder / "other").code == 0
    assert files_of(shop.folder / "other") == before


def test_a_run_without_a_ledger_says_so_everywhere(shop: Shop, call: Call) -> None:
    shop.without_ledger()
    said = call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none")
    assert said.code == 0
    assert "not accounted across runs" in said.out
    assert json.loads((shop.folder / "out" / "manifest.json").read_text())["ledger"]["head"] is None
    assert "not accounted across runs" in (shop.folder / "out" / "report.html").read_text().lower()
    assert not (shop.folder / DEFAULT_NAME).exists()


def test_the_manifest_names_the_ledgers_head_which_is_an_event_before_the_commit(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    content = json.loads((shop.folder / "out" / "manifest.json").read_text())
    ledger = opened(shop)
    head = content["ledger"]["head"]
    event = ledger.history[head["seq"] - 1]
    assert (event.hash, event.kind) == (head["hash"], events.RUN_STAGED)
    assert content["ledger"]["id"] == ledger.state.ledger
    assert content["ledger"]["spent"]["epsilon"] == pytest.approx(content["accounted"]["epsilon"])
    assert content["privacy_unit"] == "customer"


@pytest.mark.parametrize("split", ["linear", pytest.param("exponential", marks=pytest.mark.slow)])
def test_a_round_is_the_number_of_its_admission_and_is_kept_on_retry(shop: Shop, call: Call, split: str) -> None:
    job = shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3, "split": split})
    command = ["run", str(job), "--output", str(shop.folder / "out1"), "--run-id", "w1"]
    warm_process.kill(command, folder=shop.folder, point="stage a file", when="before")
    assert call("run", job, "--output", shop.folder / "out2", "--run-id", "w2").code == 0
    assert call(*command).code == 0
    assert call("run", job, "--output", shop.folder / "out3", "--run-id", "w3").code == 0
    contents = [json.loads((shop.folder / f"out{n}" / "manifest.json").read_text()) for n in (1, 2, 3)]
    assert [content["ledger"]["round"] for content in contents] == [1, 2, 3]
    costs = [content["accounted_one_run"]["epsilon"] for content in contents]
    assert costs[0] < costs[1] < costs[2]
    changes = [
        record["l2_squared"] for content in contents for record in content["mechanisms"] if "l2_squared" in record
    ]
    assert len(set(changes)) >= 3 or len({str(content["mechanisms"]) for content in contents}) == 3


def test_a_failure_to_write_down_the_end_of_an_attempt_does_not_hide_what_failed(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*given: Any, **options: Any) -> None:
        raise MovedOn("the ledger is gone")

    monkeypatch.setattr(Ledger, "end", gone)
    damage(shop.folder / "data" / "part-1.parquet")
    said = call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one")
    assert said.code == 1
    assert "part-1.parquet" in said.err
    assert the_run(shop).state == "started"


def test_a_process_is_told_apart_from_a_later_one_with_its_number() -> None:
    here = processes.here()
    assert processes.alive(here) is True
    assert processes.same(here)
    assert processes.alive({**here, "began": "1"}) is False
    assert processes.alive({**here, "numbers": "pid:[1]"}) is None
    assert processes.alive({**here, "boot": "x", "host": "y"}) is None
    assert processes.alive({**here, "boot": ""}) is None
    assert processes.alive({}) is None
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.alive({**here, "pid": child.pid, "began": processes._began(child.pid)}) is False  # a zombie
    child.wait()


def test_staging_that_cannot_be_removed_stops_the_next_attempt(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = killed(shop, "stage a file")
    monkeypatch.setattr(ledgered_run.staging, "destroy", lambda folder: False)
    said = call(*command)
    assert said.code == 1
    assert "cannot be removed; remove it, unseen" in said.err
    monkeypatch.undo()
    assert staging.destroy(str(shop.folder / "none")) is False
    assert call(*command).code == 0


def test_a_correction_takes_a_run_that_was_set_aside_and_the_last_runs_are_announced(shop: Shop, call: Call) -> None:
    job = shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 5, "spare": 1})
    for name, *more in (["one"], ["one-corrected", "--spare"]):
        said = call("run", job, "--output", shop.folder / name, "--run-id", name, *more)
        assert (said.code, said.err) == (0, "")
    assert [the_run(shop, name).round for name in ("one", "one-corrected")] == [1, 6]
    for name in ("two", "three", "four"):
        last = call("run", job, "--output", shop.folder / name, "--run-id", name)
    assert last.err.startswith("note: 1 run of the 6 of this plan is left; docs/schedule.md says what then")
    assert "1 run paid for and not used" in call("ledger", "show", job).out
    without = shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 5})
    refused = call("run", without, "--output", shop.folder / "x", "--run-id", "x", "--spare")
    assert (refused.code, "--spare: is for a budget with spare runs" in refused.err) == (2, True)


def test_runs_that_are_spare_are_counted_alike_wherever_runs_are_counted(shop: Shop, call: Call) -> None:
    job = shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 5, "spare": 2})
    together = "for all 7 runs together, of them 2 spare"
    assert call("plan", job).out.count(together) == 2
    said = [call("run", job, "--output", shop.folder / name, "--run-id", name) for name in ("a", "b", "c", "d", "e")]
    assert [one.code for one in said] == [0, 0, 0, 0, 0]
    for number, one in enumerate(said, start=1):
        assert together in one.out
        assert f"run {number} of 7, of them 2 spare; the runs so far used" in one.out
    assert said[-1].err.startswith("note: 2 runs of the 7 of this plan are left, of them 2 spare; docs/schedule.md")
    assert "This is run 5 of 7, of them 2 spare" in (shop.folder / "e" / "report.html").read_text(encoding="utf-8")
    assert "5 of 7 runs used" in (shown := call("ledger", "show", job).out)
    assert "2 runs paid for and not used, of them 2 spare" in shown
    refused = call("run", job, "--output", shop.folder / "f", "--run-id", "f")
    assert "covers 7 runs, of them 2 spare, used by" in refused.err
