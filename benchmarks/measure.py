"""Run the systems side by side, each run a process of its own, and keep what each reports.

In: cases (system, data set, number of rows, rounds). Out: for each case its runs. Holds: the runs are interleaved, one
round of all cases after the other, so that a busy minute of the machine hits all of them; a run that fails ends the
benchmark with what it said. Standard library only.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping

import data

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent
PEERS_PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"
LOCAL, DUCKDB, POLARS = "dp_pipelines", "DuckDB", "Polars"
OURS, PIPELINEDP = "dp_pipelines on Beam", "PipelineDP on Beam"
QUANTILES = "dp_pipelines, five quantiles more"
DROP_IN = "dp_pipelines by PipelineDP's program"
SCRIPTS = {
    LOCAL: (pathlib.Path(sys.executable), "ours_local.py"),
    QUANTILES: (pathlib.Path(sys.executable), "ours_quantiles.py"),
    OURS: (pathlib.Path(sys.executable), "ours.py"),
    DUCKDB: (pathlib.Path(sys.executable), "duckdb_bounded.py"),
    POLARS: (pathlib.Path(sys.executable), "polars_bounded.py"),
    PIPELINEDP: (PEERS_PYTHON, "pipelinedp_beam.py"),
    DROP_IN: (pathlib.Path(sys.executable), "pipelinedp_changed_import.py"),
}
LIMIT_SECONDS = 1_800
FIRST_ROWS = 100_000
"""Of the run before all others, in which each system compiles its modules."""


class BenchmarkError(Exception):
    """What failed, in one line or with the end of what the process said."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One system on one data set.

    Args:
        system: one of SCRIPTS.
        kind: one of data.KINDS.
        rows: number of rows.
        threads: of the system; those on Beam choose themselves.
        memory_gib: what it may take; None: what there is.
    """

    system: str
    kind: str
    rows: int
    threads: int = 2
    memory_gib: int | None = None

    def __str__(self) -> str:
        threads = "" if self.threads == 2 else f", threads: {self.threads}"
        memory = "" if self.memory_gib is None else f", within {self.memory_gib} GiB"
        return f"{self.system}, {self.kind}, {self.rows:,} rows{threads}{memory}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What one process reported.

    Args:
        plan_seconds: planning, before a row is read.
        seconds: the query from files to published table.
        cpu_seconds: in it, of all threads.
        data_seconds: the part of it that handles rows: without noise, whose tables are built once for any number of rows.
        import_seconds: before it.
        max_rss_mib: peak memory of the process.
        partitions: keys in the result.
        totals: rows, users and sum over these keys.
        whole_seconds, whole_cpu_seconds: of the process, from starting it to its end. Its parent measures them.
    """

    plan_seconds: float
    seconds: float
    cpu_seconds: float
    data_seconds: float
    import_seconds: float
    max_rss_mib: float
    partitions: int
    totals: Mapping[str, float]
    whole_seconds: float = math.nan
    whole_cpu_seconds: float = math.nan


@dataclasses.dataclass(frozen=True)
class Runs:
    """All runs of one case."""

    runs: tuple[Run, ...]

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def data_seconds(self) -> float:
        """The median."""
        return statistics.median(run.data_seconds for run in self.runs)

    @property
    def spread(self) -> tuple[float, float]:
        """Fastest and slowest."""
        return min(run.seconds for run in self.runs), max(run.seconds for run in self.runs)

    @property
    def whole_seconds(self) -> float:
        """The median."""
        return statistics.median(run.whole_seconds for run in self.runs)

    @property
    def whole_cpu_seconds(self) -> float:
        """The median."""
        return statistics.median(run.whole_cpu_seconds for run in self.runs)

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
        told = [field.name for field in dataclasses.fields(Run) if field.default is dataclasses.MISSING]
        return Run(**{name: line[name] for name in told})
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
    with tempfile.TemporaryDirectory() as plans:
        begin, before = time.monotonic(), spent()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, env=surroundings(case, plans)
        )
        whole, cpu = time.monotonic() - begin, spent() - before
    if done.returncode != 0:
        raise BenchmarkError(f"{case} failed with exit code {done.returncode}:\n{done.stderr[-2_000:]}")
    return dataclasses.replace(parse(done.stdout), whole_seconds=whole, whole_cpu_seconds=cpu)


def as_installed(plans: str) -> dict[str, str]:
    """The environment of a process: no plan is kept from another run, but modules are compiled, as after an installation."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"XDG_CACHE_HOME": plans, "PYTHONPYCACHEPREFIX": str(data.FOLDER / "compiled")}


def surroundings(case: Case, plans: str) -> dict[str, str]:
    """The environment of a process that answers a case."""
    given = {"BENCHMARK_THREADS": str(case.threads), "BENCHMARK_GIB": str(case.memory_gib or "")}
    return as_installed(plans) | given


def spent() -> float:
    """CPU seconds of all processes of ours that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def warm_up(case: Case) -> None:
    """Have the files of a case, its system's libraries and its compiled modules in memory: minutes of other cases may drop them.

    Without it, whichever system reads a table first in a round would wait for the disk, and the others would not.
    """
    if case.system != PIPELINEDP:  # its seconds are so many that these do not show
        run_once(Case(case.system, "even", FIRST_ROWS))
    for path in data.folder_of(case.kind, case.rows).glob("*.parquet"):
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass


def interleave(rounds: Mapping[Case, int]) -> dict[Case, Runs]:
    """Run every case as many times as asked, round by round."""
    check_ready(rounds)
    kept: dict[Case, list[Run]] = {case: [] for case in rounds}
    most = max(rounds.values())
    begin = time.monotonic()
    for turn in range(most):
        for case, wanted in rounds.items():
            if turn < wanted:
                warm_up(case)
                run = run_once(case)
                kept[case].append(run)
                at = f"[{(time.monotonic() - begin) / 60:4.1f} min] round {turn + 1}/{most}"
                whole = f"{run.whole_seconds:.2f} s, {run.whole_cpu_seconds:.2f} CPU s"
                say(f"{at}: {case}: {whole}, {run.seconds:.2f} s of it the query, {run.max_rss_mib:.0f} MiB")
    return {case: Runs(tuple(runs)) for case, runs in kept.items()}


def paired(measured: Mapping[Case, Runs], one: Case, other: Case, of: Callable[[Run], float]) -> float:
    """The median of the ratios of two cases in the same round; NaN where one is missing.

    A minute in which the machine has other work so counts for both.
    """
    if one not in measured or other not in measured:
        return math.nan
    pairs = zip(measured[one].runs, measured[other].runs, strict=False)
    return statistics.median(of(first) / of(second) for first, second in pairs)


def runs_table(measured: Mapping[Case, Runs]) -> str:
    """One line a case; systems on the same rows stand together, fastest first."""
    lines = [
        "| system | rows are | rows | threads | whole process, s | its CPU s | query, s: median (range) | its CPU s | Mrows/s "
        "| plan s | imports s | peak GiB | keys |",
        "|---" * 13 + "|",
    ]

    def place(case: Case) -> tuple[object, ...]:
        return case.rows, case.kind != "even", case.kind, case.memory_gib or 0, measured[case].whole_seconds

    for case in sorted(measured, key=place):
        runs = measured[case]
        low, high = runs.spread
        threads = "" if case.system in (OURS, PIPELINEDP, DROP_IN) else str(case.threads)
        within = "" if case.memory_gib is None else f", within {case.memory_gib} GiB"
        lines.append(
            f"| {case.system} | {case.kind}{within} | {case.rows:,} | {threads} | {runs.whole_seconds:.2f} "
            f"| {runs.whole_cpu_seconds:.2f} | {runs.seconds:.2f} ({low:.2f} to {high:.2f}) "
            f"| {runs.cpu_seconds:.2f} | {case.rows / runs.seconds / 1e6:.3g} | {runs.plan_seconds:.2f} "
            f"| {runs.import_seconds:.2f} | {runs.peak_mib / 1024:.2f} | {runs.partitions:,} |"
        )
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What a benchmark beside other systems was asked for.

    Args:
        quick: a look at few rows, whose figures are no verdict.
        rounds: how often each case runs.
        out: the folder of the page.
        given: all arguments.
    """

    quick: bool
    rounds: int
    out: pathlib.Path
    given: argparse.Namespace

    def verdict(self, page: str, holds: bool) -> int:
        """Say where the page is. The exit code."""
        say(f"written: {self.out / page}")
        if self.quick:
            say("a quick run: its figures are no verdict")
        return 0 if self.quick or holds else 1


def read_options(parser: argparse.ArgumentParser, arguments: list[str] | None, *, rounds: int) -> Options:
    """Read `--quick`, `--rounds` and `--out`, and make the folder.

    Args:
        parser: gets these options.
        arguments: of the command line.
        rounds: of a full run.
    """
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round: a look, not a verdict")
    parser.add_argument("--rounds", type=int, help=f"rounds (default {rounds}; 1 with --quick)")
    parser.add_argument(
        "--out", type=pathlib.Path, help="folder (default docs/benchmarks; out/benchmarks with --quick)"
    )
    given = parser.parse_args(arguments)
    out: pathlib.Path = given.out or REPOSITORY / ("out" if given.quick else "docs") / "benchmarks"
    out.mkdir(parents=True, exist_ok=True)
    return Options(quick=given.quick, rounds=given.rounds or (1 if given.quick else rounds), out=out, given=given)


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
