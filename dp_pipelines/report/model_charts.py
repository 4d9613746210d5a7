"""Plots of a model: ROC curve, precision and lift, calibration, training.

In: released numbers with half the lengths of their error bars. Out: one `<svg>` element each (`svg`). Holds: what is no
number is not drawn; noise that takes a point out of the plot's range is cut at its edge. Not covered: what to plot
(`model_section`).
"""

import itertools

import numpy as np
from markupsafe import Markup

from dp_pipelines.report.charts import limits
from dp_pipelines.report.figures import Floats, axes_up, bar_ends, below, drawable
from dp_pipelines.report.numbers import tick_number
from dp_pipelines.report.svg import BAR, MARK, QUIET, Axes, SvgDrawing

SIDE = 300
"""Pixels; the page keeps them about as wide."""


def ranks(false: Floats, true: Floats, bars: Floats, title: str) -> Markup:
    """The part of the true that is found over the part of the false that is taken for true, with a band of noise.

    Args:
        false, true: both parts, in the order of falling thresholds.
        bars: half the length of the error bars of `true`.
        title: for those who do not see the plot.
    """
    keep = drawable(false, np.zeros(len(false))) & drawable(true, bars)
    across = np.concatenate([[0.0], np.maximum.accumulate(np.clip(false[keep], 0, 1)), [1.0]])
    up = np.concatenate([[0.0], np.clip(true[keep], 0, 1), [1.0]])
    spread = np.concatenate([[0.0], bars[keep], [0.0]])
    drawing = SvgDrawing(SIDE)
    axes = _square(drawing, (0.0, 1.0), (0.0, 1.0), "false positive rate", "true positive rate")
    low, high = bar_ends(up, spread, (0.0, 1.0))
    axes.area([*across, *across[::-1]], [*low, *high[::-1]], BAR)
    axes.lines([((0, 0), (1, 1))], QUIET, 0.8)
    axes.lines(itertools.pairwise(_points(across, up)), MARK, 1.6)
    return drawing.finished(title)


def curve(
    across: Floats,
    up: Floats,
    bars: Floats,
    level: float,
    bounds: tuple[float, float],
    words: tuple[str, str],
    title: str,
) -> Markup:
    """A number of each threshold over a part from 0 to 1, with a band of noise, and a line for what chance gives.

    Args:
        across, up: both numbers, in the order of falling thresholds.
        bars: half the length of the error bars of `up`.
        level: what chance gives.
        bounds: of the axis up.
        words: what the axes show, across and up.
        title: for those who do not see the plot.
    """
    keep = drawable(across, np.zeros(len(across))) & drawable(up, bars)
    order = np.argsort(np.clip(across[keep], 0, 1), kind="stable")
    across, spread = np.clip(across[keep], 0, 1)[order], bars[keep][order]
    up = np.clip(up[keep], *bounds)[order]
    drawing = SvgDrawing(SIDE)
    axes = _square(drawing, (0.0, 1.0), bounds, *words)
    low, high = bar_ends(up, spread, bounds)
    if len(across):
        axes.area([*across, *across[::-1]], [*low, *high[::-1]], BAR)
    axes.lines([((0, level), (1, level))], QUIET, 0.8)
    axes.lines(itertools.pairwise(_points(across, up)), MARK, 1.6)
    if len(across) == 1:
        axes.dots(across, up, 5, MARK)
    return drawing.finished(title)


def calibration(
    said: Floats,
    seen: Floats,
    noise: Floats,
    both: Floats,
    bounds: tuple[float, float],
    words: tuple[str, str],
    title: str,
) -> Markup:
    """What was so over what was predicted; on the diagonal both are the same.

    Args:
        said, seen: the points.
        noise: half the length of the error bars of noise.
        both: likewise, with what other held-out units would change.
        bounds: the range of both axes.
        words: what the axes show, across and up.
        title: for those who do not see the plot.
    """
    keep = drawable(seen, noise) & drawable(said, both)
    said, seen, noise, both = said[keep], seen[keep], noise[keep], both[keep]
    drawing = SvgDrawing(SIDE)
    axes = _square(drawing, bounds, bounds, *words)
    axes.lines([((bounds[0], bounds[0]), (bounds[1], bounds[1]))], QUIET, 0.8)
    for bars, colour, wide in ((both, BAR, 4.0), (noise, MARK, 1.4)):
        ends = zip(said, *bar_ends(seen, bars, bounds), strict=True)
        axes.lines((((x, a), (x, b)) for x, a, b in ends), colour, wide)
    inside = (seen >= bounds[0]) & (seen <= bounds[1])
    axes.dots(said[inside], seen[inside], 5, MARK)
    return drawing.finished(title)


def learning(numbers: Floats, title: str) -> Markup:
    """A public number of each step as a line.

    Args:
        numbers: of each step, from the first.
        title: for those who do not see the plot.
    """
    steps = np.arange(1, len(numbers) + 1, dtype=np.float64)
    keep = drawable(numbers, np.zeros(len(numbers)))
    steps, numbers = steps[keep], numbers[keep]
    bounds = limits(numbers, np.zeros(len(numbers)))
    last = float(steps[-1]) if len(steps) else 1.0
    drawing = SvgDrawing(190)
    axes = axes_up(drawing, bounds, (0, max(last, 1.0)))
    _mark(axes, [0.0, last] if last < 4 else [0.0, round(last / 2), last])
    points = _points(steps, numbers)
    axes.lines(itertools.pairwise(points), MARK, 1.4)
    if len(points) == 1:
        axes.dots(steps, numbers, 5, MARK)
    return drawing.finished(title)


def _points(across: Floats, up: Floats) -> list[tuple[float, float]]:
    return list(zip(across.tolist(), up.tolist(), strict=True))


def _square(
    drawing: SvgDrawing, across: tuple[float, float], up: tuple[float, float], words_below: str, words_above: str
) -> Axes:
    """Axes with numbers on both sides, and with words for them."""
    axes = axes_up(drawing, up, across, bottom=40, words=words_above)
    _mark(axes, [across[0], (across[0] + across[1]) / 2, across[1]])
    axes.text(words_below, (100, axes.bottom + 22), "end", "below", QUIET)
    return axes


def _mark(axes: Axes, places: list[float]) -> None:
    for place in places:
        below(
            axes,
            place,
            tick_number(place),
            "start" if place == places[0] else "end" if place == places[-1] else "middle",
        )
