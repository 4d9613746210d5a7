"""What the doctor says of Java, jars, ports, clusters, workers, disks and ledgers: right, or wrong with a hint.

In: stand-ins for what the network and the machine hold: real files, real ports, a page that speaks like Flink. Out: lines
and exit codes. Not covered: real engines (`tests/engines`).
"""

import contextlib
import http.server
import importlib.metadata
import json
import pathlib
import platform
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dp_pipelines.jobs.runners import canary, cluster_checks, doctor, runner_rules
from dp_pipelines.jobs.sql import trial_expressions, whitelist
from dp_pipelines.ledger import disks
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]


BEAM = ("exception sampling", "saved main session")


@pytest.mark.parametrize(("runner", "has"), [("local", ("threads", "memory")), ("direct", BEAM)])
def test_runners_in_this_process_need_little(runner: str, has: tuple[str, ...], shop: Shop, call: Call) -> None:
    said = call("doctor", shop.job, "--output", shop.folder / "new" / "out", "--runner", runner)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert all(line.startswith("ok     ") for line in lines)
    named = ("this process", "optional packages", "SQL expressions", *has, "output", "temporary files", "ledger")
    assert [next(name for name in named if line[7:].startswith(name)) for line in lines] == list(named)
    assert shop.left() == []


def test_versions_are_those_of_the_installed_packages(shop: Shop, call: Call) -> None:
    lines = call("doctor", "--output", shop.folder / "out").out.splitlines()
    (core,) = (line for line in lines if "this process" in line)
    for package, name in doctor.CORE.items():
        assert f"{name} {importlib.metadata.version(package)}" in core
    assert f"Python {platform.python_version()}" in core
    (optional,) = (line for line in lines if "optional packages" in line)
    assert f"polars {importlib.metadata.version('polars')}" in optional
    assert ("google-cloud-storage" in optional) == bool(doctor._version("google-cloud-storage"))


def test_a_duckdb_that_answers_otherwise_is_told(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    sql, _ = trial_expressions.COLUMNS["CAST"]
    monkeypatch.setitem(trial_expressions.COLUMNS, "CAST", (sql, "7.0"))
    monkeypatch.setitem(trial_expressions.COLUMNS, "FUNCTION", ("no_such_function(number)", "7"))
    said = call("doctor", "--output", shop.folder / "out")
    assert said.code == 1
    assert "wrong  SQL expressions: are not answered as expected: CAST, FUNCTION; install a version" in said.out


def test_an_expression_is_tried_for_each_kind_of_node_that_the_whitelist_knows() -> None:
    assert {*trial_expressions.COLUMNS, "PARAMETER"} == whitelist._PARTS.keys()


def test_a_small_job_on_the_runner_shows_its_workers(shop: Shop, call: Call) -> None:
    said = call("doctor", "--runner", "portable", "--output", shop.folder / "new" / "out")
    assert said.code == 0
    assert "a small job: ran in 1 processes on 1 machines, which write beside the output" in said.out
    assert shop.left() == []
    assert "a small job" not in call("doctor", "--runner", "portable", "--no-probe").out


def test_what_is_wrong_is_told_with_a_mend_and_exit_code_1(shop: Shop, call: Call) -> None:
    said = call("doctor", "--runner", "flink", "--flink_job_server_jar=gone", "--ledger", shop.folder / "no.sqlite")
    assert said.code == 1
    wrong = [line for line in said.out.splitlines() if line.startswith("wrong")]
    assert any("'gone' does not exist; give a file with --flink_job_server_jar" in line for line in wrong)
    assert any("does not exist; create it with `dp-pipelines ledger init`, or" in line for line in wrong)
    assert "a small job" not in said.out


@pytest.mark.parametrize("runner", ["flink", "spark"])
def test_a_run_that_cannot_have_its_job_server_is_refused_before_it_is_charged(
    runner: str, shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the port on which nothing listens
    monkeypatch.setattr("urllib.request._opener", None)  # it keeps the proxies that were there when it was first used
    empty = shop.folder / "cache"
    said = call("run", shop.job, "--output", shop.folder / "out", "--runner", runner, f"--jar_cache_dir={empty}")
    assert said.code == 2
    assert f"job server of Beam for {runner}: cannot be downloaded, and is not here from an earlier run" in said.err
    assert f"give the file with --{runner}_job_server_jar" in said.err
    assert not (shop.folder / "out").exists()
    assert "no runs" in call("runs", shop.job).out.lower() or "0 runs" in call("runs", shop.job).out.lower()


def test_a_refused_runner_is_a_wrong_request(call: Call) -> None:
    said = call("doctor", "--runner", "dask")
    assert (said.code, said.out) == (2, "")


@pytest.mark.parametrize(
    ("said", "mended"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('java version "1.8.0_402"', False),
        ('openjdk version "11" 2018-09-25', True),
        ("not java at all", False),
    ],
)
def test_the_version_of_java_is_read(said: str, mended: bool, tmp_path: pathlib.Path) -> None:
    launcher = tmp_path / "java"
    launcher.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    launcher.chmod(0o700)
    assert (cluster_checks.java(str(launcher)).hint == "") == mended


def test_no_java_is_told() -> None:
    assert cluster_checks.java("no-such-java").hint.startswith("install Java 11")


def jar(path: pathlib.Path, *, driver: bool = True, version: str = "", manifest: str = "") -> str:
    """A jar with a job server's class, and a Flink's version."""
    with zipfile.ZipFile(path, "w") as file:
        if driver:
            file.writestr(cluster_checks.DRIVERS["flink"], "")
            file.writestr(cluster_checks.DRIVERS["spark"], "")
        if version:
            file.writestr(".flink-runtime.version.properties", f"# words\nproject.version={version}\n")
        if manifest:
            file.writestr("META-INF/MANIFEST.MF", manifest)
    return str(path)


def test_a_job_server_is_told_from_other_files(tmp_path: pathlib.Path) -> None:
    good = jar(tmp_path / "good.jar", version="1.19.0")
    assert cluster_checks.jar("flink", {"flink_job_server_jar": good}) == cluster_checks.Said(
        "good.jar, for Flink 1.19.0"
    )
    other = jar(tmp_path / "other.jar", driver=False)
    assert "is not a job server for flink" in cluster_checks.jar("flink", {"flink_job_server_jar": other}).said
    (tmp_path / "text.jar").write_text("text")
    assert "is not a jar" in cluster_checks.jar("flink", {"flink_job_server_jar": str(tmp_path / "text.jar")}).said
    (tmp_path / "lib").mkdir()
    jar(tmp_path / "lib" / "beam-runners-spark-3-2.62.0.jar")
    lists = jar(
        tmp_path / "lists.jar",
        driver=False,
        manifest="Class-Path: lib/a.jar lib/beam-runners-sp\r\n ark-3-2.62.0.jar\r\n",
    )
    assert cluster_checks.jar("spark", {"spark_job_server_jar": lists}).hint == ""
    assert cluster_checks.jar("flink", {"flink_version": "2.2", "jar_cache_dir": str(tmp_path)}).said.endswith(
        "when the run begins"
    )
    jar(tmp_path / "beam-runners-flink-2.2-job-server-2.77.0.jar")
    here = cluster_checks.jar("flink", {"flink_version": "2.2", "jar_cache_dir": str(tmp_path)})
    assert here.said.endswith("is already here from an earlier run")


@contextlib.contextmanager
def page(**answers: Any) -> Iterator[str]:
    """A page that says what a Flink cluster would."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path.strip("/"))).encode())

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{served.server_port}"
        served.shutdown()


OVERVIEW = {"taskmanagers": 2, "slots-total": 2, "slots-available": 1, "flink-version": "1.19.0"}


def looked(master: str, **options: Any) -> list[cluster_checks.Said]:
    """What is seen of a cluster."""
    return list(cluster_checks.flink(runner_rules.setup("flink", {"flink_master": master}), options))


def test_a_clusters_version_and_slots_are_compared_with_what_is_asked(tmp_path: pathlib.Path) -> None:
    fitting = jar(tmp_path / "a.jar", version="1.19.0")
    near = {"taskmanagers": [{"path": "pekko.tcp://flink@127.0.0.1:6122/user/rpc/taskmanager_0"}]}
    with page(overview=OVERVIEW, taskmanagers=near) as master:
        assert [said.hint for said in looked(master, flink_job_server_jar=fitting, parallelism=2)] == [""]
        [slots] = looked(master, flink_job_server_jar=fitting, parallelism=3)
        assert slots.hint == "start task managers: 3 slots are needed"
        [_, version] = looked(master, flink_version="2.2")
        assert version.said == "is Flink 1.19.0, but the job server is for 2.2"


def test_task_managers_elsewhere_do_not_reach_workers_in_this_process(tmp_path: pathlib.Path) -> None:
    far = {"taskmanagers": [{"path": "pekko.tcp://flink@192.0.2.7:6122/user/rpc/taskmanager_0"}]}
    with page(overview=OVERVIEW, taskmanagers=far) as master:
        [_, managers] = looked(master, flink_job_server_jar=jar(tmp_path / "a.jar", version="1.19.1"))
    assert managers.said.startswith("has task managers on other machines")


def test_something_else_at_the_clusters_address_is_told() -> None:
    with page(overview=["no", "Flink"]) as master:
        [said] = looked(master)
    assert said.said.endswith("answers like Flink")
    assert looked("localhost:1")[0].hint == "start the cluster, or correct --flink_master"


def test_ports_are_tried() -> None:
    with contextlib.closing(socket.socket()) as held:
        held.bind(("", 0))
        held.listen()
        port = held.getsockname()[1]
        assert cluster_checks.free_port(port).hint
        assert not cluster_checks.listens(f"localhost:{port}").hint
    assert not cluster_checks.free_port(port).hint
    assert cluster_checks.listens(f"localhost:{port}").hint
    assert cluster_checks.listens("no such host:1").hint


def test_an_output_that_only_this_machine_sees_is_wrong_for_a_cluster_elsewhere(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"flink_master": "cluster:8081", "environment_type": "EXTERNAL", "environment_config": "localhost:50000"}
    setup = runner_rules.setup("flink", given)
    monkeypatch.setattr(disks, "kind_of", lambda path: "tmpfs")
    found = doctor._place(setup, tmp_path / "out")
    assert "is on tmpfs, which no other machine can see" in found.said
    assert doctor._place(runner_rules.setup("flink", {}), tmp_path / "out").ok
    monkeypatch.setattr(disks, "kind_of", lambda path: "nfs4")
    assert doctor._place(setup, tmp_path / "out").said.endswith(runner_rules.SHARED)
    assert "cannot be checked from here" in doctor._workers(setup).said


def test_a_folder_that_cannot_be_written_is_told_and_left_as_it_was(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    found = doctor._place(runner_rules.setup("direct", {}), tmp_path / "file" / "below" / "out")
    assert "cannot be staged there" in found.said
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_worker_command_that_is_not_there_is_told() -> None:
    given = {"environment_type": "PROCESS", "environment_options": ["process_command=no-such-boot"]}
    assert doctor._workers(runner_rules.setup("flink", given)).said == "'no-such-boot' is not a command on this machine"


def worker(**changes: Any) -> dict[str, Any]:
    """What a worker like this process writes."""
    return {**canary.facts(), **changes}


def mends(**changes: Any) -> list[str]:
    """What is wrong with workers of which one is different."""
    seen = [worker() for _ in range(canary.ELEMENTS - 1)] + [worker(**changes)]
    return [said.said for said in canary._seen(seen) if said.hint]


def test_workers_that_differ_from_this_process_are_told() -> None:
    assert mends() == []
    others = {**canary.facts()["versions"], "Python": "3.8", "Beam": "2.50.0"}
    [python, beam] = mends(versions=others)
    assert python.startswith("workers have Python 3.8, this machine has")
    assert beam.startswith("workers have Beam 2.50.0")
    assert mends(user=-1) == ["workers run as another user, who may not write to a private folder"]
    assert mends(free=5)[0].endswith("for temporary files")
    assert mends(order="upside down") == ["workers have a different byte order"]
    assert "only 0 of" in canary._seen([])[0].said


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (canary.UNSEEN, "workers do not see the folder beside the output"),
        (canary.REFUSED, "workers may not write beside the output"),
        ("\n  no resources\x1b[31m\nmore", "failed: no resources [31m"),
    ],
)
def test_why_a_small_job_failed_is_told_in_a_line(told: str, said: str) -> None:
    found = canary._failed(RuntimeError(f"a trace\n{told}" if "probe" in told else told))
    assert found.said == said
    assert found.hint


def test_workers_see_whether_the_folder_is_there_and_may_be_written(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuntimeError, match=canary.UNSEEN):
        list(canary.WorkerProbe(str(tmp_path / "gone")).process(0))
    [name] = canary.WorkerProbe(str(tmp_path)).process(3)
    assert json.loads(pathlib.Path(name).read_text())["versions"]["Beam"]
    (tmp_path / "4.json").mkdir()
    with pytest.raises(RuntimeError, match=canary.REFUSED):
        list(canary.WorkerProbe(str(tmp_path)).process(4))
