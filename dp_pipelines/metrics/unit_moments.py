"""Moments of what privacy units add: the sum of one total, or of products of two, as a metric that a plan can pay for.

In: totals of one unit. Out: the metric `UnitMoment`. Holds: a plan pays for it as for any other; no basis of it is centred. Not
covered: what is made of moments (`release.arm_comparisons`): no job file can ask for one by itself.
"""

import dataclasses
from collections.abc import Mapping

from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.kernels.unit_products import UnitProducts
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues, constant


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
        """What is summed."""
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
