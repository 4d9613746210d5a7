"""The usefulness of a plan in words, before a row is read: from which size of a group on each number can be used.

In: a calibrated stage; where declared, a guess about a typical partition; all records of a plan. Out: JSON values. Holds: public
numbers alone; every statement is computed from the calibrated noise by the metric's own method (`metrics.good_from`). Not
covered: what bounds cut off; which share of a budget is best (`planning.choose`).
"""

import collections
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp_pipelines.accounting.comparison import rough_epsilon
from dp_pipelines.accounting.estimate import Terms, rough
from dp_pipelines.accounting.level_costs import NOTHING, LevelCosts, LevelPart
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of
from dp_pipelines.auto_bounds import joint_bounds, partition_bound
from dp_pipelines.errors import BudgetError
from dp_pipelines.mechanisms.by_statistic import mechanism_of
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.good_from import GoodFrom, Level, of_weighted_mean, shown
from dp_pipelines.metrics.sums import weighted_pairs
from dp_pipelines.planning import reserve
from dp_pipelines.planning.noise_levels import noise_search
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import PublicPartitions

if TYPE_CHECKING:
    from dp_pipelines.planning.plan import Expectation

MILLION = 10**6
"""A group that must have more rows than this is none that most people have."""

MOST_NAMED = 4
"""Metrics that a warning names."""

ADVICE = "ask for fewer metrics or stages, wider groups or windows, or more budget"


def add_to(described: dict[str, Any], stage: StagePlan, expect: "Expectation | None") -> None:
    """Put into a stage as `plan --json` shows it what it is good for, and a warning where it will be mostly noise.

    Each metric gets `good_from`: statements with `words`, `promise`, `least`, `of`, and `noise_below`, the size below which the
    number tells next to nothing. Where there are none because a run chooses bounds, `good_from_left_out` says so. The two sums
    of a weighted mean have none; the mean has one, under `weighted_means`.

    Args:
        described: the stage.
        stage: calibrated.
        expect: about a typical partition.
    """
    lines = statements(stage)
    if pairs := weighted_pairs(stage.query.metrics):
        described["weighted_means"] = {
            pair.name: {
                "of": [pair.weighted, pair.weights],
                "noise": "+".join(
                    sorted({described["metrics"][one]["noise"] for one in (pair.weighted, pair.weights)})
                ),
                "good_from": [_to_json(one) for one in lines.get(pair.name, ())],
            }
            for pair in pairs
        }
    for name, metric in stage.query.metrics.items():
        entry = described["metrics"][name]
        entry["good_from"] = [_to_json(one) for one in lines[name]]
        if not lines[name] and (reason := _left_out(metric, stage)):
            entry["good_from_left_out"] = reason
    if warning := _warning(lines, stage, expect):
        described["mostly_noise"] = warning


def statements(stage: StagePlan) -> dict[str, tuple[GoodFrom, ...]]:
    """Return the statements of each metric of a stage, by name.

    If the run chooses a bound, the noise that grows with it is unknown, so metrics with such noise have no statements.
    """
    levels = {}
    for place, (statistic, noise) in enumerate(zip(stage.statistics, stage.noises, strict=True)):
        if noise is not None and (level := mechanism_of(statistic).level(stage.calibration(place))) is not None:
            levels[statistic] = level
    lines = {
        name: () if _open_bounds(metric, stage) else _of(metric, stage, levels)
        for name, metric in stage.query.metrics.items()
    }
    for pair in weighted_pairs(stage.query.metrics):
        lines[pair.weighted] = lines[pair.weights] = ()
        parts = [_together(stage.query.metrics[name], stage, levels) for name in (pair.weighted, pair.weights)]
        if parts[0] is not None and parts[1] is not None:
            lines[pair.name] = (of_weighted_mean(pair, parts[0], parts[1]),)
    return lines


def _together(metric: Metric, stage: StagePlan, levels: Mapping[Any, Level]) -> Level | None:
    """Return the noise of a sum, with that of the count from whose middle it is counted; None where it is not known."""
    statistics = metric.statistics(stage.basis(metric))
    if any(statistic not in levels for statistic in statistics):
        return None
    lattice = statistics[0].lattice
    assert lattice is not None
    factors = (1.0, lattice.offset)
    stddev = math.hypot(
        *(factor * levels[one].stddev for factor, one in zip(factors, statistics, strict=False))
    )  # fmt: skip
    laws = {levels[one].law for one in statistics}
    return Level(stddev=stddev, law="gaussian" if laws == {"gaussian"} else "laplace")


def without_each(
    records: Iterable[MechanismRecord],
    stage_of: Mapping[str, str],
    fixed: Iterable[tuple[str, str]],
    delta: float,
    runs: int,
) -> dict[str, float]:
    """Estimate, by stage, which part of their noise the others would have in a plan without it, under the same budget.

    The noise of all records that remain is made smaller together until they cost what all records do, by the rough account
    (`accounting.estimate`), which takes milliseconds. A stage is left out where nothing is left that could have less noise.

    Args:
        records: of one run.
        stage_of: for each part of a plan the stage that was asked for.
        fixed: stage and name of records whose noise a metric has fixed.
        delta: of all runs.
        runs: how many.
    """
    mechanisms, constant = list(records), set(fixed)
    limit = rough_epsilon(mechanisms, delta, runs=runs)
    if not limit:  # delta alone pays for all
        return {}
    terms = [kind_of(record).terms(record) for record in mechanisms]
    scaled = [(record.stage, record.name) not in constant for record in mechanisms]
    noisy = [follows and _is_noisy(part) for part, follows in zip(terms, scaled, strict=True)]
    places: dict[str, list[int]] = collections.defaultdict(list)
    for place, record in enumerate(mechanisms):
        places[stage_of[record.stage]].append(place)
    groups = collections.Counter(record.group for record in mechanisms if record.group is not None)
    all_noisy, costs, factors = sum(noisy), dict[str | None, _Costs](), dict[str, float]()
    for name in dict.fromkeys(stage_of.values()):
        left_out = places[name]
        if all_noisy == sum(noisy[place] for place in left_out):
            continue
        removed = (mechanisms[place].group for place in left_out)
        remaining = groups - collections.Counter(group for group in removed if group is not None)
        of_groups = []
        for group in remaining or (None,):
            if group not in costs:
                members = [n for n, record in enumerate(mechanisms) if record.group in (None, group)]
                costs[group] = _Costs(members, terms, scaled, delta, runs, limit)
            of_groups.append(costs[group].without(left_out))
        try:
            cost = functools.partial(_largest, of_groups)
            factors[name] = noise_search.least_level(cost, limit, start=1.0, tolerance=1e-3)
        except BudgetError:  # what is left costs next to nothing
            continue
    return factors


class _Costs:
    """Approximate costs, at noise levels, of the mechanisms that one unit meets, without those of some stage.

    Args:
        members: places of these mechanisms among all.
        terms, scaled: of all mechanisms: what they do, and whether their noise follows the level.
        delta: of all runs.
        runs: how many.
        limit: the epsilon that costs are compared with.
    """

    def __init__(
        self,
        members: Sequence[int],
        terms: Sequence[Terms],
        scaled: Sequence[bool],
        delta: float,
        runs: int,
        limit: float,
    ) -> None:
        self._members, self._terms, self._scaled, self._delta, self._runs = members, terms, scaled, delta, runs
        self._sampled = {n for n in members if terms[n].sampled}
        summed = [n for n in members if n not in self._sampled]
        self._places = {n: place for place, n in enumerate(summed)}
        parts = [LevelPart.of_terms(terms[n], runs, scaled=scaled[n]) for n in summed]
        equal = {part: part for part in parts}
        width = max((len(part.columns) for part in parts), default=0)
        self._costs = LevelCosts([equal[part] for part in parts], delta, against=limit, width=width)

    def without(self, left_out: Sequence[int]) -> Callable[[float], float]:
        """Return a function from a noise level to an epsilon on the right side of the limit.

        Args:
            left_out: places of mechanisms among all.
        """
        if self._sampled - set(left_out):
            terms, scaled, removed = self._terms, self._scaled, set(left_out)
            left = [n for n in self._members if n not in removed]
            return lambda level: rough(
                [terms[n].at(level if scaled[n] else 1.0) for n in left], self._delta, runs=self._runs
            )
        return self._costs.cost({self._places[n]: NOTHING for n in left_out if n in self._places})


def _largest(costs: Sequence[Callable[[float], float]], level: float) -> float:
    """Return the cost of the most expensive group at a noise level."""
    return max(cost(level) for cost in costs)


def _is_noisy(terms: Terms) -> bool:
    return terms != Terms(log_not_failed=terms.log_not_failed)


def _of(metric: Metric, stage: StagePlan, levels: Mapping[Any, Level]) -> tuple[GoodFrom, ...]:
    basis = stage.basis(metric)
    if any(statistic not in levels for statistic in metric.statistics(basis)):
        return ()
    return metric.good_from(levels, basis)


def _to_json(one: GoodFrom) -> dict[str, Any]:
    return {
        "words": one.words,
        "promise": one.promise,
        "least": one.least,
        "of": one.of,
        "noise_below": one.noise_below,
    }


def _open_bounds(metric: Metric, stage: StagePlan) -> list[str]:
    """Name the bounds that the run chooses and with which the noise of a metric grows."""
    bounds = stage.query.bounds
    if not bounds.auto:
        return []
    growths = [
        reserve.growth(
            statistic,
            stage.choices.noises[statistic.name].law,
            partitions=bounds.auto_partitions,
            rows=bounds.auto_rows,
        )
        for statistic in metric.statistics(stage.basis(metric))
    ]
    grows = {
        partition_bound.NAME: any(growth.power for growth in growths),
        joint_bounds.NAME: any(growth.rows for growth in growths),
    }
    return [name for name, with_it in grows.items() if with_it]


def _left_out(metric: Metric, stage: StagePlan) -> str:
    if named := _open_bounds(metric, stage):
        return f"its noise follows from {' and '.join(named)}, which the run chooses"
    if metric.scale is not None:
        return "its noise differs by partition, in proportion to its bounds"
    return "its noise follows from the bounds that the run chooses" if metric.auto else ""


def _warning(
    said: Mapping[str, tuple[GoodFrom, ...]], stage: StagePlan, expect: "Expectation | None"
) -> dict[str, Any] | None:
    """Return a warning about metrics that are mostly noise: in a typical group, or in any usual one if nothing is declared."""
    guessed = {"rows": expect.rows_per_partition, "users": expect.users} if expect is not None else {}
    noisy, in_typical = {}, False
    for name, of_metric in said.items():
        for one in of_metric:
            typical = guessed.get(one.guessed_by) if one.guessed_by is not None else None
            if typical is not None and typical * one.each < one.noise_below:
                noisy[name], in_typical = f"{name} (below {_size(one)})", True
            elif typical is None and one.least > MILLION * one.each:
                noisy[name] = f"{name} ({one.words})"
    if not noisy:
        return None
    where = "in the typical group that expect declares" if in_typical else "in groups of fewer than a million rows"
    named = ", ".join(list(noisy.values())[:MOST_NAMED])
    named += f" and {len(noisy) - MOST_NAMED} more" if len(noisy) > MOST_NAMED else ""
    listed = ""
    partitions = stage.query.partitions
    if isinstance(partitions, PublicPartitions) and partitions.all_published and not stage.query.is_total:
        listed = f"; all {partitions.count:,} public partitions are published all the same"
    return {"metrics": list(noisy), "words": f"mostly noise {where}: {named}{listed}; {ADVICE}"}


def _size(one: GoodFrom) -> str:
    return f"{shown(one.noise_below)} {one.of}".strip()
