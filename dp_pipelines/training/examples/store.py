"""The private store of encoded examples: one flat file of float32 rows, their labels, and where each unit's rows begin.

In: tables with whole units, an encoder. Out: `Chunk`s of whole units, by fixed positions or as a sorted selection; the
same rows times a matrix, as another store. Holds: files are private (0600) and written completely or not at all;
however many rows there are, about `RESIDENT` bytes are in memory at a time; the encoding of a unit's rows depends only
on these rows, bit for bit, wherever they are. Not covered: who may read the folder, and its removal, which is up to its
creator; a unit in two tables becomes two units.
"""

import dataclasses
import math
import mmap
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.release.staging import UNFINISHED, attempt_name

Features = NDArray[np.float32]
Labels = NDArray[np.float64]
Places = NDArray[np.int64]

RESIDENT = 2**28
"""Bytes of mapped files that are touched before they are released; selections from larger files are read. It changes no
result."""

PORTION = 2**20
"""How many numbers are encoded or multiplied at a time."""

FEATURE_BITS = 16
"""Features are multiples of 2**-16 from -1 to 1: the encoder ensures that, and `Examples.times` needs it."""


class Encodes(Protocol):
    """Turns rows into numbers; see `encoder.Encoder`."""

    @property
    def width(self) -> int:
        """The number of columns."""
        ...

    def encode(self, table: pa.Table) -> Features:
        """A row of numbers for each row, which depends only on that row."""
        ...

    def labels(self, table: pa.Table) -> Labels:
        """A label for each row; NaN for none."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """Some whole units. The arrays may be views of files, so never write to them.

    Args:
        features: (rows, width).
        labels: (rows,).
        starts: (units + 1,): the rows of unit i are `starts[i]:starts[i + 1]`; each unit has at least one.
    """

    features: Features
    labels: Labels
    starts: Places

    @property
    def units(self) -> int:
        """How many units."""
        return len(self.starts) - 1


class Mapped:
    """A file of numbers as an array, read from disk on access."""

    def __init__(self, path: pathlib.Path, kind: type, shape: tuple[int, ...]) -> None:
        self.array: NDArray[Any] = np.empty(shape, kind)
        self.array.flags.writeable = False  # as those of files: loops are compiled for one kind
        self._path = path
        self._map: mmap.mmap | None = None
        if math.prod(shape):
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.array = np.frombuffer(self._map, kind).reshape(shape)

    def take(self, begins: Places, starts: Places) -> NDArray[Any]:
        """A copy of some ranges of rows, concatenated.

        Args:
            begins: where each range begins in the file.
            starts: where each range begins in the result, followed by its end.
        """
        if self.array.nbytes <= RESIDENT:
            rows = np.arange(starts[-1]) + np.repeat(begins - starts[:-1], np.diff(starts))
            return self.array.take(rows, axis=0)
        # With a mapped file, each jump would load everything the system keeps around it, up to megabytes.
        taken = np.empty((int(starts[-1]), *self.array.shape[1:]), self.array.dtype)
        size, data = self.array.nbytes // len(self.array), taken.reshape(-1).view(np.uint8).data
        with self._path.open("rb", buffering=0) as file:
            places = zip(
                (begins * size).tolist(), (starts[:-1] * size).tolist(), (starts[1:] * size).tolist(), strict=True
            )
            for place, begin, end in places:
                while begin < end:
                    found = os.preadv(file.fileno(), [data[begin:end]], place)
                    if not found:
                        raise OSError("a file of examples is shorter than it was")
                    begin, place = begin + found, place + found
        return taken

    def let_go(self) -> None:
        """Release the file's pages from this process; arrays stay valid, and reading them loads the pages again."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class Examples:
    """Encoded examples of many units on disk.

    Made by `write` and `times`.

    >>> import tempfile
    >>> class Encoder:
    ...     width = 2
    ...     def encode(self, table):
    ...         return np.stack([np.ones(len(table)), table["a"].to_numpy()], axis=1).astype(np.float32)
    ...     def labels(self, table):
    ...         return table["b"].to_numpy()
    >>> tables = [pa.table({"who": [7, 7, 8], "a": [0, 1, 1], "b": [1.0, 0.0, float("nan")]})]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     examples = Examples.write(folder, "training", tables, Encoder(), ["who"])
    ...     examples.units, examples.rows, examples.take(np.array([0])).features.tolist()
    (1, 2, [[1.0, 0.0], [1.0, 1.0]])
    """

    def __init__(
        self,
        features: pathlib.Path,
        labels: pathlib.Path,
        starts: Places,
        width: int,
        groups: Places | None = None,
    ) -> None:
        rows = int(starts[-1])
        self._starts, self._labels_path, self._groups = starts, labels, groups
        self._features = Mapped(features, np.float32, (rows, width))
        self._labels = Mapped(labels, np.float64, (rows,))
        self._touched = 0

    @property
    def units(self) -> int:
        """The number of units with an example."""
        return len(self._starts) - 1

    @property
    def rows(self) -> int:
        """The number of examples."""
        return int(self._starts[-1])

    @property
    def width(self) -> int:
        """The number of features of an example."""
        return int(self._features.array.shape[1])

    @classmethod
    def write(
        cls,
        folder: str | os.PathLike[str],
        name: str,
        tables: Iterable[pa.Table],
        encoder: Encodes,
        unit: Sequence[str],
        group_of: Callable[[pa.Table], Places] | None = None,
    ) -> "Examples":
        """Encode tables into new files of a private folder.

        Args:
            folder: an existing, private folder.
            name: the beginning of the files' names; files of that name are replaced.
            tables: each holds all rows of its units. Rows without a label or without a unit are left out.
            encoder: rows to numbers, row by row.
            unit: the columns of the privacy unit.
            group_of: the group of each row's unit; None: units are in no groups.
        """
        groups: list[Places] = [np.zeros(0, np.int64)]
        rows_path, labels_path = (pathlib.Path(folder) / f"{name}.{kind}" for kind in ("rows", "labels"))
        sizes: list[Places] = [np.zeros(1, np.int64)]
        with Writing(rows_path) as rows, Writing(labels_path) as labels:
            for table in tables:
                found = encoder.labels(table)
                kept, counts = by_unit(table, unit, ~np.isnan(found))
                portion = max(1, PORTION // encoder.width)
                for begin in range(0, len(kept), portion):
                    rows.write(encoder.encode(gather.take_rows(table, kept[begin : begin + portion])), encoder.width)
                labels.write(found[kept].astype(np.float64))
                sizes.append(counts)
                if group_of is not None:
                    groups.append(group_of(table)[kept[np.cumsum(counts) - counts]])
        found_groups = None if group_of is None else np.concatenate(groups)
        return cls(rows_path, labels_path, np.cumsum(np.concatenate(sizes)), encoder.width, found_groups)

    def times(self, folder: str | os.PathLike[str], name: str, matrix: NDArray[np.float64]) -> "Examples":
        """The same examples with each row of features multiplied by a matrix, as new files.

        The matrix is rounded to 2**-26 of its largest entry or finer (see `whole_numbers`). Then every product and
        every sum of products is a whole number below 2**53, which float64 holds exactly. So a row of the result depends
        only on the
        row and the matrix: no block, thread, order of summation or BLAS can change a bit of it.

        Args:
            folder, name: as for `write`.
            matrix: (width, new width), finite. Public, or released privately.
        """
        rows_path, portion = pathlib.Path(folder) / f"{name}.rows", max(1, PORTION // max(matrix.shape))
        whole = whole_numbers(matrix)
        with Writing(rows_path) as rows:
            for begin in range(0, self.rows, portion):
                features = self._features.array[begin : begin + portion]
                rows.write(multiplied(features, whole), matrix.shape[1])
                self._touch(features.nbytes)
        return type(self)(rows_path, self._labels_path, self._starts, matrix.shape[1], self._groups)

    def chunks(self, units_per_chunk: int) -> Iterator[Chunk]:
        """All units, this many at a time; the last chunk has the rest. Unit i is always at the same chunk and place."""
        for first in range(0, self.units, units_per_chunk):
            starts = self._starts[first : first + units_per_chunk + 1]
            begin, end = int(starts[0]), int(starts[-1])
            self._touch((end - begin) * (self.width * 4 + 8))
            yield Chunk(self._features.array[begin:end], self._labels.array[begin:end], starts - begin)

    @property
    def groups(self) -> Places:
        """The group of each unit."""
        assert self._groups is not None, "units were not divided into groups"
        return self._groups

    def in_group(self, group: int) -> Places:
        """The units of a group, ascending."""
        return np.flatnonzero(self.groups == group)

    def take(self, units: Places) -> Chunk:
        """Some units.

        Args:
            units: different numbers from 0 to `units` - 1, ascending.
        """
        begins = self._starts[units]
        sizes = self._starts[units + 1] - begins
        starts = np.zeros(len(units) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        return Chunk(self._features.take(begins, starts), self._labels.take(begins, starts), starts)

    def _touch(self, size: int) -> None:
        """Note that this many bytes of the files are in memory, and release them if they are too many."""
        self._touched += size
        if self._touched > RESIDENT:
            self._features.let_go()
            self._labels.let_go()
            self._touched = 0


def whole_numbers(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """A matrix as whole numbers w and an exponent e: entries are about w * 2**-e.

    The entries of a column are small enough for |sum of x w| < 2**53 for all whole x up to 2**16.

    >>> whole, exponent = whole_numbers(np.array([[0.5, 0.0], [-0.25, 1.0]]))
    >>> np.ldexp(whole, -exponent).tolist()
    [[0.5, 0.0], [-0.25, 1.0]]
    """
    largest = float(np.abs(matrix).max(initial=0.0))
    if not math.isfinite(largest):
        raise ValueError("the matrix must be finite")
    bits = 53 - 1 - FEATURE_BITS - max(1, matrix.shape[0] - 1).bit_length()
    exponent = bits - math.frexp(largest)[1] if largest > 0 else 0
    return np.rint(np.ldexp(matrix, exponent)), exponent


def multiplied(features: Features, matrix: tuple[NDArray[np.float64], int]) -> Features:
    """Rows of features times a matrix, each the same bits whatever other rows are there.

    Args:
        features: multiples of 2**-16 from -1 to 1.
        matrix: as `whole_numbers` gives it.

    >>> multiplied(np.array([[1, 0.5]], np.float32), whole_numbers(np.array([[2.0], [4.0]]))).tolist()
    [[4.0]]
    """
    (whole, exponent), largest = matrix, 2.0**FEATURE_BITS
    numbers = np.rint(features.astype(np.float64) * largest)
    product = np.clip(numbers, -largest, largest, out=numbers) @ whole
    result: Features = np.ldexp(product, -exponent - FEATURE_BITS, out=product).astype(np.float32)
    return result


def by_unit(table: pa.Table, unit: Sequence[str], kept: NDArray[np.bool_]) -> tuple[Places, Places]:
    """The positions of kept rows, grouped by unit, and the number of rows of each unit."""
    columns = [keys.plain_unit(table.column(name)) for name in unit]
    for column in columns:
        kept = kept & column.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(kept)
    if not len(places):
        return places, np.zeros(0, np.int64)
    codes = keys.dense([gather.take(column, places) for column in columns]).codes
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    return places[order], counts[counts > 0].astype(np.int64)


class Writing:
    """A private file that is written completely or not at all."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{attempt_name()}{UNFINISHED}")

    def __enter__(self) -> "Writing":
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        return self

    def write(self, numbers: NDArray[Any], width: int | None = None) -> None:
        """Append numbers."""
        assert width is None or numbers.shape[1:] == (width,), "a row has another width than was said"
        data = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data
        while data:
            data = data[self._file.write(data) :]

    def __exit__(self, kind: Any, *_: object) -> None:
        self._file.close()
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)
