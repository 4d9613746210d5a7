"""Row-local SQL: what is allowed, what is refused, and that no row's failure is another row's business.

In: expressions over small tables, damaged tables, attacks. Out: values or refusals. Holds: values are those that DuckDB gives
row by row; a refused text never ran. Not covered: what each function computes, which is DuckDB's to test.
"""

import concurrent.futures
import datetime
import math
import pickle

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sql import functions, row_calculator
from dp_pipelines.jobs.sql.expressions import bind
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.kernels import keys

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("text", pa.string()),
        ("moment", pa.timestamp("us")),
        ("day", pa.date32()),
        ("n", pa.int32()),
        ("geo", pa.struct([("country", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def define(sql: str, schema: pa.Schema = SCHEMA) -> RowExpressions:
    """One defined column `x`."""
    return bind(None, {"x": sql}, schema, unit=["id"], values={})


def values(sql: str, table: pa.Table) -> list[object]:
    """What a defined column holds."""
    return define(sql, table.schema).apply(table).column("x").to_pylist()


ALLOWED = """
amount > 0
date_trunc('week', moment)
date_trunc('week', day)
CASE WHEN n = 1 THEN 'a' WHEN n = 2 THEN NULL ELSE text END
CASE n WHEN 1 THEN 'a' END
CAST(text AS INTEGER)
text::DECIMAL(10, 2)
TRY_CAST(text AS DATE)
text IN ('a', 'b') AND n NOT IN (1, 2)
n BETWEEN 1 AND 5 OR NOT n IS NULL
text LIKE 'a%' ESCAPE '!'
text ILIKE 'A%'
text ~ '^a'
text SIMILAR TO 'a+'
coalesce(text, 'none')
moment + INTERVAL 1 DAY
moment AT TIME ZONE 'Asia/Taipei'
extract(year FROM moment)
geo.country
N % 7 + -n
text || 'x'
strftime(moment, '%Y-%m')
if(n > 1, 'a', 'b')
substring(text FROM 1 FOR 2)
trim(BOTH 'x' FROM text)
list_contains(tags, 'x')
tags[1]
kind = 'x'
lpad(text, 5, '0')
replace(text, 'a', 'b')
regexp_extract(text, 'a(.)', 1)
date_diff('day', day, moment)
n IS DISTINCT FROM 3
text->>'$.a'
DATE '2020-01-01' + n
greatest(n, 3)
1 -- a comment
n + /* one */ 1
year(moment) * 100 + month(moment)
CAST(floor(amount / 10) AS INTEGER)
moment > '2020-01-01'
try(n // 0)
"text"
""".strip().splitlines()


@pytest.mark.parametrize("sql", ALLOWED)
def test_a_function_of_one_row_is_allowed(sql: str) -> None:
    assert define(sql).output_schema.names[-1] == "x"


ATTACKS = """
(SELECT 1)
n IN (SELECT 1)
EXISTS (SELECT 1)
(SELECT text FROM __dp_rows LIMIT 1)
sum(amount)
count(*)
string_agg(text, ',')
row_number() OVER ()
sum(amount) OVER (ORDER BY n)
lag(text) OVER ()
random()
uuid()
now()
today()
current_date
current_timestamp
localtimestamp
get_current_timestamp()
CAST(now() AS VARCHAR)
nextval('s')
setseed(0.5)
getenv('HOME')
getvariable('x')
current_setting('TimeZone')
version()
current_query()
current_user
read_csv('/etc/passwd')
read_text('/etc/passwd')
read_blob('/etc/passwd')
glob('*')
pragma_version()
error(text)
sleep_ms(10)
write_log('x')
txid_current()
rowid
#1
?
$1
$secret
COLUMNS(*)
*
unnest(tags)
list_transform(tags, x -> x)
[x FOR x IN tags]
text -> '$.a'
repeat(text, 1000000)
lpad(text, n, 'x')
lpad(text, 100000000, 'x')
rpad(text, 1e9::INTEGER, 'x')
printf('%100000000d', n)
format('{:>100000000}', text)
replace(text, 'a', text)
regexp_replace(text, 'a', text)
text ~ text
text LIKE text
date_trunc(text, moment)
levenshtein(text, text)
generate_series(1, n)
range(n)
bar(n, 0, 10, 100)
hash(text)
text COLLATE NOCASE
main.x.lower(text)
system.main.lower(text)
lower(text := 'a')
count(*) FILTER (WHERE n > 1)
min(DISTINCT n)
ROW(n, n)
{'a': n}
[n, n]
moment - moment
text::ENUM('a')
text::my_type
text::INTEGER[]
text::JSON
n) AS c0, (n
n) AS c0 FROM __dp_rows; SELECT (1
n) AS c0 FROM (SELECT * FROM __dp_rows) AS __dp_rows --
n) AS c0 FROM __dp_rows WHERE (n > 0
n) AS c0 FROM __dp_rows ORDER BY (n
n) AS c0 FROM duckdb_settings() --
n) AS c0 FROM __dp_rows /*
n; ATTACH 'x'
n; COPY (SELECT 1) TO '/tmp/x'
n AS y
n ORDER BY n
n) FILTER (WHERE (n > 1)
n)) FILTER (WHERE (n > 1
n)) OVER ((
n, n
DISTINCT n
n FROM __dp_rows
DEFAULT
'
(
geo.*
nothing
texT2
""".strip().splitlines()


@pytest.mark.parametrize("sql", ["", "  ", "n" * 30_000, "n" + "+1" * 4000, "n + \0 1", *ATTACKS])
def test_what_is_not_plainly_a_function_of_one_row_is_refused(sql: str) -> None:
    with pytest.raises(RequestError) as caught:
        define(sql)
    assert caught.value.field == "columns.x"


def test_every_allowed_function_is_deterministic_and_of_one_row_for_duckdb_too() -> None:
    connection = row_calculator.connect()
    sql = "SELECT function_name, function_type, stability, parameter_types FROM duckdb_functions()"
    known: dict[str, set[tuple[str, str]]] = {}
    for name, kind, stability, types in connection.execute(sql).fetchall():
        # Since 2.0.1 what depends on the settings TimeZone and Calendar is so marked; no query of ours changes either.
        if stability == "CONSISTENT_WITHIN_QUERY" and (name == "timezone" or {*types} & _WITH_ZONES):
            stability = "CONSISTENT"
        known.setdefault(name, set()).add((kind, stability))
    found = {name: known.get(name, set()) for name in functions.FUNCTIONS}
    wrong = {n: f for n, f in found.items() if not f <= {("scalar", "CONSISTENT"), ("macro", None)}}
    assert not wrong
    assert sum(bool(f) for f in found.values()) > 150, "DuckDB knows hardly any of them: the list was not compared"
    zones = connection.execute("SELECT current_setting('TimeZone'), current_setting('Calendar')").fetchall()
    assert zones == [("UTC", "gregorian")]
    with pytest.raises(duckdb.Error, match="lock"):
        connection.execute("SET TimeZone = 'Asia/Tokyo'")


_WITH_ZONES = {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS", "TIME WITH TIME ZONE"}


def test_the_connection_reads_nothing_and_stays_locked() -> None:
    connection = row_calculator.connect()
    for sql in ("SELECT * FROM read_text('/etc/hostname')", "SET threads = 2", "ATTACH '/tmp/x.db'", "INSTALL httpfs"):
        with pytest.raises(Exception, match=r"(?i)disabled|locked|permission"):
            connection.execute(sql).fetchall()


def test_a_failing_row_is_null_and_its_neighbours_are_not() -> None:
    table = pa.table({"id": [1, 2, 3], "text": ["7", "x", None]})
    assert values("CAST(text AS INTEGER)", table) == [7, None, None]
    assert values("CAST(text AS INTEGER) + 1", table) == [8, None, None]
    assert values("coalesce(CAST(text AS INTEGER), 0)", table) == [7, None, 0]


def test_rows_keep_their_order_and_a_condition_that_is_null_drops_them() -> None:
    rows = bind("n > 1", {"twice": "n * 2"}, pa.schema([("n", pa.int64())]), unit=["id"], values={})
    table = pa.table({"n": [3, None, 1, 2, 5]})
    assert rows.apply(table).to_pylist() == [{"n": n, "twice": 2 * n} for n in (3, 2, 5)]


def test_an_expression_without_columns_is_evaluated_in_every_row() -> None:
    assert values("1 + 1", pa.table({"n": [1, 2, 3]})) == [2, 2, 2]


def test_an_empty_batch_keeps_the_types() -> None:
    rows = define("date_trunc('week', moment)")
    assert rows.apply(SCHEMA.empty_table()).schema == rows.output_schema


def test_nan_and_null_are_one_thing_to_an_expression() -> None:
    assert values("amount > 5", pa.table({"amount": [math.nan, 9.0, None]})) == [None, True, None]


def damaged_text() -> pa.Array:
    """Three texts, the middle one no valid UTF-8."""
    data, offsets = b"ab\xff\xfecd", np.array([0, 2, 4, 6], np.int32)
    return pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)])


def test_text_that_is_not_valid_is_null_and_breaks_nothing() -> None:
    assert values("upper(text)", pa.table({"text": damaged_text()})) == ["AB", None, "CD"]
    inside = pa.StructArray.from_arrays([damaged_text()], names=["country"])
    assert values("upper(geo.country)", pa.table({"geo": inside})) == ["AB", None, "CD"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Asia/Taipei"])
def test_times_beyond_the_calendar_cost_only_their_own_row(unit: str, zone: str | None) -> None:
    table = pa.table(
        {"moment": pa.array([0, 2**62, -(2**62), -(2**63), None], pa.int64()).cast(pa.timestamp(unit, zone))}
    )
    result = define("date_trunc('week', moment)", table.schema).apply(table).column("x")
    assert result[0].cast(pa.timestamp("us", zone and "UTC")).as_py().replace(tzinfo=None) == datetime.datetime(
        1969, 12, 29
    )
    assert len(result) == 5
    assert result[4].as_py() is None


def test_a_decimal_with_more_digits_than_its_type_is_null() -> None:
    wrong = np.array([100, 0, 10**18, 5, 200, 0], np.int64)
    table = pa.table({"d": pa.Array.from_buffers(pa.decimal128(5, 2), 3, [None, pa.py_buffer(wrong.tobytes())])})
    assert [str(value) for value in values("d * 2", table)] == ["2.00", "None", "4.00"]


def test_a_value_that_makes_duckdb_itself_fail_costs_only_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    # A negative time of day: DuckDB's cast hits an assertion and gives up the whole database.
    table = pa.table({"t": pa.array([0, -5, 1000], pa.int32()).cast(pa.time32("ms")), "n": [1, 2, 3]})
    rows = bind(None, {"x": "t::VARCHAR", "y": "n"}, table.schema, unit=["id"], values={})
    assert rows.apply(table).column("x").to_pylist() == ["00:00:00", None, "00:00:01"]
    monkeypatch.setattr(row_calculator, "_in_range", lambda array: array)
    with pytest.raises(duckdb.Error):
        plain = {"t": keys.plain(table.column("t"))}
        rows._calculator._run(plain, 3, [row_calculator.Item(sql="t::VARCHAR", type=pa.string(), columns=("t",))], {})
    result = rows.apply(table)
    assert result.column("x").to_pylist() == ["00:00:00", None, "00:00:01"]
    assert result.column("y").to_pylist() == [1, 2, 3]


def test_a_batch_that_fails_is_searched_for_the_rows_that_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = row_calculator.Calculator._run

    def breaks_on_thirteen(self, columns, rows, expressions, params):
        if 13 in columns["n"].to_pylist():
            raise MemoryError("secret 13")
        return run(self, columns, rows, expressions, params)

    monkeypatch.setattr(row_calculator.Calculator, "_run", breaks_on_thirteen)
    table = pa.table({"n": [1, 13, 2, 13, 3]})
    assert values("n + 1", table) == [2, None, 3, None, 4]


CELLS = st.fixed_dictionaries(
    {
        "text": st.none()
        | st.text(max_size=6)
        | st.sampled_from(["1", "-5", "1e400", "2020-02-30", "2024-02-29", "9" * 30]),
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "amount": st.none() | st.floats(),
        "moment": st.none() | st.integers(-(2**63), 2**63 - 1),
    }
)
LAWS = [
    "CAST(text AS INTEGER)",
    "CAST(text AS DATE) + n",
    "n * n",
    "CAST(amount AS INTEGER)",
    "CASE WHEN n > 0 AND CAST(text AS DOUBLE) > 1 THEN 'a' ELSE text END",
    "date_trunc('month', moment)",
    "coalesce(ln(amount), n)",
    "upper(text) || n",
    "make_date(n, n % 13, 1)",
]


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(CELLS, min_size=1, max_size=8), sql=st.sampled_from(LAWS))
def test_a_row_gives_the_same_value_in_every_company(rows: list[dict[str, object]], sql: str) -> None:
    schema = pa.schema(
        [("text", pa.string()), ("n", pa.int32()), ("amount", pa.float64()), ("moment", pa.timestamp("us"))]
    )
    columns = [
        pa.array([row[name] for row in rows], pa.int64() if name == "moment" else schema.field(name).type)
        for name in schema.names
    ]
    table = pa.table([column.cast(schema.field(i).type) for i, column in enumerate(columns)], schema=schema)
    expressions = define(sql, schema)
    together = expressions.apply(table).column("x").combine_chunks()
    alone = [expressions.apply(table.slice(i, 1)).column("x").combine_chunks() for i in range(len(rows))]
    assert together.equals(pa.concat_arrays(alone))


def test_expressions_travel_without_their_connection_and_give_the_same() -> None:
    rows = define("CAST(text AS INTEGER)", pa.schema([("text", pa.string())]))
    table = pa.table({"text": ["1", "x"]})
    first = rows.apply(table)
    assert pickle.loads(pickle.dumps(rows)).apply(table).equals(first)


@pytest.mark.parametrize(
    ("where", "columns", "words"),
    [
        ("amout > 0", {}, ["where", "'amout'", "did you mean 'amount'?"]),
        ("amount", {}, ["where", "must be true or false"]),
        (None, {"id": "1"}, ["columns.id", "privacy unit"]),
        (None, {"ID": "1"}, ["columns.ID", "privacy unit"]),
        (None, {"text": "1"}, ["columns.text", "shadow"]),
        (None, {"Text": "1"}, ["columns.Text", "shadow"]),
        (None, {"a": "1", "A": "2"}, ["columns.A", "shadow"]),
        (None, {"__a": "1"}, ["columns.__a", "underscores"]),
        (None, {"a": "n", "b": "a + 1"}, ["columns.b", "'a'", "write the expression out, here (n)"]),
        ("a > 1", {"a": "n +\n1"}, ["where", "'a'", "write the expression out"]),
        (None, {"a": "date_trunc('wek', moment)"}, ["columns.a", "wek"]),
        (None, {"a": "DATE '2020-13-01'"}, ["columns.a", "2020-13-01"]),
        (None, {"a": "n = 1 AND CAST('x' AS INTEGER) = 2"}, ["columns.a", "'x'"]),
        (None, {"a": "regexp_matches(text, '(')"}, ["columns.a", "missing )"]),
        (None, {"a": "strftime(moment, '%')"}, ["columns.a"]),
        (None, {"a": "n > 'ten'"}, ["columns.a", "ten"]),
        (None, {"a": "day IN ('2020-01-01', 'soon')"}, ["columns.a", "soon"]),
        (None, {"a": "chr(text)"}, ["columns.a", "chr"]),
        (None, {"a": "lowr(text)"}, ["columns.a", "did you mean 'lower'?"]),
        ("random() < 0.5", {}, ["where", "'random'", "must be deterministic"]),
        ("now() > moment", {}, ["where", "uses now: the day of a run must not choose rows", "--param day="]),
        ('text = "north"', {}, ["where", "'north'", "text takes single quotes"]),
        ("north = text", {}, ["where", "'north', which the source does not have; columns: "]),
        ("n >> 3 AND", {}, ["where", "it ends before it is complete"]),
        ("n > 3)", {}, ["where", "syntax error at or near"]),
        (None, {"a": "moment - moment"}, ["columns.a", "interval", "CAST"]),
        (None, {"a": "n = {week}"}, ["columns.a", "only be used in source, where and having"]),
    ],
)
def test_a_wrong_expression_is_refused_with_its_place_and_a_hint(
    where: str | None, columns: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        bind(where, columns, SCHEMA, unit=["id"], values={"week": "w"})
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_wrong_expressions_are_named_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        bind("nope = 1", {"a": "nope", "b": "n", "c": "sum(n)"}, SCHEMA, unit=["id"], values={})
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["where", "columns.a", "columns.c"]


def test_names_that_differ_only_in_case_must_be_written_exactly() -> None:
    schema = pa.schema([("Key", pa.int64()), ("KEY", pa.int64())])
    table = pa.table({"Key": [1], "KEY": [2]})
    assert define('"Key"', schema).apply(table).column("x").to_pylist() == [1]
    assert define('"KEY"', schema).apply(table).column("x").to_pylist() == [2]
    with pytest.raises(RequestError, match="exactly"):
        define("key", schema)
    with pytest.raises(RequestError, match="differ only in case"):
        define('"Key" + "KEY"', schema)


def test_jobs_are_checked_over_one_connection_of_a_thread_which_is_replaced_once_it_refuses():
    first = row_calculator.checking_connection()
    assert row_calculator.checking_connection() is first
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        assert other.submit(row_calculator.checking_connection).result() is not first
    first.close()
    again = row_calculator.checking_connection()
    assert again is not first
    assert bind("a > 0", {}, pa.schema([("a", pa.int64())]), unit=["id"], values={}).where is not None
    assert row_calculator.checking_connection() is again
