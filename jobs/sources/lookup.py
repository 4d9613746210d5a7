"""A public table whose columns are added to each row by the values of one column or of several.

In: a small file, at most a declared number of whose rows share a key. Out: a `Lookup` that turns a table of rows into the same
rows with more columns, once for each row of the table that has its key; a row whose key is null or unknown stays, with nulls.
Holds: what becomes of a row depends on that row and the table. The file is public by declaration: any problem with it is an
error before a row of the source is read. Not covered: tables too large for the memory of a worker; secrets in the file; what
comes after several tables (`lookups`).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.validation_errors import UNIT_OF_SOURCE, nearest
from dp_pipelines.jobs.sql import row_slices
from dp_pipelines.kernels import keys

MOST_TEXT = 2**30
"""Bytes of one column of the table."""

NOTHING = -1
"""The place of a row of the table where there is none."""

Places = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup:
    """The table, by its key.

    Args:
        on: the names of the key's columns in the rows, each with its name in the table.
        keys: the key's columns in the table, without null.
        columns: the other columns.
        most: rows of the table that a key may have.
    """

    on: Mapping[str, str]
    keys: tuple[pa.Array, ...]
    columns: pa.Table
    most: int = 1

    def apply(self, table: pa.Table) -> pa.Table:
        """The same rows with the looked-up columns after the others, where a key has one row of the table.

        Texts that would take more than `SLICE_BYTES` in the rows stay in a dictionary, once each.

        >>> listed = pa.table({"store": [1, 2], "city": ["Oslo", "Bonn"]})
        >>> stores = bind(listed, "store", pa.schema([("store", pa.int64())]), unit=[])
        >>> stores.apply(pa.table({"store": [2, 3, None]})).column("city").to_pylist()
        ['Bonn', None, None]
        """
        _, places = self.pairs(table)
        return self.added(table, places)

    def counts(self, table: pa.Table) -> Places:
        """How many rows come of each row of a table.

        >>> listed = pa.table({"sku": ["a", "b", "a"], "tag": ["new", "old", "red"]})
        >>> tags = bind(listed, "sku", pa.schema([("sku", pa.string())]), unit=[], most=2)
        >>> tags.counts(pa.table({"sku": ["b", "a", "c"]})).tolist()
        [1, 2, 1]
        """
        if self.most == 1 or not len(self.keys[0]):
            return np.ones(table.num_rows, np.int64)
        found = self.places(table)
        _, _, sizes = self._of_keys
        return np.where(found == NOTHING, 1, sizes[found])

    def pairs(self, table: pa.Table) -> tuple[Places, Places]:
        """For each row that comes of a table the place of the row it is made of, and of the row of this table or `NOTHING`.

        >>> listed = pa.table({"sku": ["a", "b", "a"], "tag": ["new", "old", "red"]})
        >>> tags = bind(listed, "sku", pa.schema([("sku", pa.string())]), unit=[], most=2)
        >>> [found.tolist() for found in tags.pairs(pa.table({"sku": ["b", "a", "c"]}))]
        [[0, 1, 1, 2], [1, 0, 2, -1]]
        """
        found = self.places(table)
        rows = np.arange(table.num_rows)
        if self.most == 1 or not len(self.keys[0]):
            return rows, found
        order, starts, sizes = self._of_keys
        counts: Places = np.where(found == NOTHING, 1, sizes[found])
        rows = np.repeat(rows, counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        key = found[rows]
        return rows, np.where(key == NOTHING, NOTHING, order[np.minimum(starts[key] + nth, len(order) - 1)])

    def added(self, table: pa.Table, places: Places) -> pa.Table:
        """Rows with the columns of the rows of this table at some places."""
        where = pa.chunked_array([pa.array(places, pa.int32(), mask=places == NOTHING)])
        for name, column in zip(self.columns.column_names, self.columns.columns, strict=True):
            table = table.append_column(name, _taken(column, where))
        return table

    def places(self, table: pa.Table) -> Places:
        """The number of each row's key; where a key has one row of this table, the place of that row; or `NOTHING`.

        >>> stores = bind(pa.table({"store": [1, 2]}), "store", pa.schema([("store", pa.int64())]), unit=[])
        >>> stores.places(pa.table({"store": [2, 3, None]})).tolist()
        [1, -1, -1]
        """
        found = np.full(table.num_rows, NOTHING)
        if not len(self.keys[0]):
            return found
        for name, (values, pairs) in zip(self.on, self._indexes, strict=True):
            codes = [_numbers(_index(chunk, values)) for chunk in table.column(name).chunks]
            code = np.concatenate(codes) if codes else np.empty(0, np.int64)
            if pairs is None:
                found = code
            else:  # the number of the columns so far, with this one's
                both = np.where((found == NOTHING) | (code == NOTHING), NOTHING, found * len(values) + code)
                place = np.minimum(np.searchsorted(pairs, both), len(pairs) - 1)
                found = np.where((both != NOTHING) & (pairs[place] == both), place, NOTHING)
        return found

    @functools.cached_property
    def _indexes(self) -> list[tuple[pa.Array, Places | None]]:
        """For each column of the key its different values, and the numbers of those pairs with the columns before that occur."""
        found: list[tuple[pa.Array, Places | None]] = []
        numbers = np.zeros(len(self.keys[0]), np.int64)
        for column in self.keys:
            values = column.unique()
            codes = _numbers(_index(column, values))
            pairs = None
            if found:
                pairs, codes = np.unique(numbers * len(values) + codes, return_inverse=True)
            found.append((values, pairs))
            numbers = codes
        return found

    @functools.cached_property
    def key_numbers(self) -> Places:
        """For each row of this table the number of its key."""
        return self.places(pa.table(list(self.keys), names=list(self.on)))

    @functools.cached_property
    def _of_keys(self) -> tuple[Places, Places, Places]:
        """The rows of this table by key; where in them each key begins, and how many it has."""
        order = np.argsort(self.key_numbers, kind="stable")
        sizes = np.bincount(self.key_numbers)
        return order, np.cumsum(sizes) - sizes, sizes

    @property
    def fields(self) -> list[pa.Field]:
        """Names and types of the columns that are added."""
        return [field.with_type(keys.plain_type(field.type)) for field in self.columns.schema]


def _index(wanted: pa.Array, values: pa.Array) -> pa.Array:
    """The position of each key; for a dictionary, of each entry's key."""
    if pa.types.is_dictionary(wanted.type):
        return _index(wanted.dictionary, values).take(wanted.indices)
    wanted = keys.plain(wanted)
    # Rows of another width of integer than the table's are compared as the wider of the two.
    kind = _common(wanted.type, values.type) or values.type
    return pc.index_in(wanted.cast(kind), value_set=values.cast(kind), skip_nulls=True)


def _numbers(places: pa.Array) -> Places:
    return np.asarray(pc.fill_null(places, NOTHING).to_numpy(zero_copy_only=False), np.int64)


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


def bind(
    listed: pa.Table,
    on: str | Mapping[str, str],
    schema: pa.Schema,
    *,
    unit: Sequence[str],
    most: int = 1,
    field: str = "lookup",
    place: Callable[[int], str] | None = None,
) -> Lookup:
    """Check a lookup table against the rows that it is for.

    Args:
        listed: the whole table.
        on: the column that both have; or the key's columns in the rows, each with its name in the table.
        schema: of the rows, with the columns that the job defines and those of earlier tables.
        unit: the columns of the privacy unit.
        most: rows of the table that a key may have.
        field: of the job file, for errors.
        place: says where a row of the table stands.

    Raises:
        RequestError: with a field below `field`.
    """
    pairs = {on: on} if isinstance(on, str) else dict(on)
    if len(set(listed.column_names)) != listed.num_columns:
        raise RequestError(field=field, message="has two columns with the same name", hint="rename one")
    for ours, theirs in pairs.items():
        for name, known, what in ((ours, schema.names, "the rows do"), (theirs, listed.column_names, "the table does")):
            if name not in known:
                hint = nearest(name, known, "columns")
                raise RequestError(
                    field=f"{field}.on", message=f"names column {name!r}, which {what} not have", hint=hint
                )
        of_rows, of_table = keys.plain_type(schema.field(ours).type), keys.plain_type(listed.schema.field(theirs).type)
        if _common(of_rows, of_table) is None:
            of_which = f"column {ours!r} " if len(pairs) > 1 else ""
            message = f"{of_which}is {of_rows} in the rows and {of_table} in the lookup table, which cannot be compared"
            hint = "write the lookup table with the type of the rows"
            raise RequestError(field=f"{field}.on", message=message, hint=hint)
    taken = {name.casefold() for name in (*schema.names, *unit)}
    added = [name for name in listed.column_names if name not in pairs.values()]
    for name in added:
        if name in unit and name not in schema.names:
            raise RequestError(
                field=field, message=f"would add column {name!r} of the privacy unit", hint=UNIT_OF_SOURCE
            )
        if name.casefold() in taken:
            hint = "rename it in the lookup table"
            raise RequestError(field=field, message=f"would shadow column {name!r}", hint=hint)
    for name in listed.column_names:
        column = listed.column(name)
        if (column.nbytes if name in added else row_slices.decoded_bytes(column)) > MOST_TEXT:
            message = f"has more than {MOST_TEXT // 2**20} MiB in column {name!r}"
            raise RequestError(field=field, message=message, hint="drop the column, or write shorter texts")
    columns = [keys.plain(listed.column(name)) for name in pairs.values()]
    for name, of_key in zip(pairs.values(), columns, strict=True):
        if of_key.null_count:
            where = f", in {place(pc.index(pc.is_null(of_key), True).as_py())}" if place is not None else ""
            message = f"has a null in {name!r} of the lookup table{where}"
            raise RequestError(field=f"{field}.on", message=message, hint="drop that row")
    others = pa.table({name: _column(listed.column(name)) for name in added})
    if not added:  # the table says only which keys there are
        others = pa.table([pa.nulls(listed.num_rows)], names=["_"])
    found = Lookup(on=pairs, keys=tuple(columns), columns=others, most=most)
    _refuse_frequent(found, field, place)
    return found if added else dataclasses.replace(found, columns=others.select([]))


def _refuse_frequent(table: Lookup, field: str, place: Callable[[int], str] | None) -> None:
    """Refuse a table in which a key has more rows than are declared. Raises: RequestError, with the row that is one too many."""
    order, starts, sizes = table._of_keys
    if not len(sizes) or sizes.max() <= table.most:
        return
    row = min(int(order[start + table.most]) for start in starts[sizes > table.most])
    where = f", in {place(row)}" if place is not None else ""
    names = ", ".join(map(repr, table.on.values()))
    if table.most == 1:
        message = f"has duplicate keys in {names} of the lookup table{where}"
        hint = "keep one row for each, or declare max_rows_per_key"
        raise RequestError(field=f"{field}.on", message=message, hint=hint)
    message = f"is {table.most}, and a key has {int(sizes.max())} rows in {names} of the lookup table{where}"
    raise RequestError(
        field=f"{field}.max_rows_per_key", message=message, hint="declare more, or drop rows of the table"
    )


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
