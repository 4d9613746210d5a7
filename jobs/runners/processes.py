"""Which process works on a run, and whether it is still alive.

In: nothing, or what an earlier driver wrote about itself. Out: facts about this process; alive, gone, or unknown.
Holds: a reused process number is recognised by the time at which the process began; after a reboot, earlier processes
are gone. Not covered: processes of other machines and containers, about which nothing is known here.
"""

import contextlib
import getpass
import os
import pathlib
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

ENDING_WITH = """
import ctypes, os, signal, sys
if hasattr(ctypes.CDLL(None), "prctl"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; it outlives execvp
if os.getppid() == int(sys.argv[1]):  # else the parent is dead already, and nobody would send the signal
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def ending_with_this(command: Sequence[str]) -> list[str]:
    """A command that is killed when the thread that starts it ends in any way (on Linux; elsewhere it lives on).

    Args:
        command: a program and its arguments.
    """
    return [sys.executable, "-I", "-S", "-c", ENDING_WITH, str(os.getpid()), *command]


def here() -> dict[str, Any]:
    """Facts that identify this process.

    >>> alive(here())
    True
    """
    pid = os.getpid()
    return {"host": socket.gethostname(), **_machine(), "pid": pid, "began": _began(pid)}


def who() -> str:
    """User and host, for an auditor."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a number without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def alive(where: Mapping[str, Any]) -> bool | None:
    """Whether a process is alive; None if we cannot know.

    Args:
        where: the result of `here` in that process.
    """
    machine = _machine()
    if not where.get("boot") or not machine["boot"]:
        return None
    if where["boot"] != machine["boot"]:
        rebooted = where.get("machine") == machine["machine"] != "" and where.get("host") == socket.gethostname()
        return False if rebooted else None
    if where.get("numbers") != machine["numbers"]:
        return None
    began = _began(int(where["pid"]))
    return began != "" and began == where.get("began")


def same(where: Mapping[str, Any]) -> bool:
    """Whether it is this process."""
    return all(where.get(name) == value for name, value in here().items())


def _machine() -> dict[str, str]:
    """This machine, its boot, and the namespace of process numbers that this process sees; empty if unknown."""
    known = dict.fromkeys(("machine", "boot", "numbers"), "")
    with contextlib.suppress(OSError):
        known["machine"] = pathlib.Path("/etc/machine-id").read_text().strip()
    with contextlib.suppress(OSError):
        known["numbers"] = os.readlink("/proc/self/ns/pid")
        known["boot"] = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return known


def _began(pid: int) -> str:
    """When a process began, in kernel ticks; empty if there is none."""
    with contextlib.suppress(OSError, IndexError):
        # The name of the program is in brackets and may contain anything, even brackets.
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    return ""
