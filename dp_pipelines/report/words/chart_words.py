"""What a chart shows, in a sentence: the largest and the smallest number, and whether a series rises.

In: released numbers with half the lengths of their error bars. Out: sentences. Holds: what the noise may have made is not told as
a fact: numbers that are too close to tell apart are counted, and a trend is one beyond the noise. Not covered: the limits.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.report.numbers import ERROR_BAR, rounded_parts, with_error_bar
from dp_pipelines.report.words.number_format import PLAIN, NumberStyle
from dp_pipelines.report.words.unit_name import plural

Floats = NDArray[np.float64]

LARGE = 1e5
"""From here on a number is rounded to two digits of its error bar."""

MOST_RIVALS = 5
"""Other numbers that may be the largest too and are named; of more, only their number is told."""

FEWEST = 3
"""Points of a series from which on it may have a trend."""


def shown_number(value: float, bar: float, style: NumberStyle = PLAIN) -> str:
    """Return a number with its error bar, or alone where it has none: then it was chosen among candidates.

    From `LARGE` on it has two digits of its bar; the table has all.

    >>> shown_number(1234.5, 98.0, NumberStyle(whole=True)), shown_number(2.5, 0.0), shown_number(6771158.0, 3e5)
    ('1,234 ± 98', '2.5', '6,770,000 ± 300,000')
    >>> from dp_pipelines.report.words.number_format import NumberFormat
    >>> shown_number(0.1234, 0.0101, NumberStyle(form=NumberFormat(decimals=1, percent=True)))
    '12.3% ± 1.1%'
    """
    stddev, whole, form = bar / ERROR_BAR if bar > 0 else math.nan, style.whole, style.form
    if max(abs(value), bar) >= LARGE and bar > 0 and (parts := rounded_parts(value, stddev, whole=whole, form=form)):
        return f"{parts[0]} ± {parts[1]}"
    return with_error_bar(value, stddev, grouped=True, whole=whole, form=form)


def highest(
    names: Sequence[str],
    values: Floats,
    bars: Floats,
    *,
    style: NumberStyle = PLAIN,
    what: str = "row",
    scope: str = "",
    counted: bool = False,
    apart: Floats | None = None,
) -> str:
    """Return a sentence on the largest number, and on which others may be as large.

    It is empty for fewer than two numbers, and for numbers without error bars.

    Args:
        names: of what each number is of.
        values, bars: the numbers and half the lengths of their error bars.
        style: how the numbers are written.
        what: what each number is of.
        scope: over what each number is summed, where it is.
        counted: whether limits may have cut something off, so that the sentence is about counted numbers alone.
        apart: error bars by which two numbers are compared, where those of the numbers themselves are not independent.

    >>> names, bars = ["Aarhus", "Bergen", "Turku"], np.array([3.0, 3.0, 3.0])
    >>> highest(names, np.array([90.0, 88.0, 20.0]), bars, style=NumberStyle(whole=True), what="city")
    'Highest city: Aarhus with 90 ± 3; 1 other city may equal or beat it (Bergen).'
    >>> highest(names, np.array([90.0, 50.0, 20.0]), bars, what="city", scope="summed over the weeks", counted=True)
    'Highest city, summed over the weeks, as counted: Aarhus with 90.0 ± 3.0.'

    Two small groups may be clearly apart from each other, but not from a large noisy one.

    >>> highest(names, np.array([99.0, 90.0, 50.0]), np.array([60.0, 3.0, 3.0]), style=NumberStyle(whole=True), what="city")
    'No city is clearly the highest: each of the 2 others may equal or beat Aarhus with 99 ± 60.'
    """
    known = np.flatnonzero(np.isfinite(values) & np.isfinite(bars))
    if len(known) < 2 or not (bars[known] > 0).all():
        return ""
    top = known[np.argmax(values[known])]
    rest = known[known != top]
    compared = bars if apart is None else apart
    rivals = rest[values[top] - values[rest] <= np.hypot(compared[top], compared[rest])]
    suffix = f"{f', {scope}' if scope else ''}{', as counted' if counted else ''}"
    number = shown_number(float(values[top]), float(bars[top]), style)
    largest = f"{names[top]} with {f'{number} {style.measure}'.rstrip()}"
    if len(rivals) == len(rest):
        others = "the other one" if len(rest) == 1 else f"each of the {len(rest):,} others"
        return f"No {what} is clearly the highest{suffix}: {others} may equal or beat {largest}."
    return f"Highest {what}{suffix}: {largest}{_rivals([names[at] for at in rivals[: MOST_RIVALS + 1]], len(rivals), what)}."


def _rivals(names: Sequence[str], count: int, what: str) -> str:
    """Say which other numbers may be as large as the largest.

    Args:
        names: of the first of them.
        count: of all.
        what: what each of them is of.

    >>> _rivals(["a", "b"], 2, "week"), _rivals(list("abcdef"), 7, "combination of city and week")
    ('; 2 other weeks may equal or beat it (a, b)', '; 7 other combinations of city and week may equal or beat it')
    """
    if not count:
        return ""
    noun = what if count == 1 else plural(what)
    listed = ("; " if any("," in name for name in names) else ", ").join(names)
    return f"; {count:,} other {noun} may equal or beat it{f' ({listed})' if count <= MOST_RIVALS else ''}"


def series_words(
    texts: Sequence[str],
    days: Floats,
    values: Floats,
    bars: Floats,
    *,
    style: NumberStyle = PLAIN,
    apart: Floats | None = None,
) -> str:
    """Return what a series shows: its first and its last number, its range and its trend.

    Args:
        texts: the points of time as texts.
        days: the same as numbers.
        values, bars: the numbers and half the lengths of their error bars.
        style: how the numbers are written.
        apart: as for `highest`.

    >>> ones = np.ones(3)
    >>> series_words(["W1", "W2", "W3"], np.arange(3.0), np.array([10.0, 20.0, 30.0]), ones, style=NumberStyle(whole=True))
    '10 ± 1 at W1, 30 ± 1 at W3, 3 points; lowest 10 ± 1 at W1, highest 30 ± 1 at W3; rises'
    """
    known = np.flatnonzero(np.isfinite(values) & np.isfinite(bars))
    if not len(known):
        return "no points"

    def told(at: int) -> str:
        return f"{shown_number(float(values[at]), float(bars[at]), style)} at {texts[at]}"

    ends = f"{told(known[0])}, {told(known[-1])}, {len(known)} points"
    low, high = known[np.argmin(values[known])], known[np.argmax(values[known])]
    rises = trend(days[known], values[known], (bars if apart is None else apart)[known])
    return f"{ends}; lowest {told(low)}, highest {told(high)}; {rises}"


def trend(days: Floats, values: Floats, bars: Floats) -> str:
    """Return whether a series rises or falls by more than its noise: by the slope of a weighted line and its error bar.

    >>> [trend(np.arange(4.0), np.array(values), np.ones(4)) for values in ([1.0, 5.0, 6.0, 9.0], [5.0, 5.1, 4.9, 5.0])]
    ['rises', 'no trend beyond the noise']
    """
    if len(values) < FEWEST:
        return "too few points for a trend"
    if not (bars > 0).all():
        return "without error bars"
    weights = 1 / (bars / bars.max()) ** 2
    away = days - np.average(days, weights=weights)
    spread = float((weights * away**2).sum())
    if not spread > 0:
        return "too few points for a trend"
    slope = float((weights * away * values).sum()) / spread
    if abs(slope) <= float(bars.max()) / np.sqrt(spread):
        return "no trend beyond the noise"
    return "rises" if slope > 0 else "falls"
