"""How plots become part of a page: a figure under fixed settings, texts that matplotlib never reads, colours of the page.

In: what `charts` and `spread_charts` draw. Out: one `<svg>` element each. Holds: the same input gives the same bytes; no text
of a key ever reaches matplotlib (a token stands for it until it is escaped), so none can be markup, mathematics or a missing
glyph; colours are variables of the page's style sheet, so that light, dark and print need one drawing. Not covered: what is
drawn.
"""

import contextlib
import functools
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from dp_pipelines.report.key_text import END_ISOLATE, ISOLATE, visible
from dp_pipelines.report.numbers import tick_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

HEAT_STEPS = 7
"""Shades of a heat map."""

COLOURS = {
    "#a10001": "--ink",
    "#a10002": "--quiet",
    "#a10003": "--grid",
    "#a10004": "--mark",
    "#a10005": "--bar",
    "#a10006": "--card",
    **{f"#a1010{step}": f"--heat-{step}" for step in range(HEAT_STEPS)},
}
"""What stands for a colour while matplotlib draws: the variable of the style sheet that takes its place."""

INK, QUIET, GRID, MARK, BAR, PAPER = list(COLOURS)[:6]
HEAT = list(COLOURS)[6:]

LARGEST = 1e100
"""A number beyond this is not drawn: axes are made with floats."""

_WITHOUT_ISOLATES = {ord(ISOLATE): None, ord(END_ISOLATE): None}
_TOKEN = re.compile(r">K(\d+)K<")
_NUMBER = re.compile(r"-?\d+\.\d+")


class TextTokens:
    """Texts of keys behind tokens, so that matplotlib never reads one."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def __call__(self, text: str) -> str:
        self.kept.append(text)
        return f"K{len(self.kept) - 1}K"


@functools.cache
def _defaults() -> Any:
    """Matplotlib's own settings, whatever the user's file says, and ours."""
    import matplotlib

    own = {name: matplotlib.rcParamsDefault[name] for name in matplotlib.rcParamsDefault if "backend" not in name}
    return own | {"svg.fonttype": "none", "svg.hashsalt": "dp_pipelines", "path.simplify": False}


@contextlib.contextmanager
def drawing(width: float, height: float) -> "Iterator[tuple[Figure, TextTokens]]":
    """A figure of a size in pixels, drawn under fixed settings; matplotlib says nothing on stderr meanwhile."""
    logger = logging.getLogger("matplotlib")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import matplotlib
            from matplotlib.figure import Figure

            with matplotlib.rc_context(_defaults()):
                yield Figure(figsize=(width / 72, height / 72), dpi=72), TextTokens()
    finally:
        logger.setLevel(before)


def bare_axes(figure: "Figure", *, left: float, right: float, top: float, bottom: float) -> "Axes":
    """Axes without any decoration, with margins in pixels."""
    width, height = figure.get_size_inches() * 72
    figure.patch.set_visible(False)
    box = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    axes = figure.add_axes(box)
    axes.set_axis_off()
    axes.set_autoscale_on(False)
    return axes


def grid(axes: "Axes", bounds: tuple[float, float], texts: TextTokens, *, vertical: bool) -> None:
    """Thin lines with numbers at round places; the line of zero is darker."""
    from matplotlib.ticker import MaxNLocator

    low, high = bounds
    (axes.set_xlim if vertical else axes.set_ylim)(low, high)
    across = axes.get_ylim() if vertical else axes.get_xlim()
    ticks = [
        float(t) for t in MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high) if low <= t <= high
    ]
    for tick in ticks:
        ends = [((tick, across[0]), (tick, across[1]))] if vertical else [((across[0], tick), (across[1], tick))]
        lines(axes, ends, QUIET if tick == 0 else GRID, 0.8)
        place: dict[str, Any] = (
            {"xy": (tick, 0), "xytext": (0, -6), "xycoords": ("data", "axes fraction"), "ha": "center", "va": "top"}
            if vertical
            else {
                "xy": (0, tick),
                "xytext": (-6, 0),
                "xycoords": ("axes fraction", "data"),
                "ha": "right",
                "va": "center",
            }
        )
        axes.annotate(texts(tick_number(tick)), textcoords="offset points", size=10, color=QUIET,
                      rotation_mode="anchor", annotation_clip=False, **place)  # fmt: skip


def lines(
    axes: "Axes", ends: Sequence[tuple[tuple[float, float], tuple[float, float]]], colour: str, wide: float
) -> None:
    """Many lines as one path: small, however many there are."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if ends:
        path = Path([point for pair in ends for point in pair], [Path.MOVETO, Path.LINETO] * len(ends))
        axes.add_patch(PathPatch(path, edgecolor=colour, facecolor="none", linewidth=wide, capstyle="round"))


def boxes(axes: "Axes", corners: Sequence[tuple[float, float]], gap_x: float, gap_y: float, colour: str) -> None:
    """Many unit squares as one path, with a gap around each."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if corners:
        shape = [(0, 0), (1 - gap_x, 0), (1 - gap_x, 1 - gap_y), (0, 1 - gap_y), (0, 0)]
        codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY]
        path = Path([(x + dx, y + dy) for x, y in corners for dx, dy in shape], codes * len(corners))
        axes.add_patch(PathPatch(path, facecolor=colour, edgecolor="none", linewidth=0))


def finished(figure: "Figure", texts: TextTokens, title: str) -> Markup:
    """The drawing as an element of a page: no header, no names, no addresses; the page's colours and font."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    canvas, out = FigureCanvasSVG(figure), io.StringIO()
    canvas.print_svg(out, metadata={"Date": None})  # type: ignore[no-untyped-call]
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: (?:[a-z]+ )*([\d.]+px) [^;\"]*", r"font-size: \1", svg)  # as matplotlib before 3.11 writes it
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = _inlined_marks(svg)
    svg = re.sub(
        r' clip-path="url\(#\w+\)"| id="[^"]*"|<defs>\s*(?:<clipPath.*?</clipPath>\s*)*</defs>',
        "",
        svg,
        flags=re.DOTALL,
    )
    for stand_in, variable in COLOURS.items():
        svg = svg.replace(stand_in, f"var({variable})")
    svg = _NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), svg)
    svg = re.sub(r"\s*\n\s*", "\n", re.sub(r"</?g>", "", svg))
    svg = _TOKEN.sub(lambda found: f">{escape(texts.kept[int(found[1])])}<", svg)
    width, height = (f"{size * 72:.0f}" for size in figure.get_size_inches())
    words = escape(visible(title.translate(_WITHOUT_ISOLATES), 400))
    opening = f'<svg role="img" aria-label="{words}" viewBox="0 0 {width} {height}" width="{width}">'
    return Markup(opening + svg[svg.index(">") + 1 :].strip())  # noqa: S704  every text in it was escaped above


def _inlined_marks(svg: str) -> str:
    """Points as circles in place of references to a shape: names of shapes would meet those of the page's other plots."""
    sizes = {name: abs(float(radius)) for name, radius in re.findall(r'<path id="(m\w+)" d="M 0 (-?[\d.]+)', svg)}
    svg = re.sub(r'<path id="m\w+".*?/>', "", svg, flags=re.DOTALL)
    return re.sub(
        r'<use xlink:href="#(m\w+)" x="([^"]*)" y="([^"]*)" style="([^"]*)"/>',
        lambda found: f'<circle cx="{found[2]}" cy="{found[3]}" r="{sizes[found[1]]:.2f}" style="{found[4]}"/>',
        svg,
    )


def drawable(values: Floats, bars: Floats) -> NDArray[np.bool_]:
    """Which numbers can be drawn with their error bars."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(values) < LARGEST) & (bars >= 0) & (bars < LARGEST))


def bar_ends(values: Floats, bars: Floats, bounds: tuple[float, float]) -> tuple[Floats, Floats]:
    """Both ends of error bars, cut where the axis ends."""
    return np.clip(values - bars, *bounds), np.clip(values + bars, *bounds)


def period_ends(marks: Mapping[float, str]) -> list[tuple[float, str, str]]:
    """The first and the last point and one between, as places for text on an axis."""
    days = np.array(list(marks))
    if len(days) == 1:
        return [(float(days[0]), marks[float(days[0])], "center")]
    middle = float(days[np.argmin(np.abs(days - (days[0] + days[-1]) / 2))])
    ends = [(float(days[0]), marks[float(days[0])], "left"), (float(days[-1]), marks[float(days[-1])], "right")]
    near_middle = 0.42 < (middle - days[0]) / (days[-1] - days[0]) < 0.58
    if near_middle and max(width_of(marks[day]) for day in (ends[0][0], middle, ends[1][0])) <= 11:
        ends.insert(1, (middle, marks[middle], "center"))
    return ends


def mark_ends(axes: "Axes", texts: TextTokens, marks: Mapping[float, str], most: int | None = None) -> None:
    """The texts of `period_ends` below an axis, cut to `most` letters."""
    for place, text, side in period_ends(marks):
        axes.annotate(
            texts(text if most is None else fitting(text, most)), (place, 0), (0, -6), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha=side, va="top", size=10, color=QUIET, rotation_mode="anchor",
            annotation_clip=False,
        )  # fmt: skip


def axes_over_time(
    figure: "Figure", texts: TextTokens, marks: Mapping[float, str], bounds: tuple[float, float]
) -> "Axes":
    """The axes of one panel over time.

    Args:
        figure, texts: as `drawing` gives them.
        marks: the days of the axis with the texts of the key, in rising order.
        bounds: the range of the numbers.
    """
    axes = bare_axes(figure, left=42, right=10, top=10, bottom=24)
    first, last = min(marks), max(marks)
    room = (last - first) * 0.03 or 0.5
    axes.set_xlim(first - room, last + room)
    grid(axes, bounds, texts, vertical=False)
    mark_ends(axes, texts, marks)
    return axes


def width_of(text: str) -> int:
    """About how many letters wide a text is; signs outside of European alphabets count double."""
    return sum(1 if ord(character) < 0x1100 else 2 for character in text.translate(_WITHOUT_ISOLATES))


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
