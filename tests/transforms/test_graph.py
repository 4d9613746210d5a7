"""The graph of a stage: two shuffles of data whatever is asked, and no element that is ever pickled."""

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines import (
    ContributionBounds,
    Count,
    Mean,
    Plan,
    PrivacyIdCount,
    PrivatePartitions,
    PublicPartitions,
    Query,
    RequestError,
    Sum,
    Variance,
)
from dp_pipelines.transforms import (
    BoundContributions,
    FromRows,
    PrivateAggregate,
    PublishRelease,
    ReadParquet,
    SelectPartitions,
)
from tests.helpers import graph

FEW = {"rows": Count()}
MANY = {
    "rows": Count(),
    "units": PrivacyIdCount(),
    "sum": Sum("a", min_value=0, max_value=1),
    "mean": Mean("b", min_value=0, max_value=1),
    "variance": Variance("c", min_value=0, max_value=1),
    "clipped": Sum("d", min_sum_per_partition=0, max_sum_per_partition=1),
}
DATA_SHUFFLES = ["PrivateAggregate/ByPlace", "PrivateAggregate/ByShard"]


def plan_of(metrics: dict) -> Plan:
    bounds = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)
    query = Query(privacy_unit="unit", partition_by=["key", "other"], bounds=bounds, metrics=metrics)
    return Plan(epsilon=1.0, delta=1e-6, stages={"stage": query})


@pytest.fixture
def parquet(tmp_path):
    columns = dict.fromkeys(["unit", "key", "other", "a", "b", "c", "d"], pa.array([1, 2]))
    path = tmp_path / "events.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return str(path)


@pytest.mark.parametrize("metrics", [FEW, MANY], ids=["one metric", "six metrics over four columns"])
def test_a_stage_shuffles_data_exactly_twice(metrics, parquet, tmp_path):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    (
        pipeline
        | ReadParquet(parquet)
        | PrivateAggregate(plan_of(metrics)["stage"])
        | PublishRelease(str(tmp_path / "out"))
    )
    # What is left: released rows are gathered twice.
    others = ["PrivateAggregate/Barrier", "PublishRelease/Gather"]
    assert graph.shuffles(pipeline) == sorted(DATA_SHUFFLES + others)


def test_no_element_of_any_transform_is_pickled(parquet, tmp_path):
    stage = plan_of(MANY)["stage"]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    tables = pipeline | ReadParquet(parquet)
    tables | PrivateAggregate(stage) | PublishRelease(str(tmp_path / "out"))
    tables | BoundContributions(stage)
    tables | SelectPartitions(plan_of({})["stage"])
    pickled = graph.pickled_collections(pipeline)
    assert pickled == []


def test_rows_become_tables_without_pickling_the_tables(tmp_path):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    rows = pipeline | beam.Create([{"unit": 1, "key": 2, "other": 3}])
    rows | FromRows(types=dict.fromkeys(["unit", "key", "other"], pa.int64())) | PrivateAggregate(plan_of(FEW)["stage"])
    pickled = graph.pickled_collections(pipeline)
    assert [name for name in pickled if not name.startswith("Create")] == []


def test_the_check_for_pickled_elements_finds_an_untyped_step():
    pipeline = beam.Pipeline(runner=FnApiRunner())
    pipeline | beam.Create([1]) | "Untyped" >> beam.Map(lambda x: pa.table({"a": [x]}))
    assert any(name.startswith("Untyped") for name in graph.pickled_collections(pipeline))


def test_the_count_of_shuffles_finds_a_third_one(parquet):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    tables = pipeline | ReadParquet(parquet) | PrivateAggregate(plan_of(FEW)["stage"])
    tables | "Keyed" >> beam.Map(lambda table: (0, table)) | "Third" >> beam.GroupByKey()
    assert "Third" in graph.shuffles(pipeline)


@pytest.mark.parametrize("listed", [True, False], ids=["public", "private"])
def test_a_rollup_shuffles_data_exactly_twice_and_pickles_nothing(listed, parquet, tmp_path):
    query = Query(
        privacy_unit="unit",
        partition_by=["key", "other"],
        bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
        metrics={name: metric for name, metric in MANY.items() if name != "variance"},
        rollup=[[], ["key"], ["key", "other"]],
        partitions=PublicPartitions(keys=[(1, 1), (1, 2)]) if listed else PrivatePartitions(),
    )
    pipeline = beam.Pipeline(runner=FnApiRunner())
    stage = Plan(epsilon=1.0, delta=1e-6, stages={"stage": query})["stage"]
    pipeline | ReadParquet(parquet) | PrivateAggregate(stage) | PublishRelease(str(tmp_path / "out"))
    others = ["PrivateAggregate/Barrier", "PublishRelease/Gather"]
    assert graph.shuffles(pipeline) == sorted(DATA_SHUFFLES + others)
    assert graph.pickled_collections(pipeline) == []


def test_a_level_alone_is_no_stage_to_release(parquet):
    query = Query(
        privacy_unit="unit",
        partition_by=["key", "other"],
        bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
        metrics=FEW,
        rollup=[["key"], ["key", "other"]],
    )
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"stage": query})
    pipeline = beam.Pipeline(runner=FnApiRunner())
    tables = pipeline | ReadParquet(parquet)
    with pytest.raises(RequestError, match="is a level of a rollup"):
        tables | PrivateAggregate(plan["stage.level0"])
