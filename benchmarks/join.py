"""A join of two private tables beside one table with as many rows, and beside DuckDB's join with the same bounding.

In: numbers of orders, of visits, and of units. Out: for each way seconds and processor seconds of a whole process, its peak
memory, and ratios, as JSON. Holds: rounds are interleaved, so that a busy machine slows all ways alike; `--unit-alone` joins
without `on`, beside one table with as many rows. Data stay in the folder for the next call. Not covered: whether the numbers are
right, which tests/jobs/run/test_joined_tables.py compares.
Run: python benchmarks/join.py --folder DIR [--rows 10000000] [--units 767000] [--rounds 3] [--unit-alone]
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet

COMMAND = pathlib.Path(sys.executable).parent / "dp-pipelines"
OF_A_GROUP, OF_A_PART = 1_000_000, 5_000_000
DAYS, STORES = 28, 100

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
WITH joined AS (SELECT customer, store, price, hash(customer, store) AS of_pair, hash(o.id, v.id) AS of_row
                FROM 'orders.parquet' o JOIN 'visits.parquet' v ON customer = person ON_DAY),
kept AS (FROM joined QUALIFY dense_rank() OVER (PARTITION BY customer ORDER BY of_pair) <= 4
         AND row_number() OVER (PARTITION BY customer, store ORDER BY of_row) <= 2)
SELECT store, count(*), sum(least(greatest(price, 0), 20)) FROM kept GROUP BY store
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


def write_jobs(folder: pathlib.Path, on_day: bool) -> None:
    """The job files."""
    on = "on: [[day, visited]], " if on_day else ""
    join = f"join: {{left: orders, right: visits, {on}max_rows_per_unit: {{orders: 1000, visits: 1000}}}}\n"
    (folder / "join.yaml").write_text(JOINED + join + STAGE)
    alone = "dataset: one\nsource: {parquet: one.parquet}\nprivacy_unit: customer\n"
    (folder / "one.yaml").write_text(alone + STAGE)


def measured(command: list[str], folder: pathlib.Path) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak memory in MiB of a process."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed: {process.stderr.read().decode() if process.stderr else ''}")
    return time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def ways(on_day: bool, folder: pathlib.Path, number: int) -> dict[str, list[str]]:
    """The commands that are compared."""
    query = BOUNDED.replace("ON_DAY", "AND day = visited" if on_day else "").replace("v.id", "v.visit")
    program = (
        f"import duckdb; duckdb.sql('SET threads = {os.cpu_count()}'); print(duckdb.sql('''{query}''').fetchall())"
    )
    run = [str(COMMAND), "run", "--ledger", "none", "--output"]
    return {
        "join": [*run, str(folder / f"out-join-{number}"), "join.yaml"],
        "one_table": [*run, str(folder / f"out-one-{number}"), "one.yaml"],
        "duckdb": [sys.executable, "-c", program],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--units", type=int, default=767_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unit-alone", action="store_true")
    given = parser.parse_args()
    in_one = given.rows * given.rows // given.units if given.unit_alone else 2 * given.rows
    given.folder.mkdir(parents=True, exist_ok=True)
    # In a process of its own: a child's peak memory begins with what its parent holds.
    maker = multiprocessing.get_context("spawn").Process(
        target=make, args=(given.folder, given.rows, given.units, in_one)
    )
    maker.start()
    maker.join()
    write_jobs(given.folder, on_day=not given.unit_alone)
    found: dict[str, list[tuple[float, float, float]]] = {}
    stamp = int(time.time())
    for number in range(given.rounds):
        for name, command in ways(not given.unit_alone, given.folder, stamp + number).items():
            found.setdefault(name, []).append(measured(command, given.folder))
    shown = {
        name: {
            "seconds": [round(s, 2) for s, _, _ in rounds],
            "cpu": [round(c, 2) for _, c, _ in rounds],
            "mib": round(max(m for _, _, m in rounds)),
        }
        for name, rounds in found.items()
    }
    cpu = {name: statistics.median(c for _, c, _ in rounds) for name, rounds in found.items()}
    shown["cpu_ratio"] = {name: round(cpu["join"] / cpu[name], 2) for name in ("one_table", "duckdb")}
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
