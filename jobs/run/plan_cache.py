"""Plans that this user has made before: what `plan` prints of them, and what freezes them.

In: everything a plan depends on. Out: entries by name and kind. Holds: an entry is used only out of a folder and a file of this
user into which nobody else may write, and only whole; all else counts as absent, and a cache that cannot be written is no error.
A frozen plan that comes from here is accounted for anew, as one that comes from a ledger (`frozen_plans`). Not covered: entries
are never removed; each has a few kilobytes.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from dp_pipelines import private_folders
from dp_pipelines.jobs.sources.own_cache import folder, is_own

FORMAT = 5
"""Raised when the JSON of an entry changes."""


NUMBERS = ("numpy", "scipy", "python-flint")
"""Libraries that compute numbers of a plan."""


def key(content: Mapping[str, Any], code: str) -> str:
    """The name of an entry: a digest over everything that the plan depends on, the code that computes it included.

    >>> key({"epsilon": 1.0}, "1") == key({"epsilon": 1.0}, "2")
    False
    """
    from dp_pipelines.planning import json_digest

    return json_digest.sha256([FORMAT, code, content])


@functools.cache
def code() -> str:
    """Return a digest of the code that computes plans: the library's own by its bytes, that of others and Python by versions.

    A version alone is not enough: during development its numbers change while its version does not. A process reads the code
    once: what is written over its files later is not what it runs.
    """
    import dp_pipelines

    found = hashlib.sha256(sys.version.encode())
    for name in NUMBERS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.update(f"{name} {importlib.metadata.version(name)}\0".encode())
    above = {"jobs", "transforms"}  # in a wheel they lie inside, and what they ask for stands in the content of a key
    for root in dp_pipelines.__path__:
        for place, packages, files in os.walk(root):
            packages[:] = sorted(set(packages) - above if place == root else packages)
            for path in sorted(os.path.join(place, name) for name in files if name.endswith(".py")):
                with open(path, "rb") as stream:
                    content = stream.read()
                found.update(f"{path.removeprefix(root)} {len(content)}\0".encode() + content)
    return found.hexdigest()


def load(name: str, kind: str) -> dict[str, Any] | None:
    """An entry, or None.

    Args:
        name: what `key` gave.
        kind: `shown` for what `plan --json` prints, `frozen` for what freezes a plan.
    """
    path = _path(name, kind)
    try:
        if not (is_own(folder()) and is_own(path)):
            return None
        held = json.loads(path.read_text(encoding="utf-8"))
        entry, digest = held["entry"], held["digest"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and digest == _digest(name, kind, entry) else None


def store(name: str, kind: str, entry: Mapping[str, Any]) -> None:
    """Store an entry, if possible. Arguments as for `load`.

    Args:
        name, kind: see there.
        entry: plain values of JSON.
    """
    with contextlib.suppress(OSError):
        private_folders.make(folder())
        if not is_own(folder()):
            return
        handle, temporary = tempfile.mkstemp(dir=folder(), prefix=".plan-")  # mode 0600
        try:
            with open(handle, "w", encoding="utf-8") as stream:
                json.dump({"digest": _digest(name, kind, entry), "entry": entry}, stream)
            os.replace(temporary, _path(name, kind))
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _path(name: str, kind: str) -> pathlib.Path:
    return folder() / f"{kind}-{name}.json"


def _digest(name: str, kind: str, entry: Mapping[str, Any]) -> str:
    """What an entry must have to count as whole, and as the one of its name."""
    return hashlib.sha256(json.dumps([name, kind, entry], sort_keys=True).encode()).hexdigest()
