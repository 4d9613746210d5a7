"""How many partitions each way of selecting them keeps, on keys by Zipf's law.

In: nothing; the rows are made here. Out: docs/benchmarks/selection.md; the means on stdout. Each figure is the mean of several
runs of `dp-pipelines run` without metrics under (1, 1e-6), with the range over the runs. Holds: all strategies see the same rows.
Takes about four minutes on two cores.

    python benchmarks/selection.py [--runs 10] [--out docs/benchmarks]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import REPOSITORY, say

USERS, ROWS_OF_A_USER, LARGEST_KEY = 20_000, 16, 100_000
EXPONENTS = (1.2, 1.3)
STRATEGIES = ("sips", "weighted_gaussian", "truncated_geometric")


def write_rows(path: pathlib.Path, exponent: float) -> None:
    """Rows of users who draw their keys by Zipf's law."""
    made = np.random.default_rng(23)
    keys = made.zipf(exponent, USERS * ROWS_OF_A_USER)
    kept = keys < LARGEST_KEY
    users = np.repeat(np.arange(USERS), ROWS_OF_A_USER)
    pq.write_table(pa.table({"user": users[kept], "key": keys[kept]}), path)


def partitions_kept(folder: pathlib.Path, strategy: str, number: int) -> int:
    """One release of the partitions alone."""
    bounds = {"max_partitions_contributed": ROWS_OF_A_USER}
    partitions = {"private": {"strategy": strategy}}
    job = {
        "dataset": "zipf",
        "privacy_unit": "user",
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "source": {"parquet": "rows.parquet"},
        "stages": {"keys": {"kind": "aggregate", "partition_by": "key", "bounds": bounds, "partitions": partitions}},
    }
    (folder / "job.json").write_text(json.dumps(job))
    out = folder / f"{strategy}-{number}"
    command = [
        sys.executable,
        "-m",
        "dp_pipelines.jobs.cli.main",
        "run",
        str(folder / "job.json"),
        "--output",
        str(out),
    ]
    subprocess.run([*command, "--ledger", "none"], check=True, stdout=subprocess.DEVNULL)
    return int(pq.read_metadata(out / "keys.parquet").num_rows)


def section(exponent: float, runs: int) -> list[str]:
    """The table of one exponent."""
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        write_rows(folder / "rows.parquet", exponent)
        kept = {s: [partitions_kept(folder, s, number) for number in range(runs)] for s in STRATEGIES}
    ours = statistics.mean(kept["sips"])
    lines = [
        f"## Exponent {exponent}",
        "",
        "| strategy | partitions, mean (range) | sips keeps this many times as many |",
        "|---|---|---|",
    ]
    for strategy, counts in kept.items():
        mean = statistics.mean(counts)
        lines.append(f"| {strategy} | {mean:.0f} ({min(counts)} to {max(counts)}) | {ours / mean:.2f} |")
        say(f"exponent {exponent}: {strategy} keeps {mean:.0f}")
    return [*lines, ""]


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Partitions kept by each strategy.")
    parser.add_argument("--runs", type=int, default=10, help="releases by each strategy (default 10)")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    options = parser.parse_args()
    tables = [line for exponent in EXPONENTS for line in section(exponent, options.runs)]
    head = f"""# How many partitions are kept

Written by `benchmarks/selection.py`; do not edit.

{USERS:,} users with {ROWS_OF_A_USER} rows each, keys by Zipf's law below {LARGEST_KEY:,}, at most {ROWS_OF_A_USER}
partitions per user, under (1, 1e-6), releasing partitions alone; {options.runs} releases per strategy.
"""
    text = "\n".join([head, *tables])
    (options.out / "selection.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
