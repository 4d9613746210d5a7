"""The benchmark of training: steps a second beside Opacus with ghost clipping, judged by gates.

In: nothing; rows are drawn. Out: docs/benchmarks/training_speed.md; progress on stderr, the gates on stdout; exit code 1 if a
gate fails. Holds: every figure is a process of its own on two threads, and the runs of all systems are interleaved, so that a
busy minute of the machine hits all of them; figures are medians. Needs .venv-opacus (`make .venv-opacus/installed` sets it up). A
full run takes some three minutes on two cores, which should have nothing else to do.

    python benchmarks/training_speed.py [--rounds 3] [--seconds 5] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from gates import Gate, gates_table
from measure import REPOSITORY, BenchmarkError, cores, say, versions
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dp_pipelines.noise.poisson_samples import PoissonSampler
    from dp_pipelines.training.examples.store import Chunk
    from dp_pipelines.training.gaussian_noise import NoisySum
    from dp_pipelines.training.kernels.mlp import MLPKernel

OPACUS_PYTHON = REPOSITORY / ".venv-opacus" / "bin" / "python"
OPACUS_SCRIPT = REPOSITORY / "benchmarks" / "peers" / "opacus_ghost.py"
WIDTH, HIDDEN, CLASSES = 64, (256, 64), 2
BATCH, UNITS, RATE = 1024, 100_000, 0.01
THREADS = 2
QUIET = 1.5
"""Cores that the kernel uses of two, on a machine with nothing else to do: some 1.8."""

KERNEL, MANY, STEP, SAMPLES = "kernel", "kernel, 8 rows a user", "whole step", "samples"
OPACUS, LOADER = "Opacus, ghost clipping", "Opacus, ghost clipping and its loader"
NAMES = {
    KERNEL: "clipped sum of one batch, no noise",
    MANY: "the same with 8 rows per user",
    STEP: "sample, gather, clip, exact noise, update",
    SAMPLES: "sample and gather only, from memory, one thread",
    OPACUS: "clip, noise, update; the same batch repeatedly",
    LOADER: "sample, gather, clip, noise, update",
}
INTRODUCTION = f"""# How fast training is

Written by `benchmarks/training_speed.py`; do not edit.

The network has {WIDTH} features, {HIDDEN[0]} and {HIDDEN[1]} hidden units and {CLASSES} classes. Batches have {BATCH:,} users
with one row each, or about {UNITS * RATE:,.0f} users out of {UNITS:,} where they are sampled. dp_pipelines clips whole users,
adds their gradients exactly and draws noise on a lattice from the operating system's generator. Opacus clips rows by ghost
clipping, adds in float32 and draws noise from PyTorch's generator. Both run on {THREADS} CPU threads. Steps per second are
medians over separate processes, interleaved.

The first line of the gates compares like with like: whole steps. The fourth says how much of a step is left for noise, sample and
update: it holds sums without noise against whole steps.
"""


def timed(step: Callable[[], object], seconds: float) -> dict[str, float]:
    """Call again and again, at least once, after a warm-up: how often, how long, how much of the processor."""
    for _ in range(10):
        step()
    begin, cpu, steps = time.perf_counter(), time.process_time(), 0
    while not steps or time.perf_counter() - begin < seconds:
        step()
        steps += 1
    return {
        "steps": steps,
        "seconds": time.perf_counter() - begin,
        "cpu_seconds": time.process_time() - cpu,
    }


def measure_ours(kind: str, seconds: float) -> dict[str, float]:
    """One of our own figures, in this process."""
    from dp_pipelines.noise.poisson_samples import PoissonSampler
    from dp_pipelines.query.train_model import ClassLabel
    from dp_pipelines.training.examples.store import Chunk
    from dp_pipelines.training.gaussian_noise import NoisySum
    from dp_pipelines.training.kernels.mlp import MLPKernel

    made = np.random.default_rng(1)
    rows = made.standard_normal((UNITS, WIDTH)).astype(np.float32)
    labels = (made.random(UNITS) < 0.5).astype(np.float64)
    sampler = PoissonSampler(RATE)

    def sample() -> Chunk:
        units = sampler.draw(UNITS)
        return Chunk(rows.take(units, axis=0), labels.take(units), np.arange(len(units) + 1))

    if kind == SAMPLES:
        return timed(sample, seconds)
    label = ClassLabel(column="label", classes=list(range(CLASSES)))
    kernel = MLPKernel(width=WIDTH, hidden=HIDDEN, label=label, key=b"benchmark", threads=THREADS)
    # The last layer begins at zero; away from there all layers have a gradient.
    at = kernel.initial() + made.standard_normal(kernel.size) / 20
    if kind in (KERNEL, MANY):
        each = 8 if kind == MANY else 1
        chosen = made.integers(0, UNITS, BATCH * each)
        batch = Chunk(rows[chosen], labels[chosen], np.arange(BATCH + 1) * each)
        return timed(lambda: kernel.clipped_sum(at, batch, 1.0), seconds)
    noise = NoisySum(size=kernel.size, norm=1.0, multiplier=Fraction(1), slack=kernel.slack)
    return loop(kernel, rows, labels, noise, sampler, seconds)


def loop(
    kernel: "MLPKernel",
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    noise: "NoisySum",
    sampler: "PoissonSampler",
    seconds: float,
) -> dict[str, float]:
    """Whole steps: the loop of a train stage, as `dp-pipelines run` runs it, with all units in memory."""
    from dp_pipelines.query.train_model import Steps
    from dp_pipelines.training import trainer
    from dp_pipelines.training.kept_draws import InMemory

    units = AllUnits(rows, labels)

    def fit(steps: int) -> dict[str, float]:
        planned = Steps(steps=steps, sampling_rate=RATE, learning_rate=0.05, momentum=0.8)
        begin, cpu = time.perf_counter(), time.process_time()
        trainer.fit(kernel, units, planned, noise, sampler, float(UNITS), InMemory(), "steps", lambda step: None)
        return {"steps": steps, "seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}

    fit(10)
    some = fit(50)
    return fit(max(10, round(seconds / some["seconds"] * some["steps"])))


@dataclasses.dataclass(frozen=True)
class AllUnits:
    """Units of one row each, in memory, as the loop sees them.

    Args:
        rows: float32 (units, width).
        labels: (units,).
    """

    rows: NDArray[np.float32]
    labels: NDArray[np.float64]

    @property
    def units(self) -> int:
        """How many there are."""
        return len(self.labels)

    def chunks(self, units_per_chunk: int) -> "Iterator[Chunk]":
        """All of them, so many at a time."""
        for begin in range(0, self.units, units_per_chunk):
            yield self.take(np.arange(begin, min(begin + units_per_chunk, self.units)))

    def take(self, units: NDArray[np.int64]) -> "Chunk":
        """Those of these places."""
        from dp_pipelines.training.examples.store import Chunk

        return Chunk(self.rows.take(units, axis=0), self.labels.take(units), np.arange(len(units) + 1))


def run(name: str, seconds: float) -> dict[str, float]:
    """One figure in a process of its own."""
    if name in (OPACUS, LOADER):
        command = [str(OPACUS_PYTHON), str(OPACUS_SCRIPT), "batch" if name == OPACUS else "loader", str(seconds)]
    else:
        command = [sys.executable, str(pathlib.Path(__file__)), "--only", name, "--seconds", str(seconds)]
    threads = "1" if name == SAMPLES else str(THREADS)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": ""},
    )
    try:
        report: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError) as error:
        raise BenchmarkError(f"{name} failed with exit code {done.returncode}:\n{done.stderr[-2_000:]}") from error
    return report


def rates(reports: Sequence[Mapping[str, float]]) -> list[float]:
    """Steps a second of each run."""
    return [report["steps"] / report["seconds"] for report in reports]


def judge(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Gate]:
    """All gates, in the order of the table."""
    median = {name: statistics.median(rates(reports)) for name, reports in measured.items()}

    def gate(name: str, figure: float, limit: float, unit: str) -> Gate:
        return Gate(name=name, figure=figure, limit=limit, at_least=True, unit=unit)

    return [
        gate(
            "whole steps relative to Opacus's with ghost clipping, without its loader",
            median[STEP] / median[OPACUS],
            2.2,
            "x",
        ),
        gate("whole steps", median[STEP], 200, " steps/s"),
        gate("clipped sums, no noise", median[KERNEL], 500, " steps/s"),
        gate("clipped sums relative to Opacus's whole steps", median[KERNEL] / median[OPACUS], 3, "x"),
        gate("samples gathered, one thread", median[SAMPLES], 5_000, " batches/s"),
    ]


def runs_table(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """One line a figure."""
    lines = ["| | what | steps/s, median (range) | CPU ms per step |", "|---|---|---|---|"]
    for name, reports in measured.items():
        found = sorted(rates(reports))
        cpu = statistics.median(1e3 * report["cpu_seconds"] / report["steps"] for report in reports)
        lines.append(
            f"| {name} | {NAMES[name]} | {statistics.median(found):,.0f} ({found[0]:,.0f} to {found[-1]:,.0f}) | {cpu:.2f} |"
        )
    return "\n".join(lines)


def note(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Whether the machine had time for the two threads."""
    used = statistics.median(report["cpu_seconds"] / report["seconds"] for report in measured[KERNEL])
    words = f"The kernel used {used:.1f} of {cores()} cores"
    return f"{words}." if used >= QUIET else f"{words}: **the machine was busy, and these figures are no verdict.**"


def page(measured: Mapping[str, Sequence[Mapping[str, float]]], gates: Sequence[Gate], rounds: int) -> str:
    """The page in docs/."""
    ours = versions(pathlib.Path(sys.executable), ["numpy"])
    theirs = versions(OPACUS_PYTHON, ["torch", "opacus"])
    found = ", ".join(f"{name} {version}" for name, version in {**theirs, **ours}.items())
    parts = [
        INTRODUCTION,
        gates_table(gates, digits=1),
        note(measured),
        "## Runs",
        runs_table(measured),
        f"{rounds} rounds. {found}.",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> int:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    parser.add_argument("--only", choices=[KERNEL, MANY, STEP, SAMPLES], help="measure one figure and print it as JSON")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure_ours(options.only, options.seconds)))
        return 0
    if not OPACUS_PYTHON.exists():
        raise BenchmarkError(
            "Opacus needs .venv-opacus, which `make .venv-opacus/installed` sets up (Python 3.11 or newer)"
        )
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
    for turn in range(options.rounds):
        for name, reports in measured.items():
            reports.append(run(name, options.seconds))
            say(f"round {turn + 1}/{options.rounds}: {name}: {rates(reports)[-1]:,.0f} steps/s")
    gates = judge(measured)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "training_speed.md").write_text(page(measured, gates, options.rounds))
    print(gates_table(gates, digits=1), note(measured), sep="\n\n")
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
