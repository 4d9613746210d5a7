"""The wire form of contributions: what is left of a table of events once only what a query reads is kept.

In: an Arrow table of events. Out: a table with columns u0.. (unit), p0.. (partition, dictionary-encoded), v0.. (lattice values
of clamped values, int32), c0.. (numbers of cells, int32), d0.. (lists of different values), r (row id), s0.. (summands of
clipped sums, int64 lattice values), a0.. (amounts, int64 parts of their end), w0.. (vectors, fixed-size lists of int32 lattice
values), x0.. (features of second moments, int16 lattice values).
Holds: each row is made from one row alone; rows without a unit are dropped, and with a public list rows of other partitions.
Runners copy every shuffled byte several times, so columns are as narrow as their values allow; that decides nothing else,
since keys are compared by value.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import amounts, keys
from dp_pipelines.kernels.cells import Cells
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.column_types import check_value_type
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.kernels.columns.key_places import KeyPlaces
from dp_pipelines.kernels.columns.listed_keys import ListedKeys
from dp_pipelines.kernels.columns.lists import check_lists
from dp_pipelines.kernels.columns.long_text import Texts
from dp_pipelines.kernels.distinct import check_values, one_each
from dp_pipelines.kernels.lattice import Lattice, SummandLattice, numbers_and_nulls
from dp_pipelines.kernels.moments import Moments
from dp_pipelines.kernels.vectors import VectorLattice

LARGEST_BATCH = 2**20
"""Rows of one batch: 2**20 summands of at most 2**40 add up within int64."""


@functools.cache
def everything() -> pa.Array:
    """Return the key on the wire if everything is one partition. It is never published.

    No constant: making an Arrow array out of a list imports pandas, where it is installed, which takes a third of a second.
    """
    return pa.array([""])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The roles of the columns of a table, and the bounds on contributions.

    Args:
        units, partitions: names of source columns. No partition column: everything is one partition, with a constant key on the
            wire (`everything`).
        values: (column, lattice) of each sum over clamped values.
        row_id: a column that distinguishes rows of one unit, or None.
        summands: (column, lattice) of each sum that is clipped per unit and partition.
        cells: (column, finest cells) of each statistic that counts rows by cell.
        distinct: (column, bound) of each statistic that counts different values; None: `max_rows_per_partition`.
        vectors: (column, lattice) of each sum of vectors that is clipped per unit and partition.
        moments: the features of each sum of products.
        amounts: (column, end) of each sum of which a unit's whole amount is measured, whatever the bounds keep of it.
        max_partitions, max_rows_per_partition: bounds of one unit (L0, Linf).
        max_rows: bound on a unit's rows in all; replaces the two above.
        other: whether rows of unlisted partitions are one more, whose key is null: the last partition column, which no table has,
            tells it from a listed null.
        public: the public partitions, or one sequence of values (or an array) per partition column; None: they are private; empty
            for everything; a `KeyFile`, of which rows of a few unlisted partitions may stay until the release.
    """

    units: tuple[str, ...]
    partitions: tuple[str, ...]
    values: tuple[tuple[str, Lattice], ...] = ()
    row_id: str | None = None
    summands: tuple[tuple[str, SummandLattice], ...] = ()
    cells: tuple[tuple[str, Cells], ...] = ()
    distinct: tuple[tuple[str, int | None], ...] = ()
    vectors: tuple[tuple[str, VectorLattice], ...] = ()
    moments: tuple[Moments, ...] = ()
    amounts: tuple[tuple[str, float], ...] = ()
    max_partitions: int
    max_rows_per_partition: int = 1
    max_rows: int | None = None
    public: ListedKeys | KeyFile | None = None
    other: bool = False

    def __post_init__(self) -> None:
        if self.public is not None and not isinstance(self.public, (ListedKeys, KeyFile)):
            object.__setattr__(self, "public", ListedKeys(self.public))

    @property
    def unit_names(self) -> list[str]:
        """Return wire names of the unit's columns."""
        return [f"u{i}" for i in range(len(self.units))]

    @property
    def read_partitions(self) -> tuple[str, ...]:
        """Return the partition columns that tables of events have."""
        return self.partitions[:-1] if self.other else self.partitions

    @property
    def partition_names(self) -> list[str]:
        """Return wire names of the partition's columns."""
        return [f"p{i}" for i in range(len(self.partitions) or 1)]

    def wire_keys(self, table: pa.Table, texts: Texts | None = None) -> dict[str, pa.Array]:
        """Return the partition columns of a table of events, by wire name. Arguments as for `wire`."""
        if not self.partitions:
            places = pa.array(np.zeros(table.num_rows, np.int16))
            return {"p0": pa.DictionaryArray.from_arrays(places, everything())}
        texts = texts if self.public is None else None
        named = zip(self.partition_names, self.read_partitions, strict=not self.other)
        columns = {name: keys.encoded(table.column(column), texts) for name, column in named}
        return self._with_other(columns) if self.other else columns

    def _with_other(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the same keys, null if they are not listed, and a column that is True for those."""
        flag, rows = self.partition_names[-1], len(columns["p0"])
        places, listed = self.public_places(pa.table({**columns, flag: pa.array(np.zeros(rows, np.bool_))}))
        known = places < listed
        return {
            **{name: keys.null_unless(column, known) for name, column in columns.items()},
            flag: keys.encoded(pa.array(~known)),
        }

    @property
    def listed(self) -> int:
        """Return the number of public partitions; 0 if they are private."""
        if self.public is None:
            return 0
        return len(self.public) if self.partitions else 1

    def listed_texts(self) -> Texts:
        """Return the texts of long keys that are listed."""
        return self.public.texts(self.partitions) if isinstance(self.public, ListedKeys) else {}

    @property
    def text_names(self) -> list[str]:
        """Return wire names of the columns in which a digest may replace a long text that is published."""
        return [] if self.public is not None else self.partition_names

    @property
    def content_names(self) -> list[str]:
        """Return wire names of the columns that distinguish rows of one unit and partition: the row id, or else the values.

        Not the summands: they travel summed up (`contributions.reduce`), and which row carries them must not matter.
        """
        return ["r"] if self.row_id is not None else self.value_names

    @property
    def value_names(self) -> list[str]:
        """Return wire names of the values, of the cells that they fall into, and of the features of second moments."""
        names = [f"v{i}" for i in range(len(self.values))] + [f"c{i}" for i in range(len(self.cells))]
        names += [f"a{i}" for i in range(len(self.amounts))]
        return names + [name for moments in self.moments for name in self.feature_names(moments)]

    def feature_names(self, moments: Moments) -> list[str]:
        """Return wire names of the features of second moments."""
        before = sum(len(other.columns) for other in self.moments[: self.moments.index(moments)])
        return [f"x{before + i}" for i in range(len(moments.columns))]

    def wire(self, table: pa.Table, texts: Texts | None = None) -> pa.Table:
        """Return the wire form of a table of events.

        Args:
            table: events.
            texts: takes up the texts of long partition keys, of which the rows carry a digest; listed ones are known.

        Raises:
            RequestError: for a missing column or a type that cannot play its part (both public).
        """
        _check_columns(table.schema, self)
        columns: dict[str, pa.Array] = {}
        for name, column in zip(self.unit_names, self.units, strict=True):
            columns[name] = keys.plain_unit(table.column(column))
        columns |= self.wire_keys(table, texts)
        read = dict.fromkeys(column for column, _ in (*self.values, *self.summands, *self.amounts))
        numbers = {column: numbers_and_nulls(keys.one_array(table.column(column))) for column in read}
        for i, (column, lattice) in enumerate(self.values):
            values, nulls = numbers[column]
            columns[f"v{i}"] = pa.array(lattice.integers(values).astype(np.int32), mask=nulls)
        for i, (column, cells) in enumerate(self.cells):
            columns[f"c{i}"] = cells.of(keys.one_array(table.column(column)))
        for i, (column, _) in enumerate(self.distinct):
            columns[f"d{i}"] = one_each(table.column(column))
        if self.row_id is not None:
            columns["r"] = keys.comparable(table.column(self.row_id))
        for i, (column, summand) in enumerate(self.summands):
            columns[f"s{i}"] = pa.array(summand.integers(numbers[column][0]))
        for i, (column, end) in enumerate(self.amounts):
            columns[f"a{i}"] = pa.array(amounts.of_values(numbers[column][0], end))
        for i, (column, vectors) in enumerate(self.vectors):
            columns[f"w{i}"] = vectors.integers(keys.one_array(table.column(column)))
        for moments in self.moments:
            features = [keys.one_array(table.column(column)) for column in moments.columns]
            columns |= dict(zip(self.feature_names(moments), moments.integers(features), strict=True))
        wire = pa.table(columns)
        keep = self.kept_rows(wire)
        return wire if keep is None else gather.filter_rows(wire, keep)

    def kept_rows(self, wire: pa.Table) -> pa.Array | None:
        """Return True for rows of a wire table with a unit and, for a public list, a listed partition; None if all have them."""
        keep = None
        for name in self.unit_names:
            if wire.column(name).null_count:
                valid = pc.is_valid(wire.column(name))
                keep = valid if keep is None else pc.and_(keep, valid)
        if self.public is not None and self.partitions and not self.other:
            if isinstance(self.public, KeyFile):
                inside = self._may_be_listed(wire, self.public)
            else:
                places, listed = self.public_places(wire)
                inside = places < listed
            if not inside.all():
                keep = pa.array(inside) if keep is None else pc.and_(keep, pa.array(inside))
        return keep

    def _may_be_listed(self, wire: pa.Table, listed: KeyFile) -> NDArray[np.bool_]:
        """Return True for rows whose partition may be in a list by its hash. Each row is judged by itself."""
        mine = [keys.one_array(wire.column(name)) for name in self.partition_names]
        if len(mine) == 1 and pa.types.is_dictionary(mine[0].type):
            # Rows repeat their keys: each is looked up once, and a null as the last.
            codes, values = keys.codes_and_values(mine[0])
            return listed.may_hold(listed.hashes([values]))[codes]
        return listed.may_hold(listed.hashes(mine))

    def listed_columns(self) -> list[pa.Array]:
        """Return the public partitions as they were listed, in the types that the listed values have.

        Raises:
            RequestError: where the values of a column are of different kinds.
        """
        assert isinstance(self.public, ListedKeys)
        return self.public.arrays(self.partitions) if self.partitions else [everything()]

    def public_places(self, table: pa.Table) -> tuple[keys.Codes, int]:
        """Return for each row the place of its partition in the public list, or a number beyond it; and the list's length.

        Args:
            table: with columns p0..

        Raises:
            RequestError: a listed value does not fit its column, or a partition is listed twice.
        """
        assert isinstance(self.public, ListedKeys)
        if not self.partitions:
            return np.zeros(table.num_rows, np.int64), 1
        mine = [keys.one_array(table.column(name)) for name in self.partition_names]
        listed = self.public.places(self.partitions, [column.type for column in mine])
        if listed.has_doubles:
            raise RequestError(field="public", message="lists a partition twice", hint="list each partition once")
        if not any(pa.types.is_dictionary(column.type) for column in mine):
            return listed.find(_of_types(mine, listed)), len(listed)
        # Rows repeat their keys: each is looked up once.
        distinct = keys.dense(
            [column if pa.types.is_dictionary(column.type) else keys.plain(column) for column in mine]
        )
        return listed.find(_of_types(distinct.columns, listed))[distinct.codes], len(listed)


def _of_types(columns: Sequence[pa.Array], listed: KeyPlaces) -> list[pa.Array]:
    """Return canonical keys of the types of a list; a column of nulls alone counts as of the listed type."""
    plain = [keys.plain(column) for column in columns]
    return [
        column.cast(of.type) if pa.types.is_null(column.type) else column
        for column, of in zip(plain, listed.columns, strict=True)
    ]


def _check_columns(schema: pa.Schema, layout: Layout) -> None:
    numbers = [column for column, _ in (*layout.values, *layout.summands, *layout.amounts)]
    numbers += [column for moments in layout.moments for column in moments.columns]
    names = [*layout.units, *layout.read_partitions, *numbers]
    names += [c for c, _ in (*layout.cells, *layout.distinct, *layout.vectors)]
    if layout.row_id is not None:
        names.append(layout.row_id)
    for name in names:
        if len(schema.get_all_field_indices(name)) != 1:
            raise RequestError(field=f"column {name!r}", message="is not a column of the input, or not a single one")
    for name in layout.units:
        keys.check_key_type(schema.field(name).type, name, partition=False)
    for name in layout.read_partitions:
        keys.check_key_type(schema.field(name).type, name, partition=True)
    if layout.row_id is not None:
        keys.check_key_type(schema.field(layout.row_id).type, layout.row_id, partition=False)
    for name in numbers:
        check_value_type(schema.field(name).type, name)
    for name, cells in layout.cells:
        cells.check(schema.field(name).type, name)
    for name, _ in layout.distinct:
        check_values(schema.field(name).type, name)
    for name, vectors in layout.vectors:
        check_lists(schema.field(name).type, name, vectors.size)
