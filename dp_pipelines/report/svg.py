"""A small writer of SVG: lines, areas, points and texts in axes, as one `<svg>` element for a page.

In: numbers in the units of axes, texts that `key_text` made visible. Out: markup. Holds: the same input gives the same bytes;
each text is escaped where it is written; colours are variables of the page's style sheet and widths are percentages, so that
light, dark, print and a phone need one drawing; nothing has a name or an address. Not covered: what is drawn.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Literal

from markupsafe import Markup, escape

from dp_pipelines.report.key_text import END_ISOLATE, ISOLATE, visible

HEAT_STEPS = 7
"""Shades of a heat map."""

COLOURS = ("ink", "quiet", "grid", "mark", "bar", "range", "range-line", "card")
INK, QUIET, GRID, MARK, BAR, RANGE, RANGE_LINE, PAPER = (f"var(--{name})" for name in COLOURS)
HEAT = [f"var(--heat-{step})" for step in range(HEAT_STEPS)]

WITHOUT_ISOLATES = {ord(ISOLATE): None, ord(END_ISOLATE): None}

Point = tuple[float, float]
Side = Literal["start", "middle", "end"]
Level = Literal["above", "middle", "below", "baseline"]
Shown = Literal["always", "wide", "narrow"]
Kind = Literal["", "counted", "estimate"]
"""Elements that show counted numbers, or estimates of the true ones: a page shows one sort at a time."""

LEVELS: dict[Level, float] = {"above": -0.25, "middle": 0.35, "below": 0.8, "baseline": 0.0}
"""How far the line on which letters stand lies below the place of a text, in font sizes."""

LETTERS = 12
"""The height of letters in pixels, as in the style sheet."""

LETTER = 6.4
"""About how many pixels wide a letter is."""

MOST_WORDS = 700
"""Characters of the text that a drawing has for those who do not see it."""

WIDTH = 1000
"""Units across of shapes, whatever the width of their place."""


class SvgDrawing:
    """An SVG element that is being written. It is as wide as its place on the page; letters, points and lines keep their size.

    Elements of a `Kind` are shown while the reader looks at numbers of that kind.

    Args:
        height: pixels.
        least: pixels that it is wide at least, its margins not counted; a narrower place has to let readers scroll.

    >>> drawing = SvgDrawing(50)
    >>> drawing.axes(left=10, right=0, top=0, bottom=0).dots([0.5], [0.5], 4, MARK)
    >>> print(drawing.finished("A point"))
    <svg role="img" aria-label="A point" class="chart" style="height: 50px; margin: 0 0px 0 10px; width: calc(100% - 10px)">
    <svg viewBox="0 0 1000 50" width="100%" height="100%" preserveAspectRatio="none">
    <path class="dots" d="M500 25h0" style="stroke: var(--mark); stroke-width: 4"/>
    </svg>
    </svg>
    """

    def __init__(self, height: float, least: float = 0.0) -> None:
        self.height, self.least = height, least
        self.left = self.right = 0.0
        self.shapes: list[str] = []
        self.marks: list[str] = []

    def axes(
        self, left: float, right: float, top: float, bottom: float, across: Point = (0.0, 1.0), up: Point = (0.0, 1.0)
    ) -> "Axes":
        """Axes with margins in pixels.

        Args:
            left, right, top, bottom: the margins.
            across, up: the numbers at the left and the right end, and at the lower and the upper one.
        """
        self.left, self.right = left, right
        return Axes(drawing=self, top=top, bottom=self.height - bottom, across=across, up=up)

    def finished(self, title: str) -> Markup:
        """The element.

        Args:
            title: for those who do not see it.
        """
        words = escape(visible(title.translate(WITHOUT_ISOLATES), MOST_WORDS))
        left, right, height = _short(self.left), _short(self.right), _short(self.height)
        place = f"height: {height}px; margin: 0 {right}px 0 {left}px; width: calc(100% - {_short(self.left + self.right)}px)"
        place += f"; min-width: {_short(self.least)}px" if self.least else ""
        # Shapes are stretched to the width of the place; what must not be stretched lies above them, at percentages.
        opening = f'<svg role="img" aria-label="{words}" class="chart" style="{place}">'
        stretched = f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" height="100%" preserveAspectRatio="none">'
        shapes = [stretched, *self.shapes, "</svg>"] if self.shapes else []
        return Markup("\n".join([opening, *shapes, *self.marks, "</svg>"]))  # noqa: S704  every text was escaped


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axes:
    """The part of a drawing that is between its margins, with numbers on both sides.

    Args:
        drawing: gets what is drawn.
        top, bottom: its edges in pixels; the margins of the drawing are those to the left and to the right.
        across, up: the numbers at the left and the right edge, and at the lower and the upper one.
    """

    drawing: SvgDrawing
    top: float
    bottom: float
    across: Point
    up: Point

    def x(self, number: float) -> float:
        """Where a number across stands, in percent of the width."""
        return 100 * _part(number, self.across)

    def y(self, number: float) -> float:
        """Where a number up stands, in pixels."""
        return self.bottom + (self.top - self.bottom) * _part(number, self.up)

    def lines(
        self, ends: Iterable[tuple[Point, Point]], colour: str, width: float, *,
        dashes: str = "", blunt: bool = False, kind: Kind = "",
    ) -> None:  # fmt: skip
        """Many lines as one path: small, however many there are.

        Args:
            ends: of each line.
            colour: one of those above.
            width: in pixels.
            dashes: the lengths of strokes and gaps, in pixels; none: whole lines with round ends.
            blunt: whether ends are cut off where the line ends.
            kind: as for `SvgDrawing`.
        """
        steps, last = [], ("", "")
        for start, end in ends:
            a, b = self._place(start), self._place(end)
            step = f"V{b[1]}" if a[0] == b[0] else f"H{b[0]}" if a[1] == b[1] else f"L{b[0]} {b[1]}"
            # Where the last one ended, it goes on.
            steps.append(step if a == last and not dashes else f"M{a[0]} {a[1]}{step}")
            last = b
        path = "".join(steps)
        if path:
            ending = f"stroke-dasharray: {dashes}" if dashes else f"stroke-linecap: {'butt' if blunt else 'round'}"
            style = f"fill: none; stroke: {colour}; stroke-width: {_short(width)}; {ending}"
            self.drawing.shapes.append(f'<path{_class(kind)} d="{path}" style="{style}"/>')

    def area(self, across: Sequence[float], up: Sequence[float], colour: str, kind: Kind = "") -> None:
        """The area inside of a closed line."""
        path = self._closed(zip(across, up, strict=True))
        self.drawing.shapes.append(f'<path{_class(kind)} d="{path}" style="fill: {colour}"/>')

    def boxes(self, corners: Iterable[Point], colour: str) -> None:
        """Many unit squares as one path, with a line of the ground's colour around each."""
        path = "".join(self._closed([(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)]) for x, y in corners)
        if path:
            self.drawing.shapes.append(f'<path d="{path}" style="fill: {colour}; stroke: {PAPER}; stroke-width: 1.5"/>')

    def dots(
        self, across: Iterable[float], up: Iterable[float], size: float, colour: str, notes: Sequence[str] = (),
        kind: Kind = "",
    ) -> None:  # fmt: skip
        """Points of a size in pixels, as the round ends of lines without a length: small, however many there are.

        Args:
            across, up: their places.
            size: in pixels.
            colour: one of those above.
            notes: what the page's script says of each, one a line; they are escaped here. None: it says nothing.
            kind: as for `SvgDrawing`.
        """
        path = "".join(f"M{x} {y}h0" for x, y in map(self._place, zip(across, up, strict=True)))
        if path:
            said = f' data-notes="{escape(chr(10).join(notes))}"' if notes else ""
            style = f"stroke: {colour}; stroke-width: {_short(size)}"
            self.drawing.shapes.append(f'<path{_class(kind, "dots")} d="{path}"{said} style="{style}"/>')

    def text(
        self, words: str, place: Point, side: Side, level: Level, colour: str, *,
        move: float = 0.0, upright: bool = False, shown: Shown = "always", kind: Kind = "",
    ) -> None:  # fmt: skip
        """A text beside a place.

        Args:
            words: it is escaped here.
            place: across in percent, down in pixels from the upper edge of the drawing.
            side: which end of the text stands there.
            level: whether it stands above, below or around that place.
            colour: one of those above.
            move: pixels by which it stands further to the right.
            upright: read from above.
            shown: at which widths of its place on the page; the style sheet draws the line between them.
            kind: as for `SvgDrawing`.
        """
        x, y = place
        down = LEVELS[level] * LETTERS
        y = y if upright else y + down  # letters of an upright text stand around its place
        moved = f' dx="{_short(move)}"' if move else ""
        named = _class(kind, "" if shown == "always" else shown)
        turned = "; writing-mode: vertical-rl" if upright else ""
        style = f"text-anchor: {side}; fill: {colour}{turned}"
        self.drawing.marks.append(
            f'<text x="{_short(x)}%" y="{_short(y)}"{moved}{named} style="{style}">{escape(words)}</text>'
        )

    def _place(self, point: Point) -> tuple[str, str]:
        """Where a point stands, to a tenth of a pixel."""
        return _short(WIDTH / 100 * self.x(point[0]), 1), _short(self.y(point[1]), 1)

    def _closed(self, points: Iterable[Point]) -> str:
        return f"M{'L'.join(' '.join(self._place(point)) for point in points)}z"


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


def _class(*names: str) -> str:
    """The classes of an element; nothing where it has none."""
    named = " ".join(name for name in names if name)
    return f' class="{named}"' if named else ""


def _short(number: float, digits: int = 2) -> str:
    """A number of pixels, to a hundredth or another part.

    >>> _short(1.0), _short(-0.001), _short(2.345), _short(2.345, 1)
    ('1', '0', '2.35', '2.3')
    """
    return f"{round(number, digits) + 0.0:.{digits}f}".rstrip("0").rstrip(".")
