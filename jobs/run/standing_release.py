"""The release that is at the place of an output already, if it is there.

In: a folder, the names of a run. Out: the manifest of its release. Holds: a folder with anything else is refused, and nothing in
it is changed. Not covered: whether its files are whole (`release.manifest.holds`).
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.ledger import release_list
from dp_pipelines.release import manifest, staging
from dp_pipelines.report.key_text import visible


def release_at(target: pathlib.Path, run_id: str, dataset: str, plan: str, job: str) -> dict[str, Any] | None:
    """Return the manifest of the release at a place, which must be that of this run; None if the place is empty.

    Args:
        target: the folder of an output.
        run_id, dataset: the name of the run.
        plan: the digest of its plan.
        job: the digest of its job and parameters.

    Raises:
        RequestError: there is something else.
    """
    if not os.path.lexists(target):
        return None
    content = manifest.read_manifest(target)
    free = "" if content is None else f"; {release_list.REWRITE} gives that release other files or words for free"
    content = content or manifest.read_estimates(target)
    if content is None:
        staging.refuse_existing(target)
        raise AssertionError("it exists")
    field = f"output {str(target)!r}"
    if content.get("run_id") != run_id or content.get("dataset") != dataset:
        name = visible(release_list.shown_id(str(content.get("run_id"))))
        message = f"holds another run's release, of run {name!r}{_drawn_on(content)}"
        raise RequestError(field=field, message=message, hint=f"choose a new folder{free}")
    if content.get("plan") != plan or content.get("job") != job:
        message = f"holds the release of run {run_id!r} of another job, plan, parameters or snapshot of a table"
        raise RequestError(
            field=field, message=message, hint=f"give this run another --run-id and another folder{free}"
        )
    return content


def _drawn_on(content: Mapping[str, Any]) -> str:
    """Return the day of a release as a manifest has it, in words; empty without a ledger."""
    ledger = content.get("ledger")
    day = ledger.get("drawn") if isinstance(ledger, Mapping) else None
    return f", drawn on {day}" if isinstance(day, str) else ""
