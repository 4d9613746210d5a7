"""DuckDB as a calculator for single rows: a locked in-memory connection, and an evaluation that no row can harm.

In: an Arrow table and SQL expressions. Out: one array for each expression, as long as the table, in its order; null where an
expression fails on a row. Holds: the connection reads no file, loads no extension, keeps no state; one thread, a fixed time
zone, no optimizer, so that nothing about other rows or about time decides a value; a row that makes DuckDB itself fail costs
that row its value and nothing else, and no text of such a failure is shown. Not covered: which expressions are allowed
(`whitelist`); functions whose work is more than a row's bytes (`guards`).
"""

import collections
import contextlib
import dataclasses
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines import interrupts
from dp_pipelines.jobs.spec.job_parameters import SQL_PREFIX, Value
from dp_pipelines.jobs.sql import row_slices
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import column_types

TABLE = "__dp_rows"
EMPTY = "__dp_nothing"
"""The name of a column of nulls, used if an expression names no column."""

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
_FIRST, _LAST = -9_223_372_022_400_000_000, 2**63 - 2
"""In microseconds: the first day of DuckDB's calendar (in 290309 BC), and the last moment before its infinity."""

LONGEST_VALUE = 2**30
"""The most bytes of a value that an expression reads; a longer one is null."""

LONGEST_RESULT = 2**20
"""The most bytes of a text or of bytes that an expression gives; a longer value becomes null."""

RESULTS, MOST_GROWTH = 4, 256
"""If texts may grow by more than this factor, slices shrink, down to a `RESULTS / MOST_GROWTH`th."""

_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def connect() -> duckdb.DuckDBPyConnection:
    """A new database in memory, locked."""
    # A value that makes a function fail which DuckDB considers safe (such as a cast of a time before its calendar) would end the
    # whole database. Nothing is stored in it that could be damaged, and a new one takes 0.1 s.
    connection = duckdb.connect(":memory:", config={"threads": "1", "disable_database_invalidation": "true"})
    for setting in _SETTINGS:
        connection.execute(setting).fetchall()
    return connection


class _Checking(threading.local):
    """The connection of each thread that checks jobs, and the process that opened it: a fork opens its own."""

    process = 0
    connection: duckdb.DuckDBPyConnection


_CHECKING = _Checking()


def checking_connection() -> duckdb.DuckDBPyConnection:
    """The connection of this thread for checking jobs, over which no row of a source ever goes.

    All jobs that a thread checks share it, since to open one takes longer than to check a job. A new one is opened where an
    expression has damaged it: after a fatal error DuckDB refuses everything else.
    """
    if _CHECKING.process == os.getpid():
        with contextlib.suppress(duckdb.Error):
            _CHECKING.connection.execute("SELECT 1").fetchall()
            return _CHECKING.connection
    _CHECKING.connection, _CHECKING.process = connect(), os.getpid()
    return _CHECKING.connection


def parse(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """DuckDB's own parse tree of a statement, or {"error": True, "error_message": ..} if it does not parse."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """An expression to evaluate.

    Args:
        sql: its text.
        type: the type of its values.
        columns: the columns that it names.
        growth: how many times longer its text may be than its input.
    """

    sql: str
    type: pa.DataType
    columns: tuple[str, ...]
    growth: int = 1


def growth(kind: pa.DataType, times: int, more: int) -> int:
    """How many times longer than its row a value of a type may be, if a text has `times` the bytes of the row, plus `more`."""
    return max(1, times + (-(-more // row_slices.ROW_BYTES) if _is_text(kind) else 0))


def read_by(items: Sequence[Item]) -> tuple[list[str], int]:
    """The columns that expressions read, and how many bytes of them are evaluated at once."""
    longer = sum(item.growth for item in items if _is_text(item.type))
    longer = max([longer, 1, *(item.growth for item in items)])
    names = dict.fromkeys(name for item in items for name in item.columns)
    return list(names), row_slices.SLICE_BYTES * RESULTS // min(max(longer, RESULTS), MOST_GROWTH)


def clean(column: pa.ChunkedArray) -> pa.Array:
    """A column as expressions see it: plain; times in microseconds; NaN, invalid text and times out of range are null.

    >>> clean(pa.chunked_array([pa.array([1.0, float("nan")])])).to_pylist()
    [1.0, None]
    """
    # Chunk by chunk: one dictionary of all chunks might not fit where the decoded rows do.
    pieces = [_clean(chunk) for chunk in column.chunks]
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_arrays(pieces) if pieces else _clean(pa.nulls(0, column.type))


def _clean(array: pa.Array) -> pa.Array:
    if pa.types.is_nested(array.type) and array.offset:
        array = pa.concat_arrays([array, array.slice(0, 0)])  # without the rows of other slices
    array = column_types.in_layout(array, column_types.readable_type(array.type))
    array = keys.plain(_held(array))
    if pa.types.is_nested(array.type):
        return _times_inside(_deeply_plain(_valid(array)))
    return _in_range(array)


def _held(array: pa.Array) -> pa.Array:
    """Text, lists and structs, without the values that are too long for plain offsets of 32 bits."""
    kind = array.type
    if array.nbytes < LONGEST_VALUE or not (pa.types.is_nested(kind) or kind in (pa.large_string(), pa.large_binary())):
        return array
    # Not if_else, which knows few nested types; take builds nulls from null indices.
    return array.take(pa.array(np.arange(len(array)), mask=row_slices.text_bytes(array) > LONGEST_VALUE))


def _in_range(array: pa.Array) -> pa.Array:
    """A plain, flat array, with times in the range of DuckDB's calendar."""
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit in _MICROSECONDS:
        factor = _MICROSECONDS[kind.unit]
        return _within(array, -(-_FIRST // factor), _LAST // factor).cast(pa.timestamp("us", kind.tz))
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _within(array, _FIRST, _LAST)
    if pa.types.is_timestamp(kind):
        return _floor_to_microseconds(array).view(pa.timestamp("us", kind.tz))
    if pa.types.is_time(kind):
        array = _within(array, 0, _DAY[kind.unit])
        return _floor_to_microseconds(array).view(pa.time64("us")) if kind.unit == "ns" else array
    if pa.types.is_date64(kind):
        limit = (2**31 - 1) * 86_400_000
        return _within(array, -limit, limit).cast(pa.date32(), safe=False)
    return _valid(array) if pa.types.is_decimal(kind) else array


def _times_inside(array: pa.Array) -> pa.Array:
    """The same for the values inside lists and structs."""
    kind = array.type
    if pa.types.is_nested(kind) and not _holds_time(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [_times_inside(part) for part in array.flatten()]
        fields = [field.with_type(part.type) for field, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=pc.is_null(array))
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        ends = np.append(0, np.cumsum(lengths.to_numpy(zero_copy_only=False))).astype(np.int32)
        values = _times_inside(array.flatten())
        field = kind.value_field.with_type(values.type)
        return pa.ListArray.from_arrays(pa.array(ends), values, type=pa.list_(field), mask=pc.is_null(array))
    if pa.types.is_map(kind):
        return _times_inside(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    return array if pa.types.is_nested(kind) else _in_range(array)


def _holds_time(kind: pa.DataType) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return any(pa.types.is_temporal(each) or _holds_time(each) for each in inner)


def _deeply_plain(array: pa.Array) -> pa.Array:
    """A nested array whose inner values are plain too: how a writer encoded them must not decide a row's value."""
    return column_types.in_layout(array, _deeply_plain_type(array.type))


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
    """The array with null for each value that breaks the rules of its own type, as in damaged files."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        sound = pa.array([_is_valid(array.take(pa.array([index]))) for index in range(len(array))], pa.bool_())
        # Not if_else, which would read the damaged values: take builds nulls from null indices.
        indices = pc.if_else(sound, pa.array(range(len(array)), pa.int64()), pa.scalar(None, pa.int64()))
        return array.take(indices)
    return array


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _pieces(column: pa.ChunkedArray) -> list[pa.Array]:
    """The column in one piece, which later steps filter faster, unless it is large."""
    if column.num_chunks > 1 and column.nbytes <= row_slices.SLICE_BYTES:
        return [pa.concat_arrays(column.chunks)]
    return list(column.chunks)


def _sound(array: pa.Array) -> pa.Array:
    """Values without overlong text, and without NaN, since a failed logarithm is NaN in one version and null in another."""
    kind = array.type
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(array), pa.scalar(None, kind), array)
    if _is_text(kind) and array.nbytes > LONGEST_RESULT:
        lengths = pc.binary_length(array)
        if (pc.max(lengths).as_py() or 0) > LONGEST_RESULT:
            return pc.if_else(pc.less_equal(lengths, LONGEST_RESULT), array, pa.scalar(None, kind))
    return array


def _is_valid(one: pa.Array) -> bool:
    try:
        one.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


class Calculator:
    """Evaluates expressions over tables, in any number of threads, each with a connection of its own while it does.

    Connects on first use and after a failure; is pickled without its connections.
    """

    def __init__(self) -> None:
        self._free: collections.deque[duckdb.DuckDBPyConnection] = collections.deque()
        self._of_thread = threading.local()

    def __reduce__(self) -> tuple[type["Calculator"], tuple[()]]:
        return (Calculator, ())

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The open connection of this thread."""
        found: duckdb.DuckDBPyConnection | None = getattr(self._of_thread, "connection", None)
        if found is None:
            try:
                found = self._free.pop()
            except IndexError:
                found = connect()
            self._of_thread.connection = found
        return found

    def _hand_back(self) -> None:
        """Leave the connection to other threads: those of an engine come and go."""
        found = getattr(self._of_thread, "connection", None)
        self._of_thread.connection = None
        if found is not None:
            self._free.append(found)

    def evaluate(self, table: pa.Table, items: Sequence[Item], params: Mapping[str, Value]) -> list[pa.ChunkedArray]:
        """The value of each expression in each row, null where it fails, in chunks of some megabytes.

        Args:
            table: the rows; DuckDB gets only the columns that an expression names.
            items: the expressions.
            params: the values of prepared parameters.
        """
        if not items:
            return []
        names, most = read_by(items)
        found: list[list[pa.Array]] = [[] for _ in items]
        try:
            for start, stop in row_slices.cut(table, names, most):
                columns = {name: clean(table.column(name).slice(start, stop - start)) for name in names}
                for chunks, more in zip(found, self._values(columns, stop - start, items, params), strict=True):
                    chunks += more
        finally:
            self._hand_back()
        return [pa.chunked_array(chunks, item.type) for chunks, item in zip(found, items, strict=True)]

    def _values(
        self, columns: Mapping[str, pa.Array], rows: int, items: Sequence[Item], params: Mapping[str, Value]
    ) -> list[list[pa.Array]]:
        if rows == 0:
            return [[] for _ in items]
        try:
            return self._run(columns, rows, items, params)
        except BaseException:  # what a row did must not be seen, whatever it was
            interrupts.end_if_asked()
            self._renew()
        # Something in the rows broke them all. Evaluate one expression at a time, so that each loses only its own rows.
        return [self._search({name: _valid(columns[name]) for name in i.columns}, rows, i, params) for i in items]

    def _search(
        self, columns: Mapping[str, pa.Array], rows: int, item: Item, params: Mapping[str, Value]
    ) -> list[pa.Array]:
        """The values in pieces: a piece that fails is halved; a single row that fails is null."""
        try:
            (found,) = self._run(columns, rows, [item], params)
            return found
        except BaseException:  # as above
            interrupts.end_if_asked()
            self._renew()
        if rows == 1:
            return [pa.nulls(1, item.type)]
        half = rows // 2
        first = {name: column.slice(0, half) for name, column in columns.items()}
        rest = {name: column.slice(half) for name, column in columns.items()}
        return self._search(first, half, item, params) + self._search(rest, rows - half, item, params)

    def _run(
        self, columns: Mapping[str, pa.Array], rows: int, items: Sequence[Item], params: Mapping[str, Value]
    ) -> list[list[pa.Array]]:
        table = pa.table(dict(columns) or {EMPTY: pa.nulls(rows, pa.bool_())})
        connection = self.connection
        connection.register(TABLE, table)
        try:
            result = query(connection, statement([item.sql for item in items]), params)
        finally:
            connection.unregister(TABLE)
        if result.num_rows != rows:
            raise ValueError("rows were lost")
        both = zip(result.columns, items, strict=True)
        return [[_sound(piece) for piece in _pieces(column.cast(item.type))] for column, item in both]

    def _renew(self) -> None:
        """Open a new connection if this one refuses everything, as it does after a fatal error."""
        try:
            self.connection.execute("SELECT 1").fetchall()
        except BaseException:  # as above
            interrupts.end_if_asked()
            self._reset()

    def _reset(self) -> None:
        """Drop the connection: after a fatal error DuckDB refuses everything else on it."""
        connection = getattr(self._of_thread, "connection", None)
        self._of_thread.connection = None
        if connection is not None:
            connection.close()


def statement(expressions: Sequence[str]) -> str:
    r"""The only form of statement that is ever run over rows. The line breaks end any comment that an expression opens.

    >>> statement(["a + 1"])
    'SELECT TRY((\na + 1\n)) AS c0 FROM __dp_rows'
    """
    listed = ", ".join(f"TRY((\n{sql}\n)) AS c{index}" for index, sql in enumerate(expressions))
    return f"SELECT {listed} FROM {TABLE}"  # noqa: S608 - this statement is what sql_tree checks
