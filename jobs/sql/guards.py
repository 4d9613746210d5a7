"""Keeps the work for a row in proportion to its bytes: rewrites or refuses parts of expressions, and limits how texts grow.

In: the tree of an expression that `whitelist` has let through, its constants. Out: the tree that runs, and a bound on the bytes
of its value. Holds: refusals depend on the text alone; a rewritten part gives null on a row that would take more than time
proportional to its bytes, and is otherwise unchanged (tests/jobs/sql/test_hostile_rows.py measures every function).
Not covered: which functions are allowed (`functions`).
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

import duckdb

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.sql import functions, row_calculator, whitelist
from dp_pipelines.jobs.sql.whitelist import Node

MOST_GROWTH = 4096
"""How many times longer than its input a text may become."""

LONGEST_REPLACED = 1024
"""The longest text, in bytes, in which every match of any pattern is replaced."""

LONGEST_PATTERN = 1000
"""The most characters of a regular expression."""

_NUMBER, _DIGEST = 48, 64
"""The most bytes of a number or a time written as text, and of a digest."""

_DIGESTS = frozenset({"sha256", "md5"})
_SEEN = "__dp_seen"
_ONE_CLASS = re.compile(r"(\\[dDwWsS]|\.|\[\^?\]?[^\[\]\\]*\]|[^\\\[\](){}|.*+?^$])[+*]")
_IN_RANGE = f"({_SEEN}) + INTERVAL 0 SECOND"
_SHORT = f"list_filter([{_SEEN}], lambda __dp_text: strlen(__dp_text) <= {LONGEST_REPLACED})[1]"
_FEW_MARKS = rf"list_filter([{_SEEN}], lambda __dp_text: NOT regexp_matches(__dp_text, '\p{{M}}{{31}}'))[1]"
_TEXT_TYPES = frozenset(["VARCHAR", "CHAR", "BPCHAR", "TEXT", "STRING", "BLOB", "BYTEA", "BINARY", "VARBINARY"])
_MAKES_TIME = frozenset({"make_timestamp", "make_timestamp_ms", "epoch_ms", "to_timestamp"})
_PATTERNS = frozenset({"regexp_replace", "regexp_matches", "regexp_full_match", "regexp_extract"})
_JSON = frozenset({"json_extract", "json_extract_string", "->>"})
_JSON_PATH = re.compile(
    r"""
    \$ (?: \. (?: [^.*"\\\[\]]+ | "[^*"\\]+" | \* )      # $.key  $."other key"  $.*
        | \[ (?: [0-9]+ | \#(?:-[0-9]+)? | \* ) \]        # $[0]  $[#-1]  $[*]
        )*
    | (?: / [^/*"\\]* )+                                 # /key/0
    | (?: [^$/.*"\\\[\]]+ (?: \. [^$/.*"\\\[\]]+ )* )?    # a single key, or a position
    """,
    re.VERBOSE,
)
"""All paths into JSON that are accepted. Two values that such a path finds never overlap, so together they are no longer than
the text; DuckDB's `..` and `**` find a value and again what is inside it."""
_TIMES: dict[str, int] = {
    **dict.fromkeys(("lower", "upper", "lcase", "ucase", "nfc_normalize", "strip_accents"), 3),
    **dict.fromkeys(("hex", "to_hex", "to_base64", "base64"), 2),
    **dict.fromkeys(_JSON, 6),
    "translate": 4,
}
"""How many times longer some functions may make a text."""


@dataclasses.dataclass(frozen=True)
class TypingContext:
    """The connection that types the parts of an expression and evaluates its constants.

    Args:
        connection: has the columns that the expression names registered.
        values: the values of the parameters.
    """

    connection: duckdb.DuckDBPyConnection
    values: Mapping[str, Value]

    def text(self, node: Node) -> str:
        """The value of a constant part, as text."""
        sql = f"SELECT {row_calculator.unparse(self.connection, node)}"
        return str(row_calculator.query(self.connection, sql, self.values).column(0)[0].as_py())

    def is_time(self, node: Node) -> bool:
        """Whether a part gives timestamps."""
        sql = f"SELECT typeof({row_calculator.unparse(self.connection, node)}) FROM {row_calculator.TABLE}"  # noqa: S608 - checked by sql_tree
        return str(row_calculator.query(self.connection, sql, self.values).column(0)[0]).startswith("TIMESTAMP")


def guarded(root: Node, bound: TypingContext) -> Node:
    """The tree that runs instead.

    Args:
        root: a tree that `whitelist.check` accepted.
        bound: types its parts.

    Raises:
        RequestError: with an empty field; the work of a pattern or a path is not bounded by a row's length.
    """
    found: Node = _guarded(root, bound)
    return found


def _guarded(node: Any, bound: TypingContext) -> Any:
    if isinstance(node, list):
        return [_guarded(item, bound) for item in node]
    if not isinstance(node, dict):
        return node
    below = {key: _guarded(value, bound) for key, value in node.items()}
    if node.get("class") != "FUNCTION":
        return below
    # DuckDB has bound the expression: a function has as many arguments as it needs.
    name, arguments = node["function_name"].lower(), whitelist.parts(node)
    if name in _PATTERNS and len(bound.text(arguments[1])) > LONGEST_PATTERN:
        raise _refused(f"gives {name!r} a pattern of more than {LONGEST_PATTERN} characters", "split it")
    if name in _JSON and not _JSON_PATH.fullmatch(bound.text(arguments[1])):
        message = f"gives {name!r} a path other than keys, positions and single *: its values can overlap"
        raise _refused(message, """write the path out, e.g. '$.key."other key"[0]'""")
    if name in _MAKES_TIME and bound.is_time(node):
        return _put(_parsed(_IN_RANGE), below)
    if name == "nfc_normalize":
        return _inside(_FEW_MARKS, below)
    if name == "regexp_replace" and _everywhere(arguments, bound) and _looks_far(bound.text(arguments[1])):
        return _inside(_SHORT, below)
    return below


def _everywhere(arguments: list[Node], bound: TypingContext) -> bool:
    """Whether every match is replaced."""
    return len(arguments) > 3 and "g" in bound.text(arguments[3])


def _looks_far(pattern: str) -> bool:
    r"""Whether each of many matches may read to the end of the text.

    Not so if matches have a largest length; and a single repeated class of characters reads no further than its match.

    >>> [_looks_far(pattern) for pattern in (r"\s+", "[,;]", "<.*?>|<")]
    [False, False, True]
    """
    return bool(set(pattern) & set("*+{")) and not _ONE_CLASS.fullmatch(pattern)


def _inside(template: str, node: Node) -> Node:
    """The function over its first argument, which becomes null where the template rejects it."""
    first, *others = node["arguments"]
    return {**node, "arguments": [{**first, "expression": _put(_parsed(template), first["expression"])}, *others]}


@functools.cache
def _parsed(template: str) -> Node:
    connection = row_calculator.checking_connection()
    node: Node = row_calculator.parse(connection, f"SELECT {template}")["statements"][0]["node"]["select_list"][0]
    return node


def _put(template: Any, node: Node) -> Any:
    """The template with a node in place of its column."""
    if isinstance(template, list):
        return [_put(item, node) for item in template]
    if not isinstance(template, dict):
        return template
    if template.get("class") == "COLUMN_REF" and template["column_names"] == [_SEEN]:
        return node
    return {key: _put(value, node) for key, value in template.items()}


@dataclasses.dataclass(frozen=True)
class Growth:
    """A bound on the bytes of a value: `times` the bytes of the row, plus `more`."""

    times: int
    more: int

    def __add__(self, other: "Growth") -> "Growth":
        return Growth(self.times + other.times, self.more + other.more)

    def __mul__(self, factor: int) -> "Growth":
        return Growth(self.times * factor, self.more * factor)


def growth(node: Node, bound: TypingContext) -> Growth:
    """How long the value of an expression may be.

    Raises:
        RequestError: with an empty field; the value may be more than `MOST_GROWTH` times longer than its input.
    """
    found = _growth(node, bound)
    if found.times > MOST_GROWTH:
        message = f"can make a text more than {MOST_GROWTH} times as long as its input"
        raise _refused(message, "use shorter replacements, or fewer of them")
    return found


def _growth(node: Node, bound: TypingContext) -> Growth:
    kind = node["class"]
    if kind == "COLUMN_REF":
        return Growth(1, _NUMBER)
    parts = whitelist.parts(node)
    if not parts:
        return Growth(0, 64 if kind == "PARAMETER" else len(str(node.get("literal", node).get("text", "")).encode()))
    below = sum((_growth(part, bound) for part in parts), Growth(0, 0))
    if kind == "CAST":
        return below * 4 if whitelist.cast_to(node) in _TEXT_TYPES else Growth(0, _NUMBER)
    if kind != "FUNCTION":
        return below
    name = node["function_name"].lower()
    if name in ("lpad", "rpad"):
        return below + Growth(0, 4 * functions.MOST_PADDING)
    if name == "concat_ws":
        return below * len(parts)
    if name == "strftime":
        return below * 16
    if name == "replace":
        old, new = (len(bound.text(part).encode()) for part in parts[1:3])
        return _growth(parts[0], bound) * max(1, -(-new // max(old, 1)))
    if name == "regexp_replace":
        text, read = bound.text(parts[2]), _growth(parts[0], bound)
        longer = len(text.encode())
        found = read * (1 + text.count("\\")) + Growth(0, longer)
        return found + read * longer if _everywhere(parts, bound) else found
    return below * _TIMES.get(name, 1) + Growth(0, _DIGEST if name in _DIGESTS else 0)


def _refused(message: str, hint: str) -> RequestError:
    return RequestError(field="", message=message, hint=hint)
