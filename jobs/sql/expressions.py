"""`where` and `columns` of a job file: checked and typed before a row is read, then evaluated batch by batch.

In: SQL expressions over one row, the source's schema, parameters. Out: `RowExpressions`, which turns a table of source rows
into a table of the kept rows with the defined columns. Holds: an expression depends on its own row alone and gives null where
it fails; row order is kept; nothing can redefine the privacy unit or shadow a column of the source. Refusals depend on public
facts alone: the text, the schema, the parameters. Not covered: what an expression means; a `where` that keeps a single person
is still covered by the noise.
"""

import dataclasses
import re
import types
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.validation_errors import UNIT_OF_SOURCE, raise_all
from dp_pipelines.jobs.sql import dry_run, guards, row_calculator, whitelist
from dp_pipelines.jobs.sql.parse_tree import without_places
from dp_pipelines.jobs.sql.row_expressions import Expression, RowExpressions
from dp_pipelines.kernels import keys

LONGEST = 20_000
"""The most characters of one expression."""


_QUOTED = re.compile(r'"([^"]+)"')


def bind(
    where: str | None,
    columns: Mapping[str, str],
    schema: pa.Schema,
    *,
    unit: Sequence[str],
    values: Mapping[str, Value],
    absent: Mapping[str, str] = types.MappingProxyType({}),
) -> RowExpressions:
    """Check and type all expressions of a job.

    Args:
        where: the condition, or None.
        columns: the SQL of each defined column, by its name.
        schema: the source's schema.
        unit: the columns of the privacy unit.
        values: the values of the declared parameters, which only `where` may use.
        absent: the problem with each column that only some files have.

    Raises:
        RequestError: every problem, with the fields `where` and `columns.NAME`.

    >>> rows = bind("amount > 0", {"euros": "amount / 100"}, pa.schema([("amount", pa.int64())]), unit=["id"], values={})
    >>> rows.apply(pa.table({"amount": [250, -1]})).to_pylist()
    [{'amount': 250, 'euros': 2.5}]
    """
    connection = row_calculator.checking_connection()
    problems: list[RequestError] = []
    taken = {name.casefold(): name for name in schema.names}
    units = {name.casefold() for name in unit}
    condition = None
    if where is not None:
        try:
            known = whitelist.KnownNames(columns=schema.names, defined=columns, absent=absent, params=values)
            condition = _condition("where", where, schema, known, values, connection)
        except RequestError as error:
            problems.append(error)
    defined = []
    for name, sql in columns.items():
        field = f"columns.{name}"
        if name.casefold() in units:
            problems.append(_refused(field, "would define a column of the privacy unit", UNIT_OF_SOURCE))
        elif name.casefold() in taken:
            hint = "choose another name"
            problems.append(_refused(field, f"would shadow column {taken[name.casefold()]!r} of the source", hint))
        elif not name or name.startswith("__"):
            problems.append(_refused(field, "must be a name that does not start with two underscores", "rename it"))
        else:
            try:
                known = whitelist.KnownNames(columns=schema.names, defined=columns, absent=absent)
                defined.append(_bind_one(field, sql, schema, known, {}, connection))
            except RequestError as error:
                problems.append(error)
            taken[name.casefold()] = name
    raise_all(problems)
    rows = RowExpressions(where=condition, defined=tuple(defined), params=dict(values), schema=schema)
    read = rows.input_columns
    if len({name.casefold() for name in read}) != len(read):
        hint = "rename one of them, or use only one"
        raise _refused("source", "has columns in use whose names differ only in case: DuckDB would mix them up", hint)
    return rows


def check_without_values(
    where: str | None,
    columns: Mapping[str, str],
    schema: pa.Schema,
    *,
    unit: Sequence[str],
    examples: Mapping[str, Value],
    absent: Mapping[str, str] = types.MappingProxyType({}),
) -> None:
    """Refuse what is wrong in the expressions of a job whatever values its parameters have.

    Args:
        where, columns, schema, unit, absent: see `bind`.
        examples: a value of the declared type for each parameter. Nothing that follows from it is refused.

    Raises:
        RequestError: a problem, with the fields `where` and `columns.NAME`.

    >>> check_without_values("week = {week}", {}, pa.schema([("day", pa.date32())]), unit=["id"], examples={"week": "2026-W01"})
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: where: names column 'week', which the source does not have; columns: day
    """
    if where is not None:
        known = whitelist.KnownNames(columns=schema.names, defined=columns, absent=absent, params=examples)
        _allowed("where", where, known, examples, row_calculator.checking_connection())
    bind(None, columns, schema, unit=unit, values={}, absent=absent)


def over_released(
    having: str, schema: pa.Schema, values: Mapping[str, Value], lists: Mapping[str, str] = types.MappingProxyType({})
) -> RowExpressions:
    """Check and type a condition over the rows of a released table.

    Args:
        having: the condition.
        schema: the released columns.
        values: values of the declared parameters.
        lists: what is wrong with columns that hold no plain values.

    Raises:
        RequestError: what is wrong, without a field.

    >>> rows = over_released("orders > 50", pa.schema([("orders", pa.float64())]), {})
    >>> rows.apply(pa.table({"orders": [60.0, 40.0, None]})).to_pylist()
    [{'orders': 60.0}]
    """
    plain = pa.schema([field for field in schema if field.name not in lists])
    known = whitelist.KnownNames(columns=plain.names, absent=lists, params=values, released=True)
    try:
        condition = _condition("having", having, plain, known, values, row_calculator.checking_connection())
    except RequestError as error:
        raise _refused("", error.message, error.hint) from None
    if len({name.casefold() for name in condition.columns}) != len(condition.columns):
        message = "names columns whose names differ only in case: DuckDB would mix them up"
        raise _refused("", message, "rename a metric, or use only one")
    return RowExpressions(where=condition, defined=(), params=dict(values), schema=plain)


def _condition(
    field: str,
    text: str,
    schema: pa.Schema,
    known: whitelist.KnownNames,
    values: Mapping[str, Value],
    connection: duckdb.DuckDBPyConnection,
) -> Expression:
    """As `_bind_one`, of an expression that is true or false."""
    condition = _bind_one(field, text, schema, known, values, connection)
    if condition.type != pa.bool_():
        raise _refused(field, f"must be true or false, not {condition.type}", "write a comparison")
    return condition


def _bind_one(
    field: str,
    text: str,
    schema: pa.Schema,
    known: whitelist.KnownNames,
    values: Mapping[str, Value],
    connection: duckdb.DuckDBPyConnection,
) -> Expression:
    """One expression, checked, typed and tried on constants. Raises: RequestError with `field`."""
    sql, root, uses = _allowed(field, text, known, values, connection)
    columns = tuple(uses.columns)
    reads = {name: schema.field(name).type for name in columns}
    try:
        dry_run.register_nulls(reads, connection)
    except (duckdb.Error, pa.ArrowException) as error:
        names = ", ".join(f"{name} ({kind})" for name, kind in reads.items())
        raise _refused(
            field, f"reads a column of a type that expressions do not support: {names}", _first(error)
        ) from None
    try:
        kind = row_calculator.query(connection, row_calculator.statement([sql]), values).schema.types[0]
        bound = guards.TypingContext(connection, values)
        sql, growth = _spelled(sql, root, bound), guards.growth(root, bound)
        dry_run.try_out(sql, reads, uses, values, connection)
    except duckdb.Error as error:
        raise _refused(field, f"is invalid: {_first(error)}", "") from None
    except RequestError as error:
        raise _refused(field, error.message, error.hint) from None
    except RecursionError:
        raise _refused(field, "is nested too deeply", "split it") from None
    finally:
        connection.unregister(row_calculator.TABLE)
    name, plain = field.partition(".")[2] or field, _plain_result(field, kind)
    return Expression(
        name=name, sql=sql, type=plain, columns=columns, growth=row_calculator.growth(plain, growth.times, growth.more)
    )


def _allowed(
    field: str,
    text: str,
    known: whitelist.KnownNames,
    values: Mapping[str, Value],
    connection: duckdb.DuckDBPyConnection,
) -> tuple[str, whitelist.Node, whitelist.Uses]:
    """The SQL of an expression with allowed names and forms, its parse tree, what it uses. Raises: RequestError with `field`."""
    if not text.strip() or len(text) > LONGEST or "\0" in text:
        raise _refused(field, f"must be an SQL expression of at most {LONGEST} characters", "write e.g. AMOUNT > 0")
    sql, placeholders = job_parameters.into_sql(text, values)
    root = tree(field, sql, connection, values)
    try:
        uses = whitelist.check(root, dataclasses.replace(known, quoted=_QUOTED.findall(text)))
    except RequestError as error:
        raise _refused(field, error.message, error.hint) from None
    if uses.params != placeholders:
        name = next(name for name in placeholders if uses.params.get(name, 0) != placeholders[name])
        hint = f"write {{{name}}} without quotes around it: it is already a value"
        raise _refused(field, f"has {{{name}}} inside quotes or a comment, where it would be plain text", hint)
    return sql, root, uses


def tree(field: str, sql: str, connection: duckdb.DuckDBPyConnection, declared: Mapping[str, Value]) -> whitelist.Node:
    """The parse tree of the expression inside the statement that will run."""
    try:
        tree = row_calculator.parse(connection, row_calculator.statement([sql]))
    except (duckdb.Error, RecursionError):
        raise _refused(field, "cannot be parsed", "simplify it") from None
    if tree.get("error"):
        missing = job_parameters.undeclared(sql, declared)
        hint = "check the SQL; a column named like an SQL keyword needs double quotes"
        if missing and field in ("where", "having"):
            hint = f"declare {{{missing[0]}}} in params:"
        elif missing:
            hint = "parameters can only be used in source, where and having"
        message = str(tree.get("error_message"))
        if 'at or near ")"' in message and ")" not in sql:  # a bracket of the statement around it
            message = "it ends before it is complete"
        if "depth" in message:
            raise _refused(field, "is nested too deeply", "split it")
        raise _refused(field, f"is not an SQL expression: {message.splitlines()[0]}", hint)
    try:
        node = whitelist.select_items(tree, row_calculator.TABLE, ["c0"])[0]
    except RequestError as error:
        raise _refused(field, error.message, error.hint) from None
    # The text must mean the same on its own: no part of it may close our bracket and join the statement around it.
    alone = row_calculator.parse(connection, f"SELECT (\n{sql}\n)")
    items = [] if alone.get("error") else alone["statements"][0]["node"]["select_list"]
    if [without_places(item) for item in items] != [without_places(node)]:
        raise _refused(field, "must be one SQL expression", "write an expression, not a fragment of a query")
    return node


def _spelled(sql: str, root: whitelist.Node, bound: guards.TypingContext) -> str:
    """The text that runs: with what bounds a row's work, and without an exception for each bad cell.

    `CAST(x AS t)` as a whole fails into null anyway: TRY_CAST says the same.
    """
    wanted = guards.guarded(root, bound)
    changed = without_places(wanted) != without_places(root)
    if root["class"] == "CAST":
        wanted = {**wanted, "try_cast": True}
    if without_places(wanted) == without_places(root):
        return sql
    text = row_calculator.unparse(bound.connection, wanted)
    tree = row_calculator.parse(bound.connection, row_calculator.statement([text]))
    if not tree.get("error") and without_places(
        whitelist.select_items(tree, row_calculator.TABLE, ["c0"])[0]
    ) == without_places(wanted):
        return text
    if changed:
        raise RequestError(
            field="",
            message="cannot be told apart from the limits that this program adds to it",
            hint="write it differently",
        )
    return sql


def _plain_result(field: str, kind: pa.DataType) -> pa.DataType:
    """The type of a defined column: plain, or refused."""
    known = (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
        or kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    )
    if not known or isinstance(kind, pa.BaseExtensionType):
        raise _refused(field, f"has values of type {kind}", "cast them, e.g. CAST(.. AS VARCHAR)")
    return keys.plain_type(kind)


def _first(error: Exception) -> str:
    """The first line of a message about public text, without DuckDB's name for its kind."""
    line = (str(error).strip().splitlines() or ["DuckDB rejects it"])[0]
    return line.partition("Error: ")[2] or line


def _refused(field: str, message: str, hint: str) -> RequestError:
    return RequestError(field=field, message=message, hint=hint)
