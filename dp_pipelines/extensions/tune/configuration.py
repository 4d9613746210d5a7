"""The public numbers of one configuration: the noise and thresholds of a release with these bounds, clips and budget.

In: a query and its stage of a plan, or the stage of a sibling that differs only in clips and rows per partition. Out: a
frozen `Configuration`. Holds: it has nothing from the data; every standard deviation comes from the plan's own records.
A sibling's noise is reused in units of sensitivity: calibration works in such units (planning.choose), so the noise in
them does not depend on clips and rows per partition, up to the rounding of its lattice, some parts in 10^3. Not
covered: metrics other than those of `KINDS`; they get their share of the budget, but nothing is predicted for them.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from dp_pipelines.extensions.tune.variables import ROWS, UNITS, ClampedSum, ClippedSum, KeptValues, Variable
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import ROWS as ROWS_STATISTIC
from dp_pipelines.metrics.base import Basis, Metric
from dp_pipelines.planning import choose, stage
from dp_pipelines.planning.selection_chances import Selects, selects_of
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import Query


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """What is published of one metric: a sum with noise, or a mean of two.

    Args:
        name: the name of the metric.
        total: the variable that is summed; with a centre, each of `count` counts it once more.
        count: what divides the total, or multiplies its centre.
        raw: the unclipped variable, for the truth.
        total_stddev, count_stddev: of their noise.
        divides: whether it is a mean, the total over the count; otherwise it is the total.
        low, high: the range to which a mean is clipped.
    """

    name: str
    total: Variable
    raw: Variable
    total_stddev: float
    count: Variable | None = None
    count_stddev: float = 0.0
    divides: bool = False
    low: float = -math.inf
    high: float = math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
    """One configuration.

    Args:
        number: its place in the grid.
        max_partitions, max_rows: the contribution bounds.
        estimates: of the metrics that are predicted.
        selects: None for public partitions.
    """

    number: int
    max_partitions: int
    max_rows: int
    estimates: tuple[Estimate, ...]
    selects: Selects | None


def supported(metric: Metric) -> str | None:
    """The kind of a metric if its errors are predicted, else None."""
    return metric.tuned_as if registry.is_known(metric) else None


def columns(query: Query) -> tuple[str, ...]:
    """The number columns that predictions need; other metrics may read columns of other types."""
    return tuple(dict.fromkeys(name for m in query.metrics.values() if supported(m) for name in m.reads))


def scalable(query: Query) -> bool:
    """Whether the noise of a query in units of sensitivity does not depend on its clips and rows per partition."""
    return all(supported(metric) and metric.stddev is None for metric in query.metrics.values())


def without_scale(query: Query) -> dict[str, Any]:
    """What calibration sees of the bounds and metrics of a scalable query: which metrics share sums and centre them."""
    families = list(dict.fromkeys(m.family for m in query.metrics.values() if m.family is not None))
    places = {family: [i, choose.centring_pays(query, family)] for i, family in enumerate(families)}
    return {
        "bounds": query.bounds.max_partitions,
        "metrics": [
            [supported(m), m.weight, m.clips_partition_sums and name, m.family and places[m.family],
             getattr(m, "nullable", None)]
            for name, m in query.metrics.items()
        ],
    }  # fmt: skip


def configuration(number: int, query: Query, planned: StagePlan) -> Configuration:
    """The numbers of a configuration.

    Args:
        number: its place in the grid.
        query: of the configuration.
        planned: its stage of a plan, or that of a sibling with equal `without_scale` and equal everything else.
    """
    noise = _noise(query, planned)
    bases = {name: _basis(metric, query, planned) for name, metric in query.metrics.items()}
    kinds = {name: supported(metric) for name, metric in query.metrics.items()}
    estimates = [KINDS[kind](name, query.metrics[name], bases[name], noise) for name, kind in kinds.items() if kind]
    bounds = query.bounds
    return Configuration(
        number=number,
        max_partitions=bounds.max_partitions,
        max_rows=bounds.max_rows_per_partition,
        estimates=tuple(estimates),
        selects=selects_of(planned),
    )


def _centred(query: Query, planned: StagePlan) -> tuple[tuple[str, float, float], ...]:
    """The families of a query whose sums are centred, matched by position with those of the planned sibling."""
    own, other = (
        list(dict.fromkeys(m.family for m in q.metrics.values() if m.family is not None))
        for q in (query, planned.query)
    )
    return tuple(mine for mine, theirs in zip(own, other, strict=True) if theirs in planned.choices.centred)


def _basis(metric: Metric, query: Query, planned: StagePlan) -> Basis:
    return stage.basis_of(metric, query, _centred(query, planned))


def _noise(query: Query, planned: StagePlan) -> dict[str, float]:
    """The standard deviation of the noise of each statistic of a query, by its name."""
    theirs = stage.released_statistics(planned.query, planned.choices.centred)
    noises = {s.name: noise.stddev for s, noise in zip(planned.statistics, planned.noises, strict=True) if noise}
    ours = stage.released_statistics(query, _centred(query, planned))
    return {
        own: noises[other] * _sensitivity(ours[own], query) / _sensitivity(theirs[other], planned.query)
        for own, other in zip(ours, theirs, strict=True)
    }


def _sensitivity(statistic: Statistic, query: Query) -> float:
    return stage.shape_of(statistic, query).unit * statistic.fine_step


def _of_rows(name: str, metric: Metric, basis: Basis, noise: Mapping[str, float]) -> Estimate:
    (rows,) = metric.statistics(basis)
    return Estimate(name=name, total=ROWS, raw=ROWS, total_stddev=noise[rows.name])


def _of_units(name: str, metric: Metric, basis: Basis, noise: Mapping[str, float]) -> Estimate:
    (units,) = metric.statistics(basis)
    return Estimate(name=name, total=UNITS, raw=UNITS, total_stddev=noise[units.name])


def _of_sum(name: str, metric: Metric, basis: Basis, noise: Mapping[str, float]) -> Estimate:
    """The estimate for a sum of values, or of a unit's clipped sums; if the sum is centred, with its count."""
    summed, *counted = metric.statistics(basis)
    assert summed.lattice is not None
    column, low, high = summed.column or "", summed.lattice.low, summed.lattice.high
    total: Variable = ClampedSum(column, low=low, high=high, centre=summed.lattice.offset)
    if metric.clips_partition_sums:
        total = ClippedSum(column, low=low, high=high)
    found = Estimate(name=name, total=total, raw=ClampedSum(column), total_stddev=noise[summed.name])
    for of in counted:
        count = ROWS if of == ROWS_STATISTIC else KeptValues(column)
        found = dataclasses.replace(found, count=count, count_stddev=noise[of.name])
    return found


def _of_mean(name: str, metric: Metric, basis: Basis, noise: Mapping[str, float]) -> Estimate:
    """The estimate for a mean: the sum over its count, clipped to the range of a value."""
    lattice = metric.statistics(basis)[0].lattice
    assert lattice is not None
    return dataclasses.replace(_of_sum(name, metric, basis, noise), divides=True, low=lattice.low, high=lattice.high)


KINDS: Mapping[str, Callable[[str, Metric, Basis, Mapping[str, float]], Estimate]] = {
    "count": _of_rows,
    "privacy_id_count": _of_units,
    "sum": _of_sum,
    "mean": _of_mean,
}
"""The prediction for a metric, by the name that it gives (`Metric.tuned_as`)."""
