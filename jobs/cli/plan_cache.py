"""A cache of computed plans, used by `plan` only: a run always makes its own plan.

In: everything a plan depends on. Out: the JSON that `plan --json` prints. Holds: the folder is private (0700); an entry that
cannot be read, or does not match, counts as absent; a cache that cannot be written is not an error. Not covered: entries are
never removed; each has a few kilobytes.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

FORMAT = 4
"""Raised when the JSON of a plan changes."""


NUMBERS = ("numpy", "scipy", "python-flint")
"""Libraries that compute numbers of a plan."""


def key(content: Mapping[str, Any], code: str) -> str:
    """The name of an entry: a digest over everything that the plan depends on, the code that computes it included.

    >>> key({"epsilon": 1.0}, "1") == key({"epsilon": 1.0}, "2")
    False
    """
    return hashlib.sha256(json.dumps([FORMAT, code, content], sort_keys=True).encode()).hexdigest()


def code() -> str:
    """A digest of the code that computes plans: the library's own by its bytes, that of others and Python by their versions.

    A version alone is not enough: during development its numbers change while its version does not.
    """
    import dp_pipelines

    found = hashlib.sha256(sys.version.encode())
    for name in NUMBERS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.update(f"{name} {importlib.metadata.version(name)}\0".encode())
    above = {"jobs", "transforms"}  # in a wheel they lie inside, and what they ask for stands in the content of a key
    for root in map(pathlib.Path, dp_pipelines.__path__):
        for path in sorted(root.rglob("*.py")):
            if path.relative_to(root).parts[0] not in above:
                content = path.read_bytes()
                found.update(f"{path.relative_to(root).as_posix()} {len(content)}\0".encode() + content)
    return found.hexdigest()


def folder() -> pathlib.Path:
    """The folder of the cache, which may not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "dp_pipelines"


def load(name: str) -> dict[str, Any] | None:
    """An entry, or None."""
    try:
        entry = json.loads((folder() / f"plan-{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    plan = entry.get("plan") if isinstance(entry, dict) and entry.get("key") == name else None
    return plan if isinstance(plan, dict) else None


def store(name: str, plan: Mapping[str, Any]) -> None:
    """Store an entry, if possible."""
    with contextlib.suppress(OSError):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder(), prefix=".plan-")
        try:
            with open(handle, "w", encoding="utf-8") as stream:
                json.dump({"key": name, "plan": plan}, stream)
            os.replace(temporary, folder() / f"plan-{name}.json")
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
