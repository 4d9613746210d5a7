"""Compares every field of every mechanism record with what runs: no noise is drawn, and no chance is involved.

In: a stage as it runs, its records, what the trainer will be asked for. Out: findings. Holds: what runs is read from
the noise, lattices, thresholds and choices that the stage gives to workers, and from the steps of the model; how far a
unit moves it is counted again from the job (`audit.recount`); a field of a record that is compared with nothing is a
finding. If a run chooses bounds, a record covers all of them: it states what the plan reserves, and no less than the
stage needs. Not covered: how far kernels let a unit move a statistic (tests/privacy).
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.audit import recount, teacher_votes
from dp_pipelines.audit.replay import Finding
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.clipped_vectors import COEFFICIENT_BITS, ClippedVectors
from dp_pipelines.kernels.sensitivity import LatticeSteps
from dp_pipelines.kernels.statistics import WEIGHT_BITS, Statistic
from dp_pipelines.mechanisms.added_noise import AddedNoise, WeightedCount
from dp_pipelines.mechanisms.by_statistic import by_mechanism
from dp_pipelines.mechanisms.mechanism import Mechanism, Noise
from dp_pipelines.mechanisms.rank_choice import RankChoice
from dp_pipelines.mechanisms.smooth_median import MedianByPoints
from dp_pipelines.mechanisms.training_sums import NoisyTrainingSums
from dp_pipelines.noise import entropy, noise_schedule
from dp_pipelines.noise.laws import FlooredLaplace
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan, auto_statistics
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.query.federate_model import Rounds
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.rollup import RollupLevel
from dp_pipelines.selection import thresholds
from dp_pipelines.training import gaussian_noise as noise_of_sums
from dp_pipelines.training.features import moments

Fields = dict[str, Any]
"""What a record must state, by field; None if it must state nothing."""


COMPARED = frozenset(
    {
        *("stage", "name", "kind", "scale", "l2_squared", "linf", "l0", "l1"),
        *("epsilon", "delta", "rate", "times", "group"),
    }
)
"""The fields of a record that are compared with what runs; a test checks that these are all of them."""

NO_LESS = ("l2_squared", "linf", "l0", "l1", "epsilon", "delta")
"""The fields that, for bounds chosen by a run, must be no less than any of them needs."""


def group_of(plan: Plan, name: str) -> str | None:
    """The group of units that a stage reads."""
    groups = [training_parts.meets(trained, task) for trained, task in plan.trained.items()]
    return next((of[name] for of in groups if name in of), None)


def sums_of(plan: Plan, name: str) -> ClippedVectors | None:
    """The sums of vectors that `fit` releases for a stage: how many, how long, over which share of the units."""
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
    """The findings about the records of a plan's first and last run, by stage; "" has those about records of no stage.

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
    found: dict[str, tuple[Finding, ...]] = {}
    for when, (stages, both) in first.items():
        for name, stage in stages.items():
            chosen = [recount.recounted(each, levels) for each in ready[name]] if not when else ()
            own = recount.recounted(stage, levels)
            found[name] = found.get(name, ()) + _of_stage(plan, own, both, chosen, when)
        strange = [each for records in both for each in records if each.stage not in stages]
        if strange:
            names = ", ".join(dict.fromkeys(f"{each.name} of {each.stage}" for each in strange))
            one = Finding(what=f"records of no stage{when}", found=names, evidence=math.inf)
            found[""] = (*found.get("", ()), one)
    return found


def of_everything(plan: Plan) -> tuple[Finding, ...]:
    """Return the findings about all stages together: what all records cost, and how much each stage lets a unit contribute."""
    return tuple(_of_everything(plan, recount.levels(plan)))


def _of_everything(plan: Plan, levels: Mapping[str, RollupLevel]) -> Iterator[Finding]:
    times = [runs for _, runs in plan.all_mechanisms()]
    if sum(times) != plan.runs:
        found = f"{sum(times)} rounds are accounted, {plan.runs} run"
        yield Finding(what="rounds", found=found, evidence=math.inf)
    try:
        rounds = [(_records_of_round(plan, number, levels), runs) for number, runs in enumerate(times, start=1)]
        wrong = recount.understated_total(plan, rounds)
        right = f"{sum(len(records) for records, _ in rounds)} records, computed again, cost what the plan states"
    except RequestError:
        wrong = "what runs can be stated by no record"
    yield Finding(what="total", found=wrong or right, evidence=math.inf if wrong else 0.0)
    for name, stage in plan.round(1).stages.items():
        loose = recount.loose_bounds(stage.layout, stage.query)
        if loose:
            yield Finding(what=f"bounds given to workers of {name}", found="; ".join(loose), evidence=math.inf)


def _records_of_round(plan: Plan, number: int, levels: Mapping[str, RollupLevel]) -> list[MechanismRecord]:
    """The records that all stages of a round must have.

    Raises:
        RequestError: what runs can be stated by no record.
    """
    stages = [recount.recounted(stage, levels) for stage in plan.round(number).stages.values()]
    every = [fields for each in stages for fields in running(each, group_of(plan, each.name), sums_of(plan, each.name))]
    return [MechanismRecord(**{key: value for key, value in fields.items() if value is not None}) for fields in every]


def _of_stage(
    plan: Plan, stage: StagePlan, both: Iterable[Iterable[MechanismRecord]], ready: Iterable[StagePlan], when: str
) -> tuple[Finding, ...]:
    group, vectors = group_of(plan, stage.name), sums_of(plan, stage.name)
    wanted = running(stage, group, vectors)
    wrong: dict[str, list[str]] = {}
    for records in both:
        for record, message in compared(wanted, [each for each in records if each.stage == stage.name]):
            wrong.setdefault(record, []).append(message)
    for chosen in ready:
        for one, needed in zip(wanted, running(chosen, group, vectors), strict=True):
            for message in _too_little(one, needed):
                wrong.setdefault(one["name"], []).append(message)
    if wrong:
        return tuple(
            Finding(what=f"record of {record}{when}", found="; ".join(dict.fromkeys(rules)), evidence=math.inf)
            for record, rules in wrong.items()
        )
    said = sum(value is not None for fields in wanted for value in fields.values())
    return (Finding(what=f"records{when}", found=f"{said} fields of {len(wanted)}, each as it runs", evidence=0.0),)


def compared(wanted: Sequence[Fields], records: Iterable[MechanismRecord]) -> list[tuple[str, str]]:
    """What differs: the name of a record, and what is wrong with it.

    Args:
        wanted: what the records must state.
        records: of one stage.
    """
    said: dict[str, MechanismRecord] = {}
    wrong: list[tuple[str, str]] = []
    named = Counter[str]()
    for record in records:
        named[record.name] += 1
        said[record.name] = record
    for fields in wanted:
        name = fields["name"]
        if name not in said:
            wrong.append((name, "missing in the plan"))
        else:
            wrong += [(name, message) for message in differences(said.pop(name), fields)]
    wrong += [(name, "nothing that runs is described by it") for name in said]
    wrong += [(name, f"{count} of one name") for name, count in named.items() if count > 1]
    return wrong


def differences(record: MechanismRecord, fields: Fields) -> list[str]:
    """How one record differs from what runs, field by field.

    Args:
        record: the record.
        fields: what it must state.
    """
    wrong = []
    for field in dataclasses.fields(record):
        said = getattr(record, field.name)
        if field.name not in COMPARED:
            wrong.append(f"{field.name} is compared with nothing")
        elif said != fields[field.name]:
            wrong.append(f"{field.name} {_text(said)}, but {_text(fields[field.name])} runs")
    return wrong


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _too_little(reserved: Fields, needed: Fields) -> list[str]:
    short = [field for field in NO_LESS if needed[field] is not None and not reserved[field] >= needed[field]]
    return [f"{field} {_text(reserved[field])}, but a run may need {_text(needed[field])}" for field in short]


def running(stage: StagePlan, group: str | None, vectors: ClippedVectors | None) -> list[Fields]:
    """What the records of a stage must state.

    Args:
        stage: the stage as it runs; if its bounds are open, with the most that is reserved for them.
        group: of the units that it reads.
        vectors: the sums of vectors that are released for it outside the aggregate path.
    """
    made = [_of_statistic(stage, place, noise, vectors) for place, noise in _noises(stage)]
    made += _of_decisions(stage)
    every: Fields = {field.name: None for field in dataclasses.fields(MechanismRecord)}
    return [every | fields | {"stage": stage.name, "group": group} for fields in made]


def _noises(stage: StagePlan) -> list[tuple[int | None, Noise]]:
    """The noises that are drawn, by the place of the statistic; None for the one that selection draws for itself."""
    found: list[tuple[int | None, Noise]] = [(at, noise) for at, noise in enumerate(stage.noises) if noise is not None]
    if stage.selection is not None and stage.selection.noise is not None and not stage.selection.released:
        found.append((None, stage.selection.noise))
    return found


def _of_statistic(stage: StagePlan, place: int | None, noise: Noise, vectors: ClippedVectors | None) -> Fields:
    selection = stage.selection
    if place is None:
        assert selection is not None
        statistic, name = stage.statistics[selection.statistic], "selection"
    else:
        statistic, name = stage.statistics[place], stage.statistics[place].name
    law = "laplace" if isinstance(noise.law, FlooredLaplace) else "gaussian"
    fields: Fields = {"name": name, "kind": law, "scale": noise.law.scale}
    audited = _Audited(stage=stage, statistic=statistic, name=name, noise=noise, vectors=vectors)
    return fields | by_mechanism(FIELDS, statistic)(audited)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Audited:
    """A statistic as it runs, and the sums of vectors that are released for its stage outside of the aggregate path."""

    stage: StagePlan
    statistic: Statistic
    name: str
    noise: Noise
    vectors: ClippedVectors | None

    @property
    def moved(self) -> LatticeSteps:
        """How far a unit moves the statistic in the steps of its noise, by the bounds of the job."""
        return _moved(self.stage, self.statistic, self.name, self.noise)


def _of_noise(audited: _Audited) -> Fields:
    moved = audited.moved
    if isinstance(audited.noise.law, FlooredLaplace):
        return {"linf": moved.linf, "l0": moved.l0, "l1": moved.l1}
    return {"l2_squared": moved.l2_squared, "l0": moved.l0}


def _of_weights(audited: _Audited) -> Fields:
    most = recount.DeclaredBounds.of(audited.stage.query.bounds).partitions
    return {"l2_squared": thresholds.weighted_l2_squared(1 << WEIGHT_BITS, audited.noise.step, most), "l0": most}


def _of_ranks(audited: _Audited) -> Fields:
    epsilon = math.nextafter(float(audited.moved.linf / audited.noise.law.scale), math.inf)
    return {"kind": "approximate_dp", "scale": None, "epsilon": epsilon, "delta": 0.0, "l0": audited.moved.l0}


def _of_median(audited: _Audited) -> Fields:
    return _of_ranks(audited) | {"delta": audited.stage.choices.selection_delta}


def _moved(stage: StagePlan, statistic: Statistic, name: str, noise: Noise) -> LatticeSteps:
    """How far a unit moves a statistic in the steps of its noise, by the bounds of the job."""
    choice, reach = stage.choices.noises.get(name), recount.reach(statistic, stage.query)
    if stage.query.bounds.auto or name in auto_statistics(stage.query, stage.choices.centred):
        assert choice is not None
        return reach.exactly(choice.steps, choice.units)
    return reach.rounded(noise.step, joined=choice is not None and choice.units > 1)


def _of_sums(audited: _Audited) -> Fields:
    """The fields for the sums that the trainer releases, with the noise that it takes from the stage."""
    vectors = audited.vectors
    if vectors is None:
        return {"kind": f"{audited.statistic.name}, which nothing releases"}
    # Of the norm of a vector, in each sum.
    steps = [audited.noise.law.scale / each for each in training_noise.multipliers(audited.stage)]
    together = _together(vectors, steps, audited.noise.law.scale)
    squared = int(steps[0] ** 2) if steps[0].denominator == 1 else steps[0] ** 2
    draws = len(noise_of_sums._parts(entropy.words)) * vectors.size
    if vectors.rate == 1:
        whole = int(together) if together.denominator == 1 else together
        return {"l2_squared": whole, "l0": draws * vectors.times}
    return {
        "kind": "sampled_gaussian",
        "l2_squared": squared,
        "l0": draws,
        "rate": vectors.rate,
        "times": vectors.times,
    }


def _together(vectors: ClippedVectors, norms: Sequence[Fraction], scale: Fraction) -> Fraction:
    """The square of how far one unit moves all sums, of whichever group it is: row by row of the matrix of noise."""
    matrix = [Fraction(1), *(Fraction(each, 2**COEFFICIENT_BITS) for each in vectors.coefficients)]
    rounding = Fraction(math.isqrt(vectors.size - 1) + 1) * scale / noise_of_sums.SCALE
    found, apart = [], vectors.separation or 1
    for group in range(apart):
        total = Fraction(0)
        for row in range(len(norms)):
            reaching = [at for at in range(group, row + 1, apart) if row - at < len(matrix)]
            moved = sum((matrix[row - at] * norms[at] for at in reaching), Fraction(0))
            # Only what is carried over from a sum that the unit is in can be rounded otherwise without it.
            total += (moved + (rounding if any(at < row for at in reaching) else 0)) ** 2
        found.append(total)
    return max(found) if not vectors.coefficients else Fraction(math.ceil(max(found)))


FIELDS: Mapping[type[Mechanism], Callable[[_Audited], Fields]] = {
    AddedNoise: _of_noise,
    WeightedCount: _of_weights,
    RankChoice: _of_ranks,
    MedianByPoints: _of_median,
    NoisyTrainingSums: _of_sums,
}
"""What the record of each mechanism must state besides its name; computed here, not asked of the mechanism."""


def _of_decisions(stage: StagePlan) -> list[Fields]:
    """The records of choices, coins and thresholds."""
    kind, selection, delta = stage.kind, stage.selection, stage.choices.selection_delta
    if isinstance(kind, BestKind):
        fields: Fields = {"name": "best", "epsilon": stage.choices.selection_epsilon, "l0": kind.choice.k}
        bounded = kind.choice.mechanism == "exponential"
        return [fields | ({"kind": "bounded_range"} if bounded else {"kind": "approximate_dp", "delta": 0.0})]
    if selection is None:
        return []
    if selection.noise is not None:
        return [{"name": "selection threshold", "kind": "delta", "delta": delta}]
    coin: Fields = {"name": "selection", "kind": "approximate_dp", "epsilon": selection.epsilon}
    return [coin | {"delta": selection.delta, "l0": recount.DeclaredBounds.of(stage.query.bounds).partitions}]
