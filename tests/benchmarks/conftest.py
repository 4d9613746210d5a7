"""The modules of benchmarks/, which are scripts and no package, for tests.

In: names. Out: fixtures with the loaded module. Holds: their plain names (`data`, `errors`) are gone from sys.modules after
the test, so that they hide nothing.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """A function that imports a script of benchmarks/ by its name."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(FOLDER / "peers"))
    yield importlib.import_module
    ours = {path.stem for path in FOLDER.rglob("*.py")}
    for name in set(sys.modules) - before:
        if name in ours:
            del sys.modules[name]
