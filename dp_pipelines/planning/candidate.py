"""Candidates of a plan: ways to run a stage, at a noise level, under a budget.

In: queries, weights, a noise level. Out: records and their costs. Holds: costs are those that the accountant computes from
records. Not covered: which candidate is taken (planning.choose) and its noise in integers (noise_levels.integer_noise).
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import get_args

from dp_pipelines.accounting import accountant
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.mechanisms import training_sums
from dp_pipelines.mechanisms.added_noise import noise_record
from dp_pipelines.planning import stage
from dp_pipelines.planning.stage_choices import StageChoices
from dp_pipelines.planning.stage_kinds import kind_of
from dp_pipelines.query.query import Query
from dp_pipelines.selection.exponential import Choosing

HINT = (
    "raise epsilon or delta, lower the contribution bounds (or write them, where a run chooses them) or the number of runs, "
    "or release fewer metrics"
)

Families = tuple[tuple[str, float, float], ...]

TARGET_SCALE = 1024
"""The noise scale, in release steps, that is aimed at: fine enough that rounding costs nothing, small enough for one table."""

LARGEST_SCALE = {"gaussian": 2**13, "laplace": 2**18}
"""Beyond these a noise table would not be built (noise.samplers), and noise so large has no use."""

SCALE_GRID = 64
"""Scales are multiples of 1/64 step."""

SELECTION_DELTA = 0.5
"""The part of delta that selection may fail with, or medians with smooth sensitivity get, over all stages and runs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TotalBudget:
    """The budget of all runs of a plan together."""

    epsilon: float
    delta: float
    runs: int

    def cost(self, records: Sequence[MechanismRecord], accuracy: float = 1e-4, runs: int | None = None) -> float:
        """Return the epsilon of some records, by default in all runs: with delta 0 the sum of their epsilons, or infinity."""
        runs = self.runs if runs is None else runs
        if self.delta == 0:
            pure = accountant.pure_epsilon_of(records, runs=runs)
            return math.inf if pure is None else math.nextafter(float(pure), math.inf)
        return accountant.epsilon_of(records, self.allowed_delta(records, runs), runs=runs, accuracy=accuracy)

    def allowed_delta(self, records: Sequence[MechanismRecord], runs: int | None = None) -> float:
        """Return delta; if it is 0, the delta that the finite tables of the samplers add (docs/proofs/noise.md)."""
        if self.delta > 0:
            return self.delta
        return accountant.tables_delta(records, runs=self.runs if runs is None else runs, epsilon=self.epsilon)

    @property
    def gaussian_exchange(self) -> float:
        """Return Gaussian noise per unit of Laplace scale at about the same cost: a ratio to start from, not a guarantee."""
        return math.sqrt(2 * math.log(1.25 / self.delta))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NoiseScale:
    """Noise per unit of change as a function of the noise level.

    Args:
        moved: what one unit moves, in units of the level.
        part: of the budget.
        fixed: the scale that was asked for, at all levels; None where the noise follows the level.
    """

    moved: float = 0.0
    part: float = 1.0
    fixed: float | None = None

    def at(self, level: float) -> float:
        """Return the noise scale at a noise level."""
        return self.moved * level / self.part if self.fixed is None else self.fixed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to run a stage.

    Args:
        strategy: how partitions are selected; None for public ones.
        laws: the law of each statistic with noise; `selection` for one that only selection uses.
        weights: the part of the whole budget of each of these, and of `coin` (truncated geometric, choices of the best); none
            for fixed noise.
        of_weight: what a weight of 1 among the stage's own is of the whole budget.
        shapes: how far one unit moves each of them; for weighted selection an L2 norm of one unit.
        centred: families of metrics whose sums are centred.
        fixed: standard deviations that were asked for, of their statistics, in units of change (`Shape.unit`).
        sums: what training sums up, of these statistics.
        medians: whether there are medians with smooth sensitivity, which take a part of delta.
    """

    strategy: str | None
    laws: FrozenMapping[str]
    weights: FrozenMapping[float]
    of_weight: float
    shapes: FrozenMapping[Shape]
    centred: Families
    fixed: FrozenMapping[float]
    sums: FrozenMapping[ClippedVectors] = FrozenMapping({})
    medians: bool = False

    def multiplier(self, item: str, level: float, budget: TotalBudget) -> float:
        """Return the noise scale per unit of change at a noise level (about 1 / epsilon of the whole plan)."""
        return self.noise_scale(item, budget).at(level)

    def noise_scale(self, item: str, budget: TotalBudget) -> NoiseScale:
        """Return the noise scale of a statistic per unit of change, as a function of the noise level.

        A weight is a part of what adds up: of epsilon for Laplace noise, of the inverse of the variance for Gaussian noise. So
        the weighted logarithms of the deviations have the least sum (`choose`).
        """
        if item in self.fixed:
            return NoiseScale(fixed=self.fixed[item] / (math.sqrt(2) if self.laws[item] == "laplace" else 1.0))
        shape, weight = self.shapes[item], self.weights[item]
        if self.laws[item] == "laplace":
            return NoiseScale(moved=shape.in_total, part=weight)
        moved = training_sums.influence(self.sums[item]) if item in self.sums else math.sqrt(shape.l2_squared)
        return NoiseScale(moved=moved * budget.gaussian_exchange, part=math.sqrt(weight))

    @property
    def selects(self) -> bool:
        """Return True if partitions are selected privately, which may fail."""
        return self.strategy not in (None, *get_args(Choosing))

    @property
    def takes_delta(self) -> bool:
        """Return True if a part of delta is reserved for the stage."""
        return self.selects or self.medians

    @property
    def flips(self) -> bool:
        """Return True if anything is decided by coins or choices, which have an epsilon of their own."""
        return "coin" in self.weights

    def coin_epsilon(self, level: float, query: Query) -> float:
        """Return the epsilon of one partition's coin, or of one choice, at a noise level."""
        return self.weights["coin"] / (level * kind_of(query).coins)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Choices that meet the budget."""

    choices: FrozenMapping[StageChoices]
    gaussian_scale: Fraction
    laplace_scale: Fraction


Queries = Mapping[str, Query]
Chosen = dict[str, Candidate]


def ideal(
    name: str, query: Query, candidate: Candidate, level: float, budget: TotalBudget, stages: int
) -> Iterator[MechanismRecord]:
    """Return the records at a noise level, on a lattice so fine that steps do not matter."""
    steps = 4096
    for item, law in candidate.laws.items():
        shape = candidate.shapes[item]
        scale = Fraction(math.ceil(candidate.multiplier(item, level, budget) * steps * SCALE_GRID), SCALE_GRID)
        if item in candidate.sums:
            yield stage.grouped(training_sums.sums_record(name, item, scale, steps, candidate.sums[item]), query)
        else:
            yield stage.grouped(noise_record(name, item, law, scale, shape.ideally(steps)), query)
    delta = selection_delta(budget, stages)
    if candidate.medians:
        yield stage.grouped(MechanismRecord(stage=name, name="medians", kind="delta", delta=delta), query)
    if candidate.strategy is not None:
        epsilon = candidate.coin_epsilon(level, query) if candidate.flips else 0.0
        yield stage.grouped(kind_of(query).decision_record(name, candidate.strategy, epsilon, delta), query)


def selection_delta(budget: TotalBudget, stages: int) -> float:
    """Return the probability with which the selection of one stage and run may fail, or the part of delta for its medians."""
    return SELECTION_DELTA * budget.delta / (budget.runs * stages)
