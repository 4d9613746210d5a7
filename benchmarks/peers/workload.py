"""The one query that all systems answer, and how each of them is measured. Standard library only, for two environments.

In: a folder of Parquet files with columns user, key and value. The query: for each key the number of rows, of different
users, the sum and the mean of the clamped value, where a user counts in at most MAX_KEYS keys, chosen by a hash or at
random, with at most MAX_ROWS rows in each. The private systems publish under (EPSILON, DELTA), keys selected privately.
Out: one line of JSON on stdout, see `report`. Holds: a peer is a process of its own; `seconds` is the query from files
to published table, without imports and without what is done once for a plan, which has its own time; memory is the peak
of the whole process.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import sys
import time
from collections.abc import Callable, Iterator

MAX_KEYS = 4
MAX_ROWS = 2
LOW, HIGH = 0.0, 200.0
EPSILON, DELTA = 1.0, 1e-6
THREADS = int(os.environ.get("BENCHMARK_THREADS") or 2)
MEMORY_GIB = int(os.environ.get("BENCHMARK_GIB") or 0)
"""What the process may take; 0: what there is."""

# The process starts about here; what a peer imports after this module is its import time.
_START = time.perf_counter()


def arguments(description: str) -> pathlib.Path:
    """The folder that the command line names."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=pathlib.Path, help="folder of Parquet files with columns user, key, value")
    return pathlib.Path(parser.parse_args().folder)


def files(folder: pathlib.Path) -> str:
    """The files of the folder as a pattern."""
    return str(folder / "*.parquet")


def peak_mib() -> float:
    """Peak resident memory of this process, MiB.

    From /proc where there is one: what getrusage tells may be the peak of the process that started this one.
    """
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 / (1024 if sys.platform == "darwin" else 1)


class Stopwatch:
    """Times of one run: imports end where `imports_done` is called; then `plan` if there is one, and `query`."""

    def __init__(self) -> None:
        self.import_seconds = 0.0
        self.plan_seconds = 0.0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.data_seconds = 0.0

    def imports_done(self) -> None:
        """Call after the peer's imports."""
        self.import_seconds = time.perf_counter() - _START

    @contextlib.contextmanager
    def plan(self) -> Iterator[None]:
        """Time what is done once for a plan, however many rows and runs it serves."""
        begin = time.perf_counter()
        yield
        self.plan_seconds = time.perf_counter() - begin

    @contextlib.contextmanager
    def query(self) -> Iterator[None]:
        """Time what is inside."""
        begin, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds, self.cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu

    @contextlib.contextmanager
    def data(self) -> Iterator[None]:
        """Time a part of the query that handles rows; a system that never says so spends all of the query on them."""
        begin = time.perf_counter()
        yield
        self.data_seconds += time.perf_counter() - begin


def report(system: str, rows: int, watch: Stopwatch, partitions: int, totals: dict[str, float]) -> None:
    """Print the run as one line of JSON.

    Args:
        system: the name in tables.
        rows: rows read.
        watch: the times.
        partitions: keys in the result.
        totals: over all keys of the result: rows, users, sum; to see that the systems answer the same query.
    """
    line = {
        "system": system,
        "rows": rows,
        "plan_seconds": round(watch.plan_seconds, 4),
        "seconds": round(watch.seconds, 4),
        "cpu_seconds": round(watch.cpu_seconds, 4),
        "data_seconds": round(watch.data_seconds or watch.seconds, 4),
        "import_seconds": round(watch.import_seconds, 4),
        "max_rss_mib": round(peak_mib(), 1),
        "partitions": partitions,
        "totals": totals,
    }
    print(json.dumps(line), flush=True)


def totals(rows: list[float], users: list[float], sums: list[float]) -> dict[str, float]:
    """The three totals that peers report, from one number for each key."""
    add: Callable[[list[float]], float] = sum
    return {"rows": float(add(rows)), "users": float(add(users)), "sum": float(add(sums))}
