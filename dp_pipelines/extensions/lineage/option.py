"""The option `--lineage` of `run`: its help, and when its events are written.

In: a run. Out: a file with two events. Holds: nothing slow is imported before a run is followed. Not covered: what the events
say (`events`).
"""

import argparse
import pathlib
from typing import TYPE_CHECKING

from dp_pipelines.jobs.cli.run_option import Follower, RunOption

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.job_file import JobFile


class _Lineage:
    """The option `--lineage`."""

    name = "lineage"

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add `--lineage`."""
        parser.add_argument(
            "--lineage",
            metavar="FILE",
            help="write OpenLineage events of the run to FILE, one JSON object a line; {NAME} is filled from --param; "
            "earlier events are replaced, other files are not",
        )

    def follow(self, file: "JobFile", given: argparse.Namespace) -> Follower:
        """Return what writes the events, after it has refused a file that cannot be written."""
        from dp_pipelines.errors import RequestError
        from dp_pipelines.extensions.lineage import events
        from dp_pipelines.jobs.run import run_names

        if given.synthetic:
            raise RequestError(
                field="--lineage", message="is for releases, and a report of made-up rows is none", hint="drop it"
            )
        values = run_names.values_of(file, given.param) if "{" in given.lineage else {}
        target = pathlib.Path(run_names.filled(given.lineage, values, "--lineage"))
        if target.is_dir() or not target.absolute().parent.is_dir():
            rule = "must be a file in a folder that exists"
            raise RequestError(field="--lineage", message=rule, hint="make the folder first, or name another file")
        if target.absolute().is_relative_to(pathlib.Path(given.output).absolute()):
            raise RequestError(
                field="--lineage", message="must not be in the folder of --output", hint="name another file"
            )
        if not events.is_replaceable(target):
            rule = "is a file without lineage events, and is not replaced"
            raise RequestError(field="--lineage", message=rule, hint="name another file")
        return events.Events(file, given, target)


LINEAGE: RunOption = _Lineage()
