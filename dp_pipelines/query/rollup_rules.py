"""Rules for queries with a rollup: which options cannot be combined with it, and why.

In: a query that has one. Out: a refusal that names the key, the rule and what to do. Holds: public numbers only. Not covered: the
levels themselves (`query.rollup`).
"""

from typing import TYPE_CHECKING

from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.base import Basis, Metric
from dp_pipelines.query.rollup import LEVEL, REST, SELECTED, STATISTICS

if TYPE_CHECKING:
    from dp_pipelines.query.query import Query

STRATEGIES = ("auto", "truncated_geometric", "gaussian")
"""The ways in which partitions of a rollup may be selected."""

LARGEST_VALUE = 1e40
"""Below this, and above its inverse, products of variances of sums are float64: making sums add up must not fail after a draw."""

ALONE = "put it into a stage of its own"


def check(query: "Query") -> None:
    """Refuse options of a query that cannot be combined with its rollup.

    Raises:
        RequestError: as said.
    """
    rollup = query.rolled
    assert rollup is not None
    if query.is_total:
        message = "has levels, and an empty partition_by has one: everything"
        raise RequestError(field="rollup", message=message, hint="name the columns of the last level in partition_by")
    if set(rollup.levels[-1]) != set(query.partition_columns):
        listed = ", ".join(query.partition_columns)
        message = f"must end with the finest level, which is partition_by: [{listed}]"
        raise RequestError(
            field=f"rollup[{len(rollup.levels) - 1}]", message=message, hint=f"add [{listed}] at its end"
        )
    for column in (LEVEL, REST, STATISTICS, SELECTED):
        if column in query.partition_columns or any(column in query.released_columns(name) for name in query.metrics):
            message = f"adds a column {column!r}, and the query releases one"
            raise RequestError(field="rollup", message=message, hint="rename that column or metric")
    for field in ("top", "best", "compare", "windows"):
        if getattr(query, field) is not None:
            raise RequestError(field=field, message="cannot stand beside rollup", hint=f"drop it, or {ALONE}")
    if query.bounds.auto:
        message = "is chosen by the run, and cannot stand beside rollup"
        raise RequestError(field=query.bounds.auto_field, message=message, hint="write it under bounds, as a number")
    strategy = getattr(query.partitions, "strategy", "auto")
    if strategy not in STRATEGIES:
        message = f"must be one of {', '.join(STRATEGIES)} beside rollup, whose levels are selected one by one"
        raise RequestError(field="strategy", message=message, hint="leave it out")
    if not query.metrics:
        message = "needs a metric: what adds up are numbers"
        raise RequestError(field="rollup", message=message, hint="add e.g. a count, or drop rollup")
    for name, metric in query.metrics.items():
        _check_metric(f"metrics.{name}", metric)


def _check_metric(field: str, metric: Metric) -> None:
    if metric.scale is not None:
        message = (
            "has bounds that differ by partition: each finest partition has a scale of its own, so sums do not add up"
        )
        raise RequestError(field=field, message=message, hint="write these bounds as numbers, or drop rollup")
    if metric.rolls_up is None:
        message = "takes no part in a rollup, which is for counts, sums, means and privacy_id_count"
        raise RequestError(field=field, message=message, hint=ALONE)
    if metric.auto:
        message = "has bounds that the run chooses, and cannot stand beside rollup"
        raise RequestError(field=field, message=message, hint="write the bounds as numbers")
    if metric.pools:
        message = "pulls groups towards each other, after which they do not fit the sums above them"
        raise RequestError(field=f"{field}.shrink", message=message, hint="leave it out")
    if metric.stddev is not None:
        message = "stands beside rollup, whose levels have noise of their own"
        raise RequestError(field=f"{field}.stddev", message=message, hint="write a weight, and shares of the levels")
    for statistic in metric.statistics(Basis(centred=False, nullable=True)):
        if statistic.lattice is None:
            continue
        if not 1 / LARGEST_VALUE < statistic.lattice.largest * statistic.fine_step < LARGEST_VALUE:
            message = (
                f"has bounds above {LARGEST_VALUE:.0e} or below {1 / LARGEST_VALUE:.0e}, whose sums no levels can fit"
            )
            raise RequestError(field=field, message=message, hint="write values in other units, e.g. thousands")
