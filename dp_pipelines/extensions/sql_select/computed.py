"""What a statement computes from its aggregates, such as `sum(price) / count(*)`, as a formula over released columns.

In: an item of SELECT with aggregates inside + - * /, and the aggregates that are selected by themselves. Out: what a job file
says in its place. Holds: each aggregate in it is selected too, or is refused with what to add, since it would cost a release of
its own; `nullif(x, 0)` is x, as a division by zero gives no number anyway; `sum(count(*)) OVER ()` is the sum over all groups of
the table. Not covered: intervals (`report.derived`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.extensions.sql_select import constants, spelling, syntax
from dp_pipelines.extensions.sql_select.aggregate_calls import is_aggregate
from dp_pipelines.extensions.sql_select.syntax import Node, SelectStatement
from dp_pipelines.jobs.sql.parse_tree import without_places
from dp_pipelines.report.derived import formula

SIGNS = ("+", "-", "*", "/")
"""What may stand between aggregates."""

WINDOW = "WINDOW"
"""The class of window functions in DuckDB's trees."""

OVER_ALL = "write e.g. count(*) / sum(count(*)) OVER (): the sum of an aggregate over all groups"

NAMED = "give it a name with AS, e.g. AS basket"


def is_computed(node: Any) -> bool:
    """Return True if an item holds aggregates and is none itself.

    Args:
        node: of the statement's tree.
    """
    return not is_aggregate(node) and _holds_aggregate(node)


def _holds_aggregate(node: Any) -> bool:
    if isinstance(node, Mapping):
        return is_aggregate(node) or any(_holds_aggregate(below) for below in node.values())
    return isinstance(node, list) and any(_holds_aggregate(below) for below in node)


def is_total(node: Node) -> bool:
    """Return True if an item is `sum(...) OVER (...)`; what else it holds is checked where it is read.

    Args:
        node: of the statement's tree.
    """
    return node.get("class") == WINDOW and str(node.get("function_name")).lower() == "sum"


def metric(statement: SelectStatement, node: Node, selected: Sequence[tuple[str, Node]]) -> dict[str, Any]:
    """Return what a job file says under `metrics` in place of an item.

    Args:
        statement: the statement.
        node: the item.
        selected: name and tree of each aggregate that is selected by itself.

    Raises:
        StatementError: it holds more than signs, numbers and selected aggregates.

    >>> statement = syntax.parse("SELECT sum(v) AS total, count(*) AS n, sum(v) / nullif(count(*), 0) AS mean FROM t")
    >>> total, n, mean = statement.node["select_list"]
    >>> metric(statement, mean, [("total", total), ("n", n)])
    {'kind': 'ratio', 'of': 'total', 'to': 'n'}
    >>> statement = syntax.parse("SELECT count(*) AS n, count(*) / sum(count(*)) OVER () AS share FROM t")
    >>> n, share = statement.node["select_list"]
    >>> metric(statement, share, [("n", n)])
    {'kind': 'ratio', 'of': 'n', 'to': {'total': 'n'}}
    """
    if not node.get("alias"):
        raise statement.error(node, "computes with aggregates and has no name", NAMED)
    if node.get("function_name") == "/" and len(parts := _arguments(statement, node)) == 2:
        names = [_selected(statement, _divisor(statement, part), selected) for part in parts]
        if names[0] is not None and names[1] is not None:
            return {"kind": "ratio", "of": names[0], "to": names[1]}
        total = _total(statement, _divisor(statement, parts[1]), selected)
        if names[0] is not None and total is not None:
            return {"kind": "ratio", "of": names[0], "to": {"total": total}}
    return {"kind": "expression", "of": _text(statement, node, selected, top=True)}


def _text(statement: SelectStatement, node: Node, selected: Sequence[tuple[str, Node]], *, top: bool = False) -> str:
    """Return a part as a formula. Raises: StatementError."""
    node = _divisor(statement, node)
    name = _selected(statement, node, selected)
    if name is not None:
        return formula.quoted(name)
    if (total := _total(statement, node, selected)) is not None:
        return f"{formula.TOTAL}({formula.quoted(total)})"
    if node.get("class") == "CONSTANT":
        number = float(constants.number(statement, node, "a number of a formula"))
        if not math.isfinite(number):
            raise statement.error(node, "is a number that is too large")
        return repr(number).removesuffix(".0")
    if node.get("class") == "FUNCTION" and node.get("is_operator") and node["function_name"] in SIGNS:
        parts = [_text(statement, part, selected) for part in _arguments(statement, node)]
        said = f"-{parts[0]}" if len(parts) == 1 else f"{parts[0]} {node['function_name']} {parts[1]}"
        return said if top else f"({said})"
    text = spelling.spelled(statement, node)
    hint = "write + - * / between aggregates that are selected, and numbers"
    raise statement.error(node, f"is more than released numbers can be computed with: {text}", hint)


def _selected(statement: SelectStatement, node: Node, selected: Sequence[tuple[str, Node]]) -> str | None:
    """Return the name of the released column that an aggregate is; None of anything else.

    Raises:
        StatementError: the aggregate is not selected by itself.
    """
    if not is_aggregate(node):
        return None
    wanted = without_places(node, aliases=False)
    for name, known in selected:
        if without_places(known, aliases=False) == wanted:
            return name
    text = spelling.spelled(statement, node)
    hint = (
        f"add it to SELECT: {text}; each released number costs a part of the budget, and what is computed costs nothing"
    )
    raise statement.error(node, f"is not selected by itself: {text}", hint)


def _total(statement: SelectStatement, node: Node, selected: Sequence[tuple[str, Node]]) -> str | None:
    """Return the metric whose total over all groups `sum(aggregate) OVER ()` is; None of anything else.

    Raises:
        StatementError: the window is not over all groups, or what is added up is not selected by itself.
    """
    if node.get("class") != WINDOW:
        return None
    if not is_total(node):
        text = spelling.spelled(statement, node)
        raise statement.error(node, f"is a window function over released numbers: {text}", OVER_ALL)
    plain = {"start": "UNBOUNDED_PRECEDING", "end": "CURRENT_ROW_RANGE", "exclude_clause": "NO_OTHER"}
    parts = ("partitions", "orders", "filter_expr", "distinct")
    if any(node.get(part) for part in parts) or any(node.get(key) != value for key, value in plain.items()):
        raise statement.error(node, "adds up some groups, or in an order", OVER_ALL)
    known = {"function_name", "arguments", *plain, *parts}
    syntax.fields(statement, node, known, {"schema": ("", "main"), "catalog": ("",), "qualified_name": None})
    (part, *more) = [argument["expression"] for argument in node["arguments"]] or [{}]
    name = None if more else _selected(statement, part, selected)
    if name is None:
        raise statement.error(node, "adds up something else than a selected aggregate", OVER_ALL)
    return name


def _divisor(statement: SelectStatement, node: Node) -> Node:
    """Return x of `nullif(x, 0)`, and anything else as it is. Raises: StatementError for another second argument."""
    if node.get("class") != "FUNCTION" or str(node["function_name"]).lower() != "nullif":
        return node
    first, second = _arguments(statement, node)
    if constants.number(statement, second, "the second argument of nullif") != 0:
        raise statement.error(second, "must be 0 here: the second argument of nullif", "write nullif(..., 0)")
    return first


def _arguments(statement: SelectStatement, node: Node) -> list[Node]:
    """Return the arguments of a call that has nothing else. Raises: StatementError."""
    syntax.fields(
        statement,
        node,
        {"function_name", "arguments", "is_operator"},
        {"schema": ("", "main"), "catalog": ("",), "export_state": (False,), "qualified_name": None, "distinct": (False,),
         "order_bys": None, "filter": (None,)},
    )  # fmt: skip
    return [argument["expression"] for argument in node["arguments"]]
