"""Shards of privacy units: a batch is cut into shards, and the slices of a shard are put together.

In: a wire table. Out: one smaller wire table per shard that occurs; and back. Holds: all rows of a unit go to one shard; the
shard of a unit is a keyed hash of the unit alone; tables whose keys have types that hash differently are never put together.
The salt evens the load and is not secret. Not covered: two units may share a shard, by design.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys, vectors
from dp_pipelines.kernels.columns import gather, hashing, long_text
from dp_pipelines.kernels.sizes import ELEMENT_BYTES

SMALL_DICTIONARY = 256
"""A dictionary up to this size travels whole with every slice; a larger one is made anew for what the slice holds."""


SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())


def shard_numbers(columns: Sequence[pa.Array], salt: int, shards: int) -> NDArray[np.uint16]:
    """Return the shard of each row, from its key columns.

    Args:
        columns: plain key columns of equal length.
        salt: the run's own 64-bit number.
        shards: how many shards there are, at most 2**14.

    >>> shard_numbers([pa.array([7, 7])], 1, 4).tolist()[0] == shard_numbers([pa.array([7])], 1, 4).tolist()[0]
    True
    """
    return _numbers(hashing.hash_columns(columns, salt), shards)


def _numbers(hashes: hashing.Words, shards: int) -> NDArray[np.uint16]:
    # The leading bits: what is left of the hash inside one shard still orders its units evenly.
    leading = hashes >> np.uint64(32)
    leading *= np.uint64(shards)
    leading >>= np.uint64(32)
    return leading.astype(np.uint16)


def slices(
    table: pa.Table,
    key_names: Sequence[str],
    salt: int,
    shards: int,
    hashes: hashing.Words | None = None,
    travels: NDArray[np.bool_] | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield a table cut by shard: (shard, rows of it), in the order of shards, only those with rows; each fits into an element.

    Args:
        table: with the key columns.
        key_names, salt, shards: as for `shard_numbers`.
        hashes: of the keys of each row, where they are known: `hashing.hash_columns` with this salt.
        travels: which rows there are; the others are left out. None: all.
    """
    if table.num_rows == 0:
        return
    if hashes is None:
        hashes = hashing.hash_columns([keys.one_array(table.column(name)) for name in key_names], salt)
    numbers = _numbers(hashes, shards)
    if travels is not None:
        numbers[~travels] = shards  # after all others
    if shards < 256:
        numbers = numbers.astype(np.uint8)  # one pass of the radix sort instead of two
    ends = np.cumsum(np.bincount(numbers, minlength=shards)[:shards])
    order = np.argsort(numbers, kind="stable")[: ends[-1]]
    taken = gather.take_rows(table, order)
    settled = all(_settled(kind) for kind in taken.schema.types)
    begin = 0
    for shard, end in enumerate(ends.tolist()):
        if settled and end > begin and (part := taken.slice(begin, end - begin)).nbytes <= ELEMENT_BYTES:
            yield shard, part  # there are many, and every column of each would be looked at
        elif end > begin:
            yield from ((shard, piece) for piece in pieces(compact(taken.slice(begin, end - begin))))
        begin = end


def _settled(kind: pa.DataType) -> bool:
    """Return True if `pieces` and `compact` leave a column of this type unchanged."""
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind) and keys.plain_type(kind) == kind


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Join tables of one shard, or of one place.

    Args:
        tables: at least one, of the same columns.

    Raises:
        RequestError: where they disagree on the type of a column, which is a public fact. What Arrow would unify by
            converting values (integers to floats, seconds to microseconds) is refused too: the hash of a converted key is
            another one, so that a unit would have stood in two shards. Integers of different widths hash alike.

    >>> joined([pa.table({"u0": pa.array([1], pa.int8())}), pa.table({"u0": [2]})]).column("u0").to_pylist()
    [1, 2]
    """
    first = tables[0].schema
    if all(table.schema.equals(first) for table in tables):  # nearly always, and much faster than name by name
        return pa.concat_tables(tables)
    tables = vectors.of_one_width(tables)
    for name in tables[0].column_names:
        kinds = {_key_type(table.schema.field(name).type) for table in tables} - {pa.null()}
        integers = all(pa.types.is_integer(kind) for kind in kinds)
        if len(kinds) > 1 and not (integers and (pa.uint64() not in kinds or not _signed(kinds))):
            raise RequestError(
                field="input",
                message="has tables that disagree on the type of a key column",
                hint="cast the column first",
            )
    return pa.concat_tables(tables, promote_options="permissive")


def _key_type(kind: pa.DataType) -> pa.DataType:
    """Return the plain type of a column, or of the values of its lists."""
    return keys.plain_type(kind.value_type if pa.types.is_list(kind) else kind)


def _signed(kinds: set[pa.DataType]) -> bool:
    return any(pa.types.is_signed_integer(kind) for kind in kinds)


def narrow(table: pa.Table) -> pa.Table:
    """Return the same rows with integers as narrow as their values allow, to save memory until the shard is read.

    Integers of all widths hash alike, and `joined` widens them where tables differ. No sign is lost or gained.

    >>> narrow(pa.table({"u": [1, 300, None], "who": ["a", "b", "c"]})).schema.types
    [DataType(int16), DataType(string)]
    """
    for index, field in enumerate(table.schema):
        widths = SIGNED if pa.types.is_signed_integer(field.type) else UNSIGNED
        if not pa.types.is_integer(field.type) or field.type == widths[0]:
            continue
        ends = pc.min_max(table.column(index))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is None:  # without values there is nothing to find out
            continue
        low = ~low if low < 0 else low
        kind = next(kind for kind in widths if max(low, high) >> (kind.bit_width - (widths is SIGNED)) <= 0)
        if kind != field.type:
            table = table.set_column(index, field.name, table.column(index).cast(kind, safe=False))
    return table


def pieces(table: pa.Table, most: int = ELEMENT_BYTES) -> Iterator[pa.Table]:
    """Yield the rows of a table in their order, as tables of at most so many bytes; an empty table unchanged.

    A larger row gets a table by itself.

    >>> [piece.num_rows for piece in pieces(pa.table({"a": range(10)}), most=32)]
    [2, 3, 2, 3]
    """
    if table.num_rows <= 1 or table.nbytes <= most:
        yield _plain_offsets(table)
        return
    middle = table.num_rows // 2
    for half in (table.slice(0, middle), table.slice(middle)):
        yield from pieces(compact(half, spare=0), most)


def _plain_offsets(table: pa.Table) -> pa.Table:
    """Return the same table with offsets of 32 bits, enough for a piece: all have one type, whatever their rows hold."""
    for index, field in enumerate(table.schema):
        kind = keys.plain_type(field.type) if long_text.is_text(field.type) else field.type
        if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and long_text.is_text(kind.value_type):
            kind = pa.list_(keys.plain_type(kind.value_type))
        if kind != field.type:
            chunks = [gather.narrow(chunk, kind) for chunk in table.column(index).chunks]
            table = table.set_column(index, field.name, pa.chunked_array(chunks, kind))
    return table


def compact(table: pa.Table, spare: int = SMALL_DICTIONARY) -> pa.Table:
    """Return the same rows with dictionaries that hold little more than these rows need.

    Args:
        table: with or without dictionaries.
        spare: a dictionary up to this size stays as it is.
    """
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = keys.one_array(table.column(index))
            # The text of each digest follows it: a digest that no row needs would bring a text that no row needs.
            many = len(column.dictionary) > max(spare, 2 * table.num_rows)
            if many or long_text.holds_stand_in(column.dictionary):
                column = gather.decoded(column).dictionary_encode()
            table = table.set_column(index, field.name, column)
    return table
