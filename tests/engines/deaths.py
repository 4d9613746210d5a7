"""A process that watches a worker and writes down of which signal it died.

In: a folder that the test sees. Out: in it, `<pid>.died` with the signal, 0 where the worker came to its own end. Holds: what an
engine sends to the worker it sends to the watcher, which hands it on as SIGTERM: so a worker that died of SIGKILL was killed by a
test. Not covered: systems other than Linux. No import of this project: it forks before any library has started a thread.
"""

import contextlib
import ctypes
import os
import pathlib
import signal

ENGINE = "DP_TEST_ENGINE"
"""Names the process that started the watcher to the worker."""


def watched(place: str) -> None:
    """Go on in a new process, and watch it in this one, which ends with it.

    Args:
        place: the folder.
    """
    engine, watcher = os.getppid(), os.getpid()
    worker = os.fork()
    if worker:
        _watch(pathlib.Path(place), worker)
    os.environ[ENGINE] = str(engine)
    # Where the engine kills the watcher, which cannot hand that on.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != watcher:
        os._exit(1)


def _watch(folder: pathlib.Path, worker: int) -> None:
    def hand_on(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)

    signal.signal(signal.SIGTERM, hand_on)
    _, status = os.waitpid(worker, 0)
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    own = folder / f"{worker}.own"
    own.write_text(str(died))
    own.rename(folder / f"{worker}.died")
    os._exit(128 + died if died else os.WEXITSTATUS(status))
