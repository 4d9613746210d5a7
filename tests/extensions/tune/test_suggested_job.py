"""A job file with other values: nothing else changes, comments stay where they can, paths are those of the job's folder."""

import pathlib

import pytest

from dp_pipelines.extensions.tune import suggested_job
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.spec import yaml_lines
from dp_pipelines.jobs.spec.job_file import JobFile, read

JOB = """# a job
dataset: "on"   # quoted, or YAML 1.1 would read a boolean
privacy_unit: who
budget: {epsilon: 1.0, delta: 1e-6}
source: {parquet: "data/*.parquet"}
stages:
  s:
    kind: aggregate
    partition_by: [where]
    bounds:
      max_partitions_contributed: 4 # why four
      max_contributions_per_partition: 2
    metrics:
      n: {kind: count}
"""
BOUND = ("stages", "s", "bounds", "max_partitions_contributed")
STRATEGY = ("stages", "s", "partitions", "private", "strategy")


def job(text: str, folder: pathlib.Path, name: str = "job.yaml") -> JobFile:
    return read(text, folder / name, name)


def test_values_that_stand_in_the_file_change_in_their_place(tmp_path: pathlib.Path) -> None:
    made = suggested_job.text_with(job(JOB, tmp_path), JOB, {BOUND: 16, ("budget", "epsilon"): 0.5}, ["said", ""])
    wanted = JOB.replace("buted: 4 #", "buted: 16 #").replace("epsilon: 1.0", "epsilon: 0.5")
    assert made == "# said\n#\n" + wanted.replace("data/*", f"{tmp_path.resolve()}/data/*")


def test_a_value_that_does_not_stand_there_has_the_job_written_anew(tmp_path: pathlib.Path) -> None:
    made = suggested_job.text_with(job(JOB, tmp_path), JOB, {STRATEGY: "laplace"}, ["said"])
    found = yaml_lines.parse(made, "made.yaml").data
    assert found["dataset"] == "on"
    assert found["budget"]["delta"] == 1e-6
    assert found["stages"]["s"]["partitions"] == {"private": {"strategy": "laplace"}}
    assert job(made, tmp_path).job.stages["s"].share == 1.0


def test_a_value_that_stands_in_two_places_by_an_alias_changes_in_one(tmp_path: pathlib.Path) -> None:
    text = JOB.replace("partition: 2", "partition: *k").replace("buted: 4 #", "buted: &k 4 #")
    made = suggested_job.text_with(job(text, tmp_path), text, {BOUND: 16}, [])
    bounds = yaml_lines.parse(made, "made.yaml").data["stages"]["s"]["bounds"]
    assert bounds == {"max_partitions_contributed": 16, "max_contributions_per_partition": 4}


def test_json_stays_readable(tmp_path: pathlib.Path) -> None:
    import json

    text = json.dumps(yaml_lines.parse(JOB, "job.yaml").data, indent=2)
    made = suggested_job.text_with(job(text, tmp_path, "job.json"), text, {BOUND: 3}, ["said"])
    assert yaml_lines.parse(made, "made.yaml").data["stages"]["s"]["bounds"]["max_partitions_contributed"] == 3


def test_the_files_of_several_lookups_are_written_whole(tmp_path: pathlib.Path) -> None:
    tables = "lookup: [{csv: a.csv, on: x}, {parquet: b.parquet, on: y, max_rows_per_key: 3}]\n"
    text = JOB + tables
    here = str(tmp_path.resolve())
    for changes in ({BOUND: 16}, {STRATEGY: "laplace"}):
        made = suggested_job.text_with(job(text, tmp_path), text, changes, [])
        found = yaml_lines.parse(made, "made.yaml").data["lookup"]
        assert found == [
            {"csv": f"{here}/a.csv", "on": "x"},
            {"parquet": f"{here}/b.parquet", "on": "y", "max_rows_per_key": 3},
        ]


LOOK = {"stage": "s", "date": "2026-01-05"}


def test_the_look_that_chose_the_values_stands_above_the_job(tmp_path: pathlib.Path) -> None:
    made = suggested_job.text_with(job(JOB, tmp_path), JOB, {BOUND: 16}, ["said"], LOOK)
    assert made.startswith('# said\ntuned: [{"stage": "s", "date": "2026-01-05"}]\n# a job\n')
    assert "# why four" in made
    (named,) = job(made, tmp_path).job.tuned or ()
    assert (named.stage, named.date) == ("s", "2026-01-05")


@pytest.mark.parametrize("begins", ["---\n", "%YAML 1.2\n---\n", "{"])
def test_a_look_is_named_in_a_job_that_takes_no_line_above(tmp_path: pathlib.Path, begins: str) -> None:
    import json

    text = json.dumps(yaml_lines.parse(JOB, "job.yaml").data) if begins == "{" else begins + JOB
    made = suggested_job.text_with(job(text, tmp_path), text, {BOUND: 16}, [], LOOK)
    assert yaml_lines.parse(made, "made.yaml").data["tuned"] == [LOOK]
    assert job(made, tmp_path).job.stages["s"].bounds.max_partitions_contributed == 16


def test_a_job_that_was_tuned_twice_names_each_look_once(tmp_path: pathlib.Path) -> None:
    once = suggested_job.text_with(job(JOB, tmp_path), JOB, {BOUND: 16}, [], LOOK)
    again = suggested_job.text_with(job(once, tmp_path), once, {BOUND: 8}, [], LOOK)
    later = {"stage": "s", "date": "2026-02-01"}
    third = suggested_job.text_with(job(again, tmp_path), again, {BOUND: 4}, [], later)
    assert [yaml_lines.parse(text, "made.yaml").data["tuned"] for text in (once, again, third)] == [
        [LOOK],
        [LOOK],
        [LOOK, later],
    ]


@pytest.mark.parametrize("pattern", ["/elsewhere/*.parquet", "gs://bucket/*.parquet"])
def test_whole_paths_stay(pattern: str, tmp_path: pathlib.Path) -> None:
    text = JOB.replace("data/*.parquet", pattern)
    assert suggested_job.paths(job(text, tmp_path)) == {}
    assert pattern in suggested_job.text_with(job(text, tmp_path), text, {BOUND: 3}, [])


def test_the_name_of_a_folder_is_no_glob(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "jobs[1]"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "one.parquet").touch()
    (pattern,) = suggested_job.paths(job(JOB, folder)).values()
    assert source_files.find(pattern, tmp_path / "elsewhere") == (str(folder.resolve() / "data" / "one.parquet"),)
