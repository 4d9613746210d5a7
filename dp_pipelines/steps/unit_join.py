"""Joins two private tables on the privacy unit: all rows of a unit meet in one shard, are capped there and paired.

In: tables of rows of a left and of a right table. Out: tables of joined rows, of bounded size. Holds: the joined rows of a unit
are a function of that unit's own rows in both tables, so removing a unit from both removes its joined rows and changes no
others; order, batches, shards and retries change nothing but the order of rows; a unit with many pairs costs no memory, since
they are made in slices. Not private: for what bounds rows by unit afterwards (docs/proofs/joins.md).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys, shard
from dp_pipelines.kernels.bounding import Positions, hash_pairs
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.hashing import Words
from dp_pipelines.kernels.columns.matches import Matches, matches
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import Step
from dp_pipelines.steps.whole_units import PORTION, ToUnitShards, bounded, too_many

KEEPS_UNMATCHED = {"inner": False, "left": True}
"""By the kind of a join, whether rows of the left table stay that meet nothing."""

MOST_PAIRS = 2**17
"""Joined rows of one table: texts have at most 256 bytes, so that a column of them has at most 32 MiB."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JoinSide:
    """One of the two tables of a join.

    Args:
        tag: what its columns begin with on their way to the shards.
        unit: the columns of the privacy unit.
        on: further columns that must be equal, in the order of those of the other side.
        reads: all columns that are read, with those above.
        key_types: of `unit` and `on`: the types in which both sides compare them.
        most: how many rows of a unit are kept.
        needs_match: whether rows that can meet nothing are dropped before the cap.
    """

    tag: str
    unit: tuple[str, ...]
    on: tuple[str, ...]
    reads: tuple[str, ...]
    key_types: Mapping[str, pa.DataType]
    most: int
    needs_match: bool

    def tagged(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names of columns on their way."""
        return tuple(f"{self.tag}{name}" for name in names)

    def is_of(self, table: pa.Table) -> bool:
        """Whether a table on its way is of this side."""
        return bool(table.column_names[0].startswith(self.tag))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitJoin:
    """A join of two tables on the privacy unit and on further columns.

    Args:
        left, right: the two tables.
        columns: names and types of the columns of a joined row; each is one of `left.reads`, or else of `right.reads`, or
            `pair_hash`.
        pair_hash: the column with the hash of both rows, by which joined rows of a unit are told apart.
        keeps_unmatched: whether left rows that meet nothing stay, with nulls for the right table's columns.
    """

    left: JoinSide
    right: JoinSide
    columns: pa.Schema
    pair_hash: str
    keeps_unmatched: bool


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type in which values of two types are compared exactly; None: they are not.

    >>> common_type(pa.int32(), pa.int64()), common_type(pa.large_string(), pa.string())
    (DataType(int64), DataType(string))
    >>> common_type(pa.int64(), pa.uint64()), common_type(pa.int64(), pa.string())
    (None, None)
    """
    one, other = keys.plain_type(one), keys.plain_type(other)
    if one == other:
        return one
    if not (pa.types.is_integer(one) and pa.types.is_integer(other)):
        return None
    if pa.uint64() not in (one, other):
        return pa.int64()
    return pa.uint64() if pa.types.is_unsigned_integer(one) and pa.types.is_unsigned_integer(other) else None


def is_nested(kind: pa.DataType) -> bool:
    """Whether a column has lists, structs or intervals, which joined rows cannot have.

    >>> is_nested(pa.list_(pa.int8())), is_nested(pa.string())
    (True, False)
    """
    kind = keys.plain_type(kind)
    return bool(pa.types.is_nested(kind) or pa.types.is_interval(kind))


def joined_on_unit(
    left: Flow, right: Flow, join: UnitJoin, num_shards: int, salt: int, pairing: "type[JoinRows] | None" = None
) -> Flow:
    """The joined rows of two tables. NOT private: for what bounds them by unit, in the same trust boundary.

    Args:
        left, right: of rows; those where a column of the unit is null are nobody's, and dropped.
        join: how they are joined.
        num_shards: into how many groups of units the data are cut.
        salt: a 64-bit number for the hashes of this run.
        pairing: the step that pairs rows; left out, `JoinRows`.
    """
    rows = left.each("LeftToShards", SideToShards(join.left, num_shards, salt))
    others = right.each("RightToShards", SideToShards(join.right, num_shards, salt))
    both = rows.with_others("BothTables", others).by_key("ByShard")
    return both.each("JoinRows", (pairing or JoinRows)(join, salt))


class SideToShards(ToUnitShards):
    """Cut a table of one side by the shard of the unit, each unit bounded first where it has too many rows."""

    def __init__(self, side: JoinSide, shards: int, salt: int) -> None:
        super().__init__(side.reads, side.unit, side.most, shards, salt)
        self._side, self._columns = side, side.unit
        self._unit = side.tagged(side.unit)  # by the names that rows have on their way

    def rows(self, table: pa.Table) -> pa.Table:
        """The columns that are read, under the names of their way, of the rows that have a unit and may meet others."""
        found = self.canonical(table, self._columns)
        for name, kind in self._side.key_types.items():
            place = found.column_names.index(name)
            if found.schema.field(place).type != kind:
                if common_type(found.schema.field(place).type, kind) != kind:
                    message = f"has type {found.schema.field(place).type}, but is compared as {kind}"
                    raise RequestError(field=f"column {name!r}", message=message, hint="cast the column first")
                found = found.set_column(place, name, found.column(place).cast(kind))
        for name in self._side.on if self._side.needs_match else ():
            if found.column(name).null_count:
                found = gather.filter_rows(found, pc.is_valid(found.column(name)))
        return shard.narrow(found.rename_columns(list(self._side.tagged(found.column_names))))


class JoinRows(Step):
    """The joined rows of a shard's units, in several tables of bounded size; the first has none and tells the types."""

    def __init__(self, join: UnitJoin, salt: int) -> None:
        self._join, self._salt = join, salt

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """All of them."""
        join = self._join
        left = _Capped(join.left, self._salt)
        right = _Capped(join.right, self._salt)
        for table in element[1]:
            (left if join.left.is_of(table) else right).add(table)
        yield join.columns.empty_table()
        ours, theirs = left.rows(), right.rows()
        found = None if ours is None or theirs is None else matches(_keys(ours, join.left), _keys(theirs, join.right))
        yield from self.seen(ours, theirs, found)
        if ours is None:  # nobody's rows come from the right table alone
            return
        if theirs is None or found is None:
            if join.keeps_unmatched:
                yield from self._unmatched(ours, np.arange(ours.num_rows))
            return
        yield from self._pairs(ours, theirs, found)
        if join.keeps_unmatched:
            yield from self._unmatched(ours, found.alone())

    def seen(self, ours: pa.Table | None, theirs: pa.Table | None, found: Matches | None) -> Iterable[pa.Table]:
        """Tables beside the joined rows, about the kept rows of both sides and which of them meet: none, but in subclasses."""
        return ()

    def _pairs(self, ours: pa.Table, theirs: pa.Table, found: Matches) -> Iterator[pa.Table]:
        """Rows that meet, in the order in which they are paired: what is gathered once is then read in sequence."""
        ours = self._rows_at(ours, found.left, self._join.left)
        theirs = self._rows_at(theirs, found.right, self._join.right)
        told = (self._hashes(ours), self._hashes(theirs)) if self._join.pair_hash in self._join.columns.names else None
        for mine, others in found.pairs(MOST_PAIRS):
            hashes = None if told is None else hash_pairs(told[0][mine], told[1][others])
            yield self._table(ours, mine, theirs, others, hashes)

    def _unmatched(self, ours: pa.Table, alone: Positions) -> Iterator[pa.Table]:
        """Left rows that meet nothing, with nulls."""
        told = self._hashes(ours) if self._join.pair_hash in self._join.columns.names else None
        for begin in range(0, len(alone), MOST_PAIRS):
            mine = alone[begin : begin + MOST_PAIRS]
            hashes = None if told is None else hash_pairs(told[mine], np.zeros(len(mine), np.uint64))
            yield self._table(ours, mine, None, mine, hashes)

    def _rows_at(self, rows: pa.Table, places: Positions, side: JoinSide) -> pa.Table:
        """The rows at some places, each column in one piece; integers as wide as joined rows have them, once for all slices."""
        found = {name: gather.take(rows.column(name), places) for name in rows.column_names}
        for field in self._join.columns:
            name = f"{side.tag}{field.name}"
            if name in found and self._side_of(field.name) is side and pa.types.is_integer(found[name].type):
                found[name] = found[name].cast(field.type)
        return pa.table(found)

    def _side_of(self, name: str) -> JoinSide:
        """The table of which a joined row has a column."""
        return self._join.left if name in self._join.left.reads else self._join.right

    def _table(
        self, ours: pa.Table, mine: Positions, theirs: pa.Table | None, others: Positions, hashes: Words | None
    ) -> pa.Table:
        """Joined rows; null for the columns of the right table where that is None."""
        join = self._join
        columns = []
        for field in join.columns:
            if field.name == join.pair_hash:
                columns.append(pa.array(hashes))
            elif self._side_of(field.name) is join.left:
                columns.append(_taken(ours, join.left, field, mine))
            elif theirs is not None:
                columns.append(_taken(theirs, join.right, field, others))
            else:
                columns.append(pa.nulls(len(mine), field.type))
        return pa.table(columns, schema=join.columns)

    def _hashes(self, rows: pa.Table) -> Words:
        """A hash of each row by all columns that are read of it."""
        return hashing.hash_columns([keys.one_array(column) for column in rows.columns], self._salt)


class _Capped:
    """Collects the rows of one side of a shard, each unit bounded.

    Keeping the first of a union is keeping the first of what is kept of its parts, so a unit with many rows costs no memory.
    """

    def __init__(self, side: JoinSide, salt: int) -> None:
        self._side, self._salt, self._unit = side, salt, side.tagged(side.unit)
        self._waiting: list[pa.Table] = []
        self._rows, self._portion = 0, PORTION

    def add(self, table: pa.Table) -> None:
        """More rows."""
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows > self._portion:
            kept = self._kept()
            self._waiting, self._rows = [kept], kept.num_rows
            self._portion = max(PORTION, 2 * kept.num_rows)

    def rows(self) -> pa.Table | None:
        """All that are kept; None where there was no table."""
        return self._kept() if self._waiting else None

    def _kept(self) -> pa.Table:
        together = shard.joined(self._waiting)
        together = pa.table({name: keys.one_array(together.column(name)) for name in together.column_names})
        if too_many(together, self._unit, self._side.most):
            return bounded(together, self._unit, self._side.most, self._salt)
        return together


def _keys(rows: pa.Table, side: JoinSide) -> Sequence[pa.Array]:
    return [keys.one_array(rows.column(name)) for name in side.tagged((*side.unit, *side.on))]


def _taken(rows: pa.Table, side: JoinSide, field: pa.Field, places: Positions) -> pa.ChunkedArray:
    column = gather.take(rows.column(f"{side.tag}{field.name}"), places)
    return gather.as_type(column, keys.plain_type(column.type)).cast(field.type)
