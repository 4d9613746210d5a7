"""Processes forked from one that has imported Beam and what jobs need: the command line for tests, workers for runners.

In: arguments of the command line, or a folder in which a script for runners is made. Out: exit statuses, what was written; in the
folder of `tests.engines.points`, `<pid>.died` with the signal of which a worker died, 0 where it came to its own end. Holds: each
command and each worker is a process of its own, with its own environment, folder and streams; the process from which it is
forked has run nothing and has started no thread of Python. What a runner sends to the script reaches the worker as SIGTERM: so a
worker that died of SIGKILL was killed by a test. Not covered: systems other than Linux; hashes of texts, which differ between
processes that were started and not between these: workers of Beam's own pool (tests/engines/test_portable.py) are started.

Imports take most of the time of a small run, and nine tenths of that of a worker with little to do. As a script, this module is
the process that is forked. Its time and that of its children counts once it has ended (`end`).
"""

import contextlib
import gc
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

from dp_pipelines import extensions
from tests.helpers.source import ROOT

SECONDS = 240
"""After which a command is ended."""

ENGINE = "DP_TEST_ENGINE"
"""Names the process that started a worker's script to the worker."""

POINTS = "DP_TEST_POINTS"
"""Names the folder to a worker in which it stops at steps (`points`)."""

OTHERS = (
    *("apache_beam.runners.portability.job_server", "apache_beam.runners.worker.sdk_worker_main"),
    *("dp_pipelines.jobs.runners.beam_engine", "tests.engines.points"),
)
"""What commands and workers import here, besides the modules of `warm_process`."""

PARTIES = ["extensions.two_organisations"] if extensions.has_folder("two_organisations") else []

OTHER_PACKAGES = (*PARTIES, "jobs.sources", "steps", "transforms")
"""Likewise, packages of ours."""

SCRIPT = """\
#!{python} -SE
import json, os, socket, sys
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect({address!r})
told = dict(what="worker", arguments=sys.argv[1:], environment=dict(os.environ), folder=os.getcwd(), engine=os.getppid())
socket.send_fds(asked, [json.dumps(told).encode()], [1, 2])
pid, status = asked.recv(16), int(asked.recv(16) or 1)
sys.exit(status if status >= 0 else 128 - status)
"""
"""What a runner starts as a worker: it lives as long as the worker, and when it dies the worker is told to end."""

_STARTED: dict[str, "subprocess.Popen[str]"] = {}


def address() -> str:
    """Return where the process listens that forks; it is started where there is none, and ends with this one."""
    if not _STARTED:
        place = str(pathlib.Path(tempfile.mkdtemp(prefix="forks-")) / "socket")
        words = [sys.executable, "-m", "tests.helpers.forks", place]
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        _STARTED[place] = process
    return next(iter(_STARTED))


def end() -> None:
    """End it, and wait for that; and all that it has forked, such as workers whose task manager was killed."""
    while _STARTED:
        place, process = _STARTED.popitem()
        with process:
            assert process.stdin is not None
            process.stdin.close()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # so that its number is still its own
            os.killpg(process.pid, signal.SIGKILL)
        pathlib.Path(place).unlink()
        pathlib.Path(place).parent.rmdir()


class Forked:
    """The command line in a process of its own: what `subprocess.Popen` is for one that is started.

    Args:
        arguments: of the command line.
        folder: the process begins in it.
    """

    def __init__(self, *arguments: object, folder: str | os.PathLike[str] = ".") -> None:
        words = list(map(str, arguments))
        told = {
            "what": "command",
            "engine": os.getpid(),
            "arguments": words,
            "environment": dict(os.environ),
            "folder": os.path.abspath(folder),
        }
        self.returncode: int | None = None
        self._written = ["", ""]
        self._files = [tempfile.TemporaryFile("w+") for _ in self._written]  # noqa: SIM115 - closed at its end
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked.connect(address())
        socket.send_fds(self._asked, [json.dumps(told).encode()], [file.fileno() for file in self._files])
        self.pid = int(self._asked.recv(16))

    def poll(self) -> int | None:
        """Return its status, or None while it lives."""
        ended = self.returncode is not None or select.select([self._asked], [], [], 0)[0]
        return self.wait() if ended else None

    def wait(self, timeout: float = SECONDS) -> int:
        """Return its status once it has ended: negative where it died of a signal.

        Raises:
            subprocess.TimeoutExpired: it lives longer than this, in seconds.
        """
        if self.returncode is None:
            if not select.select([self._asked], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("dp-pipelines", timeout)
            self.returncode = int(self._asked.recv(16))
            self._asked.close()
            for place, file in enumerate(self._files):
                with file:
                    file.seek(0)
                    self._written[place] = file.read()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self.poll() is None:
            self._asked.send(str(number).encode())

    def kill(self) -> None:
        """End it as a machine does that goes down."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = SECONDS) -> tuple[str, str]:
        """Return what it has written to both streams, once it has ended; if that takes too long, it is killed.

        Raises:
            subprocess.TimeoutExpired: as for `wait`.
        """
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
            raise
        out, err = self._written
        return out, err


def command(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the command line in a process of its own, as `subprocess.run` does."""
    process = Forked(*arguments)
    written = process.communicate()
    return subprocess.CompletedProcess(arguments, process.wait(), *written)


def script(folder: pathlib.Path) -> pathlib.Path:
    """Return a script by which a runner gets a worker, in a folder."""
    path = folder / "boot"
    path.write_text(SCRIPT.format(python=sys.executable, address=address()))
    path.chmod(0o700)
    return path


def _serve(place: str) -> dict[str, Any]:
    """Fork for each request, until standard input ends; return in the process of a request, with the request."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(place)
        listening.listen(64)
        print("listening", flush=True)
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [], 1.0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if sys.stdin in ready:
                sys.exit()
            if listening in ready:
                asking, _ = listening.accept()
                assert threading.enumerate() == [threading.main_thread()]
                if os.fork() == 0:
                    listening.close()
                    return _watched(asking)
                asking.close()


def _watched(asking: socket.socket) -> dict[str, Any]:
    """Go on in a new process with what was asked for, and watch it in this one, which ends with it."""
    told, files, _, _ = socket.recv_fds(asking, 2**20, 2)
    request: dict[str, Any] = json.loads(told)
    child = os.fork()
    if child == 0:
        asking.close()
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *files)):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update({**request["environment"], ENGINE: str(request["engine"])})
        return request
    try:
        with contextlib.suppress(OSError):  # who asked may have gone
            _watch(child, asking, request["environment"].get(POINTS))
    finally:
        os._exit(0)


def _watch(child: int, asking: socket.socket, place: str | None) -> None:
    asking.send(str(child).encode())
    ended = os.pidfd_open(child)
    while ended not in select.select([ended, asking], [], [])[0]:
        told = asking.recv(16)
        os.kill(child, int(told or signal.SIGTERM))
        if not told:  # who asked has gone
            break
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if place is not None:
        own = pathlib.Path(place) / f"{child}.own"
        own.write_text(str(max(-code, 0)))
        own.rename(own.with_suffix(".died"))
    asking.send(str(code).encode())


def _work(arguments: list[str]) -> None:
    """Be a worker of Beam until its job ends. It asks the runner for everything that its arguments do not say."""
    import argparse

    import grpc
    from apache_beam.portability.api import beam_provision_api_pb2 as provision
    from apache_beam.portability.api import beam_provision_api_pb2_grpc
    from apache_beam.runners.worker import sdk_worker_main
    from google.protobuf import json_format, text_format

    from tests.engines import points

    parser = argparse.ArgumentParser()
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    given, _ = parser.parse_known_args(arguments)
    channel = grpc.insecure_channel(given.provision_endpoint)
    service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
    asked = provision.GetProvisionInfoRequest()
    info = service.GetProvisionInfo(asked, metadata=[("worker_id", given.id)]).info
    os.environ["WORKER_ID"] = given.id
    os.environ["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
    os.environ["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
    os.environ["CONTROL_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(info.control_endpoint)
    os.environ["LOGGING_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(info.logging_endpoint)
    if POINTS in os.environ:
        points.plant(os.environ[POINTS])
    sdk_worker_main.main([])


if __name__ == "__main__":
    from tests.helpers import warm_process

    with contextlib.redirect_stderr(None):
        warm_process.import_all(OTHERS, OTHER_PACKAGES)
    gc.freeze()
    asked_for = _serve(sys.argv[1])
    sys.argv = ["dp-pipelines", *asked_for["arguments"]]
    if asked_for["what"] == "worker":
        _work(asked_for["arguments"])
    else:
        warm_process.run_command()
