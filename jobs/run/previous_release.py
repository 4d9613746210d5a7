"""The release before: the last one of a plan that was committed when a run is about to be.

In: a ledger and a run. Out: that release, from the bytes that the ledger keeps. Holds: released files alone; which one it is
depends on the ledger and on nothing in the rows. Not covered: what can be compared (`report.trends.previous_numbers`).
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import LedgerError
from dp_pipelines.ledger import events
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.release_list import time_of_draw

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


def of_ledger(ledger: "Ledger", run: Run) -> PreviousRelease | None:
    """Return the release of the same plan that was committed last; None where there is none, or its bytes cannot be read.

    Args:
        ledger: it keeps all releases.
        run: which is about to be committed.
    """
    if run.account in ledger.state.answers:
        return None
    for event in reversed(ledger.history):
        if event.kind != events.RUN_COMMITTED or event.content.get("account") != run.account:
            continue
        known = ledger.state.runs.get((run.account, str(event.content.get("run_id"))))
        if known is None or known.run_id == run.run_id or known.plan != run.plan or not known.committed:
            continue
        try:
            files = ledger.release(known)
            content = json.loads(files["manifest.json"])
        except (LedgerError, KeyError, ValueError):
            return None  # `ledger verify` tells of damage; a page without a comparison is no reason to stop a run
        tables = {name.removesuffix(".parquet"): held for name, held in files.items() if name.endswith(".parquet")}
        return PreviousRelease(run_id=known.run_id, day=time_of_draw(known)[:10], content=content, tables=tables)
    return None
