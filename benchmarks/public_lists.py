"""What a long list of public partitions costs: whole processes with the list and without it.

In: this checkout. Out: CPU seconds and peak memory of each, and what the list adds. Holds: both jobs read the same rows and
release a count; their runs are interleaved, and the median of their differences is told. Not covered: rows in as many partitions
as are listed; other runners.

    python benchmarks/public_lists.py [--keys 1000000] [--turns 3] [--gate]
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml

ROWS, USERS, USED = 2_000_000, 200_000, 1000

MOST_CPU, MOST_GIB = 4.0, 0.3
"""What a million keys may add: CPU seconds and GiB."""

CALL = "import sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main(sys.argv[1:]))"


def write_jobs(folder: pathlib.Path, keys: int) -> dict[str, pathlib.Path]:
    """Two jobs over the same rows: with a list of so many keys, and with private partitions."""
    made = np.random.default_rng(1)
    columns = {"user": made.integers(0, USERS, ROWS), "key": made.integers(0, USED, ROWS)}
    pa.parquet.write_table(pa.table(columns), folder / "rows.parquet")
    pa.parquet.write_table(pa.table({"key": np.arange(keys)}), folder / "keys.parquet")
    jobs = {}
    for name, partitions in (("without", {}), ("with", {"partitions": {"public_file": "keys.parquet"}})):
        stage = {
            "kind": "aggregate",
            "partition_by": ["key"],
            "bounds": {"max_partitions_contributed": 4, "max_contributions_per_partition": 2},
            "metrics": {"rows": {"kind": "count"}},
            **partitions,
        }
        job = {
            "dataset": "benchmark",
            "privacy_unit": "user",
            "budget": {"epsilon": 1.0, "delta": 1e-6},
            "source": {"parquet": "rows.parquet"},
            "stages": {"counts": stage},
        }
        jobs[name] = folder / f"{name}.yaml"
        jobs[name].write_text(yaml.safe_dump(job, sort_keys=False))
    return jobs


def run(job: pathlib.Path, turn: int) -> tuple[float, float]:
    """CPU seconds and the GiB at most of a run."""
    out = job.parent / f"{job.stem}-{turn}"
    command = [sys.executable, "-c", CALL, "run", str(job), "--output", str(out), "--ledger", "none"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the run {job.stem} the list failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--gate", action="store_true", help="end with 1 where the list costs more than its gates")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        jobs = write_jobs(pathlib.Path(parent), given.keys)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
        for turn in range(given.turns + 1):
            for name, job in jobs.items():
                used = run(job, turn)
                if turn:  # the first one makes the plan
                    found[name].append(used)
    for name, runs in found.items():
        cpu, gib = (statistics.median(numbers) for numbers in zip(*runs, strict=True))
        print(f"{name:8s} {cpu:6.2f} CPU s, {gib:5.2f} GiB")
    pairs = zip(found["with"], found["without"], strict=True)
    added = [(more[0] - less[0], more[1] - less[1]) for more, less in pairs]
    cpu, gib = (statistics.median(numbers) for numbers in zip(*added, strict=True))
    print(f"the list {cpu:6.2f} CPU s, {gib:5.2f} GiB for {given.keys:,} keys")
    if given.gate and (cpu > MOST_CPU or gib > MOST_GIB):
        sys.exit(f"gates: {MOST_CPU} CPU s, {MOST_GIB} GiB")


if __name__ == "__main__":
    main()
