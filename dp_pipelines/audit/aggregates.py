"""Replays of the stages that `release.draw` releases: their noise and the selection of their partitions.

In: a frozen stage, the number of replays, with the unit or without. Out: scores, and residuals for their records.
Holds: the audit sees exactly what metrics see, on the release lattice. Not covered: the kernels before, and what
metrics compute from noisy statistics, which is post-processing.
"""

# In one call of `draw_release` each partition is a replay (or one of several partitions that a unit changes), since
# every partition draws its own noise.

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.audit import worst
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.cells import Around, Points
from dp_pipelines.kernels.sparse_counts import Spread
from dp_pipelines.kernels.statistics import Statistic, UnitWeights
from dp_pipelines.kernels.vectors import Parts
from dp_pipelines.mechanisms.mechanism import Noise
from dp_pipelines.metrics.base import UNITS, Basis, Metric, Noisy, ReleasedValues
from dp_pipelines.planning.stage import Selection, StagePlan
from dp_pipelines.release import gate
from dp_pipelines.release.draw import draw_release
from dp_pipelines.selection import truncated_geometric

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

PORTION = 2**17
"""The number of integers that are drawn at a time."""

SURELY = 40
"""So many scales of noise above a threshold, a partition is kept for any draw."""


@dataclasses.dataclass(frozen=True)
class Probe(Metric):
    """A metric that publishes nothing and keeps the noisy statistics it gets."""

    needs_row_bound = False
    seen: dict[Statistic, Noisy] = dataclasses.field(default_factory=dict, compare=False, hash=False)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return ()

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        self.seen.update(noisy)
        size = max((len(one.values) for one in noisy.values()), default=0)
        return np.zeros(size), np.zeros(size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Portion:
    """Some replays.

    Args:
        scores: one for each replay.
        residuals: by name of statistic, released steps less exact steps: a row for each replay, a column for each integer of it.
    """

    scores: Floats
    residuals: Mapping[str, Floats]


def noisy_numbers(stage: StagePlan) -> list[int]:
    """Return the places of statistics with one noisy number for a partition."""
    pairs = zip(stage.statistics, stage.noises, strict=True)
    return [i for i, (s, noise) in enumerate(pairs) if noise is not None and s.width is None]


def noisy_lists(stage: StagePlan) -> list[int]:
    """Return the places of statistics with many noisy numbers for a partition, except those that decide on one."""
    pairs = enumerate(zip(stage.statistics, stage.noises, strict=True))
    return [i for i, (s, noise) in pairs if noise is not None and s.width is not None and not s.decided]


def numbers(stage: StagePlan, replays: int, *, with_unit: bool) -> Iterator[Portion]:
    """Yield replays of all statistics with one number for a partition, in partitions that are kept.

    Args:
        stage: the frozen stage.
        replays: how many.
        with_unit: whether the unit is there.
    """
    stage = _only(stage, noisy_numbers(stage))
    places = noisy_numbers(stage)
    totals_of = _sure(stage)
    changes = {i: worst.change(stage, stage.statistics[i], _noise(stage, i), least=totals_of[i]) for i in places}
    across = max(change.pieces for change in changes.values())
    probe = Probe()
    watched = _watched(stage, probe)
    for size in _sizes(replays, across * len(places)):
        columns = [np.full((size, across), total, np.int64) for total in totals_of]
        for i, change in changes.items():
            columns[i][:] = change.before
            if with_unit:
                columns[i][:, : change.pieces] = change.after
        draw_release(_totals(stage, [column.ravel() for column in columns]), watched, gate.replay(watched))
        scores, residuals = np.zeros(size), {}
        for i, change in changes.items():
            statistic, noise = stage.statistics[i], change.noise
            released = (probe.seen[statistic].values / noise.unit).reshape(size, across)
            scores += change.score(released[:, : change.pieces]).sum(axis=1)
            residuals[statistic.name] = released - worst.coarse(columns[i].ravel(), noise).reshape(size, across)
        yield Portion(scores=scores, residuals=residuals)


def lists(stage: StagePlan, place: int, replays: int, *, with_unit: bool) -> Iterator[Portion]:
    """Yield replays of one statistic with many numbers for a partition. A replay is one number, or some of them.

    Args:
        stage: the frozen stage.
        place: of the statistic.
        replays, with_unit: as for `numbers`.
    """
    statistic, noise = stage.statistics[place], _noise(stage, place)
    width = statistic.width
    assert width is not None
    change = worst.change(stage, statistic, noise)
    probe = Probe()
    alone = _only(dataclasses.replace(stage, selection=None), [place])
    watched = _watched(alone, probe)
    value = change.after if with_unit else change.before
    steps = change.steps_after if with_unit else change.steps_before
    for size in _sizes(replays, change.pieces):
        values = np.full((-(-size * change.pieces // width), width), value, np.int64)
        draw_release(_with_lists(alone, statistic, values), watched, gate.replay(watched))
        released = (probe.seen[statistic].values / noise.unit).ravel()[: size * change.pieces].reshape(size, -1)
        yield Portion(scores=change.score(released).sum(axis=1), residuals={statistic.name: released - steps})


def ranks(stage: StagePlan, place: int, counts: Integers) -> Integers:
    """Choose the first or the second candidate in each of some partitions, by a statistic of ranks.

    Args:
        stage: the frozen stage.
        place: of the statistic, whose further candidates are left out.
        counts: (partitions, 5): below the first, on it, between both, on the second, above it.
    """
    statistic = stage.statistics[place]
    assert isinstance(statistic.cells, Around)
    cells = dataclasses.replace(statistic.cells, candidates=statistic.cells.candidates[:2])
    return _decided(stage, place, dataclasses.replace(statistic, cells=cells), counts).astype(np.int64)


def medians(stage: StagePlan, place: int, counts: Integers) -> Floats:
    """Return the noisy median of each of some partitions, as a part of the range, for values at its ends.

    Args:
        stage: the frozen stage.
        place: of the statistic, whose points but the ends are left out.
        counts: (partitions, 2): values at the lower end, at the upper one.
    """
    statistic = stage.statistics[place]
    assert isinstance(statistic.cells, Points)
    cells = dataclasses.replace(statistic.cells, steps=1)
    return _decided(stage, place, dataclasses.replace(statistic, cells=cells), counts)


def _decided(stage: StagePlan, place: int, few: Statistic, counts: Integers) -> Floats:
    """Return the decision from some counts, with a statistic of few cells in place of the stage's."""
    statistics = tuple(few if i == place else s for i, s in enumerate(stage.statistics))
    noises = FrozenMapping({few.name: stage.choices.noises[stage.statistics[place].name]})
    choices = dataclasses.replace(stage.choices, noises=noises)
    alone = _only(dataclasses.replace(stage, statistics=statistics, choices=choices, selection=None), [place])
    probe = Probe()
    watched = _watched(alone, probe)
    draw_release(_with_lists(alone, few, counts), watched, gate.replay(watched))
    return probe.seen[few].values


def kept(stage: StagePlan, users: int, weights: int, partitions: int) -> Flags:
    """Return which of some equal partitions are kept, bool of shape (partitions,).

    Args:
        stage: a frozen stage with selection.
        users: units of each.
        weights: their weights together.
        partitions: how many.
    """
    query = dataclasses.replace(stage.query, metrics={}, top=None, compare=None, rollup=None)
    bare = dataclasses.replace(_only(stage, []), query=query)
    columns = []
    for statistic in bare.statistics:
        columns.append(np.full(partitions, weights if isinstance(statistic, UnitWeights) else users, np.int64))
    table = draw_release(_totals(bare, columns), bare, gate.replay(bare))
    selected = np.zeros(partitions, np.bool_)
    selected[table.column(stage.query.partition_columns[0]).to_numpy()] = True
    return selected


def total_at(selection: Selection, steps: float) -> int:
    """Return the total of the compared statistic that is nearest to so many release steps.

    Args:
        selection: of the stage, with noise.
        steps: of the release.
    """
    assert selection.noise is not None
    fine = float(1 << selection.noise.fine_bits)
    return max(0, round(steps * selection.noise.step / fine))


def _noise(stage: StagePlan, place: int) -> Noise:
    noise = stage.noises[place]
    assert noise is not None
    return noise


def _sizes(replays: int, width: int) -> Iterator[int]:
    """Yield the sizes of portions."""
    most = max(64, PORTION // width)
    for begin in range(0, replays, most):
        yield min(most, replays - begin)


def _only(stage: StagePlan, places: list[int]) -> StagePlan:
    """Return the stage with some of its noisy statistics, and those that select its partitions."""
    needed = {*places, _units(stage)} | ({stage.selection.statistic} if stage.selection is not None else set())
    left = sorted(needed)
    noises = tuple(stage.noises[i] if i in places else None for i in left)
    selection = stage.selection
    if selection is not None:
        selection = dataclasses.replace(selection, statistic=left.index(selection.statistic))
    return dataclasses.replace(
        stage, statistics=tuple(stage.statistics[i] for i in left), noises=noises, selection=selection
    )


def _units(stage: StagePlan) -> int:
    return [statistic.name for statistic in stage.statistics].index(UNITS.name)


def _watched(stage: StagePlan, probe: Probe) -> StagePlan:
    """Return the stage with the probe in place of its metrics."""
    return dataclasses.replace(
        stage, query=dataclasses.replace(stage.query, metrics={"replay": probe}, top=None, compare=None, rollup=None)
    )


def _sure(stage: StagePlan) -> list[int]:
    """Return for each statistic a total with which a partition is kept for any draw."""
    bounds = [worst.LEAST] * len(stage.statistics)
    selection = stage.selection
    if selection is None:
        return bounds
    units = _units(stage)
    bounds[units] = max(bounds[units], selection.min_users + 1)
    if selection.noise is None:
        table = truncated_geometric.keep_table(selection.epsilon, selection.delta)
        bounds[units] = max(bounds[units], len(table) + selection.min_users)
    else:
        steps = selection.threshold + math.ceil(SURELY * max(1.0, float(selection.noise.law.scale)))
        bounds[selection.statistic] = max(bounds[selection.statistic], total_at(selection, steps) + 1)
    return bounds


def _totals(stage: StagePlan, columns: list[Integers]) -> Totals:
    """Return totals with one number for each statistic and partition."""
    keys: tuple[Any, ...] = (pa.array(np.arange(len(columns[0]))),) * len(stage.layout.partition_names)
    high, low = zip(*map(worst.words, columns), strict=True)
    return Totals(partitions=keys, high=high, low=low)


def _with_lists(stage: StagePlan, statistic: Statistic, matrix: Integers) -> Totals:
    """Return totals with a matrix of numbers for one statistic; the others are not read."""
    size, place = len(matrix), stage.statistics.index(statistic)
    totals = _totals(stage, [np.full(size, worst.LEAST, np.int64)] * len(stage.statistics))
    if statistic.vectors is not None:
        rows = np.arange(size)
        return dataclasses.replace(totals, vectors={place: Parts(vectors=matrix, order=rows, codes=rows)})
    spread = Spread(width=matrix.shape[1], places=np.arange(matrix.size), counts=matrix.ravel())
    return dataclasses.replace(totals, cells={place: spread})
