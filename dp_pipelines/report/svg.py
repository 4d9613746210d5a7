"""A small writer of SVG: lines, areas, points and texts in axes, as one `<svg>` element for a page.

In: numbers in the units of axes, texts that `key_text` made visible. Out: markup. Holds: the same input gives the same bytes;
each text is escaped where it is written; colours are variables of the page's style sheet, so that light, dark and print need
one drawing; nothing has a name or an address. Not covered: what is drawn.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Literal

from markupsafe import Markup, escape

from dp_pipelines.report.key_text import END_ISOLATE, ISOLATE, visible

HEAT_STEPS = 7
"""Shades of a heat map."""

INK, QUIET, GRID, MARK, BAR, PAPER = (f"var(--{name})" for name in ("ink", "quiet", "grid", "mark", "bar", "card"))
HEAT = [f"var(--heat-{step})" for step in range(HEAT_STEPS)]

WITHOUT_ISOLATES = {ord(ISOLATE): None, ord(END_ISOLATE): None}

Point = tuple[float, float]
Side = Literal["start", "middle", "end"]
Level = Literal["above", "middle", "below", "baseline"]

LEVELS: dict[Level, float] = {"above": -0.25, "middle": 0.35, "below": 0.8, "baseline": 0.0}
"""How far the line on which letters stand lies below the place of a text, in font sizes."""


class SvgDrawing:
    """An SVG element that is being written.

    Args:
        width, height: pixels; the page scales it.

    >>> drawing = SvgDrawing(100, 50)
    >>> drawing.axes(0, 0, 0, 0).dots([0.5], [0.5], 4, MARK)
    >>> print(drawing.finished("A point"))
    <svg role="img" aria-label="A point" viewBox="0 0 100 50" width="100">
    <circle cx="50" cy="25" r="2" style="fill: var(--mark)"/>
    </svg>
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []

    def axes(
        self, left: float, right: float, top: float, bottom: float, across: Point = (0.0, 1.0), up: Point = (0.0, 1.0)
    ) -> "Axes":
        """Axes with margins in pixels.

        Args:
            left, right, top, bottom: the margins.
            across, up: the numbers at the left and the right end, and at the lower and the upper one.
        """
        return Axes(
            drawing=self,
            left=left,
            right=self.width - right,
            top=top,
            bottom=self.height - bottom,
            across=across,
            up=up,
        )

    def finished(self, title: str) -> Markup:
        """The element.

        Args:
            title: for those who do not see it.
        """
        words = escape(visible(title.translate(WITHOUT_ISOLATES), 400))
        width, height = f"{self.width:.0f}", f"{self.height:.0f}"
        opening = f'<svg role="img" aria-label="{words}" viewBox="0 0 {width} {height}" width="{width}">'
        return Markup("\n".join([opening, *self.parts, "</svg>"]))  # noqa: S704  every text in it was escaped


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axes:
    """A rectangle of a drawing with numbers on both sides.

    Args:
        drawing: gets what is drawn.
        left, right, top, bottom: its edges in pixels.
        across, up: the numbers at the left and the right edge, and at the lower and the upper one.
    """

    drawing: SvgDrawing
    left: float
    right: float
    top: float
    bottom: float
    across: Point
    up: Point

    def x(self, number: float) -> float:
        """Where a number across stands, in pixels."""
        return self.left + (self.right - self.left) * _part(number, self.across)

    def y(self, number: float) -> float:
        """Where a number up stands, in pixels."""
        return self.bottom + (self.top - self.bottom) * _part(number, self.up)

    def lines(self, ends: Iterable[tuple[Point, Point]], colour: str, width: float) -> None:
        """Many lines as one path: small, however many there are."""
        path = " ".join(f"M {self._place(a)} L {self._place(b)}" for a, b in ends)
        if path:
            style = f"fill: none; stroke: {colour}; stroke-width: {_short(width)}; stroke-linecap: round"
            self._add(f'<path d="{path}" style="{style}"/>')

    def area(self, across: Sequence[float], up: Sequence[float], colour: str) -> None:
        """The area inside of a closed line."""
        first, *rest = (self._place(point) for point in zip(across, up, strict=True))
        self._add(f'<path d="M {first} {" ".join(f"L {place}" for place in rest)} z" style="fill: {colour}"/>')

    def boxes(self, corners: Iterable[Point], gap_x: float, gap_y: float, colour: str) -> None:
        """Many unit squares as one path, with a gap around each."""
        path = " ".join(
            f"M {self._place((x, y))} L {self._place((x + 1 - gap_x, y))} "
            f"L {self._place((x + 1 - gap_x, y + 1 - gap_y))} L {self._place((x, y + 1 - gap_y))} z"
            for x, y in corners
        )
        if path:
            self._add(f'<path d="{path}" style="fill: {colour}"/>')

    def dots(self, across: Iterable[float], up: Iterable[float], size: float, colour: str) -> None:
        """Points of a size in pixels."""
        for x, y in zip(across, up, strict=True):
            place = f'cx="{_short(self.x(x))}" cy="{_short(self.y(y))}" r="{_short(size / 2)}"'
            self._add(f'<circle {place} style="fill: {colour}"/>')

    def text(
        self, words: str, place: Point, side: Side, level: Level, size: float, colour: str, *, upright: bool = False
    ) -> None:
        """A text beside a place in pixels.

        Args:
            words: it is escaped here.
            place: across and down, from the left upper corner of the drawing.
            side: which end of the text stands there.
            level: whether it stands above, below or around that place.
            size: of the letters, in pixels.
            colour: one of those above.
            upright: read from below.
        """
        x, y = place
        down = LEVELS[level] * size
        x, y = (x + down, y) if upright else (x, y + down)
        turned = f' transform="rotate(-90 {_short(x)} {_short(y)})"' if upright else ""
        style = f"font-size: {_short(size)}px; text-anchor: {side}; fill: {colour}"
        self._add(f'<text x="{_short(x)}" y="{_short(y)}" style="{style}"{turned}>{escape(words)}</text>')

    def _place(self, point: Point) -> str:
        return f"{_short(self.x(point[0]))} {_short(self.y(point[1]))}"

    def _add(self, part: str) -> None:
        self.drawing.parts.append(part)


def round_places(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, with at most so many steps between them; `low` alone where no float is between them.

    >>> round_places(0, 22), round_places(-1, 1), round_places(0, 0.3)
    ([0.0, 5.0, 10.0, 15.0, 20.0], [-1.0, -0.5, 0.0, 0.5, 1.0], [0.0, 0.1, 0.2, 0.3])
    """
    rough = high / most - low / most
    if not 1e-300 < rough < 1e300:
        return [low]
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10, 20) if size * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _part(number: float, ends: Point) -> float:
    width = ends[1] - ends[0]
    return float((number - ends[0]) / width) if width else 0.0


def _short(number: float) -> str:
    """A number of pixels, to a hundredth.

    >>> _short(1.0), _short(-0.001), _short(2.345)
    ('1', '0', '2.35')
    """
    return f"{round(number, 2) + 0.0:.2f}".rstrip("0").rstrip(".")
