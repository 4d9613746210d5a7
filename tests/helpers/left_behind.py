"""What a run must not leave in its process or on the disk: threads, open files, files.

In: a block of work, folders. Out: an assertion that names what is left; a fixture for modules with many such blocks. Holds: what
was there before does not count. Not covered: folders that nobody names. Tests only.
"""

import contextlib
import gc
import os
import pathlib
import threading
from collections.abc import Iterator

import pytest


def open_files() -> set[str]:
    """What this process has open, by number; the list itself does not count."""
    found = set()
    for path in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(f"{path.name} {os.readlink(path)}")
    return {name for name in found if "/proc/" not in name}


@contextlib.contextmanager
def nothing_left(*folders: pathlib.Path) -> Iterator[None]:
    """Work that leaves no thread, no open file and, in some folders at any depth, no file."""

    def seen() -> tuple[set[threading.Thread], set[str], set[str]]:
        gc.collect()
        return set(threading.enumerate()), open_files(), {str(path) for folder in folders for path in folder.rglob("*")}

    before = seen()
    yield
    threads, descriptors, files = (now - then for now, then in zip(seen(), before, strict=True))
    assert (sorted(thread.name for thread in threads), sorted(descriptors), sorted(files)) == ([], [], [])


@pytest.fixture(scope="module", autouse=True)
def only_new_objects_are_collected() -> Iterator[None]:
    """Keep each collection of `nothing_left` short: objects from before this module of tests are left out of it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
