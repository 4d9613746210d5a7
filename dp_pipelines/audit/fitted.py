"""Checks of `training.fit` on made-up examples: which units each release reads, and that nothing else leaves.

In: a plan, one of its train stages. Out: findings by part of the stage. Holds: every release is seen, once for each
draw of its record; without one unit, the input to the releases of its group shrinks by exactly that unit's
contribution, and the input to the others stays the same; with the same draws, everything that is kept, reported and
published is the same, whatever the examples are. No chance is involved. Not covered: the laws of draws, the steps of
kernels (`audit.steps`, tests/training).
"""

# One run draws for real and notes all calls of `training.drawing`; the others, with other examples, get the same
# draws.

import dataclasses
import math
import pathlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.audit import made_up, steps, teacher_votes
from dp_pipelines.audit.made_up import MadeUp
from dp_pipelines.audit.replay import Finding
from dp_pipelines.audit.steps import KeptInMemory
from dp_pipelines.errors import DpError
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.noise.poisson_samples import PoissonSampler
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query import fit_candidates
from dp_pipelines.query.federate_model import Rounds
from dp_pipelines.query.fit_candidates import FitCandidate
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import JaxModel, TrainModel
from dp_pipelines.release import gate
from dp_pipelines.release.draw import draw_release
from dp_pipelines.training import fit, scoring
from dp_pipelines.training.description import Statement
from dp_pipelines.training.drawing import Drawing
from dp_pipelines.training.gaussian_noise import Begun, Integers, NoisySum

Floats = NDArray[np.float64]

KEY = b"audit"
SALT = 7
TABLES = 3
"""Files of examples."""

MOST_NUMBERS = 2**18
"""Parameters times steps of one run; of a longer run only the first steps are checked."""

MOST_LEFT_OUT = 8
"""Units of a group that are left out in turn if teachers vote, since not every one changes a vote."""

TEACHERS, MOST_ASKED = 64, 200
"""Teachers of a run on made-up examples, more than units, so that one unit often decides a teacher's vote; and the number of
public examples."""

Exact = Counter[tuple[Any, ...]] | Floats
"""The input of a release, before noise: counts by partition, statistic and cell, or a sum of vectors."""


@dataclasses.dataclass(eq=False)
class Seen:
    """Everything that `training.drawing` saw in one run.

    Args:
        read: the input of each draw, by stage.
        drawn: the result of each draw.
        given: how noise and samples were requested.
    """

    read: dict[str, list[Exact]] = dataclasses.field(default_factory=dict)
    drawn: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    given: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    slack: dict[str, float] = dataclasses.field(default_factory=dict)


class Noting(Drawing):
    """A source of draws that takes notes; it can return the draws of another run.

    Args:
        stages: as they are planned.
        before: the draws of the other run.
    """

    def __init__(self, stages: Mapping[str, StagePlan], before: Seen | None = None) -> None:
        super().__init__()
        self.seen = Seen()
        self._stages, self._before = stages, before

    def table(self, stage: StagePlan, totals: Totals) -> pa.Table:
        self._planned(stage)
        # Unchecked: the gate would end the fit at a second draw, which is to be a finding.
        return self.through(stage.name, counts_of(totals), lambda: draw_release(totals, stage, gate.replay(stage)))

    def noisy_sum(self, stage: StagePlan, *, size: int, norm: float, multiplier: Fraction, slack: float) -> NoisySum:
        self._planned(stage)
        self.seen.given.append((stage.name, (size, norm, multiplier, slack)))
        self.seen.slack[stage.name] = norm * slack
        return _NotedSum(size=size, norm=norm, multiplier=multiplier, slack=slack, noting=self, stage=stage.name)

    def sampler(self, stage: StagePlan, rate: float) -> PoissonSampler:
        self._planned(stage)
        self.seen.given.append((stage.name, rate))
        return _Everybody(rate)

    def through(self, stage: str, exact: Exact, draw: Any) -> Any:
        """Note the input of a draw and return its result."""
        self.seen.read.setdefault(stage, []).append(exact)
        drawn = self.seen.drawn.setdefault(stage, [])
        drawn.append(draw() if self._before is None else self._before.drawn[stage][len(drawn)])
        return drawn[-1]

    def _planned(self, stage: StagePlan) -> None:
        if stage != self._stages[stage.name]:
            raise AssertionError(f"{stage.name!r} does not run as it is planned")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _NotedSum(NoisySum):
    noting: Noting
    stage: str

    def release(self, total: Floats, begun: Begun | None = None) -> Floats:
        return self.release_in_series(total, 0, begun)[0]

    def release_in_series(
        self, total: Floats, carried: Integers | int, begun: Begun | None = None
    ) -> tuple[Floats, Integers]:
        noisy, noise = self.noting.through(
            self.stage, total.copy(), lambda: NoisySum.release_in_series(self, total, carried, begun)
        )
        return noisy.copy(), noise.copy()


class _Everybody(PoissonSampler):
    """A sample with every unit, which is a possible sample and leaves no unit out."""

    def draw(self, units: int) -> NDArray[np.int64]:
        return np.arange(units, dtype=np.int64)


def counts_of(totals: Totals) -> Counter[tuple[Any, ...]]:
    """Return all counts in totals, by partition, statistic and cell."""
    partitions = list(zip(*(column.to_pylist() for column in totals.partitions), strict=True))
    counts: Counter[tuple[Any, ...]] = Counter()
    for place, (high, low) in enumerate(zip(totals.high, totals.low, strict=True)):
        for key, upper, lower in zip(partitions, high.tolist(), low.tolist(), strict=True):
            counts[key, place] += (upper << 32) + lower
    for place, spread in totals.cells.items():
        for at, count in zip(spread.places.tolist(), spread.counts.tolist(), strict=True):
            counts[partitions[at // spread.width], place, at % spread.width] += count
    return Counter({key: count for key, count in counts.items() if count})


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Ran:
    """One run: the inputs of its releases, and everything leaving it that rows may have decided."""

    seen: Seen
    left: dict[str, Any]


def run(stages: Mapping[str, StagePlan], name: str, task: TrainModel, examples: MadeUp, before: Seen | None) -> Ran:
    """Run a train stage.

    Args:
        stages: of the plan.
        name: of the train stage.
        task: of the train stage.
        examples: the training data.
        before: the draws to repeat.
    """
    noting, memory, messages = Noting(stages, before), KeptInMemory(), list[str]()
    rows = examples.table()

    def tables() -> Iterator[pa.Table]:
        unit = rows.column(task.unit_columns[0]).to_pylist()
        file = np.array([hash_of(each) % TABLES for each in unit], np.int64)
        for number in range(TABLES):
            yield rows.filter(pa.array(file == number))

    with tempfile.TemporaryDirectory() as folder:
        one = fit.Fit(
            name=name,
            task=task,
            stages=stages,
            tables=tables,
            folder=pathlib.Path(folder),
            draws=memory,
            key=KEY,
            salt=SALT,
            tell=messages.append,
            public=_public(task),
            drawing=noting,
        )
        fitted = one.run(Statement(unit="unit", plan="", epsilon=1.0, delta=1e-6))
    artefact = fitted.artefact
    whitening = b"" if artefact.whitening is None else artefact.whitening.tobytes()
    left = {
        "parameters": artefact.parameters.tobytes(),
        "whitening": whitening,
        "encoder": artefact.encoder,
        "path": dict(artefact.path),
        "evaluation": fitted.evaluation.text(),
        "kept": memory.content,
        "told": messages,
        "norms, noise and rates": noting.seen.given,
    }
    return Ran(seen=noting.seen, left=left)


def _public(task: TrainModel) -> pa.Table | None:
    """Return a made-up public table for a model that learns from votes, the same for all examples; None for other models."""
    if not isinstance(task, PateModel):
        return None
    return MadeUp(task=task, units=tuple(range(task.steps.settled_asked)), variant=2).table()


def hash_of(unit: str) -> int:
    """Return a number that depends only on the text."""
    return sum(unit.encode())


def findings(plan: Plan, name: str) -> dict[str, tuple[Finding, ...]]:
    """Return the findings about the parts of a train stage, by part.

    Args:
        plan: the plan.
        name: of a train stage.

    Raises:
        RequestError: the model needs a library that is not installed, or does not exist.
    """
    task, stages = plan.trained[name], plan.round(1).stages
    steps.kernel_for(task)
    scoring.own_code(task, task.model.name if isinstance(task.model, JaxModel) else None, "model")
    parts = list(training_parts.parts(name, task, 1.0))
    task = _shortened(task, max(1, MOST_NUMBERS // task.size))
    try:
        looked = _Looked.at(stages, name, task)
    except (AssertionError, DpError, ArithmeticError, ValueError, LookupError, TypeError) as error:
        wrong = Finding(what="fit", found=f"ends with {type(error).__name__} on made-up examples", evidence=math.inf)
        return {name: (wrong,)}
    by_part = {
        part: [
            looked.units_of(part, plan.round(1).mechanisms),
            looked.draws_of(part),
            *looked.rounds_of_units(part),
        ]
        for part in parts
    }
    by_part[name].append(looked.nothing_else())
    by_part[name] += [
        Finding(what=f"release {other}", found="is no part of the stage", evidence=math.inf)
        for other in sorted(set(looked.first.seen.read) - set(parts))
    ]
    return {part: tuple(each) for part, each in by_part.items()}


def _shortened(task: TrainModel, most: int) -> TrainModel:
    """Return the task with at most so many steps; candidates that differed only in steps get different momenta."""
    if isinstance(task, PateModel):
        return _with_other_teachers(task)
    steps, settings = task.steps, fit_candidates.settings(task.steps)
    if isinstance(steps, Rounds):  # each group of clients has a turn
        most = max(most, steps.separation or 1)
    if max(each.steps for each in settings) <= most:
        return task
    candidates = None
    if steps.candidates is not None:
        numbered = enumerate(settings)
        candidates = [
            FitCandidate(steps=min(each.steps, most), momentum=number / len(settings)) for number, each in numbered
        ]
    return dataclasses.replace(
        task, steps=dataclasses.replace(steps, steps=min(steps.steps, most), candidates=candidates)
    )


def _with_other_teachers(task: PateModel) -> PateModel:
    """Return the task with teachers that depend much on one unit, are asked about few examples and answer most of them."""
    examples = min(task.steps.settled_asked, MOST_ASKED)
    answers = min(task.steps.answers, examples)
    steps = dataclasses.replace(task.steps, teachers=TEACHERS, asked=examples, answers=answers, threshold=1)
    return dataclasses.replace(task, steps=steps)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Looked:
    """Runs that are compared.

    Args:
        name, task: of the train stage.
        first: the run that drew.
        without, alone: for some units, runs without them and with nobody else, by group.
        other: a run with examples that have nothing to do with the first ones.
    """

    name: str
    task: TrainModel
    first: Ran
    without: dict[str, list[Ran]]
    alone: dict[str, list[Ran]]
    other: Ran

    @classmethod
    def at(cls, stages: Mapping[str, StagePlan], name: str, task: TrainModel) -> "_Looked":
        everybody, *chosen = made_up.some(task, KEY, MOST_LEFT_OUT if isinstance(task, PateModel) else 2)
        first = run(stages, name, task, everybody, None)

        def again(examples: MadeUp) -> Ran:
            return run(stages, name, task, examples, first.seen)

        groups = dict(zip((training_parts.TRAINING, training_parts.HELD_OUT), chosen, strict=True))
        fewer = dataclasses.replace(everybody, units=everybody.units[::2], variant=1)
        return cls(
            name=name,
            task=task,
            first=first,
            without={group: [again(everybody.without(u)) for u in units] for group, units in groups.items()},
            alone={group: [again(everybody.alone(u)) for u in units] for group, units in groups.items()},
            other=again(fewer),
        )

    def units_of(self, part: str, records: Sequence[MechanismRecord]) -> Finding:
        """Return the finding on the units that a part reads: only those of its records, each adding what depends on it alone."""
        named = {record.group for record in records if record.stage == part}
        whole = self.first.seen.read.get(part, [])
        wrong = []
        for group, runs in self.without.items():
            for less, alone in zip(runs, self.alone[group], strict=True):
                rest, own = less.seen.read.get(part, []), alone.seen.read.get(part, [])
                reads = not _same(whole, rest)
                if self._voted(part):
                    wrong += ["reads a unit that is held out"] if reads and named != {group} else []
                    wrong += teacher_votes.wrong_moves(_votes(whole), _votes(rest), self._norm(part))
                elif reads != (named == {group}):
                    wrong.append(f"{'reads' if reads else 'does not read'} a unit that is {_words(group)}")
                elif not self._adds_up(part, whole, rest, own):
                    wrong.append("what a unit adds depends on other units")
        finding = "; ".join(dict.fromkeys(wrong)) or "only those that its records name, each for itself"
        return Finding(what=f"units read by {part}", found=finding, evidence=math.inf if wrong else 0.0)

    def _voted(self, part: str) -> bool:
        """Return True if teachers vote for a part. The effect of a unit on a vote depends on the other units of its block."""
        return isinstance(self.task, PateModel) and teacher_votes.sums_of(self.task, self.name, part) is not None

    def _norm(self, part: str) -> float:
        """Return the norm that the noise of a part allows for."""
        return max((float(event[1]) for name, event in self.first.seen.given if name == part), default=0.0)

    def _adds_up(self, part: str, whole: list[Exact], rest: list[Exact], own: list[Exact]) -> bool:
        """Return True if the input from all units is the sum of that from all but one and that from the one."""
        if not len(whole) == len(rest) == len(own):
            return False
        room = 4 * self.first.seen.slack.get(part, 0.0)
        return all(_is_sum(*each, room) for each in zip(whole, rest, own, strict=True))

    def rounds_of_units(self, part: str) -> list[Finding]:
        """Return the finding on the sums of a unit: it is in one of so many, always the same, if the plan pays for no more."""
        fitted = training_parts.candidate_fits(self.name, self.task).get(part)
        separation = fitted.steps.separation if fitted is not None and isinstance(fitted.steps, Rounds) else None
        if separation is None:
            return []
        whole, wrong, rounds = self.first.seen.read.get(part, []), 0, set[int]()
        for less in self.without[training_parts.TRAINING]:
            pairs = zip(whole, less.seen.read.get(part, []), strict=False)
            turns = {number % separation for number, pair in enumerate(pairs) if not _equal(*pair)}
            wrong += len(turns) > 1
            rounds |= turns
        words = f"{len(rounds)} of {separation} groups seen; {wrong} units in rounds of several"
        return [Finding(what=f"rounds of a unit in {part}", found=words, evidence=math.inf if wrong else 0.0)]

    def draws_of(self, part: str) -> Finding:
        """Return the finding on the number of draws of a part: as many as are paid for."""
        drawn = len(self.first.seen.read.get(part, []))
        if isinstance(self.task, PateModel) and (paid := teacher_votes.sums_of(self.task, self.name, part)) is not None:
            path = self.first.left["path"]
            expected = len(path["answered"]) if part == self.name else int(path["asked"][0])
            finding = f"{drawn} for {expected}, of at most {paid.times} that the plan pays for"
            return Finding(
                what=f"draws of {part}", found=finding, evidence=0.0 if drawn == expected <= paid.times else math.inf
            )
        fits = training_parts.candidate_fits(self.name, self.task)
        due = fits[part].steps.steps if part in fits else 1
        finding = f"{drawn} of {due} that the plan pays for"
        return Finding(what=f"draws of {part}", found=finding, evidence=0.0 if drawn == due else math.inf)

    def nothing_else(self) -> Finding:
        """Return the finding that everything that leaves follows from the draws."""
        runs = [self.other, *(ran for runs in (*self.without.values(), *self.alone.values()) for ran in runs)]
        differs = [what for what in self.first.left if any(ran.left[what] != self.first.left[what] for ran in runs)]
        finding = f"{', '.join(differs)} of the examples" if differs else "all that is kept, told and published does"
        return Finding(what="follows from what was drawn", found=finding, evidence=math.inf if differs else 0.0)


def _votes(read: list[Exact]) -> list[Floats]:
    """Return the vectors to which noise was added, for a part for which teachers vote."""
    return [each for each in read if isinstance(each, np.ndarray)]


def _same(one: list[Exact], other: list[Exact]) -> bool:
    return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))


def _equal(one: Exact, other: Exact) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return isinstance(one, Counter) and one == other


def _is_sum(whole: Exact, rest: Exact, own: Exact, room: float) -> bool:
    """Return True if one input is the sum of the others: exactly for counts, up to rounding for vectors."""
    if isinstance(whole, Counter) and isinstance(rest, Counter) and isinstance(own, Counter):
        return whole == rest + own
    if isinstance(whole, np.ndarray) and isinstance(rest, np.ndarray) and isinstance(own, np.ndarray):
        return float(np.linalg.norm(whole - rest - own)) <= room + 1e-9 * float(np.linalg.norm(whole))
    return False


def _words(group: str) -> str:
    return "held out" if group == training_parts.HELD_OUT else "trained on"
