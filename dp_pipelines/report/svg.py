"""A small writer of SVG: the places of numbers, and one `<svg>` element for a page.

In: marks that are written already. Out: markup. Holds: the same input gives the same bytes; each text is escaped where it is
written; colours are variables of the page's style sheet and widths are percentages, so that light, dark, print and a phone need
one drawing; nothing has a name or an address. Not covered: what is drawn (`charts`).
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from dp_pipelines.report.key_text import END_ISOLATE, ISOLATE, visible
from dp_pipelines.report.numbers import LARGEST, finite

Floats = NDArray[np.float64]
Point = tuple[float, float]

HEAT_STEPS = 7
"""Shades of a heat map."""

COLOURS = ("ink", "quiet", "grid", "mark", "bar", "range", "range-line", "card")
INK, QUIET, GRID, MARK, BAR, RANGE, RANGE_LINE, PAPER = (f"var(--{name})" for name in COLOURS)
HEAT = [f"var(--heat-{step})" for step in range(HEAT_STEPS)]

WITHOUT_ISOLATES = {ord(ISOLATE): None, ord(END_ISOLATE): None}

MOST_WORDS = 700
"""Characters of the text that a drawing has for those who do not see it."""

WIDTH = 1000
"""Units across of shapes, whatever the width of their place."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChartFrame:
    """The margins of a drawing, and the numbers at the edges of what is between them.

    Args:
        height: of the drawing, in pixels. It is as wide as its place on the page; letters, points and lines keep their size.
        left, right, top, bottom: the margins in pixels.
        across, up: the numbers at the left and the right edge, and at the lower and the upper one.
    """

    height: float
    left: float = 0.0
    right: float = 0.0
    top: float = 0.0
    bottom: float = 0.0
    across: Point = (0.0, 1.0)
    up: Point = (0.0, 1.0)

    @property
    def foot(self) -> float:
        """The lower edge, in pixels from the upper edge of the drawing."""
        return self.height - self.bottom

    def x(self, number: float) -> float:
        """Return the place of a number across, in percent of the width."""
        return 100 * _part(number, self.across)

    def y(self, number: float) -> float:
        """Return the place of a number up, in pixels from the upper edge of the drawing."""
        return self.foot + (self.top - self.foot) * _part(number, self.up)

    def place(self, point: Point) -> tuple[str, str]:
        """Return the place of a point, to a tenth of a pixel."""
        return short(WIDTH / 100 * self.x(point[0]), 1), short(self.y(point[1]), 1)

    def outline(self, points: Iterable[Point]) -> str:
        """Return a closed line as a part of a path."""
        return f"M{'L'.join(' '.join(self.place(point)) for point in points)}z"


def element(frame: ChartFrame, title: str, shapes: Sequence[str], texts: Sequence[str], least: float = 0.0) -> Markup:
    """Return a drawing as an element.

    Args:
        frame: of the drawing.
        title: a text for those who do not see it; it is escaped here.
        shapes: elements that are stretched to the width of the place.
        texts: elements that keep their size; they lie above the shapes, at percentages.
        least: pixels that it is wide at least, its margins not counted; a narrower place has to let readers scroll.

    >>> print(element(ChartFrame(height=50, left=10), "A point", ['<path d="M5 5h0"/>'], []))
    <svg role="img" aria-label="A point" class="chart" style="height: 50px; margin: 0 0px 0 10px; width: calc(100% - 10px)">
    <svg viewBox="0 0 1000 50" width="100%" height="100%" preserveAspectRatio="none">
    <path d="M5 5h0"/>
    </svg>
    </svg>
    """
    words = escape(visible(title.translate(WITHOUT_ISOLATES), MOST_WORDS))
    left, right, height = short(frame.left), short(frame.right), short(frame.height)
    place = (
        f"height: {height}px; margin: 0 {right}px 0 {left}px; width: calc(100% - {short(frame.left + frame.right)}px)"
    )
    place += f"; min-width: {short(least)}px" if least else ""
    opening = f'<svg role="img" aria-label="{words}" class="chart" style="{place}">'
    stretched = f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" height="100%" preserveAspectRatio="none">'
    inner = [stretched, *shapes, "</svg>"] if shapes else []
    return Markup("\n".join([opening, *inner, *texts, "</svg>"]))  # noqa: S704  every text was escaped


def drawable(values: Floats, bars: Floats) -> NDArray[np.bool_]:
    """Return which numbers can be drawn with their error bars."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(values) < LARGEST) & (bars >= 0) & (bars < LARGEST))


def finite_or_nan(values: Iterable[object]) -> Floats:
    """Return numbers of a published file that can be drawn; NaN for anything else."""
    return np.array([np.nan if (number := finite(value)) is None else number for value in values], np.float64)


def short(number: float, digits: int = 2) -> str:
    """Return a number of pixels, to a hundredth or another part.

    >>> short(1.0), short(-0.001), short(2.345), short(2.345, 1)
    ('1', '0', '2.35', '2.3')
    """
    return f"{round(number, digits) + 0.0:.{digits}f}".rstrip("0").rstrip(".")


def _part(number: float, ends: Point) -> float:
    width = ends[1] - ends[0]
    return float((number - ends[0]) / width) if width else 0.0
