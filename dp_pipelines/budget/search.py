"""How a plan chooses: strategies, laws, bases and lattice steps for the smallest expected error, from public numbers alone.

In: queries with shares, a budget. Out: `StageChoices` for each stage and the two noise scales, calibrated so that the
privacy loss distribution of all records meets the budget. Holds: nothing here sees data. Candidates are compared by an
expected error; only the last step, on the integer records that will run, decides the noise, so a poor comparison costs
accuracy and never privacy. May import errors, metrics, query, selection, budget (mechanism, calibrate, stage).
"""

import dataclasses
import math
import statistics as normal
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from dp_pipelines.budget import accountant, calibration, stage
from dp_pipelines.budget.mechanism import Mechanism
from dp_pipelines.budget.rough import rough_epsilon
from dp_pipelines.budget.stage import Choice, StageChoices
from dp_pipelines.errors import BudgetError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.statistics import Shape
from dp_pipelines.metrics import UNITS, Sum
from dp_pipelines.query import PrivatePartitions, Query

MEND = "raise epsilon or delta, lower the contribution bounds or the number of runs, or release fewer metrics"

Number = TypeVar("Number", int, float)

Families = tuple[tuple[str, float, float], ...]

TARGET_SCALE = 1024
"""The noise scale, in release steps, that is aimed at: fine enough that rounding costs nothing, small enough for one table."""

LARGEST_SCALE = {"gaussian": 2**13, "laplace": 2**18}
"""Beyond these a noise table would not be built (noise.samplers), and noise so large has no use."""

SCALE_GRID = 64
"""Scales are multiples of 1/64 step."""

FINE = 8192
"""The last calibration moves both scales together in steps of 1/8192."""

SELECTION_DELTA = 0.5
"""The part of delta that selection may fail with, over all stages and runs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent by all runs of a plan together."""

    epsilon: float
    delta: float
    runs: int

    def cost(self, records: Sequence[Mechanism], accuracy: float = 1e-4) -> float:
        """The epsilon of all runs of some records: with delta 0 the sum of their epsilons, or infinity."""
        if self.delta == 0:
            pure = [record.pure_epsilon for record in records]
            exact = [epsilon for epsilon in pure if epsilon is not None]
            return math.nextafter(float(self.runs * sum(exact)), math.inf) if len(exact) == len(pure) else math.inf
        return accountant.epsilon_of(records, self.allowed_delta(records), runs=self.runs, accuracy=accuracy)

    def allowed_delta(self, records: Sequence[Mechanism]) -> float:
        """Delta; where it is 0, what the finite tables of the samplers add all the same (docs/proofs/noise.md)."""
        if self.delta > 0:
            return self.delta
        return accountant.tables_delta(records, runs=self.runs, epsilon=self.epsilon)

    @property
    def gaussian_exchange(self) -> float:
        """Gaussian noise per unit of Laplace scale at about the same cost: a ratio to start from, not a guarantee."""
        return math.sqrt(2 * math.log(1.25 / self.delta))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to run a stage.

    Args:
        strategy: how partitions are selected; None for public ones.
        laws: the law of each statistic with noise; `selection` for one that only selection uses.
        weights: the part of the whole budget of each of these, and of `coin` (truncated geometric).
        shapes: how far one unit moves each of them; for weighted selection an L2 norm of one unit.
        centred: families of metrics whose sums are centred.
    """

    strategy: str | None
    laws: FrozenMapping[str]
    weights: FrozenMapping[float]
    shapes: FrozenMapping[Shape]
    centred: Families

    def multiplier(self, item: str, level: float, budget: Budget) -> float:
        """Noise scale per unit of change at a noise level (about 1 / epsilon of the whole plan)."""
        shape, weight = self.shapes[item], self.weights[item]
        if self.laws[item] == "laplace":
            return shape.in_total * level / weight
        return math.sqrt(shape.per_coordinate * shape.in_total) * budget.gaussian_exchange * level / weight

    def coin_epsilon(self, level: float, query: Query) -> float:
        """Epsilon of one partition's coin at a noise level."""
        return self.weights["coin"] / (level * query.bounds.max_partitions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Choices that meet the budget."""

    choices: FrozenMapping[StageChoices]
    gaussian_scale: Fraction
    laplace_scale: Fraction


Queries = Mapping[str, Query]
Chosen = dict[str, Candidate]


def search(queries: Queries, shares: Mapping[str, float], budget: Budget) -> Calibrated:
    """Choices for all stages, with the smallest expected error among the candidates.

    Raises:
        BudgetError: where the budget cannot be met.
    """
    total = math.fsum(shares.values())
    options = {n: list(candidates(q, shares[n] / total, budget)) for n, q in queries.items()}
    chosen = {name: of_stage[0] for name, of_stage in options.items()}
    for _ in range(1 if len(queries) == 1 else 2):
        for name, of_stage in options.items():
            attempts = [{**chosen, name: candidate} for candidate in of_stage]
            chosen = min(attempts, key=lambda attempt: _score(queries, attempt, budget))
    chosen = _with_single_flips(queries, chosen, budget)
    return _calibrated(queries, chosen, budget)


def candidates(query: Query, share: float, budget: Budget) -> Iterator[Candidate]:
    """The ways to run a stage in which all released statistics have one law."""
    partitions = query.partitions
    strategies: list[str | None] = [None]
    if isinstance(partitions, PrivatePartitions):
        if budget.delta == 0:
            raise BudgetError(
                field="budget.delta",
                rule="must be above 0 where partitions are selected privately",
                mend="set it, e.g. delta: 1.0e-6, or list public partitions",
            )
        strategies = [partitions.strategy]
        if partitions.strategy == "auto":
            strategies = ["truncated_geometric", "laplace", "gaussian"]
            strategies += ["weighted_gaussian"] if partitions.min_users <= 1 else []
    centred = tuple(f for f in dict.fromkeys(m.family for m in query.metrics.values()) if f and centring_pays(query, f))
    for law in ("laplace",) if budget.delta == 0 else ("gaussian", "laplace"):
        for strategy in strategies:
            yield _candidate(query, share, law, strategy, centred)


def _candidate(query: Query, share: float, law: str, strategy: str | None, centred: Families) -> Candidate:
    released = stage.released_statistics(query, centred)
    laws = dict.fromkeys(released, law)
    weights = dict(stage.noisy_statistics(query, centred))
    shapes = {key: stage.shape_of(statistic, query) for key, statistic in released.items()}
    if isinstance(query.partitions, PrivatePartitions):
        weight = query.partitions.weight
        if strategy in ("laplace", "gaussian"):
            item = UNITS.name if UNITS.name in released else "selection"
            laws[item] = strategy
            shapes[item] = stage.shape_of(UNITS, query)
        elif strategy == "weighted_gaussian":
            item, laws["selection"] = "selection", "gaussian"
            shapes[item] = Shape(unit=1, coordinates=query.bounds.max_partitions, per_coordinate=1, in_total=1)
        else:
            item = "coin"
        weights[item] = weights.get(item, 0.0) + weight
    whole = math.fsum(weights.values())
    return Candidate(
        strategy=strategy,
        laws=FrozenMapping(laws),
        weights=FrozenMapping({item: share * weight / whole for item, weight in weights.items()}),
        shapes=FrozenMapping(shapes),
        centred=centred,
    )


def centring_pays(query: Query, family: tuple[str, float, float]) -> bool:
    """Whether the sums of a family of metrics are better counted from the middle of their range.

    With equal noise multipliers for a sum and its count, and values spread evenly over the range, the variance of a mean is
    the square of the sum's sensitivity plus that of the typical distance from the centre; the number of rows is a common
    factor. A plain sum needs no count when it is raw.
    """
    _, low, high = family
    largest = max(abs(low), abs(high))
    if largest == 0 or low == high:
        return False
    # In units of the larger bound, so that no square overflows.
    low, high, largest = low / largest, high / largest, 1.0
    middle, half = low / 2 + high / 2, (high - low) / 2
    gain = 0.0
    for metric in query.metrics.values():
        if metric.family == family:
            if isinstance(metric, Sum):
                gain += metric.weight * math.log(largest**2 / (half**2 + middle**2))
            else:
                gain += metric.weight * math.log((largest**2 + half**2 / 3 + middle**2) / (half**2 + half**2 / 3))
    alone = all(isinstance(m, Sum) for m in query.metrics.values() if m.family == family)
    return gain > 0 and not alone


def _with_single_flips(queries: Queries, chosen: Chosen, budget: Budget) -> Chosen:
    """Let single statistics take the other law where that lowers the expected error."""
    if budget.delta == 0:
        return chosen
    best = _score(queries, chosen, budget)
    for name in queries:
        for item, law in chosen[name].laws.items():
            selects = item == "selection" or (item == UNITS.name and chosen[name].strategy in ("laplace", "gaussian"))
            if selects:
                continue
            laws = FrozenMapping({**chosen[name].laws, item: "laplace" if law == "gaussian" else "gaussian"})
            attempt = {**chosen, name: dataclasses.replace(chosen[name], laws=laws)}
            score = _score(queries, attempt, budget)
            if score < best - 1e-3:
                chosen, best = attempt, score
    return chosen


def _score(queries: Queries, chosen: Chosen, budget: Budget) -> float:
    """The weighted logarithms of expected errors; infinite where the budget cannot be met."""
    try:
        level = _level(queries, chosen, budget)
    except BudgetError:
        return math.inf
    score = 0.0
    for name, candidate in chosen.items():
        for item, law in candidate.laws.items():
            if item != "selection":
                noise = candidate.multiplier(item, level, budget) * (math.sqrt(2) if law == "laplace" else 1)
                score += stage.noisy_statistics(queries[name], candidate.centred)[item] * math.log(noise)
        partitions = queries[name].partitions
        if isinstance(partitions, PrivatePartitions):
            score += partitions.weight * math.log(
                expected_half_keep(queries[name], candidate, level, budget, len(queries))
            )
    return score


def expected_half_keep(query: Query, candidate: Candidate, level: float, budget: Budget, stages: int) -> float:
    """About how many users a partition needs to be kept as often as not, above `min_users`, for comparisons.

    For weighted selection the users are taken to have half of the partitions that they may have.
    """
    most = query.bounds.max_partitions
    delta = SELECTION_DELTA * budget.delta / (budget.runs * stages * most)
    if candidate.strategy == "truncated_geometric":
        epsilon = candidate.coin_epsilon(level, query)
        return 1 + math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon if epsilon < 700 else 1.0
    item = "selection" if "selection" in candidate.laws else UNITS.name
    noise = candidate.multiplier(item, level, budget)
    if candidate.laws[item] == "laplace":
        return 1 + noise * max(0.0, math.log(1 / (2 * delta)))
    tail = normal.NormalDist().inv_cdf(1 - delta) if delta > 1e-15 else math.sqrt(2 * math.log(1 / delta))
    if candidate.strategy == "weighted_gaussian":
        return math.sqrt((1 + most) / 2) * (1 / math.sqrt(most) + noise * tail)
    return 1 + noise * tail


def _level(queries: Queries, chosen: Chosen, budget: Budget) -> float:
    """About the noise level that meets the budget, by the rough account."""

    def cost(level: float) -> float:
        ideal = [r for name in chosen for r in _ideal(name, queries[name], chosen[name], level, budget, len(queries))]
        return rough_epsilon(ideal, budget.delta, runs=budget.runs)

    return _searched(lambda: calibration.least_level(cost, budget.epsilon, start=1 / budget.epsilon, tolerance=1e-3))


def _exact_level(queries: Queries, chosen: Chosen, budget: Budget) -> float:
    """The noise level that meets the budget, on records so fine that steps do not matter."""

    def cost(level: float) -> float:
        ideal = [r for name in chosen for r in _ideal(name, queries[name], chosen[name], level, budget, len(queries))]
        return budget.cost(ideal, accuracy=1e-3)

    start = _level(queries, chosen, budget)
    return _searched(lambda: calibration.least_level(cost, budget.epsilon, start=start, tolerance=2e-3, factor=1.05))


def _searched(find: Callable[[], Number]) -> Number:
    try:
        return find()
    except BudgetError as error:
        raise BudgetError(field="budget", rule=error.rule, mend=MEND) from None


def _ideal(
    name: str, query: Query, candidate: Candidate, level: float, budget: Budget, stages: int
) -> Iterator[Mechanism]:
    """Records at a noise level, on a lattice so fine that steps do not matter."""
    steps = 4096
    for item, law in candidate.laws.items():
        shape = candidate.shapes[item]
        scale = Fraction(math.ceil(candidate.multiplier(item, level, budget) * steps * SCALE_GRID), SCALE_GRID)
        linf, total = shape.per_coordinate * steps, shape.in_total * steps
        yield stage.record(name, item, law, scale, l0=shape.coordinates, linf=linf, l1=total)
    if candidate.strategy is not None:
        delta = _selection_delta(budget, stages)
        epsilon = candidate.coin_epsilon(level, query) if candidate.strategy == "truncated_geometric" else 0.0
        yield stage.selection_failure(name, query, candidate.strategy, epsilon, delta)


def _selection_delta(budget: Budget, stages: int) -> float:
    return SELECTION_DELTA * budget.delta / (budget.runs * stages)


def _calibrated(queries: Queries, chosen: Chosen, budget: Budget) -> Calibrated:
    level = _exact_level(queries, chosen, budget)
    multipliers = {
        (name, item): candidate.multiplier(item, level, budget)
        for name, candidate in chosen.items()
        for item in candidate.laws
    }
    scales: dict[str, float] = {}
    for law in ("gaussian", "laplace"):
        of_law = [m for (name, item), m in multipliers.items() if chosen[name].laws[item] == law]
        scales[law] = max([TARGET_SCALE, *of_law])
        if scales[law] > LARGEST_SCALE[law]:
            raise BudgetError(
                field="budget",
                rule="leaves a statistic with noise thousands of times the effect of one unit",
                mend=MEND,
            )
    steps = {
        (name, item): max(1, round(scales[chosen[name].laws[item]] / multiplier))
        for (name, item), multiplier in multipliers.items()
    }

    def choices(fine: int) -> Calibrated:
        of_stages = {}
        for name, candidate in chosen.items():
            epsilon = 0.0
            if candidate.strategy == "truncated_geometric":
                epsilon = candidate.coin_epsilon(level, queries[name]) * FINE / fine
            of_stages[name] = StageChoices(
                strategy=candidate.strategy,
                noises=FrozenMapping({i: Choice(law=law, steps=steps[name, i]) for i, law in candidate.laws.items()}),
                selection_delta=_selection_delta(budget, len(queries)) if candidate.strategy is not None else 0.0,
                selection_epsilon=epsilon,
                centred=candidate.centred,
            )
        gaussian, laplace = (
            Fraction(math.ceil(scales[law] * SCALE_GRID * fine / FINE), SCALE_GRID) for law in ("gaussian", "laplace")
        )
        return Calibrated(choices=FrozenMapping(of_stages), gaussian_scale=gaussian, laplace_scale=laplace)

    def cost(fine: int) -> float:
        calibrated = choices(fine)
        exact = [r for n, query in queries.items() for r in stage.records(n, query, calibrated.choices[n], calibrated)]
        return budget.cost(exact)

    fine = _searched(lambda: calibration.least_integer(cost, budget.epsilon, start=FINE, high=2 * FINE))
    return choices(fine)
