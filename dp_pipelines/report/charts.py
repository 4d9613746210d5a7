"""Plots of released numbers: lines over time, bars, heat maps.

In: released numbers, and texts that key_text made visible. Out: one `<svg>` element each (`svg`). Not covered: what to plot.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from dp_pipelines.report.figures import Floats, axes_over_time, bar_ends, drawable, fitting, grid_across, width_of
from dp_pipelines.report.svg import BAR, HEAT, INK, MARK, PAPER, QUIET, Axes, SvgDrawing

HEAT_WIDTH = 630
"""Pixels; the page scales it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """Numbers at points in time.

    Args:
        days: the points in rising order.
        values: the numbers.
        bars: half the length of each error bar.
    """

    days: Floats
    values: Floats
    bars: Floats


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
    series: Series, marks: Mapping[float, str], step: float, bounds: tuple[float, float], title: str
) -> Markup:
    """One panel: points with error bars, joined where no period between them is missing.

    Args:
        series: what to draw.
        marks: the days of the axis with the texts of the key, in rising order; shared by panels that are compared.
        step: days between two neighbouring points; wider gaps stay open.
        bounds: the range of the numbers, shared likewise.
        title: for those who do not see the plot.
    """
    keep = drawable(series.values, series.bars)
    days, values, bars = series.days[keep], series.values[keep], series.bars[keep]
    drawing = SvgDrawing(300, 158)
    axes = axes_over_time(drawing, marks, bounds)
    axes.lines((((x, a), (x, b)) for x, a, b in zip(days, *bar_ends(values, bars, bounds), strict=True)), BAR, 3.0)
    near = np.flatnonzero(np.diff(days) <= 1.5 * step)
    axes.lines((((days[i], values[i]), (days[i + 1], values[i + 1])) for i in near), MARK, 1.4)
    axes.dots(days, values, 3.6 if len(days) <= 80 else 2, MARK)
    return drawing.finished(title)


def bar_chart(
    names: Sequence[str], values: Floats, bars: Floats, notes: Sequence[str], title: str, *, width: int = 400
) -> Markup:
    """Horizontal bars with error bars, names above them.

    Args:
        names: of the bars.
        values: their lengths; all are numbers that can be drawn.
        bars: half the length of each error bar.
        notes: what is written at the right end of each bar's line.
        title: for those who do not see the plot.
        width: pixels; the page scales it.
    """
    low, high = limits(values, bars)
    row, count = 33, len(names)
    drawing = SvgDrawing(width, row * count + 30)
    axes = drawing.axes(left=2, right=14, top=4, bottom=24, across=(low, high), up=(count, 0))
    grid_across(axes)
    for at, (name, value, note) in enumerate(zip(names, values, notes, strict=True)):
        middle = at + 0.70
        axes.area([0, value, value, 0], [middle - 0.17, middle - 0.17, middle + 0.17, middle + 0.17], BAR)
        named(axes, at + 0.27, fitting(name, 54 * width // 400 - len(note)), note)
    ends = zip(*bar_ends(values, bars, (low, high)), strict=True)
    axes.lines((((a, at + 0.70), (b, at + 0.70)) for at, (a, b) in enumerate(ends)), MARK, 1.8)
    axes.dots(values, np.arange(count) + 0.70, 5, MARK)
    return drawing.finished(title)


def named(axes: Axes, up: float, name: str, note: str) -> None:
    """A name at the left end of a row and a note at its right end."""
    axes.text(name, (axes.left + 4, axes.y(up)), "start", "middle", 11, INK)
    axes.text(note, (axes.right, axes.y(up)), "end", "middle", 11, QUIET)


def heat_map(
    rows: Sequence[str], columns: Sequence[str], steps: NDArray[np.int64], unsure: NDArray[np.bool_], title: str
) -> Markup:
    """A grid of shades.

    Args:
        rows: names of the rows, from above.
        columns: names of the columns, from the left.
        steps: for each row and column a shade from 0 to `HEAT_STEPS - 1`, or -1 for none.
        unsure: the cells that get a dot.
        title: for those who do not see the plot.
    """
    names = [fitting(name, 22) for name in rows]
    left = 14 + 6.2 * max(map(width_of, names), default=1)
    upright = sum(width_of(fitting(name, 12)) + 2 for name in columns) * 6.2 > HEAT_WIDTH - 20 - left
    shown = [fitting(name, 12 if upright else 16) for name in columns]
    every = max(1, math.ceil(len(columns) / max(1, int((HEAT_WIDTH - 20 - left) / 15)))) if upright else 1
    bottom = 12 + (6.0 * max(map(width_of, shown), default=1) if upright else 14)
    width, height = HEAT_WIDTH, 19 * len(rows) + 6 + bottom
    drawing = SvgDrawing(width, height)
    axes = drawing.axes(left=left, right=6, top=4, bottom=bottom, across=(0, len(columns)), up=(len(rows), 0))
    gap_x, gap_y = 1.5 * len(columns) / (width - left - 6), 1.5 / 19
    for step, colour in enumerate(HEAT):
        axes.boxes(((x, y) for y, x in zip(*np.nonzero(steps == step), strict=True)), gap_x, gap_y, colour)
    for colour, shades in ((QUIET, (steps >= 0) & (steps < 4)), (PAPER, steps >= 4)):
        y, x = np.nonzero(unsure & shades)
        axes.dots(x + 0.5, y + 0.5, 2.6, colour)
    for at, name in enumerate(names):
        axes.text(name, (axes.left - 6, axes.y(at + 0.5)), "end", "middle", 11, INK)
    for at in range(0, len(shown), every):
        place = (axes.x(at + 0.5), axes.bottom + 6)
        if upright:
            axes.text(shown[at], place, "end", "middle", 10, QUIET, upright=True)
        else:
            axes.text(shown[at], place, "middle", "below", 10, QUIET)
    return drawing.finished(title)
