"""DuckDB as a calculator for single rows: a locked connection in memory, and an evaluation in which no row can do harm.

In: an Arrow table and SQL expressions. Out: one array for each expression, as long as the table, in its order; null where an
expression fails on a row. Holds: the connection reads no file, loads no extension, keeps no state; one thread, a fixed time
zone, no optimizer, so that nothing about other rows or about time decides a value; a row that makes DuckDB itself fail costs
that row its value and nothing else, and no text of such a failure is shown. Not covered: which expressions are allowed
(`sql_tree`); the time that a damaged row costs.

May import errors, kernels.keys, duckdb, pyarrow. Imported by jobs.expressions.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.jobs.params import SQL_PREFIX, Value
from dp_pipelines.kernels import keys

TABLE = "__dp_rows"
EMPTY = "__dp_nothing"
"""Name of a column of nulls that stands in where an expression names no column."""

_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET Calendar = 'gregorian'",
    "SET temp_directory = ''",
    "SET preserve_insertion_order = true",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "PRAGMA disable_optimizer",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)

_PARAMETERS = re.compile(re.escape(f"${SQL_PREFIX}") + r"(\w+)")
_MICROSECONDS = {"s": 10**6, "ms": 10**3}
_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def connect() -> duckdb.DuckDBPyConnection:
    """A new database in memory, locked."""
    connection = duckdb.connect(":memory:", config={"threads": "1"})
    for setting in _SETTINGS:
        connection.execute(setting).fetchall()
    return connection


def parse(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """DuckDB's own parse tree of a statement; {"error": True, "error_message": ..} where it does not parse."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    tree: dict[str, Any] = json.loads(text)
    return tree


def unparse(connection: duckdb.DuckDBPyConnection, node: Any) -> str:
    """The SQL of an expression's tree."""
    tree = parse(connection, "SELECT 1")
    tree["statements"][0]["node"]["select_list"] = [node]
    ((text,),) = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
    return str(text).removeprefix("SELECT ")


def query(connection: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, Value]) -> pa.Table:
    """The result of a statement as an Arrow table; only the parameters that it uses are handed over."""
    named = set(_PARAMETERS.findall(sql))
    used = {SQL_PREFIX + name: value for name, value in params.items() if name in named}
    return connection.sql(sql, params=used).to_arrow_table() if used else connection.sql(sql).to_arrow_table()


def clean(column: pa.ChunkedArray) -> pa.Array:
    """A column as expressions see it: plain, NaN and invalid text null, times in microseconds, what is out of range null.

    >>> clean(pa.chunked_array([pa.array([1.0, float("nan")])])).to_pylist()
    [1.0, None]
    """
    array = keys.plain(column)
    kind = array.type
    if pa.types.is_nested(kind):
        return _deeply_plain(_valid(array))
    if pa.types.is_timestamp(kind) and kind.unit in _MICROSECONDS:
        factor = _MICROSECONDS[kind.unit]
        array = _within(array, -(2**63 - 1) // factor + 1, (2**63 - 1) // factor - 1)
        return array.cast(pa.timestamp("us", kind.tz))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _floor_to_microseconds(array).view(pa.timestamp("us", kind.tz))
    if pa.types.is_time(kind):
        array = _within(array, 0, _DAY[kind.unit])
        return _floor_to_microseconds(array).view(pa.time64("us")) if kind.unit == "ns" else array
    if pa.types.is_date64(kind):
        limit = (2**31 - 1) * 86_400_000
        return _within(array, -limit, limit).cast(pa.date32(), safe=False)
    return _valid(array) if pa.types.is_decimal(kind) else array


def _deeply_plain(array: pa.Array) -> pa.Array:
    """A nested array whose inner values are plain too: how a writer has coded them must not decide what a row gives."""
    kind = _deeply_plain_type(array.type)
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowException:  # what Arrow cannot cast, DuckDB may read all the same, row by row if need be
        return array


def _deeply_plain_type(kind: pa.DataType) -> pa.DataType:
    """The type with plain types inside.

    >>> str(_deeply_plain_type(pa.list_(pa.dictionary(pa.int8(), pa.large_string()))))
    'list<item: string>'
    """
    kind = keys.plain_type(kind)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_deeply_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_deeply_plain_type(kind.key_type)),
            kind.item_field.with_type(_deeply_plain_type(kind.item_type)),
        )
    inner = getattr(kind, "value_field", None)
    if inner is None:
        return kind
    inner = inner.with_type(_deeply_plain_type(inner.type))
    return pa.list_(inner, kind.list_size) if pa.types.is_fixed_size_list(kind) else pa.list_(inner)


def _floor_to_microseconds(array: pa.Array) -> pa.Array:
    """Nanoseconds, which few functions take, as microseconds in int64."""
    numbers = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.floor_divide(numbers, 1000), mask=pc.is_null(array).to_numpy(zero_copy_only=False))


def _within(array: pa.Array, low: int, high: int) -> pa.Array:
    numbers = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(inside, array, pa.scalar(None, array.type))


def _valid(array: pa.Array) -> pa.Array:
    """The array with null where a value breaks the rules of its own type, as damaged files have them."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        sound = pa.array([_is_valid(array.take(pa.array([index]))) for index in range(len(array))], pa.bool_())
        # Not if_else, which would touch what is damaged: take builds nulls from null indices.
        indices = pc.if_else(sound, pa.array(range(len(array)), pa.int64()), pa.scalar(None, pa.int64()))
        return array.take(indices)
    return array


def _without_nan(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece, NaN null: not a number is what a failed logarithm gives in one version and null in another."""
    array = keys.one_array(column)
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    return array


def _is_valid(one: pa.Array) -> bool:
    try:
        one.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


class Calculator:
    """Evaluates expressions over tables; connects when first used and after a failure, and is pickled without connection."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None

    def __reduce__(self) -> tuple[type["Calculator"], tuple[()]]:
        return (Calculator, ())

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The open connection."""
        if self._connection is None:
            self._connection = connect()
        return self._connection

    def evaluate(
        self,
        table: pa.Table,
        expressions: Sequence[tuple[str, pa.DataType, tuple[str, ...]]],
        params: Mapping[str, Value],
    ) -> list[pa.Array]:
        """The value of each expression in each row, null where it fails.

        Args:
            table: rows; only the columns that an expression names are handed to DuckDB.
            expressions: SQL, type of the result, columns that it names.
            params: values of prepared parameters.
        """
        if table.num_rows == 0:
            return [pa.array([], kind) for _, kind, _ in expressions]
        needed = dict.fromkeys(name for _, _, names in expressions for name in names)
        columns = {name: clean(table.column(name)) for name in needed}
        try:
            return self._run(columns, table.num_rows, expressions, params)
        except Exception:  # what a row did must not be seen, whatever it was
            self._reset()
        # Something in the rows broke the whole batch. One expression after the other, so that each loses its own rows only.
        results = []
        for expression in expressions:
            own = {name: _valid(columns[name]) for name in expression[2]}
            results.append(pa.concat_arrays(self._search(own, table.num_rows, expression, params)))
        return results

    def _search(
        self,
        columns: Mapping[str, pa.Array],
        rows: int,
        expression: tuple[str, pa.DataType, tuple[str, ...]],
        params: Mapping[str, Value],
    ) -> list[pa.Array]:
        """The values in pieces: a piece that fails is halved, a single row that fails is null."""
        try:
            return self._run(columns, rows, [expression], params)
        except Exception:  # as above
            self._reset()
        if rows == 1:
            return [pa.nulls(1, expression[1])]
        half = rows // 2
        first = {name: column.slice(0, half) for name, column in columns.items()}
        rest = {name: column.slice(half) for name, column in columns.items()}
        return self._search(first, half, expression, params) + self._search(rest, rows - half, expression, params)

    def _run(
        self,
        columns: Mapping[str, pa.Array],
        rows: int,
        expressions: Sequence[tuple[str, pa.DataType, tuple[str, ...]]],
        params: Mapping[str, Value],
    ) -> list[pa.Array]:
        table = pa.table(dict(columns) or {EMPTY: pa.nulls(rows, pa.bool_())})
        connection = self.connection
        connection.register(TABLE, table)
        try:
            result = query(connection, statement([sql for sql, _, _ in expressions]), params)
        finally:
            connection.unregister(TABLE)
        if result.num_rows != rows:
            raise ValueError("rows were lost")
        return [
            _without_nan(column.cast(kind)) for column, (_, kind, _) in zip(result.columns, expressions, strict=True)
        ]

    def _reset(self) -> None:
        """Drop the connection: after a fatal error DuckDB refuses everything else on it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def statement(expressions: Sequence[str]) -> str:
    r"""The one form of statement that is ever run over rows. The line breaks end what an expression may open as a comment.

    >>> statement(["a + 1"])
    'SELECT TRY((\na + 1\n)) AS c0 FROM __dp_rows'
    """
    listed = ", ".join(f"TRY((\n{sql}\n)) AS c{index}" for index, sql in enumerate(expressions))
    return f"SELECT {listed} FROM {TABLE}"  # noqa: S608 - this statement is what sql_tree checks
