"""A DuckDB that nobody has tried yet: fields of its parse tree that are off change nothing, and any other is refused by name."""

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sql import comparisons, expressions, row_calculator, whitelist
from dp_pipelines.jobs.sql.windows import unit_columns

SCHEMA = pa.schema(
    [
        ("customer", pa.int64()),
        ("a", pa.string()),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("paid", pa.decimal128(9, 2)),
    ]
)
EXPRESSIONS = (
    "x + 1 > 2",
    "lower(a) = 'b' AND NOT (x IS NULL)",
    "CASE WHEN x > 1 THEN 'high' ELSE 'low' END = 'low'",
    "x BETWEEN 1 AND 3 OR a IN ('p', 'q')",
    "CAST(paid AS DECIMAL(5, 1)) > 3",
    "date_trunc('week', day) = DATE '2026-01-05'",
)
WINDOWS = (
    "count(*) OVER ()",
    "sum(x) FILTER (WHERE a = 'p') OVER (PARTITION BY a ORDER BY day ROWS 2 PRECEDING)",
    "lag(x, 1) OVER (ORDER BY day DESC)",
)


def of_expression(sql: str) -> Any:
    bound = expressions.bind(sql, {"c": f"CASE WHEN {sql} THEN 1 END"}, SCHEMA, unit=["customer"], values={})
    return bound.where, bound.defined


def of_window(sql: str) -> Any:
    return unit_columns.bind({"w": sql}, None, SCHEMA, unit=["customer"], values={}).output_schema


def of_condition(sql: str) -> Any:
    return comparisons.read(sql, ["n"], ["a"], {})


WAYS: list[tuple[Callable[[str], Any], str]] = [
    *((of_expression, sql) for sql in EXPRESSIONS),
    *((of_window, sql) for sql in WINDOWS),
    (of_condition, "n >= 90"),
]
BLANK = (False, None, "", [], {"map": []})


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for below in tree.values():
            yield from nodes(below)
    elif isinstance(tree, list):
        for below in tree:
            yield from nodes(below)


def with_changes(
    parse: Callable[..., dict[str, Any]], change: Callable[[dict[str, Any]], Any]
) -> Callable[..., dict[str, Any]]:
    """Return a parser that changes each node of the trees that another gives."""

    def changed(*arguments: Any) -> dict[str, Any]:
        tree = parse(*arguments)
        for node in [] if tree.get("error") else list(nodes(tree["statements"])):
            change(node)
        return tree

    return changed


@pytest.fixture
def later_duckdb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[dict[str, Any]], Any]], None]:
    """A DuckDB whose trees have more: `later_duckdb(change)` changes each node that its parser gives."""

    def install(change: Callable[[dict[str, Any]], Any]) -> None:
        monkeypatch.setattr(row_calculator, "parse", with_changes(row_calculator.parse, change))

    return install


@pytest.mark.parametrize(("read", "sql"), WAYS)
@pytest.mark.parametrize("blank", BLANK)
def test_fields_that_are_off_change_nothing(
    read: Callable[[str], Any], sql: str, blank: Any, later_duckdb: Callable[..., None]
) -> None:
    before = read(sql)
    later_duckdb(lambda node: node.setdefault("is_from_the_future", blank))
    assert read(sql) == before


@pytest.mark.parametrize(("read", "sql"), WAYS)
@pytest.mark.parametrize("value", [True, 0, "on", ["x"], {"x": 1}])
def test_a_field_that_is_on_is_refused_with_the_type_of_its_node_and_the_version(
    read: Callable[[str], Any], sql: str, value: Any, later_duckdb: Callable[..., None]
) -> None:
    def change(node: dict[str, Any]) -> None:
        if "class" in node:
            node["is_from_the_future"] = value

    later_duckdb(change)
    with pytest.raises(RequestError) as error:
        read(sql)
    assert "field 'is_from_the_future' of a " in str(error.value)
    assert f" node of DuckDB {duckdb.__version__}" in str(error.value)


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_wherever_in_the_tree_of_an_expression_an_unknown_field_is_on_it_is_refused(sql: str) -> None:
    tree = row_calculator.parse(row_calculator.connect(), row_calculator.statement([sql]))
    names = whitelist.KnownNames(columns=SCHEMA.names)
    whitelist.check(whitelist.select_items(tree, row_calculator.TABLE, ["c0"])[0], names)
    for node in nodes(tree["statements"]):
        if set(node) == {"map"} or "path" in node:  # looked at as a whole
            continue
        node["is_from_the_future"] = True
        with pytest.raises(RequestError):
            whitelist.check(whitelist.select_items(tree, row_calculator.TABLE, ["c0"])[0], names)
        del node["is_from_the_future"]


@pytest.mark.parametrize("read", [of_expression, of_window])
def test_an_unknown_node_is_refused_with_its_type_and_the_version(
    read: Callable[[str], Any], later_duckdb: Callable[..., None]
) -> None:
    def change(node: dict[str, Any]) -> None:
        if node.get("class") == "FUNCTION" and node.get("function_name") == "lower":
            node["class"] = node["type"] = "MACRO_CALL"

    later_duckdb(change)
    with pytest.raises(RequestError, match=f"a MACRO_CALL node of DuckDB {duckdb.__version__}"):
        read("lower(a) = 'b'")
