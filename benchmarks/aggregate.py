"""The benchmark of the aggregation: speed and memory beside other systems, judged by gates.

In: nothing; the rows are made by data.py. Out: docs/benchmarks/aggregate.md and aggregate.png; progress on stderr, the
gates on stdout; exit code 1 if a gate of a full run fails. Needs .venv-peers (`make bench` sets it up). A full run
takes some fifteen minutes on two cores, which should have nothing else to do; `--large`, a hundred million rows within
four GiB, takes five more and some 4 GB of disk.

    python benchmarks/aggregate.py [--quick] [--large] [--rounds 5] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import pathlib
import sys

import matplotlib as mpl
from gates import CLOSE, FULL, LARGEST_GIB, QUICK, Gate, Measured, Sizes, cases, evaluate, gates_table
from measure import (
    DUCKDB,
    LOCAL,
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

LARGEST = 100_000_000
THREADS = 2  # of all systems unless the table says otherwise
QUIET = 1.6  # cores that DuckDB uses of them, on a machine with nothing else to do: some 1.8
COLOURS = {LOCAL: "#1f6f8b", DUCKDB: "#8a8a8a", POLARS: "#b5b5b5", OURS: "#7fb4c6", PIPELINEDP: "#d1603d"}
INTRODUCTION = f"""# How fast the aggregation is

Written by `make bench` (`benchmarks/aggregate.py`); do not edit.

The query computes, for each key, the number of rows, the number of distinct users, and the sum and mean of a value clamped
to [0, 200]. A user counts in at most 4 keys, with at most 2 rows in each. The 1,000 keys follow Zipf's law (exponent 1.1);
users are skewed, with about 13 rows per user. dp_pipelines and PipelineDP publish under (1, 1e-6) and select the keys
privately. DuckDB and Polars bound contributions in the same way and publish **without any privacy**.

* Every run is a separate process, and the runs of all systems are interleaved. Compared are the medians, or where a gate says
  "relative to", the median of the ratios of runs in the same round.
* Before each run the same system answers the query on 100,000 rows, and the files of the run are read once: libraries, compiled
  modules and tables are in the memory of the machine, whoever comes first.
* **dp_pipelines** is `dp-pipelines run` with its default runner, in threads of one process. Its whole process starts Python,
  checks a job file, plans (no plan was kept from another run), reads, releases, and writes a report and a manifest beside the
  table. "Query" is what its threads do, from the files to the staged table.
* **DuckDB and Polars**: the whole process imports the library, runs the query and writes the table; "query" is the latter two.
* **On Beam** dp_pipelines and PipelineDP use Beam's in-memory runner in one process. Planning (the calibration of noise) and
  imports have columns of their own.
* Within {LARGEST_GIB} GiB: dp_pipelines has a limit on its address space (`RLIMIT_AS`), which nothing can exceed; DuckDB has its
  own `memory_limit`, and a folder for what does not fit.
"""


def extrapolation(measured: Measured, sizes: Sizes) -> str:
    """What PipelineDP would need for the large data set, at its measured rate."""
    seconds = measured[Case(PIPELINEDP, "even", sizes.small)].seconds * sizes.large / sizes.small
    factors = [seconds / measured[Case(system, "even", sizes.large)].seconds for system in (LOCAL, OURS)]
    return (
        f"At its rate with {sizes.small:,} rows PipelineDP would need {seconds:,.0f} s for {sizes.large:,} rows: "
        f"{factors[0]:.0f} times as long as dp_pipelines, {factors[1]:.0f} times as long as dp_pipelines on Beam."
    )


def curve(measured: Measured, sizes: Sizes) -> str:
    """How the query gets faster with threads."""
    lines = [
        "| threads | "
        + " | ".join(f"{system}, s | relative to one thread" for system in (LOCAL, DUCKDB, POLARS))
        + " |"
    ]
    lines.append("|---" * 7 + "|")
    for threads in sorted({THREADS, *sizes.threads}):
        cells = []
        for system in (LOCAL, DUCKDB, POLARS):
            one, many = (measured[Case(system, "even", sizes.large, threads=n)].data_seconds for n in (1, threads))
            cells += [f"{many:.2f}", f"{one / many:.2f}x"]
        lines.append(f"| {threads} | " + " | ".join(cells) + " |")
    more = "" if cores() > THREADS else f" No machine with more than {THREADS} cores was at hand."
    return (
        "\n".join(lines) + f"\n\nSeconds of the query, of dp_pipelines without the noise, {sizes.large:,} rows.{more}"
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
        busy_note(measured, sizes),
        "![Seconds by system, by kind of rows and by size](aggregate.png)\n",
        "## Threads\n",
        curve(measured, sizes) + "\n",
        "## All runs\n",
        runs_table(measured) + "\n",
        f"Machine: {cores()} cores. Rounds: {rounds} (PipelineDP, and the largest size: {_slow(rounds)}; dp_pipelines and DuckDB "
        f"at {sizes.large:,} rows, which are close: {CLOSE * rounds}).",
        "dp_pipelines, DuckDB, Polars: " + ", ".join(f"{name} {version}" for name, version in here.items()) + ".",
        "PipelineDP: " + ", ".join(f"{name} {version}" for name, version in peers.items()) + ".",
    ]
    return "\n".join(parts) + "\n"


def plot(path: pathlib.Path, measured: Measured, sizes: Sizes) -> None:
    """Three panels: systems, kinds of rows, cost per row."""
    figure, (systems, kinds, scaling) = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    factor = sizes.large / sizes.small
    bars = {
        name: measured[Case(system, "even", rows)].whole_seconds * scale
        for name, system, rows, scale in (
            ("dp_pipelines\n(private)", LOCAL, sizes.large, 1.0),
            ("DuckDB\n(not private)", DUCKDB, sizes.large, 1.0),
            ("Polars\n(not private)", POLARS, sizes.large, 1.0),
            ("dp_pipelines\non Beam", OURS, sizes.large, 1.0),
            ("PipelineDP\non Beam, at\nits rate", PIPELINEDP, sizes.small, factor),
        )
    }
    drawn = systems.bar(list(bars), list(bars.values()), color=list(COLOURS.values()))
    systems.bar_label(drawn, fmt="{:,.1f} s")
    systems.set_yscale("log")
    systems.margins(y=0.15)
    systems.set_title(f"{sizes.large:,} rows, whole process, seconds (log)")
    systems.tick_params(axis="x", labelsize=8)
    names = ("even", "hot_user", "hot_key", "strings")
    drawn = kinds.bar(names, [measured[Case(LOCAL, kind, sizes.large)].seconds for kind in names], color=COLOURS[LOCAL])
    kinds.bar_label(drawn, fmt="{:.2f} s")
    kinds.margins(y=0.1)
    kinds.set_title(f"dp_pipelines, query on {sizes.large:,} rows of other kinds")
    cost = {rows: measured[Case(LOCAL, "even", rows)].seconds / rows * 1e9 for rows in sizes.scaling}
    if sizes.largest is not None:
        largest = measured[Case(LOCAL, "even", sizes.largest, memory_gib=LARGEST_GIB)]
        cost[sizes.largest] = largest.seconds / sizes.largest * 1e9
    scaling.plot(list(cost), list(cost.values()), marker="o", color=COLOURS[LOCAL])
    scaling.set_xscale("log")
    scaling.set_ylim(bottom=0)
    scaling.set_xlabel("rows")
    scaling.set_title("dp_pipelines, query, nanoseconds per row")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _slow(rounds: int) -> int:
    return min(3, rounds)


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Time and memory of the aggregation beside other systems.")
    parser.add_argument("--large", action="store_true", help=f"also {LARGEST:,} rows within {LARGEST_GIB} GiB")
    options = read_options(parser, arguments, rounds=5)
    sizes = QUICK if options.quick else FULL
    more = tuple(2**power for power in range(2, cores().bit_length()))
    sizes = dataclasses.replace(sizes, largest=LARGEST if options.given.large else None, threads=(1, *more))
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
