"""Sums, means and variances of a column's values, each value (or each unit's sum) clamped to declared bounds.

In: a column and its bounds (`over_column`), which are public, by partition or for all, or chosen from a noisy histogram. Out: the
metrics `Sum`, `Mean`, `Variance`. Holds: metrics with one column and equal bounds share their sums and their basis. Not covered:
what clamping cuts off.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.lattice import Floats, Lattice, SummandLattice
from dp_pipelines.kernels.statistics import ClippedUnitSum, Statistic
from dp_pipelines.metrics import weighted_mean
from dp_pipelines.metrics.base import Basis, KeptBy, Metric, Noisy, ReleasedValues, constant
from dp_pipelines.metrics.good_from import WITHIN, GoodFrom, Level, of_amount, of_mean, reach
from dp_pipelines.metrics.lookup_bound import PartitionScale
from dp_pipelines.metrics.over_column import OverColumn
from dp_pipelines.metrics.shrinkage import shrunk

PLAIN = Basis(centred=False, nullable=True)
"""The basis of one unit's totals."""


@dataclasses.dataclass(frozen=True)
class Sum(OverColumn):
    """The sum of a column, nulls left out.

    Args:
        column: the column that is summed.
        min_value, max_value: each value is clamped to this range; `auto` has the bound chosen from a noisy histogram, for a
            tenth of the stage's budget, by `dp-pipelines run`; a column of the job's `lookup` gives
            each partition a bound of its own, and noise in proportion.
        within: where a bound is `auto`, the range, from public knowledge, in which it is chosen.
        min_sum_per_partition, max_sum_per_partition: instead of bounds of single values: the sum of one unit's values in one
            partition is clipped to this range (all its rows count; a single value is first clamped to 65,536 times the larger
            bound).

    >>> Sum("amount", min_value=0, max_value=200).family
    ('amount', 0.0, 200.0)
    >>> Sum("amount", min_sum_per_partition=0, max_sum_per_partition=500).needs_row_bound
    False
    """

    kind, words = "sum", "the sum of a column"
    kept_by = "sum"
    judged, ranks, tuned_as = "zero", True, "sum"
    takes_stddev, rolls_up = True, "sum"
    min_sum_per_partition: float | None = dataclasses.field(default=None, kw_only=True)
    max_sum_per_partition: float | None = dataclasses.field(default=None, kw_only=True)

    def _check_bounds(self) -> None:
        if not self.clips_partition_sums:
            super()._check_bounds()
            if self.low == self.high == 0:
                raise RequestError(field="max_value", message="leaves only the value 0 to sum", hint="widen the range")
            Lattice.for_values(self.low, self.high)
            return
        if self.min_value is not None or self.max_value is not None or self.within is not None:
            raise RequestError(
                field="min_sum_per_partition",
                message="clips sums and stands beside no bounds of single values",
                hint="drop min_value and max_value, or the bounds of sums",
            )
        for field in ("min_sum_per_partition", "max_sum_per_partition"):
            object.__setattr__(self, field, checks.number(getattr(self, field), field) + 0.0)  # as above
        low, high = self._sum_bounds
        if not low <= high:
            raise RequestError(
                field="min_sum_per_partition", message="must not be above max_sum_per_partition", hint="swap the two"
            )
        SummandLattice.for_sums(low, high)

    @property
    def clips_partition_sums(self) -> bool:  # type: ignore[override]
        """Return True if a unit's sum per partition is clipped, instead of each value."""
        return self.min_sum_per_partition is not None or self.max_sum_per_partition is not None

    @property
    def needs_row_bound(self) -> bool:  # type: ignore[override]
        return not self.clips_partition_sums

    @property
    def scale(self) -> PartitionScale | None:  # type: ignore[override]
        """Return multiples of the larger bound, whose sum needs no count; from 0 on these are the shares of the range."""
        return self._scale(of_range=self.min_value == 0)

    @property
    def never_negative(self) -> bool:
        return (self._sum_bounds[0] if self.clips_partition_sums else self.low) >= 0

    def unscaled(self, scaled: ReleasedValues, low: Floats, high: Floats) -> ReleasedValues:
        assert self.scale is not None
        unit = self.scale.unit(low, high)
        return scaled[0] * unit, scaled[1] * unit

    @property
    def _sum_bounds(self) -> tuple[float, float]:
        assert self.min_sum_per_partition is not None
        assert self.max_sum_per_partition is not None
        return self.min_sum_per_partition, self.max_sum_per_partition

    @property
    def family(self) -> tuple[str, float, float] | None:
        return None if self.clips_partition_sums else super().family

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        if self.clips_partition_sums:
            lattice = SummandLattice.for_sums(*self._sum_bounds)
            return (ClippedUnitSum(column=self.column, lattice=lattice),)
        return (self._sum(basis), self._count(basis)) if basis.centred else (self._sum(basis),)

    @property
    def totals(self) -> tuple[Statistic, ...]:
        return self.statistics(PLAIN)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        statistic = self.statistics(basis)[0]
        total = noisy[statistic]
        if not basis.centred or self.clips_partition_sums:
            return constant(total)
        assert statistic.lattice is not None
        count, centre = noisy[self._count(basis)], statistic.lattice.offset
        stddev = np.hypot(total.stddev, centre * count.stddev)
        return total.values + centre * count.values, np.full(len(total.values), stddev)

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        if self.scale is not None:
            return ()
        if self.clips_partition_sums:
            far = reach([(1.0, levels[self.statistics(basis)[0]])])
            return (of_amount(far, self._sum_bounds, "users"),)
        statistic = self._sum(basis)
        assert statistic.lattice is not None
        parts = [(1.0, levels[statistic])]
        if basis.centred:
            parts.append((statistic.lattice.offset, levels[self._count(basis)]))
        if not self.auto:
            return (of_amount(reach(parts), (self.low, self.high), "rows"),)
        if basis.centred:  # how its two noises add up follows from the bounds that are chosen
            return ()
        times = reach(parts) / max(abs(self.low), abs(self.high))
        of = "times the larger of the bounds that the run chooses"
        return (GoodFrom(promise=f"within {WITHIN:.0%}", least=times / WITHIN, of=of, noise_below=times),)


def weighted_pairs(metrics: Mapping[str, Metric]) -> list[weighted_mean.SumPair]:
    """Return the weighted means whose sums are among the metrics of a query."""
    columns = {name: [metric.column] for name, metric in metrics.items() if isinstance(metric, Sum)}
    return weighted_mean.sum_pairs(columns)


@dataclasses.dataclass(frozen=True)
class _PerRow(OverColumn):
    """A metric of a column's values that divides by their number.

    Args:
        column: the column that is read.
        min_value, max_value: each value is clamped to this range; `auto` and bounds by partition as for `Sum`.
        within: where a bound is `auto`, the range, from public knowledge, in which it is chosen.
        nullable: False declares that the column holds no nulls, so that the mean shares the count of rows with `Count`
            and costs less. A null that is there all the same then counts as a row that adds nothing to the sum.
    """

    judged, stddev_is_public = "range", False
    nullable: bool = dataclasses.field(default=True, kw_only=True)

    def _farthest(self, basis: Basis) -> float:
        """Return the largest distance of a value from the point from which sums are counted."""
        statistic = self._sum(basis)
        assert statistic.lattice is not None
        return max(abs(self.low - statistic.lattice.offset), abs(self.high - statistic.lattice.offset))

    @staticmethod
    def _counted(basis: Basis) -> str:
        return "values" if basis.nullable else "rows"

    @property
    def value_range(self) -> tuple[float, float]:
        """Return the bounds of the values."""
        return self.low, self.high

    def _check_bounds(self) -> None:
        super()._check_bounds()
        if not isinstance(self.nullable, bool):
            raise RequestError(field="nullable", message="must be true or false")
        if not self.low < self.high:
            raise RequestError(field="min_value", message="must be below max_value", hint="widen the range")
        Lattice.for_values(self.low, self.high)
        Lattice.for_values(self.low, self.high, centred=True)


@dataclasses.dataclass(frozen=True)
class Mean(_PerRow):
    """The mean of a column's values that are not null, within [min_value, max_value].

    Args:
        column: the column that is averaged.
        min_value, max_value: each value is clamped to this range; `auto` and bounds by partition as for `Sum`.
        within: where a bound is `auto`, the range, from public knowledge, in which it is chosen.
        nullable: False declares that the column holds no nulls, so that the mean shares the count of rows with `Count`
            and costs less. A null that is there all the same then counts as a row that adds nothing to the sum.
        shrink: True publishes, for free, each mean pulled towards those of the other partitions as far as its noise makes that
            likely: closer to the truth where noise is large. The mean before that is published too, as `<name>_raw`.
        weight_column: the column of the weight of each row, for a weighted mean: two sums are released, and their quotient is
            computed from them. For job files, SQL and sessions.
        max_weight: each weight is clamped to the range from 0 to this number.

    >>> Mean("amount", min_value=0, max_value=200, nullable=False).statistics(Basis(centred=True, nullable=False))[1].name
    'rows'
    >>> Mean("amount", min_value=0, max_value=200, shrink=True).published("basket")
    ('basket', 'basket_stddev', 'basket_raw', 'basket_raw_stddev')
    """

    kind, words = "mean", "the mean of a column"
    kept_by: ClassVar[KeptBy | None] = "mean"
    tuned_as: ClassVar[str | None] = "mean"
    rolls_up = "derived"
    shrink: bool = dataclasses.field(default=False, kw_only=True)
    weight_column: str | None = dataclasses.field(default=None, kw_only=True)
    max_weight: float | None = dataclasses.field(default=None, kw_only=True)

    def _check_bounds(self) -> None:
        super()._check_bounds()
        if not isinstance(self.shrink, bool):
            raise RequestError(field="shrink", message="must be true or false")
        if self.weight_column is not None:
            weighted_mean.check(self, self.weight_column, self.max_weight)
        elif self.max_weight is not None:
            hint = "add e.g. weight_column: weight, or drop it"
            raise RequestError(field="max_weight", message="needs weight_column", hint=hint)

    def given(self, field: str) -> Any:
        # Jobs and queries without it say what they said before there was such a field.
        return super().given(field) if field != "shrink" or self.shrink else None

    @property
    def pools(self) -> bool:  # type: ignore[override]
        """Return True if it shrinks."""
        return self.shrink

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        if self.weight_column is not None:
            raise weighted_mean.refused_here()
        return (self._sum(basis), self._count(basis))

    @property
    def totals(self) -> tuple[Statistic, ...]:
        return self.statistics(dataclasses.replace(PLAIN, nullable=self.nullable))

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        statistic = self._sum(basis)
        assert statistic.lattice is not None
        total, count, centre = noisy[statistic], noisy[self._count(basis)], statistic.lattice.offset
        rows = np.maximum(count.values, 1.0)
        mean = np.clip(centre + total.values / rows, self.low, self.high)
        return mean, np.hypot(total.stddev, (mean - centre) * count.stddev) / rows

    def over_all(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        total, count = (noisy[statistic] for statistic in self.statistics(basis))
        lattice = self._sum(basis).lattice
        assert lattice is not None
        return shrunk(total, count, centre=lattice.offset, low=self.low, high=self.high)

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        if self.auto or self.scale is not None:
            return ()
        near = WITHIN * (self.high - self.low)
        return (
            of_mean(
                levels[self._sum(basis)],
                levels[self._count(basis)],
                farthest=self._farthest(basis),
                near=near,
                of=self._counted(basis),
                promise=f"within {near:.4g}, {WITHIN:.0%} of its range,",
                most=(self.high - self.low) / 2,
            ),
        )


@dataclasses.dataclass(frozen=True)
class Variance(_PerRow):
    """The population variance of a column's values that are not null; arguments as for `Mean`, without `shrink`.

    >>> len(Variance("amount", min_value=0, max_value=200).statistics(Basis(centred=True, nullable=True)))
    3
    """

    kind, words = "variance", "the variance of a column"

    @property
    def value_range(self) -> tuple[float, float]:
        """Return 0 and the largest variance within the bounds."""
        half_width = (self.high - self.low) / 2
        return 0.0, half_width * half_width

    def _check_bounds(self) -> None:
        super()._check_bounds()
        Lattice.for_squares(self.low, self.high)
        Lattice.for_squares(self.low, self.high, centred=True)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (self._sum(basis), self._count(basis), self._squares(basis))

    def unscaled(self, scaled: ReleasedValues, low: Floats, high: Floats) -> ReleasedValues:
        assert self.scale is not None
        square = self.scale.unit(low, high) ** 2
        return scaled[0] * square, scaled[1] * square

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        statistic, of_squares = self._sum(basis), self._squares(basis)
        assert isinstance(of_squares.lattice, Lattice)
        total, squares, count = noisy[statistic], noisy[of_squares], noisy[self._count(basis)]
        rows = np.maximum(count.values, 1.0)
        # In distances y from the centre: variance = E[y^2] - E[y]^2, whatever the centre.
        mean = total.values / rows
        mean_square = squares.values / rows + of_squares.lattice.square_centre
        half_width = (self.high - self.low) / 2
        variance = np.clip(mean_square - mean * mean, 0.0, half_width * half_width)
        # First order in the three noises; the derivative by the count is that of both quotients.
        by_count = 2 * mean * mean - squares.values / rows
        noise = squares.stddev**2 + (2 * mean * total.stddev) ** 2 + (by_count * count.stddev) ** 2
        return variance, np.sqrt(noise) / rows

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        """Return the statement for the mean square q and the mean m of distances, with noises Q, S, C of squares, sum and count.

        The variance (N q + Q) / (N + C) - ((N m + S) / (N + C))^2 is off by (Q - 2 m S + (2 m^2 - q) C) / (N + C) - e^2, where e
        is the error of m. The first is bounded as for a mean, e on its own, each with 97.5%.
        """
        if self.auto or self.scale is not None:
            return ()
        of_squares = self._squares(basis)
        assert isinstance(of_squares.lattice, Lattice)
        farthest = self._farthest(basis)
        total, squares, count = levels[self._sum(basis)], levels[of_squares], levels[self._count(basis)]
        largest, off = ((self.high - self.low) / 2) ** 2, of_squares.lattice.square_centre

        def least(near: float) -> float:
            by_count = farthest**2 + off + near
            first = WIDER * reach([(1.0, squares), (2 * farthest, total), (by_count, count)])
            # |e| <= second / N, and first / N + (second / N)^2 <= near.
            second = WIDER * reach([(1.0, total), (farthest + math.sqrt(near), count)])
            return (first + math.sqrt(first * first + 4 * near * second * second)) / (2 * near)

        near = WITHIN * largest
        promise = f"within {near:.4g}, {WITHIN:.0%} of the largest that it can be,"
        of = self._counted(basis)
        return (GoodFrom(promise=promise, least=least(near), of=of, noise_below=least(largest / 2), guessed_by="rows"),)


WIDER = math.log(40) / math.log(20)
"""Ratio of the widths that hold 97.5% and 95% of Laplace noise; for Gaussian noise it is less."""
