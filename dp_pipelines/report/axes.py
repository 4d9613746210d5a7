"""The axes of a chart as data, each of which becomes lines and texts in a frame: numbers, times, names of rows and of columns.

In: ranges of numbers, texts of released keys. Out: marks. Holds: bounded, whatever the numbers; texts below an axis have room;
each text of a time is that of a released key, as short as the keys allow. Not covered: what is drawn between the axes (`charts`).
"""

import abc
import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from dp_pipelines.report.marks import Kind, Lines, Mark, Shown, Side, Text
from dp_pipelines.report.numbers import axis_numbers, tick_number
from dp_pipelines.report.released_table import GRAINS, Codes, Key
from dp_pipelines.report.svg import GRID, INK, QUIET, WITHOUT_ISOLATES, ChartFrame, Point
from dp_pipelines.report.words.number_format import NumberFormat

LETTER = 6.4
"""About how many pixels wide a letter is."""

NARROW, WIDE = 220.0, 520.0
"""Pixels across that a chart has at least between its margins: on a phone or in a panel, and where the page is wide."""

NAMES = 300.0
"""Pixels across that a row of bars has at least."""

GAP = 14
"""Pixels between two texts of an axis, at least."""

SHORT_MEASURE = 5
"""Letters of a unit of measure that stands below an axis, such as EUR."""

AT_THE_EDGE = 4
"""Percent from an edge of a drawing within which a number would be cut in half."""

MANY, FEW = 24, 3
"""Of more times only those that begin a longer period get a text, such as days among hours, unless these are fewer than `FEW`."""

STEEP = 20.0
"""From so many times the least ratio on, only powers of ten stand below an axis of ratios."""

BEFORE: dict[Side, float] = {"start": 0.0, "middle": 0.5, "end": 1.0}
"""Which part of a text lies to the left of its place."""

DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis(abc.ABC):
    """An axis: the numbers at its ends, and the margin in pixels that its texts need."""

    right: ClassVar[float] = 12.0
    """The margin to the right, of an axis up."""

    @property
    @abc.abstractmethod
    def ends(self) -> Point:
        """The numbers at its ends: left and right, or low and high."""

    @property
    def margin(self) -> float:
        """The margin to the left, of an axis up, or below, of one across."""
        return 26.0

    @property
    def top(self) -> float:
        """The margin above, of an axis up."""
        return 4.0

    @abc.abstractmethod
    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """Yield its lines and texts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedAxis(Axis):
    """An axis between two numbers that are given as its `bounds`."""

    bounds: Point

    @property
    def ends(self) -> Point:
        """See `Axis`."""
        return self.bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueAxis(BoundedAxis):
    """Numbers to the left, from low to high: thin lines across at round ones, with `words` above them."""

    words: str = ""
    form: NumberFormat | None = None

    @property
    def texts(self) -> tuple[list[str], str]:
        """The round numbers as texts, and the word for millions."""
        return axis_numbers(round_places(*self.ends), self.form)

    @property
    def heading(self) -> str:
        """The words above the numbers, such as “billion EUR”."""
        return " ".join(part for part in (self.texts[1], self.words) if part)

    @property
    def margin(self) -> float:
        """See `Axis`."""
        return max(30.0, 12 + LETTER * max(map(width_of, self.texts[0]), default=0))

    @property
    def top(self) -> float:
        """See `Axis`."""
        return 30.0 if self.heading else 10.0

    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """See `Axis`. The line of zero is darker."""
        for tick, text in zip(round_places(*self.ends), self.texts[0], strict=True):
            yield Lines(ends=[((frame.across[0], tick), (frame.across[1], tick))], colour=_grid(tick), width=0.8)
            yield Text(words=text, x=0, y=frame.y(tick), side="end", level="middle", colour=QUIET, move=-6)
        if self.heading:
            move = 6 - frame.left
            yield Text(
                words=self.heading, x=0, y=frame.top - 12, side="start", level="baseline", colour=QUIET, move=move
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AmountAxis(BoundedAxis):
    """Numbers below, from left to right: thin lines up at round ones, the last with the word for millions.

    A short unit of measure follows the last number, where there is room for no more.
    """

    measure: str = ""
    form: NumberFormat | None = None

    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """See `Axis`. The line of zero is darker."""
        ticks = round_places(*self.ends, most=4)
        texts, word = axis_numbers(ticks, self.form)
        unit = self.measure if width_of(self.measure) <= SHORT_MEASURE else ""
        texts[-1] = " ".join(part for part in (texts[-1], word, unit) if part)
        for tick, text in zip(ticks, texts, strict=True):
            yield Lines(ends=[((tick, frame.up[0]), (tick, frame.up[1]))], colour=_grid(tick), width=0.8)
            yield below(frame, tick, text, _edge_side(frame.x(tick)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceAxis(BoundedAxis):
    """Texts below some places, as many as have room; more where the chart is wide.

    Args:
        texts: places with their texts, in rising order.
        narrow, wide: pixels across that the axis has at least, on a narrow page and on a wide one.
    """

    texts: Mapping[float, str]
    narrow: float = NARROW
    wide: float = WIDE

    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """See `Axis`."""
        listed = list(self.texts.items())
        few, many = (set(fitting_texts(frame, self.texts, room)) for room in (self.narrow, self.wide))
        for at in sorted(few | many):
            place, text = listed[at]
            shown: Shown = "always" if at in few & many else "narrow" if at in few else "wide"
            yield below(frame, place, text, _side(frame.x(place)), shown)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TickAxis(BoundedAxis):
    """Numbers below some places, the first and the last of them inside of the axis, and words for them."""

    places: Sequence[float]
    words: str = ""

    @property
    def margin(self) -> float:
        """See `Axis`."""
        return 40.0 if self.words else 26.0

    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """See `Axis`."""
        for place in self.places:
            side: Side = "start" if place == self.places[0] else "end" if place == self.places[-1] else "middle"
            yield below(frame, place, tick_number(place), side)
        if self.words:
            yield Text(words=self.words, x=100, y=frame.foot + 22, side="end", level="below", colour=QUIET)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatioAxis(BoundedAxis):
    """Ratios below, between two logarithms: thin lines up at round ones, a darker one at 1."""

    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """See `Axis`."""
        for ratio in ratio_places(*map(math.exp, self.ends)):
            at = math.log(ratio)
            yield Lines(ends=[((at, frame.up[1]), (at, frame.up[0]))], colour=GRID, width=1)
            yield below(frame, at, tick_number(ratio), _edge_side(frame.x(at)))
        yield Lines(ends=[((0.0, frame.up[1]), (0.0, frame.up[0]))], colour=QUIET, width=1.2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowAxis(Axis):
    """Rows from above, each with a name at its left end, cut to the width of the chart, and a note at its right end.

    Args:
        names: of the rows.
        notes: of the rows.
        estimates: the notes while estimates are shown, where there are any.
        level: the height of the names in a row, from 0 at its top to 1.
    """

    right: ClassVar[float] = 14.0

    names: Sequence[str]
    notes: Sequence[str]
    estimates: Sequence[str] = ()
    level: float

    @property
    def ends(self) -> Point:
        """See `Axis`."""
        return len(self.names), 0

    @property
    def margin(self) -> float:
        """See `Axis`."""
        return 4.0

    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """See `Axis`."""
        ways: list[tuple[Shown, float]] = [("narrow", NAMES), ("wide", WIDE)]
        for at, (name, note) in enumerate(zip(self.names, self.notes, strict=True)):
            y, estimate = frame.y(at + self.level), self.estimates[at] if self.estimates else ""
            longest = max(width_of(note), width_of(estimate))
            for shown, width in ways:  # both even if they are the same: no name changes how many elements a page has
                words = fitting(name, int(width / LETTER) - longest - 2)
                yield Text(words=words, x=0, y=y, side="start", level="middle", colour=INK, move=5, shown=shown)
            counted: Kind = "counted" if estimate else ""
            yield Text(words=note, x=100, y=y, side="end", level="middle", colour=QUIET, kind=counted)
            if estimate:
                yield Text(words=estimate, x=100, y=y, side="end", level="middle", colour=QUIET, kind="estimate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NameAxis(Axis):
    """Rows from above, each with a name to its left."""

    right: ClassVar[float] = 6.0

    names: Sequence[str]

    @property
    def ends(self) -> Point:
        """See `Axis`."""
        return len(self.names), 0

    @property
    def margin(self) -> float:
        """See `Axis`."""
        return 12 + LETTER * max(map(width_of, self.names), default=1)

    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """See `Axis`."""
        for at, name in enumerate(self.names):
            yield Text(words=name, x=0, y=frame.y(at + 0.5), side="end", level="middle", colour=INK, move=-6)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnAxis(Axis):
    """Columns from the left, each with its name below.

    Args:
        names: of the columns.
        upright: whether names are read from above.
    """

    names: Sequence[str]
    upright: bool

    @property
    def ends(self) -> Point:
        """See `Axis`."""
        return 0, len(self.names)

    @property
    def margin(self) -> float:
        """See `Axis`."""
        return 12 + (LETTER * max(map(width_of, self.names), default=1) if self.upright else 14)

    def marks(self, frame: ChartFrame) -> Iterator[Mark]:
        """See `Axis`."""
        for at, name in enumerate(self.names):
            text = below(frame, at + 0.5, name, "start" if self.upright else "middle")
            yield dataclasses.replace(text, level="middle", upright=True) if self.upright else text


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeAxis:
    """Points of time below charts that are compared, in days since 1970.

    Args:
        texts: every point with its text, in rising order.
        marks: those of them that may have a text below the axis.
        step: the usual distance between two neighbouring points; wider gaps stay open.
    """

    texts: Mapping[float, str]
    marks: Mapping[float, str]
    step: float

    def below(self, *, whole: bool) -> PlaceAxis:
        """Return the axis of one chart.

        Args:
            whole: whether the chart is as wide as the page. Else a year is said once, so that days between have room.
        """
        first, last = min(self.texts), max(self.texts)
        room = (last - first) * 0.03 or 0.5
        texts = self.marks if whole else year_once(self.marks)
        return PlaceAxis(bounds=(first - room, last + room), texts=texts, wide=WIDE if whole else NARROW)


def axis_of_time(time: Key, rows: Codes) -> TimeAxis:
    """Return the axis below some rows.

    Args:
        time: a column of times.
        rows: what is plotted, at one point of time at least.
    """
    assert time.days is not None
    codes = np.unique(time.codes[rows])
    codes = codes[np.argsort(time.days[codes], kind="stable")]
    texts = {float(time.days[code]): time.short(int(code)) for code in codes}
    distinct = np.unique(time.days[np.isfinite(time.days)])
    return TimeAxis(texts=texts, marks=_marked(texts, time), step=float(np.median(np.diff(distinct))))


def _marked(texts: Mapping[float, str], time: Key) -> Mapping[float, str]:
    """Return of many days those that begin a month, of many hours those that begin a day; all where there are too few."""
    if len(texts) <= MANY or time.grain not in ("day", "minute"):
        return texts
    ending, length = ("-01", GRAINS["month"]) if time.grain == "day" else (" 00:00", GRAINS["day"])
    longer = {day: text[:length] for day, text in texts.items() if text.endswith(ending)}
    return longer if len(longer) >= FEW else texts


def round_places(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers from `low` to `high`, with at most so many steps between them; `low` alone if no float lies between.

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


def ratio_places(low: float, high: float) -> list[float]:
    """Return round ratios for a logarithmic axis, on both sides of 1.

    >>> ratio_places(0.96, 1.03), ratio_places(0.4, 2.6), ratio_places(0.001, 900.0)
    ([0.96, 0.98, 1.0, 1.02], [0.5, 1.0, 1.5, 2.0, 2.5], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0])
    """
    if high / low > STEEP:
        powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
        return [float(f"1e{power}") for power in powers][:: -(-len(powers) // 6)]
    return [place for place in round_places(low, high) if place > 0]


def fitting_texts(frame: ChartFrame, texts: Mapping[float, str], room: float) -> list[int]:
    """Return which texts have room below an axis so many pixels wide: every second, every third and so on, if all of these do.

    Where the places are at very different distances, each text that would touch the one before it is left out. Of two texts
    one is the last.
    """
    at = [frame.x(place) for place in texts]
    wide = [width_of(text) * LETTER + GAP for text in texts.values()]
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


def below(frame: ChartFrame, place: float, text: str, side: Side, shown: Shown = "always") -> Text:
    """Return a quiet text below an axis."""
    return Text(words=text, x=frame.x(place), y=frame.foot + 6, side=side, level="below", colour=QUIET, shown=shown)


def year_once(texts: Mapping[float, str]) -> dict[float, str]:
    """Return the texts of days of one year without the year, but for the first; others unchanged.

    Args:
        texts: places with their texts, in rising order.

    >>> year_once({0.0: "2026-01-05", 7.0: "2026-01-12"}), year_once({0.0: "2025-12-29", 7.0: "2026-01-05"})
    ({0.0: '2026-01-05', 7.0: '01-12'}, {0.0: '2025-12-29', 7.0: '2026-01-05'})
    """
    words = list(texts.values())
    if not all(DAY.fullmatch(text) for text in words) or len({text[:4] for text in words}) != 1:
        return dict(texts)
    return {place: text if at == 0 else text[5:] for at, (place, text) in enumerate(texts.items())}


def width_of(text: str) -> int:
    """Return about how many letters wide a text is; signs outside of European alphabets count double."""
    return sum(1 if ord(character) < 0x1100 else 2 for character in text.translate(WITHOUT_ISOLATES))


def fitting(text: str, most: int) -> str:
    """Return a text cut to a width in letters.

    >>> fitting("abcdef", 4), fitting("abc", 4)
    ('abc…', 'abc')
    """
    most = max(most, 4)
    if width_of(text) <= most:
        return text
    widths = itertools.accumulate(width_of(character) for character in text)
    return text[: sum(1 for width in widths if width <= most - 1)] + "…"


def _side(percent: float) -> Side:
    """Return the end of a text that is at its place, so that none sticks out of the page."""
    return "start" if percent < 12 else "end" if percent > 88 else "middle"


def _edge_side(percent: float) -> Side:
    """Return the end of a number that is at its place, so that none is cut in half."""
    return "start" if percent < AT_THE_EDGE else "end" if percent > 100 - AT_THE_EDGE else "middle"


def _grid(tick: float) -> str:
    return QUIET if tick == 0 else GRID
