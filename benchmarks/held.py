"""What the direct runner holds of the rows that it shuffles: the factor by which a run is refused for want of memory.

In: this checkout. Out: peak memory of whole processes, and of it the bytes for each byte that is shuffled. Holds: two numbers of
rows for each width, so that what a process takes without rows drops out; the width is the one by which a run is judged. Not
covered: other runners; rows of few units, which are reduced before they travel.

    python benchmarks/held.py [--rows 1000000] [--gate]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml

from dp_pipelines.jobs.request import request
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.run import shuffled_rows
from dp_pipelines.jobs.runners import expected_memory
from dp_pipelines.jobs.spec import job_file

CLAMPS = (1, 10, 40)
TIMES = 3
STORES = 1000

CALL = "import sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main(sys.argv[1:]))"


def written(folder: pathlib.Path, rows: int, clamps: int) -> pathlib.Path:
    """A job with as many sums over one column."""
    made = np.random.default_rng(rows)
    columns = {
        "customer": made.integers(0, rows // 10, rows),
        "store": made.integers(0, STORES, rows),
        "price": made.random(rows),
    }
    pa.parquet.write_table(pa.table(columns), folder / f"{rows}.parquet")
    sums = {
        f"up_to_{most}": {"kind": "sum", "column": "price", "min_value": 0, "max_value": most}
        for most in range(1, clamps + 1)
    }
    stage = {
        "kind": "aggregate",
        "partition_by": ["store"],
        "partitions": {"public": [[store] for store in range(STORES)]},
        "bounds": {"max_partitions_contributed": 3, "max_contributions_per_partition": 2},
        "metrics": sums,
    }
    job = {
        "dataset": "shop",
        "privacy_unit": "customer",
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "source": {"parquet": f"{rows}.parquet"},
        "stages": {"wide": stage},
    }
    path = folder / f"{rows} rows, {clamps} clamps.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def width(job: pathlib.Path) -> int:
    """Bytes of a row as it is shuffled."""
    file = job_file.load(str(job))
    asked = request.check(file, [])
    return shuffled_rows.of_stages(asked, running.plan_of(file, asked.stages).round(1).stages).together


def peak(job: pathlib.Path) -> int:
    """Bytes that a run has held at most."""
    command = [sys.executable, "-c", CALL, "run", str(job), "--output", str(job.with_suffix(""))]
    command += ["--ledger", "none", "--runner", "direct"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{job.stem} failed")
    return used.ru_maxrss * 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help=f"of the smaller runs; the larger have {TIMES} times as many"
    )
    parser.add_argument(
        "--gate", action="store_true", help="end with 1 where what is assumed is far from what is found"
    )
    given = parser.parse_args()
    far = []
    with tempfile.TemporaryDirectory() as parent:
        for clamps in CLAMPS:
            jobs = [written(pathlib.Path(parent), rows, clamps) for rows in (given.rows, given.rows * TIMES)]
            small, large = map(peak, jobs)
            wide = width(jobs[0])
            factor = (large - small) / (given.rows * (TIMES - 1) * wide)
            without = small - factor * given.rows * wide
            print(
                f"{clamps:3d} clamps, {wide:4d} bytes a row: {small / 2**20:6.0f} MiB, {large / 2**20:6.0f} MiB; "
                f"{factor:5.2f} bytes for each that is shuffled, and {without / 2**20:.0f} MiB"
            )
            assumed = expected_memory.direct_bytes(given.rows * TIMES, wide)
            if not 0.5 * large <= assumed <= 1.1 * large:
                far.append(f"{clamps} clamps: {assumed / 2**20:.0f} MiB are assumed, {large / 2**20:.0f} MiB are held")
    if given.gate and far:
        sys.exit("\n".join(far))


if __name__ == "__main__":
    main()
