"""The fixed start of programs for PipelineDP under two imports: the figures of docs/pipeline_dp.md.

In: nothing; a program of 1,000 rows and one count with `LocalBackend`. Out: CPU seconds of whole processes on stdout: the
program, and its imports alone. Holds: medians of interleaved fresh processes with compiled modules. PipelineDP's own figures need
.venv-peers (`make bench` sets it up), and are left out without it. Not covered: large inputs (drop_in.py).

    python benchmarks/drop_in_start.py [--rounds 5]
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

from measure import PEERS_PYTHON, as_installed, spent

IMPORTS = "import importlib, sys\npipeline_dp = importlib.import_module(sys.argv[1])\n"

PROGRAM = (
    IMPORTS
    + """
rows = [(user, user % 5) for user in range(1_000)]
accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
params = pipeline_dp.AggregateParams(
    metrics=[pipeline_dp.Metrics.COUNT], max_partitions_contributed=1, max_contributions_per_partition=1
)
extractors = pipeline_dp.DataExtractors(
    privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1], value_extractor=lambda row: 0
)
result = engine.aggregate(rows, params, extractors)
accountant.compute_budgets()
assert len(list(result)) == 5
"""
)

WAYS = {
    "dp_pipelines": (pathlib.Path(sys.executable), "dp_pipelines.transforms.pipeline_dp"),
    "PipelineDP": (PEERS_PYTHON, "pipeline_dp"),
}


def measured(python: pathlib.Path, module: str, program: str) -> float:
    """Return the CPU seconds of a program in a process of its own."""
    before = spent()
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [str(python), "-c", program, module], capture_output=True, text=True, check=False, env=as_installed(cache)
        )
    if done.returncode:
        sys.exit(f"{module} failed\n{done.stderr[-2000:]}")
    return spent() - before


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    programs = {"1,000 rows, one count": PROGRAM, "its imports alone": IMPORTS}
    cases = {
        (way, name): (python, module, program)
        for way, (python, module) in WAYS.items()
        for name, program in programs.items()
        if python.exists()
    }
    seconds: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    for turn in range(rounds + 1):
        for case, arguments in cases.items():
            used = measured(*arguments)
            if turn:  # the first one compiles the modules
                seconds[case].append(used)
    for (way, name), of_case in seconds.items():
        print(f"{way}, {name}: {statistics.median(of_case):.1f} CPU s")


if __name__ == "__main__":
    main()
