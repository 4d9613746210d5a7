"""Shared by the report's plots: a grid with round numbers, texts below an axis, texts cut to a width.

In: axes of `svg`, released numbers, texts. Out: lines and texts in these axes. Holds: bounded, whatever the numbers. Not
covered: what is drawn (`charts`, `spread_charts`, `model_charts`).
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.report.numbers import tick_number
from dp_pipelines.report.svg import GRID, QUIET, WITHOUT_ISOLATES, Axes, Side, SvgDrawing, round_places

Floats = NDArray[np.float64]

LARGEST = 1e100
"""A number beyond this is not drawn: axes are made with floats."""


AT_THE_EDGE = 10
"""Pixels from the left edge of a drawing within which a number would be cut in half."""


def grid_up(axes: Axes) -> None:
    """Thin lines across at round numbers, which stand to the left; the line of zero is darker."""
    for tick in round_places(min(axes.up), max(axes.up)):
        axes.lines([((axes.across[0], tick), (axes.across[1], tick))], QUIET if tick == 0 else GRID, 0.8)
        axes.text(tick_number(tick), (axes.left - 6, axes.y(tick)), "end", "middle", 10, QUIET)


def grid_across(axes: Axes) -> None:
    """Thin lines up at round numbers, which stand below; the line of zero is darker."""
    for tick in round_places(min(axes.across), max(axes.across)):
        axes.lines([((tick, axes.up[0]), (tick, axes.up[1]))], QUIET if tick == 0 else GRID, 0.8)
        below(axes, tick, tick_number(tick), "middle" if axes.x(tick) > AT_THE_EDGE else "start")


def drawable(values: Floats, bars: Floats) -> NDArray[np.bool_]:
    """Which numbers can be drawn with their error bars."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(values) < LARGEST) & (bars >= 0) & (bars < LARGEST))


def bar_ends(values: Floats, bars: Floats, bounds: tuple[float, float]) -> tuple[Floats, Floats]:
    """Both ends of error bars, cut where the axis ends."""
    return np.clip(values - bars, *bounds), np.clip(values + bars, *bounds)


def period_ends(marks: Mapping[float, str]) -> list[tuple[float, str, Side]]:
    """The first and the last point and one between, as places for text on an axis."""
    days = np.array(list(marks))
    if len(days) == 1:
        return [(float(days[0]), marks[float(days[0])], "middle")]
    middle = float(days[np.argmin(np.abs(days - (days[0] + days[-1]) / 2))])
    first, last = float(days[0]), float(days[-1])
    ends: list[tuple[float, str, Side]] = [(first, marks[first], "start"), (last, marks[last], "end")]
    near_middle = 0.42 < (middle - days[0]) / (days[-1] - days[0]) < 0.58
    if near_middle and max(width_of(marks[day]) for day in (ends[0][0], middle, ends[1][0])) <= 11:
        ends.insert(1, (middle, marks[middle], "middle"))
    return ends


def mark_ends(axes: Axes, marks: Mapping[float, str], most: int | None = None) -> None:
    """The texts of `period_ends` below an axis, cut to `most` letters."""
    for place, text, side in period_ends(marks):
        below(axes, place, text if most is None else fitting(text, most), side)


def below(axes: Axes, place: float, text: str, side: Side) -> None:
    """A quiet text below an axis."""
    axes.text(text, (axes.x(place), axes.bottom + 6), side, "below", 10, QUIET)


def axes_over_time(drawing: SvgDrawing, marks: Mapping[float, str], bounds: tuple[float, float]) -> Axes:
    """The axes of one panel over time.

    Args:
        drawing: gets them.
        marks: the days of the axis with the texts of the key, in rising order.
        bounds: the range of the numbers.
    """
    first, last = min(marks), max(marks)
    room = (last - first) * 0.03 or 0.5
    axes = drawing.axes(left=42, right=10, top=10, bottom=24, across=(first - room, last + room), up=bounds)
    grid_up(axes)
    mark_ends(axes, marks)
    return axes


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
