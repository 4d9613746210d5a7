"""Plots of lists of released numbers: bands of quantiles over time, ranges of quantiles side by side, histograms.

In: released numbers, rows by places, and texts that key_text made visible. Out: one `<svg>` element each (`svg`). Holds: a
place without a number leaves a gap. Not covered: what to plot (`lists`).
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from dp_pipelines.report.charts import PANEL_HEIGHT, WHOLE_HEIGHT, limits, named
from dp_pipelines.report.figures import (
    LARGEST,
    NARROW,
    WIDE,
    Floats,
    axes_over_time,
    axes_up,
    bar_ends,
    drawable,
    fitting,
    grid_across,
    mark_places,
)
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.svg import BAR, HEAT, INK, MARK, SvgDrawing
from dp_pipelines.report.time_axis import TimeAxis

SPARK_HEIGHT, SPARK_WIDTH = 18, 120

RANGE_ROW = 42
"""Pixels of a row of quantiles."""

BANDS = (HEAT[1], HEAT[2], HEAT[3])
"""From the widest band to the narrowest."""


def pairs(places: int) -> list[tuple[int, int]]:
    """The bands of a list of quantiles: its first and last, and so on inwards; at most three.

    >>> pairs(5), pairs(1), pairs(9)
    ([(0, 4), (1, 3)], [], [(0, 8), (2, 6), (3, 5)])
    """
    every = [(at, places - 1 - at) for at in range(places // 2)]
    return every if len(every) <= len(BANDS) else [every[0], every[len(every) // 2], every[-1]]


def drawn_places(places: int) -> list[int]:
    """The quantiles that are drawn with their error bars: the edges of the bands and the middle one.

    >>> drawn_places(5), drawn_places(2), drawn_places(1)
    ([0, 1, 2, 3, 4], [0, 1], [0])
    """
    middle = {places // 2} if places % 2 else set()
    return sorted({at for pair in pairs(places) for at in pair} | middle)


def range_of(values: Floats, bars: Floats) -> tuple[float, float]:
    """The range of an axis for quantiles: all of them, and the error bars of those that are drawn."""
    places = drawn_places(values.shape[1])
    one, other = (
        limits(values.ravel(), np.zeros(values.size)),
        limits(values[:, places].ravel(), bars[:, places].ravel()),
    )
    return min(one[0], other[0]), max(one[1], other[1])


def quantile_series(
    days: Floats, values: Floats, bars: Floats, time: TimeAxis, bounds: tuple[float, float], title: str, *, whole: bool
) -> Markup:
    """One panel: bands between quantiles over time, their edges and the middle one with error bars, the middle one as a line.

    Args:
        days: the points in rising order.
        values, bars: points by quantiles.
        time: the axis; shared by panels that are compared.
        bounds: the range of the numbers, shared likewise.
        title: for those who do not see the plot.
        whole: whether the panel is as wide as the page.
    """
    drawing = SvgDrawing(WHOLE_HEIGHT if whole else PANEL_HEIGHT)
    axes = axes_over_time(drawing, time, bounds, whole=whole)
    for (low, high), colour in zip(pairs(values.shape[1]), BANDS, strict=False):
        ends = values[:, [low, high]]
        for run in _runs(days, np.all(np.abs(ends) < LARGEST, axis=1), 1.5 * time.step):
            if len(run) == 1:
                day = days[run[0]]
                axes.lines([((day, ends[run[0], 0]), (day, ends[run[0], 1]))], colour, 3.0)
            else:
                axes.area([*days[run], *days[run[::-1]]], [*ends[run, 0], *ends[run[::-1], 1]], colour)
    for place in drawn_places(values.shape[1]):
        keep = np.flatnonzero(drawable(values[:, place], bars[:, place]))
        known, numbers = days[keep], values[keep, place]
        stems = zip(known, *bar_ends(numbers, bars[keep, place], bounds), strict=True)
        axes.lines((((x, a), (x, b)) for x, a, b in stems), MARK, 1.0)
        if 2 * place + 1 == values.shape[1]:
            near = np.flatnonzero(np.diff(known) <= 1.5 * time.step)
            axes.lines((((known[i], numbers[i]), (known[i + 1], numbers[i + 1])) for i in near), MARK, 1.4)
            axes.dots(known, numbers, 4.2 if len(known) <= 80 else 2.4, MARK)
        else:
            axes.dots(known, numbers, 2.4 if len(known) <= 80 else 1.6, MARK)
    return drawing.finished(title)


def quantile_ranges(names: Sequence[str], values: Floats, bars: Floats, notes: Sequence[str], title: str) -> Markup:
    """Ranges between quantiles as bars one below the other, names above them, each edge and the middle with its error bar.

    The error bars of one row lie at different heights, from the lowest quantile to the highest, so that each can be seen.

    Args:
        names: of the rows.
        values, bars: rows by quantiles.
        notes: what is written at the right end of each row.
        title: for those who do not see the plot.
    """
    low, high = range_of(values, bars)
    count = len(names)
    drawing = SvgDrawing(RANGE_ROW * count + 30)
    axes = drawing.axes(left=4, right=14, top=4, bottom=26, across=(low, high), up=(count, 0))
    grid_across(axes)
    for at, (name, note) in enumerate(zip(names, notes, strict=True)):
        for (first, last), colour in zip(pairs(values.shape[1]), BANDS, strict=False):
            a, b = values[at, first], values[at, last]
            if abs(a) < LARGEST and abs(b) < LARGEST:
                axes.area([a, b, b, a], [at + 0.5, at + 0.5, at + 0.94, at + 0.94], colour)
        named(axes, at + 0.25, name, note)
    places = drawn_places(values.shape[1])
    for place, down in zip(places, np.linspace(0.57, 0.87, len(places)) if len(places) > 1 else [0.72], strict=True):
        rows = np.flatnonzero(drawable(values[:, place], bars[:, place]))
        ends = zip(rows, *bar_ends(values[rows, place], bars[rows, place], (low, high)), strict=True)
        axes.lines((((a, at + down), (b, at + down)) for at, a, b in ends), MARK, 1.4)
        axes.dots(values[rows, place], rows + down, 5 if 2 * place + 1 == values.shape[1] else 3.2, MARK)
    return drawing.finished(title)


def histogram(values: Floats, bars: Floats, edges: Sequence[str], title: str, *, whole: bool) -> Markup:
    """One panel: a bar for each bin, all of one width, with its error bar.

    Args:
        values, bars: of the bins.
        edges: the texts of the places between the bins, one more than there are bins.
        title: for those who do not see the plot.
        whole: whether the panel is as wide as the page.
    """
    keep = np.flatnonzero(drawable(values, bars))
    bounds = limits(values, bars)
    drawing = SvgDrawing(WHOLE_HEIGHT if whole else PANEL_HEIGHT)
    axes = axes_up(drawing, bounds, (0, len(values)))
    marks = {float(at): fitting(text, 14) for at, text in enumerate(edges)}
    mark_places(axes, marks, narrow=NARROW, wide=WIDE if whole else NARROW)
    gap = 0.06 if len(values) <= 40 else 0.0
    for at in keep:
        left, right = at + gap, at + 1 - gap
        axes.area([left, right, right, left], [0, 0, values[at], values[at]], BAR)
    ends = zip(keep + 0.5, *bar_ends(values[keep], bars[keep], bounds), strict=True)
    axes.lines((((x, a), (x, b)) for x, a, b in ends), INK, 1.4)
    return drawing.finished(title)


def spark(values: Floats, title: str) -> Markup:
    """Bars as small as a word, from a line of zero; what is no number leaves a gap.

    >>> str(spark(np.array([1.0, 2.0]), "two"))[-62:]
    'd="M0 18v-9h11v9zM12 18v-18h11v18z" fill="var(--mark)"/></svg>'
    """
    with np.errstate(invalid="ignore"):
        shown = np.where(np.abs(values) < LARGEST, values, 0.0)
    width = min(12.0, SPARK_WIDTH / len(shown))
    low, high = min(0.0, float(shown.min())), max(0.0, float(shown.max()))
    scale = SPARK_HEIGHT / (high - low) if high - low > 1e-100 else 0.0
    zero, heights = f"{high * scale if scale else SPARK_HEIGHT:.4g}", np.round(shown * scale, 1) + 0.0
    bar = f"{width - (1 if width > 3 else 0):.4g}"
    path = "".join(
        f"M{at * width:.4g} {zero}v{-height:.4g}h{bar}v{height:.4g}z"
        for at, height in enumerate(heights.tolist())
        if height
    )
    size = f'viewBox="0 0 {width * len(shown):.4g} {SPARK_HEIGHT}" width="{width * len(shown):.4g}" height="{SPARK_HEIGHT}"'
    words = escape(visible(title, 400))
    return Markup(  # noqa: S704  its one text was escaped above
        f'<svg class="spark" role="img" aria-label="{words}" {size}><path d="{path}" fill="var(--mark)"/></svg>'
    )


def _runs(days: Floats, known: NDArray[np.bool_], widest: float) -> list[NDArray[np.int64]]:
    """Points that can be joined, as lists of their places."""
    at = np.flatnonzero(known)
    return [run for run in np.split(at, np.flatnonzero(np.diff(days[at]) > widest) + 1) if len(run)]
