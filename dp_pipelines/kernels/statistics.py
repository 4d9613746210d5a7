"""What is summed for each partition: the integer statistics and how far one privacy unit can move each.

In: declared names and lattices. Out: frozen descriptions that kernels compute and plans pay for. Holds: `shape` gives a
bound on the change of the statistic when all rows of one unit are added or removed (docs/proofs/sensitivity.md); it is a
law about `kernels.accumulate` that tests/privacy checks on integers.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from dp_pipelines.kernels.cells import Cells
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.moments import LARGEST, Moments
from dp_pipelines.kernels.sensitivity import Shape as Shape
from dp_pipelines.kernels.vectors import VectorLattice

Kind = Literal[
    "rows",
    "units",
    "not_null",
    "sum",
    "clipped_sum",
    "weights",
    "cells",
    "ranks",
    "smooth_median",
    "distinct",
    "vector_sum",
    "second_moments",
    "clipped_vectors",
]

COUNT_BITS = 20
"""Counts are released on a lattice of 2**-20, so that noise scales fit them closely. Accumulators hold whole counts."""

COUNTED = ("rows", "units", "not_null", "cells", "ranks", "smooth_median", "distinct")
"""Kinds whose accumulators hold whole counts."""

DECIDED = ("ranks", "smooth_median")
"""Kinds of which one number comes out of many exact counts, by a mechanism of its own: no noise is added to the counts."""

WEIGHT_BITS = 20
"""A unit's weight in weighted selection is at most 2**20, spread over its partitions with an L2 norm of at most 2**20."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistic:
    """One integer per partition, or one for each cell of a partition.

    Args:
        kind: `rows` kept; `units` with a kept row; `not_null` rows of a column; `sum` of a column's lattice values;
            `clipped_sum` of a column, clipped for each unit and partition; `weights` of the units for weighted selection;
            rows by the `cells` into which a column's values fall; `ranks` of candidates, by cells around them; rows by the points
            nearest to them, for a median (`smooth_median`); different values of a column (`distinct`);
            `vector_sum` of a column of lists, clipped for each unit and partition; `second_moments` of some columns;
            `clipped_vectors`, one for each unit, which `dp_pipelines.training` computes.
        column: the column that is read, where one is.
        lattice: how its values become integers.
        cells: the cells that are counted.
        most: how many different values of one unit count in one partition; None: as many as rows of it.
        vectors: of statistics with many integers for a partition, how rows become integers.

    >>> Statistic(kind="rows").name
    'rows'
    """

    kind: Kind
    column: str | None = None
    lattice: Lattice | SummandLattice | None = None
    cells: Cells | None = None
    most: int | None = None
    vectors: VectorLattice | Moments | ClippedVectors | None = None

    @property
    def width(self) -> int | None:
        """How many integers a partition has; None where there is one."""
        if self.vectors is not None:
            return self.vectors.width
        return None if self.cells is None else self.cells.count

    @property
    def name(self) -> str:
        """A name that two statistics share only if they are the same."""
        if self.cells is not None:
            kind = self.kind if self.kind == "smooth_median" else "cells"
            return f"{kind}({self.column} in {self.cells.name})"
        if self.vectors is not None:
            return f"{self.kind}({f'{self.column}: ' if self.column else ''}{self.vectors.name})"
        if self.most is not None:
            return f"{self.kind}({self.column!r}, at most {self.most} of a unit)"
        if self.lattice is None:
            return self.kind if self.column is None else f"{self.kind}({self.column})"
        low, high = self.lattice.low, self.lattice.high
        form = ""
        if isinstance(self.lattice, Lattice):
            form = ("squares" if self.lattice.square else "values") + (
                " from the middle" if self.lattice.centre_used else ""
            )
        return f"{self.kind}({self.column} in [{low!r}, {high!r}]{', ' + form if form else ''})"

    @property
    def fine_bits(self) -> int:
        """By how many bits an accumulated integer is shifted left to the fine lattice of its release."""
        return COUNT_BITS if self.kind in COUNTED else 0

    @property
    def fine_step(self) -> float:
        """The width of one step of the fine lattice, in units of the statistic."""
        if self.kind == "weights":
            return 2.0**-WEIGHT_BITS
        if self.vectors is not None:  # moments are products in steps of two features each
            return self.vectors.step if isinstance(self.vectors, VectorLattice) else 1.0
        return 2.0**-COUNT_BITS if self.lattice is None else self.lattice.step

    @property
    def follows_partitions(self) -> bool:
        """Whether one unit moves this by whole units whose number is in proportion to its bound on partitions.

        So it is with all but choices by ranks and lists of numbers that are clipped to an L1 or L2 norm.
        """
        if self.kind in (*DECIDED, "weights"):
            return False
        return self.shape(max_partitions=1, max_rows_per_partition=1, max_rows=None).squares is None

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        """How far one unit moves this statistic under the given bounds.

        Args:
            max_partitions: partitions of one unit (L0).
            max_rows_per_partition: rows of one unit in one partition (Linf).
            max_rows: rows of one unit in all, where that is what is bounded; else None.
        """
        if self.kind == "weights":
            raise ValueError("the shape of weights is an L2 norm: see dp_pipelines.selection.thresholds")
        if isinstance(self.vectors, VectorLattice):
            return shape_of_vectors(self.vectors, max_partitions)
        if isinstance(self.vectors, ClippedVectors):
            return self.vectors.shape
        if self.vectors is not None:
            rows = max_partitions if max_rows is None else max_rows
            together, times = (1, max_rows_per_partition) if max_rows is None else (rows, 1)
            return shape_of_moments(self.vectors, rows, together, times)
        per_row = 1 << self.fine_bits if self.lattice is None else self.lattice.largest
        # What is decided by exact counts is one decision in each partition, whatever the unit's rows.
        if self.kind in ("units", "clipped_sum", *DECIDED):
            return Shape(unit=per_row, coordinates=max_partitions, per_coordinate=1, in_total=max_partitions)
        if self.kind == "cells" and max_rows is None:
            # Each kept row counts in one cell, which may be the same for all rows of a partition.
            rows = max_partitions * max_rows_per_partition
            return Shape(unit=per_row, coordinates=rows, per_coordinate=max_rows_per_partition, in_total=rows)
        if self.kind == "distinct":
            unit = per_row * (self.most or max_rows_per_partition)
            return Shape(unit=unit, coordinates=max_partitions, per_coordinate=1, in_total=max_partitions)
        if max_rows is not None:
            return Shape(unit=per_row, coordinates=max_rows, per_coordinate=max_rows, in_total=max_rows)
        unit = per_row * max_rows_per_partition
        return Shape(unit=unit, coordinates=max_partitions, per_coordinate=1, in_total=max_partitions)


def shape_of_vectors(lattice: VectorLattice, partitions: int) -> Shape:
    """The shape of sums that are clipped for each unit and partition: a vector of norm `bound` in each partition."""
    every, size = partitions * lattice.size, lattice.size
    if lattice.norm == "linf":
        return Shape(unit=lattice.bound, coordinates=every, per_coordinate=1, in_total=every)
    # Of L2 norm 1 each, they have an L1 norm of at most sqrt(size).
    total = partitions if lattice.norm == "l1" else math.isqrt(partitions**2 * size - 1) + 1
    return Shape(unit=lattice.bound, coordinates=every, per_coordinate=1, in_total=total, squares=partitions)


def shape_of_moments(moments: Moments, rows: int, together: int, times: int) -> Shape:
    """The shape of sums of products of features.

    Args:
        moments: the features.
        rows: partitions, or rows, of one unit.
        together: how many of these may fall on one partition.
        times: how many rows each stands for; 1 where rows are counted in all.
    """
    unit, every = LARGEST**2 * times, rows * moments.width
    if moments.ranges is not None:  # each product is at most the square of the largest
        return Shape(unit=unit, coordinates=every, per_coordinate=together, in_total=every)
    # With |x| = 1 the L1 norm is (|x|_1^2 + 1) / 2 <= (k + 1) / 2, the L2 norm at most 1.
    total = -(-rows * (len(moments.columns) + 1) // 2)
    return Shape(unit=unit, coordinates=every, per_coordinate=together, in_total=total, squares=rows * together)


def vectors_of(statistics: Sequence[Statistic]) -> list[Statistic]:
    """The statistics with vectors, each once, in a fixed order."""
    return list(dict.fromkeys(s for s in statistics if s.vectors is not None))


def cells_of(statistics: Sequence[Statistic]) -> list[tuple[str, Cells]]:
    """The columns and finest cells that statistics count, each once, in a fixed order."""
    return list(dict.fromkeys((s.column or "", s.cells.finest) for s in statistics if s.cells is not None))


def distinct_of(statistics: Sequence[Statistic]) -> list[tuple[str, int | None]]:
    """The columns whose different values statistics count, with how many of a unit do, each once, in a fixed order."""
    return list(dict.fromkeys((s.column or "", s.most) for s in statistics if s.kind == "distinct"))
