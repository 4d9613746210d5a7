"""Second moments: rows of declared features on an integer lattice, and the exact sums of their products by partition.

In: columns of numbers with ranges, or with a norm for the whole row. Out: one int16 column a feature; sums of x_i x_j over
rows, for i <= j, in int64. Holds: a row's integers depend on that row alone and keep the declared range (or norm) exactly; the
products are added up without rounding, so order, batches and shards change nothing. Not covered: rounding moves a feature by at
most 2**-16 of its range (or of the norm); many features over very many small partitions, each of which has a whole matrix.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels.lattice import Floats, Integers, numbers_and_nulls
from dp_pipelines.kernels.vectors import BLOCK, Matrix, clipped, directions, sums_of_parts

MOST_FEATURES = 64

LARGEST = 2**15 - 1
"""The largest feature, or the norm of a row, in lattice steps: products are below 2**30, and rows travel in 16 bits."""

EXACT_ROWS = 2**22
"""Products of at most 2**30, added in float64 over so many rows, stay below 2**53 and are therefore exact in any order."""

LONG = 64
"""Partitions with at least so many rows are multiplied as matrices."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moments:
    """The lattice of rows of features.

    Args:
        columns: the features.
        ranges: to which each is clamped; or
        max_norm: to which L2 norm the row is clipped, keeping its direction.

    A row with a null or NaN among its features counts nothing.

    >>> Moments(columns=("a", "b"), max_norm=1.0).width
    3
    """

    columns: tuple[str, ...]
    ranges: tuple[tuple[float, float], ...] | None = None
    max_norm: float | None = None

    @property
    def width(self) -> int:
        """Return the number of entries of the upper triangle with its diagonal."""
        return len(self.columns) * (len(self.columns) + 1) // 2

    @property
    def name(self) -> str:
        """Return the features in words."""
        if self.ranges is None:
            return f"{', '.join(map(repr, self.columns))}; l2 at most {self.max_norm!r}"
        return ", ".join(
            f"{c!r} in [{low!r}, {high!r}]" for c, (low, high) in zip(self.columns, self.ranges, strict=True)
        )

    @property
    def scales(self) -> tuple[float, ...]:
        """Return the lattice steps of one unit of each feature."""
        if self.ranges is None:
            assert self.max_norm is not None
            return (LARGEST / self.max_norm,) * len(self.columns)
        return tuple(LARGEST / max(abs(low), abs(high)) for low, high in self.ranges)

    def integers(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the lattice values of the rows: int16, without nulls; a row with a null is zero throughout.

        >>> clamped = Moments(columns=("a", "b"), ranges=((0.0, 1.0), (-2.0, 2.0)))
        >>> [x.to_pylist() for x in clamped.integers([pa.array([5.0, 1.0]), pa.array([-1.0, None])])]
        [[32767, 0], [-16384, 0]]
        """
        read = [numbers_and_nulls(column) for column in columns]
        values = np.stack([numbers for numbers, _ in read], axis=1)
        for _, nulls in read:
            if nulls is not None:
                values[nulls] = 0.0
        whole = self._clamped(values) if self.ranges is not None else self._clipped(values)
        for _, nulls in read:
            if nulls is not None:
                whole[nulls] = 0  # also where zero lies outside of a range
        return [pa.array(whole[:, i].astype(np.int16)) for i in range(len(self.columns))]

    def _clamped(self, values: Floats) -> Integers:
        assert self.ranges is not None
        low, high = np.array(self.ranges).T
        scaled = np.rint(np.clip(values, low, high) * np.array(self.scales))
        return np.clip(scaled, -LARGEST, LARGEST).astype(np.int64)

    def _clipped(self, values: Floats) -> Integers:
        assert self.max_norm is not None
        far = ~(np.abs(values).max(axis=1) <= self.max_norm)
        near = np.where(far[:, None], 0.0, values)
        whole = np.rint(near * self.scales[0]).astype(np.int64)
        if far.any():
            whole[far] = np.rint(directions(values[far]) * 2.0**20).astype(np.int64)
        return clipped(whole, "l2", LARGEST).astype(np.int64)


def sums_of_products(rows: Matrix, codes: Integers, size: int) -> Integers:
    """Return the sums of x_i x_j over rows, i <= j, by partition.

    Args:
        rows: integers of at most `LARGEST`, one column a feature.
        codes: the partition of each row.
        size: how many partitions there are.

    Returns:
        int64 (size, entries), the upper triangles row by row. Exact: 2**31 rows stay below 2**61.

    >>> sums_of_products(np.array([[1, 2], [3, 4]]), np.array([0, 0]), 1).tolist()
    [[10, 14, 20]]
    """
    upper = np.triu_indices(rows.shape[1])
    result = np.zeros((size, len(upper[0])), np.int64)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    begins = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = np.append(begins[1:], len(codes))
    long = ends - begins >= LONG
    for begin, end in zip(begins[long].tolist(), ends[long].tolist(), strict=True):
        for part in range(begin, end, EXACT_ROWS):
            floats = rows[order[part : min(part + EXACT_ROWS, end)]].astype(np.float64)
            result[codes[begin]] += (floats.T @ floats).astype(np.int64)[upper]
    rest = np.flatnonzero(np.repeat(~long, ends - begins))
    most = max(1, BLOCK // len(upper[0]))
    for begin in range(0, len(rest), most):
        places = rest[begin : begin + most]
        block = rows[order[places]].astype(np.int64)
        inside = codes[places]
        of_partitions = np.flatnonzero(np.diff(inside, prepend=-1))
        result[inside[of_partitions]] += sums_of_parts(block[:, upper[0]] * block[:, upper[1]], of_partitions)
    return result
