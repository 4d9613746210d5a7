"""Made-up rows with the columns of Ta Feng and of the tax units, for jobs and pages whose real rows are fetched from an index.

In: a folder. Out: Parquet files. Holds: the names, types and ranges of the real tables; the same rows each time. Not covered:
what the real rows say.
"""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 30_000
CUSTOMERS = 3_000
MONTHS = {"2000-11": 30, "2000-12": 31, "2001-01": 31, "2001-02": 28}
"""The months of Ta Feng, and their days."""

TAX_COLUMNS = [
    "e00200",
    "e00200p",
    "e00200s",
    "e00300",
    "e00600",
    "e00900",
    "e01500",
    "e02100",
    "e02300",
    "e02400",
    "age_head",
    "age_spouse",
    "MARS",
    "XTOT",
    "nu18",
    "nu06",
    "n21",
    "fips",
    "agi_bin",
]


def ta_feng(folder: pathlib.Path) -> None:
    """Write one file a month."""
    folder.mkdir(parents=True)
    made = np.random.default_rng(7)
    for month, days in MONTHS.items():
        rows = ROWS // len(MONTHS)
        day = np.datetime64(f"{month}-01", "D") + made.integers(0, days, rows)
        table = {
            "TRANSACTION_DT": pa.array(day),
            "CUSTOMER_ID": [f"{number:08}" for number in made.integers(0, CUSTOMERS, rows)],
            "AGE_GROUP": [("25-29", "30-34", "35-39", None)[number] for number in made.integers(0, 4, rows)],
            "PIN_CODE": [("105", "106", "115", "Others")[number] for number in made.integers(0, 4, rows)],
            "PRODUCT_SUBCLASS": [f"{number}0205" for number in made.choice([10, 11, 12, 13, 53], rows)],
            "PRODUCT_ID": [f"{number:013}" for number in made.integers(0, 50, rows)],
            "AMOUNT": pa.array(made.integers(1, 5, rows), pa.int32()),
            "ASSET": pa.array(made.integers(10, 200, rows), pa.int32()),
            "SALES_PRICE": pa.array(made.integers(10, 400, rows), pa.int32()),
        }
        pq.write_table(pa.table(table), folder / f"{month}.parquet")


def tax_units(folder: pathlib.Path) -> None:
    """Write one file of units, each with one row."""
    folder.mkdir(parents=True)
    made = np.random.default_rng(8)
    table = {name: pa.array(made.integers(0, 5, ROWS), pa.int32()) for name in TAX_COLUMNS}
    table |= {
        "RECID": pa.array(np.arange(ROWS), pa.int32()),
        "e00200": pa.array(made.integers(0, 100_000, ROWS), pa.int32()),
        "age_head": pa.array(made.integers(18, 90, ROWS), pa.int32()),
        "MARS": pa.array(made.integers(1, 6, ROWS), pa.int32()),
        "fips": pa.array(made.choice([1, 2, 4, 5, 6, 8], ROWS), pa.int32()),
    }
    pq.write_table(pa.table(table), folder / "units.parquet")
