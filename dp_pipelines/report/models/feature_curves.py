"""What each feature adds to the score of a linear model: steps for bins of numbers, bars for categories and cells of pairs.

In: `model.json` and the weights of `weights.csv`; any part of them may be odd. Out: a plot for each feature of which
something stands out of the noise. Holds: released numbers alone; each weight with its error bar, and where a straight line
is added to the bins one that is never too short. Not covered: models of several outputs; whether the files are true.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.report.chart import Chart
from dp_pipelines.report.charts import bar_chart, limits, slopes
from dp_pipelines.report.key_text import label, plain
from dp_pipelines.report.marks import bar_ends
from dp_pipelines.report.models import weights_file
from dp_pipelines.report.numbers import ERROR_BAR, finite, tick_number, with_error_bar
from dp_pipelines.report.pages import mapping, sequence, text
from dp_pipelines.report.svg import Floats

MOST_FEATURES = 12
MOST_CATEGORIES = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureShape:
    """How the columns of a feature follow each other, as its declaration has it.

    Args:
        width: how many.
        draw: draws them, from a name, their weights, and their standard deviations; None where there is nothing to draw.
        drawn: how many of the first of them are bins or categories.
    """

    width: int
    drawn: int
    draw: Callable[[str, Floats, Floats], Chart] | None

    @property
    def hot(self) -> int:
        """Columns of which every row has one: those, and one for missing or other values."""
        return self.drawn + 1


def curves(content: Mapping[str, Any], table: pa.Table | None) -> list[dict[str, Any]]:
    """The features whose weights stand out most, each with its plot.

    Args:
        content: of `model.json`.
        table: of `weights.csv`; None where there is none.

    Returns:
        by feature its `name`, its plot `svg`, and the weight of a `missing` value, where numbers have one.
    """
    weights = None if table is None else weights_file.numbers(table, "weight")
    if table is None or weights is None:
        return []
    stddevs = weights_file.numbers(table, "stddev")
    spread = np.zeros(len(weights)) if stddevs is None else np.maximum(stddevs, 0.0)
    found, at = [], 1
    for name, shape in _shapes(mapping(content.get("encoder")), [str(name) for name in table.column(0).to_pylist()]):
        if shape is None or at + shape.width > len(weights):
            return []
        own, bars = weights[at : at + shape.width], spread[at : at + shape.width]
        at += shape.width
        beyond = float((np.abs(own) - ERROR_BAR * bars).max())
        if beyond > 0 and shape.draw is not None:
            svg = shape.draw(label(name), own, bars)
            found.append((beyond, {"name": label(name), "svg": svg, "missing": _other(shape, own, bars)}))
    if at != len(weights):
        return []
    found.sort(key=lambda item: -item[0])
    return [shown for _, shown in found[:MOST_FEATURES]]


def told(weight: float, stddev: float) -> str:
    """A weight in words, with its error bar where there is one.

    >>> told(0.25, 0.1), told(0.225787, 0.0)
    ('0.25 ± 0.20', '0.226')
    """
    return with_error_bar(weight, stddev) if stddev else f"{weight:.3g}"


def _other(shape: FeatureShape, weights: Floats, stddevs: Floats) -> str | None:
    """The weight of a value that is missing, or is in no category; None where it is nothing, or among what is drawn."""
    if shape.drawn == shape.width:
        return None
    weight, stddev = float(weights[shape.drawn]), float(stddevs[shape.drawn])
    return told(weight, stddev) if weight else None


def _shapes(encoder: Mapping[str, Any], columns: Sequence[str]) -> list[tuple[str, FeatureShape | None]]:
    """Those of features, then of pairs.

    Args:
        encoder: of `model.json`.
        columns: what the columns of the model are called.
    """
    found: dict[str, FeatureShape | None] = {}
    for name, declared in mapping(encoder.get("features")).items():
        fields = mapping(declared)
        make = _KINDS.get(str(fields.get("kind")))
        found[str(name)] = None if make is None else make(str(name), fields, encoder)
    crossed: list[tuple[str, FeatureShape | None]] = []
    at = 1 + sum(shape.width for shape in found.values() if shape is not None)
    for pair in sequence(encoder.get("pairs"))[: len(columns)]:
        names = [text(name) for name in sequence(pair)]
        both = [shape for name in names if (shape := found.get(name)) is not None]
        if len(names) != 2 or len(both) != 2:
            return [("", None)]
        width = both[0].hot * both[1].hot
        draw = _bars(columns[at : at + width])
        crossed.append((" and ".join(names), FeatureShape(width=width, drawn=width, draw=draw)))
        at += width
    return [*found.items(), *crossed]


def _number(name: str, fields: Mapping[str, Any], encoder: Mapping[str, Any]) -> FeatureShape | None:
    low, high = finite(fields.get("min_value")), finite(fields.get("max_value"))
    listed = sequence(fields.get("edges")) or sequence(mapping(encoder.get("edges")).get(name))
    cuts = [finite(cut) for cut in listed]
    if low is None or high is None or not low < high or None in cuts:
        return None
    ends = [low, *(min(max(cut, low), high) for cut in cuts if cut is not None), high]
    if any(a > b for a, b in itertools.pairwise(ends)):
        return None
    scaled = fields.get("scaled") is True
    bins = len(ends) - 1

    def draw(words: str, weights: Floats, stddevs: Floats) -> Chart:
        slope = (weights[-1], stddevs[-1]) if scaled else (0.0, 0.0)
        return steps(ends, weights[:bins], stddevs[:bins], words, slope=(float(slope[0]), float(slope[1])))

    return FeatureShape(width=bins + 1 + scaled, drawn=bins, draw=draw)


def _category(name: str, fields: Mapping[str, Any], encoder: Mapping[str, Any]) -> FeatureShape | None:
    pairs = sequence(fields.get("categories")) or sequence(mapping(encoder.get("vocabulary")).get(name))
    values = [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    most = finite(fields.get("most"))
    width = len(values) if most is None else int(most)
    if len(values) != len(pairs) or not len(values) <= width <= 10_000:
        return None
    draw = _bars([plain(value) for value in values]) if values else None
    return FeatureShape(width=width + 1, drawn=width, draw=draw)


def _bars(names: Sequence[str]) -> Callable[[str, Floats, Floats], Chart]:
    """Draws the largest weights, each as a bar with its name."""

    def draw(words: str, weights: Floats, stddevs: Floats) -> Chart:
        chosen = np.argsort(-np.abs(weights[: len(names)]), kind="stable")[:MOST_CATEGORIES]
        notes = [told(float(weights[at]), float(stddevs[at])) for at in chosen]
        called = [label(names[at]) for at in chosen]
        title = f"{words}: " + "; ".join(f"{a} {b}" for a, b in zip(called, notes, strict=True))
        return bar_chart(called, weights[chosen], ERROR_BAR * stddevs[chosen], notes, title)

    return draw


_KINDS: Mapping[str, Callable[[str, Mapping[str, Any], Mapping[str, Any]], FeatureShape | None]] = {
    "number": _number,
    "category": _category,
}


def steps(
    ends: Sequence[float], weights: Floats, stddevs: Floats, name: str, *, slope: tuple[float, float] = (0.0, 0.0)
) -> Chart:
    """The weight of each bin with its error bar; bins are equally wide, as quantiles hold about equally many examples.

    Args:
        ends: of the bins, one more than bins, rising. A bin without width is left out, and so is one that has neither weight nor
            noise: nearly nobody is in it.
        weights, stddevs: of the bins.
        name: of the feature.
        slope: the weight of the value itself, scaled to its range, with its standard deviation. The error of a sum is at most the
            sum of both.
    """
    edges = np.array(ends)
    part = (edges - edges[0]) / (edges[-1] - edges[0])
    shown = np.flatnonzero((np.diff(edges) > 0) & ((weights != 0) | (stddevs != 0) | (slope != (0.0, 0.0))))
    sides = np.stack([part[:-1], part[1:]])[:, shown]
    values = weights[shown] + slope[0] * sides
    bars = ERROR_BAR * (stddevs[shown] + slope[1] * sides)
    bounds = limits(values.ravel(), bars.ravel())
    texts = [tick_number(edges[which]) for which in shown]
    if len(shown):
        texts.append(tick_number(edges[shown[-1] + 1]))
    words = [
        f"from {tick_number(edges[which])} {told(float(values[0, place]), float(bars[0, place]) / ERROR_BAR)}"
        for place, which in enumerate(shown[:MOST_CATEGORIES])
    ]
    return slopes(*bar_ends(values, bars, bounds), values, bounds, texts, f"{name}: " + "; ".join(words))
