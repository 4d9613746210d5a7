"""Faults of one line, planted into a copy of the source of a function of this process.

In: a qualified name, a piece of its syntax, what stands there instead. Out: the function, compiled anew in its own module, in
place of the right one while a test runs, wherever a module of ours has imported it. Holds: the piece must stand there once: a
fault that no longer fits the source fails its test. Not covered: what was bound before, such as a default value.
"""

import importlib
import inspect
import sys
import textwrap
from typing import Any

import pytest


def plant(patch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Plant a fault.

    Args:
        patch: takes it out again.
        name: of a function or method, `package.module:function` or `package.module:Class.method`.
        old: a piece of its source.
        new: what stands there instead.
    """
    module_name, _, path = name.partition(":")
    module = importlib.import_module(module_name)
    *owners, last = path.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    right = inspect.getattr_static(owner, last)
    source = textwrap.dedent(inspect.getsource(right.__func__ if isinstance(right, staticmethod) else right))
    assert source.count(old) == 1, f"{name} has {old!r} {source.count(old)} times"
    made: dict[str, Any] = {}
    exec(compile(source.replace(old, new), f"<fault in {name}>", "exec"), vars(module), made)
    faulty = made[last]
    patch.setattr(owner, last, faulty)
    for other in [each for key, each in sys.modules.items() if key.partition(".")[0] in ("dp_pipelines", "tests")]:
        if not owners and vars(other).get(last) is right:
            patch.setattr(other, last, faulty)
