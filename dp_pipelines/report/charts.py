"""Plots of released numbers: lines over time, bars, heat maps.

In: released numbers, and texts that key_text made visible. Out: one `<svg>` element each (`svg`). Not covered: what to plot.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from dp_pipelines.report.figures import (
    LARGEST,
    NARROW,
    WIDE,
    Floats,
    axes_over_time,
    bar_ends,
    drawable,
    fitting,
    grid_across,
    mark_places,
    width_of,
)
from dp_pipelines.report.released_table import Numbers, Truth
from dp_pipelines.report.svg import (
    BAR,
    HEAT,
    INK,
    LETTER,
    MARK,
    PAPER,
    QUIET,
    RANGE,
    RANGE_LINE,
    Axes,
    Kind,
    Point,
    Shown,
    SvgDrawing,
)
from dp_pipelines.report.time_axis import TimeAxis

HEAT_WIDTH = 520
"""Pixels that a heat map is wide at least, with the names of its rows, where the page is wide."""

CELL_WIDTH = 16
"""Pixels that a cell is wide at least; where the page is narrower, the heat map is scrolled."""

NAMES = 300.0
"""Pixels across that a row of bars has at least."""

PANEL_HEIGHT, WHOLE_HEIGHT, ROW, CELL = 160, 230, 34, 20
"""Pixels: a panel beside others, one as wide as the page, a row of bars, a row of cells."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """Numbers at points in time.

    Args:
        days: the points in rising order.
        values: the numbers.
        bars: half the length of each error bar.
        notes: what each point says when it is pointed at; empty: nothing.
        truth: estimates of the true numbers and their ranges, where there are any.
        estimate_notes: what points say while estimates are shown.
    """

    days: Floats
    values: Floats
    bars: Floats
    notes: Sequence[str] = ()
    truth: Truth | None = None
    estimate_notes: Sequence[str] = ()


RANGE_WIDTH = 9.0
"""Pixels that the shade of a range is wide."""

FARTHEST = 2.0
"""An axis is at most so many times as long as it would be without ranges: what goes on is cut."""


def limits_with_ranges(metric: Numbers) -> tuple[float, float]:
    """The range of an axis that has ranges of true numbers too.

    >>> truth = Truth(estimates=np.array([25.0, 30.0]), lows=np.array([9.0, 18.0]), highs=np.array([30.0, 300.0]))
    >>> limits_with_ranges(Numbers(name="n", values=np.array([10.0, 20.0]), stddevs=np.zeros(2), truth=truth))
    (0.0, 40.0)
    """
    low, high = limits(metric.values, metric.bars)
    if metric.truth is None:
        return low, high
    ends = np.concatenate([metric.truth.lows, metric.truth.highs])
    ends = ends[np.abs(ends) < LARGEST]
    width = FARTHEST * (high - low)
    return max(min(low, *ends), high - width), min(max(high, *ends), low + width)


def limits(values: Floats, bars: Floats) -> tuple[float, float]:
    """The range of an axis: zero, all values, and error bars unless they are far longer than most.

    >>> limits(np.array([10.0, 20.0]), np.array([1.0, 2.0]))
    (0.0, 22.0)
    >>> limits(np.array([]), np.array([]))
    (0.0, 1.0)
    """
    keep = drawable(values, bars)
    if not keep.any():
        return 0.0, 1.0
    values, bars = values[keep], bars[keep]
    bars = np.minimum(bars, 3 * np.median(bars))
    low, high = min(0.0, float((values - bars).min())), max(0.0, float((values + bars).max()))
    return (low, high) if high - low > 1e-100 else (low, low + 1.0)


def time_series(
    series: Series, time: TimeAxis, bounds: tuple[float, float], title: str, *, whole: bool, measure: str = ""
) -> Markup:
    """One panel: points with error bars, joined where no period between them is missing.

    Args:
        series: what to draw.
        time: the axis; shared by panels that are compared.
        bounds: the range of the numbers, shared likewise.
        title: for those who do not see the plot.
        whole: whether the panel is as wide as the page.
        measure: the unit of measure of the numbers, if they have one.
    """
    keep = drawable(series.values, series.bars)
    days, values, bars = series.days[keep], series.values[keep], series.bars[keep]
    drawing = SvgDrawing(WHOLE_HEIGHT if whole else PANEL_HEIGHT)
    axes = axes_over_time(drawing, time, bounds, whole=whole, words=measure)
    truth = None if series.truth is None else series.truth.taken(np.flatnonzero(keep))
    if truth is not None:
        _shaded(axes, [((day, a), (day, b)) for day, a, b in zip(days, *_range_ends(truth, bounds), strict=True)])
    kind: Kind = "" if truth is None else "counted"
    stems = zip(days, *bar_ends(values, bars, bounds), strict=True)
    axes.lines((((x, a), (x, b)) for x, a, b in stems), BAR, 3.0, kind=kind)
    size = 5.2 if len(days) <= 80 else 2.4
    _joined_dots(axes, days, values, time, size, _at(series.notes, keep), kind)
    if truth is not None:
        known = np.abs(truth.estimates) < LARGEST
        notes = _at(_at(series.estimate_notes, keep), known)
        _joined_dots(axes, days[known], truth.estimates[known], time, size, notes, "estimate")
    return drawing.finished(title)


def gaps(days: Floats, time: TimeAxis) -> NDArray[np.bool_]:
    """Return after which points of a series the next one of the axis is missing, so that its line ends there.

    Args:
        days: the points in rising order.
        time: the axis.

    >>> gaps(np.array([0.0, 7.0, 21.0]), TimeAxis(texts={}, marks={}, step=7.0)).tolist()
    [False, True]
    """
    return np.diff(days) > 1.5 * time.step


def _at(notes: Sequence[str], keep: NDArray[np.bool_]) -> list[str]:
    return [notes[int(at)] for at in np.flatnonzero(keep)] if notes else []


def _joined_dots(
    axes: Axes, days: Floats, values: Floats, time: TimeAxis, size: float, notes: Sequence[str], kind: Kind
) -> None:
    near = np.flatnonzero(~gaps(days, time))
    axes.lines((((days[i], values[i]), (days[i + 1], values[i + 1])) for i in near), MARK, 1.4, kind=kind)
    axes.dots(days, values, size, MARK, notes, kind)


def _range_ends(truth: Truth, bounds: tuple[float, float]) -> tuple[Floats, Floats]:
    """Both ends of ranges, cut where the axis ends; NaN where one has no high end."""
    known = np.isfinite(truth.lows) & np.isfinite(truth.highs)
    low, high = (np.where(known, np.clip(ends, *bounds), np.nan) for ends in (truth.lows, truth.highs))
    return low, high


def _shaded(axes: Axes, ends: Sequence[tuple[Point, Point]]) -> None:
    """Ranges as wide strokes of a quiet colour with a thin dark line in each; those without an end are left out."""
    known = [pair for pair in ends if all(np.isfinite([*pair[0], *pair[1]]))]
    axes.lines(known, RANGE, RANGE_WIDTH, blunt=True)
    axes.lines(known, RANGE_LINE, 1.0, blunt=True)


def bar_chart(
    names: Sequence[str],
    values: Floats,
    bars: Floats,
    notes: Sequence[str],
    title: str,
    bounds: tuple[float, float] | None = None,
    truth: Truth | None = None,
    estimate_notes: Sequence[str] = (),
    measure: str = "",
) -> Markup:
    """Horizontal bars with error bars, names above them.

    Args:
        names: of the bars.
        values: their lengths; all are numbers that can be drawn.
        bars: half the length of each error bar.
        notes: what is written at the right end of each bar's line.
        title: for those who do not see the plot.
        bounds: the range of the axis, where several charts share one.
        truth: estimates of the true numbers and their ranges, where there are any.
        estimate_notes: what is written at the right end while estimates are shown.
        measure: the unit of measure of the numbers, if they have one.
    """
    low, high = limits(values, bars) if bounds is None else bounds
    count = len(names)
    drawing = SvgDrawing(ROW * count + 30)
    axes = drawing.axes(left=4, right=14, top=4, bottom=26, across=(low, high), up=(count, 0))
    grid_across(axes, measure)
    kind: Kind = "" if truth is None else "counted"
    for at, (name, value, note) in enumerate(zip(names, values, notes, strict=True)):
        _lying_bar(axes, at + 0.72, value, kind)
        named(axes, at + 0.29, name, note, estimate_notes[at] if estimate_notes else "")
    if truth is not None:
        for at in np.flatnonzero(np.abs(truth.estimates) < LARGEST).tolist():
            _lying_bar(axes, at + 0.72, float(truth.estimates[at]), "estimate")
        ranges = enumerate(zip(*_range_ends(truth, (low, high)), strict=True))
        _shaded(axes, [((a, at + 0.72), (b, at + 0.72)) for at, (a, b) in ranges])
    ends = zip(*bar_ends(values, bars, (low, high)), strict=True)
    axes.lines((((a, at + 0.72), (b, at + 0.72)) for at, (a, b) in enumerate(ends)), INK, 1.8, kind=kind)
    return drawing.finished(title)


def _lying_bar(axes: Axes, middle: float, value: float, kind: Kind) -> None:
    axes.area([0, value, value, 0], [middle - 0.17, middle - 0.17, middle + 0.17, middle + 0.17], BAR, kind)


def named(axes: Axes, up: float, name: str, note: str, estimate: str = "") -> None:
    """A name at the left end of a row, cut to the width of the chart, and a note at its right end.

    Args:
        axes: get them.
        up: the row's place.
        name, note: the texts.
        estimate: the note while estimates are shown, where there are any.
    """
    ways: list[tuple[Shown, float]] = [("narrow", NAMES), ("wide", WIDE)]
    for shown, width in ways:  # both even if they are the same: no name changes how many elements a page has
        words = fitting(name, int(width / LETTER) - max(width_of(note), width_of(estimate)) - 2)
        axes.text(words, (0, axes.y(up)), "start", "middle", INK, move=5, shown=shown)
    axes.text(note, (100, axes.y(up)), "end", "middle", QUIET, kind="counted" if estimate else "")
    if estimate:
        axes.text(estimate, (100, axes.y(up)), "end", "middle", QUIET, kind="estimate")


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    steps: NDArray[np.int64],
    unsure: NDArray[np.bool_],
    title: str,
    *,
    some: bool = False,
) -> Markup:
    """A grid of shades.

    Args:
        rows: names of the rows, from above.
        columns: names of the columns, from the left.
        steps: for each row and column a shade from 0 to `HEAT_STEPS - 1`, or -1 for none.
        unsure: the cells that are hatched.
        title: for those who do not see the plot.
        some: whether columns may go without a name where there is no room for it, as those of times may.
    """
    names = [fitting(name, 22) for name in rows]
    left = 12 + LETTER * max(map(width_of, names), default=1)
    upright = not some and sum(width_of(fitting(name, 16)) + 2 for name in columns) * LETTER > HEAT_WIDTH - left
    shown = [fitting(name, 14 if upright else 16) for name in columns]
    bottom = 12 + (LETTER * max(map(width_of, shown), default=1) if upright else 14)
    across = max(
        CELL_WIDTH * len(columns), 0 if some or upright else LETTER * sum(width_of(name) + 2 for name in shown)
    )
    drawing = SvgDrawing(CELL * len(rows) + 6 + bottom, least=across)
    axes = drawing.axes(left=left, right=6, top=4, bottom=bottom, across=(0, len(columns)), up=(len(rows), 0))
    for step, colour in enumerate(HEAT):
        axes.boxes(((x, y) for y, x in zip(*np.nonzero(steps == step), strict=True)), colour)
    for colour, shades in ((QUIET, (steps >= 0) & (steps < 4)), (PAPER, steps >= 4)):
        hatched = zip(*np.nonzero(unsure & shades), strict=True)
        axes.lines((((x, y + 0.5), (x + 1, y + 0.5)) for y, x in hatched), colour, CELL - 4, dashes="1 4")
    for at, name in enumerate(names):
        axes.text(name, (0, axes.y(at + 0.5)), "end", "middle", INK, move=-6)
    marks = {at + 0.5: name for at, name in enumerate(shown)}
    if some:
        mark_places(axes, marks, narrow=max(across, NARROW / 2), wide=max(across, HEAT_WIDTH * 2 / 3))
    else:
        for place, name in marks.items():
            where = (axes.x(place), axes.bottom + 6)
            axes.text(name, where, *(("start", "middle") if upright else ("middle", "below")), QUIET, upright=upright)
    return drawing.finished(title)
