"""How long `dp-pipelines plan` takes for jobs of many stages.

In: nothing; a job of N stages that differ in one bound. Out: docs/benchmarks/many_stages.md; the gates on stdout; exit code 1 if
one fails. Holds: CPU seconds of whole commands, each a fresh process with compiled modules and an empty plan cache; medians of
interleaved rounds. Not covered: a plan from the cache (start.py).

    python benchmarks/many_stages.py [--rounds 3] [--out docs/benchmarks]
"""

import argparse
import pathlib
import shutil
import statistics
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet
from gates import Gate, gates_table
from measure import cores
from start import CALL, call

NUMBERS = (1, 10, 100, 200)

HEAD = """dataset: many
privacy_unit: customer
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: rows.parquet}
stages:
"""

STAGE = """  s{number}:
    kind: aggregate
    partition_by: [product]
    bounds: {{max_partitions_contributed: 2, max_contributions_per_partition: 1}}
    metrics: {{rows: {{kind: count}}, total: {{kind: sum, column: price, min_value: 0, max_value: {highest}}}}}
"""

PAGE = """# How long a plan of many stages takes

Written by `make bench` (`benchmarks/many_stages.py`); do not edit.

`dp-pipelines plan` of a job whose stages have two metrics and private partitions each and differ in one bound. CPU seconds of the
whole command, Python's start included, with an empty plan cache; medians of {rounds} rounds on {cores}.

| stages | CPU seconds |
|---|---|
{rows}

Planning takes time in proportion to the stages: a search that exchanges one stage keeps the sums of all others, and equal
stages are worked out once.

{gates}
"""


def write_job(folder: pathlib.Path, number: int) -> str:
    """Write the job of so many stages and return the name of its file."""
    stages = "".join(STAGE.format(number=n, highest=10 + n) for n in range(number))
    (folder / f"{number}.yaml").write_text(HEAD + stages)
    return f"{number}.yaml"


def measured(rounds: int) -> dict[int, float]:
    """Return the CPU seconds of a command by the number of stages."""
    seconds: dict[int, list[float]] = {number: [] for number in NUMBERS}
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        rows = {"customer": [1, 2], "product": ["a", "b"], "price": [1.0, 2.0]}
        pa.parquet.write_table(pa.table(rows), folder / "rows.parquet")
        for turn in range(rounds + 1):
            for number in NUMBERS:
                shutil.rmtree(folder / "cache", ignore_errors=True)
                used = call(folder, CALL, "plan", write_job(folder, number))[1]
                if turn:  # the first one compiles the modules
                    seconds[number].append(used)
    return {number: statistics.median(of_number) for number, of_number in seconds.items()}


def judged(cpu: dict[int, float]) -> list[Gate]:
    """The gates: ratios of CPU seconds, which hold on slow machines too."""
    one = cpu[1]
    return [
        Gate(name="100 stages, in times one stage", figure=cpu[100] / one, limit=3),
        Gate(name="200 stages, in times 100, beyond one stage", figure=(cpu[200] - one) / (cpu[100] - one), limit=2.5),
    ]


def main() -> int:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"))
    options = parser.parse_args()
    cpu = measured(options.rounds)
    gates = judged(cpu)
    rows = "\n".join(f"| {number} | {seconds:.1f} |" for number, seconds in cpu.items())
    page = PAGE.format(rounds=options.rounds, cores=f"{cores()} cores", rows=rows, gates=gates_table(gates))
    (options.out / "many_stages.md").write_text(page)
    print(gates_table(gates))
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
