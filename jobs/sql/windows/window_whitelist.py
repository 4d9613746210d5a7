"""Decides which windows a unit column may use: a whitelist over DuckDB's own parse tree, like `whitelist`.

In: the text of a definition. Out: its tree, its windows as data, and the tree with columns in their places. Holds:
whatever is not explicitly allowed is refused, down to the fields of a node; no window ever runs as SQL; the parts inside and
around a window become text again and are checked like any expression over one row. Not covered: types and constants
(`window_types`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import duckdb

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.jobs.sql import row_calculator, whitelist
from dp_pipelines.jobs.sql.expressions import LONGEST
from dp_pipelines.jobs.sql.parse_tree import is_blank, unknown_field, without_places
from dp_pipelines.jobs.sql.whitelist import Node

AGGREGATES = frozenset({"count", "sum", "avg", "min", "max"})

_FUNCTIONS: Mapping[str, tuple[str, int, int]] = {
    "count": ("WINDOW_AGGREGATE", 0, 1),
    "sum": ("WINDOW_AGGREGATE", 1, 1),
    "avg": ("WINDOW_AGGREGATE", 1, 1),
    "min": ("WINDOW_AGGREGATE", 1, 1),
    "max": ("WINDOW_AGGREGATE", 1, 1),
    "first_value": ("WINDOW_FIRST_VALUE", 1, 1),
    "last_value": ("WINDOW_LAST_VALUE", 1, 1),
    "nth_value": ("WINDOW_NTH_VALUE", 2, 2),
    "lag": ("WINDOW_LAG", 1, 3),
    "lead": ("WINDOW_LEAD", 1, 3),
    "row_number": ("WINDOW_ROW_NUMBER", 0, 0),
    "rank": ("WINDOW_RANK", 0, 0),
    "dense_rank": ("WINDOW_RANK_DENSE", 0, 0),
}
"""The name of each allowed function in DuckDB's tree, and how many arguments it takes."""

_FIELDS = """class type function_name partitions orders start end start_expr end_expr ignore_nulls has_ignore_nulls filter_expr
distinct arguments qualified_name query_location query_location_length exclude_clause"""
_LOOKED_AT = frozenset(_FIELDS.split())
"""The only fields that may say something."""

_FORBIDDEN = {
    "arg_orders": "ORDER BY among the arguments of a window function, which is not allowed",
    "schema": "a function with a schema prefix",
    "catalog": "a function with a catalog prefix",
}

_EDGES = {
    "UNBOUNDED_PRECEDING": ("all", True),
    "UNBOUNDED_FOLLOWING": ("all", False),
    "CURRENT_ROW": ("here", False),
    "EXPR_PRECEDING": ("offset", True),
    "EXPR_FOLLOWING": ("offset", False),
}

_NOWHERE = 2**64 - 1
"""DuckDB's query_location for a node that has no text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edge:
    """One end of a frame: kind "all", "here" or "offset", and which side of the row it lies."""

    kind: str
    preceding: bool
    offset: Node | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """A window as written; every node in it is an unchecked expression.

    Args:
        function: its name.
        arguments, condition: in its brackets, and in FILTER.
        ignore_nulls, distinct: as written.
        partitions: PARTITION BY.
        orders: ORDER BY: expression, whether it descends, whether nulls come first.
        by_rows: ROWS, not RANGE.
        start, end: of the frame.
    """

    function: str
    arguments: tuple[Node, ...]
    condition: Node | None
    ignore_nulls: bool
    distinct: bool
    partitions: tuple[Node, ...]
    orders: tuple[tuple[Node, bool, bool], ...]
    by_rows: bool
    start: Edge
    end: Edge


def parse(text: str, connection: duckdb.DuckDBPyConnection) -> Node:
    """The tree of a definition.

    Raises:
        RequestError: with an empty field; the text is not one expression.
    """
    if not text.strip() or len(text) > LONGEST or "\0" in text:
        raise _refused(f"must be an SQL expression of at most {LONGEST} characters", "write e.g. count(*) OVER ()")
    try:
        tree = row_calculator.parse(connection, row_calculator.statement([text]))
    except (duckdb.Error, RecursionError):
        raise _refused("cannot be parsed", "simplify it") from None
    if tree.get("error"):
        message = str(tree.get("error_message")).splitlines()[0]
        hint = "check the SQL; a column named like an SQL keyword needs double quotes"
        if job_parameters.undeclared(text, ()):
            hint = "parameters can only be used in source, where and having"
        raise _refused("is nested too deeply" if "depth" in message else f"is not an SQL expression: {message}", hint)
    node = whitelist.select_items(tree, row_calculator.TABLE, ["c0"])[0]
    # As in `expressions`: no part of the text may close our bracket and join the statement around it.
    alone = row_calculator.parse(connection, f"SELECT (\n{text}\n)")
    items = [] if alone.get("error") else alone["statements"][0]["node"]["select_list"]
    if [without_places(item) for item in items] != [without_places(node)]:
        raise _refused("must be one SQL expression", "write an expression, not a fragment of a query")
    return node


def spell(node: Node, connection: duckdb.DuckDBPyConnection) -> str:
    """The SQL of a part of a tree; DuckDB parses it back into the same part."""
    text = row_calculator.unparse(connection, node)
    tree = row_calculator.parse(connection, row_calculator.statement([text]))
    if tree.get("error") or without_places(
        whitelist.select_items(tree, row_calculator.TABLE, ["c0"])[0]
    ) != without_places(node):
        raise _refused("holds a part that cannot be distinguished from the windows around it", "write it differently")
    return text


def windows_of(node: Any) -> list[Node]:
    """The outermost windows of a tree, in the order of `replaced`."""
    if isinstance(node, dict):
        if node.get("class") == "WINDOW":
            return [node]
        return [found for value in node.values() for found in windows_of(value)]
    return [found for value in node for found in windows_of(value)] if isinstance(node, list) else []


def replaced(node: Any, columns: list[Node]) -> Any:
    """The tree with other nodes in place of its windows, taken from the front of the list."""
    if isinstance(node, dict):
        if node.get("class") == "WINDOW":
            return columns.pop(0)
        return {key: replaced(value, columns) for key, value in node.items()}
    return [replaced(item, columns) for item in node] if isinstance(node, list) else node


def column(name: str, cast_to: str = "") -> Node:
    """The tree of a column's name, or of its cast to a type."""
    place = {"alias": "", "query_location": _NOWHERE, "query_location_length": 0}
    node: Node = {"class": "COLUMN_REF", "type": "COLUMN_REF", **place, "column_names": [name]}
    if not cast_to:
        return node
    kind = {"catalog": "", "schema": "", "type_name": cast_to, "children": [], "qualified_name": {"path": [cast_to]}}
    wanted = {"class": "TYPE", "type": "TYPE", **place, **kind}
    return {
        "class": "CAST",
        "type": "OPERATOR_CAST",
        **place,
        "child": node,
        "try_cast": False,
        "type_expr": wanted,
    }


def without_over(node: Any) -> str:
    """The name of a window function that is called without OVER, if there is one."""
    if isinstance(node, dict):
        name = str(node.get("function_name")).lower()
        if node.get("class") == "FUNCTION" and name in _FUNCTIONS:
            return name
        return next((found for value in node.values() if (found := without_over(value))), "")
    return next((found for value in node if (found := without_over(value))), "") if isinstance(node, list) else ""


def names_in(node: Any) -> list[str]:
    """Every name that stands first in a reference to a column."""
    if isinstance(node, dict):
        here = node.get("column_names") if node.get("class") == "COLUMN_REF" else None
        below = [name for value in node.values() for name in names_in(value)]
        return [*([str(here[0])] if here else []), *below]
    return [name for value in node for name in names_in(value)] if isinstance(node, list) else []


def written(node: Node) -> Written:
    """A window as data.

    Raises:
        RequestError: with an empty field; the window is not allowed.
    """
    forbidden = next((words for field, words in _FORBIDDEN.items() if not is_blank(node.get(field))), "")
    if node.get("exclude_clause") != "NO_OTHER":
        forbidden = "EXCLUDE, which is not allowed"
    if forbidden or (unknown := unknown_field(node, _LOOKED_AT)):
        raise _refused(f"holds {forbidden or f'a form of window that is not allowed: {unknown}'}", "leave it out")
    name = str(node["function_name"]).lower()
    path = node.get("qualified_name", {"path": [name]}).get("path")
    if name not in _FUNCTIONS or [str(step).lower() for step in path or []] != [name]:
        hint = nearest(name, _FUNCTIONS)
        raise _refused(f"uses {name!r}, which is not one of the allowed window functions", hint)
    kind, fewest, most = _FUNCTIONS[name]
    arguments = tuple(_argument(argument) for argument in node["arguments"])
    if node["type"] != kind:
        raise _refused("holds a form of window that is not allowed", "")
    if not fewest <= len(arguments) <= most:
        numbers = str(most) if fewest == most else f"{fewest} to {most}"
        raise _refused(f"gives {name!r} {len(arguments)} arguments; it takes {numbers}", "")
    if node["distinct"] and (name != "count" or not arguments):
        raise _refused(f"uses DISTINCT in {name!r}; only count(DISTINCT x) is allowed", "")
    if node["filter_expr"] is not None and name not in AGGREGATES:
        raise _refused(
            f"uses FILTER with {name!r}, which is not an aggregate", "use it with count, sum, avg, min or max"
        )
    of_values = name.endswith("_value") or name in ("lag", "lead")
    if node["has_ignore_nulls"] and not of_values:
        raise _refused(f"specifies how {name!r} treats nulls", "remove IGNORE NULLS or RESPECT NULLS")
    start, end = str(node["start"]), str(node["end"])
    return Written(
        function=name,
        arguments=arguments,
        condition=node["filter_expr"],
        ignore_nulls=bool(node["ignore_nulls"]),
        distinct=bool(node["distinct"]),
        partitions=tuple(node["partitions"]),
        orders=tuple(_order(item) for item in node["orders"]),
        by_rows=start.endswith("_ROWS") or end.endswith("_ROWS"),
        start=_edge(start, node["start_expr"]),
        end=_edge(end, node["end_expr"]),
    )


def _argument(argument: Any) -> Node:
    if not isinstance(argument, dict) or argument.get("name") or unknown_field(argument, {"name", "expression"}):
        raise _refused("passes an argument by name, which is not allowed", "pass arguments by position")
    node: Node = argument["expression"]
    return node


def _order(item: Any) -> tuple[Node, bool, bool]:
    directions = {"ORDER_DEFAULT": False, "ASCENDING": False, "DESCENDING": True}
    nulls = {"ORDER_DEFAULT": False, "NULLS LAST": False, "NULLS FIRST": True}
    if unknown_field(item, {"type", "null_order", "expression"}) or item["type"] not in directions:
        raise _refused("holds a form of ORDER BY that is not allowed", "")
    if item["null_order"] not in nulls:
        raise _refused("holds a form of ORDER BY that is not allowed", "")
    return item["expression"], directions[item["type"]], nulls[item["null_order"]]


def _edge(spoken: str, offset: Node | None) -> Edge:
    kind, preceding = _EDGES.get(spoken.removesuffix("_ROWS").removesuffix("_RANGE"), ("", False))
    if not kind or (kind == "offset") != (offset is not None):
        raise _refused("has a frame that is not allowed", "use ROWS or RANGE")
    return Edge(kind=kind, preceding=preceding, offset=offset)


def _refused(message: str, hint: str) -> RequestError:
    return RequestError(field="", message=message, hint=hint)
