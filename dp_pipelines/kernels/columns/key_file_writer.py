"""Sorts a public list of keys by hash into the files of a `KeyFile`, in bounded memory.

In: the keys in rising order, table by table. Out: a folder. Holds: a key that is not above the one before it is an error that
says which row it is in, so that a list has no key twice; what is in memory at a time does not grow with the list, except for the
filter (three bytes a key), which is mapped. Not covered: where lists are kept, and when one is made (`jobs.sources.key_lists`).
"""

import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.key_file import FACTS, FILTER, FORMAT, KEYS, SALT, filter_masks, filter_places

BUCKET_KEYS = 2**18
"""Keys of a bucket, at most about: those that are in memory at a time when a release is drawn."""

PART_KEYS = 2**21
"""Keys of a part, at most about: those that are in memory at a time when a list is sorted."""

ZEROS = 2**20
"""Words of zeros that are in memory at a time."""

FILTER_BITS = 24
"""Bits of the filter for each key: of unlisted keys about one in a thousand passes."""


class WrongOrder(ValueError):
    """A key is not above the one before it.

    Args:
        row: its number, from 1.
        doubled: whether the two are equal.
    """

    def __init__(self, row: int, *, doubled: bool) -> None:
        super().__init__(row, doubled)
        self.row, self.doubled = row, doubled


class KeyFileWriter:
    """Takes the keys of a list.

    Args:
        folder: an empty one, which gets the files.
        names: of the key's columns.
        count: how many keys will come.
        bucket_keys, part_keys: see `BUCKET_KEYS` and `PART_KEYS`.
    """

    def __init__(
        self, folder: pathlib.Path, names: Sequence[str], count: int, *, bucket_keys: int = BUCKET_KEYS,
        part_keys: int = PART_KEYS,
    ) -> None:  # fmt: skip
        self._folder, self._names, self._count = folder, list(names), count
        self._bits = max(-(-count // bucket_keys) - 1, 0).bit_length()
        self._part_bits = min(max(-(-count // part_keys) - 1, 0).bit_length(), self._bits)
        self._parts: dict[int, pa.RecordBatchStreamWriter] = {}
        self._last: list[pa.Array] | None = None
        self._taken = 0
        self._schema: pa.Schema | None = None

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Take the next keys.

        Args:
            columns: canonical, of the same types each time.

        Raises:
            WrongOrder: they do not rise.
        """
        if not len(columns[0]):
            return
        before = self._last if self._last is not None else [column.slice(0, 0) for column in columns]
        self._check_order([gather.joined(list(pair)) for pair in zip(before, columns, strict=True)], len(before[0]))
        self._last = [column.slice(len(column) - 1) for column in columns]
        self._taken += len(columns[0])
        self._schema = pa.schema(list(zip(self._names, (column.type for column in columns), strict=True)))
        hashes = self._hashes(columns)
        numbers = (hashes >> np.uint64(1) >> np.uint64(63 - self._part_bits)).astype(np.uint16)
        if self._part_bits <= 8:
            numbers = numbers.astype(np.uint8)  # one pass of the radix sort instead of two
        order = np.argsort(numbers, kind="stable")
        batch = pa.record_batch([gather.take(column, order) for column in columns], schema=self._schema)
        ends = np.cumsum(np.bincount(numbers, minlength=1 << self._part_bits))
        begin = 0
        for part, end in enumerate(ends.tolist()):
            if end > begin:
                self._part(part).write_batch(batch.slice(begin, end - begin))
            begin = end

    def finish(self) -> None:
        """Write the files.

        Raises:
            ValueError: not as many keys have come as were said to.
        """
        if self._taken != self._count or self._schema is None:
            raise ValueError("the list has changed while it was read")
        for writer in self._parts.values():
            writer.close()
        words = _zeros(self._folder / FILTER, self._count * FILTER_BITS // 64 + 1)
        with pa.OSFile(str(self._folder / KEYS), "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
            for part in range(1 << self._part_bits):
                columns = self._read(part)
                hashes = self._hashes(columns)
                order = np.argsort(hashes)
                hashes = hashes[order]
                _set(words, hashes)
                for begin, end in self._buckets(part, hashes):
                    writer.write_batch(
                        pa.record_batch([gather.take(c, order[begin:end]) for c in columns], schema=self._schema)
                    )
        words.flush()
        sizes = {name: (self._folder / name).stat().st_size for name in (KEYS, FILTER)}
        facts = {"format": FORMAT, "bits": self._bits, "count": self._count, "bytes": sizes}
        (self._folder / FACTS).write_text(json.dumps(facts))

    def _buckets(self, part: int, hashes: hashing.Words) -> Iterator[tuple[int, int]]:
        """Yield the begin and end of each bucket of a part in its sorted hashes."""
        inner = self._bits - self._part_bits
        firsts = [((part << inner) + number) << (64 - self._bits) for number in range(1, 1 << inner)]
        ends = np.searchsorted(hashes, np.array(firsts, np.uint64), side="left").tolist()
        yield from zip([0, *ends], [*ends, len(hashes)], strict=True)

    def _part(self, number: int) -> pa.RecordBatchStreamWriter:
        if number not in self._parts:
            self._parts[number] = pa.ipc.new_stream(str(self._part_path(number)), self._schema)
        return self._parts[number]

    def _part_path(self, number: int) -> pathlib.Path:
        return self._folder / f"part-{number}.arrow"

    def _read(self, number: int) -> list[pa.Array]:
        assert self._schema is not None
        if number not in self._parts:
            return [pa.array([], kind) for kind in self._schema.types]
        with pa.OSFile(str(self._part_path(number)), "rb") as source:
            table = pa.ipc.open_stream(source).read_all()
        self._part_path(number).unlink()
        return [gather.one_array(column) for column in table.columns]

    def _hashes(self, columns: Sequence[pa.Array]) -> hashing.Words:
        return hashing.hash_columns([keys.comparable(column) for column in columns], SALT)

    def _check_order(self, columns: Sequence[pa.Array], carried: int) -> None:
        """Raise WrongOrder for the first key that is not above the one before it."""
        length = len(columns[0])
        rises, same = np.zeros(length - 1, np.bool_), np.ones(length - 1, np.bool_)
        for column in columns:
            below, equal = _compared(column)
            rises |= same & below
            same &= equal
        if not rises.all():
            at = int(np.argmin(rises))
            raise WrongOrder(self._taken - carried + at + 2, doubled=bool(same[at]))


def _compared(column: pa.Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each value True if it is below the next, and True if it equals it; nulls come last."""
    first, second = column.slice(0, len(column) - 1), column.slice(1)
    if pa.types.is_null(column.type):
        return np.zeros(len(first), np.bool_), np.ones(len(first), np.bool_)
    below, equal = (pc.fill_null(compare(first, second), False) for compare in (pc.less, pc.equal))
    if column.null_count:
        of_first, of_second = pc.is_null(first), pc.is_null(second)
        below = pc.or_(below, pc.and_(pc.invert(of_first), of_second))
        equal = pc.or_(equal, pc.and_(of_first, of_second))
    return below.to_numpy(zero_copy_only=False), equal.to_numpy(zero_copy_only=False)


def _zeros(path: pathlib.Path, words: int) -> np.memmap[Any, np.dtype[np.uint64]]:
    """Return a mapped file with its space reserved: a write into a hole of a full disk would kill the process silently."""
    with path.open("xb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, 8 * words)
        else:
            for begin in range(0, words, ZEROS):
                file.write(bytes(8 * min(ZEROS, words - begin)))
    return np.memmap(path, np.uint64, mode="r+")


def _set(words: hashing.Words, hashes: hashing.Words) -> None:
    """Set the bits of keys, in the order of their hashes, in a filter."""
    if not len(hashes):
        return
    places = filter_places(hashes, len(words))
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    words[places[starts]] |= np.bitwise_or.reduceat(filter_masks(hashes), starts)
