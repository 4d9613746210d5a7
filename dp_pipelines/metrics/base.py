"""Base of all metrics: each names the statistics that it needs, and computes its published value from them.

In: declared columns, bounds and weights. Out: frozen metrics; from the noisy statistics, the published value and the
standard deviation of its noise. Holds: `finish` is post-processing: it reads noisy statistics and public numbers only.
A new metric is one new file in this folder (ARCHITECTURE.md); nothing else changes as long as its statistics exist.
Null semantics are SQL's: a null (or NaN) is not counted, summed or averaged.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns.column_types import check_value_type
from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.kernels.statistics import RowCount, Statistic, UnitCount
from dp_pipelines.metrics.good_from import GoodFrom, Level
from dp_pipelines.metrics.lookup_bound import PartitionScale

ROWS = RowCount()
UNITS = UnitCount()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Basis:
    """The point from which values of a column are summed; the plan chooses it for the smallest expected error.

    Args:
        centred: from the middle of the range (a mean then needs half the sensitivity or less), or raw. False for a metric without
            a family, which chooses for itself.
        nullable: whether the column may hold nulls, so that it needs a count of its own: where a metric of the family has a field
            `nullable`, what that says.
    """

    centred: bool
    nullable: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noisy:
    """A statistic after its noise: float64 values, one per partition, and the standard deviation of the noise.

    Each partition of a rollup has a deviation of its own: then it is an array.
    """

    values: Floats
    stddev: float


ReleasedValues = tuple[Floats, Floats]
"""Published values and the standard deviation of their noise, one of each per partition."""


RAW = "_raw"
"""The suffix of a metric's column with the values before `over_all` changed them."""

Shown = Literal["number", "quantiles", "histogram", "list"]

RollsUp = Literal["sum", "units", "derived"]
"""How a metric takes part in a rollup: a group's number is the sum of those of its parts; a unit counts once in each group; or
it is computed from sums that add up."""

KeptBy = Literal["rows", "units", "sum", "mean"]
"""The kept share that tells how much smaller the limits make a metric's numbers (`release.ranges`)."""

Judged = Literal["zero", "range"]
"""The yardstick for the error bars of a metric (`release.verdicts`): zero, or the declared range of its values."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """Base of all metrics.

    Args (all metrics):
        weight: share of the budget relative to the other metrics; a metric's weight is split evenly over its statistics,
            and a statistic that several metrics share is paid for once, with the sum of their weights.
        stddev: instead of a weight, the standard deviation of the noise, in units of the published value; the rest of the plan
            is calibrated on what that leaves. For `Count`, `PrivacyIdCount` and `Sum`.
    """

    kind: ClassVar[str] = ""
    """Its name in job files, manifests and reports; "" if job files cannot ask for it."""
    words: ClassVar[str] = ""
    """Its description for readers of a report; `{units}` is replaced by the plural name of the privacy unit."""
    declared: ClassVar[tuple[str, ...]] = ()
    """Fields that the manifest repeats, since readers of a list need them."""
    shown_as: ClassVar[Shown] = "number"
    """How a report shows it."""
    judged: ClassVar[Judged | None] = None
    """How a release judges whether its numbers exceed the noise; None if it does not. `range` needs `value_range`."""
    ranks: ClassVar[bool] = False
    """True if a larger number means a larger partition, so that a report may choose the partitions of its plots by it."""
    tuned_as: ClassVar[str | None] = None
    """The model by which `dp-pipelines tune` predicts its error (`KINDS` of the extension); None if there is no model."""
    needs_row_bound: ClassVar[bool] = True
    has_cells: ClassVar[bool] = False
    """True if it counts rows in many cells, in each of which a unit may add all of its rows."""
    takes_stddev: ClassVar[bool] = False
    stddev_is_public: ClassVar[bool] = True
    """True if the standard deviation of the noise is known before the data; else it is a function of released numbers."""
    has_stddev: ClassVar[bool] = True
    """True if there is a standard deviation to publish; else it is null."""
    takes_delta: ClassVar[bool] = False
    """True if its release uses a part of delta of its own."""
    many: ClassVar[bool] = False
    """True if a list is published for each partition, instead of a number."""
    clips_partition_sums: ClassVar[bool] = False
    """True if a unit's sum per partition is clipped, instead of each row."""
    auto: ClassVar[bool] = False
    """True if bounds are chosen from a noisy histogram, so that this metric is not ready to run yet."""
    max_is_auto: ClassVar[bool] = False
    """True if the upper bound is chosen so."""
    pools: ClassVar[bool] = False
    """True if the number of one partition is computed from all released partitions: `over_all`, besides `finish`."""
    whole: ClassVar[bool] = False
    """True if its true numbers are whole, so that pages show no decimals of them."""
    rolls_up: ClassVar[RollsUp | None] = None
    """How it takes part in a rollup; None: it takes none."""
    kept_by: ClassVar[KeptBy | None] = None
    """The kept share from which its estimate and range are computed if a stage has `kept`; None if it has no range."""
    no_range: ClassVar[str] = "the limits may make it larger or smaller, and no kept share says how much"
    """The reason why it has no range, if `kept_by` is None."""
    scale: ClassVar[PartitionScale | None] = None
    """How values are scaled if bounds differ by partition; `finish` then returns scaled numbers, and `unscaled` values."""
    column: ClassVar[str | None] = None
    weight: Annotated[float, checks.Real(above=0, below=1e6)] = dataclasses.field(default=1.0, kw_only=True)
    stddev: Annotated[float, checks.Real(above=0, below=1e300)] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checks.declared(self)
        if self.stddev is None:
            return
        if not self.takes_stddev:
            message = f"is not for {type(self).__name__}, whose error depends on how many rows a partition has"
            raise RequestError(field="stddev", message=message, hint="write a weight instead")
        if self.weight != 1.0:
            raise RequestError(field="stddev", message="stands beside a weight", hint="write one of the two")

    def given(self, field: str) -> Any:
        """Return the declared value of a field, even if the metric stores it in another form."""
        return getattr(self, field)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        """Return the statistics from which this metric is computed."""
        raise NotImplementedError

    def settled(self, *, partitions: int, rows: int) -> "Metric":
        """Return the same metric with its open choices made.

        Args:
            partitions: of one unit, at most.
            rows: of one unit in one partition, at most.
        """
        return self

    def bounded(self, low: float, high: float) -> "Metric":
        """Return the same metric with chosen bounds in place of `auto`.

        Args:
            low, high: the bounds.
        """
        raise NotImplementedError

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        """Compute the published values, and the standard deviations of their noise, from noisy statistics alone.

        The deviation of a value that is not a sum of statistics is computed to first order, at the published value. Counts may be
        zero or negative.
        """
        raise NotImplementedError

    def over_all(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        """Compute values and deviations to publish, if it `pools`, from the noisy statistics of all released partitions."""
        raise NotImplementedError

    def published(self, name: str) -> tuple[str, ...]:
        """Return its published columns, given its name: values and standard deviations in turn.

        >>> Metric().published("orders")
        ('orders', 'orders_stddev')
        """
        names = (name, f"{name}{RAW}") if self.pools else (name,)
        return tuple(column for of in names for column in (of, f"{of}_stddev"))

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        """Return statements for `plan`: the size of a group from which its number is good; empty if the metric has none.

        Args:
            levels: how noisy its statistics are.
            basis: of its sums.
        """
        return ()

    def unscaled(self, scaled: ReleasedValues, low: Floats, high: Floats) -> ReleasedValues:
        """Convert the result of `finish` to units of the column, if bounds differ by partition.

        Args:
            scaled: values and standard deviations.
            low, high: the bounds of each partition.
        """
        raise NotImplementedError

    @property
    def per_partition(self) -> str | None:
        """Return in words what it does per partition and `max_contributions` cannot bound; None if nothing.

        `max_contributions` bounds the rows of a unit in all partitions together.
        """
        return "clips sums per partition" if self.clips_partition_sums else None

    @property
    def totals(self) -> tuple[Statistic, ...]:
        """Return the totals of one unit by which arms of a test are compared (`query.compare`), on lattices that are not centred.

        One total, whose mean over units is compared; two, whose sums are divided; none if it cannot be compared.
        """
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the columns that are read."""
        return () if self.column is None else (self.column,)

    def check_column(self, kind: pa.DataType) -> None:
        """Refuse a column whose type does not fit.

        Raises:
            RequestError: for anything but numbers, unless the metric takes others.
        """
        if self.column is not None:
            check_value_type(kind, self.column)

    @property
    def value_range(self) -> tuple[float, float] | None:
        """Return the range in which every published value lies, by public parameters alone; None if there is none.

        No deviation on a range exceeds half of its width (Popoviciu 1935), so none that is published does.
        """
        return None

    @property
    def never_negative(self) -> bool:
        """Return True if the true number is 0 or more, by public parameters alone."""
        return False

    @property
    def family(self) -> tuple[str, float, float] | None:
        """Return the column and the bounds; metrics with the same ones share their sums and one basis. None if it shares none.

        The plan centres a basis where that pays for sums and means; a metric without a family gets one that is not centred.
        """
        return None


def constant(noisy: Noisy) -> ReleasedValues:
    """Return the values of a statistic unchanged, each with the deviation of its noise; two float64 arrays, one per partition."""
    return noisy.values, np.full(len(noisy.values), noisy.stddev)


def capped(stddevs: Floats, metric: Metric) -> Floats:
    """Return the deviations to publish: at most half of the range of the values, as every deviation on that range is.

    Only what readers see is capped. Whatever computes with noise takes the statistics or their law, never these.

    Args:
        stddevs: float64 of shape (partitions,) or (partitions, values).
        metric: the metric.
    """
    if metric.value_range is None:
        return stddevs
    low, high = metric.value_range
    return np.minimum(stddevs, (high - low) / 2)
