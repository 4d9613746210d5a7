"""The rows of one snapshot of a table: Parquet files, less the rows that the snapshot has deleted.

In: for each file how its columns stand for those of the table, and which rows it has lost. Out: Arrow tables; of each file the
first has no rows. Holds: every file of the snapshot is read, none is skipped by statistics; deleted rows are left out; lists of
them travel with the rows that they concern. Not covered: finding the files (`delta_table`, `iceberg_table`).
"""

import base64
import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from dp_pipelines import interrupts
from dp_pipelines.errors import DamagedInputError
from dp_pipelines.extensions.lake import equal_rows
from dp_pipelines.jobs.sources.readers import DAMAGED_DELETES, TableReader
from dp_pipelines.jobs.stores import remote_files
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import column_casts, csv_cells, gather
from dp_pipelines.steps.flow import Flow, Opener
from dp_pipelines.steps.read_files import (
    FEW_BYTES,
    NO_ROWS,
    TOGETHER_BYTES,
    UNKNOWN,
    ReadRowGroups,
    RowGroups,
    Shuffled,
    open_local,
    whole_table,
)

Deleted = npt.NDArray[np.int64]
NO_FILE = ("", "")
"""Stands for the files of a snapshot that has none."""

SomeRows = tuple[tuple[str, int], tuple[int, str, bytes]]
"""File and first row; the row after the last, how the file is read, and the places of deleted rows among these."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EqualityDeletes:
    """Rows of which a file lists the values: all that are equal to one of them are deleted.

    Args:
        path: of the Parquet file that lists them.
        ids: of the fields that are compared.
        columns: the names of these in that file, each with its name in the data file; None: the data file lacks it.
        constants: of those that the data file lacks and that have one value in it, by their names in that file, as text.
        types: under which they are compared, those that the table has them with: a schema of Arrow in base64.
    """

    path: str
    ids: Sequence[int] = ()
    columns: Sequence[tuple[str, str | None]] = ()
    constants: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    types: str = ""

    def with_types(self, kinds: Sequence[pa.DataType]) -> "EqualityDeletes":
        """Return the same with a type for each of `columns`."""
        schema = pa.schema([(name, kind) for (name, _), kind in zip(self.columns, kinds, strict=True)])
        return dataclasses.replace(self, types=base64.b64encode(schema.serialize()).decode())

    @property
    def schema(self) -> pa.Schema:
        """The columns of the list, with the types under which they are compared."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.types)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFile:
    """How a file of a snapshot is read.

    Args:
        names: for columns of the table, what they are called in the file.
        constants: columns that have one value in the whole file, as text; None: null. Those that stand in neither are null.
        deletes: what says which of its rows are deleted, as the table's `Deletes` knows it.
        equality: what deletes rows by their values.
    """

    names: Mapping[str, str]
    constants: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    deletes: Sequence[str] = ()
    equality: Sequence[EqualityDeletes] = ()

    def to_text(self) -> str:
        """As it travels beside the file's path."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "DataFile":
        """The same again.

        >>> DataFile.from_text(DataFile(names={"who": "col-1"}).to_text())
        DataFile(names={'who': 'col-1'}, constants={}, deletes=[], equality=[])
        """
        said = json.loads(text)
        return cls(**{**said, "equality": [EqualityDeletes(**one) for one in said["equality"]]})


class Deletes(Protocol):
    """Which rows of the files of a snapshot are deleted. It travels to workers."""

    def places(self, path: str, deletes: Sequence[str]) -> Deleted:
        """The places of deleted rows in a file, in rising order.

        Args:
            path: of the file.
            deletes: what the file's `DataFile` names.
        """


@dataclasses.dataclass(frozen=True)
class SnapshotReader(TableReader):
    """Reads the files of one snapshot.

    Args:
        parts: how each file is read, by path.
        deletes: which rows are deleted; None: the table cannot have deleted any.
    """

    parts: Mapping[str, DataFile]
    deletes: Deletes | None = None

    def tables(
        self, start: Flow, files: Sequence[str], types: Mapping[str, pa.DataType], shuffled: Shuffled = UNKNOWN
    ) -> Flow:
        """See `TableReader`."""
        # Without any file there is still a table, of no rows: types are known even then.
        elements = [(path, self.parts[path].to_text()) for path in sorted(set(files))] or [NO_FILE]
        found = start.known("Files", elements, tuple[str, str])
        together = FEW_BYTES if found.own_threads else TOGETHER_BYTES
        groups = SnapshotRowGroups(self.deletes, together, found.opener, shuffled)
        read = ReadSnapshotRows(types, not found.own_threads, found.opener, shuffled)
        return found.each("RowGroups", groups).each("Read", read)


class SnapshotRowGroups(RowGroups):
    """Which rows of a file are read together, and which of them are deleted.

    Args:
        deletes: which rows are deleted; None: none.
        together, opener, shuffled: as for `RowGroups`.
    """

    gives = SomeRows

    def __init__(
        self,
        deletes: Deletes | None,
        together: int | None = None,
        opener: Opener = open_local,
        shuffled: Shuffled = UNKNOWN,
    ) -> None:
        super().__init__(together, opener, shuffled)
        self._deletes = deletes

    def process(self, element: Any) -> Iterator[Any]:
        """Parts of one file."""
        path, text = element
        if element == NO_FILE:
            yield (path, NO_ROWS), (NO_ROWS, text, b"")
            return
        deleted = self._of(path, DataFile.from_text(text))
        for (_, begin), end in super().process(path):
            first = max(begin, 0)
            low, high = np.searchsorted(deleted, [first, end])
            yield (path, begin), (end, text, (deleted[low:high] - first).tobytes())

    def _of(self, path: str, part: DataFile) -> Deleted:
        if self._deletes is None:
            return np.empty(0, np.int64)
        try:
            return self._deletes.places(path, part.deletes)
        except BaseException:  # of the libraries; what it says may quote rows
            interrupts.end_if_asked()
            raise DamagedInputError(f"file {path!r}: {DAMAGED_DELETES}") from None


class ReadSnapshotRows(ReadRowGroups):
    """The rows that are read together and are still there, with the table's names and types.

    Args:
        types: of the columns that are read.
        use_threads, opener, shuffled: as for `ReadRowGroups`.
    """

    def __init__(
        self,
        types: Mapping[str, pa.DataType],
        use_threads: bool = True,
        opener: Opener = open_local,
        shuffled: Shuffled = UNKNOWN,
    ) -> None:
        super().__init__(None, use_threads, opener, shuffled)
        self._types = dict(types)

    def process(self, element: Any) -> Iterator[pa.Table]:
        """Tables, the first one without rows if the file begins here."""
        (path, begin), (end, text, places) = element
        if begin == NO_ROWS:
            yield pa.schema(self._types.items()).empty_table()
        if end == NO_ROWS:
            return
        part, deleted = DataFile.from_text(text), np.frombuffer(places, np.int64)
        # A file all of whose columns are constants still has rows: any of its columns tells how many.
        wanted = list(dict.fromkeys(part.names[name] for name in self._types if name in part.names))
        compared = [of_file for one in part.equality for _, of_file in one.columns if of_file is not None]
        wanted = list(dict.fromkeys([*wanted, *compared]))
        first = 0
        for table in self.rows(path, max(begin, 0), end, wanted or list(part.names.values())[:1] or None):
            kept = _without(table, deleted, first)
            for one in part.equality:
                kept = _without_equal(kept, one, path)
            if kept.num_rows:  # a table without rows stands for a file, in progress too
                yield self._shaped(kept, part)
            first += table.num_rows

    def _shaped(self, table: pa.Table, part: DataFile) -> pa.Table:
        columns = {}
        for name, kind in self._types.items():
            if name in part.names:
                columns[name] = _as(table.column(part.names[name]), kind)
            else:
                columns[name] = _constant(part.constants.get(name), kind, table.num_rows)
        return pa.table(columns)


def readable_as(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the values of a file's column are all values of the table's: the same type, or one that was widened since.

    >>> readable_as(pa.int32(), pa.int64()), readable_as(pa.int64(), pa.int32()), readable_as(pa.int64(), pa.string())
    (True, False, False)
    """
    kind, wanted = keys.plain_type(kind), keys.plain_type(wanted)
    if kind == wanted:
        return True
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted):
        return True  # Spark writes nanoseconds without a zone where the table has microseconds of UTC
    if pa.types.is_integer(kind) and pa.types.is_integer(wanted):
        return bool(kind.bit_width < wanted.bit_width and pa.types.is_signed_integer(kind))
    if pa.types.is_floating(kind) and pa.types.is_floating(wanted):
        return bool(kind.bit_width < wanted.bit_width)
    if pa.types.is_integer(kind) and pa.types.is_float64(wanted):
        return bool(kind.bit_width <= 32)
    if pa.types.is_decimal(kind) and pa.types.is_decimal(wanted):
        return bool(kind.scale <= wanted.scale and kind.precision - kind.scale <= wanted.precision - wanted.scale)
    return False


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of a file as the table has it. Text may stay as codes, and finer times lose digits.

    A value that the table's type does not have, as times in seconds and damaged decimals may be, is null.
    """
    if keys.plain_type(column.type) == kind:
        return column
    convert = column_casts.rounded_down if pa.types.is_timestamp(kind) else column_casts.fitting
    return pa.chunked_array([convert(gather.plain(chunk), kind) for chunk in column.chunks], kind)


def _constant(text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """One value in all rows."""
    if text is None:
        return pa.nulls(rows, kind)
    return pa.repeat(csv_cells.text_as(pa.array([text], pa.string()), kind)[0], rows)


def _without_equal(table: pa.Table, deleted: EqualityDeletes, path: str) -> pa.Table:
    """Return the rows that are equal to no listed one, as values of the table's types.

    Those types are settled before any row is read (`snapshot_source`), so no row decides how another is compared.
    """
    schema = deleted.schema
    try:
        listed = _listed(deleted.path, deleted.types)
    except BaseException:  # of the library; what it says may quote rows
        interrupts.end_if_asked()
        raise DamagedInputError(f"file {path!r}: {DAMAGED_DELETES}") from None
    columns = [
        pa.chunked_array([_constant(deleted.constants.get(name), kind, len(table))])
        if of_file is None
        else _as(table.column(of_file), kind)
        for (name, of_file), kind in zip(deleted.columns, schema.types, strict=True)
    ]
    flags = equal_rows.among(pa.table(columns, names=schema.names), listed)
    return table.filter(pa.array(~flags)) if flags.any() else table


@functools.lru_cache(maxsize=16)
def _listed(path: str, types: str) -> pa.Table:
    """Return the rows that a file lists, as far as values of these types can be equal to them; read once in a process.

    Finer times lose digits as those of rows do (`_as`): else a table that has coarser ones would keep a row that is listed.
    """
    schema = EqualityDeletes(path=path, types=types).schema
    with remote_files.opened(path) if remote_files.is_url(path) else open_local(path) as stream:
        listed = whole_table(stream, schema.names).select(schema.names)
    for place, (name, kind) in enumerate(zip(schema.names, schema.types, strict=True)):
        if column_casts.loses_digits(listed.column(place).type, kind):
            listed = listed.set_column(place, name, _as(listed.column(place), kind))
    return equal_rows.of_types(listed, schema.types)


def _without(table: pa.Table, deleted: Deleted, first: int) -> pa.Table:
    """The rows that are not deleted, of a table that begins at a place."""
    low, high = np.searchsorted(deleted, [first, first + table.num_rows])
    if low == high:
        return table
    kept = np.ones(table.num_rows, np.bool_)
    kept[deleted[low:high] - first] = False
    return table.filter(pa.array(kept))
