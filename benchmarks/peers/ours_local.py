"""The query in dp_pipelines as `dp-pipelines run` does it on one machine, with privacy: a whole command, from a job file.

In: a folder of Parquet files. Out: workload.report's line; totals are those of the noisy release. Holds: the command itself in
this process, with `--ledger none` and no kept plan; `seconds` is what the runner's threads did, from the files to the staged
release, like the query of the peers. Job file, plan, manifest and report come on top, in the time of the whole process.
"""

import contextlib
import json
import os
import pathlib
import resource
import sys
import tempfile
from typing import Any

import workload

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
watch = workload.Stopwatch()
if workload.MEMORY_GIB:
    resource.setrlimit(resource.RLIMIT_AS, (workload.MEMORY_GIB << 30,) * 2)
from dp_pipelines.jobs.sources import late_pandas  # noqa: E402

late_pandas.put_off()  # as the command does, before anything has Arrow look for pandas

import data  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from dp_pipelines.jobs.cli import main as cli  # noqa: E402
from dp_pipelines.jobs.run import run as runs  # noqa: E402
from dp_pipelines.jobs.runners import local, local_engine  # noqa: E402

watch.imports_done()

ROWS = ("Read/Read", "/ByShard")
"""The ends of the names of steps that handle rows: they are read and bounded; a shard's units are counted and summed."""


def timed() -> None:
    """Have the stopwatch run while the command plans, while its graph is carried out, and in the steps that handle rows."""
    plan, run, step = runs.cached_plan, local_engine.LocalEngine.run, local.LocalGraph._run_from

    def planned(*given: Any, **named: Any) -> Any:
        with watch.plan():
            return plan(*given, **named)

    def ran(*given: Any) -> None:
        with watch.query():
            run(*given)

    def stepped(graph: local.LocalGraph, root: local.LocalFlow, number: int) -> None:
        with watch.data() if root.label.endswith(ROWS) else contextlib.nullcontext():
            step(graph, root, number)

    local.LocalGraph._run_from = stepped  # type: ignore[method-assign]
    runs.cached_plan, local_engine.LocalEngine.run = planned, ran  # type: ignore[method-assign]


def main(**metrics: Any) -> None:
    """Run once, with more metrics where some are given, and report."""
    folder = workload.arguments("Count, users, sum and mean per key by `dp-pipelines run`.").resolve()
    with tempfile.TemporaryDirectory() as parent:
        place = pathlib.Path(parent)
        job = data.job(folder)
        job["stages"]["keys"]["metrics"] |= metrics
        (place / "job.yaml").write_text(json.dumps(job))
        timed()
        command = ["run", str(place / "job.yaml"), "--output", str(place / "out"), "--ledger", "none"]
        # As a command, not as a function that a program calls.
        sys.argv[1:] = [*command, "--threads", str(workload.THREADS)]
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            code = cli.main()
        if code:
            sys.exit(code)
        table = pq.read_table(place / "out" / "keys.parquet").to_pydict()
    totals = workload.totals(table["rows"], table["users"], table["sum"])
    rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    workload.report("dp_pipelines", rows, watch, len(table["key"]), totals)


if __name__ == "__main__":
    main()
