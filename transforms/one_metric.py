"""Short forms: one metric, one budget, one line.

In, Out: as for `PrivateAggregate`. Holds: each is a separate plan with one stage: its budget adds to that of any other release
about the same people.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.counts import Count
from dp_pipelines.metrics.sums import Mean, Sum
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.query import UNSAID, ContributionBounds, PrivatePartitions, PublicPartitions, Query
from dp_pipelines.query.windows import Windows
from dp_pipelines.transforms.private_aggregate import PrivateAggregate
from dp_pipelines.transforms.release_transform import ReleaseTransform
from dp_pipelines.transforms.rows.input_tables import Types


@dataclasses.dataclass(kw_only=True, eq=False)
class PrivateCount(ReleaseTransform):
    """Count rows per partition.

    Args:
        privacy_unit, partition_by, bounds, partitions: as for `Query`.
        epsilon, delta: the budget of this release alone.
        name: of the released column.
        types, as_rows: as for `PrivateAggregate`.
        windows: as for `Query`.

    >>> PrivateCount(privacy_unit="customer", partition_by="region", epsilon=1.0, delta=1e-6,
    ...     bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)).metric()
    Count(weight=1.0, stddev=None)
    """

    privacy_unit: str | Sequence[str]
    partition_by: str | Sequence[str]
    bounds: ContributionBounds
    epsilon: float
    delta: float = 0.0
    partitions: PrivatePartitions | PublicPartitions = UNSAID
    name: str = ""
    types: Types | None = None
    as_rows: bool = False
    windows: Windows | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def metric(self) -> Metric:
        """The metric that is released."""
        return Count()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """A plan with one stage and one metric."""
        metric = self.metric()
        query = Query(
            privacy_unit=self.privacy_unit,
            partition_by=self.partition_by,
            bounds=self.bounds,
            partitions=self.partitions,
            windows=self.windows,
            metrics={self.name or type(metric).__name__.lower(): metric},
        )
        plan = Plan(epsilon=self.epsilon, delta=self.delta, stages={"release": query})
        return pcoll | "PrivateAggregate" >> PrivateAggregate(plan["release"], types=self.types, as_rows=self.as_rows)


@dataclasses.dataclass(kw_only=True, eq=False)
class PrivateSum(PrivateCount):
    """Sum a column per partition; further arguments as for `Sum`, the others as for `PrivateCount`."""

    column: str
    min_value: float | None = None
    max_value: float | None = None
    min_sum_per_partition: float | None = None
    max_sum_per_partition: float | None = None

    def metric(self) -> Metric:
        """The metric that is released."""
        return Sum(
            self.column,
            min_value=self.min_value,
            max_value=self.max_value,
            min_sum_per_partition=self.min_sum_per_partition,
            max_sum_per_partition=self.max_sum_per_partition,
        )


@dataclasses.dataclass(kw_only=True, eq=False)
class PrivateMean(PrivateCount):
    """Average a column per partition; further arguments as for `Mean`, the others as for `PrivateCount`."""

    column: str
    min_value: float | None = None
    max_value: float | None = None
    nullable: bool = True
    shrink: bool = False

    def metric(self) -> Metric:
        """The metric that is released."""
        return Mean(
            self.column,
            min_value=self.min_value,
            max_value=self.max_value,
            nullable=self.nullable,
            shrink=self.shrink,
        )
