"""A plan that a ledger holds since an earlier day runs on as it was: same plan, same noise, nothing charged anew.

In: `tests/ledger/golden/frozen`: of each job its file, the ledger after two of four runs, and what the second release says.
Holds: all were written when `planning.plan.FORMAT` became 4, by tests/ledger/golden/write_frozen.py.
"""

import gzip
import json
import pathlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said

GOLDEN = pathlib.Path(__file__).parents[2] / "ledger" / "golden" / "frozen"
QUICK = ("shared",)
JOBS = [
    pytest.param(path.name, marks=[] if path.name in QUICK else [pytest.mark.slow]) for path in sorted(GOLDEN.iterdir())
]


def placed(name: str, folder: pathlib.Path) -> pathlib.Path:
    """The job in a folder, with its ledger and rows of today."""
    (folder / "data").mkdir()
    made = np.random.default_rng(3)
    rows = {
        "customer": made.integers(0, 100, 400),
        "region": pa.array([f"r{number}" for number in made.integers(0, 4, 400)]),
        "amount": made.random(400) * 50,
        "late": made.integers(0, 2, 400).astype(bool),
    }
    pa.parquet.write_table(pa.table(rows), folder / "data" / "a.parquet")
    (folder / DEFAULT_NAME).write_bytes(gzip.decompress((GOLDEN / name / "ledger.sqlite.gz").read_bytes()))
    (folder / DEFAULT_NAME).chmod(0o600)
    job = folder / "job.yaml"
    job.write_bytes((GOLDEN / name / "job.yaml").read_bytes())
    return job


def spent(folder: pathlib.Path) -> object:
    """What the account has spent."""
    ledger = Ledger.open(str(folder / DEFAULT_NAME))
    try:
        return dict(ledger.account("shop").spent)
    finally:
        ledger.close()


def test_the_golden_jobs_have_shared_statistics_training_rounds_and_bounds_that_are_chosen() -> None:
    stages = [
        stage
        for path in GOLDEN.iterdir()
        for stage in yaml.safe_load((path / "job.yaml").read_text())["stages"].values()
    ]
    assert {"train", "aggregate"} == {stage["kind"] for stage in stages}
    weights = [[metric.get("weight", 1) for metric in stage.get("metrics", {}).values()] for stage in stages]
    assert [1, 1, 2, 1] in weights
    assert any("best" in stage for stage in stages)
    assert any("auto" in str(stage.get("bounds")) and "auto" in str(stage["metrics"]) for stage in stages)
    assert any("sips" in str(stage) for stage in stages)
    assert any("max_contributions" in stage.get("bounds", {}) for stage in stages)


@pytest.mark.parametrize("name", JOBS)
def test_runs_three_and_four_have_the_plan_and_the_noise_of_run_two(
    name: str, tmp_path: pathlib.Path, call: Callable[..., Said]
) -> None:
    job = placed(name, tmp_path)
    was = spent(tmp_path)
    known = json.loads((GOLDEN / name / "manifest.json").read_text())
    for run in ("W3", "W4"):
        said = call("run", job, "--run-id", run, "--output", tmp_path / run)
        assert said.code == 0, said.err
        assert spent(tmp_path) == was
        content = json.loads((tmp_path / run / "manifest.json").read_text())
        assert {key: content[key] for key in known} == known
    said = call("run", job, "--run-id", "W5", "--output", tmp_path / "W5")
    assert said.code == 3
    assert "one too many" in said.err


def test_a_share_that_is_written_later_is_no_part_of_the_frozen_plan(
    tmp_path: pathlib.Path, call: Callable[..., Said]
) -> None:
    """`share: 1` of a stage that chooses the best is not its default, but asks for what a job of 0.1.0 asks for."""
    bounds = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    counted = {"metrics": {"orders": {"kind": "count"}}, "partitions": {"public": [["r0"], ["r1"]]}, "bounds": bounds}
    stage = {"kind": "aggregate", "partition_by": ["region"], **counted}
    job = placed("one", tmp_path)
    (tmp_path / DEFAULT_NAME).unlink()
    content = yaml.safe_load(job.read_text()) | {"dataset": "other"}
    best = stage | {"best": {"k": 1, "by": "orders"}}
    job.write_text(yaml.safe_dump(content | {"stages": {"weekly": stage, "best": best}}))
    assert call("run", job, "--run-id", "W1", "--output", tmp_path / "W1").code == 0
    job.write_text(yaml.safe_dump(content | {"stages": {"weekly": stage, "best": best | {"share": 1.0}}}))
    said = call("run", job, "--run-id", "W2", "--output", tmp_path / "W2")
    assert said.code == 2
    assert "stages.best.share: is 1.0, and 0.25 in the plan that the ledger has frozen for this job" in said.err
