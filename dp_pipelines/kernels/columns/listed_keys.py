"""A public list of keys: a column of Arrow for each part of the key, held once in each process.

In: keys as they were declared, or columns of them. Out: the list as a sequence of tuples; its columns; places of keys in it.
Holds: a list has the same values in every process; it travels as compressed Arrow, or as the name of a file where workers see a
folder of the driver's, and a process that has it already reads neither. Not covered: which keys may be listed
(`query.PublicPartitions`).
"""

import contextlib
import datetime
import functools
import hashlib
import pathlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.column_types import arrow_values, column_of_kind, public_column
from dp_pipelines.kernels.columns.key_places import KeyPlaces
from dp_pipelines.kernels.columns.long_text import LONGEST_KEY, Texts, is_text

AT_ONCE = 2**14
"""Keys of a list that are Python values at the same time."""

SMALL = 2**16
"""Bytes of a list that travels with the steps, even where workers see a folder of the driver's."""

SHOWN = 100
"""Keys of a list that is written out whole."""

FILE = ".keys"
"""The end of the name of a list's file."""

_FAITHFUL = {int, str, bool, bytes, datetime.date}
"""Declared values that Arrow gives back as they were, where all of a column are of one of these types or None."""

_FOLDERS: dict[str, list[pathlib.Path]] = {}
"""Through which folders a list travels, by its digest: threads of Beam's write steps too, so no context of the caller says it."""

_LOCK = threading.RLock()


class ListedKeys(Sequence[tuple[Any, ...]]):
    """A list of keys that behaves as a tuple of tuples of plain values does.

    Args:
        columns: for each part of the key its values: those that were declared, or an array.
        declared: whether the values of arrays count as declared too, and take the type of the data's column if they are of its
            kind. Else they were released before, with the type that the data had.

    >>> listed = ListedKeys([("north", "south"), (1, None)])
    >>> listed, listed[1], len(listed), listed == (("north", 1), ("south", None))
    ((('north', 1), ('south', None)), ('south', None), 2, True)
    """

    def __init__(self, columns: Sequence[Sequence[object] | pa.Array], *, declared: bool = False) -> None:
        self._columns = tuple(_as_declared(c) if declared else _as_arrow(c) for c in columns)
        self._declared = tuple(declared or not isinstance(column, pa.Array) for column in columns)
        self._places: dict[tuple[pa.DataType, ...], KeyPlaces] = {}

    @classmethod
    def of_tuples(cls, listed: tuple[tuple[Any, ...], ...]) -> "Sequence[tuple[Any, ...]]":
        """Return declared keys as columns, if Arrow returns the same values of the same types; otherwise as they are."""
        width = len(listed[0]) if listed else 0
        if not width or any(len(key) != width for key in listed):
            return listed
        columns = list(zip(*listed, strict=True))
        types = [set(map(type, column)) - {type(None)} for column in columns]
        if any(len(of_column) > 1 or not of_column <= _FAITHFUL for of_column in types):
            return listed
        result = cls(columns)
        return result if all(isinstance(column, pa.Array) for column in result._columns) else listed

    @classmethod
    def of_arrays(cls, columns: Sequence[pa.Array]) -> "Sequence[tuple[Any, ...]]":
        """Return the keys in plain columns, as if their values had been declared.

        They are tuples if Arrow would not return the same values.

        Raises:
            ValueError, OverflowError: a value is none of Python's.
        """
        if not all(_is_faithful(column.type) for column in columns):
            return tuple(zip(*(column.to_pylist() for column in columns), strict=True))
        for column in columns:
            if pa.types.is_temporal(column.type):
                pc.min_max(column).as_py()
        return cls(columns, declared=True)

    def __len__(self) -> int:
        return len(self._columns[0]) if self._columns else 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            parts = (_values(column[index]) for column in self._columns)
            return tuple(zip(*parts, strict=True))
        place = range(len(self))[index]
        return tuple(_values(column[place : place + 1])[0] for column in self._columns)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for begin in range(0, len(self), AT_ONCE):
            yield from zip(*(_values(column[begin : begin + AT_ONCE]) for column in self._columns), strict=True)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListedKeys):
            return self._columns == other._columns and self._declared == other._declared
        if isinstance(other, tuple):
            return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(len(self))

    def __repr__(self) -> str:
        return repr(tuple(self)) if len(self) <= SHOWN else f"<{len(self):,} listed keys>"

    @property
    def declared_arrays(self) -> tuple[pa.Array, ...]:
        """Return the columns, whose Python values are those of the keys.

        Raises:
            ValueError: a column holds values of different kinds.
        """
        if not all(isinstance(column, pa.Array) for column in self._columns):
            raise ValueError("values of different kinds are in no array")
        return self._columns

    def part(self, places: Sequence[int], rows: NDArray[np.int64]) -> "ListedKeys":
        """Return some of its columns at some places, as if these had been listed. Its columns are arrays.

        Args:
            places: of the columns.
            rows: of the keys.
        """
        projected = ListedKeys(
            [gather.take(column, rows) for column in (self.declared_arrays[place] for place in places)]
        )
        projected._declared = tuple(self._declared[place] for place in places)
        return projected

    @property
    def with_other(self) -> "ListedKeys":
        """Return the same keys, each followed by False, and last a key of nulls followed by True, for all other keys.

        >>> ListedKeys([("north", None)]).with_other
        (('north', False), (None, False), (None, True))
        """
        columns = [
            pa.concat_arrays([column, pa.nulls(1, column.type)]) if isinstance(column, pa.Array) else (*column, None)
            for column in self._columns
        ]
        extended = ListedKeys([*columns, pa.array(np.arange(len(self) + 1) == len(self))])
        extended._declared = (*self._declared, True)
        return extended

    @functools.cached_property
    def in_order(self) -> "ListedKeys":
        """Return the same keys in an order that depends on the keys alone, and not on the order in which they were listed."""
        columns = [column for column in self._columns if isinstance(column, pa.Array)]
        if len(columns) == len(self._columns) and not any(pa.types.is_dictionary(column.type) for column in columns):
            names = [f"p{index}" for index in range(len(columns))]
            by = [(name, "ascending") for name in names]
            places = pc.sort_indices(pa.table(columns, names=names), sort_keys=by).to_numpy() if columns else []
            if bool(np.all(np.equal(places, np.arange(len(self))))):
                return self
            return self.part(range(self.width), np.asarray(places, np.int64))
        listed = tuple(self)
        ordered = tuple(sorted(listed, key=described))
        return self if ordered == listed else ListedKeys(tuple(zip(*ordered, strict=True)))

    @property
    def width(self) -> int:
        """Return the number of values of a key."""
        return len(self._columns)

    def typed(self, names: Sequence[str], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Return its columns as plain arrays of the types that the data have.

        Args:
            names: of the partition columns, for errors.
            kinds: their types.

        Raises:
            RequestError: a listed value is not of the type of its column.
        """
        return [
            column_of_kind(name, kind, column, declared=declared)
            if isinstance(column, pa.Array)
            else public_column(name, kind, column)
            for name, kind, column, declared in zip(names, kinds, self._columns, self._declared, strict=True)
        ]

    def arrays(self, names: Sequence[str]) -> list[pa.Array]:
        """Return its columns as plain arrays of the types that the listed values have.

        Args:
            names: of the partition columns, for errors.

        Raises:
            RequestError: the values of a column are of different kinds, or no row can have one.
        """
        return [self._array(name, index) for index, name in enumerate(names)]

    def _array(self, name: str, index: int) -> pa.Array:
        column = self._columns[index]
        if not isinstance(column, pa.Array):
            raise RequestError(
                field=f"public, column {name!r}",
                message="lists values of different kinds",
                hint="use one kind of value",
            )
        plain = self._plain_columns[index]
        if is_text(plain.type) and (pc.max(pc.binary_length(plain)).as_py() or 0) > LONGEST_KEY:
            raise RequestError(
                field=f"public, column {name!r}",
                message=f"lists a key of more than {LONGEST_KEY:,} bytes",
                hint="leave it out: such a key counts as null in rows",
            )
        return plain

    def doubled(self, names: Sequence[str], kinds: Sequence[pa.DataType]) -> tuple[Any, ...] | None:
        """Return a key that is listed twice, if there is one.

        Args:
            names, kinds: as for `places`.
        """
        columns = [keys.comparable(column) for column in self.typed(names, kinds)]
        codes = keys.dense(columns).codes
        again = np.flatnonzero(np.bincount(codes)[codes] > 1)
        return self[int(again[0])] if len(again) else None

    @functools.cached_property
    def _plain_columns(self) -> tuple[pa.Array, ...]:
        return tuple(keys.plain(column) if isinstance(column, pa.Array) else pa.nulls(0) for column in self._columns)

    def texts(self, names: Sequence[str]) -> Texts:
        """Return the texts of long listed keys, by the digests that replace them in rows."""
        texts: Texts = {}
        for column in self.arrays(names):
            if is_text(column.type):
                keys.encoded(column, texts)
        return texts

    def places(self, names: Sequence[str], kinds: Sequence[pa.DataType]) -> KeyPlaces:
        """Return the places of keys of some types in the list. It is sorted once in each process.

        Args:
            names, kinds: as for `typed`; a column without a type, which is all null, counts as one of the type that is listed.

        Raises:
            RequestError: as of `typed` and `arrays`.
        """
        listed = self.arrays(names)
        known = tuple(
            keys.plain_type(column.type if pa.types.is_null(kind) else kind)
            for column, kind in zip(listed, kinds, strict=True)
        )
        with _LOCK:
            if known not in self._places:
                # The rows carry digests of long keys: so must the list, to be compared with them.
                self._places[known] = KeyPlaces.of([keys.comparable(column) for column in self.typed(names, known)])
            return self._places[known]

    @functools.cached_property
    def digest(self) -> str:
        """Return the name of the list in the cache of a process."""
        return hashlib.blake2b(self._encoded(None), digest_size=32).hexdigest()

    def _encoded(self, compression: str | None) -> bytes:
        names = [f"{index}{'d' * declared}" for index, declared in enumerate(self._declared)]
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        table = pa.table(list(self._columns), names=names)
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        encoded: bytes = sink.getvalue().to_pybytes()
        return encoded

    def __reduce__(self) -> tuple[Callable[..., "ListedKeys"], tuple[Any, ...]]:
        if not self._columns or not all(isinstance(column, pa.Array) for column in self._columns):
            return ListedKeys, (self._columns,)
        with _LOCK:
            _HELD.setdefault(self.digest, self)
            folders = _FOLDERS.get(self.digest, [])
            # Where two runs in one process have the same list, neither depends on the folder of the other.
            if len(folders) != 1 or self.nbytes <= SMALL:
                return _of_bytes, (self.digest, self._encoded("zstd"))
            path = folders[0] / f"{self.digest}{FILE}"
            if not path.exists():
                path.write_bytes(self._encoded("zstd"))
            return _of_file, (self.digest, str(path))

    @property
    def nbytes(self) -> int:
        """Return its bytes in memory, without the index for looking keys up."""
        return sum(column.nbytes for column in self._columns if isinstance(column, pa.Array))


def described(key: Sequence[Any]) -> list[str]:
    """Return the values of a key with their types, so that 1 and "1" differ.

    >>> described(("north", 1))
    ["str:'north'", 'int:1']
    """
    return [f"{type(value).__name__}:{value!r}" for value in key]


_HELD: weakref.WeakValueDictionary[str, ListedKeys] = weakref.WeakValueDictionary()
"""The lists that this process holds, by digest."""


@contextlib.contextmanager
def travelling_through(folder: pathlib.Path, lists: Iterable[ListedKeys | None]) -> Iterator[None]:
    """Make large lists travel as files, while steps are sent to workers that see a folder.

    Args:
        folder: a private one. The files are gone at the end.
        lists: which; None counts for nothing.
    """
    digests = {listed.digest for listed in lists if listed is not None and listed.nbytes > SMALL}
    with _LOCK:
        for digest in digests:
            _FOLDERS.setdefault(digest, []).append(folder)
    try:
        yield
    finally:
        with _LOCK:
            for digest in digests:
                _FOLDERS[digest].remove(folder)
        for path in folder.glob(f"*{FILE}"):
            path.unlink(missing_ok=True)


def _of_bytes(digest: str, encoded: bytes) -> ListedKeys:
    return _held(digest, lambda: encoded)


def _of_file(digest: str, path: str) -> ListedKeys:
    return _held(digest, pathlib.Path(path).read_bytes)


def _held(digest: str, read: Callable[[], bytes]) -> ListedKeys:
    """Return the list with this digest, if the process has it; otherwise read it."""
    with _LOCK:
        cached = _HELD.get(digest)
        if cached is None:
            table = pa.ipc.open_stream(read()).read_all()
            cached = ListedKeys([keys.one_array(column) for column in table.columns])
            cached._declared = tuple(name.endswith("d") for name in table.column_names)
            cached.__dict__["digest"] = digest
            _HELD[digest] = cached
        return cached


def _as_arrow(column: Sequence[object] | pa.Array) -> Sequence[object] | pa.Array:
    """Convert declared values to an array; values of different kinds stay as they are."""
    try:
        return arrow_values(column)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return tuple(column)


def _is_faithful(kind: pa.DataType) -> bool:
    """Return True if the array type of declared values follows from their type alone; numbers are an exception."""
    if pa.types.is_timestamp(kind):
        return bool(kind.tz is None and kind.unit != "ns")
    texts = (pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.null())
    return kind in texts or bool(pa.types.is_integer(kind))


def _as_declared(column: pa.Array) -> pa.Array:
    """Convert an array of a faithful type to the type that its values would have had if they had been declared."""
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us"))
    if not pa.types.is_integer(column.type):
        return column
    beyond = column.type == pa.uint64() and pc.max(column).as_py() >= 2**63
    return column.cast(pa.uint64() if beyond else pa.int64())


def _values(column: Sequence[object] | pa.Array) -> list[Any]:
    return column.to_pylist() if isinstance(column, pa.Array) else list(column)
