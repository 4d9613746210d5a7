"""A Pytest session that has collected tests once, and runs some of them in a child, with a function's code exchanged.

In: paths of tests, then lines of JSON: tests and a change of one module. Out: one line of JSON for each. Holds: nothing of a
child's change reaches the session, and a child costs a fork and its tests. Not covered: what is computed while tests are
collected; `server` runs tests from the beginning. It runs as a script in the copy.
"""

import contextlib
import json
import math
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Session:
    """A plugin of Pytest that runs jobs in place of the tests.

    Args:
        jobs, answers: lines of JSON.
    """

    def __init__(self, jobs: IO[str], answers: IO[str]) -> None:
        self._jobs = jobs
        self._answers = answers
        self._failed = ""

    def pytest_collection(self, session: pytest.Session) -> None:
        from tests.mutants import server

        server.Watch(False).pytest_collection(session)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        print(json.dumps({"ready": len(items)}), file=self._answers, flush=True)
        for line in self._jobs:
            print(json.dumps(self._run(items, json.loads(line))), file=self._answers, flush=True)
        return True

    def _run(self, items: dict[str, pytest.Item], job: dict[str, Any]) -> dict[str, Any]:
        """Run a job in a child, and give how it ended and which test failed."""
        from tests.mutants import server

        begun, (reads, writes) = time.monotonic(), os.pipe()
        pid = os.fork()
        if pid == 0:
            ended = 98
            try:
                os.setsid()
                os.close(reads)
                ended = self._child(items, job)
                os.write(writes, self._failed.encode())
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
            finally:
                os._exit(ended)
        os.close(writes)
        status = None
        while status is None and time.monotonic() - begun < server.WAITING * job["limit"]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                status = None
                time.sleep(0.005)
        late = status is None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if status is None:
            status = os.waitpid(pid, 0)[1]
        with os.fdopen(reads) as stream:
            failed = stream.read()
        ended = os.waitstatus_to_exitcode(status)
        late = late or ended == -signal.SIGXCPU
        return {"ended": ended, "late": late, "failed": failed, "seconds": time.monotonic() - begun}

    def _child(self, items: dict[str, pytest.Item], job: dict[str, Any]) -> int:
        from tests.mutants import server, swap

        resource.setrlimit(resource.RLIMIT_DATA, (server.MOST_MEMORY, server.MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(job["limit"]), math.ceil(job["limit"]) + 5))
        if server.loaded():
            return server.ELSEWHERE
        before = (ROOT / job["path"]).read_text()
        codes = swap.changed_functions(before, job["text"])
        if not codes:
            return 98
        swap.exchange(job["module"], str(ROOT / job["path"]), codes)
        server.forget()
        chosen = [items[name] for name in job["tests"]]
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return 1
        return 0


def main() -> None:
    """Collect the tests of the command line, then answer."""
    sys.path[0] = str(ROOT)
    sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")]
    from tests.mutants import server

    jobs, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    pytest.main([*server.QUIET, *sys.argv[1:]], plugins=[Session(jobs, answers)])


if __name__ == "__main__":
    main()
