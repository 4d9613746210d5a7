"""Turns elements of any kind into Arrow tables, in a worker.

In: rows, Arrow tables, record batches, pandas frames. Out: tables in the global window. Holds: types are declared, or those of
Arrow itself. No element makes a worker fail, whatever its class and its cells are: what cannot be read is null, and an element is
dropped where no types are declared that it could have. Only the schemas of tables and frames that a type hint announces are
refused here, since they are public. Not covered: what is known when the pipeline is built (`input_tables`).
"""

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.kernels import keys
from dp_pipelines.transforms.rows import cell_values
from dp_pipelines.transforms.rows.each_row import of_each
from dp_pipelines.transforms.rows.element_types import NO_ROWS, is_frame_class
from dp_pipelines.transforms.rows.row_batches import GatherRows

BATCH_ROWS = 2**16

Read = Callable[[str], Any]
"""Takes the name of a column and returns the cell that a row has there."""


class ToTables(GatherRows):
    """Gather rows into tables; tables, record batches and frames become a table each.

    Args:
        types: declared, by column; None: elements bring types of their own.
        missing: columns that are needed and not declared: only elements with types of their own have them.
        unsaid: whether no type hint says what elements are. Then tables and frames are read like rows: a column that they lack is
            null, and one of another type is converted cell by cell.
    """

    def __init__(self, types: Mapping[str, pa.DataType] | None, *, missing: tuple[str, ...] = (), unsaid: bool) -> None:
        super().__init__(None, BATCH_ROWS)
        self._types, self._unsaid = types, unsaid
        self.has_row_types = types is not None and not missing
        self._of_rows: set[type] = set()  # classes that were seen to be rows

    def process(self, element: Any) -> Iterable[pa.Table]:
        """A table for a table; a row is gathered, or dropped if no types are declared that it could have."""
        table = self.whole(element)
        if table is not None:
            return (table,)
        return self.gather(element) if self.has_row_types else ()

    def whole(self, element: Any) -> pa.Table | None:
        """The table of an element that is one; None of a row.

        Raises:
            RequestError: a table or frame that a type hint announces has another schema than declared.
        """
        # Classes are asked, not elements: what a row says of its own class might raise.
        kind = type(element)
        try:
            if kind in self._of_rows:
                return None
            is_frame = is_frame_class(kind)
            if not (is_frame or issubclass(kind, (pa.Table, pa.RecordBatch))):
                self._of_rows.add(kind)
                return None
        except BaseException:  # a class of a class of classes, e.g. without a hash, which no table or frame has
            interrupts.end_if_asked()
            return None
        types = self._types or {}
        if is_frame:
            try:
                return _of_frame(element, types, is_announced=not self._unsaid) if self.has_row_types else None
            except RequestError:
                raise
            except BaseException:  # a class of somebody's, whose columns or labels raise
                interrupts.end_if_asked()
                return None
        table = element if issubclass(kind, pa.Table) else pa.Table.from_batches([element])
        return _typed(table, types, is_announced=not self._unsaid)

    def tables(self, rows: list[Any]) -> Iterable[pa.Table]:
        """One table of all rows."""
        return (table_of(rows, self._types or {}),)


def table_of(rows: list[Any], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Rows as a table of declared types; a cell that does not fit is null.

    Args:
        rows: mappings or objects with attributes; None, and what has no names for its values, is a row of nulls.
        types: by column.
    """
    cells = _cells_of(rows)
    return pa.table({name: cell_values.column(cells(name), kind) for name, kind in types.items()})


def _cells_of(rows: list[Any]) -> Callable[[str], list[Any]]:
    """Return what gives the cells of a column, one for each row."""
    if all(kind is dict for kind in map(type, rows)):
        return lambda name: of_each(operator.methodcaller("get", name), rows)
    if all(map(_is_named_tuple, map(type, rows))):  # quicker than a reader of each row
        return lambda name: of_each(functools.partial(_attribute, name=name), rows)
    reads = of_each(reader, rows, _no_cell)
    return lambda name: of_each(operator.methodcaller("__call__", name), reads)


def _is_named_tuple(kind: type) -> bool:
    return type(kind) is type and kind.__base__ is tuple  # of no class of classes, which might raise


def reader(row: Any) -> Read:
    """Return what reads the cells of one row; None is the cell that it lacks."""
    kind = type(row)
    try:
        has_names, is_mapping = kind not in NO_ROWS, issubclass(kind, Mapping)
    except BaseException:  # a class of a class of classes, e.g. without a hash
        interrupts.end_if_asked()
        has_names, is_mapping = True, False
    if not has_names:  # its attributes are methods of its class
        return _no_cell
    get: Read = row.get if is_mapping else functools.partial(_attribute, row)
    return get


def _no_cell(name: str) -> None:
    return None


def _attribute(row: Any, name: str) -> Any:
    return getattr(row, name, None)


def _typed(table: pa.Table, types: Mapping[str, pa.DataType], *, is_announced: bool) -> pa.Table:
    """The table with columns of the declared types.

    Args:
        table: of any schema.
        types: declared, by column.
        is_announced: whether a type hint says that elements are tables, whose schemas are public.

    Raises:
        RequestError: a column of an announced table has another type, or is absent.
    """
    for name, kind in types.items():
        places = table.schema.get_all_field_indices(name)
        if len(places) != 1:
            if is_announced:
                raise absent(name, table.column_names, "tables")
            table = table.select([place for place in range(table.num_columns) if place not in places])
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
            continue
        has = table.schema.field(name).type
        if pa.types.is_null(has):
            table = table.set_column(places[0], name, pa.nulls(table.num_rows, kind))
        elif keys.plain_type(has) != keys.plain_type(kind):
            if is_announced:
                raise RequestError(
                    field=f"column {name!r}",
                    message=f"has type {has} in a table, and types declares {kind}",
                    hint="declare the type that it has, or cast it before",
                )
            table = table.set_column(places[0], name, cell_values.column(list(table.column(places[0])), kind))
    return table


def _of_frame(frame: Any, types: Mapping[str, pa.DataType], *, is_announced: bool) -> pa.Table:
    """The table of a frame. Arguments and errors as for `_typed`."""
    columns = {}
    for name, kind in types.items():
        if list(frame.columns).count(name) == 1:
            columns[name] = _of_series(frame[name], kind)
        elif is_announced:
            raise absent(name, map(str, frame.columns), "frames")
        else:
            columns[name] = pa.nulls(len(frame), kind)
    return pa.table(columns)


def _of_series(series: Any, kind: pa.DataType) -> pa.Array:
    """Return a column of a frame. Whole columns convert only where that equals what each cell becomes by itself."""
    if _is_quick(series.dtype, kind):
        with contextlib.suppress(pa.ArrowInvalid):  # one cell does not fit
            return pa.array(series, kind, from_pandas=True)
    missing = series.isna()
    found = [None if null else cell for cell, null in zip(series.tolist(), missing.tolist(), strict=True)]
    return cell_values.column(found, kind)


def _is_quick(dtype: Any, kind: pa.DataType) -> bool:
    if not isinstance(dtype, np.dtype):
        return False
    return (
        (dtype == np.float64 and pa.types.is_float64(kind))
        or (
            issubclass(dtype.type, np.integer)
            and pa.types.is_integer(kind)
            and not issubclass(dtype.type, np.timedelta64)
        )
        or (dtype == np.bool_ and pa.types.is_boolean(kind))
        or (dtype == np.dtype("datetime64[ns]") and pa.types.is_timestamp(kind))  # others leave Python's calendar
    )


def absent(name: str, known: Iterable[str], where: str) -> RequestError:
    """The error for a column that is not there.

    Args:
        name: of the column.
        known: those that there are.
        where: which elements lack it.
    """
    return RequestError(
        field=f"column {name!r}", message=f"is not in the {where} of the input", hint=nearest(name, known, "columns")
    )
