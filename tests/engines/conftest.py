"""What the tests of this folder share: a Flink and a Spark, and what the direct runner computes for each case.

In: `cases`, `setups`. Out: the fixtures `running`, `flink_engine`, `spark_engine`, `compute` and `expected`. Holds: all runners
read the very same files; a cluster is started once for all tests that do no harm to it, and ends with the last of them.
"""

import io
import pathlib
from collections.abc import Callable, Iterator

import pytest

from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.terminal.progress import Progress
from tests.engines import exact, setups
from tests.engines.cases import Case
from tests.engines.exact import Dump
from tests.engines.flink.cluster import Cluster, cluster
from tests.helpers import forks

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For processes of Java that live for a minute: without the optimizing compiler they take two thirds of the processors' time, and
of what is left a start without checks of bytecode takes seven eighths."""

Compute = Callable[[Case, Engine], Dump]


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Every process of Java that a test starts, a cluster's and a job server's, begins quickly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        yield


@pytest.fixture(scope="package", autouse=True)
def forking(quick_java: None) -> Iterator[None]:
    """Whatever process was started to be forked ends with the last test."""
    yield
    forks.end()


@pytest.fixture(scope="package")
def running(quick_java: None) -> Iterator[Cluster]:
    """A standalone Flink with two task managers."""
    with cluster(setups.built(setups.FLINK_JAR)) as made:
        yield made


@pytest.fixture(scope="package")
def flink_engine(running: Cluster) -> Iterator[Engine]:
    """That Flink, with jobs of parallelism 2; workers in this process."""
    with engines.engine("flink", setups.on(running, 2)) as engine:
        yield engine


@pytest.fixture(scope="package")
def spark_engine(quick_java: None) -> Iterator[Engine]:
    """Spark in its job server, with two threads; workers in this process."""
    with setups.spark() as engine:
        yield engine


@pytest.fixture(scope="session")
def compute(tmp_path_factory: pytest.TempPathFactory) -> Compute:
    """The exact statistics of a case on an engine."""
    jobs: dict[str, pathlib.Path] = {}

    def on(case: Case, engine: Engine) -> Dump:
        if case.__name__ not in jobs:
            jobs[case.__name__] = case(tmp_path_factory.mktemp(case.__name__))
        staged = tmp_path_factory.mktemp("staged")
        return exact.dump(jobs[case.__name__], engine, Progress(io.StringIO()), staged)

    return on


@pytest.fixture(scope="session")
def expected(compute: Compute) -> Callable[[Case], Dump]:
    """The exact statistics of a case on the direct runner."""
    found: dict[str, Dump] = {}

    def of(case: Case) -> Dump:
        if case.__name__ not in found:
            with engines.engine("direct", []) as engine:
                found[case.__name__] = compute(case, engine)
        return found[case.__name__]

    return of
