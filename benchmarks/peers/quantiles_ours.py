"""Quantiles by dp_pipelines, for the benchmark of quantiles.

In and out: see quantile_releases.py. The kernels that the transforms call, once; the release, with its noise, in each run.
"""

from collections.abc import Iterator

import pyarrow.parquet as pq
import quantile_releases

import dp_pipelines as dp
from dp_pipelines.kernels import accumulate
from dp_pipelines.release.draw import draw_release


def all_releases(request: quantile_releases.Request) -> Iterator[tuple[str, quantile_releases.Released]]:
    """As many releases as asked. The plan is public and the same for all."""
    query = dp.Query(
        privacy_unit="unit",
        partition_by="partition",
        bounds=dp.ContributionBounds(
            max_partitions_contributed=request.max_partitions, max_contributions_per_partition=request.max_rows
        ),
        metrics={
            "prices": dp.Quantiles(
                "price", quantiles=list(request.quantiles), min_value=request.low, max_value=request.high
            )
        },
        partitions=dp.PublicPartitions(keys=[(number,) for number in range(request.partitions)]),
    )
    stage = dp.Plan(epsilon=request.epsilon, delta=request.delta, stages={"prices": query})["prices"]
    wire = stage.layout.wire(pq.read_table(request.rows))
    partials = accumulate.partials(wire, stage.layout, stage.statistics, 1)
    indexed = accumulate.by_public_index(partials, stage.layout)
    totals = accumulate.merge_public([indexed], stage.layout, stage.statistics, 0, 1)
    for _ in range(request.runs):
        yield "tree", draw_release(totals, stage)["prices"].to_pylist()


if __name__ == "__main__":
    wanted, answer = quantile_releases.arguments("Quantiles by dp_pipelines.")
    quantile_releases.write(answer, all_releases(wanted))
