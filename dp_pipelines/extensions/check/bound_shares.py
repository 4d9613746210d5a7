"""What the bounds of a stage keep of its rows, units, partitions and sums, and groups on their way to their sizes.

In: the rows of all units of a shard, unbounded, in wire form. Out: notes; for each level of partitions a table of groups with
their rows, units and what the bounds keep of these. Holds: shares are expectations over the salt of a run, exact but for rows
that tie. NOT private. Not covered: groups over several shards (`group_sizes`).
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.extensions.check.chances import some_kept
from dp_pipelines.extensions.check.notes import Notes
from dp_pipelines.extensions.check.null_counts import rows_with_null
from dp_pipelines.kernels import keys, shard
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.unique_codes import unique_codes
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.planning.selection_chances import Selects
from dp_pipelines.steps import unbounded_rows

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

STEPS = (0.25, 0.5, 2.0, 4.0)
"""Other bounds whose share of rows is told, as multiples of the job's own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfiledClip:
    """The clamp of a metric.

    Args:
        metric: its name.
        column: whose values are clamped.
        low, high: the range.
        of_sums: whether a unit's sum in a partition is clamped, not each value.
        by_partition: whether each partition has a range of its own: a value is then its place in it, from 0 to 1.
        adds_up: whether the metric is computed from a sum of the values, so that the clamped part of that sum says something.
    """

    metric: str
    column: str
    low: float
    high: float
    of_sums: bool = False
    by_partition: bool = False
    adds_up: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfiledLevel:
    """One of the sets of partitions of a stage.

    Args:
        places: of its columns among those of the stage.
        listed: how many partitions are public; 0 where they are private.
        selects: how they are selected; None: all are published.
    """

    places: tuple[int, ...]
    listed: int
    selects: Selects | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfiledStage:
    """What is counted of a stage.

    Args:
        name: of the stage.
        layout: its units, partitions, public list and bounds.
        bounds_rows: whether rows of a unit in a partition are bounded.
        clips: of its metrics.
        levels: of partitions, the finest last.
        num_shards: groups into which units and partitions are cut. It changes no result.
        salt: a 64-bit number that evens the load.
    """

    name: str
    layout: Layout
    bounds_rows: bool
    clips: tuple[ProfiledClip, ...]
    levels: tuple[ProfiledLevel, ...]
    num_shards: int
    salt: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The number columns that are clamped."""
        return tuple(dict.fromkeys(clip.column for clip in self.clips))

    @property
    def other_partitions(self) -> tuple[int, ...]:
        """Bounds on partitions beside the job's own."""
        return () if self.layout.max_rows is not None else _others(self.layout.max_partitions)

    @property
    def other_rows(self) -> tuple[int, ...]:
        """Bounds on rows beside the job's own: in a partition, or in all."""
        if self.layout.max_rows is not None:
            return _others(self.layout.max_rows)
        return _others(self.layout.max_rows_per_partition) if self.bounds_rows else ()


def _others(bound: int) -> tuple[int, ...]:
    found = {round(bound * step) for step in STEPS}
    return tuple(sorted(other for other in found if other >= 1 and other != bound))


@np.errstate(all="ignore")  # sums of huge values are no numbers, and no warning may tell of a row
def wire(table: pa.Table, of: ProfiledStage, notes: Notes) -> pa.Table:
    """The rows of a table of events that a release sees, and what is counted row by row.

    Args:
        table: events.
        of: what is counted.
        notes: takes the numbers.
    """
    without = int(rows_with_null(table, of.layout.units).sum())
    rows = unbounded_rows.wire_rows(table, of.layout, of.columns)
    notes.add("rows", table.num_rows)
    notes.add("without_unit", without)
    notes.add("unlisted", table.num_rows - without - rows.num_rows)
    for clip in of.clips:
        if not clip.of_sums:
            _count_values(keys.one_array(rows.column(_number(of, clip))).to_numpy(), clip, notes)
    return rows


def _count_values(values: Floats, clip: ProfiledClip, notes: Notes) -> None:
    known = values[~np.isnan(values)]
    notes.add("clip", clip.metric, "values", len(known))
    notes.add("clip", clip.metric, "nulls", len(values) - len(known))
    _count_clamped(known, clip, notes)


def _count_clamped(values: Floats, clip: ProfiledClip, notes: Notes) -> None:
    """How many values, or sums, lie beyond the clamp, and what it makes of their sum; no infinite one is summed."""
    finite = values[np.isfinite(values)]
    notes.add("clip", clip.metric, "below", int((values < clip.low).sum()))
    notes.add("clip", clip.metric, "above", int((values > clip.high).sum()))
    notes.add("clip", clip.metric, "sum", float(finite.sum()))
    notes.add("clip", clip.metric, "clamped", float(np.clip(finite, clip.low, clip.high).sum()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _UnitPairs:
    """The (unit, partition) pairs of a shard, each with numbers of its own.

    Args:
        unit, partition: codes.
        rows: of the pair.
        groups, rows_of_unit: partitions and rows of its unit.
        first: whether it is the first pair of its unit.
        order, starts: of rows: where each pair begins in the order of pairs.
    """

    unit: Codes
    partition: Codes
    rows: Codes
    groups: Codes
    rows_of_unit: Codes
    first: NDArray[np.bool_]
    order: Codes
    starts: Codes


def of_units(rows: pa.Table, of: ProfiledStage, notes: Notes) -> Iterator[tuple[int, pa.Table]]:
    """What the bounds keep of the units of a shard; and their groups, by level.

    Args:
        rows: wire tables of these units, as one.
        of: what is counted.
        notes: takes the numbers.

    Yields:
        the number of a level, with a table of its groups: `p0`.., `units`, `rows`, `mean` and `variance` of what is compared.
    """
    partitions = keys.dense([keys.one_array(rows.column(name)) for name in of.layout.partition_names])
    found = _pairs(rows, of.layout, partitions)
    chance, share = _kept(found, of)
    _note_bounds(found, chance, share, of, notes)
    with np.errstate(all="ignore"):  # as above
        for clip in of.clips:
            _note_sums(rows, found, chance, share, clip, of, notes)
    for number, level in enumerate(of.levels):
        yield number, _groups(found, partitions, level, of)


def _pairs(rows: pa.Table, layout: Layout, partitions: keys.Keys) -> _UnitPairs:
    units = keys.dense([keys.one_array(rows.column(name)) for name in layout.unit_names])
    width = max(len(partitions), 1)
    order, codes = unbounded_rows.sorted_codes(units.codes * width + partitions.codes)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    sizes = np.diff(np.append(starts, len(codes)))
    unit, partition = np.divmod(codes[starts], width)
    groups = np.bincount(unit, minlength=len(units))
    of_unit = np.bincount(unit, weights=sizes, minlength=len(units)).astype(np.int64)
    return _UnitPairs(
        unit=unit, partition=partition, rows=sizes, groups=groups[unit], rows_of_unit=of_unit[unit],
        first=np.diff(unit, prepend=-1) > 0, order=order, starts=starts,
    )  # fmt: skip


def _kept(found: _UnitPairs, of: ProfiledStage) -> tuple[Floats, Floats]:
    """For each pair the chance that something of it is kept, and which part of its rows is, by expectation."""
    layout = of.layout
    if layout.max_rows is not None:
        return (
            some_kept(found.rows_of_unit, layout.max_rows, found.rows),
            np.minimum(layout.max_rows / found.rows_of_unit, 1.0),
        )
    chance = np.minimum(layout.max_partitions / found.groups, 1.0)
    part = np.minimum(layout.max_rows_per_partition / found.rows, 1.0) if of.bounds_rows else np.ones(len(chance))
    return chance, chance * part


def _note_bounds(found: _UnitPairs, chance: Floats, share: Floats, of: ProfiledStage, notes: Notes) -> None:
    """Units, pairs and rows, and how many of them each bound keeps."""
    layout, rows = of.layout, found.rows.astype(np.float64)
    notes.add("units", int(found.first.sum()))
    notes.add("pairs", len(rows))
    notes.add("counted", float(rows.sum()))
    if len(rows):  # notes are added up, so the number of rows is part of the name
        notes.add("largest_unit", int(found.rows_of_unit.max()), 1)
    notes.add("kept", "rows", float((share * rows).sum()))
    notes.add("kept", "pairs", float(chance.sum()))
    lose = np.zeros(len(rows), np.bool_)
    if layout.max_rows is not None:
        lose = found.rows_of_unit > layout.max_rows
        notes.add("bound", "max_contributions", "rows", float((share * rows).sum()))
        notes.add("bound", "max_contributions", "cut", int(lose[found.first].sum()))
        for other in of.other_rows:
            kept = np.minimum(found.rows_of_unit[found.first], other)
            notes.add("other", "max_contributions", other, float(kept.sum()))
    else:
        lose = found.groups > layout.max_partitions
        notes.add("bound", "max_partitions_contributed", "rows", float((chance * rows).sum()))
        notes.add("bound", "max_partitions_contributed", "cut", int(lose[found.first].sum()))
        for other in of.other_partitions:
            kept = np.minimum(other / found.groups, 1.0) * rows
            notes.add("other", "max_partitions_contributed", other, float(kept.sum()))
        if of.bounds_rows:
            most = layout.max_rows_per_partition
            notes.add("bound", "max_contributions_per_partition", "rows", float(np.minimum(rows, most).sum()))
            notes.add("bound", "max_contributions_per_partition", "cut", int((rows > most).sum()))
            lose |= rows > most
            for other in of.other_rows:
                notes.add("other", "max_contributions_per_partition", other, float(np.minimum(rows, other).sum()))
    notes.add("units_cut", len(unique_codes(found.unit[lose])))
    for name, numbers in (("groups_of_units", found.groups[found.first]), ("rows_of_pairs", found.rows)):
        for bucket, times in zip(*np.unique(bucket_of(numbers), return_counts=True), strict=True):
            notes.add(name, int(bucket), int(times))


def bucket_of(numbers: Codes) -> Codes:
    """The bucket of each number from 1: 1, 2, 3 to 4, 5 to 8, and so on.

    >>> bucket_of(np.array([1, 2, 3, 4, 5, 8, 9])).tolist()
    [0, 1, 2, 2, 3, 3, 4]
    """
    return np.ceil(np.log2(numbers)).astype(np.int64)


def _note_sums(
    rows: pa.Table,
    found: _UnitPairs,
    chance: Floats,
    share: Floats,
    clip: ProfiledClip,
    of: ProfiledStage,
    notes: Notes,
) -> None:
    """What bounds and clamp together keep of a sum."""
    if not len(found.rows):
        return
    values = keys.one_array(rows.column(_number(of, clip))).to_numpy()[found.order]
    finite = np.where(np.isfinite(values), values, 0.0)
    if clip.of_sums:
        sums = np.add.reduceat(finite, found.starts)
        notes.add("clip", clip.metric, "values", len(sums))
        notes.add("clip", clip.metric, "nulls", 0)
        _count_clamped(sums, clip, notes)
        notes.add("clip", clip.metric, "kept", float((chance * np.clip(sums, clip.low, clip.high)).sum()))
        return
    clamped = np.where(np.isfinite(values), np.clip(values, clip.low, clip.high), 0.0)
    notes.add("clip", clip.metric, "kept", float((share * np.add.reduceat(clamped, found.starts)).sum()))


def _number(of: ProfiledStage, clip: ProfiledClip) -> str:
    """The wire name of a clamped column."""
    return f"x{of.columns.index(clip.column)}"


def _groups(found: _UnitPairs, partitions: keys.Keys, level: ProfiledLevel, of: ProfiledStage) -> pa.Table:
    """The groups of a level that the units of this shard have, one row each."""
    if level.places:
        groups = keys.dense([partitions.columns[place] for place in level.places])
        of_pair = groups.codes[found.partition]
        columns = list(groups.columns)
    else:
        of_pair, columns = np.zeros(len(found.partition), np.int64), [pa.array(np.zeros(1, np.int16))]
    size = len(columns[0])
    # A unit may have several pairs in a group.
    order, codes = unbounded_rows.sorted_codes(found.unit * max(size, 1) + of_pair)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    of_group, pair = codes[starts] % max(size, 1), order[starts]
    rows = np.add.reduceat(found.rows[order], starts) if len(starts) else np.zeros(0, np.int64)
    if of.layout.max_rows is not None:
        chance = some_kept(found.rows_of_unit[pair], of.layout.max_rows, rows)
    else:
        leaves = np.diff(np.append(starts, len(codes)))
        chance = some_kept(found.groups[pair], of.layout.max_partitions, leaves)
    weight = np.ones(len(chance))
    if level.selects is not None and level.selects.by_weight:
        weight = 1 / np.sqrt(np.minimum(found.groups[pair], of.layout.max_partitions))
    numbers = {
        "units": np.ones(len(chance)),
        "rows": rows.astype(np.float64),
        "mean": chance * weight,
        "variance": chance * (1 - chance) * weight**2,
    }
    seen = np.flatnonzero(np.bincount(of_group, minlength=size))
    named = {f"p{place}": gather.take(column, seen) for place, column in enumerate(columns)}
    summed = {name: np.bincount(of_group, weights=each, minlength=size)[seen] for name, each in numbers.items()}
    return pa.table({**named, **{name: pa.array(each) for name, each in summed.items()}})


def cut_groups(groups: pa.Table, number: int, of: ProfiledStage) -> Iterator[tuple[int, pa.Table]]:
    """Groups of a level, cut by their place.

    Args:
        groups: what `of_units` gave.
        number: of the level.
        of: what is counted.
    """
    names = [name for name in groups.column_names if name.startswith("p")]
    for place, piece in shard.slices(groups, names, of.salt, of.num_shards):
        yield number * of.num_shards + place, piece
