"""Has Python look for garbage only once modules are loaded: a tenth of what a command spends before it reads a row.

In: nothing. Out: a process that collects no cycles until `begin`. Holds: what is loaded until then stays for good, so it is never
looked at again; whoever has switched collection off, or never put it off, finds it as it was. Not covered: Beam's workers.
"""

import atexit
import gc
import sys


class _Collection:
    put_off = False


def put_off() -> None:
    """Collect no cycles for now: loading a thousand modules would have Python look through all of them a thousand times."""
    if gc.isenabled():
        gc.disable()
        _Collection.put_off = True
        atexit.register(_end)


def begin() -> None:
    """Collect again, if it was put off. Rows are about to be read, and tables in cycles would fill the memory."""
    if _Collection.put_off:
        gc.freeze()
        gc.enable()
        _Collection.put_off = False


def _end() -> None:
    """Let DuckDB's objects be collected: it counts them at the end, and says on standard error that some are left.

    In a process without DuckDB, to look through all that was loaded would be a quarter of the time of a small run.
    """
    begin()
    if "duckdb" in sys.modules:
        gc.unfreeze()
