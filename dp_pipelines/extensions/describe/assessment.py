"""Puts the assessment of a job over tables together, from its plan.

In: a checked job file, its plan, a ledger where there is one. Out: the sections of a page. Holds: no row is read and no budget
is touched; the same job, plan and ledger give the same page. Not covered: jobs of collected stages (collected_assessment).
"""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp_pipelines.accounting.group_privacy import GroupGuarantee
from dp_pipelines.extensions.describe import guarantee, what_is_published, what_is_read, what_remains
from dp_pipelines.extensions.describe.assessment_page import Assessment, Section, ToFillIn, Verbatim
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.terminal import summary
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.report.numbers import cost_number

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger

LEAD = (
    "Written by dp-pipelines describe from the job file alone, before a row was read. The order follows Article 35(7) of "
    "the GDPR. What the software knows is filled in; what only you know is asked."
)

PURPOSE = Section(
    heading="Purpose",
    blocks=[
        ToFillIn(question="What is published for which purpose, and whose interest is that?"),
        ToFillIn(question="Who is responsible, and who operates the job?"),
    ],
)


def assessment_of(
    file: JobFile,
    stages: Mapping[str, Query | TrainModel],
    plan: dict[str, Any],
    *,
    request: Request | None,
    groups: Sequence[GroupGuarantee],
    ledger: "Ledger | None",
    place: str,
) -> Assessment:
    """The page.

    Args:
        file: the job.
        stages: what each stage asks for.
        plan: what `plan --json` prints.
        request: of the checked files; None where they were not checked.
        groups: what larger groups are guaranteed.
        ledger: opened; None where there is none.
        place: where the ledger is, or would be.
    """
    job, total = file.job, plan["accounted"]
    epsilon, delta = total["epsilon"], total["delta"]
    unit = guarantee.unit_of(job)
    printed = io.StringIO()
    summary.print_plan(plan, printed)
    return Assessment(
        title=job.dataset,
        facts=[
            ("Protected", f"each {unit}"),
            ("Budget", f"epsilon {cost_number(job.budget.epsilon)}, delta {cost_number(job.budget.delta)}"),
            ("Runs", f"{job.budget.all_runs:,}"),
            ("Plan", plan["digest"][:16]),
        ],
        lead=LEAD,
        sections=[
            PURPOSE,
            Section(heading="What is read", blocks=[*what_is_read.blocks_of(file, stages, request)]),
            Section(heading="What is published", blocks=[*what_is_published.blocks_of(job, stages, plan)]),
            Section(heading="Who is protected, and from whom", blocks=[*guarantee.protected(job, epsilon, delta)]),
            Section(
                heading="By what",
                blocks=[
                    *what_is_published.protections(plan),
                    *guarantee.budget(job, plan),
                    *guarantee.account(ledger, job.dataset, place),
                ],
            ),
            Section(heading="What that means", blocks=[*guarantee.in_plain_words(epsilon, delta, groups, unit)]),
            Section(heading="What remains", blocks=[*what_remains.risks(job, stages)]),
            what_remains.necessity(),
            what_remains.retention(),
            *what_remains.responsible(),
            Section(heading="The plan", blocks=[Verbatim(text=printed.getvalue())]),
        ],
    )
