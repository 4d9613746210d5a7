"""The benchmark of the aggregation: speed and memory beside other systems, judged by gates.

In: nothing; the rows are made by data.py. Out: docs/benchmarks/aggregate.md and aggregate.png; progress on stderr, the
gates on stdout; exit code 1 if a gate of a full run fails. Needs .venv-peers (`make bench` sets it up). A full run
takes some ten minutes on two cores, which should have nothing else to do.

    python benchmarks/aggregate.py [--quick] [--rounds 5] [--out docs/benchmarks]
"""

import argparse
import pathlib
import sys

import matplotlib as mpl
from gates import FULL, QUICK, Gate, Measured, Sizes, cases, evaluate, gates_table
from measure import (
    DUCKDB,
    OURS,
    PEERS_PYTHON,
    PIPELINEDP,
    POLARS,
    BenchmarkError,
    Case,
    cores,
    interleave,
    read_options,
    runs_table,
    say,
    versions,
)

mpl.use("Agg")
from matplotlib import pyplot as plt

THREADS = 2  # of DuckDB and Polars, see peers/workload.py
QUIET = 1.6  # cores that DuckDB uses of them, on a machine with nothing else to do: some 1.8
COLOURS = {OURS: "#1f6f8b", DUCKDB: "#8a8a8a", POLARS: "#b5b5b5", PIPELINEDP: "#d1603d"}
INTRODUCTION = """# How fast the aggregation is

Written by `make bench` (`benchmarks/aggregate.py`); do not edit.

The query computes, for each key, the number of rows, the number of distinct users, and the sum and mean of a value clamped
to [0, 200]. A user counts in at most 4 keys, with at most 2 rows in each. The 1,000 keys follow Zipf's law (exponent 1.1);
users are skewed, with about 13 rows per user. dp_pipelines and PipelineDP publish under (1, 1e-6) and select the keys
privately. DuckDB and Polars bound contributions in the same way and publish **without any privacy**. Every run is a separate
process, and the runs of all systems are interleaved. Seconds are medians, measured from the Parquet files to the published
table, without imports. Planning (the calibration of noise) has its own column: dp_pipelines plans once, however many runs and
rows follow, and the `dp-pipelines` command keeps plans. Both systems on Beam use its in-memory runner in one process; DuckDB and
Polars use two threads.
"""


def extrapolation(measured: Measured, sizes: Sizes) -> str:
    """What PipelineDP would need for the large data set, at its measured rate."""
    seconds = measured[Case(PIPELINEDP, "even", sizes.small)].seconds * sizes.large / sizes.small
    factor = seconds / measured[Case(OURS, "even", sizes.large)].seconds
    return (
        f"At its rate with {sizes.small:,} rows PipelineDP would need {seconds:,.0f} s for {sizes.large:,} rows: "
        f"{factor:.0f} times as long as dp_pipelines."
    )


def with_planning(measured: Measured, sizes: Sizes) -> str:
    """The first two gates as they would be if planning were counted, for a run that cannot use a kept plan."""
    small, large = (measured[Case(OURS, "even", rows)] for rows in (sizes.small, sizes.large))
    theirs = measured[Case(PIPELINEDP, "even", sizes.small)].seconds
    fastest = min(measured[Case(system, "even", sizes.large)].seconds for system in (DUCKDB, POLARS))
    return (
        f"The gates leave planning out. With it, dp_pipelines is {theirs / (small.seconds + small.plan_seconds):.0f} times "
        f"as fast as PipelineDP at {sizes.small:,} rows and takes {(large.seconds + large.plan_seconds) / fastest:.2f} "
        f"times as long as the faster of DuckDB and Polars at {sizes.large:,}."
    )


def busy_note(measured: Measured, sizes: Sizes) -> str:
    """A warning where the machine had other work; empty where not.

    A busy core takes half of what DuckDB has and nothing of a system with one thread, so the comparison is unfair then.
    """
    runs = measured[Case(DUCKDB, "even", sizes.large)]
    used = runs.cpu_seconds / runs.seconds
    if cores() < THREADS or used >= QUIET:
        return ""
    return f"**The machine was busy:** DuckDB got {used:.1f} of its {THREADS} cores. Compare CPU seconds, and measure again.\n"


def page(measured: Measured, gates: list[Gate], sizes: Sizes, rounds: int) -> str:
    """The whole page."""
    here = versions(pathlib.Path(sys.executable), ["apache-beam", "duckdb", "numpy", "polars", "pyarrow"])
    peers = versions(PEERS_PYTHON, ["apache-beam", "numpy", "pipeline-dp"])
    parts = [
        INTRODUCTION,
        "## Gates\n",
        gates_table(gates) + "\n",
        extrapolation(measured, sizes) + "\n",
        with_planning(measured, sizes) + "\n",
        busy_note(measured, sizes),
        "![Seconds by system, by kind of rows and by size](aggregate.png)\n",
        "## All runs\n",
        runs_table(measured) + "\n",
        f"Machine: {cores()} cores. Rounds: {rounds} (PipelineDP: {_slow(rounds)}).",
        "dp_pipelines, DuckDB, Polars: " + ", ".join(f"{name} {version}" for name, version in here.items()) + ".",
        "PipelineDP: " + ", ".join(f"{name} {version}" for name, version in peers.items()) + ".",
    ]
    return "\n".join(parts) + "\n"


def plot(path: pathlib.Path, measured: Measured, sizes: Sizes) -> None:
    """Three panels: systems, kinds of rows, cost per row."""
    figure, (systems, kinds, scaling) = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    factor = sizes.large / sizes.small
    bars = {
        name: measured[Case(system, "even", rows)].seconds * scale
        for name, system, rows, scale in (
            ("dp_pipelines\n(private)", OURS, sizes.large, 1.0),
            ("DuckDB\n(not private)", DUCKDB, sizes.large, 1.0),
            ("Polars\n(not private)", POLARS, sizes.large, 1.0),
            ("PipelineDP\n(private, at its rate)", PIPELINEDP, sizes.small, factor),
        )
    }
    drawn = systems.bar(list(bars), list(bars.values()), color=list(COLOURS.values()))
    systems.bar_label(drawn, fmt="{:,.1f} s")
    systems.set_yscale("log")
    systems.margins(y=0.15)
    systems.set_title(f"{sizes.large:,} rows, seconds (log)")
    systems.tick_params(axis="x", labelsize=8)
    names = ("even", "hot_user", "hot_key", "strings")
    drawn = kinds.bar(names, [measured[Case(OURS, kind, sizes.large)].seconds for kind in names], color=COLOURS[OURS])
    kinds.bar_label(drawn, fmt="{:.2f} s")
    kinds.margins(y=0.1)
    kinds.set_title(f"dp_pipelines, {sizes.large:,} rows of other kinds")
    cost = [measured[Case(OURS, "even", rows)].seconds / rows * 1e9 for rows in sizes.scaling]
    scaling.plot(sizes.scaling, cost, marker="o", color=COLOURS[OURS])
    scaling.set_xscale("log")
    scaling.set_ylim(bottom=0)
    scaling.set_xlabel("rows")
    scaling.set_title("dp_pipelines, nanoseconds per row")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _slow(rounds: int) -> int:
    return min(3, rounds)


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Time and memory of the aggregation beside other systems.")
    options = read_options(parser, arguments, rounds=5)
    sizes = QUICK if options.quick else FULL
    try:
        measured = interleave(cases(sizes, options.rounds, _slow(options.rounds)))
    except BenchmarkError as error:
        say(f"aggregate.py: {error}")
        return 1
    gates = evaluate(measured, sizes)
    plot(options.out / "aggregate.png", measured, sizes)
    (options.out / "aggregate.md").write_text(page(measured, gates, sizes, options.rounds))
    print(gates_table(gates), busy_note(measured, sizes), sep="\n\n")
    return options.verdict("aggregate.md", all(gate.holds for gate in gates))


if __name__ == "__main__":
    sys.exit(main())
