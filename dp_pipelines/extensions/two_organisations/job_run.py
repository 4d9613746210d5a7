"""The way to run jobs with `parties:`, as one of them.

In: a job, parsed arguments. Out: what a run publishes. Holds: importing this module is quick; the rest is imported when a job has
the key. Not covered: the run (`party_run`); what the key means (`jobs.spec.party_models`).
"""

import argparse
from typing import TYPE_CHECKING

from dp_pipelines.errors import RequestError

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.run import PublishedRun
    from dp_pipelines.jobs.spec.job_file import JobFile


class PartyRun:
    """Runs of one of several parties, as `KeyedRun` asks for them."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """See `KeyedRun`."""
        parser.add_argument("--party", metavar="NAME", help="which of the job's parties this is, where it has some")

    def is_named_by(self, given: argparse.Namespace) -> bool:
        """See `KeyedRun`."""
        return getattr(given, "party", None) is not None

    def run(self, file: "JobFile", given: argparse.Namespace, rest: list[str]) -> "PublishedRun":
        """See `KeyedRun`."""
        from dp_pipelines.extensions.two_organisations import party_run

        if given.synthetic:
            message = "cannot make up the rows of several parties"
            raise RequestError(field="--synthetic", message=message, hint="drop parties from a copy of the job")
        return party_run.run(
            file, given.output, party=getattr(given, "party", None), given=given.param, run_id=given.run_id, arguments=rest,
            ledger=given.ledger, runner=given.runner, anchor=given.anchor,
        )  # fmt: skip


PARTIES = PartyRun()
