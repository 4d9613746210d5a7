"""Metrics that ask for an absolute noise level: what they cost before the rest gets a share.

In: queries whose metrics have a `stddev`. Out: that noise in units of change; a refusal where it costs more than the budget, with
what would fit. Holds: the noise that is asked for is in the total like any other; the rest is calibrated on what it leaves.
"""

import functools
import math
from collections.abc import Mapping
from fractions import Fraction

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.mechanisms.added_noise import noise_record
from dp_pipelines.planning import stage
from dp_pipelines.planning.candidate import LARGEST_SCALE, SCALE_GRID, Queries, TotalBudget
from dp_pipelines.planning.noise_levels import noise_search
from dp_pipelines.query.query import PrivatePartitions, Query

LAWS = ("gaussian", "laplace")

STEPS = 4096
"""Steps of one unit of change in the records that are compared here: so many that rounding does not matter."""


def in_units(statistic: Statistic, query: Query, stddev: float) -> float:
    """Convert a standard deviation of a statistic to units of its change (`Shape.unit`)."""
    return stddev / (stage.shape_of(statistic, query).unit * statistic.fine_step)


def check(name: str, query: Query) -> None:
    """Refuse noise levels that contradict each other, or that no plan could draw.

    Raises:
        RequestError: it names the metric.
    """
    seen: dict[str, float] = {}
    for metric_name, metric in query.metrics.items():
        if metric.stddev is None:
            continue
        statistic, field = stage.fixed_statistic(metric), f"stages.{name}.metrics.{metric_name}.stddev"
        if seen.setdefault(statistic.name, metric.stddev) != metric.stddev:
            raise RequestError(
                field=field,
                message="differs from the stddev of a metric that shares its noise",
                hint="write the same stddev for both, or drop one",
            )
        most = LARGEST_SCALE["gaussian"]
        if not in_units(statistic, query, metric.stddev) <= most:
            at_most = _rounded(most * metric.stddev / in_units(statistic, query, metric.stddev), up=False)
            raise RequestError(
                field=field,
                message="is thousands of times the effect of one unit",
                hint=f"write at most {at_most}, or set a weight instead",
            )


def refuse_above(queries: Queries, budget: TotalBudget) -> None:
    """Refuse noise levels that alone cost more than the budget.

    Raises:
        BudgetError: it says what would fit.
    """
    stddevs = {
        (name, item): value for name, query in queries.items() for item, value in stage.fixed_noise(query).items()
    }
    if not stddevs or _cost(queries, budget, 1.0) <= budget.epsilon:
        return
    alone = all(
        {s.name for s in stage.released_statistics(query, ()).values()} <= set(stage.fixed_noise(query))
        and not isinstance(query.partitions, PrivatePartitions)
        for query in queries.values()
    )
    target = budget.epsilon if alone else budget.epsilon / 2
    factor = noise_search.least_level(lambda level: _cost(queries, budget, level), target, start=1.0, tolerance=1e-3)
    metrics = [
        (f"stages.{name}.metrics.{key}.stddev", metric.stddev)
        for name, query in queries.items()
        for key, metric in query.metrics.items()
        if metric.stddev is not None
    ]
    fits = ", ".join(f"{field.removeprefix('stages.')}: {_rounded(stddev * factor)}" for field, stddev in metrics)
    raise BudgetError(
        field=metrics[0][0],
        message="asks for less noise than the budget can pay for"
        if len(metrics) == 1
        else f"and {len(metrics) - 1} more ask for less noise than the budget can pay for",
        hint=f"{fits} would fit" + ("" if alone else " and leave half of epsilon for the rest"),
    )


def _cost(queries: Queries, budget: TotalBudget, factor: float) -> float:
    """Return the least epsilon of the noise that is asked for, times a factor, by all ways to choose its laws that are tried."""
    items = [(name, item) for name, query in queries.items() for item in stage.fixed_noise(query)]
    if budget.delta == 0:
        return budget.cost(_records(queries, dict.fromkeys(items, "laplace"), factor), accuracy=1e-3)

    def alone(item: tuple[str, str], law: str) -> float:
        return budget.cost(_records(queries, {item: law}, factor), accuracy=1e-2)

    single = {item: min(LAWS, key=functools.partial(alone, item)) for item in items}
    ways = [single, *(dict.fromkeys(items, law) for law in LAWS)]
    return min(budget.cost(_records(queries, laws, factor), accuracy=1e-3) for laws in ways)


def _records(queries: Queries, laws: Mapping[tuple[str, str], str], factor: float) -> list[MechanismRecord]:
    records = []
    for (name, item), law in laws.items():
        query = queries[name]
        statistic = stage.released_statistics(query, ())[item]
        shape = stage.shape_of(statistic, query)
        multiplier = in_units(statistic, query, stage.fixed_noise(query)[item]) * factor
        multiplier /= math.sqrt(2) if law == "laplace" else 1.0
        scale = Fraction(math.ceil(multiplier * STEPS * SCALE_GRID), SCALE_GRID)
        records.append(noise_record(name, item, law, scale, shape.ideally(STEPS)))
    return records


def _rounded(value: float, *, up: bool = True) -> str:
    """Round to three digits, to the safe side.

    >>> _rounded(31.21), _rounded(31.29, up=False), _rounded(123456.0)
    ('31.3', '31.2', '124000')
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    digits = math.ceil(value / unit) if up else math.floor(value / unit)
    return f"{digits * unit:.6g}"
