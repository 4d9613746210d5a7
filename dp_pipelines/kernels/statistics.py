"""What is summed for each partition: the integer statistics and how far one privacy unit can move each.

In: declared names and lattices. Out: frozen descriptions that kernels compute and plans pay for. Holds: `shape` gives a
bound on the change of the statistic when all rows of one unit are added or removed (docs/proofs/sensitivity.md); it is a
law about `kernels.accumulate` that tests/privacy checks on integers. May import errors, kernels.lattice.
"""

import dataclasses
from typing import Literal

from dp_pipelines.kernels.lattice import Lattice, SummandLattice

Kind = Literal["rows", "units", "not_null", "sum", "clipped_sum", "weights"]

COUNT_BITS = 20
"""Counts are released on a lattice of 2**-20, so that noise scales fit them closely. Accumulators hold whole counts."""

WEIGHT_BITS = 20
"""A unit's weight in weighted selection is at most 2**20, spread over its partitions with an L2 norm of at most 2**20."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """How one privacy unit's rows can move a statistic, in units of `unit` fine lattice steps.

    Args:
        unit: fine lattice steps of one unit of change.
        coordinates: in how many partitions the statistic can change (L0).
        per_coordinate: units of change in one partition (Linf).
        in_total: units of change over all partitions (L1).
    """

    unit: int
    coordinates: int
    per_coordinate: int
    in_total: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistic:
    """One integer per partition.

    Args:
        kind: `rows` kept; `units` with a kept row; `not_null` rows of a column; `sum` of a column's lattice values;
            `clipped_sum` of a column, clipped for each unit and partition; `weights` of the units for weighted selection.
        column: the column that is read, for the last kinds but `weights`.
        lattice: how its values become integers.

    >>> Statistic(kind="rows").name
    'rows'
    """

    kind: Kind
    column: str | None = None
    lattice: Lattice | SummandLattice | None = None

    @property
    def name(self) -> str:
        """A name that two statistics share only if they are the same."""
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
        return COUNT_BITS if self.kind in ("rows", "units", "not_null") else 0

    @property
    def fine_step(self) -> float:
        """The width of one step of the fine lattice, in units of the statistic."""
        if self.kind == "weights":
            return 2.0**-WEIGHT_BITS
        return 2.0**-COUNT_BITS if self.lattice is None else self.lattice.step

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        """How far one unit moves this statistic under the given bounds.

        Args:
            max_partitions: partitions of one unit (L0).
            max_rows_per_partition: rows of one unit in one partition (Linf).
            max_rows: rows of one unit in all, where that is what is bounded; else None.
        """
        if self.kind == "weights":
            raise ValueError("the shape of weights is an L2 norm: see dp_pipelines.selection.thresholds")
        per_row = 1 << self.fine_bits if self.lattice is None else self.lattice.largest
        if self.kind in ("units", "clipped_sum"):
            return Shape(unit=per_row, coordinates=max_partitions, per_coordinate=1, in_total=max_partitions)
        if max_rows is not None:
            return Shape(unit=per_row, coordinates=max_rows, per_coordinate=max_rows, in_total=max_rows)
        unit = per_row * max_rows_per_partition
        return Shape(unit=unit, coordinates=max_partitions, per_coordinate=1, in_total=max_partitions)
