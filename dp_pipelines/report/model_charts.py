"""Plots of a model: how it ranks, how well its probabilities hold, how it learnt.

In: released numbers with half the lengths of their error bars. Out: one `<svg>` element each (`drawing`). Holds: what is no
number is not drawn; noise that takes a point out of the plot's range is cut at its edge. Not covered: what to plot
(`model_section`).
"""

import itertools
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from dp_pipelines.report.charts import limits
from dp_pipelines.report.figures import (
    BAR,
    MARK,
    QUIET,
    Floats,
    TextTokens,
    bar_ends,
    bare_axes,
    drawable,
    drawing,
    finished,
    grid,
    lines,
)
from dp_pipelines.report.numbers import tick_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDE = 300
"""Pixels; the page scales it."""


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
    with drawing(SIDE, SIDE) as (figure, texts):
        axes = _square(figure, texts, (0.0, 1.0), (0.0, 1.0), "taken for true, of the false", "found, of the true")
        low, high = bar_ends(up, spread, (0.0, 1.0))
        axes.fill([*across, *across[::-1]], [*low, *high[::-1]], color=BAR, lw=0)
        lines(axes, [((0, 0), (1, 1))], QUIET, 0.8)
        lines(
            axes,
            list(zip(*(_points(across, up)[part] for part in (slice(None, -1), slice(1, None))), strict=True)),
            MARK,
            1.6,
        )
        return finished(figure, texts, title)


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
    with drawing(SIDE, SIDE) as (figure, texts):
        axes = _square(figure, texts, bounds, bounds, *words)
        lines(axes, [((bounds[0], bounds[0]), (bounds[1], bounds[1]))], QUIET, 0.8)
        for bars, colour, wide in ((both, BAR, 4.0), (noise, MARK, 1.4)):
            ends = zip(said, *bar_ends(seen, bars, bounds), strict=True)
            lines(axes, [((x, a), (x, b)) for x, a, b in ends], colour, wide)
        inside = (seen >= bounds[0]) & (seen <= bounds[1])
        axes.plot(said[inside], seen[inside], linestyle="none", marker="o", markersize=5, mew=0, color=MARK)
        return finished(figure, texts, title)


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
    with drawing(620, 170) as (figure, texts):
        axes = bare_axes(figure, left=46, right=12, top=10, bottom=26)
        last = float(steps[-1]) if len(steps) else 1.0
        axes.set_xlim(0, max(last, 1.0))
        grid(axes, bounds, texts, vertical=False)
        _mark(axes, texts, [0.0, last] if last < 4 else [0.0, round(last / 2), last])
        points = _points(steps, numbers)
        lines(axes, list(itertools.pairwise(points)), MARK, 1.4)
        if len(points) == 1:
            axes.plot(*points[0], linestyle="none", marker="o", markersize=5, mew=0, color=MARK)
        return finished(figure, texts, title)


def _points(across: Floats, up: Floats) -> list[tuple[float, float]]:
    return list(zip(across.tolist(), up.tolist(), strict=True))


def _square(
    figure: "Figure", texts: TextTokens, across: tuple[float, float], up: tuple[float, float], below: str, beside: str
) -> "Axes":
    """Axes with numbers on both sides, and with words for them."""
    axes = bare_axes(figure, left=40, right=12, top=26, bottom=40)
    axes.set_xlim(*across)
    axes.set_ylim(*up)
    grid(axes, up, texts, vertical=False)
    _mark(axes, texts, [across[0], (across[0] + across[1]) / 2, across[1]])
    for text, xy, at, side in ((below, (1, 0), (0, -22), "right"), (beside, (0, 1), (-30, 10), "left")):
        axes.annotate(
            texts(text), xy, at, xycoords="axes fraction", textcoords="offset points", ha=side,
            va="top" if side == "right" else "bottom", size=10, color=QUIET, rotation_mode="anchor", annotation_clip=False,
        )  # fmt: skip
    return axes


def _mark(axes: "Axes", texts: TextTokens, places: list[float]) -> None:
    for place in places:
        side = "left" if place == places[0] else "right" if place == places[-1] else "center"
        axes.annotate(
            texts(tick_number(place)), (place, 0), (0, -6), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha=side, va="top", size=10, color=QUIET, rotation_mode="anchor",
            annotation_clip=False,
        )  # fmt: skip
