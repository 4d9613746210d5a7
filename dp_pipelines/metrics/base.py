"""What can be released for a partition: each metric names the statistics it needs and how it ends.

In: declared columns, bounds and weights. Out: frozen metrics; from the noisy statistics, the published value and the
standard deviation of its noise. Holds: `finish` is post-processing: it reads noisy statistics and public numbers only.
A new metric is one new class here; nothing else changes as long as its statistics exist.

Bounds of values are public. Null semantics are SQL's: a null (or NaN) is not counted, summed or averaged.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns.column_types import check_value_type
from dp_pipelines.kernels.lattice import Floats, Lattice, SummandLattice
from dp_pipelines.kernels.statistics import Statistic

ROWS = Statistic(kind="rows")
UNITS = Statistic(kind="units")

AUTO: Literal["auto"] = "auto"
"""A bound that is chosen from a noisy histogram, within a declared range."""

Bound = float | Literal["auto"] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Basis:
    """How the sums over one column are taken; the plan chooses it for the smallest expected error.

    Args:
        centred: from the middle of the range (a mean then needs half the sensitivity or less), or raw.
        nullable: whether the column may hold nulls, so that it needs a count of its own.
    """

    centred: bool
    nullable: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noisy:
    """A statistic after its noise: float64 values, one per partition, and the standard deviation of the noise."""

    values: Floats
    stddev: float


Release = tuple[Floats, Floats]
"""Published values and the standard deviation of their noise, one of each per partition."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """Base of all metrics.

    Args (all metrics):
        weight: share of the budget relative to the other metrics; a metric's weight is split evenly over its statistics,
            and a statistic that several metrics share is paid for once, with the sum of their weights.
        stddev: instead of a weight, the standard deviation of the noise, in units of the published value; the rest of the plan
            is calibrated on what that leaves. For `Count`, `PrivacyIdCount` and `Sum`.
    """

    needs_row_bound: ClassVar[bool] = True
    takes_stddev: ClassVar[bool] = False
    stddev_is_public: ClassVar[bool] = True
    """Whether the standard deviation of the noise is known before the data are; else it is a function of released numbers."""
    has_stddev: ClassVar[bool] = True
    """Whether there is a standard deviation to publish; else it is null."""
    takes_delta: ClassVar[bool] = False
    """Whether what it releases has a part of delta of its own."""
    many: ClassVar[bool] = False
    """Whether a list is published for each partition, instead of a number."""
    clips_partition_sums: ClassVar[bool] = False
    """Whether a unit's sum per partition is clipped, instead of each row."""
    auto: ClassVar[bool] = False
    """Whether bounds are chosen from a noisy histogram, so that this metric is not ready to run yet."""
    max_is_auto: ClassVar[bool] = False
    """Whether that holds for the upper bound."""
    column: ClassVar[str | None] = None
    weight: float = dataclasses.field(default=1.0, kw_only=True)
    stddev: float | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", checks.number(self.weight, "weight", above=0, below=1e6))
        if self.stddev is None:
            return
        if not self.takes_stddev:
            rule = f"is not for {type(self).__name__}, whose error depends on how many rows a partition has"
            raise RequestError(field="stddev", rule=rule, mend="write a weight instead")
        object.__setattr__(self, "stddev", checks.number(self.stddev, "stddev", above=0, below=1e300))
        if self.weight != 1.0:
            raise RequestError(field="stddev", rule="stands beside a weight", mend="write one of the two")

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        """The statistics that this metric is made of."""
        raise NotImplementedError

    def settled(self, *, partitions: int, rows: int) -> "Metric":
        """The same metric with what it leaves open decided by the bounds of one unit: partitions, and rows in each."""
        return self

    def bounded(self, low: float, high: float) -> "Metric":
        """The same metric with bounds that were chosen, where `auto` asks for them."""
        raise NotImplementedError

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> Release:
        """The published values and their standard deviations, from noisy statistics alone."""
        raise NotImplementedError

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that are read."""
        return () if self.column is None else (self.column,)

    def check_column(self, kind: pa.DataType) -> None:
        """Refuse a type of the column that cannot play its part.

        Raises:
            RequestError: for anything but numbers, unless the metric takes others.
        """
        if self.column is not None:
            check_value_type(kind, self.column)

    @property
    def family(self) -> tuple[str, float, float] | None:
        """Metrics with the same column and bounds share their sums and one basis; None: the metric has no basis."""
        return None


def _constant(noisy: Noisy) -> Release:
    return noisy.values, np.full(len(noisy.values), noisy.stddev)


@dataclasses.dataclass(frozen=True)
class Count(Metric):
    """The number of rows.

    >>> Count(weight=2).statistics(Basis(centred=False, nullable=True))[0].name
    'rows'
    """

    takes_stddev = True

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (ROWS,)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> Release:
        return _constant(noisy[ROWS])


@dataclasses.dataclass(frozen=True)
class PrivacyIdCount(Metric):
    """The number of different privacy units.

    >>> PrivacyIdCount().needs_row_bound
    False
    """

    needs_row_bound = False
    takes_stddev = True

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (UNITS,)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> Release:
        return _constant(noisy[UNITS])


@dataclasses.dataclass(frozen=True)
class _OverColumn(Metric):
    """A metric of one column's values, each clamped to [min_value, max_value]; `auto` is chosen within a declared range."""

    column: str  # type: ignore[misc]  # narrows the class variable of metrics without a column
    min_value: Bound = dataclasses.field(default=None, kw_only=True)
    max_value: Bound = dataclasses.field(default=None, kw_only=True)
    within: Sequence[float] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.name(self.column, "column")
        self._check_bounds()

    def _check_bounds(self) -> None:
        for field in ("min_value", "max_value"):
            if getattr(self, field) == AUTO:
                continue
            mend = "declare what a value can be, from public knowledge: what lies outside is clamped"
            bound = checks.number(getattr(self, field), field, above=-1e300, below=1e300, mend=mend)
            object.__setattr__(self, field, bound + 0.0)  # -0.0 and 0.0 are one bound, so that metrics share their sums
        self._check_within()
        if not self.low <= self.high:
            raise RequestError(field="min_value", rule="must not be above max_value", mend="swap the two")
        if self.within is not None and not (self.within[0] <= self.low < self.high <= self.within[1]):
            rule = "must hold the bound that is given, and leave room beside it"
            raise RequestError(field="within", rule=rule, mend="widen it")

    def _check_within(self) -> None:
        if not self.auto:
            if self.within is not None:
                rule, mend = "is for bounds that are chosen", "drop it, or write max_value: auto"
                raise RequestError(field="within", rule=rule, mend=mend)
            return
        mend = "write e.g. within: [0, 1000000], from public knowledge: what lies outside is clamped"
        if self.stddev is not None:
            rule = "stands beside bounds that are chosen, with which the noise grows"
            raise RequestError(field="stddev", rule=rule, mend="write a weight instead, or the bounds")
        if self.within is None:
            raise RequestError(field="within", rule="is needed where a bound is auto", mend=mend)
        if not isinstance(self.within, (list, tuple)) or len(self.within) != 2:
            raise RequestError(field="within", rule="must be two numbers", mend=mend)
        low, high = (checks.number(end, "within", above=-1e100, below=1e100, mend=mend) + 0.0 for end in self.within)
        if not low < high or max(abs(low), abs(high)) < 1e-100:
            raise RequestError(field="within", rule="must rise", mend=mend)
        object.__setattr__(self, "within", (low, high))

    @property
    def auto(self) -> bool:  # type: ignore[override]
        """Whether a bound is chosen from a noisy histogram."""
        return AUTO in (self.min_value, self.max_value)

    @property
    def max_is_auto(self) -> bool:  # type: ignore[override]
        """Whether the upper bound is chosen."""
        return self.max_value == AUTO

    def bounded(self, low: float, high: float) -> "Metric":
        """The same metric with the bounds that were chosen."""
        return dataclasses.replace(self, min_value=low, max_value=high, within=None)

    @property
    def low(self) -> float:
        """The lower bound; where it is not chosen yet, the least that it can be."""
        return self._end(self.min_value, 0)

    @property
    def high(self) -> float:
        """The upper bound; where it is not chosen yet, the greatest that it can be."""
        return self._end(self.max_value, 1)

    def _end(self, bound: Bound, place: int) -> float:
        if isinstance(bound, str):
            assert self.within is not None
            return self.within[place]
        assert bound is not None
        return bound

    @property
    def family(self) -> tuple[str, float, float] | None:
        return (self.column, self.low, self.high)

    def _count(self, basis: Basis) -> Statistic:
        return Statistic(kind="not_null", column=self.column) if basis.nullable else ROWS

    def _sum(self, basis: Basis) -> Statistic:
        return Statistic(
            kind="sum", column=self.column, lattice=Lattice.for_values(self.low, self.high, centred=basis.centred)
        )

    def _squares(self, basis: Basis) -> Statistic:
        return Statistic(
            kind="sum", column=self.column, lattice=Lattice.for_squares(self.low, self.high, centred=basis.centred)
        )


@dataclasses.dataclass(frozen=True)
class Sum(_OverColumn):
    """The sum of a column, nulls left out.

    Args:
        column: the column that is summed.
        min_value, max_value: each value is clamped to this range; `auto` has the bound chosen from a noisy histogram, for a tenth
            of the stage's budget, by `dp-pipelines run`;
        within: where a bound is `auto`, the declared range in which it is chosen; or
        min_sum_per_partition, max_sum_per_partition: the sum of one unit's values in one partition is clipped to this range
            (all its rows count; a single value is first clamped to 65,536 times the larger bound).

    >>> Sum("amount", min_value=0, max_value=200).family
    ('amount', 0.0, 200.0)
    >>> Sum("amount", min_sum_per_partition=0, max_sum_per_partition=500).needs_row_bound
    False
    """

    takes_stddev = True
    min_sum_per_partition: float | None = dataclasses.field(default=None, kw_only=True)
    max_sum_per_partition: float | None = dataclasses.field(default=None, kw_only=True)

    def _check_bounds(self) -> None:
        if not self.clips_partition_sums:
            super()._check_bounds()
            if self.low == self.high == 0:
                raise RequestError(field="max_value", rule="leaves only the value 0 to sum", mend="widen the range")
            Lattice.for_values(self.low, self.high)
            return
        if self.min_value is not None or self.max_value is not None or self.within is not None:
            raise RequestError(
                field="min_sum_per_partition",
                rule="clips sums and stands beside no bounds of single values",
                mend="drop min_value and max_value, or the bounds of sums",
            )
        for field in ("min_sum_per_partition", "max_sum_per_partition"):
            object.__setattr__(self, field, checks.number(getattr(self, field), field) + 0.0)  # as above
        low, high = self._sum_bounds
        if not low <= high:
            raise RequestError(
                field="min_sum_per_partition", rule="must not be above max_sum_per_partition", mend="swap the two"
            )
        SummandLattice.for_sums(low, high)

    @property
    def clips_partition_sums(self) -> bool:  # type: ignore[override]
        """Whether a unit's sum per partition is clipped, instead of each value."""
        return self.min_sum_per_partition is not None or self.max_sum_per_partition is not None

    @property
    def needs_row_bound(self) -> bool:  # type: ignore[override]
        return not self.clips_partition_sums

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
            return (Statistic(kind="clipped_sum", column=self.column, lattice=lattice),)
        return (self._sum(basis), self._count(basis)) if basis.centred else (self._sum(basis),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> Release:
        statistic = self.statistics(basis)[0]
        total = noisy[statistic]
        if not basis.centred or self.clips_partition_sums:
            return _constant(total)
        assert statistic.lattice is not None
        count, centre = noisy[self._count(basis)], statistic.lattice.offset
        stddev = float(np.hypot(total.stddev, centre * count.stddev))
        return total.values + centre * count.values, np.full(len(total.values), stddev)


@dataclasses.dataclass(frozen=True)
class Mean(_OverColumn):
    """The mean of a column's values that are not null, within [min_value, max_value].

    Args:
        column: the column that is averaged.
        min_value, max_value, within: each value is clamped to this range; `auto` as for `Sum`.
        nullable: False declares that the column holds no nulls, so that the mean shares the count of rows with `Count`
            and costs less. A null that is there all the same then counts as a row that adds nothing to the sum.

    >>> Mean("amount", min_value=0, max_value=200, nullable=False).statistics(Basis(centred=True, nullable=False))[1].name
    'rows'
    """

    stddev_is_public = False
    nullable: bool = dataclasses.field(default=True, kw_only=True)

    def _check_bounds(self) -> None:
        super()._check_bounds()
        if not isinstance(self.nullable, bool):
            raise RequestError(field="nullable", rule="must be true or false")
        if not self.low < self.high:
            raise RequestError(field="min_value", rule="must be below max_value", mend="widen the range")
        Lattice.for_values(self.low, self.high)
        Lattice.for_values(self.low, self.high, centred=True)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (self._sum(basis), self._count(basis))

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> Release:
        statistic = self._sum(basis)
        assert statistic.lattice is not None
        total, count, centre = noisy[statistic], noisy[self._count(basis)], statistic.lattice.offset
        rows = np.maximum(count.values, 1.0)
        mean = np.clip(centre + total.values / rows, self.low, self.high)
        return mean, np.hypot(total.stddev, (mean - centre) * count.stddev) / rows


@dataclasses.dataclass(frozen=True)
class Variance(Mean):
    """The population variance of a column's values that are not null; arguments as for `Mean`.

    >>> len(Variance("amount", min_value=0, max_value=200).statistics(Basis(centred=True, nullable=True)))
    3
    """

    def _check_bounds(self) -> None:
        super()._check_bounds()
        Lattice.for_squares(self.low, self.high)
        Lattice.for_squares(self.low, self.high, centred=True)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (self._sum(basis), self._count(basis), self._squares(basis))

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> Release:
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
