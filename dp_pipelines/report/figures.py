"""Shared by the report's plots: a grid with round numbers, texts below an axis, texts cut to a width.

In: axes of `svg`, released numbers, texts. Out: lines and texts in these axes. Holds: bounded, whatever the numbers. Not
covered: what is drawn (`charts`, `spread_charts`, `model_charts`).
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.report.numbers import axis_numbers
from dp_pipelines.report.svg import (
    GRID,
    LETTER,
    QUIET,
    WITHOUT_ISOLATES,
    Axes,
    Shown,
    Side,
    SvgDrawing,
    round_places,
)
from dp_pipelines.report.time_axis import TimeAxis

Floats = NDArray[np.float64]

NARROW, WIDE = 220.0, 520.0
"""Pixels across that a chart has at least between its margins: on a phone or in a panel, and where the page is wide."""

LARGEST = 1e100
"""A number beyond this is not drawn: axes are made with floats."""


DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

GAP = 14
"""Pixels between two texts of an axis, at least."""

BEFORE: dict[Side, float] = {"start": 0.0, "middle": 0.5, "end": 1.0}
"""Which part of a text lies to the left of its place."""

SHORT_MEASURE = 5
"""Letters of a unit of measure that stands below an axis, such as EUR."""

AT_THE_EDGE = 4
"""Percent from an edge of a drawing within which a number would be cut in half."""


def grid_up(axes: Axes, words: str = "") -> None:
    """Thin lines across at round numbers, which stand to the left, with words above them; the line of zero is darker."""
    ticks = round_places(min(axes.up), max(axes.up))
    texts, word = axis_numbers(ticks)
    for tick, text in zip(ticks, texts, strict=True):
        axes.lines([((axes.across[0], tick), (axes.across[1], tick))], QUIET if tick == 0 else GRID, 0.8)
        axes.text(text, (0, axes.y(tick)), "end", "middle", QUIET, move=-6)
    if words or word:
        heading = f"{words} ({word})" if words and word else words or word
        axes.text(heading, (0, axes.top - 12), "start", "baseline", QUIET, move=6 - axes.drawing.left)


def axes_up(
    drawing: SvgDrawing,
    bounds: tuple[float, float],
    across: tuple[float, float],
    *,
    bottom: float = 26,
    words: str = "",
) -> Axes:
    """Axes with numbers to the left, as wide as these need it, and room for words above them.

    Args:
        drawing: gets them.
        bounds: the range of the numbers.
        across: that of the other axis.
        bottom: the margin below in pixels.
        words: what the numbers are.
    """
    texts, word = axis_numbers(round_places(*bounds))
    left = max(30.0, 12 + LETTER * max(map(width_of, texts), default=0))
    top = 30 if words or word else 10
    axes = drawing.axes(left=left, right=12, top=top, bottom=bottom, across=across, up=bounds)
    grid_up(axes, words)
    return axes


def grid_across(axes: Axes, measure: str = "") -> None:
    """Thin lines up at round numbers, which stand below, the last with the word for millions; the line of zero is darker.

    Args:
        axes: get them.
        measure: the unit of measure; a short one stands with the last number, where there is room for no more.
    """
    ticks = round_places(min(axes.across), max(axes.across), most=4)
    texts, word = axis_numbers(ticks)
    unit = measure if width_of(measure) <= SHORT_MEASURE else ""
    texts[-1] = " ".join(part for part in (texts[-1], word, unit) if part)
    for tick, text in zip(ticks, texts, strict=True):
        axes.lines([((tick, axes.up[0]), (tick, axes.up[1]))], QUIET if tick == 0 else GRID, 0.8)
        at = axes.x(tick)
        side: Side = "start" if at < AT_THE_EDGE else "end" if at > 100 - AT_THE_EDGE else "middle"
        below(axes, tick, text, side)


def finite(value: Any) -> float | None:
    """A number of a published file that can be drawn; None for anything else.

    >>> finite(2), finite("2"), finite(float("nan"))
    (2.0, None, None)
    """
    sound = isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST
    return float(value) if sound else None


def finite_or_nan(values: Iterable[Any]) -> Floats:
    """Such numbers in a row; NaN for anything else."""
    return np.array([np.nan if (number := finite(value)) is None else number for value in values], np.float64)


def drawable(values: Floats, bars: Floats) -> NDArray[np.bool_]:
    """Which numbers can be drawn with their error bars."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(values) < LARGEST) & (bars >= 0) & (bars < LARGEST))


def bar_ends(values: Floats, bars: Floats, bounds: tuple[float, float]) -> tuple[Floats, Floats]:
    """Both ends of error bars, cut where the axis ends."""
    return np.clip(values - bars, *bounds), np.clip(values + bars, *bounds)


def mark_places(axes: Axes, marks: Mapping[float, str], *, narrow: float, wide: float) -> None:
    """Texts below an axis, as many as have room; more where the chart is wide.

    Args:
        axes: get them.
        marks: places with their texts, in rising order.
        narrow, wide: pixels across that the axis has at least, on a narrow page and on a wide one.
    """
    listed = list(marks.items())
    few, many = (set(fitting_texts(axes, marks, room)) for room in (narrow, wide))
    for at in sorted(few | many):
        place, text = listed[at]
        shown: Shown = "always" if at in few & many else "narrow" if at in few else "wide"
        below(axes, place, text, _side(axes.x(place)), shown)


def fitting_texts(axes: Axes, marks: Mapping[float, str], room: float) -> list[int]:
    """Which texts have room below an axis so many pixels wide: every second, every third and so on, if all of these do.

    Where the places are at very different distances, each text that would touch the one before it is left out. Of two texts
    one is the last.
    """
    at = [axes.x(place) for place in marks]
    wide = [width_of(text) * LETTER + GAP for text in marks.values()]
    starts = [x / 100 * room - w * BEFORE[_side(x)] for x, w in zip(at, wide, strict=True)]
    ends = [start + w for start, w in zip(starts, wide, strict=True)]
    for step in range(1, len(at)):
        chosen = list(range(0, len(at), step))
        if len(chosen) > 2 and all(ends[a] <= starts[b] for a, b in itertools.pairwise(chosen)):
            return chosen
    chosen = [0] if at else []
    for place in range(1, len(at)):
        if ends[chosen[-1]] <= starts[place]:
            chosen.append(place)
    return chosen if len(chosen) != 2 else [0, len(at) - 1]


def _side(percent: float) -> Side:
    """Which end of a text stands at its place, so that none sticks out of the page."""
    return "start" if percent < 12 else "end" if percent > 88 else "middle"


def below(axes: Axes, place: float, text: str, side: Side, shown: Shown = "always") -> None:
    """A quiet text below an axis."""
    axes.text(text, (axes.x(place), axes.bottom + 6), side, "below", QUIET, shown=shown)


def axes_over_time(
    drawing: SvgDrawing, time: TimeAxis, bounds: tuple[float, float], *, whole: bool, words: str = ""
) -> Axes:
    """The axes of one panel over time.

    Args:
        drawing: gets them.
        time: the axis.
        bounds: the range of the numbers.
        whole: whether the panel is as wide as the page. Else a year is said once, so that days between have room.
        words: what the numbers are.
    """
    room = (time.last - time.first) * 0.03 or 0.5
    axes = axes_up(drawing, bounds, (time.first - room, time.last + room), words=words)
    mark_places(axes, time.marks if whole else year_once(time.marks), narrow=NARROW, wide=WIDE if whole else NARROW)
    return axes


def year_once(marks: Mapping[float, str]) -> dict[float, str]:
    """Return the texts of days of one year without the year, but for the first; others as they are.

    Args:
        marks: places with their texts, in rising order.

    >>> year_once({0.0: "2026-01-05", 7.0: "2026-01-12"}), year_once({0.0: "2025-12-29", 7.0: "2026-01-05"})
    ({0.0: '2026-01-05', 7.0: '01-12'}, {0.0: '2025-12-29', 7.0: '2026-01-05'})
    """
    texts = list(marks.values())
    if not all(DAY.fullmatch(text) for text in texts) or len({text[:4] for text in texts}) != 1:
        return dict(marks)
    return {place: text if at == 0 else text[5:] for at, (place, text) in enumerate(marks.items())}


def width_of(text: str) -> int:
    """About how many letters wide a text is; signs outside of European alphabets count double."""
    return sum(1 if ord(character) < 0x1100 else 2 for character in text.translate(WITHOUT_ISOLATES))


def fitting(text: str, most: int) -> str:
    """A text cut to a width in letters.

    >>> fitting("abcdef", 4), fitting("abc", 4)
    ('abc…', 'abc')
    """
    most = max(most, 4)
    if width_of(text) <= most:
        return text
    kept = ""
    for character in text:
        if width_of(kept + character) > most - 1:
            break
        kept += character
    return kept + "…"
