"""Finds the ledger and the account of answers that a run of collected stages is charged to.

In: a checked request, `--ledger` or nothing. Out: an open ledger that has the job's account, with the job's files registered.
Holds: a ledger that was named must exist and have the account; where none is named, the file beside the job is made, and its
account allows what this job asks and nothing more; an account of tables, or of the other kind, is refused before anything is
written. Not covered: whether the account has room (`answers_ledger`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.local_dp import answers_export, answers_ledger
from dp_pipelines.extensions.local_dp.answers import AnswerLimits, Asking, answers_by_question
from dp_pipelines.extensions.local_dp.answers_ledger import account_of, refuse_kind
from dp_pipelines.extensions.local_dp.collected_request import CollectedRequest
from dp_pipelines.jobs.run import ledger_account
from dp_pipelines.ledger import default_places, sources, units
from dp_pipelines.ledger.entries import Cost
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.ledger.patience import A_MINUTE, Patience


class AnswersBook:
    """The ledger of a run of collected stages.

    Args:
        request: the run.
        url: what was named, or None.
        anchor: where the ledger's anchor must be, or None.
        tell: says something to the user.

    Raises:
        RequestError: a ledger was named that is not there, or the account is another one's.
        LedgerError: the ledger cannot be used.
    """

    def __init__(
        self, request: CollectedRequest, url: str | None, tell: Callable[[str], None], *, anchor: str | None = None
    ) -> None:
        self._request, self._url, self._tell, self._anchor = request, url, tell, anchor
        self._place = default_places.beside(request.file.path) if url is None else url
        self._patience = Patience(A_MINUTE, tell)
        self._ledger: Ledger | None = None

    def __enter__(self) -> "AnswersBook":
        # What is not there yet is made once everything else is known to be right (`open`).
        if self._url is not None or Ledger.exists(self._place, patience=self._patience):
            self._ledger = Ledger.open(self._place, anchor=self._anchor, patience=self._patience)
            if self._url is not None or self._name in [owner.name for owner in self._ledger.state.owners]:
                refuse_kind(account_of(self._ledger, self._name), self._request.askings)
        return self

    def __exit__(self, *failure: object) -> None:
        if self._ledger is not None:
            ledger_account.close(self._ledger, self._tell)

    def run_id(self, standing: Mapping[str, Any] | None) -> str:
        """The id of a run that was given none: the same command goes on where it stopped, and estimates anew where it was done.

        Args:
            standing: the manifest of estimates at the output's place, or None.
        """
        begins, runs = f"{self._request.digest[:24]}-", {} if self._ledger is None else self._ledger.state.runs
        mine = {
            int(run_id.removeprefix(begins)): run
            for (account, run_id), run in runs.items()
            if account == self._name and run_id.startswith(begins) and run_id.removeprefix(begins).isdecimal()
        }
        there = None if standing is None else runs.get((self._name, str(standing.get("run_id"))))
        if there is not None and there.run_id in [run.run_id for run in mine.values()]:
            return there.run_id
        last = max(mine, default=0)
        # One that was admitted and not seen by anybody yet is finished first.
        unfinished = last > 0 and not mine[last].folders
        return f"{begins}{last if unfinished else last + 1}"

    def committed(self, run_id: str) -> bool:
        """Whether a run has its estimates already."""
        known = None if self._ledger is None else self._ledger.run(self._name, run_id)
        return known is not None and known.committed

    def open(self) -> Ledger:
        """The ledger with the run's account and its files registered; made, where none was named and there is none.

        Raises:
            RequestError: the files belong to another account.
            LedgerError: the ledger cannot be made or used.
        """
        job, files = self._request.file.job, self._request.source.files
        pattern = sources.absolute(job.source.pattern, str(self._request.file.path.parent))
        if self._ledger is None:
            self._ledger = Ledger.open_or_create(self._place, anchor=self._anchor, patience=self._patience)
        self._ledger.refuse_foreign(self._name, pattern, files)  # or the account would be opened for nothing
        if self._name not in self._ledger.state.others:
            self._open_account(self._ledger)
        self._ledger.claim_source(self._name, pattern, files)
        # Where this user has charged one of these files to another account, this one has started with nothing asked.
        place = default_places.AccountPlace(
            account=self._name, ledger=self._ledger.state.ledger, shown=self._ledger.shown
        )
        for warning in default_places.remember(place, pattern, files, "--ledger"):
            self._tell(warning)
        return self._ledger

    def _open_account(self, ledger: Ledger) -> None:
        kind, limits = self._request.askings[0].kind, limits_for(self._request.askings)
        try:
            answers_ledger.open_account(ledger, self._name, kind=kind, limits=limits)
        except RequestError:
            ledger.refresh()
            if self._name not in ledger.state.others:
                raise
            refuse_kind(account_of(ledger, self._name), self._request.askings)  # another first run was faster
            return
        self._tell(
            f"opens the account {self._name!r} of kind {kind} in the ledger {ledger.shown}, which allows what this job asks and "
            f"nothing more: {answers_export.limits_in_words(kind, limits)}; raise its limits with `dp-pipelines ledger raise`"
        )

    @property
    def _name(self) -> str:
        return self._request.file.job.dataset


def limits_for(askings: tuple[Asking, ...]) -> AnswerLimits:
    """The limits that allow what a job asks, and nothing more."""
    each = [Cost(epsilon=one.each.epsilon * one.answers, delta=one.each.delta * one.answers) for one in askings]
    total = sum(each, Cost())
    asked = {(one.document, one.memoised): one.cost for asking in askings for one in asking.questions}
    return AnswerLimits(
        epsilon=_at_least(total.epsilon, units.epsilon_of, units.epsilon_cap),
        delta=_at_least(total.delta, units.delta_of, units.delta_cap),
        questions=len(asked),
        answers=max(answers_by_question(askings).values()),
        question_epsilon=_at_least(max(asked.values()), units.epsilon_of, units.epsilon_cap),
    )


def _at_least(amount: int, shown: Callable[[int], float], held: Callable[[float], int]) -> float:
    """The smallest float near an amount of whole units that holds it."""
    value = shown(amount)
    while held(value) < amount:
        value = math.nextafter(value, math.inf)
    return value
