"""Places of keys in a list of keys: the list is sorted by hash once, then keys are looked up.

In: the columns of a list without doubles, then keys of the same types. Out: for each key its place in the list. Holds: keys are
equal if their canonical values are (`kernels.keys`); hashes only say where to look. Building takes time in proportion to the
list, a lookup in proportion to the keys that are asked for. Not covered: which keys are listed (`listed_keys`).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.unique_codes import unique_codes

Places = NDArray[np.int64]

_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)

_SALT = 0
"""The salt of the hashes: they never leave a process, so one salt is enough for all lists."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyPlaces:
    """A list of keys in the order of their hashes.

    Args:
        columns: canonical and comparable, in the order of the list.
        entries: for each key the lower half of its hash, and its place in the list; and a last one that is none's.
        starts: for each leading part of a hash the first entry that has it, and the end.
        bits: of a leading part.
        has_doubles: whether a key is listed twice.
    """

    columns: tuple[pa.Array, ...]
    entries: hashing.Words
    starts: NDArray[np.int32]
    bits: int
    has_doubles: bool

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> "KeyPlaces":
        """Sort a list.

        Args:
            columns: canonical and comparable (`keys.comparable`), of equal length.

        >>> KeyPlaces.of([pa.array(["b", None, "a"])]).find([pa.array(["a", "c", None])]).tolist()
        [2, 3, 1]
        """
        hashes = hashing.hash_columns(columns, _SALT)
        order = np.argsort(hashes)
        hashes = hashes[order]
        bits = max(len(hashes).bit_length(), 1)
        starts = np.zeros(2**bits + 1, np.int32)
        np.cumsum(np.bincount(_leading(hashes, bits), minlength=2**bits), out=starts[1:])
        alike = np.flatnonzero(hashes[1:] == hashes[:-1])
        suspects = order[np.union1d(alike, alike + 1)]
        entries = np.append((hashes << _HALF) | order.astype(np.uint64), np.uint64(0))
        return cls(
            columns=tuple(columns),
            entries=entries,
            starts=starts,
            bits=bits,
            has_doubles=_has_doubles([gather.take(column, suspects) for column in columns]),
        )

    def __len__(self) -> int:
        return len(self.entries) - 1

    def find(self, columns: Sequence[pa.Array]) -> Places:
        """Return the place of each key in the list; its length where the key is not listed.

        Args:
            columns: canonical and comparable, of the types of the list's.
        """
        hashes = hashing.hash_columns(columns, _SALT)
        listed_places = np.full(len(hashes), len(self), np.int64)
        asked: Places | None = None  # all
        at = self.starts[_leading(hashes, self.bits)]
        tags = hashes & _LOW
        while len(at):
            # Beyond its part of the list a key finds entries of others, which it does not equal.
            entries = self.entries[at]
            near = np.flatnonzero(entries >> _HALF == tags)
            places = (entries[near] & _LOW).astype(np.int64)
            equal = self._equal(columns, near if asked is None else asked[near], places)
            hits = near[equal]
            listed_places[hits if asked is None else asked[hits]] = places[equal]
            left = np.ones(len(at), np.bool_)
            left[hits] = False
            rest = np.flatnonzero(left)
            asked = rest if asked is None else asked[rest]
            at = at[rest] + 1
            inside = np.flatnonzero(at < self.starts[_leading(hashes[asked], self.bits) + 1])
            asked, at = asked[inside], at[inside]
            tags = hashes[asked] & _LOW
        return listed_places

    def _equal(self, columns: Sequence[pa.Array], asked: Places, places: Places) -> NDArray[np.bool_]:
        """Return True for keys that equal the listed ones at some places."""
        equal = np.ones(len(asked), np.bool_)
        for mine, listed in zip(columns, self.columns, strict=True):
            some = mine if len(asked) == len(mine) else gather.take(mine, asked)
            equal &= equal_values(some, gather.take(listed, places))
        return equal


def _leading(hashes: hashing.Words, bits: int) -> Places:
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


def _has_doubles(columns: Sequence[pa.Array]) -> bool:
    codes = keys.dense(columns).codes
    return len(unique_codes(codes)) < len(codes)


def equal_values(some: pa.Array, others: pa.Array) -> NDArray[np.bool_]:
    """Compare two arrays of one type value by value; null equals null."""
    if pa.types.is_null(some.type):
        return np.ones(len(some), np.bool_)
    equal: NDArray[np.bool_] = pc.fill_null(pc.equal(some, others), False).to_numpy(zero_copy_only=False)
    if some.null_count and others.null_count:
        equal |= pc.and_(pc.is_null(some), pc.is_null(others)).to_numpy(zero_copy_only=False)
    return equal
