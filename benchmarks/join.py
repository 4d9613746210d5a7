"""A join of two private tables beside one table with as many rows, beside DuckDB's join with the same bounding, and Tumult's.

In: nothing; the rows are made here. Out: docs/benchmarks/join.md; progress on stderr, the gates on stdout; exit code 1 if a gate
of a full run fails. Holds: figures are processor seconds of whole processes with their children; rounds are interleaved, and a
ratio is the median of those of one round. Needs .venv-tumult for the last comparison, 4 GB of disk and 3 GiB of memory. Not
covered: whether the numbers are right, which tests/engines/test_joins.py and tests/jobs/run/test_joined_tables.py compare.

    python benchmarks/join.py [--quick] [--rounds 3] [--folder DIR] [--out docs/benchmarks]
"""

import argparse
import json
import multiprocessing
import pathlib
import shutil
import statistics
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from gates import Gate, gates_table
from measure import HERE, REPOSITORY, cores, read_options, say, versions
from whole_processes import Runs, busy_note, in_turns, middle, ratio, run_of

TUMULT_PYTHON = REPOSITORY / ".venv-tumult" / "bin" / "python"
OF_A_GROUP, OF_A_PART = 1_000_000, 5_000_000
DAYS, STORES, FEW = 28, 100, 1_000
ROWS_OF_A_UNIT = 13.04

OURS, ONE, DUCKDB, TUMULT = (
    "dp_pipelines, join",
    "dp_pipelines, one table",
    "DuckDB, join, no privacy",
    "Tumult on Spark, join",
)
ON_DAY, ALONE, SMALL = "on unit and day", "on the unit alone", "beside Tumult"

STAGE = """\
budget: {epsilon: 2.0, delta: 1.0e-6}
stages:
  stores:
    kind: aggregate
    partition_by: [store]
    bounds: {max_partitions_contributed: 4, max_contributions_per_partition: 2}
    metrics:
      n: {kind: count}
      spent: {kind: sum, column: price, min_value: 0, max_value: 20}
"""

JOINED = """\
dataset: joined
tables: {orders: {parquet: orders.parquet}, visits: {parquet: visits.parquet}}
privacy_unit: {orders: customer, visits: person}
"""

BOUNDED = """
WITH joined AS (SELECT customer, store, price, hash(customer, store) AS of_pair, hash(o.id, v.visit) AS of_row
                FROM 'orders.parquet' o JOIN 'visits.parquet' v ON customer = person AND day = visited),
kept AS (FROM joined QUALIFY dense_rank() OVER (PARTITION BY customer ORDER BY of_pair) <= 4
         AND row_number() OVER (PARTITION BY customer, store ORDER BY of_row) <= 2)
SELECT store, count(*), sum(least(greatest(price, 0), 20)) FROM kept GROUP BY store
"""

INTRODUCTION = """\
# Joins of two private tables

Written by `python benchmarks/join.py` (`make bench`); do not edit.

Orders are [joined](../sources/joins.md) with visits of the same unit, {rows:,} rows each, some 13 of each unit; a unit counts
in at most 4 of 100 stores with at most 2 joined rows in each. Count and sum are published per store.

* **{on_day}**: about half a joined row for each order. Beside it, the same query over one table with as many rows as both
  have together, and DuckDB's join of the same files with the same bounding, **without any privacy**.
* **{alone}**: every order of a unit meets every visit, some {pairs:,} joined rows. Beside it, one table with as many rows.

Figures are processor seconds (user and system) of whole processes: Python, the check of the job, the plan, the report. Ways
take turns, and a gate is the median of the ratios within one round. That the integers before the noise are those of DuckDB's
join, on the local runner, the direct one, Flink and Spark, is what `tests/engines/test_joins.py` holds.
"""

BESIDE_TUMULT = """\
## Beside Tumult

Tumult Analytics is the other library that joins private tables by person. {rows:,} orders with {rows:,} visits on unit and day,
in local Spark with {cores} threads: the same rows, the same bounds (`MaxGroupsPerID`, `MaxRowsPerGroupPerID`), a public list of
stores, the same two metrics at epsilon 1 each (pure there, with delta 1e-6 here). Processor seconds are those of Python, of Java
and of Spark's Python workers.
"""


def table(rows: int, units: int, number: int, names: tuple[str, str]) -> pa.Table:
    """Rows of a table: unit, day, id, and what is summed."""
    made = np.random.default_rng(number)
    columns = {names[0]: made.integers(0, units, rows), names[1]: made.integers(0, DAYS, rows).astype(np.int32)}
    columns["store" if names[0] == "customer" else "page"] = made.integers(0, STORES, rows).astype(np.int32)
    columns["price" if names[0] == "customer" else "seconds"] = made.random(rows) * 20
    columns["id" if names[0] == "customer" else "visit"] = np.arange(rows)
    return pa.table(columns)


def make(folder: pathlib.Path, rows: int, units: int, in_one: int) -> None:
    """Both tables, and the one beside them, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "made.json").exists() and json.loads((folder / "made.json").read_text()) == [rows, units, in_one]:
        return
    for name, count, number, names in (
        ("orders", rows, 1, ("customer", "day")),
        ("visits", rows, 2, ("person", "visited")),
        ("one", in_one, 1, ("customer", "day")),
    ):
        made = table(min(count, OF_A_PART), units, number, names)
        with pa.parquet.ParquetWriter(folder / f"{name}.parquet", made.schema) as writer:
            for part, begin in enumerate(range(0, count, OF_A_PART)):
                made = table(min(OF_A_PART, count - begin), units, number + 10 * part, names)
                writer.write_table(made, row_group_size=OF_A_GROUP)
    (folder / "made.json").write_text(json.dumps([rows, units, in_one]))


def write_jobs(folder: pathlib.Path, on_day: bool, stage: str = STAGE) -> None:
    """The job files."""
    on = "on: [[day, visited]], " if on_day else ""
    join = f"join: {{left: orders, right: visits, {on}max_rows_per_unit: {{orders: 1000, visits: 1000}}}}\n"
    (folder / "join.yaml").write_text(JOINED + join + stage)
    alone = "dataset: one\nsource: {parquet: one.parquet}\nprivacy_unit: customer\n"
    (folder / "one.yaml").write_text(alone + stage)


def compared(folder: pathlib.Path, rows: int, units: int, on_day: bool, rounds: int) -> Runs:
    """A join beside one table and, on unit and day, DuckDB, whose windows over all pairs would take much memory."""
    in_one = 2 * rows if on_day else pairs(rows, units)
    # In a process of its own: a child's peak memory begins with what its parent holds.
    maker = multiprocessing.get_context("spawn").Process(target=make, args=(folder, rows, units, in_one))
    maker.start()
    maker.join()
    write_jobs(folder, on_day)
    ways = {OURS: run_of("join.yaml"), ONE: run_of("one.yaml")}
    if on_day:
        threads = f"duckdb.sql('SET threads = {cores()}')"
        ways[DUCKDB] = [
            sys.executable,
            "-c",
            f"import duckdb; {threads}; print(duckdb.sql('''{BOUNDED}''').fetchall())",
        ]
    return in_turns(ways, folder, rounds, ON_DAY if on_day else ALONE)


def beside_tumult(folder: pathlib.Path, rows: int, units: int, rounds: int) -> Runs:
    """The join on unit and day with public stores, here and in Tumult; nothing where that or Java is missing."""
    if not TUMULT_PYTHON.exists() or shutil.which("java") is None:
        say("Tumult is left out: it needs .venv-tumult and Java 17")
        return {}
    make(folder, rows, units, 1)
    listed = f"    partitions: {{public: {json.dumps([[store] for store in range(STORES)])}}}\n"
    write_jobs(folder, on_day=True, stage=STAGE.replace("    bounds:", listed + "    bounds:"))
    theirs = [str(TUMULT_PYTHON), str(HERE / "peers" / "tumult_join.py"), str(cores()), str(STORES)]
    return in_turns({OURS: run_of("join.yaml"), TUMULT: theirs}, folder, rounds, SMALL)


def started(folder: pathlib.Path, rounds: int) -> float:
    """What the job takes over next to no rows: Python, the check, the plan and the report."""
    make(folder, FEW, FEW // 13, 1)
    write_jobs(folder, on_day=True)
    runs = in_turns({OURS: run_of("join.yaml")}, folder, rounds, f"{FEW:,} rows")
    return middle(runs[OURS])


def pairs(rows: int, units: int) -> int:
    """How many pairs two tables have on the unit alone, about."""
    return rows * rows // units


def runs_table(runs: Runs) -> str:
    """One line a way."""
    lines = ["| | CPU s: median (range) | peak GiB | the join takes, in times this |", "|---|---:|---:|---:|"]
    for name, used in runs.items():
        cpu = [one.cpu for one in used]
        memory = f"{max(one.mib for one in used) / 1024:.2f}" if name != TUMULT else ""
        times = "" if name == OURS else f"{ratio(runs, OURS, name):.2f}"
        lines.append(
            f"| {name} | {statistics.median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f}) | {memory} | {times} |"
        )
    return "\n".join(lines)


def of_rows_note(start: float, day: Runs) -> str:
    """What of the join is not about rows, which explains most of its distance to a process without a plan."""
    ours, theirs = (middle(day[name]) for name in (OURS, DUCKDB))
    return (
        f"Whatever the rows, the join's process takes {start:.1f} CPU s: those of the same job over {FEW:,} rows. The rest\n"
        f"of its {ours:.1f} is {(ours - start) / theirs:.2f} times what DuckDB's process takes. "
        "The gates are about whole processes all the same.\n"
    )


def page(rows: int, units: int, start: float, day: Runs, alone: Runs, tumult: Runs, gates: list[Gate]) -> str:
    """The whole page."""
    parts = [
        INTRODUCTION.format(rows=rows, pairs=pairs(rows, units), on_day=ON_DAY.capitalize(), alone=ALONE.capitalize()),
        "## Gates\n",
        gates_table(gates) + "\n",
        of_rows_note(start, day),
        busy_note(day[OURS] + alone[OURS]),
        "## All runs\n",
        f"{ON_DAY.capitalize()}; one table has {2 * rows:,} rows:\n",
        runs_table(day) + "\n",
        f"{ALONE.capitalize()}; one table has {pairs(rows, units):,} rows:\n",
        runs_table(alone) + "\n",
    ]
    if tumult:
        parts += [BESIDE_TUMULT.format(rows=rows // 10, cores=cores()), runs_table(tumult) + "\n"]
    here = versions(pathlib.Path(sys.executable), ["duckdb", "numpy", "pyarrow"])
    parts.append(f"Machine: {cores()} cores. " + ", ".join(f"{name} {version}" for name, version in here.items()) + ".")
    if tumult:
        theirs = versions(TUMULT_PYTHON, ["tmlt.analytics", "tmlt.core", "pyspark"])
        parts.append("Tumult: " + ", ".join(f"{name} {version}" for name, version in theirs.items()) + ".")
    return "\n".join(parts) + "\n"


def judged(rows: int, units: int, day: Runs, alone: Runs) -> list[Gate]:
    """The limits of the join."""
    return [
        Gate(name=f"{ON_DAY}, relative to one table of {2 * rows:,} rows", figure=ratio(day, OURS, ONE), limit=1.2),
        Gate(name=f"{ON_DAY}, relative to DuckDB's join without privacy", figure=ratio(day, OURS, DUCKDB), limit=1.3),
        Gate(
            name=f"{ALONE}, relative to one table of {pairs(rows, units):,} rows",
            figure=ratio(alone, OURS, ONE),
            limit=1.2,
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Processor time of a join of two private tables.")
    parser.add_argument(
        "--folder", type=pathlib.Path, help="for the rows, kept for the next call (default: one that goes)"
    )
    options = read_options(parser, arguments, rounds=3)
    rows = 1_000_000 if options.quick else 10_000_000
    units = int(rows / ROWS_OF_A_UNIT)
    with tempfile.TemporaryDirectory() as gone:
        folder = (options.given.folder or pathlib.Path(gone)).resolve()
        start = started(folder / "few", options.rounds)
        tumult = beside_tumult(folder / "small", rows // 10, units // 10, min(2, options.rounds))
        day = compared(folder / "day", rows, units, on_day=True, rounds=2 * options.rounds)
        alone = compared(folder / "alone", rows, units, on_day=False, rounds=options.rounds)
    gates = judged(rows, units, day, alone)
    (options.out / "join.md").write_text(page(rows, units, start, day, alone, tumult, gates))
    print(gates_table(gates), busy_note(day[OURS] + alone[OURS]), sep="\n\n")
    return options.verdict("join.md", all(gate.holds for gate in gates))


if __name__ == "__main__":
    sys.exit(main())
