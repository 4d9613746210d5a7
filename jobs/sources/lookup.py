"""A public table whose columns are added to each row by the value of one column.

In: a small file with unique keys. Out: a `Lookup` that turns a table of rows into the same rows with more columns; a
row whose key is null or unknown gets nulls. Holds: each row is looked up by itself; the number and order of rows never
change. The file is public by declaration: any problem with it is an error before a row of the source is read. Not
covered: tables too large for the memory of a worker; secrets in the file.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.jobs.sql import row_slices
from dp_pipelines.kernels import keys

MOST_TEXT = 2**30
"""Bytes of one column of the table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup:
    """The table, by its key.

    Args:
        on: the key's name, in the rows and in the table.
        keys: unique keys without null.
        columns: the other columns, one value for each key.
    """

    on: str
    keys: pa.Array
    columns: pa.Table

    def apply(self, table: pa.Table) -> pa.Table:
        """The same rows with the looked-up columns after the others.

        Texts that would take more than `SLICE_BYTES` in the rows stay in a dictionary, once each.

        >>> listed = pa.table({"store": [1, 2], "city": ["Oslo", "Bonn"]})
        >>> stores = bind(listed, "store", pa.schema([("store", pa.int64())]), unit=[])
        >>> stores.apply(pa.table({"store": [2, 3, None]})).column("city").to_pylist()
        ['Bonn', None, None]
        """
        places = pa.chunked_array([self._places(chunk) for chunk in table.column(self.on).chunks], pa.int32())
        for name, column in zip(self.columns.column_names, self.columns.columns, strict=True):
            table = table.append_column(name, _taken(column, places))
        return table

    def has(self, wanted: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which of some keys the table has; a null it never has.

        >>> stores = bind(pa.table({"store": [1, 2]}), "store", pa.schema([("store", pa.int64())]), unit=[])
        >>> stores.has(pa.chunked_array([[2, 3, None]])).to_pylist()
        [True, False, False]
        """
        return pa.chunked_array([pc.is_valid(self._places(chunk)) for chunk in wanted.chunks], pa.bool_())

    def _places(self, wanted: pa.Array) -> pa.Array:
        """The position of each row's key; for a dictionary, of each entry's key."""
        if pa.types.is_dictionary(wanted.type):
            return self._places(wanted.dictionary).take(wanted.indices)
        wanted = keys.plain(wanted)
        # Rows of another width of integer than the table's are compared as the wider of the two.
        kind = _common(wanted.type, self.keys.type) or self.keys.type
        return pc.index_in(wanted.cast(kind), value_set=self.keys.cast(kind), skip_nulls=True)

    @property
    def fields(self) -> list[pa.Field]:
        """Names and types of the columns that are added."""
        return [field.with_type(keys.plain_type(field.type)) for field in self.columns.schema]


def _taken(column: pa.ChunkedArray, places: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values at places."""
    values = column.chunk(0)
    if pa.types.is_dictionary(values.type):
        coded = [
            pa.DictionaryArray.from_arrays(values.indices.take(chunk), values.dictionary) for chunk in places.chunks
        ]
        found = pa.chunked_array(coded, values.type)
        if row_slices.decoded_bytes(found) > row_slices.SLICE_BYTES:
            return found
        plain = [values.dictionary.take(chunk.indices) for chunk in found.chunks]
        return pa.chunked_array(plain, values.type.value_type)
    if not pa.types.is_nested(values.type):
        return values.take(places)
    named = pa.chunked_array([pa.DictionaryArray.from_arrays(chunk, values) for chunk in places.chunks])
    cuts = row_slices.cut(pa.table({"": named}), [""])
    return pa.chunked_array([keys.one_array(values.take(places.slice(a, b - a))) for a, b in cuts], values.type)


def bind(listed: pa.Table, on: str, schema: pa.Schema, *, unit: Sequence[str]) -> Lookup:
    """Check a lookup table against the rows that it is for.

    Args:
        listed: the whole table.
        on: the column that both have.
        schema: of the rows, with the columns that the job defines.
        unit: the columns of the privacy unit.

    Raises:
        RequestError: with a field below `lookup`.
    """
    for known, what in ((schema.names, "the rows do"), (listed.column_names, "the table does")):
        if on not in known:
            hint = nearest(on, known, "columns")
            raise RequestError(field="lookup.on", message=f"names column {on!r}, which {what} not have", hint=hint)
    if len(set(listed.column_names)) != listed.num_columns:
        raise RequestError(field="lookup", message="has two columns with the same name", hint="rename one")
    ours, theirs = keys.plain_type(schema.field(on).type), keys.plain_type(listed.schema.field(on).type)
    if _common(ours, theirs) is None:
        message = f"is {ours} in the rows and {theirs} in the lookup table, which cannot be compared"
        raise RequestError(field="lookup.on", message=message, hint="write the lookup table with the type of the rows")
    taken = {name.casefold() for name in (*schema.names, *unit)}
    added = [name for name in listed.column_names if name != on]
    for name in added:
        if name.casefold() in taken:
            hint = "rename it in the lookup table"
            raise RequestError(field="lookup", message=f"would shadow column {name!r}", hint=hint)
    for name in listed.column_names:
        column = listed.column(name)
        if (column.nbytes if name != on else row_slices.decoded_bytes(column)) > MOST_TEXT:
            message = f"has more than {MOST_TEXT // 2**20} MiB in column {name!r}"
            raise RequestError(field="lookup", message=message, hint="drop the column, or write shorter texts")
    unique = keys.plain(listed.column(on))
    if unique.null_count:
        raise RequestError(field="lookup.on", message=f"has a null in {on!r} of the lookup table", hint="drop that row")
    if len(unique.unique()) != len(unique):
        raise RequestError(
            field="lookup.on",
            message=f"has duplicate keys in {on!r} of the lookup table",
            hint="keep one row for each",
        )
    columns = {name: _column(listed.column(name)) for name in added}
    return Lookup(on=on, keys=unique, columns=pa.table(columns))


def place_of(files: Sequence[str], row: int, *, is_csv: bool) -> str:
    """Where a row of a public table stands, in words: the line of a CSV file, or the row of a Parquet file.

    Args:
        files: of the table, in the order in which it was read.
        row: of all files together, from 0.
        is_csv: their format.
    """
    for path in files:
        if is_csv:
            content = pathlib.Path(path).read_bytes().split(b"\n")
            places = [number for number, line in enumerate(content, 1) if line.rstrip(b"\r")][1:]  # without the header
        else:
            with pyarrow.parquet.ParquetFile(path) as file:
                places = list(range(1, file.metadata.num_rows + 1))
        if row < len(places):
            return f"{'line' if is_csv else 'row'} {places[row]} of {path!r}"
        row -= len(places)
    return "the lookup table"


def _column(column: pa.ChunkedArray) -> pa.Array:
    """Text as a dictionary, which rows name instead of a copy; others plain."""
    kind = keys.plain_type(column.type)
    plain = keys.plain(column)
    # Not `keys.encoded`: these texts may be published, where a key has a digest.
    return plain.dictionary_encode() if pa.types.is_string(kind) or pa.types.is_binary(kind) else plain


def _common(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType | None:
    """The type in which two keys are compared, or None where they cannot be."""
    if pa.types.is_floating(ours) or pa.types.is_nested(ours):
        return None
    if ours == theirs:
        return ours
    if pa.types.is_integer(ours) and pa.types.is_integer(theirs) and pa.uint64() not in (ours, theirs):
        return pa.int64()
    return None
