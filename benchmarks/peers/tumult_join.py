"""Tumult's join of two private tables by person, on local Spark: count and sum per store of joined rows.

In: threads, the number of stores; orders.parquet and visits.parquet in the current folder. Out: a line of JSON with the processor
seconds of this process and all that it has started: Java and Spark's Python workers. Runs in .venv-tumult.

    python benchmarks/peers/tumult_join.py THREADS STORES
"""

import json
import os
import pathlib
import sys
import warnings

warnings.filterwarnings("ignore")
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import SparkSession  # noqa: E402  # Spark reads the environment
from tmlt.analytics import (  # noqa: E402
    AddRowsWithID,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    PureDPBudget,
    QueryBuilder,
    Session,
)

EPSILON = 1.0
"""Of each of the two metrics."""


def spent() -> float:
    """Processor seconds of all processes of this session, with those of their children that have ended."""
    mine, ticks = os.getsid(0), 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[3]) == mine:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def main(threads: int, stores: int) -> None:
    """Both metrics."""
    spark = (
        SparkSession.builder.master(f"local[{threads}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", str(2 * threads))
        .config("spark.sql.warehouse.dir", "warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    orders = spark.read.parquet("orders.parquet").select("customer", "day", "store", "price")
    visits = spark.read.parquet("visits.parquet").selectExpr("person AS customer", "visited AS day")
    change = AddRowsWithID("customer", "people")
    session = (
        Session.Builder()
        .with_id_space("people")
        .with_private_dataframe("orders", orders, protected_change=change)
        .with_private_dataframe("visits", visits, protected_change=change)
        .with_privacy_budget(PureDPBudget(2 * EPSILON))
        .build()
    )
    bounded = (
        QueryBuilder("orders")
        .join_private("visits", join_columns=["customer", "day"])
        .enforce(MaxGroupsPerID("store", 4))
        .enforce(MaxRowsPerGroupPerID("store", 2))
        .groupby(KeySet.from_dict({"store": list(range(stores))}))
    )
    total = 0.0
    for query in (bounded.count(), bounded.sum("price", 0, 20)):
        found = session.evaluate(query, PureDPBudget(EPSILON)).collect()
        total += sum(row[1] for row in found)
        assert len(found) == stores
    print(json.dumps({"cpu": spent(), "total": total}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
