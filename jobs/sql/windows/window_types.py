"""Checks and types the windows of a definition, and the expressions in and around them, before a row is read.

In: a definition's text, the columns that it may name. Out: a `UnitColumn`. Holds: three layers, none of which can fail for what
rows hold: expressions of one row that windows read, windows over their values, an expression of one row around the windows;
the first and the last are checked and evaluated as every expression of one row is. Everything that is refused is refused by
public facts. Not covered: the values (`unit_columns`).
"""

import dataclasses
import decimal
import math
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sql import expressions, row_calculator, whitelist
from dp_pipelines.jobs.sql.row_expressions import Expression
from dp_pipelines.jobs.sql.whitelist import Node
from dp_pipelines.jobs.sql.windows import window_whitelist
from dp_pipelines.jobs.sql.windows.frames import MOST_OFFSET, Frame, FrameEnd
from dp_pipelines.jobs.sql.windows.window_functions import OrderBy, SqlWindow
from dp_pipelines.jobs.sql.windows.window_whitelist import Edge, Written
from dp_pipelines.kernels import keys

MOST_ROWS = 2**31
"""The farthest that a frame in ROWS, `lag`, `lead` and `nth_value` may reach."""

_DAY = 86_400 * 10**9
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitColumn:
    """A definition that passed all checks.

    Args:
        name: the column that it defines.
        type: the type of its values.
        windows: its windows, by the hidden column that holds each one's values.
        around: the expression of one row around the windows; None if the definition is a single window.
    """

    name: str
    type: pa.DataType
    windows: tuple[tuple[str, SqlWindow], ...]
    around: Expression | None

    @property
    def read(self) -> tuple[Expression, ...]:
        """The expressions that the windows read."""
        return tuple(expression for _, window in self.windows for expression in window.read)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names, without the hidden ones."""
        hidden = {name for name, _ in self.windows}
        around = self.around.columns if self.around is not None else ()
        named = [*(name for expression in self.read for name in expression.columns), *around]
        return tuple(dict.fromkeys(name for name in named if name not in hidden))


class Check:
    """Checks one definition after the other over the same columns.

    Args:
        schema: the columns that a definition may name.
        absent: the problem with each column that only some files have.
        connection: the connection that parses and types.
    """

    def __init__(self, schema: pa.Schema, absent: Mapping[str, str], connection: duckdb.DuckDBPyConnection) -> None:
        self.schema, self.absent, self.connection = schema, absent, connection
        # Kept and not made anew for each definition: there may be hundreds.
        self._taken = {name.casefold() for name in schema.names}
        # New columns do not change what a text means.
        self._checked: dict[str, Expression] = {}

    def add(self, column: UnitColumn) -> None:
        """Let later definitions name this one."""
        self.schema = self.schema.append(pa.field(column.name, column.type))
        self._taken.add(column.name.casefold())

    def refuse_nested(self, names: Sequence[str], schema: pa.Schema | None = None) -> None:
        """Refuse columns that rows cannot be ordered by."""
        for name in names:
            kind = (schema or self.schema).field(name).type
            if not is_plain(kind):
                message = f"reads column {name!r} of type {kind}, which unit columns do not support"
                raise _refused(message, "extract what you need from it in columns")

    def definition(self, name: str, node: Node, text: str) -> UnitColumn:
        """Check and type one definition, given its tree.

        Raises:
            RequestError: with an empty field; what is wrong with it.
        """
        found, bare = window_whitelist.windows_of(node), window_whitelist.without_over(node)
        if bare:
            raise _refused(f"uses {bare!r} without OVER", f"write e.g. {bare}(..) OVER (ORDER BY ..)")
        if not found:
            around = self._of_one_row(text, self.schema)
            return UnitColumn(name=name, type=around.type, windows=(), around=around)
        windows = [self._window(window_whitelist.written(window)) for window in found]
        hidden = [f"__dp_window_{name}_{number}" for number in range(len(windows))]
        while self._taken & {item.casefold() for item in hidden}:
            hidden = ["_" + item for item in hidden]
        named = tuple(zip(hidden, windows, strict=True))
        if node is found[0]:
            return UnitColumn(name=name, type=windows[0].type, windows=named, around=None)
        # DuckDB's own sums of whole numbers are HUGEINT, whose arithmetic is not that of decimals.
        columns = [window_whitelist.column(item, "HUGEINT" if _is_whole(window) else "") for item, window in named]
        seen = pa.schema([*self.schema, *(pa.field(item, window.type) for item, window in named)])
        around = self._of_one_row(
            window_whitelist.spell(window_whitelist.replaced(node, columns), self.connection), seen
        )
        return UnitColumn(name=name, type=around.type, windows=named, around=around)

    def _of_one_row(self, text: str, schema: pa.Schema) -> Expression:
        """An expression of one row, checked as `columns` are."""
        if text in self._checked:
            return self._checked[text]
        name = "x"  # columns that `schema` has beyond those of `self.schema` begin with underscores
        while name in self._taken:
            name += "x"
        try:
            rows = expressions.bind(None, {name: text}, schema, unit=(), values={}, absent=self.absent)
        except RequestError as error:
            raise RequestError(field="", message=error.message, hint=error.hint) from None
        self.refuse_nested(rows.input_columns, schema)
        self._checked[text] = dataclasses.replace(rows.defined[0], name="x")
        return self._checked[text]

    def _part(self, node: Node) -> Expression:
        """An expression that a window reads."""
        if window_whitelist.windows_of(node):
            raise _refused("holds a window inside a window", "define the inner one as a unit column before this one")
        return self._of_one_row(window_whitelist.spell(node, self.connection), self.schema)

    def _window(self, window: Written) -> SqlWindow:
        name = window.function
        argument = self._part(window.arguments[0]) if window.arguments else None
        condition = self._part(window.condition) if window.condition is not None else None
        if condition is not None and condition.type != pa.bool_():
            raise _refused(f"has a FILTER that is {condition.type}", "write a comparison")
        orders = tuple(
            OrderBy(expression=self._part(node), descending=descending, nulls_first=nulls_first)
            for node, descending, nulls_first in window.orders
        )
        number, default = 1, None
        if len(window.arguments) > 1:
            number = self._whole(window.arguments[1], f"the second argument of {name!r}")
            if number < (1 if name == "nth_value" or window.ignore_nulls else 0):
                raise _refused(f"has 0 as the second argument of {name!r}", "write 1 or more")
        if len(window.arguments) > 2:
            assert argument is not None
            default = self._default(argument, window.arguments[2])
        return SqlWindow(
            function=name,
            argument=argument,
            condition=condition,
            default=default,
            number=number,
            distinct=window.distinct,
            ignore_nulls=window.ignore_nulls,
            partitions=tuple(self._part(node) for node in window.partitions),
            orders=orders,
            frame=Frame(
                by_rows=window.by_rows,
                start=self._bound(window.start, window.by_rows, orders),
                end=self._bound(window.end, window.by_rows, orders),
            ),
            type=_result(name, argument),
        )

    def _default(self, argument: Expression, node: Node) -> Expression:
        """The third argument of `lag` and `lead`, of the first one's type."""
        empty = {
            name: row_calculator.clean(pa.chunked_array([pa.nulls(1, self.schema.field(name).type)]))
            for name in argument.columns
        }
        self.connection.register(
            row_calculator.TABLE, pa.table(empty or {row_calculator.EMPTY: pa.nulls(1, pa.bool_())})
        )
        try:
            asked = f"SELECT typeof(\n{argument.sql}\n) FROM {row_calculator.TABLE}"  # noqa: S608 - checked
            kinds = row_calculator.query(self.connection, asked, {})
        finally:
            self.connection.unregister(row_calculator.TABLE)
        text = window_whitelist.spell(node, self.connection)
        default = self._of_one_row(f"CAST((\n{text}\n) AS {kinds.column(0)[0]})", self.schema)
        if default.type != argument.type:
            raise _refused("has a default whose type differs from the values", "cast it")
        return default

    def _bound(self, edge: Edge, by_rows: bool, orders: tuple[OrderBy, ...]) -> FrameEnd:
        if edge.kind == "all":
            return FrameEnd(kind="all")
        if edge.kind == "here":
            return FrameEnd(kind="row" if by_rows else "peers")
        assert edge.offset is not None
        distance: int | float
        if by_rows:
            distance = self._whole(edge.offset, "the distance of a frame")
        elif len(orders) != 1:
            raise _refused("has a RANGE frame with a distance", "give OVER exactly one ORDER BY, or use ROWS")
        else:
            distance = _distance(self._constant(edge.offset), orders[0].expression.type)
        return FrameEnd(kind="offset", offset=-distance if edge.preceding else distance)

    def _whole(self, node: Node, what: str) -> int:
        value = self._constant(node)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_ROWS:
            raise _refused(f"needs a whole number, not negative, for {what}", "write the number itself")
        return value

    def _constant(self, node: Node) -> Any:
        """The value of a constant expression."""
        try:
            whitelist.check(node, whitelist.KnownNames(columns=()))
            table = row_calculator.query(
                self.connection, f"SELECT ({window_whitelist.spell(node, self.connection)}) AS c0", {}
            )
        except (RequestError, duckdb.Error):
            raise _refused(
                "has a frame or a distance that is not constant", "write e.g. 3 or INTERVAL 30 DAYS"
            ) from None
        return table.column(0)[0].as_py()


def is_plain(kind: pa.DataType) -> bool:
    """Whether `kernels.keys` can tell values of a type apart, which ordering rows requires."""
    try:
        keys.check_key_type(kind, "", partition=False)
    except RequestError:
        return False
    return True


def _is_whole(window: SqlWindow) -> bool:
    """Whether DuckDB would give a HUGEINT."""
    kind = window.argument.type if window.argument is not None else pa.null()
    return window.function == "sum" and (pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _result(name: str, argument: Expression | None) -> pa.DataType:
    """The type of a window's values, as DuckDB gives it."""
    if name in ("count", "row_number", "rank", "dense_rank"):
        return pa.int64()
    assert argument is not None
    kind = argument.type
    if name not in ("sum", "avg"):
        return kind
    whole = pa.types.is_integer(kind) or (pa.types.is_boolean(kind) and name == "sum")
    if not (whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise _refused(f"gives {name!r} values of type {kind}", "give it numbers")
    if name == "avg" or pa.types.is_floating(kind):
        return pa.float64()
    return pa.decimal128(38, 0 if whole else kind.scale)


def _distance(value: Any, kind: pa.DataType) -> int | float:
    """A RANGE distance in the units of an order's codes."""
    distance = _in_units(value, kind)
    if isinstance(distance, decimal.Decimal):
        if distance != distance.to_integral_value():
            raise _refused(
                f"has a RANGE distance that is finer than the values of ORDER BY ({kind})", "write a coarser distance"
            )
        distance = int(distance)
    if not 0 <= distance <= (MOST_OFFSET if isinstance(distance, int) else math.inf) or distance == math.inf:
        raise _refused("has a RANGE distance that is negative or too large", "write PRECEDING or FOLLOWING instead")
    return distance


def _in_units(value: Any, kind: pa.DataType) -> decimal.Decimal | float:
    is_number = isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)
    if is_number and (isinstance(value, float) and not math.isfinite(value)):
        raise _refused("has a RANGE distance that is not finite", "write a number")
    if is_number and pa.types.is_floating(kind):
        return float(value)
    exact = decimal.Context(prec=80)
    if is_number and pa.types.is_integer(kind):
        return decimal.Decimal(value)
    if is_number and pa.types.is_decimal(kind):
        if kind.precision > 18:
            raise _refused(
                f"has a RANGE distance in an ORDER BY of {kind}", "cast it to BIGINT, DOUBLE or DECIMAL(18, 2)"
            )
        return decimal.Decimal(value).scaleb(kind.scale, context=exact)
    if is_number and pa.types.is_date(kind):
        return decimal.Decimal(value)
    if isinstance(value, pa.MonthDayNano) and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        months, days, nanoseconds = value
        if months:
            raise _refused("has a RANGE distance in months, which differ in length", "write INTERVAL 30 DAYS")
        unit = _DAY if pa.types.is_date(kind) else _NANOSECONDS[kind.unit]
        return exact.divide(decimal.Decimal(days * _DAY + nanoseconds), decimal.Decimal(unit))
    raise _refused(
        f"has a RANGE distance that does not fit an ORDER BY of type {kind}",
        "write a number for numbers, INTERVAL 30 DAYS for dates and times",
    )


def _refused(message: str, hint: str) -> RequestError:
    return RequestError(field="", message=message, hint=hint)
