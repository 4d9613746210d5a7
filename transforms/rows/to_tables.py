"""Turns elements of any kind into Arrow tables, in a worker.

In: rows, Arrow tables, record batches, pandas frames. Out: tables in the global window. Holds: types are declared, or those of
Arrow itself; what a row says decides its own cells and nothing else; what is refused here are the classes and schemas of
elements, which the program fixes. Not covered: what is known when the pipeline is built (`input_tables`).
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.kernels import keys
from dp_pipelines.transforms.rows import cell_values
from dp_pipelines.transforms.rows.element_types import NO_ROWS, is_frame_class, no_names
from dp_pipelines.transforms.rows.row_batches import GatherRows

BATCH_ROWS = 2**16

_COLUMNS = (pa.ChunkedArray, pa.Array, pa.Table, pa.RecordBatch)
"""Classes of whole columns, which no cell has."""


class ToTables(GatherRows):
    """Gather rows into tables; tables, record batches and frames become a table each.

    Args:
        types: declared, by column; None: elements bring types of their own.
        missing: columns that are needed and not declared: only elements with types of their own have them.
        unsaid: whether nobody has said what elements are, so that their classes are looked at.
    """

    def __init__(self, types: Mapping[str, pa.DataType] | None, *, missing: tuple[str, ...] = (), unsaid: bool) -> None:
        super().__init__(None, BATCH_ROWS)
        self._types, self._missing, self._unsaid = types, missing, unsaid
        self._of_rows: set[type] = set()  # classes that were seen to be rows

    def process(self, element: Any) -> Iterable[pa.Table]:
        """A table for a table; a row is gathered."""
        table = self.whole(element)
        return self.gather(element) if table is None else (table,)

    def whole(self, element: Any) -> pa.Table | None:
        """The table of an element that is one; None of a row.

        Raises:
            RequestError: an element of this class, or a table with this schema, cannot be read here.
        """
        kind = type(element)
        if kind in self._of_rows:
            return None
        # Classes are asked, not elements: what a row says of its own class might raise.
        if issubclass(kind, (pa.Table, pa.RecordBatch)):
            table = element if issubclass(kind, pa.Table) else pa.Table.from_batches([element])
            return _typed(table, self._types or {})
        if is_frame_class(kind):
            if self._types is None or self._missing:
                raise self._untyped("a pandas frame")
            return _of_frame(element, self._types)
        if self._unsaid:
            if self._types is None or self._missing:
                raise self._untyped(f"a {kind.__name__}, not a pyarrow table")
            if kind in NO_ROWS:
                raise no_names(kind.__name__)
        self._of_rows.add(kind)
        return None

    def tables(self, rows: list[Any]) -> Iterable[pa.Table]:
        """One table of all rows."""
        return (table_of(rows, self._types or {}),)

    def _untyped(self, what: str) -> RequestError:
        if self._types is None:
            return RequestError(
                field="input",
                message=f"holds an element that is {what}, and no types are declared",
                hint='write types={"customer": "string", ...}, with the type of each column that is read',
            )
        listed = ", ".join(map(repr, self._missing))
        return RequestError(
            field="input",
            message=f"holds an element that is {what}, and types lacks {listed}",
            hint="declare the type of each column that is read",
        )


def table_of(rows: list[Any], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Rows as a table of declared types; a cell that does not fit is null.

    Args:
        rows: mappings or objects with attributes; None is a row of nulls.
        types: by column.

    Raises:
        RequestError: cells are whole columns of Arrow: the program took tables for rows.
    """
    columns = {}
    for name, kind in types.items():
        found = cells(rows, name)
        if any(
            issubclass(type(cell), _COLUMNS) for cell in found
        ):  # that no source of rows has: the program makes them
            raise RequestError(
                field=f"column {name!r}",
                message="has whole columns of pyarrow tables as its values: a step before took tables for rows",
                hint="make rows of the tables before it: beam.FlatMap(lambda table: table.to_pylist())",
            )
        columns[name] = cell_values.column(found, kind)
    return pa.table(columns)


def cells(rows: list[Any], name: str) -> list[Any]:
    """The cells of a column; null where a row has none, or raises."""
    try:
        if all(isinstance(row, Mapping) for row in rows):
            return [row.get(name) for row in rows]
    except BaseException:  # what a row raises must not be seen, and costs that row its own cells only
        interrupts.end_if_asked()
    return [_cell(row, name) for row in rows]


def _cell(row: Any, name: str) -> Any:
    try:
        return row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
    except BaseException:  # as above
        interrupts.end_if_asked()
        return None


def _typed(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The table, if its columns have the declared types.

    Raises:
        RequestError: one has not, or is absent: schemas are public.
    """
    for name, kind in types.items():
        if len(table.schema.get_all_field_indices(name)) != 1:
            raise absent(name, table.column_names, "tables")
        found = table.schema.field(name).type
        if pa.types.is_null(found):
            table = table.set_column(table.schema.get_field_index(name), name, pa.nulls(table.num_rows, kind))
        elif keys.plain_type(found) != keys.plain_type(kind):
            raise RequestError(
                field=f"column {name!r}",
                message=f"has type {found} in a table, and types declares {kind}",
                hint="declare the type that it has, or cast it before",
            )
    return table


def _of_frame(frame: Any, types: Mapping[str, pa.DataType]) -> pa.Table:
    columns = {}
    for name, kind in types.items():
        if list(frame.columns).count(name) != 1:
            raise absent(name, map(str, frame.columns), "frames")
        columns[name] = _of_series(frame[name], kind)
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
