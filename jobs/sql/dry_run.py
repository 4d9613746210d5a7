"""Dry run of an expression before a row is read, so that a mistake is an error now and not a null in every row.

In: what an expression uses, sample values made from types. Out: nothing, or DuckDB's error. Holds: only public facts are
looked at: the text, the types and the parameters. An expression that could give a value in some row is never refused. Not
covered: mistakes that only some values reveal.
"""

import datetime
import decimal
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.sql import functions, row_calculator, whitelist

NEVER = "Unimplemented type for cast"
"""DuckDB's error, at run time, for a cast between two types under which no value survives."""


def register_nulls(columns: Mapping[str, pa.DataType], connection: duckdb.DuckDBPyConnection) -> None:
    """Give DuckDB one row of nulls with the source's columns.

    Raises:
        duckdb.Error, pa.ArrowException: expressions cannot read a column's type.
    """
    nulls = {name: row_calculator.clean(pa.chunked_array([pa.nulls(1, kind)])) for name, kind in columns.items()}
    connection.register(row_calculator.TABLE, pa.table(nulls or {row_calculator.EMPTY: pa.nulls(1, pa.bool_())}))


def try_out(
    sql: str,
    columns: Mapping[str, pa.DataType],
    uses: whitelist.Uses,
    values: Mapping[str, Value],
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Evaluate the constant parts of an expression, and the whole expression on a row of samples.

    Args:
        sql: the expression.
        columns: the columns that it names, with their types; registered as nulls.
        uses: its constant parts.
        values: the values of the parameters.
        connection: the connection that will evaluate it.

    Raises:
        duckdb.Error: a part fails for every row.
    """

    def spell(node: whitelist.Node) -> str:
        return row_calculator.unparse(connection, node)

    for node in uses.constants:
        row_calculator.query(connection, f"SELECT {spell(node)}", values)
    for name, constants in uses.probes:
        template = functions.PROBES[name]
        if template.count("{") <= len(constants):
            row_calculator.query(connection, "SELECT " + template.format(*map(spell, constants)), values)
    for column, text in uses.compared:
        quoted = '"' + column.replace('"', '""') + '"'
        named = row_calculator.query(connection, f"SELECT typeof({quoted}) FROM {row_calculator.TABLE}", {})  # noqa: S608 - a quoted name
        (kind,) = named.column(0).to_pylist()
        if kind not in ("VARCHAR", "BLOB") and "(" not in kind.replace("DECIMAL(", ""):
            row_calculator.query(connection, f"SELECT CAST({spell(text)} AS {kind})", values)
    _try_on_a_sample(sql, columns, values, connection)


def _try_on_a_sample(
    sql: str, columns: Mapping[str, pa.DataType], values: Mapping[str, Value], connection: duckdb.DuckDBPyConnection
) -> None:
    """One value per column, without TRY: if types do not fit, every row fails as this one does."""
    sample = {name: row_calculator.clean(pa.chunked_array([_sample(kind)])) for name, kind in columns.items()}
    connection.register(row_calculator.TABLE, pa.table(sample or {row_calculator.EMPTY: pa.nulls(1, pa.bool_())}))
    try:
        row_calculator.query(connection, f"SELECT (\n{sql}\n) FROM {row_calculator.TABLE}", values)  # noqa: S608 - checked by sql_tree
    except duckdb.NotImplementedException:
        raise  # about types, not values; TRY does not catch it
    except duckdb.Error as error:
        # Other failures may concern this sample alone.
        if NEVER in str(error):
            raise


def _sample(kind: pa.DataType) -> pa.Array:
    """One value of a type; null if no sample fits it."""
    samples: list[Any] = [1, "1", b"1", True, decimal.Decimal(1), datetime.date(2000, 1, 1)]
    samples += [datetime.datetime(2000, 1, 1), datetime.time(1)]
    for value in samples:
        try:
            return pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError):
            continue
    return pa.nulls(1, kind)
