"""The plan of a job of collected stages: what it promises to whom, and how large the errors will be.

In: a checked job file. Out: JSON values, and lines for people. Holds: nothing is read but the questions; the epsilon of devices
is never called that of a release. Not covered: a budget, which such a job has not.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dp_pipelines.accounting.shown_costs import number, spent_number
from dp_pipelines.collect.domain import NumberGrid
from dp_pipelines.collect.question import Question, recommended
from dp_pipelines.collected.collected_stage import CollectedStage
from dp_pipelines.extensions.local_dp.answers import NEIGHBOURS
from dp_pipelines.extensions.local_dp.collected_job import CollectedFile
from dp_pipelines.extensions.local_dp.collected_request import (
    batches_of,
    behind_shuffler,
    document_of,
    person_epsilon,
    questions_of,
)

SHUFFLER_CONDITIONS = (
    "the shuffler strips names, addresses and times, and keeps one report a person",
    "the shuffler and the server do not work together",
    "the declared number of people answer honestly in each batch that is shuffled by itself",
)


def plan_of(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> dict[str, Any]:
    """The plan as JSON values.

    Args:
        file: the job.
        stages: what it estimates.
    """
    return {
        "dataset": file.job.dataset,
        "promise": promise(file, stages),
        "expected_reports": file.job.expect.reports,
        "stages": [
            {"name": name, **described(stage), "expected": stage.expected(file.job.expect.reports)}
            for name, stage in stages.items()
        ],
    }


def promise(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> dict[str, Any]:
    """What is promised, to whom, and by whom."""
    shuffler, total = file.job.shuffler, float(person_epsilon(file, stages))
    asked = questions_of(file, stages)
    found: dict[str, Any] = {
        "neighbours": NEIGHBOURS,
        "by": "each device, for each answer",
        "local_epsilon_of_a_person": total,
        "one_report_each": "kept here" if file.job.privacy_unit else "declared",
        "answers": {question.name: answers for question, (_, answers) in asked.items()},
        "memoised_questions": sorted(question.name for question, (memoised, _) in asked.items() if memoised),
        "memoised": sorted(name for name, stage in file.job.stages.items() if stage.memoised),
    }
    if shuffler is not None:
        found["shuffled"] = {
            "epsilon": behind_shuffler(file, stages),
            "delta": shuffler.delta,
            "batches": batches_of(file, stages),
            "honest_reports": shuffler.honest_reports,
            "conditions": list(SHUFFLER_CONDITIONS),
        }
    return found


def described(stage: CollectedStage) -> dict[str, Any]:
    """The questions of a stage, for readers."""
    return {"questions": [_question(question) for question in stage.questions], "columns": list(stage.reads)}


def _question(question: Question) -> dict[str, Any]:
    return {
        "name": question.name,
        "document": document_of(question),
        "mechanism": question.mechanism,
        "recommended": recommended(question.domain, question.epsilon),
        "local_epsilon": float(question.epsilon),
        "values": question.domain.size,
        "asks": "a mean" if isinstance(question.domain, NumberGrid) else "shares",
    }


def promise_in_words(promised: Mapping[str, Any]) -> list[str]:
    """The promise in sentences.

    Args:
        promised: what `promise` gave.
    """
    epsilon = spent_number(promised["local_epsilon_of_a_person"])
    lines = [
        f"Neighbours: {promised['neighbours']}. Each device keeps the promise by itself, before anything leaves it: whatever a "
        f"person's answers are, what it sends is at most e^{epsilon} times as likely as under other answers, if "
        f"{_answered(promised)}.",
        "No noise is added here, and no budget of tables is charged: never add this epsilon to that of a report over a table.",
    ]
    if promised["one_report_each"] == "declared":
        lines.append("Each row is taken for another person: whoever collected the reports has seen to that.")
    else:
        lines.append("Of each sender one row counts, chosen by a keyed hash.")
    if promised["memoised"]:
        lines.append(
            f"Devices repeat remembered answers ({', '.join(promised['memoised'])}): asking again costs a person nothing more. "
            "The days on which an answer changes are not hidden."
        )
    if "shuffled" in promised:
        shuffled = promised["shuffled"]
        lines.append(
            f"Behind the shuffler, one report changed: epsilon {spent_number(shuffled['epsilon'])} at delta "
            f"{number(shuffled['delta'])}, if at least {shuffled['honest_reports']:,} people answer honestly. "
            f"Conditions, which nobody checks here: {'; '.join(shuffled['conditions'])}."
        )
        if shuffled["batches"] > 1:
            lines.append(
                f"A person is in up to {shuffled['batches']:,} batches, each shuffled by itself: epsilon "
                f"{spent_number(shuffled['batches'] * shuffled['epsilon'])} at delta "
                f"{spent_number(shuffled['batches'] * shuffled['delta'])} for all of them."
            )
    return lines


def accounted(ledger: Mapping[str, Any]) -> list[str]:
    """What a ledger says of the account, in sentences.

    Args:
        ledger: what the manifest has of it.
    """
    if ledger.get("head") is None:
        return ["No ledger keeps account of this: keep count of what each person is asked."]
    spent, cap, questions = ledger["spent"], ledger["cap"], ledger["questions"]
    behind = f" at delta {spent_number(spent['delta'])} of {spent_number(cap['delta'])}" if cap["delta"] else ""
    return [
        f"Account {ledger['account']!r} of kind {ledger['kind']}; neighbours: {ledger['neighbours']}. A person was asked "
        f"{questions['asked']:,} of {questions['limit']:,} questions so far, for epsilon {spent_number(spent['epsilon'])} of "
        f"{spent_number(cap['epsilon'])}{behind}, kept {ledger['kept']}."
    ]


def _answered(promised: Mapping[str, Any]) -> str:
    """How often people answer, as the promise takes for granted."""
    more = {name: number for name, number in promised["answers"].items() if number > 1}
    if not more:
        return "each question is answered once"
    memoised = set(promised["memoised_questions"])
    said = [
        f"{name!r} for at most {number:,} distinct values" if name in memoised else f"{name!r} at most {number:,} times"
        for name, number in more.items()
    ]
    return f"a person answers {', '.join(said)}" + (
        ", and each other question once" if len(more) < len(promised["answers"]) else ""
    )


def lines_of(plan: Mapping[str, Any]) -> Iterator[str]:
    """A plan for people to read.

    Args:
        plan: what `plan_of` gave.
    """
    yield from promise_in_words(plan["promise"])
    for stage in plan["stages"]:
        yield ""
        yield stage["name"]
        for asked in stage["questions"]:
            yield (
                f"  {asked['name']}: {asked['mechanism']}, {asked['values']:,} values, "
                f"local epsilon {number(asked['local_epsilon'])}"
            )
            if asked["recommended"] != asked["mechanism"]:
                yield f"    {asked['recommended']} is recommended: mechanism: auto takes it"
        yield f"  standard deviations with {plan['expected_reports']:,} reports:"
        for row in stage["expected"]:
            if "place" in row:
                yield f"    a mean at {row['place']:.0%} of its range: {row['deviation']:.4g}"
            else:
                people = row["share"] * plan["expected_reports"]
                yield f"    {row['share']:.0%} of people, {people:,.0f}: {row['deviation']:,.0f}"
