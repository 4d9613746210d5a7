"""The values of windows over one unit's rows, against a slow oracle that follows the words of SQL, and against DuckDB.

In: small tables with awkward values, windows drawn at random. Out: equal values. Holds: floats are compared exactly, as the
float nearest to the exact sum. Not covered: expressions of one row (`test_expressions`); invariance (`test_unit_columns`).
"""

import dataclasses
import datetime
import decimal
import math
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.jobs.sql import row_calculator
from dp_pipelines.jobs.sql.windows import unit_columns, window_functions, window_types, window_whitelist
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import hashing
from tests.helpers.examples import examples

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("n", pa.int64()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("kind", pa.string()),
        ("moment", pa.timestamp("us")),
    ]
)
DAY = datetime.date(2026, 1, 1)
FLOATS = [
    0.0,
    -0.0,
    0.1,
    -0.3,
    1e300,
    -1e300,
    math.inf,
    -math.inf,
    math.nan,
    2.0**63,
    5e-324,
    1e16,
    -1e16,
    2.0**-65,
    3e-20,
]
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(1, 3),
    "day": st.none() | st.integers(0, 12).map(lambda days: DAY + datetime.timedelta(days)),
    "n": st.none() | st.sampled_from([0, 1, 2, 3, 7, -1, -(2**63), 2**63 - 1]),
    "amount": st.none() | st.sampled_from(FLOATS) | st.floats(-100, 100),
    "price": st.none() | st.integers(-(10**9) + 1, 10**9 - 1).map(lambda cents: decimal.Decimal(cents) / 100),
    "kind": st.none() | st.sampled_from(["", "a", "b", "é"]),
    "moment": st.none()
    | st.integers(0, 50).map(lambda hours: datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=hours)),
}
ROWS = st.lists(st.fixed_dictionaries(CELLS), max_size=14) | st.lists(
    st.fixed_dictionaries(CELLS), min_size=8, max_size=14
)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A window, as SQL and as its parts."""

    function: str
    argument: str
    number: int
    distinct: bool
    ignore_nulls: bool
    filtered: bool
    partitions: tuple[str, ...]
    orders: tuple[tuple[str, bool, bool], ...]
    mode: str
    start: float | str
    end: float | str

    def edge(self, edge: float | str) -> str:
        """The SQL of one end: "start" and "end" are unbounded, "here" is the current row, numbers are offsets."""
        if isinstance(edge, str):
            return {"start": "UNBOUNDED PRECEDING", "end": "UNBOUNDED FOLLOWING", "here": "CURRENT ROW"}[edge]
        size = f"{abs(edge):g}"
        if self.mode == "RANGE" and self.orders[0][0] in ("day", "moment"):
            size = f"INTERVAL {size} {'DAYS' if self.orders[0][0] == 'day' else 'HOURS'}"
        return f"{size} {'PRECEDING' if edge < 0 else 'FOLLOWING'}"

    @property
    def sql(self) -> str:
        inside = "" if self.function in ("row_number", "rank", "dense_rank") else self.argument
        if self.function in ("lag", "lead", "nth_value"):
            inside += f", {self.number}"
        nulls = " IGNORE NULLS" if self.ignore_nulls else ""
        only = " FILTER (WHERE n > 0)" if self.filtered else ""
        over = f"PARTITION BY {', '.join(self.partitions)} " if self.partitions else ""
        if self.orders:
            items = [f"{c} {'DESC' if d else 'ASC'} NULLS {'FIRST' if f else 'LAST'}" for c, d, f in self.orders]
            over += f"ORDER BY {', '.join(items)} "
        if self.mode:
            over += f"{self.mode} BETWEEN {self.edge(self.start)} AND {self.edge(self.end)}"
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{inside}{nulls}){only} OVER ({over})"


@st.composite
def windows(draw: st.DrawFn) -> Asked:
    """Any window that is allowed."""
    function = draw(st.sampled_from(sorted(window_functions._FUNCTIONS)))
    numeric = function in ("sum", "avg")
    argument = draw(st.sampled_from(["n", "amount", "price"] if numeric else ["n", "amount", "price", "kind", "day"]))
    if function == "count" and draw(st.booleans()):
        argument = "*"
    aggregate = function in ("count", "sum", "avg", "min", "max")
    ignore = not aggregate and ("_value" in function or function in ("lag", "lead")) and draw(st.booleans())
    column = st.sampled_from(["day", "n", "amount", "price", "kind", "moment"])
    orders = tuple(draw(st.lists(st.tuples(column, st.booleans(), st.booleans()), max_size=2)))
    mode = draw(st.sampled_from(["", "ROWS", "RANGE"]))
    start, end = draw(st.sampled_from([("start", "end"), ("start", "here"), ("here", "here"), ("here", "end")]))
    by_distance = mode == "RANGE" and len(orders) == 1 and orders[0][0] != "kind"
    if (mode == "ROWS" or by_distance) and draw(st.booleans()):
        sizes = st.integers(-4, 4).filter(bool)
        start, end = sorted(draw(st.tuples(sizes, sizes)))
        start = draw(st.sampled_from([start, start, "start"]))
    return Asked(
        function=function,
        argument=argument,
        number=draw(st.integers(1, 3)),
        distinct=function == "count" and argument != "*" and draw(st.booleans()),
        ignore_nulls=ignore,
        filtered=aggregate and draw(st.booleans()),
        partitions=tuple(draw(st.lists(st.sampled_from(["kind", "n"]), max_size=1))),
        orders=orders,
        mode=mode,
        start=start,
        end=end,
    )


def seen(value: Any) -> Any:
    """A value as expressions see it."""
    return None if isinstance(value, float) and math.isnan(value) else value


def canonical(row: Row, table: pa.Table) -> Any:
    """Where a row stands among rows that nothing else orders: by its hash, as `UnitRows` says."""
    one = pa.Table.from_pylist([row], schema=table.schema)
    columns = [keys.plain(one.column(name)) for name in sorted(one.column_names)]
    return int(hashing.hash_columns(columns, 0)[0])


def oracle(asked: Asked, rows: list[Row], table: pa.Table) -> list[Any]:
    """The window's value of each row, from the definition."""
    found: list[Any] = [None] * len(rows)
    groups: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault((row["id"], *(seen(row[c]) for c in asked.partitions)), []).append(place)
    for group in groups.values():
        group.sort(key=lambda place: canonical(rows[place], table))
        for column, descending, first in reversed(asked.orders):
            missing = [p for p in group if seen(rows[p][column]) is None]
            there = [p for p in group if p not in missing]
            there.sort(key=lambda p: seen(rows[p][column]), reverse=descending)  # which keeps the order of equals
            group[:] = missing + there if first else there + missing
        for i, place in enumerate(group):
            found[place] = value(asked, [rows[p] for p in group], i)
    return found


def value(asked: Asked, rows: list[Row], i: int) -> Any:
    """The value at place `i` of a sorted partition."""
    same = [tuple(seen(row[c]) for c, _, _ in asked.orders) for row in rows]
    peers = [j for j in range(len(rows)) if same[j] == same[i]]
    if asked.function == "row_number":
        return i + 1
    if asked.function == "rank":
        return peers[0] + 1
    if asked.function == "dense_rank":
        return len(set(same[: peers[0]])) + 1
    column = asked.argument
    if asked.function in ("lag", "lead"):
        step = -1 if asked.function == "lag" else 1
        others = range(i + step, -1 if step < 0 else len(rows), step)
        known = [j for j in others if not asked.ignore_nulls or seen(rows[j][column]) is not None]
        return seen(rows[known[asked.number - 1]][column]) if len(known) >= asked.number else None
    held = [rows[j] for j in range(len(rows)) if within(asked, rows, i, j, peers)]
    if "_value" in asked.function:
        held = [row for row in held if not asked.ignore_nulls or seen(row[column]) is not None]
        at = {"first_value": 0, "last_value": len(held) - 1, "nth_value": asked.number - 1}[asked.function]
        return seen(held[at][column]) if 0 <= at < len(held) else None
    if asked.filtered:
        held = [row for row in held if row["n"] is not None and row["n"] > 0]
    values = [0 if column == "*" else seen(row[column]) for row in held]
    values = [item for item in values if item is not None]
    if asked.function == "count":
        return len(set(values)) if asked.distinct else len(values)
    if asked.function in ("min", "max"):
        return (min if asked.function == "min" else max)(values, default=None)
    if column == "amount":
        values = [item for item in values if abs(item) <= 2.0**63]
        units = sum(round(Fraction(item) * 2**64) for item in values)
        scale = 2.0**64
    else:
        scale = 100.0 if column == "price" else 1.0
        units = sum(int(item * 100) if column == "price" else item for item in values)
    if not values:
        return None
    if asked.function == "avg":
        return float(units) / (len(values) * scale)
    return float(Fraction(units, 2**64)) if column == "amount" else decimal.Decimal(units) / int(scale)


def within(asked: Asked, rows: list[Row], i: int, j: int, peers: list[int]) -> bool:
    """Whether row `j` is in the frame of row `i`."""
    start, end, mode = asked.start, asked.end, asked.mode or "RANGE"
    if not asked.mode:
        start, end = "start", "here"

    def after(edge: float | str, *, strictly_before: bool) -> bool:
        """Whether j is not before a start (or not after an end)."""
        if edge in ("start", "end"):
            return True
        if edge == "here":
            near = peers if mode == "RANGE" else [i]
            return j <= near[-1] if strictly_before else j >= near[0]
        if mode == "ROWS":
            return j <= i + edge if strictly_before else j >= i + edge
        column, descending, nulls_first = asked.orders[0]
        mine, other = seen(rows[i][column]), seen(rows[j][column])
        if mine is None:
            return j <= peers[-1] if strictly_before else j >= peers[0]
        if other is None:
            return nulls_first if strictly_before else not nulls_first
        step: Any = edge
        if column == "day":
            step = datetime.timedelta(days=edge)
        elif column == "moment":
            step = datetime.timedelta(hours=edge)
        elif column == "price":
            step = decimal.Decimal(edge)
        limit = mine - step if descending else mine + step
        return (other <= limit) if strictly_before != descending else (other >= limit)

    return after(start, strictly_before=False) and after(end, strictly_before=True)


CHECK = window_types.Check(SCHEMA, {}, row_calculator.connect())
"""One for all examples: it knows the parts that it has checked."""
CALCULATOR = row_calculator.Calculator()


def applied(sql: str, table: pa.Table) -> pa.ChunkedArray:
    """The values of a window, with one row's expressions checked once for all examples."""
    column = CHECK.definition("x", window_whitelist.parse(sql, CHECK.connection), sql)
    rows = unit_columns.UnitExpressions(
        unit=("id",), defined=(column,), where=None, params={}, schema=SCHEMA, _calculator=CALCULATOR
    )
    return rows.apply(table).column("x")


@settings(max_examples=examples(150, 600), deadline=None)
@given(rows=ROWS, asked=windows())
def test_every_window_gives_what_its_words_say(rows: list[Row], asked: Asked) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    assert applied(asked.sql, table).to_pylist() == oracle(asked, rows, table), asked.sql


@st.composite
def distances(draw: st.DrawFn, column: str, descending: bool) -> Asked:
    """A window over rows at a distance in what orders them, with a function that shows which rows these are."""
    start, end = sorted(draw(st.tuples(st.integers(-4, 4).filter(bool), st.integers(-4, 4).filter(bool))))
    asked = draw(windows())
    return dataclasses.replace(
        asked,
        function=draw(st.sampled_from(["count", "first_value", "last_value"])),
        argument="kind",
        distinct=False,
        ignore_nulls=False,
        filtered=False,
        partitions=(),
        orders=((column, descending, draw(st.booleans())),),
        mode="RANGE",
        start=draw(st.sampled_from([start, "start"])),
        end=draw(st.sampled_from([end, "end"])),
    )


NEAR = {
    **CELLS,
    "id": st.just(1),
    "amount": st.none() | st.integers(-8, 8).map(lambda halves: halves / 2) | st.sampled_from(FLOATS),
    "price": st.none() | st.integers(-8, 8).map(lambda halves: decimal.Decimal(halves) / 2),
    "moment": st.none() | st.integers(0, 9).map(lambda hours: datetime.datetime(2026, 1, 1, hours)),
}
CROWDED = st.lists(st.fixed_dictionaries(NEAR), min_size=5, max_size=14)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("column", ["n", "amount", "day", "price", "moment"])
def test_every_distance_reaches_as_far_as_it_says(column: str, descending: bool) -> None:
    @settings(max_examples=examples(15, 60), deadline=None)
    @given(rows=CROWDED, asked=distances(column, descending))
    def holds(rows: list[Row], asked: Asked) -> None:
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        assert applied(asked.sql, table).to_pylist() == oracle(asked, rows, table), asked.sql

    holds()


@pytest.mark.parametrize("descending", [False, True])
def test_codes_too_far_apart_for_one_number_are_searched_alike(descending: bool) -> None:
    @settings(max_examples=60, deadline=None)
    @given(rows=CROWDED, asked=distances("n", descending))
    def holds(rows: list[Row], asked: Asked) -> None:
        far = [{**rows[0], "id": 9, "n": n} for n in (-(2**63), 2**63 - 1)]
        table = pa.Table.from_pylist([*rows, *far], schema=SCHEMA)
        assert applied(asked.sql, table).to_pylist()[: len(rows)] == oracle(asked, rows, table), asked.sql

    holds()


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, asked=windows())
def test_where_the_order_is_total_duckdb_gives_the_same(rows: list[Row], asked: Asked) -> None:
    # Distinct moments order all rows; sums of floats are DuckDB's own affair, and large distances overflow there.
    unlike = [
        {**row, "n": place % 5, "moment": None, "day": DAY + datetime.timedelta(place)}
        for place, row in enumerate(rows)
    ]
    column, descending, first = "day", bool(asked.orders and asked.orders[0][1]), False
    asked = dataclasses.replace(asked, orders=((column, descending, first),))
    if asked.function in ("sum", "avg") and asked.argument == "amount":
        asked = dataclasses.replace(asked, argument="n")
    table = pa.Table.from_pylist(unlike, schema=SCHEMA)
    held = pa.table({name: row_calculator.clean(table.column(name)) for name in table.column_names})
    connection = CHECK.connection
    connection.register("held", held.append_column("place", pa.array(range(len(rows)), pa.int64())))
    over = "OVER (PARTITION BY id, " if "OVER (PARTITION BY " in asked.sql else "OVER (PARTITION BY id "
    sql = asked.sql.replace("OVER (PARTITION BY ", "OVER (").replace("OVER (", over)
    theirs = row_calculator.query(connection, f"SELECT x FROM (SELECT place, {sql} AS x FROM held) ORDER BY place", {})
    ours = applied(asked.sql, table)
    assert ours.type == theirs.schema.types[0]
    if asked.function == "avg":
        for mine, other in zip(ours.to_pylist(), theirs.column(0).to_pylist(), strict=True):
            assert mine == (None if other is None else pytest.approx(other, rel=1e-14)), asked.sql
    else:
        assert ours.to_pylist() == theirs.column(0).to_pylist(), asked.sql


KINDS = """BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL(4,2) DECIMAL(18,3)
DECIMAL(38,5) DATE TIME TIMESTAMP TIMESTAMP_S TIMESTAMP_NS TIMESTAMPTZ VARCHAR BLOB"""
TYPES = KINDS.split()
FORMS = """sum({0}) avg({0}) min({0}) max({0}) count(DISTINCT,{0}) first_value({0}) lag({0}) lead({0},1,{0}) rank()"""
CALLS = FORMS.split()


def test_types_are_those_of_duckdb() -> None:
    expected, definitions = {}, {}
    for kind in TYPES:
        for call in CALLS:
            try:
                written = call.replace("DISTINCT,", "DISTINCT ")
                sql = f"SELECT {written.format('x')} OVER () FROM (SELECT NULL::{kind} AS x)"
                found = row_calculator.query(CHECK.connection, sql, {}).schema.types[0]
            except duckdb.Error:
                continue
            if "avg" not in call or ("TIME" not in kind and kind != "DATE"):  # an average of times is refused here
                expected[f"{call} {kind}"] = found
                definitions[f"{call} {kind}"] = written.format(f"TRY_CAST(text AS {kind})") + " OVER ()"
    assert len(expected) > 150
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    rows = unit_columns.bind(definitions, None, schema, unit=["id"], values={})
    assert {name: rows.output_schema.field(name).type for name in expected} == expected
    table = pa.table({"id": [1, 1, 2], "text": ["1", None, "2020-01-01"]}, schema=schema)
    assert rows.apply(table).schema == rows.output_schema
    assert rows.apply(table.slice(0, 0)).schema == rows.output_schema
