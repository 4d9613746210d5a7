"""Metrics with a list of numbers in each row, in the table and in plots: quantiles and histograms.

In: a metric of a published table and its entry in the manifest (any part of it may be missing). Out: columns and plots for the
template. Holds: bounded, however many rows and places there are; a place without a number shows as a dash, or as a gap. Not
covered: what other lists mean; their numbers are shown as bars.
"""

import abc
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dp_pipelines.metrics.base import Metric
from dp_pipelines.release import verdicts
from dp_pipelines.report.axes import axis_of_time
from dp_pipelines.report.chart import Chart
from dp_pipelines.report.chart_choices import PANELS, panels_over_time, row_parts
from dp_pipelines.report.charts import bar_chart, histogram, pairs, quantile_ranges, quantile_series, range_of, spark
from dp_pipelines.report.key_text import joined, label, plain
from dp_pipelines.report.numbers import ERROR_BAR, error_bar_parts, public_number, tick_number, with_error_bar
from dp_pipelines.report.released_table import Codes, Lists, Numbers, Published, largest_rows
from dp_pipelines.report.svg import Floats, drawable
from dp_pipelines.report.words.chart_words import trend
from dp_pipelines.report.words.number_format import PLAIN, NumberFormat, NumberStyle

MOST_QUANTILES, MOST_LINES, ROWS, BARS, MOST_BARS, SPARK_BARS = 9, 24, 10, 10, 60, 40
"""In the table: columns of a metric, and bins in words. In plots: rows of ranges, categories, bins of a panel and of a spark."""


class ListStyle(abc.ABC):
    """How lists of one sort are shown, in the table and in plots."""

    name: ClassVar[str]
    """What a metric calls it (`shown_as`)."""

    caption: ClassVar[str] = ""
    """What stands above its panels."""

    each: ClassVar[str] = "each"
    """What the page calls one of them."""

    @abc.abstractmethod
    def declared(self, entry: Mapping[str, Any]) -> bool:
        """Whether the manifest's entry of a metric that nobody knows says that its lists are such."""

    @abc.abstractmethod
    def places(self, entry: Mapping[str, Any], width: int) -> tuple[list[str], list[str]]:
        """The labels of the places of a list, and of the edges between bins (none where there are no edges)."""

    @abc.abstractmethod
    def columns(
        self, metric: Lists, entry: Mapping[str, Any], most: int, form: NumberFormat | None = None
    ) -> list[dict[str, Any]]:
        """The columns of a table, with the first `most` rows as cells, written in a format."""

    @abc.abstractmethod
    def plots(
        self, metric: Lists, entry: Mapping[str, Any], published: Published, leader: Numbers, style: NumberStyle
    ) -> dict[str, Any]:
        """The plots, beside what `list_plots` says of every list."""


class QuantileLists(ListStyle):
    """A column for each quantile, at most nine; bands over time, and ranges of the largest partitions."""

    name = "quantiles"

    def declared(self, entry: Mapping[str, Any]) -> bool:
        """See `ListStyle`."""
        return bool(_declared(entry, "quantiles"))

    def places(self, entry: Mapping[str, Any], width: int) -> tuple[list[str], list[str]]:
        """See `ListStyle`.

        >>> QuantileLists().places({"quantiles": [0.1, 0.5]}, 2), QuantileLists().places({}, 2)[0]
        ((['10%', '50%'], []), ['#1', '#2'])
        """
        levels = _declared(entry, "quantiles")
        if len(levels) == width and all(_is_number(level) for level in levels):
            return [f"{100 * level:.4g}%" for level in levels], []
        return _numbered(width), []

    def columns(
        self, metric: Lists, entry: Mapping[str, Any], most: int, form: NumberFormat | None = None
    ) -> list[dict[str, Any]]:
        """See `ListStyle`."""
        labels, _ = self.places(entry, metric.values.shape[1])
        chosen = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), MOST_QUANTILES)).round().astype(int))
        return [
            {
                "name": metric.name,
                "label": labels[place],
                "bins": False,
                "cells": number_cells(
                    metric.values[:, place], metric.normal_stddevs[:, place], most, verdicts.range_of(entry), form=form
                ),
            }
            for place in chosen.tolist()
        ]

    def plots(
        self, metric: Lists, entry: Mapping[str, Any], published: Published, leader: Numbers, style: NumberStyle
    ) -> dict[str, Any]:
        """See `ListStyle`."""
        labels, _ = self.places(entry, metric.values.shape[1])
        series = _bands(metric, labels, published, leader, style)
        rows = [] if series else _chosen(metric, published, leader, ROWS)
        return {
            "series": series,
            "rows": len(rows),
            "ranges": _ranges(metric, labels, published, rows, style) if rows else None,
        }


class BarLists(ListStyle):
    """One column with small bars; a panel of bars for each of the largest partitions."""

    def columns(
        self, metric: Lists, entry: Mapping[str, Any], most: int, form: NumberFormat | None = None
    ) -> list[dict[str, Any]]:
        """See `ListStyle`."""
        labels, _ = self.places(entry, metric.values.shape[1])
        cells = [
            self._cell(metric.name, values, stddevs, labels, form)
            for values, stddevs in zip(metric.values[:most], metric.normal_stddevs[:most], strict=True)
        ]
        return [{"name": metric.name, "label": "", "bins": True, "cells": cells}]

    def plots(
        self, metric: Lists, entry: Mapping[str, Any], published: Published, leader: Numbers, style: NumberStyle
    ) -> dict[str, Any]:
        """See `ListStyle`."""
        labels, edges = self.places(entry, metric.values.shape[1])
        rows = _chosen(metric, published, leader, PANELS)
        panels = [
            {
                "names": row_parts(row, published.keys),
                "svg": _histogram(metric, row, edges, published, style, whole=len(rows) == 1)
                if edges
                else self._bars(metric, row, labels, published, style),
            }
            for row in rows
        ]
        return {
            "panels": panels,
            "merged": _together(metric.values.shape[1]) if edges else 1,
            "cut": 0 if edges or len(labels) <= BARS else BARS,
        }

    @abc.abstractmethod
    def _heights(self, values: Floats) -> Floats:
        """What small bars show of numbers."""

    @abc.abstractmethod
    def _sizes(self, values: Floats) -> Floats:
        """By what the largest numbers are chosen."""

    def _cell(
        self, name: str, values: Floats, stddevs: Floats, labels: Sequence[str], form: NumberFormat | None
    ) -> dict[str, Any]:
        if not np.isfinite(values).any():
            return {"spark": None, "lines": [], "more": ""}
        most = int(np.nanargmax(np.where(np.isfinite(values), values, -np.inf)))
        lines = [
            (text, with_error_bar(value, stddev, grouped=True, form=form))
            for text, value, stddev in zip(labels[:MOST_LINES], values.tolist(), stddevs.tolist(), strict=False)
        ]
        found = _merged(values, _together(len(values), SPARK_BARS))
        title = f"{name}: {len(values)} numbers, the largest at {labels[most]}"
        return {
            "spark": spark(self._heights(found), title),
            "lines": [(text, "–" if shown == "-" else shown) for text, shown in lines],
            "more": f"{len(values) - len(lines):,}" if len(values) > len(lines) else "",
        }

    def _bars(self, metric: Lists, row: int, labels: Sequence[str], published: Published, style: NumberStyle) -> Chart:
        values, stddevs = metric.values[row], metric.normal_stddevs[row]
        name = joined(row_parts(row, published.keys))
        found = Numbers(name=metric.name, values=self._sizes(values), stddevs=stddevs)
        at = np.arange(len(values)) if len(values) <= BARS else np.sort(largest_rows(found, BARS))
        at = at[drawable(values[at], found.bars[at])]
        notes = [_number(float(values[a]), float(stddevs[a]), style) for a in at]
        title = f"Bars of {metric.name} of {name}: " + "; ".join(
            f"{labels[a]} {note}" for a, note in zip(at[:5], notes, strict=False)
        )
        return bar_chart([labels[a] for a in at], values[at], found.bars[at], notes, title, style=style)


class HistogramLists(BarLists):
    """Counts of bins or categories: what is below zero is noise."""

    name, caption = "histogram", "Distribution of the values."

    def declared(self, entry: Mapping[str, Any]) -> bool:
        """See `ListStyle`."""
        return bool(_declared(entry, "edges") or _declared(entry, "categories"))

    def places(self, entry: Mapping[str, Any], width: int) -> tuple[list[str], list[str]]:
        """See `ListStyle`.

        >>> HistogramLists().places({"edges": [0, 25.5, 9000]}, 2), HistogramLists().places({"categories": ["tea", True]}, 2)[0]
        ((['0 to 25.5', '25.5 to 9,000'], ['0', '25.5', '9,000']), ['tea', 'true'])
        """
        edges, categories = _declared(entry, "edges"), _declared(entry, "categories")
        if len(edges) == width + 1 and all(_is_number(edge) for edge in edges):
            texts = [tick_number(edge) for edge in edges]
            return [f"{a} to {b}" for a, b in itertools.pairwise(texts)], texts
        if len(categories) == width:
            return [label(None if value is None else plain(value), 40) for value in categories], []
        return _numbered(width), []

    def _heights(self, values: Floats) -> Floats:
        return np.maximum(values, 0.0)

    def _sizes(self, values: Floats) -> Floats:
        return values


class PlainLists(BarLists):
    """Other lists: their numbers may be of either sign."""

    name, caption, each = "list", "The numbers in each list.", "each list"

    def declared(self, entry: Mapping[str, Any]) -> bool:
        """See `ListStyle`."""
        return True

    def places(self, entry: Mapping[str, Any], width: int) -> tuple[list[str], list[str]]:
        """See `ListStyle`: of second moments the upper triangle.

        >>> len(PlainLists().places({"columns": ["a", "b"]}, 3)[0])
        3
        """
        columns = [label(str(column), 40) for column in _declared(entry, "columns")]
        if len(columns) * (len(columns) + 1) == 2 * width:
            return [joined([a, b]) for at, a in enumerate(columns) for b in columns[at:]], []
        return _numbered(width), []

    def _heights(self, values: Floats) -> Floats:
        return values

    def _sizes(self, values: Floats) -> Floats:
        return np.abs(values)


STYLES: Mapping[str, ListStyle] = {style.name: style for style in (QuantileLists(), HistogramLists(), PlainLists())}
"""Every style by its name; of what nobody knows the first that its entry declares."""


def style_of(metric: type[Metric] | None, entry: Mapping[str, Any]) -> ListStyle:
    """How a list is shown: as its metric says, or by what the manifest declares of it where nobody knows the metric.

    >>> [style_of(None, entry).name for entry in ({"quantiles": [0.5]}, {"edges": [0, 1]}, {})]
    ['quantiles', 'histogram', 'list']
    """
    if metric is not None and metric.many:
        return STYLES[metric.shown_as]
    return next(style for style in STYLES.values() if style.declared(entry))


def number_cells(
    values: Floats,
    stddevs: Floats,
    most: int,
    within: tuple[float, float] | None = None,
    *,
    whole: bool = False,
    form: NumberFormat | None = None,
) -> list[dict[str, Any]]:
    """The first numbers as cells; those that their error bar swallows are marked, those whose bar covers the range are hidden."""
    cells: list[dict[str, Any]] = []
    hidden = verdicts.covers(stddevs[:most], within).tolist()
    for value, stddev, covered in zip(values[:most].tolist(), stddevs[:most].tolist(), hidden, strict=True):
        if covered:
            cells.append({"value": None, "bar": None, "unsure": True, "noise": verdicts.NOISE, "estimate": ""})
            continue
        parts = error_bar_parts(value, stddev, grouped=True, whole=whole, form=form)
        unsure = parts is not None and abs(value) < ERROR_BAR * stddev
        if math.isnan(stddev) and math.isfinite(value):  # it was chosen, and has no error bar
            parts = (public_number(value) if form is None else form.text(value), "")
        cells.append(
            {"value": parts and parts[0], "bar": parts and parts[1], "unsure": unsure, "noise": "", "estimate": ""}
        )
    return cells


def list_plots(
    metric: Lists,
    shape: ListStyle,
    entry: Mapping[str, Any],
    published: Published,
    leader: Numbers,
    style: NumberStyle = PLAIN,
) -> dict[str, Any]:
    """The plots of a metric: bands and ranges of quantiles, or a panel for each of the largest partitions."""
    labels, _ = shape.places(entry, metric.values.shape[1])
    found: dict[str, Any] = {
        "caption": shape.caption,
        "each": shape.each,
        "metric": metric.name,
        "leader": leader.name,
        "others": [key.name for key in published.keys if key is not published.time],
        "keyed": bool(published.keys),
        "bands": [f"{labels[a]} to {labels[b]}" for a, b in pairs(len(labels))],
        "middle": labels[len(labels) // 2] if len(labels) % 2 else None,
        "series": [],
        "ranges": None,
        "rows": 0,
        "panels": [],
        "merged": 1,
        "cut": 0,
    }
    return found | shape.plots(metric, entry, published, leader, style)


def _number(value: float, stddev: float, style: NumberStyle) -> str:
    """Return a number of a list with its error bar, for a chart."""
    return with_error_bar(value, stddev, grouped=True, form=style.form)


def _declared(entry: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = entry.get(name)
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _numbered(width: int) -> list[str]:
    return [f"#{place + 1}" for place in range(width)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def _chosen(metric: Lists, published: Published, leader: Numbers, most: int) -> list[int]:
    """The rows that are plotted: those of the largest by the leader that have a number."""
    known = np.isfinite(metric.values).any(axis=1)
    values = np.where(known, leader.values, np.nan)
    return [int(row) for row in largest_rows(Numbers(name="", values=values, stddevs=leader.stddevs), most)]


def _together(count: int, most: int = MOST_BARS) -> int:
    """How many neighbouring bins are drawn as one."""
    return -(-count // most)


def _merged(values: Floats, together: int) -> Floats:
    """Sums of neighbouring numbers; what is no number leaves its sum without one."""
    return np.add.reduceat(values, np.arange(0, len(values), together))


def _histogram(
    metric: Lists, row: int, edges: Sequence[str], published: Published, style: NumberStyle, *, whole: bool
) -> Chart:
    values, stddevs = metric.values[row], metric.normal_stddevs[row]
    name = joined(row_parts(row, published.keys))
    together = _together(len(values))
    spread = np.sqrt(_merged(stddevs**2, together))
    merged = _merged(values, together)
    most = int(np.argmax(np.where(np.isfinite(merged), merged, -np.inf)))
    between = [*edges[:-1:together], edges[-1]]
    note = _number(float(merged[most]), float(spread[most]), style)
    title = f"Histogram of {metric.name} of {name}: {len(merged)} bins, the largest from {between[most]}: {note}"
    return histogram(merged, ERROR_BAR * spread, between, title, style, whole=whole)


def _bands(
    metric: Lists, labels: Sequence[str], published: Published, leader: Numbers, style: NumberStyle
) -> list[dict[str, Any]]:
    time, panels = published.time, panels_over_time(published, leader)
    if time is None or time.days is None or not panels:
        return []
    every: Codes = np.concatenate([rows for _, rows in panels])
    bounds = range_of(metric.values[every], metric.bars[every], style.within)
    axis = axis_of_time(time, every)
    drawn = []
    for name, rows in panels:
        days = time.days[time.codes[rows]]
        title = f"Quantiles of {metric.name} of {joined(name)} over time: {len(rows)} points"
        if len(rows):
            title += f"; at {axis.texts[float(days[-1])]}: {_said(metric, int(rows[-1]), labels, style)}"
            middle = metric.at(len(labels) // 2).taken(rows)
            known = drawable(middle.values, middle.bars)
            title += f"; {labels[len(labels) // 2]}: {trend(days[known], middle.values[known], middle.bars[known])}"
        values, bars, whole = metric.values[rows], metric.bars[rows], len(panels) == 1
        svg = quantile_series(days, values, bars, axis, bounds, title, whole=whole, style=style)
        drawn.append({"names": name, "svg": svg})
    return drawn


def _ranges(
    metric: Lists, labels: Sequence[str], published: Published, rows: Sequence[int], style: NumberStyle
) -> Chart:
    names = [joined(row_parts(row, published.keys)) for row in rows]
    middle = metric.at(len(labels) // 2)
    notes = [""] * len(rows)
    if len(labels) % 2:
        shown = (_number(float(middle.values[r]), float(middle.normal_stddevs[r]), style) for r in rows)
        notes = ["–" if text == "-" else text for text in shown]
    title = f"Quantiles of {metric.name}: " + "; ".join(
        f"{name} {_said(metric, row, labels, style)}" for name, row in zip(names[:2], rows, strict=False)
    )
    values, bars = metric.values[rows], metric.bars[rows]
    return quantile_ranges(names, values, bars, notes, title, range_of(values, bars, style.within), style)


def _said(metric: Lists, row: int, labels: Sequence[str], style: NumberStyle) -> str:
    """The first, the middle and the last quantile of a row in words."""
    chosen = sorted({0, len(labels) // 2, len(labels) - 1})
    numbers = (_number(float(metric.values[row, at]), float(metric.normal_stddevs[row, at]), style) for at in chosen)
    return ", ".join(f"{labels[at]} {shown}" for at, shown in zip(chosen, numbers, strict=True))
