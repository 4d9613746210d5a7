"""A checklist of a job after NIST SP 800-226, filled in from its plan.

In: a job, what its stages ask for, its plan as JSON, the guarantees of groups. Out: sections of a page. Holds: the order is that
of the publication ("Guidelines for Evaluating Differential Privacy Guarantees", March 2025): the guarantee, the algorithms, the
deployment; what only people know is asked. Not covered: whether the publication's authors would agree.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.accounting.group_privacy import GroupGuarantee
from dp_pipelines.extensions.describe import guarantee, what_is_published, what_remains
from dp_pipelines.extensions.describe.assessment_page import Assessment, Listed, Section, ToFillIn
from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.report.numbers import cost_number

KIND = "Checklist (after NIST SP 800-226)"

LEAD = (
    "A checklist after NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees, written by dp-pipelines "
    "describe from the job file. It is no statement of NIST. What only you know is asked."
)


def checklist_of(
    job: Job, stages: Mapping[str, Query | TrainModel], plan: Mapping[str, Any], groups: Sequence[GroupGuarantee]
) -> Assessment:
    """Return the checklist as a page.

    Args:
        job: to describe.
        stages: what each stage asks for.
        plan: what `plan --json` prints.
        groups: what larger groups are guaranteed.
    """
    epsilon, delta, unit = plan["accounted"]["epsilon"], plan["accounted"]["delta"], guarantee.unit_of(job)
    sections = [
        Section(
            heading="Privacy parameters",
            blocks=[
                *guarantee.budget(job, dict(plan)),
                *guarantee.in_plain_words(epsilon, delta, groups, unit),
                ToFillIn(question="How was this epsilon chosen, and by whom?"),
            ],
        ),
        Section(
            heading="Unit of privacy",
            blocks=[
                f"The unit is {unit}, in every stage. Neighbours differ by all of its rows, added or removed (unbounded).",
                ToFillIn(question="Is the unit a person? Who has several, and who shares one?"),
            ],
        ),
        Section(
            heading="Algorithms and their correctness",
            blocks=[
                *what_is_published.protections(plan),
                Listed(
                    items=[
                        "noise is drawn as exact integers, so that there is no attack on floating point numbers",
                        "randomness comes from the operating system's generator alone",
                        "proofs, tests and planted faults: docs/reviewers.md",
                    ]
                ),
            ],
        ),
        Section(
            heading="Composition",
            blocks=[
                "The loss of the whole plan is computed from privacy loss distributions. A ledger adds up plans.",
                ToFillIn(question="Which other releases about the same people are outside of this ledger?"),
            ],
        ),
        Section(
            heading="Utility",
            blocks=[
                "Each number has an error bar for the noise, and counted ones a range that covers what bounds cut off.",
                ToFillIn(question="Are the numbers good enough for their purpose (dp-pipelines plan)?"),
            ],
        ),
        Section(
            heading="Bias",
            blocks=[
                "Bounds and clamps cut large contributions off. Small groups may be missing: a threshold decides.",
                ToFillIn(
                    question="Which people are in small groups, or missing from the rows, and what follows for them?"
                ),
            ],
        ),
        Section(heading="Trust model", blocks=[*guarantee.protected(job, epsilon, delta)]),
        Section(
            heading="Side channels and query model",
            blocks=[
                "Nobody queries the rows: a plan that is fixed before they are read decides. No fact of the rows "
                "affects an error, an exit code or a message. Timing is not covered.",
            ],
        ),
        Section(
            heading="Data security and access",
            blocks=[
                ToFillIn(
                    question="Who can read the rows, the staging folder and the ledger, and how is that controlled?"
                ),
                ToFillIn(question="Which columns are collected though no stage reads them?"),
            ],
        ),
        Section(heading="What remains", blocks=[*what_remains.risks(job, stages)]),
    ]
    facts = [("Protected", f"each {unit}"), ("Epsilon", cost_number(epsilon)), ("Delta", cost_number(delta))]
    return Assessment(
        kind=KIND,
        title=job.dataset,
        facts=[*facts, ("Plan", plan["digest"][:16])],
        lead=LEAD,
        sections=sections,
    )
