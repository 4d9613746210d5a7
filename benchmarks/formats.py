"""How long a job takes over each format, beside Parquet: copies of one table, in turns.

In: a number of rows. Out: seconds of processor time for each format, and the median ratio to Parquet; that of the Delta copy,
which has 56 files, also to Parquet in as many files. Holds: rows are read, bounded, added up and released in one thread, as in a
run without its plan and report.
Run: PYTHONPATH=. python benchmarks/formats.py [--rows 1000000] [--turns 5]
"""

import argparse
import io
import pathlib
import statistics
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet
import yaml

from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run.pipelines import run_pipeline
from dp_pipelines.jobs.run.run import plan_of
from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.terminal.progress import Progress
from tests.helpers import copies

BINARY, TEXT = 1.1, 3.0
"""At most so many times what Parquet takes."""

FILES = "parquet in many files"

LIMITS = {"csv": TEXT, "jsonl": TEXT, "avro": BINARY, "delta": BINARY, "iceberg": BINARY}

MANY = 56
"""Files of the Delta copy: each of two commits writes one for each of 28 days."""


def many_files(table: pa.Table, folder: pathlib.Path) -> dict[str, object]:
    """Parquet in as many files as the Delta copy has: opening a file costs about two milliseconds, whatever it holds."""
    folder.mkdir()
    rows = -(-table.num_rows // MANY)
    for number in range(MANY):
        pa.parquet.write_table(table.slice(number * rows, rows), folder / f"{number:02}.parquet")
    return {"parquet": str(folder / "*.parquet")}


def job(folder: pathlib.Path, source: dict[str, object]) -> pathlib.Path:
    """A job over a copy, that reads all of its columns but one."""
    metrics = {
        "orders": {"kind": "count"},
        "revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
    }
    bounds = {"max_partitions_contributed": 4, "max_contributions_per_partition": 2}
    stage = {"kind": "aggregate", "partition_by": ["product", "day"], "bounds": bounds, "metrics": metrics}
    budget = {"epsilon": 1.0, "delta": 1e-5}
    said = {"dataset": "shop", "privacy_unit": "customer", "budget": budget, "source": source, "stages": {"s": stage}}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(said))
    return path


def seconds(path: pathlib.Path) -> float:
    """Processor time of the pipeline of a job."""
    file = job_file.load(str(path))
    request = check(file, [])
    stages = plan_of(file, request.stages).round(1).stages
    with tempfile.TemporaryDirectory() as staged, engines.engine("local", ["--threads=1"]) as engine:
        began = time.process_time()
        run_pipeline(request, stages, pathlib.Path(staged), engine, Progress(io.StringIO()))
        return time.process_time() - began


def main() -> None:
    """Write the copies, read them in turns, print a line for each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    table = copies.purchases(given.rows)
    with tempfile.TemporaryDirectory() as name:
        jobs = {}
        for form, write in {**copies.FORMATS, FILES: many_files}.items():
            folder = pathlib.Path(name) / form
            folder.mkdir()
            jobs[form] = job(folder, write(table, folder / "rows"))
        for path in jobs.values():  # imports, once
            seconds(path)
        took = [{form: seconds(path) for form, path in jobs.items()} for _ in range(given.turns)]
        for form in jobs:
            ratio = statistics.median(turn[form] / turn["parquet"] for turn in took)
            limit = f", at most {LIMITS[form]}" if form in LIMITS else ""
            print(f"{form}: {statistics.median(turn[form] for turn in took):.2f} s, {ratio:.2f} of Parquet{limit}")
        as_many = statistics.median(turn["delta"] / turn[FILES] for turn in took)
        print(f"delta: {as_many:.2f} of Parquet in as many files")


if __name__ == "__main__":
    main()
