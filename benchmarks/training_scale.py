"""A model of a million users and ten million rows, from Parquet, by `dp-pipelines run`: time and memory, part by part.

In: nothing; the rows are made here, once, and kept in data/bench/. Out: docs/benchmarks/training_scale.md; exit code 1 if a
gate fails. Holds: the whole command is measured in a process of its own: reading, windows over each user's rows, bins, moments,
steps, evaluation, report; the command's progress tells which part it is at. scikit-learn is measured between these runs, in
processes of its own. Gates are for ten million rows on two quiet cores; processor seconds say more where others use the machine.
Takes some two minutes a round, 4 GB of memory (scikit-learn) and 4 GB of disk.

    python benchmarks/training_scale.py [--rows 10000000] [--rounds 1] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import data
import numpy as np
import processes
import pyarrow as pa
import pyarrow.parquet as pq
from gates import Gate, gates_table
from measure import REPOSITORY, BenchmarkError, say, versions

LIMIT_GIB = 2.0
LIMIT_SECONDS = 90.0
"""For ten million rows; others in proportion."""

LEAST_SECONDS = 20.0
"""What a run may take with however few rows: it starts, plans and makes tables of noise."""

FORMER_SECONDS = 65
"""Processor seconds that version 0.1.0 took to read these rows, compute windows and write examples, its largest part beside
steps."""

START, READING, WINDOWS, STEPS = (
    "start, plan",
    "reading, shuffle by user",
    "windows, bounds, writing examples",
    "40 steps",
)

PARTS = {
    "step 2": READING,
    "step 3": WINDOWS,
    "releasing label.bins": "bins",
    "releasing label.users": "number of users and examples",
    "preparing": "encoding examples",
    "releasing label.moments": "second moments, whitening, products of each user's rows, tables of noise",
    "training": STEPS,
    "evaluating": "evaluation, report",
}
"""What the lines of progress begin with, and what is done from there on."""

NUMBER_OF_STEPS = 40
HELD_OUT = 0.2
CELLS = 10

FILE_ROWS = 1_000_000
NUMBERS = 20
ROWS_OF_A_USER = 10


def rows_made(rows: int) -> pathlib.Path:
    """The folder with so many rows, made first if it is not there."""
    folder = data.FOLDER / f"training-v1-{rows}"
    if not folder.is_dir():
        data.FOLDER.mkdir(parents=True, exist_ok=True)
        say(f"writing {rows:,} rows")
        with tempfile.TemporaryDirectory(prefix=".making-", dir=data.FOLDER) as staging:
            whole = pathlib.Path(staging, "whole")
            whole.mkdir()
            write_rows(whole, rows)
            whole.rename(folder)
    return folder


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


def job(source: str) -> dict[str, object]:
    """The job: twenty number features in ten bins, one category, one window."""
    features: dict[str, object] = {
        f"x{place}": {"kind": "number", "min_value": 0, "max_value": 1, "bins": CELLS} for place in range(NUMBERS)
    }
    features["before"] = {"kind": "number", "min_value": 0, "max_value": 30, "edges": [1, 2, 4, 8, 16]}
    features["kind"] = {"kind": "category", "categories": ["a", "b", "c", "d"]}
    return {
        "dataset": "scale",
        "privacy_unit": "user",
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "source": {"parquet": source},
        "stages": {
            "label": {
                "kind": "train",
                "unit_columns": {
                    "before": "count(*) OVER (ORDER BY day RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
                },
                "label": {"kind": "binary", "column": "label"},
                "features": features,
                "max_examples_per_unit": 16,
                "held_out": HELD_OUT,
            }
        },
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the command.

    Args:
        seconds, cpu_seconds: of the whole process.
        peak_gib: of its memory.
        parts: seconds and processor seconds of each part.
        auc: as released, and the standard deviation of its noise.
    """

    seconds: float
    cpu_seconds: float
    peak_gib: float
    parts: dict[str, tuple[float, float]]
    auc: tuple[float, float]

    @property
    def before(self) -> float:
        """Processor seconds until examples are there."""
        return sum(self.parts[name][1] for name in (START, READING, WINDOWS))

    @property
    def largest(self) -> float:
        """Processor seconds of the largest part beside the steps."""
        others = (cpu for name, (_, cpu) in self.parts.items() if name not in (START, READING, WINDOWS, STEPS))
        return max(self.before, *others)


def watched(command: list[str]) -> tuple[dict[str, tuple[float, float]], resource.struct_rusage]:
    """Run a command: seconds, and processor seconds, of each of its parts; and what the process used."""
    found = dict.fromkeys((START, *PARTS.values()), (0.0, 0.0))
    now, last, last_cpu = START, time.monotonic(), 0.0
    every = {**os.environ, "DP_PIPELINES_PROGRESS_SECONDS": "0.05"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=every) as process:
        assert process.stderr is not None

        def until_here(cpu: float) -> None:
            nonlocal last, last_cpu
            taken, before = time.monotonic() - last, found[now]
            found[now] = before[0] + taken, before[1] + cpu - last_cpu
            last, last_cpu = last + taken, cpu

        for line in process.stderr:
            text = line.removeprefix("progress: ")
            until_here(processes.cpu(process.pid))
            now = next((part for begin, part in PARTS.items() if text.startswith(begin)), now)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        until_here(used.ru_utime + used.ru_stime)
    if process.returncode:
        raise BenchmarkError(f"the command failed with exit code {process.returncode}")
    return found, used


def ours(rows: int) -> Run:
    """The command over so many rows."""
    with tempfile.TemporaryDirectory(dir=data.FOLDER) as name:
        folder = pathlib.Path(name)
        (folder / "job.json").write_text(json.dumps(job(str(rows_made(rows) / "rows-*.parquet"))))
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
        parts, used = watched([*command, "--output", str(folder / "out")])
        seconds = time.monotonic() - begin
        auc = json.loads((folder / "out" / "label" / "evaluation.json").read_text())["measures"]["auc"]
    return Run(
        seconds=seconds,
        cpu_seconds=used.ru_utime + used.ru_stime,
        peak_gib=used.ru_maxrss / 2**20,
        parts=parts,
        auc=(auc["value"], auc["noise_stddev"]),
    )


def sklearn(rows: int) -> tuple[float, int]:
    """Processor seconds and iterations of logistic regression without privacy, on as many rows as ours trains on."""
    import scipy.sparse
    from sklearn.linear_model import LogisticRegression

    names, parts, labels = [f"x{place}" for place in range(NUMBERS)], [], []
    for path in sorted(rows_made(rows).glob("rows-*.parquet")):
        table = pq.read_table(path, columns=[*names, "label"])
        table = table.slice(0, round((1 - HELD_OUT) * table.num_rows))
        cells = [np.minimum(table[name].to_numpy() * CELLS, CELLS - 1).astype(np.int32) for name in names]
        parts.append(np.stack([own + CELLS * place for place, own in enumerate(cells)], axis=1).astype(np.int32))
        labels.append(table["label"].to_numpy())
    columns, label = np.concatenate(parts), np.concatenate(labels)
    del parts
    starts = np.arange(0, columns.size + 1, NUMBERS, dtype=np.int32)
    shape = len(label), NUMBERS * CELLS
    matrix = scipy.sparse.csr_array((np.ones(columns.size), columns.ravel(), starts), shape)
    begin = time.process_time()
    model = LogisticRegression(max_iter=NUMBER_OF_STEPS, tol=0).fit(matrix, label)
    return time.process_time() - begin, int(model.n_iter_[0])


def sklearn_apart(rows: int) -> tuple[float, int]:
    """The same in a process of its own."""
    command = [sys.executable, str(pathlib.Path(__file__)), "--rows", str(rows), "--only", "scikit-learn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"scikit-learn failed with exit code {done.returncode}:\n{done.stderr[-2_000:]}")
    seconds, iterations = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), int(iterations)


def judge(run: Run, theirs: tuple[float, int], rows: int) -> list[Gate]:
    """All gates."""
    share = rows / 1e7
    half = FORMER_SECONDS / 2 * share
    return [
        Gate(name="seconds in total", figure=run.seconds, limit=max(LIMIT_SECONDS * share, LEAST_SECONDS), unit=" s"),
        Gate(name="peak memory of the process", figure=run.peak_gib, limit=LIMIT_GIB, unit=" GiB"),
        Gate(
            name="processor seconds of the largest part beside the steps: half of what reading, windows and writing took",
            figure=run.largest,
            limit=max(half, LEAST_SECONDS),
            unit=" s",
        ),
        Gate(
            name="processor seconds of a step relative to an iteration of scikit-learn's lbfgs on sparse rows",
            figure=run.parts[STEPS][1] / NUMBER_OF_STEPS / (theirs[0] / theirs[1]),
            limit=1,
        ),
    ]


def page(run: Run, theirs: tuple[float, int], gates: Sequence[Gate], rows: int, rounds: int) -> str:
    """The page in docs/."""
    parts = "".join(f"| {name} | {took:.1f} | {cpu:.1f} |\n" for name, (took, cpu) in run.parts.items())
    versioned = versions(pathlib.Path(sys.executable), ["numpy", "pyarrow", "numba", "scikit-learn"])
    return f"""# Training on {rows:,} rows of {rows // ROWS_OF_A_USER:,} users

Written by `benchmarks/training_scale.py`; do not edit.

`dp-pipelines run` of a job with {NUMBERS} number features in ten bins, a category and a window over each user's rows, under
(1, 1e-6). Training takes 40 steps over all training users, in one process on two cores. scikit-learn fits logistic regression
without privacy to as many rows as ours trains on, already in bins and in memory, with at most 40 iterations of lbfgs. On these
rows it stops early by itself; [training_steps.md](training_steps.md) compares whole fits.

{gates_table(gates)}

| | |
|---|---:|
| processor seconds of the process | {run.cpu_seconds:.0f} |
| processor seconds of the 40 steps, noise included | {run.parts[STEPS][1]:.1f} |
| processor seconds of scikit-learn's lbfgs | {theirs[0]:.1f} |
| iterations after which it stopped | {theirs[1]} |
| AUC on held-out users, as released | {run.auc[0]:.3f} ± {1.96 * run.auc[1]:.3f} |

Where the time goes, as the command tells its progress:

| part | seconds | processor seconds |
|---|---:|---:|
{parts}
The first three parts take {run.before:.0f} processor seconds together. For ten million rows version 0.1.0 took {FORMER_SECONDS},
and nearly ten minutes in all. {"One round" if rounds == 1 else f"The median of {rounds} rounds"}.
{", ".join(f"{name} {version}" for name, version in versioned.items())}.
"""


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Train on many rows.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows (default 10 million)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds, of which the median counts (default 1)")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    parser.add_argument("--only", choices=["scikit-learn"], help="measure that alone and print its processor seconds")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(sklearn(options.rows)))
        return 0
    rows_made(options.rows)
    runs, theirs = [], []
    for turn in range(options.rounds):
        runs.append(ours(options.rows))
        say(f"round {turn + 1}/{options.rounds}: {runs[-1].seconds:.0f} s, {runs[-1].cpu_seconds:.0f} CPU s")
        theirs.append(sklearn_apart(options.rows))
        say(f"round {turn + 1}/{options.rounds}: scikit-learn {theirs[-1][0]:.1f} CPU s")
    run = sorted(runs, key=lambda each: each.cpu_seconds)[len(runs) // 2]
    lbfgs = sorted(theirs)[len(theirs) // 2]
    gates = judge(run, lbfgs, options.rows)
    text = page(run, lbfgs, gates, options.rows, options.rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "training_scale.md").write_text(text)
    print(text)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
