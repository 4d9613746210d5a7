"""Vectors on an integer lattice: from lists to integers, exact sums for each unit and partition, clipped to a norm in integers.

In: one Arrow column of lists of numbers. Out: int32 lattice vectors, one a row; sums by group in int64; vectors whose norm,
counted in lattice steps, is at most the declared one, exactly. Holds: the result for a row, or for a unit's sum, is computed
from that row or sum alone, with operations whose result does not depend on order, alignment or other rows: maxima,
products of single numbers, sums of integers (docs/proofs/vectors.md). Not covered: rounding moves a coordinate of a row by at
most half a step, 2**-24 of the norm; clipping shortens a vector by up to a step in each coordinate.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.lists import numbers_of_lists
from dp_pipelines.kernels.lattice import Flags, Floats, Integers

Norm = Literal["l1", "l2", "linf"]
Matrix = NDArray[Any]

MOST_COORDINATES = 4096

CLIP_BITS = 24
"""Bits of the norm: sums of 2**12 squares stay below 2**62, and below 2**53 wherever they are compared with its square."""

ROW_BITS = 30
"""Bits of a coordinate of one row: 2**6 times the norm at least, and rows travel in 32 bits."""

BLOCK = 2**17
"""Numbers in memory at a time, so that temporaries stay in the second cache."""

FEW = 8
"""Groups of up to so many rows are added up side by side, larger ones one after the other."""

_SAFETY = 1 - 2.0**-50


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorLattice:
    """The integers of vectors whose sum per unit and partition is clipped to a norm.

    Args:
        size: coordinates.
        norm: which one.
        max_norm: at most, of one unit's sum in one partition; between 2**-900 and 2**900.

    >>> VectorLattice(size=3, norm="l2", max_norm=1.0).bound
    8388608
    """

    size: int
    norm: Norm
    max_norm: float

    @property
    def exponent(self) -> int:
        """Return the exponent: a number x is x * 2**exponent lattice steps."""
        return CLIP_BITS - math.frexp(self.max_norm)[1]

    @property
    def step(self) -> float:
        """Return the width of one lattice step in units of the value."""
        return math.ldexp(1.0, -self.exponent)

    @property
    def bound(self) -> int:
        """Return the norm in lattice steps: between 2**23 and 2**24."""
        return math.floor(math.ldexp(self.max_norm, self.exponent))

    @property
    def width(self) -> int:
        """Return the number of integers of a partition."""
        return self.size

    @property
    def name(self) -> str:
        """Return the vectors in words."""
        return f"{self.size} coordinates, {self.norm} at most {self.max_norm!r}"

    def integers(self, column: pa.Array) -> pa.FixedSizeListArray:
        """Return the lattice vectors of the rows of a column; zero where a list is null, uneven, or holds a null or NaN.

        A row of which a coordinate exceeds 2**30 steps (at least 64 times the norm) is scaled down to that, infinities before all
        other coordinates; with `linf` each coordinate is clamped there by itself.

        >>> VectorLattice(size=2, norm="l1", max_norm=8.0).integers(pa.array([[0.0, 1.0], [None, 1.0]])).to_pylist()
        [[0, 1048576], [0, 0]]
        """
        numbers, good = numbers_of_lists(column, self.size)
        out = np.zeros((len(column), self.size), np.int32)
        if good is None:
            self._fill(numbers, out)
        elif len(numbers):
            inside = np.empty((len(numbers), self.size), np.int32)
            self._fill(numbers, inside)
            out[good] = inside
        return listed(out)

    def _fill(self, numbers: Matrix, out: Matrix) -> None:
        # A power of two multiplies exactly in either width; where a product vanishes, so does what is rounded.
        if numbers.dtype == np.float32 and abs(self.exponent) > 90:  # float32 then holds factor and limit
            numbers = numbers.astype(np.float64)
        factor = numbers.dtype.type(math.ldexp(1.0, self.exponent))
        limit = math.ldexp(1.0, ROW_BITS - self.exponent)
        rows = max(1, BLOCK // self.size)
        scaled = np.empty((min(rows, len(numbers)), self.size), numbers.dtype)
        for begin in range(0, len(numbers), rows):
            block = numbers[begin : begin + rows]
            here = scaled[: len(block)]
            largest = np.abs(block, out=here).max(axis=1)
            usual: Flags = np.asarray(largest <= limit)  # and no NaN
            with np.errstate(over="ignore", invalid="ignore"):
                np.multiply(block, factor, out=here)
            np.rint(here, out=here)
            if not usual.all():
                here[~usual] = 0
            np.copyto(out[begin : begin + rows], here, casting="unsafe")
            unusual = np.flatnonzero(~usual & ~np.isnan(largest))
            if len(unusual):
                out[begin + unusual] = self._scaled_down(block[unusual].astype(np.float64))

    def _scaled_down(self, vectors: Floats) -> Integers:
        most = 2.0**ROW_BITS
        if self.norm == "linf":
            limit = math.ldexp(most, -self.exponent)
            return np.rint(np.clip(vectors, -limit, limit) * math.ldexp(1.0, self.exponent)).astype(np.int64)
        return np.rint(directions(vectors) * most).astype(np.int64)

    def clipped(self, sums: Matrix, out: Floats | None = None) -> Floats:
        """Clip integer vectors (rows) to the norm: integers as float64, see `clipped`."""
        return clipped(sums, self.norm, self.bound, out)


def directions(vectors: Floats) -> Floats:
    """Return vectors divided by their largest coordinate, which is not zero; of infinite ones the infinite coordinates alone.

    >>> directions(np.array([[1e308, -1e308], [np.inf, 5.0]])).tolist()
    [[1.0, -1.0], [1.0, 0.0]]
    """
    infinite = np.isinf(vectors)
    without_end: Flags = np.logical_or.reduce(infinite, axis=1)
    vectors = np.where(without_end[:, None], np.where(infinite, np.sign(vectors), 0.0), vectors)
    result: Floats = vectors / np.abs(vectors).max(axis=1)[:, None]
    return result


def clipped(sums: Matrix, norm: Norm, bound: int, out: Floats | None = None) -> Floats:
    """Return integer vectors (rows) with a norm of at most `bound`: those that exceed it are scaled down, towards zero.

    Args:
        sums: integers of magnitude below 2**62, at most 2**12 coordinates.
        norm: with `linf` each coordinate is clamped by itself.
        bound: at most 2**24.
        out: where the result goes, if given: fresh memory costs as much as the arithmetic.

    Returns:
        integers as float64, in which they are quickly added up.

    >>> clipped(np.array([[3, 4], [6, -8]]), "l2", 5).tolist()
    [[3.0, 4.0], [2.0, -3.0]]
    """
    floats: Floats = np.empty(sums.shape) if out is None else out[: len(sums)]
    np.copyto(floats, sums)
    if norm == "linf":
        return np.clip(floats, -bound, bound, out=floats)
    # Up to 2**53 all partial sums are integers that float64 holds; what exceeds that is found to exceed 2**52.
    most, sizes = (bound * bound, _squares(floats)) if norm == "l2" else (bound, _magnitudes(floats))
    over = sizes > most
    if not over.any():
        return floats
    lengths = np.sqrt(sizes[over]) if norm == "l2" else sizes[over]
    factors = np.ones(len(floats))
    factors[over] = bound / lengths * _SAFETY
    np.multiply(floats, factors[:, None], out=floats)
    np.trunc(floats, out=floats)
    far = np.flatnonzero(sizes > 2.0**52)
    if len(far):
        floats[far] = _scaled_towards_zero(sums[far].astype(np.int64), norm, bound)
    # Holds by the lines above; what would break it is left out rather than let through.
    floats[~((_squares(floats) if norm == "l2" else _magnitudes(floats)) <= most)] = 0.0
    return floats


def _squares(vectors: Floats) -> Floats:
    sizes: Floats = np.einsum("ij,ij->i", vectors, vectors)
    return sizes


def _magnitudes(vectors: Floats) -> Floats:
    sizes: Floats = np.abs(vectors).sum(axis=1)
    return sizes


def _scaled_towards_zero(sums: Integers, norm: Norm, bound: int) -> Floats:
    """Clip vectors that are so long that float64 does not hold their norms exactly."""
    magnitudes = np.abs(sums)
    # Below 2**25, so that norms of at most 2**12 coordinates are exact in int64 in any order.
    bits = np.frexp(magnitudes.max(axis=1).astype(np.float64))[1]
    magnitudes >>= np.maximum(bits - 25, 0).astype(np.int64)[:, None]
    squares = norm == "l2"
    sizes = np.einsum("ij,ij->i", magnitudes, magnitudes) if squares else magnitudes.sum(axis=1)
    lengths = np.sqrt(sizes.astype(np.float64)) if squares else sizes.astype(np.float64)
    shorter: Floats = np.copysign(np.floor(magnitudes * (bound / lengths * _SAFETY)[:, None]), sums)
    return shorter


def listed(vectors: Matrix) -> pa.FixedSizeListArray:
    """Convert vectors (rows) to an Arrow array."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])


def narrow(vectors: Integers) -> Matrix:
    """Return the same integers in 32 bits where all fit."""
    fits = vectors.size == 0 or (int(vectors.min()) >= -(2**31) and int(vectors.max()) < 2**31)
    return vectors.astype(np.int32) if fits else vectors


def matrix(array: pa.Array) -> Matrix:
    """Return the vectors of an Arrow array that `listed` made, or of a part of one, without a copy."""
    result: Matrix = array.flatten().to_numpy().reshape(-1, array.type.list_size)
    return result


def of_one_width(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return tables whose vectors of integers all have the widest type that occurs.

    >>> narrow_one, wide_one = (pa.table({"w0": listed(np.ones((1, 2), kind))}) for kind in (np.int32, np.int64))
    >>> str(of_one_width([narrow_one, wide_one])[0].schema.field("w0").type)
    'fixed_size_list<item: int64>[2]'
    """
    result = list(tables)
    for name in tables[0].column_names:
        kinds = {table.schema.field(name).type for table in tables}
        if len(kinds) < 2 or not all(pa.types.is_fixed_size_list(kind) for kind in kinds):
            continue
        for place, table in enumerate(result):
            if table.schema.field(name).type.value_type != pa.int64():
                wide = listed(matrix(keys.one_array(table.column(name))).astype(np.int64))
                result[place] = table.set_column(table.schema.get_field_index(name), name, wide)
    return result


def sums_of_groups(vectors: Matrix, rows: Integers, starts: Integers) -> Integers:
    """Return the sum of the vectors of each group.

    Args:
        vectors: all of them, integers.
        rows: places of the vectors, group by group.
        starts: where in `rows` each group begins; none is empty.

    Returns:
        int64: exact where no sum reaches 2**63.

    >>> sums_of_groups(np.array([[1, 2], [3, 4], [5, 6]]), np.array([2, 0, 1]), np.array([0, 1])).tolist()
    [[5, 6], [4, 6]]
    """
    result = np.empty((len(starts), vectors.shape[1]), np.int64)
    for first, last, part, begins in _blocks(vectors, rows, starts):
        result[first:last] = sums_of_parts(part, begins)
    return result


def sums_of_parts(vectors: Matrix, begins: Integers) -> Matrix:
    """Return the sums of neighbouring vectors, in 64 bits: of those from each of `begins` to the next, or to the end."""
    kind = np.float64 if vectors.dtype == np.float64 else np.int64
    if len(begins) == len(vectors):
        return vectors.astype(kind, copy=False)
    sizes = np.diff(np.append(begins, len(vectors)))
    result: Matrix = vectors[begins].astype(kind)
    small = np.flatnonzero(sizes <= FEW)
    for nth in range(1, min(int(sizes.max(initial=0)), FEW)):
        small = small[sizes[small] > nth]
        if len(small):
            result[small] += vectors[begins[small] + nth]
    for group in np.flatnonzero(sizes > FEW).tolist():
        begin, size = int(begins[group]), int(sizes[group])
        vectors[begin : begin + size].sum(axis=0, dtype=kind, out=result[group])
    return result


def clipped_sums(
    lattice: VectorLattice, vectors: Matrix, rows: Integers, starts: Integers, codes: Integers, size: int
) -> Integers:
    """Return the sums over units of their clipped sums, by partition.

    Args:
        lattice: the norm.
        vectors: of all rows, possibly sums of rows already.
        rows: places of the vectors, grouped by unit and partition.
        starts: where in `rows` each group begins.
        codes: the partition of each group.
        size: how many partitions there are.

    Returns:
        int64 (size, coordinates). Below 2**31 rows of a shard, of less than 2**30 each, a unit's sum stays below 2**61; clipped
        ones of at most 2**24 add up below 2**55.
    """
    result = np.zeros((size, lattice.size), np.int64)
    order = np.argsort(codes, kind="stable")
    sizes = np.diff(np.append(starts, len(rows)))[order]
    ends = np.cumsum(sizes)
    begins = ends - sizes
    rows = rows[np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts[order] - begins, sizes)]
    codes = codes[order]
    block = np.empty((max(1, BLOCK // lattice.size), lattice.size))
    for first, last, part, of_groups in _blocks(vectors, rows, begins):
        sums = part if len(part) == last - first else sums_of_parts(part, of_groups)
        inside = codes[first:last]
        of_partitions = np.flatnonzero(np.diff(inside, prepend=-1))
        # Of a block's vectors float64 sums are below 2**53.
        result[inside[of_partitions]] += sums_of_parts(lattice.clipped(sums, block), of_partitions).astype(np.int64)
    return result


def _blocks(vectors: Matrix, rows: Integers, starts: Integers) -> Iterator[tuple[int, int, Matrix, Integers]]:
    """Yield some groups at a time: the first, the one after the last, their vectors, and where in these each begins.

    A group with more rows than a block has comes alone, as the one vector that it adds up to.
    """
    most = max(1, BLOCK // vectors.shape[1])
    ends = np.append(starts, len(rows))
    block = np.empty((most, vectors.shape[1]), vectors.dtype)
    first = 0
    while first < len(starts):
        begin = int(ends[first])
        last = int(np.searchsorted(ends, begin + most, side="right")) - 1
        if last > first:
            part = block[: int(ends[last]) - begin]
            np.take(vectors, rows[begin : int(ends[last])], axis=0, out=part, mode="clip")
            yield first, last, part, ends[first:last] - begin
        else:
            last = first + 1
            total = np.zeros((1, vectors.shape[1]), np.int64)
            for place in range(begin, int(ends[last]), most):
                total += vectors[rows[place : min(place + most, int(ends[last]))]].sum(axis=0, dtype=np.int64)
            yield first, last, total, np.zeros(1, np.int64)
        first = last


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """Partial sums of vectors, which are added up for some partitions at a time.

    Args:
        vectors: the partial sums.
        order: their places, by partition.
        codes: the partition of each, in that order.
    """

    vectors: Matrix
    order: Integers
    codes: Integers

    @classmethod
    def of(cls, codes: Integers, vectors: pa.Array) -> "Parts":
        """Return the vectors of an Arrow array, and the partition of each."""
        order = np.argsort(codes, kind="stable")
        return cls(vectors=matrix(vectors), order=order, codes=codes[order])

    def words(self, partitions: Integers) -> tuple[Integers, Integers]:
        """Return the totals of some partitions in two words, high * 2**32 + low: zero where there is no part.

        Args:
            partitions: rising codes.

        >>> parts = Parts.of(np.array([2, 0, 2]), listed(np.array([[1], [5], [-2]])))
        >>> [word.tolist() for word in parts.words(np.array([1, 2]))]
        [[[0], [-1]], [[0], [4294967295]]]
        """
        begins, ends = (np.searchsorted(self.codes, partitions, side=side) for side in ("left", "right"))
        nonempty = np.flatnonzero(ends > begins)
        high, low = (np.zeros((len(partitions), self.vectors.shape[1]), np.int64) for _ in range(2))
        if not len(nonempty):
            return high, low
        sizes = (ends - begins)[nonempty]
        first = np.cumsum(sizes) - sizes
        part = self.vectors[self.order[np.arange(int(sizes.sum())) + np.repeat(begins[nonempty] - first, sizes)]]
        if part.dtype == np.int64:
            # Up to 2**31 parts: the low words stay below 2**63.
            high[nonempty] = sums_of_parts(part >> np.int64(32), first)
            part = part & np.int64(2**32 - 1)
        low[nonempty] = sums_of_parts(part, first)
        return high + (low >> np.int64(32)), low & np.int64(2**32 - 1)
