"""Gathers all rows of a unit in one place, bounds them, and adds the columns that look at all of them.

In: Arrow tables of rows. Out: tables that hold whole units, with the columns of windows over one unit's rows.
Holds: what is kept of a unit, and what its columns are, depends on that unit's rows alone: removing a unit leaves all other
units' rows as they are, bit for bit; order, batches, files and retries change nothing. A unit's rows beyond
`max_rows_per_unit` are dropped before anything looks at several rows. Not private: for what follows in the same trust boundary.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys, shard
from dp_pipelines.kernels.bounding import Positions, RowOrder, bound_rows
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.hashing import Words
from dp_pipelines.kernels.columns.long_text import is_text
from dp_pipelines.kernels.columns.matches import loose_codes
from dp_pipelines.kernels.keys import Codes
from dp_pipelines.kernels.layout import LARGEST_BATCH
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import AheadStep, Step

MOST_ROWS = 2**20
"""The most rows of one unit that its windows may look at."""

LONGEST = 256
"""The most bytes of a text. If a stage looks at whole units, a longer one counts as null, except in the unit's own columns."""

PORTION = 2**20
"""How many rows of a shard are gathered before they are bounded."""


BUCKETS = np.uint64(2**18 - 1)
"""Rows are counted by these bits of the hash of their unit, which do not say which shard it is in."""


class UnitColumns(Protocol):
    """What is computed from all rows of a unit together, e.g. windows.

    A class that puts the rows of a unit in order itself says so by `any_order = True`: then rows come in any order, those of a
    unit anywhere, and the columns of a row must not depend on that.
    """

    def apply(self, table: pa.Table) -> pa.Table:
        """Rows with more columns, possibly fewer rows.

        Args:
            table: all kept rows of some units, those of a unit together, in an order that only their content decides.

        Returns:
            rows of which each depends on its own unit's rows alone. The columns of the unit are as they were.
        """
        ...


def with_unit_columns(
    tables: Flow,
    *,
    unit: Sequence[str],
    reads: Sequence[str],
    unit_columns: UnitColumns,
    max_rows_per_unit: int,
    num_shards: int,
    salt: int,
) -> Flow:
    """Give rows the columns that look at all rows of their unit. NOT private: for what follows in the same trust boundary.

    Args:
        tables: of rows; those where a column of the unit is null are dropped.
        unit: the columns of the privacy unit.
        reads: the columns that the unit columns or later steps read.
        unit_columns: the windows, and which rows stay.
        max_rows_per_unit: rows of a unit that are kept, by a keyed hash of the columns that are read, before `unit_columns`.
        num_shards: into how many groups of units the data are cut.
        salt: a 64-bit number for the hashes of this run.
    """
    reads = tuple(dict.fromkeys((*unit, *reads)))
    cut = ToUnitShards(reads, tuple(unit), max_rows_per_unit, num_shards, salt)
    compute = ComputeUnitColumns(tuple(unit), max_rows_per_unit, unit_columns, salt)
    return tables.each("ToShards", cut).by_key("ByShard").each("Compute", compute)


class ToUnitShards(AheadStep):
    """Cut a table by the shard of the unit, each unit bounded first where it has too many rows.

    Of a unit whose name is a long text, rows carry the digest (`kernels.columns.long_text`).
    """

    def __init__(self, reads: tuple[str, ...], unit: tuple[str, ...], most: int, shards: int, salt: int) -> None:
        self._reads, self._unit, self._most, self._shards, self._salt = reads, unit, most, shards, salt

    def compute(self, element: pa.Table) -> list[tuple[int, pa.Table]]:
        """Parts of one table, each with its shard. Shard 0 always gets one, so that types are known even without rows."""
        cut = [(0, self.rows(element.slice(0, 0)))]
        for begin in range(0, element.num_rows, LARGEST_BATCH):
            rows = self.rows(element.slice(begin, LARGEST_BATCH))
            hashes: Words | None = hashing.hash_columns(
                [keys.one_array(rows.column(n)) for n in self._unit], self._salt
            )
            if too_many(rows, self._unit, self._most, hashes):
                rows, hashes = bounded(rows, self._unit, self._most, self._salt), None
            cut += shard.slices(rows, self._unit, self._salt, self._shards, hashes)
        return cut

    def rows(self, table: pa.Table) -> pa.Table:
        """The columns that are read, of the rows that have a unit."""
        return self.canonical(table, self._unit)

    def canonical(self, table: pa.Table, unit: Sequence[str]) -> pa.Table:
        """The same, where the columns of the unit have these names."""
        return canonical(with_digests(table, unit), self._reads, unit)


class ComputeUnitColumns(Step):
    """The rows of a shard's units, with their unit columns; an element holds part of them, so that it stays small."""

    def __init__(self, unit: tuple[str, ...], most: int, unit_columns: UnitColumns, salt: int) -> None:
        self._unit, self._most, self._unit_columns, self._salt = unit, most, unit_columns, salt

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """All of them, in several tables."""
        found = self._unit_columns.apply(whole_units(element[1], self._unit, self._most, self._salt))
        yield found.slice(0, 0)  # later steps learn the types, were there no rows
        for begin in range(0, found.num_rows, LARGEST_BATCH):
            yield found.slice(begin, LARGEST_BATCH)


def whole_units(
    tables: Iterable[pa.Table], unit: Sequence[str], most: int, salt: int, *, ordered: bool = True
) -> pa.Table:
    """All kept rows of some units, in an order that their content alone decides.

    Args:
        tables: at least one; canonical rows, all of these units.
        unit: the columns of the unit.
        most: how many rows of a unit are kept.
        salt: see `bounded`.
        ordered: False where nothing that follows looks at the order: then rows may come in any. Which are kept is the same.
    """

    def kept(some: Sequence[pa.Table]) -> pa.Table:
        rows = shard.joined(some)
        if ordered or too_many(rows, unit, most):
            return bounded(rows, unit, most, salt)
        return pa.table([gather.one_array(column) for column in rows.columns], names=rows.column_names)

    waiting: list[pa.Table] = []
    rows, portion = 0, PORTION
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows > portion:
            waiting = [kept(waiting)]
            rows, portion = waiting[0].num_rows, max(PORTION, 2 * waiting[0].num_rows)
    return kept(waiting)


def with_digests(table: pa.Table, unit: Sequence[str]) -> pa.Table:
    """The same rows, with a digest for each long text in the unit's columns."""
    for name in unit:
        if name in table.column_names and is_text(keys.plain_type(table.schema.field(name).type)):
            column = keys.comparable(table.column(name))
            table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def canonical(table: pa.Table, columns: Sequence[str], unit: Sequence[str]) -> pa.Table:
    """Some columns of the rows that have a unit, each plain: no dictionaries, NaN is null, -0.0 is 0.0, no metadata.

    Raises:
        RequestError: a column is missing, or is of a nested type (public facts).
    """
    for name in columns:
        if len(table.schema.get_all_field_indices(name)) != 1:
            raise RequestError(
                field=f"column {name!r}", message="is not a column of the rows, or occurs more than once"
            )
        _check_type(table.schema.field(name).type, name)
    plain = pa.table({name: keys.plain(_short(table.column(name))) for name in columns})
    for name in unit:
        if plain.column(name).null_count:
            plain = gather.filter_rows(plain, pc.is_valid(plain.column(name)))
    return plain


def bounded(table: pa.Table, unit: Sequence[str], most: int, salt: int) -> pa.Table:
    """At most so many rows of each unit: those with the least keyed hashes, in an order that their content alone decides.

    Args:
        table: canonical rows.
        unit: the columns of the unit.
        most: how many rows of a unit are kept.
        salt: a 64-bit number. Keeping the first of a union is keeping the first of what is kept of its parts.

    >>> rows = pa.table({"who": [1, 2, 1, 1], "day": [3, 5, 4, 9]})
    >>> bounded(rows, ["who"], 2, 7).equals(bounded(rows.take([3, 2, 1, 0]), ["who"], 2, 7))
    True
    """
    units = keys.dense([keys.one_array(table.column(name)) for name in unit])
    hashes = units.hashes(salt)
    columns = [keys.one_array(column) for column in table.columns]

    everything = np.arange(table.num_rows)

    def content(positions: Positions) -> list[pa.Array]:
        if np.array_equal(positions, everything):  # as for the first look at all rows: they need no copy
            return columns
        return [gather.take(column, positions) for column in columns]

    def row_hashes(positions: Positions) -> Words:
        return hashing.hash_onto(hashes[units.codes[positions]], content(positions))

    def row_ranks(positions: Positions) -> Codes:
        rows = keys.dense(content(positions))
        return rows.ranks()[rows.codes]

    alike = keys.Keys(np.zeros(table.num_rows, np.int64), (pa.nulls(1),))
    order = RowOrder(hashes=row_hashes, ranks=row_ranks)
    found = bound_rows(_places(units, hashes)[units.codes], len(units), alike, order, max_rows=most)
    return gather.take_rows(table, found.rows)


def _places(units: keys.Keys, hashes: Words) -> Codes:
    """The place of each unit in the order of their hashes, and of the units themselves where two hashes are equal."""
    order = np.argsort(hashes, kind="stable")
    if (hashes[order][1:] == hashes[order][:-1]).any():
        order = np.lexsort((units.ranks(), hashes))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def too_many(rows: pa.Table, unit: Sequence[str], most: int, hashes: Words | None = None) -> bool:
    """Whether some unit has more rows than are kept.

    Args:
        rows: canonical.
        unit: the columns of the unit.
        most: how many rows of a unit are kept.
        hashes: of the units, where they are known: most often they show that no unit has so many.

    >>> too_many(pa.table({"who": [1, 1, 2]}), ["who"], 2), too_many(pa.table({"who": [1, 1, 2]}), ["who"], 1)
    (False, True)
    """
    if rows.num_rows <= most:
        return False
    if hashes is not None and int(np.bincount((hashes & BUCKETS).astype(np.int64)).max()) <= most:
        return False
    codes, number = loose_codes([keys.one_array(rows.column(name)) for name in unit])
    return int(np.bincount(codes, minlength=number).max()) > most


def _short(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text and bytes with values longer than `LONGEST` replaced by null.

    A dictionary may hold one text for a million rows: what a file has in a few bytes would take all memory as rows.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        return _short(pa.chunked_array(storage, column.type.storage_type))
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    plain = keys.plain_type(kind)
    if not (pa.types.is_string(plain) or pa.types.is_binary(plain)):
        return column
    pieces = [_without_long(chunk) for chunk in column.chunks]
    return pa.chunked_array(pieces) if pieces else pa.chunked_array([], plain)


def _without_long(chunk: pa.Array) -> pa.Array:
    if isinstance(chunk, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(chunk.indices, _without_long(chunk.dictionary))
    if pa.types.is_string_view(chunk.type) or pa.types.is_binary_view(chunk.type):
        chunk = chunk.cast(pa.large_string() if pa.types.is_string_view(chunk.type) else pa.large_binary())
    short = pc.less_equal(pc.binary_length(chunk), LONGEST)
    return chunk if pc.all(short).as_py() is not False else pc.if_else(short, chunk, pa.scalar(None, chunk.type))


def _check_type(data_type: pa.DataType, name: str) -> None:
    plain = keys.plain_type(data_type)
    flat = pa.types.is_primitive(plain) or pa.types.is_string(plain) or pa.types.is_binary(plain)
    flat |= pa.types.is_fixed_size_binary(plain) or pa.types.is_decimal(plain) or pa.types.is_null(plain)
    if not flat or pa.types.is_interval(plain):
        hint = "extract what you need from it first, in a job file under columns:"
        raise RequestError(field=f"column {name!r}", message=f"has type {plain}, which examples cannot have", hint=hint)
