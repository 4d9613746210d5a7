"""What commands that publish share: where they publish, and how a published run is shown.

In: `--output`; a published run. Out: refusals; text or JSON on standard output. Holds: once a release is published the command is
done, whatever stands in the way of showing it. Not covered: what is shown (`terminal.summary`).
"""

import os
import sys
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.terminal import output

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.run import PublishedRun
    from dp_pipelines.jobs.spec.job_file import Job


def refuse_output(folder: str) -> None:
    """Refuse a folder whose path is not UTF-8: libraries that write files know no others. Raises: RequestError."""
    try:
        os.path.abspath(folder).encode()
    except UnicodeEncodeError:
        raise RequestError(field="--output", message="is not a UTF-8 path", hint="choose another name") from None


def print_run(published: "PublishedRun", job: "Job", *, in_json: bool) -> None:
    """Print what a run has published.

    Args:
        published: the run.
        job: what was asked for.
        in_json: whether to print JSON instead of text.
    """
    from dp_pipelines.jobs.terminal import summary

    shown = published.folder if published.place is None else published.place.shown
    done = f"published in {shown}; its summary could not be shown here"
    try:
        with output.printing(done):
            if in_json:
                release = summary.release_json(
                    published.folder, published.manifest, again=published.again, place=str(shown)
                )
                print(summary.as_json(release))
            else:
                where = _conditions(job)
                summary.print_release(
                    published.folder, sys.stdout, again=published.again, place=str(shown), where=where
                )
    except (Exception, KeyboardInterrupt):
        # The release is visible: whatever stands in the way of showing it, the run is done. Nothing of the cause is told,
        # since it may quote a released key in a form that terminals take for a command.
        output.point_nowhere(1)
        output.note(f"note: {done}")
    if published.place is not None:
        published.place.clear()


def _conditions(job: "Job") -> list[str]:
    """Return the keys of a job file that say which rows are read."""
    parts: dict[str, Any] = {"": job}
    parts |= {f"tables.{name}.": table for name, table in (job.tables or {}).items()}
    parts |= {f"stages.{name}.": stage for name, stage in job.stages.items()}
    return [f"{path}where" for path, part in parts.items() if part.where is not None]
