"""The exact chance that noise alone passes the conditions of a large list, from public numbers.

In: a stage over a `LargeList`. Out: for each compared statistic the noisy steps that pass; the chance that a partition without
rows passes. Holds: the steps are those whose published value passes, one by one, since a published value rises with its steps;
the chance is that of the sampler's own draws, so `plan`, the draw and the report use the same number. Not covered: drawing.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_pipelines.mechanisms.added_noise import AddedNoise, published_values
from dp_pipelines.mechanisms.by_statistic import mechanism_of
from dp_pipelines.metrics.base import Metric, Noisy
from dp_pipelines.noise.conditional_draws import SampledLaw
from dp_pipelines.noise.laws import Law
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.large_list import Condition, LargeList, compared_metric, own_noise

if TYPE_CHECKING:
    from dp_pipelines.planning.plan import Expectation

FARTHEST = 2**53
"""Steps that no noisy total exceeds: totals end at 2**52 (`Totals.coarse`), and floats know all whole numbers up to here."""

ENTRY = "listed"
"""The key for a large list in the manifest's entry of a stage, and in `plan --json`."""

TOO_MANY = 0.01
"""Warn of more false partitions than this share of those that are expected to have rows."""

Steps = tuple[int, int]
"""The first and the last number of noisy steps that pass."""


def passing_steps(stage: StagePlan) -> dict[int, Steps]:
    """Return the noisy steps that pass, by the place of each compared statistic; none if the first is above the last.

    Args:
        stage: over a `LargeList`.

    Raises:
        RequestError: a condition compares what has no noise of its own.
    """
    partitions = stage.query.partitions
    assert isinstance(partitions, LargeList)
    steps: dict[int, Steps] = {}
    for condition in partitions.conditions:
        place = _statistic(stage, condition)
        low, high = steps.get(place, (-FARTHEST, FARTHEST))
        first, last = _steps(stage, condition, place)
        steps[place] = max(low, first), min(high, last)
    return steps


def refuse_derived(stage: StagePlan) -> None:
    """Refuse conditions of a large list, if the stage has one, that compare what has no noise of its own. Errors as above."""
    if isinstance(stage.query.partitions, LargeList):
        passing_steps(stage)


def compared_noises(stage: StagePlan) -> dict[int, tuple[Law, Steps]]:
    """Return the law and the passing steps of each statistic that is compared, by its place. Errors as for `passing_steps`."""
    noises = {}
    for place, steps in passing_steps(stage).items():
        noise = stage.noises[place]
        assert noise is not None
        noises[place] = noise.law, steps
    return noises


def chance(stage: StagePlan) -> Fraction:
    """Return the chance that a partition without rows passes: noises are independent, so it is a product."""
    return math.prod((_chance(law, *steps) for law, steps in compared_noises(stage).values()), start=Fraction(1))


def described(stage: StagePlan, expect: "Expectation | None" = None) -> dict[str, Any] | None:
    """Describe a large list before a row is read; None for a stage without one.

    Args:
        stage: the stage.
        expect: a guess about the data; it decides a warning alone.

    Returns:
        `keys`, their number; `having`; `metrics` that are compared; `by_noise`, how many partitions at most pass by noise alone
        on average, as if none had rows; `words`; and `warning`, if these are too many.
    """
    partitions = stage.query.partitions
    if not isinstance(partitions, LargeList):
        return None
    false = float(len(partitions.keys) * chance(stage))
    text, many = " AND ".join(condition.text for condition in partitions.conditions), f"{len(partitions.keys):,}"
    entry: dict[str, Any] = {
        "keys": len(partitions.keys),
        "having": text,
        "metrics": list(dict.fromkeys(condition.metric for condition in partitions.conditions)),
        "by_noise": false,
        "words": f"of {many} listed partitions at most {shown_number(false)} pass {text} by noise alone, on average",
    }
    expected = expect.partitions if expect is not None else None
    if expected is not None and false > TOO_MANY * expected:
        entry["warning"] = (
            f"{entry['words']}: more than 1% of the {expected:,.0f} partitions that expect declares; "
            "raise the threshold, or shorten the list"
        )
    return entry


def shown_number(expected: float) -> str:
    """Format an expected number for readers.

    >>> shown_number(168736.2), shown_number(0.0421), shown_number(0.0), shown_number(12.34)
    ('168,737', '0.042', '0', '12.4')
    """
    if expected >= 100:
        return f"{math.ceil(expected):,}"
    return f"{math.ceil(expected * 10) / 10:g}" if expected >= 1 else f"{expected:.2g}"


def _metric(stage: StagePlan, condition: Condition) -> Metric:
    name = compared_metric(stage.query, condition)
    if name is None:
        raise own_noise(condition.metric, "this stage does not release")
    return stage.query.metrics[name]


def _statistic(stage: StagePlan, condition: Condition) -> int:
    metric = _metric(stage, condition)
    statistics = metric.statistics(stage.basis(metric))
    if len(statistics) != 1:
        raise own_noise(condition.metric, "adds up two noisy numbers in this plan")
    if type(mechanism_of(statistics[0])) is not AddedNoise or statistics[0].width is not None:
        raise own_noise(condition.metric, "is derived from other numbers")
    return stage.statistics.index(statistics[0])


def _steps(stage: StagePlan, condition: Condition, place: int) -> Steps:
    metric, noise = _metric(stage, condition), stage.noises[place]
    assert noise is not None

    def value(steps: int) -> float:
        noisy = Noisy(values=published_values(np.array([steps], np.int64), noise), stddev=noise.stddev)
        values, _ = metric.finish({stage.statistics[place]: noisy}, stage.basis(metric))
        return float(values[0])

    above = dataclasses.replace(condition, high=math.inf)
    below = dataclasses.replace(condition, low=-math.inf)
    first = _first(lambda steps: above.passes(value(steps)))
    last = _first(lambda steps: not below.passes(value(steps))) - 1
    return first, last


def _first(holds: Callable[[int], bool]) -> int:
    """Return the first steps from which on something holds; one beyond the last if it never does."""
    low, high = -FARTHEST, FARTHEST + 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


@functools.lru_cache(maxsize=64)
def _chance(law: Law, first: int, last: int) -> Fraction:
    return SampledLaw.of(law).chance(first, last) if first <= last else Fraction(0)
