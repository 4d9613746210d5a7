"""Comparisons of the arms of a test: which partitions are compared with which, and by which metrics.

In: names and numbers that the owner of the job declares. Out: a frozen declaration, and the metrics that it compares. Holds:
nothing here depends on data. Not covered: which sums that takes (`plan_stages.arm_moments`) and what is computed from them
(`release.arm_comparisons`).
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from dp_pipelines import checks
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.unit_moments import UnitProducts

MOST_ARMS = 100
"""The most arms of one stage."""

MOST_COMPARED = 50
"""The most compared metrics of one stage."""

Intervals = Literal["population", "noise"]
"""The number that intervals cover: that of the whole population, or that of exactly these units."""

METRIC = "metric"
"""The column of a comparison with the name of the metric."""

QUOTIENT = " / "
"""The text between the two metrics of a quotient."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """One thing that is compared between arms: a mean over units, or a quotient of two sums over them.

    Args:
        name: as the job says it.
        above: the total of a unit that is summed.
        below: the total whose sum divides; None: the number of units.
    """

    name: str
    above: Statistic
    below: Statistic | None = None

    @property
    def totals(self) -> tuple[Statistic, ...]:
        """Return all totals of a unit that the comparison needs."""
        return (self.above,) if self.below is None else (self.above, self.below)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare:
    """Difference and ratio of each arm with the baseline, with a 95% interval, for a share of the stage's budget.

    The arms are the stage's public partitions. Each unit counts in one arm, the first by a keyed hash.

    Args:
        by: the column of `partition_by` whose values are the arms; the only one.
        baseline: the arm that the others are compared with.
        metrics: what is compared: a `count` or a `sum` as its mean over units, a `mean` as the mean over rows, and quotients of
            two counts or sums, e.g. `revenue / orders`.
        share: of the stage's budget, above 0 and below 1.
        intervals: `population` covers noise and the sampling of units, for which sums of squares are paid. `noise` leaves these
            out: the intervals then are of the noise alone, call most tests of equal arms significant, and are named so.

    >>> Compare(by="arm", baseline="A", metrics=["revenue", "revenue / orders"]).metrics
    ('revenue', 'revenue / orders')
    """

    by: str
    baseline: Any
    metrics: Sequence[str]
    share: Annotated[float, checks.Real(above=0, below=1, hint="write e.g. share: 0.5")] = 0.5
    intervals: Intervals = "population"

    def __post_init__(self) -> None:
        checks.declared(self, "compare.")
        checks.name(self.by, "compare.by")
        if self.intervals not in get_args(Intervals):
            raise RequestError(field="compare.intervals", message="must be one of " + ", ".join(get_args(Intervals)))
        if not isinstance(self.metrics, (list, tuple)) or not all(isinstance(name, str) for name in self.metrics):
            message, hint = "must be a list of names", "write e.g. metrics: [revenue, revenue / orders]"
            raise RequestError(field="compare.metrics", message=message, hint=hint)
        names = tuple(QUOTIENT.join(part.strip() for part in name.split("/")) for name in self.metrics)
        if not 1 <= len(names) <= MOST_COMPARED or len(set(names)) != len(names):
            message = f"must be 1 to {MOST_COMPARED} different ones"
            raise RequestError(field="compare.metrics", message=message, hint="name each once")
        object.__setattr__(self, "metrics", names)

    def check(
        self,
        columns: Sequence[str],
        listed: Sequence[Sequence[Any]] | None,
        metrics: Mapping[str, Metric],
        rows: int,
    ) -> None:
        """Refuse a comparison that the stage cannot make.

        Args:
            columns: by which it partitions.
            listed: its public partitions; None where they are private.
            metrics: that it releases.
            rows: of one unit in one partition, at most.

        Raises:
            RequestError: as said.
        """
        if self.by not in columns:
            hint = nearest(self.by, columns, "partition_by") or "name it in partition_by"
            raise RequestError(field="compare.by", message="must name the column of partition_by", hint=hint)
        if len(columns) > 1:
            message = "compares whole arms, and partition_by has other columns beside it"
            hint = f"put a stage with partition_by: [{self.by}] beside this one"
            raise RequestError(field="compare.by", message=message, hint=hint)
        if self.by in (METRIC, *number_columns("population"), *number_columns("noise")):
            message = f"would be a column {self.by!r} twice"
            raise RequestError(field="compare.by", message=message, hint="rename that column")
        if listed is None:
            message = "needs public partitions: the arms of a test are known before it"
            raise RequestError(field="compare", message=message, hint="write e.g. partitions: {public: [[A], [B]]}")
        if not 2 <= len(listed) <= MOST_ARMS:
            message = f"needs 2 to {MOST_ARMS} public partitions, its arms"
            raise RequestError(field="compare", message=message, hint="list each arm, the baseline among them")
        arms = [key[0] for key in listed]
        if arm_of(self.baseline, arms) is None:
            hint = nearest(str(self.baseline), map(str, arms), "arms")
            raise RequestError(field="compare.baseline", message="is none of the public partitions", hint=hint)
        for one in self.compared(metrics):
            for first, second in itertools.combinations_with_replacement(one.totals, 2):
                UnitProducts(factors=(first, second), rows=rows)

    def compared(self, metrics: Mapping[str, Metric]) -> tuple[Compared, ...]:
        """Return the comparisons, one for each declared metric or quotient.

        Args:
            metrics: of the stage.

        Raises:
            RequestError: a metric is not released, or has no totals of units.
        """
        return tuple(self._compared(name, metrics) for name in self.metrics)

    def _compared(self, name: str, metrics: Mapping[str, Metric]) -> Compared:
        parts = [name] if name in metrics else name.split(QUOTIENT)
        if len(parts) > 2:
            message = f"divide more than once in {name!r}"
            raise RequestError(field="compare.metrics", message=message, hint="write one quotient of two metrics")
        totals = [_totals(part, metrics) for part in parts]
        if len(parts) == 1:
            return Compared(name=name, above=totals[0][0], below=totals[0][1] if len(totals[0]) == 2 else None)
        for part, statistics in zip(parts, totals, strict=True):
            if len(statistics) != 1:
                message = f"divide by or into {part!r}, which is a quotient already"
                raise RequestError(field="compare.metrics", message=message, hint="name counts and sums")
        if totals[0] == totals[1]:
            message = f"divide a number by itself in {name!r}"
            raise RequestError(field="compare.metrics", message=message, hint="name two different metrics")
        return Compared(name=name, above=totals[0][0], below=totals[1][0])


def number_columns(intervals: Intervals) -> tuple[str, ...]:
    """Return the columns of numbers of a comparison: the two values, their difference and their ratio, each with its interval.

    Args:
        intervals: see `Intervals`. Columns of intervals for the noise alone have `noise` in their names.

    >>> number_columns("noise")[3:5]
    ('difference_noise_low', 'difference_noise_high')
    """
    of = "" if intervals == "population" else "_noise"
    contrasts = [f"{name}{end}" for name in ("difference", "ratio") for end in ("", f"{of}_low", f"{of}_high")]
    return ("value", "baseline_value", *contrasts)


def arm_of(value: Any, arms: Sequence[Any]) -> int | None:
    """Return the position of an arm in a list, or None. A text matches a value of another type that is written the same.

    Args:
        value: the arm.
        arms: values of the column's type.

    >>> arm_of("A", ["A", "B"]), arm_of("7", [7, 8]), arm_of("C", ["A", "B"])
    (0, 0, None)
    """
    for place, arm in enumerate(arms):
        if type(arm) is type(value) and arm == value:
            return place
    return next((place for place, arm in enumerate(arms) if arm is not None and str(arm) == str(value)), None)


def _totals(name: str, metrics: Mapping[str, Metric]) -> tuple[Statistic, ...]:
    if name not in metrics:
        message = f"name {name!r}, which this stage does not release"
        raise RequestError(field="compare.metrics", message=message, hint=nearest(name, metrics, "its metrics"))
    metric = metrics[name]
    if metric.auto or metric.scale is not None:
        message = f"name {name!r}, whose bounds are no numbers"
        raise RequestError(field="compare.metrics", message=message, hint="write its bounds as numbers")
    totals = metric.totals
    if not totals:
        message = f"name {name!r}, a {metric.kind or 'metric'}, which is no total or mean of what units add"
        hint = "name a count, a sum or a mean; for a share of units, a sum of a column of 0 and 1"
        raise RequestError(field="compare.metrics", message=message, hint=hint)
    return totals
