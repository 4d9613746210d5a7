"""The table of a rollup: all levels together, with numbers that add up, and the noisy ones next to them.

In: the draws of all levels (`draw.draw_level`), a frozen stage. Out: one table, sorted by level and keys; columns that a
level does not have are null there. Holds: it reads noisy numbers, which groups were selected, and public numbers alone, so it
costs nothing, and no split of the partitions changes it; published numbers of groups equal the sums of those below them exactly,
with a row for the rest where partitions are private. Not covered: the arithmetic (`release.consistent`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.keys import Codes
from dp_pipelines.kernels.lattice import Flags, Floats, Integers
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.metrics.base import Metric, Noisy, ReleasedValues, capped
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import PrivatePartitions, PublicPartitions, ReleasedPartitions
from dp_pipelines.query.rollup import LEVEL, REST, SELECTED, STATISTICS
from dp_pipelines.release import consistent
from dp_pipelines.release.consistent import LevelEstimates
from dp_pipelines.release.staging import sorted_by_key


def published(drawn: pa.Table, stage: StagePlan) -> pa.Table:
    """Return the published table of a rollup.

    Args:
        drawn: of all levels, in any order.
        stage: the frozen stage, of the finest level.
    """
    tree = _Tree.of(drawn, stage)
    levels = [_keys(tree, stage, number) for number in range(len(stage.levels))]
    for name, metric in stage.query.metrics.items():
        for table, columns in zip(levels, _metric(tree, stage, metric), strict=True):
            table |= dict(zip(stage.query.released_columns(name), columns, strict=True))
    whole = pa.concat_tables([pa.table(columns) for columns in levels])
    return sorted_by_key(whole, stage.query.published_keys)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tree:
    """The groups that are published.

    Args:
        tables: of each level, from the coarsest, sorted by key.
        parents: for each level from the second, the place of each group's parent.
        whole: by level, True if every part of a group above is published with it, as those of a public list are.
    """

    tables: tuple[pa.Table, ...]
    parents: tuple[Codes, ...]
    whole: tuple[bool, ...]

    @classmethod
    def of(cls, drawn: pa.Table, stage: StagePlan) -> "_Tree":
        tables = []
        for level in stage.levels:
            assert level.query.level is not None
            mine = gather.filter_rows(drawn, drawn.column(LEVEL).to_numpy() == level.query.level.number)
            # One order, so that sums over groups are rounded alike however these were split.
            tables.append(sorted_by_key(mine, level.query.partition_columns))
        parents = [
            _places(above, below, level.query.partition_columns)
            for above, below, level in zip(tables, tables[1:], stage.levels, strict=False)
        ]
        selected = _published(tables, parents)
        places = [np.cumsum(flags) - 1 for flags in selected]
        return cls(
            tables=tuple(gather.filter_rows(table, flags) for table, flags in zip(tables, selected, strict=True)),
            parents=tuple(places[i][parent][selected[i + 1]] for i, parent in enumerate(parents)),
            whole=tuple(_is_whole(level.query.partitions) for level in stage.levels),
        )

    def rests(self, level: int) -> int:
        """Return the number of rows of a level for the rests of groups above."""
        return 0 if self.whole[level] or level == 0 else self.tables[level - 1].num_rows

    def with_rests(self, level: int) -> Codes:
        """Return the parent of each row of a level from the second on, those of the rests last."""
        return np.concatenate([self.parents[level - 1], np.arange(self.rests(level))])

    def noisy(self, stage: StagePlan, statistic: Statistic) -> tuple[list[Floats], list[float]]:
        """Return the noisy numbers of a statistic and the variance of their noise, by level."""
        place = [s for s, noise in zip(stage.statistics, stage.noises, strict=True) if noise is not None].index(
            statistic
        )
        values, variances = [], []
        for table, level in zip(self.tables, stage.levels, strict=True):
            lists = gather.one_array(table.column(STATISTICS))
            values.append(lists.flatten().to_numpy().reshape(-1, lists.type.list_size)[:, place])
            noise = level.noises[level.statistics.index(statistic)]
            assert noise is not None
            variances.append(noise.stddev**2)
        return values, variances

    def raw(self, stage: StagePlan, statistic: Statistic) -> LevelEstimates:
        """Return the noisy numbers as they were drawn, and what they leave for the rests."""
        return self._beside(consistent.as_measured(*self.noisy(stage, statistic)))

    def fitted(self, stage: StagePlan, statistic: Statistic) -> LevelEstimates:
        """Return the least squares over all levels; if parts are unknown, the numbers themselves are the best estimates."""
        if not statistic.adds_up:
            return self.raw(stage, statistic)
        values, variances = self.noisy(stage, statistic)
        # Where parts are unknown they could be anything: those that are known say nothing of what is above them.
        end = next((level for level, whole in enumerate(self.whole) if level and not whole), len(values))
        upper = consistent.least_squares(values[:end], variances[:end], self.parents[: end - 1])
        return self._beside(upper.then(consistent.as_measured(values[end:], variances[end:])))

    def _beside(self, measured: LevelEstimates) -> LevelEstimates:
        values, variances, alone = [measured.values[0]], [measured.variances[0]], [measured.alone[0]]
        for level, parents in enumerate(self.parents, 1):
            own, spread = measured.values[level], measured.variances[level]
            if self.whole[level]:
                values.append(own)
                variances.append(spread)
                alone.append(measured.alone[level])
                continue
            left = consistent.rest_of(measured.values[level - 1], own, parents)
            left_spread = consistent.rest_variance(measured.variances[level - 1], spread, parents)
            values.append(np.concatenate([own, left]))
            variances.append(np.concatenate([spread, left_spread]))
            alone.append(variances[-1])
        return LevelEstimates(values=tuple(values), variances=tuple(variances), alone=tuple(alone))


def _is_whole(partitions: PrivatePartitions | PublicPartitions | ReleasedPartitions) -> bool:
    """Return True if all possible partitions are published."""
    return isinstance(partitions, PublicPartitions) and partitions.all_published


def _places(above: pa.Table, below: pa.Table, names: Sequence[str]) -> Codes:
    """Return the place of each row's group in the level above."""
    if not names:
        return np.zeros(below.num_rows, np.int64)
    both = [
        gather.joined([keys.plain(table.column(name)) for table in (above, below)])
        if above.schema.field(name).type == below.schema.field(name).type
        else keys.plain(below.column(name))
        for name in names
    ]
    codes = keys.dense(both).codes
    place = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    place[codes[: above.num_rows]] = np.arange(above.num_rows)
    places: Codes = place[codes[above.num_rows :]]
    return places


def _published(tables: Sequence[pa.Table], parents: Sequence[Codes]) -> list[Flags]:
    """Return True for groups that are published: selected ones, and those with a published part, whose key names them anyway."""
    selected = [table.column(SELECTED).to_numpy().astype(np.bool_) for table in tables]
    for level in range(len(parents) - 1, -1, -1):
        selected[level] = selected[level].copy()
        selected[level][parents[level][selected[level + 1]]] = True
    return selected


def _keys(tree: _Tree, stage: StagePlan, number: int) -> dict[str, pa.Array]:
    """Return the columns that identify the group of each row of a level."""
    table, rests = tree.tables[number], tree.rests(number)
    own = stage.levels[number].query.partition_columns
    above = stage.levels[number - 1].query.partition_columns if number else ()
    columns = {LEVEL: pa.array(np.full(table.num_rows + rests, number))}
    for name in stage.query.partition_columns:
        kind = tree.tables[-1].schema.field(name).type
        parts = [table.column(name)] if name in own else [pa.nulls(table.num_rows, kind)]
        parts += [tree.tables[number - 1].column(name) if name in above else pa.nulls(rests, kind)] if rests else []
        columns[name] = pa.chunked_array([chunk for part in parts for chunk in _chunks(part)], kind)
    if not all(tree.whole):
        columns[REST] = pa.array(np.arange(table.num_rows + rests) >= table.num_rows)
    return columns


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _metric(tree: _Tree, stage: StagePlan, metric: Metric) -> list[list[pa.Array]]:
    """Return the published columns of a metric, by level: values, deviations, noisy values and their deviations."""
    basis = stage.basis(metric)
    statistics = metric.statistics(basis)
    fitted = {statistic: tree.fitted(stage, statistic) for statistic in statistics}
    measured = {statistic: tree.raw(stage, statistic) for statistic in statistics}
    numbers = range(len(stage.levels))
    values = [_finished(metric, stage, fitted, level) for level in numbers]
    raw = [_finished(metric, stage, measured, level) for level in numbers]
    settled = [value for value, _ in values]
    unit = min(each.unit for level in stage.levels if (each := level.noises[level.statistics.index(statistics[0])]))
    if metric.rolls_up == "sum":
        weights = [_finished(metric, stage, fitted, level, alone=True)[1] ** 2 for level in numbers]
        settled = _adding_up(tree, settled, weights, unit, metric.never_negative)
    elif metric.rolls_up == "units":
        settled = _of_units(tree, settled, unit)
    columns = [
        [settled[level], capped(values[level][1], metric), raw[level][0], capped(raw[level][1], metric)]
        for level in numbers
    ]
    # What the published parts leave of a number of units, or of a mean, is none.
    rests = [0 if metric.rolls_up == "sum" else tree.rests(level) for level in numbers]
    return [[_with_nulls(column, last) for column in of_level] for of_level, last in zip(columns, rests, strict=True)]


def _finished(
    metric: Metric, stage: StagePlan, estimates: Mapping[Statistic, LevelEstimates], level: int, *, alone: bool = False
) -> ReleasedValues:
    """Compute a metric from its statistics on one level, each group with its own deviation."""
    noisy = {
        statistic: Noisy(
            values=each.values[level],
            stddev=cast(float, np.sqrt((each.alone if alone else each.variances)[level])),
        )
        for statistic, each in estimates.items()
    }
    return metric.finish(noisy, stage.basis(metric))


def _adding_up(
    tree: _Tree, values: Sequence[Floats], weights: Sequence[Floats], unit: float, never_negative: bool
) -> list[Floats]:
    """Return numbers that add up to the last step, from the top down; none below zero where that cannot be."""
    tops = np.maximum(values[0], 0.0) if never_negative else values[0]
    step = consistent.step_below(unit, max(float(np.abs(of_level).max(initial=0.0)) for of_level in values))
    levels, exact, whole = [], tops, np.rint(tops / step).astype(np.int64)
    levels.append(whole)
    for level, parents in enumerate(tree.parents, 1):
        mine = len(parents)
        parts = values[level][:mine]
        above, above_whole = exact[: tree.tables[level - 1].num_rows], whole[: tree.tables[level - 1].num_rows]
        if never_negative:
            parts = consistent.not_negative(parts, weights[level][:mine], parents, above, at_most=not tree.whole[level])
        left = consistent.rest_of(above, parts, parents)[: tree.rests(level)]
        exact = np.concatenate([parts, np.maximum(left, 0.0) if never_negative else left])
        whole = consistent.whole_parts(exact / step, tree.with_rests(level), above_whole)
        levels.append(whole)
    return [integers * np.float64(step) for integers in levels]


def _of_units(tree: _Tree, values: Sequence[Floats], unit: float) -> list[Floats]:
    """Return numbers of units: no part above its group, and no group above the sum of its parts."""
    step = consistent.step_below(unit, max(float(np.abs(of_level).max(initial=0.0)) for of_level in values))
    levels: list[Integers] = [np.rint(np.maximum(values[0], 0.0) / step).astype(np.int64)]
    for level, parents in enumerate(tree.parents, 1):
        above = levels[-1]
        parts = consistent.within_parents(
            values[level][: len(parents)] / step, parents, above.astype(np.float64), all_parts=tree.whole[level]
        )
        # Up, which neither takes a part above its group nor the sum of them below it.
        levels.append(np.minimum(np.ceil(parts).astype(np.int64), above[parents]))
    return [
        np.append(integers * np.float64(step), np.zeros(tree.rests(level))) for level, integers in enumerate(levels)
    ]


def _with_nulls(values: Floats, last: int) -> pa.Array:
    """Return a column of numbers, the last so many of which are null."""
    return pa.array(values, mask=np.arange(len(values)) >= len(values) - last)
