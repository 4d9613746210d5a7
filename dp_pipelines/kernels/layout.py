"""The wire form of contributions: what is left of a table of events once only what a query reads is kept.

In: an Arrow table of events. Out: a table with columns u0.. (unit), p0.. (partition, dictionary-encoded), v0.. (lattice
values of clamped values, int32), r (row id), s0.. (summands of clipped sums, int64 lattice values). Holds: each row is made
from one row alone; rows without a unit are dropped, and with a public list rows of other partitions. Runners copy every
shuffled byte several times, so columns are as narrow as their values allow; that decides nothing else, since keys are
compared by value. May import errors, kernels.keys, kernels.lattice, pyarrow.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.lattice import Lattice, SummandLattice, numbers_and_nulls

LARGEST_BATCH = 2**20
"""Rows of one batch: 2**20 summands of at most 2**40 add up within int64."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Which columns of a table play which part, and how contributions are bounded.

    Args:
        units, partitions: names of source columns.
        values: (column, lattice) of each sum over clamped values.
        row_id: a column that tells rows of one unit apart, or None.
        summands: (column, lattice) of each sum that is clipped per unit and partition.
        max_partitions, max_rows_per_partition: bounds of one unit (L0, Linf).
        max_rows: bound on a unit's rows in all; replaces the two above.
        public: the public partitions, one sequence of values per partition column, or None.
    """

    units: tuple[str, ...]
    partitions: tuple[str, ...]
    values: tuple[tuple[str, Lattice], ...] = ()
    row_id: str | None = None
    summands: tuple[tuple[str, SummandLattice], ...] = ()
    max_partitions: int
    max_rows_per_partition: int = 1
    max_rows: int | None = None
    public: tuple[tuple[object, ...], ...] | None = None

    @property
    def unit_names(self) -> list[str]:
        """Wire names of the unit's columns."""
        return [f"u{i}" for i in range(len(self.units))]

    @property
    def partition_names(self) -> list[str]:
        """Wire names of the partition's columns."""
        return [f"p{i}" for i in range(len(self.partitions))]

    @property
    def content_names(self) -> list[str]:
        """Wire names of the columns that tell rows of one unit and partition apart: the row id, or else the values.

        Not the summands: they travel summed up (`contributions.reduce`), and which row carries them must not matter.
        """
        return ["r"] if self.row_id is not None else self.value_names

    @property
    def value_names(self) -> list[str]:
        """Wire names of the values."""
        return [f"v{i}" for i in range(len(self.values))]

    def wire(self, table: pa.Table) -> pa.Table:
        """The wire form of a table of events.

        Raises:
            RequestError: for a missing column or a type that cannot play its part (both public).
        """
        _check_columns(table.schema, self)
        columns: dict[str, pa.Array] = {}
        for name, column in zip(self.unit_names, self.units, strict=True):
            columns[name] = keys.plain_unit(table.column(column))
        for name, column in zip(self.partition_names, self.partitions, strict=True):
            columns[name] = keys.encoded(table.column(column))
        read = dict.fromkeys(column for column, _ in (*self.values, *self.summands))
        numbers = {column: numbers_and_nulls(keys.one_array(table.column(column))) for column in read}
        for i, (column, lattice) in enumerate(self.values):
            values, nulls = numbers[column]
            columns[f"v{i}"] = pa.array(lattice.integers(values).astype(np.int32), mask=nulls)
        if self.row_id is not None:
            columns["r"] = keys.plain(table.column(self.row_id))
        for i, (column, summand) in enumerate(self.summands):
            columns[f"s{i}"] = pa.array(summand.integers(numbers[column][0]))
        wire = pa.table(columns)
        keep = self._kept_rows(wire)
        return wire if keep is None else wire.filter(keep)

    def _kept_rows(self, wire: pa.Table) -> pa.Array | None:
        keep = None
        for name in self.unit_names:
            if wire.column(name).null_count:
                valid = pc.is_valid(wire.column(name))
                keep = valid if keep is None else pc.and_(keep, valid)
        if self.public is not None:
            places, listed = self.public_places(wire)
            inside = pa.array(places < listed)
            keep = inside if keep is None else pc.and_(keep, inside)
        return keep

    def listed_columns(self) -> list[pa.Array]:
        """The public partitions as they were listed, in the types that the listed values have.

        Raises:
            RequestError: where the values of a column are of different kinds.
        """
        assert self.public is not None
        columns = []
        for name, values in zip(self.partitions, self.public, strict=True):
            try:
                columns.append(keys.plain(_arrow(values)))
            except (pa.ArrowException, OverflowError, UnicodeError):
                raise RequestError(
                    field=f"public, column {name!r}",
                    rule="lists values of different kinds",
                    mend="use one kind of value",
                ) from None
        return columns

    def public_places(self, table: pa.Table) -> tuple[keys.Codes, int]:
        """For each row, the place of its partition in the public list, or a number beyond it; and the list's length.

        Args:
            table: with columns p0..

        Raises:
            RequestError: a listed value does not fit its column, or a partition is listed twice.
        """
        assert self.public is not None
        both = []
        for i, (name, values, listed) in enumerate(
            zip(self.partitions, self.public, self.listed_columns(), strict=True)
        ):
            mine = keys.plain(table.column(f"p{i}"))
            if pa.types.is_null(mine.type):
                mine = mine.cast(listed.type)
            both.append(pa.concat_arrays([public_column(name, mine.type, values), mine]))
        length = len(self.public[0])
        # Codes are given in order of first appearance: those of the list are 0, 1, 2, ...
        codes = keys.dense(both).codes
        if not np.array_equal(codes[:length], np.arange(length)):
            raise RequestError(field="public", rule="lists a partition twice", mend="list each partition once")
        return codes[length:], length


def public_column(name: str, kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    """One column of a public list as a plain array of the type that the data have.

    >>> public_column("region", pa.string(), ["a", None]).to_pylist()
    ['a', None]
    """
    plain = keys.plain_type(kind)
    try:
        listed = _arrow(values)
        if pa.types.is_integer(listed.type) and (pa.types.is_integer(plain) or pa.types.is_decimal(plain)):
            return pa.array(list(values), plain)
        if pa.types.is_null(listed.type) or listed.type == plain:
            return keys.plain(listed.cast(plain))
        text_for_number = keys.is_text(listed.type) and pa.types.is_integer(plain)
        of_truth = pa.types.is_boolean(listed.type) or pa.types.is_boolean(plain)
        if text_for_number or of_truth or (keys.is_text(plain) and not keys.is_text(listed.type)):
            raise pa.ArrowInvalid("kinds differ")
        return keys.plain(listed.cast(plain))
    except (pa.ArrowException, OverflowError, UnicodeError):
        raise RequestError(
            field=f"public, column {name!r}",
            rule=f"lists a value that is not of the column's type {plain}",
            mend="write the values as that type",
        ) from None


def _arrow(values: Sequence[object]) -> pa.Array:
    listed = list(values)
    try:
        return pa.array(listed)
    except OverflowError:  # Arrow takes whole numbers for int64 unless told otherwise
        return pa.array(listed, pa.uint64())


def _check_columns(schema: pa.Schema, layout: Layout) -> None:
    numbers = [column for column, _ in (*layout.values, *layout.summands)]
    names = [*layout.units, *layout.partitions, *numbers]
    if layout.row_id is not None:
        names.append(layout.row_id)
    for name in names:
        if len(schema.get_all_field_indices(name)) != 1:
            raise RequestError(field=f"column {name!r}", rule="is not a column of the input, or not a single one")
    for name in layout.units:
        keys.check_key_type(schema.field(name).type, name, partition=False)
    for name in layout.partitions:
        keys.check_key_type(schema.field(name).type, name, partition=True)
    if layout.row_id is not None:
        keys.check_key_type(schema.field(layout.row_id).type, layout.row_id, partition=False)
    for name in numbers:
        check_value_type(schema.field(name).type, name)


def check_value_type(data_type: pa.DataType, column: str) -> None:
    """Refuse types that cannot be summed.

    Raises:
        RequestError: for anything but integers, floats, decimals and booleans.

    >>> check_value_type(pa.string(), "amount")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: column 'amount': has type string, which is no number; cast it first, e.g. columns: {amount_number: "CAST(amount AS DOUBLE)"}
    """
    kind = keys.plain_type(data_type)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (number or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise RequestError(
            field=f"column {column!r}",
            rule=f"has type {kind}, which is no number",
            mend=f'cast it first, e.g. columns: {{{column}_number: "CAST({column} AS DOUBLE)"}}',
        )
