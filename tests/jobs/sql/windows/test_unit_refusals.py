"""Unit columns: what is refused, by public facts alone, and in which words.

In: definitions and conditions, attacks among them. Out: refusals with their place. Holds: a refused text never ran. Not covered:
what the rest gives (`test_unit_columns`, `test_unit_windows`).
"""

import datetime

import pyarrow as pa
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sql import row_calculator
from dp_pipelines.jobs.sql.windows import window_whitelist
from dp_pipelines.jobs.sql.windows.unit_columns import bind

END = datetime.date(2001, 1, 31)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.date32()),
        ("n", pa.int64()),
        ("amount", pa.float64()),
        ("item", pa.string()),
        ("geo", pa.struct([("country", pa.string())])),
        ("moment", pa.timestamp("us")),
        ("wide", pa.decimal128(30, 2)),
    ]
)


ATTACKS = """
(SELECT 1)
count(*) OVER (ORDER BY (SELECT 1))
sum((SELECT 1)) OVER ()
random()
lag(random()) OVER ()
row_number() OVER (ORDER BY now())
count(*) OVER (PARTITION BY today())
first_value(current_setting('TimeZone')) OVER ()
sum(sum(n) OVER ()) OVER ()
count(*) OVER (PARTITION BY row_number() OVER ())
string_agg(item, ',') OVER ()
list(n) OVER ()
arg_max(n, day) OVER ()
mode(n) OVER ()
median(amount) OVER ()
stddev(amount) OVER ()
product(n) OVER ()
any_value(n) OVER ()
ntile(4) OVER (ORDER BY n)
cume_dist() OVER (ORDER BY n)
percent_rank() OVER (ORDER BY n)
fill(n) OVER (ORDER BY day)
sum(DISTINCT n) OVER ()
count(*) OVER (ORDER BY day EXCLUDE CURRENT ROW)
count(*) OVER (ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES)
count(*) OVER (ORDER BY day GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)
sum(n ORDER BY day) OVER ()
main.sum(n) OVER ()
system.main.sum(n) OVER ()
first_value(n) FILTER (WHERE n > 1) OVER ()
count(*) FILTER (WHERE n) OVER ()
count(*) OVER (ORDER BY item COLLATE NOCASE)
count(*) OVER w
count(*) OVER (ORDER BY ALL)
lag(n, n) OVER ()
lag(n, -1) OVER ()
lag(n, 1.5) OVER ()
lag(n, 0 IGNORE NULLS) OVER ()
nth_value(n, 0) OVER ()
nth_value(n, day) OVER ()
lag(n, 99999999999999) OVER ()
count(*) OVER (ROWS n PRECEDING)
count(*) OVER (ROWS -1 PRECEDING)
count(*) OVER (ROWS 1.5 PRECEDING)
count(*) OVER (ORDER BY day RANGE n PRECEDING)
count(*) OVER (ORDER BY day RANGE INTERVAL 1 MONTH PRECEDING)
count(*) OVER (ORDER BY day RANGE INTERVAL 1 HOUR PRECEDING)
count(*) OVER (ORDER BY day RANGE INTERVAL '-1 day' PRECEDING)
count(*) OVER (ORDER BY day RANGE 1.5 PRECEDING)
count(*) OVER (ORDER BY n RANGE 1.5 PRECEDING)
count(*) OVER (ORDER BY n RANGE INTERVAL 1 DAY PRECEDING)
count(*) OVER (ORDER BY moment RANGE 1 PRECEDING)
count(*) OVER (ORDER BY wide RANGE 1 PRECEDING)
count(*) OVER (ORDER BY item RANGE 1 PRECEDING)
count(*) OVER (ORDER BY day, n RANGE 1 PRECEDING)
count(*) OVER (RANGE 1 PRECEDING)
count(*) OVER (ORDER BY n RANGE 99999999999999999999 PRECEDING)
count(*) OVER (ORDER BY amount RANGE 1e400 PRECEDING)
sum(item) OVER ()
sum(day) OVER ()
avg(day) OVER ()
avg(n > 1) OVER ()
sum(n, n) OVER ()
row_number(n) OVER ()
sum() OVER ()
sum(n := 1) OVER ()
min(geo) OVER ()
count(geo.country) OVER ()
count(*) OVER (PARTITION BY geo)
geo.country
lag(n, 1, 'soon') OVER ()
sum(nothing) OVER ()
sum(n)
count(*)
min(n)
n) OVER (ORDER BY (n
count(*) OVER () AS y
count(*) OVER (), 1
count(*) OVER () FROM held
count(*) OVER () -- ) ; SELECT 1
list_transform([1], x -> count(*) OVER ())
{end}
count(*) OVER (PARTITION BY n = {end})
rowid
""".strip().splitlines()


@pytest.mark.parametrize("sql", ["", "  ", "n" * 30_000, "n + \0 1", "count(*) OVER ()" + "+1" * 4000, *ATTACKS])
def test_what_is_not_plainly_a_window_over_one_unit_is_refused(sql: str) -> None:
    if sql.startswith("count(*) OVER () --"):
        rows = bind({"x": sql}, None, SCHEMA, unit=["id"], values={})
        assert rows.input_columns == ("id",), "a comment ends with its line and hides nothing"
        return
    with pytest.raises(RequestError) as caught:
        bind({"x": sql}, None, SCHEMA, unit=["id"], values={"end": END})
    assert caught.value.field == "unit_columns.x"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("sum(n)", ["'sum' without OVER", "OVER (ORDER BY"]),
        ("summ(n) OVER ()", ["'summ'", "did you mean 'sum'?"]),
        ("sum(amout) OVER ()", ["'amout'", "did you mean 'amount'?"]),
        ("sum(item) OVER ()", ["'sum'", "string", "numbers"]),
        ("sum(max(n) OVER ()) OVER ()", ["a window inside a window", "unit column before"]),
        ("count(*) OVER (ORDER BY day RANGE INTERVAL 1 MONTH PRECEDING)", ["months", "INTERVAL 30 DAYS"]),
        ("count(*) OVER (ORDER BY day, n RANGE 1 PRECEDING)", ["RANGE", "exactly one ORDER BY"]),
        ("count(*) OVER (ORDER BY day GROUPS 1 PRECEDING)", ["frame", "ROWS or RANGE"]),
        ("count(*) OVER (ROWS n PRECEDING)", ["not constant"]),
        ("count(*) OVER (ORDER BY day EXCLUDE TIES)", ["EXCLUDE"]),
        ("lag(geo) OVER ()", ["struct", "cast"]),
        ("count(geo.country) OVER ()", ["'geo'", "struct", "columns"]),
        ("count(*) OVER (PARTITION BY x)", ["'x'", "not defined before"]),
        ("y + 1", ["'y'", "not defined before it", "in order"]),
        ("n = {end}", ["only be used in source, where and having"]),
        ("sum(n) OVER", ["not an SQL expression"]),
    ],
)
def test_a_refusal_says_what_is_wrong_and_hints(sql: str, words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        bind({"x": sql, "y": "n"}, None, SCHEMA, unit=["id"], values={"end": END})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("definitions", "where", "field", "words"),
    [
        ({"id": "1"}, None, "unit_columns.id", "privacy unit"),
        ({"ID": "1"}, None, "unit_columns.ID", "privacy unit"),
        ({"Day": "1"}, None, "unit_columns.Day", "shadow column 'day'"),
        ({"a": "n", "A": "n"}, None, "unit_columns.A", "shadow column 'a'"),
        ({"__a": "n"}, None, "unit_columns.__a", "underscores"),
        ({}, "count(*) OVER () > 1", "where", "define it as a unit column"),
        ({}, "geo.country = 'x'", "where", "do not support"),
        ({"a": "n"}, "a", "where", "true or false"),
        ({"a": "n"}, "a > {ende}", "where", "declare {ende}"),
        ({"a": "n"}, "b > 1", "where", "'b'"),
    ],
)
def test_names_and_conditions_are_checked(
    definitions: dict[str, str], where: str | None, field: str, words: str
) -> None:
    with pytest.raises(RequestError) as caught:
        bind(definitions, where, SCHEMA, unit=["id"], values={"end": END})
    assert caught.value.field == field
    assert words in str(caught.value)


def test_all_that_is_wrong_is_named_at_once_and_nothing_twice() -> None:
    definitions = {"a": "nope", "b": "a + 1", "c": "sum(n)", "d": "n", "e": "d + b", "f": "later", "later": "n"}
    with pytest.raises(RequestError) as caught:
        bind(definitions, "nope > 1", SCHEMA, unit=["id"], values={})
    lines = [line.split(":")[0] for line in str(caught.value).splitlines()]
    assert lines == ["unit_columns.a", "unit_columns.c", "unit_columns.f", "where"]


def test_names_that_differ_only_in_case_are_not_read_together() -> None:
    schema = pa.schema([("id", pa.int64()), ("Key", pa.int64()), ("KEY", pa.int64())])
    with pytest.raises(RequestError, match="differ only in case"):
        bind({"a": 'sum("Key") OVER ()', "b": 'sum("KEY") OVER ()'}, None, schema, unit=["id"], values={})


def test_every_field_of_a_window_in_duckdbs_tree_is_looked_at() -> None:
    """A field that a later DuckDB adds is refused, not ignored."""
    connection = row_calculator.connect()
    node = window_whitelist.parse("count(*) OVER ()", connection)
    assert window_whitelist.written(node).function == "count"
    with pytest.raises(RequestError, match="not allowed"):
        window_whitelist.written({**node, "sampled": True})
