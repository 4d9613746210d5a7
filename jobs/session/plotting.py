"""One plot of a release, for a notebook: points over time or bars, with error bars.

In: a published table. Out: a figure of matplotlib, which shows itself in a notebook and can be changed like any other. Holds: it
reads released numbers alone; texts of keys are drawn as they are, never as mathematics. Not covered: all that the report shows
of lists.
"""

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.metrics import registry
from dp_pipelines.report import released_table
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.list_charts import style_of
from dp_pipelines.report.released_table import Codes, Floats, Lists, Numbers, Published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 6
MOST_BARS = 20
INCH = {"width": 7.5, "bar": 0.28, "around": 1.0, "lines": 4.0}


def plot(table: Published, metric: str | None, entries: Mapping[str, Mapping[str, Any]], title: str) -> "Figure":
    """A figure of one metric.

    Args:
        table: what was released.
        metric: its name; None takes the one by which groups are ranked.
        entries: what the manifest says of each metric.
        title: stands above.

    Raises:
        RequestError: there is no such metric, or matplotlib is not installed.
    """
    kinds = {name: str(said.get("kind", "")) for name, said in entries.items()}
    numbers = _metric(table, metric, kinds)
    time = table.time
    figure = _figure()(layout="constrained")
    axes = figure.add_subplot()
    if isinstance(numbers, Lists):
        figure.set_size_inches(INCH["width"], INCH["lines"])
        _places(axes, table, numbers, released_table.ranking(table, kinds), entries.get(numbers.name, {}))
        axes.set_ylabel(visible(numbers.name), parse_math=False)
    elif time is not None:
        figure.set_size_inches(INCH["width"], INCH["lines"])
        _lines(axes, table, numbers, released_table.ranking(table, kinds))
        axes.set_ylabel(visible(numbers.name), parse_math=False)
    else:
        rows = released_table.largest_rows(numbers, MOST_BARS)
        figure.set_size_inches(INCH["width"], INCH["around"] + INCH["bar"] * max(len(rows), 1))
        _bars(axes, table, numbers, rows)
        axes.set_xlabel(visible(numbers.name), parse_math=False)
    axes.set_title(visible(title), parse_math=False, loc="left")
    axes.grid(alpha=0.3)
    return figure


def _metric(table: Published, metric: str | None, kinds: Mapping[str, str]) -> Numbers | Lists:
    every = {found.name: found for found in table.in_order}
    if not every:
        message = "has no metric to plot"
        raise RequestError(field="metric", message=message, hint="open report.html in the release's folder")
    if metric is None:
        ranked = released_table.ranking(table, kinds)
        return every.get(ranked.name) or (table.metrics or table.lists)[0]
    if metric not in every:
        raise RequestError(
            field="metric", message="is no metric of this release", hint=nearest(metric, every, "metrics")
        )
    return every[metric]


def _places(axes: "Axes", table: Published, lists: Lists, ranked: Numbers, entry: Mapping[str, Any]) -> None:
    """The lists of the largest groups: their places from left to right, as the report names them."""
    style = style_of(registry.of_kind(entry.get("kind")), entry)
    labels, _ = style.places(entry, lists.values.shape[1])
    places = np.arange(len(labels))
    for row in released_table.largest_rows(ranked, MOST_LINES).tolist():
        axes.errorbar(
            places, lists.values[row], yerr=_drawn(lists.bars[row]), marker="o", markersize=3.5, linewidth=1.2,
            elinewidth=1.0, capsize=2, label=f"line {row}",
        )  # fmt: skip
    shown = places[:: -(-len(labels) // MOST_BARS)]
    axes.set_xticks(shown, [visible(labels[place]) for place in shown.tolist()], parse_math=False, rotation=30)
    if table.keys:
        _name_lines(axes, lambda row: _label(table.keys, row))


def _lines(axes: "Axes", table: Published, numbers: Numbers, ranked: Numbers) -> None:
    """A line for each of the largest groups over the column that is a time."""
    time = table.time
    assert time is not None
    assert time.days is not None
    others = [key for key in table.keys if key is not time]
    group, first = released_table.groups(others, table.table.num_rows)
    days = time.days[time.codes]
    for one in released_table.largest_groups(group, ranked, MOST_LINES):
        at = np.flatnonzero((group == one) & np.isfinite(days) & np.isfinite(numbers.values))
        at = at[np.argsort(days[at], kind="stable")]
        axes.errorbar(
            days[at] if time.counted else days[at].astype("datetime64[D]"),
            numbers.values[at], yerr=_drawn(numbers.bars[at]), marker="o",
            markersize=3.5, linewidth=1.2, elinewidth=1.0, capsize=2,
            label=f"line {one}",
        )  # fmt: skip
    axes.tick_params(axis="x", rotation=30)
    if others:
        _name_lines(axes, lambda one: _label(others, int(first[one])))


def _name_lines(axes: "Axes", name: Callable[[int], str]) -> None:
    """A legend; whatever stands in a key, matplotlib reads none of it."""
    if not axes.containers:
        return
    for text in axes.legend(fontsize="small", frameon=False).get_texts():
        text.set_parse_math(False)
        text.set_text(name(int(text.get_text().removeprefix("line "))))


def _bars(axes: "Axes", table: Published, numbers: Numbers, at: Codes) -> None:
    """A bar for each of the partitions with the largest values, largest first."""
    axes.barh(range(len(at)), numbers.values[at], xerr=_drawn(numbers.bars[at]), height=0.7, capsize=2, ecolor="0.3")
    axes.set_yticks(range(len(at)), [_label(table.keys, int(row)) for row in at], parse_math=False)
    axes.invert_yaxis()


def _drawn(bars: Floats) -> Floats:
    """Half the lengths of error bars; none where there is no number."""
    return np.where(np.isfinite(bars), bars, 0.0)


def _label(keys: Sequence[released_table.Key], row: int) -> str:
    """The keys of a row in one line; a total has none."""
    if not keys:
        return "all"
    texts = (key.text(int(key.codes[row])) for key in keys)
    return " · ".join("(null)" if text is None else visible(text) for text in texts)


@functools.cache
def _figure() -> "type[Figure]":
    """Return the class of figures, which a notebook shows with any backend.

    Raises:
        RequestError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        hint = "install the extra: pip install 'dp-pipelines[plot]'"
        raise RequestError(field="plot", message="needs matplotlib, which is not installed", hint=hint) from None

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=110)
            return image.getvalue()

    return Shown
