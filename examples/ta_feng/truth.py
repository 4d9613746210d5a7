"""What the Ta Feng report would say without privacy. Only public data may be looked at like this.

In: the Parquet files of fetch.py and, for the bounded form, the bounds of a job. Out: numpy columns, one row for each
(subclass, week). Holds: `exact` is the plain report of all rows. `bounded` is the report that a private release of it
scatters around: what remains of all rows under contribution bounds and clamping, in expectation over the free choice
of rows and partitions. The difference between the two is the bias that the bounds buy; the rest is noise and choice.
Uses DuckDB alone, and nothing of dp_pipelines: it is an independent judge.
"""

import dataclasses
import pathlib

import duckdb
import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[np.generic]]
METRICS = ("orders", "customers", "revenue", "mean_price")

# PRODUCT_SUBCLASS and week identify a partition; weeks start on Monday.
_ROWS = """
    SELECT CUSTOMER_ID AS unit, PRODUCT_SUBCLASS AS subclass, CAST(date_trunc('week', TRANSACTION_DT) AS DATE) AS week,
           CAST(SALES_PRICE AS DOUBLE) AS price
    FROM read_parquet($files) WHERE $subclasses IS NULL OR list_contains($subclasses, PRODUCT_SUBCLASS)
"""

_EXACT = f"""
    SELECT subclass, week, CAST(count(*) AS DOUBLE) AS orders, CAST(count(DISTINCT unit) AS DOUBLE) AS customers,
           sum(price) AS revenue, avg(price) AS mean_price
    FROM ({_ROWS}) GROUP BY subclass, week ORDER BY subclass, week
"""

# A customer with n partitions keeps each of them with chance min(1, most/n); of a pair with more rows than allowed the
# expected sum is the allowed number times its mean.
_BOUNDED = f"""
    WITH pairs AS (
        SELECT unit, subclass, week, least(count(*), $rows) AS n,
               least(count(*), $rows) * avg(greatest(least(price, $high), $low)) AS total
        FROM ({_ROWS}) GROUP BY unit, subclass, week
    ), chosen AS (
        SELECT subclass, week, n, total,
               least(1.0, CAST($partitions AS DOUBLE) / count(*) OVER (PARTITION BY unit)) AS chance
        FROM pairs
    )
    SELECT subclass, week, sum(chance * n) AS orders, sum(chance) AS customers, sum(chance * total) AS revenue,
           sum(chance * total) / sum(chance * n) AS mean_price
    FROM chosen GROUP BY subclass, week ORDER BY subclass, week
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Contribution bounds and the range of prices, as in the job file."""

    max_partitions: int
    max_rows_per_partition: int
    low: float
    high: float


def _query(sql: str, parameters: dict[str, object]) -> Columns:
    with duckdb.connect() as connection:
        columns = connection.execute(sql, parameters).fetchnumpy()
    return {name: np.ma.getdata(column) for name, column in columns.items()}


def _files(data: pathlib.Path) -> str:
    if not any(data.glob("*.parquet")):
        raise FileNotFoundError(f"no Parquet files in {data}; run examples/ta_feng/fetch.py first")
    return str(data / "*.parquet")


def exact(data: pathlib.Path, subclasses: list[str] | None = None) -> Columns:
    """The report of all rows: subclass, week and the four metrics, sorted by subclass and week.

    Args:
        data: folder of fetch.py.
        subclasses: only rows of these, as with a public list of partitions; None is all.
    """
    return _query(_EXACT, {"files": _files(data), "subclasses": subclasses})


def bounded(data: pathlib.Path, bounds: Bounds, subclasses: list[str] | None = None) -> Columns:
    """The expected report after bounding and clamping, for the same partitions in the same order as `exact`."""
    parameters = {
        "files": _files(data),
        "subclasses": subclasses,
        "partitions": bounds.max_partitions,
        "rows": bounds.max_rows_per_partition,
        "low": bounds.low,
        "high": bounds.high,
    }
    return _query(_BOUNDED, parameters)


def keys(columns: Columns) -> list[tuple[str, np.datetime64]]:
    """The partitions of a report as (subclass, week) pairs that compare equal across reports."""
    weeks = columns["week"].astype("datetime64[D]")
    return [(str(subclass), week) for subclass, week in zip(columns["subclass"], weeks, strict=True)]
