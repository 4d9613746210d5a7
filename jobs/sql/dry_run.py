"""Dry run of an expression before a row is read, so that a mistake is an error now and not a null in every row.

In: what an expression uses, sample values made from types. Out: nothing, or DuckDB's error. Holds: only the text, the types and
the parameters are looked at, all of them public; nothing is refused that could give a value in some row. Not covered:
mistakes that only some values show.
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
"""What DuckDB says, when it runs, of a cast between two types that no value survives."""


def register_nulls(columns: Mapping[str, pa.DataType], connection: duckdb.DuckDBPyConnection) -> None:
    """Give DuckDB one row of nulls, as it will see the source's columns.

    Raises:
        duckdb.Error, pa.ArrowException: a type is none that expressions can read.
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
    """Evaluate what does not depend on rows, and the whole on a row of samples.

    Args:
        sql: the expression.
        columns: the columns that it names, with their types; registered as nulls.
        uses: its constant parts.
        values: of the parameters.
        connection: where it will be evaluated.

    Raises:
        duckdb.Error: a part fails whatever the rows are.
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
    """A value for each column, without TRY: where types do not fit, every row would fail as this one does."""
    sample = {name: row_calculator.clean(pa.chunked_array([_sample(kind)])) for name, kind in columns.items()}
    connection.register(row_calculator.TABLE, pa.table(sample or {row_calculator.EMPTY: pa.nulls(1, pa.bool_())}))
    try:
        row_calculator.query(connection, f"SELECT (\n{sql}\n) FROM {row_calculator.TABLE}", values)  # noqa: S608 - checked by sql_tree
    except duckdb.NotImplementedException:
        raise  # of types, not of values; no TRY holds it
    except duckdb.Error as error:
        # Other failures may be this sample's alone.
        if NEVER in str(error):
            raise


def _sample(kind: pa.DataType) -> pa.Array:
    """One value of a type, null where there is none to think of."""
    samples: list[Any] = [1, "1", b"1", True, decimal.Decimal(1), datetime.date(2000, 1, 1)]
    samples += [datetime.datetime(2000, 1, 1), datetime.time(1)]
    for value in samples:
        try:
            return pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError):
            continue
    return pa.nulls(1, kind)
