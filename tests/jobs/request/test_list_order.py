"""Every list of a job file is one whose order means something or one whose order does not, and digests agree with that.

In: the JSON schema of job files. Out: its lists, by their keys. Holds: a new list is missed here until it is in one of the tables
of `list_order`. Not covered: what plans and releases make of the order (`tests/jobs/run/test_order_means_nothing.py`).
"""

from collections.abc import Iterator
from typing import Any

import pytest

from dp_pipelines import extensions
from dp_pipelines.jobs.request import list_order
from dp_pipelines.jobs.request.list_order import WITH_ORDER, WITHOUT_ORDER, Keys
from tests.helpers.extension_folders import needs
from tests.helpers.job_schema import SCHEMA

PAIRS_INSIDE: Keys = ("stages", "*", "pairs", "*")
"""Ordered together with the list around it."""

OF_EXTENSIONS: dict[str, list[Keys]] = {"sql_select": [("stages", "*", "clips", "*")]}
"""Lists in keys that extensions put others in place of: a lowest and a highest value."""


def lists_of(node: dict[str, Any], path: Keys = (), within: tuple[str, ...] = ()) -> Iterator[Keys]:
    """Yield the keys of all lists in a part of the schema, "*" for each name or entry."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name not in within:
            yield from lists_of(SCHEMA["$defs"][name], path, (*within, name))
    for form in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
        yield from lists_of(form, path, within)
    for key, value in node.get("properties", {}).items():
        yield from lists_of(value, (*path, key), within)
    others = node.get("additionalProperties")
    for value in (*node.get("patternProperties", {}).values(), *([others] if isinstance(others, dict) else [])):
        yield from lists_of(value, (*path, "*"), within)
    if node.get("type") == "array":
        yield path
        entries = [*node.get("prefixItems", ()), *([node["items"]] if isinstance(node.get("items"), dict) else [])]
        for entry in entries:
            yield from lists_of(entry, (*path, "*"), within)


WHOLE = [name for name in ("Job", "CollectedJob") if name in SCHEMA["$defs"]]
LISTS = sorted({path for name in WHOLE for path in lists_of({"$ref": f"#/$defs/{name}"})})


@needs("local_dp", "sql_select")
def test_every_list_of_the_schema_has_an_order_that_means_something_or_nothing() -> None:
    added = [path for name, paths in OF_EXTENSIONS.items() if extensions.has_folder(name) for path in paths]
    decided = {*WITHOUT_ORDER, *WITH_ORDER, PAIRS_INSIDE, *added}
    assert [path for path in LISTS if path not in decided] == []
    assert [path for path in decided if path not in LISTS] == []
    assert WITHOUT_ORDER.keys().isdisjoint(WITH_ORDER)


def test_a_list_that_nobody_has_decided_about_is_found() -> None:
    schema = {"properties": {"new": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "array"}}]}}}
    assert list(lists_of(schema)) == [("new",), ("new", "*")]


def placed(path: Keys, value: Any) -> Any:
    """A job with a value at a place."""
    for key in reversed(path):
        value = (
            [value] if key == "*" and path[path.index(key) - 1] == "lookup" else {"some" if key == "*" else key: value}
        )
    return value


@pytest.mark.parametrize("path", sorted({*WITHOUT_ORDER, *WITH_ORDER}), ids=".".join)
def test_exactly_the_lists_whose_order_means_nothing_are_sorted(path: Keys) -> None:
    listed = [["b", "a"], ["c", "a"]] if path[-1] == "pairs" else ["b", "a"]
    other = [list(reversed(part)) if isinstance(part, list) else part for part in reversed(listed)]
    if path[-1] == "*" and path not in WITHOUT_ORDER:
        assert list_order.without_order(placed(path, listed)) == placed(path, listed)
        return
    one, two = (list_order.without_order(placed(path, value)) for value in (listed, other))
    assert (one == two) is (path in WITHOUT_ORDER)
