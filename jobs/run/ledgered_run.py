"""A run that a ledger charges and remembers: admitted once, followed from attempt to attempt, committed and published once.

In: a request, an open ledger. Out: the steps of the driver (`driver.RunState`); commands that give a run up (`abandon`, `gone`).
Holds: a run is charged once; one attempt is committed, and its bytes are those that are published; what a dead attempt has left
is destroyed, or finished where it was complete, before another one begins. Not covered: their order (`driver.carry_out`).
"""

import contextlib
import hmac
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from dp_pipelines.disk_errors import remedy_of, told_of_disk
from dp_pipelines.errors import DpError, LedgerError, RequestError
from dp_pipelines.jobs.run import looks, noise_memory, previous_release
from dp_pipelines.jobs.run.driver import RunAttempt, RunFacts, RunRequest
from dp_pipelines.jobs.run.standing_release import release_at
from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger import disks, export
from dp_pipelines.ledger.entries import Attempt, EngineJob, Run
from dp_pipelines.ledger.ledger import Ledger, MovedOn, refuse_other
from dp_pipelines.ledger.patience import A_MINUTE, TEN_MINUTES, Refused, Unreachable
from dp_pipelines.noise import entropy
from dp_pipelines.release import manifest, staging

POLL_SECONDS = 0.5
"""How often a run that waits for another process looks whether it is done."""

GONE = "its process is gone"
"""What the ledger says of an attempt that ended without a word."""


class LedgeredRun:
    """A run that a ledger charges and remembers.

    Args:
        request: the run.
        ledger: open, with the account of the run.
    """

    def __init__(self, request: RunRequest, ledger: Ledger) -> None:
        self._request, self._ledger = request, ledger
        self._run = ledger.run(request.account, request.run_id)
        self._sealed = False

    @property
    def committed(self) -> bool:
        """See `RunState`."""
        return self._run is not None and self._run.committed

    @property
    def published(self) -> bool:
        """See `RunState`."""
        return bool(self._admitted.folders)

    @property
    def _admitted(self) -> Run:
        assert self._run is not None
        return self._run

    def refuse_other_release(self) -> None:
        """See `RunState`: the id of the run may not be that of another one either."""
        request = self._request
        if self._run is not None and self._run.state != "abandoned":
            refuse_other(self._run, request.asked, request.content, request.window)
        _refuse_other_release(request)

    def destroy_leftovers(self) -> None:
        """See `RunState`: those of all runs of the ledger. A disk that cannot be written delays only runs that staged on it."""
        for run_ in list(self._ledger.state.runs.values()):
            for attempt in _left_by(run_):
                staging.destroy(attempt.staging)
        noise_memory.sweep(self._ledger)

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """See `RunState`."""
        try:
            if not self.committed:
                self._run = self._request.admit(self._ledger)
                self._ledger.patience.refusals = True  # what is charged is worth more than a quick answer
            yield
        finally:
            self._ledger.patience.refusals = False

    def next_attempt(self) -> RunAttempt | None:
        """See `RunState`."""
        while not self.committed:
            try:
                self._run = _recover(self._ledger, self._admitted, self._request)
                if self.committed:
                    break
                _destroy_left(self._run)
                name = staging.attempt_name()
                folder = staging.staging_path(self._request.target, name)
                self._run = self._ledger.start(self._run, attempt=name, staging=str(folder), where=processes.here())
            except MovedOn:  # another process was faster: see what it is doing
                self._run = _seen_again(self._ledger, self._admitted, self._request)
                continue
            draws = InLedger(self._ledger, self._run, name)
            return RunAttempt(number=self._run.round, folder=folder, draws=draws, submitted=draws.submitted)
        return None

    @contextlib.contextmanager
    def ended_if_it_fails(self, attempt: RunAttempt) -> Iterator[None]:
        """See `RunState`. The folder stays where it has a whole release, of which the server of the ledger could not be told."""
        destroyed, name = True, self._admitted.attempts[-1].name  # nothing was staged yet

        def waits(error: BaseException) -> bool:
            return self._sealed and isinstance(error, LedgerError) and not isinstance(error, MovedOn)

        try:
            with staging.staging_folder(self._request.target, name, waits):
                try:
                    yield
                except BaseException as error:
                    if not waits(error):
                        destroyed = staging.destroy(
                            attempt.folder
                        )  # a folder that is not there any more may have been moved
                    raise
        except BaseException as error:
            if waits(error):
                raise
            how = "it failed" if isinstance(error, DpError) else "it was interrupted"
            # Nobody who has stopped the run waits any longer, and a server that was waited for is not waited for again.
            failed = isinstance(error, Exception) and not isinstance(error, Unreachable | Refused)
            self._ledger.patience.seconds = A_MINUTE if failed else 0.0
            with contextlib.suppress(
                LedgerError
            ):  # what failed first is what is told; the next attempt settles this one
                self._ledger.end(self._admitted, attempt=name, how=how, destroyed=destroyed)
            raise

    def commit(self, attempt: RunAttempt, files: Mapping[str, pathlib.Path]) -> None:
        """See `RunState`."""
        ledger, name = self._ledger, self._admitted.attempts[-1].name
        ledger.patience.seconds = TEN_MINUTES  # a finished release is worth that
        seals = _seals(attempt.folder, files)
        staging.note_seals(attempt.folder, seals)
        self._sealed = True
        self._run = ledger.staged(self._admitted, attempt=name, files=seals)
        self._run = _commit(ledger, self._run, name, attempt.folder, self._request)

    def publish(self) -> None:
        """See `RunState`: from the bytes in the ledger."""
        run_, target = self._admitted, self._request.target
        if not _is_whole(run_, self._request):
            content = self._ledger.release(run_)
            with told_of_disk(target.parent):
                target.parent.mkdir(parents=True, exist_ok=True)
            with disks.alone(target.parent):
                if not _is_whole(run_, self._request):  # another process may have been faster
                    _make_visible(content, f"{run_.attempts[-1].name}-release", target)
        for attempt in _left_by(run_):  # of one that was killed between its commit and its end
            staging.destroy(attempt.staging)
        self._request.deliver(
            remembered=True
        )  # not noted before: a command that is killed here delivers it when it is run again
        self._ledger.patience.seconds = A_MINUTE  # it is visible: the same command notes the folder, if this one cannot
        self._ledger.published(run_, self._request.shown or str(target))


class InLedger:
    """Draws that the ledger keeps: what an earlier attempt has drawn stays what it is."""

    def __init__(self, ledger: Ledger, run_: Run, attempt: str) -> None:
        self._ledger, self._run, self._attempt = ledger, run_, attempt

    @property
    def _memory(self) -> noise_memory.NoiseMemory:
        return noise_memory.of_run(self._ledger, self._run)

    def get(self, name: str) -> bytes | None:
        """What was kept under a name, or None."""
        return self._ledger.drawn(self._run, name)

    def keep(self, name: str, content: bytes) -> None:
        """Keep it. Errors as for `Ledger.freeze`."""
        self._ledger.patience.seconds = TEN_MINUTES  # another attempt would compute it again
        self._ledger.freeze(self._run, attempt=self._attempt, name=name, content=content)

    def remember(self, name: str, content: bytes) -> None:
        """Keep a private memory beside the ledger. Errors as for `NoiseMemory.remember`."""
        self._memory.remember(name, content)

    def recall(self, name: str, digest: str) -> bytes | None:
        """A private memory, or None where it is gone."""
        return self._memory.recall(name, digest)

    def forget(self, name: str, but: str = "") -> None:
        """Destroy the private memories of a stage, but for one."""
        self._memory.forget(name, but)

    def submitted(self, job: EngineJob) -> None:
        """Keep what an engine gets. Errors as for `Ledger.submitted`."""
        self._ledger.submitted(self._run, attempt=self._attempt, job=job)


def abandon(ledger: Ledger, run_: Run, stop: Callable[[EngineJob], None]) -> Run:
    """Give a run up, after what a dead attempt left is ended and destroyed.

    Args:
        ledger, run_: which.
        stop: see `RunRequest`.

    Raises:
        RequestError: a process is working on it, or it has a release.
        LedgerError: this machine cannot tell whether an attempt is still working.
    """
    last = run_.attempts[-1] if run_.attempts else None
    if last is not None and not last.ended:
        living = processes.alive(last.where)
        if living is None:
            raise _elsewhere(run_, last)
        if living:
            raise _at_work(run_, last)
        run_ = _end_dead(ledger, run_, last, stop)
    _destroy_left(run_)
    abandoned = ledger.abandon(run_)
    noise_memory.of_run(ledger, run_).forget_all()
    return abandoned


def gone(ledger: Ledger, run_: Run, stop: Callable[[EngineJob], None]) -> Run:
    """End an attempt whose owner says that its machine is gone, which cannot be seen from here.

    Whatever it still does, it cannot commit any more. Its charge stays; the same command then makes the run's release.

    Args:
        ledger, run_: which.
        stop: see `RunRequest`.

    Raises:
        RequestError: no attempt is open, or its process lives here.
    """
    last = run_.attempts[-1] if run_.attempts else None
    if last is None or last.ended:
        raise RequestError(field=f"run {run_.run_id!r}", message="has no unfinished attempt", hint="run it again")
    if processes.alive(last.where):
        raise _at_work(run_, last)
    for job in last.jobs:
        stop(job)
    staging.destroy(last.staging)  # if its disk can be reached from here
    return ledger.end(run_, attempt=last.name, how="its machine is gone, as its owner says", destroyed=False)


def _recover(ledger: Ledger, run_: Run, request: RunRequest) -> Run:
    """Leave nothing of earlier attempts: wait for one that lives, finish one that was complete, destroy the others."""
    while run_.attempts and not run_.attempts[-1].ended:
        last = run_.attempts[-1]
        living = processes.alive(last.where)
        if living is None:
            raise _elsewhere(run_, last)
        if living and not processes.same(last.where):
            request.tell(f"waiting for process {last.where.get('pid')}, which is working on this run")
            time.sleep(POLL_SECONDS)
            run_ = _seen_again(ledger, run_, request)
            continue
        if _seals_of(last) is None:
            run_ = _end_dead(ledger, run_, last, request.stop)
            continue
        place = pathlib.Path(last.staging).parent
        with told_of_disk(place), disks.alone(place):  # or two processes would write one report
            run_ = _seen_again(ledger, run_, request)
            if run_.attempts and run_.attempts[-1] == last and (seals := _seals_of(last)) is not None:
                ledger.patience.seconds = TEN_MINUTES
                if not last.staged:
                    run_ = ledger.staged(run_, attempt=last.name, files=seals)
                return _commit(ledger, run_, last.name, pathlib.Path(last.staging), request)
    return run_


def _seen_again(ledger: Ledger, run_: Run, request: RunRequest) -> Run:
    """The run as it stands now, if it still is the one that was admitted.

    Raises:
        RequestError: its id was abandoned meanwhile, or stands for something else.
    """
    ledger.refresh()
    now = ledger.state.runs[run_.account, run_.run_id]
    refuse_other(now, request.asked, request.content, request.window)
    if now.state == "abandoned" or now.round != run_.round:
        raise RequestError(
            field=f"run {now.run_id!r}", message="was abandoned while this command waited", hint="run the command again"
        )
    return now


def _end_dead(ledger: Ledger, run_: Run, last: Attempt, stop: Callable[[EngineJob], None]) -> Run:
    """End the jobs of an attempt whose process is gone, destroy what it left, and write that down.

    The order is for what the cluster has to do, not for privacy: a job that cannot be ended has no place any more to write to.
    """
    for job in last.jobs:
        stop(job)
    destroyed = staging.destroy(last.staging)
    if os.path.lexists(last.staging):
        raise _stays(last)
    return ledger.end(run_, attempt=last.name, how=GONE, destroyed=destroyed)


def _destroy_left(run_: Run) -> None:
    """Destroy what attempts of a run have left that ended while their disk could not be written.

    Raises:
        LedgerError: it still cannot.
    """
    for attempt in _left_by(run_):
        staging.destroy(attempt.staging)
        if os.path.lexists(attempt.staging):
            raise _stays(attempt)


def _left_by(run_: Run) -> list[Attempt]:
    """The attempts that have ended and whose staging is still there: folders of ours, by their names."""
    ended = (attempt for attempt in run_.attempts if attempt.ended and not attempt.destroyed)
    ours = (attempt for attempt in ended if staging.is_of(attempt.staging, attempt.name))
    return [attempt for attempt in ours if os.path.lexists(attempt.staging)]


def _stays(attempt: Attempt) -> LedgerError:
    why = staging.why_left(attempt.staging)
    said = f": {why}; {remedy_of(why)}, or" if why else ";"
    return LedgerError(
        f"staging folder {attempt.staging}: cannot be removed{said} remove it, unseen, and run the same command again"
    )


def _at_work(run_: Run, last: Attempt) -> RequestError:
    return RequestError(
        field=f"run {run_.run_id!r}",
        message=f"process {last.where.get('pid')} is working on it",
        hint="let it finish, or stop it first",
    )


def _elsewhere(run_: Run, last: Attempt) -> LedgerError:
    return LedgerError(
        f"run {run_.run_id!r}: an attempt on {last.where.get('host', 'another machine')} has not ended, and this "
        f"machine cannot tell whether it is still working; run the same command there, or, if that machine is gone for good, "
        f"first `dp-pipelines runs --gone {run_.run_id}`"
    )


def _commit(ledger: Ledger, run_: Run, attempt: str, folder: pathlib.Path, request: RunRequest) -> Run:
    """The ledger takes the release; from here on it is the one."""
    staged = {name: folder / name for name in run_.attempts[-1].staged}
    facts = RunFacts(
        ledger=export.spent(ledger, run_),
        looks=looks.of_ledger(ledger, run_, request.files),
        before=None if request.content_with is None else previous_release.of_ledger(ledger, run_, request.content_with),
    )
    files = request.describe(run_.round, folder, staged, facts)
    return ledger.commit(run_, attempt=attempt, files={name: path.read_bytes() for name, path in files.items()})


def _make_visible(content: Mapping[str, bytes], name: str, target: pathlib.Path) -> None:
    """Publish the files of a release. Whoever is killed here leaves a folder that the next one finds by its name."""
    shutil.rmtree(staging.staging_path(target, name), ignore_errors=True)
    with staging.staging_folder(target, name) as folder:
        for file, held in content.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held)
        staging.publish_folder(folder, target)


def _is_whole(run_: Run, request: RunRequest) -> bool:
    """Return True if the release is at its target, with all of its files; False if the target does not exist.

    Raises:
        RequestError: the target is something else.
    """
    if not os.path.lexists(request.target):
        return False
    _refuse_other_release(request)
    if not manifest.holds(request.target, {name: {"sha256": sha256} for name, sha256 in run_.files.items()}):
        raise RequestError(
            field=f"output {str(request.target)!r}",
            message="holds this run's release, but its files differ from those that were released",
            hint="choose a new folder: the ledger returns the release",
        )
    return True


def _refuse_other_release(request: RunRequest) -> None:
    """Refuse an output that exists, unless it is this run's own."""
    release_at(request.target, request.run_id, request.account, request.plan, request.content)


def _seals_of(attempt: Attempt) -> dict[str, str] | None:
    """Return the seals of what an attempt has staged, if all of it is still there, byte for byte; else None."""
    folder = pathlib.Path(attempt.staging)
    try:
        seals = dict(attempt.staged) or staging.noted_seals(folder)  # noted: the ledger could not be told
        return seals if _seals(folder, {name: folder / name for name in seals}) == seals else None
    except (OSError, ValueError):
        return None


def _seals(folder: pathlib.Path, files: Mapping[str, pathlib.Path]) -> dict[str, str]:
    """Digests of staged files under a key that lies beside them and is destroyed with them.

    The ledger remembers them. A plain digest would outlive a draw that is destroyed, and a draw of a small table can be found
    again by trying: that draw and the one that is published would be two.
    """
    key = folder / f".key{staging.UNFINISHED}"
    if not key.exists():
        key.write_bytes(entropy.salt(32))
    return {name: hmac.digest(key.read_bytes(), path.read_bytes(), "sha256").hex() for name, path in files.items()}
