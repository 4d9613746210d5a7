"""Which runner is taken, with which options, and what is refused before anything is read or charged.

In: names and options. Out: set-ups, messages. Holds: every rule is decided by public facts. Not covered: running
(`tests/engines`).
"""

from collections.abc import Callable
from typing import Any

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.runners import beam_engine, beam_options, engines, runner_rules
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]

SHARED = runner_rules.SHARED


def setup(name: str, *arguments: str) -> runner_rules.Setup:
    """The set-up of a runner from the command line's words."""
    return engines.configured(name, arguments).setup


@pytest.mark.parametrize(
    ("name", "arguments", "server", "environment"),
    [
        ("direct", [], "none", ""),
        ("portable", [], "embed", "LOOPBACK"),
        ("portable", ["--job_endpoint=127.0.0.1:8099"], "127.0.0.1:8099", "LOOPBACK"),
        ("portable", ["--environment_type=beam:env:embedded_python:v1"], "embed", "beam:env:embedded_python:v1"),
        ("portable", ["--environment_type=EXTERNAL", "--environment_config=pool:50000"], "embed", "EXTERNAL"),
        ("flink", [], "jar", "LOOPBACK"),
        ("flink", ["--flink_master=[local]"], "jar", "LOOPBACK"),
        ("flink", ["--flink_master=http://localhost:8081"], "jar", "LOOPBACK"),
        ("flink", ["--flink_master=localhost:8081", "--flink_submit_uber_jar"], "uber", "LOOPBACK"),
        (
            "flink",
            [
                "--flink_master=cluster:8081",
                "--environment_type=PROCESS",
                "--environment_options=process_command=/opt/apache/beam/boot",
            ],
            "jar",
            "PROCESS",
        ),
        ("spark", [], "jar", "LOOPBACK"),
        ("spark", ["--spark_master_url=spark://localhost:7077"], "jar", "LOOPBACK"),
        ("spark", ["--job_endpoint=localhost:8099"], "localhost:8099", "LOOPBACK"),
    ],
)
def test_a_runner_gets_what_it_needs_and_was_not_told(
    name: str, arguments: list[str], server: str, environment: str
) -> None:
    made = engines.configured(name, arguments)
    assert (made.setup.server, made.setup.environment) == (server, environment)
    chosen = made.options.get_all_options()
    assert chosen["environment_type"] == (environment or None)
    assert chosen["save_main_session"] is False
    assert "disable_always_on_exception_sampling" in chosen["experiments"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("FlinkRunner", [], "--runner FlinkRunner: unknown runner; write --runner flink"),
        ("DirectRunner", [], "write --runner direct"),
        ("dask", [], "--runner dask: is refused: it loses steps"),
        ("DaskRunner", [], "is refused: it loses steps"),
        ("PrismRunner", [], "is refused: it is a program that Beam downloads without checking it"),
        ("interactive", [], "keeps the rows of every step in a cache"),
        ("quantum", [], "unknown runner; one of local, direct, portable, flink, spark"),
        ("portable", ["--job_endpoint=nowhere"], "--job_endpoint: is not an address"),
        ("portable", ["--job_endpoint=cluster:8099"], f"the cluster at cluster:8099 is not on this machine; {SHARED}"),
        ("portable", ["--environment_type=PROCESS"], "is not supported by the job service in this process"),
        ("portable", ["--environment_type=EXTERNAL"], "needs the address of a worker pool"),
        (
            "portable",
            ["--environment_type=EXTERNAL", "--environment_options=external_service_address=pool:1"],
            "write --environment_config=HOST:PORT instead",
        ),
        ("portable", ["--environment_type=HOVERCRAFT"], "must be LOOPBACK, PROCESS or EXTERNAL"),
        ("portable", ["--environment_type=DOCKER"], "Beam's containers mount no folder of the machine"),
        ("flink", ["--environment_type=DOCKER"], SHARED),
        ("flink", ["--job_endpoint=embed"], "write --runner portable"),
        ("flink", ["--environment_type=PROCESS"], "needs a command that starts a worker"),
        ("flink", ["--environment_type=PROCESS", "--environment_config=boot"], "must be JSON with the key 'command'"),
        ("flink", ["--environment_type=beam:env:embedded_python:v1"], "which only `portable` uses"),
        ("flink", ["--flink_master=cluster:8081"], "is not on this machine"),
        ("flink", ["--flink_master=cluster:8081", "--environment_type=LOOPBACK"], "a cluster on another machine cannot"),
        ("spark", ["--spark_master_url=spark://cluster:7077"], "is not on this machine"),
        ("spark", ["--spark_master_url=yarn"], "is not on this machine"),
    ],
)  # fmt: skip
def test_what_could_not_work_or_is_not_safe_is_refused_in_words(name: str, arguments: list[str], said: str) -> None:
    with pytest.raises(RequestError) as told:
        setup(name, *arguments)
    assert said in str(told.value)


@pytest.mark.parametrize("option", sorted(beam_options.REFUSED))
def test_every_refused_option_is_one_of_beams_and_is_refused_with_its_reason(option: str) -> None:
    written: dict[str, str] = {"profiler_agent": "x", "output_executable_path": "x", "template_location": "x"}
    value = f"={written[option]}" if option in written else ""
    with pytest.raises(RequestError) as told:
        beam_options.pipeline_options_of([f"--{option}{value}"])
    assert beam_options.REFUSED[option] in str(told.value)


@pytest.mark.parametrize("kind", ["experiments", "experiment", "dataflow_service_options"])
@pytest.mark.parametrize("name", sorted(beam_options.LEAKING))
def test_leaking_experiments_and_service_options_are_refused_in_any_spelling(kind: str, name: str) -> None:
    for value in (name, f"harmless,{name}", f"{name}=true"):
        with pytest.raises(RequestError, match="is refused; leave it out"):
            beam_options.pipeline_options_of([f"--{kind}={value}"])


def test_a_dump_of_a_java_machines_memory_is_refused() -> None:
    with pytest.raises(RequestError, match="writes memory contents to a file"):
        beam_options.pipeline_options_of(["--job_server_jvm_properties=-XX:+HeapDumpOnOutOfMemoryError"])


def test_what_is_switched_off_cannot_be_switched_on() -> None:
    chosen = beam_options.pipeline_options_of(["--experiments=other"]).get_all_options()
    assert chosen["experiments"] == ["other", "disable_always_on_exception_sampling"]
    with pytest.raises(RequestError, match="writes the program's variables to a file"):
        beam_options.pipeline_options_of(["--save_main_session"])


def test_options_that_beam_says_do_not_go_together_are_wrong_requests(shop: Shop, call: Call) -> None:
    arguments = ["--environment_type=LOOPBACK", "--environment_config=x"]
    said = call("run", shop.job, "--output", shop.folder / "out", "--runner", "portable", *arguments)
    assert said.code == 2
    assert "options of Beam: conflict" in said.err
    assert shop.left() == []


def test_a_refused_runner_costs_nothing_and_makes_nothing(shop: Shop, call: Call) -> None:
    ledger = (shop.folder / "dp-ledger.sqlite").read_bytes()
    said = call("run", shop.job, "--output", shop.folder / "new" / "out", "--runner", "dask")
    assert said.code == 2
    assert said.err.startswith("error: --runner dask: is refused")
    said = call(
        "run", shop.job, "--output", shop.folder / "new" / "out", "--runner", "flink", "--flink_job_server_jar=gone"
    )
    assert said.code == 2
    assert "error: job server: 'gone' does not exist" in said.err
    assert (shop.folder / "dp-ledger.sqlite").read_bytes() == ledger
    assert shop.left() == []


def test_a_release_is_given_again_where_its_runner_is_gone(shop: Shop, call: Call) -> None:
    asked: list[Any] = ["run", shop.job, "--run-id", "one", "--output"]
    assert call(*asked, shop.folder / "out").code == 0
    gone = ["--runner", "flink", "--flink_master=localhost:1", "--flink_job_server_jar=gone"]
    again = call(*asked, shop.folder / "elsewhere", *gone)
    assert (again.code, again.err) == (0, "")
    first, second = ((shop.folder / name / "weekly.parquet").read_bytes() for name in ("out", "elsewhere"))
    assert first == second


def test_a_runner_that_takes_no_job_is_told_as_such_and_the_charge_stays(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, options: object) -> None:
        raise RuntimeError("row 4711")

    monkeypatch.setattr(beam_engine.portable_runner.PortableRunner, "create_job_service", refuse)
    said = call("run", shop.job, "--output", shop.folder / "out", "--runner", "portable")
    assert said.code == 1
    assert "error: runner portable: did not accept the job; nothing was read" in said.err
    assert "4711" not in said.err
    assert shop.left() == []
