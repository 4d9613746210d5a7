"""Kill -9 of task managers, Python workers and drivers in the middle of a step, on a real Flink: one release, one charge.

In: the jar that `make test-flink` builds; workers in processes of their own, which stop at a step until they are killed
(`points`). Out: the published folder, the ledger, the cluster's own list of jobs. Holds: everything is killed with work in its
hands, never at a time that the machine's speed decides. Not covered: a job manager that is killed; more than one machine.
Slow: skipped where the jar is not built.
"""

import contextlib
import itertools
import json
import pathlib
import random
import signal
import time
import urllib.request
from collections.abc import Iterator

import pyarrow.parquet
import pytest

from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.engines import cases, points, setups
from tests.engines.flink.cluster import Cluster, cluster
from tests.engines.points import STEPS, Points, Standing
from tests.engines.test_flink import jobs, until
from tests.helpers import forks
from tests.helpers.forks import Forked, command

pytestmark = pytest.mark.slow

PATIENCE = 300.0

DEATHS = [
    pytest.param("Python worker", STEPS, id="Python worker in every step"),
    pytest.param("task manager", ("bound", "write"), id="task manager before and after the draws"),
    pytest.param("task manager", STEPS, id="task manager in every step", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    # As docs/runners.md recommends. A job begins again after a death in every step, and after some that the engine adds.
    with cluster(setups.built(setups.FLINK_JAR), attempts=30, slot_wait=10_000) as made:
        yield made


def a_job(folder: pathlib.Path, **changes: object) -> pathlib.Path:
    """Several released partitions in every place, so that two draws can be told apart."""
    numbers = random.Random(9)
    customers = [numbers.randrange(3000) for _ in range(20_000)]
    rows = cases.purchases(customers, [f"p{numbers.randrange(40)}" for _ in customers])
    budget = {"epsilon": 8.0, "delta": 1e-5}
    return cases.job(folder, [rows.slice(0, 9000), rows.slice(9000)], budget=budget, **changes)


@contextlib.contextmanager
def at_work(folder: pathlib.Path, options: list[str]) -> Iterator[Forked]:
    """The command of a job, in a process of its own."""
    process = Forked("run", folder / "job.yaml", "--output", folder / "out", "--runner", "flink", *options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def standing(watched: Points, step: str, driver: Forked) -> Standing:
    """The worker that stands at a step."""
    until(lambda: watched.reached(step) or driver.poll() is not None, PATIENCE)
    found = watched.reached(step)
    assert found is not None, driver.communicate()[1]
    return found


def released(folder: pathlib.Path, attempts: int) -> Run:
    """The run's one release and its one charge: in the folder, in the ledger; and nothing of it anywhere else."""
    assert {path.name for path in folder.iterdir()} - {"points"} == {"data", "job.yaml", DEFAULT_NAME, "out"}
    ledger = Ledger.open(str(folder / DEFAULT_NAME))
    [run] = ledger.state.runs.values()
    assert (run.state, len(run.attempts)) == ("published", attempts)
    out = folder / "out"
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == set(run.files)
    assert {name: (out / name).read_bytes() for name in run.files} == ledger.release(run)
    kinds = [event.kind for event in ledger.history]
    assert [kinds.count(kind) for kind in ("plan_frozen", "run_reserved", "run_committed")] == [1, 1, 1]
    assert ledger.account("shop").spent[""] == next(iter(ledger.state.plans.values())).cost
    assert ledger.verify() == len(kinds)
    ledger.close()
    return run


def killed(watched: Points, step: str, found: Standing, running: Cluster | None) -> bool:
    """Kill a worker at a step, or the task manager that it works for; whether the worker was alive and there until then.

    Args:
        watched: the steps.
        step: the one.
        found: who stands there.
        running: of whose task managers one is to be killed; None for the worker alone.
    """
    if running is None:
        return watched.killed(step)
    names = [name for name, one in running.processes.items() if one.pid == found["parent"]]
    for name in names:
        running.kill(name)
    alive = watched.stands(step)
    for name in names:
        assert running.processes[name].returncode == -signal.SIGKILL
        running.start_worker(name)
    return bool(names) and alive


def began_anew(running: Cluster, since: float) -> float:
    """When the cluster's job began to run again after some time: then the tasks of the attempt before have all ended."""
    found: list[float] = []

    def anew() -> bool:
        [job] = [name for name, state in jobs(running).items() if state not in ("FINISHED", "CANCELED")] or [None]
        if job is not None:
            with urllib.request.urlopen(f"http://{running.address}/jobs/{job}", timeout=60) as answer:
                told = json.load(answer)
            found.append(told["timestamps"]["RUNNING"] / 1000 if told["state"] == "RUNNING" else 0.0)
        return found[-1:] > [since]

    until(anew, PATIENCE)
    return found[-1]


@pytest.mark.parametrize(("what", "steps"), DEATHS)
def test_a_run_outlives_the_death_of_one_in_the_middle_of_a_step(
    what: str, steps: tuple[str, ...], running: Cluster, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "points").mkdir()
    watched, left, again = Points(tmp_path / "points"), [], dict[str, float]()
    a_job(tmp_path)
    with setups.worker_script(**{forks.POINTS: watched.folder}) as options:
        with at_work(tmp_path, [*setups.on(running, 2, ships=True), *options]) as driver:
            watched.arm(steps[0])
            for step, following in itertools.zip_longest(steps, steps[1:]):
                left.append(standing(watched, step, driver))
                # What the engine has ended itself by now was no death in the middle of this step: another one is awaited.
                while not killed(watched, step, left[-1], running if what == "task manager" else None):
                    watched.arm(step)
                    left.append(standing(watched, step, driver))
                died = time.time()
                if following is not None:
                    # Workers of the attempt that has failed with this one may still be at work: they pass by.
                    watched.arm(following, after=time.monotonic())
                again[step] = began_anew(running, died)
                if following is not None:
                    watched.take_any(following)
            _, said = driver.communicate(timeout=240)
        assert driver.returncode == 0, said
        released(tmp_path, attempts=1)
        # After each death came a new attempt, and in it the same step.
        assert {step: watched.begun_since(step, again[step]) for step in steps} == dict.fromkeys(steps, True)
        draws = watched.draws("weekly")
        table = pyarrow.parquet.read_table(tmp_path / "out" / "weekly.parquet")
        assert points.mixed(table, draws, ["product"]) == []
        # What was killed had drawn, and all of it was drawn again.
        assert sorted(draws) == list(range(8))
        assert min(len(tables) for tables in draws.values()) >= 2
        assert table.num_rows > 20
        watched.go_on()  # what stood when its task manager died wakes up late, and changes nothing
        until(lambda: not any(processes._began(found["worker"]) for found in left), PATIENCE)
    released(tmp_path, attempts=1)


def test_a_death_that_the_engine_does_not_mend_publishes_nothing_and_the_same_command_goes_on(
    tmp_path: pathlib.Path,
) -> None:
    """A Flink inside the job server has no restart strategy."""
    jar = f"--flink_job_server_jar={setups.built(setups.FLINK_JAR)}"
    (tmp_path / "points").mkdir()
    watched = Points(tmp_path / "points")
    watched.arm("write")
    a_job(tmp_path)
    with setups.worker_script(**{forks.POINTS: watched.folder}) as options:
        with at_work(tmp_path, [jar, "--parallelism=1", *options]) as driver:
            standing(watched, "write", driver)
            assert watched.killed("write")
            _, said = driver.communicate(timeout=240)
        assert driver.returncode == 1
        assert said.splitlines()[-1].startswith("error: the pipeline failed")
        assert {path.name for path in tmp_path.iterdir()} == {"data", "job.yaml", DEFAULT_NAME, "points"}
        ledger = Ledger.open(str(tmp_path / DEFAULT_NAME))
        [run] = ledger.state.runs.values()
        spent = ledger.account("shop").spent
        assert (run.state, spent[""]) == ("reserved", next(iter(ledger.state.plans.values())).cost)
        ledger.close()
        first = watched.draws("weekly")
        asked = ("run", tmp_path / "job.yaml", "--output", tmp_path / "out", "--runner", "flink", jar, *options)
        again = command(*asked, "--parallelism=1")
    assert again.returncode == 0, again.stderr
    assert released(tmp_path, attempts=2).run_id == run.run_id
    of_the_second_attempt_alone(tmp_path, watched, first)


def of_the_second_attempt_alone(folder: pathlib.Path, watched: Points, first: dict[int, list[pyarrow.Table]]) -> None:
    """The release holds draws that were made after the first attempt's, and none of those."""
    table = pyarrow.parquet.read_table(folder / "out" / "weekly.parquet")
    assert sorted(first) == list(range(8))
    second = {place: tables[len(first[place]) :] for place, tables in watched.draws("weekly").items()}
    assert points.mixed(table, second, ["product"]) == []
    assert points.mixed(table, first, ["product"]) != []  # two draws of all of 40 partitions are never alike


@pytest.mark.parametrize("kind", ["aggregate", "train"])
def test_the_same_command_ends_the_job_of_a_killed_driver_and_begins_anew(
    kind: str, running: Cluster, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "points").mkdir()
    watched = Points(tmp_path / "points")
    step = "examples" if kind == "train" else "write"
    watched.arm(step)
    if kind == "train":
        cases.examples_of_training(tmp_path)
    else:
        a_job(tmp_path)
    before = jobs(running)
    with setups.worker_script(**{forks.POINTS: watched.folder}) as options:
        asked = [*setups.on(running, 2, ships=True), *options]
        with at_work(tmp_path, asked) as driver:
            worker = standing(watched, step, driver)["worker"]
            [server] = children(driver.pid)
            driver.kill()
            driver.wait()
        until(lambda: not processes._began(server))
        [(job, state)] = [found for found in jobs(running).items() if found[0] not in before]
        assert state == "RUNNING"
        [folder] = tmp_path.glob(".out.staging-*")
        ledger = Ledger.open(str(tmp_path / DEFAULT_NAME))
        [run] = ledger.state.runs.values()
        [kept] = run.attempts[0].jobs
        assert (kept.runner, kept.endpoint, kept.job) == ("flink", f"http://{running.address}", job)
        ledger.close()
        first = watched.draws("weekly")
        again = command("run", tmp_path / "job.yaml", "--output", tmp_path / "out", "--runner", "flink", *asked)
    assert again.returncode == 0, again.stderr
    told = f"note: job {kept.name!r} of flink at {running.address} was left running by an attempt that is dead; cancelling it"
    assert told in again.stderr.splitlines()
    assert jobs(running)[job] == "CANCELED"
    assert not folder.exists()
    released(tmp_path, attempts=2)
    until(lambda: not processes._began(worker))
    if kind == "aggregate":
        of_the_second_attempt_alone(tmp_path, watched, first)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that live."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] not in ("Z", "X"):
                found.append(int(path.parent.name))
    return found
