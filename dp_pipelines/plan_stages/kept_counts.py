"""The counts that say what the bounds of a stage cut off: which coordinates one unit's vector has, and the query that sums them.

In: a query that has `kept`. Out: the meaning of each coordinate; the query of the stage `<name>.kept`, one sum of a vector for
each unit; the bounds by which these are made. Holds: the norm to which the sum clips a unit's vector is that of the
groups of coordinates (docs/proofs/kept.md), so that its one record holds whatever the rows are. Not covered: making the vectors
(`kernels.unit_facts`) and what is computed from their noisy sum (`release.kept_shares`).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

from dp_pipelines.kernels import amounts
from dp_pipelines.kernels.cells import Sides
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.unit_facts import ROW, TWIN, UnitCells
from dp_pipelines.kernels.vectors import CLIP_BITS
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.vectors import VectorSum
from dp_pipelines.plan_stages import one_partition
from dp_pipelines.query.kept import COLUMN, LARGEST_END
from dp_pipelines.query.query import ContributionBounds, PublicPartitions, Query

UNITS = "units"
"""The one metric of the stage that releases the counts."""

TIMES = 64
"""The cells of rows end at so many times what the bounds keep of a unit, where no end is declared."""

MOST_PAIRS = 2**16
"""Partitions of one unit are counted up to here: one row of each must be remembered."""

WHERE, LOOKUP = "where", "lookup"
"""What a row passes, or is found in, before a query sees it."""

Ends = tuple[str, float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptCounts:
    """What the coordinates of a unit's vector mean.

    Args:
        edges: numbers of rows at which cells begin; the last one has no end.
        clamped: for each column and range to which values are clamped, the name of the first metric that says so.
        filters: what decides about rows before the query sees them.
        columns: which of them are not null is counted.
        pairs: numbers of partitions of a unit at which cells begin; none where these are not counted.
        summed: for each sum whose kept share is measured, the name of the first metric with it.
    """

    edges: tuple[int, ...]
    clamped: tuple[str, ...]
    filters: tuple[str, ...]
    columns: tuple[str, ...]
    pairs: tuple[int, ...] = ()
    summed: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: Query) -> "KeptCounts":
        """Those of a query that has `kept`.

        >>> from dp_pipelines import ContributionBounds, Kept, Sum
        >>> query = Query(privacy_unit="customer", partition_by="region", kept=Kept(share=0.02, up_to=20),
        ...               bounds=ContributionBounds(max_contributions=4),
        ...               metrics={"paid": Sum("amount", min_value=0, max_value=9)})
        >>> KeptCounts.of(query)
        KeptCounts(edges=(1, 2, 4, 8, 16, 20), clamped=('paid',), filters=(), columns=('region', 'amount'),
        pairs=(), summed=())
        """
        assert query.kept is not None
        bounds = query.bounds
        most = bounds.max_rows if bounds.bounds_rows else bounds.max_partitions
        end = query.kept.up_to or min(TIMES * most, LARGEST_END)
        metrics, kept = query.sorted_metrics, query.kept
        people = kept.each_metric and not query.is_total and any(metric.kept_by == "units" for _, metric in metrics)
        return cls(
            edges=edges_up_to(end),
            clamped=_firsts(query, ends_of) if kept.clamped is None else kept.clamped,
            pairs=edges_up_to(min(end, MOST_PAIRS)) if people else (),
            summed=_firsts(query, amount_of if kept.each_metric else _nothing) if kept.summed is None else kept.summed,
            filters=tuple(query.kept.filters),
            columns=tuple(column for column in query.columns if column not in (*query.unit_columns, TWIN)),
        )

    @property
    def cells(self) -> UnitCells:
        """The coordinates."""
        return UnitCells(
            edges=self.edges,
            clamped=len(self.clamped),
            facts=len(self.filters) + len(self.columns),
            pairs=self.pairs,
            amounts=amounts.edges(self.edges[-1]) if self.summed else (),
            sums=len(self.summed),
        )

    def amounts(self, metrics: Mapping[str, Metric]) -> tuple[tuple[str, float], ...]:
        """The columns of the measured sums with the ends of their clamps that are not 0, as the metrics have them now.

        Args:
            metrics: of the stage as it runs.
        """
        found = []
        for name in self.summed:
            ends = ends_of(metrics[name])
            assert ends is not None
            found.append((ends[0], max(ends[1:], key=abs)))
        return tuple(found)

    def sides(self, metrics: Mapping[str, Metric]) -> tuple[tuple[str, Sides], ...]:
        """The clamped columns with their ranges, as the metrics have them now: bounds may have been chosen since.

        Args:
            metrics: of the stage as it runs.
        """
        found = []
        for name in self.clamped:
            ends = ends_of(metrics[name])
            assert ends is not None
            found.append((ends[0], Sides(low=ends[1], high=ends[2])))
        return tuple(found)


def as_it_runs(query: Query, bounds: ContributionBounds, metrics: Mapping[str, Metric]) -> Query:
    """A query with the bounds that a run has chosen. Its cells of rows stay those that the plan was made with.

    Args:
        query: as it was asked for, with `kept`.
        bounds: as numbers.
        metrics: of the stage as it runs.
    """
    assert query.kept is not None
    counts = KeptCounts.of(query)
    fixed = dataclasses.replace(query.kept, up_to=counts.edges[-1], clamped=counts.clamped, summed=counts.summed)
    return dataclasses.replace(query, bounds=bounds, metrics=metrics, kept=fixed)


def edges_up_to(end: int) -> tuple[int, ...]:
    """Return where the cells of rows begin: at the powers of 2, and at the end.

    Few cells, since noise is the same in each: of two that are half as wide, both are more often lost in it. On 18 tables shares
    were as exact as with twice as many (docs/benchmarks/chosen_bounds.md).

    >>> edges_up_to(3), edges_up_to(17)
    ((1, 2, 3), (1, 2, 4, 8, 16, 17))
    """
    return tuple(sorted({*(1 << power for power in range(end.bit_length())), end}))


def ends_of(metric: Metric) -> Ends | None:
    """The column and the range to which each value of a metric is clamped; None where rows are not clamped.

    >>> from dp_pipelines import Count, Median
    >>> ends_of(Median("amount", min_value=0, max_value=9)), ends_of(Count())
    (('amount', 0.0, 9.0), None)
    """
    if metric.family is not None:
        return metric.family
    low, high = getattr(metric, "min_value", None), getattr(metric, "max_value", None)
    if metric.column is None or metric.clips_partition_sums or low is None or high is None:
        return None
    return metric.column, float(low), float(high)


def amount_of(metric: Metric) -> Ends | None:
    """The column and the range of a metric of whose sum the limits can only cut off; None where it has no such sum.

    >>> from dp_pipelines import Mean, Sum
    >>> amount_of(Sum("amount", min_value=0, max_value=9)), amount_of(Mean("amount", min_value=1, max_value=9))
    (('amount', 0.0, 9.0), None)
    """
    if metric.kept_by not in ("sum", "mean") or metric.clips_partition_sums:
        return None
    return ends_of(metric) if 0 in (metric.given("min_value"), metric.given("max_value")) else None


def _nothing(metric: Metric) -> Ends | None:
    return None


def _firsts(query: Query, ends_of_metric: Callable[[Metric], Ends | None]) -> tuple[str, ...]:
    """For each column and range, the name of the first metric with it."""
    first: dict[Ends, str] = {}
    for name, metric in query.sorted_metrics:
        if (ends := ends_of_metric(metric)) is not None:
            first.setdefault(ends, name)
    return tuple(first.values())


def query_of(query: Query) -> Query:
    """The query that sums the vectors of units."""
    cells = KeptCounts.of(query).cells
    return one_partition.query(
        query.privacy_unit, {UNITS: VectorSum(COLUMN, size=cells.width, max_norm=norm(cells.l2_squared))}
    )


def norm(squared: int) -> float:
    """The least norm on the lattice of clipping that is not below the root of a whole number: nothing of it is clipped.

    >>> norm(4), 3 <= norm(3) ** 2 <= 3.000001
    (2.0, True)
    """
    bits = CLIP_BITS - math.frexp(math.sqrt(squared))[1]
    return math.ldexp(math.isqrt((squared << 2 * bits) - 1) + 1, -bits)


def layout_of(query: Query, metrics: Mapping[str, Metric]) -> Layout:
    """The bounds by which a unit's kept rows are found.

    Args:
        query: with its bounds as numbers.
        metrics: of the stage as it runs.
    """
    counts = KeptCounts.of(query)
    return Layout(
        units=query.unit_columns,
        partitions=query.partition_columns,
        row_id=ROW,
        cells=counts.sides(metrics),
        amounts=counts.amounts(metrics),
        max_partitions=query.bounds.max_partitions,
        max_rows_per_partition=query.bounds.max_rows_per_partition,
        max_rows=query.bounds.max_contributions,
        public=query.partitions.columns if isinstance(query.partitions, PublicPartitions) else None,
        other=query.other_column is not None,
    )
