"""Runs the command line, or a program, in forks of one process that has imported what runs need, and has done nothing else.

In: the arguments of the command line, and a point at which the process dies (`tests.helpers.killed`); or a program. Out: the
exit status and what was written, as of `subprocess.run`. Holds: each command is a process of its own, with its own folder,
environment and streams; the process from which it is forked has run no command, opened no file and started no thread of Python.
Not covered: how long imports take, and which of them a command needs (`tests/jobs/cli/test_loaded.py`).

Two thirds of the time of a small run go into imports, models and templates, which all commands share. As a script, this module is
the process that is forked. The children of multiprocessing's fork server would end without what a process does at its exit, such
as deleting temporary folders.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import io
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
from collections.abc import Sequence
from typing import Any, NoReturn

from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.run import plan_cache
from dp_pipelines.jobs.runners import late_collection
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.report import pages
from tests.helpers import cpu_times
from tests.helpers.source import ROOT

SECONDS = 240
"""After which a command is ended."""

NOBODY = "nobody"
"""In place of a file: a pipe whose reader has left."""

PACKAGES = (
    *("accounting", "ledger", "release", "report", "training.federated", "training.kernels", "training.teachers"),
    *("jobs.cli", "jobs.cli.arguments", "jobs.outputs", "jobs.request", "jobs.run", "jobs.sql", "jobs.terminal"),
)
"""Packages of ours, all modules of which are imported."""

OTHERS = (
    *("duckdb", "flint", "http.client", "pyarrow.dataset", "pyarrow.parquet", "rich._emoji_codes", "safetensors.numpy"),
    *("sqlalchemy.dialects.sqlite.pysqlite", "dp_pipelines.jobs.runners.doctor"),
    "dp_pipelines.jobs.runners.local_engine",
)
"""Other modules that runs import."""

JOB = """
dataset: shop
privacy_unit: customer
budget: {epsilon: 1, delta: 0.1}
source: {parquet: data}
stages: {counts: {kind: aggregate, partition_by: [day], bounds: {max_contributions: 1}, metrics: {rows: {kind: count}}}}
"""


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
    errors: str | None = None,
    program: str | None = None,
    **environment: str,
) -> "subprocess.CompletedProcess[str]":
    """Run the command line in a process of its own.

    Args:
        arguments: of the command line.
        folder: the process begins in it.
        point: at which the process dies, or `none`.
        when: `before` or `after` it.
        which: the number of times that the point is reached, from 1.
        output, errors: where its standard output and standard error go, a file or `NOBODY`; if None, they are given back.
        program: Python to run as `python -c` does, in place of the command line.
        environment: variables of its environment, besides those of this process.

    Raises:
        TimeoutError: it did not end in `SECONDS`.
    """
    with tempfile.TemporaryDirectory() as place:
        out, err = pathlib.Path(place) / "out", pathlib.Path(place) / "err"
        request: dict[str, Any] = {"arguments": arguments, "folder": str(folder), "point": [point, when, which]}
        request |= {"environment": os.environ | environment, "program": program}
        request |= {"out": output or str(out), "err": errors or str(err)}
        process = warm()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        wait_status, seconds = process.stdout.readline().split()
        cpu_times.add(float(seconds))
        code = os.waitstatus_to_exitcode(int(wait_status))
        written = [stream.read_text() if stream.exists() else "" for stream in (out, err)]
        if code == -signal.SIGALRM:
            raise TimeoutError(written[1])
        return subprocess.CompletedProcess(arguments, code, *written)


def kill(arguments: list[str], *, folder: pathlib.Path, point: str, when: str, which: int = 1) -> None:
    """Run the command line in a process that dies at a point; fail if it ends otherwise. Arguments as of `run`."""
    dead = run(arguments, folder=folder, point=point, when=when, which=which)
    assert dead.returncode == -signal.SIGKILL, dead.stderr


def import_all(others: Sequence[str] = (), packages: Sequence[str] = ()) -> None:
    """Import what runs need, and make what each of them would make anew: the models of job files, and templates of pages.

    Args:
        others: modules to import besides `OTHERS`.
        packages: packages of ours to import besides `PACKAGES`, of which what needs an extra that is not installed is left out.
    """
    for name in (*OTHERS, *others):
        importlib.import_module(name)
    for package in (*PACKAGES, *packages):
        found = importlib.import_module(f"dp_pipelines.{package}")
        for module in pkgutil.iter_modules(found.__path__, f"{found.__name__}."):
            with contextlib.suppress(*(() if package in PACKAGES else (ImportError,))):
                importlib.import_module(module.name)
    importlib.import_module("numba").njit(lambda: 0)()  # compiling anything makes Numba import most of its modules
    main.parser()
    plan_cache.code()
    job_file.read(JOB, pathlib.Path("job.yaml"), "job.yaml")
    templates = pages._environment(pages.SHARED)
    for name in templates.list_templates():
        templates.get_template(name)


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
    for number, path in enumerate((os.devnull, request["out"], request["err"])):
        if path == NOBODY:
            reader, opened = os.pipe()
            os.close(reader)
        else:
            opened = os.open(path, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    if os.environ.get("PYTHONUNBUFFERED"):  # as Python does at its start
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), write_through=True)
    signal.alarm(SECONDS)


def run_command() -> NoReturn:
    """Run the command line with `sys.argv`, and end this process."""
    try:
        code: Any = main.main()
    except SystemExit as end:  # of the parser
        code = end.code
    # To take apart what all commands share would be three quarters of the time of a small one.
    atexit.unregister(late_collection._end)
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
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
    run_command()
