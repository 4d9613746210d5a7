"""The expected error of a plan, from public numbers: what the search for choices compares (`planning.choose`).

In: queries, a budget, one candidate for each stage. Out: a score and about the noise level. Holds: a search asks about plans that
differ in one stage from its best; an answer takes work for that stage alone, and sums over arrays. Sums have the order of the
stages, so a score has the same bits however the search came to it. Equal stages share what they add. Not covered: which
candidates there are (`choose`); noise in integers (noise_levels.integer_noise).
"""

import dataclasses
import functools
import math
import statistics as normal
from collections.abc import Mapping, Sequence

from dp_pipelines.accounting.estimate import Terms, laplace_loss
from dp_pipelines.accounting.level_costs import LevelCosts, LevelPart, OrderedSums
from dp_pipelines.errors import BudgetError
from dp_pipelines.mechanisms import training_sums
from dp_pipelines.metrics.base import UNITS
from dp_pipelines.planning import reserve, stage
from dp_pipelines.planning.candidate import (
    SELECTION_DELTA,
    Candidate,
    Chosen,
    NoiseScale,
    Queries,
    TotalBudget,
    selection_delta,
)
from dp_pipelines.planning.noise_levels import noise_search
from dp_pipelines.planning.noise_levels.integer_noise import searched
from dp_pipelines.planning.stage_kinds import kind_of
from dp_pipelines.query.query import PrivatePartitions, Query

Options = Mapping[str, Sequence[Candidate]]
"""The candidates of each stage."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatisticScore:
    """The part of a score of one statistic: its weight times the logarithm of its noise.

    Args:
        weight: of the statistic.
        scale: of its noise.
        spread: the standard deviation of the law at scale 1.
        middle: see `reserve.at_middle`.
    """

    weight: float
    scale: NoiseScale
    spread: float
    middle: float

    def at(self, level: float) -> float:
        """Return it at a noise level."""
        return self.weight * math.log(self.scale.at(level) * self.spread * self.middle)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HalfKeep:
    """About how many users a partition needs to be kept as often as not, above `min_users`, for comparisons.

    For weighted selection the users are taken to have half of the partitions that they may have.

    Args:
        delta: of one partition.
        scale: of the noise that is compared; no noise where coins decide.
        coin: the weight of the coins, and how many depend on one unit; None where noise decides.
        middle: see `reserve.at_middle`.
        law: of the noise.
        spread_over: the most partitions of one unit, where selection is weighted.
    """

    delta: float
    scale: NoiseScale
    coin: tuple[float, int] | None = None
    middle: float = 1.0
    law: str = "gaussian"
    spread_over: int | None = None

    @classmethod
    def of(cls, query: Query, candidate: Candidate, budget: TotalBudget, stages: int) -> "HalfKeep":
        """Return that of one way to run a stage, in a plan of so many stages."""
        most = query.bounds.max_partitions
        delta = SELECTION_DELTA * budget.delta / (budget.runs * stages * most)
        if candidate.strategy == "truncated_geometric":
            return cls(delta=delta, scale=NoiseScale(), coin=(candidate.weights["coin"], kind_of(query).coins))
        item = "selection" if "selection" in candidate.laws else UNITS.name
        law, scale = candidate.laws[item], candidate.noise_scale(item, budget)
        if candidate.strategy == "weighted_gaussian":
            return cls(delta=delta, scale=scale, law=law, spread_over=most)
        return cls(delta=delta, scale=scale, law=law, middle=reserve.at_middle(query.bounds.candidates, law))

    def at(self, level: float) -> float:
        """Return the number of users at a noise level."""
        if self.coin is not None:
            weight, coins = self.coin
            epsilon = weight / (level * coins)
            return 1 + math.log1p(math.expm1(epsilon) / (2 * self.delta)) / epsilon if epsilon < 700 else 1.0
        noise = self.scale.at(level) * self.middle
        if self.law == "laplace":
            return 1 + noise * max(0.0, math.log(1 / (2 * self.delta)))
        if self.spread_over is not None:
            most = self.spread_over
            return math.sqrt((1 + most) / 2) * (1 / math.sqrt(most) + noise * _tail(self.delta))
        return 1 + noise * _tail(self.delta)


@functools.lru_cache(maxsize=1024)
def _tail(delta: float) -> float:
    """Return about the standard normal number that is exceeded with a probability."""
    return normal.NormalDist().inv_cdf(1 - delta) if delta > 1e-15 else math.sqrt(2 * math.log(1 / delta))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateScore:
    """The part of a score of one stage, as a function of the noise level.

    Args:
        statistics: of those with noise.
        selection: where partitions are selected.
        selection_weight: of selection.
        of_weight: of the stage (`Candidate.of_weight`).
    """

    statistics: tuple[StatisticScore, ...]
    selection: HalfKeep | None
    selection_weight: float
    of_weight: float
    _at_levels: dict[float, float] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def at(self, level: float) -> float:
        """Return it at a noise level."""
        if level not in self._at_levels:
            score = 0.0
            for statistic in self.statistics:
                score += statistic.at(level)
            if self.selection is not None:
                score += self.selection_weight * math.log(self.selection.at(level))
            self._at_levels[level] = self.of_weight * score
        return self._at_levels[level]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Addends:
    """The parts of a candidate in the sums of the rough account and in the score.

    Args:
        candidate: the candidate.
        free: noise that follows the level.
        asked: noise that metrics ask for.
        score: its part of the score.
    """

    candidate: Candidate
    free: LevelPart
    asked: LevelPart
    score: CandidateScore


class ExpectedErrors:
    """The parts of candidates in the expected error of a plan; equal parts are computed once.

    Args:
        queries: by stage.
        options: the candidates of each stage. Others may differ from these in the laws of statistics.
        budget: of all runs.
    """

    def __init__(self, queries: Queries, options: Options, budget: TotalBudget) -> None:
        self.queries, self.budget = queries, budget
        self.width = 1 + max(len(candidate.weights) + len(candidate.fixed) for o in options.values() for candidate in o)
        # By identity: equal candidates may list their statistics in another order, and so add up to other last bits.
        self._addends: dict[tuple[str, int], Addends] = {}
        self._parts: dict[LevelPart, LevelPart] = {}
        self._scores: dict[CandidateScore, CandidateScore] = {}

    def of(self, chosen: Chosen) -> "ChosenPlan":
        """Return a plan that a search starts from.

        Args:
            chosen: a candidate for each stage.
        """
        return ChosenPlan(self, chosen)

    def addends(self, name: str, candidate: Candidate) -> Addends:
        """Return what a candidate of a stage adds."""
        known = self._addends.get((name, id(candidate)))
        if known is None:
            known = self._addends[name, id(candidate)] = self._new_addends(name, candidate)
        return known

    def _new_addends(self, name: str, candidate: Candidate) -> Addends:
        query, stages, runs = self.queries[name], len(self.queries), self.budget.runs
        free, with_fixed = (
            LevelPart.of_terms(terms(query, candidate, self.budget, stages, asked=fixed), runs, scaled=not fixed)
            for fixed in (False, True)
        )
        score = self._score(query, candidate)
        return Addends(
            candidate=candidate,
            free=self._parts.setdefault(free, free),
            asked=self._parts.setdefault(with_fixed, with_fixed),
            score=self._scores.setdefault(score, score),
        )

    def _score(self, query: Query, candidate: Candidate) -> CandidateScore:
        weights, private = stage.noisy_statistics(query, candidate.centred), query.partitions
        selects = isinstance(private, PrivatePartitions)
        return CandidateScore(
            statistics=tuple(
                StatisticScore(
                    weight=weights[item],
                    scale=candidate.noise_scale(item, self.budget),
                    spread=math.sqrt(2) if law == "laplace" else 1.0,
                    middle=reserve.at_middle(query.bounds.candidates, law),
                )
                for item, law in candidate.laws.items()
                if item != "selection"
            ),
            selection=HalfKeep.of(query, candidate, self.budget, len(self.queries)) if selects else None,
            selection_weight=private.weight if isinstance(private, PrivatePartitions) else 0.0,
            of_weight=candidate.of_weight,
        )


class ChosenPlan:
    """The best plan that a search knows, and the scores of plans that differ from it in one stage.

    Args:
        errors: what candidates add.
        chosen: a candidate for each stage.
    """

    def __init__(self, errors: ExpectedErrors, chosen: Chosen) -> None:
        self.chosen = dict(chosen)
        self._errors, self._budget = errors, errors.budget
        self._places = {name: place for place, name in enumerate(chosen)}
        self._addends = [errors.addends(name, candidate) for name, candidate in chosen.items()]
        self._with_noise = sum(bool(candidate.weights) for candidate in chosen.values())
        # Like the rough estimate: the noise that metrics ask for comes first, of all stages that have some.
        fixed = [place for place, of_stage in enumerate(self._addends) if of_stage.candidate.fixed]
        self._asked = {place: number for number, place in enumerate(fixed)}
        parts = [*(self._addends[place].asked for place in fixed), *(of_stage.free for of_stage in self._addends)]
        self._costs = LevelCosts(parts, self._budget.delta, against=self._budget.epsilon, width=errors.width)
        self._sums: dict[float, OrderedSums] = {}
        self._score: float | None = None
        self._scores: dict[tuple[str, int], float] = {}

    @property
    def score(self) -> float:
        """Return the weighted logarithms of its expected errors; infinite where the budget cannot be met."""
        if self._score is None:
            name, candidate = next(iter(self.chosen.items()))
            self._score = self._score_with(name, self._errors.addends(name, candidate))
        return self._score

    def score_with(self, name: str, candidate: Candidate) -> float:
        """Return the score of the plan with another candidate for one stage.

        Args:
            name: of the stage.
            candidate: of that stage.
        """
        if candidate is self.chosen[name]:
            return self.score
        key = (name, id(candidate))
        if key not in self._scores:
            self._scores[key] = self._score_with(name, self._errors.addends(name, candidate))
        return self._scores[key]

    def take(self, name: str, candidate: Candidate) -> None:
        """Take another candidate for one stage, for good."""
        before = self.chosen[name]
        if candidate is before:
            return
        self._score = self._scores.get((name, id(candidate)))
        place, addends = self._places[name], self._errors.addends(name, candidate)
        self._costs.exchange(self._changed(place, addends))
        self._with_noise += bool(candidate.weights) - bool(before.weights)
        self.chosen[name], self._addends[place] = candidate, addends
        for level, sums in self._sums.items():
            sums.exchange(place, [addends.score.at(level)])
        self._scores = {}

    def level(self) -> float:
        """Return about the noise level that meets the budget, by the rough account.

        Raises:
            BudgetError: no level meets it.
        """
        return self._level({}, self._with_noise > 0)

    def _changed(self, place: int, addends: Addends) -> dict[int, LevelPart]:
        free = {len(self._asked) + place: addends.free}
        return free if place not in self._asked else {self._asked[place]: addends.asked, **free}

    def _score_with(self, name: str, addends: Addends) -> float:
        place = self._places[name]
        changed = {} if addends is self._addends[place] else self._changed(place, addends)
        has_noise = bool(addends.candidate.weights) - bool(self.chosen[name].weights)
        try:
            level = self._level(changed, self._with_noise + has_noise > 0)
        except BudgetError:
            return math.inf
        if level not in self._sums:
            self._sums[level] = OrderedSums([[of_stage.score.at(level)] for of_stage in self._addends], 1)
        return self._sums[level].total({place: [addends.score.at(level)]})

    def _level(self, changed: Mapping[int, LevelPart], follows: bool) -> float:
        budget = self._budget
        cost = self._costs.cost(changed)
        if not follows:
            if cost(1.0) <= budget.epsilon:
                return 1 / budget.epsilon
            raise BudgetError(field="budget", message="is too small for the noise that metrics ask for")
        return searched(
            lambda: noise_search.least_level(cost, budget.epsilon, start=1 / budget.epsilon, tolerance=1e-3)
        )


def terms(query: Query, candidate: Candidate, budget: TotalBudget, stages: int, *, asked: bool) -> Terms:
    """Return the terms of a candidate at noise level 1: of noise that was asked for, or of all other noise."""
    squares, losses = 0.0, []
    for item, law in candidate.laws.items():
        if (item in candidate.fixed) == asked:
            shape, scale = candidate.shapes[item], candidate.multiplier(item, 1.0, budget)
            if item in candidate.sums:
                squares += training_sums.squares(candidate.sums[item], scale)
            elif law == "gaussian":
                squares += shape.l2_squared / scale**2
            else:
                losses.append(laplace_loss(shape.coordinates, shape.per_coordinate, shape.in_total, scale))
    if asked or (candidate.strategy is None and not candidate.medians):
        return Terms(squares=squares, losses=tuple(losses))
    if candidate.flips:
        losses.append((kind_of(query).coins, candidate.coin_epsilon(1.0, query)))
    failed = selection_delta(budget, stages) if candidate.takes_delta else 0.0
    return Terms(squares=squares, losses=tuple(losses), log_not_failed=math.log1p(-failed))
