"""The benchmark of bounds that are chosen privately: sums by partition, beside the best fixed bound at the same epsilon.

In: made-up heavy tails; the data of examples/ta_feng/fetch.py. Out: docs/benchmarks/bounds.md; progress on stderr; exit code 1 if
the error is more than 1.3 times that of the best fixed bound (for values of one sign). Holds: the best fixed bound is the best of
a fine grid, chosen with the true errors in view, which nobody could do; both pay epsilon 1 in all, the chosen bounds with the
histogram in it. Errors are those of sums over the rows that the contribution bounds keep; noise of releases with chosen bounds is
drawn, that of fixed bounds is computed.

    python benchmarks/bounds.py [--runs 30] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import math
import pathlib
import sys
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from errors import Floats
from measure import REPOSITORY, say, versions

import dp_pipelines as dp
from dp_pipelines import bounds
from dp_pipelines.budget.resolve import resolve
from dp_pipelines.budget.stage import StagePlan
from dp_pipelines.kernels import accumulate, contributions
from dp_pipelines.release import chosen
from dp_pipelines.release.draw import draw_release

GOAL = 1.3
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
RANGE = 1e6
USERS, PARTITIONS, ROWS = 50_000, 200, 400_000
GRID = 2.0 ** np.arange(-4, 20.01, 0.125)
SALT = 1


@dataclasses.dataclass(frozen=True)
class Data:
    """Rows of units in partitions, and whether values have both signs."""

    rows: pa.Table
    signed: bool = False


def made(values: Callable[[np.random.Generator, int], Floats], *, signed: bool = False) -> Data:
    """Rows with values of one law: skewed users, partitions by Zipf's law."""
    random = np.random.default_rng(20260105)
    weights = np.arange(1, PARTITIONS + 1) ** -0.8
    rows = pa.table({
        "unit": np.minimum((random.random(ROWS) ** 1.5 * USERS).astype(np.int64), USERS - 1),
        "partition": random.choice(PARTITIONS, ROWS, p=weights / weights.sum()),
        "value": values(random, ROWS),
    })  # fmt: skip
    return Data(rows, signed)


def ta_feng() -> Data:
    """Sales prices by product subclass."""
    table = pq.read_table(REPOSITORY / "data" / "ta_feng", columns=["CUSTOMER_ID", "PRODUCT_SUBCLASS", "SALES_PRICE"])
    table = table.rename_columns(["unit", "partition", "value"]).drop_null()
    return Data(table.set_column(2, "value", table["value"].cast(pa.float64())))


SETS: dict[str, Callable[[], Data]] = {
    "lognormal, sigma 1": lambda: made(lambda random, n: random.lognormal(3.0, 1.0, n)),
    "lognormal, sigma 2": lambda: made(lambda random, n: random.lognormal(3.0, 2.0, n)),
    "Pareto, alpha 1.5": lambda: made(lambda random, n: 10 * (1 + random.pareto(1.5, n))),
    "Student t, 3 degrees, both signs": lambda: made(lambda random, n: 50 * random.standard_t(3, n), signed=True),
    "Ta Feng, sales price by subclass": ta_feng,
}


def query(data: Data, **bound: object) -> dp.Query:
    """The sum by partition, over all partitions as a public list."""
    keys = sorted(set(data.rows["partition"].to_pylist()))
    return dp.Query(
        privacy_unit="unit",
        partition_by="partition",
        bounds=dp.ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=2),
        metrics={"total": dp.Sum("value", **bound)},  # type: ignore[arg-type]
        partitions=dp.PublicPartitions(keys=[(key,) for key in keys]),
    )


def totals(stage: StagePlan, rows: pa.Table) -> accumulate.Totals:
    """The exact totals of a stage."""
    partial = accumulate.partials(stage.layout.wire(rows), stage.layout, stage.statistics, SALT)
    return accumulate.merge_public(
        [accumulate.by_public_index(partial, stage.layout)], stage.layout, stage.statistics, 0, 1
    )


def kept_rows(stage: StagePlan, rows: pa.Table) -> tuple[npt.NDArray[np.int64], Floats]:
    """The partition and the value of each row that the contribution bounds keep."""
    wire = stage.layout.wire(rows)
    kept = rows.take(pa.array(np.sort(contributions.bound(wire, stage.layout, SALT).bounded.rows)))
    keys = sorted(set(rows["partition"].to_pylist()))
    index = {key: place for place, key in enumerate(keys)}
    return np.array([index[key] for key in kept["partition"].to_pylist()]), kept["value"].to_numpy()


def best_fixed(data: Data, partition: npt.NDArray[np.int64], value: Floats) -> tuple[float, float]:
    """The root mean squared error of the best bound of the grid, and that bound."""
    plan = dp.Plan(**BUDGET, stages={"s": query(data, min_value=-1 if data.signed else 0, max_value=1)})
    noise = next(noise.stddev for noise in plan["s"].noises if noise is not None)
    count = int(partition.max()) + 1
    errors = []
    for bound in GRID:
        lost = np.bincount(partition, value - np.clip(value, -bound if data.signed else 0.0, bound), count)
        errors.append(math.sqrt(float(np.mean(lost**2)) + (noise * bound) ** 2))
    return min(errors), float(GRID[int(np.argmin(errors))])


def released(data: Data, runs: int, guess: bool) -> Iterator[tuple[StagePlan, tuple[float, float], Floats]]:
    """Runs with chosen bounds: the stage, the bounds, the released sums."""
    low = "auto" if data.signed else 0
    within = [-RANGE if data.signed else 0.0, RANGE]
    plan = dp.Plan(**BUDGET, stages={"s": query(data, min_value=low, max_value="auto", within=within)})
    first, stage = plan["s.bounds"], plan["s"]
    asked = stage
    if guess:  # what would be chosen if the partitions were private
        private = dataclasses.replace(stage.query, partitions=dp.PrivatePartitions())
        asked = dataclasses.replace(stage, query=private)
    everything = totals(first, data.rows.append_column(bounds.COLUMN, pa.array([bounds.COLUMN] * data.rows.num_rows)))
    for _ in range(runs):
        pairs = chosen.choose(asked, first, draw_release(everything, first))
        ready = resolve(stage, pairs)
        table = draw_release(totals(ready, data.rows), ready)
        yield stage, pairs["total"], table["total"].to_numpy()


def main() -> int:
    """Run all, write the page, compare with the goal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    options = parser.parse_args()
    lines, worst = [], 0.0
    for name, make in SETS.items():
        data = make()
        partition, value = kept_rows(
            dp.Plan(**BUDGET, stages={"s": query(data, min_value=0, max_value=1)})["s"], data.rows
        )
        truth = np.bincount(partition, value)
        fixed, bound = best_fixed(data, partition, value)
        for guess in (False, True):
            squares, highs = [], []
            for _, pair, sums in released(data, options.runs, guess):
                squares.append(float(np.mean((sums - truth) ** 2)))
                highs.append(pair[1])
            error = math.sqrt(float(np.mean(squares)))
            ratio, kind = error / fixed, "as if private" if guess else "public"
            worst = max(worst, ratio) if not data.signed else worst
            say(f"{name}, {kind}: {ratio:.3f} (bound {min(highs):.4g} to {max(highs):.4g}, best {bound:.4g})")
            lines.append(
                f"| {name} | {kind} | {fixed:.4g} | {bound:.4g} | {error:.4g} | {min(highs):.4g} to {max(highs):.4g} "
                f"| {ratio:.2f} |"
            )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bounds.md").write_text(page(lines, options.runs, worst), encoding="utf-8")
    return 0 if worst <= GOAL else 1


def page(lines: list[str], runs: int, worst: float) -> str:
    """The page."""
    used = versions(pathlib.Path(sys.executable), ["dp-pipelines", "numpy", "pyarrow"])
    return "\n".join([
        "# Bounds that are chosen privately",
        "",
        f"Sums by partition under (1, 1e-6), {runs} runs, at most 8 partitions of a unit and 2 rows in each; declared range up",
        f"to {RANGE:.0f}. The best fixed bound is the best of a grid of {len(GRID)}, with the true errors in view and without a",
        "histogram to pay for: nobody could choose it. Root mean squared errors over partitions, of sums over the rows that the",
        "contribution bounds keep. `public`: the number of partitions is known. `as if private`: bounds are chosen without it.",
        "",
        "| data | partitions | best fixed: error | bound | chosen: error | bounds | ratio |",
        "|---|---|---|---|---|---|---|",
        *lines,
        "",
        f"Goal for values of one sign: a ratio of at most {GOAL}; the largest is {worst:.2f}. For values of both signs the",
        "bounds come out wide: here what clamping takes at the two ends cancels in every partition alike, which the rule does",
        "not rely on (`APART` in `dp_pipelines/bounds.py`), since elsewhere it may not. The rule's constants were settled with",
        "these data in view, so other data may do worse. Made by `python benchmarks/bounds.py`",
        f"({', '.join(f'{name} {version}' for name, version in used.items())}).",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
