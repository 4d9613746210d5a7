"""Forty private steps of a linear model beside scikit-learn's lbfgs on sparse rows: processor seconds, in one run.

In: nothing; rows are drawn. Out: docs/benchmarks/training_steps.md; exit code 1 if a gate fails. Holds: every figure is
a process of its own, the runs of both are interleaved, and figures are medians of processor seconds, which other users of
the machine change little; rows are made and compilers have run before the clock starts. Not covered: reading and
writing (`training_scale.py`).

    python benchmarks/training_steps.py [--rows 1000000] [--rounds 3] [--out docs/benchmarks]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from fractions import Fraction

import numpy as np
from gates import Gate, gates_table
from measure import REPOSITORY, BenchmarkError, say, versions

NUMBERS, BINS, ROWS_OF_A_USER, STEPS = 20, 10, 10, 40
MANY_UNITS, MANY_NUMBERS, MANY_SECONDS = 100_000, 50, 3.0
OURS, SKLEARN, MANY = "dp_pipelines", "scikit-learn", "many features"


def places(rows: int, numbers: int) -> tuple[np.ndarray, np.ndarray]:
    """The bin of each number of each row, and labels that follow from two of them."""
    made = np.random.default_rng(20261123)
    bins = made.integers(0, BINS, (numbers, rows))
    labels = made.random(rows) < 1 / (1 + np.exp(-0.4 * (bins[0] + bins[1] - 9)))
    return bins, labels.astype(np.float64)


def ours(rows: int, numbers: int, rows_of_a_user: int) -> dict[str, float]:
    """Moments, whitening, products and forty steps with noise, from coded rows on disk."""
    from dp_pipelines.query.train_model import BinaryLabel, Steps
    from dp_pipelines.training import trainer
    from dp_pipelines.training.examples.coded import CodedExamples
    from dp_pipelines.training.examples.store import Mapped, Writing
    from dp_pipelines.training.features import moments
    from dp_pipelines.training.features.code_layout import CodeLayout
    from dp_pipelines.training.kept_draws import InMemory, Released
    from dp_pipelines.training.kernels.coded_linear import CodedLinear

    bins, labels = places(rows, numbers)
    layout = CodeLayout(hot=(BINS + 1,) * numbers, scaled=(False,) * numbers)
    with tempfile.TemporaryDirectory() as name:
        folder, none = pathlib.Path(name), np.zeros((rows, 0), np.int32)
        columns = {"codes": layout.coded(list(bins), rows), "scaled": none, "labels": labels}
        for part, numbers_of_part in columns.items():
            with Writing(folder / part) as file:
                file.write(numbers_of_part)
        mapped = [Mapped(folder / part, own.dtype.type, own.shape) for part, own in columns.items()]
        starts = np.append(np.arange(0, rows, rows_of_a_user), rows)
        kernel = CodedLinear(layout=layout, label=BinaryLabel(column="y"))

        def fit(units: int, steps: int) -> float:
            stored = CodedExamples(layout, starts[: units + 1], *mapped)
            vector = moments.clipped_moments(stored, 1.0)
            found = moments.directions(vector, Released(float(units)), 1.0)
            whitened = kernel.whitened(found.whitening)
            examples = stored.with_products(folder, "whitened", whitened.multiply)
            begin = time.process_time()
            trainer.train(
                whitened, examples, Steps(steps=steps), clip_norm=1.5 * found.effective_width**0.5,
                multiplier=Fraction(10), divisor=Released(float(starts[units])), draws=InMemory(), name="steps",
            )  # fmt: skip
            return time.process_time() - begin

        fit(100, 1)
        begin, cpu = time.perf_counter(), time.process_time()
        steps = fit(len(starts) - 1, STEPS)
        taken = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}
        return {**taken, "steps_cpu_seconds": steps}


def sklearn(rows: int) -> dict[str, float]:
    """Logistic regression without privacy on the same rows, sparse, with as many iterations at most."""
    import scipy.sparse
    from sklearn.linear_model import LogisticRegression

    bins, labels = places(rows, NUMBERS)
    columns = (bins + (BINS + 1) * np.arange(NUMBERS)[:, None]).T.ravel()
    width = (BINS + 1) * NUMBERS
    matrix = scipy.sparse.csr_array(
        (np.ones(len(columns)), columns, np.arange(0, len(columns) + 1, NUMBERS)), (rows, width)
    )
    begin, cpu = time.perf_counter(), time.process_time()
    LogisticRegression(max_iter=STEPS, tol=0).fit(matrix, labels)
    return {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}


def run(name: str, rows: int) -> dict[str, float]:
    """One figure in a process of its own."""
    command = [sys.executable, str(pathlib.Path(__file__)), "--only", name, "--rows", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError) as error:
        raise BenchmarkError(f"{name} failed with exit code {done.returncode}:\n{done.stderr[-2_000:]}") from error
    return report


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Forty private steps beside scikit-learn.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (default a million)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    parser.add_argument("--only", choices=[OURS, SKLEARN, MANY], help="measure one figure and print it as JSON")
    options = parser.parse_args()
    if options.only:
        measured = {
            OURS: lambda: ours(options.rows, NUMBERS, ROWS_OF_A_USER),
            SKLEARN: lambda: sklearn(options.rows),
            MANY: lambda: ours(MANY_UNITS, MANY_NUMBERS, 1),
        }[options.only]()
        print(json.dumps(measured))
        return 0
    reports: dict[str, list[dict[str, float]]] = {OURS: [], SKLEARN: [], MANY: []}
    for turn in range(options.rounds):
        for name, found in reports.items():
            found.append(run(name, options.rows))
            say(f"round {turn + 1}/{options.rounds}: {name}: {found[-1]['cpu_seconds']:.1f} CPU s")
    cpu, wall = (
        {name: statistics.median(each[key] for each in found) for name, found in reports.items()}
        for key in ("cpu_seconds", "seconds")
    )
    steps = statistics.median(each["steps_cpu_seconds"] for each in reports[OURS])
    gates = [
        Gate(
            name="processor seconds of the steps relative to scikit-learn's lbfgs", figure=steps / cpu[SKLEARN], limit=1
        ),
        Gate(name=f"{MANY_UNITS:,} units, {MANY_NUMBERS} features", figure=wall[MANY], limit=MANY_SECONDS, unit=" s"),
    ]
    lines = [f"| the {STEPS} steps alone | {steps:.1f} | |"]
    lines += [f"| {name} | {cpu[name]:.1f} | {wall[name]:.1f} |" for name in reports]
    text = "\n".join([
        f"# {STEPS} steps of a linear model on {options.rows:,} rows of {options.rows // ROWS_OF_A_USER:,} users",
        "",
        "Written by `benchmarks/training_steps.py`; do not edit.",
        "",
        f"{NUMBERS} numbers in ten bins. Ours: second moments, whitening, products of each user's rows, {STEPS} steps over all",
        f"users with noise. scikit-learn: lbfgs on sparse rows, at most {STEPS} iterations, without privacy. Many features:",
        f"{MANY_UNITS:,} users with one row each and {MANY_NUMBERS} numbers in ten bins, ours alone.",
        "",
        gates_table(gates),
        "",
        "| | CPU seconds | seconds |",
        "|---|---:|---:|",
        *lines,
        "",
        f"Medians of {options.rounds} rounds. "
        + ", ".join(f"{n} {v}" for n, v in versions(pathlib.Path(sys.executable), ["numpy", "numba", "scikit-learn"]).items())
        + ".",
        "",
    ])  # fmt: skip
    (options.out / "training_steps.md").write_text(text)
    print(text)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
