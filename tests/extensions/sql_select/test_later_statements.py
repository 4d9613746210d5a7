"""Statements under a DuckDB that nobody has tried yet: fields that are off change nothing, and any other is refused by name."""

from typing import Any

import duckdb
import pytest

from dp_pipelines.extensions.sql_select import from_statement, syntax
from dp_pipelines.extensions.sql_select.from_statement import StatementParts
from dp_pipelines.extensions.sql_select.syntax import StatementError
from tests.jobs.sql.test_later_duckdb import BLANK, with_changes

STATEMENT = (
    "SELECT a, count(*) AS n, sum(x) AS total FROM source WHERE x > 0 GROUP BY a HAVING n > 5 ORDER BY n DESC LIMIT 3"
)


def read() -> StatementParts:
    return from_statement.read(STATEMENT, unit=["customer"], clips={"x": (0, 10)})


@pytest.mark.parametrize("blank", BLANK)
def test_fields_of_a_statement_that_are_off_change_nothing(blank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read()
    later = with_changes(syntax.tree_of, lambda node: node.setdefault("is_from_the_future", blank))
    monkeypatch.setattr(syntax, "tree_of", later)
    assert read() == before


@pytest.mark.parametrize("value", [True, 0, "on", ["x"], {"x": 1}])
def test_a_field_of_a_statement_that_is_on_is_refused_with_the_version(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(node: dict[str, Any]) -> None:
        if "class" in node:
            node["is_from_the_future"] = value

    monkeypatch.setattr(syntax, "tree_of", with_changes(syntax.tree_of, change))
    with pytest.raises(StatementError) as error:
        read()
    assert "field 'is_from_the_future' of a " in str(error.value)
    assert f" node of DuckDB {duckdb.__version__}" in str(error.value)
