"""The text of a part of a statement, as its author wrote it where that is possible.

In: a statement and a part of its tree, whole or with other columns in place of some parts. Out: SQL of one expression. Holds: the
text is read again by itself, and its tree is that of the part; where no piece of the text is, DuckDB writes it anew. Not covered:
what may stand in an expression (`jobs.sql`, when the job is checked).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dp_pipelines.extensions.sql_select import syntax
from dp_pipelines.extensions.sql_select.syntax import Node, SelectStatement
from dp_pipelines.jobs.sql.parse_tree import without_places

MOST_BRACKETS = 8
"""Brackets around a part that belong to it."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_PARAMETER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")
_DOLLAR = re.compile(r"\$([A-Za-z][A-Za-z0-9_]*)")


def spelled(statement: SelectStatement, node: Node, columns: Mapping[int, str] | None = None) -> str:
    """The SQL of a part of a statement.

    Args:
        statement: the statement.
        node: the part.
        columns: by the id of a part below it the column that stands for that part.

    >>> statement = syntax.parse("SELECT (price*2)::INT AS x, count(*) FROM t WHERE (a > 1) OR b")
    >>> spelled(statement, statement.node["select_list"][0]), spelled(statement, statement.node["where_clause"])
    ('(price*2)::INT', '(a > 1) OR b')
    """
    columns = columns or {}
    wanted = replaced(node, columns)
    for piece in _pieces(statement, node, columns):
        if _reads_as(piece, wanted):
            return piece
    return _with_braces(syntax.text_of_tree(wanted), statement)


def quoted(name: str) -> str:
    """A column's name as an expression.

    >>> quoted("week"), quoted("the week")
    ('week', '"the week"')
    """
    if _WORD.match(name) and _reads_as(name, {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [name]}):
        return name
    return '"' + name.replace('"', '""') + '"'


def replaced(node: Any, columns: Mapping[int, str]) -> Any:
    """A tree with columns in place of some of its parts."""
    if isinstance(node, Mapping):
        if id(node) in columns:
            return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [columns[id(node)]]}
        return {key: replaced(value, columns) for key, value in node.items()}
    return [replaced(item, columns) for item in node] if isinstance(node, list) else node


def _pieces(statement: SelectStatement, node: Node, columns: Mapping[int, str]) -> Iterator[str]:
    """Pieces of the text that may be the part: what it spans, and with brackets around it."""
    span = statement.span(node)
    if span is None:
        return
    text, (start, end) = statement.text, span
    inside = [(at, name) for part, name in _named(node, columns) if (at := statement.span(part)) is not None]
    for left, right in _around(text, start, end):
        piece, last = "", left
        for (first, after), name in sorted(inside):
            piece += text[last:first] + quoted(name)
            last = after
        yield (piece + text[last:right]).strip()


def _named(node: Any, columns: Mapping[int, str]) -> Iterator[tuple[Node, str]]:
    if isinstance(node, Mapping):
        if id(node) in columns:
            yield node, columns[id(node)]
            return
        for below in node.values():
            yield from _named(below, columns)
    elif isinstance(node, list):
        for below in node:
            yield from _named(below, columns)


def _around(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Places from which to which a part may stand: what it spans, and ever more brackets on its left, its right or both."""
    lefts, rights = [start], [end]
    while len(lefts) <= MOST_BRACKETS and (before := text[: lefts[-1]].rstrip()).endswith("("):
        lefts.append(len(before) - 1)
    while len(rights) <= MOST_BRACKETS and (rest := text[rights[-1] :].lstrip()).startswith(")"):
        rights.append(len(text) - len(rest) + 1)
    for size in range(len(lefts) + len(rights) - 1):
        yield from ((lefts[i], rights[size - i]) for i in range(len(lefts)) if 0 <= size - i < len(rights))


def tree_of_text(piece: str) -> Any:
    """The tree of a text that is one expression, without places; None where it is something else.

    >>> tree_of_text("price*2") == tree_of_text("(price * 2)"), tree_of_text("1) FROM t WHERE (a")
    (True, None)
    """
    tree = syntax.tree_of(f"SELECT (\n{_PARAMETER.sub(_dollar, piece)}\n)")
    if tree.get("error") or len(tree["statements"]) != 1:
        return None
    node = tree["statements"][0]["node"]
    plain = node.get("from_table", {}).get("type") == "EMPTY" and not node.get("modifiers") and not node["where_clause"]
    items = node.get("select_list", [])
    return without_places(items[0], aliases=False) if plain and len(items) == 1 else None


def _reads_as(piece: str, wanted: Any) -> bool:
    """Whether a piece of text alone is one expression with this tree."""
    return bool(tree_of_text(piece) == without_places(wanted, aliases=False))


def _dollar(found: re.Match[str]) -> str:
    return f"${found[1]} "


def _with_braces(text: str, statement: SelectStatement) -> str:
    """The text with parameters as job files name them."""
    if statement.parsed == statement.text:
        return text
    return _DOLLAR.sub(lambda found: "{" + found[1] + "}", text)
