"""Runs the command line, or a program, in forks of one process that has imported what runs need, and has done nothing else.

In: the arguments of the command line, and a point at which the process dies (`tests.helpers.killed`); or a program. Out: the
exit status and what was written, as of `subprocess.run`. Holds: each command is a process of its own, with its own folder,
environment and streams; the process from which it is forked has run no command, opened no file and started no thread of Python.
Not covered: how long imports take, and which of them a command needs (`tests/jobs/cli/test_loaded.py`).

Half of the time of a small run goes into imports. As a script, this module is the process that is forked. The children of
multiprocessing's fork server would end without what a process does at its exit, such as deleting temporary folders.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import types
from typing import Any

from tests.helpers import cpu_times
from tests.helpers.source import ROOT

SECONDS = 240
"""After which a command is ended."""

PACKAGES = (
    *("accounting", "ledger", "release", "report", "training.federated", "training.kernels", "training.teachers"),
    *("jobs.outputs", "jobs.request", "jobs.run", "jobs.sql", "jobs.terminal"),
)
"""Packages of ours, all modules of which are imported."""

OTHERS = (
    *("duckdb", "pyarrow.dataset", "pyarrow.parquet", "rich._emoji_codes", "safetensors.numpy"),
    "sqlalchemy.dialects.sqlite.pysqlite",
)
"""Modules of others that runs import."""


@functools.cache
def warm() -> "subprocess.Popen[str]":
    """Start the process that is forked. It ends with this one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.warm_process"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    atexit.register(process.kill)
    return process


def run(
    arguments: list[str],
    *,
    folder: pathlib.Path,
    point: str = "none",
    when: str = "before",
    which: int = 1,
    output: str | None = None,
    program: str | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run the command line in a process of its own.

    Args:
        arguments: of the command line.
        folder: the process begins in it.
        point: at which the process dies, or `none`.
        when: `before` or `after` it.
        which: the number of times that the point is reached, from 1.
        output: where its standard output goes, which is not read then; if None, it is given back.
        program: Python to run as `python -c` does, in place of the command line.

    Raises:
        TimeoutError: it did not end in `SECONDS`.
    """
    with tempfile.TemporaryDirectory() as place:
        out, err = pathlib.Path(place) / "out", pathlib.Path(place) / "err"
        request: dict[str, Any] = {"arguments": arguments, "folder": str(folder), "point": [point, when, which]}
        request |= {"environment": dict(os.environ), "out": output or str(out), "err": str(err), "program": program}
        process = warm()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        wait_status, seconds = process.stdout.readline().split()
        cpu_times.add(float(seconds))
        code = os.waitstatus_to_exitcode(int(wait_status))
        if code == -signal.SIGALRM:
            raise TimeoutError(err.read_text())
        return subprocess.CompletedProcess(arguments, code, "" if output else out.read_text(), err.read_text())


def kill(arguments: list[str], *, folder: pathlib.Path, point: str, when: str, which: int = 1) -> None:
    """Run the command line in a process that dies at a point; fail if it ends otherwise. Arguments as of `run`."""
    dead = run(arguments, folder=folder, point=point, when=when, which=which)
    assert dead.returncode == -signal.SIGKILL, dead.stderr


def import_all() -> None:
    """Import what runs need."""
    for name in OTHERS:
        importlib.import_module(name)
    for package in PACKAGES:
        found = importlib.import_module(f"dp_pipelines.{package}")
        for module in pkgutil.iter_modules(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)
    importlib.import_module("numba").njit(lambda: 0)()  # compiling anything makes Numba import most of its modules


def serve() -> dict[str, Any]:
    """Fork for each request and write the status of its process; return in the process of a request, with the request."""
    answers = os.dup(sys.stdout.fileno())
    for line in iter(sys.stdin.readline, ""):
        assert threading.enumerate() == [threading.main_thread()]
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(answers)
            return request
        _, status, used = os.wait4(child, 0)
        os.write(answers, f"{status} {used.ru_utime + used.ru_stime}\n".encode())
    sys.exit()


def become(request: dict[str, Any]) -> None:
    """Give this process the folder, the environment and the streams that a command was asked for with."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    written = os.O_WRONLY | os.O_CREAT
    streams = ((os.devnull, os.O_RDONLY), (request["out"], written), (request["err"], written))
    for number, (path, flags) in enumerate(streams):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    signal.alarm(SECONDS)


if __name__ == "__main__":
    from dp_pipelines.jobs.cli import main
    from tests.helpers import killed

    with contextlib.redirect_stderr(None):
        import_all()
    gc.freeze()
    asked = serve()
    become(asked)
    where, moment, count = asked["point"]
    if where != "none":
        killed.kill_at(where, moment, count)
    if asked["program"] is not None:
        sys.path[0], sys.argv = "", ["-c"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(asked["program"], vars(sys.modules["__main__"]))
        sys.exit()
    sys.argv = ["dp-pipelines", *asked["arguments"]]
    sys.exit(main.main())
