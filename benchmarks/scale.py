"""How the cost of a row, the memory and the bytes shuffled grow with the rows, on `direct` and on a Flink of two task managers.

In: nothing; the rows are made by data.py, kind `even`, the query is that of aggregate.py as a job. Out:
docs/benchmarks/scale.json (every run), scale.md and scale.png from it; the gates on stdout; exit code 1 if one fails. Holds: all
sizes are measured in turns on one cluster, their files read before. Needs Java, the jar of `make test-flink`, and a machine that
does nothing else: with two cores, one more process makes a run on Flink up to three times as long. The largest size needs some 2
GB of disk for rows, as much for what Flink spills, and 16 GiB of memory; three rounds take a quarter of an hour.

    python benchmarks/scale.py [--rounds 3] [--small] [--page] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import json
import math
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping

import data
import matplotlib as mpl
from gates import Gate, gates_table
from measure import HERE, REPOSITORY, BenchmarkError, cores, say
from scale_runs import Run, flink, measured

mpl.use("Agg")
from matplotlib import pyplot as plt

TINY, SIZES, LARGEST = 100_000, (1_000_000, 10_000_000), 100_000_000
JUDGED = SIZES[-1]
RUNNERS = ("direct", "flink")
HAND_OVER = ("jobmanager", "driver, java")
"""Processes that see no rows: the JobManager and the job server."""

COLOURS = {"direct": "#1f6f8b", "flink": "#d1603d"}

Runs = dict[str, list[Run]]

INTRODUCTION = """# How the aggregation scales

Written by `python benchmarks/scale.py`; do not edit. What this means for ten billion rows: [scale.md](../scale.md).

The query and the rows are those of [aggregate.md](aggregate.md) (24 bytes per row: user, key, value), run as a job by
`dp-pipelines run`. `flink` is a standalone Flink 1.19 with a JobManager, two task managers with one slot and 512 MB of managed
memory each, `--parallelism=2`, and workers in the driver's process (LOOPBACK).

* Gates and costs per row use the fastest run of each case, because a job on Flink occasionally waits about six seconds for
  nothing, at any size. All runs are in scale.json.
* "Seconds" are those of the pipeline: on Flink from the `start-time` to the `end-time` of the job, as the REST API reports them;
  on `direct` from the moment the pipeline is handed over. "Start-up" is the same with 100,000 rows on the same cluster: what it
  takes to start workers and steps, whatever the rows.
* CPU is that of the driver with its workers and of the task managers while the command ran (the job server and the JobManager
  see no rows). Memory is the peak of all processes together (proportional set sizes, sampled twice a second).
* "B/row" on Flink is the bytes sent from one task to another, by Flink's own count, which includes each of the two shuffles
  twice: into the grouping step and out of it. On `direct` it is the bytes of Arrow tables that one step wrote for another.
"""


def key(runner: str, rows: int) -> str:
    """The name of a case in the JSON."""
    return f"{runner} {rows}"


def least(kept: Mapping[str, list[Run]], runner: str, rows: int, of: Callable[[Run], float]) -> float:
    """The least figure of the runs of a case: what waits for other things only adds to it; NaN where there are none."""
    return min(map(of, kept.get(key(runner, rows), [])), default=math.nan)


def net(kept: Mapping[str, list[Run]], runner: str, rows: int, of: Callable[[Run], float]) -> float:
    """The same without start-up."""
    return least(kept, runner, rows, of) - least(kept, runner, TINY, of)


def seconds(run: Run) -> float:
    """Of the pipeline."""
    return run.seconds


def cpu(run: Run) -> float:
    """Of the driver with its workers, and of the task managers: the others only hand jobs over."""
    return sum(spent for name, spent in run.cpu_by_name.items() if name not in HAND_OVER)


def evaluate(kept: Mapping[str, list[Run]]) -> list[Gate]:
    """The gates; one without figures fails."""
    memory = [run.peak_mib for name, runs in kept.items() if name.startswith("flink") for run in runs]
    measured_largest = key("flink", LARGEST) in kept
    return [
        Gate(
            name=f"CPU per row on Flink without start-up, {LARGEST:,} rows relative to {JUDGED:,}",
            figure=net(kept, "flink", LARGEST, cpu) / LARGEST / (net(kept, "flink", JUDGED, cpu) / JUDGED),
            limit=1.5,
        ),
        Gate(
            name=f"seconds per row on Flink without start-up, {LARGEST:,} rows relative to {JUDGED:,}",
            figure=net(kept, "flink", LARGEST, seconds) / LARGEST / (net(kept, "flink", JUDGED, seconds) / JUDGED),
            limit=1.5,
        ),
        Gate(
            name=f"memory of all processes on Flink, up to {LARGEST:,} rows",
            figure=max(memory) / 1024 if measured_largest else math.nan,
            limit=16,
            unit=" GiB",
        ),
        Gate(
            name=f"Flink relative to direct without start-up, seconds, {JUDGED:,} rows",
            figure=net(kept, "flink", JUDGED, seconds) / net(kept, "direct", JUDGED, seconds),
            limit=2,
        ),
    ]


def sizes_of(kept: Mapping[str, list[Run]], runner: str) -> list[int]:
    """The sizes that were measured on a runner, the tiny one not."""
    return [rows for rows in (*SIZES, LARGEST) if key(runner, rows) in kept]


def runs_table(kept: Mapping[str, list[Run]]) -> str:
    """One line a case, medians; a row's cost is without start-up."""
    lines = [
        "| runner | rows | runs | seconds (range) | ns/row | CPU s | CPU ns/row | peak GiB | B/row | largest element | keys |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for runner in RUNNERS:
        for rows in (TINY, *sizes_of(kept, runner)):
            runs = kept.get(key(runner, rows), [])
            if not runs:
                continue
            took = [run.seconds for run in runs]
            per_row = [
                f"{net(kept, runner, rows, of) / rows * 1e9:.0f}" if rows != TINY else "" for of in (seconds, cpu)
            ]
            lines.append(
                f"| {runner} | {rows:,} | {len(runs)} | {statistics.median(took):.1f} ({min(took):.1f} to {max(took):.1f}) "
                f"| {per_row[0]} | {statistics.median(map(cpu, runs)):.1f} | {per_row[1]} "
                f"| {max(run.peak_mib for run in runs) / 1024:.2f} | {runs[0].shuffled_bytes / rows:.1f} "
                f"| {max(run.largest_element for run in runs) / 2**20:.2f} MiB | {runs[0].keys:,} |"
            )
    return "\n".join(lines)


def memory_table(kept: Mapping[str, list[Run]]) -> str:
    """The processes of the largest run, at its worst moment."""
    rows = sizes_of(kept, "flink")[-1]
    run = max(kept[key("flink", rows)], key=lambda run: run.peak_mib)
    lines = [f"| process, {rows:,} rows on Flink | MiB at the peak | CPU s |", "|---|---|---|"]
    names = {"driver": "driver, with the workers", "driver, java": "job server"}
    for name in sorted(run.cpu_by_name):
        lines.append(
            f"| {names.get(name, name)} | {run.peak_by_name.get(name, 0):,.0f} | {run.cpu_by_name[name]:,.1f} |"
        )
    return "\n".join(lines)


def page(kept: Mapping[str, list[Run]]) -> str:
    """The whole page."""
    beside = net(kept, "flink", JUDGED, cpu) / net(kept, "direct", JUDGED, cpu)
    return (
        "\n\n".join(
            [
                INTRODUCTION.strip(),
                "## Gates",
                gates_table(evaluate(kept)),
                "![Cost of a row, memory and bytes shuffled by the number of rows](scale.png)",
                "## All runs",
                runs_table(kept),
                memory_table(kept),
                f"CPU per row at {JUDGED:,} rows: {beside:.1f} times that of `direct` (no gate: every shuffled byte passes "
                "through the task managers, which are Java).",
                f"Machine: {cores()} cores.",
            ]
        )
        + "\n"
    )


def plot(path: pathlib.Path, kept: Mapping[str, list[Run]]) -> None:
    """Three panels: cost of a row, memory, bytes shuffled."""
    figure, (cost, memory, shuffled) = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    for runner in RUNNERS:
        rows = sizes_of(kept, runner)
        drawn = {"marker": "o", "color": COLOURS[runner], "label": runner}
        cost.plot(rows, [net(kept, runner, size, cpu) / size * 1e9 for size in rows], **drawn)
        peaks = [max(run.peak_mib for run in kept[key(runner, size)]) / 1024 for size in rows]
        memory.plot(rows, peaks, **drawn)
        moved = [kept[key(runner, size)][0].shuffled_bytes / size for size in rows]
        shuffled.plot(rows, moved, **drawn)
    memory.axhline(16, color="#8a8a8a", linestyle="--", label="limit")
    for panel, title in (
        (cost, "CPU of a row without start-up, ns"),
        (memory, "peak memory of all processes, GiB"),
        (shuffled, "bytes shuffled per row"),
    ):
        panel.set_xscale("log")
        panel.set_ylim(bottom=0)
        panel.set_xlabel("rows")
        panel.set_title(title)
        panel.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def rows_folder(rows: int) -> pathlib.Path:
    """The folder with so many rows, made in a process of its own where it is not there."""
    folder = data.folder_of("even", rows)
    if not folder.is_dir():
        say(f"making {rows:,} rows")
        subprocess.run([sys.executable, str(HERE / "data.py"), "even", str(rows)], check=True, stdout=sys.stderr)
    return folder


def measure_all(rounds: int, small: bool, keep: Callable[[Runs], None]) -> None:
    """Interleaved rounds of every case on one cluster, whose first job is left out.

    Args:
        rounds, small: as on the command line.
        keep: is given all that was measured so far after each run, so that what is interrupted is not lost.
    """
    found: Runs = {}
    with flink() as (running, options):

        def once(runner: str, rows: int) -> None:
            cluster, given = (running, options) if runner == "flink" else (None, [])
            for path in rows_folder(rows).iterdir():  # else the first run waits for the disk
                path.read_bytes()
            run = measured(rows_folder(rows), runner, given, cluster)
            found.setdefault(key(runner, rows), []).append(run)
            per_row = f"{run.shuffled_bytes / rows:.1f} B/row"
            keep(found)
            say(
                f"{runner}, {rows:,} rows: {run.seconds:.1f} s, CPU {run.cpu_seconds:.1f} s, {run.peak_mib:.0f} MiB, {per_row}"
            )

        measured(rows_folder(TINY), "flink", options, running)  # the cluster has loaded its classes then
        for _ in range(rounds):
            for rows in (TINY, *SIZES):
                for runner in RUNNERS:
                    once(runner, rows)
            if not small:
                once("flink", LARGEST)


def load(path: pathlib.Path) -> Runs:
    """What was measured before."""
    if not path.is_file():
        return {}
    return {name: [Run(**run) for run in runs] for name, runs in json.loads(path.read_text()).items()}


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Cost, memory and shuffled bytes by the number of rows.")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--small", action="store_true", help=f"leave out {LARGEST:,} rows, whose gates then fail")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the JSON")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "scale.json"
    kept = load(path) if options.page else {}

    def keep(found: Runs) -> None:
        kept.update(found)
        written = {name: [dataclasses.asdict(run) for run in runs] for name, runs in sorted(kept.items())}
        path.write_text(json.dumps(written, indent=1) + "\n")

    try:
        if not options.page:
            measure_all(options.rounds, options.small, keep)
    except BenchmarkError as error:
        say(f"scale.py: {error}")
        return 1
    plot(options.out / "scale.png", kept)
    (options.out / "scale.md").write_text(page(kept))
    gates = evaluate(kept)
    print(gates_table(gates))
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
