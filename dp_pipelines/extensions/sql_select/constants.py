"""Constants of a statement: numbers, texts and lists of them that are written out.

In: a part of a statement's tree. Out: a value of Python; a whole number stays one, since the id of a run is made of what was
written. Holds: what is no plain constant is refused at its place. Not covered: which values make sense.
"""

from typing import Any

from dp_pipelines.extensions.sql_select.syntax import Node, SelectStatement


def value(statement: SelectStatement, node: Node, what: str) -> Any:
    """A number or a text that is written out.

    Args:
        statement: the statement.
        node: the part.
        what: it is, for the error: "the number of a quantile".

    Raises:
        StatementError: it is something else.

    >>> from dp_pipelines.extensions.sql_select.syntax import parse
    >>> statement = parse("SELECT -1, 0.5, 'a', (3) FROM t")
    >>> [value(statement, node, "an item") for node in statement.node["select_list"]]
    [-1, 0.5, 'a', 3]
    """
    literal = node.get("literal", {}) if node.get("class") == "CONSTANT" else {}
    text, read = literal.get("text", ""), _READERS.get(literal.get("kind", ""))
    if read is not None:
        return read(text)
    held = node.get("value", {}) if node.get("class") == "CONSTANT" else {}
    if held and not held.get("is_null") and isinstance(held.get("value"), str | int | float):
        return held["value"]
    if node.get("class") == "FUNCTION" and node["function_name"] == "-" and len(node["arguments"]) == 1:
        inner = value(statement, node["arguments"][0]["expression"], what)
        if not isinstance(inner, str):
            return -inner
    raise statement.error(node, f"must be written out: {what}", "write a plain number or text")


def number(statement: SelectStatement, node: Node, what: str) -> int | float:
    """A number that is written out. Arguments and errors as for `value`."""
    found = value(statement, node, what)
    if isinstance(found, str):
        raise statement.error(node, f"must be a number: {what}")
    assert isinstance(found, int | float)
    return found


def whole(statement: SelectStatement, node: Node, what: str, *, least: int = 1) -> int:
    """A whole number that is written out, at least so large. Arguments and errors as for `value`."""
    found = number(statement, node, what)
    if not isinstance(found, int) or found < least:
        raise statement.error(node, f"must be a whole number from {least}: {what}")
    return found


def listed(statement: SelectStatement, node: Node, what: str) -> list[Any] | None:
    """The values of `[...]`; None where the part is no list. Arguments and errors as for `value`."""
    if node.get("class") != "FUNCTION" or node["function_name"] != "list_value":
        return None
    return [value(statement, given["expression"], what) for given in node["arguments"]]


_READERS = {"INTEGER": int, "NUMERIC": float, "STRING": str}
