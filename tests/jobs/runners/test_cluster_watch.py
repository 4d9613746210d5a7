"""What a run on Flink says of a cluster that lacks slots or does not answer: numbers and an address, once a minute, and no more.

In: a server over HTTP that answers as Flink's REST interface does. Out: what a user hears, and what a failure says. Holds: the
clock decides nothing but how soon a word comes. Not covered: a real Flink (`tests/engines/test_waits.py`).
"""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from dp_pipelines.jobs.run import pipelines
from dp_pipelines.jobs.runners import cluster_watch
from dp_pipelines.jobs.runners.cluster_watch import Lack, Watch
from dp_pipelines.jobs.runners.runner_rules import Setup

JOB = "dp-of-this-run"
THREAD = "dp-cluster-watch"

WAITING = {"total": 30, "scheduled": 30}
RUNNING = {"total": 30, "running": 2, "scheduled": 28}


class Flink:
    """A server that says what it is told to say.

    Args:
        address: where it is.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.pages: dict[str, Any] = {}
        self.asked: list[str] = []

    def has(self, total: int, free: int, **jobs: Mapping[str, int]) -> None:
        """It has slots, and jobs with tasks in states; `this` is the run's own."""
        self.pages["/overview"] = {"slots-total": total, "slots-available": free, "taskmanagers": total}
        listed = [{"name": JOB if name == "this" else name, "tasks": tasks} for name, tasks in jobs.items()]
        self.pages["/jobs/overview"] = {"jobs": listed}

    def watch(self, slots: int = 2, tell: Callable[[str], None] | None = None) -> Watch:
        """A watch over it."""
        return Watch(f"http://{self.address}", slots, JOB, tell)


@pytest.fixture
def flink() -> Iterator[Flink]:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            content = made.pages.get(self.path)
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        made = Flink(f"127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "START_SECONDS", 0.01)
    monkeypatch.setattr(cluster_watch, "LOOK_SECONDS", 0.01)


def until(what: Callable[[], object], patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


@pytest.mark.parametrize(
    ("total", "free", "tasks", "note"),
    [
        (2, 0, RUNNING, None),
        (2, 2, WAITING, None),
        (3, 1, RUNNING, None),
        (1, 0, WAITING, "the cluster at {} has 1 of 2 slots; the run waits"),
        (0, 0, WAITING, "the cluster at {} has 0 of 2 slots; the run waits"),
        (1, 0, RUNNING, "the cluster at {} has 1 of 2 slots; the run goes on with these"),
        (2, 0, WAITING, "0 of 2 slots of the cluster at {} are free, and the run needs 2; the run waits"),
        (4, 1, WAITING, "1 of 4 slots of the cluster at {} are free, and the run needs 2; the run waits"),
    ],
)
def test_a_note_tells_slots_and_whether_the_run_waits(
    total: int, free: int, tasks: Mapping[str, int], note: str | None, flink: Flink
) -> None:
    flink.has(total, free, this=tasks, secret={"total": 4711, "running": 4711})
    found, _ = flink.watch()._look()
    assert (found and found.note) == (note and note.format(flink.address))


def test_a_lack_is_told_when_it_lasts_once_a_minute_and_when_it_is_over(flink: Flink) -> None:
    heard: list[str] = []
    watch, lack = flink.watch(tell=heard.append), Lack(said="no slots", hint="start some")
    looks = [lack, None, *([lack] * 14), None, None, lack, None]
    for number, found in enumerate(looks):
        watch.heard(found, 10.0 * number)
    waits = "no slots; the run waits"
    assert heard == [waits, waits, waits, f"the cluster at {flink.address} has what the run needs again"]


@pytest.mark.usefixtures("quick")
def test_a_thread_tells_what_lacks_until_the_run_is_over(flink: Flink) -> None:
    heard: list[str] = []
    flink.has(1, 0, this=WAITING)
    with flink.watch(tell=heard.append):
        until(lambda: heard)
        flink.has(2, 0, this=RUNNING)
        until(lambda: len(heard) == 2)
        flink.has(1, 0, this=WAITING)
        until(lambda: len(heard) == 3)
    until(lambda: not watching())
    waits = f"the cluster at {flink.address} has 1 of 2 slots; the run waits"
    assert heard == [waits, f"the cluster at {flink.address} has what the run needs again", waits]


@pytest.mark.usefixtures("quick")
def test_nothing_is_told_once_the_run_is_over_though_an_answer_comes_late(flink: Flink) -> None:
    heard: list[str] = []
    watch = flink.watch(tell=heard.append)
    with watch:
        pass
    lack = Lack(said="no slots", hint="start some")
    for number in range(9):
        watch.heard(lack, 100.0 * number)
    assert heard == []


@pytest.mark.usefixtures("quick")
def test_a_job_manager_that_is_gone_is_named_by_its_address(flink: Flink) -> None:
    heard: list[str] = []
    flink.pages.clear()
    with flink.watch(tell=heard.append) as watch:
        until(lambda: heard)
        lack = watch.at_the_end()
    said = f"nothing answers at {flink.address}, where the cluster's JobManager was"
    assert heard == [f"{said}; the run waits"]
    assert lack is not None
    assert (lack.said, lack.hint) == (said, f"start the JobManager at {flink.address} again")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "pages",
    [
        {"/overview": b"<html>4711</html>", "/jobs/overview": b"\xff"},
        {"/overview": [4711], "/jobs/overview": {"jobs": []}},
        {"/overview": {"slots-total": "4711 rows"}, "/jobs/overview": {"jobs": []}},
        {"/overview": {"slots-total": 1, "slots-available": 1}, "/jobs/overview": {"jobs": [{"rows": 4711}]}},
        {"/overview": {"slots-total": 1, "slots-available": 1}, "/jobs/overview": {"jobs": 4711}},
    ],
)
def test_whatever_answers_a_run_does_not_end_of_it_and_nothing_of_it_is_told(
    pages: dict[str, Any], flink: Flink
) -> None:
    heard: list[str] = []
    flink.pages = pages
    with flink.watch(tell=heard.append) as watch:
        until(lambda: len(flink.asked) >= 6)
        assert len(watching()) == 1
        told = str(watch.at_the_end())
    assert "4711" not in told + "".join(heard)


@pytest.mark.usefixtures("quick")
def test_a_listener_that_fails_ends_nothing(flink: Flink) -> None:
    def closed(text: str) -> None:
        raise ValueError("I/O operation on closed file")

    flink.has(1, 0, this=WAITING)
    with flink.watch(tell=closed):
        until(lambda: len(flink.asked) >= 12)
        assert len(watching()) == 1


def test_a_short_run_asks_a_cluster_nothing(flink: Flink) -> None:
    with flink.watch():
        pass
    until(lambda: not watching())
    assert flink.asked == []


def test_at_the_end_counts_what_was_told_of_slots_that_others_had(flink: Flink) -> None:
    watch = flink.watch(tell=lambda text: None)
    flink.has(2, 0, this=WAITING)
    for second in (0.0, 10.0):
        watch.heard(watch._look()[0], second)
    flink.has(2, 0, this={"total": 30, "failed": 30})
    lack = watch.at_the_end()
    assert lack is not None
    assert lack.said == f"0 of 2 slots of the cluster at {flink.address} are free, and the run needs 2"


def test_a_job_that_its_cluster_has_forgotten_is_told_apart_from_one_that_was_never_there(flink: Flink) -> None:
    new, old = flink.watch(), flink.watch()
    flink.has(2, 1, this=RUNNING)
    old._look()
    flink.pages.clear()
    for second in (0.0, 10.0):
        old.heard(old._look()[0], second)
    flink.has(2, 2)
    assert new.at_the_end() is None
    lack = old.at_the_end()
    assert lack is not None
    assert lack.said == f"the cluster at {flink.address} was started anew and does not know the job any more"


@pytest.mark.parametrize(
    ("setup", "cluster"),
    [
        (Setup(name="flink", server="jar", master="user:secret@flink:8081"), "http://flink:8081"),
        (Setup(name="flink", server="jobs:8099", master="flink:8081"), "http://flink:8081"),
        (Setup(name="flink", server="jar"), ""),
        (Setup(name="spark", server="jar", master="spark://spark:7077"), ""),
        (Setup(name="portable", server="embed"), ""),
    ],
)
def test_only_a_flink_whose_address_was_given_is_watched_and_no_password_is_told(setup: Setup, cluster: str) -> None:
    heard: list[str] = []
    watch = cluster_watch.watch(setup, {"parallelism": 2}, JOB, heard.append)
    assert watch._cluster == cluster
    if not cluster:
        with watch:
            assert watching() == []
        assert watch.at_the_end() is None


def test_a_failure_names_what_the_cluster_lacked_unless_it_is_known_better() -> None:
    request: Any = type("R", (), {"source": type("S", (), {"files": ["rows.parquet"]})})
    lack = Lack(said="the cluster at flink:8081 has 1 of 2 slots", hint="start task managers")
    told = pipelines.public_part(RuntimeError("customer 17"), request, ["weekly"], lack=lack)
    said = "the pipeline failed; the cluster at flink:8081 has 1 of 2 slots; nothing was published; start task managers"
    assert str(told) == f"{said}, then run the same command"
    damaged = f"file 'rows.parquet': {pipelines.DAMAGES[1]}"
    told = pipelines.public_part(RuntimeError(damaged), request, ["weekly"], lack=lack)
    assert str(told) == f"{damaged}; nothing was published"
