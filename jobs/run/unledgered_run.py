"""A run without a ledger: a note of its process and its jobs in its private folder, for the next command.

In: the private folder of an attempt, the place of an output. Out: folders of dead attempts are gone, their jobs ended. Holds: a
folder without such a note, or whose process lives or cannot be known from here, or that belongs to another user, is left alone;
the note is never published.
Not covered: runs of a ledger, which knows better (`ledgered_run`).
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable

from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger.entries import EngineJob
from dp_pipelines.release import staging

NOTE = f".driver{staging.UNFINISHED}"


class Note:
    """The note of this process, in the folder of its attempt.

    Args:
        folder: the private one.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, self._jobs = folder, dict[str, EngineJob]()
        self._write([])

    def submitted(self, job: EngineJob) -> None:
        """Keep a job that an engine gets, or what the engine calls it. Errors as for `staging.write_whole`."""
        self._jobs[job.name] = job
        self._write(self._jobs.values())

    def _write(self, jobs: Iterable[EngineJob]) -> None:
        content = {"where": processes.here(), "jobs": [vars(job) for job in jobs]}
        staging.write_whole(self._folder / NOTE, json.dumps(content).encode())


def sweep(target: pathlib.Path, stop: Callable[[EngineJob], None]) -> None:
    """Remove what dead attempts at an output have left.

    Args:
        target: the output's place.
        stop: has a job end that a dead attempt left with an engine.

    Raises:
        DpError: a job of theirs cannot be ended.
    """
    names = staging.staging_path(target, "").name
    for folder in [path for path in target.parent.iterdir() if path.name.startswith(names)]:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            if folder.lstat().st_uid != os.getuid():  # else others could have us cancel jobs
                continue
            note = json.loads((folder / NOTE).read_bytes())
            if processes.alive(note["where"]) is False:
                for job in note["jobs"]:
                    stop(EngineJob(**job))
                staging.destroy(folder)
