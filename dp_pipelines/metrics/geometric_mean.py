"""The geometric mean of a column's values, each clamped to declared bounds above zero: the metric `GeometricMean`.

In: a column and its bounds. Out: exp of the mean logarithm, from noisy sums. Holds: the logarithms are added on a lattice,
counted from their middle, so that one row moves their sum by half the logarithm of max_value / min_value at most. Not covered:
bounds that are chosen in a run, and what clamping cuts off.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.lattice import Lattice, logarithms
from dp_pipelines.kernels.statistics import NotNullCount, Statistic, ValueSum
from dp_pipelines.metrics.base import ROWS, Basis, Metric, Noisy, ReleasedValues
from dp_pipelines.metrics.good_from import WITHIN, GoodFrom, Level, of_mean


@dataclasses.dataclass(frozen=True)
class GeometricMean(Metric):
    """The geometric mean of a column's values that are not null: the number whose logarithm is the mean of theirs.

    Args:
        column: the column that is averaged.
        min_value, max_value: each value is clamped to this range, above 0; zero and what is negative count as `min_value`.
        nullable: False declares that the column holds no nulls, so that the count of rows is shared with `Count`. A null that is
            there all the same then counts as a row whose logarithm is the middle of the range of logarithms.

    The standard deviation is that of the mean logarithm, times the published value: to first order, so too small where the noise
    of the logarithm is large itself.

    >>> GeometricMean("amount", min_value=1, max_value=100).max_value
    100.0
    """

    kind, words = "geometric_mean", "the geometric mean of a column"
    judged, stddev_is_public = "range", False
    column: str  # type: ignore[misc]  # narrows the class variable of metrics without a column
    min_value: float = dataclasses.field(kw_only=True)
    max_value: float = dataclasses.field(kw_only=True)
    nullable: bool = dataclasses.field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.name(self.column, "column")
        hint = "declare what a value can be, from public knowledge: what lies outside is clamped"
        for field in ("min_value", "max_value"):
            object.__setattr__(self, field, checks.number(getattr(self, field), field, above=0, below=1e300, hint=hint))
        if not isinstance(self.nullable, bool):
            raise RequestError(field="nullable", message="must be true or false")
        if not self.min_value < self.max_value:
            raise RequestError(field="min_value", message="must be below max_value", hint="widen the range")
        self._lattice()  # which refuses bounds that lie too close together

    @property
    def value_range(self) -> tuple[float, float]:
        """Return the bounds of the values."""
        return self.min_value, self.max_value

    def _lattice(self) -> Lattice:
        return Lattice.for_values(self.min_value, self.max_value, centred=True, through=logarithms)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        count = NotNullCount(column=self.column) if basis.nullable else ROWS
        return ValueSum(column=self.column, lattice=self._lattice()), count

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        total, count = (noisy[statistic] for statistic in self.statistics(basis))
        lattice, rows = self._lattice(), np.maximum(count.values, 1.0)
        mean = np.clip(lattice.offset + total.values / rows, lattice.low, lattice.high)
        stddev = np.hypot(total.stddev, (mean - lattice.offset) * count.stddev) / rows
        values = np.clip(np.exp(mean), self.min_value, self.max_value)
        return values, values * stddev

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        total, count = (levels[statistic] for statistic in self.statistics(basis))
        lattice = self._lattice()
        half = (lattice.high - lattice.low) / 2
        return (
            of_mean(
                total,
                count,
                farthest=half,
                near=min(math.log1p(WITHIN), 2 * half),  # above; below it may be off by a little more
                of="values" if basis.nullable else "rows",
                promise=f"within {WITHIN:.0%}",
                most=half,
            ),
        )
