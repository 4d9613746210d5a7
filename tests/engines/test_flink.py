"""A real Flink with two TaskManagers: the same statistics as on the direct runner, whole runs, and the doctor's view of it.

In: the jar that `make test-flink` builds. Out: exact statistics, releases, findings. Holds: every pipeline is taken by the
cluster. Not covered: lost workers; more than one machine. Slow: skipped where the jar is not built.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from dp_pipelines.jobs.run import run as call
from dp_pipelines.jobs.run.pipelines import RunFailed
from dp_pipelines.jobs.runners import engines, error_masking
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.steps import draw_release
from tests.engines import cases, exact, setups
from tests.engines.cases import Case
from tests.engines.conftest import Compute
from tests.engines.exact import Dump
from tests.engines.flink.cluster import Cluster, free_ports
from tests.helpers.forks import command
from tests.helpers.source import ROOT

pytestmark = pytest.mark.slow

Expected = Callable[[Case], Dump]


@pytest.fixture(scope="module", params=[1, 2], ids=["parallelism 1", "parallelism 2"])
def flink(running: Cluster, flink_engine: Engine, request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == 2:
        yield flink_engine
    else:
        with engines.engine("flink", setups.on(running, request.param)) as engine:
            yield engine


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_statistics_before_the_noise_are_those_of_the_direct_runner(
    case: Case, flink: Engine, compute: Compute, expected: Expected
) -> None:
    assert exact.differences(expected(case), compute(case, flink)) == []


@pytest.mark.parametrize("case", [cases.types, cases.examples_of_training], ids=lambda case: case.__name__)
def test_workers_in_processes_of_each_task_manager_compute_the_same(
    case: Case, running: Cluster, compute: Compute, expected: Expected
) -> None:
    with setups.worker_script() as options, engines.engine("flink", [*setups.on(running, 2), *options]) as engine:
        assert exact.differences(expected(case), compute(case, engine)) == []


def test_the_demo_job_is_published_and_charged_once(running: Cluster, tmp_path: pathlib.Path) -> None:
    job = cases.ta_feng(tmp_path)
    options = setups.on(running, 2, ships=True)
    asked = ("run", job, "--output", tmp_path / "out", "--runner", "flink", *options, "--json")
    first = command(*asked)
    assert first.returncode == 0, first.stderr
    assert "CUSTOMER" not in first.stderr.replace("CUSTOMER_ID", "")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["ledger"]["round"] == 1
    again = command(*asked)
    assert json.loads(again.stdout)["published_before"] is True
    ledger = Ledger.open(str(tmp_path / DEFAULT_NAME))
    [run] = ledger.state.runs.values()
    assert len(run.attempts) == 1
    ledger.close()
    assert not [path for path in tmp_path.iterdir() if "staging" in path.name or "doctor" in path.name]


def test_a_damaged_file_is_named_and_nothing_else_is_told(running: Cluster, tmp_path: pathlib.Path) -> None:
    job, path = cases.a_damaged_file(tmp_path)
    done = command("run", job, "--output", tmp_path / "out", "--runner", "flink", *setups.on(running, 1, ships=True))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f"error: file {str(path)!r}: a row group cannot be read; it is damaged; nothing was published"
    assert {path.name for path in tmp_path.iterdir()} == {"data", "job.yaml", DEFAULT_NAME}


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "not guarded"])
def test_neither_logs_nor_pages_of_the_cluster_quote_the_row_on_which_a_step_failed(
    guard: bool, running: Cluster, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = f"row {uuid.uuid4().hex}"

    def quoting(*given: object) -> NoReturn:
        raise ValueError(row)

    monkeypatch.setattr(draw_release, "draw_release", quoting)  # in workers too: they are threads of this process
    if not guard:
        monkeypatch.setattr(error_masking, "guard", lambda pipeline: None)
    before = set(jobs(running))
    file = job_file.load(str(cases.empty_shards(tmp_path)))
    with pytest.raises(RunFailed) as told:
        on = setups.on(running, 1, ships=True)
        call.run(file, str(tmp_path / "out"), ledger="none", runner="flink", arguments=on)
    assert row not in str(told.value)
    [job] = set(jobs(running)) - before
    with urllib.request.urlopen(f"http://{running.address}/jobs/{job}/exceptions", timeout=60) as answer:
        shown = answer.read().decode()
    assert "DrawRelease" in shown
    assert ((row in shown) or (row in running.logs())) == (not guard)


def test_an_interrupted_run_cancels_its_job_and_leaves_nothing(running: Cluster, tmp_path: pathlib.Path) -> None:
    before = set(jobs(running))
    asked = ["run", cases.ta_feng(tmp_path), "--output", tmp_path / "out", "--runner", "flink", *setups.on(running, 1)]
    code = "import sys; from dp_pipelines.jobs.cli.main import main; sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, asked)], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: "RUNNING" in [state for name, state in jobs(running).items() if name not in before])
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "interrupted" in said
    until(lambda: all(state in ("CANCELED", "FAILED") for name, state in jobs(running).items() if name not in before))
    assert {path.name for path in tmp_path.iterdir()} == {"job.yaml", DEFAULT_NAME}
    again = command(*asked)
    assert again.returncode == 0, again.stderr
    ledger = Ledger.open(str(tmp_path / DEFAULT_NAME))
    [run] = ledger.state.runs.values()
    assert len(run.attempts) == 2
    ledger.close()


def jobs(running: Cluster) -> dict[str, str]:
    """The jobs of a cluster and their states."""
    with urllib.request.urlopen(f"http://{running.address}/jobs", timeout=60) as answer:
        return {job["id"]: job["status"] for job in json.load(answer)["jobs"]}


def until(what: Callable[[], bool], patience: float = 300.0) -> None:
    """Wait for something."""
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_the_doctor_finds_all_well(running: Cluster, tmp_path: pathlib.Path) -> None:
    said = command("doctor", "--runner", "flink", "--output", tmp_path / "new" / "out", *setups.on(running, 2))
    assert said.returncode == 0, said.stdout + said.stderr
    assert "cluster: Flink 1.19" in said.stdout
    assert "2 task managers, 2 of 2 slots free" in said.stdout
    assert "ran in 1 processes on 1 machines" in said.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_and_a_run_see_too_few_slots(running: Cluster, tmp_path: pathlib.Path) -> None:
    options = ["--runner", "flink", "--output", tmp_path / "out", *setups.on(running, 3)]
    said = command("doctor", *options)
    assert said.returncode == 1
    assert "start task managers: 3 slots are needed" in said.stdout
    job = cases.empty_shards(tmp_path)
    said = command("run", job, *options)
    assert said.returncode == 2
    assert "3 slots are needed" in said.stderr
    assert not (tmp_path / DEFAULT_NAME).exists()


def test_a_cluster_that_is_not_there_is_found_before_anything_is_charged(tmp_path: pathlib.Path) -> None:
    [port] = free_ports(1)
    jar = setups.built(setups.FLINK_JAR)
    options = ["--runner", "flink", f"--flink_master=localhost:{port}", f"--flink_job_server_jar={jar}"]
    said = command("run", cases.empty_shards(tmp_path), "--output", tmp_path / "out", *options)
    assert said.returncode == 2
    assert f"nothing at http://localhost:{port} answers like Flink" in said.stderr
    assert not (tmp_path / DEFAULT_NAME).exists()


def test_the_pom_names_no_machine_and_no_registry() -> None:
    text = (ROOT / "tests" / "engines" / "flink" / "pom.xml").read_text()
    assert "<repository>" not in text
