"""The last step of planning: the smallest noise, in integers, with which a chosen plan meets its budget.

In: a candidate for each stage, the budget, the split over runs. Out: choices in integers. Holds: what is returned was accounted
for as it will run, all records of all runs together, and meets the budget.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import BudgetError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.planning import rounds, stage
from dp_pipelines.planning.candidate import (
    HINT,
    LARGEST_SCALE,
    SCALE_GRID,
    TARGET_SCALE,
    Calibrated,
    Candidate,
    Chosen,
    Queries,
    TotalBudget,
    ideal,
    selection_delta,
)
from dp_pipelines.planning.noise_levels import noise_search
from dp_pipelines.planning.noise_levels.training_noise import FINEST
from dp_pipelines.planning.rounds import Split
from dp_pipelines.planning.stage_choices import Choice, StageChoices

Real = TypeVar("Real", int, float)

FINENESS = 64
"""Rounding the vectors of a unit to the release lattice is to add at most about a part in so many to the noise."""

FINEST_STEPS = 52
"""Release steps that a privacy unit can move one number by, at least, where a noise table can be so large: whole steps then meet
the weights of metrics to within half a part in so many."""

FITTED = 256
"""Scales that are compared where no table is as large as `FINEST_STEPS` wants."""

THIN = 0.005
"""If a plan needs too large a table below this sampling rate, the error message advises a higher rate."""

FINE = 8192
"""The last calibration moves both scales together in steps of 1/8192."""


def searched(find: Callable[[], Real]) -> Real:
    """Return the result of a search for noise, or raise its refusal with a hint."""
    try:
        return find()
    except BudgetError as error:
        raise BudgetError(field="budget", message=error.message, hint=HINT) from None


def records_of(queries: Queries, calibrated: Calibrated) -> tuple[MechanismRecord, ...]:
    """Return all records of one run."""
    return tuple(r for n, query in queries.items() for r in stage.records(n, query, calibrated.choices[n], calibrated))


def all_records(
    queries: Queries, calibrated: Calibrated, split: Split, runs: int
) -> tuple[tuple[tuple[MechanismRecord, ...], int], ...]:
    """Return the records of all runs: those of one, and how often they run, for each kind of round."""
    if split == "constant" or runs == 1:
        return ((records_of(queries, calibrated), runs),)
    parts = [rounds.ratio(split, runs, number) for number in range(1, runs + 1)]
    return tuple((records_of(queries, rounds.at(calibrated, part)), 1) for part in parts)


def settle(queries: Queries, chosen: Chosen, budget: TotalBudget, split: Split, start: float) -> Calibrated:
    """Return the choices of the round with the smallest part, with the smallest noise that meets the budget over all rounds.

    Args:
        queries: by stage.
        chosen: how each stage is run.
        budget: of all runs.
        split: over the runs.
        start: about the noise level that meets the budget with a constant split.

    Raises:
        BudgetError: the budget cannot be met.
    """
    if not any(candidate.weights for candidate in chosen.values()):
        calibrated = _choices(queries, chosen, budget, 1.0)(FINE)
        if not _cost(queries, calibrated, budget, split) <= budget.epsilon:
            raise BudgetError(field="budget", message="is too small for the noise that metrics ask for", hint=HINT)
        return calibrated
    level = _exact_level(queries, chosen, budget, start)
    if split != "constant" and budget.runs > 1:
        # Losses add up between linearly and by their squares: two steps of a proportion come near enough.
        parts = [float(rounds.ratio(split, budget.runs, number)) for number in range(1, budget.runs + 1)]
        level *= math.sqrt(math.fsum(part * part for part in parts) / len(parts))
        hint = f"{HINT}; with this split one of the runs gets the smallest part: write split: constant"
        for _ in range(2):
            cost = _cost(queries, _choices(queries, chosen, budget, level, hint)(FINE), budget, split)
            level *= min(max(cost / budget.epsilon, 0.25), 4.0)
    choices = _choices(queries, chosen, budget, level)

    def cost_at(fine: int) -> float:
        return _cost(queries, choices(fine), budget, split)

    fine = searched(lambda: noise_search.least_integer(cost_at, budget.epsilon, start=FINE, high=2 * FINE))
    return choices(fine)


def _cost(queries: Queries, calibrated: Calibrated, budget: TotalBudget, split: Split) -> float:
    groups = all_records(queries, calibrated, split, budget.runs)
    if len(groups) == 1:
        return budget.cost(groups[0][0])
    return budget.cost([record for records, _ in groups for record in records], runs=1)


def _exact_level(queries: Queries, chosen: Chosen, budget: TotalBudget, start: float) -> float:
    """Return the noise level that meets the budget, on records so fine that steps do not matter."""

    def cost(level: float) -> float:
        fine = [r for name in chosen for r in ideal(name, queries[name], chosen[name], level, budget, len(queries))]
        return budget.cost(fine, accuracy=1e-3)

    return searched(lambda: noise_search.least_level(cost, budget.epsilon, start=start, tolerance=2e-3, factor=1.05))


def _units(candidate: Candidate, item: str) -> int:
    """Return how many units of change are rounded together: all that one unit may put into one number, or each alone."""
    joined = candidate.laws[item] == "gaussian" and item not in candidate.fixed and candidate.shapes[item].joins
    return candidate.shapes[item].per_coordinate if joined else 1


def _fitting(law: str, multipliers: Sequence[float]) -> float:
    """Return the large scale of a law in whose whole steps these multipliers are closest to their values.

    Args:
        law: of the noise.
        multipliers: scale per unit of change.
    """
    largest = float(LARGEST_SCALE[law])
    least = max([largest / 2, *multipliers])
    if not multipliers or least >= largest:
        return max(least, largest)
    scales = [largest - (largest - least) * place / FITTED for place in range(FITTED + 1)]

    def misfit(scale: float) -> float:
        met = [round(scale / m) * m for m in multipliers]
        return max(met) / min(met)

    return min(scales, key=misfit)


def _choices(
    queries: Queries, chosen: Chosen, budget: TotalBudget, level: float, hint: str = HINT
) -> Callable[[int], Calibrated]:
    """Return choices in integers at a noise level, to be moved in steps of 1 / FINE.

    Raises:
        BudgetError: the noise would drown everything.
    """
    multipliers = {
        (name, item): candidate.multiplier(item, level, budget)
        for name, candidate in chosen.items()
        for item in candidate.laws
    }
    units = {key: _units(chosen[key[0]], key[1]) for key in multipliers}
    scales: dict[str, float] = {}
    for law in ("gaussian", "laplace"):
        of_law = [
            m / units[name, item]
            for (name, item), m in multipliers.items()
            if chosen[name].laws[item] == law and item not in chosen[name].fixed
        ]
        # Where rounding a vector to the release lattice costs noise, the lattice is made finer.
        finer = [
            multipliers[name, item] * FINENESS * candidate.shapes[item].rounding(law)
            for name, candidate in chosen.items()
            for item, of_item in candidate.laws.items()
            if of_item == law
        ]
        finer += [m * FINEST for (n, i), m in multipliers.items() if i in chosen[n].sums and law == "gaussian"]
        finer += [m * FINEST_STEPS / units[key] for key, m in multipliers.items() if chosen[key[0]].laws[key[1]] == law]
        largest = max([TARGET_SCALE, *of_law, *finer])
        scales[law] = largest if largest <= LARGEST_SCALE[law] else _fitting(law, of_law)
        if scales[law] > LARGEST_SCALE[law]:
            thin = [s for c in chosen.values() for s in c.sums.values() if s.rate is not None and s.rate < THIN]
            if thin and law == "gaussian":
                raise BudgetError(
                    field="budget",
                    message=f"leaves training with a sampling_rate of {thin[0].rate:g}, in whose sums no noise table is fine "
                    "enough for the few units of a step",
                    hint="raise sampling_rate, e.g. to 0.01, or leave it out; fewer steps cost less too",
                )
            raise BudgetError(
                field="budget",
                message="leaves a statistic with noise thousands of times the effect of one unit",
                hint=hint,
            )
    steps = {}
    for (name, item), multiplier in multipliers.items():
        law = chosen[name].laws[item]
        rounding = chosen[name].shapes[item].rounding(law)
        allowed = scales[law] / multiplier - rounding
        if rounding > 0 and allowed < max(1.0, rounding):
            # No noise table is fine enough: rounding to the release lattice would more than double the noise.
            message = (
                "leaves long vectors, or a wide list of candidates, with noise hundreds of times the effect of one unit"
            )
            raise BudgetError(field="budget", message=message, hint=f"{hint}; or use fewer coordinates or candidates")
        whole = units[name, item]
        steps[name, item] = max(1, round(allowed * whole))

    def choices(fine: int) -> Calibrated:
        of_stages = {}
        for name, candidate in chosen.items():
            epsilon = 0.0
            if candidate.flips:
                epsilon = candidate.coin_epsilon(level, queries[name]) * FINE / fine
            of_stages[name] = StageChoices(
                strategy=candidate.strategy,
                noises=FrozenMapping(
                    {
                        item: Choice(law=law, steps=steps[name, item], units=units[name, item])
                        for item, law in candidate.laws.items()
                    }
                ),
                selection_delta=selection_delta(budget, len(queries)) if candidate.takes_delta else 0.0,
                selection_epsilon=epsilon,
                centred=candidate.centred,
            )
        gaussian, laplace = (
            Fraction(math.ceil(scales[law] * SCALE_GRID * fine / FINE), SCALE_GRID) for law in ("gaussian", "laplace")
        )
        return Calibrated(choices=FrozenMapping(of_stages), gaussian_scale=gaussian, laplace_scale=laplace)

    return choices
