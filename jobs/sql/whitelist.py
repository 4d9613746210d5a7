"""Decides which expressions are allowed: a whitelist over DuckDB's own parse tree.

In: DuckDB's parse tree of the very statement that will run. Out: what it uses (columns, parameters, constant parts), or an
error. Holds: whatever is not explicitly allowed is refused, down to the fields of a node, so forms that a later DuckDB adds are
refused too; only fields that are false, null or empty may be unknown. Parser and evaluator are the same, so they cannot read a
text differently. Not covered: types (`expressions` lets DuckDB bind the statement).
"""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.job_parameters import SQL_PREFIX
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.jobs.sql import functions
from dp_pipelines.jobs.sql.parse_tree import is_blank, unknown_field, unknown_node

Node = dict[str, Any]

_EVERYWHERE = {"class", "type", "alias", "query_location", "query_location_length"}
_PARTS: Mapping[str, tuple[str, ...]] = {
    "COMPARISON": ("left", "right"),
    "CONJUNCTION": ("children",),
    "BETWEEN": ("input", "lower", "upper"),
    "OPERATOR": ("children",),
    "CASE": ("case_checks", "else_expr"),
    "CAST": ("child",),
    "FUNCTION": ("arguments", "children"),
    "CONSTANT": (),
    "COLUMN_REF": (),
    "PARAMETER": (),
}
_TYPES: Mapping[str, Collection[str]] = {
    "COMPARISON": functions.COMPARISONS,
    "CONJUNCTION": {"CONJUNCTION_AND", "CONJUNCTION_OR"},
    "BETWEEN": {"COMPARE_BETWEEN"},
    "OPERATOR": functions.OPERATORS,
    "CASE": {"CASE_EXPR"},
    "CAST": {"OPERATOR_CAST"},
    "FUNCTION": {"FUNCTION"},
    "CONSTANT": {"VALUE_CONSTANT"},
    "COLUMN_REF": {"COLUMN_REF"},
    "PARAMETER": {"VALUE_PARAMETER"},
}
# The other fields that a node may have, which `_Walk` looks at.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "CAST": ("try_cast", "cast_type", "type_expr"),
    "FUNCTION": ("function_name", "qualified_name", "schema", "is_operator", "order_bys"),
    "CONSTANT": ("value", "literal"),
    "COLUMN_REF": ("column_names",),
    "PARAMETER": ("identifier",),
}
_STATEMENT = frozenset({"node", "named_param_map"})
_SELECT = frozenset({"type", "select_list", "from_table", "aggregate_handling"})
_TABLE = frozenset({"type", "table_name", "qualified_name", "query_location", "query_location_length"})
_TRY = _EVERYWHERE | {"children"}
_WORDS = """literal kind text value is_null cast_type type_expr type_info id width scale qualified_name path schema catalog
type_name children"""
_CONSTANT_OR_TYPE = _EVERYWHERE.union(_WORDS.split())
"""The only fields that may say something in the statement around the expressions, and in constants and types."""


@dataclasses.dataclass
class Uses:
    """What an expression uses.

    Args:
        columns: the columns' names as the schema spells them, in order of first use.
        params: how often each parameter appears.
        constants: constant parts that compute something, and may therefore fail.
        probes: (function, its constant arguments), tried before a row is read.
        compared: (column, text literal): the literal must fit the column's type.
    """

    columns: dict[str, None] = dataclasses.field(default_factory=dict)
    params: dict[str, int] = dataclasses.field(default_factory=dict)
    constants: list[Node] = dataclasses.field(default_factory=list)
    probes: list[tuple[str, list[Node]]] = dataclasses.field(default_factory=list)
    compared: list[tuple[str, Node]] = dataclasses.field(default_factory=list)


def select_items(tree: Any, table: str, aliases: list[str]) -> list[Node]:
    """The expressions of `SELECT TRY(..) AS alias, .. FROM table`, if the statement is exactly that.

    Raises:
        RequestError: the text of an expression reaches beyond its brackets.
    """
    statements = tree.get("statements", [])
    node = statements[0].get("node", {}) if len(statements) == 1 else {}
    source = node.get("from_table", {})
    items = node.get("select_list", [])
    plain = (
        node.get("type") == "SELECT_NODE"
        and node.get("aggregate_handling") == "STANDARD_HANDLING"
        and source.get("type") == "BASE_TABLE"
        and source.get("table_name") == table
        and not any(unknown_field(*part) for part in ((statements[0], _STATEMENT), (node, _SELECT), (source, _TABLE)))
        and [item.get("alias") for item in items] == aliases
        and all(item.get("type") == "OPERATOR_TRY" and len(item.get("children", [])) == 1 for item in items)
    )
    if not plain:
        raise RequestError(field="", message="must be one SQL expression", hint="write an expression, not a query")
    if unknown := next(filter(None, (unknown_field(item, _TRY) for item in items)), ""):
        raise _refused(f"holds a form that is not allowed: {unknown}", "only use functions of one row")
    return [item["children"][0] for item in items]


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownNames:
    """What an expression may name.

    Args:
        columns: the columns, as the source spells them.
        defined: the expressions of columns that the job file defines, by name; only used for a better message.
        absent: the problem with each column that only some files have.
        params: the declared parameters.
        released: whether they are columns of a released table, not of a source.
        quoted: what stands in double quotes, which name columns; for a better message only.
    """

    columns: Collection[str]
    defined: Mapping[str, str] = dataclasses.field(default_factory=dict)
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    params: Collection[str] = ()
    released: bool = False
    quoted: Collection[str] = ()


def check(root: Node, names: KnownNames) -> Uses:
    """Refuse what is not allowed, and list what the rest uses.

    Raises:
        RequestError: with an empty field; the caller knows where the expression stands.
    """
    walk = _Walk(names)
    try:
        if walk.visit(root) and _parts(root, root["class"]):
            walk.uses.constants.append(root)
    except RecursionError:
        raise _refused("is nested too deeply", "split it") from None
    return walk.uses


class _Walk:
    def __init__(self, names: KnownNames) -> None:
        self.names = names
        self.uses = Uses()

    def visit(self, node: Any) -> bool:
        """Check a node and everything below it; whether it names no column."""
        kind = str(node.get("class")) if isinstance(node, dict) else ""
        if kind not in _PARTS or (kind == "PARAMETER" and not str(node.get("identifier")).startswith(SQL_PREFIX)):
            form = functions.NOT_OF_ONE_ROW.get(kind) or f"a form that is not allowed: {unknown_node(node)}"
            raise _refused(f"holds {form}", "only use functions of one row")
        self._check_fields(node, kind)
        look = getattr(self, f"_look_{kind.lower()}", None)
        if look is not None:
            look(node)
        parts = _parts(node, kind)
        constant = [self.visit(part) for part in parts]
        if kind == "FUNCTION":
            self._check_arguments(node["function_name"].lower(), parts, constant)
        if kind == "COLUMN_REF":
            return False
        if all(constant):
            return True
        # The largest constant parts: those whose surroundings are not constant.
        self.uses.constants += [p for p, c in zip(parts, constant, strict=True) if c and _parts(p, p["class"])]
        return False

    def _check_fields(self, node: Node, kind: str) -> None:
        forbidden = next((words for field, words in _FORBIDDEN.items() if not is_blank(node.get(field))), "")
        unknown = unknown_field(node, _EVERYWHERE.union(_PARTS[kind], _FIELDS.get(kind, ())))
        if forbidden or unknown:
            raise _refused(
                f"holds {forbidden or f'a form that is not allowed: {unknown}'}", "only use functions of one row"
            )
        if node.get("alias") or node.get("type") not in _TYPES[kind]:
            raise _refused(f"holds a form that is not allowed: {unknown_node(node)}", "only use functions of one row")

    def _look_column_ref(self, node: Node) -> None:
        names = node["column_names"]
        column = self._resolve(names[0])
        self.uses.columns.setdefault(column)

    def _resolve(self, name: str) -> str:
        """The column that a name means: an exact match, or the only match that ignores case, as in SQL."""
        if name in self.names.columns:
            return name
        if name in self.names.absent:
            hint = "leave it out" if self.names.released else "give all files the same columns"
            raise _refused(f"names column {name!r}: {self.names.absent[name]}", hint)
        alike = [column for column in self.names.columns if column.casefold() == name.casefold()]
        if len(alike) == 1:
            return alike[0]
        if name in self.names.defined:
            hint = "columns and where only see the columns of the source: write the expression out"
            if (
                sql := self.names.defined[name]
            ).isprintable():  # one of several lines is not to be copied from a message
                hint += f", here ({sql})"
        elif alike:
            hint = "choose one of these, spelled exactly: " + ", ".join(map(repr, alike))
        else:
            hint = nearest(name, self.names.columns, "released columns" if self.names.released else "columns")
        if name in self.names.quoted and not hint.startswith("did"):
            hint = "text takes single quotes, and double quotes name a column; " + hint
        if name.lower() in functions.CLOCK and not self.names.released:
            raise _refused(f"uses {name}: {functions.NO_CLOCK}", functions.DAY_AS_PARAMETER)
        missing = "this stage does not release" if self.names.released else "the source does not have"
        raise _refused(f"names column {name!r}, which {missing}", hint)

    def _look_parameter(self, node: Node) -> None:
        name = node["identifier"].removeprefix(SQL_PREFIX)
        if name not in self.names.params:
            raise _refused(
                f"uses {{{name}}}, which params: does not declare", nearest(name, self.names.params, "declared")
            )
        self.uses.params[name] = self.uses.params.get(name, 0) + 1

    def _look_cast(self, node: Node) -> None:
        wanted, name = node.get("type_expr") or node.get("cast_type") or {}, cast_to(node)
        plain = not wanted.get("schema") and not wanted.get("catalog") and name in functions.TYPES
        if unknown := _unknown_below(wanted):
            raise _refused(f"casts to a type that is not plain: {unknown}", "cast e.g. to VARCHAR or DOUBLE")
        sizes = wanted.get("children") or []
        if not plain or not all(isinstance(size, dict) and size.get("class") == "CONSTANT" for size in sizes):
            raise _refused(
                f"casts to {name.lower() or 'a type'}, which is not a plain type", "cast e.g. to VARCHAR or DOUBLE"
            )

    def _look_constant(self, node: Node) -> None:
        if unknown := _unknown_below(node):
            raise _refused(f"holds a constant that is not allowed: {unknown}", "write a number or a text")

    def _look_function(self, node: Node) -> None:
        name = str(node["function_name"]).lower()
        path = node.get("qualified_name", {"path": [name]}).get("path")
        if node.get("schema") not in ("", "main") or [str(step).lower() for step in path or []][-1:] != [name]:
            raise _refused("calls a function with a schema prefix", "write only the name of the function")
        if name in functions.CLOCK and not self.names.released:
            raise _refused(f"uses {name}: {functions.NO_CLOCK}", functions.DAY_AS_PARAMETER)
        if name in functions.NOT_DETERMINISTIC:
            message = f"uses {name!r}, but functions must be deterministic: the same row always gives the same value"
            raise _refused(message, "use a column; in where also a parameter (params:)")
        if name not in functions.FUNCTIONS:
            hint = nearest(name, functions.FUNCTIONS)
            if self.names.released and name in functions.AGGREGATES:
                hint = "did you mean the metric? Name it as the stage does, e.g. orders > 50"
            hint = (
                hint if hint.startswith("did") else "only use functions of one row, such as lower, round or date_trunc"
            )
            raise _refused(f"uses {name!r}, which is not one of the allowed functions of one row", hint)
        if unknown_field(node.get("order_bys") or {}, {"type"}):
            raise _refused("holds ORDER BY, which belongs to aggregates", "only use functions of one row")
        for argument in node.get("arguments", []):
            if (
                not isinstance(argument, dict)
                or argument.get("name")
                or unknown_field(argument, {"name", "expression"})
            ):
                raise _refused("passes an argument by name, which is not allowed", "pass arguments by position")

    def _check_arguments(self, name: str, parts: list[Node], constant: list[bool]) -> None:
        wanted = functions.CONSTANT_ARGUMENTS.get(name, ())
        for position in wanted:
            if position < len(parts) and not constant[position]:
                raise _refused(
                    f"gives {name!r} a column where a constant is required (argument {position + 1})",
                    "write a constant",
                )
        if name in ("lpad", "rpad") and not _whole(parts[1:2]) <= functions.MOST_PADDING:
            most = functions.MOST_PADDING
            raise _refused(
                f"needs a whole number of at most {most} as the length of {name!r}", "write the number itself"
            )
        if name in functions.PROBES:
            given = [parts[position] for position in wanted if position < len(parts)]
            self.uses.probes.append((name, given))

    def _look_comparison(self, node: Node) -> None:
        self._note_compared([node["left"], node["right"]])

    def _look_between(self, node: Node) -> None:
        self._note_compared([node["input"], node["lower"], node["upper"]])

    def _look_operator(self, node: Node) -> None:
        if node["type"] in ("COMPARE_IN", "COMPARE_NOT_IN"):
            self._note_compared(node["children"])

    def _note_compared(self, sides: list[Node]) -> None:
        """Note text literals compared with a bare column: if one is not a value of the column's type, every row would fail."""
        bare = [s for s in sides if s.get("class") == "COLUMN_REF" and len(s.get("column_names", [])) == 1]
        texts = [s for s in sides if _is_text(s)]
        if len(bare) == 1 and len(bare) + len(texts) == len(sides):
            column = self._resolve(bare[0]["column_names"][0])
            self.uses.compared += [(column, text) for text in texts]


def _is_text(node: Node) -> bool:
    if node.get("class") != "CONSTANT":
        return False
    if "literal" in node:
        return bool(node["literal"].get("kind") == "STRING")
    value = node.get("value", {})
    return not value.get("is_null") and value.get("type", {}).get("id") == "VARCHAR"


def _whole(parts: list[Node]) -> float:
    """The value of a literal whole number; infinity for anything else."""
    node = parts[0] if parts else {}
    literal = node.get("literal", {})
    if literal.get("kind") == "INTEGER":
        return int(literal["text"]) if len(literal["text"]) < 10 else math.inf
    value = node.get("value", {}).get("value")
    return value if isinstance(value, int) else math.inf


def cast_to(node: Node) -> str:
    """The name of the type of a cast."""
    wanted = node.get("type_expr") or node.get("cast_type") or {}
    return str(wanted.get("type_name") or wanted.get("id") or "").upper().replace("_WITH_", " WITH ")


def parts(node: Node) -> list[Node]:
    """The expressions directly below a node that `check` accepted."""
    return _parts(node, node["class"])


def _parts(node: Node, kind: str) -> list[Node]:
    """The expressions directly below a node."""
    found: list[Node] = []
    for key in _PARTS[kind]:
        below = node.get(key)
        for part in below if isinstance(below, list) else [below]:
            if part is None:
                continue
            if kind == "CASE" and key == "case_checks":
                if unknown := unknown_field(part, {"when_expr", "then_expr"}):
                    raise _refused(
                        f"holds a form of CASE that is not allowed: {unknown}", "only use functions of one row"
                    )
                found += [part["when_expr"], part["then_expr"]]
            elif kind == "FUNCTION" and key == "arguments":
                found.append(part["expression"])
            else:
                found.append(part)
    return found


def _unknown_below(value: Any) -> str:
    """Name the first unknown field of a constant or a type, or of anything in it; "" if there is none."""
    if isinstance(value, list):
        return next(filter(None, map(_unknown_below, value)), "")
    if not isinstance(value, Mapping):
        return ""
    return unknown_field(value, _CONSTANT_OR_TYPE) or _unknown_below(list(value.values()))


def _refused(message: str, hint: str) -> RequestError:
    return RequestError(field="", message=message, hint=hint)


_FORBIDDEN = {
    "filter": "FILTER, which belongs to aggregates",
    "distinct": "DISTINCT, which belongs to aggregates",
    "catalog": "a function with a catalog prefix",
}
