"""A process that has loaded what is heavy, and runs some tests of a copied tree in a child of its own, again and again.

In: lines of JSON: tests and a limit of time. Out: one line of JSON for each: how they ended. Holds: a child begins without any
module of ours; one that finds ours elsewhere than in this copy says so, and is no answer. It runs as a script in the copy.
"""

import contextlib
import functools
import importlib
import json
import logging
import math
import os
import pathlib
import resource
import signal
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]

HEAVY = (
    "pytest",
    "numpy",
    "numpy.testing",
    "hypothesis",
    "hypothesis.extra.numpy",
    "hypothesis.strategies",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.parquet",
    "scipy.special",
    "scipy.stats",
    "scipy.optimize",
    "scipy.signal",
    "flint",
    "yaml",
    "pydantic",
    "sqlalchemy.dialects.sqlite",
    "matplotlib.figure",
    "jinja2",
    "rich.console",
    "duckdb",
    "numba",
    "dp_accounting",
    "apache_beam",
)
"""What a child need not load again. None of it is ours, and none starts threads when it is loaded."""

QUIET = [
    "-x",
    "-q",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:pytest_cov",
    "-m",
    "not bench",
]

MOST_MEMORY = 6 * 2**30
"""Bytes that a child may have: a fault may ask for any number."""

WAITING = 10
"""A child is ended after its limit of processor time, so that a busy machine decides nothing, or after so many times as much."""

ELSEWHERE = 99
"""How a child ends that has loaded our modules from another place than the copy."""


class Watch:
    """A plugin of pytest: processor seconds of each test, and which of our functions it calls where that is asked for."""

    def __init__(self, calls: bool) -> None:
        self.durations: dict[str, float] = {}
        self.calls: dict[str, list[str]] = {}
        self._calls = calls
        self._begun = 0.0

    def pytest_collection(self, session):
        # An example that fails is enough: to look for a smaller one takes minutes.
        import hypothesis

        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        busy = [hypothesis.HealthCheck.too_slow]  # on a busy machine, whatever the fault
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings(), phases=phases, suppress_health_check=busy
        )
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logstart(self, nodeid, location):
        self._begun = time.process_time()

    def pytest_runtest_protocol(self, item, nextitem):
        if self._calls:
            self._begin(item.nodeid)

    def pytest_runtest_logfinish(self, nodeid, location):
        sys.setprofile(None)
        self.durations[nodeid] = time.process_time() - self._begun

    def _begin(self, nodeid: str) -> None:
        forget()
        seen: set[object] = set()
        names = self.calls.setdefault(nodeid, [])
        inside = str(ROOT / "dp_pipelines") + os.sep

        def note(frame, event, argument):
            code = frame.f_code
            if event == "call" and code not in seen:
                seen.add(code)
                if code.co_filename.startswith(inside):
                    names.append(f"{code.co_filename.removeprefix(inside)}:{code.co_firstlineno}")

        sys.setprofile(note)


def forget() -> None:
    """Empty the caches of our functions: what an earlier test has computed is called again."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("dp_pipelines", "tests"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def loaded() -> list[str]:
    """Modules of ours that were loaded from another place; not those of PipelineDP that have a name of ours too."""
    inside = str(ROOT) + os.sep
    return [
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "dp_pipelines"
        and module.__name__.partition(".")[0] == "dp_pipelines"
        and getattr(module, "__file__", None)
        and not str(module.__file__).startswith(inside)
    ]


def child(job: dict) -> int:
    """Run the tests of a job; gives how pytest has ended."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(job["limit"]), math.ceil(job["limit"]) + 5))
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    import pytest

    watch = Watch(job["calls"])
    ended = int(pytest.main([*QUIET, *job.get("options", []), *job["tests"]], plugins=[watch]))
    if loaded():
        print("loaded from elsewhere:", *loaded())
        ended = ELSEWHERE
    pathlib.Path(job["log"] + ".json").write_text(json.dumps({"durations": watch.durations, "calls": watch.calls}))
    sys.stdout.flush()
    sys.stderr.flush()  # where pytest says that a conftest cannot be imported
    return ended


def run(job: dict) -> dict:
    """Run a job in a child; kill it and all that it has started when its time is over."""
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        ended = 98
        try:
            ended = child(job)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(ended)
    status = None
    while status is None and time.monotonic() - begun < WAITING * job["limit"]:
        done, status = os.waitpid(pid, os.WNOHANG)
        if not done:
            status = None
            time.sleep(0.02)
    late = status is None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if status is None:
        status = os.waitpid(pid, 0)[1]
    ended = os.waitstatus_to_exitcode(status)
    return {"ended": ended, "late": late or ended == -signal.SIGXCPU, "seconds": time.monotonic() - begun}


def main() -> None:
    """Load what is heavy, then answer."""
    sys.path[0] = str(ROOT)
    sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    for name in HEAVY:
        with contextlib.suppress(ImportError):  # an extra that is not installed: its tests are skipped
            importlib.import_module(name)
    logging.disable(logging.NOTSET)
    assert not any(name.partition(".")[0] == "dp_pipelines" for name in sys.modules)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
