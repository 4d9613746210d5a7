"""The benchmark of shrunk means: their error beside that of raw means and of constants, and how often their bars hold the truth.

In: nothing; the tables are made here, as exact totals. Out: docs/benchmarks/means.md; the table on stdout; exit code 1 if a gate
fails. Holds: noise is drawn by the release step itself, at the noise of a real plan; true means and counts are made anew for
each repetition; errors are those of means over the rows that the contribution bounds keep. A minute on two cores.

    python benchmarks/means.py [--repetitions 300] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import functools
import pathlib
import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from gates import Gate, gates_table

import dp_pipelines as dp
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.metrics.base import Noisy
from dp_pipelines.metrics.shrinkage import shrunk
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release.all_partitions import published
from dp_pipelines.release.draw import draw_release

Floats = npt.NDArray[np.float64]

PARTITIONS = 120
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
ERROR, ERROR_IN_HEAVY_NOISE, COVERED = 1.05, 1.10, (0.90, 0.99)
MANY, SECONDS = 5000, 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """One kind of table.

    Args:
        low, high: the declared range.
        means: draws the true means.
        rows: the median number of rows of a partition; the numbers are log-normal.
        rows_spread: the deviation of their logarithm.
        partitions_of_a_unit: the contribution bound, with which the noise grows.
        heavy: whether the noise of a typical mean exceeds the range.
    """

    low: float
    high: float
    means: Callable[[np.random.Generator, int], Floats]
    rows: float
    rows_spread: float
    partitions_of_a_unit: int
    heavy: bool = False


def two_groups(made: np.random.Generator, size: int) -> Floats:
    """Half of the partitions around 25, half around 75."""
    return np.where(made.random(size) < 0.5, 25.0, 75.0) + made.normal(0, 2, size)


SHAPES = {
    "ratings": Shape(
        low=1, high=5, means=lambda r, n: r.normal(3.5, 0.44, n), rows=150, rows_spread=0.8, partitions_of_a_unit=32
    ),
    "prices": Shape(
        low=0,
        high=200,
        means=lambda r, n: np.exp(r.normal(2.6, 0.6, n)),
        rows=800,
        rows_spread=1.2,
        partitions_of_a_unit=8,
    ),
    "near-constant": Shape(
        low=0, high=100, means=lambda r, n: r.normal(63, 0.2, n), rows=2000, rows_spread=0.5, partitions_of_a_unit=16
    ),
    "two groups": Shape(low=0, high=100, means=two_groups, rows=300, rows_spread=0.7, partitions_of_a_unit=16),
    "heavy noise": Shape(
        low=0,
        high=10,
        means=lambda r, n: r.normal(6, 1.2, n),
        rows=12,
        rows_spread=0.5,
        partitions_of_a_unit=32,
        heavy=True,
    ),
}


@functools.cache
def planned(name: str) -> StagePlan:
    """A stage with the mean alone, over as many partitions as a shape has."""
    shape = SHAPES[name]
    query = dp.Query(
        privacy_unit="user",
        partition_by="key",
        partitions=dp.PublicPartitions(keys=[[key] for key in range(PARTITIONS)]),
        bounds=dp.ContributionBounds(
            max_partitions_contributed=shape.partitions_of_a_unit, max_contributions_per_partition=1
        ),
        metrics={"mean": dp.Mean("value", min_value=shape.low, max_value=shape.high, nullable=False, shrink=True)},
    )
    return dp.Plan(**BUDGET, stages={"s": query})["s"]


def noises(stage: StagePlan) -> tuple[float, float]:
    """The deviations of the noise of sums and of counts."""
    total, count = (noise.stddev for noise in stage.noises if noise is not None)
    return total, count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One repetition: squared errors averaged over partitions, and the share of bars that hold the truth."""

    raw: float
    pooled: float
    middle: float
    shrunk: float
    covered: float
    bar: float


def repeated(shape: Shape, stage: StagePlan, made: np.random.Generator) -> Result:
    """One table, released once."""
    true = np.clip(shape.means(made, PARTITIONS), shape.low, shape.high)
    rows = np.maximum(1, np.round(shape.rows * np.exp(made.normal(0, shape.rows_spread, PARTITIONS)))).astype(np.int64)
    (summed,) = (s for s in stage.statistics if s.lattice is not None)
    exact = [
        np.round((true - summed.lattice.offset) * rows / summed.fine_step).astype(np.int64) if s == summed else rows
        for s in stage.statistics
    ]
    totals = Totals(
        partitions=(pa.array(np.arange(PARTITIONS)),),
        high=tuple(whole >> 32 for whole in exact),
        low=tuple(whole & 0xFFFFFFFF for whole in exact),
    )
    drawn = draw_release(totals, stage)
    statistics = np.array(drawn["mean"].to_pylist())
    total, count = statistics.sum(axis=0)
    table = published(drawn, stage)
    found, stddevs, raw = (table[name].to_numpy() for name in ("mean", "mean_stddev", "mean_raw"))
    constant = np.clip(summed.lattice.offset + total / max(count, 1), shape.low, shape.high)
    middle = (shape.low + shape.high) / 2
    return Result(
        raw=float(np.mean((raw - true) ** 2)),
        pooled=float(np.mean((constant - true) ** 2)),
        middle=float(np.mean((middle - true) ** 2)),
        shrunk=float(np.mean((found - true) ** 2)),
        covered=float(np.mean(np.abs(found - true) <= 1.96 * stddevs)),
        bar=float(np.mean(1.96 * stddevs)),
    )


def seconds_of_many() -> float:
    """How long the posterior of many partitions takes; the best of five."""
    made = np.random.default_rng(5)
    total = Noisy(values=made.normal(0, 1e4, MANY), stddev=1e3)
    count = Noisy(values=made.normal(200, 200, MANY), stddev=100.0)
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        shrunk(total, count, centre=5.0, low=0.0, high=10.0)
        took.append(time.perf_counter() - begin)
    return min(took)


def judged(name: str, results: list[Result]) -> tuple[str, list[Gate]]:
    """The line of a shape in the table, and its gates."""
    shape, (of_sum, of_count) = SHAPES[name], noises(planned(name))
    raw, pooled, middle, ours = (
        float(np.sqrt(np.mean([getattr(r, way) for r in results]))) for way in ("raw", "pooled", "middle", "shrunk")
    )
    covered, bar = (float(np.mean([getattr(r, what) for r in results])) for what in ("covered", "bar"))
    ratio, typical = ours / min(raw, pooled, middle), of_sum / shape.rows
    line = (
        f"| {name} | [{shape.low:g}, {shape.high:g}] | {of_count:.0f} | {typical:.3g} | {raw:.3g} | {pooled:.3g} | {middle:.3g} "
        f"| **{ours:.3g}** | {ratio:.2f} | {covered:.1%} | ± {bar:.3g} |"
    )
    limit = ERROR_IN_HEAVY_NOISE if shape.heavy else ERROR
    return line, [
        Gate(name=f"{name}: error beside the best of the three others", figure=ratio, limit=limit),
        Gate(name=f"{name}: bars that hold the truth", figure=covered, limit=COVERED[0], at_least=True, unit=""),
        Gate(name=f"{name}: bars that hold the truth", figure=covered, limit=COVERED[1], unit=""),
    ]


def page(lines: list[str], gates: list[Gate], repetitions: int) -> str:
    """The page in Markdown."""
    return "\n".join(
        [
            "# How good shrunk means are",
            "",
            "Written by `python benchmarks/means.py`; do not edit.",
            "",
            f"Tables of {PARTITIONS} partitions, {repetitions} of each shape, each with other true means and sizes; one mean",
            f"with `shrink: true` at epsilon {BUDGET['epsilon']:g}, delta {BUDGET['delta']:g}. Errors are root mean squares over",
            "all partitions. *pooled*: one constant for all, the noisy sum of everything over the noisy count of everything.",
            "*middle*: the middle of the declared range. *noise of a mean*: in a partition of the median size. *ratio*: of the",
            "error of the shrunk mean to the smallest of the three others. *covered*: the share of 95% bars that hold the true",
            "mean; *bar*: half their average length.",
            "",
            "| shape | range | noise of a count | noise of a mean | raw | pooled | middle | shrunk | ratio | covered | bar |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            gates_table(gates, digits=3),
            "",
            "Where all true means are exactly the same, or the noise leaves even the total count open, one of the constants",
            "happens to be right, and the shrunk mean is up to 1.2 times as far off: it has to allow for means that differ.",
        ]
    )


def main() -> int:
    """Measure, write the page, judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"))
    options = parser.parse_args()
    lines, gates = [], []
    for number, (name, shape) in enumerate(SHAPES.items()):
        made = np.random.default_rng([16, number])
        results = [repeated(shape, planned(name), made) for _ in range(options.repetitions)]
        line, of_shape = judged(name, results)
        lines.append(line)
        gates += of_shape
    gates.append(Gate(name=f"seconds for {MANY:,} partitions", figure=seconds_of_many(), limit=SECONDS, unit=" s"))
    written = page(lines, gates, options.repetitions)
    print(written)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "means.md").write_text(written + "\n")
    return int(not all(gate.holds for gate in gates))


if __name__ == "__main__":
    sys.exit(main())
