"""Releases of the weekly report by PipelineDP, for the accuracy benchmark. Runs in .venv-peers.

In and out: see releases.py. PipelineDP's local backend (its engine is the same on all backends), its naive accountant
and the configuration that kept most partitions of four tried: Gaussian noise, and for private partitions Gaussian
thresholding of the noisy user count itself, which saves a quarter of the budget. Its defaults (Laplace noise, truncated geometric
selection) keep two partitions of this report. Its sum is taken back from its mean and count, see `sum_of`.
"""

import datetime
import logging
from collections.abc import Iterator

import releases

logging.disable(logging.WARNING)
import pipeline_dp  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

METRICS = [
    pipeline_dp.Metrics.COUNT,
    pipeline_dp.Metrics.PRIVACY_ID_COUNT,
    pipeline_dp.Metrics.SUM,
    pipeline_dp.Metrics.MEAN,
]
EPOCH = datetime.date(1970, 1, 1)
# (subclass, days since 1970) is cheaper to hash than a date
Packed = tuple[str, int]
Row = tuple[str, Packed, float]


def rows_of(path: str) -> list[Row]:
    """(unit, partition, price) of all rows, as Python objects: what the engine takes."""
    table = pq.read_table(path)
    days = table["week"].cast(pa.int32()).to_pylist()
    keys = zip(table["subclass"].to_pylist(), days, strict=True)
    return list(zip(table["unit"].to_pylist(), keys, table["price"].to_pylist(), strict=True))


def sum_of(mean: float, count: float, middle: float) -> float:
    """The noisy sum behind a released mean, as anybody may compute it.

    PipelineDP releases mean = middle + noisy sum of distances / max(1, count), and as the sum mean * count, which is off by
    millions where a noisy count is below zero. For counts of at least 1 this is the same number; below, it is the better.
    """
    return middle * count + (mean - middle) * max(1.0, count)


def release(request: releases.Request, rows: list[Row]) -> list[releases.Released]:
    """One release under the whole budget."""
    public = [(subclass, (week - EPOCH).days) for subclass, week in request.public_keys]
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=request.epsilon, total_delta=request.delta)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=METRICS,
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=request.max_partitions,
        max_contributions_per_partition=request.max_rows,
        min_value=request.low,
        max_value=request.high,
        partition_selection_strategy=pipeline_dp.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING,
        post_aggregation_thresholding=not public,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    result = engine.aggregate(rows, params, extractors, public or None)
    accountant.compute_budgets()
    middle = (request.low + request.high) / 2
    return [
        (
            (subclass, EPOCH + datetime.timedelta(days=days)),
            (metrics.count, metrics.privacy_id_count, sum_of(metrics.mean, metrics.count, middle), metrics.mean),
        )
        for (subclass, days), metrics in result
    ]


def all_releases(request: releases.Request) -> Iterator[list[releases.Released]]:
    """As many releases as asked, each with its own bounding, selection and noise."""
    rows = rows_of(request.rows)
    for _ in range(request.runs):
        yield release(request, rows)


if __name__ == "__main__":
    wanted, answer = releases.arguments("Weekly reports of Ta Feng by PipelineDP.")
    releases.write(answer, all_releases(wanted))
