"""Dataflow: what is refused before anything is charged, and the job that the service would get.

In: the shop, in a store that lives in this process. Out: jobs as JSON. Holds: jobs are made by Beam's own runner for Dataflow, up
to the call of the service; where its packages are not installed (extra `dataflow`), those tests are skipped, and their message
says so. Not covered: the service itself. Nothing here was ever run on it.
"""

import dataclasses
import importlib.util
import json
import socket
import struct
from collections.abc import Callable, Iterator

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.dataflow import dataflow_requirements, job_graph
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from tests.helpers.payloads import unpacked
from tests.jobs.conftest import Said, Shop, purchases, stage
from tests.jobs.stores.test_bucket_sources import FAR_SOURCE

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
SECRET = "hunter-of-secrets"


def installed(name: str) -> bool:
    """Whether a module is there; nothing of it is run."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


EXTRA = installed("google.cloud.dataflow")
NEEDS_EXTRA = pytest.mark.skipif(not EXTRA, reason="needs the extra `dataflow`: pip install 'apache-beam[gcp]'")


# What is refused before anything is charged.


@pytest.mark.parametrize("left_out", sorted(GIVEN))
def test_an_option_without_which_there_is_no_job_is_asked_for(left_out: str) -> None:
    with pytest.raises(RequestError, match=f"--{left_out}: is required on Dataflow"):
        dataflow_requirements.defaults({name: value for name, value in GIVEN.items() if name != left_out})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"temp_location": "/data/tmp"}, "not a plainly named folder in a bucket"),
        ({"temp_location": "gs://private/t*p"}, "not a plainly named folder in a bucket"),
        ({"staging_location": "s3://private/tmp"}, "not a plainly named folder in a bucket"),
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
        dataflow_requirements.defaults({**GIVEN, **changed})


@pytest.mark.parametrize("image", ["host:5000/dp:1", f"host/dp@sha256:{'0' * 64}", "gcr.example/p/dp:v1.2"])
def test_an_image_with_a_fixed_tag_is_taken(image: str) -> None:
    assert dataflow_requirements.defaults({**GIVEN, "sdk_container_image": image}, "dp-1")[-1] == "--job_name=dp-1"


def test_what_is_given_is_not_set_again() -> None:
    given = {**GIVEN, "sdk_location": "container", "experiments": ["shuffle_mode=service"], "job_name": "mine"}
    assert dataflow_requirements.defaults(given, "dp-1") == ()


def test_rows_on_this_machine_are_refused_before_anything_is_charged(shop: Shop, call: Call) -> None:
    said = call("run", shop.job, "--output", shop.folder / "out", "--runner", "dataflow", *OPTIONS)
    assert said.code == 2
    assert "names files that Dataflow's workers do not see" in said.err
    assert "job.yaml:" in said.err
    assert shop.left() == []


def test_a_job_that_trains_a_model_is_refused(shop: Shop) -> None:
    request = check(job_file.load(str(shop.job)), [])
    there = dataclasses.replace(request, source=dataclasses.replace(request.source, files=("gs://b/a.parquet",)))
    dataflow_requirements.refuse_local(there)
    with pytest.raises(RequestError, match="trains a model"):
        dataflow_requirements.refuse_local(dataclasses.replace(there, tasks={"weekly": None}))


def test_names_of_jobs_and_places_show_neither_account_nor_run() -> None:
    name, place = (
        dataflow_requirements.job_name("shop", "week-7"),
        dataflow_requirements.place("gs://b/t/", "shop", "week-7"),
    )
    assert name == dataflow_requirements.job_name("shop", "week-7") != dataflow_requirements.job_name("shop", "week-8")
    assert "shop" not in name + place
    assert "week" not in name + place
    assert len(name) <= 63


# The job that the service would get.


@pytest.fixture
def produced(bucket: Shop, monkeypatch: pytest.MonkeyPatch) -> job_graph.Produced:
    """The job of the shop, made while no connection can be opened and without any credentials."""

    def refuse(*given: object) -> None:
        raise AssertionError(f"a connection: {given[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    monkeypatch.setenv("PGPASSWORD", SECRET)
    return job_graph.produce(job_file.load(str(bucket.job)), OPTIONS, run_id="2026-W01")


@NEEDS_EXTRA
def test_the_job_has_the_image_and_the_machines_that_were_asked_for(produced: job_graph.Produced) -> None:
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
    assert produced.job["name"] == dataflow_requirements.job_name("shop", "2026-W01")
    assert produced.job["type"] == "JOB_TYPE_BATCH"


@NEEDS_EXTRA
def test_the_job_has_the_experiments_that_keep_rows_where_they_are(produced: job_graph.Produced) -> None:
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
    job, _ = job_graph._handed_over(pipeline, options)
    assert job["environment"]["debugOptions"] == {"enableHotKeyLogging": True}


@NEEDS_EXTRA
def test_the_job_has_the_shuffles_of_a_stage_and_stable_names(produced: job_graph.Produced, bucket: Shop) -> None:
    data = ["Release weekly/ByPlace", "Release weekly/ByShard"]
    others = ["Release weekly/Barrier", "Stage weekly/Gather"]
    assert produced.shuffles == sorted(data + others)
    again = job_graph.produce(job_file.load(str(bucket.job)), OPTIONS, run_id="2026-W01")
    assert again.steps == produced.steps
    # Beam names a step of its own `Create` by a line of its source, which is the same in all installations of a version.
    ours = [name for name in produced.steps if "/FlatMap(<lambda at core.py:" not in name]
    assert not [name for name in ours if "0x" in name or "lambda" in name]


@NEEDS_EXTRA
def test_tables_travel_as_arrow_in_the_job(produced: job_graph.Produced) -> None:
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
    produced: job_graph.Produced, bucket: Shop
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
    produced: job_graph.Produced, bucket: Shop
) -> None:
    assert len(produced.refused) == 1
    assert "names files that Dataflow's workers do not see" in produced.refused[0]
    assert f"image        {IMAGE}" in produced.text
    assert "refused" in produced.text


@NEEDS_EXTRA
def test_of_a_run_of_several_pipelines_the_first_is_shown(bucket: Shop) -> None:
    auto = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000]}
    bucket.write(source=FAR_SOURCE, stages={"weekly": stage(metrics={"revenue": auto})})
    produced = job_graph.produce(job_file.load(str(bucket.job)), OPTIONS)
    assert produced.pipelines == 2
    assert "the first of 2 pipelines" in produced.text


@NEEDS_EXTRA
def test_the_command_writes_the_job(bucket: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    written = bucket.folder / "job.json"
    assert main.main(["dataflow", str(bucket.job), "--write", str(written), *OPTIONS]) == 0
    assert json.loads(written.read_text())["name"].startswith("dp-")
    assert IMAGE in capfd.readouterr().out


def test_the_command_says_what_is_wrong(bucket: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["dataflow", str(bucket.job), "--project=p"]) == 2
    said = capfd.readouterr().err
    assert "--region: is required on Dataflow" in said
    assert main.main(["dataflow", str(bucket.job), *OPTIONS, "--enable_hot_key_logging"]) == 2
    assert "prints keys, and is refused" in capfd.readouterr().err


@pytest.mark.skipif(EXTRA, reason="the extra `dataflow` is installed")
def test_without_its_packages_the_command_says_what_to_install(bucket: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["dataflow", str(bucket.job), *OPTIONS]) == 2
    assert "pip install 'dp-pipelines[dataflow]'" in capfd.readouterr().err
