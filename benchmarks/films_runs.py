"""Whole programs on ratings of films under both imports: process start, imports, reading, parsing and writing included.

In: a number of ratings. Out: CPU and wall seconds of each program under each library, and of its own reading and parsing.
Holds: each run is a process, measured from its start to its end; the runs are interleaved. Linux, standard library only.
"""

import dataclasses
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from gates import Gate
from measure import HERE, PEERS_PYTHON, BenchmarkError, as_installed, say

PROGRAMS = {
    "beam-sum": "SUM by a private collection, Beam",
    "beam-metrics": "COUNT, SUM, MEAN, VARIANCE, PRIVACY_ID_COUNT, Beam",
    "local": "COUNT, SUM, PRIVACY_ID_COUNT, three percentiles, LocalBackend",
}
ORIGINAL, DROP_IN, NOTHING = "PipelineDP", "dp_pipelines", "reading and parsing alone"
LIBRARIES = {
    ORIGINAL: (PEERS_PYTHON, "pipeline_dp"),
    DROP_IN: (pathlib.Path(sys.executable), "dp_pipelines.transforms.pipeline_dp"),
    NOTHING: (pathlib.Path(sys.executable), "none"),
}
LIMITS = {"beam-sum": (4, 8), "beam-metrics": (4, 8), "local": (8, 8)}
"""Of the whole program, and beyond reading and parsing. On Beam reading and parsing alone keep a whole program from eight."""

NO_PANDAS = """raise ModuleNotFoundError("No module named 'pandas'", name="pandas")\n"""
"""A module that stands for pandas in every run: no program here needs it, the environment of our tests has it, that of the
original has not, and Arrow and Beam import it wherever it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spent:
    """What one process took.

    Args:
        cpu: seconds of all threads.
        wall: seconds.
    """

    cpu: float
    wall: float


Programs = Mapping[tuple[str, str], Spent]
"""By program and library; medians."""


def run_once(program: str, library: str, ratings: pathlib.Path, out: pathlib.Path) -> Spent:
    """One process.

    Args:
        program: one of PROGRAMS.
        library: one of LIBRARIES.
        ratings: what it reads.
        out: a folder for what it writes.

    Raises:
        BenchmarkError: it failed.
    """
    python, module = LIBRARIES[library]
    command = [str(python), str(HERE / "peers" / "films.py"), module, program, str(ratings), str(out / "found")]
    modules = out / "modules"
    modules.mkdir(exist_ok=True)
    (modules / "pandas.py").write_text(NO_PANDAS)
    begin = time.monotonic()
    with (out / "said").open("wb") as said, tempfile.TemporaryDirectory() as plans:
        surroundings = as_installed(plans) | {"PYTHONPATH": str(modules)}
        process = subprocess.Popen(command, stdout=said, stderr=said, env=surroundings)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchmarkError(f"{program} with {library} failed:\n{(out / 'said').read_text()[-2_000:]}")
    return Spent(cpu=usage.ru_utime + usage.ru_stime, wall=time.monotonic() - begin)


def measured(rows: int, rounds: int) -> Programs:
    """Every program under every library, round by round.

    Raises:
        BenchmarkError: a process failed.
    """
    found: dict[tuple[str, str], list[Spent]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ratings = pathlib.Path(folder) / "ratings.txt"
        make = [sys.executable, str(HERE / "peers" / "films.py"), "none", "make", str(ratings), str(rows)]
        subprocess.run(make, check=True)
        for turn in range(rounds):
            for program in PROGRAMS:
                for library in LIBRARIES:
                    spent = run_once(program, library, ratings, pathlib.Path(folder))
                    found.setdefault((program, library), []).append(spent)
                    say(f"round {turn + 1}/{rounds}: {program}, {library}: {spent.cpu:.2f} s CPU, {spent.wall:.2f} s")
    return {
        which: Spent(cpu=statistics.median(one.cpu for one in runs), wall=statistics.median(one.wall for one in runs))
        for which, runs in found.items()
    }


def ratio(programs: Programs, program: str, *, own: bool = False, wall: bool = False) -> float:
    """How many times as long the original takes.

    Args:
        programs: the runs.
        program: one of PROGRAMS.
        own: beyond reading and parsing, which are the program's and Beam's.
        wall: seconds on the clock, rather than of CPU.

    Returns:
        NaN where reading alone took longer than the whole program, on a machine with other work: no gate takes that.
    """
    one = {library: programs[program, library] for library in LIBRARIES}
    seconds = {library: spent.wall if wall else spent.cpu for library, spent in one.items()}
    less = seconds[NOTHING] if own else 0.0
    ours = seconds[DROP_IN] - less
    return (seconds[ORIGINAL] - less) / ours if ours > 0 else math.nan


def gates(programs: Programs) -> list[Gate]:
    """Whole programs, and what the library adds to reading and parsing."""
    return [
        Gate(name=f"films, {program}: {what}, CPU seconds", figure=figure, limit=limit, at_least=True)
        for program in PROGRAMS
        for what, figure, limit in (
            ("the whole program", ratio(programs, program), LIMITS[program][0]),
            ("beyond reading and parsing", ratio(programs, program, own=True), LIMITS[program][1]),
        )
    ]


def section(programs: Programs) -> str:
    """The part of the page."""
    lines = [
        "## Whole example programs\n",
        "`benchmarks/peers/films.py` holds three programs as PipelineDP's examples are: they read ratings as text, a line",
        "each, parse them in Python, aggregate by film and write text. Seconds are of the whole process: its start, imports,",
        "reading, parsing and writing included. Reading and parsing alone, on Beam with its import, bound what any library",
        "can reach: the column `at most`. Every process starts with nothing of the others; modules are compiled, as after an",
        "installation, and in none is pandas installed.\n",
        "| program | "
        + " | ".join(f"{library}: CPU s (wall)" for library in LIBRARIES)
        + " | whole: CPU (wall) | at most | beyond reading: CPU (wall) |",
        "|---" * (len(LIBRARIES) + 4) + "|",
    ]
    for program, words in PROGRAMS.items():
        times = [programs[program, library] for library in LIBRARIES]
        cells = [f"{spent.cpu:.1f} ({spent.wall:.1f})" for spent in times]
        most = programs[program, ORIGINAL].cpu / programs[program, NOTHING].cpu
        for own in (False, True):
            cpu, wall = (ratio(programs, program, own=own, wall=on_clock) for on_clock in (False, True))
            cells.append(f"{cpu:.1f}x ({wall:.1f}x)")
            if not own:
                cells.append(f"{most:.1f}x")
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
