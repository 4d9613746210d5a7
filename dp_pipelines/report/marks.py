"""The marks of a chart as data: lines, areas, boxes, points and texts, each of which writes itself into a frame.

In: numbers in the units of axes, texts that `key_text` made visible. Out: elements of SVG; one path for many marks, however many
there are. Holds: what is no number is left out; ends beyond an axis are cut at its edge. Not covered: which marks a chart has
(`charts`).
"""

import abc
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np
from markupsafe import escape

from dp_pipelines.report.svg import BAR, MARK, PAPER, RANGE, RANGE_LINE, ChartFrame, Floats, Point, short

Span = tuple[Point, Point]
Side = Literal["start", "middle", "end"]
Level = Literal["above", "middle", "below", "baseline"]
Shown = Literal["always", "wide", "narrow"]
Kind = Literal["", "counted", "estimate"]
"""Marks that show counted numbers, or estimates of the true ones: a page shows one sort at a time."""

LEVELS: dict[Level, float] = {"above": -0.25, "middle": 0.35, "below": 0.8, "baseline": 0.0}
"""How far the base line of letters lies below the place of a text, in font sizes."""

LETTERS = 12
"""The height of letters in pixels, as in the style sheet."""

RANGE_WIDTH = 9.0
"""Pixels that the shade of a range is wide."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark(abc.ABC):
    """A mark of a chart."""

    stretched: ClassVar[bool] = True
    """Whether it is stretched to the width of its place."""

    @abc.abstractmethod
    def written(self, frame: ChartFrame) -> str:
        """Return it as an element of SVG; nothing where there is nothing to draw."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(Mark):
    """Many lines as one path.

    Args:
        ends: of each line.
        colour: one of those of `svg`.
        width: in pixels.
        dashes: the lengths of strokes and gaps, in pixels; none: whole lines with round ends.
        blunt: whether ends are cut off where the line ends.
        kind: what the lines show.
    """

    ends: Sequence[Span]
    colour: str
    width: float
    dashes: str = ""
    blunt: bool = False
    kind: Kind = ""

    def written(self, frame: ChartFrame) -> str:
        """See `Mark`."""
        steps, last = [], ("", "")
        for start, end in self.ends:
            a, b = frame.place(start), frame.place(end)
            step = f"V{b[1]}" if a[0] == b[0] else f"H{b[0]}" if a[1] == b[1] else f"L{b[0]} {b[1]}"
            # Where the last one ended, it goes on.
            steps.append(step if a == last and not self.dashes else f"M{a[0]} {a[1]}{step}")
            last = b
        if not steps:
            return ""
        ending = (
            f"stroke-dasharray: {self.dashes}"
            if self.dashes
            else f"stroke-linecap: {'butt' if self.blunt else 'round'}"
        )
        style = f"fill: none; stroke: {self.colour}; stroke-width: {short(self.width)}; {ending}"
        return f'<path{_class(self.kind)} d="{"".join(steps)}" style="{style}"/>'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Area(Mark):
    """The area inside of a closed line."""

    corners: Sequence[Point]
    colour: str
    kind: Kind = ""

    def written(self, frame: ChartFrame) -> str:
        """See `Mark`."""
        return f'<path{_class(self.kind)} d="{frame.outline(self.corners)}" style="fill: {self.colour}"/>'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boxes(Mark):
    """Many unit squares as one path, with a line of the ground's colour around each; `corners` are their lower left ones."""

    corners: Sequence[Point]
    colour: str

    def written(self, frame: ChartFrame) -> str:
        """See `Mark`."""
        path = "".join(frame.outline([(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)]) for x, y in self.corners)
        return f'<path d="{path}" style="fill: {self.colour}; stroke: {PAPER}; stroke-width: 1.5"/>' if path else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dots(Mark):
    """Points of a size in pixels, as the round ends of lines without a length.

    Args:
        points: their places.
        size: in pixels.
        notes: what the page's script says of each, one a line; they are escaped here. None: it says nothing.
        kind: what the points show.
    """

    points: Sequence[Point]
    size: float
    notes: Sequence[str] = ()
    kind: Kind = ""

    def written(self, frame: ChartFrame) -> str:
        """See `Mark`."""
        path = "".join(f"M{x} {y}h0" for x, y in map(frame.place, self.points))
        notes = f' data-notes="{escape(chr(10).join(self.notes))}"' if self.notes else ""
        style = f"stroke: {MARK}; stroke-width: {short(self.size)}"
        return f'<path{_class(self.kind, "dots")} d="{path}"{notes} style="{style}"/>' if path else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text(Mark):
    """A text beside a place.

    Args:
        words: they are escaped here.
        x: in percent of the width.
        y: in pixels from the upper edge of the drawing.
        side: the end of the text that is there.
        level: whether it is above, below or around that place.
        colour: one of those of `svg`.
        move: pixels by which it is moved to the right.
        upright: whether it is read from above.
        shown: at which widths of its place on the page; the style sheet draws the line between them.
        kind: what the text is about.
    """

    stretched: ClassVar[bool] = False

    words: str
    x: float
    y: float
    side: Side
    level: Level
    colour: str
    move: float = 0.0
    upright: bool = False
    shown: Shown = "always"
    kind: Kind = ""

    def written(self, frame: ChartFrame) -> str:
        """See `Mark`."""
        y = self.y if self.upright else self.y + LEVELS[self.level] * LETTERS  # an upright text stands around its place
        moved = f' dx="{short(self.move)}"' if self.move else ""
        named = _class(self.kind, "" if self.shown == "always" else self.shown)
        turned = "; writing-mode: vertical-rl" if self.upright else ""
        style = f"text-anchor: {self.side}; fill: {self.colour}{turned}"
        return f'<text x="{short(self.x)}%" y="{short(y)}"{moved}{named} style="{style}">{escape(self.words)}</text>'


def intervals(
    places: Iterable[float],
    lows: Floats,
    highs: Floats,
    colour: str,
    width: float,
    *,
    lying: bool = False,
    kind: Kind = "",
) -> Lines:
    """Return lines between two numbers at each place, upright or lying.

    Args:
        places: on the other axis.
        lows, highs: the ends.
        colour, width, kind: as for `Lines`.
        lying: whether the numbers run across.
    """
    pairs = zip(places, lows, highs, strict=True)
    ends = [((low, at), (high, at)) if lying else ((at, low), (at, high)) for at, low, high in pairs]
    return Lines(ends=ends, colour=colour, width=width, kind=kind)


def shades(places: Iterable[float], lows: Floats, highs: Floats, bounds: Point, *, lying: bool = False) -> list[Lines]:
    """Return ranges as wide strokes of a quiet colour with a thin dark line in each, cut where the axis ends.

    A range without a low or a high end is left out.
    """
    known = np.isfinite(lows) & np.isfinite(highs)
    at = np.asarray(list(places), np.float64)[known]
    low, high = (np.clip(ends[known], *bounds) for ends in (lows, highs))
    wide = dataclasses.replace(intervals(at, low, high, RANGE, RANGE_WIDTH, lying=lying), blunt=True)
    return [wide, dataclasses.replace(wide, colour=RANGE_LINE, width=1.0)]


def bars_from_zero(
    middles: Iterable[float], values: Iterable[float], half: float, *, lying: bool = False, kind: Kind = ""
) -> list[Area]:
    """Return bars from zero to each value, `half` to each side of their middles."""
    areas = []
    for middle, value in zip(middles, values, strict=True):
        low, high = middle - half, middle + half
        upright = [(low, 0), (high, 0), (high, value), (low, value)]
        corners = [(0, low), (value, low), (value, high), (0, high)] if lying else upright
        areas.append(Area(corners=corners, colour=BAR, kind=kind))
    return areas


def joined_points(
    points: Sequence[Point], gaps: Iterable[bool] | None = None, *, width: float = 1.4, kind: Kind = ""
) -> Lines:
    """Return lines between neighbouring points, but for those after which there is a gap."""
    pairs = list(itertools.pairwise(points))
    near = pairs if gaps is None else [pair for pair, gap in zip(pairs, gaps, strict=True) if not gap]
    return Lines(ends=near, colour=MARK, width=width, kind=kind)


def points_of(across: Iterable[float], up: Iterable[float]) -> list[Point]:
    """Return points from their places across and up."""
    return list(zip(across, up, strict=True))


def bar_ends(values: Floats, half_lengths: Floats, bounds: Point) -> tuple[Floats, Floats]:
    """Return both ends of error bars, cut where the axis ends."""
    return np.clip(values - half_lengths, *bounds), np.clip(values + half_lengths, *bounds)


def _class(*names: str) -> str:
    """Return the classes of an element; nothing where it has none."""
    named = " ".join(name for name in names if name)
    return f' class="{named}"' if named else ""
