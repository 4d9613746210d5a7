"""A join whose integers DuckDB can count: what every runner must find of the same files.

In: a folder. Out: a job file; the counts of DuckDB's own join. Holds: caps and bounds leave nothing out, so that the rows of both
are the same; units and days have other widths and nulls in the two tables. Not covered: rows that caps leave out
(tests/jobs/run/test_joined_tables.py). Tests only.
"""

import pathlib
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml

from tests.engines.exact import Dump

Counts = dict[tuple[Any, ...], tuple[int, int]]

BOUNDS = {"max_partitions_contributed": 100, "max_contributions_per_partition": 10**5}
MOST = {"orders": 1000, "visits": 1000}


def _orders(rows: int = 4000) -> pa.Table:
    made = np.random.default_rng(21)
    return pa.table(
        {
            "customer": pa.array(made.integers(0, 300, rows), mask=made.random(rows) < 0.05),
            "day": pa.array(made.integers(-4, 5, rows).astype(np.int16), mask=made.random(rows) < 0.1),
            "store": pa.array([f"s{i}" for i in made.integers(0, 3, rows)]).dictionary_encode(),
            "items": made.integers(0, 9, rows) * 10**9,
        }
    )


def _visits(rows: int = 3000) -> pa.Table:
    made = np.random.default_rng(22)
    return pa.table(
        {
            "person": pa.array(made.integers(0, 400, rows).astype(np.int32), mask=made.random(rows) < 0.05),
            "visited": pa.array(made.integers(-4, 200, rows) % 9 - 4, mask=made.random(rows) < 0.1),
            "page": pa.array([("home", "cart", None)[i] for i in made.integers(0, 3, rows)]),
        }
    )


def whole_join(folder: pathlib.Path) -> pathlib.Path:
    """An inner join on unit and day."""
    return _job(folder, kind="inner", on=[["day", "visited"]])


def whole_left_join(folder: pathlib.Path) -> pathlib.Path:
    """A left join on the unit alone."""
    return _job(folder, kind="left")


def _job(folder: pathlib.Path, **join: Any) -> pathlib.Path:
    pa.parquet.write_table(_orders(), folder / "orders.parquet", row_group_size=700)
    pa.parquet.write_table(_visits(), folder / "visits.parquet", row_group_size=900)
    metrics = {"n": {"kind": "count"}, "people": {"kind": "privacy_id_count"}}
    stage = {"kind": "aggregate", "partition_by": ["store", "page"], "bounds": BOUNDS, "metrics": metrics}
    said = {
        "dataset": "shop",
        "privacy_unit": {"orders": "customer", "visits": "person"},
        "budget": {"epsilon": 8.0, "delta": 1e-5},
        "tables": {name: {"parquet": f"{name}.parquet", "where": where} for name, where in WHERE.items()},
        "join": {"left": "orders", "right": "visits", "max_rows_per_unit": MOST, **join},
        "stages": {"pages": stage},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(said, sort_keys=False))
    return path


WHERE = {"orders": "items > 1000000000", "visits": "page IS NULL OR page <> 'cart' OR visited < 3"}


def duckdbs(job: pathlib.Path) -> Counts:
    """Joined rows and units of each partition, by DuckDB."""
    said = yaml.safe_load(job.read_text())["join"]
    on = " AND ".join(["customer = person", *(f"{mine} = {other}" for mine, other in said.get("on", []))])
    with duckdb.connect() as connection:
        rows = {name: f"(FROM '{job.parent / name}.parquet' WHERE {where})" for name, where in WHERE.items()}
        query = f"""SELECT store, page, count(*), count(DISTINCT customer)
            FROM {rows["orders"]} {said["kind"]} JOIN {rows["visits"]} ON {on} WHERE customer IS NOT NULL GROUP BY ALL"""
        return {(s, p): (n, u) for s, p, n, u in connection.execute(query).fetchall()}


def counts(dump: Dump) -> Counts:
    """The same of what a runner has found."""
    (table,) = dump.values()
    places = {name.split(" ", 1)[1]: name for name in table.column_names if name[0].isdigit()}
    return {
        (row["store"], row["page"]): (int(row[places["rows"]]), int(row[places["units"]])) for row in table.to_pylist()
    }
