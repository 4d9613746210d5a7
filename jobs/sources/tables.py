"""Rows in memory as a source of jobs: Arrow tables, and data frames of pandas and Polars.

In: an object with the Arrow stream protocol, or a pandas frame. Out: a `Source` that names it, and its columns when a pipeline
asks. Holds: types are those that the frame declares, never guessed from its rows: a pandas column of Python objects is text
unless declared otherwise, and a cell of another type is null; nothing is written to disk. Not covered: runners in other
processes.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import column_casts

NUMBER_BYTES = 8
"""The assumed size of a cell if nothing is known."""

_held: dict[str, "Table"] = {}


class Table:
    """Rows in memory.

    Args:
        data: see `hold`.
        types: of columns of Python objects, by name.

    Raises:
        RequestError: it is no table, or a declared type is of no column that needs one.
    """

    def __init__(self, data: Any, types: Mapping[str, pa.DataType]) -> None:
        self._pandas = _is_pandas(data)
        # A shallow copy: columns that the notebook renames or casts later are still here, with the types that were checked.
        self._data = data.copy(deep=False) if self._pandas else _arrow(data)
        self._missing = {} if self._pandas else _pointers(data)
        self.schema = self._schema(types)

    def _schema(self, types: Mapping[str, pa.DataType]) -> pa.Schema:
        names = list(self._data.columns) if self._pandas else self._data.schema.names
        _refuse_names(names)
        if not isinstance(types, Mapping):
            hint = 'write e.g. types={"day": pa.date32()}'
            raise RequestError(field="types", message="must map column names to pyarrow types", hint=hint)
        untyped = [name for name in names if self._pandas and _is_untyped(self._data[name])]
        for name, kind in types.items():
            if name not in untyped:
                message = "already has a type" if name in names else "is not a column"
                raise RequestError(
                    field=f"types[{name!r}]", message=message, hint="declare types only for columns of dtype object"
                )
            if not isinstance(kind, pa.DataType):
                raise RequestError(
                    field=f"types[{name!r}]", message="must be a pyarrow type", hint="write e.g. pa.date32()"
                )
        if not self._pandas:
            return pa.schema([field for field in self._data.schema if field.name not in self._missing])
        fields = {
            name: types.get(name, pa.string()) if name in untyped else _type_of(self._data[name]) for name in names
        }
        return pa.schema(fields.items())

    @property
    def source(self) -> Source:
        """What a request reads, but for the name."""
        plain = {field.name: keys.plain_type(field.type) for field in self.schema}
        schema, rows = pa.schema(plain.items()), len(self._data)
        return Source(files=(), schema=schema, sizes=self._sizes(), types=None, missing=self._missing, rows=rows)

    def _sizes(self) -> dict[str, int]:
        if self._pandas:
            return dict.fromkeys(self.schema.names, NUMBER_BYTES * len(self._data))
        return {name: self._data.column(name).nbytes for name in self.schema.names}

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        if not self._pandas:
            return self._data.select(list(columns))
        return pa.table({name: _converted(self._data[name], self.schema.field(name).type) for name in columns})


def hold(data: Any, types: Mapping[str, pa.DataType] | None = None) -> tuple[str, Source]:
    """Keep rows for pipelines of this process; the name under which they are kept, and the source that names them.

    Args:
        data: a pyarrow table, a frame of pandas or Polars, or whatever else has the Arrow stream protocol.
        types: of pandas columns of Python objects that are not text, by name.

    Raises:
        RequestError: it is no table of columns with names.

    >>> name, source = hold(pa.table({"customer": [1, 2]}))
    >>> source.schema.names, held(name).read(["customer"]).num_rows
    (['customer'], 2)
    >>> release(name)
    """
    table, name = Table(data, types or {}), uuid.uuid4().hex
    source = table.source
    _held[name] = table
    return name, Source(**{**vars(source), "table": name})


def held(name: str) -> Table:
    """The rows of a name."""
    return _held[name]


def release(name: str) -> None:
    """Release the rows of a name."""
    _held.pop(name, None)


def without_views(column: pa.Array) -> pa.Array:
    """A column as pipelines take it: Arrow does not filter views, which is how Polars hands over text and categories.

    >>> without_views(pa.array(["a"], pa.string_view())).type
    DataType(string)
    """
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, without_views(column.dictionary))
    return column.cast(keys.plain_type(column.type)) if has_views(column.type) else column


def has_views(kind: pa.DataType) -> bool:
    """Whether the values of a type are views of text, many of which may show one text."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_pandas(data: Any) -> bool:
    """Whether it is a frame of pandas, or of a class made from it: its own stream would guess types from rows."""
    rooms = (kind.__module__.partition(".")[0] for kind in type(data).__mro__)
    return "pandas" in rooms and hasattr(data, "columns")


def _arrow(data: Any) -> pa.Table:
    """An object with the Arrow stream protocol as a table."""
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if not hasattr(data, "__arrow_c_stream__"):
        message = f"is a {type(data).__name__}, which is neither a path nor a table"
        hint = (
            "give a folder of Parquet files, a pyarrow table, or a DataFrame of pandas or Polars (collect a lazy one)"
        )
        raise RequestError(field="data", message=message, hint=hint)
    try:
        return pa.table(data)
    except BaseException:  # its words may quote a row
        interrupts.end_if_asked()
        message = "cannot be converted to an Arrow table"
        raise RequestError(field="data", message=message, hint="give each column an Arrow type") from None


def _pointers(data: Any) -> dict[str, RequestError]:
    """Columns of Python objects in a frame of Polars, which exports the address of each object: equal ones would differ.

    A privacy unit with such a column would turn into a separate unit for each row.
    """
    if type(data).__module__.partition(".")[0] != "polars":
        return {}
    hint = "cast it to text or a number in the frame: map_elements(str, return_dtype=pl.String)"
    return {
        name: RequestError(field=f"column {name!r}", message="has dtype Object, which Arrow does not have", hint=hint)
        for name, kind in data.schema.items()
        if str(kind) == "Object"
    }


def _refuse_names(names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            message = "has a column whose name is not a string"
            raise RequestError(field="data", message=message, hint="give each column a string as its name")
        if list(names).count(name) > 1:
            raise RequestError(field="data", message=f"has column {name!r} twice", hint="rename one")


def _is_untyped(series: Any) -> bool:
    """Whether a pandas column holds Python objects, whose types only the rows show."""
    kind = series.dtype
    return bool(getattr(kind, "categories", series).dtype == object)


def _type_of(series: Any) -> pa.DataType:
    try:
        return pa.array(series.iloc[:0], from_pandas=True).type
    except Exception:
        message = f"has dtype {series.dtype}, which Arrow does not have"
        raise RequestError(field=f"column {series.name!r}", message=message, hint="cast it, or leave it out") from None


def _converted(series: Any, kind: pa.DataType) -> pa.Array:
    if _is_untyped(series):
        return column_casts.column(series.astype(object).tolist(), kind)
    try:
        return pa.array(series, kind, from_pandas=True)
    except BaseException:  # whatever the rows hold is no error
        interrupts.end_if_asked()
        # Null where the conversion of the whole has it: whether some cell does not fit must not decide that of another.
        missing = series.isna().tolist()
        return column_casts.column(
            [None if null else cell for cell, null in zip(series.tolist(), missing, strict=True)], kind
        )
