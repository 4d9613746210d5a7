"""Unit columns: what they are for, that a row's values come from its own unit alone.

In: small tables, awkward values, neighbours. Out: values. Holds: values are compared bit for bit. Not
covered: what each window function gives (`test_unit_windows`), what is refused (`test_unit_refusals`).
"""

import datetime
import math
import pickle
import warnings
from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.jobs.sql.windows import frames, window_functions
from dp_pipelines.jobs.sql.windows.unit_columns import UnitExpressions, bind
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import hashing
from tests.helpers.source import ROOT

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


def define(sql: str, schema: pa.Schema = SCHEMA) -> UnitExpressions:
    """One unit column `x`."""
    return bind({"x": sql}, None, schema, unit=["id"], values={})


def values(sql: str, table: pa.Table) -> list[Any]:
    """What a unit column holds."""
    return define(sql, table.schema).apply(table).column("x").to_pylist()


def day(number: int) -> datetime.date:
    return datetime.date(2001, 1, number)


BASKETS = pa.table(
    {
        "id": ["a", "a", "a", "b", "a", "b", "c"],
        "day": [day(1), day(1), day(11), day(3), day(31), day(31), day(5)],
        "item": ["milk", "tea", "milk", "tea", "milk", "milk", "tea"],
        "amount": [2.0, 3.0, 2.5, 3.0, 2.0, 2.0, 3.0],
    }
)
RETURNS = {
    "first_row": "row_number() OVER (PARTITION BY day) = 1",
    "items": "count(*) OVER (PARTITION BY day)",
    "visits": "dense_rank() OVER (ORDER BY day)",
    "last_day": "max(day) OVER (ORDER BY day RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL 1 DAY PRECEDING)",
    "days_since": "date_diff('day', last_day, day)",
    "spent": "sum(amount) OVER (ORDER BY day RANGE BETWEEN INTERVAL 30 DAYS PRECEDING AND CURRENT ROW)",
    "returns": "count(*) OVER (ORDER BY day RANGE BETWEEN INTERVAL 1 DAY FOLLOWING AND INTERVAL 14 DAYS FOLLOWING) > 0",
}


def test_a_basket_is_one_example_and_knows_whether_its_unit_comes_back_within_14_days() -> None:
    where = "first_row AND day <= CAST({end} AS DATE) - 14"  # of later baskets the fortnight is not seen to its end
    rows = bind(RETURNS, where, BASKETS.schema, unit=["id"], values={"end": day(31)})
    columns = ["id", "day", "items", "visits", "days_since", "spent", "returns"]
    found = [tuple(row[name] for name in columns) for row in rows.apply(BASKETS).to_pylist()]
    assert sorted(found, key=str) == [
        ("a", day(1), 2, 1, None, 5.0, True),
        ("a", day(11), 1, 2, 10, 7.5, False),
        ("b", day(3), 1, 1, None, 3.0, False),
        ("c", day(5), 1, 1, None, 3.0, False),
    ]


def test_the_first_row_of_each_basket_is_one_row_whatever_the_order_of_arrival() -> None:
    rows = bind({"first": "row_number() OVER (PARTITION BY day)"}, "first = 1", BASKETS.schema, unit=["id"], values={})
    kept = rows.apply(BASKETS)
    assert Counter(zip(*(kept.column(n).to_pylist() for n in ("id", "day")), strict=True)).most_common(1)[0][1] == 1
    assert kept.num_rows == 6
    turned = BASKETS.take(pa.array(range(BASKETS.num_rows))[::-1])
    assert as_counts(rows.apply(turned)) == as_counts(kept)


def test_rows_keep_their_order_and_columns_come_after_the_others() -> None:
    rows = bind({"n": "count(*) OVER ()"}, "n > 1", BASKETS.schema, unit=["id"], values={})
    kept = rows.apply(BASKETS)
    assert kept.column_names == ["id", "day", "item", "amount", "n"]
    assert kept.column("id").to_pylist() == ["a", "a", "a", "b", "a", "b"]
    assert kept.schema == rows.output_schema
    assert bind({}, None, BASKETS.schema, unit=["id"], values={}).apply(BASKETS).equals(BASKETS)


def test_input_columns_are_those_that_are_named_and_those_of_the_unit() -> None:
    rows = bind({"a": "sum(amount) OVER (ORDER BY day)", "b": "a + 1"}, "b > 1", SCHEMA, unit=["id"], values={})
    assert rows.input_columns == ("id", "amount", "day")


# ---- What holds


EVERYTHING = {
    "number": "row_number() OVER (ORDER BY day)",
    "place": "rank() OVER (PARTITION BY item ORDER BY n DESC)",
    "before": "lag(item) OVER (ORDER BY day)",
    "after": "lead(amount, 2, n) OVER (PARTITION BY n % 2 ORDER BY amount)",
    "total": "sum(amount) OVER (PARTITION BY item)",
    "near": "sum(amount) OVER (ORDER BY day ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
    "mean": "avg(amount) OVER (ORDER BY n RANGE BETWEEN 3 PRECEDING AND 3 FOLLOWING)",
    "close": "count(amount) OVER (ORDER BY amount RANGE BETWEEN 1e300 PRECEDING AND 1.5 FOLLOWING)",
    "kinds": "count(DISTINCT item) OVER (ORDER BY day ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)",
    "least": "min(item) OVER (ORDER BY day ROWS 2 PRECEDING)",
    "last": "last_value(amount IGNORE NULLS) OVER ()",
    "mixed": "sum(n) OVER () * 2 - max(n) OVER (PARTITION BY item) + number",
    "bad": "CAST(before AS INTEGER) // (number - 1)",
}
AWKWARD = [0.0, -0.0, 0.1, 0.2, 1e16, -1e16, 1e300, -1e300, math.inf, -math.inf, math.nan, 5e-324, 2.0**63]
CELLS = {
    "id": st.sampled_from(["a", "b", "ab", "", "é"]),
    "day": st.none() | st.integers(1, 4).map(day),
    "n": st.none() | st.sampled_from([0, 1, 2, -(2**63), 2**63 - 1]),
    "amount": st.none() | st.sampled_from(AWKWARD),
    "item": st.none() | st.sampled_from(["x", "y", "1", "2"]),
}
NARROW = pa.schema([SCHEMA.field(name) for name in CELLS])
ALL_ROWS = bind(EVERYTHING, None, NARROW, unit=["id"], values={})


def as_counts(table: pa.Table) -> Counter[tuple[str, ...]]:
    """How often each row stands there, bit for bit but for spellings of one value, such as -0.0."""
    columns = [[repr(value) for value in keys.plain(column).to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=NARROW)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.fixed_dictionaries(CELLS), max_size=16), data=st.data())
def test_a_row_depends_on_the_rows_of_its_own_unit_alone(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    together = as_counts(ALL_ROWS.apply(as_table(rows)))
    shuffled = data.draw(st.permutations(rows))
    assert as_counts(ALL_ROWS.apply(as_table(shuffled))) == together
    apart: Counter[tuple[str, ...]] = Counter()
    for unit in {row["id"] for row in rows}:
        apart += as_counts(ALL_ROWS.apply(as_table([row for row in shuffled if row["id"] == unit])))
    assert apart == together


def many(rows: int, units: int) -> pa.Table:
    random = np.random.default_rng(4)
    amounts = random.choice([0.1, 0.2, 1e16, -1e16, 1e-8, math.nan, 1e300], rows)
    return pa.table(
        {
            "id": pa.array((random.pareto(1.0, rows) * units).astype(np.int64) % units).cast(pa.string()),
            "day": pa.array(random.integers(0, 40, rows).astype(np.int32)).cast(pa.date32()),
            "n": random.integers(-3, 4, rows),
            "amount": amounts,
            "item": pa.array(random.integers(0, 9, rows)).cast(pa.string()),
        },
        schema=NARROW,
    )


def test_large_units_and_many_units_change_nothing_for_each_other() -> None:
    table = many(12_000, 60)
    together = ALL_ROWS.apply(table)
    for unit in ("0", "1", "50"):
        own = table.filter(pa.compute.equal(table.column("id"), unit))
        expected = together.filter(pa.compute.equal(together.column("id"), unit))
        assert as_counts(ALL_ROWS.apply(own)) == as_counts(expected)
        # Without it, the others are as they were.
        rest = pa.compute.not_equal(table.column("id"), unit)
        assert as_counts(ALL_ROWS.apply(table.filter(rest))) == as_counts(together) - as_counts(expected)


def test_one_huge_unit_is_like_any_other() -> None:
    table = many(50_000, 1)
    rows = bind({"x": "sum(n) OVER (ORDER BY day)", "y": "count(*) OVER ()"}, None, NARROW, unit=["id"], values={})
    found = rows.apply(table)
    expected, total = {}, 0
    for moment, number in sorted(zip(table["day"].to_pylist(), table["n"].to_pylist(), strict=True)):
        total += number
        expected[moment] = total
    assert {(d, int(x)) for d, x in zip(found["day"].to_pylist(), found["x"].to_pylist(), strict=True)} == set(
        expected.items()
    )
    assert set(found["y"].to_pylist()) == {50_000}


def test_the_order_of_rows_does_not_show_how_many_bits_of_their_hashes_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Hashes that agree in their leading bits, so that a large table sees ties where a small one sees none.
    monkeypatch.setattr(
        hashing, "hash_columns", lambda columns, salt: np.uint64(2**63) - columns[0].to_numpy().astype(np.uint64)
    )
    content = np.arange(1000)
    alone = frames.UnitRows.of([pa.array(np.zeros(1000, np.int64))], [pa.array(content)])
    crowd = np.concatenate([np.zeros(1000, np.int64), np.arange(300_000)])
    crowded = frames.UnitRows.of([pa.array(crowd)], [pa.array(np.concatenate([content, np.arange(300_000) % 7]))])
    own = crowded.rows[crowded.rows < 1000]
    assert alone.rows.tolist() == own.tolist() == content[::-1].tolist()


def test_equal_hashes_are_settled_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "hash_columns", lambda columns, salt: np.zeros(len(columns[0]), np.uint64))
    texts = ["b", "a", None, "c", "a"]
    rows = frames.UnitRows.of([pa.array([1] * 5)], [pa.array(texts)]).rows
    assert [texts[row] for row in rows] == ["a", "a", "b", "c", None]


def naive(table: pa.Table, sql: str) -> dict[int, Any]:
    """What DuckDB's own window gives, by the number of the row."""
    connection = duckdb.connect(":memory:", config={"threads": "1"})
    connection.register("held", table)
    return dict(connection.sql(f"SELECT k, {sql} FROM held").fetchall())


def test_duckdbs_own_windows_depend_on_the_order_in_which_rows_arrive() -> None:
    """The twin: what is compared above does tell a window that adds floats one after the other, or takes ties as they come."""
    table = pa.table({"id": ["a"] * 3, "k": [0, 1, 2], "day": [1, 1, 1], "amount": [1e16, 1.0, -1e16]})
    turned = table.take(pa.array([0, 2, 1]))
    for sql in ("sum(amount) OVER (PARTITION BY {})", "lag(k) OVER (PARTITION BY {} ORDER BY day)"):
        assert naive(table, sql.format("id")) != naive(turned, sql.format("id"))
        rows = define(sql.replace("PARTITION BY {}", ""), table.schema)
        assert as_counts(rows.apply(table)) == as_counts(rows.apply(turned))
    assert values("sum(amount) OVER ()", table) == [1.0] * 3


def test_running_totals_of_floats_depend_on_other_units() -> None:
    """The other twin: differences of running totals are how frames are added fast, and only integers make them exact."""
    numbers = np.array([1e16, 0.1, 0.2])
    totals = np.concatenate([[0.0], np.cumsum(numbers)])
    assert totals[3] - totals[1] != 0.1 + 0.2
    table = pa.table({"id": ["other", "own", "own"], "amount": numbers})
    assert (
        values("sum(amount) OVER ()", table)[1:]
        == values("sum(amount) OVER ()", table.slice(1))
        == [0.30000000000000004] * 2
    )


def test_units_are_told_apart_as_keys_are() -> None:
    table = pa.table({"id": [0.0, -0.0, math.nan, None, 1.0, 1.0]})
    rows = define("count(*) OVER ()", table.schema)
    assert [(row["id"], row["x"]) for row in rows.apply(table).to_pylist()] == [(0.0, 2), (0.0, 2), (1.0, 2), (1.0, 2)]
    two = pa.table({"id": ["a", "a", "a", None], "shop": pa.array(["x", "y", "x", "x"]).dictionary_encode()})
    rows = bind({"x": "count(*) OVER ()"}, None, two.schema, unit=["id", "shop"], values={})
    assert rows.apply(two).column("x").to_pylist() == [2, 1, 2]


def test_no_value_is_an_error_or_a_warning() -> None:
    table = pa.table(
        {
            "id": ["a"] * 5,
            "n": pa.array([2**63 - 1, 2**63 - 1, -(2**63), None, 0], pa.int64()),
            "amount": [1e308, math.inf, -math.inf, math.nan, -1e308],
            "day": pa.array([2**31 - 1, -(2**31), 0, None, 1], pa.int32()).cast(pa.date32()),
            "moment": pa.array([2**63 - 1, -(2**63), 0, None, 1], pa.int64()).cast(pa.timestamp("us")),
            "wide": pa.array([10**38 - 1, 10**38 - 1, None, 1, -1], pa.decimal128(38, 0)),
        }
    )
    definitions = {
        "a": "sum(n) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
        "b": "sum(amount) OVER (ORDER BY amount RANGE BETWEEN 1e308 PRECEDING AND 1e308 FOLLOWING)",
        "c": "count(*) OVER (ORDER BY day RANGE BETWEEN 1000000000 PRECEDING AND 2000000000 FOLLOWING)",
        "d": "count(*) OVER (ORDER BY moment DESC RANGE BETWEEN INTERVAL 10000000 DAYS PRECEDING AND CURRENT ROW)",
        "e": "sum(wide) OVER ()",
        "f": "avg(wide) OVER ()",
        "g": "CAST(sum(n) OVER () AS INTEGER) + 1",
        "h": "count(*) OVER (ORDER BY n RANGE BETWEEN 4611686018427387904 PRECEDING AND CURRENT ROW)",
        "i": "min(amount) OVER (ORDER BY moment RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING)",
    }
    rows = bind(definitions, None, table.schema, unit=["id"], values={})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rows.apply(table)
    assert found.column("e").to_pylist() == [None] * 5, "more than 38 digits"
    assert found.column("h").to_pylist() == [2, 2, 1, 1, 1]
    assert found.column("g").null_count == 5


def test_floats_that_are_too_large_count_as_null_in_sums() -> None:
    table = pa.table({"id": ["a"] * 4, "amount": [1e300, math.inf, 2.0, 2.0**63]})
    assert values("sum(amount) OVER ()", table) == [2.0 + 2.0**63] * 4
    assert values("avg(amount) OVER ()", table) == [(2.0 + 2.0**63) / 2] * 4
    assert values("max(amount) OVER ()", table) == [math.inf] * 4
    assert values("sum(amount) OVER ()", table.slice(0, 2)) == [None] * 2


def test_a_long_text_is_not_copied_into_every_row_of_its_unit() -> None:
    long = "x" * (window_functions.MOST_TEXT + 1)
    table = pa.table({"id": ["a"] * 3, "k": [1, 2, 3], "item": [long, long[1:], "y"]})
    assert values("first_value(item) OVER (ORDER BY k)", table) == [None] * 3
    assert values("min(item) OVER ()", table) == [long[1:]] * 3
    assert values("count(item) OVER ()", table) == [3] * 3


def test_an_empty_table_keeps_the_types() -> None:
    assert ALL_ROWS.apply(NARROW.empty_table()).schema == ALL_ROWS.output_schema
    nobody = as_table([{"id": None, "day": None, "n": 1, "amount": 1.0, "item": "x"}])
    assert ALL_ROWS.apply(nobody).num_rows == 0


def test_unit_expressions_travel_without_their_connection_and_give_the_same() -> None:
    table = many(100, 5)
    assert as_counts(pickle.loads(pickle.dumps(ALL_ROWS)).apply(table)) == as_counts(ALL_ROWS.apply(table))


def test_whole_numbers_are_added_as_duckdb_does_it() -> None:
    table = pa.table({"id": ["a"] * 2, "n": [3, 2**62]})
    assert values("sum(n) OVER () // 2", table) == [(3 + 2**62) // 2] * 2
    product = "sum(n) OVER () * sum(n) OVER ()"
    assert values(f"{product} // 2**62 > 1", table) == [True] * 2
    assert values(f"{product} * 8", table) == [None] * 2, "more than HUGEINT holds"
    assert values(f"{product} * 5", table) == [None] * 2, "39 digits, which no decimal holds"


def test_the_example_of_the_documentation_is_this_one_and_works() -> None:
    text = (ROOT / "docs" / "unit_columns.md").read_text()
    written = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert written["unit_columns"] == RETURNS
    rows = bind(written["unit_columns"], written["where"], BASKETS.schema, unit=["id"], values={})
    assert rows.apply(BASKETS).num_rows == 6
