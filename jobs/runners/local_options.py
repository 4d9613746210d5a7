"""The options of the local runner: threads, memory, and where rows go that do not fit into it.

In: arguments. Out: checked numbers and a folder. Holds: defaults come from the machine alone, never from rows, files or their
sizes. Not covered: memory that other programs take later.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import resource
import tempfile
from collections.abc import Iterator, Sequence
from typing import NoReturn

from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.jobs.runners.runner_rules import refuse_key_of_job
from dp_pipelines.kernels.sizes import BATCH_BYTES, COPIES_OF_A_BATCH, COPIES_OF_A_GROUP, GROUP_BYTES, MIB, MOST_SHARDS
from dp_pipelines.ledger import disks

PROCESS_BYTES = 256 * MIB
"""This process without rows: its libraries, plan and tables of noise."""

THREAD_BYTES = max(COPIES_OF_A_GROUP * GROUP_BYTES, 2 * COPIES_OF_A_BATCH * BATCH_BYTES)
"""What a thread holds at most, about: a shard while it is bounded, or what is read and cut."""

LEAST_WAITING = 64 * MIB
"""What must be able to wait between two steps."""

UNKNOWN_MEMORY = 4 * 2**30
"""What is taken for free where the system does not tell."""

MOST_THREADS = 1024

IN_MEMORY = ("tmpfs", "ramfs")
"""Kinds of file systems that are no disk."""

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The limit of all processes, in version 2 and 1 of control groups; that of a group is in a folder beside it."""

GROUPS = "/proc/self/cgroup"
"""The groups of this process: `number:controllers:path`."""

MEMINFO = "/proc/meminfo"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """How the local runner works.

    Args:
        threads: how many.
        memory: bytes that it may take, about.
        spill_folder: for rows that do not fit; None: beside the output.
        num_shards: into how many groups units are cut; None: by the size of the input.
    """

    threads: int
    memory: int
    spill_folder: pathlib.Path | None = None
    num_shards: int | None = None

    @property
    def waiting_bytes(self) -> int:
        """What may wait between steps in memory."""
        return max(self.memory - least_memory(self.threads) + LEAST_WAITING, LEAST_WAITING)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        field = message.partition(":")[0].removeprefix("argument ")
        raise RequestError(field=field, message=message.partition(": ")[2] or message)


def read(arguments: Sequence[str]) -> LocalOptions:
    """The options out of arguments.

    Raises:
        RequestError: one is unknown, or wrong by public facts.

    >>> read(["--threads=2", "--memory=4GiB"]).threads
    2
    """
    parser = _Parser(allow_abbrev=False, add_help=False)
    parser.add_argument("--threads")
    parser.add_argument("--memory")
    parser.add_argument("--spill-folder")
    parser.add_argument("--num_shards", "--num-shards", dest="num_shards")
    given, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        name = unknown[0].partition("=")[0]
        refuse_key_of_job(name)
        known = [option for action in parser._actions for option in action.option_strings]
        hint = nearest(name, [*known, "--output", "--param", "--run-id", "--ledger", "--runner"], "options")
        raise RequestError(
            field=name,
            message="is neither an option of this command nor of the local runner",
            hint=hint if hint.startswith("did") else "options of Beam need its own runner: add --runner direct",
        )
    memory = None if given.memory is None else _bytes(given.memory)
    free = (free_memory() or UNKNOWN_MEMORY) // 2 if memory is None else memory
    if given.threads is None:
        threads = max(1, min(_cores(), (free - least_memory(0)) // THREAD_BYTES))
    else:
        threads = _whole("--threads", given.threads, MOST_THREADS)
    least = least_memory(threads)
    if free < least:
        hint = f"with --threads {max(1, (free - least_memory(0)) // THREAD_BYTES)} it needs less" if threads > 1 else ""
        raise RequestError(
            field="--memory",
            message=f"must be at least {-(-least // MIB)}MiB for {threads} thread{'s' if threads > 1 else ''}"
            + ("" if memory is not None else f"; half of what is free here is {free // MIB}MiB"),
            hint=hint or "give more, e.g. --memory 1GiB",
        )
    shards = None if given.num_shards is None else _whole("--num_shards", given.num_shards, MOST_SHARDS)
    folder = None if given.spill_folder is None else _folder(given.spill_folder)
    return LocalOptions(threads=threads, memory=free, spill_folder=folder, num_shards=shards)


def least_memory(threads: int) -> int:
    """The least that the runner needs: the process, its threads, and what waits between them.

    >>> least_memory(1) // MIB
    640
    """
    return PROCESS_BYTES + LEAST_WAITING + threads * THREAD_BYTES


def free_memory() -> int | None:
    """Bytes that this process may still take: the least of free memory, the limits of its control groups, and its own limit.

    Returns:
        None where the system does not tell.
    """
    limits = [_available(), *(_limit_in(path) for path in _cgroup_files())]
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits.append(None if own == resource.RLIM_INFINITY else own)
    return min((limit for limit in limits if limit is not None), default=None)


def _available() -> int | None:
    try:
        with open(MEMINFO, encoding="ascii") as lines:
            found = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
        return int(found["MemAvailable"][0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _cgroup_files() -> Iterator[pathlib.Path]:
    """Where the limits of this process's groups would stand, and those of the groups around them."""
    try:
        lines = pathlib.Path(GROUPS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    groups = {pathlib.PurePosixPath("/"), *(pathlib.PurePosixPath(line.split(":", 2)[-1]) for line in lines)}
    around = {folder for group in groups if group.is_absolute() for folder in (group, *group.parents)}
    for path in map(pathlib.Path, CGROUPS):
        yield from (path.parent / str(folder)[1:] / path.name for folder in sorted(around))


def _limit_in(path: pathlib.Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _whole(field: str, text: str, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        raise RequestError(field=field, message=f"must be a whole number from 1 to {most}", hint="or leave it out")
    return int(text)


def _bytes(text: str) -> int:
    """A number of bytes with a unit.

    >>> _bytes("4GiB") == _bytes("4g") == 2**32
    True
    """
    found = re.fullmatch(r"(?i)([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([kmgt]?)(?:i?b)?", text.strip())
    if found is None:
        raise RequestError(field="--memory", message="must be a number of bytes", hint="write e.g. --memory 4GiB")
    return int(float(found[1]) * UNITS[found[2].lower()])


def _folder(text: str) -> pathlib.Path:
    """A place for rows that do not fit into memory.

    Raises:
        RequestError: it is none.
    """
    folder, field = pathlib.Path(text), f"--spill-folder {text!r}"
    try:
        if not text or not folder.is_dir():
            raise RequestError(field=field, message="is not a folder", hint="create it first")
        kind = disks.kind_of(folder)
        if kind in IN_MEMORY:
            message = f"is on {kind}, which is memory and no disk"
            raise RequestError(field=field, message=message, hint="choose a folder on a disk")
        state = folder.stat()
        if state.st_uid not in (0, os.geteuid()) and state.st_mode & 0o1000 == 0:
            message = "belongs to another user, who could take what is written there"
            raise RequestError(field=field, message=message, hint="choose a folder of your own")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:  # of looking at it too
        message = f"cannot be written: {error.strerror or 'the file system refuses'}"
        raise RequestError(field=field, message=message, hint="choose a folder where this user may write") from None
    return folder
