"""What a job publishes, how often, and which noise and thresholds stand before it.

In: a job, what its stages ask for and its plan as JSON. Out: blocks of a page. Holds: only what `plan` prints; stages of every
kind have their lines, since the plan itself stands at the end of the page. Not covered: rows, which nobody has read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dp_pipelines.engine import object_store
from dp_pipelines.extensions.describe.assessment_page import Block, Cells, Listed, ToFillIn
from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.query.federate_model import FederateModel
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.release.manifest import unit_in_words
from dp_pipelines.report.numbers import public_number
from dp_pipelines.report.words.unit_name import plural

Stages = Mapping[str, Query | TrainModel]


def blocks_of(job: Job, stages: Stages, plan: Mapping[str, Any]) -> Iterator[Block]:
    """The section on what is published.

    Args:
        job: what it is about.
        stages: what each stage asks for.
        plan: what `plan --json` prints.
    """
    rows = [row for name, asked in stages.items() for row in _numbers(name, asked)]
    yield Cells(caption="Numbers and models", head=("stage", "what", "in words"), rows=rows)
    yield Listed(items=[*_beside(job)])
    yield _how_often(job)
    yield ToFillIn(question="Who reads it: staff, customers, the public? Through which channel, and under which terms?")


def protections(plan: Mapping[str, Any]) -> Iterator[Block]:
    """How much each released thing is disturbed, and what decides which groups appear."""
    rows, sentences = [], []
    for stage in plan["stages"]:
        for name, metric in stage["metrics"].items():
            stddev = metric.get("stddev")
            shown = "depends on the size of the group" if stddev is None else public_number(stddev)
            rows.append((stage["name"], name, str(metric.get("noise", "")).replace("+", " and "), shown))
        if "noise_multiplier" in stage:
            each = stage.get("noise_by_round") or [stage["noise_multiplier"]]
            noise = f"{public_number(each[0])} times the most that one unit can add"
            if len(set(each)) > 1:
                noise += f", in the first; {public_number(each[-1])} times in the last"
            many = "sum" if stage["steps"] == 1 else "sums"
            what = f"{stage['steps']:,} {many} of {stage['coordinates']:,} numbers"
            rows.append((stage["name"], what, "gaussian", noise))
        sentences += [f"{stage['name']}: {words}" for words in (*stage.get("limits", ()), *_selection(stage))]
    if rows:
        yield Cells(caption="Noise", head=("stage", "what", "law", "standard deviation"), rows=rows)
        last = plan.get("last_round_noise", 1.0)
        if last != 1:
            yield (
                f"This is the noise of the first run. The budget is split unevenly ({plan['split'].replace('_', ', ')}), and the "
                f"last run has {public_number(last)} times as much."
            )
    if sentences:
        yield "Bounds on what one unit can change, and thresholds for groups:"
        yield Listed(items=sentences)


def _numbers(stage: str, asked: Query | TrainModel) -> Iterator[tuple[str, str, str]]:
    """What a stage publishes: of each number its stage, its name and what it is."""
    if isinstance(asked, TrainModel):
        features = len(asked.features)
        yield (
            stage,
            "the model",
            f"predicts {asked.label.column} from {features} features; with its bins, categories and scales",
        )
        if isinstance(asked, FederateModel):
            yield (
                stage,
                "its rounds",
                f"learned by clients in {asked.steps.steps} rounds, whose models are all taken to be seen",
            )
        if isinstance(asked, PateModel):
            yield (
                stage,
                "its answers",
                f"what {asked.steps.teachers:,} teachers answer on at most {asked.steps.answers:,} public examples, with noise",
            )
        if asked.held_out:
            yield stage, "how good it is", f"measured on {asked.held_out:.0%} of the units, which are held out"
        return
    keys = " and ".join(asked.partition_by)
    by = f"for each group by {keys}" if keys else "over everything"
    if asked.best is not None:
        yield stage, "the best groups", f"which {asked.best.k} groups by {keys} have the largest value; no values"
        return
    for name, metric in asked.metrics.items():
        words = metric.words.replace("{units}", plural(unit_in_words(asked.unit_columns))) or "a number"
        column = f" ({', '.join(metric.reads)})" if metric.reads else ""
        yield stage, name, f"{words}{column}, {by}"
    if asked.rollup is not None:
        yield stage, "totals", "the same for coarser groups, whose numbers add up"
    if asked.kept is not None:
        people = plural(unit_in_words(asked.unit_columns))
        words = f"the shares of {people} and of rows that the limits keep, and how many values are null or outside of a clamp"
        yield stage, "what the bounds cut off", f"{words}, with noise"
    if asked.compare is not None:
        yield stage, "comparisons", f"each group by {keys} with a baseline"


def _beside(job: Job) -> Iterator[str]:
    yield (
        "with each run a page for readers (report.html) and a manifest: the plan, parameters, file digests of what is "
        "published, and what is spent"
    )
    outputs = job.outputs
    if outputs is None:
        return
    if outputs.formats:
        yield f"the same tables as {', '.join(outputs.formats)}"
    for name, place in outputs.places.items():
        yield f"{outputs.elsewhere[name].described} {object_store.without_credentials(str(place))}"


def _how_often(job: Job) -> str:
    often = "Once" if job.budget.all_runs == 1 else f"Up to {job.budget.all_runs:,} times"
    each = "" if job.window is None else f", for each window of {job.window.days} days"
    later = "another run" if job.budget.all_runs == 1 else "one more"
    return (
        f"{often} under this budget{each}: the ledger refuses {later} unless its owner raises the cap. The same run id again "
        "returns the same release and costs nothing."
    )


def _selection(stage: Mapping[str, Any]) -> Iterator[str]:
    selection = stage.get("selection") or {}
    if selection.get("half_keep_users") is not None:
        yield (
            f"groups are not listed beforehand: one with {public_number(selection['half_keep_users'])} units appears half of "
            f"the time, by a decision with noise ({str(selection.get('strategy')).replace('_', ' ')})"
        )
    elif "candidates" in selection:
        yield f"chosen among {selection['candidates']:,} listed groups, by a decision with noise"
    for told in ("choice", "candidate"):
        words = (stage.get(told) or {}).get("words", ())
        yield from [words] if isinstance(words, str) else words
