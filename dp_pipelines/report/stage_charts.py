"""The charts of a stage's numbers: one for each metric, of the kind that its keys ask for.

In: a published table, and the metric by which groups are chosen. Out: dictionaries for the template. Holds: bounded, however
large the table is; time runs from left to right, categories are ordered by size, and what is left out is counted. Not covered:
metrics with a list in each row (`list_charts`).
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics.base import Metric
from dp_pipelines.report.axes import TimeAxis, axis_of_time
from dp_pipelines.report.chart import Chart
from dp_pipelines.report.chart_choices import (
    LONG,
    POINTS,
    RolledUp,
    count_groups,
    panels_of,
    panels_over_time,
    row_parts,
)
from dp_pipelines.report.charts import (
    Series,
    bar_chart,
    gaps,
    heat_map,
    inside,
    limits,
    limits_with_ranges,
    time_series,
)
from dp_pipelines.report.key_text import joined, visible
from dp_pipelines.report.numbers import tick_number
from dp_pipelines.report.range_text import estimate_in_words, range_in_words
from dp_pipelines.report.released_table import (
    Codes,
    Key,
    Numbers,
    Published,
    Truth,
    largest_groups,
    largest_rows,
)
from dp_pipelines.report.svg import HEAT_STEPS, Floats, drawable
from dp_pipelines.report.words.chart_words import highest, series_words, shown_number
from dp_pipelines.report.words.headline import is_additive
from dp_pipelines.report.words.number_format import PLAIN, NumberStyle
from dp_pipelines.report.words.page_words import in_list

MOST_PLOTTED = 4
"""Metrics with charts; the table has them all."""

BARS, HEAT_ROWS, HEAT_COLUMNS = 10, 20, 40
"""In charts: bars, and rows and columns of a heat map."""

MOST_NOTES = 400
"""Points of a chart that say their number when they are pointed at; of more, none does."""


def charts_of(
    published: Published,
    leader: Numbers,
    known: Mapping[str, type[Metric] | None],
    rollup: RolledUp | None = None,
    cut: Collection[str] = (),
    styles: Mapping[str, NumberStyle] = FrozenMapping({}),
    *,
    may_be_added_up: bool = True,
) -> list[dict[str, Any]]:
    """What the template shows of each metric with a number in each row.

    Args:
        published: a table with keys.
        leader: the metric by which groups are chosen.
        known: what each metric is, where it is known.
        rollup: what tells its numbers apart, where they were made to add up.
        cut: the metrics that the limits may have changed.
        styles: how the numbers of each metric are written.
        may_be_added_up: whether no row was chosen for its numbers.
    """
    panels = panels_over_time(published, leader)
    grid = _grid(published, leader) if is_wide(published) else None
    return [
        chart_of(
            metric,
            published,
            leader,
            panels,
            grid,
            known.get(metric.name),
            rollup,
            counted=metric.name in cut,
            style=styles.get(metric.name, PLAIN),
            may_be_added_up=may_be_added_up,
        )
        for metric in published.metrics[:MOST_PLOTTED]
    ]


def is_wide(published: Published) -> bool:
    """Return True if both keys of a table are too long for panels."""
    return len(published.keys) == 2 and all(len(key.values) > LONG for key in published.keys)


HeatAxis = tuple[Key, Codes]


def chart_of(
    metric: Numbers,
    published: Published,
    leader: Numbers,
    panels: Sequence[tuple[list[str], Codes]],
    grid: tuple[HeatAxis, HeatAxis] | None = None,
    kind: type[Metric] | None = None,
    rollup: RolledUp | None = None,
    *,
    counted: bool = False,
    style: NumberStyle = PLAIN,
    may_be_added_up: bool = True,
) -> dict[str, Any]:
    """The chart of one metric: over time, as a heat map, as bars in panels, or as bars.

    Args:
        metric: one of the table's.
        published: the table.
        leader: the metric by which groups are chosen.
        panels: of each group over time its name and its rows in the order of time.
        grid: rows and columns of a heat map, where both keys are long.
        kind: what the metric is, where it is known.
        rollup: as for `charts_of`.
        counted: whether the limits may have changed it.
        style: how its numbers are written.
        may_be_added_up: as for `charts_of`.
    """
    raw = None if rollup is None else rollup.raw.get(metric.name)
    apart = None if raw is None else raw.bars
    heat = None if grid is None else _heat(metric, published, *grid, style)
    series = [] if heat is not None else series_over_time(metric, published, panels, style, apart=apart)
    additive = is_additive(kind) and rollup is None and may_be_added_up
    none: dict[str, Any] = {"panels": [], "bars": None, "rest": ""}
    bars = none if heat or series else _bars(metric, published, leader, style, additive=additive)
    others = [key.name for key in published.keys if key is not published.time]
    together = _sums_over_time(metric, published) if additive else None
    if together is not None:
        finding = highest(
            together.names, together.values, together.bars, style=style, what=together.what, scope=together.scope,
            counted=counted,
        )  # fmt: skip
    elif rollup is not None and is_additive(kind):
        finding = _total_finding(metric, rollup, style, counted=counted)
    else:
        finding = _finding(metric, published, style, counted=counted, apart=apart)
    return {
        "metric": metric.name,
        "leader": leader.name,
        "time": published.time.name if published.time else None,
        "others": others,
        "groups": count_groups(published),
        "series": series,
        "gaps": any(panel["gaps"] for panel in series),
        "together": None if together is None else together.chart(metric.name, style),
        "heat": heat,
        "ranges": metric.truth is not None and heat is None,
        "finding": finding,
        **bars,
    }


def series_over_time(
    metric: Numbers,
    published: Published,
    panels: Sequence[tuple[list[str], Codes]],
    style: NumberStyle = PLAIN,
    *,
    apart: Floats | None = None,
) -> list[dict[str, Any]]:
    """The panels of a metric over time, all on one scale; none where there is no time.

    Args:
        metric: one of the table's.
        published: the table.
        panels: what each panel is called, and its rows in the order of time.
        style: how the numbers are written.
        apart: error bars by which trends are told, where those of the numbers are not independent.
    """
    time = published.time
    if time is None or time.days is None or not panels:
        return []
    every = np.concatenate([rows for _, rows in panels])
    bounds = inside(limits_with_ranges(metric.taken(every)), style.within)
    axis = axis_of_time(time, every)
    drawn = []
    for name, rows in panels:
        days = time.days[time.codes[rows]]
        texts, values, bars = [axis.texts[day] for day in days], metric.values[rows], metric.bars[rows]
        numbers = [shown_number(*pair, style) for pair in zip(values.tolist(), bars.tolist(), strict=True)]
        notes = (
            [f"{text}: {number}" for text, number in zip(texts, numbers, strict=True)]
            if len(every) <= MOST_NOTES
            else []
        )
        said = series_words(texts, days, values, bars, style=style, apart=None if apart is None else apart[rows])
        title = f"{metric.name} of {joined(name)} over time: {said}"
        truth = None if metric.truth is None else metric.truth.taken(rows)
        likely = [f"{text}: {number}" for text, number in zip(texts, estimates_in_words(truth, style), strict=False)]
        series = Series(
            days=days, values=values, bars=bars, notes=notes, truth=truth, estimate_notes=likely if notes else []
        )
        svg = time_series(series, axis, bounds, title, whole=len(panels) == 1, style=style)
        ends = gaps(days[drawable(values, bars)], axis)
        drawn.append({"names": name, "svg": svg, "cut": len(rows) == POINTS, "gaps": bool(ends.any())})
    return drawn


def _total_finding(metric: Numbers, rollup: RolledUp, style: NumberStyle, *, counted: bool) -> str:
    """The sentence above a chart of a rollup that has a total of each time: which time was the highest."""
    totals = rollup.by_time
    found = None if totals is None else next((each for each in totals.metrics if each.name == metric.name), None)
    if totals is None or found is None or totals.time is None:
        return ""
    raw, what = rollup.raw_by_time.get(metric.name), visible(totals.time.name)
    apart = found.bars if raw is None else raw.bars
    return highest(
        _Names(totals),
        found.values,
        found.bars,
        style=style,
        what=what,
        scope="over all groups",
        counted=counted,
        apart=apart,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumsOverTime:
    """The numbers of a metric at each time, added up over all groups.

    Args:
        names: the times as texts, in order.
        days: the same as numbers.
        axis: of a chart.
        values, bars: the sums and half the lengths of their error bars.
        what: the time column.
        scope: over what they are summed.
    """

    names: list[str]
    days: Floats
    axis: TimeAxis
    values: Floats
    bars: Floats
    what: str
    scope: str

    def chart(self, name: str, style: NumberStyle) -> dict[str, Any] | None:
        """Return a small chart of them; None where there are too many.

        Args:
            name: of the metric.
            style: how its numbers are written.
        """
        if len(self.days) > POINTS:
            return None
        pairs = zip(self.values.tolist(), self.bars.tolist(), strict=True)
        numbers = [shown_number(*pair, style) for pair in pairs]
        notes = [f"{time}: {number}" for time, number in zip(self.names, numbers, strict=True)]
        said = series_words(self.names, self.days, self.values, self.bars, style=style)
        series = Series(days=self.days, values=self.values, bars=self.bars, notes=notes)
        title = f"{name} over time, {self.scope}: {said}"
        svg = time_series(series, self.axis, limits(self.values, self.bars), title, whole=False, style=style)
        return {"svg": svg, "gaps": bool(gaps(self.days, self.axis).any())}


def _sums_over_time(metric: Numbers, published: Published) -> SumsOverTime | None:
    """Add up a metric over all groups at each time; None where not every group has a number at each time."""
    time = published.time
    if time is None or time.days is None or len(published.keys) < 2:
        return None
    codes, counts = np.unique(time.codes, return_counts=True)
    days = time.days[codes]
    if len(codes) < 2 or counts[0] < 2 or (counts != counts[0]).any() or not np.isfinite(days).all():
        return None
    if not drawable(metric.values, metric.bars).all():
        return None
    order = np.argsort(days, kind="stable")
    place = np.searchsorted(codes, time.codes)
    others = " and ".join(visible(key.name) for key in published.keys if key is not time)
    noun = "values" if len(published.keys) == 2 else "combinations"
    return SumsOverTime(
        names=[time.short(int(code)) for code in codes[order]],
        days=days[order],
        axis=axis_of_time(time, np.arange(published.table.num_rows)),
        values=np.bincount(place, weights=metric.values).astype(np.float64)[order],
        bars=np.sqrt(np.bincount(place, weights=metric.bars**2))[order],
        what=visible(time.name),
        scope=f"summed over the {counts[0]:,} published {noun} of {others}",
    )


def _finding(metric: Numbers, published: Published, style: NumberStyle, *, counted: bool, apart: Floats | None) -> str:
    """The sentence above a chart: which row is the highest."""
    if published.table.num_rows > POINTS * LONG:
        return ""
    values, bars = metric.values, metric.bars
    values = np.where(drawable(values, bars), values, np.nan)
    names = [visible(key.name) for key in published.keys]
    what = names[0] if len(names) == 1 else f"combination of {in_list(names)}"
    return highest(_Names(published), values, bars, style=style, what=what, counted=counted, apart=apart)


class _Names(Sequence[str]):
    """The names of the rows of a table, made on use."""

    def __init__(self, published: Published) -> None:
        self.published = published

    def __len__(self) -> int:
        return self.published.table.num_rows

    def __getitem__(self, row: Any) -> Any:
        keys = self.published.keys
        parts = zip(keys, row_parts(int(row), keys), strict=True)
        return ", ".join(
            f"{visible(key.name)} {part}" if key.counted and len(keys) > 1 else part for key, part in parts
        )


def _bars(
    metric: Numbers, published: Published, leader: Numbers, style: NumberStyle, *, additive: bool
) -> dict[str, Any]:
    """Bars for each row, in panels where there are two keys, one of which is short."""
    none: dict[str, Any] = {"panels": [], "bars": None, "rest": ""}
    if not published.keys or published.table.num_rows < 2:
        return none
    panels = panels_of(published, leader)
    if not panels:
        rows = _drawable_rows(metric, largest_rows(metric, BARS))
        if not len(rows):
            return none
        names = [joined(row_parts(int(row), published.keys)) for row in rows]
        svg = _bar_svg(metric, rows, names, f"The largest {metric.name}", style)
        return none | {"bars": svg, "rest": _rest(metric, rows, style, additive=additive)}
    shown = [(name, key, _drawable_rows(metric, rows[:BARS])) for name, key, rows in panels]
    every = np.concatenate([rows for _, _, rows in shown])
    if not len(every):
        return none
    bounds = inside(limits_with_ranges(metric.taken(every)), style.within, with_zero=True)
    drawn = [
        {
            "cut": False,
            "names": [name],
            "svg": _bar_svg(
                metric,
                rows,
                [row_parts(int(row), [key])[0] for row in rows],
                f"{metric.name} of {name}",
                style,
                bounds,
            ),
        }
        for name, key, rows in shown
        if len(rows)
    ]
    return none | {"panels": drawn, "rest": _rest(metric, every, style, additive=additive)}


def _drawable_rows(metric: Numbers, rows: Codes) -> Codes:
    return rows[drawable(metric.values[rows], metric.bars[rows])]


def _bar_svg(
    metric: Numbers,
    rows: Codes,
    names: Sequence[str],
    title: str,
    style: NumberStyle,
    bounds: tuple[float, float] | None = None,
) -> Chart:
    values, bars = metric.values[rows], metric.bars[rows]
    notes = [shown_number(*pair, style) for pair in zip(values.tolist(), bars.tolist(), strict=True)]
    said = "; ".join(f"{name} {note}" for name, note in zip(names[:5], notes, strict=False))
    if len(names) > 5:
        said += f"; {len(names)} bars, the smallest {names[-1]} {notes[-1]}"
    truth = None if metric.truth is None else metric.truth.taken(rows)
    if bounds is None:
        bounds = inside(limits_with_ranges(metric.taken(rows)), style.within, with_zero=True)
    return bar_chart(
        names, values, bars, notes, f"{title}: {said}", bounds, truth, estimates_in_words(truth, style), style
    )


def estimates_in_words(truth: Truth | None, style: NumberStyle = PLAIN) -> list[str]:
    """Return each estimate with its range; nothing where there are none.

    >>> estimates_in_words(Truth(estimates=np.array([25.0]), lows=np.array([9.0]), highs=np.array([30.0])))
    ['about 25, likely 9 … 30']
    """
    if truth is None:
        return []
    return [
        f"about {estimate_in_words(*numbers, form=style.form)}, likely {range_in_words(*numbers[1:], form=style.form)}"
        if math.isfinite(numbers[0])
        else "–"
        for numbers in zip(truth.estimates.tolist(), truth.lows.tolist(), truth.highs.tolist(), strict=True)
    ]


def _rest(metric: Numbers, shown: Codes, style: NumberStyle, *, additive: bool) -> str:
    """The rows without a bar, together where they and their noise may be added up."""
    left = np.setdiff1d(np.arange(len(metric.values)), shown)
    left = left[drawable(metric.values[left], metric.bars[left])]
    if not len(left):
        return ""
    many = f"{len(left):,} others" if len(left) > 1 else "1 other"
    if not additive:
        return f"{many} in the table"
    bar = float(np.sqrt((metric.bars[left] ** 2).sum()))
    number = shown_number(float(metric.values[left].sum()), bar, style)
    return f"{many}{' together' if len(left) > 1 else ''}: {number}"


def _grid(published: Published, leader: Numbers) -> tuple[HeatAxis, HeatAxis] | None:
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


def _heat(
    metric: Numbers, published: Published, down: HeatAxis, across: HeatAxis, style: NumberStyle
) -> dict[str, Any] | None:
    places = [np.full(len(key.values), -1, dtype=np.int64) for key, _ in (down, across)]
    for place, (_, codes) in zip(places, (down, across), strict=True):
        place[codes] = np.arange(len(codes))
    y, x = places[0][down[0].codes], places[1][across[0].codes]
    known = drawable(metric.values, metric.bars)
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
    shades = [tick_number(float(f"{size * step:.6g}"), style.form) for step in range(HEAT_STEPS)]
    title = (
        f"Heat map of {metric.name}: {len(rows)} of {down[0].name} down, {len(columns)} of {across[0].name} across, "
        f"shades in steps of {shades[1]} from 0 to {shades[-1]} and more"
    )
    return {
        "svg": heat_map(rows, columns, steps, unsure, title, some=across[0] is published.time),
        "shades": shades,
        "down": down[0].name,
        "across": across[0].name,
        "cut": len(rows) < len(down[0].values) or len(columns) < len(across[0].values),
        "gaps": bool((steps < 0).any()),
        "hatched": bool(unsure.any()),
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
