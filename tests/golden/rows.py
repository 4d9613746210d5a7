"""The rows that the made-up jobs read: a small shop with nulls, and a column for every kind of metric.

In: nothing. Out: a table, the same on every machine. Tests only.
"""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet

ROWS = 3000


def purchases() -> pa.Table:
    """Rows of the shop."""
    made = np.random.default_rng(20250106)
    days = np.datetime64("2025-01-06", "us") + made.integers(0, 28 * 86_400, ROWS) * 1_000_000
    price = made.integers(-40, 900, ROWS) / 32
    return pa.table(
        {
            "customer": made.integers(0, 400, ROWS),
            "product": pa.array([f"p{i}" for i in made.integers(0, 6, ROWS)]),
            "store": pa.array(made.integers(1, 4, ROWS), pa.int32()),
            "paid_at": pa.array(days),
            "price": pa.array(price, mask=made.random(ROWS) < 0.05),
            "weight": made.integers(-64, 65, ROWS) / 64,
            "note": pa.array(["7", "x", None, "30"] * (ROWS // 4)),
            "vector": pa.array((made.integers(-8, 9, (ROWS, 3)) / 4).tolist(), pa.list_(pa.float64())),
        }
    )


def written(folder: pathlib.Path) -> None:
    """Write them where the jobs look, and beside them a public table of features."""
    (folder / "data").mkdir()
    rows = purchases()
    pa.parquet.write_table(rows.slice(0, 1000), folder / "data" / "a.parquet")
    pa.parquet.write_table(rows.slice(1000), folder / "data" / "b.parquet", row_group_size=700)
    pa.parquet.write_table(rows.select(["weight", "product"]).slice(0, 200), folder / "public.parquet")
