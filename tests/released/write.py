"""Writes the job, the ledger and the releases of the present version: once, when that version is released.

In: a version that has no folder here yet. Out: `NAME/job.yaml`, `NAME/ledger.sqlite.gz` after two of four runs, and the folders
that the runs published. Holds: the rows are made up, and the files name no machine. A folder is never written a second time,
since later versions must read what the version itself wrote.

    python tests/released/write.py
"""

import gzip
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dp_pipelines import __version__
from dp_pipelines.jobs.cli.main import main
from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger.ledger import DEFAULT_NAME

HERE = pathlib.Path(__file__).resolve().parent

NOWHERE = {
    "boot": "0" * 32,
    "machine": "0" * 32,
    "numbers": "pid:[4026531836]",
    "host": "example",
    "pid": 1,
    "began": "1",
}
"""Stands for the process that ran the job."""

JOB = """\
dataset: shop
title: Orders and late deliveries by region
privacy_unit: customer
budget: {epsilon: 2.0, delta: 1.0e-6, runs: 4, spare: 1}
params: {week: {type: string}}
source: {parquet: "data/{week}.parquet"}
stages:
  weekly:
    kind: aggregate
    partition_by: [region]
    bounds: auto
    metrics:
      orders: {kind: count}
      people: {kind: privacy_id_count}
      amount: {kind: sum, column: amount, min_value: 0, max_value: 50}
      typical: {kind: mean, column: amount, min_value: 0, max_value: 50}
  late:
    kind: train
    label: {kind: binary, column: late}
    features:
      amount: {kind: number, min_value: 0, max_value: 50}
    max_examples_per_unit: 4
    fit: {steps: 5}
"""


def write_rows(folder: pathlib.Path, weeks: tuple[str, ...]) -> None:
    """Write 2,000 made-up rows of each week into a folder `data`."""
    (folder / "data").mkdir()
    for week in weeks:
        draws = np.random.default_rng(3)
        rows = {
            "customer": draws.integers(0, 500, 2_000),
            "region": pa.array([f"r{number}" for number in draws.integers(0, 4, 2_000)]),
            "amount": draws.random(2_000) * 50,
            "late": draws.integers(0, 2, 2_000).astype(bool),
        }
        pa.parquet.write_table(pa.table(rows), folder / "data" / f"{week}.parquet")


def run_arguments(folder: pathlib.Path, week: str) -> list[str]:
    """Return the command that releases a week of the job in a folder."""
    output = ["--output", str(folder / week)]
    return ["run", str(folder / "job.yaml"), "--run-id", week, "--param", f"week={week}", *output]


def write() -> None:
    """Write the folder of the present version.

    Raises:
        SystemExit: there is one already, or a run failed.
    """
    target = HERE / f"v{__version__.replace('.', '_')}"
    if target.exists():
        raise SystemExit(f"{target.name} exists: what a version wrote is never written again")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        os.environ |= {"XDG_CACHE_HOME": place + "/cache", "XDG_STATE_HOME": place + "/state"}
        os.chdir(folder)
        write_rows(folder, ("W1", "W2"))
        (folder / "job.yaml").write_text(JOB)
        for week in ("W1", "W2"):
            if code := main(run_arguments(pathlib.Path(), week)):
                raise SystemExit(f"run {week} ended with {code}")
        target.mkdir()
        (target / "job.yaml").write_text(JOB)
        (target / "ledger.sqlite.gz").write_bytes(gzip.compress((folder / DEFAULT_NAME).read_bytes(), mtime=0))
        for week in ("W1", "W2"):
            for path in sorted((folder / week).rglob("*")):
                if path.is_file():
                    copy = target / path.relative_to(folder)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(path.read_bytes())


if __name__ == "__main__":
    processes.here = lambda: NOWHERE
    processes.who = lambda: "user@example"
    write()
