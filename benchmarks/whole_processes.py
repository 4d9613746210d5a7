"""What whole processes take of a processor, in turns: Python, the check of a job, its plan, rows and report.

In: commands. Out: for each its processor seconds, wall seconds and peak memory. Holds: user and system time of a process and of
its children; ways take turns, so that a busy minute of the machine hits all of them; a command that fails ends the benchmark
with the end of what it said.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence

from measure import cores, say

COMMAND = pathlib.Path(sys.executable).parent / "dp-pipelines"


@dataclasses.dataclass(frozen=True)
class Used:
    """What a process took."""

    cpu: float
    seconds: float
    mib: float


Runs = dict[str, list[Used]]


def measured(command: Sequence[str], folder: pathlib.Path) -> Used:
    """What a process takes. One that prints a line of JSON says itself what its children took that it does not wait for."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        process = subprocess.Popen(
            [part.replace("OUT", f"{out}/out") for part in command],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        said, errors = process.stdout, process.stderr
        assert said is not None
        assert errors is not None
        # What goes to stderr is short but for Spark, which is told to keep quiet.
        last = said.read().splitlines()[-1:]
        told = errors.read()
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed: {told[-2000:]}")
    more = json.loads(last[0])["cpu"] if last and last[0].startswith('{"cpu"') else 0.0
    return Used(max(used.ru_utime + used.ru_stime, more), time.perf_counter() - begin, used.ru_maxrss / 1024)


def in_turns(ways: dict[str, list[str]], folder: pathlib.Path, rounds: int, what: str) -> Runs:
    """What each way takes in each round."""
    found: Runs = {name: [] for name in ways}
    for number in range(rounds):
        for name, command in ways.items():
            found[name].append(measured(command, folder))
            say(f"{what}, round {number + 1}: {name}: {found[name][-1].cpu:.2f} CPU s")
    return found


def run_of(job: str) -> list[str]:
    """The command that runs a job."""
    return [str(COMMAND), "run", "--ledger", "none", "--output", "OUT", job]


def middle(used: Iterable[Used]) -> float:
    """The median of processor seconds."""
    return statistics.median(one.cpu for one in used)


def ratio(runs: Runs, one: str, other: str) -> float:
    """The median over rounds of the processor seconds of one way by those of another."""
    return statistics.median(a.cpu / b.cpu for a, b in zip(runs[one], runs[other], strict=True))


def busy_note(used: Sequence[Used]) -> str:
    """What the machine did beside, if processes with as many threads as cores got less than one core."""
    share = statistics.median(one.cpu / one.seconds for one in used)
    if share >= 1:
        return ""
    return (
        f"**The machine was shared:** a process got {share:.1f} of its {cores()} cores, so that no seconds are told. Processor\n"
        "seconds are larger than on a quiet machine, and not for all ways by the same factor.\n"
    )
