"""The functions, operators and types that `where` and `columns` may use, as data.

Holds: every function is deterministic, looks at one row alone, and reads no file, setting, clock or environment. With the
rewrites of `guards`, its time and its result are at most a constant times its input (no repeat, no padding by a column). A new
function needs hostile cases in tests/jobs/sql/test_hostile_rows.py. Arguments that decide the work for a row, or that could hide
a mistake, must be constants: patterns, replacements, formats, parts of dates.

May be imported by jobs.sql.whitelist; imports nothing.
"""

_NUMBERS = """abs ceil ceiling floor round trunc sign sqrt cbrt exp ln log log2 log10 pow power mod fmod fdiv greatest least
gcd lcm isnan isinf isfinite degrees radians sin cos tan asin acos atan atan2 pi bit_count xor add subtract multiply divide
even signbit"""
_TEXT = """lower upper lcase ucase length len char_length character_length strlen octet_length substring substr left right
trim ltrim rtrim concat concat_ws split_part contains starts_with ends_with prefix suffix position strpos instr reverse
strip_accents nfc_normalize ascii unicode ord chr md5 sha256 encode decode to_base64 base64 from_base64 hex unhex to_hex
from_hex translate array_extract json_valid list_contains list_has array_contains array_has"""
_TIME = """date_add year quarter month week weekofyear weekday isodow isoyear dayofweek dayofmonth dayofyear yearweek day hour
minute second millisecond microsecond nanosecond epoch epoch_ms epoch_us epoch_ns dayname monthname last_day make_date
make_time make_timestamp make_timestamp_ms make_timestamp_ns to_timestamp century decade millennium era julian to_years
to_quarters to_months to_weeks to_days to_hours to_minutes to_seconds to_milliseconds to_microseconds to_centuries to_decades
to_millennia struct_extract"""
_CHOICE = "ifnull nullif if iif"
_OPERATORS = "+ - * / // % ** ^ & | ~ << >> || @ ^@"

CONSTANT_ARGUMENTS: dict[str, tuple[int, ...]] = {
    "date_trunc": (0,),
    "datetrunc": (0,),
    "date_part": (0,),
    "datepart": (0,),
    "date_diff": (0,),
    "datediff": (0,),
    "date_sub": (0,),
    "datesub": (0,),
    "time_bucket": (0, 2),
    "timezone": (0,),
    "strftime": (1,),
    "strptime": (1,),
    "try_strptime": (1,),
    "replace": (1, 2),
    "regexp_replace": (1, 2, 3),
    "regexp_matches": (1, 2),
    "regexp_full_match": (1, 2),
    "regexp_extract": (1, 2, 3),
    "lpad": (1, 2),
    "rpad": (1, 2),
    "~~": (1,),
    "!~~": (1,),
    "~~*": (1,),
    "!~~*": (1,),
    "~~~": (1,),
    "like_escape": (1, 2),
    "not_like_escape": (1, 2),
    "ilike_escape": (1, 2),
    "not_ilike_escape": (1, 2),
    "json_extract": (1,),
    "json_extract_string": (1,),
    "->>": (1,),
}
"""The argument positions that must be constants. All these functions are allowed."""

PROBES = {
    "date_trunc": "date_trunc({0}, TIMESTAMP '2000-01-01')",
    "datetrunc": "date_trunc({0}, TIMESTAMP '2000-01-01')",
    "date_part": "date_part({0}, TIMESTAMP '2000-01-01')",
    "datepart": "date_part({0}, TIMESTAMP '2000-01-01')",
    "date_diff": "date_diff({0}, TIMESTAMP '2000-01-01', TIMESTAMP '2000-01-02')",
    "datediff": "date_diff({0}, TIMESTAMP '2000-01-01', TIMESTAMP '2000-01-02')",
    "date_sub": "date_sub({0}, TIMESTAMP '2000-01-01', TIMESTAMP '2000-01-02')",
    "datesub": "date_sub({0}, TIMESTAMP '2000-01-01', TIMESTAMP '2000-01-02')",
    "timezone": "timezone({0}, TIMESTAMP '2000-01-01')",
    "strftime": "strftime(TIMESTAMP '2000-01-01', {0})",
    "regexp_replace": "regexp_replace('a', {0}, {1})",
    "regexp_matches": "regexp_matches('a', {0})",
    "regexp_full_match": "regexp_full_match('a', {0})",
    "regexp_extract": "regexp_extract('a', {0})",
    "lpad": "lpad('a', {0}, {1})",
    "rpad": "rpad('a', {0}, {1})",
}
"""Tried before any row is read: a wrong constant would fail on every row and make every value null."""

_CHANCE = "random rand setseed uuid uuidv4 uuidv7 gen_random_uuid nextval currval"
_CLOCK = "now today getdate current_date current_time current_timestamp localtime localtimestamp transaction_timestamp"
_SETTINGS = "get_current_time get_current_timestamp current_user current_setting"

NOT_DETERMINISTIC = frozenset(" ".join((_CHANCE, _CLOCK, _SETTINGS)).split())
"""Functions whose value is not that of the row alone, which people try."""

CLOCK = frozenset(_CLOCK.split())
"""Those of them that say what day it is; SQL lets some stand without parentheses."""

NO_CLOCK = "the day of a run must not choose rows, since the same run means the same rows for ever"
DAY_AS_PARAMETER = "write {day}, with params: {day: {type: date}}, and run with --param day=2026-01-05"

MOST_PADDING = 1000
"""Functions whose constant argument decides how long a text becomes."""

FUNCTIONS = frozenset(" ".join((_NUMBERS, _TEXT, _TIME, _CHOICE, _OPERATORS)).split()) | frozenset(CONSTANT_ARGUMENTS)

_FORMS = """OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_NOT OPERATOR_COALESCE OPERATOR_NULLIF OPERATOR_TRY COMPARE_IN
COMPARE_NOT_IN ARRAY_EXTRACT ARRAY_SLICE"""
_COMPARISONS = """COMPARE_EQUAL COMPARE_NOTEQUAL COMPARE_LESSTHAN COMPARE_GREATERTHAN COMPARE_LESSTHANOREQUALTO
COMPARE_GREATERTHANOREQUALTO COMPARE_DISTINCT_FROM COMPARE_NOT_DISTINCT_FROM"""
_TYPES = """BOOLEAN BOOL LOGICAL TINYINT INT1 SMALLINT INT2 SHORT INTEGER INT INT4 SIGNED BIGINT INT8 LONG HUGEINT INT128 UTINYINT
USMALLINT UINTEGER UBIGINT UINT8 UINT16 UINT32 UINT64 FLOAT FLOAT4 REAL DOUBLE FLOAT8 DECIMAL NUMERIC DEC VARCHAR CHAR
BPCHAR TEXT STRING BLOB BYTEA BINARY VARBINARY DATE TIME DATETIME TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS
TIMESTAMP_US TIMESTAMPTZ INTERVAL"""

OPERATORS = frozenset(_FORMS.split())
COMPARISONS = frozenset(_COMPARISONS.split())
TYPES = frozenset(_TYPES.split()) | {"TIMESTAMP WITH TIME ZONE"}

AGGREGATES = frozenset(
    ["avg", "count", "count_star", "max", "median", "min", "quantile_cont", "stddev", "sum", "variance"]
)
"""Functions of many rows, which a released table holds the results of."""

NOT_OF_ONE_ROW = {
    "SUBQUERY": "a subquery, which reads more than one row",
    "WINDOW": "a window function, which reads other rows",
    "LAMBDA": "a lambda or the arrow ->, which is not allowed (for JSON write ->>)",
    "STAR": "a star, which is not a single value",
    "COLLATE": "a collation, which is not allowed",
    "POSITIONAL_REFERENCE": "a column number instead of a name",
    "DEFAULT": "DEFAULT, which has no meaning here",
    "PARAMETER": "a prepared parameter, which is not allowed (write {name})",
    "TYPE": "a type as a value, which is not allowed",
}
"""How messages name the forms that are refused."""
