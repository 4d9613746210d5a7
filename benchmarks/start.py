"""How long the library and the command line take to start, and how much of them a small job enters.

In: this checkout. Out: seconds (the median of some fresh processes) and numbers of modules. Holds: every figure is that of a
whole process, with compiled modules and a plan cache of its own; beside it stands what the libraries that it cannot do without
take. Not covered: the first start after an installation, which compiles the modules.

    python benchmarks/start.py [--turns 9] [--gate]
"""

import argparse
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet

JOB = """
dataset: shop
privacy_unit: customer
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: rows.parquet}
stages:
  weekly:
    kind: aggregate
    partition_by: [product]
    bounds: {max_partitions_contributed: 3, max_contributions_per_partition: 2}
    metrics: {orders: {kind: count}}
"""

CALL = "import sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main())"

COUNTED = """
import sys
from dp_pipelines.jobs.cli.main import main
code = main()
ours = [name for name in sys.modules if name.split(".")[0] == "dp_pipelines"]
print("modules", len(ours), len([name for name in ours if name.startswith("dp_pipelines.jobs")]))
sys.exit(code)
"""


LIBRARIES = "import numpy, pyarrow.compute, pyarrow.parquet, pydantic, yaml, rich.console, rich.table"
"""What a job file, a plan and its table need in any case."""

GATES = {"import dp_pipelines": 1.5, "dp-pipelines --help": 4.0}
"""CPU seconds in those of `python -c pass`, at most."""

OF_LIBRARIES = {"dp-pipelines plan again": 2.5, "dp-pipelines plan": 3.0}
"""CPU seconds in those of importing `LIBRARIES`, at most."""


def spent() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def call(
    folder: pathlib.Path, code: str, *arguments: str, python: str | pathlib.Path = sys.executable
) -> tuple[float, float, str]:
    """Seconds and CPU seconds of a fresh process, and what it printed."""
    # Compiled modules, wherever they may be written, and no plan that an earlier measurement has left.
    own = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "XDG_CACHE_HOME": str(folder / "cache")}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin, before = time.perf_counter(), spent()
    done = subprocess.run(
        [python, "-c", code, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=kept | own,
    )
    if done.returncode:
        sys.exit(f"{arguments or code!r} failed\n{done.stderr[-2000:]}")
    return time.perf_counter() - begin, spent() - before, done.stdout


CASES = {
    "python": ("pass",),
    "libraries": (LIBRARIES,),
    "import dp_pipelines": ("import dp_pipelines",),
    "dp-pipelines --help": ("try:\n    " + CALL.replace("\n", "\n    ") + "\nexcept SystemExit: pass", "--help"),
    "dp-pipelines plan": (CALL, "plan", "job.yaml"),
    "dp-pipelines plan again": (CALL, "plan", "job.yaml"),
}
"""What is measured: by name the code of a process, and its arguments. They follow each other in this order."""


def write_job(folder: pathlib.Path) -> None:
    """Write a small job and its rows."""
    (folder / "job.yaml").write_text(JOB)
    rows = {"customer": list(range(4000)), "product": [f"p{i % 4}" for i in range(4000)]}
    pa.parquet.write_table(pa.table(rows), folder / "rows.parquet")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--gate", action="store_true", help="end with 1 where a start takes longer than its gate")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        write_job(folder)
        cpu: dict[str, float] = {}
        for name, arguments in CASES.items():
            call(folder, *arguments)  # compiles
            took = []
            for _ in range(given.turns):
                if name == "dp-pipelines plan":
                    shutil.rmtree(folder / "cache", ignore_errors=True)
                took.append(call(folder, *arguments)[:2])
            wall, cpu[name] = (statistics.median(numbers) for numbers in zip(*took, strict=True))
            print(f"{name:32s} {wall:.2f} s, {cpu[name]:.2f} CPU s")
        for ledger in ("none", "ledger"):
            options = ("--ledger", "none") if ledger == "none" else ()
            call(folder, COUNTED, "run", "job.yaml", "--output", f"compiled {ledger}", *options)
            wall, used, said = call(folder, COUNTED, "run", "job.yaml", "--output", f"out {ledger}", *options)
            entered, of_jobs = said.split("modules ")[-1].split()
            what = f"dp-pipelines run, {ledger}"
            print(f"{what:32s} {wall:.2f} s, {used:.2f} CPU s; {entered} modules of ours, {of_jobs} of them in jobs/")
    gates = {name: limit * cpu["python"] for name, limit in GATES.items()}
    gates |= {name: limit * cpu["libraries"] for name, limit in OF_LIBRARIES.items()}
    slow = [f"{name}: {cpu[name]:.2f} CPU s, gate {gate:.2f}" for name, gate in gates.items() if cpu[name] > gate]
    if given.gate and slow:
        sys.exit("\n".join(slow))


if __name__ == "__main__":
    main()
