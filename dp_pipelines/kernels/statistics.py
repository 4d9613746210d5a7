"""Statistics: the integers that are summed for each partition, and how far one privacy unit can move each.

In: declared names and lattices. Out: frozen descriptions that kernels compute and plans pay for; one class for each kind.
Holds: `shape` bounds the change of the statistic when all rows of one unit are added or removed
(docs/proofs/sensitivity.md); it is a law about `kernels.accumulate` that tests/privacy checks on integers.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar, Protocol

from dp_pipelines.kernels.cells import Cells
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.kernels.lattice import Integers, Lattice, SummandLattice
from dp_pipelines.kernels.moments import LARGEST, Moments
from dp_pipelines.kernels.sensitivity import Shape as Shape
from dp_pipelines.kernels.vectors import VectorLattice

COUNT_BITS = 20
"""Counts are released on a lattice of 2**-20, so that noise scales fit them closely. Accumulators hold whole counts."""

WEIGHT_BITS = 20
"""A unit's weight in weighted selection is at most 2**20, spread over its partitions with an L2 norm of at most 2**20."""


class ShardRows(Protocol):
    """The kept rows of a shard, as `kernels.accumulate` holds them; each method gives one integer per partition code."""

    def rows(self) -> Integers:
        """Return the number of rows of each partition."""
        ...

    def units(self) -> Integers:
        """Return the number of units of each partition."""
        ...

    def weights(self) -> Integers:
        """Return the sum of the units' weights for weighted selection."""
        ...

    def not_null(self, column: str) -> Integers:
        """Return the number of rows of each partition in which a column is not null."""
        ...

    def sums(self, column: str, lattice: Lattice) -> Integers:
        """Return the sum of a column's lattice values."""
        ...

    def clipped_sums(self, column: str, lattice: SummandLattice) -> Integers:
        """Return the sum of a column's lattice values, clipped for each unit."""
        ...

    def unit_totals(self, total: "Statistic") -> Integers:
        """Return the total of a statistic for each unit and partition: one integer for each kept (unit, partition)."""
        ...

    def sums_of_units(self, of_units: Integers) -> Integers:
        """Return the sum of the integers that each unit adds in each of its partitions, at most 2**30 each."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistic:
    """One integer per partition, or one for each cell or coordinate of a partition. Each kind is a class below.

    Args:
        column: the column that is read, where one is.
        lattice: how its values become integers.
        cells: the cells that are counted.
        most: how many different values of one unit count in one partition; None: as many as rows of it.
        vectors: of statistics with many integers for a partition, how rows become integers.

    >>> RowCount().name
    'rows'
    """

    kind: ClassVar[str]
    """The prefix of names; names are part of stored plans."""
    counts: ClassVar[bool] = False
    """True if accumulators hold whole counts, which the lattice of the release divides further."""
    decided: ClassVar[bool] = False
    """True if a special mechanism derives one number from many exact counts: no noise is added to the counts."""
    adds_up: ClassVar[bool] = True
    """True if the statistic of several partitions together is the sum of theirs."""

    column: str | None = None
    lattice: Lattice | SummandLattice | None = None
    cells: Cells | None = None
    most: int | None = None
    vectors: VectorLattice | Moments | ClippedVectors | None = None

    @property
    def width(self) -> int | None:
        """Return the number of integers of a partition; None if there is one."""
        if self.vectors is not None:
            return self.vectors.width
        return None if self.cells is None else self.cells.count

    @property
    def in_lists(self) -> bool:
        """Return True if it travels as lists (of cells, values or sums), instead of one integer for each partition."""
        return self.width is not None

    @property
    def name(self) -> str:
        """Return a name that two statistics share only if they are the same."""
        return self.kind if self.column is None else f"{self.kind}({self.column})"

    @property
    def fine_bits(self) -> int:
        """Return by how many bits an accumulated integer is shifted left to the fine lattice of its release."""
        return COUNT_BITS if self.counts else 0

    @property
    def fine_step(self) -> float:
        """Return the width of one step of the fine lattice, in units of the statistic."""
        return 2.0**-COUNT_BITS

    @property
    def follows_partitions(self) -> bool:
        """Return True if one unit moves this by whole units whose number is in proportion to its bound on partitions.

        The exceptions are choices by ranks, and lists of numbers that are clipped to an L1 or L2 norm.
        """
        return self.shape(max_partitions=1, max_rows_per_partition=1, max_rows=None).squares is None

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        """Return how far one unit moves this statistic under the given bounds.

        Args:
            max_partitions: partitions of one unit (L0).
            max_rows_per_partition: rows of one unit in one partition (Linf).
            max_rows: rows of one unit in all, where that is what is bounded; else None.
        """
        raise NotImplementedError

    def per_partition(self, kept: ShardRows) -> Integers:
        """Return one integer per partition code; for statistics that do not travel as lists."""
        raise NotImplementedError

    def score_range(self, rows: int) -> int:
        """Return how far apart two partitions' scores of a choice can move when one unit is added.

        Args:
            rows: of one unit in one partition, at most.
        """
        raise NotImplementedError(f"{self.kind} is not one whole number for each partition")


def _of_rows(per_row: int, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
    """Return the shape of a total to which each row adds up to `per_row`."""
    if max_rows is not None:
        return Shape(unit=per_row, coordinates=max_rows, per_coordinate=max_rows, in_total=max_rows)
    unit = per_row * max_rows_per_partition
    return Shape(unit=unit, coordinates=max_partitions, per_coordinate=1, in_total=max_partitions)


def _once_per_partition(unit: int, max_partitions: int) -> Shape:
    """Return the shape of a statistic that a unit moves by at most `unit` in each partition, however many rows it has there."""
    return Shape(unit=unit, coordinates=max_partitions, per_coordinate=1, in_total=max_partitions)


class RowCount(Statistic):
    """Kept rows."""

    kind = "rows"
    counts = True

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        return _of_rows(1 << COUNT_BITS, max_partitions, max_rows_per_partition, max_rows)

    def per_partition(self, kept: ShardRows) -> Integers:
        return kept.rows()

    def score_range(self, rows: int) -> int:
        return rows


class NotNullCount(RowCount):
    """Kept rows in which a column is not null."""

    kind = "not_null"

    def per_partition(self, kept: ShardRows) -> Integers:
        assert self.column is not None
        return kept.not_null(self.column)


class UnitCount(Statistic):
    """Units with a kept row."""

    kind = "units"
    counts = True
    adds_up = False

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        return _once_per_partition(1 << COUNT_BITS, max_partitions)

    def per_partition(self, kept: ShardRows) -> Integers:
        return kept.units()

    def score_range(self, rows: int) -> int:
        return 1


class UnitWeights(Statistic):
    """The weights of the units for weighted selection."""

    kind = "weights"

    @property
    def fine_step(self) -> float:
        return 2.0**-WEIGHT_BITS

    @property
    def follows_partitions(self) -> bool:
        """Return False: the L2 norm is bounded for any number of partitions."""
        return False

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        """Raise an error: there is no shape in whole units.

        Raises:
            ValueError: always.
        """
        raise ValueError("the shape of weights is an L2 norm: see dp_pipelines.selection.thresholds")

    def per_partition(self, kept: ShardRows) -> Integers:
        return kept.weights()


class ValueSum(Statistic):
    """The sum of a column's lattice values."""

    kind = "sum"

    @property
    def name(self) -> str:
        assert self.lattice is not None
        form = ""
        if isinstance(self.lattice, Lattice):
            form = f", {self.lattice.form}" + (" from the middle" if self.lattice.centre_used else "")
        return f"{self.kind}({self.column} in [{self.lattice.low!r}, {self.lattice.high!r}]{form})"

    @property
    def fine_step(self) -> float:
        assert self.lattice is not None
        return self.lattice.step

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        assert self.lattice is not None
        return _of_rows(self.lattice.largest, max_partitions, max_rows_per_partition, max_rows)

    def per_partition(self, kept: ShardRows) -> Integers:
        assert self.column is not None
        assert isinstance(self.lattice, Lattice)
        return kept.sums(self.column, self.lattice)

    def score_range(self, rows: int) -> int:
        assert isinstance(self.lattice, Lattice)
        return rows * (max(self.lattice.highest, 0) - min(self.lattice.lowest, 0))


class ClippedUnitSum(ValueSum):
    """The sum of a column, clipped for each unit and partition."""

    kind = "clipped_sum"

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        assert self.lattice is not None
        return _once_per_partition(self.lattice.largest, max_partitions)

    def per_partition(self, kept: ShardRows) -> Integers:
        assert isinstance(self.lattice, SummandLattice)
        return kept.clipped_sums(self.column or "", self.lattice)

    def score_range(self, rows: int) -> int:
        assert isinstance(self.lattice, SummandLattice)
        low, high = self.lattice.clip_bounds
        return max(high, 0) - min(low, 0)


class DistinctValues(Statistic):
    """Different values of a column."""

    kind = "distinct"
    counts = True

    @property
    def in_lists(self) -> bool:
        """Return True: values travel, to be counted where all values of a partition meet."""
        return True

    @property
    def name(self) -> str:
        if self.most is None:
            return super().name
        return f"{self.kind}({self.column!r}, at most {self.most} of a unit)"

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        return _once_per_partition((self.most or max_rows_per_partition) << COUNT_BITS, max_partitions)

    def score_range(self, rows: int) -> int:
        return self.most or rows


class CellCounts(Statistic):
    """Rows by the cells into which a column's values fall."""

    kind = "cells"
    counts = True

    @property
    def name(self) -> str:
        assert self.cells is not None
        return f"{self.kind}({self.column} in {self.cells.name})"

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        if max_rows is not None:
            return _of_rows(1 << COUNT_BITS, max_partitions, max_rows_per_partition, max_rows)
        # Each kept row counts in one cell, which may be the same for all rows of a partition.
        rows = max_partitions * max_rows_per_partition
        return Shape(unit=1 << COUNT_BITS, coordinates=rows, per_coordinate=max_rows_per_partition, in_total=rows)


class DecidingCounts(CellCounts):
    """Exact counts out of which a mechanism decides one number for each partition."""

    decided = True

    @property
    def follows_partitions(self) -> bool:
        """Return False: a decision has an epsilon, and no noise in units."""
        return False

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        """Return the shape of one decision in each partition, for any number of rows."""
        return _once_per_partition(1 << COUNT_BITS, max_partitions)


class RankCounts(DecidingCounts):
    """The ranks of candidates: rows by the cells around them."""

    kind = "cells"


class MedianCounts(DecidingCounts):
    """Rows by the points of a range nearest to them, for a median with smooth sensitivity."""

    kind = "smooth_median"


class ManySums(Statistic):
    """Many sums for each partition."""

    @property
    def name(self) -> str:
        assert self.vectors is not None
        return f"{self.kind}({f'{self.column}: ' if self.column else ''}{self.vectors.name})"

    @property
    def fine_step(self) -> float:
        return 1.0


class VectorSums(ManySums):
    """The sum of a column of lists, clipped for each unit and partition."""

    kind = "vector_sum"

    @property
    def fine_step(self) -> float:
        assert isinstance(self.vectors, VectorLattice)
        return self.vectors.step

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        """Return the shape of a vector of norm `bound` in each partition."""
        assert isinstance(self.vectors, VectorLattice)
        every, size, bound = max_partitions * self.vectors.size, self.vectors.size, self.vectors.bound
        if self.vectors.norm == "linf":
            return Shape(unit=bound, coordinates=every, per_coordinate=1, in_total=every)
        # Of L2 norm 1 each, they have an L1 norm of at most sqrt(size).
        total = max_partitions if self.vectors.norm == "l1" else math.isqrt(max_partitions**2 * size - 1) + 1
        return Shape(unit=bound, coordinates=every, per_coordinate=1, in_total=total, squares=max_partitions)


class ProductSums(ManySums):
    """The second moments of some columns: sums of products in steps of two features each."""

    kind = "second_moments"

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        assert isinstance(self.vectors, Moments)
        # Partitions, or rows if these are bounded in all; how many may fall on one partition; how many rows each one represents.
        rows = max_partitions if max_rows is None else max_rows
        together, times = (1, max_rows_per_partition) if max_rows is None else (rows, 1)
        unit, every = LARGEST**2 * times, rows * self.vectors.width
        if self.vectors.ranges is not None:  # each product is at most the square of the largest
            return Shape(unit=unit, coordinates=every, per_coordinate=together, in_total=every)
        # With |x| = 1 the L1 norm is (|x|_1^2 + 1) / 2 <= (k + 1) / 2, the L2 norm at most 1.
        total = -(-rows * (len(self.vectors.columns) + 1) // 2)
        return Shape(unit=unit, coordinates=every, per_coordinate=together, in_total=total, squares=rows * together)


class TrainingSums(ManySums):
    """Sums of one clipped vector for each unit, which `dp_pipelines.training` computes."""

    kind = "clipped_vectors"

    @property
    def of_units(self) -> ClippedVectors:
        """Return the vectors."""
        assert isinstance(self.vectors, ClippedVectors)
        return self.vectors

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        return self.of_units.shape


def vectors_of(statistics: Sequence[Statistic]) -> list[Statistic]:
    """Return the statistics with vectors, each once, in a fixed order."""
    return list(dict.fromkeys(s for s in statistics if s.vectors is not None))


def cells_of(statistics: Sequence[Statistic]) -> list[tuple[str, Cells]]:
    """Return the columns and finest cells that statistics count, each once, in a fixed order."""
    return list(dict.fromkeys((s.column or "", s.cells.finest) for s in statistics if s.cells is not None))


def distinct_of(statistics: Sequence[Statistic]) -> list[tuple[str, int | None]]:
    """Return the columns whose different values statistics count, with how many of a unit do, each once, in a fixed order."""
    return list(dict.fromkeys((s.column or "", s.most) for s in statistics if isinstance(s, DistinctValues)))
