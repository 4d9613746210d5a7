"""The expected error of a plan, from public numbers: what the search for choices compares (`planning.choose`).

In: queries, a budget, one candidate for each stage. Out: a score and about the noise level. Holds: what a candidate adds to
the sums is worked out once, and sums over stages are taken in the order of the stages, so a score has the same bits however
the search came to it. Not covered: which candidates there are (`choose`); noise in integers (noise_levels.integer_noise).
"""

import dataclasses
import math
import statistics as normal
from collections.abc import Mapping

from dp_pipelines.accounting.estimate import Terms, laplace_loss
from dp_pipelines.accounting.level_costs import columns, cost_by_level
from dp_pipelines.errors import BudgetError
from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.mechanisms import training_sums
from dp_pipelines.metrics.base import UNITS
from dp_pipelines.planning import reserve, stage
from dp_pipelines.planning.candidate import SELECTION_DELTA, Candidate, Chosen, Queries, TotalBudget, selection_delta
from dp_pipelines.planning.noise_levels import noise_search
from dp_pipelines.planning.noise_levels.integer_noise import searched
from dp_pipelines.planning.stage_kinds import kind_of
from dp_pipelines.query.query import PrivatePartitions, Query


@dataclasses.dataclass(frozen=True, kw_only=True)
class Addends:
    """What a candidate adds to the sums of the rough account.

    Args:
        candidate: whose numbers these are.
        free: of noise that follows the level (`accounting.level_costs.columns`).
        asked: of noise that metrics ask for.
        log_not_failed: the logarithm of the probability that nothing fails outright, in all runs.
        weights: of the statistics with noise, in the score.
        scores: what the candidate adds to the score, by noise level.
    """

    candidate: Candidate
    free: Floats
    asked: Floats
    log_not_failed: float
    weights: Mapping[str, float]
    scores: dict[float, float] = dataclasses.field(default_factory=dict)


class ExpectedErrors:
    """The expected errors of the plans that a search compares.

    Plans of a search differ in one stage at a time. What a candidate adds is kept, so a plan with another candidate for one
    stage costs one pass over arrays.

    Args:
        queries: by stage.
        budget: of all runs.
    """

    def __init__(self, queries: Queries, budget: TotalBudget) -> None:
        self.budget = budget
        self._queries = queries
        # By identity: equal candidates may list their statistics in another order, and so add up to other last bits.
        self._addends: dict[tuple[str, int], Addends] = {}
        self._scores: dict[tuple[int, ...], float] = {}

    def score(self, chosen: Chosen) -> float:
        """Return the weighted logarithms of expected errors; infinite where the budget cannot be met.

        Args:
            chosen: a candidate for each stage.
        """
        key = tuple(map(id, chosen.values()))
        if key not in self._scores:
            self._scores[key] = self._score_of(chosen, self._of_stages(chosen))
        return self._scores[key]

    def _score_of(self, chosen: Chosen, addends: list[Addends]) -> float:
        try:
            level = self._level_of(addends)
        except BudgetError:
            return math.inf
        total = 0.0
        for name, of_stage in zip(chosen, addends, strict=True):
            if level not in of_stage.scores:
                of_stage.scores[level] = self._weighted_score(self._queries[name], of_stage, level)
            total += of_stage.scores[level]
        return total

    def level(self, chosen: Chosen) -> float:
        """Return about the noise level that meets the budget, by the rough account.

        Args:
            chosen: a candidate for each stage.

        Raises:
            BudgetError: no level meets it.
        """
        return self._level_of(self._of_stages(chosen))

    def _of_stages(self, chosen: Chosen) -> list[Addends]:
        known = self._addends
        return [
            known.get((name, id(candidate))) or self._new_addends(name, candidate) for name, candidate in chosen.items()
        ]

    def _new_addends(self, name: str, candidate: Candidate) -> Addends:
        query, stages, runs = self._queries[name], len(self._queries), self.budget.runs
        free = terms(query, candidate, self.budget, stages, asked=False)
        addends = Addends(
            candidate=candidate,
            free=columns(free, runs, scaled=True),
            asked=columns(terms(query, candidate, self.budget, stages, asked=True), runs, scaled=False),
            log_not_failed=runs * free.log_not_failed,
            weights=stage.noisy_statistics(query, candidate.centred),
        )
        self._addends[name, id(candidate)] = addends
        return addends

    def _level_of(self, addends: list[Addends]) -> float:
        budget = self.budget
        cost = cost_by_level(
            [*(of_stage.asked for of_stage in addends), *(of_stage.free for of_stage in addends)],
            (of_stage.log_not_failed for of_stage in addends),
            budget.delta,
            against=budget.epsilon,
        )
        if not any(of_stage.candidate.weights for of_stage in addends):
            if cost(1.0) <= budget.epsilon:
                return 1 / budget.epsilon
            raise BudgetError(field="budget", message="is too small for the noise that metrics ask for")
        return searched(
            lambda: noise_search.least_level(cost, budget.epsilon, start=1 / budget.epsilon, tolerance=1e-3)
        )

    def _weighted_score(self, query: Query, addends: Addends, level: float) -> float:
        score, candidate = 0.0, addends.candidate
        for item, law in candidate.laws.items():
            if item != "selection":
                noise = candidate.multiplier(item, level, self.budget) * (math.sqrt(2) if law == "laplace" else 1)
                noise *= reserve.at_middle(query.bounds.candidates, law)
                score += addends.weights[item] * math.log(noise)
        if isinstance(query.partitions, PrivatePartitions):
            half = expected_half_keep(query, candidate, level, self.budget, len(self._queries))
            score += query.partitions.weight * math.log(half)
        return candidate.of_weight * score


def expected_half_keep(query: Query, candidate: Candidate, level: float, budget: TotalBudget, stages: int) -> float:
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
    if candidate.strategy != "weighted_gaussian":
        noise *= reserve.at_middle(query.bounds.candidates, candidate.laws[item])
    if candidate.laws[item] == "laplace":
        return 1 + noise * max(0.0, math.log(1 / (2 * delta)))
    tail = normal.NormalDist().inv_cdf(1 - delta) if delta > 1e-15 else math.sqrt(2 * math.log(1 / delta))
    if candidate.strategy == "weighted_gaussian":
        return math.sqrt((1 + most) / 2) * (1 / math.sqrt(most) + noise * tail)
    return 1 + noise * tail


def terms(query: Query, candidate: Candidate, budget: TotalBudget, stages: int, *, asked: bool) -> Terms:
    """What a candidate does at noise level 1: by noise that was asked for, or by all the rest."""
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
