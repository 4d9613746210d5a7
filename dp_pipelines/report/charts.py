"""Charts of released numbers: over time, bars, heat maps, quantiles, histograms, curves of a model.

In: released numbers, half the lengths of their error bars, texts that key_text made visible. Out: `Chart`; of small bars in a
table an `<svg>` element. Holds: what is no number is not drawn; noise that takes a point out of a range is cut at its edge. Not
covered: what to plot (`stage_charts`, `list_charts`, `model_section`).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from dp_pipelines.report.axes import (
    LETTER,
    NARROW,
    WIDE,
    AmountAxis,
    ColumnAxis,
    NameAxis,
    PlaceAxis,
    RowAxis,
    TickAxis,
    TimeAxis,
    ValueAxis,
    fitting,
    width_of,
)
from dp_pipelines.report.chart import Chart
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.marks import (
    Area,
    Boxes,
    Dots,
    Kind,
    Lines,
    Mark,
    bar_ends,
    bars_from_zero,
    intervals,
    joined_points,
    points_of,
    shades,
)
from dp_pipelines.report.numbers import LARGEST
from dp_pipelines.report.released_table import Numbers, Truth
from dp_pipelines.report.svg import BAR, HEAT, INK, MARK, PAPER, QUIET, Floats, Point, drawable
from dp_pipelines.report.words.number_format import PLAIN, NumberStyle

HEAT_WIDTH = 520
"""Pixels that a heat map is wide at least, with the names of its rows, where the page is wide."""

CELL_WIDTH = 16
"""Pixels that a cell is wide at least; where the page is narrower, the heat map is scrolled."""

PANEL_HEIGHT, WHOLE_HEIGHT, LOW_HEIGHT, SIDE = 160, 230, 190, 300
"""Pixels: a panel beside others, one as wide as the page, a low one, a square one."""

ROW, RANGE_ROW, CELL, FOOT = 34, 42, 20, 30
"""Pixels: a row of bars, of quantiles, of cells; the axis below, with the margin above."""

SPARK_HEIGHT, SPARK_WIDTH = 18, 120
"""Pixels of small bars in a table."""

BANDS = (HEAT[1], HEAT[2], HEAT[3])
"""From the widest band of quantiles to the narrowest."""

FARTHEST = 2.0
"""An axis is at most so many times as long as it would be without ranges: what goes on is cut."""

MANY_POINTS = 80
"""Of more points of a series each is small."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """Numbers at points in time.

    Args:
        days: the points in rising order.
        values: the numbers.
        bars: half the length of each error bar.
        notes: a text for each point that is pointed at; empty: none.
        truth: estimates of the true numbers and their ranges, where there are any.
        estimate_notes: the texts while estimates are shown.
    """

    days: Floats
    values: Floats
    bars: Floats
    notes: Sequence[str] = ()
    truth: Truth | None = None
    estimate_notes: Sequence[str] = ()

    @property
    def drawn(self) -> "Series":
        """The points that can be drawn."""
        at = np.flatnonzero(drawable(self.values, self.bars))
        return self.taken(at)

    def taken(self, at: NDArray[np.int64]) -> "Series":
        """Return some of the points."""
        notes, estimates = ([texts[int(a)] for a in at] if texts else [] for texts in (self.notes, self.estimate_notes))
        return Series(
            days=self.days[at], values=self.values[at], bars=self.bars[at], notes=notes,
            truth=None if self.truth is None else self.truth.taken(at), estimate_notes=estimates,
        )  # fmt: skip


def limits(values: Floats, bars: Floats) -> Point:
    """Return the range of an axis: zero, all values, and error bars unless they are far longer than most.

    >>> limits(np.array([10.0, 20.0]), np.array([1.0, 2.0]))
    (0.0, 22.0)
    >>> limits(np.array([]), np.array([]))
    (0.0, 1.0)
    """
    keep = drawable(values, bars)
    if not keep.any():
        return 0.0, 1.0
    values, bars = values[keep], bars[keep]
    bars = np.minimum(bars, 3 * np.median(bars))
    low, high = min(0.0, float((values - bars).min())), max(0.0, float((values + bars).max()))
    return (low, high) if high - low > 1e-100 else (low, low + 1.0)


def limits_with_ranges(metric: Numbers) -> Point:
    """Return the range of an axis that has ranges of true numbers too.

    >>> truth = Truth(estimates=np.array([25.0, 30.0]), lows=np.array([9.0, 18.0]), highs=np.array([30.0, 300.0]))
    >>> limits_with_ranges(Numbers(name="n", values=np.array([10.0, 20.0]), stddevs=np.zeros(2), truth=truth))
    (0.0, 40.0)
    """
    low, high = limits(metric.values, metric.bars)
    if metric.truth is None:
        return low, high
    ends = np.concatenate([metric.truth.lows, metric.truth.highs])
    ends = ends[np.abs(ends) < LARGEST]
    width = FARTHEST * (high - low)
    return max(min(low, *ends), high - width), min(max(high, *ends), low + width)


def gaps(days: Floats, time: TimeAxis) -> NDArray[np.bool_]:
    """Return after which points of a series the next one of the axis is missing, so that its line ends there.

    Args:
        days: the points in rising order.
        time: the axis.

    >>> gaps(np.array([0.0, 7.0, 21.0]), TimeAxis(texts={}, marks={}, step=7.0)).tolist()
    [False, True]
    """
    return np.diff(days) > 1.5 * time.step


def time_series(
    series: Series, time: TimeAxis, bounds: Point, title: str, *, whole: bool, style: NumberStyle = PLAIN
) -> Chart:
    """Return one panel: points with error bars, joined where no period between them is missing.

    Args:
        series: the numbers.
        time: the axis; shared by panels that are compared.
        bounds: the range of the numbers, shared likewise.
        title: for those who do not see the plot.
        whole: whether the panel is as wide as the page.
        style: how the numbers are written.
    """
    series = series.drawn
    days, truth, marks = series.days, series.truth, list[Mark]()
    if truth is not None:
        marks += shades(days, truth.lows, truth.highs, bounds)
    kind: Kind = "" if truth is None else "counted"
    size = 5.2 if len(days) <= MANY_POINTS else 2.4
    marks.append(intervals(days, *bar_ends(series.values, series.bars, bounds), BAR, 3.0, kind=kind))
    counted = (points_of(days, series.values), gaps(days, time), series.notes, kind)
    lines = [counted]
    if truth is not None:
        known = np.flatnonzero(np.abs(truth.estimates) < LARGEST)
        notes = series.taken(known).estimate_notes
        lines.append((points_of(days[known], truth.estimates[known]), gaps(days[known], time), notes, "estimate"))
    for points, missing, notes, shown in lines:
        marks.append(joined_points(points, missing, kind=shown))
        marks.append(Dots(points=points, size=size, notes=notes, kind=shown))
    return _over_time(marks, title, time, bounds, style, whole)


def _over_time(marks: list[Mark], title: str, time: TimeAxis, bounds: Point, style: NumberStyle, whole: bool) -> Chart:
    """Return a chart over time, alone or as one of several panels."""
    height, up = WHOLE_HEIGHT if whole else PANEL_HEIGHT, ValueAxis(bounds=bounds, words=style.measure, form=style.form)
    return Chart(title=title, height=height, across=time.below(whole=whole), up=up, marks=marks)


def bar_chart(
    names: Sequence[str],
    values: Floats,
    bars: Floats,
    notes: Sequence[str],
    title: str,
    bounds: Point | None = None,
    truth: Truth | None = None,
    estimate_notes: Sequence[str] = (),
    style: NumberStyle = PLAIN,
) -> Chart:
    """Return horizontal bars with error bars, names above them.

    Args:
        names: of the bars.
        values: their lengths; all are numbers that can be drawn.
        bars: half the length of each error bar.
        notes: the texts at the right ends of the bars' lines.
        title: for those who do not see the plot.
        bounds: the range of the axis, where several charts share one.
        truth: estimates of the true numbers and their ranges, where there are any.
        estimate_notes: the texts at the right ends while estimates are shown.
        style: how the numbers are written.
    """
    bounds = limits(values, bars) if bounds is None else bounds
    middles = np.arange(len(names)) + 0.72
    kind: Kind = "" if truth is None else "counted"
    marks: list[Mark] = [*bars_from_zero(middles, values, 0.17, lying=True, kind=kind)]
    if truth is not None:
        known = np.abs(truth.estimates) < LARGEST
        marks += bars_from_zero(middles[known], truth.estimates[known], 0.17, lying=True, kind="estimate")
        marks += shades(middles, truth.lows, truth.highs, bounds, lying=True)
    marks.append(intervals(middles, *bar_ends(values, bars, bounds), INK, 1.8, lying=True, kind=kind))
    return Chart(
        title=title, height=ROW * len(names) + FOOT, across=amount_axis(bounds, style),
        up=RowAxis(names=names, notes=notes, estimates=estimate_notes, level=0.29), marks=marks,
    )  # fmt: skip


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    steps: NDArray[np.int64],
    unsure: NDArray[np.bool_],
    title: str,
    *,
    some: bool = False,
) -> Chart:
    """Return a grid of shades.

    Args:
        rows: names of the rows, from above.
        columns: names of the columns, from the left.
        steps: for each row and column a shade from 0 to `HEAT_STEPS - 1`, or -1 for none.
        unsure: the cells that are hatched.
        title: for those who do not see the plot.
        some: whether columns may go without a name where there is no room for it, as those of times may.
    """
    up = NameAxis(names=[fitting(name, 22) for name in rows])
    upright = not some and sum(width_of(fitting(name, 16)) + 2 for name in columns) * LETTER > HEAT_WIDTH - up.margin
    shown = [fitting(name, 14 if upright else 16) for name in columns]
    needed = 0 if some or upright else LETTER * sum(width_of(name) + 2 for name in shown)
    least = max(CELL_WIDTH * len(columns), needed)
    middles = {at + 0.5: name for at, name in enumerate(shown)}
    room = {"narrow": max(least, NARROW / 2), "wide": max(least, HEAT_WIDTH * 2 / 3)}
    across = (
        PlaceAxis(bounds=(0, len(columns)), texts=middles, **room) if some else ColumnAxis(names=shown, upright=upright)
    )
    marks: list[Mark] = [
        Boxes(corners=[(x, y) for y, x in zip(*np.nonzero(steps == step), strict=True)], colour=colour)
        for step, colour in enumerate(HEAT)
    ]
    for colour, shades_below in ((QUIET, (steps >= 0) & (steps < 4)), (PAPER, steps >= 4)):
        hatched = zip(*np.nonzero(unsure & shades_below), strict=True)
        ends = [((x, y + 0.5), (x + 1, y + 0.5)) for y, x in hatched]
        marks.append(Lines(ends=ends, colour=colour, width=CELL - 4, dashes="1 4"))
    height = CELL * len(rows) + 6 + across.margin
    return Chart(title=title, height=height, across=across, up=up, marks=marks, least=least)


def amount_axis(bounds: Point, style: NumberStyle) -> AmountAxis:
    """Return an axis below for numbers of a style."""
    return AmountAxis(bounds=bounds, measure=style.measure, form=style.form)


def pairs(places: int) -> list[tuple[int, int]]:
    """Return the bands of a list of quantiles: its first and last, and so on inwards; at most three.

    >>> pairs(5), pairs(1), pairs(9)
    ([(0, 4), (1, 3)], [], [(0, 8), (2, 6), (3, 5)])
    """
    every = [(at, places - 1 - at) for at in range(places // 2)]
    return every if len(every) <= len(BANDS) else [every[0], every[len(every) // 2], every[-1]]


def drawn_places(places: int) -> list[int]:
    """Return the quantiles that are drawn with their error bars: the edges of the bands and the middle one.

    >>> drawn_places(5), drawn_places(2), drawn_places(1)
    ([0, 1, 2, 3, 4], [0, 1], [0])
    """
    middle = {places // 2} if places % 2 else set()
    return sorted({at for pair in pairs(places) for at in pair} | middle)


def range_of(values: Floats, bars: Floats, within: Point | None = None) -> Point:
    """Return the range of an axis for quantiles: all of them, and the error bars of those that are drawn.

    Args:
        values, bars: rows by quantiles.
        within: the declared range of the values, beyond which the axis does not go; None: there is none.

    >>> range_of(np.array([[12.0, 90.0]]), np.array([[5.0, 30.0]]), (10.0, 100.0))
    (10.0, 100.0)
    """
    drawn = drawn_places(values.shape[1])
    every = limits(values.ravel(), np.zeros(values.size))
    with_bars = limits(values[:, drawn].ravel(), bars[:, drawn].ravel())
    low, high = min(every[0], with_bars[0]), max(every[1], with_bars[1])
    return inside((low, high), within)


def inside(bounds: Point, within: Point | None, *, with_zero: bool = False) -> Point:
    """Return the part of an axis that is within the declared range of its values; all of it where there is no range.

    Args:
        bounds: of the axis.
        within: the range.
        with_zero: whether the axis has zero in any case, as that of bars.

    >>> inside((-3.0, 120.0), (10.0, 100.0)), inside((-3.0, 120.0), (10.0, 100.0), with_zero=True), inside((0.0, 1.0), (5.0, 9.0))
    ((10.0, 100.0), (0.0, 100.0), (5.0, 9.0))
    """
    if within is None:
        return bounds
    least, most = (min(0.0, within[0]), max(0.0, within[1])) if with_zero else within
    low, high = max(bounds[0], least), min(bounds[1], most)
    return (low, high) if low < high else (least, most)


def quantile_series(
    days: Floats,
    values: Floats,
    bars: Floats,
    time: TimeAxis,
    bounds: Point,
    title: str,
    *,
    whole: bool,
    style: NumberStyle = PLAIN,
) -> Chart:
    """Return one panel: bands between quantiles over time, their edges and the middle one with error bars, it as a line.

    Args:
        days: the points in rising order.
        values, bars: points by quantiles.
        time: the axis; shared by panels that are compared.
        bounds: the range of the numbers, shared likewise.
        title: for those who do not see the plot.
        whole: whether the panel is as wide as the page.
        style: how the numbers are written.
    """
    marks: list[Mark] = []
    for (low, high), colour in zip(pairs(values.shape[1]), BANDS, strict=False):
        ends = values[:, [low, high]]
        known = np.flatnonzero(np.all(np.abs(ends) < LARGEST, axis=1))
        for run in np.split(known, np.flatnonzero(gaps(days[known], time)) + 1):
            edges = [points_of(days[run], ends[run, side]) for side in (0, 1)]
            if len(run) == 1:
                marks.append(Lines(ends=[(edges[0][0], edges[1][0])], colour=colour, width=3.0))
            elif len(run):
                marks.append(Area(corners=[*edges[0], *edges[1][::-1]], colour=colour))
    for place in drawn_places(values.shape[1]):
        at = np.flatnonzero(drawable(values[:, place], bars[:, place]))
        points, few = points_of(days[at], values[at, place]), len(at) <= MANY_POINTS
        marks.append(intervals(days[at], *bar_ends(values[at, place], bars[at, place], bounds), MARK, 1.0))
        middle = 2 * place + 1 == values.shape[1]
        if middle:
            marks.append(joined_points(points, gaps(days[at], time)))
        marks.append(Dots(points=points, size=(4.2 if few else 2.4) if middle else (2.4 if few else 1.6)))
    return _over_time(marks, title, time, bounds, style, whole)


def quantile_ranges(
    names: Sequence[str],
    values: Floats,
    bars: Floats,
    notes: Sequence[str],
    title: str,
    bounds: Point,
    style: NumberStyle = PLAIN,
) -> Chart:
    """Return ranges between quantiles as bars below each other, names above them, each edge and the middle with its error bar.

    The error bars of one row lie at different heights, from the lowest quantile to the highest, so that each can be seen.

    Args:
        names: of the rows.
        values, bars: rows by quantiles.
        notes: the texts at the right ends of the rows.
        title: for those who do not see the plot.
        bounds: the range of the numbers.
        style: how the numbers are written.
    """
    marks: list[Mark] = []
    for at, row in enumerate(values):
        for (first, last), colour in zip(pairs(values.shape[1]), BANDS, strict=False):
            low, high = row[first], row[last]
            if abs(low) < LARGEST and abs(high) < LARGEST:
                corners = [(low, at + 0.5), (high, at + 0.5), (high, at + 0.94), (low, at + 0.94)]
                marks.append(Area(corners=corners, colour=colour))
    places = drawn_places(values.shape[1])
    for place, down in zip(places, np.linspace(0.57, 0.87, len(places)) if len(places) > 1 else [0.72], strict=True):
        rows = np.flatnonzero(drawable(values[:, place], bars[:, place]))
        ends = bar_ends(values[rows, place], bars[rows, place], bounds)
        marks.append(intervals(rows + down, *ends, MARK, 1.4, lying=True))
        size = 5 if 2 * place + 1 == values.shape[1] else 3.2
        marks.append(Dots(points=points_of(values[rows, place], rows + down), size=size))
    return Chart(
        title=title, height=RANGE_ROW * len(names) + FOOT, across=amount_axis(bounds, style),
        up=RowAxis(names=names, notes=notes, level=0.25), marks=marks,
    )  # fmt: skip


def histogram(
    values: Floats, bars: Floats, edges: Sequence[str], title: str, style: NumberStyle = PLAIN, *, whole: bool
) -> Chart:
    """Return one panel: a bar for each bin, all of one width, with its error bar.

    Args:
        values, bars: of the bins.
        edges: the texts of the places between the bins, one more than there are bins.
        title: for those who do not see the plot.
        style: how the numbers are written.
        whole: whether the panel is as wide as the page.
    """
    at = np.flatnonzero(drawable(values, bars))
    bounds, half = limits(values, bars), 0.44 if len(values) <= 40 else 0.5
    texts = {float(place): fitting(text, 14) for place, text in enumerate(edges)}
    ends = bar_ends(values[at], bars[at], bounds)
    return Chart(
        title=title, height=WHOLE_HEIGHT if whole else PANEL_HEIGHT,
        across=PlaceAxis(bounds=(0, len(values)), texts=texts, wide=WIDE if whole else NARROW),
        up=ValueAxis(bounds=bounds, words=style.measure, form=style.form),
        marks=[*bars_from_zero(at + 0.5, values[at], half), intervals(at + 0.5, *ends, INK, 1.4)],
    )  # fmt: skip


def spark(values: Floats, title: str) -> Markup:
    """Return bars as small as a word, from a line of zero; what is no number leaves a gap.

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


def ranks(false: Floats, true: Floats, bars: Floats, title: str) -> Chart:
    """Return the part of the true that is found over the part of the false that is taken for true, with a band of noise.

    Args:
        false, true: both parts, in the order of falling thresholds.
        bars: half the length of the error bars of `true`.
        title: for those who do not see the plot.
    """
    keep = drawable(false, np.zeros(len(false))) & drawable(true, bars)
    across = np.concatenate([[0.0], np.maximum.accumulate(np.clip(false[keep], 0, 1)), [1.0]])
    up = np.concatenate([[0.0], np.clip(true[keep], 0, 1), [1.0]])
    marks = _curve(across, up, np.concatenate([[0.0], bars[keep], [0.0]]), (0.0, 1.0), ((0.0, 0.0), (1.0, 1.0)))
    return _square((0.0, 1.0), (0.0, 1.0), ("false positive rate", "true positive rate"), title, marks)


def curve(
    across: Floats, up: Floats, bars: Floats, level: float, bounds: Point, words: tuple[str, str], title: str
) -> Chart:
    """Return a number of each threshold over a part from 0 to 1, with a band of noise, and a line for what chance gives.

    Args:
        across, up: both numbers, in the order of falling thresholds.
        bars: half the length of the error bars of `up`.
        level: the number that chance gives.
        bounds: of the axis up.
        words: names of the axes, across and up.
        title: for those who do not see the plot.
    """
    keep = drawable(across, np.zeros(len(across))) & drawable(up, bars)
    order = np.flatnonzero(keep)[np.argsort(np.clip(across[keep], 0, 1), kind="stable")]
    across, up, bars = np.clip(across[order], 0, 1), np.clip(up[order], *bounds), bars[order]
    marks = _curve(across, up, bars, bounds, ((0, level), (1, level)))
    if len(across) == 1:
        marks.append(Dots(points=points_of(across, up), size=5))
    return _square((0.0, 1.0), bounds, words, title, marks)


def calibration(
    said: Floats, seen: Floats, noise: Floats, both: Floats, bounds: Point, words: tuple[str, str], title: str
) -> Chart:
    """Return what was so over what was predicted; on the diagonal both are the same.

    Args:
        said, seen: the points.
        noise: half the length of the error bars of noise.
        both: likewise, with what other held-out units would change.
        bounds: the range of both axes.
        words: names of the axes, across and up.
        title: for those who do not see the plot.
    """
    keep = drawable(seen, noise) & drawable(said, both)
    said, seen, noise, both = said[keep], seen[keep], noise[keep], both[keep]
    marks: list[Mark] = [Lines(ends=[((bounds[0], bounds[0]), (bounds[1], bounds[1]))], colour=QUIET, width=0.8)]
    for bars, colour, wide in ((both, BAR, 4.0), (noise, MARK, 1.4)):
        marks.append(intervals(said, *bar_ends(seen, bars, bounds), colour, wide))
    inside = (seen >= bounds[0]) & (seen <= bounds[1])
    marks.append(Dots(points=points_of(said[inside], seen[inside]), size=5))
    return _square(bounds, bounds, words, title, marks)


def learning(numbers: Floats, title: str) -> Chart:
    """Return a public number of each step as a line.

    Args:
        numbers: of each step, from the first.
        title: for those who do not see the plot.
    """
    steps = np.arange(1, len(numbers) + 1, dtype=np.float64)
    keep = drawable(numbers, np.zeros(len(numbers)))
    points = points_of(steps[keep], numbers[keep])
    last = float(points[-1][0]) if points else 1.0
    return Chart(
        title=title, height=LOW_HEIGHT,
        across=TickAxis(bounds=(0, max(last, 1.0)), places=[0.0, last] if last < 4 else [0.0, round(last / 2), last]),
        up=ValueAxis(bounds=limits(numbers[keep], np.zeros(len(points)))),
        marks=[joined_points(points), *([Dots(points=points, size=5)] if len(points) == 1 else [])],
    )  # fmt: skip


def joined_series(
    points: Sequence[Point], bounds: Point, across: PlaceAxis, title: str, budget: float | None = None
) -> Chart:
    """Return exact numbers as points that are joined, below a broken line where they have a limit.

    Args:
        points: from the left.
        bounds: of the axis up.
        across: the axis below.
        title: for those who do not see the plot.
        budget: the limit; None: there is none.
    """
    ends = () if budget is None else [((across.ends[0], budget), (across.ends[1], budget))]
    limit = Lines(ends=ends, colour=QUIET, width=1.4, dashes="5 4")
    marks = [limit, joined_points(points), Dots(points=points, size=5)]
    return Chart(title=title, height=LOW_HEIGHT, across=across, up=ValueAxis(bounds=bounds), marks=marks)


def slopes(lows: Floats, highs: Floats, levels: Floats, bounds: Point, texts: Sequence[str], title: str) -> Chart:
    """Return a line in each of some bins, all of one width, with a band of noise.

    Args:
        lows, highs: the band at both sides of each bin.
        levels: the line likewise.
        bounds: of the axis up.
        texts: of the places between the bins.
        title: for those who do not see the plot.
    """
    marks: list[Mark] = []
    for at, (low, high) in enumerate(zip(lows.T, highs.T, strict=True)):
        marks.append(Area(corners=[(at, low[0]), (at + 1, low[1]), (at + 1, high[1]), (at, high[0])], colour=BAR))
    level = np.clip(levels, *bounds)
    marks.append(Lines(ends=[((at, a), (at + 1, b)) for at, (a, b) in enumerate(level.T)], colour=MARK, width=1.6))
    across = PlaceAxis(
        bounds=(0.0, float(levels.shape[1]) or 1.0), texts={float(at): text for at, text in enumerate(texts)}
    )
    return Chart(title=title, height=LOW_HEIGHT, across=across, up=ValueAxis(bounds=bounds), marks=marks)


def _curve(across: Floats, up: Floats, bars: Floats, bounds: Point, chance: tuple[Point, Point]) -> list[Mark]:
    """Return a line with a band of noise, and a thin line for what chance gives."""
    low, high = bar_ends(up, bars, bounds)
    band = [Area(corners=[*points_of(across, low), *points_of(across, high)[::-1]], colour=BAR)] if len(across) else []
    line = joined_points(points_of(across, up), width=1.6)
    return [*band, Lines(ends=[chance], colour=QUIET, width=0.8), line]


def _square(across: Point, up: Point, words: tuple[str, str], title: str, marks: Sequence[Mark]) -> Chart:
    """Return a chart with numbers on both sides, and with words for them."""
    places = [across[0], (across[0] + across[1]) / 2, across[1]]
    below = TickAxis(bounds=across, places=places, words=words[0])
    return Chart(title=title, height=SIDE, across=below, up=ValueAxis(bounds=up, words=words[1]), marks=marks)
