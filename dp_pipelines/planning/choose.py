"""The choices of a plan: strategies, laws and bases with the smallest expected error, from public numbers alone.

In: queries with shares, a budget, a split over runs. Out: `StageChoices` for each stage and the two noise scales, calibrated so
that the privacy loss distribution of all records meets the budget. Holds: nothing here sees data. Candidates are compared by an
expected error, as if all runs got the same part; only the last step (noise_levels.integer_noise), on the integer records that
run, decides the noise, so a poor comparison costs accuracy and never privacy.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.mechanisms.by_statistic import mechanism_of
from dp_pipelines.metrics.base import UNITS
from dp_pipelines.metrics.sums import Sum
from dp_pipelines.planning import stage
from dp_pipelines.planning.candidate import Calibrated, Candidate, Families, Queries, TotalBudget
from dp_pipelines.planning.expected_error import ChosenPlan, ExpectedErrors
from dp_pipelines.planning.noise_levels import fixed_noise
from dp_pipelines.planning.noise_levels.integer_noise import settle
from dp_pipelines.planning.rounds import Split
from dp_pipelines.planning.stage_kinds import kind_of
from dp_pipelines.query.query import PrivatePartitions, Query

GAIN = 2e-4
"""By how much a statistic's other law must lower the score, the mean logarithm of expected errors, to be taken."""


def search(queries: Queries, shares: Mapping[str, float], budget: TotalBudget, split: Split) -> Calibrated:
    """Return choices for all stages (for round 1), with the smallest expected error among the candidates.

    Raises:
        BudgetError: where the budget cannot be met.
    """
    fixed_noise.refuse_above(queries, budget)
    total = math.fsum(shares.values())
    options = {n: list(candidates(q, shares[n] / total, budget)) for n, q in queries.items()}
    # No stage alone gains by another law than all others have, so that the search begins with each law for all of them.
    places = (0,) if len(queries) == 1 else (0, -1)
    starts = [{name: of_stage[place] for name, of_stage in options.items()} for place in places]
    errors = ExpectedErrors(queries, options, budget)
    improved = [_improved(errors.of(start), options) for start in starts]
    if all(improved[0].chosen[name] is improved[-1].chosen[name] for name in options):
        improved = improved[:1]
    best = min((_with_single_flips(queries, plan, budget) for plan in improved), key=lambda plan: plan.score)
    return settle(queries, best.chosen, budget, split, best.level())


def _improved(plan: ChosenPlan, options: Mapping[str, list[Candidate]]) -> ChosenPlan:
    """Return a plan in which each stage in turn takes the candidate that is best with those of the others."""
    for _ in range(1 if len(options) == 1 else 2):
        for name, of_stage in options.items():
            plan.take(name, min(of_stage, key=functools.partial(plan.score_with, name)))
    return plan


def candidates(query: Query, share: float, budget: TotalBudget) -> Iterator[Candidate]:
    """Return the ways to run a stage in which all released statistics have one law."""
    kind = kind_of(query)
    families = tuple(dict.fromkeys(m.family for _, m in query.sorted_metrics)) if kind.centres else ()
    centred = tuple(family for family in families if family and centring_pays(query, family))
    for law, strategy in kind.ways(budget.delta):
        yield _candidate(query, share, law, strategy, centred)


def _candidate(query: Query, share: float, law: str, strategy: str | None, centred: Families) -> Candidate:
    released = stage.released_statistics(query, centred)
    kind, laws = kind_of(query), {key: mechanism_of(s).law or law for key, s in released.items()}
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
    weights |= kind.coin_weights
    stddevs = stage.fixed_noise(query)
    weights = {item: weight for item, weight in weights.items() if item not in stddevs}
    whole = math.fsum(weights.values())
    return Candidate(
        strategy=strategy,
        laws=FrozenMapping(laws),
        weights=FrozenMapping({item: share * weight / whole for item, weight in weights.items()}),
        of_weight=share / whole if whole else share,
        shapes=FrozenMapping(shapes),
        centred=centred,
        fixed=FrozenMapping(
            {item: fixed_noise.in_units(released[item], query, stddev) for item, stddev in stddevs.items()}
        ),
        medians=query.takes_delta,
        sums=FrozenMapping(kind.sums(released)),
    )


def centring_pays(query: Query, family: tuple[str, float, float]) -> bool:
    """Return True if the sums of a family of metrics are better counted from the middle of their range.

    With equal noise multipliers for a sum and its count, and values spread evenly over the range, the variance of a mean is
    the square of the sum's sensitivity plus that of the typical distance from the centre; the number of rows is a common
    factor. A plain sum needs no count when it is raw, and one with a noise of its own has a single statistic.
    """
    _, low, high = family
    if any(metric.family == family and metric.stddev is not None for metric in query.metrics.values()):
        return False
    largest = max(abs(low), abs(high))
    if largest == 0 or low == high:
        return False
    # In units of the larger bound, so that no square overflows.
    low, high, largest = low / largest, high / largest, 1.0
    middle, half = low / 2 + high / 2, (high - low) / 2
    gain = 0.0
    for _, metric in query.sorted_metrics:
        if metric.family == family:
            if isinstance(metric, Sum):
                gain += metric.weight * math.log(largest**2 / (half**2 + middle**2))
            else:
                gain += metric.weight * math.log((largest**2 + half**2 / 3 + middle**2) / (half**2 + half**2 / 3))
    alone = all(isinstance(m, Sum) for m in query.metrics.values() if m.family == family)
    return gain > 0 and not alone


def _with_single_flips(queries: Queries, plan: ChosenPlan, budget: TotalBudget) -> ChosenPlan:
    """Let single statistics take the other law where that lowers the expected error."""
    if budget.delta == 0:
        return plan
    best = plan.score
    for name, query in queries.items():
        if kind_of(query).one_law:
            continue
        before = plan.chosen[name]
        released = stage.released_statistics(query, before.centred)
        settled = {key for key, statistic in released.items() if mechanism_of(statistic).law is not None}
        for item, law in before.laws.items():
            selects = item == "selection" or (item == UNITS.name and before.strategy in ("laplace", "gaussian"))
            if selects or item in settled:
                continue
            chosen = plan.chosen[name]
            laws = FrozenMapping({**chosen.laws, item: "laplace" if law == "gaussian" else "gaussian"})
            attempt = dataclasses.replace(chosen, laws=laws)
            score = plan.score_with(name, attempt)
            if score < best - GAIN:
                plan.take(name, attempt)
                best = score
    return plan
