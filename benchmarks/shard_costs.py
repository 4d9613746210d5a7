"""What more shards of units cost on one machine: the figures of docs/scale.md.

In: nothing; rows with one user each. Out: a table in Markdown on stdout: CPU seconds by rows and shards. Holds: each figure is
the median of fresh processes, from the built pipeline to its end, without imports. Not covered: runners of several machines.

    python benchmarks/shard_costs.py [--rounds 3] [--rows 1000 1000000]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from measure import as_installed

SHARDS = (32, 64, 128, 256, 1024)
PARTITIONS = 50


def one(rows: int, shards: int) -> float:
    """Return the CPU seconds of one pipeline in this process: a count and a sum of `PARTITIONS` partitions."""
    import apache_beam as beam
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import dp_pipelines as dp
    from dp_pipelines.transforms import PrivateAggregate, ReadParquet

    bounds = dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2)
    metrics = {"rows": dp.Count(), "total": dp.Sum("value", min_value=0, max_value=10)}
    query = dp.Query(privacy_unit="user", partition_by="key", metrics=metrics, bounds=bounds)
    stage = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]
    numbers = np.arange(rows)
    table = pa.table({"user": numbers, "key": numbers % PARTITIONS, "value": numbers % 11})
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "rows.parquet")
        pq.write_table(table, path)
        begin = time.process_time()
        with beam.Pipeline("FnApiRunner") as pipeline:
            pipeline | ReadParquet(path) | PrivateAggregate(stage, num_shards=shards)
        return time.process_time() - begin


def measured(rows: int, shards: int) -> float:
    """Return the CPU seconds of one pipeline in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(rows), str(shards)],
            capture_output=True,
            text=True,
            check=False,
            env=as_installed(cache),
        )
    if done.returncode:
        sys.exit(f"{rows} rows in {shards} shards failed\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 1_000_000])
    parser.add_argument("--one", type=int, nargs=2, metavar=("ROWS", "SHARDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    print("| rows | " + " | ".join(f"N = {shards:,}" for shards in SHARDS) + " |")
    print("|---" * (len(SHARDS) + 1) + "|")
    for rows in options.rows:
        seconds: dict[int, list[float]] = {shards: [] for shards in SHARDS}
        for _ in range(options.rounds):
            for shards in SHARDS:
                seconds[shards].append(measured(rows, shards))
        cells = (f"{statistics.median(of_shards):.1f}" for of_shards in seconds.values())
        print(f"| {rows:,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
