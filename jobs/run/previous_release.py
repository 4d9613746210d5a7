"""The release before: the nearest earlier one of the same job that was committed when a run is about to be.

In: a ledger and a run. Out: that release, from the bytes that the ledger keeps. Holds: released files alone; which one it is
depends on the ledger and on nothing in the rows; where it is in doubt whether two runs are of one job, there is none. Not
covered: which of its numbers can be compared (`report.trends.previous_numbers`).
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import LedgerError
from dp_pipelines.ledger import events
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.release_list import time_of_draw
from dp_pipelines.report.trends import published_runs
from dp_pipelines.report.trends.published_runs import ReleasedRun

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreviousRelease:
    """A release that was committed before.

    Args:
        run_id: of its run.
        day: of its draw (UTC).
        content: its manifest.
        tables: the content of the Parquet file of each stage.
    """

    run_id: str
    day: str
    content: Mapping[str, Any]
    tables: Mapping[str, bytes]


def of_ledger(ledger: "Ledger", run: Run, content_with: Callable[[Mapping[str, str]], str]) -> PreviousRelease | None:
    """Return the release before; None where there is none, or its bytes cannot be read, or the run is one for corrections.

    It is of the same plan and job file, and differs at most in its window and in parameters that are dates. Of several it is the
    one about the latest time before that of the run; where nothing tells their times, the one that was committed last.

    Args:
        ledger: it keeps all releases.
        run: which is about to be committed.
        content_with: the digest of its job with these parameters, as text: what a run of the same job has.
    """
    if _is_spare(ledger, run):
        return None
    others = {other.run_id: other for other in _committed(ledger, run) if _differs_in_dates_alone(other, run)}
    earlier = published_runs.before([_told(other) for other in others.values()], _told(run))
    nearest_first = (others[one.name] for one in reversed(earlier))
    # Digests of jobs with long lists take a while, and the first one is mostly the same.
    found = next((other for other in nearest_first if other.content == content_with(other.params)), None)
    if found is None:
        return None
    try:
        files = ledger.release(found)
        content = json.loads(files["manifest.json"])
    except (LedgerError, KeyError, ValueError):
        return None  # `ledger verify` tells of damage; a page without a comparison is no reason to stop a run
    tables = {name.removesuffix(".parquet"): held for name, held in files.items() if name.endswith(".parquet")}
    return PreviousRelease(run_id=found.run_id, day=time_of_draw(found)[:10], content=content, tables=tables)


def _committed(ledger: "Ledger", run: Run) -> Iterator[Run]:
    """The other runs of a plan that were committed, the last one last, without those for corrections."""
    for event in ledger.history:
        if event.kind != events.RUN_COMMITTED or event.content.get("account") != run.account:
            continue
        other = ledger.state.runs.get((run.account, str(event.content.get("run_id"))))
        if other is None or not other.committed or other.run_id == run.run_id or other.plan != run.plan:
            continue
        if not _is_spare(ledger, other):
            yield other


def _is_spare(ledger: "Ledger", run: Run) -> bool:
    """Whether a run is one of those that its budget has for corrections."""
    block = ledger.state.plans[run.account, run.window, run.plan]
    return run.round > block.runs - block.spare


def _differs_in_dates_alone(other: Run, run: Run) -> bool:
    """Whether two runs are of one job file, and of what it was given only dates differ."""
    if other.job != run.job or other.params.keys() != run.params.keys():
        return False  # the source of a job file at another place may be other files by the same name
    changed = [pair for name, said in run.params.items() if (pair := {said, other.params[name]}) != {said}]
    return all(published_runs.day_of(said) is not None for pair in changed for said in pair)


def _told(run: Run) -> ReleasedRun:
    """What tells the time of a run."""
    content = {"run_id": run.run_id, "params": run.params, "ledger": {"window": run.window}}
    return ReleasedRun(folder=pathlib.Path(run.run_id), content=content)
