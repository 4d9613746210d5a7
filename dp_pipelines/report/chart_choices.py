"""Chooses what plots show of a table: the groups that get a panel, the labels of rows.

In: a published table and the metric by which groups are chosen. Out: rows and texts. Holds: bounded, however large the table is.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from dp_pipelines.query.order_by import SortColumn
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.release import finest_rows
from dp_pipelines.report.pages import mapping
from dp_pipelines.report.released_table import Codes, Key, Numbers, Published, groups, largest_groups, laws_of, of_table

PANELS, POINTS = 6, 200
"""Groups with a panel where there are more than `LONG`, and the latest points of each."""

LONG = 12
"""Up to so many groups each has a panel; a key with more values is long."""


def row_parts(row: int, keys: Sequence[Key]) -> list[str]:
    """The keys of a row as labels."""
    return [key.short(int(key.codes[row])) for key in keys] or ["all"]


def panels_over_time(published: Published, leader: Numbers) -> list[tuple[list[str], Codes]]:
    """The groups that get a panel over time: what each is called, and its rows in the order of time.

    A group without a time, such as that of all other keys, has nothing to draw and gets none.
    """
    time = published.time
    if time is None or time.days is None:
        return []
    others = [key for key in published.keys if key is not time]
    group, first = groups(others, published.table.num_rows)
    days = time.days[time.codes]
    found = []
    for chosen in largest_groups(group, leader, LONG if len(first) <= LONG else PANELS):
        rows = np.flatnonzero((group == chosen) & np.isfinite(days))
        rows = rows[np.argsort(days[rows], kind="stable")][-POINTS:]
        if len(rows):
            found.append((row_parts(int(first[chosen]), others), rows))
    return found


def count_groups(published: Published) -> int:
    """Return how many groups a chart could show: over time, those that have a time."""
    time = published.time
    codes, first = groups([key for key in published.keys if key is not time], published.table.num_rows)
    if time is None or time.days is None:
        return len(first)
    return len(np.unique(codes[np.isfinite(time.days[time.codes])]))


def panels_of(published: Published, leader: Numbers) -> list[tuple[str, Key, Codes]]:
    """The panels of bars where a table has two keys, one of which is short: the value of each, the other key, and the rows.

    The rows of all panels are in the same order: by the size of the other key in all panels together.

    Args:
        published: a table without a time.
        leader: the metric by which groups are chosen.
    """
    if len(published.keys) != 2:
        return []
    across, down = sorted(published.keys, key=lambda key: len(key.values))
    if not 1 < len(across.values) <= LONG:
        return []
    place = np.empty(len(down.values), dtype=np.int64)
    ranked = largest_groups(down.codes, leader, len(place))
    place[ranked] = np.arange(len(ranked))
    found = []
    for code in largest_groups(across.codes, leader, LONG):
        rows = np.flatnonzero(across.codes == code)
        found.append((across.short(int(code)), down, rows[np.argsort(place[down.codes[rows]], kind="stable")]))
    return found


def rollup_order(stage: Mapping[str, object]) -> tuple[SortColumn, ...]:
    """The order in which a rollup is printed, by its entry in the manifest: level by level. Empty where it is none."""
    return (SortColumn(column=LEVEL),) if finest_rows.is_rollup(stage) else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolledUp:
    """What tells numbers of a rollup apart: made to add up, they are no longer independent.

    The numbers before that are. What is computed from fitted numbers by weighted sums, such as a difference or a trend, varies no
    more than the same from those (Gauss and Markov), so that their error bars are the ones to compare by.

    Args:
        raw: of each metric its numbers before they were made to add up, in the finest rows.
        by_time: the level that has the time of the finest rows for its only key; None where there is none.
        raw_by_time: of each metric its numbers before, in the rows of that level.
    """

    raw: Mapping[str, Numbers]
    by_time: Published | None
    raw_by_time: Mapping[str, Numbers]


def rolled_up(published: Published, stage: Mapping[str, object]) -> RolledUp | None:
    """Return what tells the numbers of a rollup apart; None for other tables.

    Args:
        published: the whole table.
        stage: its entry in the manifest.
    """
    if not finest_rows.is_rollup(stage):
        return None
    shown = finest(published, stage)
    rows = None if shown.time is None else finest_rows.of_level(published.table, stage, [shown.time.name])
    level = None if rows is None or shown.time is None else of_table(rows, [shown.time.name], laws_of(stage))
    return RolledUp(raw=_raw(shown, stage), by_time=level, raw_by_time={} if level is None else _raw(level, stage))


def _raw(published: Published, stage: Mapping[str, object]) -> dict[str, Numbers]:
    entries = mapping(stage.get("metrics"))
    bases = {metric.name: mapping(entries.get(metric.name)).get("raw_of") for metric in published.metrics}
    return {str(base): metric for metric in published.metrics if (base := bases[metric.name]) is not None}


def finest(published: Published, stage: Mapping[str, object]) -> Published:
    """What plots show of a rollup: its finest partitions, without the columns that tell levels apart; all of other tables.

    Args:
        published: a table.
        stage: its entry in the manifest.
    """
    if not finest_rows.is_rollup(stage):
        return published
    shown = of_table(
        finest_rows.of(published.table, stage),
        [key.name for key in published.keys if key.name not in (LEVEL, REST)],
        laws_of(stage),
    )
    kept = {metric.name for metric in published.metrics}
    return dataclasses.replace(shown, metrics=tuple(metric for metric in shown.metrics if metric.name in kept))
