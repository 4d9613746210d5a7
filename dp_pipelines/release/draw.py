"""The one step that turns exact totals into a release: selection and all noise of a partition, decided together.

In: totals of all units per partition, a frozen stage, permits of the gate. Out: a plain Arrow table with the partition's columns
and, for each metric, its value and the standard deviation of its noise, or the input of `all_partitions`. Holds: nothing
leaves that the stage's mechanism records do not account for, each draw has a permit; dropped partitions leave no trace; the table
shares no memory, dictionary or metadata with the input. Not covered: running this step twice makes two releases, of
which only one may ever be seen (release.staging).
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.lattice import Flags, Floats, Integers
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.mechanisms.by_statistic import mechanism_of
from dp_pipelines.mechanisms.mechanism import Exact, Noise
from dp_pipelines.mechanisms.permits import Draw, DrawWords, Permit, Permits
from dp_pipelines.metrics.base import UNITS, capped
from dp_pipelines.noise.laws import Law
from dp_pipelines.planning.stage import Selection, StagePlan
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.query.rollup import LEVEL, SELECTED, STATISTICS
from dp_pipelines.release import all_partitions, gate
from dp_pipelines.release.best_partitions import draw_best
from dp_pipelines.release.gate import SELECTION
from dp_pipelines.release.staging import sorted_by_key
from dp_pipelines.selection import truncated_geometric

LARGEST_PORTION = 2**22
"""Cells that are in memory at a time."""


def draw_release(
    totals: Totals,
    stage: StagePlan,
    permits: Permits | None = None,
    *,
    samplers: Callable[[Law], Draw] | None = None,
    words: DrawWords | None = None,
    all_groups: bool = False,
) -> pa.Table:
    """Select partitions and add noise, once.

    Args:
        totals: the merged statistics of the stage, in the order of `stage.statistics`.
        stage: the frozen stage.
        permits: of the gate, for this call alone. Tests leave them out.
        samplers, words: the sources of noise and coins. INTERNAL: for tests, which leave out `permits`.
        all_groups: for a level of a rollup: also the groups that are not selected, which the last column tells apart.

    Returns:
        One row per released partition, sorted by key: any other order could tell in which order the rows came.

    Raises:
        GateError: a record does not pay for what is drawn.
    """
    permits = gate.open_gate(stage, samplers=samplers, words=words) if permits is None else permits
    permits = permits.over(len(totals.partitions[0]))
    if isinstance(stage.kind, BestKind):
        return draw_best(totals, stage, permits)
    steps = noisy_numbers(totals, stage, permits)
    keep = np.ones(len(totals.partitions[0]), np.bool_)
    if stage.selection is not None:
        keep = _keep(totals, stage, stage.selection, steps, permits)
    kept_places = np.arange(len(keep)) if all_groups else np.flatnonzero(keep)
    tables = released_tables(totals, stage, steps, kept_places, permits, selected=keep)
    permits.check_drawn(kept_places)
    return sorted_by_key(pa.concat_tables(tables), stage.query.partition_columns)


def noisy_numbers(
    totals: Totals,
    stage: StagePlan,
    permits: Permits,
    given: Mapping[Statistic, tuple[Law, tuple[int, int]]] = MappingProxyType({}),
) -> dict[Statistic, Integers]:
    """Return the noisy steps of all partitions, for each statistic that is one number and has noise of its own.

    Args:
        totals: of all partitions.
        stage: the frozen stage.
        permits: of the stage, over these partitions.
        given: laws of noise that is known to lie between two numbers of steps, by statistic; its totals are zero.
    """
    every = np.arange(len(totals.partitions[0]))
    return {
        statistic: _noisy_steps(totals, permits.of(statistic.name), index, noise)
        if statistic not in given
        else permits.of(statistic.name).noise_within(*given[statistic], every)
        for index, (statistic, noise) in enumerate(zip(stage.statistics, stage.noises, strict=True))
        if noise is not None and statistic.width is None
    }


def released_tables(
    totals: Totals,
    stage: StagePlan,
    steps: Mapping[Statistic, Integers],
    kept: Integers,
    permits: Permits,
    keys: Sequence[pa.Array] | None = None,
    selected: Flags | None = None,
) -> list[pa.Table]:
    """Return the released rows of some partitions; all noise that they do not have yet is drawn.

    Args:
        totals: of all partitions.
        stage: the frozen stage.
        steps: what `noisy_numbers` gave.
        kept: rising codes.
        permits: of the stage, over all partitions.
        keys: the key columns of the kept ones; None: those of the totals.
        selected: of the levels of a rollup, which of all partitions are selected.
    """
    # Cells and coordinates are many: of partitions that are dropped, whose noise nobody would see, they get none.
    portion = max(1, LARGEST_PORTION // max(1, sum(statistic.width or 0 for statistic in stage.statistics)))
    tables = []
    for begin in range(0, max(len(kept), 1), portion):
        some = kept[begin : begin + portion]
        whole = totals.keys(some) if keys is None else [column[begin : begin + portion] for column in keys]
        tables.append(_table(totals, stage, steps, some, whole, permits, selected))
    return tables


def draw_level(
    totals: Totals,
    stage: StagePlan,
    permits: Permits | None = None,
    *,
    samplers: Callable[[Law], Draw] | None = None,
    words: DrawWords | None = None,
) -> pa.Table:
    """Select the groups of one level of a rollup and add noise, once. Not published: `rolled_up.published` is.

    Args:
        totals, permits, samplers, words: as for `draw_release`.
        stage: of the level.

    Returns:
        One row per group: keys, noisy statistics, the number of the level and whether the group was selected. Of a level above
        the finest also those that were not, since a selected partition in them publishes them too: the record pays for all.
    """
    assert stage.query.level is not None
    above = not stage.query.level.leaves
    table = draw_release(totals, stage, permits, samplers=samplers, words=words, all_groups=above)
    return of_level(table, stage)


def of_level(table: pa.Table, stage: StagePlan) -> pa.Table:
    """Return the columns of one level's released table that the other levels of a rollup need; see `draw_level`."""
    assert stage.query.level is not None
    internal = [*stage.query.partition_columns, STATISTICS, SELECTED]
    return table.select(internal).append_column(LEVEL, pa.array(np.full(table.num_rows, stage.query.level.number)))


def _noisy_steps(totals: Totals, permit: Permit, place: int, noise: Noise) -> Integers:
    """Return one noisy number for each partition, in steps of the release."""
    exact = totals.coarse(place, shift=noise.fine_bits, step=noise.step)
    return permit.add_noise(exact, noise.law, np.arange(len(exact)))


def _keep(
    totals: Totals,
    stage: StagePlan,
    selection: Selection,
    released: Mapping[Statistic, Integers],
    permits: Permits,
) -> Flags:
    # Units above min_users - 1; a number of units fits easily, the high word is only ever zero.
    at = [statistic.name for statistic in stage.statistics].index(UNITS.name)
    counted = np.minimum((totals.high[at] << np.int64(32)) + totals.low[at], 2**40) - (selection.min_users - 1)
    allowed = counted >= 1
    if selection.noise is None:
        table = truncated_geometric.keep_table(selection.epsilon, selection.delta)
        every, epsilon = np.arange(len(counted)), Fraction(selection.epsilon)
        words = permits.of(SELECTION).words(epsilon=epsilon, delta=selection.delta, partitions=every)
        coins = words(len(counted))
        place = np.clip(counted, 0, len(table))
        # Beyond the table a partition is always kept.
        return allowed & ((place == len(table)) | (coins < table[np.minimum(place, len(table) - 1)]))
    if selection.released:
        return allowed & (released[UNITS] >= selection.threshold)
    noisy = _noisy_steps(totals, permits.of(SELECTION), selection.statistic, selection.noise)
    return allowed & (noisy >= selection.threshold)


def _table(
    totals: Totals,
    stage: StagePlan,
    steps: Mapping[Statistic, Integers],
    kept: Integers,
    keys: Sequence[pa.Array | pa.ChunkedArray],
    permits: Permits,
    selected: Flags | None = None,
) -> pa.Table:
    noisy = {}
    for place, (statistic, noise) in enumerate(zip(stage.statistics, stage.noises, strict=True)):
        if noise is not None:
            exact = Exact(totals=totals, place=place, partitions=kept, noisy=steps.get(statistic))
            noisy[statistic] = mechanism_of(statistic).draw(stage.calibration(place), exact, permits.of(statistic.name))
    # New plain arrays: nothing of a partition that was not selected stays behind in a buffer.
    by = stage.query.partition_columns  # none of a total, whose key is ours and is not published
    columns = dict(zip(by, keys, strict=True)) if by else {}
    for name, metric in stage.query.metrics.items():
        basis = stage.basis(metric)
        values, stddevs = metric.finish(noisy, basis)
        *pooled, of_values, of_stddevs = metric.published(name)
        if pooled:  # until all partitions are together: what is needed of this one
            columns[name] = all_partitions.kept(noisy, metric.statistics(basis))
        columns[of_values] = _column(values)
        published = capped(stddevs, metric)
        columns[of_stddevs] = _column(published) if metric.has_stddev else pa.nulls(len(kept), pa.float64())
    if stage.query.level is not None and noisy:  # until all levels are together
        columns[STATISTICS] = all_partitions.kept(noisy, list(noisy))
        assert selected is not None
        columns[SELECTED] = pa.array(selected[kept])
    return pa.table(columns)


def _column(values: Floats) -> pa.Array:
    """Return a column of one value for each partition, or of lists of values."""
    if values.ndim == 1:
        return pa.array(values)
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))
