"""One folder for all stages of a plan: published together, or refused when the pipeline is built.

In: a plan with two stages, made-up rows. Out: a folder with one manifest; warnings and refusals. Not covered: a publisher that
dies half-way (`tests/release`, `test_private_aggregate`).
"""

import json
import pathlib
import warnings
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.display import DisplayData

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query, RequestError
from dp_pipelines.transforms import PrivateAggregate, PublishRelease
from tests.helpers import graph
from tests.helpers.pipelines import one_stage, publish
from tests.helpers.small_disks import SmallDisk

BOUNDS = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
ROWS = pa.table({"who": list(range(300)), "region": ["a", "b", "c"] * 100})


def plan(*names: str, runs: int = 1) -> Plan:
    """A plan with stages of these names."""
    asked = Query(
        privacy_unit="who",
        partition_by="region",
        bounds=BOUNDS,
        metrics={"rows": Count()},
        partitions=PublicPartitions(keys=[["a"], ["b"], ["c"]]),
    )
    return Plan(epsilon=9.0, delta=1e-6, stages=dict.fromkeys(names, asked), runs=runs)


def tables(pipeline: beam.Pipeline) -> beam.PCollection[pa.Table]:
    """The rows."""
    return pipeline | beam.Create([ROWS])


def releases(rows: Any, made: Plan, *names: str) -> tuple[beam.PCollection[pa.Table], ...]:
    """Releases of stages."""
    return tuple(rows | name >> PrivateAggregate(made[name], num_shards=1) for name in names)


@pytest.mark.parametrize("given", ["tuple", "dict"])
def test_all_stages_of_a_plan_are_published_in_one_folder(given: str, tmp_path: pathlib.Path) -> None:
    made, output = plan("weekly", "daily"), tmp_path / "out"
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        both = releases(tables(pipeline), made, "weekly", "daily")
        published = (both if given == "tuple" else dict(zip("ab", both, strict=True))) | PublishRelease(str(output))
        assert graph.pickled_collections(pipeline) == []
        assert published.element_type is str
    files = ["daily.parquet", "manifest.json", "report.html", "weekly.parquet"]
    assert sorted(path.name for path in output.iterdir()) == files
    manifest = json.loads((output / "manifest.json").read_text())
    assert [stage["name"] for stage in manifest["stages"]] == ["weekly", "daily"]
    assert manifest["mechanisms"] == [
        record.to_json() for name in ("weekly", "daily") for record in made[name].mechanisms
    ]
    assert sorted(manifest["files"]) == ["daily.parquet", "report.html", "weekly.parquet"]
    for name in ("weekly", "daily"):
        assert pyarrow.parquet.read_table(output / f"{name}.parquet")["region"].to_pylist() == ["a", "b", "c"]


def test_what_does_not_belong_into_one_folder_is_refused_when_the_pipeline_is_built(tmp_path: pathlib.Path) -> None:
    rows = tables(beam.Pipeline(runner=FnApiRunner()))
    (first,), (other,) = releases(rows, plan("weekly"), "weekly"), releases(rows, plan("daily"), "daily")
    with pytest.raises(
        RequestError, match="stages: are of several plans or runs, and a folder states the budget of one"
    ):
        (first, other) | "1" >> PublishRelease(str(tmp_path / "out"))
    with pytest.raises(RequestError, match="stages: are given twice"):
        (first, first) | "2" >> PublishRelease(str(tmp_path / "out"))
    with pytest.raises(RequestError, match="input: is not the output of PrivateAggregate"):
        (first, rows) | "3" >> PublishRelease(str(tmp_path / "out"))
    first | "4" >> PublishRelease(str(tmp_path / "out"))
    with pytest.raises(
        RequestError, match="output: is published by another step of this pipeline; give all stages to one"
    ):
        other | "5" >> PublishRelease(str(tmp_path / "more" / ".." / "out"))


def test_a_stage_that_no_step_releases_is_told_when_the_pipeline_runs() -> None:
    made = plan("weekly", "daily", "hourly")
    pipeline = beam.Pipeline(runner=FnApiRunner())
    releases(tables(pipeline), made, "weekly")
    said = (
        "this pipeline does not release 'daily', 'hourly' of its plan: unless another one does, .* is spent on nothing"
    )
    with pytest.warns(UserWarning, match=said):
        pipeline.run()
    rest = beam.Pipeline(runner=FnApiRunner())
    releases(tables(rest), made, "daily", "hourly")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rest.run()


def test_beams_pages_show_bounds_and_noise_and_no_name_of_a_column_that_is_not_declared() -> None:
    (stage,) = plan("weekly").stages.values()
    items = {item.key: item.value for item in DisplayData.create_from(PrivateAggregate(stage)).items}
    assert {key: items[key] for key in ("stage", "epsilon", "delta", "privacy_unit", "partition_by")} == {
        "stage": "weekly",
        "epsilon": 9.0,
        "delta": 1e-6,
        "privacy_unit": "who",
        "partition_by": "region",
    }
    assert (items["max_partitions_contributed"], items["max_contributions_per_partition"]) == (1, 1)
    assert f"standard deviation {stage.noises[0].stddev:.6g}" in items["noise rows"]


def test_display_data_travels_with_the_graph() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    releases(tables(pipeline), plan("weekly"), "weekly")
    steps = {step.unique_name: step for step in graph.proto(pipeline).components.transforms.values()}
    assert b"max_partitions_contributed" in b"".join(item.payload for item in steps["weekly"].display_data)


def test_a_pipeline_of_ones_own_says_that_the_disk_is_full_and_leaves_nothing(small_disk: SmallDisk) -> None:
    query = Query(
        privacy_unit="who", partition_by="place", metrics={"n": Count()},
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        partitions=PublicPartitions(keys=[["a"]]),
    )  # fmt: skip
    tables = [pa.table({"who": [1, 2], "place": ["a", "a"]})]
    small_disk.fill()
    with pytest.raises(Exception, match=f"folder '{small_disk.path}': the disk is full; nothing was published"):
        publish(one_stage(query), tables, small_disk.path / "out")
    assert small_disk.names() == []
    small_disk.free()
    publish(one_stage(query), tables, small_disk.path / "out")
    assert small_disk.names() == ["out"]
