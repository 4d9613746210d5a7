"""HAVING and ORDER BY in the names of released columns.

In: the selected keys and aggregates, each with its name. Out: a condition and an order over what is published. Holds: both name
released columns alone: an aggregate that is not selected would cost a release of its own, so it is refused. Not covered: what a
condition may hold besides (`having` of the stage).
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dp_pipelines.extensions.sql_select import constants, spelling
from dp_pipelines.extensions.sql_select.aggregate_calls import bare, is_aggregate
from dp_pipelines.extensions.sql_select.syntax import Node, SelectStatement
from dp_pipelines.jobs.sql.parse_tree import unknown_field, without_places

BESIDE = ("_stddev", "_raw", "_raw_stddev")
"""What is published beside a metric."""

DIRECTIONS = {"ORDER_DEFAULT": "", "ASCENDING": " asc", "DESCENDING": " desc"}


class ReleasedColumns:
    """The columns that a statement releases.

    Args:
        statement: the statement.
        keys: name and tree of each column to group by.
        metrics: name and tree of each aggregate.
        items: all that is selected, in order.
        computed: names of what is computed from the aggregates, by which no row is chosen.
    """

    def __init__(
        self,
        statement: SelectStatement,
        keys: Sequence[tuple[str, Node]],
        metrics: Sequence[tuple[str, Node]],
        items: Sequence[Node],
        computed: Collection[str] = (),
    ) -> None:
        self.statement, self.items, self.computed = statement, items, computed
        self.named = [*metrics, *keys]
        self.names = [name for name, _ in (*keys, *metrics)]
        self.metrics = [name for name, _ in metrics]

    def condition(self, node: Node) -> str:
        """HAVING as a condition over released columns.

        Raises:
            StatementError: it names something else.
        """
        columns: dict[int, str] = {}
        self._name(node, columns)
        return spelling.spelled(self.statement, node, columns)

    def order(self, order: Node) -> str:
        """An entry of ORDER BY, as `order_by` says it.

        Raises:
            StatementError: it is no released column.
        """
        node: Node = order["expression"]
        if unknown_field(order, {"type", "null_order", "expression"}) or order["type"] not in DIRECTIONS:
            raise self.statement.error(node, "is ordered in a way that is not supported", "write asc or desc")
        if order["null_order"] != "ORDER_DEFAULT":
            raise self.statement.error(
                node, "says where nulls stand, which is not supported", "drop NULLS FIRST or LAST"
            )
        if node.get("class") == "CONSTANT":
            name = self._at(node)
        else:
            found = self._own_name(node)
            if found is None:
                columns: dict[int, str] = {}
                self._name(node, columns)  # says first which aggregate or column is missing
                hint = "select it under a name, or order by one of: " + ", ".join(self.names)
                raise self.statement.error(node, "is no released column: what ORDER BY names", hint)
            name = found
        return name + DIRECTIONS[order["type"]]

    def _at(self, node: Node) -> str:
        at = constants.whole(self.statement, node, "a place in SELECT")
        if at > len(self.items):
            raise self.statement.error(
                node, f"is no place in SELECT, which has {len(self.items)}: {at}", "count from 1"
            )
        name = next((name for name, known in self.named if known is self.items[at - 1]), None)
        if name is None:
            hint = "order by a column to group by, or an aggregate"
            raise self.statement.error(node, f"is computed from released numbers: place {at} in SELECT", hint)
        return name

    def _own_name(self, node: Node) -> str | None:
        """The released column that a part is; None where it is none."""
        column = bare(node)
        if column is not None and (column in self.names or self._beside(column)):
            return column
        alike = [name for name in self.names if column is not None and name.casefold() == column.casefold()]
        if len(alike) == 1:
            return alike[0]
        wanted = without_places(node, aliases=False)
        return next((name for name, known in self.named if without_places(known, aliases=False) == wanted), None)

    def _beside(self, column: str) -> bool:
        return any(column == name + end for name in self.metrics for end in BESIDE)

    def _name(self, node: Any, columns: dict[int, str]) -> None:
        """Note the released column of each part that is one; refuse what is not released."""
        if isinstance(node, list):
            for below in node:
                self._name(below, columns)
        if not isinstance(node, Mapping):
            return
        if "class" in node:
            name = self._own_name(node)
            if name is not None:
                columns[id(node)] = name
                return
            if is_aggregate(node):
                text = spelling.spelled(self.statement, node)
                raise self.statement.error(node, f"is not selected: {text}", "add it to SELECT")
            column = bare(node)
            if column is not None and column in self.computed:
                message = f"is computed from released numbers, which choose and order rows: {column!r}"
                raise self.statement.error(node, message, "name a column to group by, or an aggregate")
            if column is not None:
                near = difflib.get_close_matches(column, self.names, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]}?" if near else "add it to SELECT, or filter rows with WHERE"
                raise self.statement.error(node, f"is no released column: {column!r}", hint)
        for below in node.values():
            self._name(below, columns)
