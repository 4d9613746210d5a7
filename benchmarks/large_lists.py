"""A release over a public list that is larger than memory should be: page views as an encyclopaedia publishes them every day.

In: a number of keys and of rows, thresholds. Out: seconds, processor seconds and memory of `plan` (which sorts the list the first
time) and of `run`; keys that are published, and those there by noise alone, as `plan` says and as the rows show. Holds: the
list is sorted once, whatever is run after it. Data stay in the folder for the next call; the whole shape needs 12 GB of disk.
Run: python benchmarks/large_lists.py --folder DIR [--keys 125000000] [--rows 100000000] [--thresholds 90 30]
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

COMMAND = pathlib.Path(sys.executable).parent / "dp-pipelines"
ROWS_OF_A_UNIT = 8
OF_A_FILE, OF_A_GROUP = 5_000_000, 1_000_000

JOB = """\
dataset: views
privacy_unit: reader
budget: {{epsilon: 2.0, delta: 1.0e-6}}
source: {{parquet: rows-*.parquet}}
stages:
  pages:
    kind: aggregate
    partition_by: page
    bounds: {{max_partitions_contributed: 10, max_contributions_per_partition: 1}}
    partitions: {{public_sorted_file: keys.parquet}}
    having: "views >= {threshold}"
    metrics:
      views: {{kind: count, stddev: 10}}
"""


def keys(count: int) -> np.ndarray:
    """Sorted different keys."""
    return np.cumsum(np.random.default_rng(1).integers(1, 2**36, count, dtype=np.int64))


def make(folder: pathlib.Path, count: int, rows: int) -> None:
    """The list and the rows, unless they are there: a few pages have most views, and most pages none."""
    done = folder / f"made-{count}-{rows}"
    if done.exists():
        return
    listed = keys(count)
    with pa.parquet.ParquetWriter(folder / "keys.parquet", pa.schema([("page", pa.int64())])) as writer:
        for begin in range(0, count, OF_A_GROUP):
            writer.write_table(pa.table({"page": listed[begin : begin + OF_A_GROUP]}))
    generator = np.random.default_rng(2)
    for number, begin in enumerate(range(0, rows, OF_A_FILE)):
        many = min(OF_A_FILE, rows - begin)
        popular = (count * generator.random(many) ** 8).astype(np.int64)
        places = (popular * 2_654_435_761) % count
        readers = generator.integers(0, max(rows // ROWS_OF_A_UNIT, 1), many)
        table = pa.table({"reader": readers, "page": listed[places]})
        pa.parquet.write_table(table, folder / f"rows-{number:04d}.parquet", row_group_size=OF_A_GROUP)
    done.touch()


def timed(*arguments: str, folder: pathlib.Path) -> tuple[float, float, float]:
    """Seconds, processor seconds and GiB of a command."""
    start = time.perf_counter()
    settings = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    child = subprocess.Popen([str(COMMAND), *arguments], cwd=folder, stdout=subprocess.DEVNULL, env=settings)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"{' '.join(arguments)} ended with {status}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def apart(function: Callable[..., None], *arguments: Any) -> None:
    """Call it in a process of its own: a command that a large process starts would inherit its peak of memory."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{function.__name__} ended with {process.exitcode}")


def main() -> None:
    """Make, plan, run, and print."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--folder", type=pathlib.Path, required=True)
    given.add_argument("--keys", type=int, default=125_000_000)
    given.add_argument("--rows", type=int, default=100_000_000)
    given.add_argument("--thresholds", type=int, nargs="+", default=[90, 30])
    given.add_argument("--memory", default="2GiB", help="of the local runner, beside which the list's filter is mapped")
    asked = given.parse_args()
    folder = asked.folder / f"{asked.keys}-{asked.rows}"
    folder.mkdir(parents=True, exist_ok=True)
    apart(make, folder, asked.keys, asked.rows)
    for threshold in asked.thresholds:
        (folder / "job.yaml").write_text(JOB.format(threshold=threshold))
        print(f"threshold {threshold}", flush=True)
        for name, arguments in (
            ("plan, which sorts the list where it is new", ("plan", "job.yaml")),
            (
                "run",
                ("run", "job.yaml", "--ledger", "none", "--memory", asked.memory, "--output", f"out-{time.time_ns()}"),
            ),
        ):
            seconds, processor, memory = timed(*arguments, folder=folder)
            print(f"  {name}: {seconds:.1f} s, {processor:.1f} processor s, {memory:.2f} GiB", flush=True)
        apart(report, folder / arguments[-1])


def report(output: pathlib.Path) -> None:
    """What is published, and how much of it noise alone has put there."""
    published = pa.parquet.read_table(output / "pages.parquet")
    (stage,) = json.loads((output / "manifest.json").read_text())["stages"]
    touched = pa.concat_tables(
        pa.parquet.read_table(path, columns=["page"]) for path in sorted(output.parent.glob("rows-*.parquet"))
    ).column("page")
    alone = np.isin(published.column("page").to_numpy(), touched.to_numpy(), invert=True).sum()
    print(f"  {published.num_rows:,} keys are published, of {stage['listed']['keys']:,}")
    print(f"  {alone:,} of them have no rows; at most {stage['listed']['by_noise']:,.0f} are expected")


if __name__ == "__main__":
    main()
