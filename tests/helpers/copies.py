"""One table written in every format that a job can read, and the `source:` that names each copy.

In: an Arrow table, a folder. Out: for each format a mapping for a job file. Holds: each copy has the same rows, some of whose cells
are null; what a format cannot say (types of CSV and JSON lines) the mapping declares. Tests and benchmarks only.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

TYPES = {"customer": "int64", "product": "string", "day": "date", "paid_at": "timestamp", "price": "double"}
"""The columns of `purchases`, as a job file declares them."""

AVRO = {
    "type": "record",
    "name": "purchase",
    "fields": [
        {"name": "customer", "type": ["null", "long"]},
        {"name": "product", "type": ["null", "string"]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "paid_at", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "price", "type": ["null", "double"]},
    ],
}


def purchases(rows: int) -> pa.Table:
    """Rows of a shop, some cells of which are null."""
    made = np.random.default_rng(11)
    product = pa.array([None if p == 7 else f'p "{p}", é' for p in made.integers(0, 12, rows)], pa.string())
    days = np.datetime64("2025-01-06", "us") + made.integers(0, 28 * 86_400, rows) * 1_000_000
    price = pa.array(np.round(made.random(rows) * 22 - 1, 2), mask=made.random(rows) < 0.1)
    return pa.table(
        {
            "customer": pa.array(made.integers(0, rows // 10 + 2, rows), mask=made.random(rows) < 0.05),
            "product": product,
            "day": pa.array(days).cast(pa.date32(), safe=False),
            "paid_at": pa.array(days),
            "price": price,
        }
    )


def parquet(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """Several Parquet files."""
    folder.mkdir()
    half = table.num_rows // 2
    pa.parquet.write_table(table.slice(0, half), folder / "a.parquet", row_group_size=max(half // 3, 1))
    pa.parquet.write_table(table.slice(half), folder / "b.parquet")
    return {"parquet": str(folder / "*.parquet")}


def csv(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """One CSV file."""
    folder.mkdir()
    pyarrow.csv.write_csv(table, folder / "a.csv")
    return {"csv": str(folder / "*.csv"), "types": TYPES}


def jsonl(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """One file of JSON lines, times as text."""
    folder.mkdir()
    texts = table.set_column(2, "day", table["day"].cast(pa.string()))
    texts = texts.set_column(3, "paid_at", pc.strftime(table["paid_at"], "%Y-%m-%dT%H:%M:%S"))
    lines = (json.dumps(row, ensure_ascii=False) for row in texts.to_pylist())
    (folder / "a.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {"jsonl": str(folder / "*.jsonl"), "types": TYPES}


def avro(table: pa.Table, folder: pathlib.Path) -> dict[str, Any]:
    """One Avro file."""
    folder.mkdir()
    with open(folder / "a.avro", "wb") as stream:
        fastavro.writer(stream, AVRO, table.to_pylist(), codec="deflate")
    return {"avro": str(folder / "*.avro")}


FORMATS: dict[str, Callable[[pa.Table, pathlib.Path], dict[str, Any]]] = {
    "parquet": parquet,
    "csv": csv,
    "jsonl": jsonl,
    "avro": avro,
}
