"""The whole path on real data: 817,741 grocery rows, against DuckDB's answer to the same question without privacy."""

import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines import (
    ContributionBounds,
    Count,
    Mean,
    Plan,
    PrivacyIdCount,
    PublicPartitions,
    Query,
    Sum,
    Variance,
)
from dp_pipelines.release import draw
from dp_pipelines.transforms import PrivateAggregate, PublishRelease, ReadParquet
from tests.helpers.quiet import silence

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = REPOSITORY / "data" / "ta_feng"


@pytest.fixture(scope="module")
def ta_feng():
    """The data, fetched as the demo fetches them where they are not there yet."""
    fetch = [sys.executable, str(REPOSITORY / "examples" / "ta_feng" / "fetch.py")]
    subprocess.run(fetch, check=True, capture_output=True)
    return str(FILES / "*.parquet")


def test_without_noise_and_with_wide_bounds_every_statistic_equals_duckdbs(ta_feng, tmp_path, monkeypatch):
    silence(monkeypatch)
    # Else the deviation of a mean is at most half of its range, which says nothing of the lattice of its sum and count.
    monkeypatch.setattr(draw, "capped", lambda stddevs, metric: stddevs)
    metrics = {
        "orders": Count(),
        "customers": PrivacyIdCount(),
        "revenue": Sum("SALES_PRICE", min_value=0, max_value=2**20),
        "price": Mean("SALES_PRICE", min_value=0, max_value=2**20),
        "spread": Variance("AMOUNT", min_value=0, max_value=2**11),
    }
    truth = duckdb.sql(f"""
        select PRODUCT_SUBCLASS as key, count(*) as orders, count(distinct CUSTOMER_ID) as customers,
               sum(SALES_PRICE) as revenue, avg(SALES_PRICE) as price, var_pop(AMOUNT) as spread
        from '{ta_feng}' group by key order by key
    """).to_arrow_table()
    query = Query(
        privacy_unit="CUSTOMER_ID",
        partition_by="PRODUCT_SUBCLASS",
        bounds=ContributionBounds(max_partitions_contributed=2000, max_contributions_per_partition=2000),
        metrics=metrics,
        partitions=PublicPartitions(keys=[(key,) for key in truth["key"].to_pylist()]),
    )
    plan = Plan(epsilon=39, delta=1e-6, stages={"all": query})
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline | ReadParquet(ta_feng, columns=list(query.columns))
        tables | PrivateAggregate(plan["all"]) | PublishRelease(str(tmp_path / "out"))
    released = pq.read_table(tmp_path / "out" / "all.parquet")
    assert released["PRODUCT_SUBCLASS"].to_pylist() == truth["key"].to_pylist()
    for name in metrics:
        mine, true = (np.asarray(table[name].to_pylist(), float) for table in (released, truth))
        # What is left is the rounding to the release lattice: thousands of steps to one standard deviation.
        slack = np.asarray(released[f"{name}_stddev"].to_pylist()) / 500 + 1e-9
        assert (np.abs(mine - true) <= slack).all(), name


def test_bounding_the_real_data_twice_or_in_other_pieces_keeps_the_same_rows(ta_feng):
    from dp_pipelines.kernels import accumulate, contributions, shard
    from dp_pipelines.kernels.layout import Layout
    from dp_pipelines.kernels.statistics import RowCount, UnitCount, UnitWeights

    layout = Layout(
        units=("CUSTOMER_ID",), partitions=("PRODUCT_SUBCLASS",), max_partitions=8, max_rows_per_partition=2
    )
    statistics = [RowCount(), UnitCount(), UnitWeights()]
    table = pq.read_table(FILES, columns=["CUSTOMER_ID", "PRODUCT_SUBCLASS"])

    def totals(pieces, shards):
        buckets: dict[int, list[pa.Table]] = {}
        for piece in pieces:
            reduced = contributions.reduce(layout.wire(piece), layout, 5)
            for number, part in shard.slices(reduced, layout.unit_names, 5, shards):
                buckets.setdefault(number, []).append(part)
        partials = [accumulate.partials(shard.joined(parts), layout, statistics, 5) for parts in buckets.values()]
        merged = accumulate.merge(partials, layout.partition_names, statistics)
        order = np.argsort(np.asarray(merged.partitions[0].to_pylist()))
        return [low[order].tolist() for low in merged.low]

    halves = [table.slice(0, 400_000), table.slice(400_000)]
    thirds = [table.take(pa.array(np.arange(start, table.num_rows, 3))) for start in range(3)]
    assert totals(halves, 7) == totals(thirds, 2)
