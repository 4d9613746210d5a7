"""Collects tests quickly: modules are compiled once for all workers and runs, and Python looks for no cycles meanwhile.

In: hooks of pytest, on each worker. Out: compiled modules in `COMPILED`. Holds: the first worker that collects does so alone, and
the others, which wait, find compiled what it has compiled. More than half of the time of a collection goes into compiling. What
is there then is left out of all later searches for cycles, each of which would take seconds. Not covered: modules that are
imported before `tests/conftest.py`.
"""

import atexit
import contextlib
import fcntl
import gc
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.helpers.source import ROOT, uncollected

COMPILED = ROOT / "build" / "compiled"
"""What all workers share, and the commands that they start."""


def keep_compiled() -> None:
    """Make this process read and write compiled modules there, whatever the environment says."""
    sys.pycache_prefix, sys.dont_write_bytecode = str(COMPILED), False


@contextlib.contextmanager
def first_or_later(lock: Path) -> Iterator[None]:
    """Wait until nobody is the first, or be the first.

    Args:
        lock: a file that all processes have in common.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests after the worker that compiles, or as that worker."""
    with first_or_later(COMPILED / "lock"), uncollected():
        collected = yield
    gc.freeze()
    # Else DuckDB, which counts its objects at the end, says on standard error that some are left.
    atexit.register(gc.unfreeze)
    return collected
