"""The benchmark of the drop-in for PipelineDP: programs under two imports, judged by gates.

In: nothing; rows are made by data.py, ratings of films by peers/films.py. Out: docs/benchmarks/pipeline_dp.md; progress on
stderr, the gates on stdout; exit code 1 if one fails in a full run. Needs .venv-peers (`make bench` sets it up). A full run
takes some fifteen minutes on two cores.

    python benchmarks/drop_in.py [--quick] [--rounds 3] [--out docs/benchmarks]
"""

import argparse
import math
import pathlib
import sys

import films_runs
from gates import Gate, Measured, gates_table
from measure import (
    DROP_IN,
    PEERS_PYTHON,
    PIPELINEDP,
    BenchmarkError,
    Case,
    cores,
    interleave,
    read_options,
    runs_table,
    say,
    versions,
)

LIMIT = 15
BUSY = 1.5  # seconds for each CPU second of a program with one thread, on a machine with nothing else to do: some 1.0
INTRODUCTION = """# How fast PipelineDP's programs run here

Written by `make bench` (`benchmarks/drop_in.py`); do not edit.

One program (`benchmarks/peers/pipelinedp_beam.py`) reads rows as dictionaries with Beam's ReadFromParquet, uses three lambdas as
extractors, computes COUNT, PRIVACY_ID_COUNT, SUM and MEAN by key under (1, 1e-6) with private partitions, and writes the result
as text. It runs unchanged on PipelineDP, and with one changed import on dp_pipelines. Rows, bounds and machine are those of the
[aggregation page](aggregate.md). Both run on Beam's in-memory runner in one process; every run is a separate process, and runs
are interleaved. Seconds are medians, measured from the Parquet files to the written result, including extractors and planning,
without imports.
"""


def gate(measured: Measured, rows: int) -> Gate:
    """The ratio of medians.

    CPU seconds: each program uses one thread for nearly all of its time, and what else the machine does counts for neither.
    """
    found = [measured.get(Case(system, "even", rows)) for system in (PIPELINEDP, DROP_IN)]
    theirs, ours = (math.nan if runs is None else runs.cpu_seconds for runs in found)
    return Gate(
        name=f"faster than PipelineDP, {rows:,} rows, CPU seconds", figure=theirs / ours, limit=LIMIT, at_least=True
    )


def busy_note(measured: Measured) -> str:
    """A warning where the machine had other work; empty where not."""
    if all(runs.seconds < BUSY * runs.cpu_seconds for runs in measured.values()):
        return ""
    return "**The machine was busy:** the seconds include what other processes did. Compare the CPU seconds, as the gate does.\n"


def page(measured: Measured, programs: films_runs.Programs, gates: list[Gate], rounds: int) -> str:
    """The whole page."""
    here = versions(pathlib.Path(sys.executable), ["apache-beam", "numpy", "pipeline-dp", "pyarrow"])
    peers = versions(PEERS_PYTHON, ["apache-beam", "numpy", "pipeline-dp"])
    parts = [
        INTRODUCTION,
        "## Gates\n",
        gates_table(gates) + "\n",
        busy_note(measured),
        "## All runs of the program\n",
        runs_table(measured) + "\n",
        films_runs.section(programs) + "\n",
        "The kept keys are random, and a plan reserves half of delta for composition: see docs/pipeline_dp.md.\n",
        f"Machine: {cores()} cores. Rounds: {rounds}.",
        "dp_pipelines: " + ", ".join(f"{name} {version}" for name, version in here.items()) + ".",
        "PipelineDP: " + ", ".join(f"{name} {version}" for name, version in peers.items()) + ".",
    ]
    return "\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Time of one program on PipelineDP and on dp_pipelines.")
    options = read_options(parser, arguments, rounds=3)
    rows = 100_000 if options.quick else 1_000_000
    try:
        measured = interleave({Case(system, "even", rows): options.rounds for system in (DROP_IN, PIPELINEDP)})
        programs = films_runs.measured(rows, options.rounds)
    except BenchmarkError as error:
        say(f"drop_in.py: {error}")
        return 1
    gates = [gate(measured, rows), *films_runs.gates(programs)]
    (options.out / "pipeline_dp.md").write_text(page(measured, programs, gates, options.rounds))
    print(gates_table(gates))
    return options.verdict("pipeline_dp.md", all(gate.holds for gate in gates))


if __name__ == "__main__":
    sys.exit(main())
