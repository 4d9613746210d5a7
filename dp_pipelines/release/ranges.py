"""Estimates and ranges for the truth behind counted numbers: what noise and the limits together may have changed.

In: a released table, the share of a statistic that the limits of the stage keep (`release.kept_shares`), public numbers. Out: for
each metric the columns `<metric>_estimate`, `<metric>_low` and `<metric>_high`; entries of the manifest that say from what they
follow. Holds: post-processing of released numbers; the numbers of a row are made from that row and constants alone. Not covered:
a group that loses more than twice the average share, and units with more rows than could be seen. No private range can hold the
truth without such assumptions (docs/ranges.md), so it is called a range, and never a confidence interval.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.kernels import amounts
from dp_pipelines.kernels.lattice import Flags, Floats
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.error_bars import deviations_in_bar
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.query.range_columns import range_columns
from dp_pipelines.query.rollup import LEVEL
from dp_pipelines.release import staging

ENTRY = "kept"
"""The key in a metric's manifest entry for the share from which its range follows, or the reason why it has none."""

ONE_SIDED = 1.64
"""So many standard deviations below a measured share the true one is at least, with 95%."""

LEAST_LEFT = 1 / 3
"""There is no high end where less than this part of the worst group may be left."""

MOST_UNSEEN = 0.15
"""There is no range either if more than this part of the units is in cells that do not exceed the noise."""

FACTOR_BITS = 12
"""Estimates are counted numbers times a multiple of 2**-12: of so few digits that estimates of parts add up exactly, if the
counted numbers and their sum have 40 binary digits or fewer, as rows, and sums in steps of their noise, have."""

GROUP, TOTAL = 2.0, 1.0
"""One group may lose so many times the average share; a total loses exactly the average."""

CHOSEN = "the published groups were chosen by their noisy numbers"
JOINED = "the limits on rows of each table, before the join, are in no measured share"
UNKNOWN = "which share of it the limits keep is not known well enough"
BEYOND = "there are units with so much of it that nobody knows how much is cut off"
HIDDEN = f"noise hides how much of it more than {MOST_UNSEEN:.0%} of the units have"
LOST = "a group that loses twice the average share may have lost more than two thirds"
LOST_BELOW = f"below the total, since {LOST}"
PEOPLE = "which share of the groups of a unit the limits keep was not measured (kept: {each_metric: true})"
SUM = "which share of the sum the limits keep was not measured (kept: {each_metric: true})"
ABOVE = "not above the finest groups, where a unit counts once, however many of its groups are cut off"
CLIPPED = "which share of sums of units is clipped is not measured"
BOTH_WAYS = "neither end of its clamp is 0, so that clamping may make it larger or smaller"
SHRUNK = "it is pulled towards the other groups"
OTHER_KEYS = "of the group of all other keys, which may lose more than twice the average share"
TAKEN = "another column has the name of one of its columns"
"""Why a metric has no estimate and no high end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptShare:
    """The share of a statistic, over all groups, that the limits keep.

    Args:
        share: as measured, at most 1.
        stddev: of its noise; 0 where the limits cannot cut anything off.
        hides: up to so many units that have far more than most the noise would hide; 0 where they do not matter.

    >>> KeptShare(share=0.98, stddev=0.02).counted, KeptShare(share=0.9, stddev=0.02).counted
    (1.0, 0.9)
    """

    share: float
    stddev: float
    hides: int = 0

    @property
    def counted(self) -> float:
        """Return the share to divide by: 1 where noise alone could make it look smaller than 1."""
        return 1.0 if 1 - self.share < ONE_SIDED * self.stddev else self.share

    @property
    def low(self) -> float:
        """Return the lower end of the share."""
        return max(self.share - ONE_SIDED * self.stddev, 0.0)

    def left(self, times: float) -> float:
        """Return the part of a group that is left at least, if it loses at most so many times the average share."""
        return 1 - times * (1 - self.low)


EVERYTHING = KeptShare(share=1.0, stddev=0.0)
"""The limits cut nothing off."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranges:
    """Estimates of the true numbers of some groups, and the ends of their ranges; NaN for none.

    Args:
        estimate, low, high: one number for each group.
    """

    estimate: Floats
    low: Floats
    high: Floats


def ranges_of(values: Floats, bars: Floats, kept: KeptShare | None, times: float) -> Ranges:
    """Return estimates and ranges of numbers that the limits can only have made smaller.

    Args:
        values: counted numbers, with their noise.
        bars: half the length of the error bar of each.
        kept: the share of all that is counted; None: unknown, so that there is a low end alone.
        times: how many times the average share one group loses at most.

    >>> found = ranges_of(np.array([900.0]), np.array([20.0]), KeptShare(share=0.9, stddev=0.01), GROUP)
    >>> [round(float(numbers[0])) for numbers in (found.low, found.estimate, found.high)]
    [880, 1000, 1199]
    >>> ranges_of(np.array([900.0]), np.array([20.0]), None, GROUP).high.tolist()
    [nan]
    """
    if kept is None or kept.left(times) < LEAST_LEFT:
        nothing = np.full(len(values), np.nan)
        return Ranges(estimate=nothing, low=values - bars, high=nothing)
    factor = round(2**FACTOR_BITS / kept.counted) / 2**FACTOR_BITS
    estimate = values * factor
    high = np.maximum((np.maximum(values, 0.0) + bars) / kept.left(times), estimate + bars * factor)
    return Ranges(estimate=estimate, low=np.minimum(values, estimate) - bars, high=high)


def ranges_of_means(values: Floats, bars: Floats, kept: KeptShare | None, rows: KeptShare, times: float) -> Ranges:
    """Return estimates and ranges of means: the limits make a sum smaller, and the number of rows by which it is divided.

    Args:
        values: means of which none but for noise is below 0.
        bars: half the length of the error bar of each.
        kept: the share of the sum that is counted; None: unknown, so that there is no range.
        rows: the share of rows that is counted.
        times: how many times the average share of either one group loses at most.

    >>> found = ranges_of_means(np.array([10.0]), np.array([0.5]), KeptShare(share=0.8, stddev=0.0), EVERYTHING, GROUP)
    >>> [round(float(numbers[0]), 1) for numbers in (found.low, found.estimate, found.high)]
    [9.5, 12.5, 17.5]
    """
    if kept is None or min(kept.left(times), rows.left(times)) < LEAST_LEFT:
        nothing = np.full(len(values), np.nan)
        return Ranges(estimate=nothing, low=nothing, high=nothing)
    factor = rows.counted / kept.counted
    estimate = values * factor
    least, most = values - bars, np.maximum(values, 0.0) + bars
    least = np.where(least > 0, least * rows.left(times), least)
    return Ranges(
        estimate=estimate,
        low=np.minimum(least, estimate - bars * factor),
        high=np.maximum(most / kept.left(times), estimate + bars * factor),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricRange:
    """The shares from which the ranges of one metric follow.

    Args:
        of_groups: the share of its statistic that the limits keep in the finest groups; None: unknown.
        of_total: the same of a total, of which it is one, or which a rollup has.
        above: the same of the other levels of a rollup.
        why: why there is no estimate and no high end, or not in all groups; empty where there are.
        sign: 1 where the limits can only make its numbers smaller, -1 where they can only make them larger; 0 where they can do
            both, so that it has no range at all.
        rows: of a mean, the share of rows that the limits keep, in addition to that of its sum.
        below: how much of it a unit has less than, or nobody could see how much: "512 rows"; empty where that does not matter.
        law: of its noise, as the manifest names it.
    """

    of_groups: KeptShare | None = None
    of_total: KeptShare | None = None
    above: KeptShare | None = None
    why: str = ""
    sign: int = 1
    rows: KeptShare | None = None
    below: str = ""
    law: str = "gaussian"

    @property
    def bar(self) -> float:
        """Return half the length of an error bar, in standard deviations."""
        return deviations_in_bar(self.law)

    def of(self, values: Floats, stddevs: Floats, totals: Flags, above: Flags, others: Flags) -> Ranges:
        """Return the ranges of the rows of a table.

        Args:
            values, stddevs: its numbers and their deviations; NaN for none.
            totals, above: which rows are totals, and of levels between these and the finest groups.
            others: which rows are of all keys that are not listed, of which nobody knows how much is cut off.
        """
        values, bars = self.sign * values, self.bar * stddevs
        ranges = self._of(values, bars, self.of_groups, GROUP)
        for rows, share, times in (
            (totals, self.of_total, TOTAL),
            (above, self.above, GROUP),
            (others, None, GROUP),
        ):
            part = self._of(values, bars, share, times)
            ranges = Ranges(
                estimate=np.where(rows, part.estimate, ranges.estimate),
                low=np.where(rows, part.low, ranges.low),
                high=np.where(rows, part.high, ranges.high),
            )
        return ranges if self.sign > 0 else Ranges(estimate=-ranges.estimate, low=-ranges.high, high=-ranges.low)

    def _of(self, values: Floats, bars: Floats, kept: KeptShare | None, times: float) -> Ranges:
        if self.rows is None:
            return ranges_of(values, bars, kept, times)
        return ranges_of_means(values, bars, kept, self.rows, times)

    def to_json(self, *, total: bool) -> dict[str, Any]:
        """Return what the metric's entry in the manifest says.

        Args:
            total: whether the stage has no other groups.
        """
        share, times = (self.of_total, TOTAL) if total else (self.of_groups, GROUP)
        values: dict[str, Any] = {"share": None, "stddev": None, "at_least": None, "divided_by": None}
        if share is not None:
            divided = share.counted if self.why not in (LOST, LOST_BELOW) else None
            values = {"share": share.share, "stddev": share.stddev, "at_least": share.low, "divided_by": divided}
        of_rows = {} if self.rows is None else {"share_of_rows": self.rows.share}
        return {
            **values,
            **of_rows,
            "times": times,
            "below": self.below or None,
            "hides": max(of.hides for of in (share, self.rows) if of is not None) if share is not None else 0,
            "why": self.why or None,
        }


def of_stage(query: Query, described: Mapping[str, Any], *, chosen: bool = False) -> dict[str, MetricRange]:
    """Return from what the ranges of a stage follow, for each metric that has such columns.

    Args:
        query: of the stage as it ran, with `kept`.
        described: its entry in the manifest, with the figures of `kept_shares`.
        chosen: whether rows were left out by the size of their noisy numbers.
    """
    figures, by_metric = described[ENTRY], {}
    for name in range_columns(query):
        metric = query.metrics[name]
        range_ = (
            MetricRange(sign=0, why=CHOSEN) if chosen or query.top is not None else _of_metric(metric, query, figures)
        )
        why = OTHER_KEYS if range_.sign and query.other_column is not None else ""
        law = str(described["metrics"][name]["noise"])
        by_metric[name] = dataclasses.replace(range_, law=law, why=range_.why or why)
    return by_metric


def without_columns(*, total: bool) -> dict[str, Any]:
    """Return what the manifest says of a metric that has no such columns, for another column has one of their names.

    Args:
        total: whether the stage has no other groups.

    >>> without_columns(total=False)["why"]
    'another column has the name of one of its columns'
    """
    return MetricRange(why=TAKEN).to_json(total=total)


def _of_metric(metric: Metric, query: Query, figures: Mapping[str, Any]) -> MetricRange:
    match metric.kept_by:
        case "rows":
            return _of_levels(_joined(figures) or _share(figures["rows"]), query, below=_rows_below(figures))
        case "units":
            return _of_units(query, figures)
        case "sum":
            sign = sign_of(metric)
            if not sign:
                return MetricRange(sign=0, why=BOTH_WAYS)
            return _of_levels(_joined(figures) or _of_sum(metric, figures), query, sign, _amount_below(metric, figures))
        case "mean":
            return _of_mean(metric, query, figures)
        case _:
            return MetricRange(sign=0, why=metric.no_range)


def sign_of(metric: Metric) -> int:
    """Return 1 where limits can only make a sum smaller, -1 where they can only make it larger, and 0 where they can do both.

    >>> from dp_pipelines import Sum
    >>> sign_of(Sum("x", min_value=0, max_value=9)), sign_of(Sum("x", min_value=-9, max_value=0))
    (1, -1)
    >>> sign_of(Sum("x", min_value=1, max_value=9)), sign_of(Sum("x", min_sum_per_partition=0, max_sum_per_partition=9))
    (0, 1)
    """
    part = "sum_per_partition" if metric.clips_partition_sums else "value"
    low, high = (metric.given(f"{end}_{part}") for end in ("min", "max"))
    return int(low == 0) - int(high == 0)


def _joined(figures: Mapping[str, Any]) -> str | None:
    """Return why no share is known where rows were joined."""
    return JOINED if "of" in figures else None


def _of_levels(kept: KeptShare | str, query: Query, sign: int = 1, below: str = "") -> MetricRange:
    """Return from what the ranges of all levels alike follow."""
    if isinstance(kept, str):
        return MetricRange(why=kept, sign=sign)
    return MetricRange(of_groups=kept, of_total=kept, above=kept, why=_lost(query, kept), sign=sign, below=below)


def _lost(query: Query, *kept: KeptShare) -> str:
    """Return why a group may have lost too much for a high end, and where; empty if none may."""
    of_total, of_groups = (min(share.left(times) for share in kept) >= LEAST_LEFT for times in (TOTAL, GROUP))
    if of_total if query.is_total else of_groups:
        return ""
    return LOST_BELOW if of_total and query.rolled is not None and not query.rolled.levels[0] else LOST


def _rows_below(figures: Mapping[str, Any]) -> str:
    return f"{figures['rows']['fewer_than']:,} rows"


def _amount_below(metric: Metric, figures: Mapping[str, Any]) -> str:
    """Return the amount at which the cells end, in which nobody could tell how much is cut off."""
    column, *ends = metric.family or ("", 0.0)
    most = min(figures["rows"]["fewer_than"], amounts.LARGEST_END) * max(abs(end) for end in ends)
    return f"{most:,.6g} of {column}"


def _of_units(query: Query, figures: Mapping[str, Any]) -> MetricRange:
    if (why := _joined(figures)) is not None:  # a unit all of whose rows meet nothing is counted nowhere
        return MetricRange(why=why)
    # Of each unit with a row at least one is kept, in some group.
    if query.is_total or _all_groups_kept(query):
        return MetricRange(of_groups=EVERYTHING, of_total=EVERYTHING, above=EVERYTHING)
    groups = _share(figures["groups"]) if "groups" in figures else PEOPLE
    if isinstance(groups, str):
        return MetricRange(of_total=EVERYTHING, why=groups)
    middle = query.rolled is not None and any(query.rolled.levels[:-1])
    lost = LOST if query.rolled is None else LOST_BELOW  # of a total everybody is counted
    why = lost if groups.left(GROUP) < LEAST_LEFT else ABOVE if middle else ""
    return MetricRange(
        of_groups=groups, of_total=EVERYTHING, why=why, below=f"{figures['groups']['fewer_than']:,} groups"
    )


def _of_sum(metric: Metric, figures: Mapping[str, Any]) -> KeptShare | str:
    """Return the share of a sum that the limits keep, or why it is unknown."""
    if metric.clips_partition_sums:
        return CLIPPED
    column, *ends = metric.family or (None,)
    for measured in figures.get("sums", []):
        if measured["column"] == column and measured["end"] in ends:
            return _share(measured)
    return SUM


def _of_mean(metric: Metric, query: Query, figures: Mapping[str, Any]) -> MetricRange:
    sign, of_sum, rows = sign_of(metric), _of_sum(metric, figures), _share(figures["rows"])
    for why in (BOTH_WAYS if not sign else None, SHRUNK if metric.pools else None, _joined(figures), of_sum, rows):
        if isinstance(why, str):
            return MetricRange(sign=0, why=why)
    assert isinstance(of_sum, KeptShare)
    assert isinstance(rows, KeptShare)
    why, below = _lost(query, of_sum, rows), _amount_below(metric, figures)
    return MetricRange(of_groups=of_sum, of_total=of_sum, above=of_sum, rows=rows, why=why, sign=sign, below=below)


def _share(measured: Mapping[str, Any]) -> KeptShare | str:
    """Return a share that the limits keep, or why it is unknown."""
    if measured["share"] is None:
        return UNKNOWN
    if measured["at_most"]:
        return BEYOND
    if measured.get("unseen", 1.0) > MOST_UNSEEN:
        return HIDDEN
    return KeptShare(share=measured["share"], stddev=measured["stddev"], hides=measured.get("hides", 0))


def _all_groups_kept(query: Query) -> bool:
    """Return whether a unit may be in every group there is, so that the limits cut off no group of any unit."""
    listed = query.partitions
    if not isinstance(listed, PublicPartitions) or query.bounds.max_contributions is not None:
        return False
    return listed.count <= query.bounds.max_partitions


def with_columns(table: pa.Table, query: Query, found: Mapping[str, MetricRange]) -> pa.Table:
    """Return a released table with the columns of its ranges.

    Args:
        table: the released table, or some of its rows.
        query: of the stage.
        found: what `of_stage` gave.
    """
    totals, above = _levels(table, query)
    others = np.zeros(table.num_rows, np.bool_)
    if query.other_column is not None:
        others = np.asarray(table.column(query.other_column).to_numpy(), np.bool_)
    nothing = pa.nulls(table.num_rows, pa.float64())
    for name, columns in range_columns(query).items():
        arrays = [nothing] * 3
        if found[name].sign:
            values, stddevs = (_floats(table.column(column)) for column in (name, f"{name}_stddev"))
            ranges = found[name].of(values, stddevs, totals, above, others)
            arrays = [pa.array(numbers, from_pandas=True) for numbers in (ranges.estimate, ranges.low, ranges.high)]
        for column, numbers in zip(columns, arrays, strict=True):
            table = table.append_column(column, numbers)
    return table


def write(source: pathlib.Path, target: pathlib.Path, query: Query, found: Mapping[str, MetricRange]) -> None:
    """Write a released table with the columns of its ranges, which need not fit into memory.

    Args:
        source: the released table.
        target: the new file; its folder exists.
        query, found: as for `with_columns`.

    Raises:
        DiskError: its disk is full, read-only or failing.
    """
    with pa.parquet.ParquetFile(source) as file:
        groups = (file.read_row_group(number) for number in range(file.num_row_groups))
        staging.write_in_order((with_columns(group, query, found) for group in _at_least_one(groups, file)), target)


def _at_least_one(groups: Iterator[pa.Table], file: pa.parquet.ParquetFile) -> Iterator[pa.Table]:
    first = next(groups, None)
    yield file.schema_arrow.empty_table() if first is None else first
    yield from groups


def _levels(table: pa.Table, query: Query) -> tuple[Flags, Flags]:
    """Return which rows are totals, and which are of levels between these and the finest groups."""
    if query.rolled is None:
        return np.full(table.num_rows, query.is_total), np.zeros(table.num_rows, np.bool_)
    level, levels = _floats(table.column(LEVEL)), query.rolled.levels
    totals = (level == 0) & (len(levels[0]) == 0)
    return totals, (level < len(levels) - 1) & ~totals


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)
