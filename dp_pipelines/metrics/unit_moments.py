"""A metric for moments of units' totals: the sum over units of one total of each, or of products of two.

In: totals of one unit's kept rows in a partition, and the bound on these rows. Out: a statistic whose integers are sums of such
products, on a lattice of their own; the metric `UnitMoment`. Holds: a unit adds one product of at most `largest` to each of its
partitions, enforced on the integers (docs/proofs/comparisons.md, 2); products are rounded unit by unit, so that order, batches
and shards change nothing. Not covered: the use of moments (`release.arm_comparisons`); no job file can ask for one alone.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.lattice import VALUE_BITS, Integers
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.kernels.statistics import ShardRows, Statistic
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues, constant

Whole = TypeVar("Whole", int, Integers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitProducts(Statistic):
    """The sum over units of the product of two totals; of one total with itself, of squares.

    Args:
        factors: the totals: counts of rows, or sums whose lattice is not centred.
        rows: of one unit in one partition, at most.

    >>> from dp_pipelines.kernels.statistics import RowCount
    >>> squares = UnitProducts(factors=(RowCount(), RowCount()), rows=20)
    >>> squares.largest * squares.fine_step
    400.0
    """

    kind = "unit_products"
    factors: tuple[Statistic, Statistic]
    rows: int

    def __post_init__(self) -> None:
        if not 1e-100 < self.largest * self.fine_step < 1e100:
            raise RequestError(
                field="compare.metrics",
                message="have totals of a unit whose products may be above 1e100, or vanish",
                hint="write values in other units, e.g. thousands",
            )

    @property
    def name(self) -> str:
        """Return the factors, and the rows, which determine the lattice."""
        return f"{self.kind}({' x '.join(factor.name for factor in self.factors)}; at most {self.rows} rows)"

    def total(self, factor: Statistic) -> int:
        """Return the largest magnitude of one unit's total, as accumulators store it."""
        shape = factor.shape(max_partitions=1, max_rows_per_partition=self.rows, max_rows=None)
        return shape.unit >> factor.fine_bits

    @property
    def largest(self) -> int:
        """Return the largest magnitude of a unit's product."""
        return _rounded(self._of_scaled, self._shift)

    @property
    def fine_step(self) -> float:
        """Return the fine step in units of the product; infinite or 0 if it does not fit a float64."""
        exponent, mantissa = self._shift, 1.0
        for factor in self.factors:
            step = math.frexp(factor.fine_step)
            mantissa, exponent = mantissa * step[0], exponent + step[1] + factor.fine_bits + self._reduced(factor)
        try:
            return math.ldexp(mantissa, exponent)
        except OverflowError:
            return math.inf

    def shape(self, *, max_partitions: int, max_rows_per_partition: int, max_rows: int | None) -> Shape:
        return Shape(unit=self.largest, coordinates=max_partitions, per_coordinate=1, in_total=max_partitions)

    def per_partition(self, kept: ShardRows) -> Integers:
        first, second = (self._scaled(factor, kept.unit_totals(factor)) for factor in self.factors)
        return kept.sums_of_units(self.products(first, second))

    def products(self, first: Integers, second: Integers) -> Integers:
        """Return the products of scaled totals on the lattice, each at most `largest`.

        Args:
            first, second: int64 of the same shape.
        """
        return np.clip(_rounded(first * second, self._shift), -self.largest, self.largest)

    def _scaled(self, factor: Statistic, totals: Integers) -> Integers:
        """Return totals in 30 bits, so that a product fits into 60."""
        bits = self._reduced(factor)
        most = _rounded(self.total(factor), bits)
        return np.clip(_rounded(totals, bits), -most, most)

    def _reduced(self, factor: Statistic) -> int:
        """Return by how many bits a total is shortened."""
        return max(0, self.total(factor).bit_length() - VALUE_BITS)

    @property
    def _of_scaled(self) -> int:
        """Return the largest product of scaled totals."""
        first, second = (_rounded(self.total(factor), self._reduced(factor)) for factor in self.factors)
        return first * second

    @property
    def _shift(self) -> int:
        """Return by how many bits a product is shortened; lengthened if it is negative."""
        return self._of_scaled.bit_length() - VALUE_BITS


@dataclasses.dataclass(frozen=True)
class UnitMoment(Metric):
    """The sum over units of one total of each, or of the product of two.

    Args:
        factors: one total or two, which may be the same.
        rows: of one unit in one partition, at most.

    >>> from dp_pipelines.kernels.statistics import RowCount
    >>> UnitMoment(factors=(RowCount(), RowCount()), rows=5).statistics(Basis(centred=False, nullable=True))[0].name
    'unit_products(rows x rows; at most 5 rows)'
    """

    needs_row_bound = False
    factors: tuple[Statistic, ...] = dataclasses.field(kw_only=True)
    rows: int = dataclasses.field(kw_only=True)

    @property
    def statistic(self) -> Statistic:
        """Return the statistic that is summed."""
        if len(self.factors) == 1:
            return self.factors[0]
        first, second = self.factors
        return UnitProducts(factors=(first, second), rows=self.rows)

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(factor.column for factor in self.factors if factor.column is not None))

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (self.statistic,)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        return constant(noisy[self.statistic])


def _rounded(value: Whole, bits: int) -> Whole:
    """Round off the last bits, to the nearest, halves up; add bits if their number is negative.

    >>> _rounded(6, 2), _rounded(-6, 2), _rounded(3, -2)
    (2, -1, 12)
    """
    return (value + (1 << bits - 1)) >> bits if bits > 0 else value << -bits
