"""The benchmark of rollups: errors beside those of a reader who adds up noisy cells, and what the levels cost in time.

In: data/ta_feng (examples/ta_feng/fetch.py). Out: docs/benchmarks/rollup.md; the tables on stdout; exit code 1 if a gate fails.
Holds: all ways have the same (epsilon, delta) and keep the same rows, whose totals are the truth; noise is drawn by the release
step itself. Not covered: what bounds cut off. Five minutes; the part about time wants a machine that does nothing else.

    python benchmarks/rollup.py [--draws 10] [--rows 10_000_000] [--rounds 5] [--out docs/benchmarks]
"""

import argparse
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
CELL = ("PRODUCT_SUBCLASS", "week")
CHAIN = ((), CELL[:1], CELL)
NAMES = ("total", "subclass", "cell")
CELLS_OF_A_CUSTOMER, ROWS_OF_A_CELL = 16, 2
NOISE = 82.0
"""Of cells alone: that of a report with six numbers for each cell at epsilon 1, delta 1e-6."""

LIMITS = {"cell": 0.5, "subclass": 0.75, "total": 0.15}
SLOWER = 1.2
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
    asked = dp.Count(stddev=NOISE)
    plain = query(keys[:1], None)
    plan = dp.Plan(epsilon=8.0, delta=1e-6, stages={"s": dp.Query(
        privacy_unit=plain.privacy_unit, partition_by=CELL, partitions=plain.partitions, bounds=plain.bounds, metrics={"orders": asked}
    )})  # fmt: skip
    return plan.accounted["epsilon"]


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


def errors(rows: pa.Table, draws: int) -> tuple[dict[str, dict[str, float]], float]:
    """The root mean square error of each way by level, and the epsilon of all of them."""
    keys = listed_keys(rows)
    epsilon = budget(keys)
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
        note("cells alone, added up by the reader", by_level(orders, of_subclass))
        note("the same, clipped at 0 by the reader", by_level(np.maximum(orders, 0), of_subclass))
        for name, stage in stages.items():
            drawn = [draw_level(*pair) for pair in zip(exact_of[name], stage.levels, strict=True)]
            table = rolled_up.published(pa.concat_tables(drawn, promote_options="permissive"), stage)
            check_sums(table, of_subclass)
            note(f"{name}: `orders`", levels_of(table, "orders"))
            note(f"{name}: `orders_raw`", levels_of(table, "orders_raw"))
    found = {way: {level: float(np.sqrt(np.mean(each))) for level, each in of.items()} for way, of in squares.items()}
    return found, epsilon


def check_sums(table: pa.Table, of_subclass: npt.NDArray[np.int64]) -> None:
    """Stop if published numbers do not add up to the last bit."""
    found = levels_of(table, "orders")
    added = by_level(found["cell"], of_subclass)
    assert all(np.array_equal(added[name], found[name]) for name in NAMES), "published numbers do not add up"


def seconds(rows: int, rounds: int) -> tuple[float, float]:
    """CPU seconds of a stage without levels and with three, from Arrow tables to the released table; medians, interleaved."""
    table = pq.read_table(data.dataset("even", rows))
    table = table.append_column("group", pa.array(table.column("key").to_numpy() % 40))
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
                metrics={
                    "rows": dp.Count(),
                    "users": dp.PrivacyIdCount(),
                    "sum": dp.Sum("value", min_value=0, max_value=200),
                },
                rollup=[[], ["group"], by] if rolled else None,
            )
            stage = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"]
            begin = time.process_time()
            totals = totals_of(stage, table)
            if rolled:
                drawn = [draw_level(*pair) for pair in zip(totals, stage.levels, strict=True)]
                rolled_up.published(pa.concat_tables(drawn, promote_options="permissive"), stage)
            else:
                draw_release(totals[0], stage)
            made[rolled].append(time.process_time() - begin)
    return statistics.median(made[False]), statistics.median(made[True])


def page(found: dict[str, dict[str, float]], epsilon: float, draws: int, took: tuple[float, float], rows: int) -> str:
    """The page in Markdown."""
    reader = found["cells alone, added up by the reader"]
    lines = ["| way | cell | subclass | total |", "|---|---:|---:|---:|"]
    for way, of in found.items():
        shown = " | ".join(f"{of[name]:,.0f}" for name in reversed(NAMES))
        lines.append(f"| {way} | {shown} |")
    return "\n".join(
        [
            "# Totals that add up",
            "",
            "Written by `python benchmarks/rollup.py`; do not edit.",
            "",
            "Orders of Ta Feng in 2,012 product subclasses by 18 weeks, a public list, of each customer at most",
            f"{CELLS_OF_A_CUSTOMER} cells with {ROWS_OF_A_CELL} orders each. All ways have epsilon {epsilon:.2f} and delta 1e-06, at which cells",
            f"alone have a noise of {NOISE:g}, and keep the same rows; errors are root mean squares beside the totals of these, over",
            f"{draws} draws. *Three levels*: `rollup: [[], [PRODUCT_SUBCLASS], [PRODUCT_SUBCLASS, week]]`.",
            "",
            *lines,
            "",
            gates_table(gates_of(found, reader, took)),
            "",
            f"Time: CPU seconds of a stage with rows, users and a sum over {rows:,} rows, {data.KEYS:,} partitions, at most 8 of one user,",
            f"from Arrow tables to the released table: {took[0]:.1f} without levels, {took[1]:.1f} with three.",
            "",
        ]
    )


def gates_of(found: dict[str, dict[str, float]], reader: dict[str, float], took: tuple[float, float]) -> list[Gate]:
    """What the figures must be."""
    ours = found["three levels: `orders`"]
    gates = [
        Gate(
            name=f"{name}: error beside cells alone, added up by the reader",
            figure=ours[name] / reader[name],
            limit=limit,
        )
        for name, limit in LIMITS.items()
    ]
    return [*gates, Gate(name="time beside the stage without levels", figure=took[1] / took[0], limit=SLOWER)]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the page, say whether all gates hold."""
    parser = argparse.ArgumentParser(description="errors and time of rollups")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "benchmarks")
    given = parser.parse_args(argv)
    found, epsilon = errors(rows_of_ta_feng(), given.draws)
    took = seconds(given.rows, given.rounds)
    text = page(found, epsilon, given.draws, took, given.rows)
    (given.out / "rollup.md").write_text(text, encoding="utf-8")
    print(text)
    gates = gates_of(found, found["cells alone, added up by the reader"], took)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
