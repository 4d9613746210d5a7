"""Sensitivities of statistics, counted a second time from the bounds that a job declares.

In: a statistic, a query. Out: `Reach`, whole numbers. Holds: nothing here calls planning, nor the shapes that statistics state;
the formulas are those of docs/proofs, written down again. The gate and the audit share them, and planning does not. Not covered:
how far kernels let a unit move a statistic (tests/privacy); the groups of a rollup's level, which `audit.recount` counts.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.moments import LARGEST, Moments
from dp_pipelines.kernels.sensitivity import LatticeSteps
from dp_pipelines.kernels.statistics import (
    COUNT_BITS,
    CellCounts,
    ClippedUnitSum,
    DecidingCounts,
    DistinctValues,
    ProductSums,
    RowCount,
    Statistic,
    TrainingSums,
    UnitCount,
    ValueSum,
    VectorSums,
)
from dp_pipelines.kernels.vectors import VectorLattice
from dp_pipelines.metrics.unit_moments import UnitProducts
from dp_pipelines.query.contribution_bounds import ContributionBounds
from dp_pipelines.query.query import Query


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeclaredBounds:
    """The bounds that the owner of a job declares.

    Args:
        partitions: of one unit.
        rows_of_partition: rows of one unit in one partition; 1 where no metric looks at rows.
        rows: of one unit in all, where that is what is bounded.
    """

    partitions: int
    rows_of_partition: int
    rows: int | None

    @classmethod
    def of(cls, declared: ContributionBounds) -> "DeclaredBounds":
        """Return the bounds of a job; with the largest candidate where a run chooses a bound."""
        rows = declared.max_contributions
        if rows is not None:
            return cls(partitions=rows, rows_of_partition=rows, rows=rows)
        partitions = declared.max_partitions_contributed
        if declared.partition_candidates is not None:
            partitions = max(declared.partition_candidates)
        assert isinstance(partitions, int)
        of_partition = declared.max_contributions_per_partition or 1
        if declared.row_candidates is not None:
            of_partition = max(declared.row_candidates)
        assert isinstance(of_partition, int)
        return cls(partitions=partitions, rows_of_partition=of_partition, rows=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reach:
    """The change that one unit can make to a statistic, in units of `unit` fine lattice steps.

    Args:
        unit: fine lattice steps.
        coordinates: integers that change.
        per_coordinate: units in one of them.
        in_total: units in all of them.
        squares: the square of the L2 norm in units, where changes need not be whole units.
    """

    unit: int
    coordinates: int
    per_coordinate: int
    in_total: int
    squares: int | None = None

    @property
    def l2_squared(self) -> int:
        """Return the square of the L2 norm, in units: the sum of squares is at most the largest times the sum."""
        return self.in_total * self.per_coordinate if self.squares is None else self.squares

    def grouped(self, leaves: int | None, groups: int | None) -> "Reach":
        """Return the reach of sums over groups of partitions (docs/proofs/rollup.md, lemma 1).

        Args:
            leaves: partitions in the largest group; None: any number.
            groups: how many groups there are; None: any number.
        """
        assert self.squares is None
        in_one = self.in_total if leaves is None else min(leaves * self.per_coordinate, self.in_total)
        many = self.coordinates if groups is None else min(groups, self.coordinates)
        total = self.in_total if groups is None else min(groups * in_one, self.in_total)
        return Reach(unit=self.unit, coordinates=many, per_coordinate=in_one, in_total=total)

    def reserved(self, candidates: Sequence[int]) -> "Reach":
        """Return what is paid for all candidates of a bound on partitions (docs/proofs/sensitivity.md, lemma 6b)."""
        assert self.squares is None
        times = math.ceil(Fraction(max(candidates), min(candidates)))
        return dataclasses.replace(self, per_coordinate=self.per_coordinate * times, squares=self.l2_squared)

    def exactly(self, steps: int, units: int) -> LatticeSteps:
        """Return the change where `units` units are `steps` release steps, so that rounding adds nothing."""
        if units > 1:
            return self._at_one_place(Fraction(steps, units))
        return LatticeSteps(
            l0=self.coordinates,
            linf=steps * self.per_coordinate,
            l1=steps * self.in_total,
            l2_squared=steps**2 * self.l2_squared,
        )

    def rounded(self, step: int, *, joined: bool) -> LatticeSteps:
        """Return the change on a release lattice (docs/proofs/sensitivity.md, 4; docs/proofs/vectors.md, 3).

        Args:
            step: fine lattice steps of a release step.
            joined: whether units that fall on one integer are rounded together.
        """
        if self.squares is not None:
            return self._rounded_vector(step, self.squares)
        if joined and 1 < self.in_total == self.per_coordinate:
            return self._at_one_place(Fraction(self.unit, step))
        each = math.ceil(Fraction(self.unit, step))
        most = each * self.per_coordinate
        return LatticeSteps(
            l0=self.coordinates, linf=most, l1=each * self.in_total, l2_squared=most * each * self.in_total
        )

    def _at_one_place(self, steps: Fraction) -> LatticeSteps:
        """Return the change if all units fall on one integer (lemma 6c)."""
        units = self.per_coordinate
        most, total = math.ceil(units * steps), units * math.ceil(steps)
        squared = most * most
        if steps < 1:
            together, apart = (units * steps + 1) ** 2, units * (steps + 1) ** 2
            squared = min(math.ceil(max(together, apart)), most * total)
        return LatticeSteps(l0=self.coordinates, linf=most, l1=total, l2_squared=squared)

    def _rounded_vector(self, step: int, squares: int) -> LatticeSteps:
        """Return the change after rounding, which adds less than one step to each coordinate.

        That is a vector of norm below sqrt(coordinates).
        """
        most = math.ceil(Fraction(self.per_coordinate * self.unit, step))
        total = max((self.in_total * self.unit + self.coordinates * (step - 1)) // step, most)
        # The squares of both norms, in fine steps; their root is rounded up.
        own, added = squares * self.unit**2, self.coordinates * (step - 1) ** 2
        product = 4 * own * added
        root = math.isqrt(product)
        norm = own + added + root + (root**2 < product)
        bound = min(norm // step**2, most * ((self.in_total * self.unit + self.coordinates * (step - 1)) // step))
        return LatticeSteps(l0=self.coordinates, linf=most, l1=total, l2_squared=max(bound, 1))


def _rows_of(largest: int, bounds: DeclaredBounds) -> Reach:
    """Return the reach of rows that each add up to `largest`: all rows of a partition count together, unless bounded in all."""
    if bounds.rows is None:
        return _in_each_partition(largest * bounds.rows_of_partition, bounds)
    return Reach(unit=largest, coordinates=bounds.rows, per_coordinate=bounds.rows, in_total=bounds.rows)


def _in_each_partition(unit: int, bounds: DeclaredBounds) -> Reach:
    return Reach(unit=unit, coordinates=bounds.partitions, per_coordinate=1, in_total=bounds.partitions)


def _of_unit_products(statistic: Statistic, bounds: DeclaredBounds) -> Reach:
    """Return the reach of products: a unit adds one to each of its partitions (docs/proofs/comparisons.md, 2)."""
    assert isinstance(statistic, UnitProducts)
    return _in_each_partition(statistic.largest, bounds)


def _of_cells(statistic: Statistic, bounds: DeclaredBounds) -> Reach:
    one = 1 << COUNT_BITS
    if bounds.rows is not None:
        return _rows_of(one, bounds)
    rows = bounds.rows_of_partition * bounds.partitions
    return Reach(unit=one, coordinates=rows, per_coordinate=bounds.rows_of_partition, in_total=rows)


def _of_vectors(statistic: Statistic, bounds: DeclaredBounds) -> Reach:
    vectors = statistic.vectors
    assert isinstance(vectors, VectorLattice)
    numbers = vectors.size * bounds.partitions
    if vectors.norm == "linf":
        return Reach(unit=vectors.bound, coordinates=numbers, per_coordinate=1, in_total=numbers)
    total = bounds.partitions
    if vectors.norm == "l2":  # an L1 norm of at most sqrt(size) each, rounded up
        square = vectors.size * bounds.partitions**2
        total = math.isqrt(square)
        total += total**2 < square
    return Reach(unit=vectors.bound, coordinates=numbers, per_coordinate=1, in_total=total, squares=bounds.partitions)


def _of_products(statistic: Statistic, bounds: DeclaredBounds) -> Reach:
    vectors = statistic.vectors
    assert isinstance(vectors, Moments)
    if bounds.rows is None:
        vectors_of_unit, at_one_place, unit = bounds.partitions, 1, LARGEST**2 * bounds.rows_of_partition
    else:
        vectors_of_unit, at_one_place, unit = bounds.rows, bounds.rows, LARGEST**2
    numbers = vectors.width * vectors_of_unit
    if vectors.ranges is not None:
        return Reach(unit=unit, coordinates=numbers, per_coordinate=at_one_place, in_total=numbers)
    return Reach(
        unit=unit,
        coordinates=numbers,
        per_coordinate=at_one_place,
        in_total=math.ceil(Fraction(vectors_of_unit * (len(vectors.columns) + 1), 2)),
        squares=at_one_place * vectors_of_unit,
    )


def _of_training(statistic: Statistic, bounds: DeclaredBounds) -> Reach:
    assert isinstance(statistic, TrainingSums)
    vectors = statistic.of_units
    whole = math.ceil(vectors.squares)
    return Reach(unit=1 << 40, coordinates=vectors.times * vectors.size, per_coordinate=1, in_total=whole)


def _largest(statistic: Statistic) -> int:
    """Return the largest number of lattice steps that a value can be."""
    assert statistic.lattice is not None
    return statistic.lattice.largest


REACHES: Mapping[type[Statistic], Callable[[Statistic, DeclaredBounds], Reach]] = {
    # The first that a statistic is an instance of: subclasses come first.
    UnitCount: lambda statistic, bounds: _in_each_partition(1 << COUNT_BITS, bounds),
    RowCount: lambda statistic, bounds: _rows_of(1 << COUNT_BITS, bounds),
    ClippedUnitSum: lambda statistic, bounds: _in_each_partition(_largest(statistic), bounds),
    ValueSum: lambda statistic, bounds: _rows_of(_largest(statistic), bounds),
    DistinctValues: lambda statistic, bounds: _in_each_partition(
        (statistic.most or bounds.rows_of_partition) * (1 << COUNT_BITS), bounds
    ),
    UnitProducts: _of_unit_products,
    DecidingCounts: lambda statistic, bounds: _in_each_partition(1 << COUNT_BITS, bounds),
    CellCounts: _of_cells,
    VectorSums: _of_vectors,
    ProductSums: _of_products,
    TrainingSums: _of_training,
}


def reach(statistic: Statistic, query: Query) -> Reach:
    """Return how far one unit moves a statistic of a query.

    Args:
        statistic: not the weights of a selection, of which a norm is bounded.
        query: with recounted levels (`recounted`).

    Raises:
        LookupError: no statistic of its kind is known here.
    """
    kind = next((kind for kind in REACHES if isinstance(statistic, kind)), None)
    if kind is None:
        raise LookupError(f"how far a unit moves {statistic.kind} is not known here")
    by_unit, level = REACHES[kind](statistic, DeclaredBounds.of(query.bounds)), query.level
    if level is not None:
        once_in_each = level.leaves or isinstance(statistic, UnitCount)
        return by_unit.grouped(1 if once_in_each else level.most_leaves, level.groups)
    if query.bounds.partition_candidates is not None or query.bounds.row_candidates is not None:
        return by_unit.reserved(query.bounds.partition_candidates or (1,))
    return by_unit


def loose_bounds(layout: Layout, query: Query) -> list[str]:
    """Describe each bound given to workers that lets through more than the job declares, or none where it declares one."""
    declared = DeclaredBounds.of(query.bounds)
    pairs = (
        ("partitions of a unit", layout.max_partitions, declared.partitions),
        ("rows of a unit in a partition", layout.max_rows_per_partition, declared.rows_of_partition),
        ("rows of a unit", layout.max_rows, declared.rows),
    )
    return [
        f"{what}: {'none' if runs is None else runs} runs, {bound} is declared"
        for what, runs, bound in pairs
        if bound is not None and (runs is None or runs > bound)
    ]
