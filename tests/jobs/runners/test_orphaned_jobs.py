"""What a killed driver leaves with an engine, and that the same command finds and ends it: on Beam's own job service.

In: a job service in a process of its own; a driver that is killed while its workers stand at a step; a page that answers as
Flink's does. Out: states of jobs, the ledger, folders. Not covered: a real Flink (`tests/engines/test_faults`); Beam's service in
Python only says that a job is cancelled.
"""

import contextlib
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2 as api
from apache_beam.portability.api import beam_job_api_pb2_grpc

from dp_pipelines.jobs.run import unledgered_run
from dp_pipelines.jobs.runners import orphaned_jobs, processes
from dp_pipelines.jobs.runners.orphaned_jobs import StillAtWork
from dp_pipelines.ledger.entries import EngineJob
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.engines import points
from tests.engines.flink.cluster import free_ports
from tests.engines.points import Points
from tests.helpers.source import ROOT
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]

PLANTED = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.engines import points
points.plant(sys.argv[2])
sys.argv[1:] = sys.argv[3:]
"""
DRIVER = f"{PLANTED}\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main())"
"""The command line; workers that are threads of its process stop where they are told."""

WORKERS = f"""{PLANTED}
import time
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
started = BeamFnExternalWorkerPoolServicer.start(port=int(sys.argv[1]))
time.sleep(600)
"""
"""A pool whose workers are threads of its process."""


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where workers are told to stop, and say where they are."""
    return tmp_path_factory.mktemp("points")


@pytest.fixture
def service(place: pathlib.Path) -> Iterator[tuple[str, str]]:
    """The addresses of a job service and of a pool of workers, which outlive drivers."""
    ports = free_ports(2)
    service = ["-m", "apache_beam.runners.portability.local_job_service_main", f"--port={ports[0]}"]
    pool = ["-c", WORKERS, str(ROOT), str(place), str(ports[1])]
    with contextlib.ExitStack() as until_the_end:
        for command in (service, pool):
            running = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until_the_end.callback(running.wait)
            until_the_end.callback(running.kill)
        for port in ports:
            with grpc.insecure_channel(f"localhost:{port}") as channel:
                grpc.channel_ready_future(channel).result(timeout=60)
        yield f"localhost:{ports[0]}", f"localhost:{ports[1]}"


def on(service: tuple[str, str]) -> list[str]:
    """A run there."""
    there = [f"--job_endpoint={service[0]}", "--environment_type=EXTERNAL", f"--environment_config={service[1]}"]
    return ["run", "job.yaml", "--output", "out", "--runner", "portable", *there]


@contextlib.contextmanager
def killed_driver(shop: Shop, place: pathlib.Path, step: str, *options: str, **environment: str) -> Iterator[None]:
    """A driver that is killed while a worker of its run stands at a step."""
    watched = Points(place)
    watched.arm(step)
    command = [sys.executable, "-c", DRIVER, str(ROOT), str(place), *options]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=shop.folder, env={**os.environ, **environment})
    try:
        until(lambda: watched.reached(step) is not None or running.poll() is not None)
        assert running.poll() is None
        yield
    finally:
        running.kill()
        running.wait()


def until(what: Callable[[], object], patience: float = 120.0) -> None:
    """Wait for something."""
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def jobs_of(address: str) -> dict[str, str]:
    """The jobs of a service and their states."""
    with grpc.insecure_channel(address) as channel:
        listed = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobs(api.GetJobsRequest(), timeout=60).job_info
        return {job.job_id: api.JobState.Enum.Name(job.state) for job in listed}


@pytest.mark.slow
def test_the_same_command_finds_the_job_of_a_killed_driver_and_cancels_it(
    shop: Shop, call: Call, place: pathlib.Path, service: tuple[str, str]
) -> None:
    with killed_driver(shop, place, "bound", *on(service)):
        pass
    [(job, state)] = jobs_of(service[0]).items()
    assert state == "RUNNING"
    (staged,) = shop.folder.glob(".out.staging-*")
    [run] = Ledger.open(str(shop.folder / DEFAULT_NAME)).state.runs.values()
    [kept] = run.attempts[0].jobs
    assert (kept.runner, kept.endpoint, kept.job) == ("portable", f"grpc://{service[0]}", job)
    assert run.run_id not in kept.name
    said = call("run", shop.job, "--output", shop.folder / "out")  # on `direct`: whatever engine is taken now
    assert said.code == 0, said.err
    assert said.err == (
        f"note: job {kept.name!r} of portable at {service[0]} was left running by an attempt that is dead; cancelling it\n"
    )
    assert jobs_of(service[0]) == {job: "CANCELLED"}
    assert not staged.exists()
    assert sorted({path.split("/")[0] for path in shop.left()}) == ["out"]
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    [run] = ledger.state.runs.values()
    kinds = [event.kind for event in ledger.history]
    assert [kinds.count(kind) for kind in ("run_reserved", "run_committed", "job_submitted")] == [1, 1, 2]
    assert ledger.verify() == len(kinds)


@pytest.mark.slow
def test_an_engine_that_is_gone_is_said_and_holds_nothing_up(
    shop: Shop, call: Call, place: pathlib.Path, service: tuple[str, str]
) -> None:
    with killed_driver(shop, place, "sum", *on(service)):
        pass
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    [run] = ledger.state.runs.values()
    ledger.close()
    [port] = free_ports(1)
    [kept] = run.attempts[0].jobs
    told: list[str] = []
    orphaned_jobs.stop(EngineJob(**{**vars(kept), "endpoint": f"grpc://localhost:{port}"}), told.append)
    [line] = told
    assert "cannot be looked up" in line
    assert call("runs", shop.job, "--abandon", run.run_id).code == 0
    assert set(jobs_of(service[0]).values()) == {"CANCELLED"}


@pytest.mark.parametrize(
    ("runner", "ledger"),
    [
        pytest.param("direct", [], marks=pytest.mark.slow),
        ("portable", []),
        pytest.param("portable", ["--ledger", "none"], marks=pytest.mark.slow),
    ],
)
def test_all_that_a_killed_driver_leaves_lies_in_its_private_folder_and_the_same_command_removes_it(
    shop: Shop,
    call: Call,
    place: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
    runner: str,
    ledger: list[str],
) -> None:
    elsewhere = tmp_path_factory.mktemp("tmp")
    options = ["run", "job.yaml", "--output", "out", "--runner", runner, *ledger]
    with killed_driver(shop, place, "sum", *options, TMPDIR=str(elsewhere)):
        pass
    assert list(elsewhere.iterdir()) == []
    (staged,) = shop.folder.glob(".out.staging-*")
    assert {path.split("/")[0] for path in shop.left()} == {staged.name}
    assert call("run", shop.job, "--output", shop.folder / "out", *ledger).code == 0
    assert {path.split("/")[0] for path in shop.left()} == {"out"}


def test_an_attempt_that_works_or_of_which_nothing_is_known_is_left_alone(tmp_path: pathlib.Path) -> None:
    living, unknown, dead, other = (
        tmp_path / f".out{end}" for end in (".staging-1", ".staging-2", ".staging-3", "put.staging-4")
    )
    for folder in (living, unknown, dead, other):
        folder.mkdir()
        if folder != unknown:
            unledgered_run.Note(folder).submitted(EngineJob(name=folder.name, runner="flink"))
    for folder in (dead, other):
        note = json.loads((folder / unledgered_run.NOTE).read_text())
        note["where"]["began"] = "1"
        (folder / unledgered_run.NOTE).write_text(json.dumps(note))
    stopped: list[EngineJob] = []
    unledgered_run.sweep(tmp_path / "out", stopped.append)
    assert stopped == [EngineJob(name=dead.name, runner="flink")]
    assert {path.name for path in tmp_path.iterdir()} == {living.name, unknown.name, other.name}


HOSTILE = {
    "no words": '{"where": ["x"], "jobs": []}',
    "a list": "[1]",
    "a job of numbers": '{"where": WHERE, "jobs": [{"name": 1, "runner": 2, "endpoint": 3}]}',
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("note", HOSTILE.values(), ids=HOSTILE)
def test_a_note_that_we_never_wrote_is_left_alone(note: str, tmp_path: pathlib.Path) -> None:
    dead = json.dumps({**processes.here(), "began": "1"})
    folder = tmp_path / ".out.staging-1"
    folder.mkdir()
    (folder / unledgered_run.NOTE).write_text(note.replace("WHERE", dead))
    unledgered_run.sweep(tmp_path / "out", lambda job: orphaned_jobs.stop(job, pytest.fail))
    assert folder.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_left_alone(tmp_path: pathlib.Path) -> None:
    """Whoever may write beside an output could name any job of any cluster that we reach."""
    folder = tmp_path / ".out.staging-1"
    folder.mkdir()
    note = {
        "where": {**processes.here(), "began": "1"},
        "jobs": [{"name": "nightly", "runner": "flink", "endpoint": "x"}],
    }
    (folder / unledgered_run.NOTE).write_text(json.dumps(note))
    os.chown(folder, 12345, -1)
    unledgered_run.sweep(tmp_path / "out", lambda job: pytest.fail(job.name))
    assert folder.exists()


class Page(http.server.BaseHTTPRequestHandler):
    """Answers as Flink does; what is asked of it is kept by the server."""

    def do_GET(self) -> None:
        jobs = [{"jid": job, "name": name, "state": state} for job, (name, state) in self.server.jobs.items()]  # type: ignore[attr-defined]
        self.answer(200, {"jobs": jobs})

    def do_PATCH(self) -> None:
        job = self.path.split("/")[2].partition("?")[0]
        self.server.cancelled.append(self.path)  # type: ignore[attr-defined]
        if self.server.obeys:  # type: ignore[attr-defined]
            self.server.jobs[job] = (self.server.jobs[job][0], "CANCELED")  # type: ignore[attr-defined]
        self.answer(202, {})

    def answer(self, code: int, content: object) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *given: object) -> None:
        pass


@contextlib.contextmanager
def flink(jobs: dict[str, tuple[str, str]], *, obeys: bool = True) -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        server.jobs, server.cancelled, server.obeys = dict(jobs), [], obeys  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def of(server: http.server.ThreadingHTTPServer, name: str = "dp-1") -> EngineJob:
    return EngineJob(name=name, runner="flink", endpoint=f"http://127.0.0.1:{server.server_port}")


def test_of_all_jobs_of_a_cluster_the_one_of_that_name_is_cancelled() -> None:
    listed = {"a": ("dp-10", "RUNNING"), "b": ("dp-1", "RUNNING"), "c": ("nightly", "RUNNING")}
    told: list[str] = []
    with flink(listed) as server:
        orphaned_jobs.stop(of(server), told.append)
        assert server.cancelled == ["/jobs/b?mode=cancel"]  # type: ignore[attr-defined]
        assert [state for _, state in server.jobs.values()] == ["RUNNING", "CANCELED", "RUNNING"]  # type: ignore[attr-defined]
    assert len(told) == 1


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "CANCELED"])
def test_a_job_that_has_ended_or_that_nobody_knows_is_left_alone(state: str) -> None:
    told: list[str] = []
    with flink({"a": ("dp-1", state), "b": ("dp-2", "RUNNING")}) as server:
        orphaned_jobs.stop(of(server), told.append)
        orphaned_jobs.stop(of(server, "dp-3"), told.append)
        assert server.cancelled == []  # type: ignore[attr-defined]
    assert told == []


def test_a_job_that_is_cancelled_and_goes_on_is_an_error_after_some_time() -> None:
    with flink({"a": ("dp-1", "RUNNING")}, obeys=False) as server, pytest.raises(StillAtWork) as said:
        orphaned_jobs.stop(of(server), lambda text: None, patience=1.0)
    assert "did not end within 1 seconds; nothing was published" in str(said.value)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, b""])
def test_what_answers_and_is_no_flink_keeps_nothing_from_going_on(answer: bytes) -> None:
    """Another program may have the port by now."""
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as until_the_end:
        server.settimeout(60)  # nobody who asks is a failure, not a wait for ever

        def serve() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(2**16)
                caller.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        until_the_end.callback(thread.join)
        job = EngineJob(name="dp-1", runner="flink", endpoint=f"http://127.0.0.1:{server.getsockname()[1]}")
        orphaned_jobs.stop(job, told.append)
    [line] = told
    assert "cannot be looked up" in line


def test_a_job_that_ends_with_its_driver_is_asked_for_nowhere() -> None:
    orphaned_jobs.stop(EngineJob(name="dp-1", runner="spark"), lambda text: pytest.fail(text))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
@pytest.mark.parametrize("bound", [True, False], ids=["ending with us", "as it was"])
def test_a_command_that_ends_with_us_ends_also_when_we_are_killed(bound: bool, tmp_path: pathlib.Path) -> None:
    """Without it the command lives on, as Beam's job server does."""
    code = (
        "import os, subprocess, sys, time\nfrom dp_pipelines.jobs.runners import processes\n"
        "command = ['sleep', '600']\n"
        f"started = subprocess.Popen(processes.ending_with_this(command) if {bound} else command, stdout=subprocess.DEVNULL)\n"
        "print(started.pid, flush=True)\ntime.sleep(600)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    started = int(driver.stdout.readline())
    until(lambda: "sleep" in pathlib.Path(f"/proc/{started}/comm").read_text())
    driver.kill()
    driver.wait()
    driver.stdout.close()
    try:
        if bound:
            until(lambda: not processes._began(started))
        else:
            time.sleep(1.0)
            assert processes._began(started)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(started, signal.SIGKILL)


def test_the_mixture_of_two_draws_is_seen() -> None:
    """The check that tests of a real Flink use: a place is published as one of its draws, whole."""
    import pyarrow as pa

    def drawn(*rows: tuple[str, int, int]) -> pa.Table:
        return pa.table(dict(zip(("product", "orders", "buyers"), map(list, zip(*rows, strict=True)), strict=True)))

    first, again = drawn(("a", 10, 5), ("b", 20, 9)), drawn(("a", 11, 6), ("c", 30, 7))
    other = drawn(("d", 1, 1))
    draws = {0: [first, again], 1: [other]}

    def seen(*rows: tuple[str, int, int]) -> object:
        return points.mixed(drawn(*rows), draws, ["product"])

    assert seen(("a", 10, 5), ("b", 20, 9), ("d", 1, 1)) == []
    assert seen(("d", 1, 1), ("c", 30, 7), ("a", 11, 6)) == []
    assert seen(("a", 10, 6), ("b", 20, 9), ("d", 1, 1)) == [0]  # one partition of two draws
    assert seen(("a", 11, 6), ("b", 20, 9), ("d", 1, 1)) == [0]  # two partitions of two draws
    assert seen(("a", 10, 5), ("d", 1, 1)) == [0]  # a partition is lost
    assert seen(("a", 10, 5), ("b", 20, 9)) == [1]  # a place is lost
    assert seen(("a", 10, 5), ("b", 20, 9), ("d", 1, 1), ("e", 2, 2)) == [("e",)]
