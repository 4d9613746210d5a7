"""Staged files that workers put into a bucket: fetched, and nothing left behind.

In: the shop, in a store that lives in this process. Out: releases and staged files. Holds: pipelines are real, on Beam's runner
in this process. Not covered: workers elsewhere, Google's store.
"""

import io
import pathlib
from collections.abc import Callable

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines.extensions.dataflow import bucket_staging, dataflow_requirements
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run import build
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.run.pipelines import RunFailed
from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.runners.beam_engine import BeamEngine
from dp_pipelines.jobs.runners.runner_rules import Setup
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.transforms.beam_flow import beginning
from tests.helpers.buckets import Buckets
from tests.helpers.payloads import unpacked
from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.stores.test_bucket_sources import FAR_SOURCE

Call = Callable[..., Said]

PLACE = "bucket://private/tmp/dp-pipelines-staging/one"


class FarEngine(BeamEngine):
    """Beam's runner in this process under the name of Dataflow: what it runs stages into the bucket."""

    def __init__(self) -> None:
        super().__init__(Setup(name="dataflow"), ["--temp_location=bucket://private/tmp"])

    def pipeline(self, progress: Progress, files: int = 0, stages: object = ()) -> beam.Pipeline:
        return beam.Pipeline(runner=FnApiRunner(), options=self.options)

    def run(self, pipeline: beam.Pipeline, progress: Progress) -> None:
        pipeline.run().wait_until_finish()


def far(shop: Shop, engine: engines.Engine | None = None) -> dict[str, pathlib.Path]:
    """The first pipeline of the shop's job, staged into the bucket and fetched."""
    file = job_file.load(str(shop.job))
    request = check(file, [])
    stages = running.plan_of(file, request.stages).round(1).stages
    folder = shop.folder / "staging"
    folder.mkdir()
    with Progress(io.StringIO()) as progress:
        return bucket_staging.run_pipeline(
            request, stages, folder, engine or FarEngine(), progress, {}, place=PLACE, job_name="dp-one"
        )


def test_staged_files_are_fetched_and_nothing_is_left_in_the_bucket(bucket: Shop) -> None:
    Buckets.held[f"{PLACE}/killed-attempt/weekly/0.parquet"] = b"of a driver that was killed"
    Buckets.held["bucket://private/tmp/dp-pipelines-staging/oneself/x"] = b"of another run"
    before = {url for url in Buckets.held if not url.startswith(f"{PLACE}/")}
    files = far(bucket)
    table = pa.parquet.read_table(files["weekly.parquet"])
    assert table.column("product").to_pylist() == ["p0", "p1", "p2", "p3", "p4"]
    assert table.schema.metadata is None
    assert set(Buckets.held) == before
    assert any(url.startswith(PLACE) and "killed-attempt" not in url for url in Buckets.deleted)
    assert [path.name for path in (bucket.folder / "staging").iterdir()] == ["weekly.parquet"]


def test_a_whole_run_by_the_name_of_dataflow_is_charged_once_and_stages_in_the_bucket_alone(
    bucket: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "configured", lambda name, arguments: FarEngine())
    monkeypatch.setattr(dataflow_requirements, "refuse_local", lambda request: None)  # it wants a bucket of Google
    auto = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000]}
    job = bucket.write(source=FAR_SOURCE, stages={"weekly": stage(metrics={"revenue": auto}), "listed": stage()})
    before, out = set(Buckets.held), bucket.folder / "out"
    said = call("run", job, "--output", out, "--run-id", "one", "--runner", "dataflow")
    assert said.code == 0, said.err
    assert sorted(path.name for path in out.iterdir()) == [
        "bounds.json", "listed.parquet", "manifest.json", "report.html", "weekly.parquet",
    ]  # fmt: skip
    assert set(Buckets.held) == before
    run = dataflow_requirements.place("bucket://private/tmp", "shop", "one")
    staged = [url.removeprefix(f"{run}/").split("/")[1] for url in Buckets.deleted]
    assert len(staged) == 3  # one for the bounds, which comes first, then both stages
    assert set(staged[1:]) == {"listed", "weekly"}
    assert all(url.startswith(f"{run}/") for url in Buckets.deleted)
    assert bucket.left() == sorted(["out", *(f"out/{path.name}" for path in out.iterdir())])
    ledger = Ledger.open(str(bucket.folder / DEFAULT_NAME))
    assert [run.state for run in ledger.state.runs.values()] == ["published"]
    ledger.close()


def test_of_several_attempts_one_whole_file_is_taken(tmp_path: pathlib.Path) -> None:
    Buckets.held.clear()
    wholes = []
    for number in range(2):
        sink = io.BytesIO()
        pa.parquet.write_table(pa.table({"draw": [number] * 3}), sink)
        wholes.append(sink.getvalue())
    Buckets.held = {
        f"{PLACE}/a/weekly/0.parquet": wholes[0][:-9],  # a writer was killed
        f"{PLACE}/a/weekly/1.parquet": wholes[1],
        f"{PLACE}/a/weekly/2.parquet": wholes[0],
        f"{PLACE}/a/weekly.more/0.parquet": wholes[0],  # another stage
    }
    bucket_staging.fetch(f"{PLACE}/a", tmp_path / "weekly.parquet")
    assert (tmp_path / "weekly.parquet").read_bytes() == wholes[1]
    with pytest.raises(RunFailed, match="'monthly.parquet': was not written"):
        bucket_staging.fetch(f"{PLACE}/a", tmp_path / "monthly.parquet")
    Buckets.held.clear()


def test_each_attempt_of_a_writer_writes_a_file_of_its_own() -> None:
    Buckets.held.clear()
    writer = bucket_staging.WriteElsewhere(f"{PLACE}/a/weekly", ("k",))
    element = (0, [pa.table({"k": ["b"], "n": [1]}), pa.table({"k": ["a"], "n": [2]})])
    first, second = (next(iter(writer.process(element))) for _ in range(2))
    assert first != second
    assert pa.parquet.read_table(io.BytesIO(Buckets.held[first])).to_pydict() == {"k": ["a", "b"], "n": [2, 1]}
    assert sorted(Buckets.held) == sorted([first, second])
    Buckets.held.clear()


def test_a_failure_leaves_nothing_in_the_bucket_and_quotes_nothing(bucket: Shop) -> None:
    class Failing(FarEngine):
        def run(self, pipeline: beam.Pipeline, progress: Progress) -> None:
            super().run(pipeline, progress)
            assert any(url.startswith(PLACE) for url in Buckets.held)
            raise ValueError("customer 17 bought p3")

    with pytest.raises(RunFailed) as failed:
        far(bucket, Failing())
    assert "17" not in str(failed.value)
    assert not [url for url in Buckets.held if url.startswith(PLACE)]
    assert list((bucket.folder / "staging").iterdir()) == []


def test_no_step_stages_on_this_machine(bucket: Shop) -> None:
    bucket.write(source=FAR_SOURCE, stages={"a": stage(), "b": stage(), "ab": stage()})
    file = job_file.load(str(bucket.job))
    request = check(file, [])
    folder = pathlib.Path("private-folder-here")
    stages = running.plan_of(file, request.stages).stages
    found = {}
    for writer in (None, bucket_staging.writer_into(PLACE)):
        pipeline = beam.Pipeline(runner=FnApiRunner())
        build.build(beginning(pipeline), request, stages, folder, {}, 1, writer)
        found[writer is None] = unpacked(pipeline.to_runner_api())
    assert b"private-folder-here" in found[True]
    assert b"private-folder-here" not in found[False]
    assert all(f"{PLACE}/{name}".encode() in found[False] for name in stages)
