"""What the gate for draws costs: its share of the processor time of a run.

In: the rows and the query of the peers' comparison. Out: for each number of rows the processor seconds of the run, those inside
of the gate and its permits, and their share. Holds: the run is that of `peers/ours.py`, on Beam's runner in this process; the
time inside is that of the thread which checks, and includes what measuring costs. Not covered: engines on a cluster.

    python benchmarks/gate_cost.py [--kind even] [--rows 1_000_000 10_000_000] [--turns 3]
"""

import argparse
import functools
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))

import data
import ours
import workload

import dp_pipelines as dp
from dp_pipelines.mechanisms import permits
from dp_pipelines.release import gate

CHECKS = (
    *((gate, name) for name in ("admit", "check", "open_gate", "check_places")),
    *((permits.Permit, name) for name in ("_take_noise", "_take", "covers")),
    *((permits.Permits, name) for name in ("over", "of", "check_drawn", "for_bucket")),
)
"""What a draw calls that would not be there without the gate."""


class Watch:
    """Adds up the seconds inside of functions, whichever thread calls them."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0
        self._lock, self._inside = threading.Lock(), threading.local()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same, and is measured where it is not called from another one."""

        @functools.wraps(function)
        def measured(*given: Any, **named: Any) -> Any:
            if getattr(self._inside, "here", False):
                return function(*given, **named)
            self._inside.here, begin = True, time.thread_time()
            try:
                return function(*given, **named)
            finally:
                self._inside.here = False
                with self._lock:
                    self.seconds += time.thread_time() - begin
                    self.calls += 1

        return measured


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=data.KINDS, default="even")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    watch = Watch()
    for holder, name in CHECKS:
        setattr(holder, name, watch.timed(getattr(holder, name)))
    for rows in asked.rows:
        folder, shares = data.dataset(asked.kind, rows), []
        for _ in range(asked.turns):
            plan = dp.Plan(epsilon=workload.EPSILON, delta=workload.DELTA, stages={"bench": ours.query()})
            watch.seconds, watch.calls, begin = 0.0, 0, time.process_time()
            with tempfile.TemporaryDirectory() as parent:
                ours.run(plan, folder, pathlib.Path(parent, "release"), rows)
            took = time.process_time() - begin
            assert watch.calls > 0, "no draw went through the gate"
            shares.append(watch.seconds / took)
            print(
                f"{rows:12,d} rows: {took:6.2f} s of processor time, {watch.seconds:.4f} s in {watch.calls} calls of the gate: "
                f"{watch.seconds / took:.3%}",
                flush=True,
            )
        print(f"{rows:12,d} rows: median share {statistics.median(shares):.3%}", flush=True)


if __name__ == "__main__":
    main()
