"""A public list of keys that need not fit into memory: sorted by hash in files, in buckets of about equal numbers.

In: a folder that `key_file_writer` has made. Out: which keys may be listed; the keys of a bucket, and their places in it.
Holds: the hash of a key has no salt, so that a list is sorted once for all runs; hashes say where to look, and never that two
keys are equal: a key that `may_hold` takes for a listed one by its hash alone is found in no bucket. Not covered: making it.
"""

import dataclasses
import functools
import json
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.key_places import equal_values

Places = NDArray[np.int64]

SALT = 0
"""The salt of the hashes: hashes of a list are the same in every run."""

KEYS, FILTER, FACTS = "keys.arrow", "filter.words", "facts.json"
"""The files of a list."""

FORMAT = 2
"""Raised when these files change."""

_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)

_BITS_OF_A_KEY = 5

_LOCK = threading.Lock()

_AT_ONCE = 2**16
"""Hashes whose words of the filter are looked up together: what is made of them stays in the cache."""


@dataclasses.dataclass(frozen=True)
class KeyFile:
    """A list of keys in the order of their hashes.

    Args:
        folder: of its files; workers see it under the same name.
        digest: names the list: of the file that it was made from, and of the columns and types.
        count: of its keys.
        width: how many values a key has.
    """

    folder: str = dataclasses.field(compare=False)
    digest: str
    count: int
    width: int

    def __len__(self) -> int:
        return self.count

    @property
    def bits(self) -> int:
        """Return the number of leading bits of a hash that name a bucket."""
        return int(self._facts["bits"])

    @property
    def types(self) -> list[pa.DataType]:
        """Return the types of the key's columns."""
        return list(self._reader.schema.types)

    def hashes(self, columns: Sequence[pa.Array]) -> hashing.Words:
        """Return the hashes by which keys are looked up.

        Args:
            columns: canonical and comparable (`keys.comparable`), or dictionaries of such values.
        """
        return hashing.hash_columns(columns, SALT)

    def may_hold(self, hashes: hashing.Words) -> NDArray[np.bool_]:
        """Return True for keys that may be listed, by their hashes: for all that are, and for about one in a thousand others.

        The answer for a key is a function of the list and of that key alone.
        """
        possible = np.empty(len(hashes), np.bool_)
        for begin in range(0, len(hashes), _AT_ONCE):
            some = hashes[begin : begin + _AT_ONCE]
            masks = filter_masks(some)
            np.equal(
                self._filter[filter_places(some, len(self._filter))] & masks,
                masks,
                out=possible[begin : begin + _AT_ONCE],
            )
        return possible

    def buckets_of(self, place: int, places: int) -> range:
        """Return the buckets that one of so many places has: each bucket has one place."""
        first, after = (-(-(p << self.bits) // places) for p in (place, place + 1))
        return range(first, after)

    def dealt(self, hashes: hashing.Words) -> hashing.Words:
        """Return the hashes reduced to the bits that name a bucket, so that `shard.slices` keeps buckets whole."""
        return hashes & self._leading

    def numbers(self, hashes: hashing.Words) -> Places:
        """Return the bucket of each hash."""
        if not self.bits:
            return np.zeros(len(hashes), np.int64)
        return (hashes >> np.uint64(64 - self.bits)).astype(np.int64)

    def groups(self, places: Sequence[int], most: int) -> tuple[pa.Array, ...] | None:
        """Return the different values of some columns of the keys, in the order of the list; None if too many.

        Args:
            places: of the columns.
            most: how many there may be.
        """
        columns: tuple[pa.Array, ...] = tuple(pa.array([], self.types[place]) for place in places)
        for number in range(1 << self.bits):
            more = [self.bucket(number).columns[place] for place in places]
            # Keys that were found come first, and keep their places.
            both = [gather.joined(list(pair)) for pair in zip(columns, more, strict=True)]
            codes = keys.dense([keys.comparable(column) for column in both]).codes
            _, first = np.unique(codes, return_index=True)
            if len(first) > most:
                return None
            if len(first) > len(columns[0]):
                columns = tuple(gather.take(column, np.sort(first)) for column in both)
        return columns

    def bucket(self, number: int) -> "Bucket":
        """Return the keys whose hashes begin with the bits of a number."""
        with _LOCK:  # one file, which threads of a process share
            return Bucket(columns=tuple(self._reader.get_batch(number).columns))

    @property
    def _leading(self) -> np.uint64:
        return np.uint64(2**64 - (1 << (64 - self.bits)))

    @functools.cached_property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((pathlib.Path(self.folder) / FACTS).read_text(encoding="utf-8"))
        return facts

    @functools.cached_property
    def _filter(self) -> hashing.Words:
        return np.memmap(pathlib.Path(self.folder) / FILTER, np.uint64, mode="r")

    @functools.cached_property
    def _reader(self) -> pa.RecordBatchFileReader:
        # Not mapped: each bucket is read once, and would stay in memory as long as there is room.
        return pa.ipc.open_file(pa.OSFile(str(pathlib.Path(self.folder) / KEYS), "rb"))

    def __reduce__(self) -> tuple[type["KeyFile"], tuple[str, str, int, int]]:
        return KeyFile, (self.folder, self.digest, self.count, self.width)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """Some keys of a list.

    Args:
        columns: the keys as they were listed.
    """

    columns: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    def find(self, columns: Sequence[pa.Array], hashes: hashing.Words) -> Places:
        """Return the place of each key in the bucket; its length where it is not there.

        Args:
            columns: canonical and comparable.
            hashes: theirs.
        """
        places = np.full(len(hashes), len(self), np.int64)
        if not len(self) or not len(hashes):
            return places
        mine = [keys.comparable(column) for column in self.columns]
        asked_for = [c.cast(m.type) if pa.types.is_null(c.type) else c for c, m in zip(columns, mine, strict=True)]
        mine_hashes = hashing.hash_columns(mine, SALT)
        at = np.searchsorted(mine_hashes, hashes, side="left")
        asked = np.arange(len(hashes))
        while len(asked):
            inside = at < len(self)
            inside[inside] = mine_hashes[at[inside]] == hashes[asked[inside]]
            asked, at = asked[inside], at[inside]
            equal = np.ones(len(asked), np.bool_)
            for column, listed in zip(asked_for, mine, strict=True):
                equal &= equal_values(gather.take(column, asked), gather.take(listed, at))
            places[asked[equal]] = at[equal]
            # Of several keys with one hash the next may be the one.
            asked, at = asked[~equal], at[~equal] + 1
        return places


def filter_places(hashes: hashing.Words, words: int) -> Places:
    """Return which of so many words of a filter belongs to each hash; it rises with the hash."""
    return ((hashes >> _HALF) * np.uint64(words) >> _HALF).astype(np.int64)


def filter_masks(hashes: hashing.Words) -> hashing.Words:
    """Return the bits of the filter's word that are set for keys (a blocked Bloom filter: Putze, Sanders, Singler 2007)."""
    low, one = hashes & _LOW, np.uint64(1)
    masks = np.zeros(len(hashes), np.uint64)
    for number in range(_BITS_OF_A_KEY):
        masks |= one << ((low >> np.uint64(6 * number)) & np.uint64(63))
    return masks
