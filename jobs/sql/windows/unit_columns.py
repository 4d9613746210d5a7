"""`unit_columns` and `where` of a train stage: columns that look at all rows of the same privacy unit, for training examples.

In: definitions in SQL with windows, a condition, the columns that a row has by then. Out: `UnitExpressions`, which turns a
table of whole units into the rows that become examples, with the defined columns.
"""

# Holds, for every row of the output:
# * It is a function of the rows of its own unit. Expressions of one row are (`expressions`). Windows are taken over the
#   rows of one unit, put in an order that their content decides (`frames.UnitRows`), by exact integer arithmetic or by
#   taking the value of a row (`window_functions`). So nothing changes when other units come or go, rows arrive in another
#   order, or units are spread over tables in another way. Rows that agree in all columns are one row twice: which is which
#   cannot be told.
# * No row decides an error. Where an expression of one row fails, it is null; a window has a value or null whatever its
#   rows hold. Everything that is refused is refused by public facts: the text, the schema, the parameters.
# * A unit is what `kernels.keys` says it is, here as where rows are put into shards. Rows without a unit are dropped.
# * Every window is partitioned by the unit, whatever OVER says.
#
# Not covered: columns of nested types may pass through, but nothing may read them here, and rows that differ in them alone are
# interchangeable; what a column means (one that looks ahead of its row's own time is for the label only).

import contextlib
import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.validation_errors import nearest, raise_all
from dp_pipelines.jobs.sql import expressions, row_calculator
from dp_pipelines.jobs.sql.row_expressions import Expression
from dp_pipelines.jobs.sql.whitelist import Node
from dp_pipelines.jobs.sql.windows import window_functions, window_whitelist
from dp_pipelines.jobs.sql.windows.frames import FrameLayout, Order, UnitRows
from dp_pipelines.jobs.sql.windows.window_types import Check, UnitColumn, is_plain
from dp_pipelines.kernels import keys


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitExpressions:
    """A condition and defined columns over whole units. Picklable; it connects only where it runs.

    Args:
        unit: the columns of the privacy unit.
        defined: the defined columns, in order; each may name those before it.
        where: the condition, which may name all of them; rows for which it is true are kept. None keeps all.
        params: the values of the parameters.
        schema: the columns that rows already have.
    """

    unit: tuple[str, ...]
    defined: tuple[UnitColumn, ...]
    where: Expression | None
    params: Mapping[str, Value]
    schema: pa.Schema
    any_order: ClassVar[bool] = True
    """Rows may come in any order: see `steps.whole_units.UnitColumns`."""
    _calculator: row_calculator.Calculator = dataclasses.field(
        default_factory=row_calculator.Calculator, repr=False, compare=False
    )

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The required columns: those of the unit, and those that are named but not defined here."""
        defined = {item.name for item in self.defined}
        named = [*self.unit, *(name for item in self.defined for name in item.columns)]
        named += self.where.columns if self.where is not None else ()
        return tuple(dict.fromkeys(name for name in named if name not in defined))

    @property
    def output_schema(self) -> pa.Schema:
        """The existing columns, then the defined ones."""
        return pa.schema([*self.schema, *(pa.field(item.name, item.type) for item in self.defined)])

    def apply(self, table: pa.Table) -> pa.Table:
        """The kept rows, with the defined columns after the others.

        Args:
            table: all rows of each unit that it holds, with at least the `input_columns`, in any order.

        Returns:
            the same columns and the defined ones; rows in the same order.
        """
        units = [keys.plain_unit(table.column(name)) for name in self.unit]
        for index in range(len(units)):
            if units[index].null_count:
                known = pc.is_valid(units[index])
                table, units = table.filter(known), [column.filter(known) for column in units]
        ready: dict[str, pa.ChunkedArray | pa.Array] = dict(zip(table.column_names, table.columns, strict=True))
        rows: UnitRows | None = None
        for together in self._levels():
            if any(item.windows for item in together) and rows is None and table.num_rows:
                rows = UnitRows.of(units, _content(table))
            ready |= self._windows(together, rows, ready, table.num_rows)
            around = [item.around for item in together if item.around is not None]
            found = iter(self._evaluate(around, ready, table.num_rows))
            for item in together:
                ready[item.name] = next(found) if item.around is not None else ready[item.windows[0][0]]
        for item in self.defined:
            table = table.append_column(item.name, ready[item.name])
        if self.where is not None:
            (kept,) = self._evaluate([self.where], ready, table.num_rows)
            table = table.filter(kept)
        return table

    def _levels(self) -> list[list[UnitColumn]]:
        """The defined columns in groups, each of which needs only earlier groups; DuckDB is called once per group."""
        level: dict[str, int] = {}
        groups: list[list[UnitColumn]] = []
        for item in self.defined:
            level[item.name] = max((level[name] + 1 for name in item.columns if name in level), default=0)
            if level[item.name] == len(groups):
                groups.append([])
            groups[level[item.name]].append(item)
        return groups

    def _windows(
        self,
        together: Sequence[UnitColumn],
        rows: UnitRows | None,
        ready: Mapping[str, pa.ChunkedArray | pa.Array],
        size: int,
    ) -> dict[str, pa.Array]:
        """The values of all windows of these columns, by hidden column."""
        windows = [pair for item in together for pair in item.windows]
        if rows is None:
            return {name: pa.array([], window.type) for name, window in windows}
        read = list({part.sql: part for item in together for part in item.read}.values())
        found = map(_of_windows, self._evaluate(read, ready, size))
        values = dict(zip((part.sql for part in read), found, strict=True))
        layouts: dict[tuple[object, ...], FrameLayout] = {}
        for _, window in windows:
            if window.layout not in layouts:
                orders = [
                    Order(
                        values=values[order.expression.sql],
                        descending=order.descending,
                        nulls_first=order.nulls_first,
                    )
                    for order in window.orders
                ]
                partitions = [values[part.sql] for part in window.partitions]
                layouts[window.layout] = rows.partitioned(partitions, orders)
        return {name: window_functions.evaluate(window, layouts[window.layout], values) for name, window in windows}

    def _evaluate(
        self, parts: Sequence[Expression], ready: Mapping[str, pa.ChunkedArray | pa.Array], size: int
    ) -> list[pa.ChunkedArray]:
        """The values of expressions of one row, in chunks of some megabytes."""
        if not parts:
            return []
        if not size:
            return [pa.chunked_array([], part.type) for part in parts]
        needed = {name: ready[name] for part in parts for name in part.columns}
        table = pa.table(needed or {row_calculator.EMPTY: pa.nulls(size, pa.bool_())})
        found = self._calculator.evaluate(table, [part.item for part in parts], self.params)
        return [pa.chunked_array(map(_sound, column.chunks), column.type) for column in found]


def _sound(array: pa.Array) -> pa.Array:
    """The values in canonical form; null if DuckDB gives a whole number with more digits than a decimal has."""
    return row_calculator.clean(pa.chunked_array([array])) if pa.types.is_decimal(array.type) else keys.plain(array)


def _of_windows(column: pa.ChunkedArray) -> pa.Array:
    """The values that windows read, in one piece; none of them is a long text."""
    return keys.one_array(pa.chunked_array(map(window_functions.shortened, column.chunks), column.type))


def _content(table: pa.Table) -> list[pa.Array]:
    """The columns that tell the rows of a unit apart: all columns of plain types, by name."""
    plain = [name for name in sorted(table.column_names) if is_plain(table.schema.field(name).type)]
    return [keys.plain(table.column(name)) for name in plain]


def bind(
    definitions: Mapping[str, str],
    where: str | None,
    schema: pa.Schema,
    *,
    unit: Sequence[str],
    values: Mapping[str, Value],
    absent: Mapping[str, str] = types.MappingProxyType({}),
) -> UnitExpressions:
    """Check and type the unit columns of a stage and its condition.

    Args:
        definitions: SQL by name of the defined column; each may name those before it.
        where: condition, or None; may name the columns and the unit columns.
        schema: the columns that rows have by then: the source's and the job's `columns`.
        unit: the columns of the privacy unit, all in `schema`.
        values: values of the declared parameters; usable in `where` only.
        absent: what is wrong with columns that only some files have.

    Raises:
        RequestError: all that is wrong, with fields `where` and `unit_columns.NAME`.

    >>> rows = bind({"visits": "count(*) OVER (ORDER BY day)"}, "visits > 1",
    ...     pa.schema([("id", pa.int64()), ("day", pa.int64())]), unit=["id"], values={})
    >>> rows.apply(pa.table({"id": [7, 7, 8], "day": [2, 1, 1]})).to_pylist()
    [{'id': 7, 'day': 2, 'visits': 2}]
    """
    connection = row_calculator.checking_connection()
    problems: list[RequestError] = []
    for name in unit:
        if name not in schema.names:
            message, hint = f"names column {name!r}, which does not exist", nearest(name, schema.names, "columns")
            problems.append(RequestError(field="privacy_unit", message=message, hint=hint))
            continue
        try:
            keys.check_key_type(schema.field(name).type, name, partition=False)
        except RequestError as error:
            problems.append(error)
    check = Check(schema, absent, connection)
    defined: list[UnitColumn] = []
    refused: dict[str, str] = {}
    # Kept rather than rebuilt for each definition: there may be hundreds.
    known = {name.casefold(): name for name in schema.names}
    places = {name.casefold(): (number, name) for number, name in enumerate(definitions)}
    for number, (name, text) in enumerate(definitions.items()):
        try:
            _check_name(name, unit, known, refused)
            node = window_whitelist.parse(text, connection)
            _check_order(node, number, places, known)
            if _names(node, refused):
                refused[name.casefold()] = name  # what is wrong with the other one is told already
                continue
            column = check.definition(name, node, text)
        except RequestError as error:
            refused[name.casefold()] = name
            problems.append(RequestError(field=f"unit_columns.{name}", message=error.message, hint=error.hint))
        except RecursionError:
            refused[name.casefold()] = name
            problems.append(RequestError(field=f"unit_columns.{name}", message="is nested too deeply", hint="split it"))
        else:
            defined.append(column)
            check.add(column)
            known[column.name.casefold()] = column.name
    condition = None
    if where is not None:
        try:
            condition = _condition(where, check, unit, values, refused)
        except RequestError as error:
            problems.append(RequestError(field="where", message=error.message, hint=error.hint))
    raise_all(problems)
    rows = UnitExpressions(
        unit=tuple(unit), defined=tuple(defined), where=condition, params=dict(values), schema=schema
    )
    read = rows.input_columns
    if len({name.casefold() for name in read}) != len(read):
        message = "names columns whose names differ only in case: DuckDB would mix them up"
        raise RequestError(field="unit_columns", message=message, hint="rename one of them, or use only one")
    return rows


def _check_name(name: str, unit: Sequence[str], known: Mapping[str, str], refused: Mapping[str, str]) -> None:
    """The name of a unit column is its own."""
    taken = refused.get(name.casefold(), known.get(name.casefold()))
    message, hint = "", "choose another name"
    if name.casefold() in {item.casefold() for item in unit}:
        message = "would define a column of the privacy unit"
    elif taken is not None:
        message = f"would shadow column {taken!r}"
    elif not name or name.startswith("__"):
        message, hint = "must be a name that does not start with two underscores", "rename it"
    if message:
        raise RequestError(field="", message=message, hint=hint)


def _condition(
    where: str, check: Check, unit: Sequence[str], values: Mapping[str, Value], refused: Mapping[str, str]
) -> Expression | None:
    """The condition, checked like a job's `where`; None if it names a definition that was refused."""
    node: Any = None
    with contextlib.suppress(duckdb.Error, RecursionError):  # what is wrong then, `expressions` says
        node = row_calculator.parse(
            check.connection, row_calculator.statement([job_parameters.into_sql(where, values)[0]])
        )
    if window_whitelist.windows_of(node):
        message, hint = "holds a window", "define it as a unit column, and use that in where"
        raise RequestError(field="", message=message, hint=hint)
    if _names(node, refused):
        return None
    condition = expressions.bind(where, {}, check.schema, unit=unit, values=values, absent=check.absent).where
    check.refuse_nested(condition.columns if condition is not None else ())
    return condition


def _names(node: Any, refused: Mapping[str, str]) -> bool:
    """Whether it names a definition that is refused."""
    return any(name.casefold() in refused for name in window_whitelist.names_in(node))


def _check_order(node: Node, number: int, places: Mapping[str, tuple[int, str]], known: Mapping[str, str]) -> None:
    """Refuse a definition that names itself or a later one."""
    for name in window_whitelist.names_in(node):
        place, other = places.get(name.casefold(), (-1, ""))
        if place >= number and name.casefold() not in known:
            message = f"names unit column {other!r}, which is not defined before it"
            raise RequestError(field="", message=message, hint="put the definitions in order")
