"""The part of a report that shows one stage: its first rows as a table, and its plots.

In: the stage's entry in the manifest (any part of it may be missing) and its published file. Out: a dictionary for the
template. Holds: bounded, however large the table is; nothing but released numbers and public facts. Not covered: models,
which have no table.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric
from dp_pipelines.release import shown_rows, verdicts
from dp_pipelines.report import clamp_warnings, compare_text, kept_text, range_text
from dp_pipelines.report.chart_choices import POINTS, finest, panels_over_time, rollup_order, row_parts
from dp_pipelines.report.charts import (
    Series,
    bar_chart,
    heat_map,
    limits,
    time_series,
)
from dp_pipelines.report.figures import LARGEST
from dp_pipelines.report.key_text import joined
from dp_pipelines.report.list_charts import ListStyle, list_plots, number_cells, style_of
from dp_pipelines.report.numbers import error_bar_parts, public_number, tick_number, with_error_bar
from dp_pipelines.report.pages import sequence, text
from dp_pipelines.report.released_table import (
    Codes,
    Key,
    Lists,
    Numbers,
    PrintedOrder,
    Published,
    largest_groups,
    largest_rows,
    printed_order,
    ranking,
    read_published,
)
from dp_pipelines.report.svg import HEAT_STEPS
from dp_pipelines.report.time_axis import axis_of_time

FIRST_ROWS = 200
MOST_PLOTTED = 4
"""Metrics with plots of their own; the table has them all."""

BARS, HEAT_ROWS, HEAT_COLUMNS, BROAD = 10, 20, 40, 24
"""In plots: bars, rows and columns of a heat map, and columns from which on it has the width of the page for itself."""


def stage_section(name: str, stage: Mapping[str, Any], path: pathlib.Path | None, unit: str) -> dict[str, Any]:
    """What the template shows of a stage.

    Args:
        name: of the stage.
        stage: its entry in the manifest, {} where there is none.
        path: of its published Parquet file; None where it published none.
        unit: the privacy unit in words.

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read.
    """
    described = stage.get("metrics") if isinstance(stage.get("metrics"), Mapping) else {}
    section: dict[str, Any] = {
        "name": name,
        "model": False,
        "file": None if path is None else path.name,
        "selection": _selection(stage.get("selection"), unit),
        "most": _chosen_partitions(stage),
        "limits": [text(sentence) for sentence in sequence(stage.get("limits"))],
        "compare": compare_text.section(stage.get("compare")),
        "kept": [
            *kept_text.lines(stage.get("kept"), unit),
            *clamp_warnings.lines(stage),
            *range_text.lines(stage, unit),
        ],
        "rows": 0,
        "plots": [],
        "spreads": [],
    }
    if path is None:
        return section
    keys = stage.get("partition_by")
    named = isinstance(keys, Sequence) and not isinstance(keys, str) and all(isinstance(key, str) for key in keys)
    published = read_published(path, list(keys) if named and keys is not None else None)
    entries = {name: entry for name, entry in (described or {}).items() if isinstance(entry, Mapping)}
    said = {metric.name: entries.get(metric.name, {}).get("kind") for metric in published.in_order}
    known = {name: registry.of_kind(kind) for name, kind in said.items()}
    styles = {found.name: style_of(known[found.name], entries.get(found.name, {})) for found in published.lists}
    part = shown_rows.read_part(stage)
    section["shown_part"] = [] if part is None else [text(words) for words in part.words]
    section["chooses"] = part is not None and part.chooses
    best, order_by = section["selection"]["best"] is not None, () if part is None else part.order_by
    order_by = order_by or rollup_order(stage)
    order = printed_order(published, said, FIRST_ROWS, best=best, order_by=order_by)
    section |= table_of(published, styles, entries, order)
    found = verdicts.told(published.table, stage)
    section["verdict_note"], section["nothing"] = verdicts.note(found, stage), verdicts.nothing_published(stage)
    section["legend"] = [
        {
            "name": metric.name,
            "words": _words(known[metric.name], unit)
            + _chosen_bounds(entries.get(metric.name, {}))
            + _shrunk(entries.get(metric.name, {})),
            "bar": _usual_bar(metric),
            "verdict": found[metric.name].words if metric.name in found else "",
        }
        for metric in published.in_order
    ]
    # The table has all; plots show a mean as it is after shrinkage alone.
    shown = tuple(metric for metric in published.metrics if "raw_of" not in entries.get(metric.name, {}))
    published = finest(dataclasses.replace(published, metrics=shown), stage)
    if published.table.num_rows and (published.metrics or published.lists):
        leader = ranking(published, said | {name: style.name for name, style in styles.items()})
        section["plots"] = _plots(published, leader) if published.keys else []  # a total's numbers need none
        section["spreads"] = [
            list_plots(found, styles[found.name], entries.get(found.name, {}), published, leader)
            for found in published.lists[:MOST_PLOTTED]
        ]
    section["unplotted"] = [metric.name for metric in published.metrics[MOST_PLOTTED:] if published.keys]
    section["unplotted"] += [found.name for found in published.lists[MOST_PLOTTED:]]
    return section


def _chosen_bounds(entry: Mapping[str, Any]) -> str:
    """What the legend says of bounds that the run has chosen, or that differ by partition.

    >>> _chosen_bounds({"bounds": [0.0, 172.63349]}), _chosen_bounds({})
    (', each value clamped to 0 … 172.6 (bounds chosen privately in this run)', '')
    >>> _chosen_bounds({"clamp": {"words": "0 … most"}})
    ", each value clamped to 0 … most (by partition; each partition's noise follows its own clamp)"
    """
    bounds, clamp = entry.get("bounds"), entry.get("clamp")
    if isinstance(clamp, Mapping) and isinstance(clamp.get("words"), str):
        return f", each value clamped to {clamp['words']} (by partition; each partition's noise follows its own clamp)"
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        return ""
    low, high = (_finite(bound) for bound in bounds)
    if low is None or high is None:
        return ""
    return f", each value clamped to {low:.4g} … {high:.4g} (bounds chosen privately in this run)"


def _shrunk(entry: Mapping[str, Any]) -> str:
    """What the legend says of a mean that is shrunk, and of what it was before.

    >>> _shrunk({"raw_of": "basket"}), _shrunk({})
    (', as noise left it, before basket was shrunk', '')
    """
    if entry.get("rolled_up") is not None:
        return _rolled_up(entry)
    if entry.get("shrunk") is True:
        return (
            ", shrunk: pulled towards those of the other groups as far as its noise makes that likely; over all groups, 95% of "
            "the error bars cover the true mean, if the groups are roughly alike"
        )
    of = entry.get("raw_of")
    return f", as noise left it, before {of} was shrunk" if isinstance(of, str) else ""


def _rolled_up(entry: Mapping[str, Any]) -> str:
    """What the legend says of a metric of a rollup.

    >>> _rolled_up({"rolled_up": "sum"}), _rolled_up({"rolled_up": "sum", "raw_of": "orders"})
    (', made to add up: each group is the sum of its parts', ', as noise left it, before orders was made to fit other levels')
    """
    if isinstance(entry.get("raw_of"), str):
        return f", as noise left it, before {entry['raw_of']} was made to fit other levels"
    return {
        "sum": ", made to add up: each group is the sum of its parts",
        "units": ", made to fit: no part is above its group",
    }.get(str(entry["rolled_up"]), ", from sums that add up")


def _chosen_partitions(stage: Mapping[str, Any]) -> str | None:
    """The bound on the partitions of a unit, where the run has chosen it.

    >>> _chosen_partitions({"max_partitions_contributed": 8}), _chosen_partitions({})
    ('8', None)
    """
    most = _finite(stage.get("max_partitions_contributed"))
    return None if most is None else public_number(most)


def _words(kind: type[Metric] | None, unit: str) -> str:
    return "" if kind is None else kind.words.replace("{unit}", unit)


def _selection(selection: Any, unit: str) -> dict[str, Any]:
    found = selection if isinstance(selection, Mapping) else {}
    half, least = _finite(found.get("half_keep_users")), _finite(found.get("min_users"))
    return {
        "known": bool(found),
        "public": found.get("strategy") == "public",
        "best": public_number(candidates) if (candidates := _finite(found.get("candidates"))) is not None else None,
        "half": None if half is None else public_number(math.ceil(half)),
        "least": public_number(least) if least is not None and least > 1 else None,
        "unit": unit,
    }


def _finite(value: Any) -> float | None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and -1e18 < value < 1e18
    return value if sound else None


def table_of(
    published: Published, styles: Mapping[str, ListStyle], entries: Mapping[str, Any], order: PrintedOrder | None = None
) -> dict[str, Any]:
    """The first rows as cells.

    Args:
        published: a table.
        styles: how each of its lists is shown.
        entries: what the manifest says of each metric.
        order: of the rows; None takes that of the table.
    """
    if order is None:
        order = PrintedOrder(rows=np.arange(min(published.table.num_rows, FIRST_ROWS)), by="")
    columns: list[dict[str, Any]] = []
    for metric in (metric.taken(order.rows) for metric in published.in_order):
        if isinstance(metric, Lists):
            columns += styles[metric.name].columns(metric, entries.get(metric.name, {}), FIRST_ROWS)
        else:
            within = verdicts.range_of(entries.get(metric.name, {}))
            cells = number_cells(metric.values, metric.stddevs, FIRST_ROWS, within)
            columns.append({"name": metric.name, "label": "", "bins": False, "cells": cells})
    texts = [[key.text(int(key.codes[int(row)])) for row in order.rows] for key in published.keys]
    return {
        "rows": published.table.num_rows,
        "keys": [key.name for key in published.keys],
        "columns": columns,
        "body": [
            {"keys": [column[at] for column in texts], "cells": [column["cells"][at] for column in columns]}
            for at in range(len(order.rows))
        ],
        "more": f"{max(0, published.table.num_rows - FIRST_ROWS):,}",
        "count": f"{published.table.num_rows:,}",
        "shown": len(order.rows),
        "by": order.by,
        "largest": bool(order.by) and order.largest,
        "noise": any(cell.get("noise") for column in columns for cell in column["cells"]),
    }


def _usual_bar(metric: Numbers | Lists) -> str | None:
    """Half the length of the error bars, where all are the same."""
    known = metric.bars[np.isfinite(metric.stddevs)]
    if not len(known) or known.max() > known.min() * (1 + 1e-9):
        return None
    parts = error_bar_parts(0.0, float(metric.stddevs[np.isfinite(metric.stddevs)][0]), grouped=True)
    return None if parts is None else parts[1]


def _plots(published: Published, leader: Numbers) -> list[dict[str, Any]]:
    panels = panels_over_time(published, leader)
    grid = _grid(published, leader) if len(published.keys) == 2 else None
    plots = []
    for metric in published.metrics[:MOST_PLOTTED]:
        plots.append(
            {
                "metric": metric.name,
                "leader": leader.name,
                "series": series_over_time(metric, published, panels),
                "others": [key.name for key in published.keys if key is not published.time],
                "time": published.time.name if published.time else None,
                "bars": _bars(metric, published),
                "heat": _heat(metric, published, *grid) if grid else None,
            }
        )
    return plots


def series_over_time(
    metric: Numbers, published: Published, panels: Sequence[tuple[list[str], Any]]
) -> list[dict[str, Any]]:
    """The panels of a metric over time, all on one scale; none where there is no time.

    Args:
        metric: one of the table's.
        published: the table.
        panels: what each panel is called, and its rows in the order of time.
    """
    time = published.time
    if time is None or time.days is None or not panels:
        return []
    every = np.concatenate([rows for _, rows in panels])
    bounds = limits(metric.values[every], metric.bars[every])
    axis = axis_of_time(time, every)
    drawn = []
    for name, rows in panels:
        days = time.days[time.codes[rows]]
        series = Series(days=days, values=metric.values[rows], bars=metric.bars[rows])
        title = _series_title(metric, joined(name), rows, [axis.texts[day] for day in days])
        svg = time_series(series, axis, bounds, title, whole=len(panels) == 1)
        drawn.append({"names": name, "svg": svg, "cut": len(rows) == POINTS})
    return drawn


def _series_title(metric: Numbers, name: str, rows: Any, labels: Sequence[str]) -> str:
    if not len(rows):
        return f"{metric.name} of {name}: no points"
    first, last = (with_error_bar(float(metric.values[r]), float(metric.stddevs[r])) for r in (rows[0], rows[-1]))
    return f"{metric.name} of {name} over time: {first} at {labels[0]}, {last} at {labels[-1]}, {len(rows)} points"


def _bars(metric: Numbers, published: Published) -> Markup | None:
    if not published.keys or published.table.num_rows < 2:
        return None
    rows = [r for r in largest_rows(metric, BARS) if abs(metric.values[r]) < LARGEST and metric.bars[r] < LARGEST]
    rows = [row for row in rows if metric.bars[row] >= 0]
    if not rows:
        return None
    names = [joined(row_parts(int(row), published.keys)) for row in rows]
    notes = [with_error_bar(float(metric.values[r]), float(metric.stddevs[r]), grouped=True) for r in rows]
    title = f"The largest {metric.name}: " + "; ".join(f"{a} {b}" for a, b in zip(names[:3], notes[:3], strict=True))
    return bar_chart(names, metric.values[rows], metric.bars[rows], notes, title)


Axis = tuple[Key, Codes]


def _grid(published: Published, leader: Numbers) -> tuple[Axis, Axis] | None:
    """Rows and columns of a heat map in the order of keys: the time across, the latest; of other keys the largest."""
    down, across = published.keys
    if published.time is down:
        down, across = across, down
    if not published.table.num_rows:
        return None
    rows = _in_key_order(down, largest_groups(down.codes, leader, HEAT_ROWS))
    if published.time is across and across.days is not None:
        known = np.flatnonzero(np.isfinite(across.days))
        columns = known[np.argsort(across.days[known], kind="stable")][-HEAT_COLUMNS:]
    else:
        columns = _in_key_order(across, largest_groups(across.codes, leader, HEAT_COLUMNS))
    return ((down, rows), (across, columns)) if len(rows) > 1 and len(columns) > 1 else None


def _in_key_order(key: Key, chosen: Codes) -> Codes:
    return key.order[np.isin(key.order, chosen)]


def _heat(metric: Numbers, published: Published, down: Axis, across: Axis) -> dict[str, Any] | None:
    places = [np.full(len(key.values), -1, dtype=np.int64) for key, _ in (down, across)]
    for place, (_, codes) in zip(places, (down, across), strict=True):
        place[codes] = np.arange(len(codes))
    y, x = places[0][down[0].codes], places[1][across[0].codes]
    with np.errstate(invalid="ignore"):
        known = (np.abs(metric.values) < LARGEST) & (metric.bars >= 0)
    at = np.flatnonzero((y >= 0) & (x >= 0) & known)
    if not len(at):
        return None
    values = metric.values[at]
    size = _round_step(float(np.quantile(values, 0.97)) / HEAT_STEPS)
    steps = np.full((len(down[1]), len(across[1])), -1, dtype=np.int64)
    unsure = np.zeros(steps.shape, dtype=bool)
    steps[y[at], x[at]] = np.clip(values / size, 0, HEAT_STEPS - 1).astype(np.int64)
    unsure[y[at], x[at]] = np.abs(values) < metric.bars[at]
    rows, columns = ([key.short(int(code)) for code in codes] for key, codes in (down, across))
    title = (
        f"Heat map of {metric.name}: {len(rows)} of {down[0].name} down, {len(columns)} of {across[0].name} across, "
        f"shades in steps of {tick_number(size)} from 0 to {tick_number(size * (HEAT_STEPS - 1))} and more"
    )
    return {
        "svg": heat_map(rows, columns, steps, unsure, title, some=across[0] is published.time),
        "shades": [tick_number(float(f"{size * step:.6g}")) for step in range(HEAT_STEPS)],
        "down": down[0].name,
        "across": across[0].name,
        "cut": len(rows) < len(down[0].values) or len(columns) < len(across[0].values),
        "gaps": bool((steps < 0).any()),
        "hatched": bool(unsure.any()),
        "broad": len(columns) > BROAD,
    }


def _round_step(least: float) -> float:
    """The next round number, so that the legend of a heat map is easy to read.

    >>> _round_step(36.1), _round_step(0.0), _round_step(8100.0)
    (40.0, 1.0, 10000.0)
    """
    if not least > 1e-100:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(
        (step * power for step in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0) if least <= step * power), 10 * power
    )
