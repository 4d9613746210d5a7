"""One pass for all configurations: two shuffles, no pickles, and the same sums however the rows are cut."""

import dataclasses
import functools
import io
import pathlib

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines import ContributionBounds, Count, Mean, Plan, PublicPartitions, Query
from dp_pipelines.extensions.tune import tally
from dp_pipelines.extensions.tune.configuration import Configuration, configuration
from dp_pipelines.extensions.tune.tally_errors import Tallied, errors_tallied
from dp_pipelines.jobs.runners.local import LocalGraph
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.transforms.beam_flow import Wired
from tests.helpers import graph

COLUMNS = ["price"]


def planned(**changes: object) -> StagePlan:
    query = Query(
        privacy_unit="who",
        partition_by="where",
        bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
        metrics={"orders": Count(), "mean": Mean("price", min_value=0, max_value=5)},
        **changes,
    )
    return Plan(epsilon=4.0, delta=1e-4, stages={"s": query})["s"]


def configurations(stage: StagePlan) -> list[Configuration]:
    one = configuration(0, stage.query, stage)
    return [dataclasses.replace(one, number=i, max_partitions=k) for i, k in enumerate([1, 2, 5])]


def rows(count: int) -> pa.Table:
    made = np.random.default_rng(5)
    where = pa.array([f"p{i}" for i in made.integers(0, 9, count)])
    return pa.table({"who": made.integers(0, 60, count), "where": where, "price": made.random(count) * 7})


def of(stage: StagePlan, path: pathlib.Path, shards: int) -> Tallied:
    return Tallied(
        layout=stage.layout,
        columns=COLUMNS,
        configurations=configurations(stage),
        path=str(path),
        num_shards=shards,
        salt=9,
    )


def tallying(stage: StagePlan, path: pathlib.Path, shards: int) -> Wired:
    return Wired(functools.partial(errors_tallied, of=of(stage, path, shards)))


def written(stage: StagePlan, tables: list[pa.Table], folder: pathlib.Path, shards: int = 3) -> pa.Table:
    path = folder / f"sums-{shards}-{len(tables)}.parquet"
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        events = pipeline | beam.Create(tables).with_output_types(pa.Table)
        events | "TallyErrors" >> tallying(stage, path, shards)
    return pa.parquet.read_table(path)


def test_any_number_of_configurations_takes_two_shuffles_and_no_pickle(tmp_path: pathlib.Path) -> None:
    stage = planned()
    pipeline = beam.Pipeline(runner=FnApiRunner())
    events = pipeline | beam.Create([rows(3)]).with_output_types(pa.Table)
    events | "TallyErrors" >> tallying(stage, tmp_path / "x", 3)
    gathered = {"TallyErrors/Gather"}
    assert {name for name in graph.shuffles(pipeline) if name.startswith("Tally")} - gathered == {
        "TallyErrors/ByShard",
        "TallyErrors/ByPlace",
    }
    assert [name for name in graph.pickled_collections(pipeline) if not name.startswith("Create")] == []


def test_cuts_and_shards_change_no_sum(tmp_path: pathlib.Path) -> None:
    stage, whole = planned(), rows(900)
    one = written(stage, [whole], tmp_path, shards=1)
    many = written(stage, [whole.slice(0, 300), whole.slice(300), whole.slice(0, 0)], tmp_path, shards=7)
    assert one.select(tally.KEYS).equals(many.select(tally.KEYS))
    for name in tally.SUMS:
        np.testing.assert_allclose(one[name].to_numpy(), many[name].to_numpy(), rtol=1e-9, atol=1e-9)
    assert tally.partitions_of(one) == 9
    assert len(set(one["configuration"].to_pylist())) == 3


@pytest.mark.parametrize("memory", [2**30, 1], ids=["in memory", "spilled"])
def test_threads_and_memory_of_the_local_runner_change_no_bit(memory: int, tmp_path: pathlib.Path) -> None:
    stage, whole, found = planned(), rows(6000), []
    tables = [whole.slice(begin, 250) for begin in range(0, 6000, 250)]
    for threads in (1, 4, 4, 4):
        path = tmp_path / f"{len(found)}.parquet"
        room = 2**30 if threads == 1 else memory
        made = LocalGraph(threads=threads, memory=room, folder=tmp_path, progress=Progress(io.StringIO()))
        events = made.start.known("Rows", tables, pa.Table)
        events.inside("TallyErrors", functools.partial(errors_tallied, of=of(stage, path, 7)))
        made.run()
        found.append(pa.parquet.read_table(path))
    assert all(other.equals(found[0]) for other in found[1:])


def test_no_rows_give_an_empty_table(tmp_path: pathlib.Path) -> None:
    assert written(planned(), [rows(0)], tmp_path).num_rows == 0


@pytest.mark.parametrize("count", [0, 900])
def test_public_partitions_without_rows_count_too(count: int, tmp_path: pathlib.Path) -> None:
    stage = planned(partitions=PublicPartitions(keys=[(f"p{i}",) for i in range(4, 14)]))
    sums = written(stage, [rows(count)], tmp_path)
    assert tally.partitions_of(sums) == 10
    empty = sums.filter(pa.compute.equal(sums["size"], 0))
    assert sum(empty["partitions"].to_pylist()) == 3 * 2 * (10 if count == 0 else 5)
