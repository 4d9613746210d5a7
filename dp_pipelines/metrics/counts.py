"""Counts of rows, privacy units or different values in a partition: the metrics `Count`, `PrivacyIdCount`, `DistinctCount`.

In: for different values a column, and how many of one unit count. Out: metrics. Holds: of each unit and partition at most so
many rows or different values count; repeated rows do not crowd out different values. Not covered: estimates of the rows that
bounds cut off.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.kernels.distinct import check_values
from dp_pipelines.kernels.statistics import DistinctValues, Statistic
from dp_pipelines.metrics.base import ROWS, UNITS, Basis, Metric, Noisy, ReleasedValues, constant
from dp_pipelines.metrics.good_from import GoodFrom, Level, of_count

MOST_VALUES = 2**24
"""The largest number of different values: that of a bound on contributions (`query.LARGEST_BOUND`)."""


@dataclasses.dataclass(frozen=True)
class Count(Metric):
    """The number of rows.

    >>> Count(weight=2).statistics(Basis(centred=False, nullable=True))[0].name
    'rows'
    """

    kind, words = "count", "the number of rows"
    judged, ranks, tuned_as = "zero", True, "count"
    takes_stddev, rolls_up, never_negative, whole = True, "sum", True, True
    kept_by = "rows"

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (ROWS,)

    @property
    def totals(self) -> tuple[Statistic, ...]:
        return (ROWS,)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        return constant(noisy[ROWS])

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        return (of_count(levels[ROWS], "rows", "rows"),)


@dataclasses.dataclass(frozen=True)
class PrivacyIdCount(Metric):
    """The number of different privacy units.

    >>> PrivacyIdCount().needs_row_bound
    False
    """

    kind, words = "privacy_id_count", "the number of different {units}"
    judged, ranks, tuned_as = "zero", True, "privacy_id_count"
    needs_row_bound = False
    takes_stddev, rolls_up, never_negative, whole = True, "units", True, True
    kept_by = "units"

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (UNITS,)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        return constant(noisy[UNITS])

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        return (of_count(levels[UNITS], "users", "users"),)


@dataclasses.dataclass(frozen=True)
class DistinctCount(Metric):
    """The number of different values of a column, nulls left out.

    Args:
        column: of any type that a partition may have; floats are cast first.
        max_values_per_partition: how many different values of one unit count in one partition; where it is left out, as
            many as `max_contributions_per_partition`. All rows of a unit's kept partitions are looked at, whatever the bound
            on rows.

    Not with `max_contributions`, which bounds rows in all.

    >>> DistinctCount("product", max_values_per_partition=3).needs_row_bound
    False
    """

    kind, words = "distinct_count", "the number of different values"
    no_range = "a value that the limits cut off of one unit may be kept of another"
    judged, ranks, whole = "zero", True, True
    takes_stddev = True
    column: str  # type: ignore[misc]  # narrows the class variable of metrics without a column
    max_values_per_partition: Annotated[int, checks.Whole(low=1, high=MOST_VALUES)] | None = dataclasses.field(
        default=None, kw_only=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.name(self.column, "column")

    @property
    def per_partition(self) -> str | None:
        return "counts different values per partition"

    @property
    def needs_row_bound(self) -> bool:  # type: ignore[override]
        return self.max_values_per_partition is None

    def check_column(self, kind: pa.DataType) -> None:
        """Refuse a column whose type no partition may have. Errors as for any metric."""
        check_values(kind, self.column)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (DistinctValues(column=self.column, most=self.max_values_per_partition),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        return constant(noisy[self.statistics(basis)[0]])

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        return (of_count(levels[self.statistics(basis)[0]], "different values", None),)
