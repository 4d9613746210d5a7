"""The arms of a test compared: difference and ratio of each with the baseline, out of their noisy sums.

In: the released sums of all arms, the stage that released them, the query that compares. Out: a table with a row for each arm
and metric, and the same for a manifest. Holds: post-processing of released numbers and public parameters; what is not known is
null, and never an error. Not covered: the formulas (`release.arm_estimates`).
"""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels.columns import gather
from dp_pipelines.plan_stages.arm_moments import UNIT_COUNT, ArmMoments
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.compare import METRIC, Intervals, arm_of, number_columns
from dp_pipelines.query.query import Query
from dp_pipelines.release.arm_estimates import ArmSum, Contrast, Estimates, Sampling, differences, quotients, ratios

EXCESS = {"gaussian": 0.0, "laplace": 3.0}
"""The excess kurtosis of each law of noise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedArms:
    """The estimates of all arms by one metric."""

    name: str
    estimates: Estimates
    difference: Contrast
    ratio: Contrast


def table_of(released: pa.Table, stage: StagePlan, query: Query) -> pa.Table:
    """Return the comparisons of a stage, a row for each arm but the baseline and each metric.

    Args:
        released: the sums of all arms.
        stage: that released them.
        query: that compares.
    """
    assert query.compare is not None
    by, intervals = query.compare.by, query.compare.intervals
    arms = gather.one_array(released.column(by))
    baseline = place_of_baseline(arms, query)
    others = np.flatnonzero(np.arange(len(arms)) != baseline)
    comparisons = compared(released, stage, query, baseline)
    rows = np.repeat(others, len(comparisons))
    parts: dict[str, pa.Array] = {
        by: gather.take(arms, rows),
        METRIC: pa.array([one.name for one in comparisons] * len(others), pa.string()),
    }
    numbers = {name: np.full((len(others), len(comparisons)), np.nan) for name in number_columns(intervals)}
    for place, one in enumerate(comparisons):
        for name, values in _numbers(one, baseline, intervals).items():
            numbers[name][:, place] = values[others]
    finite = {name: values.ravel() for name, values in numbers.items()}
    return pa.table({**parts, **{n: pa.array(values, mask=~np.isfinite(values)) for n, values in finite.items()}})


def place_of_baseline(arms: pa.Array, query: Query) -> int:
    """Return the position of the baseline among the released arms.

    Args:
        arms: the keys of the arms.
        query: that compares.
    """
    assert query.compare is not None
    place = arm_of(query.compare.baseline, arms.to_pylist())
    assert place is not None, "a public list has the baseline"
    return place


def compared(released: pa.Table, stage: StagePlan, query: Query, baseline: int) -> list[ComparedArms]:
    """Return the estimates by each metric, in the order of the job. Arguments as for `table_of`."""
    moments = ArmMoments.of(query)
    sums = {name: _sum(released, stage, name) for name in moments.metrics}
    comparisons = []
    for one in moments.compared:
        above, below, products = moments.names(one)
        sampling = None
        if products is not None:
            first, mixed, second = (sums[name] for name in products)
            sampling = Sampling(above=first, mixed=mixed, below=second, units=sums[UNIT_COUNT])
        estimates = quotients(sums[above], sums[below], sampling)
        comparisons.append(
            ComparedArms(
                name=one.name,
                estimates=estimates,
                difference=differences(estimates, estimates.of([baseline])),
                ratio=ratios(estimates, estimates.of([baseline])),
            )
        )
    return comparisons


def _sum(released: pa.Table, stage: StagePlan, name: str) -> ArmSum:
    (statistic,) = stage.query.metrics[name].statistics(stage.basis(stage.query.metrics[name]))
    noise = stage.noises[stage.statistics.index(statistic)]
    assert noise is not None
    values = released.column(name).to_numpy()
    return ArmSum(values=values, stddev=noise.stddev, excess=EXCESS[stage.choices.noises[statistic.name].law])


def _numbers(one: ComparedArms, baseline: int, intervals: Intervals) -> dict[str, Any]:
    """Return the columns of numbers, for every arm."""
    values = one.estimates.values
    base = np.full(len(values), values[baseline])
    parts = [values, base]
    for contrast in (one.difference, one.ratio):
        parts += [contrast.values, contrast.low, contrast.high]
    return dict(zip(number_columns(intervals), parts, strict=True))


def to_json(table: pa.Table, query: Query) -> dict[str, Any]:
    """Return the manifest's entry about the comparisons of a stage: keys are texts.

    Args:
        table: as `table_of` gives it.
        query: that compares.
    """
    assert query.compare is not None
    names = number_columns(query.compare.intervals)
    short = ("value", "baseline", "difference", "low", "high", "ratio", "ratio_low", "ratio_high")
    return {
        "by": query.compare.by,
        "baseline": _text(query.compare.baseline),
        "intervals": query.compare.intervals,
        "rows": [
            {"arm": _text(row[query.compare.by]), "metric": row[METRIC]}
            | {key: row[name] for key, name in zip(short, names, strict=True)}
            for row in table.to_pylist()
        ],
    }


def _text(arm: object) -> str | None:
    return None if arm is None else str(arm)
