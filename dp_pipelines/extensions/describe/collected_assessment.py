"""Puts the assessment of a job of collected stages together: the devices keep the promise, and no budget of tables is spent.

In: the facts of a job, a ledger where there is one. Out: the sections of a page. Holds: no report is read; the
epsilon of devices is never called that of a release. Not covered: what devices do, which their own program must keep.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.extensions.describe import what_remains
from dp_pipelines.extensions.describe.assessment import LEAD, PURPOSE
from dp_pipelines.extensions.describe.assessment_page import (
    Assessment,
    Block,
    Cells,
    Listed,
    Section,
    ToFillIn,
    Verbatim,
)
from dp_pipelines.jobs.spec.job_kinds import JobDescription
from dp_pipelines.report.attack_odds import example, factor
from dp_pipelines.report.numbers import cost_number, left_cost_number

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger

REMAINS = (
    "a device whose program is not the one that was reviewed, or that answers another question than its document says",
    "that somebody sent a report, when, and from which address",
    "columns beside the answers: nothing hides them, and nothing should be in them",
    (
        "answers about the same fact under another question's name: their epsilons add up, and only the ledger of one "
        "operator counts them"
    ),
    "people who depend on each other, and what is true of people in general",
    "timing and side channels of the runner and its user interface",
)


def assessment_of(described: JobDescription, *, ledger: "Ledger | None", place: str) -> Assessment:
    """Return the page.

    Args:
        described: the job.
        ledger: opened; None where there is none.
        place: where the ledger is, or would be.
    """
    plan, promised = described.plan, described.plan["promise"]
    epsilon = promised["local_epsilon_of_a_person"]
    return Assessment(
        title=described.dataset,
        facts=[
            ("Protected", "each person's answers, by their own device"),
            ("Local epsilon of a person", cost_number(epsilon)),
            ("Neighbours", str(promised["neighbours"])),
        ],
        lead=LEAD,
        sections=[
            PURPOSE,
            Section(heading="What is read", blocks=[*_read(described)]),
            Section(
                heading="What is published",
                blocks=[
                    Listed(items=[f"{stage['name']}: estimates of {_asked(stage)}" for stage in plan["stages"]]),
                    "As often as is asked for: estimates come from reports that are random already, and cost nobody anything.",
                    ToFillIn(
                        question="Who reads it: staff, customers, the public? Through which channel, under which terms?"
                    ),
                ],
            ),
            Section(
                heading="Who is protected, and from whom",
                blocks=[
                    *described.promise,
                    "Protected from everybody who sees the report, those who collect it and run this job among them. Not "
                    "protected from somebody who controls the device.",
                ],
            ),
            Section(heading="By what", blocks=[*_by_what(ledger, described.dataset, place)]),
            Section(heading="What that means", blocks=[_meaning(epsilon)]),
            Section(
                heading="What remains",
                blocks=[
                    Listed(items=REMAINS),
                    ToFillIn(question="Which of these matter here, how likely and how grave are they, and for whom?"),
                    ToFillIn(question="Which measures meet them?"),
                ],
            ),
            what_remains.necessity(),
            Section(
                heading="Retention",
                blocks=[
                    "Reports are as random as when they were sent, however long they are kept; the ledger must be kept as "
                    "long as people may be asked again.",
                    ToFillIn(question="How long are reports, senders' ids and estimates kept, and who removes them?"),
                ],
            ),
            *what_remains.responsible(),
            Section(heading="The plan", blocks=[Verbatim(text="\n".join(described.lines))]),
        ],
    )


def _asked(stage: Mapping[str, Any]) -> str:
    return " by ".join(f"{asked['asks']} for question {asked['name']}" for asked in stage["questions"])


def _read(described: JobDescription) -> Iterator[Block]:
    source, plan = described.source, described.plan
    yield Cells(
        caption="Files",
        head=("in the job file", "format", "files"),
        rows=[("source", source.format_of_files, source.pattern)],
    )
    rows = [(name, "names the sender") for name in described.unit]
    rows += [
        (name, f"answers of {stage['name']}, random already") for stage in plan["stages"] for name in stage["columns"]
    ]
    yield Cells(caption="Columns that are read", head=("column", "what for"), rows=rows)
    asked = {question["name"]: question for stage in plan["stages"] for question in stage["questions"]}
    yield Cells(
        caption="Questions",
        head=("question", "possible answers", "how devices randomise", "local epsilon", "document"),
        rows=[
            (name, f"{one['values']:,}", one["mechanism"], cost_number(one["local_epsilon"]), one["document"][:16])
            for name, one in asked.items()
        ],
    )
    yield ToFillIn(question="What were people told before their devices answered, and how can they say no?")


def _by_what(ledger: "Ledger | None", dataset: str, place: str) -> Iterator[Block]:
    yield "By the device's own coins, before anything leaves it; nothing is added here."
    account = ledger.state.others.get(dataset) if ledger is not None else None
    if account is None and not place and ledger is None:
        yield "No ledger is shown here: keep count of what each person is asked."
        return
    if account is None:
        shown = place if ledger is None else ledger.shown
        yield f"No account {dataset!r} of answers is in a ledger at {shown} yet: it limits what each person may be asked."
        return
    told = account.to_json()
    yield Cells(
        caption=f"Account {dataset} of answers: what each person was asked",
        head=("", "limit", "asked", "left"),
        rows=[
            (
                "epsilon",
                *(cost_number(told[key]["epsilon"]) for key in ("cap", "spent")),
                left_cost_number(told["left"]["epsilon"]),
            ),
            (
                "questions",
                f"{told['questions']['limit']:,}",
                f"{told['questions']['asked']:,}",
                f"{told['questions']['limit'] - told['questions']['asked']:,}",
            ),
        ],
    )


def _meaning(epsilon: float) -> str:
    right = example(epsilon, 0.0)
    said = f"at most {right} times in 100" if right is not None else "with certainty, as far as this promise goes"
    return (
        f"Whatever a person's answers are, what their device sends is at most {factor(epsilon)} times as likely as under "
        "other answers. Somebody who thinks two answers equally likely, and sees all that the device sends, guesses right "
        f"{said}."
    )
