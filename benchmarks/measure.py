"""Run the systems side by side, each run a process of its own, and keep what each reports.

In: cases (system, data set, number of rows, rounds). Out: for each case its runs. Holds: the runs are interleaved, one
round of all cases after the other, so that a busy minute of the machine hits all of them; a run that fails ends the
benchmark with what it said. Standard library only.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping

import data

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent
PEERS_PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"
OURS, DUCKDB, POLARS, PIPELINEDP = "dp_pipelines on Beam", "DuckDB", "Polars", "PipelineDP on Beam"
OURS_QUANTILES = "dp_pipelines, five quantiles more"
DROP_IN = "dp_pipelines by PipelineDP's program"
SCRIPTS = {
    OURS_QUANTILES: (pathlib.Path(sys.executable), "ours_quantiles.py"),
    OURS: (pathlib.Path(sys.executable), "ours.py"),
    DUCKDB: (pathlib.Path(sys.executable), "duckdb_bounded.py"),
    POLARS: (pathlib.Path(sys.executable), "polars_bounded.py"),
    PIPELINEDP: (PEERS_PYTHON, "pipelinedp_beam.py"),
    DROP_IN: (pathlib.Path(sys.executable), "pipelinedp_changed_import.py"),
}
LIMIT_SECONDS = 1_800


class BenchmarkError(Exception):
    """What failed, in one line or with the end of what the process said."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One system on one data set.

    Args:
        system: one of SCRIPTS.
        kind: one of data.KINDS.
        rows: number of rows.
    """

    system: str
    kind: str
    rows: int

    def __str__(self) -> str:
        return f"{self.system}, {self.kind}, {self.rows:,} rows"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What one process reported.

    Args:
        plan_seconds: planning, before a row is read.
        seconds: the query from files to published table.
        cpu_seconds: in it, of all threads.
        import_seconds: before it.
        max_rss_mib: peak memory of the process.
        partitions: keys in the result.
        totals: rows, users and sum over these keys.
    """

    plan_seconds: float
    seconds: float
    cpu_seconds: float
    import_seconds: float
    max_rss_mib: float
    partitions: int
    totals: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Runs:
    """All runs of one case."""

    runs: tuple[Run, ...]

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def spread(self) -> tuple[float, float]:
        """Fastest and slowest."""
        return min(run.seconds for run in self.runs), max(run.seconds for run in self.runs)

    @property
    def plan_seconds(self) -> float:
        """The median."""
        return statistics.median(run.plan_seconds for run in self.runs)

    @property
    def cpu_seconds(self) -> float:
        """The median."""
        return statistics.median(run.cpu_seconds for run in self.runs)

    @property
    def import_seconds(self) -> float:
        """The median."""
        return statistics.median(run.import_seconds for run in self.runs)

    @property
    def peak_mib(self) -> float:
        """The largest peak of all runs."""
        return max(run.max_rss_mib for run in self.runs)

    @property
    def partitions(self) -> int:
        """The median, rounded down."""
        return int(statistics.median(run.partitions for run in self.runs))


def say(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def check_ready(cases: Iterable[Case]) -> None:
    """Refuse to start without the environments that the cases need."""
    for case in cases:
        python, _ = SCRIPTS[case.system]
        if not python.exists():
            raise BenchmarkError(f"{case.system} needs .venv-peers, which `make bench` sets up (Python 3.11 to 3.13)")


def parse(stdout: str) -> Run:
    """The report among what a process printed: its last line.

    Raises:
        BenchmarkError: there is none.
    """
    lines = stdout.strip().splitlines()
    try:
        line = json.loads(lines[-1])
        return Run(**{field.name: line[field.name] for field in dataclasses.fields(Run)})
    except (IndexError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise BenchmarkError("a system printed no report") from error


def run_once(case: Case) -> Run:
    """One process, from start to report."""
    python, script = SCRIPTS[case.system]
    folder = data.folder_of(case.kind, case.rows)
    if not folder.is_dir():
        say(f"making {folder}")
        # In a process of its own, so that this one stays small.
        subprocess.run(
            [sys.executable, str(HERE / "data.py"), case.kind, str(case.rows)], check=True, stdout=sys.stderr
        )
    command = [str(python), str(HERE / "peers" / script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        raise BenchmarkError(f"{case} failed with exit code {done.returncode}:\n{done.stderr[-2_000:]}")
    return parse(done.stdout)


def interleave(rounds: Mapping[Case, int]) -> dict[Case, Runs]:
    """Run every case as many times as asked, round by round."""
    check_ready(rounds)
    kept: dict[Case, list[Run]] = {case: [] for case in rounds}
    most = max(rounds.values())
    begin = time.monotonic()
    for turn in range(most):
        for case, wanted in rounds.items():
            if turn < wanted:
                run = run_once(case)
                kept[case].append(run)
                at = f"[{(time.monotonic() - begin) / 60:4.1f} min] round {turn + 1}/{most}"
                say(f"{at}: {case}: {run.seconds:.2f} s, {run.max_rss_mib:.0f} MiB")
    return {case: Runs(tuple(runs)) for case, runs in kept.items()}


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions(python: pathlib.Path, packages: Iterable[str]) -> dict[str, str]:
    """The versions of these packages in an environment, and of its Python."""
    program = (
        "import importlib.metadata as m, json, platform, sys;"
        "print(json.dumps({'Python': platform.python_version(), **{name: m.version(name) for name in sys.argv[1:]}}))"
    )
    done = subprocess.run([str(python), "-c", program, *packages], check=True, capture_output=True, text=True)
    answer: dict[str, str] = json.loads(done.stdout)
    return answer
