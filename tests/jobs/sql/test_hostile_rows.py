"""One row cannot take more than time and room in proportion to its bytes: every function of the whitelist over hostile values.

In: for each function, operator and type that `functions` lists, expressions over columns of hostile values. Out: statements
about work: runs of DuckDB, processor time, bytes of results. Holds: a function that is listed later without a case fails here.
Not covered: what a function computes.
"""

import decimal
import functools
import time

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sql import functions, guards, row_calculator, row_slices, whitelist
from dp_pipelines.jobs.sql.expressions import bind

LONG = 2**17
"""Bytes of a hostile text."""

SECONDS = 1.0
"""Processor time for all texts of `LONG` bytes together, 0.1 s for the slowest function: work in the square of one takes more."""


def texts(size: int) -> list[str]:
    """Texts on which some algorithm in use for text takes time in their square, or recursion in their depth."""
    half = size // 2
    return [
        "a" * size,
        "ab" * half,
        "aB" * half,
        "\u0301\u0316" * (size // 4),
        "e" + "\u0301\u0316" * (size // 4),
        "\u1100\u1161\u11a8" * (size // 9),
        "\U0001f1e9" * (size // 4),
        "\U0001f468\u200d" * (size // 7),
        "\u0149\u1e9e" * (size // 5),
        "[" * size,
        "[" * half + "]" * half,
        '{"a":' * (size // 6) + "1" + "}" * (size // 6),
        '{"a":[' * (size // 8) + "1" + "]}" * (size // 8),
        "[" + "1," * (half - 1) + "1]",
        '["' + "\\u0000" * (size // 6) + '"]',
        "%" * size,
        "_%" * half,
        "\\" * size,
        "9" * size,
        "1e" + "9" * size,
        "0." + "0" * size + "1",
        "-" * size,
        " " * size,
        "=" * size,
        "<!--" * (size // 4),
        "1 day " * (size // 6),
        "(BC) " * (size // 5),
        "\x01" * size,
    ]


INTEGERS = [
    0,
    1,
    -1,
    7,
    2**31,
    2**53,
    2**63 - 1,
    2**63 - 2,
    -(2**63),
    -(2**63) + 10,
    -9_223_372_022_400_000_001,
    10**17,
]
TIMES = [
    0,
    10**15,
    2**63 - 1,
    2**63 - 2,
    -(2**63) + 1,
    -(2**63) + 10,
    -9_223_372_022_400_000_000,
    -9_223_372_022_400_000_001,
]
TIMES += [-62_135_596_800_000_000, 253_402_300_799_000_000, -(2**62), 2 * 10**17]
DAYS = [
    0,
    -1,
    2**31 - 1,
    -(2**31) + 1,
    106_751_991,
    106_751_992,
    -106_751_991,
    -106_751_992,
    2_932_896,
    -719_528,
    1,
    18_000,
]
FLOATS = [0.0, -0.0, 1e308, -1e308, 5e-324, 1e18, -9.3e18, 9.3e18, float("inf"), float("-inf"), float("nan"), 1.5]


@functools.cache
def table(size: int) -> pa.Table:
    """Hostile values of every kind, side by side in many ways."""
    long = texts(size)
    rows = len(long)
    made = np.random.default_rng(7)

    def dealt(values: list[object], kind: pa.DataType) -> pa.Array:
        return pa.array([values[place] for place in made.integers(0, len(values), rows)], kind)

    nested = pa.array([{"x": 1}] * rows, pa.struct([("x", pa.int64())]))
    moments = dealt(TIMES, pa.int64())
    return pa.table(
        {
            "id": pa.array(range(rows)),
            "t": long,
            "u": [text[len(text) // 2 :] + "b" for text in long],
            "n": dealt(INTEGERS, pa.int64()),
            "i": dealt([0, 1, -1, 2**31 - 1, -(2**31)], pa.int32()),
            "f": dealt(FLOATS, pa.float64()),
            "d": dealt(
                [decimal.Decimal(0), decimal.Decimal("9" * 38), decimal.Decimal("-" + "9" * 38)], pa.decimal128(38, 0)
            ),
            "p": dealt([True, False, None], pa.bool_()),
            "m": moments.cast(pa.timestamp("us")),
            "z": moments.cast(pa.timestamp("us", "UTC")),
            "day": dealt(DAYS, pa.int32()).cast(pa.date32()),
            "k": dealt([0, 1, 86_399_999_999, 86_400_000_000, -5], pa.int64()).cast(pa.time64("us")),
            "b": pa.array([text.encode() for text in long], pa.binary()),
            "l": pa.array([list(text[:1000]) for text in long], pa.list_(pa.string())),
            "s": nested,
        }
    )


def each(names: str, *forms: str) -> dict[str, list[str]]:
    """The same expressions for several functions."""
    return {name: [form.format(f=name) for form in forms] for name in names.split()}


FUNCTIONS: dict[str, list[str]] = {
    **each("abs ceil ceiling floor round trunc sign @", "{f}(f)", "{f}(n)", "{f}(d)"),
    **each(
        "sqrt cbrt exp ln log log2 log10 degrees radians sin cos tan asin acos atan even signbit isnan isinf", "{f}(f)"
    ),
    **each("isfinite", "{f}(f)", "{f}(m)", "{f}(day)"),
    **each("pow power atan2 fdiv fmod", "{f}(f, n)", "{f}(n, n)"),
    **each("mod gcd lcm xor add subtract multiply divide", "{f}(n, i)", "{f}(n, n)"),
    **each("greatest least", "{f}(t, u)", "{f}(n, f)", "{f}(m, z)"),
    **each("pi", "{f}() + f"),
    **each("bit_count", "{f}(n)"),
    **each("+ - *", "n {f} n", "d {f} d", "f {f} n"),
    **each("/ // % ** ^", "n {f} i", "f {f} n"),
    **each("& | << >>", "n {f} i"),
    **each("~", "~n"),
    **each("||", "t || u", "t || m", "b || b", "n || day"),
    **each("^@", "t ^@ u"),
    **each("lower upper lcase ucase length len char_length character_length strlen reverse strip_accents", "{f}(t)"),
    **each("nfc_normalize ascii unicode ord md5 sha256 hex unhex from_hex from_base64 json_valid", "{f}(t)"),
    **each("to_hex", "{f}(n)", "{f}(t)"),
    **each("octet_length to_base64 base64 decode", "{f}(b)"),
    **each("encode", "octet_length({f}(t))", "{f}(t)"),
    **each("substring substr", "{f}(t, n, n)", "{f}(t, i)"),
    **each("left right", "{f}(t, n)"),
    **each("trim ltrim rtrim", "{f}(t)", "{f}(t, u)"),
    **each("concat", "{f}(t, u, m, n)"),
    **each("concat_ws", "{f}(u, t, t, m)"),
    **each("split_part", "{f}(t, u, n)", "{f}(t, 'a', i)"),
    **each("contains starts_with ends_with prefix suffix strpos instr", "{f}(t, u)", "{f}(u, t)"),
    **each("position", "{f}(u IN t)", "{f}(t IN u)"),
    **each("chr", "{f}(i)"),
    **each("translate", "{f}(t, u, t)"),
    **each("array_extract", "{f}(t, n)", "{f}(l, n)"),
    **each("list_contains list_has array_contains array_has", "{f}(l, t)"),
    **each("struct_extract", "{f}(s, 'x')"),
    **each(
        "year quarter month week weekofyear weekday isodow isoyear dayofweek dayofmonth dayofyear", "{f}(m)", "{f}(z)"
    ),
    **each("yearweek day hour minute second millisecond microsecond nanosecond epoch epoch_us", "{f}(m)", "{f}(z)"),
    **each("epoch_ns century decade millennium era julian dayname monthname last_day", "{f}(m)", "{f}(day)"),
    **each("epoch_ms make_timestamp make_timestamp_ms", "CAST({f}(n) AS VARCHAR)", "{f}(n) || t", "year({f}(n))"),
    **each("make_timestamp_ns", "CAST({f}(n) AS VARCHAR)", "nanosecond({f}(n))"),
    **each("to_timestamp", "CAST({f}(f) AS VARCHAR)", "CAST(CAST({f}(f) AS TIMESTAMP) AS VARCHAR)"),
    **each("make_date", "CAST({f}(n, n, n) AS VARCHAR)"),
    **each("make_time", "CAST({f}(n, n, f) AS VARCHAR)"),
    **each("date_add", "CAST({f}(m, to_days(i)) AS VARCHAR)", "CAST({f}(day, to_months(i)) AS VARCHAR)"),
    **each("to_years to_quarters to_months to_weeks to_days to_centuries to_decades to_millennia", "m + {f}(i)"),
    **each("to_hours to_minutes to_microseconds", "m - {f}(n)", "CAST({f}(n) AS VARCHAR)"),
    **each("to_seconds to_milliseconds", "m + {f}(f)", "z - {f}(f)"),
    **each("ifnull nullif", "{f}(t, u)"),
    **each("if iif", "{f}(p, t, u)"),
    **each(
        "date_trunc datetrunc",
        *(f"{{f}}('{part}', m) || t" for part in ("microsecond", "week", "isoyear", "millennium")),
    ),
    **each("date_part datepart", "{f}('yearweek', m)", "{f}('epoch', z)", "{f}('timezone', z)", "{f}('julian', day)"),
    **each(
        "date_diff datediff date_sub datesub", "{f}('microsecond', m, m)", "{f}('week', day, m)", "{f}('century', z, z)"
    ),
    **each(
        "time_bucket", "{f}(INTERVAL 1 DAY, m)", "{f}(INTERVAL 1 MONTH, z)", "{f}(INTERVAL 1 DAY, z, 'Asia/Taipei')"
    ),
    **each("timezone", "{f}('Europe/Berlin', m)", "{f}('America/New_York', z)"),
    **each("strftime", "{f}(m, '%Y-%m-%d %H:%M:%S.%f %j %U %p %A %B %G %V')", "{f}(day, '%c %x %X')"),
    **each("strptime try_strptime", "{f}(t, '%Y-%m-%d')", "{f}(t, '%a %b %d %Z')"),
    **each("replace", "{f}(t, 'a', 'bcd')", "{f}(t, '', 'x')"),
    **each(
        "regexp_replace",
        "{f}(t, '<!--.*?-->|<', '', 'g')",
        "{f}(t, 'a.*b|a', '\\0\\0', 'g')",
        "{f}(t, '[a-z]+', 'x', 'g')",
    ),
    **each(
        "regexp_matches regexp_full_match",
        "{f}(t, '(a*)*b')",
        "{f}(t, '(a?){{20}}a{{20}}c')",
        "{f}(t, 'a.{{50}}b', 'i')",
    ),
    **each("regexp_extract", "{f}(t, '(a*)(a*)(a*)b', 2)", "{f}(t, '(.*)')"),
    **each("lpad rpad", "{f}(t, 1000, 'xy')", "{f}('', 1000, '\u20ac')"),
    **each("~~ !~~ ~~* !~~* ~~~", "t {f} '%a_a%a%b'", "t {f} '*a?a*a*b'"),
    **each("like_escape not_like_escape ilike_escape not_ilike_escape", "{f}(t, '%a!%a%a_b', '!')"),
    **each("json_extract json_extract_string ->>", "{f}(t, '$.a.a')", "{f}(t, '$[0]')", "len({f}(t, '$.*'))"),
}
for _name in ("->>",):
    FUNCTIONS[_name] = [f"t {_name} '$.a.a'", f"t {_name} '$[0]'"]
FUNCTIONS["@"] = ["@ f", "@ n"]
FUNCTIONS["json_extract"] = ["CAST(json_extract(t, '$.a') AS VARCHAR)", "len(json_extract(t, '$.*'))"]

FORMS: dict[str, list[str]] = {
    "OPERATOR_IS_NULL": ["t IS NULL"],
    "OPERATOR_IS_NOT_NULL": ["t IS NOT NULL"],
    "OPERATOR_NOT": ["NOT p"],
    "OPERATOR_COALESCE": ["coalesce(t, u)"],
    "OPERATOR_NULLIF": ["nullif(t, u)"],
    "OPERATOR_TRY": ["try(CAST(t AS INTEGER))"],
    "COMPARE_IN": ["t IN (u, 'a')"],
    "COMPARE_NOT_IN": ["t NOT IN (u, 'a')"],
    "ARRAY_EXTRACT": ["t[n]", "l[n]"],
    "ARRAY_SLICE": ["t[n:i]", "array_extract(l[n:i], 1)"],
}


def cast_to(kind: str) -> list[str]:
    """A cast of everything, and what it gives as text."""
    from_all = ("t", "n", "f", "d", "m", "z", "day", "k", "b", "p")
    return [f"CAST(TRY_CAST({column} AS {kind}) AS VARCHAR)" for column in from_all] + [f"CAST(t AS {kind})"]


def test_every_function_operator_and_type_has_hostile_cases() -> None:
    assert set(FUNCTIONS) == set(functions.FUNCTIONS)
    assert set(FORMS) == set(functions.OPERATORS)


KEPT: list[duckdb.DuckDBPyConnection] = []
"""The databases that were made for all cases; the last one is in use."""


@pytest.fixture
def one_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """One database for all cases, as for all batches of a run, since to make one takes longer than most cases."""

    def connection(_: row_calculator.Calculator) -> duckdb.DuckDBPyConnection:
        try:
            KEPT[-1].execute("SELECT 1").fetchall()
        except (IndexError, duckdb.Error):  # there is none yet, or it was given up after a failure
            KEPT.append(row_calculator.connect())
        return KEPT[-1]

    monkeypatch.setattr(row_calculator.Calculator, "connection", property(connection))


def evaluated(sql: str, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> float | None:
    """Processor time of an expression over hostile rows, which DuckDB takes as a whole; None where it has no such form."""
    try:
        bound = bind(None, {"x": sql}, rows.schema, unit=["id"], values={})
    except RequestError as error:
        if "does not exist" in error.message:
            pytest.skip("this DuckDB does not have it")
        if (
            "No function matches" in error.message
            or "Unimplemented type for cast" in error.message
            or "Cannot" in error.message
        ):
            return None
        if "has values of type" in error.message:
            return evaluated(f"({sql}) IS NULL", rows, monkeypatch)
        raise

    def fails(*_: object) -> None:
        raise AssertionError(f"{sql}: a row fails outside of TRY and must be searched for")

    monkeypatch.setattr(row_calculator.Calculator, "_search", fails)
    begun = time.process_time()
    bound.apply(rows)
    return time.process_time() - begun


@pytest.mark.usefixtures("one_database")
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(functions.FUNCTIONS))
def test_a_hostile_row_takes_a_function_no_more_than_its_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(LONG)
    taken = {sql: evaluated(sql, rows, monkeypatch) for sql in FUNCTIONS[name]}
    assert any(seconds is not None for seconds in taken.values()), "no case was evaluated"
    slow = {sql: seconds for sql, seconds in taken.items() if seconds is not None and seconds > SECONDS}
    assert not slow


@pytest.mark.usefixtures("one_database")
@pytest.mark.slow
@pytest.mark.parametrize("form", sorted(functions.OPERATORS))
def test_a_hostile_row_takes_an_operator_no_more_than_its_bytes(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(LONG)
    for sql in FORMS[form]:
        seconds = evaluated(sql, rows, monkeypatch)
        assert seconds is not None
        assert seconds < SECONDS


@pytest.mark.usefixtures("one_database")
@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(functions.TYPES))
def test_a_hostile_row_takes_a_cast_no_more_than_its_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(LONG)
    taken = [evaluated(sql, rows, monkeypatch) for sql in cast_to(kind)]
    assert any(seconds is not None for seconds in taken)
    assert max(seconds or 0 for seconds in taken) < SECONDS


@pytest.mark.parametrize(
    ("sql", "size"),
    [
        ("nfc_normalize(t)", LONG),
        pytest.param("regexp_replace(t, 'a.*b|a', '', 'g')", LONG // 2, marks=pytest.mark.slow),
    ],
)
def test_the_limit_tells_work_in_the_square_of_a_text(sql: str, size: int) -> None:
    rows = pa.table({"t": [text for text in texts(size) if text[:2] in ("aa", "\u0301\u0316")]})
    begun = time.process_time()
    row_calculator.Calculator().evaluate(rows, [row_calculator.Item(sql=sql, type=pa.string(), columns=("t",))], {})
    assert time.process_time() - begun > SECONDS


@pytest.mark.usefixtures("one_database")
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(functions.FUNCTIONS))
def test_no_text_grows_more_than_is_reckoned(name: str) -> None:
    rows = table(60)
    connection = row_calculator.Calculator().connection
    for sql in FUNCTIONS[name]:
        try:
            bound = bind(None, {"x": sql}, rows.schema, unit=["id"], values={})
        except RequestError:
            continue
        (expression,) = bound.defined
        if expression.type not in (pa.string(), pa.binary()):
            continue
        root = whitelist.select_items(
            row_calculator.parse(connection, row_calculator.statement([sql])), row_calculator.TABLE, ["c0"]
        )[0]
        most = guards.growth(root, guards.TypingContext(connection, {}))
        own = sum(row_slices.text_bytes(rows.column(name).chunk(0)) for name in expression.columns)
        found = pc.fill_null(pc.binary_length(bound.apply(rows).column("x")), 0).to_numpy()
        assert (found <= most.times * own + most.more).all(), sql
