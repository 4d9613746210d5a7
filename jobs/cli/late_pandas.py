"""Has Arrow go without pandas until somebody asks it for a data frame.

In: nothing. Out: a process in which Arrow has looked for pandas once and found none. Holds: `to_pandas`, `from_pandas` and
`import pandas` work as ever, since Arrow looks again where it needs a data frame; commands run no code of users in this process,
whose first act could be to hand Arrow a Series. Not covered: Beam, which imports pandas itself where it is installed.
"""

# Arrow imports pandas, a quarter of a second, at the first value, array or constant that it is given from Python: at
# `pa.scalar(0)`, `pa.array([0])`, `to_numpy()`, `pc.equal(column, 0)`, `schema.empty_table()`, `pq.read_table(...)` and some
# ten others, only to see whether that was a data frame of theirs.

import importlib.abc
import importlib.machinery
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


def put_off() -> None:
    """Let Arrow look for pandas now, in vain. Nothing happens where pandas is loaded, or Arrow knows of it already."""
    if NAME in sys.modules:
        return
    later = _Later()
    sys.meta_path.insert(0, later)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(later)
