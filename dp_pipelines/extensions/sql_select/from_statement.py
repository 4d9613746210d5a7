"""What a job file would say in place of a SELECT statement.

In: a statement, the privacy unit, bounds of values that stand beside it. Out: `StatementParts`: the keys of a stage, columns and
a condition of the job, the table, and the place of each in the statement. Holds: the stage is one that somebody would write by
hand; each part of the statement's tree is taken or refused. Not covered: whether columns exist and what an expression may hold.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dp_pipelines.extensions.sql_select import bigquery, constants, grouping_sets, spelling, syntax
from dp_pipelines.extensions.sql_select.aggregate_calls import (
    AggregateCall,
    bare,
    call,
    is_aggregate,
    refuse_aggregates,
    refuse_unknown,
    stem_of,
)
from dp_pipelines.extensions.sql_select.clips import Clips
from dp_pipelines.extensions.sql_select.computed import is_computed, is_total, metric
from dp_pipelines.extensions.sql_select.released_columns import ReleasedColumns
from dp_pipelines.extensions.sql_select.syntax import Node, SelectStatement
from dp_pipelines.jobs.sql.parse_tree import without_places

Path = tuple[str | int, ...]

NOT_A_TABLE: Mapping[str, tuple[str, str]] = {
    "JOIN": ("joins tables", "join a public table with lookup: in a job file"),
    "SUBQUERY": ("reads from a subquery", "write one SELECT over the rows"),
    "TABLE_FUNCTION": ("reads from a table function", "name the files: FROM 'data/*.parquet'"),
    "EMPTY": ("has no FROM", "name the rows: FROM source in a job file, FROM 'data/*.parquet' in a command"),
    "EXPRESSION_LIST": ("reads from VALUES", "name files"),
    "PIVOT": ("uses PIVOT", "write one SELECT over the rows"),
}
OTHER_ITEMS: Mapping[str, tuple[str, str]] = {
    "STAR": ("selects *", "name the columns to group by and the aggregates to release"),
    "WINDOW": (
        "uses a window function",
        "rows of one unit: unit_columns: in a job file; released numbers: compute with the output",
    ),
    "SUBQUERY": ("holds a subquery", "write one SELECT over the rows"),
    "GROUPING_FUNCTION": (
        "uses GROUPING",
        "drop it: the column level of the published table says which groups a row is of",
    ),
    "LAMBDA": ("holds a lambda", "use functions of one row"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatementParts:
    """What a statement says, as a job file would.

    Args:
        table: what FROM names.
        where: the condition on rows, or None.
        columns: that the job defines.
        stage: keys of the stage.
        said: what options of the statement say of the job, by its path in the job or, after "stage", in the stage.
        places: from a path in the stage, or from ("where",) and ("columns", name), to the first character that says it.
        text: the statement.
    """

    table: str
    where: str | None
    columns: Mapping[str, str]
    stage: Mapping[str, Any]
    said: Mapping[Path, Any]
    places: Mapping[Path, int | None]
    text: str

    def error(self, path: Path, message: str, hint: str = "") -> syntax.StatementError:
        """An error about what says a path."""
        return syntax.StatementError(message, hint, offset=self.places.get(path), text=self.text)


def read(
    text: str,
    *,
    unit: Sequence[str],
    clips: Mapping[str, Any] = MappingProxyType({}),
    settings: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    params: Collection[str] = (),
) -> StatementParts:
    """What a job file would say.

    Args:
        text: the statement; BigQuery's clause for differential privacy may stand in it.
        unit: the columns of the privacy unit; empty where the statement's clause names it.
        clips: the range of values by column, or by the name of a metric.
        settings: what else each metric says, by name.
        params: names of the job's parameters.

    Raises:
        StatementError: something is not understood, or means something else.
        RequestError: a clip is wrong.

    >>> parts = read("SELECT region, count(*) AS orders FROM source GROUP BY ALL", unit=["customer"])
    >>> parts.stage
    {'partition_by': ['region'], 'metrics': {'orders': {'kind': 'count'}}}
    """
    plain, clause = bigquery.without_clause(text)
    try:
        statement = syntax.parse(plain, params, text)
        return _Reading(statement, clause, unit, Clips(clips, settings)).parts()
    except RecursionError:
        raise syntax.StatementError(syntax.DEEP, "split it", offset=None, text=text) from None


def table_of(text: str) -> str:
    """What FROM names.

    Args:
        text: the statement.

    Raises:
        StatementError: it is no single SELECT over one table.

    >>> table_of("SELECT count(*) FROM 'data/*.parquet'")
    'data/*.parquet'
    """
    plain, clause = bigquery.without_clause(text)
    try:
        statement = syntax.parse(plain, (), text)
    except RecursionError:
        raise syntax.StatementError(syntax.DEEP, "split it", offset=None, text=text) from None
    return _Reading(statement, clause, [], Clips({}, {})).table()


class _Reading:
    """Takes a statement apart."""

    def __init__(
        self, statement: SelectStatement, clause: "bigquery.Clause | None", unit: Sequence[str], clips: Clips
    ) -> None:
        self.statement, self.node = statement, statement.node
        self.said: dict[Path, Any] = {}
        self.places: dict[Path, int | None] = {}
        self.clause = clause is not None
        for path, value, offset in clause.said(statement) if clause is not None else ():
            self.said[path], self.places[path] = value, offset
        self.unit = list(unit) or list(self.said.get(("privacy_unit",), []))
        self.clips = clips
        self.columns: dict[str, str] = {}

    def parts(self) -> StatementParts:
        """All of it."""
        self._check_form()
        known = {"modifiers", "select_list", "from_table", "where_clause", "group_expressions", "group_sets"}
        nothing: dict[str, Any] = {"cte_map": ({"map": []},), "sample": (None,), "qualify": (None,)}
        syntax.fields(self.statement, self.node, {*known, "aggregate_handling", "having"}, nothing)
        self._check_modifiers()
        table = self.table()
        self._refuse_prefixes(self.node)
        keys, calls, computed = self._items()
        levels = self._check_groups(keys)
        if not keys:  # a unit can be in one group alone: any limit holds
            self.said.pop(("stage", "bounds", "max_partitions_contributed"), None)
        stage: dict[str, Any] = {"partition_by": [name for name, _ in keys]}
        for name, node in keys:
            self.places.setdefault(("partition_by",), self.statement.offset(node))
            self.places["columns", name] = self.statement.offset(node)
        if levels:
            stage["rollup"], self.places[("rollup",)] = levels, self.places.get(("partition_by",))
        selected = [(name, found.node) for name, found in calls]
        stage["metrics"] = {name: self._metric(name, found) for name, found in calls}
        stage["metrics"] |= {name: self._computed(name, node, selected) for name, node in computed}
        self.clips.refuse_unused([found.column for _, found in calls if found.column], list(stage["metrics"]))
        released = ReleasedColumns(
            self.statement, keys, selected, self.node["select_list"], [name for name, _ in computed]
        )
        if self.node["having"] is not None:
            stage["having"] = released.condition(self.node["having"])
            self.places[("having",)] = self.statement.offset(self.node["having"])
        for modifier in self.node["modifiers"]:
            self._modifier(modifier, released, stage)
        where = self._where()
        return StatementParts(
            table=table, where=where, columns=self.columns, stage=stage, said=self.said, places=self.places,
            text=self.statement.text,
        )  # fmt: skip

    def _check_form(self) -> None:
        if self.node.get("type") != "SELECT_NODE":
            words = {"SET_OPERATION_NODE": "combines several SELECTs", "RECURSIVE_CTE_NODE": "uses WITH RECURSIVE"}
            message = words.get(str(self.node.get("type")), "is no plain SELECT")
            raise self.statement.error(self.node, message, "write one statement for each stage")

    def table(self) -> str:
        """What FROM names."""
        self._check_form()
        node = self.node["from_table"]
        form = str(node.get("type"))
        if form != "BASE_TABLE":
            message, hint = NOT_A_TABLE.get(form, ("reads from something that is no table", "name the rows"))
            raise self.statement.error(node, message, hint)
        nothing: dict[str, Any] = {
            "sample": (None,),
            "column_name_alias": ([],),
            "at_clause": (None,),
            "qualified_name": None,
        }
        names = {"table_name", "schema_name", "catalog_name"}
        if not self.clause:  # BigQuery's tables have projects and datasets
            nothing |= {"schema_name": ("",), "catalog_name": ("",)}
            names = {"table_name"}
        syntax.fields(self.statement, node, names, nothing)
        self.places[("table",)] = self.statement.offset(node)
        self.prefixes = {str(node["table_name"]), str(node.get("alias", ""))} - {""}
        name = ".".join(str(part) for part in (node["catalog_name"], node["schema_name"], node["table_name"]) if part)
        span = self.statement.span(node)
        written = self.statement.text[span[0] : span[1]] if span is not None and "{" in self.statement.text else ""
        # Braces of parameters inside the quotes of a file's name stand as they were written.
        return written[1:].partition("'")[0] if written.startswith("'") and "{" in written else name

    def _refuse_prefixes(self, node: Any) -> None:
        if isinstance(node, Mapping):
            names = node.get("column_names", []) if node.get("class") == "COLUMN_REF" else []
            if len(names) > 1 and names[0] in self.prefixes:
                raise self.statement.error(
                    node, "names a column with its table", f"write {names[-1]}: there is one table"
                )
            for below in node.values():
                self._refuse_prefixes(below)
        elif isinstance(node, list):
            for below in node:
                self._refuse_prefixes(below)

    def _items(self) -> tuple[list[tuple[str, Node]], list[tuple[str, AggregateCall]], list[tuple[str, Node]]]:
        """Keys, aggregates and what is computed from these, each with its name."""
        keys: list[tuple[str, Node]] = []
        calls: list[tuple[str, AggregateCall]] = []
        computed: list[tuple[str, Node]] = []
        self.named = _columns(self.node["select_list"]) | _columns(self.node["where_clause"])
        for item in self.node["select_list"]:
            form = str(item.get("class"))
            if (form in OTHER_ITEMS or item.get("type") in OTHER_ITEMS) and not (is_total(item) and is_computed(item)):
                raise self.statement.error(item, *OTHER_ITEMS.get(form, OTHER_ITEMS.get(item["type"], ("", ""))))
            if is_aggregate(item):
                found = call(self.statement, item, self.unit, clause=self.clause)
                calls.append((item.get("alias") or found.stem, found))
            elif is_computed(item):
                computed.append((str(item.get("alias") or ""), item))
            else:
                keys.append((self._key(item), item))
        taken: dict[str, Node] = {}
        for name, node in (*keys, *((name, found.node) for name, found in calls), *computed):
            if name in taken:
                raise self.statement.error(
                    node, f"has the name of another column that is selected: {name!r}", "name it with AS"
                )
            taken[name] = node
        return keys, calls, computed

    def _key(self, item: Node) -> str:
        """The name of a column to group by, which is defined where it is no column of the rows."""
        column, alias = bare(item), item.get("alias") or ""
        if item.get("class") == "CONSTANT":
            raise self.statement.error(item, "selects a constant", "name columns to group by, and aggregates")
        if column is not None and alias in ("", column):
            return column
        refuse_unknown(self.statement, item)
        refuse_aggregates(self.statement, item)
        text = spelling.spelled(self.statement, item)
        name = str(alias) or self._free(stem_of(text))
        if name in self.named:
            message = f"gets the name of a column that the statement reads: {name!r}"
            raise self.statement.error(item, message, "give it another name with AS")
        self._define(name, text, item)
        return name

    def _define(self, name: str, text: str, node: Node) -> None:
        self.columns[name] = text
        self.places["columns", name] = self.statement.offset(node)

    def _free(self, stem: str) -> str:
        name, number = stem, 2
        while name in self.named or name in self.columns:
            name, number = f"{stem}_{number}", number + 1
        return name

    def _metric(self, name: str, found: AggregateCall) -> dict[str, Any]:
        """The metric of a call; what it reads is defined where it is no column."""
        metric: dict[str, Any] = {"kind": found.kind}
        path: Path = ("metrics", name)
        self.places[path] = self.statement.offset(found.node)
        if found.rows is not None:
            self._say_rows(found, found.rows)
        if found.reads is not None:
            metric["column"] = found.column or self._column(name, found)
        metric |= found.settings
        if found.bounded:
            metric |= self.clips.of(self.statement, found, name, str(metric["column"]))
        return {**metric, **self.clips.settings_of(name, metric)}

    def _computed(self, name: str, node: Node, selected: Sequence[tuple[str, Node]]) -> dict[str, Any]:
        """What is computed from released numbers."""
        self.places["metrics", name] = self.statement.offset(node)
        said = metric(self.statement, node, selected)
        return {**said, **self.clips.settings_of(name, said)}

    def _column(self, name: str, found: AggregateCall) -> str:
        """The column that an expression is: that of an equal one, or a new one."""
        text = str(found.reads)
        tree = spelling.tree_of_text(text)
        for known, other in self.columns.items():
            if other == text or (tree is not None and spelling.tree_of_text(other) == tree):
                return known
        chosen = name if name not in self.named and name not in self.columns else self._free(stem_of(text))
        self._define(chosen, text, found.node)
        return chosen

    def _say_rows(self, found: AggregateCall, rows: int) -> None:
        path: Path = ("stage", "bounds", "max_contributions_per_partition")
        if self.said.setdefault(path, rows) != rows:
            hint = "write the same range in each: it says how many rows of one unit in one group are kept"
            raise self.statement.error(found.node, "counts with another range than the count before it", hint)
        self.places.setdefault(path, self.statement.offset(found.node))

    def _check_groups(self, keys: Sequence[tuple[str, Node]]) -> list[list[str]]:
        """GROUP BY names each key that is selected, and nothing else; the levels of its sets, if it has several."""
        groups = self.node["group_expressions"]
        if self.node["aggregate_handling"] not in ("STANDARD_HANDLING", "FORCE_AGGREGATES"):
            raise self.statement.error(self.node, "groups in a way that is not supported", "write GROUP BY ALL")
        if self.node["aggregate_handling"] == "FORCE_AGGREGATES":
            return []
        missing = {id(node): node for _, node in keys}
        found = [self._grouped(group, keys) for group in groups]
        for node in found:
            missing.pop(id(node), None)
        for node in missing.values():
            name = spelling.spelled(self.statement, node)
            hint = "add GROUP BY ALL, or put it into an aggregate"
            raise self.statement.error(node, f"is not in GROUP BY and is no aggregate: {name}", hint)
        names = {id(node): name for name, node in keys}
        listed = [names[id(node)] for node in found]
        return grouping_sets.levels(self.statement, groups, listed, [name for name, _ in keys], clause=self.clause)

    def _grouped(self, group: Node, keys: Sequence[tuple[str, Node]]) -> Node:
        """The key that an entry of GROUP BY names: by its place, its name or its text."""
        if group.get("class") == "CONSTANT":
            at = constants.whole(self.statement, group, "a place in SELECT")
            items = self.node["select_list"]
            found = items[at - 1] if at <= len(items) else None
            if found is None or all(found is not node for _, node in keys):
                message = f"is not the place of a column to group by: {at}"
                raise self.statement.error(group, message, "count from 1 in SELECT, and leave aggregates out")
            key: Node = found
            return key
        for _, node in keys:
            if without_places(node, aliases=False) == without_places(group, aliases=False):
                return node
        column = (bare(group) or "").casefold()
        alike = [node for name, node in keys if name.casefold() == column]
        if len(alike) == 1:
            return alike[0]
        refuse_aggregates(self.statement, group)
        text = spelling.spelled(self.statement, group)
        hint = "add it to SELECT: the published table says of each row which group it is"
        raise self.statement.error(group, f"groups by what is not selected: {text}", hint)

    def _where(self) -> str | None:
        condition = self.node["where_clause"]
        if condition is None:
            return None
        refuse_aggregates(self.statement, condition)
        self.places[("where",)] = self.statement.offset(condition)
        return spelling.spelled(self.statement, condition)

    def _check_modifiers(self) -> None:
        words = {"DISTINCT_MODIFIER": ("uses DISTINCT", "write GROUP BY ALL: each group is published once")}
        for modifier in self.node["modifiers"]:
            form = str(modifier.get("type"))
            if form not in ("ORDER_MODIFIER", "LIMIT_MODIFIER"):
                message, hint = words.get(form, ("uses a form that is not known", ""))
                raise self.statement.error(self.node["select_list"][0], message, hint)

    def _modifier(self, modifier: Node, released: ReleasedColumns, stage: dict[str, Any]) -> None:
        """ORDER BY and LIMIT."""
        if modifier["type"] == "ORDER_MODIFIER":
            syntax.fields(self.statement, modifier, {"orders"}, {})
            stage["order_by"] = [released.order(order) for order in modifier["orders"]]
            self.places[("order_by",)] = self.statement.offset(modifier["orders"][0]["expression"])
            return
        if "order_by" not in stage:
            hint = "add ORDER BY, e.g. ORDER BY 2 DESC: it says which rows are the first"
            raise self.statement.error(modifier["limit"], "needs ORDER BY: LIMIT", hint)
        syntax.fields(self.statement, modifier, {"limit"}, {"offset": (None,), "limit_type": ("ROW_COUNT",)})
        stage["limit"] = constants.whole(self.statement, modifier["limit"], "LIMIT")
        self.places[("limit",)] = self.statement.offset(modifier["limit"])


def _columns(node: Any) -> set[str]:
    """The first names of all columns below a part."""
    if isinstance(node, list):
        return {name for below in node for name in _columns(below)}
    if not isinstance(node, Mapping):
        return set()
    own = {str(node["column_names"][0])} if node.get("class") == "COLUMN_REF" else set()
    return own.union(*(_columns(below) for below in node.values()))
