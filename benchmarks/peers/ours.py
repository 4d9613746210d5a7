"""The query in dp_pipelines on Apache Beam, with privacy: from Parquet to a published folder.

In: a folder of Parquet files. Out: workload.report's line; totals are those of the noisy release. Beam's in-memory
runner in one process, named explicitly, as for the other system on Beam. Holds: everything from the files to
the published folder is timed; planning (the calibration of noise), which reads no data, apart from it.
"""

import logging
import math
import pathlib
import tempfile

import workload

watch = workload.Stopwatch()
logging.disable(logging.WARNING)
import apache_beam as beam  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from apache_beam.runners.portability.fn_api_runner import FnApiRunner  # noqa: E402

import dp_pipelines as dp  # noqa: E402
from dp_pipelines.transforms import PrivateAggregate, PublishRelease, ReadParquet  # noqa: E402

watch.imports_done()


def query() -> dp.Query:
    """The same query as the peers'."""
    value = {"min_value": workload.LOW, "max_value": workload.HIGH}
    return dp.Query(
        privacy_unit="user",
        partition_by=["key"],
        bounds=dp.ContributionBounds(
            max_partitions_contributed=workload.MAX_KEYS, max_contributions_per_partition=workload.MAX_ROWS
        ),
        metrics={
            "rows": dp.Count(),
            "users": dp.PrivacyIdCount(),
            "sum": dp.Sum("value", **value),
            "mean": dp.Mean("value", **value, nullable=False),
        },
    )


ROWS_OF_ONE_SHARD = 40_000


def run(plan: dp.Plan, folder: pathlib.Path, out: pathlib.Path, rows: int) -> None:
    """Read, aggregate, publish: one pipeline."""
    shards = max(4, math.ceil(math.sqrt(rows / ROWS_OF_ONE_SHARD)))  # as `dp-pipelines run` does, see jobs/run/build.py
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        events = pipeline | ReadParquet(workload.files(folder))
        events | PrivateAggregate(plan["bench"], num_shards=shards) | PublishRelease(str(out))


def main() -> None:
    """Run once and report."""
    folder = workload.arguments("Count, users, sum and mean per key with dp_pipelines on Beam.")
    rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    with tempfile.TemporaryDirectory() as parent:
        out = pathlib.Path(parent, "release")
        with watch.plan():
            plan = dp.Plan(epsilon=workload.EPSILON, delta=workload.DELTA, stages={"bench": query()})
        with watch.query():
            run(plan, folder, out, rows)
        table = pq.read_table(out / "bench.parquet").to_pydict()
    totals = workload.totals(table["rows"], table["users"], table["sum"])
    workload.report("dp_pipelines on Beam", rows, watch, len(table["key"]), totals)


if __name__ == "__main__":
    main()
