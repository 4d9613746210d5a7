"""Comparisons of every field of every mechanism record with what runs: no noise is drawn, and no chance is involved.

In: a stage as it runs, its records, what the trainer will be asked for. Out: findings. Holds: what runs is read from
the noise, lattices, thresholds and choices that the stage gives to workers, and from the steps of the model; how far a
unit moves it is counted again from the job (`release.unit_reach`); a field of a record that is compared with nothing is a
finding. If a run chooses bounds, a record covers all of them: it states what the plan reserves, and no less than the
stage needs. Not covered: how far kernels let a unit move a statistic (tests/privacy).
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.audit import recount, teacher_votes
from dp_pipelines.audit.replay import Finding
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.noise import noise_schedule
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.federate_model import Rounds
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.rollup import RollupLevel
from dp_pipelines.release import unit_reach
from dp_pipelines.release.gate import NO_LESS, Fields, required
from dp_pipelines.training.features import moments

COMPARED = frozenset(
    {
        *("stage", "name", "kind", "scale", "l2_squared", "linf", "l0", "l1"),
        *("epsilon", "delta", "rate", "times", "group"),
    }
)
"""The fields of a record that are compared with what runs; a test checks that these are all of them."""


def group_of(plan: Plan, name: str) -> str | None:
    """Return the group of units that a stage reads, or None."""
    groups = [training_parts.meets(trained, task) for trained, task in plan.trained.items()]
    return next((of[name] for of in groups if name in of), None)


def sums_of(plan: Plan, name: str) -> ClippedVectors | None:
    """Return the vector sums that `fit` releases for a stage: their number, size and share of units; None for other stages."""
    for trained, task in plan.trained.items():
        if isinstance(task, PateModel) and (of_votes := teacher_votes.sums_of(task, trained, name)) is not None:
            return of_votes
    fitted = training_parts.all_fits(plan.trained).get(name)
    if fitted is not None:
        steps, rate = fitted.steps, fitted.steps.sampling_rate
        if isinstance(steps, Rounds):
            rate = 1.0 if steps.participation == "visible" else rate
            parts = [noise_schedule.ratio(steps.schedule, steps.steps, at) for at in range(1, steps.steps + 1)]
            uneven = tuple(parts) if len(set(parts)) > 1 else None
            chosen = steps.correlation
            carried = () if chosen is None else chosen.coefficients
            return ClippedVectors(
                size=fitted.size,
                times=steps.steps,
                rate=rate,
                parts=uneven,
                separation=steps.separation,
                coefficients=carried,
            )
        return ClippedVectors(size=fitted.size, times=steps.steps, rate=rate)
    for trained, task in plan.trained.items():
        if name == training_parts.moments_of(trained):
            return ClippedVectors(size=moments.size(task.width), times=1, rate=1.0)
    return None


def findings(plan: Plan, ready: Mapping[str, Sequence[StagePlan]]) -> dict[str, tuple[Finding, ...]]:
    """Return the findings about the records of a plan's first and last run, by stage; "" has those about records of no stage.

    Args:
        plan: the plan. Both the records it was accounted with and those its stages carry are checked.
        ready: its stages as they run; if a run chooses bounds, with several choices.
    """
    levels = recount.levels(plan)
    first = {"": (plan.round(1).stages, (plan.mechanisms, plan.round(1).mechanisms))}
    groups = plan.all_mechanisms()
    if len(groups) > 1:
        last = plan.round(plan.runs)
        first[f" in round {plan.runs}"] = (last.stages, (groups[-1][0], last.mechanisms))
    by_stage: dict[str, tuple[Finding, ...]] = {}
    for when, (stages, both) in first.items():
        for name, stage in stages.items():
            chosen = [recount.recounted(each, levels) for each in ready[name]] if not when else ()
            own = recount.recounted(stage, levels)
            by_stage[name] = by_stage.get(name, ()) + _of_stage(plan, own, both, chosen, when)
        strange = [each for records in both for each in records if each.stage not in stages]
        if strange:
            names = ", ".join(dict.fromkeys(f"{each.name} of {each.stage}" for each in strange))
            one = Finding(what=f"records of no stage{when}", found=names, evidence=math.inf)
            by_stage[""] = (*by_stage.get("", ()), one)
    return by_stage


def of_everything(plan: Plan) -> tuple[Finding, ...]:
    """Return the findings about all stages together: the joint cost, and how much each stage lets a unit contribute."""
    return tuple(_of_everything(plan, recount.levels(plan)))


def _of_everything(plan: Plan, levels: Mapping[str, RollupLevel]) -> Iterator[Finding]:
    times = [runs for _, runs in plan.all_mechanisms()]
    if sum(times) != plan.runs:
        finding = f"{sum(times)} rounds are accounted, {plan.runs} run"
        yield Finding(what="rounds", found=finding, evidence=math.inf)
    try:
        rounds = [(_records_of_round(plan, number, levels), runs) for number, runs in enumerate(times, start=1)]
        wrong = recount.understated_total(plan, rounds)
        right = f"{sum(len(records) for records, _ in rounds)} records, computed again, cost what the plan states"
    except RequestError:
        wrong = "what runs can be stated by no record"
    yield Finding(what="total", found=wrong or right, evidence=math.inf if wrong else 0.0)
    for name, stage in plan.round(1).stages.items():
        loose = unit_reach.loose_bounds(stage.layout, stage.query)
        if loose:
            yield Finding(what=f"bounds given to workers of {name}", found="; ".join(loose), evidence=math.inf)


def _records_of_round(plan: Plan, number: int, levels: Mapping[str, RollupLevel]) -> list[MechanismRecord]:
    """Return the records that all stages of a round must have.

    Raises:
        RequestError: no record can describe a stage that runs.
    """
    stages = [recount.recounted(stage, levels) for stage in plan.round(number).stages.values()]
    every = [
        fields for each in stages for fields in required(each, group_of(plan, each.name), sums_of(plan, each.name))
    ]
    return [MechanismRecord(**{key: value for key, value in fields.items() if value is not None}) for fields in every]


def _of_stage(
    plan: Plan, stage: StagePlan, both: Iterable[Iterable[MechanismRecord]], ready: Iterable[StagePlan], when: str
) -> tuple[Finding, ...]:
    group, vectors = group_of(plan, stage.name), sums_of(plan, stage.name)
    required_fields = required(stage, group, vectors)
    wrong: dict[str, list[str]] = {}
    for records in both:
        for record, message in compared(required_fields, [each for each in records if each.stage == stage.name]):
            wrong.setdefault(record, []).append(message)
    for chosen in ready:
        for one, needed in zip(required_fields, required(chosen, group, vectors), strict=True):
            for message in _too_little(one, needed):
                wrong.setdefault(one["name"], []).append(message)
    if wrong:
        return tuple(
            Finding(what=f"record of {record}{when}", found="; ".join(dict.fromkeys(rules)), evidence=math.inf)
            for record, rules in wrong.items()
        )
    stated = sum(value is not None for fields in required_fields for value in fields.values())
    return (
        Finding(
            what=f"records{when}", found=f"{stated} fields of {len(required_fields)}, each as it runs", evidence=0.0
        ),
    )


def compared(wanted: Sequence[Fields], records: Iterable[MechanismRecord]) -> list[tuple[str, str]]:
    """Return the differences between records and their required fields: the name of a record, and what is wrong with it.

    Args:
        wanted: what the records must state.
        records: of one stage.
    """
    by_name: dict[str, MechanismRecord] = {}
    wrong: list[tuple[str, str]] = []
    named = Counter[str]()
    for record in records:
        named[record.name] += 1
        by_name[record.name] = record
    for fields in wanted:
        name = fields["name"]
        if name not in by_name:
            wrong.append((name, "missing in the plan"))
        else:
            wrong += [(name, message) for message in differences(by_name.pop(name), fields)]
    wrong += [(name, "nothing that runs is described by it") for name in by_name]
    wrong += [(name, f"{count} of one name") for name, count in named.items() if count > 1]
    return wrong


def differences(record: MechanismRecord, fields: Fields) -> list[str]:
    """Return in words how one record differs from what runs, field by field.

    Args:
        record: the record.
        fields: what it must state.
    """
    wrong = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name not in COMPARED:
            wrong.append(f"{field.name} is compared with nothing")
        elif value != fields[field.name]:
            wrong.append(f"{field.name} {_text(value)}, but {_text(fields[field.name])} runs")
    return wrong


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _too_little(reserved: Fields, needed: Fields) -> list[str]:
    short = [field for field in NO_LESS if needed[field] is not None and not reserved[field] >= needed[field]]
    return [f"{field} {_text(reserved[field])}, but a run may need {_text(needed[field])}" for field in short]
