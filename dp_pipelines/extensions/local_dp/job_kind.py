"""The kind of job `collected`: estimates from reports of devices.

In: a job, parsed arguments. Out: plans and runs. Holds: importing this module is quick; the rest is imported when a job is of
this kind. Not covered: what the keys mean (`collected_job`).
"""

import argparse
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.job_kinds import JobDescription

if TYPE_CHECKING:
    from dp_pipelines.extensions.local_dp.collected_job import CollectedFile


class CollectedKind:
    """Jobs of collected stages, as `JobKind` asks for them."""

    part = "CollectedJob"
    elsewhere = (
        "has no central budget, and only dp-pipelines plan, run, runs and ledger know such jobs",
        "see docs/collect.md",
    )

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of such jobs."""
        from dp_pipelines.extensions.local_dp.collected_job import CollectedJob

        return CollectedJob.model_json_schema()

    def read(self, document: Content, path: pathlib.Path) -> "CollectedFile":
        """See `JobKind`."""
        from dp_pipelines.extensions.local_dp import collected_job

        return collected_job.checked(document, path)

    def plan(self, document: Content, path: pathlib.Path, given: argparse.Namespace) -> int:
        """See `JobKind`."""
        from dp_pipelines.extensions.local_dp import collected_commands

        return collected_commands.plan(self.read(document, path), given)

    def run(self, document: Content, path: pathlib.Path, given: argparse.Namespace, rest: list[str]) -> int:
        """See `JobKind`."""
        from dp_pipelines.extensions.local_dp import collected_commands

        return collected_commands.run(self.read(document, path), given, rest)

    def describe(self, document: Content, path: pathlib.Path, params: Sequence[str]) -> JobDescription:
        """See `JobKind`."""
        from dp_pipelines.extensions.local_dp import collected_plan, collected_request
        from dp_pipelines.jobs.spec import job_parameters

        file = self.read(document, path)
        if params:
            job_parameters.take({name: param.type for name, param in file.job.params.items()}, params)
        plan = collected_plan.plan_of(file, collected_request.stages_of(file))
        return JobDescription(
            dataset=file.job.dataset,
            unit=tuple(file.job.privacy_unit or ()),
            source=file.job.source,
            plan=plan,
            lines=list(collected_plan.lines_of(plan)),
            promise=list(collected_plan.promise_in_words(plan["promise"])),
        )


COLLECTED = CollectedKind()
