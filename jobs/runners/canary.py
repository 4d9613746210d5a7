"""A job of a few elements that shows what a runner's workers are and what they can access.

In: an engine, the folder for outputs. Out: findings with hints. Holds: it reads only versions, names of machines and
free space; the private folder that it creates is removed. Not covered: workers that get none of the elements.
"""

import getpass
import json
import os
import pathlib
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from dp_pipelines.jobs.runners.cluster_checks import LEAST_TEMPORARY, Said, there_meanwhile
from dp_pipelines.jobs.runners.engines import Engine, RunnerFailed
from dp_pipelines.jobs.terminal.progress import Progress

ELEMENTS = 16
"""More elements than workers we want to see."""

UNSEEN = "dp-pipelines probe: the folder does not exist"
REFUSED = "dp-pipelines probe: the folder is not writable"

EXCERPT = 300
"""How many characters of an error are shown; no rows were involved."""


class WorkerProbe(beam.DoFn):
    """Describes a worker in a private folder.

    Args:
        folder: its path on the driver.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def process(self, element: int) -> Iterator[str]:
        """Write a file for each element."""
        if not os.path.isdir(self._folder):
            raise RuntimeError(UNSEEN)
        name = os.path.join(self._folder, f"{element}.json")
        try:
            pathlib.Path(name).write_text(json.dumps(facts()), encoding="utf-8")
        except OSError:
            raise RuntimeError(REFUSED) from None
        yield name


def facts() -> dict[str, Any]:
    """Describe this process."""
    import numpy as np
    import pyarrow as pa

    from dp_pipelines import __version__

    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "user": os.getuid(),
        "versions": {
            "Python": ".".join(platform.python_version_tuple()[:2]),
            "Beam": beam.__version__,
            "dp-pipelines": __version__,
            "NumPy": np.__version__,
            "pyarrow": pa.__version__,
        },
        "free": shutil.disk_usage(tempfile.gettempdir()).free,
        "order": sys.byteorder,
    }


def probe(engine: Engine, parent: pathlib.Path, progress: Progress) -> list[Said]:
    """Run the job.

    Args:
        engine: what runs it.
        parent: the folder for the output.
        progress: is told each step.
    """
    with there_meanwhile(parent), tempfile.TemporaryDirectory(prefix=".dp-doctor-", dir=parent) as folder:
        pipeline = engine.pipeline(progress)
        numbered = pipeline | "Elements" >> beam.Create(list(range(ELEMENTS)), reshuffle=False).with_output_types(int)
        keyed = numbered | "Keyed" >> beam.ParDo(_Keyed()).with_output_types(tuple[int, int])
        grouped = keyed | "Shuffle" >> beam.GroupByKey()
        spread = grouped | "Values" >> beam.ParDo(_Values()).with_output_types(int)
        spread | "WorkerProbe" >> beam.ParDo(WorkerProbe(folder)).with_output_types(str)
        try:
            engine.run(pipeline, progress)
        except Exception as error:
            return [_failed(error)]
        files = sorted(pathlib.Path(folder).glob("*.json"))
        return _seen([json.loads(file.read_text(encoding="utf-8")) for file in files])


class _Keyed(beam.DoFn):
    def process(self, element: int) -> Iterator[tuple[int, int]]:
        yield element, element


class _Values(beam.DoFn):
    def process(self, element: tuple[int, Any]) -> Iterator[int]:
        yield from element[1]


def _failed(error: Exception) -> Said:
    told = str(error)
    if UNSEEN in told:
        return Said(
            "workers do not see the folder beside the output",
            "put the output on a disk that every worker mounts at the same path",
        )
    if REFUSED in told:
        return Said(
            "workers may not write beside the output", f"run them as the user {getpass.getuser()!r}, like this command"
        )
    if isinstance(error, RunnerFailed):
        cause = error.cause
        told = f"{type(cause).__name__}: {cause}" if cause is not None else told
    last = [line.strip() for line in told.splitlines() if line.strip()][:1] or ["no reason was given"]
    excerpt = "".join(letter if letter.isprintable() else " " for letter in last[0])[:EXCERPT]
    return Said(f"failed: {excerpt}", "see the runner's logs, and docs/runners.md")


def _seen(workers: list[dict[str, Any]]) -> list[Said]:
    """The descriptions that workers have written."""
    mine = facts()
    if len(workers) < ELEMENTS:
        hint = "put the output on a disk that every worker mounts at the same path"
        return [Said(f"ran, but only {len(workers)} of {ELEMENTS} files are visible here", hint)]
    hosts = {worker["host"] for worker in workers}
    processes = {(worker["host"], worker["process"]) for worker in workers}
    said = [Said(f"ran in {len(processes)} processes on {len(hosts)} machines, which write beside the output")]
    for name, version in mine["versions"].items():
        others = sorted({str(worker["versions"].get(name)) for worker in workers} - {version})
        if others:
            hint = "install the same version on workers as here"
            said.append(Said(f"workers have {name} {', '.join(others)}, this machine has {version}", hint))
    if any(worker["order"] != mine["order"] for worker in workers):
        said.append(Said("workers have a different byte order", "use machines of the same kind as this one"))
    if {worker["user"] for worker in workers} != {mine["user"]}:
        # We get here if this user is root, who may read everything, and workers are not: they could not have written.
        hint = "run workers as the user who runs this command"
        said.append(Said("workers run as another user, who may not write to a private folder", hint))
    free = min(worker["free"] for worker in workers)
    hint = "set TMPDIR of the workers to a folder on a larger disk" if free < LEAST_TEMPORARY else ""
    said.append(Said(f"workers have {free / 2**30:.1f} GiB free for temporary files", hint))
    return said
