"""The life of one run, from a checked request to its published folder. Every kind of run goes through `carry_out`.

In: a request (`RunRequest`), an open ledger or none. Out: the published folder, made by this call or an earlier one. Holds: the
run is charged before anything is read; no draw is published before the run is committed; what a dead attempt has left is
destroyed, or finished where it was complete, before the next attempt begins. After a crash, run the same command again. Not
covered: what public facts refuse before (`run`, `made_up_run`, `collected_run`).
"""

import abc
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from dp_pipelines.jobs.run.looks import Look
from dp_pipelines.ledger.entries import EngineJob, Run
from dp_pipelines.training.kept_draws import Draws

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.previous_release import PreviousRelease
    from dp_pipelines.ledger.ledger import Ledger


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunAttempt:
    """One attempt at a run.

    Args:
        number: the round of the run among those of its plan, from 1.
        folder: the private folder of the attempt.
        draws: keeps what later steps depend on, so that no draw is repeated.
        submitted: is told each job that an engine gets.
    """

    number: int
    folder: pathlib.Path
    draws: Draws
    submitted: Callable[[EngineJob], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a ledger knows about a run, for its manifest and page.

    Args:
        ledger: its account and what that has spent; empty where no ledger remembers the run.
        looks: looks at the raw rows that it has noted.
        before: the release that this one is compared with.
    """

    ledger: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    looks: Sequence[Look] = ()
    before: "PreviousRelease | None" = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRequest(abc.ABC):
    """What the driver carries out: the names of a run, and how to charge, make and describe it.

    Args:
        account, run_id: its name.
        window: of event time, or empty.
        plan: the digest of its plan.
        asked: the digest of what the plan was made from.
        content: the digest of the job and the parameters.
        target: the folder to publish.
        files: the files that it reads.
        tell: says something to the user who waits.
        stop: has a job end that a dead attempt has left with an engine.
        shown: what users call the target; empty: its path.
        content_with: gives the digest of the job with other parameters, as text; None: the run is compared with no other.
    """

    account: str
    run_id: str
    plan: str
    asked: str
    content: str
    target: pathlib.Path
    files: Sequence[str]
    tell: Callable[[str], None]
    stop: Callable[[EngineJob], None]
    window: str = ""
    shown: str = ""
    content_with: Callable[[Mapping[str, str]], str] | None = None

    @abc.abstractmethod
    def admit(self, ledger: "Ledger") -> Run:
        """Charge the run, or find it charged.

        Raises:
            RequestError, BudgetError: it is refused; nothing is charged.
        """

    @abc.abstractmethod
    def produce(self, attempt: RunAttempt) -> dict[str, pathlib.Path]:
        """Make the tables and models of the run in the folder of an attempt, and return the files by published name.

        An attempt whose frozen draws are there reads these and draws nothing twice.
        """

    @abc.abstractmethod
    def describe(
        self, number: int, folder: pathlib.Path, files: Mapping[str, pathlib.Path], facts: RunFacts
    ) -> dict[str, pathlib.Path]:
        """Write manifest and page next to the files, and return all files of the release by published name.

        Args:
            number: the round of the run.
            folder: the private folder of the attempt that made the files.
            files: what `produce` returned.
            facts: what the ledger knows.
        """

    @abc.abstractmethod
    def deliver(self, *, remembered: bool) -> None:
        """Publish the release at further places, from its folder; the result is the same however often this is called.

        Args:
            remembered: whether a ledger remembers the run.
        """


class RunState(Protocol):
    """How far a run is, and the steps that bring it further: `LedgeredRun` or `UnledgeredRun`."""

    @property
    def committed(self) -> bool:
        """Whether the run has its release."""

    @property
    def published(self) -> bool:
        """Whether the release was published before."""

    def refuse_other_release(self) -> None:
        """Raise RequestError if the target exists, unless it is the release of this run."""

    def destroy_leftovers(self) -> None:
        """Destroy what dead attempts have left."""

    def admitted(self) -> AbstractContextManager[None]:
        """Charge the run unless it is charged, for the time of a block that brings it to its release."""

    def next_attempt(self) -> RunAttempt | None:
        """Begin an attempt as soon as no other one works on the run. None: another one has committed it, or was complete."""

    def ended_if_it_fails(self, attempt: RunAttempt) -> AbstractContextManager[None]:
        """Give a block its private folder; if it fails, destroy the folder and end the attempt."""

    def commit(self, attempt: RunAttempt, files: Mapping[str, pathlib.Path]) -> None:
        """Make the files of an attempt the release of the run, with their manifest and page."""

    def publish(self) -> None:
        """Make the release visible at its target, and deliver it."""


def carry_out(request: RunRequest, ledger: "Ledger | None") -> bool:
    """Bring a run to its published release.

    Args:
        request: the run.
        ledger: charges and remembers it; None: nothing does.

    Returns:
        True if the release had been published before.

    Raises:
        RequestError, BudgetError: the run is refused; nothing is charged.
        LedgerError: the ledger cannot be used.
        DpError: the attempt failed; what was charged stays, and the same command tries again.
    """
    run = _state_of(request, ledger)
    run.refuse_other_release()
    run.destroy_leftovers()
    with run.admitted():
        attempt = run.next_attempt()
        if attempt is not None:
            with run.ended_if_it_fails(attempt):
                files = request.produce(attempt)
                run.commit(attempt, files)
        again = run.published
        run.publish()
    return again


def _state_of(request: RunRequest, ledger: "Ledger | None") -> RunState:
    if ledger is None:
        from dp_pipelines.jobs.run.unledgered_run import UnledgeredRun

        return UnledgeredRun(request)
    from dp_pipelines.jobs.run.ledgered_run import LedgeredRun  # loads SQLAlchemy

    return LedgeredRun(request, ledger)
