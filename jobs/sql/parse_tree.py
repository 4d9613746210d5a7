"""How far DuckDB's parse trees are trusted: shared by every whitelist over one.

In: a field or a node that a whitelist does not know. Out: whether it can be ignored, or words that name it. Holds: a later DuckDB
may add fields that are off; whatever is on and unknown is refused, with the node's type and DuckDB's version. Not covered: what
known nodes mean (`whitelist`, `windows.window_whitelist`).
"""

import importlib.metadata
from collections.abc import Collection, Mapping
from typing import Any


def is_blank(value: Any) -> bool:
    """Return True if a field of the tree is off: false, null or empty. A number is never blank: 0 may mean something.

    >>> [is_blank(value) for value in (False, None, "", [], {"map": []})], [is_blank(value) for value in (True, 0, "x", [None])]
    ([True, True, True, True, True], [False, False, False, False])
    """
    if isinstance(value, Mapping):
        return all(map(is_blank, value.values()))
    return value is None or value is False or (isinstance(value, str | list) and not value)


def without_places(node: Any, *, aliases: bool = True) -> Any:
    """Return a tree without places and blank fields; two texts are the same expression if these are equal.

    Args:
        node: the tree.
        aliases: whether names that AS gives stay.

    >>> without_places({"type": "CONSTANT", "query_location": 7, "alias": "n", "is_lazy": False}, aliases=False)
    {'type': 'CONSTANT'}
    """
    if isinstance(node, Mapping):
        left_out = ("query_location",) if aliases else ("query_location", "alias")
        return {
            key: without_places(value, aliases=aliases)
            for key, value in node.items()
            if not key.startswith(left_out) and not is_blank(value)
        }
    return [without_places(item, aliases=aliases) for item in node] if isinstance(node, list) else node


def unknown_field(node: Mapping[str, Any], known: Collection[str]) -> str:
    """Name the first field that is neither known nor blank, with the type of its node and DuckDB's version; "" if there is none.

    >>> unknown_field({"class": "FUNCTION", "type": "FUNCTION", "is_lazy": True}, ["class", "type"]).partition(" of DuckDB")[0]
    "field 'is_lazy' of a FUNCTION node"
    >>> unknown_field({"class": "FUNCTION", "type": "FUNCTION", "is_lazy": False}, ["class", "type"])
    ''
    """
    for field, value in node.items():
        if field not in known and not is_blank(value):
            return f"field {field!r} of a {_type(node)} node of DuckDB {duckdb_version()}"
    return ""


def unknown_node(node: Any) -> str:
    """Name a node that no whitelist knows, with DuckDB's version.

    >>> unknown_node({"class": "FUNCTION", "type": "MACRO"}).partition(" of DuckDB")[0]
    'a MACRO node'
    """
    return f"a {_type(node)} node of DuckDB {duckdb_version()}"


def duckdb_version() -> str:
    """Return the version of DuckDB that is installed."""
    return importlib.metadata.version("duckdb")


def _type(node: Any) -> str:
    return str(node.get("type") or node.get("class")) if isinstance(node, Mapping) else "strange"
