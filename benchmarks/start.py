"""How long the library and the command line take to start, and how much of them a small job enters.

In: this checkout. Out: seconds (the median of some fresh processes) and numbers of modules. Holds: every figure is that of a
whole process; the interpreter's own start is told beside them. Not covered: the first start after an installation, which
compiles the modules.

    python benchmarks/start.py [--turns 9]
"""

import argparse
import pathlib
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

CALL = "import sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main(sys.argv[1:]))"

COUNTED = """
import sys
from dp_pipelines.jobs.cli.main import main
code = main(sys.argv[1:])
ours = [name for name in sys.modules if name.split(".")[0] == "dp_pipelines"]
print("modules", len(ours), len([name for name in ours if name.startswith("dp_pipelines.jobs")]))
sys.exit(code)
"""


def call(folder: pathlib.Path, code: str, *arguments: str) -> tuple[float, str]:
    """Seconds of a fresh process, and what it printed."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{arguments or code!r} failed\n{done.stderr[-2000:]}")
    return time.perf_counter() - begin, done.stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        (folder / "job.yaml").write_text(JOB)
        rows = {"customer": list(range(4000)), "product": [f"p{i % 4}" for i in range(4000)]}
        pa.parquet.write_table(pa.table(rows), folder / "rows.parquet")
        cases = {
            "python": ("pass",),
            "import dp_pipelines": ("import dp_pipelines",),
            "dp-pipelines --help": (
                "try:\n    " + CALL.replace("\n", "\n    ") + "\nexcept SystemExit: pass",
                "--help",
            ),
            "dp-pipelines plan, one metric": (CALL, "plan", "job.yaml"),
        }
        for name, arguments in cases.items():
            seconds = statistics.median(call(folder, *arguments)[0] for _ in range(turns))
            print(f"{name:32s} {seconds:.2f} s")
        took, said = call(folder, COUNTED, "run", "job.yaml", "--output", "out", "--ledger", "none")
        entered, of_jobs = said.split("modules ")[-1].split()
        print(
            f"{'dp-pipelines run, one metric':32s} {took:.2f} s; {entered} modules of ours, {of_jobs} of them in jobs/"
        )


if __name__ == "__main__":
    main()
