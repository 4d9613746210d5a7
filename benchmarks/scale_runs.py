"""One run of a real job on a runner, measured: time, CPU, memory of all processes together, bytes shuffled.

In: a folder of rows (data.py), a runner. Out: a `Run`. Holds: the job is a file and is run by the command (scale_job.py); the
Flink is a standalone one with a JobManager and two TaskManagers, its figures come from its own REST pages. Not covered: planning,
imports, starting Python and Java: they are in `whole_seconds` alone.
"""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import data
import pyarrow.parquet as pq
import yaml
from measure import HERE, REPOSITORY, BenchmarkError
from processes import Watch

sys.path.insert(0, str(REPOSITORY))
from tests.engines.flink.cluster import Cluster, cluster

JAR = REPOSITORY / "build" / "engines" / "flink" / "flink-job-server.jar"
HEAP_MIB = 512
"""Of each task manager: what it gets from its Python worker in one bundle waits there, half of all that is shuffled."""

LIMIT_SECONDS = 3_600


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What one run took.

    Args:
        seconds: of the pipeline. On Flink from its job's `start-time` to its `end-time`; on `direct` from handing it over.
        whole_seconds: of the command, from starting Python to its end.
        cpu_seconds: of all processes, the cluster's too, while the command ran.
        cpu_by_name: of each.
        peak_mib: of memory, all processes together.
        peak_by_name: of each at that moment, MiB.
        shuffled_bytes: that left a task (Flink), or that were written for another step (direct).
        largest_element: bytes.
        keys: released.
    """

    seconds: float
    whole_seconds: float
    cpu_seconds: float
    cpu_by_name: Mapping[str, float]
    peak_mib: float
    peak_by_name: Mapping[str, float]
    shuffled_bytes: int
    largest_element: int
    keys: int


def measured(folder: pathlib.Path, runner: str, options: list[str], running: Cluster | None = None) -> Run:
    """Run the job over a folder of rows.

    Args:
        folder: with Parquet files.
        runner: `direct` or `flink`.
        options: of the command.
        running: the cluster of `flink`.

    Raises:
        BenchmarkError: it failed.
    """
    processes = [] if running is None else [(name, process.pid) for name, process in running.processes.items()]
    before = set() if running is None else set(_jobs(running))
    with tempfile.TemporaryDirectory() as parent, Watch(processes) as watch:
        place = pathlib.Path(parent)
        (place / "job.yaml").write_text(yaml.safe_dump(data.job(folder)))
        command = [sys.executable, str(HERE / "scale_job.py"), str(place / "told.json"), "run", str(place / "job.yaml")]
        command += ["--output", str(place / "out"), "--ledger", "none", "--runner", runner, *options]
        begin = time.monotonic()
        with (place / "said").open("w+") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said)
            watch.add("driver", process.pid)
            try:
                process.wait(LIMIT_SECONDS)
            finally:
                process.kill()
            whole = time.monotonic() - begin
            if process.returncode != 0:
                said.seek(0)
                raise BenchmarkError(f"{runner} failed: {said.read()[-3000:]}")
        told = json.loads((place / "told.json").read_text())
        keys = pq.read_metadata(place / "out" / "keys.parquet").num_rows
    seconds, shuffled = told["pipeline_seconds"], told["encoded_bytes"]
    if running is not None:
        [job] = set(_jobs(running)) - before
        shown = _ask(running, f"jobs/{job}")
        seconds = (shown["end-time"] - shown["start-time"]) / 1000
        shuffled = sum(vertex["metrics"]["write-bytes"] for vertex in shown["vertices"])
    used = watch.used
    return Run(
        seconds=seconds,
        whole_seconds=whole,
        cpu_seconds=used.cpu_seconds,
        cpu_by_name=used.cpu_by_name,
        peak_mib=used.peak_mib,
        peak_by_name=used.peak_by_name,
        shuffled_bytes=shuffled,
        largest_element=told["largest_element"],
        keys=keys,
    )


@contextlib.contextmanager
def flink(parallelism: int = 2) -> Iterator[tuple[Cluster, list[str]]]:
    """A cluster of two TaskManagers, and the options of the command for it."""
    if not JAR.is_file():
        raise BenchmarkError("Flink is not built: `make test-flink` does, with Java and Maven")
    with cluster(JAR, heap=HEAP_MIB) as running:
        options = [f"--flink_job_server_jar={JAR}", f"--flink_master={running.address}"]
        yield running, [*options, f"--parallelism={parallelism}"]


def _ask(running: Cluster, page: str) -> Any:
    with urllib.request.urlopen(f"http://{running.address}/{page}", timeout=10) as answer:
        return json.load(answer)


def _jobs(running: Cluster) -> list[str]:
    return [job["id"] for job in _ask(running, "jobs")["jobs"]]
