"""Counts over many cells of each partition, of which most are zero: how they travel, merge and become arrays.

In: partition codes and cells of rows, or lists from partial aggregates. Out: those cells that count something, sorted by
partition and cell. Holds: integers only; the same counts in any order, batch split and number of shards. What is dense is
made for some partitions at a time.
"""

import dataclasses

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """Counts by partition and cell, sorted, each pair once.

    Args:
        width: cells of a partition.
        places: partition code * width + cell, rising.
        counts: of each; below 2**62.
    """

    width: int
    places: Integers
    counts: Integers

    def lists(self, partitions: int) -> tuple[pa.Array, pa.Array]:
        """Return cells and counts as one list for each partition code."""
        codes = self.places // self.width
        offsets = pa.array(np.searchsorted(codes, np.arange(partitions + 1)).astype(np.int32))
        cells = pa.array((self.places % self.width).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, cells), pa.ListArray.from_arrays(offsets, pa.array(self.counts))

    def coarser(self, by: int) -> "Spread":
        """Return the counts of cells that each hold `by` neighbouring ones of these.

        >>> counted(np.array([0, 0]), np.array([1, 2]), partitions=1, width=4).coarser(2).counts.tolist()
        [1, 1]
        """
        if by == 1:
            return self
        wide = self.width // by
        places = self.places // self.width * wide + self.places % self.width // by
        begins = np.flatnonzero(np.diff(places, prepend=-1))
        sums = np.add.reduceat(self.counts, begins) if len(begins) else self.counts
        return Spread(width=wide, places=places[begins], counts=sums)

    def dense(self, partitions: Integers) -> Integers:
        """Return all counts of some partitions.

        Args:
            partitions: rising codes.

        Returns:
            int64, one row for each partition, one column for each cell.

        >>> counted(np.array([0, 2, 2]), np.array([1, 0, 0]), partitions=3, width=2).dense(np.array([0, 2])).tolist()
        [[0, 1], [2, 0]]
        """
        result = np.zeros((len(partitions), self.width), np.int64)
        begins = np.searchsorted(self.places, partitions * self.width)
        ends = np.searchsorted(self.places, (partitions + 1) * self.width)
        lengths = ends - begins
        rows = np.repeat(np.arange(len(partitions)), lengths)
        # Positions begin, begin + 1, .. end - 1 of each partition, one after the other.
        first = np.repeat(begins - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) if len(lengths) else begins
        positions = first + np.arange(len(rows))
        result[rows, self.places[positions] % self.width] = self.counts[positions]
        return result


SMALL = 2**22
"""Up to so many places a histogram is faster than a sort."""


def counted(codes: Integers, cells: Integers, *, partitions: int, width: int) -> Spread:
    """Return the counts of rows.

    Args:
        codes: the partition of each row.
        cells: its cell, from 0 to below `width`.
        partitions: how many codes there are.
        width: cells of a partition; codes times width stay below 2**62.
    """
    pairs = codes * np.int64(width) + cells
    if partitions * width <= SMALL:
        all_counts = np.bincount(pairs, minlength=1)
        places = np.flatnonzero(all_counts)
        return Spread(width=width, places=places, counts=all_counts[places])
    places, counts = np.unique(pairs, return_counts=True)
    return Spread(width=width, places=places, counts=counts.astype(np.int64))


def merged(codes: Integers, cells: pa.Array, counts: pa.Array, *, width: int) -> Spread:
    """Return the sums of partial counts.

    Args:
        codes: the partition code of each list.
        cells: lists of cells.
        counts: lists of counts, as long.
        width: cells of a partition.
    """
    if len(codes) == 0:
        return Spread(width=width, places=np.zeros(0, np.int64), counts=np.zeros(0, np.int64))
    lengths = np.diff(cells.offsets.to_numpy())
    pairs = np.repeat(codes, lengths) * np.int64(width) + cells.flatten().to_numpy()
    places, inverse = np.unique(pairs, return_inverse=True)
    sums = np.zeros(len(places), np.int64)
    np.add.at(sums, inverse, counts.flatten().to_numpy())
    return Spread(width=width, places=places, counts=sums)
