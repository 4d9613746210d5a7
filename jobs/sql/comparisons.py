"""A condition that is a list of comparisons: released columns with numbers, joined by AND.

In: the text of a condition, the metrics whose columns it may compare, values of parameters. Out: a `Condition` for each. Holds:
what is more than that is refused, by DuckDB's own parse tree, never read in part. Not covered: other conditions (`expressions`).
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.sql import expressions, row_calculator, whitelist
from dp_pipelines.query.large_list import Condition

HINT = 'over a list sorted on disk write comparisons of metrics with numbers, joined by AND, e.g. having: "views >= 90"'

_ABOVE = {"COMPARE_GREATERTHANOREQUALTO": True, "COMPARE_GREATERTHAN": False}
_BELOW = {"COMPARE_LESSTHANOREQUALTO": True, "COMPARE_LESSTHAN": False}
"""The comparisons, and whether their end belongs to them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reader:
    metrics: Sequence[str]
    number: Callable[[Any], float]

    def read(self, node: whitelist.Node) -> Iterator[Condition]:
        """The comparisons of a tree."""
        tag = node["type"]
        if tag == "CONJUNCTION_AND":
            for child in node["children"]:
                yield from self.read(child)
        elif tag == "COMPARE_BETWEEN":
            low, high = (self.number(node[end]) for end in ("lower", "upper"))
            yield Condition(metric=self.metric(node["input"]), low=low, high=high)
        elif tag in _ABOVE or tag in _BELOW:
            left, right, above = node["left"], node["right"], tag in _ABOVE
            if left["class"] != "COLUMN_REF":
                left, right, above = right, left, not above
            metric, end, with_end = self.metric(left), self.number(right), {**_ABOVE, **_BELOW}[tag]
            yield (
                Condition(metric=metric, low=end, with_low=with_end)
                if above
                else Condition(metric=metric, high=end, with_high=with_end)
            )
        else:
            raise RequestError(field="", message="is more than comparisons of metrics with numbers", hint=HINT)

    def metric(self, node: whitelist.Node) -> str:
        """The metric that a side of a comparison names."""
        name = node["column_names"][0] if node["class"] == "COLUMN_REF" else None
        found = [metric for metric in self.metrics if name is not None and metric.casefold() == name.casefold()]
        if not found:
            what = (
                "is more than comparisons of metrics with numbers"
                if name is None
                else f"compares column {name!r}, which is no metric"
            )
            raise RequestError(field="", message=what, hint=HINT)
        return found[0]


def read(
    having: str, metrics: Sequence[str], keys: Collection[str], values: Mapping[str, Value]
) -> tuple[Condition, ...]:
    """The comparisons of a condition.

    Args:
        having: its text.
        metrics: whose released numbers it may compare.
        keys: the partition columns, which it may not.
        values: of the parameters.

    Raises:
        RequestError: it is something else; without a field.

    >>> [one.text for one in read("views >= 90 AND 5 < units", ["views", "units"], ["page"], {})]
    ['views >= 90', 'units > 5']
    """
    sql, _ = job_parameters.into_sql(having, values)
    connection = row_calculator.checking_connection()
    released = [*keys, *(column for metric in metrics for column in (metric, f"{metric}_stddev"))]
    try:
        root = expressions.tree("having", sql, connection, values)
        whitelist.check(root, whitelist.KnownNames(columns=released, params=values, released=True))
    except RequestError as error:
        raise RequestError(field="", message=error.message, hint=error.hint) from None

    def number(node: whitelist.Node) -> float:
        text = f"SELECT TRY_CAST(({row_calculator.unparse(connection, node)}) AS DOUBLE)"
        try:
            (found,) = row_calculator.query(connection, text, values).column(0).to_pylist()
        except duckdb.Error:
            found = None
        if found is None or not math.isfinite(found):
            raise RequestError(field="", message="compares a metric with what is no number", hint=HINT)
        return float(found)

    return tuple(_Reader(metrics=metrics, number=number).read(root))
