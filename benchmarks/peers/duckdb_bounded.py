"""The query in DuckDB, without privacy: one scan with two windows, on two threads.

The contribution bounds are those of the private systems; there is no noise and no selection of keys. In: a folder of
Parquet files. Out: workload.report's line; the result is written as Parquet too, for the others publish theirs.
"""

import pathlib
import tempfile

import workload

watch = workload.Stopwatch()
import duckdb  # noqa: E402  # imports are timed

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
    files = workload.files(folder)
    with tempfile.TemporaryDirectory() as out, duckdb.connect() as connection:
        result = pathlib.Path(out, "result.parquet")
        with watch.query():
            connection.execute(f"SET threads = {workload.THREADS}")
            if workload.MEMORY_GIB:
                connection.execute(f"SET memory_limit = '{workload.MEMORY_GIB}GiB'")
                connection.execute(f"SET temp_directory = '{out}'")
            connection.execute(f"COPY ({QUERY.format(files=files)}) TO '{result}' (FORMAT parquet)")
        # By its own reader: another one would be imported for this alone.
        keys, *columns = connection.execute(f"SELECT key, rows, users, sum FROM '{result}'").fetchnumpy().values()
        (rows,) = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata('{files}')").fetchone() or (0,)
    totals = workload.totals(*(column.tolist() for column in columns))
    workload.report("DuckDB", int(rows), watch, len(keys), totals)


if __name__ == "__main__":
    main()
