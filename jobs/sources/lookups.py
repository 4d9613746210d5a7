"""Public tables that are joined one after the other; a later one may use columns of an earlier one.

In: lookups in their order. Out: the rows with all of their columns; where keys have several rows of a table, a row becomes
several, and a column tells these apart. Holds: what becomes of a row, and how its twins are told apart, depends on that row and
the tables alone; tables of rows stay as small as they were. Not covered: bounding, which comes after.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.jobs.sources.lookup import NOTHING, Lookup, Places
from dp_pipelines.jobs.sql import row_slices
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.lattice import Flags
from dp_pipelines.kernels.unit_facts import TWIN

MOST_ROWS = 2**19
"""Rows of a table that is made of rows that were read: as many as readers give at once."""


@dataclasses.dataclass(frozen=True)
class Lookups:
    """The tables of a job.

    Args:
        tables: in their order, at least one.
        row_id: the column that tells rows of one unit apart; None: all columns do.
    """

    tables: tuple[Lookup, ...]
    row_id: str | None = None

    @property
    def explodes(self) -> bool:
        """Whether one row may become several."""
        return any(table.most > 1 for table in self.tables)

    @property
    def most_rows(self) -> int:
        """How many rows one row may become, as the job declares."""
        return math.prod(table.most for table in self.tables)

    @property
    def fields(self) -> list[pa.Field]:
        """Names and types of the columns that are added."""
        twin = [pa.field(TWIN, pa.uint64())] if self.explodes else []
        return [field for table in self.tables for field in table.fields] + twin

    @property
    def on(self) -> tuple[str, ...]:
        """What the keys are read from, and what tells twins apart where it is declared: columns of the rows as they come."""
        added = {field.name for field in self.fields}
        of_keys = [name for table in self.tables for name in table.on]
        of_rows = [self.row_id] if self.explodes and self.row_id is not None else []
        return tuple(name for name in dict.fromkeys((*of_keys, *of_rows)) if name not in added)

    def of(self, columns: Iterable[str]) -> "Lookups | None":
        """Those tables that add some columns: they are joined to keys, which have all columns of theirs."""
        wanted = set(columns)
        found = tuple(table for table in self.tables if wanted.intersection(table.columns.column_names))
        return Lookups(found) if found else None

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns, where no key has several rows of a table."""
        for table in self.tables:
            rows = table.apply(rows)
        return rows

    def shaped(self, rows: pa.Table) -> Iterator[pa.Table]:
        """What comes of a table of rows, in several tables where it is much.

        >>> from dp_pipelines.jobs.sources.lookup import bind
        >>> listed = pa.table({"sku": ["a", "b", "a"], "tag": ["new", "old", "red"]})
        >>> tags = bind(listed, "sku", pa.schema([("sku", pa.string())]), unit=[], most=2)
        >>> (found,) = Lookups((tags,)).shaped(pa.table({"sku": ["a", None]}))
        >>> found.select(["sku", "tag"]).to_pylist()
        [{'sku': 'a', 'tag': 'new'}, {'sku': 'a', 'tag': 'red'}, {'sku': None, 'tag': None}]
        """
        if not self.explodes:
            yield self.apply(rows)
            return
        start = pa.array(np.zeros(rows.num_rows, np.uint64))
        for found in self._shaped(rows.append_column(TWIN, start), self.tables):
            place = found.column_names.index(TWIN)
            yield found.set_column(place, TWIN, pa.array(self._told_apart(found)))

    def _shaped(self, rows: pa.Table, tables: Sequence[Lookup]) -> Iterator[pa.Table]:
        if not tables:
            yield rows
            return
        table, *rest = tables
        if table.most == 1:
            yield from self._shaped(table.apply(rows), rest)
            return
        for first, last in _slices(table.counts(rows)):
            part = rows.slice(first, last - first)
            of_rows, places = table.pairs(part)
            for begin, end in _cut(part, of_rows):
                found = table.added(gather.take_rows(part, of_rows[begin:end]), places[begin:end])
                twins = found.column(TWIN).to_numpy()
                number = pa.array(places[begin:end])
                at = found.column_names.index(TWIN)
                yield from self._shaped(found.set_column(at, TWIN, pa.array(hashing.hash_onto(twins, [number]))), rest)

    def _told_apart(self, rows: pa.Table) -> hashing.Words:
        """What tells rows apart that come of one row or of several: the rows of the tables, and the row itself."""
        names = [self.row_id] if self.row_id is not None else [name for name in rows.column_names if name != TWIN]
        flat = [name for name in names if not pa.types.is_nested(keys.plain_type(rows.schema.field(name).type))]
        return hashing.hash_onto(rows.column(TWIN).to_numpy(), [keys.comparable(rows.column(name)) for name in flat])

    def has(self, shaped: pa.Table) -> Flags:
        """Which rows every table has a row for.

        Args:
            shaped: rows with all columns.
        """
        found = np.ones(shaped.num_rows, np.bool_)
        for table in self.tables:
            found &= table.places(shaped) != NOTHING
        return found


def _slices(counts: Places) -> Iterator[tuple[int, int]]:
    """Ranges of rows of which at most `MOST_ROWS` rows come, or one row: whoever has many rows must not fill the memory.

    >>> list(_slices(np.array([MOST_ROWS, 1, MOST_ROWS - 1, 2])))
    [(0, 1), (1, 3), (3, 4)]
    """
    ends, first = np.cumsum(counts), 0
    if not len(counts):
        yield 0, 0
    while first < len(counts):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + MOST_ROWS, side="right")), first + 1)
        yield first, last
        first = last


def _cut(rows: pa.Table, of_rows: Places) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are made of others: few enough, and of a moderate size once their texts are copied."""
    names = [
        name for name in rows.column_names if not pa.types.is_primitive(keys.plain_type(rows.schema.field(name).type))
    ]
    coded = {name: _coded(keys.one_array(rows.column(name)), of_rows) for name in names}
    coded[""] = pa.array(np.zeros(len(of_rows), np.int8))
    for begin, end in row_slices.cut(pa.table(coded), names):
        for first in range(begin, max(end, begin + 1), MOST_ROWS):
            yield first, min(first + MOST_ROWS, end)


def _coded(column: pa.Array, of_rows: Places) -> pa.DictionaryArray:
    """A column of rows that are made of others, without a copy of its values."""
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(pc.take(column.indices, pa.array(of_rows)), column.dictionary)
    return pa.DictionaryArray.from_arrays(pa.array(of_rows, pa.int32()), column)
