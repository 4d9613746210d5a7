"""What a job publishes beside Parquet, and `dp-pipelines check`, on Flink and Spark: the same as on threads of this process.

In: the jars that `make test-flink` and `make test-spark` build. Out: published folders, Delta tables, private pages. Holds: runs
are whole processes, as a user starts them. Not covered: kills (`tests/jobs/run/test_outputs.py`). Slow: skipped without the jars.
"""

import json
import pathlib
from typing import Any

import deltalake
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.outputs.text_tables import FORMATS
from tests.engines import cases, setups
from tests.helpers.extension_folders import needs
from tests.helpers.forks import command

pytestmark = pytest.mark.slow

Options = list[Any]


@pytest.fixture(scope="module", params=["flink", "spark"])
def options(request: pytest.FixtureRequest) -> Options:
    if request.param == "flink":
        return ["--runner", "flink", *setups.on(request.getfixturevalue("running"), 2)]
    jar = setups.built(setups.SPARK_JAR)
    return ["--runner", "spark", f"--spark_job_server_jar={jar}", "--spark_master_url=local[2]"]


@pytest.fixture
def job(tmp_path: pathlib.Path) -> pathlib.Path:
    """A job with every output."""
    rows = cases.purchases([n % 500 for n in range(20_000)], [f"p{n % 7}" for n in range(20_000)])
    budget = {"epsilon": 8.0, "delta": 1e-5, "runs": 2}
    outputs = {"files": ["csv", "jsonl"], "delta": "lake"}
    return cases.job(tmp_path, [rows.slice(0, 9000), rows.slice(9000)], budget=budget, outputs=outputs)


def test_every_output_holds_the_rows_of_the_parquet_file(job: pathlib.Path, options: Options) -> None:
    folder = job.parent
    for run_id in ("one", "two", "one"):
        out = folder / (run_id if not (folder / run_id).exists() else "again")
        done = command("run", job, "--output", out, "--run-id", run_id, *options)
        assert done.returncode == 0, done.stderr
    for form, text in FORMATS.items():
        text.write(folder / "one" / "weekly.parquet", folder / f"made.{form}")
        assert (folder / "one" / f"weekly.{form}").read_bytes() == (folder / f"made.{form}").read_bytes()
        assert (folder / "again" / f"weekly.{form}").read_bytes() == (folder / f"made.{form}").read_bytes()
    table = deltalake.DeltaTable(folder / "lake" / "weekly")
    found = table.to_pyarrow_table()
    for run_id in ("one", "two"):
        expected = pyarrow.parquet.read_table(folder / run_id / "weekly.parquet").sort_by("product").to_pylist()
        mine = [{k: v for k, v in row.items() if k != "run_id"} for row in found.to_pylist() if row["run_id"] == run_id]
        assert sorted(mine, key=lambda row: str(row["product"])) == expected
    assert len(expected) == 7
    assert table.version() == 1  # one commit a run, and none for the repetition


@needs("check")
def test_a_check_finds_what_the_local_runner_finds(job: pathlib.Path, options: Options) -> None:
    found = []
    for name, more in (("here", []), ("there", options)):
        done = command("check", job, "--output", job.parent / name, *more)
        assert done.returncode == 0, done.stderr
        found.append(json.loads((job.parent / name / "PRIVATE-check.json").read_text()))
    here, there = found
    assert here["tables"] == there["tables"]
    for name in set(here) | set(there):
        if name not in ("when", "at", "date"):
            same(here[name], there[name])


def same(here: Any, there: Any) -> None:
    """Fail unless two JSON values are the same; means of floats are summed in the order in which an engine has them."""
    if isinstance(here, dict):
        assert list(here) == list(there)
        for name in here:
            same(here[name], there[name])
    elif isinstance(here, list):
        assert len(here) == len(there)
        for one, other in zip(here, there, strict=True):
            same(one, other)
    elif isinstance(here, float):
        assert there == pytest.approx(here, rel=1e-12)
    else:
        assert here == there
