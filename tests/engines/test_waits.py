"""A real Flink that loses a task manager or its JobManager for good: the run says what it waits for, ends, and goes on later.

In: the jar that `make test-flink` builds; a worker that stands at a step. Out: standard error, the exit code, the release of the
same command afterwards. Holds: the recommended restart strategy (docs/runners.md) with fewer attempts. Not covered: high
availability; a JobManager that takes connections and never answers. Slow: skipped where the jar is not built.
"""

import pathlib
import time
from collections.abc import Iterator

import pytest

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.engines import setups
from tests.engines.flink.cluster import Cluster, cluster
from tests.engines.points import Points
from tests.engines.test_faults import a_job, at_work, of_the_second_attempt_alone, released, standing
from tests.helpers import forks
from tests.helpers.forks import command

pytestmark = pytest.mark.slow

ATTEMPTS = 3

DELAY = 1.0
"""Seconds before each, as `tests.engines.flink.cluster` sets them."""

SLOT_WAIT = 10.0
"""Seconds that each waits for slots."""

ASKED = 8
"""How often Flink's client asks a JobManager that does not answer, three seconds apart."""

SLOWLY = 60.0
"""Seconds that a busy machine may add: less than another wait of five minutes, with which Flink comes."""


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster(setups.built(setups.FLINK_JAR), attempts=ATTEMPTS, slot_wait=int(1000 * SLOT_WAIT)) as made:
        yield made


@pytest.mark.parametrize("gone", ["task manager", "jobmanager"])
def test_a_run_says_what_it_waits_for_ends_in_time_and_goes_on_once_that_is_there(
    gone: str, running: Cluster, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = tmp_path / "conf"
    configuration.mkdir()
    (configuration / "flink-conf.yaml").write_text(f"rest.retry.max-attempts: {ASKED}\nrest.retry.delay: 3000\n")
    monkeypatch.setenv("FLINK_CONF_DIR", str(configuration))
    folder = tmp_path / "run"
    (folder / "points").mkdir(parents=True)
    watched = Points(folder / "points")
    watched.arm("write")
    a_job(folder)
    with setups.worker_script(**{forks.POINTS: watched.folder}) as options:
        asked = [*setups.on(running, 2, ships=True), *options]
        with at_work(folder, asked) as driver:
            found = standing(watched, "write", driver)
            [name] = [name for name, one in running.processes.items() if one.pid == found["parent"]]
            name = gone if gone in running.processes else name
            running.kill(name)
            died = time.monotonic()
            _, said = driver.communicate(timeout=240)
        lasted = time.monotonic() - died
        lines = said.splitlines()
        lack = {
            "task manager": f"the cluster at {running.address} has 1 of 2 slots",
            "jobmanager": f"nothing answers at {running.address}, where the cluster's JobManager was",
        }[gone]
        mend = {
            "task manager": "start task managers until the cluster has 2 slots, or ask for fewer with --parallelism",
            "jobmanager": f"start the JobManager at {running.address} again",
        }[gone]
        assert f"note: {lack}; the run waits" in lines
        assert (
            lines[-1] == f"error: the pipeline failed; {lack}; nothing was published; {mend}, then run the same command"
        )
        assert driver.returncode == 1
        assert lasted < {"task manager": ATTEMPTS * (SLOT_WAIT + DELAY), "jobmanager": 3 * ASKED}[gone] + SLOWLY
        assert not list(folder.glob(".out*"))
        ledger = Ledger.open(str(folder / DEFAULT_NAME))
        [run] = ledger.state.runs.values()
        assert run.state == "reserved"
        ledger.close()
        first = watched.draws("weekly")
        watched.go_on()
        if gone == "jobmanager":
            running.start_manager()
        else:
            running.start_worker(name)
        running.wait()
        again = command("run", folder / "job.yaml", "--output", folder / "out", "--runner", "flink", *asked)
    assert again.returncode == 0, again.stderr
    assert released(folder, attempts=2).run_id == run.run_id
    of_the_second_attempt_alone(folder, watched, first)
