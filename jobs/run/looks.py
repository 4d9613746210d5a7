"""Looks at the raw rows (`dp-pipelines tune` and `check`) that may have influenced the parameters of a release.

In: a run, its ledger, its job file. Out: the looks that its manifest and report must name. Holds: a look counts for each run that
was admitted after it, by the name of its account or by its files; a job file that `tune` wrote names its look itself, so that a
run without that ledger says so too. Not covered: whether anybody used what was seen; files that were copied; a note that
somebody takes out of the job file.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.ledger import sources
from dp_pipelines.ledger.entries import TUNE, Run, Tuning

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Look:
    """A look at the raw rows.

    Args:
        date: its day.
        stage: which was tuned, or the names of all that were checked.
        after_plan: whether the plan was frozen already, so that the look did not choose its parameters.
        command: `tune` or `check`.
    """

    date: str
    stage: str
    after_plan: bool = False
    command: str = TUNE

    @property
    def words(self) -> str:
        """What a release says of it."""
        if self.after_plan:
            return (
                f"raw rows were looked at with `{self.command}` on {self.date}, after the plan was frozen: what was chosen by "
                "that look, such as a filter of rows, is not covered by epsilon"
            )
        if self.command != TUNE:
            return (
                f"raw rows were looked at with `{self.command}` on {self.date}: what was chosen by that look, such as a bound or "
                "a filter of rows, is not covered by epsilon"
            )
        return (
            f"its parameters were chosen by looking at raw rows with `tune` on {self.date}: that choice is not covered by "
            "epsilon"
        )

    def to_json(self) -> dict[str, str]:
        """As a manifest has it."""
        return {"date": self.date, "stage": self.stage, "words": self.words}


def of_ledger(ledger: "Ledger", run: Run, files: Sequence[str]) -> list[Look]:
    """The looks that a ledger noted before a run was admitted.

    Args:
        ledger, run: which.
        files: what the run reads.
    """
    block = ledger.block(run.account, run.window, run.plan)
    frozen = block.looks if block is not None else run.looks
    noted = enumerate(ledger.state.tunings[: run.looks])
    return [
        Look(date=look.time[:10], stage=look.stage, after_plan=number >= frozen, command=look.command)
        for number, look in noted
        if _same_rows(look, run.account, files)
    ]


def of_job(job: Job) -> list[Look]:
    """The looks that a job file names."""
    return [Look(date=look.date, stage=look.stage) for look in job.tuned or ()]


def marks(looks: Iterable[Look]) -> list[Look]:
    """Each look once; one that is known to have come before the plan is no look after it."""
    listed = set(looks)
    return sorted(
        look for look in listed if not look.after_plan or dataclasses.replace(look, after_plan=False) not in listed
    )


def _same_rows(look: Tuning, account: str, files: Sequence[str]) -> bool:
    return look.account == account or any(sources.first_match(pattern, files) for pattern in look.sources)
