"""The query in Polars, without privacy: ranks over groups, on two threads.

The contribution bounds are those of the private systems; there is no noise and no selection of keys. In: a folder of
Parquet files. Out: workload.report's line; the result is written as Parquet too, for the others publish theirs.
"""

import os
import pathlib
import tempfile

import workload

watch = workload.Stopwatch()
os.environ["POLARS_MAX_THREADS"] = str(workload.THREADS)  # read when Polars is imported
import polars as pl  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

watch.imports_done()


def query(files: str) -> pl.LazyFrame:
    """The query over these files; ordered by key."""
    # A user's keys are taken in the order of a hash of both, so that no key is favoured by all users; rows by their
    # value's. `ordinal` and `dense` are row_number() and dense_rank() of SQL.
    return (
        pl.scan_parquet(files)
        .with_columns(pl.struct("user", "key").hash().alias("pair"))
        .with_columns(
            pl.col("value").hash().rank("ordinal").over("user", "key").alias("row_rank"),
            pl.col("pair").rank("dense").over("user").alias("key_rank"),
        )
        .filter((pl.col("row_rank") <= workload.MAX_ROWS) & (pl.col("key_rank") <= workload.MAX_KEYS))
        .with_columns(pl.col("value").clip(workload.LOW, workload.HIGH))
        .group_by("key")
        .agg(
            pl.len().alias("rows"),
            (pl.col("row_rank") == 1).sum().alias("users"),
            pl.col("value").sum().alias("sum"),
            pl.col("value").mean().alias("mean"),
        )
        .sort("key")
    )


def main() -> None:
    """Run once and report."""
    folder = workload.arguments("Bounded count, users, sum and mean per key in Polars.")
    rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    with tempfile.TemporaryDirectory() as out, watch.query():
        table = query(workload.files(folder)).collect()
        table.write_parquet(pathlib.Path(out, "result.parquet"))
    totals = workload.totals(*(table[name].to_list() for name in ("rows", "users", "sum")))
    workload.report("Polars", rows, watch, table.height, totals)


if __name__ == "__main__":
    main()
