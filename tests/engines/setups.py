"""The runners on which conformance is shown, each started as a user would start it.

In: what `make test-flink` and `make test-spark` have built. Out: engines, until the end of a block. Holds: nothing that is
started outlives its block. Tests only.
"""

import contextlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator

import pytest
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.runners.engines import Engine
from tests.engines.flink.cluster import Cluster
from tests.helpers import forks
from tests.helpers.source import ROOT

BUILT = ROOT / "build" / "engines"
FLINK_JAR = BUILT / "flink" / "flink-job-server.jar"
SPARK_JAR = BUILT / "spark" / "spark-job-server.jar"


def built(jar: pathlib.Path) -> pathlib.Path:
    """A jar; a test that needs it is skipped where nobody has built it."""
    if not jar.is_file():
        pytest.skip(f"{jar.name} is not built: `make test-flink` and `make test-spark` do, with Java and Maven")
    return jar


def never_shipped(jar: pathlib.Path) -> pathlib.Path:
    """Return a path to the same jar that Beam does not send to the cluster.

    A job server sends the jar that it runs from with each job. The cluster of these tests was started from the same file, and to
    send 150 MB and to hash them three times took two thirds of the time of a small job. Beam leaves out files in such a folder.
    """
    link = jar.parent / "gradle" / "wrapper" / jar.name
    if not (link.exists() and link.samefile(jar)):
        link.parent.mkdir(parents=True, exist_ok=True)
        made = link.with_name(f"{jar.name}.{os.getpid()}")
        os.link(jar, made)
        made.replace(link)
    return link


@contextlib.contextmanager
def workers_in_threads() -> Iterator[Engine]:
    """The job service in this process, workers that talk to it over the network, in threads of this process."""
    with engines.engine("portable", []) as engine:
        yield engine


@contextlib.contextmanager
def pool_of_processes() -> Iterator[str]:
    """The address of Beam's own pool, which starts a process for each worker."""
    with pytest.MonkeyPatch.context() as patch:
        # The pool starts whatever is called `python`; and what tests plant is found by its name.
        patch.setenv("PATH", os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]))
        patch.setenv("PYTHONPATH", str(ROOT))
        address, server = BeamFnExternalWorkerPoolServicer.start(use_process=True)
        try:
            yield address
        finally:
            server.stop(1).wait(60)


@contextlib.contextmanager
def workers_in_processes() -> Iterator[Engine]:
    """The job service in this process, workers in processes of their own."""
    with pool_of_processes() as address, engines.engine("portable", external(address)) as engine:
        yield engine


def external(address: str) -> list[str]:
    """Options for workers of a pool."""
    return ["--environment_type=EXTERNAL", f"--environment_config={address}"]


def on(running: Cluster, parallelism: int, *, ships: bool = False) -> list[str]:
    """Options for a cluster.

    Args:
        running: the cluster, with workers in this process.
        parallelism: of jobs.
        ships: whether each job sends its jar, as it does for users. Tests of lost processes and of errors do that.
    """
    jar = FLINK_JAR if ships else never_shipped(FLINK_JAR)
    return [f"--flink_job_server_jar={jar}", f"--flink_master={running.address}", f"--parallelism={parallelism}"]


@contextlib.contextmanager
def worker_script(**variables: object) -> Iterator[list[str]]:
    """Options for workers that a runner starts as processes, by a script.

    Args:
        variables: of the environment of the workers.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = f"process_command={forks.script(pathlib.Path(folder))}"
        listed = ",".join(f"{name}={value}" for name, value in variables.items())
        given = [command, f"process_variables={listed}"] if listed else [command]
        yield ["--environment_type=PROCESS", *(f"--environment_options={one}" for one in given)]


@contextlib.contextmanager
def spark() -> Iterator[Engine]:
    """Spark in the job server, with two threads; workers in this process."""
    with engines.engine(
        "spark", [f"--spark_job_server_jar={built(SPARK_JAR)}", "--spark_master_url=local[2]"]
    ) as engine:
        yield engine
