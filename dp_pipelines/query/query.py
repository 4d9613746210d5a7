"""Queries: the privacy unit, the partitions, the bounds on contributions and the metrics of one release.

In: names and numbers that the owner of the job declares. Out: frozen descriptions, validated at once. Holds: nothing here
depends on data; everything in a `Query` is public. Not covered: whether the columns exist (the readers check schemas) and what
it costs (`dp_pipelines.planning`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

from dp_pipelines import checks
from dp_pipelines.auto_bounds import joint_bounds, partition_bound, value_bounds
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics.base import RAW, Metric
from dp_pipelines.metrics.lookup_bound import PartitionScale
from dp_pipelines.query import rollup_rules
from dp_pipelines.query.best import RANK, Best
from dp_pipelines.query.compare import Compare
from dp_pipelines.query.contribution_bounds import AUTO_BOUNDS
from dp_pipelines.query.contribution_bounds import LARGEST_BOUND as LARGEST_BOUND
from dp_pipelines.query.contribution_bounds import ContributionBounds as ContributionBounds
from dp_pipelines.query.kept import COLUMN as KEPT
from dp_pipelines.query.kept import MOST_COLUMNS as MOST_KEPT
from dp_pipelines.query.kept import Kept
from dp_pipelines.query.parties import Parties
from dp_pipelines.query.partitions import EVERYTHING as EVERYTHING
from dp_pipelines.query.partitions import OTHER
from dp_pipelines.query.partitions import UNSAID as UNSAID
from dp_pipelines.query.partitions import PrivatePartitions as PrivatePartitions
from dp_pipelines.query.partitions import PublicPartitions as PublicPartitions
from dp_pipelines.query.partitions import ReleasedPartitions as ReleasedPartitions
from dp_pipelines.query.partitions import Strategy as Strategy
from dp_pipelines.query.rollup import LEVEL, REST, Rollup, RollupLevel
from dp_pipelines.query.rollup import of as rollup_of
from dp_pipelines.query.windows import WINDOW_END, WINDOW_START, Windows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Top:
    """Only the released partitions with the largest noisy values are published. It costs nothing.

    Args:
        k: how many; fewer where fewer are kept.
        by: the metric that is compared: one with a single number.
    """

    k: Annotated[int, checks.Whole(low=1, high=2**31)]
    by: str

    def __post_init__(self) -> None:
        checks.declared(self, "top.")
        checks.name(self.by, "top.by")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """One partitioned release: what is counted, summed and averaged, over which partitions, for which privacy unit.

    Args:
        privacy_unit: the column(s) that identify whom the guarantee protects. Rows where one of them is null are dropped. Of
            several columns each combination of values is protected, and not each of its members by itself.
        partition_by: the column(s) whose values are the partitions; no floats. A null is a value of its own. Empty: the total,
            one public partition that holds all rows, published as one row without key columns.
        bounds: how much one unit may contribute. Left out, each run of `dp-pipelines run` chooses it from noisy histograms.
        metrics: what is released for each partition, by name. Empty: the partitions alone are released, which must be private.
        partitions: private (selected from the data) or public (a list, and perhaps one group of all other keys). Not for a total.
        row_id: a column that tells rows of one unit apart; where it is given, the choice of rows follows it. It does not remove
            copies: rows with the same value all count.
        top: publishes only the partitions with the largest released values.
        best: publishes which public partitions are best, and nothing else: no metrics.
        kept: releases what the bounds cut off and how sound the rows are, for a share of the stage's budget.
        compare: arms of a test, which are the public partitions, by difference and ratio, for a share of the stage's budget.
        rollup: levels of partitions whose published numbers add up, from coarse to fine, each a list of columns; the last is
            `partition_by`.
        windows: of event time, each with a release of its own, for rows in Beam's `FixedWindows`; bounds are those of one window.
        level: of a rollup's parts: which level it releases.
        parties: of a job that several organisations run together: who they are.
        group: of a train stage's parts: which units it reads, where it does not read all. Groups of a plan are disjoint.

    Raises:
        RequestError: at once, with field, message and hint.

    >>> from dp_pipelines import Count, Query, ContributionBounds
    >>> query = Query(
    ...     privacy_unit="customer", partition_by=["region"],
    ...     bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1),
    ...     metrics={"orders": Count()})
    >>> query.columns
    ('customer', 'region')
    """

    privacy_unit: str | Sequence[str]
    partition_by: str | Sequence[str]
    bounds: ContributionBounds = AUTO_BOUNDS
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    partitions: PrivatePartitions | PublicPartitions | ReleasedPartitions = UNSAID
    row_id: str | None = None
    top: Top | None = None
    best: Best | None = None
    kept: Kept | None = None
    compare: Compare | None = None
    windows: Windows | None = None
    rollup: Sequence[Sequence[str]] | Rollup | None = None
    level: RollupLevel | None = None
    parties: Parties | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "privacy_unit", checks.names(self.privacy_unit, "privacy_unit"))
        total = isinstance(self.partition_by, (list, tuple)) and not self.partition_by
        by = () if total else checks.names(self.partition_by, "partition_by")
        object.__setattr__(self, "partition_by", by)
        if self.rollup is not None:
            object.__setattr__(self, "rollup", rollup_of(self.rollup))
        if not isinstance(self.bounds, ContributionBounds):
            raise RequestError(field="bounds", message="must be ContributionBounds")
        if not isinstance(self.partitions, (PrivatePartitions, PublicPartitions, ReleasedPartitions)):
            raise RequestError(field="partitions", message="must be PrivatePartitions or PublicPartitions")
        if total:
            self._take_everything()
        self.bounds.check_partitions()
        if self.row_id is not None:
            checks.name(self.row_id, "row_id")
        if not isinstance(self.metrics, Mapping):
            raise RequestError(field="metrics", message="must map names to metrics")
        object.__setattr__(self, "metrics", FrozenMapping(self.metrics))
        if not any(metric.needs_row_bound for metric in self.metrics.values() if isinstance(metric, Metric)):
            object.__setattr__(self, "bounds", self.bounds.without_rows())
        if any(metric.has_cells for metric in self.metrics.values() if isinstance(metric, Metric)):
            object.__setattr__(self, "bounds", self.bounds.for_cells())
        self._check_metrics()
        bounds = {"partitions": self.bounds.max_partitions, "rows": self.bounds.max_rows_per_partition}
        if self.windows is None:  # else bounds are those of one window, and not of the unit
            settled = {name: metric.settled(**bounds) for name, metric in self.metrics.items()}
            object.__setattr__(self, "metrics", FrozenMapping(settled))
        self._check_auto()
        if isinstance(self.partitions, PublicPartitions) and self.partitions.other:
            self.partitions.check_other(self)
        self._check_top()
        self._check_best()
        self._check_kept()
        self._check_compare()
        self._check_windows()
        self._check_rollup()
        if self.parties is not None:
            self.parties.check(self)
        if self.bounds.auto:
            self._check_open_bounds()
        if not self.metrics and isinstance(self.partitions, PublicPartitions) and self.best is None:
            message = "are missing, and with public partitions only their list would be published"
            raise RequestError(field="metrics", message=message, hint="add a metric")
        if set(self.unit_columns) <= set(self.partition_columns):
            raise RequestError(
                field="partition_by",
                message="contains the whole privacy unit, so each partition would be a single unit",
                hint="partition by something that many units share",
            )
        if isinstance(self.partitions, PublicPartitions):
            self.partitions.check(self)

    def _take_everything(self) -> None:
        """Use one public partition without a key, and refuse options that choose among partitions."""
        # Identity distinguishes a default from an equal value that was declared.
        if self.partitions is not UNSAID and self.partitions != EVERYTHING:
            message = "stands beside an empty partition_by, which is one public partition: everything"
            raise RequestError(field="partitions", message=message, hint="drop it, or name columns in partition_by")
        for field in ("top", "best"):
            if getattr(self, field) is not None:
                message = "chooses among partitions, and with an empty partition_by there is one"
                raise RequestError(field=field, message=message, hint="drop it, or name columns in partition_by")
        object.__setattr__(self, "partitions", EVERYTHING)
        if self.level is None:  # of a level of a rollup, bounds are those of the finest one
            object.__setattr__(self, "bounds", self.bounds.over_everything())

    def _check_metrics(self) -> None:
        taken, columns = dict[str, str](), set(self.partition_columns)
        for column in self.partition_columns:
            other = taken.setdefault(column.casefold(), column)
            if other != column:
                message = (
                    f"has columns {other!r} and {column!r}, which differ only by case: many readers take them for one"
                )
                raise RequestError(
                    field="partition_by", message=message, hint="give one another name, in a job file under columns:"
                )
        for metric_name, metric in self.metrics.items():
            checks.metric_name(metric_name, "metrics")
            if not isinstance(metric, Metric):
                raise RequestError(
                    field=f"metrics.{metric_name}",
                    message="must be a metric",
                    hint="write e.g. Count() or Sum('amount', ...)",
                )
            for column in self.released_columns(metric_name):
                other = taken.setdefault(column.casefold(), column)
                if column == other and column in columns:
                    message = f"would publish column {column!r} twice"
                    raise RequestError(field=f"metrics.{metric_name}", message=message, hint="rename the metric")
                if column != other:
                    message = (
                        f"would publish column {column!r} beside {other!r}, which differ only by case: many "
                        "readers take them for one"
                    )
                    raise RequestError(field=f"metrics.{metric_name}", message=message, hint="rename the metric")
                columns.add(column)
            self._check_bounds(f"metrics.{metric_name}", metric)
            if self.is_total and metric.pools:
                message = "pulls groups towards each other, and a total is the only one"
                raise RequestError(field=f"metrics.{metric_name}.shrink", message=message, hint="leave it out")

    def _check_bounds(self, field: str, metric: Metric) -> None:
        if metric.needs_row_bound and not self.bounds.bounds_rows:
            raise RequestError(
                field="max_contributions_per_partition",
                message=f"is needed by {field}, which looks at rows",
                hint="set it in the bounds",
            )
        if metric.per_partition is not None and self.bounds.max_contributions is not None:
            raise RequestError(
                field=field,
                message=f"{metric.per_partition}, which max_contributions does not bound",
                hint="set max_partitions_contributed instead",
            )

    def _check_auto(self) -> None:
        auto = [name for name, metric in self.metrics.items() if metric.auto]
        if auto and value_bounds.COLUMN in self.columns:
            message = f"has bounds that the run chooses, so no column may be called {value_bounds.COLUMN!r}"
            raise RequestError(field=f"metrics.{auto[0]}", message=message, hint="rename that column")
        declared = ("min_value", "max_value", "within")
        for name in auto:
            for other, metric in self.metrics.items():
                same = metric.family is not None and metric.family == self.metrics[name].family
                if same and any(getattr(metric, f) != getattr(self.metrics[name], f) for f in declared):
                    raise RequestError(
                        field=f"metrics.{name}.within",
                        message=f"declares the range of {other!r} on the same column differently",
                        hint="write the same bounds for both, or give one another range",
                    )

    def _check_top(self) -> None:
        if self.top is None:
            return
        if not isinstance(self.top, Top):
            raise RequestError(field="top", message="must be a Top", hint='write Top(k=20, by="...")')
        if self.top.by not in self.metrics or self.metrics[self.top.by].many:
            numbers = [name for name, metric in self.metrics.items() if not metric.many]
            hint = "name one of " + ", ".join(numbers) if numbers else "add a count, for example"
            raise RequestError(field="top.by", message="must name a metric that is a single number", hint=hint)

    def _check_best(self) -> None:
        if self.best is None:
            return
        if not isinstance(self.best, Best):
            raise RequestError(field="best", message="must be a Best", hint='write Best(k=3, by="users")')
        if not isinstance(self.partitions, PublicPartitions):
            raise RequestError(
                field="best",
                message="needs public partitions",
                hint="list them, or use top, which compares released values",
            )
        if self.metrics or self.top is not None:
            message = "publishes no values, so it cannot be combined with metrics or top"
            raise RequestError(field="best", message=message, hint="put them in a separate stage")
        if RANK in self.partition_columns:
            message = f"would publish column {RANK!r} twice"
            raise RequestError(field="best", message=message, hint="rename the partition column")
        self.best.check(self.partitions.count)
        self._check_bounds("best.by", self.best.metric)

    def _check_kept(self) -> None:
        if self.kept is None:
            return
        if not isinstance(self.kept, Kept):
            raise RequestError(field="kept", message="must be a Kept", hint="write Kept(share=0.02)")
        if self.scales:
            message = "cannot stand beside bounds that differ by partition"
            raise RequestError(field="kept", message=message, hint="drop it, or write these bounds as numbers")
        if self.best is not None:
            message = "is not for a stage that chooses the best partitions, which publishes no values"
            raise RequestError(field="kept", message=message, hint="drop it, or put it into a stage with metrics")
        if KEPT in self.columns:
            message = f"is asked for, so no column may be called {KEPT!r}"
            raise RequestError(field="kept", message=message, hint="rename that column")
        if len(self.columns) > MOST_KEPT:
            message = f"counts nulls in at most {MOST_KEPT} columns"
            raise RequestError(field="kept", message=message, hint="read fewer columns in this stage")

    def _check_compare(self) -> None:
        if self.compare is None:
            return
        if not isinstance(self.compare, Compare):
            hint = 'write Compare(by="arm", baseline="A", metrics=["revenue"])'
            raise RequestError(field="compare", message="must be a Compare", hint=hint)
        for field in ("top", "best"):
            if getattr(self, field) is not None:
                message = "chooses among partitions, beside compare, whose arms are all of them"
                raise RequestError(field=field, message=message, hint="drop it, or put it into a separate stage")
        if self.kept is not None and self.kept.share + self.compare.share >= 1:
            message = "and the share of kept leave nothing of the stage's budget"
            raise RequestError(field="compare.share", message=message, hint="make them smaller")
        listed = self.partitions.keys if isinstance(self.partitions, PublicPartitions) else None
        self.compare.check(self.partition_columns, listed, self.metrics, self.bounds.max_rows_per_partition)

    def _check_windows(self) -> None:
        if self.windows is None:
            return
        if not isinstance(self.windows, Windows):
            raise RequestError(
                field="windows", message="must be Windows", hint="write Windows(first=..., size=..., count=...)"
            )
        for field in ("top", "best", "kept", "compare"):
            if getattr(self, field) is not None:
                message = "cannot stand beside windows"
                raise RequestError(field=field, message=message, hint="drop it, or partition by a column of dates")
        if self.bounds.auto or any(metric.auto for metric in self.metrics.values()):
            message = "needs bounds that are numbers: one pipeline releases all windows"
            raise RequestError(field="windows", message=message, hint="write bounds, as numbers")
        for column in (WINDOW_START, WINDOW_END):
            if column in self.columns:
                message = f"adds a column {column!r}, and the query reads one"
                raise RequestError(field="windows", message=message, hint="rename that column")

    def _check_open_bounds(self) -> None:
        chosen = {partition_bound.NAME: partition_bound.COLUMN} if self.bounds.auto_partitions else {}
        if self.bounds.auto_rows:
            chosen[joint_bounds.NAME] = joint_bounds.COLUMN
            if self.compare is not None:
                message = "cannot be combined with a bound on rows that the run chooses"
                hint = f"write {joint_bounds.NAME} as a number"
                raise RequestError(field="compare", message=message, hint=hint)
        strategy = getattr(self.partitions, "strategy", None)
        reserved = (partition_bound.NAME, joint_bounds.NAME)
        partition_bound.refuse(strategy, self.best, self.columns, self.metrics, chosen, reserved)

    def _check_rollup(self) -> None:
        if self.rolled is not None:
            rollup_rules.check(self)

    @property
    def rolled(self) -> Rollup | None:
        """Return its rollup, or None."""
        assert self.rollup is None or isinstance(self.rollup, Rollup)
        return self.rollup

    def released_columns(self, name: str) -> tuple[str, ...]:
        """Return the columns that are published for one of its metrics: values and standard deviations in turn.

        Args:
            name: of the metric.
        """
        if self.rollup is None:
            return self.metrics[name].published(name)
        return (name, f"{name}_stddev", f"{name}{RAW}", f"{name}{RAW}_stddev")

    @property
    def unit_columns(self) -> tuple[str, ...]:
        """Return the columns of the privacy unit."""
        return tuple(self.privacy_unit)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Return the published columns of the partition: those of `partition_by`, and the one that marks all other keys."""
        return (*self.partition_by, *([] if self.other_column is None else [self.other_column]))

    @property
    def other_column(self) -> str | None:
        """Return the column that is true for the partition of all keys that are not listed; None if there is none."""
        if not isinstance(self.partitions, PublicPartitions) or not self.partitions.other:
            return None
        return "_".join(self.partition_by) + OTHER

    @property
    def is_total(self) -> bool:
        """Return True if everything is one partition, which has no key."""
        return not self.partition_by

    @property
    def sorted_metrics(self) -> tuple[tuple[str, Metric], ...]:
        """Return the metrics by name. Plans, sums and draws follow this order; only columns have the declared one."""
        return tuple(sorted(self.metrics.items(), key=lambda item: item[0]))

    @property
    def asked_metrics(self) -> tuple[Metric, ...]:
        """Return the metrics whose columns are read: those that are released, and the one by which the best are chosen."""
        return (*(metric for _, metric in self.sorted_metrics), *([] if self.best is None else [self.best.metric]))

    @property
    def scales(self) -> tuple[PartitionScale, ...]:
        """Return how values are scaled if bounds differ by partition, each scale once."""
        return tuple(dict.fromkeys(metric.scale for _, metric in self.sorted_metrics if metric.scale is not None))

    @property
    def published_keys(self) -> tuple[str, ...]:
        """Return the columns that identify a published row: those of the partition, a level, the rank of a choice."""
        if self.rollup is not None:
            whole = isinstance(self.partitions, PublicPartitions) and self.partitions.all_published
            rest = [] if whole else [REST]
            return (LEVEL, *self.partition_columns, *rest)
        return (*self.partition_columns, *([] if self.best is None else [RANK]))

    @property
    def sorted_by(self) -> tuple[str, ...]:
        """Return the columns by which published rows are sorted."""
        return self.partition_columns if self.rollup is None else self.published_keys

    @property
    def takes_delta(self) -> bool:
        """Return True if a part of delta goes to medians with smooth sensitivity."""
        return any(metric.takes_delta for metric in self.metrics.values())

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Return the columns that metrics read, in order of first use by the sorted metrics."""
        return tuple(dict.fromkeys(column for metric in self.asked_metrics for column in metric.reads))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns that must be read, each once."""
        listed = [*self.unit_columns, *self.partition_by, *self.value_columns]
        if self.row_id is not None:
            listed.append(self.row_id)
        return tuple(dict.fromkeys(listed))
