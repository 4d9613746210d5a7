"""Releases of the weekly report by dp_pipelines, for the accuracy benchmark.

In and out: see releases.py. Each release is a whole pipeline, from Parquet to a published folder that is read back.
"""

import dataclasses
import logging
import pathlib
import tempfile
from collections.abc import Iterator

import releases

logging.disable(logging.WARNING)
import apache_beam as beam  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from apache_beam.runners.portability.fn_api_runner import FnApiRunner  # noqa: E402

import dp_pipelines as dp  # noqa: E402
from dp_pipelines.transforms import PrivateAggregate, PublishRelease, ReadParquet  # noqa: E402


def query(request: releases.Request) -> dp.Query:
    """The weekly report as in examples/ta_feng/weekly.yaml, on the prepared rows."""
    value = {"min_value": request.low, "max_value": request.high}
    return dp.Query(
        privacy_unit="unit",
        partition_by=["subclass", "week"],
        bounds=dp.ContributionBounds(
            max_partitions_contributed=request.max_partitions, max_contributions_per_partition=request.max_rows
        ),
        metrics={
            "orders": dp.Count(),
            "customers": dp.PrivacyIdCount(),
            "revenue": dp.Sum("price", **value),
            "mean_price": dp.Mean("price", **value, nullable=False),
        },
        partitions=dp.PublicPartitions(keys=request.public_keys) if request.public else dp.PrivatePartitions(),
    )


def release(request: releases.Request, plan: dp.Plan) -> list[releases.Released]:
    """One release under the whole budget."""
    with tempfile.TemporaryDirectory() as parent:
        out = pathlib.Path(parent, "release")
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            # Releases of made-up rows are compared: each is a first one, so nobody counts what the plan pays for.
            stage = dataclasses.replace(plan["weekly"], payment=None)
            pipeline | ReadParquet(request.rows) | PrivateAggregate(stage) | PublishRelease(str(out))
        table = pq.read_table(out / "weekly.parquet")
    columns = [table[name].to_pylist() for name in ("subclass", "week", *releases.METRICS)]
    return [
        ((subclass, week), (float(orders), float(customers), float(revenue), float(mean)))
        for subclass, week, orders, customers, revenue, mean in zip(*columns, strict=True)
    ]


def all_releases(request: releases.Request) -> Iterator[list[releases.Released]]:
    """As many releases as asked. The plan is public and the same for all."""
    plan = dp.Plan(epsilon=request.epsilon, delta=request.delta, stages={"weekly": query(request)})
    for _ in range(request.runs):
        yield release(request, plan)


if __name__ == "__main__":
    wanted, answer = releases.arguments("Weekly reports of Ta Feng by dp_pipelines.")
    releases.write(answer, all_releases(wanted))
