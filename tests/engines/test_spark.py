"""A real Spark with two threads, as a second engine that nobody wrote code for: the same statistics, a whole run.

In: the jars that `make test-spark` fetches. Out: exact statistics, a release. Holds: every pipeline is taken by Spark. Not
covered: a cluster of Spark; lost workers. Slow: skipped where the jars are not there.
"""

import json
import pathlib
from collections.abc import Callable

import pytest

from dp_pipelines.jobs.runners.engines import Engine
from tests.engines import cases, exact, setups
from tests.engines.cases import Case
from tests.engines.conftest import Compute
from tests.engines.exact import Dump
from tests.helpers.forks import command

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_statistics_before_the_noise_are_those_of_the_direct_runner(
    case: Case, spark_engine: Engine, compute: Compute, expected: Callable[[Case], Dump]
) -> None:
    assert exact.differences(expected(case), compute(case, spark_engine)) == []


def test_a_whole_run_is_published_and_the_doctor_finds_all_well(tmp_path: pathlib.Path) -> None:
    jar = f"--spark_job_server_jar={setups.built(setups.SPARK_JAR)}"
    options = ["--runner", "spark", "--output", tmp_path / "out", jar, "--spark_master_url=local[2]"]
    said = command("doctor", *options)
    assert said.returncode == 0, said.stdout + said.stderr
    job = cases.unit_columns(tmp_path)
    done = command("run", job, *options, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["published_before"] is False
