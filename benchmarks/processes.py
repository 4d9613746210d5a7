"""Memory and CPU time of several processes together, by looking at /proc while they run.

In: processes, whose children count too. Out: the peak of their memory at one moment, and the CPU time of all. Holds: a page that
several processes share is counted once (proportional set size), where the system tells; what is mapped and not resident is not.
Not covered: what is used between two looks; the last moments of a process. Linux, standard library only.
"""

import dataclasses
import os
import pathlib
import threading
import time
from collections.abc import Iterable
from types import TracebackType

PROC = pathlib.Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Used:
    """What some processes have used.

    Args:
        peak_mib: of memory, all together, at the worst look.
        peak_by_name: of each program at that look, MiB.
        cpu_by_name: seconds of CPU of each program.
    """

    peak_mib: float
    peak_by_name: dict[str, float]
    cpu_by_name: dict[str, float]

    @property
    def cpu_seconds(self) -> float:
        """Of all programs."""
        return sum(self.cpu_by_name.values())


class Watch:
    """Looks at processes until the end of the block.

    Args:
        roots: name and process id of those whose descendants are looked at too.
        every: seconds between two looks.
    """

    def __init__(self, roots: Iterable[tuple[str, int]], every: float = 0.5) -> None:
        self._roots, self._every = list(roots), every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_until_the_end, daemon=True)
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._peak: dict[str, float] = {}
        self._begun = time.time()

    def __enter__(self) -> "Watch":
        self._first = {pid: cpu(pid) for _, pid in self._all()}
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def add(self, name: str, pid: int) -> None:
        """Look at one process more; all of its CPU time counts."""
        self._roots.append((name, pid))

    @property
    def used(self) -> Used:
        """What they have used so far."""
        cpu: dict[str, float] = {}
        for pid, (name, seconds) in self._last.items():
            cpu[name] = cpu.get(name, 0.0) + seconds - self._first.get(pid, 0.0)
        return Used(peak_mib=sum(self._peak.values()), peak_by_name=dict(self._peak), cpu_by_name=cpu)

    def _look_until_the_end(self) -> None:
        while not self._ended.wait(self._every):
            self._look()

    def _look(self) -> None:
        now: dict[str, float] = {}
        for name, pid in self._all():
            self._last[pid] = name, max(self._last.get(pid, (name, 0.0))[1], cpu(pid))
            now[name] = now.get(name, 0.0) + _memory(pid)
        if sum(now.values()) > sum(self._peak.values()):
            self._peak = now

    def _all(self) -> list[tuple[str, int]]:
        """Roots and their descendants; a child is named after its root and its program."""
        children: dict[int, list[int]] = {}
        for path in PROC.iterdir():
            if path.name.isdigit() and (parent := _parent(int(path.name))) is not None:
                children.setdefault(parent, []).append(int(path.name))
        found, waiting = [], list(self._roots)
        while waiting:
            name, pid = waiting.pop()
            if (PROC / str(pid)).exists():
                found.append((name, pid))
                waiting += [(f"{name}, {_program(child)}", child) for child in children.get(pid, [])]
        return found


def _stat(pid: int) -> list[str]:
    """The fields of a process after its name; none where it is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def cpu(pid: int) -> float:
    """Seconds of CPU of a process."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def _program(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "?"


def _memory(pid: int) -> float:
    """MiB of a process: proportional where the system tells, else resident."""
    for file, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            for line in (PROC / str(pid) / file).read_text().splitlines():
                if line.startswith(field):
                    return int(line.split()[1]) / 1024
        except OSError:
            continue
    return 0.0
