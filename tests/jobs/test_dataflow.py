"""Dataflow: the job that the service would get, rows and staged files in a bucket, a release that is put there.

In: the shop, in a store that lives in this process. Out: jobs as JSON, folders. Holds: jobs are made by Beam's own runner for
Dataflow, up to the call of the service; where its packages are not installed (extra `dataflow`), those tests are skipped, and
their message says so. Not covered: the service itself. Nothing here was ever run on it.
"""

import base64
import dataclasses
import hashlib
import importlib.util
import io
import json
import pathlib
import socket
import struct
import zlib
from collections.abc import Callable, Iterator

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.jobs import build, dataflow, dataflow_job, dataflow_output, dataflow_staging, engines, job_file
from dp_pipelines.jobs import run as running
from dp_pipelines.jobs.pipeline import RunFailed
from dp_pipelines.jobs.progress import Progress
from dp_pipelines.jobs.request import check
from dp_pipelines.jobs.runners import Setup
from dp_pipelines.release import manifest
from dp_pipelines.transforms.publish import StageRelease
from tests.helpers.buckets import Buckets
from tests.jobs.conftest import Said, Shop, purchases, stage

Call = Callable[..., Said]
IMAGE = "registry.example/team/dp:2026-01"
OPTIONS = (
    "--project=some-project",
    "--region=europe-west4",
    "--temp_location=gs://private/tmp",
    f"--sdk_container_image={IMAGE}",
    "--machine_type=n2-highmem-4",
    "--max_num_workers=20",
    "--disk_size_gb=50",
    "--no_use_public_ips",
    "--service_account_email=dp@some-project.example",
)
GIVEN = {
    "project": "some-project",
    "region": "europe-west4",
    "temp_location": "gs://private/tmp",
    "sdk_container_image": IMAGE,
}
SECRET = "hunter-of-secrets"  # noqa: S105 - a planted one

NEEDS_EXTRA = pytest.mark.skipif(
    importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.dataflow") is None,
    reason="needs the extra `dataflow`: pip install 'apache-beam[gcp]'",
)


@pytest.fixture
def bucket(shop: Shop) -> Iterator[Shop]:
    """The shop, with its rows in a store and a job that names them there."""
    Buckets.held.clear()
    Buckets.deleted.clear()
    for path in sorted((shop.folder / "data").iterdir()):
        Buckets.held[f"bucket://shop/data/{path.name}"] = path.read_bytes()
        path.unlink()
    shop.write(source={"parquet": "bucket://shop/data/*.parquet"})
    yield shop
    Buckets.held.clear()


# What is refused before anything is charged.


@pytest.mark.parametrize("left_out", sorted(GIVEN))
def test_an_option_without_which_there_is_no_job_is_asked_for(left_out: str) -> None:
    with pytest.raises(RequestError, match=f"--{left_out}: is needed on Dataflow"):
        dataflow.defaults({name: value for name, value in GIVEN.items() if name != left_out})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"temp_location": "/data/tmp"}, "no folder of a bucket"),
        ({"temp_location": "gs://private/t*p"}, "no folder of a bucket"),
        ({"staging_location": "s3://private/tmp"}, "no folder of a bucket"),
        ({"sdk_container_image": "registry.example/team/dp"}, "no fixed tag"),
        ({"sdk_container_image": "registry.example:5000/team/dp"}, "no fixed tag"),
        ({"sdk_container_image": "registry.example/team/dp:latest"}, "no fixed tag"),
        ({"setup_file": "setup.py"}, "not in the image"),
        ({"requirements_file": "r.txt"}, "not in the image"),
        ({"extra_packages": ["a.whl"]}, "not in the image"),
        ({"dataflow_job_file": "job.json"}, "writes the job"),
    ],
)
def test_an_option_with_which_a_run_could_not_keep_its_word_is_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        dataflow.defaults({**GIVEN, **changed})


@pytest.mark.parametrize("image", ["host:5000/dp:1", f"host/dp@sha256:{'0' * 64}", "gcr.example/p/dp:v1.2"])
def test_an_image_with_a_fixed_tag_is_taken(image: str) -> None:
    assert dataflow.defaults({**GIVEN, "sdk_container_image": image}, "dp-1")[-1] == "--job_name=dp-1"


def test_what_is_given_is_not_set_again() -> None:
    given = {**GIVEN, "sdk_location": "container", "experiments": ["shuffle_mode=service"], "job_name": "mine"}
    assert dataflow.defaults(given, "dp-1") == ()


def test_rows_on_this_machine_are_refused_before_anything_is_charged(shop: Shop, call: Call) -> None:
    said = call("run", shop.job, "--output", shop.folder / "out", "--runner", "dataflow", *OPTIONS)
    assert said.code == 2
    assert "names files that Dataflow's workers do not see" in said.err
    assert "job.yaml:" in said.err
    assert shop.left() == []


def test_a_job_that_trains_a_model_is_refused(shop: Shop) -> None:
    request = check(job_file.load(str(shop.job)), [])
    there = dataclasses.replace(request, source=dataclasses.replace(request.source, files=("gs://b/a.parquet",)))
    dataflow.refuse_local(there)
    with pytest.raises(RequestError, match="trains a model"):
        dataflow.refuse_local(dataclasses.replace(there, tasks={"weekly": None}))


# Rows that a URL names.


def test_rows_in_a_bucket_give_the_release_that_local_rows_give(bucket: Shop, call: Call) -> None:
    said = call("run", bucket.job, "--output", bucket.folder / "out")
    assert (said.code, said.err) == (0, "")
    table = pa.parquet.read_table(bucket.folder / "out" / "weekly.parquet")
    assert table.column("product").to_pylist() == ["p0", "p1", "p2", "p3", "p4"]
    # 4000 rows of two files over five products, of which bounds keep most.
    assert all(abs(count - 1200) < 500 for count in table.column("orders").to_pylist())


def test_what_is_wrong_with_files_in_a_bucket_is_told_by_their_names(bucket: Shop, call: Call) -> None:
    Buckets.held["bucket://shop/data/part-1.parquet"] = b"PAR1 and nothing else"
    said = call("run", bucket.job, "--output", bucket.folder / "out")
    assert said.code == 2
    assert "file 'bucket://shop/data/part-1.parquet': is not a whole Parquet file" in said.err
    bucket.write(source={"parquet": "bucket://shop/none/*.parquet"})
    assert "matches no file" in call("run", bucket.job, "--output", bucket.folder / "out").err
    bucket.write(source={"parquet": "shelf://shop/*.parquet"})
    said = call("run", bucket.job, "--output", bucket.folder / "out")
    assert (said.code, "none of the file systems here knows shelf://" in said.err) == (2, True)
    assert bucket.left() == []


def test_csv_in_a_bucket_is_checked_by_its_header(bucket: Shop) -> None:
    Buckets.held["bucket://shop/a.csv"] = b"customer,product\n1,p0\n"
    source = {"csv": "bucket://shop/*.csv", "types": {"customer": "int", "product": "string"}}
    counts = stage(metrics={"orders": {"kind": "count"}})
    request = check(job_file.load(str(bucket.write(source=source, stages={"weekly": counts}))), [])
    assert request.source.files == ("bucket://shop/a.csv",)
    assert request.source.bytes_of(["customer", "product"]) == 22
    source["types"]["price"] = "float"
    with pytest.raises(RequestError, match="has no column 'price'"):
        check(job_file.load(str(bucket.write(source=source))), [])


# Staged files that workers put into a bucket.

PLACE = "bucket://private/tmp/dp-pipelines-staging/one"


class FarEngine(engines.Engine):
    """Beam's runner in this process under the name of Dataflow: what it runs stages into the bucket."""

    def __init__(self) -> None:
        super().__init__(Setup(name="dataflow"), [])

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
        return dataflow_staging.run_pipeline(
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
    dataflow_staging.fetch(f"{PLACE}/a", tmp_path / "weekly.parquet")
    assert (tmp_path / "weekly.parquet").read_bytes() == wholes[1]
    with pytest.raises(RunFailed, match="'monthly.parquet': was not written"):
        dataflow_staging.fetch(f"{PLACE}/a", tmp_path / "monthly.parquet")
    Buckets.held.clear()


def test_each_attempt_of_a_writer_writes_a_file_of_its_own() -> None:
    Buckets.held.clear()
    writer = dataflow_staging.WriteElsewhere(f"{PLACE}/a/weekly", ("k",))
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


def test_no_step_stages_on_this_machine_any_more(bucket: Shop) -> None:
    file = job_file.load(str(bucket.write(stages={"a": stage(), "b": stage(), "a-b": stage()})))
    request = check(file, [])
    pipeline = beam.Pipeline(runner=FnApiRunner())
    folder = pathlib.Path("private-folder-here")
    build.build(pipeline, request, running.plan_of(file, request.stages).stages, folder, {})
    assert b"private-folder-here" in unpacked(pipeline.to_runner_api())
    assert sorted(dataflow_staging.stage_elsewhere(pipeline, PLACE)) == ["a", "a-b", "b"]
    found = unpacked(pipeline.to_runner_api())
    assert b"private-folder-here" not in found
    assert PLACE.encode() in found


def test_a_writer_under_another_label_would_be_noticed() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    tables = pipeline | beam.Create([pa.table({"k": [1]})]).with_output_types(pa.Table)
    tables | "Stage x" >> StageRelease("somewhere/x.parquet", ("k",))
    (node,) = [n for n in pipeline.transforms_stack[0].parts if n.full_label == "Stage x"]
    for part in node.parts:
        part.full_label = part.full_label.replace("Write", "Wrote")
    with pytest.raises(ValueError, match="not enough values"):
        dataflow_staging.stage_elsewhere(pipeline, PLACE)


def test_names_of_jobs_and_places_show_neither_account_nor_run() -> None:
    name, place = dataflow.job_name("shop", "week-7"), dataflow.place("gs://b/t/", "shop", "week-7")
    assert name == dataflow.job_name("shop", "week-7") != dataflow.job_name("shop", "week-8")
    assert "shop" not in name + place
    assert "week" not in name + place
    assert len(name) <= 63


# The job that the service would get.


def unpacked(graph: object) -> bytes:
    """All that a graph carries: its own bytes, and those of every pickled object in it, unpacked."""
    parts = [graph.SerializeToString()]

    def unpack(text: bytes) -> None:
        try:
            raw = base64.b64decode(text, validate=True)
        except ValueError:
            return
        for start in (0, 1):  # Beam writes a pickle, or one byte and a zipped pickle
            try:
                parts.append(zlib.decompress(raw[start:]))
            except zlib.error:
                continue
        parts.append(raw)

    from apache_beam.portability.api import beam_runner_api_pb2

    for transform in graph.components.transforms.values():
        if transform.spec.urn == "beam:transform:pardo:v1":
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            unpack(payload.do_fn.payload)
            parts.append(payload.do_fn.payload)
        unpack(transform.spec.payload)
    for coder in graph.components.coders.values():
        unpack(coder.spec.payload)
    return b"\n".join(parts)


@pytest.fixture
def produced(bucket: Shop, monkeypatch: pytest.MonkeyPatch) -> dataflow_job.Produced:
    """The job of the shop, made while no connection can be opened and without any credentials."""

    def refuse(*given: object) -> None:
        raise AssertionError(f"a connection: {given[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    monkeypatch.setenv("PGPASSWORD", SECRET)
    return dataflow_job.produce(job_file.load(str(bucket.job)), OPTIONS, run_id="2026-W01")


@NEEDS_EXTRA
def test_the_job_has_the_image_and_the_machines_that_were_asked_for(produced: dataflow_job.Produced) -> None:
    (pool,) = produced.job["environment"]["workerPools"]
    assert pool["workerHarnessContainerImage"] == IMAGE
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    assert pool["machineType"] == "n2-highmem-4"
    assert pool["diskSizeGb"] == 50
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 20
    assert pool["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert produced.job["environment"]["serviceAccountEmail"] == "dp@some-project.example"
    assert produced.job["environment"]["tempStoragePrefix"].startswith("storage.googleapis.com/private/tmp")
    assert "packages" not in pool  # nothing but the image
    assert produced.job["name"] == dataflow.job_name("shop", "2026-W01")
    assert produced.job["type"] == "JOB_TYPE_BATCH"


@NEEDS_EXTRA
def test_the_job_has_the_experiments_that_keep_rows_where_they_are(produced: dataflow_job.Produced) -> None:
    environment = produced.job["environment"]
    wanted = {"use_runner_v2", "shuffle_mode=service", "disable_always_on_exception_sampling"}
    assert wanted <= set(environment["experiments"])
    assert not {name for name in environment["experiments"] if "sampling" in name and not name.startswith("disable")}
    assert "debugOptions" not in environment  # where hot key logging would stand
    options = environment["sdkPipelineOptions"]["options"]
    assert options["save_main_session"] is False
    assert options["sdk_location"] == "container"
    assert not {"no_auth", "template_location"} & set(options)
    assert "dp-dataflow-" not in json.dumps(produced.job)  # the private folder of the dry run
    assert options["pipelineUrl"].startswith("gs://private/tmp/")


@NEEDS_EXTRA
def test_hot_key_logging_would_be_seen_in_the_job(bucket: Shop) -> None:
    from apache_beam.options.pipeline_options import PipelineOptions

    pipeline = beam.Pipeline(runner=FnApiRunner())
    pipeline | beam.Create([1])
    options = PipelineOptions([*OPTIONS, "--enable_hot_key_logging", "--sdk_location=container", "--job_name=x"])
    job, _ = dataflow_job._handed_over(pipeline, options)
    assert job["environment"]["debugOptions"] == {"enableHotKeyLogging": True}


@NEEDS_EXTRA
def test_the_job_has_the_shuffles_of_a_stage_and_stable_names(produced: dataflow_job.Produced, bucket: Shop) -> None:
    data = ["Release weekly/ByPlace", "Release weekly/ByShard"]
    others = ["Read/Spread/ReshufflePerKey/GroupByKey", "Release weekly/Barrier", "Stage weekly/Gather"]
    assert produced.shuffles == sorted(data + others)
    again = dataflow_job.produce(job_file.load(str(bucket.job)), OPTIONS, run_id="2026-W01")
    assert again.steps == produced.steps
    assert not [name for name in produced.steps if "0x" in name or "lambda" in name]


@NEEDS_EXTRA
def test_tables_travel_as_arrow_in_the_job(produced: dataflow_job.Produced) -> None:
    assert pickled(produced.pipeline) == []
    planted = produced.pipeline.components
    coder = next(id_ for id_, held in planted.coders.items() if b"ArrowTableCoder" in held.spec.payload[:40])
    planted.coders[coder].spec.payload = b"pickled"
    assert pickled(produced.pipeline)


def pickled(graph: object) -> list[str]:
    """The outputs whose elements are pickled, but for those inside Beam's own Reshuffle."""
    coders = graph.components.coders

    def pickles(coder: str) -> bool:
        spec = coders[coder].spec
        own = b"ArrowTableCoder" in spec.payload[:40]
        return ("pickled_python" in spec.urn and not own) or any(map(pickles, coders[coder].component_coder_ids))

    found = {name for name, coll in graph.components.pcollections.items() if pickles(coll.coder_id)}
    transforms = graph.components.transforms.values()
    named = {t.unique_name for t in transforms for output in t.outputs.values() if output in found}
    return sorted(name for name in named if "/ReshufflePerKey" not in name)


class Keeping(beam.DoFn):
    """Takes a value of a row along."""

    def __init__(self, price: float) -> None:
        super().__init__()
        self._price = price

    def process(self, element: int) -> Iterator[float]:
        yield self._price


@NEEDS_EXTRA
def test_the_job_carries_no_row_no_secret_and_no_folder_of_this_machine(
    produced: dataflow_job.Produced, bucket: Shop
) -> None:
    rows = purchases(0).to_pylist()
    told = json.dumps(produced.job).encode() + unpacked(produced.pipeline)
    assert SECRET.encode() not in told
    assert str(bucket.folder).encode() not in told
    for row in rows[:50]:
        assert repr(row["price"]).encode() not in told
        assert struct.pack("<d", row["price"]) not in told
        assert struct.pack(">d", row["price"]) not in told  # as pickles hold numbers
    # A row in a step would be found.
    pipeline = beam.Pipeline(runner=FnApiRunner())
    kept = rows[0]["price"]
    pipeline | beam.Create([1]) | beam.ParDo(Keeping(kept))
    assert struct.pack(">d", kept) in unpacked(pipeline.to_runner_api())


@NEEDS_EXTRA
def test_a_run_with_rows_elsewhere_than_in_a_bucket_of_google_is_shown_as_refused(
    produced: dataflow_job.Produced, bucket: Shop
) -> None:
    assert len(produced.refused) == 1
    assert "names files that Dataflow's workers do not see" in produced.refused[0]
    assert f"image        {IMAGE}" in produced.text
    assert "refused" in produced.text


@NEEDS_EXTRA
def test_of_a_run_of_several_pipelines_the_first_is_shown(bucket: Shop) -> None:
    auto = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000]}
    bucket.write(stages={"weekly": stage(metrics={"revenue": auto})})
    produced = dataflow_job.produce(job_file.load(str(bucket.job)), OPTIONS)
    assert produced.pipelines == 2
    assert "the first of 2 pipelines" in produced.text


@NEEDS_EXTRA
def test_the_command_writes_the_job(bucket: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    written = bucket.folder / "job.json"
    assert dataflow_job.main([str(bucket.job), "--write", str(written), *OPTIONS]) == 0
    assert json.loads(written.read_text())["name"].startswith("dp-")
    assert IMAGE in capsys.readouterr().out


def test_the_command_says_what_is_wrong(bucket: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert dataflow_job.main([str(bucket.job), "--project=p"]) == 2
    said = capsys.readouterr().err
    assert "--region: is needed on Dataflow" in said
    assert dataflow_job.main([str(bucket.job), *OPTIONS, "--enable_hot_key_logging"]) == 2
    assert "prints keys, and is refused" in capsys.readouterr().err


@pytest.mark.skipif(not NEEDS_EXTRA.args[0], reason="the extra `dataflow` is installed")
def test_without_its_packages_the_command_says_what_to_install(
    bucket: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dataflow_job.main([str(bucket.job), *OPTIONS]) == 2
    assert "pip install 'dp-pipelines[dataflow]'" in capsys.readouterr().err


# A release that is put into a bucket.


class InMemory:
    """A folder of a store; it can be told to fail."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.order: list[str] = []
        self.fails_at = ""

    def read(self, name: str) -> bytes | None:
        return self.held.get(name)

    def create(self, name: str, content: bytes) -> bool:
        if name == self.fails_at:
            raise OSError("row 17 could not be sent")
        self.order.append(name)
        return self.held.setdefault(name, content) == content and self.order.count(name) == 1


@pytest.fixture
def released(shop: Shop, call: Call) -> pathlib.Path:
    """A published folder."""
    assert call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one").code == 0
    return shop.folder / "out"


def test_a_release_is_put_whole_with_its_manifest_last(released: pathlib.Path) -> None:
    place = InMemory()
    assert dataflow_output.put(released, place, "gs://b/out") is False
    assert place.order == ["report.html", "weekly.parquet", "manifest.json"]
    assert place.held == {path.name: path.read_bytes() for path in released.iterdir()}
    assert dataflow_output.put(released, place, "gs://b/out") is True


def test_a_command_that_was_killed_goes_on_where_it_was(released: pathlib.Path) -> None:
    place = InMemory()
    place.fails_at = "weekly.parquet"
    with pytest.raises(PublishError) as failed:
        dataflow_output.put(released, place, "gs://b/out")
    assert "row 17" not in str(failed.value)
    assert "manifest.json" not in place.held
    place.fails_at = ""
    dataflow_output.put(released, place, "gs://b/out")
    assert "manifest.json" in place.held


@pytest.mark.parametrize("name", ["weekly.parquet", "report.html", "manifest.json"])
def test_nothing_is_overwritten(released: pathlib.Path, name: str) -> None:
    place = InMemory()
    place.held[name] = b"of another release"
    with pytest.raises(RequestError, match="holds another release"):
        dataflow_output.put(released, place, "gs://b/out")
    assert place.held[name] == b"of another release"
    assert name == "manifest.json" or "manifest.json" not in place.held


def test_a_folder_that_is_not_whole_is_not_put_anywhere(released: pathlib.Path, tmp_path: pathlib.Path) -> None:
    place = InMemory()
    (released / "weekly.parquet").write_bytes(b"changed")
    for folder in (released, tmp_path):
        with pytest.raises(RequestError, match="holds no whole release"):
            dataflow_output.put(folder, place, "gs://b/out")
    assert place.held == {}


def test_the_store_gets_what_the_manifest_says(released: pathlib.Path) -> None:
    place = InMemory()
    dataflow_output.put(released, place, "gs://b/out")
    listed = manifest.read_manifest(released)["files"]
    assert {name: hashlib.sha256(place.held[name]).hexdigest() for name in listed} == {
        name: facts["sha256"] for name, facts in listed.items()
    }


@pytest.mark.parametrize("url", ["gs://bucket", "s3://b/out", "out", "gs://b/"])
def test_a_place_that_is_no_folder_of_a_bucket_is_refused(
    url: str, released: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dataflow_output.main([str(released), url]) == 2
    assert "is no folder of a bucket" in capsys.readouterr().err
