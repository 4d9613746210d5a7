"""A model of a million users and ten million rows, from Parquet, by `dp-pipelines run`: time and memory, part by part.

In: nothing; the rows are made here. Out: docs/benchmarks/training_scale.md; exit code 1 if a gate fails.
Holds: the whole command is measured in a process of its own: reading, windows over each user's rows, bins, moments, steps,
evaluation, report; the command's progress tells which part it is at. Gates are for ten million rows on two
quiet cores; processor seconds say more where others use the machine. Takes some two minutes and 3 GB of disk.

    python benchmarks/training_scale.py [--rows 10000000] [--out docs/benchmarks]
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import processes
import pyarrow as pa
import pyarrow.parquet as pq
from gates import Gate, gates_table
from measure import REPOSITORY, BenchmarkError, say

LIMIT_GIB = 2.0
LIMIT_SECONDS = 90.0
"""For ten million rows; others in proportion."""

FORMER_SECONDS = 65
"""Processor seconds that version 0.1.0 took to read these rows, compute windows and write examples."""

PARTS = {
    "step 1": "start, first look at the files",
    "step 2": "reading, shuffle by user",
    "step 3": "windows, bounds, writing examples",
    "training": "40 steps",
    "releasing": "bins and second moments",
    "preparing": "encoding examples",
    "evaluating": "evaluation, report",
}
"""What the lines of progress begin with, and what is done from there on."""

FILE_ROWS = 1_000_000
NUMBERS = 20
ROWS_OF_A_USER = 10


def write_rows(folder: pathlib.Path, rows: int) -> None:
    """Files of rows: numbers, categories, a day, and a label that follows from some of them."""
    users = max(1, rows // ROWS_OF_A_USER)
    for number, begin in enumerate(range(0, rows, FILE_ROWS)):
        made = np.random.default_rng([20261121, number])
        size = min(FILE_ROWS, rows - begin)
        numbers = made.random((NUMBERS, size))
        label = made.random(size) < 1 / (1 + np.exp(-4 * (numbers[0] + numbers[1] - 1)))
        columns = {f"x{place}": values for place, values in enumerate(numbers)}
        columns |= {"user": made.integers(0, users, size), "day": made.integers(0, 365, size), "label": label}
        columns["kind"] = np.array(["a", "b", "c", "d"])[made.integers(0, 4, size)]
        pq.write_table(pa.table(columns), folder / f"rows-{number:03}.parquet")


def job() -> dict[str, object]:
    """The job: twenty number features in ten bins, one category, one window."""
    features: dict[str, object] = {
        f"x{place}": {"kind": "number", "min_value": 0, "max_value": 1, "bins": 10} for place in range(NUMBERS)
    }
    features["before"] = {"kind": "number", "min_value": 0, "max_value": 30, "edges": [1, 2, 4, 8, 16]}
    features["kind"] = {"kind": "category", "categories": ["a", "b", "c", "d"]}
    return {
        "dataset": "scale",
        "privacy_unit": "user",
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "source": {"parquet": "rows-*.parquet"},
        "stages": {
            "label": {
                "kind": "train",
                "unit_columns": {
                    "before": "count(*) OVER (ORDER BY day RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
                },
                "label": {"kind": "binary", "column": "label"},
                "features": features,
                "max_examples_per_unit": 16,
            }
        },
    }


def watched(command: list[str]) -> dict[str, tuple[float, float]]:
    """Run a command: seconds, and processor seconds, of each of its parts."""
    found: dict[str, tuple[float, float]] = {}
    now, last, last_cpu = PARTS["step 1"], time.monotonic(), 0.0
    every = {**os.environ, "DP_PIPELINES_PROGRESS_SECONDS": "0.05"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=every) as process:
        assert process.stderr is not None
        for line in process.stderr:
            text = line.removeprefix("progress: ")
            here = next((part for begin, part in PARTS.items() if text.startswith(begin)), now)
            taken, cpu = time.monotonic() - last, processes.cpu(process.pid) - last_cpu
            before = found.get(now, (0.0, 0.0))
            found[now] = before[0] + taken, before[1] + cpu
            now, last, last_cpu = here, last + taken, last_cpu + cpu
    if process.returncode:
        raise BenchmarkError(f"the command failed with exit code {process.returncode}")
    return found


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Train on many rows.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows (default 10 million)")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        say(f"writing {options.rows:,} rows")
        write_rows(folder, options.rows)
        (folder / "job.json").write_text(json.dumps(job()))
        command = [
            sys.executable,
            "-m",
            "dp_pipelines.jobs.cli.main",
            "run",
            str(folder / "job.json"),
            "--ledger",
            "none",
        ]
        begin = time.monotonic()
        parts = watched([*command, "--output", str(folder / "out")])
        seconds = time.monotonic() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak, cpu = used.ru_maxrss / 2**20, used.ru_utime + used.ru_stime
        measures = json.loads((folder / "out" / "label" / "evaluation.json").read_text())["measures"]
    before = sum(parts[PARTS[begin]][1] for begin in ("step 1", "step 2", "step 3"))
    gates = [
        Gate(name="seconds in total", figure=seconds, limit=LIMIT_SECONDS * options.rows / 1e7, unit=" s"),
        Gate(name="peak memory of the process", figure=peak, limit=LIMIT_GIB, unit=" GiB"),
    ]
    text = f"""# Training on {options.rows:,} rows of {options.rows // ROWS_OF_A_USER:,} users

Written by `benchmarks/training_scale.py`; do not edit.

`dp-pipelines run` of a job with {NUMBERS} number features in ten bins, a category and a window over each user's rows, under
(1, 1e-6). Training takes 40 steps over all training users, in one process on two cores.

{gates_table(gates)}

| | |
|---|---:|
| processor seconds of the process | {cpu:.0f} |
| AUC on held-out users, as released | {measures["auc"]["value"]:.3f} ± {1.96 * measures["auc"]["noise_stddev"]:.3f} |

Where the time goes, as the command tells its progress:

| part | seconds | processor seconds |
|---|---:|---:|
{"".join(f"| {name} | {took:.1f} | {of:.1f} |{chr(10)}" for name, (took, of) in parts.items())}
The first three parts take {before:.0f} processor seconds together. For ten million rows version 0.1.0 took {FORMER_SECONDS}, and
nearly ten minutes in all.
"""
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "training_scale.md").write_text(text)
    print(text)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
