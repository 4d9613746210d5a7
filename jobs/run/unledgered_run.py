"""A run that no ledger remembers: its private folder has a note of its process and jobs, for the next command.

In: a request. Out: the steps of the driver (`driver.RunState`). Holds: the rename of the folder commits the run and publishes it;
a folder of another attempt is destroyed only if its note says that its process is dead and this user owns it; the note is never
published. Not covered: runs with a ledger (`ledgered_run`).
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.run.driver import RunAttempt, RunFacts, RunRequest
from dp_pipelines.jobs.run.standing_release import release_at
from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger.entries import EngineJob
from dp_pipelines.release import manifest, staging
from dp_pipelines.training.kept_draws import InMemory

NOTE = f".driver{staging.UNFINISHED}"


class UnledgeredRun:
    """A run that no ledger remembers.

    Args:
        request: the run.
    """

    def __init__(self, request: RunRequest) -> None:
        self._request, self._name = request, staging.attempt_name()
        self.published = self.committed = os.path.lexists(request.target)
        self._note: Note | None = None

    def refuse_other_release(self) -> None:
        """See `RunState`: a release of this run must be whole too."""
        request = self._request
        content = release_at(request.target, request.run_id, request.account, request.plan, request.content)
        if content is None:
            return
        listed = content.get("files", {})
        if not listed or not manifest.holds(request.target, listed):
            raise RequestError(
                field=f"output {str(request.target)!r}",
                message="holds this run's release, but its files differ from its manifest",
                hint="restore them, or choose a new folder",
            )

    def destroy_leftovers(self) -> None:
        """See `RunState`: those at the same target."""
        sweep(self._request.target, self._request.stop)

    def admitted(self) -> contextlib.nullcontext[None]:
        """See `RunState`: nothing is charged."""
        return contextlib.nullcontext()

    def next_attempt(self) -> RunAttempt | None:
        """See `RunState`. The release is made in a folder inside the private one, so that the note stays out of it."""
        if self.committed:
            return None
        private = staging.staging_path(self._request.target, self._name)
        return RunAttempt(number=1, folder=private / "whole", draws=InMemory(), submitted=self._submitted)

    @contextlib.contextmanager
    def ended_if_it_fails(self, attempt: RunAttempt) -> Iterator[None]:
        """See `RunState`."""
        # The rename is inside: a process that is killed before it leaves no draw that others may read, and the next command
        # finds and destroys the folder.
        with staging.staging_folder(self._request.target, self._name) as private:
            self._note = Note(private)
            attempt.folder.mkdir(mode=0o700)
            yield

    def commit(self, attempt: RunAttempt, files: Mapping[str, pathlib.Path]) -> None:
        """See `RunState`: by a rename."""
        for name, path in self._request.describe(attempt.number, attempt.folder, files, RunFacts()).items():
            if path != attempt.folder / name:  # some rows of a staged table are shown, or it has other columns
                path.replace(attempt.folder / name)
        staging.publish_folder(attempt.folder, self._request.target)
        self.committed = True

    def publish(self) -> None:
        """See `RunState`: it is visible."""
        self._request.deliver(remembered=False)

    def _submitted(self, job: EngineJob) -> None:
        assert self._note is not None
        self._note.submitted(job)


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
