"""Has Arrow go without pandas until somebody else loads it or asks for a data frame.

In: nothing. Out: a process in which Arrow has looked for pandas once and found none. Holds: `to_pandas`, `from_pandas` and
`import pandas` work as ever: Arrow looks again where it needs a data frame, and as soon as pandas is loaded, so that it knows a
Series when it is given one. Not covered: Beam, which imports pandas itself where it is installed.
"""

# Arrow imports pandas, a quarter of a second, at the first value, array or constant that it is given from Python: at
# `pa.scalar(0)`, `pa.array([0])`, `to_numpy()`, `pc.equal(column, 0)`, `schema.empty_table()`, `pq.read_table(...)` and some
# ten others, only to see whether that was a data frame of theirs.

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

NAME = "pandas"


class _Later(importlib.abc.MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == NAME:
            raise ModuleNotFoundError(f"No module named {NAME!r}", name=NAME)
        return None


class _Told(importlib.abc.MetaPathFinder):
    """Has Arrow look again once pandas is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME:
            return None
        with contextlib.suppress(ValueError):  # another thread was first
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(NAME)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_tell(module: ModuleType) -> None:
                load(module)
                _look_again()

            spec.loader.exec_module = load_and_tell  # type: ignore[method-assign]
        return spec


def put_off() -> None:
    """Let Arrow look for pandas now, in vain. Nothing happens where pandas is loaded, or Arrow knows of it already."""
    if NAME in sys.modules or any(isinstance(finder, _Told) for finder in sys.meta_path):
        return
    later = _Later()
    sys.meta_path.insert(0, later)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path[sys.meta_path.index(later)] = _Told()


def _look_again() -> None:
    """Arrow does so where it is asked for the version of pandas, and nowhere that is public and as cheap."""
    import pyarrow as pa

    with contextlib.suppress(ImportError, AttributeError):
        _ = pa.lib._pandas_api.version
