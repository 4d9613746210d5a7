"""Tries expressions of each kind, to see whether the installed DuckDB answers as this program expects.

In: nothing. Out: the kinds that are refused or have another value. Holds: one expression for each kind of node that `whitelist`
knows, a window, and what extensions add; the rows are made up. Not covered: each function (`tests/packages` asks for every one).
"""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pyarrow as pa

from dp_pipelines.jobs.sql import expressions
from dp_pipelines.jobs.sql.windows import unit_columns

COLUMNS = {
    "COLUMN_REF": ("number", 7),
    "CONSTANT": ("'text'", "text"),
    "COMPARISON": ("number > 5", True),
    "CONJUNCTION": ("number > 5 AND number < 6", False),
    "BETWEEN": ("number BETWEEN 5 AND 9", True),
    "OPERATOR": ("number IN (5, 7)", True),
    "CASE": ("CASE WHEN number > 5 THEN 'more' ELSE 'less' END", "more"),
    "CAST": ("CAST(number AS VARCHAR)", "7"),
    "FUNCTION": ("lower(word) || '!'", "abc!"),
}
"""An expression over one row for each kind of node, and its value; `where` has the kind PARAMETER."""

Trial = tuple[Callable[[], object], object]
"""A function that reads an expression of some kind, and what it returns where DuckDB answers as expected."""

WHERE, PARAMETERS = "number >= {least}", {"least": 7}
WINDOW = "count(*) OVER (ORDER BY number)"


def unexpected(others: Mapping[str, Trial] = MappingProxyType({})) -> list[str]:
    """Return the kinds of expression that are refused, fail or have another value.

    Args:
        others: kinds of expression that extensions read, tried too.

    >>> unexpected()
    []
    """
    rows = pa.table({"unit": [1], "number": [7], "word": ["ABC"]})

    def column(sql: str, where: str | None = None) -> object:
        values = {} if where is None else PARAMETERS
        bound = expressions.bind(where, {"answer": sql}, rows.schema, unit=["unit"], values=values)
        return bound.apply(rows)["answer"].to_pylist()

    def window() -> object:
        bound = unit_columns.bind({"answer": WINDOW}, None, rows.schema, unit=["unit"], values={})
        return bound.apply(rows)["answer"].to_pylist()

    trials: dict[str, Trial] = {
        kind: (functools.partial(column, sql), [value]) for kind, (sql, value) in COLUMNS.items()
    }
    trials["PARAMETER"] = (functools.partial(column, "number", WHERE), [7])
    trials["WINDOW"] = (window, [1])
    trials |= others
    return [kind for kind, (answer, expected) in trials.items() if _tried(answer) != expected]


def _tried(answer: Callable[[], object]) -> object:
    """Return an answer, or the exception that came instead: a parse tree of another DuckDB can fail in many ways."""
    try:
        return answer()
    except Exception as error:
        return error
