"""What came after the release of a window of event time: its files that no release has read, and what a second run would do.

In: a request, the runs of its window that a ledger has committed. Out: the new files as a source, JSON values, sentences. Holds:
files are told by their names. NOT private: the number of rows in them is a number of rows. Not covered: rows that were added to
a file that was there already; tables with snapshots, joins and unions, of which only the earlier runs are told.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.ledger import release_list
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.read_files import SHOWN, read_files

NAME = "__dp_late"
"""What notes call the rows of new files; no table of a job begins with two underscores."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlierRuns:
    """Earlier runs of the window that a job would read.

    Args:
        run: the id of the last one, as it is shown.
        day: of its draw.
        runs: how many there are.
        names: of the files that none of them has read; None where that is not known.
        source: these files; None where there are none.
    """

    run: str
    day: str
    runs: int
    names: tuple[str, ...] | None
    source: Source | None


def released(request: Request, runs: Sequence[Run]) -> EarlierRuns | None:
    """Return what is known of earlier runs of the request's window; None if there are none.

    Args:
        request: with a window.
        runs: that a ledger has committed for it, the last one last.
    """
    if not runs:
        return None
    names: tuple[str, ...] | None = None
    source = None
    now = request.read
    if request.tables is None and now is not None and now.names and all(run.read and run.read.names for run in runs):
        known = {name for run in runs if run.read is not None for name in run.read.names}
        folder = str(request.file.path.resolve().parent)
        new = tuple(path for path in request.source.files if not known.issuperset(read_files([path], folder).names))
        names = read_files(new, folder).names
        source = dataclasses.replace(request.source, files=new) if new else None
    last = runs[-1]
    day = release_list.time_of_draw(last)[:10]
    run = release_list.shown_id(last.run_id)
    return EarlierRuns(run=run, day=day, runs=len(runs), names=names, source=source)


def sentences(late: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """Yield what to say of it, each with its weight.

    Args:
        late: as `findings.of_released` says it.
    """
    runs = f"run {late['run']}" if late["runs"] == 1 else f"{late['runs']} runs, the last of them {late['run']}"
    share = late["rows"]["share"] or 0.0
    if late["files"]:
        listed = ", ".join(late["files"][:SHOWN])
        more = len(late["files"]) - SHOWN
        text = (
            f"{round(late['rows']['number'] or 0):,} rows of this window, {100 * share:.3g}% of those that count now, are in "
            f"files that came after its release by {runs} on {late['day']}: {listed}{f' and {more:,} more' if more > 0 else ''}. "
            "They are in no release."
        )
        yield max(share, 0.3), text
    told = f"This window was released by {runs} on {late['day']}"
    if late["files"] is None:
        told += "; which of its files came later is not known"
    elif not late["files"]:
        told += ", and no file has come since; rows that were added to a file are not told"
    yield (
        0.29,
        f"{told}. Another run of it overlaps that: the rows of the first count again, people pay for both, and the difference of "
        "the two releases is about those who came later.",
    )
