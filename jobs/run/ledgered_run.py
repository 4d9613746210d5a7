"""A run with a ledger: admitted once, followed from attempt to attempt, published once.

In: a checked request, an open ledger. Out: the published folder, made by this call or given back from the ledger. Holds: nothing
is read before the run is charged; nothing is seen before it is committed; what a dead attempt left is destroyed, or finished
where it was complete, before another one begins. The same command again mends every crash.
"""

import contextlib
import dataclasses
import hmac
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dp_pipelines.disk_errors import remedy_of, told_of_disk
from dp_pipelines.errors import DpError, LedgerError, RequestError
from dp_pipelines.jobs.run import looks, noise_memory, previous_release
from dp_pipelines.jobs.run.looks import Look
from dp_pipelines.jobs.run.previous_release import PreviousRelease
from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger import disks, export, release_list
from dp_pipelines.ledger.entries import Attempt, EngineJob, Run
from dp_pipelines.ledger.ledger import Ledger, MovedOn, refuse_other
from dp_pipelines.ledger.patience import A_MINUTE, TEN_MINUTES, Refused, Unreachable
from dp_pipelines.noise import entropy
from dp_pipelines.release import manifest, staging
from dp_pipelines.report.key_text import visible
from dp_pipelines.training.kept_draws import Draws

POLL_SECONDS = 0.5
"""How often a run that waits for another process looks whether it is done."""

GONE = "its process is gone"
"""What the ledger says of an attempt that ended without a word."""


Describe = Callable[
    [int, pathlib.Path, Mapping[str, pathlib.Path], Mapping[str, Any], Sequence[Look], PreviousRelease | None],
    dict[str, pathlib.Path],
]
"""Of a round, the staging folder, the staged files, what the ledger says of the account, looks at raw rows that it noted, and the
release before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What a run needs beside its ledger.

    Args:
        account, run_id: its name.
        window: of event time, or empty.
        plan: the digest of its plan.
        asked: digest of what the plan was made from.
        content: digest of the job and the parameters.
        admit: charges the run, or finds it charged.
        target: the folder to publish.
        files: what it reads.
        stage: runs the pipeline for a round into a staging folder, and tells of each job that it hands to an engine; gives
            the staged files by name.
        describe: the manifest and whatever else belongs to a release, written into the staging folder; all files by name.
        tell: says something to whoever waits.
        stop: has a job end that a dead attempt left with an engine.
        deliver: publishes the release elsewhere too, out of its folder, once however often it is called; None: nowhere.
        shown: what the place is called; empty: as the folder is.
        content_with: digest of the job with these parameters, as text; None: the run is compared with no other.
    """

    account: str
    run_id: str
    window: str
    plan: str
    asked: str
    content: str
    admit: Callable[[Ledger], Run]
    target: pathlib.Path
    files: Sequence[str]
    stage: Callable[[int, pathlib.Path, Draws, Callable[[EngineJob], None]], dict[str, pathlib.Path]]
    describe: Describe
    tell: Callable[[str], None]
    stop: Callable[[EngineJob], None]
    deliver: Callable[[pathlib.Path], None] | None = None
    shown: str = ""
    content_with: Callable[[Mapping[str, str]], str] | None = None


def run(ledger: Ledger, work: Work) -> bool:
    """Bring a run to its published release.

    Returns:
        whether the release had been published before.

    Raises:
        RequestError, BudgetError: the run is refused; nothing is charged.
        LedgerError: the ledger cannot be used.
        DpError: the attempt failed; what was charged stays, and the same command tries again.
    """
    known = ledger.run(work.account, work.run_id)
    if known is not None and known.state != "abandoned":
        refuse_other(known, work.asked, work.content, work.window)
    _refuse_other_release(work)
    _sweep(ledger)
    try:
        if known is None or not known.committed:
            admitted = work.admit(ledger)
            ledger.patience.refusals = True  # what is charged is worth more than a quick answer
            known = _released(ledger, admitted, work)
        again = bool(known.folders)
        _publish(ledger, known, work)
    finally:
        ledger.patience.refusals = False
    return again


class InLedger:
    """Draws that the ledger keeps: what an earlier attempt has drawn stays what it is."""

    def __init__(self, ledger: Ledger, run_: Run, attempt: str) -> None:
        self._ledger, self._run, self._attempt = ledger, run_, attempt
        self._memory = noise_memory.of_run(ledger, run_)

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


def _released(ledger: Ledger, run_: Run, work: Work) -> Run:
    """The committed run, whoever committed it."""
    while True:
        try:
            run_ = _recover(ledger, run_, work)
            if run_.committed:
                return run_
            _destroy_left(run_)
            attempt = staging.attempt_name()
            folder = staging.staging_path(work.target, attempt)
            run_ = ledger.start(run_, attempt=attempt, staging=str(folder), where=processes.here())
        except MovedOn:  # another process was faster: see what it is doing
            run_ = _seen_again(ledger, run_, work)
            continue
        return _attempt(ledger, run_, work, attempt, folder)


def abandon(ledger: Ledger, run_: Run, stop: Callable[[EngineJob], None]) -> Run:
    """Give a run up, after what a dead attempt left is ended and destroyed.

    Args:
        ledger, run_: which.
        stop: see `Work`.

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
        stop: see `Work`.

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


def _recover(ledger: Ledger, run_: Run, work: Work) -> Run:
    """Leave nothing of earlier attempts: wait for one that lives, finish one that was complete, destroy the others."""
    while run_.attempts and not run_.attempts[-1].ended:
        last = run_.attempts[-1]
        living = processes.alive(last.where)
        if living is None:
            raise _elsewhere(run_, last)
        if living and not processes.same(last.where):
            work.tell(f"waiting for process {last.where.get('pid')}, which is working on this run")
            time.sleep(POLL_SECONDS)
            run_ = _seen_again(ledger, run_, work)
            continue
        if _seals_of(last) is None:
            run_ = _end_dead(ledger, run_, last, work.stop)
            continue
        place = pathlib.Path(last.staging).parent
        with told_of_disk(place), disks.alone(place):  # or two processes would write one report
            run_ = _seen_again(ledger, run_, work)
            if run_.attempts and run_.attempts[-1] == last and (seals := _seals_of(last)) is not None:
                ledger.patience.seconds = TEN_MINUTES
                if not last.staged:
                    run_ = ledger.staged(run_, attempt=last.name, files=seals)
                return _commit(ledger, run_, last.name, pathlib.Path(last.staging), work)
    return run_


def _seen_again(ledger: Ledger, run_: Run, work: Work) -> Run:
    """The run as it stands now, if it still is the one that was admitted.

    Raises:
        RequestError: its id was abandoned meanwhile, or stands for something else.
    """
    ledger.refresh()
    now = ledger.state.runs[run_.account, run_.run_id]
    refuse_other(now, work.asked, work.content, work.window)
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


def _sweep(ledger: Ledger) -> None:
    """The same for all runs of a ledger; a disk that still cannot be written holds up nobody but its own run."""
    for run_ in list(ledger.state.runs.values()):
        for attempt in _left_by(run_):
            staging.destroy(attempt.staging)
    noise_memory.sweep(ledger)


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


def _attempt(ledger: Ledger, run_: Run, work: Work, attempt: str, folder: pathlib.Path) -> Run:
    """One attempt, up to the commit; its staging is gone at the end, or is a whole release that waits for the ledger's server."""
    destroyed, sealed = True, False  # nothing was staged yet

    def waits(error: BaseException) -> bool:  # the release is whole, and only the ledger does not know
        return sealed and isinstance(error, LedgerError) and not isinstance(error, MovedOn)

    try:
        with staging.staging_folder(work.target, attempt, waits):
            try:
                kept = InLedger(ledger, run_, attempt)
                files = work.stage(run_.round, folder, kept, kept.submitted)
                ledger.patience.seconds = TEN_MINUTES  # a finished release is worth that
                seals = _seals(folder, files)
                staging.note_seals(folder, seals)
                sealed = True
                run_ = ledger.staged(run_, attempt=attempt, files=seals)
                return _commit(ledger, run_, attempt, folder, work)
            except BaseException as error:
                if waits(error):
                    raise
                destroyed = staging.destroy(folder)  # a folder that is not there any more may have been moved
                raise
    except BaseException as error:
        if waits(error):
            raise
        how = "it failed" if isinstance(error, DpError) else "it was interrupted"
        # Nobody who has stopped the run waits any longer, and a server that was waited for is not waited for again.
        failed = isinstance(error, Exception) and not isinstance(error, Unreachable | Refused)
        ledger.patience.seconds = A_MINUTE if failed else 0.0
        with contextlib.suppress(LedgerError):  # what failed first is what is told; the next attempt settles this one
            ledger.end(run_, attempt=attempt, how=how, destroyed=destroyed)
        raise


def _commit(ledger: Ledger, run_: Run, attempt: str, folder: pathlib.Path, work: Work) -> Run:
    """The ledger takes the release; from here on it is the one."""
    staged = {name: folder / name for name in run_.attempts[-1].staged}
    files = work.describe(
        run_.round,
        folder,
        staged,
        export.spent(ledger, run_),
        looks.of_ledger(ledger, run_, work.files),
        None if work.content_with is None else previous_release.of_ledger(ledger, run_, work.content_with),
    )
    return ledger.commit(run_, attempt=attempt, files={name: path.read_bytes() for name, path in files.items()})


def _publish(ledger: Ledger, run_: Run, work: Work) -> None:
    """Make the committed release visible at its place, from the bytes in the ledger."""
    if not _stands(run_, work):
        content = ledger.release(run_)
        with told_of_disk(work.target.parent):
            work.target.parent.mkdir(parents=True, exist_ok=True)
        with disks.alone(work.target.parent):
            if not _stands(run_, work):  # another process may have been faster
                _make_visible(content, f"{run_.attempts[-1].name}-release", work.target)
    for attempt in _left_by(run_):  # of one that was killed between its commit and its end
        staging.destroy(attempt.staging)
    if work.deliver is not None:  # not noted before: whoever is killed here delivers it with the same command
        work.deliver(work.target)
    ledger.patience.seconds = A_MINUTE  # it is visible: the same command notes the folder, if this one cannot
    ledger.published(run_, work.shown or str(work.target))


def _make_visible(content: Mapping[str, bytes], name: str, target: pathlib.Path) -> None:
    """Publish the files of a release. Whoever is killed here leaves a folder that the next one finds by its name."""
    shutil.rmtree(staging.staging_path(target, name), ignore_errors=True)
    with staging.staging_folder(target, name) as folder:
        for file, held in content.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held)
        staging.publish_folder(folder, target)


def _stands(run_: Run, work: Work) -> bool:
    """Whether the release stands at its place, whole.

    Raises:
        RequestError: something else stands there.
    """
    if not os.path.lexists(work.target):
        return False
    _refuse_other_release(work)
    if not manifest.holds(work.target, {name: {"sha256": sha256} for name, sha256 in run_.files.items()}):
        raise RequestError(
            field=f"output {str(work.target)!r}",
            message="holds this run's release, but its files differ from those that were released",
            hint="choose a new folder: the ledger returns the release",
        )
    return True


def _refuse_other_release(work: Work) -> None:
    """Refuse an output that exists, unless it is this run's own."""
    release_at(work.target, work.run_id, work.account, work.plan, work.content)


def release_at(target: pathlib.Path, run_id: str, dataset: str, plan: str, job: str) -> dict[str, Any] | None:
    """The manifest of the release at a place, which is this very run's; None where nothing stands there.

    Raises:
        RequestError: something else stands there.
    """
    if not os.path.lexists(target):
        return None
    content = manifest.read_manifest(target) or manifest.read_estimates(target)
    if content is None:
        staging.refuse_existing(target)
        raise AssertionError("it exists")
    field = f"output {str(target)!r}"
    if content.get("run_id") != run_id or content.get("dataset") != dataset:
        name = visible(release_list.shown_id(str(content.get("run_id"))))
        message = f"holds another run's release, of run {name!r}{_drawn_on(content)}"
        raise RequestError(field=field, message=message, hint="choose a new folder")
    if content.get("plan") != plan or content.get("job") != job:
        message = f"holds the release of run {run_id!r} of another job, plan, parameters or snapshot of a table"
        raise RequestError(field=field, message=message, hint="give this run another --run-id and another folder")
    return content


def _drawn_on(content: Mapping[str, Any]) -> str:
    """Return the day of a release as a manifest has it, in words; empty without a ledger."""
    ledger = content.get("ledger")
    day = ledger.get("drawn") if isinstance(ledger, Mapping) else None
    return f", drawn on {day}" if isinstance(day, str) else ""


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
