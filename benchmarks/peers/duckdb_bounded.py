"""The query in DuckDB, without privacy: one scan with two windows, on two threads.

The contribution bounds are those of the private systems; there is no noise and no selection of keys. In: a folder of
Parquet files. Out: workload.report's line; the result is written as Parquet too, for the others publish theirs.
"""

import pathlib
import tempfile

import workload

watch = workload.Stopwatch()
import duckdb  # noqa: E402  # imports are timed
import pyarrow.parquet as pq  # noqa: E402

watch.imports_done()

# A user's keys are taken in the order of a hash of both, so that no key is favoured by all users; rows in the order of
# a hash of the value.
QUERY = f"""
    WITH ranked AS (
        SELECT key, greatest(least(value, {workload.HIGH}), {workload.LOW}) AS clamped,
               row_number() OVER (PARTITION BY user, key ORDER BY hash(value)) AS row_rank,
               dense_rank() OVER (PARTITION BY user ORDER BY hash(user, key)) AS key_rank
        FROM read_parquet('{{files}}')
    )
    SELECT key, count(*) AS rows, count(*) FILTER (row_rank = 1) AS users, sum(clamped) AS sum, avg(clamped) AS mean
    FROM ranked WHERE row_rank <= {workload.MAX_ROWS} AND key_rank <= {workload.MAX_KEYS} GROUP BY key ORDER BY key
"""


def main() -> None:
    """Run once and report."""
    folder = workload.arguments("Bounded count, users, sum and mean per key in DuckDB.")
    rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    with tempfile.TemporaryDirectory() as out, watch.query(), duckdb.connect() as connection:
        connection.execute(f"SET threads = {workload.THREADS}")
        result = pathlib.Path(out, "result.parquet")
        connection.execute(f"COPY ({QUERY.format(files=workload.files(folder))}) TO '{result}' (FORMAT parquet)")
        table = pq.read_table(result).to_pydict()
    totals = workload.totals(table["rows"], table["users"], table["sum"])
    workload.report("DuckDB", rows, watch, len(table["key"]), totals)


if __name__ == "__main__":
    main()
