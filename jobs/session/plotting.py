"""One plot of a release, for a notebook: points over time or bars, with error bars.

In: a published table. Out: a figure of matplotlib, which shows itself in a notebook and can be changed like any other. Holds: it
reads released numbers alone; texts of keys are drawn as they are, never as mathematics. Not covered: metrics that are lists; the
report shows those.
"""

import functools
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.report import released_table
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.released_table import Codes, Floats, Numbers, Published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 6
MOST_BARS = 20
INCH = {"width": 7.5, "bar": 0.28, "around": 1.0, "lines": 4.0}


def plot(table: Published, metric: str | None, kinds: Mapping[str, str], title: str) -> "Figure":
    """A figure of one metric.

    Args:
        table: what was released.
        metric: its name; None takes the one by which groups are ranked.
        kinds: the kind of each metric.
        title: stands above.

    Raises:
        RequestError: there is no such metric with one number for each partition.
    """
    numbers = _numbers(table, metric, kinds)
    time = table.time
    figure = _figure()(layout="constrained")
    axes = figure.add_subplot()
    if time is not None:
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


def _numbers(table: Published, metric: str | None, kinds: Mapping[str, str]) -> Numbers:
    names = [numbers.name for numbers in table.metrics]
    if not names:
        message = "has no metric with one number for each partition"
        raise RequestError(field="metric", message=message, hint="open report.html in the release's folder")
    if metric is None:
        ranked = released_table.ranking(table, kinds)
        return ranked if ranked.name in names else table.metrics[0]
    if metric not in names:
        hint = nearest(metric, names, "metrics")
        raise RequestError(field="metric", message="is no metric with one number for each partition", hint=hint)
    return table.metrics[names.index(metric)]


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
            days[at].astype("datetime64[D]"), numbers.values[at], yerr=_drawn(numbers.bars[at]), marker="o",
            markersize=3.5, linewidth=1.2, elinewidth=1.0, capsize=2,
            label=f"line {one}",
        )  # fmt: skip
    axes.tick_params(axis="x", rotation=30)
    if others:  # whatever stands in a key, matplotlib reads none of it
        for text in axes.legend(fontsize="small", frameon=False).get_texts():
            text.set_parse_math(False)
            text.set_text(_label(others, int(first[int(text.get_text().removeprefix("line "))])))


def _bars(axes: "Axes", table: Published, numbers: Numbers, at: Codes) -> None:
    """A bar for each of the partitions with the largest values, largest first."""
    axes.barh(range(len(at)), numbers.values[at], xerr=_drawn(numbers.bars[at]), height=0.7, capsize=2, ecolor="0.3")
    axes.set_yticks(range(len(at)), [_label(table.keys, int(row)) for row in at], parse_math=False)
    axes.invert_yaxis()


def _drawn(bars: Floats) -> Floats:
    """Half the lengths of error bars; none where there is no number."""
    return np.where(np.isfinite(bars), bars, 0.0)


def _label(keys: Sequence[released_table.Key], row: int) -> str:
    """The keys of a row in one line."""
    texts = (key.text(int(key.codes[row])) for key in keys)
    return " · ".join("(null)" if text is None else visible(text) for text in texts)


@functools.cache
def _figure() -> "type[Figure]":
    """A figure that a notebook shows, whichever backend it has."""
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=110)
            return image.getvalue()

    return Shown
