"""The benchmark of vector sums: 256 coordinates over a million rows, beside numpy's own sum by key, in one run.

In: nothing; the rows are made here. Out: docs/benchmarks/vectors.md; the gate on stdout; exit code 1 if a full run fails it. Both
start from the same Parquet files and end with the sums of 1,000 keys; ours bounds each user to 4 keys, clips each user's
sum per key to an L2 norm of 1, selects keys and adds noise, on Beam's in-memory runner. numpy does no bounding and no privacy.
A full run takes a minute on two cores, which should have nothing else to do.

    python benchmarks/vectors.py [--quick] [--rounds 3] [--out docs/benchmarks]
"""

import argparse
import functools
import itertools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines import ContributionBounds, Plan, Query, VectorSum
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.transforms import PrivateAggregate, PublishRelease, ReadParquet

SIZE, KEYS, LIMIT = 256, 1000, 3.0
BATCH = 2**14
MOST_KEYS_OF_A_USER = 4


def write_rows(rows: int, folder: pathlib.Path) -> list[pathlib.Path]:
    """Files with float32 lists, about one row for each user and key; vectors are about as long as the norm."""
    made = np.random.default_rng(11)
    files = []
    for begin in range(0, rows, BATCH):
        number = min(BATCH, rows - begin)
        lists = made.standard_normal((number, SIZE), dtype=np.float32) / np.float32(np.sqrt(SIZE))
        table = pa.table(
            {
                "user": made.integers(0, rows // 2, number),
                "key": made.integers(0, KEYS, number),
                "v": pa.FixedSizeListArray.from_arrays(pa.array(lists.ravel()), SIZE),
            }
        )
        files.append(folder / f"{begin:08}.parquet")
        pa.parquet.write_table(table, files[-1], compression="none", use_dictionary=False)
    return files


def read(files: list[pathlib.Path]) -> tuple[np.ndarray, np.ndarray]:
    """Keys and vectors of all rows, as numpy has them."""
    tables = [pa.parquet.read_table(file, columns=["key", "v"]) for file in files]
    keys = np.concatenate([table.column("key").to_numpy() for table in tables])
    parts = [table.column("v").combine_chunks().flatten().to_numpy().reshape(-1, SIZE) for table in tables]
    return keys, np.concatenate(parts)


def with_numpy(files: list[pathlib.Path]) -> np.ndarray:
    """Sums by key: rows sorted by key, then one sum for each stretch of them, in the precision of the rows."""
    keys, vectors = read(files)
    order = np.argsort(keys, kind="stable")
    return np.add.reduceat(vectors[order], np.searchsorted(keys[order], np.arange(KEYS)), axis=0)


def with_slices(files: list[pathlib.Path]) -> np.ndarray:
    """The same, faster: one call of `sum` for each key."""
    keys, vectors = read(files)
    order = np.argsort(keys, kind="stable")
    vectors, ends = vectors[order], np.searchsorted(keys[order], np.arange(KEYS + 1))
    return np.stack([vectors[begin:end].sum(axis=0) for begin, end in itertools.pairwise(ends)])


@functools.cache
def plan() -> StagePlan:
    """The stage, planned before the clock starts."""
    query = Query(
        privacy_unit="user",
        partition_by="key",
        bounds=ContributionBounds(max_partitions_contributed=MOST_KEYS_OF_A_USER),
        metrics={"v": VectorSum("v", size=SIZE, max_norm=1.0)},
    )
    return Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]


def with_ours(files: list[pathlib.Path]) -> int:
    """The published release; how many bytes it has."""
    stage = plan()
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            source = pipeline | ReadParquet([str(file) for file in files], columns=["user", "key", "v"])
            source | PrivateAggregate(stage, num_shards=64) | PublishRelease(f"{folder}/out")
        return (pathlib.Path(folder) / "out" / "s.parquet").stat().st_size


WAYS: dict[str, Callable[[list[pathlib.Path]], object]] = {
    "numpy, `add.reduceat`": with_numpy,
    "numpy, one slice per key": with_slices,
    "dp_pipelines on Beam": with_ours,
}


def one_run(name: str, files: list[pathlib.Path]) -> str:
    """Seconds and CPU seconds of one way, in this process."""
    if WAYS[name] is with_ours:
        with_ours(files[:1])  # builds the tables of noise
        plan.cache_clear()  # what was released is paid for: the run that is measured has a plan of its own
        plan()
    begin, of_cpu = time.perf_counter(), time.process_time()
    WAYS[name](files)
    return f"{time.perf_counter() - begin} {time.process_time() - of_cpu}"


def measured(name: str, folder: str) -> tuple[float, float]:
    """Seconds and CPU seconds of one way, in a process of its own."""
    command = [sys.executable, __file__, "--way", name, "--folder", folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall, of_cpu = (float(text) for text in done.stdout.split())
    print(f"{name}: {wall:.2f} s, of CPU {of_cpu:.2f} s", file=sys.stderr)
    return wall, of_cpu


def main() -> int:
    """Measure, write the page, judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"))
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(one_run(options.way, sorted(pathlib.Path(options.folder).glob("*.parquet"))))
        return 0
    rows = 50_000 if options.quick else 1_000_000
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        write_rows(rows, pathlib.Path(folder))
        for _ in range(options.rounds):
            for name, of_way in runs.items():
                of_way.append(measured(name, folder))
    walls = {name: [wall for wall, _ in of_way] for name, of_way in runs.items()}
    cpus = {name: statistics.median(of_cpu for _, of_cpu in of_way) for name, of_way in runs.items()}
    reduceat, slices, ours = (statistics.median(of_way) for of_way in walls.values())
    ratio = ours / reduceat
    verdict = (
        f"{ratio:.2f} times numpy's sum by key (limit {LIMIT:g}), {ours / slices:.2f} times its faster sum by slices"
    )
    table = [
        f"| {name} | {statistics.median(of_way):.2f} ({min(of_way):.2f} to {max(of_way):.2f}) | {cpus[name]:.2f} |"
        for name, of_way in walls.items()
    ]
    lines = [
        "# How fast sums of vectors are",
        "",
        "Written by `python benchmarks/vectors.py`; do not edit.",
        "",
        f"{rows:,} rows with lists of {SIZE} float32 and {KEYS:,} keys, from Parquet files. Every run is a separate process;",
        f"figures are medians of {options.rounds} runs. numpy publishes **without any privacy** and bounds nothing. At most two",
        "cores are used.",
        "",
        "| way | seconds (range) | CPU s |",
        "|---|---|---|",
        *table,
        "",
        f"dp_pipelines takes {verdict}.",
    ]
    if not options.quick:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "vectors.md").write_text("\n".join(lines) + "\n")
    print(verdict)
    return int(ratio > LIMIT and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
