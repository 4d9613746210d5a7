"""Which metric an aggregate of SQL stands for.

In: a call of an aggregate in a statement. Out: an `AggregateCall`: the kind of metric that job files know, its settings, and what
it reads. Holds: a call means what the metric says or is refused at its place; no argument of a call is left unread. Not covered:
bounds of values that stand beside the statement (`clips`), and under which name a column is read (`from_statement`).
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dp_pipelines.extensions.sql_select import constants, spelling, syntax
from dp_pipelines.extensions.sql_select.syntax import Node, SelectStatement

RANGE = {
    "sum": "sum",
    "avg": "mean",
    "mean": "mean",
    "var_pop": "variance",
    "median": "median",
    "min": "min",
    "max": "max",
    "geomean": "geometric_mean",
    "geometric_mean": "geometric_mean",
}
"""Aggregates of one column whose values have bounds, and the kind of metric that each is."""

COUNTS = ("count", "count_star", "count_if", "countif")
DISTINCT = ("approx_count_distinct",)
QUANTILES = ("quantile_cont", "percentile_cont", "approx_quantile")
KNOWN = (*COUNTS, *DISTINCT, *RANGE, *QUANTILES, "histogram")

LISTED = "there are count, sum, avg, var_pop, min, max, median, quantile_cont, geomean and histogram"

INSTEAD: Mapping[str, str] = {
    "stddev_pop": "select var_pop, and take its root",
    "stddev": "select var_pop, and take its root",
    "stddev_samp": "select var_pop, and take its root",
    "variance": "select var_pop, the variance of these very rows",
    "var_samp": "select var_pop, the variance of these very rows",
    "quantile_disc": "take quantile_cont",
    "percentile_disc": "take quantile_cont",
    "quantile": "take quantile_cont",
    "mode": "group by that column, count, and ORDER BY the count DESC LIMIT 1",
    "approx_top_k": "group by that column, count, and ORDER BY the count DESC LIMIT k",
    "any_value": "one row's value cannot be published",
    "first": "one row's value cannot be published",
    "last": "one row's value cannot be published",
    "string_agg": "rows' values cannot be published",
    "list": "rows' values cannot be published",
    "array_agg": "rows' values cannot be published",
    "product": "take geomean",
    "sum_no_overflow": "take sum",
    "fsum": "take sum",
    "kahan_sum": "take sum",
    "favg": "take avg",
}
"""What to write in place of an aggregate that has no metric."""

PER_GROUP, PER_ROW = "contribution_bounds_per_group", "contribution_bounds_per_row"
"""Arguments of BigQuery's aggregates under its clause."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregateCall:
    """A metric that a call stands for.

    Args:
        kind: the kind of metric.
        node: the call.
        reads: the text of what it reads of a row; None where it reads no column.
        column: the column that this text is, where it is a bare one.
        settings: of the metric, beside its column and its bounds.
        bounded: whether its values need bounds that the call does not say.
        stem: what it is called where it has no name, before the name of its column.
        rows: the most rows of one unit in one group, where the call says it.
    """

    kind: str
    node: Node
    reads: str | None = None
    column: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bounded: bool = False
    stem: str = ""
    rows: int | None = None


def is_aggregate(node: Node) -> bool:
    """Whether a part of a statement is a call of an aggregate."""
    if node.get("class") != "FUNCTION":
        return False
    name = str(node["function_name"]).lower()
    return name in KNOWN or name in INSTEAD or name in syntax.function_names(aggregates=True)


def refuse_unknown(statement: SelectStatement, node: Node) -> None:
    """Refuse a call of a function that nobody knows, as a misspelt aggregate is.

    Raises:
        StatementError: it is one.
    """
    if node.get("class") != "FUNCTION" or node.get("is_operator"):
        return
    name = str(node["function_name"]).lower()
    if name not in syntax.function_names(aggregates=False):
        near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.6)
        raise statement.error(
            node, f"calls a function that is not known: {name}", f"did you mean {near[0]}?" if near else LISTED
        )


def call(statement: SelectStatement, node: Node, unit: Sequence[str], *, clause: bool = False) -> AggregateCall:
    """The metric of a call.

    Args:
        statement: the statement.
        node: the call.
        unit: the columns of the privacy unit.
        clause: whether it stands under BigQuery's clause.

    Raises:
        StatementError: no metric means the same.

    >>> statement = syntax.parse("SELECT count(DISTINCT customer) FROM t")
    >>> call(statement, statement.node["select_list"][0], ["customer"]).kind
    'privacy_id_count'
    """
    syntax.fields(
        statement,
        node,
        {"function_name", "arguments", "filter", "distinct", "order_bys"},
        {"schema": ("", "main"), "catalog": ("",), "is_operator": (False,), "export_state": (False,), "qualified_name": None},
    )  # fmt: skip
    name = str(node["function_name"]).lower()
    reading = _Call(statement, node, name, unit, clause)
    found = reading.found()
    reading.refuse_unread()
    return found


class _Call:
    """Reads the arguments of one call, each once."""

    def __init__(self, statement: SelectStatement, node: Node, name: str, unit: Sequence[str], clause: bool) -> None:
        self.statement, self.node, self.name, self.unit, self.clause = statement, node, name, unit, clause
        given = [argument for argument in node["arguments"] if not argument.get("name")]
        self.given: list[Node] = [argument["expression"] for argument in given]
        self.named: dict[str, Node] = {a["name"].lower(): a["expression"] for a in node["arguments"] if a.get("name")}
        self.orders: list[Node] = list(node["order_bys"]["orders"])
        self.distinct, self.filter = bool(node["distinct"]), node["filter"]

    def found(self) -> AggregateCall:
        """What the call stands for."""
        ways: dict[tuple[str, ...], Callable[[], AggregateCall]] = {
            ("count", "count_star"): self._count,
            ("count_if", "countif"): self._count_if,
            DISTINCT: self._distinct,
            tuple(RANGE): self._of_range,
            QUANTILES: self._quantiles,
            ("histogram",): self._histogram,
        }
        for names, way in ways.items():
            if self.name in names:
                return way()
        near = difflib.get_close_matches(self.name, KNOWN, n=1, cutoff=0.6)
        hint = INSTEAD.get(self.name) or (f"did you mean {near[0]}?" if near else LISTED)
        raise self.error(self.node, f"has no differentially private form: {self.name}", hint)

    def error(self, node: Node, message: str, hint: str = "") -> syntax.StatementError:
        """An error at a part of the call."""
        return self.statement.error(node, message, hint)

    def refuse_unread(self) -> None:
        """Refuse what no step has taken."""
        if self.given:
            raise self.error(self.given[0], f"is one argument too many for {self.name}", "drop it")
        for name, node in self.named.items():
            raise self.error(node, f"is an argument that {self.name} does not take here: {name}", "drop it")
        if self.orders:
            raise self.error(
                self.orders[0]["expression"], "uses ORDER BY inside an aggregate, which is not supported", "drop it"
            )
        if self.distinct:
            hint = "only count can be DISTINCT; drop it"
            raise self.error(self.node, f"uses DISTINCT in {self.name}, which is not supported", hint)
        if self.filter is not None:
            hint = "write CASE WHEN ... THEN ... END as its argument, or WHERE"
            raise self.error(self.filter, f"uses FILTER with {self.name} here, which is not supported", hint)

    def _count(self) -> AggregateCall:
        if self.distinct:
            return self._distinct()
        star = not self.given or self.given[0].get("class") == "STAR"
        if star:
            if self.given:
                syntax.fields(
                    self.statement, self.given.pop(), set(),
                    {"relation_name": ("",), "exclude_list": ([],), "replace_list": ([],), "columns": (False,), "expr": (None,),
                     "qualified_exclude_list": ([],), "rename_list": ([],)},
                )  # fmt: skip
            return self._flagged("1", "count") if self.filter is not None else self._rows()
        argument = self.given.pop(0)
        column = bare(argument)
        if column is not None and list(self.unit) == [column] and self.filter is None:
            return self._rows()  # rows without a unit are dropped
        given = f"{self._text(argument) if column is not None else f'({self._text(argument)})'} IS NOT NULL"
        return self._flagged(f"CAST({given} AS INTEGER)", f"count_{stem_of(column or self._text(argument))}")

    def _count_if(self) -> AggregateCall:
        condition = self._text(self._one())
        return self._flagged(f"CASE WHEN {condition} THEN 1 ELSE 0 END", "count_if")

    def _rows(self) -> AggregateCall:
        rows = None
        if PER_GROUP in self.named:
            rows = self._counted_per_group()
        return AggregateCall(kind="count", node=self.node, stem="count", rows=rows)

    def _flagged(self, text: str, stem: str) -> AggregateCall:
        """A count of some of the rows, as the sum of a column of ones and zeros."""
        if self.filter is not None:
            text = f"CASE WHEN {self._text(self.filter)} THEN {text} ELSE 0 END"
            self.filter = None
        settings: dict[str, Any] = {"min_value": 0, "max_value": 1}
        if PER_GROUP in self.named:
            settings = {"min_sum_per_partition": 0, "max_sum_per_partition": self._counted_per_group()}
        return AggregateCall(kind="sum", node=self.node, reads=text, settings=settings, stem=stem)

    def _counted_per_group(self) -> int:
        node = self.named[PER_GROUP]
        low, high = self._two(PER_GROUP)
        if low not in (0, 1):
            hint = "write 0 as the lower end: a count cannot make more of a person's rows than there are"
            raise self.error(node, "must start at 0: the range of a count", hint)
        if not isinstance(high, int) or high < 1:
            raise self.error(node, "must end at a whole number from 1: the range of a count")
        return high

    def _distinct(self) -> AggregateCall:
        self.distinct = False
        if not self.given:
            raise self.error(self.node, f"needs a column: {self.name}", "write e.g. count(DISTINCT product)")
        argument = self.given.pop(0)
        columns = [bare(argument)]
        if argument.get("class") == "FUNCTION" and argument["function_name"] == "row":
            columns = [bare(part["expression"]) for part in argument["arguments"]]
        if set(columns) == set(self.unit):
            stem = "count_distinct_" + "_".join(stem_of(name) for name in self.unit)
            return AggregateCall(kind="privacy_id_count", node=self.node, stem=stem)
        text = self._filtered(argument)
        column = bare(argument) if text == self._text(argument) else None
        return AggregateCall(
            kind="distinct_count",
            node=self.node,
            reads=text,
            column=column,
            stem=f"count_distinct_{stem_of(column or text)}",
        )

    def _of_range(self) -> AggregateCall:
        kind = RANGE[self.name]
        if self.clause and self.name in ("avg", "mean"):
            hint = (
                "write AVG without the clause for the mean over rows, with bounds of values; or SUM and COUNT(DISTINCT ...) of "
                "the privacy unit, whose quotient is the mean per person"
            )
            raise self.error(
                self.node, "would be BigQuery's average of per-person averages, which is not computed here", hint
            )
        argument = self._one()
        text = self._filtered(argument)
        column = bare(argument) if text == self._text(argument) else None
        settings: dict[str, Any] = {}
        if self.name == "sum" and PER_GROUP in self.named:
            low, high = self._two(PER_GROUP)
            settings = {"min_sum_per_partition": low, "max_sum_per_partition": high}
        return AggregateCall(
            kind=kind, node=self.node, reads=text, column=column, settings=settings, bounded=not settings,
            stem=f"{self.name}_{stem_of(column or text)}",
        )  # fmt: skip

    def _quantiles(self) -> AggregateCall:
        argument = self._ordered() if self.orders else self._one(rest=True)
        if not self.given:
            hint = f"write e.g. {self.name}(price, 0.9), or [0.1, 0.5, 0.9]"
            raise self.error(self.node, f"needs the number of the quantile: {self.name}", hint)
        at = self.given.pop(0)
        asked = constants.listed(self.statement, at, "the numbers of quantiles")
        settings: dict[str, Any] = {}
        if asked is None:
            asked = [constants.number(self.statement, at, "the number of a quantile")]
        kind = "median" if asked == [0.5] else "quantiles"
        if asked != [0.5]:
            settings["quantiles"] = asked
        bounded = PER_ROW not in self.named
        if not bounded:
            low, high = self._two(PER_ROW)
            settings |= {"min_value": low, "max_value": high}
        text = self._filtered(argument)
        column = bare(argument) if text == self._text(argument) else None
        return AggregateCall(
            kind=kind, node=self.node, reads=text, column=column, settings=settings, bounded=bounded,
            stem=f"{self.name}_{stem_of(column or text)}",
        )  # fmt: skip

    def _ordered(self) -> Node:
        """What WITHIN GROUP (ORDER BY ...) names."""
        order = self.orders.pop(0)
        if order["type"] == "DESCENDING" or order["null_order"] != "ORDER_DEFAULT":
            raise self.error(
                order["expression"], "must rise: the order of a quantile", "drop what stands behind the column"
            )
        expression: Node = order["expression"]
        return expression

    def _histogram(self) -> AggregateCall:
        argument = self._one(rest=True)
        hint = "write e.g. histogram(price, [0, 10, 100]), or categories: histogram(size, ['S', 'M', 'L'])"
        edges = constants.listed(self.statement, self.given.pop(0), "the edges of bins") if self.given else None
        if edges is None:
            raise self.error(self.node, "needs its bins, which must not come from the data: histogram", hint)
        texts = bool(edges) and all(isinstance(edge, str) for edge in edges)
        text = self._filtered(argument)
        column = bare(argument) if text == self._text(argument) else None
        return AggregateCall(
            kind="histogram", node=self.node, reads=text, column=column,
            settings={"categories" if texts else "edges": edges}, stem=f"histogram_{stem_of(column or text)}",
        )  # fmt: skip

    def _one(self, *, rest: bool = False) -> Node:
        """The one argument, or the first."""
        if not self.given:
            raise self.error(self.node, f"needs a column: {self.name}", f"write e.g. {self.name}(price)")
        argument = self.given.pop(0)
        if self.given and not rest:
            self.refuse_unread()
        return argument

    def _filtered(self, argument: Node) -> str:
        """What is read of a row: null where FILTER leaves it out."""
        text = self._text(argument)
        if self.filter is None:
            return text
        condition, self.filter = self._text(self.filter), None
        return f"CASE WHEN {condition} THEN {text} END"

    def _text(self, node: Node) -> str:
        refuse_aggregates(self.statement, node)
        return spelling.spelled(self.statement, node)

    def _two(self, name: str) -> tuple[int | float, int | float]:
        """The two numbers of a range such as (0, 100)."""
        node = self.named.pop(name)
        parts = node.get("arguments", []) if node.get("function_name") == "row" else []
        if len(parts) != 2:
            raise self.error(node, f"must be two numbers: {name}", f"write e.g. {name} => (0, 100)")
        low, high = (constants.number(self.statement, part["expression"], name) for part in parts)
        return low, high


def bare(node: Node) -> str | None:
    """The name of a column that stands alone; None for anything else."""
    names = node.get("column_names", [])
    return str(names[0]) if node.get("class") == "COLUMN_REF" and len(names) == 1 else None


def refuse_aggregates(statement: SelectStatement, node: Any) -> None:
    """Refuse aggregates inside what is computed for each row.

    Raises:
        StatementError: there is one.
    """
    if isinstance(node, Mapping):
        if is_aggregate(node):
            raise statement.error(
                node, "is an aggregate inside an expression", "select it by itself, and compute with what is published"
            )
        for below in node.values():
            refuse_aggregates(statement, below)
    elif isinstance(node, list):
        for below in node:
            refuse_aggregates(statement, below)


def stem_of(text: str) -> str:
    """A name made of a text.

    >>> stem_of("date_trunc('week', paid_at)")
    'date_trunc_week_paid_at'
    """
    kept = "".join(sign if sign.isalnum() else " " for sign in text.replace("_", " "))
    return "_".join(kept.split())[:60].rstrip("_") or "value"
