"""Forty private steps of a linear model beside scikit-learn's lbfgs on sparse rows: processor seconds, in one run.

In: nothing; rows are drawn. Out: docs/benchmarks/training_steps.md; exit code 1 if a gate fails. Holds: every figure is
a process of its own, the runs of both are interleaved, and figures are medians of processor seconds, which other users of
the machine change little; rows are made and compilers have run before the clock starts. Not covered: reading and
writing (`training_scale.py`).

    python benchmarks/training_steps.py [--rows 1000000] [--rounds 3] [--large 10000000] [--out docs/benchmarks]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from gates import Gate, gates_table
from measure import REPOSITORY, BenchmarkError, say, versions

NUMBERS, BINS, ROWS_OF_A_USER, STEPS = 20, 10, 10, 40
LARGE_ROUNDS = 2
MANY_UNITS, MANY_NUMBERS, MANY_SECONDS = 100_000, 50, 3.0
OURS, SKLEARN, MANY = "dp_pipelines", "scikit-learn", "many features"

Reports = dict[str, list[dict[str, float]]]
"""The runs of each figure."""


def places(rows: int, numbers: int) -> tuple[np.ndarray, np.ndarray]:
    """The bin of each number of each row, and labels that follow from two of them."""
    made = np.random.default_rng(20261123)
    bins = made.integers(0, BINS, (numbers, rows), np.uint8)
    labels = made.random(rows) < 1 / (1 + np.exp(-0.4 * (bins[0].astype(np.float64) + bins[1] - 9)))
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
    columns = (bins + (BINS + 1) * np.arange(NUMBERS, dtype=np.int32)[:, None]).T.ravel()
    width, starts = (BINS + 1) * NUMBERS, np.arange(0, len(columns) + 1, NUMBERS, dtype=np.int32)
    matrix = scipy.sparse.csr_array((np.ones(len(columns)), columns, starts), (rows, width))
    begin, cpu = time.perf_counter(), time.process_time()
    model = LogisticRegression(max_iter=STEPS, tol=0).fit(matrix, labels)
    taken = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}
    return {**taken, "iterations": float(model.n_iter_[0])}


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
    parser.add_argument(
        "--large", type=int, default=10_000_000, help="rows of a second comparison (default ten million; 0: none)"
    )
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    parser.add_argument("--only", choices=[OURS, SKLEARN, MANY], help="measure one figure and print it as JSON")
    options = parser.parse_args()
    if options.only:
        one = {
            OURS: lambda: ours(options.rows, NUMBERS, ROWS_OF_A_USER),
            SKLEARN: lambda: sklearn(options.rows),
            MANY: lambda: ours(MANY_UNITS, MANY_NUMBERS, 1),
        }[options.only]()
        print(json.dumps(one))
        return 0
    names = {OURS: options.rows, SKLEARN: options.rows, MANY: MANY_UNITS}
    small = measured(names, options.rounds)
    large = measured(dict.fromkeys((OURS, SKLEARN), options.large), LARGE_ROUNDS) if options.large else {}
    gates, text = judged(small, large, options.rows, options.large, options.rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "training_steps.md").write_text(text)
    print(text)
    return 0 if all(gate.holds for gate in gates) else 1


def measured(names: Mapping[str, int], rounds: int) -> Reports:
    """All rounds of some figures, with the rows of each, interleaved."""
    reports: Reports = {name: [] for name in names}
    for turn in range(rounds):
        for name, rows in names.items():
            reports[name].append(run(name, rows))
            say(f"round {turn + 1}/{rounds}: {name}, {rows:,} rows: {reports[name][-1]['cpu_seconds']:.1f} CPU s")
    return reports


def median(reports: Reports, name: str, key: str) -> float:
    """Of all rounds."""
    return statistics.median(each[key] for each in reports[name])


def lines_of(reports: Reports, rows: int) -> list[str]:
    """Lines of the table for one number of rows."""
    named = {OURS: f"dp_pipelines, {rows:,} rows", SKLEARN: f"scikit-learn, {rows:,} rows", MANY: "many features"}
    lines = [f"| the {STEPS} steps alone, {rows:,} rows | {median(reports, OURS, 'steps_cpu_seconds'):.1f} | |"]
    for name in reports:
        lines.append(
            f"| {named[name]} | {median(reports, name, 'cpu_seconds'):.1f} | {median(reports, name, 'seconds'):.1f} |"
        )
    return lines


def judged(small: Reports, large: Reports, rows: int, large_rows: int, rounds: int) -> tuple[list[Gate], str]:
    """All gates, and the page."""
    sizes = [(small, rows), *([(large, large_rows)] if large else [])]
    gates = [
        Gate(
            name=f"processor seconds of the steps relative to scikit-learn's lbfgs, {size:,} rows",
            figure=median(reports, OURS, "steps_cpu_seconds") / median(reports, SKLEARN, "cpu_seconds"),
            limit=1,
        )
        for reports, size in sizes
    ]
    name = f"{MANY_UNITS:,} units, {MANY_NUMBERS} features"
    gates.append(Gate(name=name, figure=median(small, MANY, "seconds"), limit=MANY_SECONDS, unit=" s"))
    iterations = " and ".join(
        f"{median(reports, SKLEARN, 'iterations'):.0f} ({size:,} rows)" for reports, size in sizes
    )
    libraries = versions(pathlib.Path(sys.executable), ["numpy", "numba", "scikit-learn"])
    found = ", ".join(f"{name} {version}" for name, version in libraries.items())
    return (
        gates,
        f"""# {STEPS} steps of a linear model beside scikit-learn

Written by `benchmarks/training_steps.py`; do not edit.

{NUMBERS} numbers in ten bins, {ROWS_OF_A_USER} rows a user. Ours: second moments, whitening, products of each user's rows,
{STEPS} steps over all users with noise. scikit-learn: lbfgs on sparse rows without privacy, at most {STEPS} iterations; it
stopped by itself after {iterations}.
Many features: {MANY_UNITS:,} users with one row each and {MANY_NUMBERS} numbers in ten bins, ours alone.

{gates_table(gates)}

| | CPU seconds | seconds |
|---|---:|---:|
{chr(10).join(line for reports, size in sizes for line in lines_of(reports, size))}

Medians of {rounds} rounds, {LARGE_ROUNDS} of the larger size. {found}.
""",
    )


if __name__ == "__main__":
    sys.exit(main())
