"""Replays of one stage of a plan: the privacy loss of each kind of statistic and decision, and checks of their records.

In: a frozen stage, its records, the number of replays. Out: a score of each replay with the worst unit and without, and
findings. Holds: what the unit adds is computed from the query and the lattice that run, its price from the records
alone. Not covered: how findings are judged (`audit.audit`).
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of
from dp_pipelines.audit import aggregates, decisions, evidence, samples, steps, teacher_votes, worst
from dp_pipelines.audit.residuals import Products, Squares, Steady, fourth_moment
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.cells import Around
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.kernels.statistics import Statistic, TrainingSums
from dp_pipelines.mechanisms.added_noise import AddedNoise, WeightedCount
from dp_pipelines.mechanisms.by_statistic import by_mechanism
from dp_pipelines.mechanisms.mechanism import Mechanism, Noise
from dp_pipelines.mechanisms.rank_choice import RankChoice
from dp_pipelines.mechanisms.smooth_median import MedianByPoints
from dp_pipelines.mechanisms.training_sums import NoisyTrainingSums
from dp_pipelines.noise.laws import RoundedGaussian
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.planning.stage_kinds import BestKind, TrainingKind
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.release import unit_reach
from dp_pipelines.training.features import moments

Floats = NDArray[np.float64]


class _Replays(Protocol):
    """Replays with the unit or without it."""

    def __call__(self, *, with_unit: bool) -> Iterator[aggregates.Portion]: ...


_Add = Callable[[Floats, float, bool, int], Floats | None]
"""Takes noisy sums (steps, replays), the sum itself, whether the unit is there, how many replays there were before. Gives the
noise (replays, steps), where it is known."""

DRAWS_OF_MEDIAN = 500
"""A median with smooth sensitivity takes as long as this many draws."""

ROW_OF_EXPONENTIAL = 500
"""A choice by the exponential mechanism takes as long as this many draws."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was checked besides the scores.

    Args:
        what: what was checked, e.g. `noise of units`.
        found: the result in words.
        evidence: that it is wrong; infinite if that is certain.
    """

    what: str
    found: str
    evidence: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replayed:
    """The replays of a stage.

    Args:
        with_unit, without: the score of each.
        first: a standardised draw of each replay without the unit; none may occur in another stage.
        findings: about its noise, samples, clips and records.
        notes: what was not replayed.
    """

    with_unit: Floats
    without: Floats
    first: Floats
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


class _Watch:
    """A collection of scores and findings from the parts of a stage."""

    def __init__(self, records: Sequence[MechanismRecord], replays: int) -> None:
        self.records = {record.name: record for record in records}
        self.replays = replays
        self.scores = {True: np.zeros(replays), False: np.zeros(replays)}
        self.first = np.zeros(0)
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.related: list[Products] = []

    def record(self, name: str) -> MechanismRecord | None:
        """Return the record of a name. A missing one is a finding of `audit.records`."""
        return self.records.get(name)

    def squares(self, name: str, squares: Squares) -> None:
        """Add the finding about the noise of a record."""
        finding = f"{squares.ratio:.5f} ± {squares.error:.1g} of its standard deviation"
        self.findings.append(Finding(what=f"noise of {name}", found=finding, evidence=squares.evidence))

    def decided(self, what: str, found: decisions.Decisions) -> None:
        """Add decisions."""
        self.scores[True] += found.with_unit
        self.scores[False] += found.without
        worst_case = max(
            evidence.unlike(counts, claimed) for counts, claimed in zip(found.counts, found.claimed, strict=True)
        )
        shares = ", ".join(
            f"{counts[0] / sum(counts):.4f} of {claimed[0]:.4f}"
            for counts, claimed in zip(found.counts, found.claimed, strict=True)
        )
        # Each situation is a test of its own.
        worst_case = max(0.0, worst_case - math.log(len(found.counts)))
        self.findings.append(Finding(what=what, found=shares, evidence=worst_case))


def cost(stage: StagePlan, task: TrainModel | None) -> int:
    """Estimate how many draws a replay of a stage takes, with the unit and without it."""
    total = 0
    for statistic, noise in zip(stage.statistics, stage.noises, strict=True):
        if noise is None:
            continue
        total += by_mechanism(COSTS, statistic)(stage, statistic, noise)
    if stage.selection is not None and not stage.selection.released:
        total += unit_reach.DeclaredBounds.of(stage.query.bounds).partitions
    kind = stage.kind
    if isinstance(kind, BestKind):
        total += kind.choice.k * (ROW_OF_EXPONENTIAL if kind.choice.mechanism == "exponential" else 5)
    return 2 * total


def _cost_of_noise(stage: StagePlan, statistic: Statistic, noise: Noise) -> int:
    return worst.change(stage, statistic, noise).pieces


def _cost_of_ranks(stage: StagePlan, statistic: Statistic, noise: Noise) -> int:
    return 5 * unit_reach.DeclaredBounds.of(stage.query.bounds).partitions


def _cost_of_median(stage: StagePlan, statistic: Statistic, noise: Noise) -> int:
    return DRAWS_OF_MEDIAN


def _cost_of_sums(stage: StagePlan, statistic: Statistic, noise: Noise) -> int:
    assert isinstance(statistic, TrainingSums)
    return 2 * statistic.of_units.times


COSTS: Mapping[type[Mechanism], Callable[[StagePlan, Statistic, Noise], int]] = {
    AddedNoise: _cost_of_noise,
    WeightedCount: _cost_of_noise,
    RankChoice: _cost_of_ranks,
    MedianByPoints: _cost_of_median,
    NoisyTrainingSums: _cost_of_sums,
}
"""Functions that estimate how many draws a statistic takes in a replay, by mechanism."""


def replay(
    stage: StagePlan, planned: StagePlan, records: Sequence[MechanismRecord], task: TrainModel | None, replays: int
) -> Replayed:
    """Replay a stage.

    Args:
        stage: as it runs.
        planned: the stage as planned; its records have the names of these statistics.
        records: of the stage, in the plan.
        task: the model, if the stage is its steps.
        replays: how many.
    """
    watch = _Watch(records, replays)
    names = {own.name: of_plan.name for own, of_plan in zip(stage.statistics, planned.statistics, strict=True)}
    if isinstance(stage.kind, TrainingKind):
        _vectors(watch, stage, task)
    else:
        if aggregates.noisy_numbers(stage):
            _portions(watch, names, functools.partial(aggregates.numbers, stage, replays))
        for place in aggregates.noisy_lists(stage):
            _portions(watch, names, functools.partial(aggregates.lists, stage, place, replays))
        _decisions(watch, stage)
    if watch.related:
        watch.findings.append(_related(watch.related))
    return Replayed(
        with_unit=watch.scores[True],
        without=watch.scores[False],
        first=watch.first,
        findings=tuple(watch.findings),
        notes=tuple(f"{stage.name}: {note}" for note in watch.notes),
    )


def unrelated(stages: Iterable[Replayed]) -> Finding:
    """Return the finding on draws that two stages share."""
    columns = [one.first for one in stages if len(one.first)]
    related = Products()
    if columns:
        related.add(np.stack(columns, axis=1))
    return _related([related])


def _related(found: Sequence[Products]) -> Finding:
    """Return the finding on related draws, within a replay or between replays."""
    largest = max(each.largest for each in found)
    strongest = max(0.0, max(each.evidence for each in found) - math.log(len(found)))
    return Finding(what="draws used once", found=f"largest correlation {largest:.2g}", evidence=strongest)


def _portions(watch: _Watch, names: dict[str, str], replays: _Replays) -> None:
    """Add scores and findings about the noise of aggregates."""
    squares: dict[str, Squares] = {}
    related = Products()
    records: dict[str, MechanismRecord | None] = {}
    for with_unit in (False, True):
        done = 0
        for portion in replays(with_unit=with_unit):
            size = len(portion.scores)
            watch.scores[with_unit][done : done + size] += portion.scores
            done += size
            standard = []
            for name, residuals in portion.residuals.items():
                if name not in records:
                    records[name] = watch.record(names[name])
                record = records[name]
                law = None if record is None else kind_of(record).noise(record)
                if law is None:
                    continue
                standard.append(residuals / law.stddev)
                squares.setdefault(name, Squares(fourth_moment(law))).add(standard[-1])
            if standard:
                together = np.concatenate(standard, axis=1)
                related.add(together)
                if not with_unit and len(watch.first) < watch.replays:
                    watch.first = np.append(watch.first, together[:, 0])
    for name, mean_squares in squares.items():
        watch.squares(names[name], mean_squares)
    watch.related.append(related)


def _decisions(watch: _Watch, stage: StagePlan) -> None:
    """Add scores and findings about choices, coins and thresholds."""
    for place, (statistic, noise) in enumerate(zip(stage.statistics, stage.noises, strict=True)):
        if noise is not None and statistic.decided:
            by_mechanism(DECISIONS, statistic)(watch, stage, place)
    kind = stage.kind
    if isinstance(kind, BestKind):
        watch.decided("choice of the best", decisions.best(stage, kind.choice, watch.replays))
    selection = stage.selection
    if selection is None:
        return
    if not selection.released:
        watch.decided("partitions kept", decisions.coins(stage, selection, watch.replays))
    if selection.noise is not None:
        record = watch.record("selection threshold")
        hidden = decisions.hides(selection, stage)
        allowed = 0.0 if record is None or record.delta is None else record.delta
        finding = f"a lone unit shows with {hidden:.3g} of {allowed:.3g}"
        wrong = math.inf if hidden > allowed * (1 + 1e-9) else 0.0
        watch.findings.append(Finding(what="threshold", found=finding, evidence=wrong))


def _median(watch: _Watch, stage: StagePlan, place: int) -> None:
    watch.decided(f"noise of {stage.statistics[place].name}", decisions.medians(stage, place, watch.replays))


def _ranks(watch: _Watch, stage: StagePlan, place: int) -> None:
    statistic = stage.statistics[place]
    assert isinstance(statistic.cells, Around)
    if len(statistic.cells.candidates) > 1:
        watch.decided(f"choice of {statistic.name}", decisions.ranks(stage, place, watch.replays))


DECISIONS: Mapping[type[Mechanism], Callable[[_Watch, StagePlan, int], None]] = {
    RankChoice: _ranks,
    MedianByPoints: _median,
}
"""Functions that replay mechanisms which decide instead of adding noise, by mechanism."""


def _vectors(watch: _Watch, stage: StagePlan, task: TrainModel | None) -> None:
    """Add scores and findings about sums of clipped vectors."""
    ((key, chosen),) = stage.choices.noises.items()
    (vectors,) = stage.sums
    record = watch.record(key)
    multipliers = training_noise.multipliers(stage)
    claimed = np.array([float(each) for each in multipliers])
    if record is not None and record.scale is not None:
        claimed = np.array([float(record.scale / steps) for steps in vectors.steps_of_sums(chosen.steps)])
    squares, related = Squares(fourth_moment(RoundedGaussian(chosen.steps * max(multipliers)))), Products()

    inside = steps.pattern(vectors)
    shifts = steps.drawn_anew(inside, vectors)

    def add(sums: Floats, vector: float, with_unit: bool, done: int) -> Floats | None:
        noisy, exact = steps.drawn_anew(sums, vectors), vector * shifts
        watch.scores[with_unit][done : done + noisy.shape[1]] += steps.score(noisy, claimed, vectors.rate, shifts)
        if with_unit and vectors.rate < 1:
            return None  # the sums depend on coins
        residuals: Floats = (noisy - exact).T
        squares.add(residuals / claimed)
        related.add(residuals / claimed)
        if not with_unit:
            watch.first = np.append(watch.first, residuals[:, 0] / claimed[0])
        return residuals

    if isinstance(task, PateModel):
        _votes(watch, stage, vectors, add)
    elif task is None:
        _moments(watch, vectors, add, multipliers[0])
    else:
        _steps(watch, task, vectors, add, multipliers)
    watch.squares(key, squares)
    watch.related.append(related)


def _votes(watch: _Watch, stage: StagePlan, vectors: ClippedVectors, add: _Add) -> None:
    """Add scores of noisy votes of teachers."""
    for with_unit in (False, True):
        done = 0
        for noisy in teacher_votes.trials(stage, vectors, watch.replays, with_unit=with_unit):
            add(noisy, 1.0 if with_unit else 0.0, with_unit, done)
            done += noisy.shape[1]


def _moments(watch: _Watch, vectors: ClippedVectors, add: _Add, multiplier: Fraction) -> None:
    width = (math.isqrt(8 * vectors.size + 1) - 1) // 2
    reach = steps.reach_of_moments(width)
    _clip(watch, reach, 1 + moments.SLACK)
    vector = max(reach, steps.REACHED)
    for with_unit in (False, True):
        done = 0
        for noisy in steps.moments_trials(multiplier, vector, watch.replays, with_unit=with_unit):
            add(noisy[None, :], vector if with_unit else 0.0, with_unit, done)
            done += len(noisy)


def _steps(
    watch: _Watch, task: TrainModel, vectors: ClippedVectors, add: _Add, multipliers: Sequence[Fraction]
) -> None:
    kernel, reach = None, 0.0
    try:
        kernel = steps.kernel_for(task)
        reach = steps.reach_of_kernel(task, kernel)
    except RequestError as error:
        watch.notes.append(f"the clip of the model: {error.message}")
    if kernel is not None:
        _clip(watch, reach, 1 + kernel.slack)
    vector, rate = max(reach, steps.REACHED), task.steps.sampling_rate
    inside: list[NDArray[np.int64]] = []
    sizes: list[tuple[NDArray[np.int64], int]] = []
    steady = Steady()
    for with_unit in (False, True):
        done = 0
        for trial in steps.trials(
            task.steps, multipliers, vector, kernel, watch.replays, vectors=vectors, with_unit=with_unit
        ):
            residuals = add(trial.sums, vector if with_unit else 0.0, with_unit, done)
            if residuals is not None:
                steady.add(residuals / trial.drawn)
            done += trial.sums.shape[1]
            if trial.inside is not None:
                inside.append(trial.inside)
                sizes.append((trial.sizes, trial.units))
    finding = (
        f"in {steady.looked_at} looks at the standard deviation of one step of some replays, the farthest from what is drawn "
        f"is {steady.ratio:.4f} of it; where nothing is wrong, chance takes one so far with a probability of up to "
        f"{math.exp(-steady.evidence):.2g}"
    )
    watch.findings.append(Finding(what="noise of each step", found=finding, evidence=steady.evidence))
    if rate < 1:
        counted = np.concatenate(inside)
        finding = (
            f"a unit was in {counted.mean():.4g} of {task.steps.steps} steps, {task.steps.steps * rate:.4g} expected"
        )
        of_units = samples.of_units(counted, task.steps.steps, rate)
        watch.findings.append(Finding(what="samples of a unit", found=finding, evidence=of_units))
        mean, units = (np.mean([number for pair in sizes for number in np.atleast_1d(pair[i])]) for i in range(2))
        finding = f"{mean:.5g} units in a step, {rate * units:.5g} expected"
        of_sizes = samples.of_sizes(sizes, rate)
        watch.findings.append(Finding(what="size of samples", found=finding, evidence=of_sizes))


def _clip(watch: _Watch, reach: float, allowed: float) -> None:
    finding = f"an extreme unit adds {reach:.7g} of the norm at most"
    watch.findings.append(Finding(what="clip", found=finding, evidence=0.0 if reach <= allowed else math.inf))
