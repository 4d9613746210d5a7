"""The benchmark of rollups: errors beside those of a reader who adds up noisy cells, and what the levels cost in time.

In: data/ta_feng (examples/ta_feng/fetch.py). Out: docs/benchmarks/rollup.md; the tables on stdout; exit code 1 if a gate fails.
Holds: all ways have the same (epsilon, delta) and keep the same rows, whose totals are the truth; noise is drawn by the release
step itself. Not covered: what bounds cut off. Five minutes; the part about time wants a machine that does nothing else.

    python benchmarks/rollup.py [--draws 25] [--rows 10_000_000] [--rounds 5] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys
import time
from collections.abc import Mapping, Sequence

import data
import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from gates import Gate, gates_table

import dp_pipelines as dp
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import rolled_up
from dp_pipelines.release.draw import draw_level, draw_release
from dp_pipelines.steps.aggregate import ToPartials, ToShards
from dp_pipelines.steps.draw_release import DrawRelease

Floats = npt.NDArray[np.float64]
Errors = dict[str, dict[str, float]]

ROOT = pathlib.Path(__file__).resolve().parents[1]
CELL = ("PRODUCT_SUBCLASS", "week")
CHAIN = ((), CELL[:1], CELL)
NAMES = ("total", "subclass", "cell")
CELLS_OF_A_CUSTOMER, ROWS_OF_A_CELL = 16, 2
NOISE = 82.0
"""Of cells alone: that of a report with six numbers for each cell at epsilon 1, delta 1e-6."""

LIMITS = {"cell": 0.5, "subclass": 0.75, "total": 0.15}
SLOWER = 1.2
METRICS = {"rows": dp.Count(), "users": dp.PrivacyIdCount(), "sum": dp.Sum("value", min_value=0, max_value=200)}
READER = "cells alone, added up by the reader"
SALT, SHARDS = 7, 8


def rows_of_ta_feng() -> pa.Table:
    """The columns that are read, with the Monday of each week."""
    files = str(ROOT / "data" / "ta_feng" / "*.parquet")
    found = duckdb.sql(
        "SELECT CUSTOMER_ID, PRODUCT_SUBCLASS, CAST(date_trunc('week', TRANSACTION_DT) AS DATE) AS week "
        f"FROM read_parquet('{files}') WHERE PRODUCT_SUBCLASS IS NOT NULL"
    )
    return found.to_arrow_table()


def listed_keys(rows: pa.Table) -> list[tuple[object, ...]]:
    """All subclasses by all weeks. A list of one's own must not come from the rows: this one is about public data."""
    subclasses, weeks = (sorted(set(rows.column(name).to_pylist())) for name in CELL)
    return [(subclass, week) for subclass in subclasses for week in weeks]


def query(keys: Sequence[Sequence[object]], rollup: dp.Rollup | None) -> dp.Query:
    """The question, with levels or without."""
    return dp.Query(
        privacy_unit="CUSTOMER_ID",
        partition_by=CELL,
        partitions=dp.PublicPartitions(keys=keys),
        bounds=dp.ContributionBounds(
            max_partitions_contributed=CELLS_OF_A_CUSTOMER, max_contributions_per_partition=ROWS_OF_A_CELL
        ),
        metrics={"orders": dp.Count()},
        rollup=rollup,
    )


def budget(keys: Sequence[Sequence[object]]) -> float:
    """The epsilon at which cells alone have the declared noise, at delta 1e-6."""
    asked = dataclasses.replace(query(keys[:1], None), metrics={"orders": dp.Count(stddev=NOISE)})
    return float(dp.Plan(epsilon=8.0, delta=1e-6, stages={"s": asked}).accounted["epsilon"])


def planned(keys: Sequence[Sequence[object]], epsilon: float, rollup: dp.Rollup | None) -> StagePlan:
    """A plan's stage with Gaussian noise, as all ways have it."""
    return dp.Plan(epsilon=epsilon, delta=1e-6, stages={"s": query(keys, rollup)})["s"]


def totals_of(stage: StagePlan, rows: pa.Table) -> list[Totals]:
    """The exact totals of each level, from the coarsest, by the steps of a run."""
    return [
        DrawRelease(level, 1).totals((0, tables))
        for level, tables in zip(stage.levels, partials(stage, rows), strict=True)
    ]


def partials(stage: StagePlan, rows: pa.Table) -> list[list[pa.Table]]:
    """The partial aggregates of each level, from the coarsest."""
    shards: dict[int, list[pa.Table]] = {}
    for shard, table in ToShards(stage.layout, SHARDS, SALT).compute([rows]):
        shards.setdefault(shard, []).append(table)
    found: list[list[pa.Table]] = [[] for _ in stage.levels]
    step = ToPartials(stage, 1, SALT)
    for each in sorted(shards.items()):
        for place, table in step.compute(each):
            found[place - 1].append(table)  # the finest level's place is the first
    return found


def by_level(orders: Floats, of_subclass: npt.NDArray[np.int64]) -> dict[str, Floats]:
    """Numbers of cells added up by the reader."""
    return {"cell": orders, "subclass": np.bincount(of_subclass, orders), "total": np.array([orders.sum()])}


def levels_of(table: pa.Table, column: str) -> dict[str, Floats]:
    """The published numbers of each level."""
    level, values = table.column("level").to_numpy(), table.column(column).to_numpy()
    return {name: values[level == number] for number, name in enumerate(NAMES)}


def errors(rows: pa.Table, keys: list[tuple[object, ...]], epsilon: float, draws: int) -> Errors:
    """The root mean square error of each way by level."""
    alone = planned(keys, epsilon, None)
    ways = {"three levels": None, "three levels, equal shares": (1.0, 1.0, 1.0)}
    stages = {name: planned(keys, epsilon, dp.Rollup(levels=CHAIN, shares=shares)) for name, shares in ways.items()}
    [exact] = totals_of(alone, rows)
    truth_of_cells = (exact.high[0] << 32) + exact.low[0]
    in_order = sorted(range(len(keys)), key=lambda at: keys[at])
    of_subclass = np.repeat(np.arange(len(keys) // len({key[1] for key in keys})), len({key[1] for key in keys}))
    truth = by_level(truth_of_cells[in_order].astype(np.float64), of_subclass)
    squares: dict[str, dict[str, list[float]]] = {}

    def note(way: str, found: Mapping[str, Floats]) -> None:
        for level, values in found.items():
            error = float(np.mean((values - truth[level]) ** 2))
            squares.setdefault(way, {}).setdefault(level, []).append(error)

    exact_of = {name: totals_of(stage, rows) for name, stage in stages.items()}
    for _ in range(draws):
        orders = draw_release(exact, alone).column("orders").to_numpy()
        note(READER, by_level(orders, of_subclass))
        note("the same, clipped at 0 by the reader", by_level(np.maximum(orders, 0), of_subclass))
        for name, stage in stages.items():
            drawn = [draw_level(*pair) for pair in zip(exact_of[name], stage.levels, strict=True)]
            table = rolled_up.published(pa.concat_tables(drawn, promote_options="permissive"), stage)
            check_sums(table, of_subclass)
            note(f"{name}: `orders`", levels_of(table, "orders"))
            note(f"{name}: `orders_raw`", levels_of(table, "orders_raw"))
    return {way: {level: float(np.sqrt(np.mean(each))) for level, each in of.items()} for way, of in squares.items()}


def check_sums(table: pa.Table, of_subclass: npt.NDArray[np.int64]) -> None:
    """Stop if published numbers do not add up to the last bit."""
    found = levels_of(table, "orders")
    added = by_level(found["cell"], of_subclass)
    assert all(np.array_equal(added[name], found[name]) for name in NAMES), "published numbers do not add up"


def seconds(rows: int, rounds: int) -> tuple[float, float]:
    """CPU seconds of a stage without levels and with three, from Parquet files to the released table; medians, interleaved."""
    folder = data.dataset("even", rows)
    by = ("group", "key")
    keys = [(key % 40, key) for key in range(data.KEYS)]
    made: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for rolled in made:
            asked = dp.Query(
                privacy_unit="user",
                partition_by=by,
                partitions=dp.PublicPartitions(keys=keys),
                bounds=dp.ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=4),
                metrics=METRICS,
                rollup=[[], ["group"], by] if rolled else None,
            )
            stage = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"]
            begin = time.process_time()
            table = pq.read_table(folder, columns=["user", "key", "value"])
            table = table.append_column("group", pa.array(table.column("key").to_numpy() % 40))
            totals = totals_of(stage, table)
            if rolled:
                drawn = [draw_level(*pair) for pair in zip(totals, stage.levels, strict=True)]
                rolled_up.published(pa.concat_tables(drawn, promote_options="permissive"), stage)
            else:
                draw_release(totals[0], stage)
            made[rolled].append(time.process_time() - begin)
    return statistics.median(made[False]), statistics.median(made[True])


def page(found: Mapping[float, Errors], draws: int, took: tuple[float, float], rows: int) -> str:
    """The page in Markdown."""
    lines = []
    for epsilon, of_ways in found.items():
        lines += [
            f"Epsilon {epsilon:.2f}, delta 1e-06:",
            "",
            "| way | cell | subclass | total |",
            "|---|---:|---:|---:|",
        ]
        for way, of in of_ways.items():
            lines.append(f"| {way} | {' | '.join(f'{of[name]:,.0f}' for name in reversed(NAMES))} |")
        lines.append("")
    return "\n".join(
        [
            "# Totals that add up",
            "",
            "Written by `python benchmarks/rollup.py`; do not edit.",
            "",
            "Orders of Ta Feng in 2,012 product subclasses by 18 weeks, a public list, of each customer at most",
            f"{CELLS_OF_A_CUSTOMER} cells with {ROWS_OF_A_CELL} orders each. All ways have the same epsilon and delta and keep",
            f"the same rows; errors are root mean squares beside the totals of these, over {draws} draws. At the first epsilon",
            f"cells alone have a noise of {NOISE:g}, as in a report with six numbers for each cell at epsilon 1.",
            "*Three levels*: `rollup: [[], [PRODUCT_SUBCLASS], [PRODUCT_SUBCLASS, week]]`; `orders` adds up, `orders_raw` is",
            "the number as noise left it.",
            "",
            *lines,
            gates_table(gates_of(found, took)),
            "",
            f"Time: CPU seconds of a stage with rows, users and a sum over {rows:,} rows and {data.KEYS:,} partitions, at",
            f"most 8 of one user, from Parquet files to the released table: {took[0]:.1f} without levels,",
            f"{took[1]:.1f} with three.",
            "",
        ]
    )


def gates_of(found: Mapping[float, Errors], took: tuple[float, float]) -> list[Gate]:
    """What the figures must be."""
    gates = [
        Gate(name=f"epsilon {epsilon:.2f}, {name}: error beside cells alone", figure=figure, limit=limit)
        for epsilon, of in found.items()
        for name, limit in LIMITS.items()
        for figure in [of["three levels: `orders`"][name] / of[READER][name]]
    ]
    return [*gates, Gate(name="time beside the stage without levels", figure=took[1] / took[0], limit=SLOWER)]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the page, say whether all gates hold."""
    parser = argparse.ArgumentParser(description="errors and time of rollups")
    parser.add_argument("--draws", type=int, default=25)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "benchmarks")
    given = parser.parse_args(argv)
    rows = rows_of_ta_feng()
    keys = listed_keys(rows)
    found = {epsilon: errors(rows, keys, epsilon, given.draws) for epsilon in (budget(keys), 1.0)}
    took = seconds(given.rows, given.rounds)
    text = page(found, given.draws, took, given.rows)
    (given.out / "rollup.md").write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(gate.holds for gate in gates_of(found, took)) else 1


if __name__ == "__main__":
    sys.exit(main())
