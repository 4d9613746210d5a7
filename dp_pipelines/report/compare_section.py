"""The part of a stage on a page that compares the arms of a test: a table, and a chart of ratios.

In: the entry `compare` of a stage in a manifest (any part of it may be missing or wrong). Out: values for the template. Holds:
released numbers only. Not covered: sentences on them (`compare_text`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dp_pipelines.report import compare_text
from dp_pipelines.report.axes import NameAxis, RatioAxis
from dp_pipelines.report.chart import Chart
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.marks import Dots, intervals, points_of
from dp_pipelines.report.svg import BAR, Floats

MOST_PLOTTED = 40
"""Intervals of one chart."""

FARTHEST = 10.0
"""An interval that reaches zero is cut on a logarithmic axis, so far below the least ratio."""

ROW, FOOT = 24, 30
"""Pixels: a row of a ratio; the axis below, with the margin above."""


def section(compare: object) -> dict[str, Any] | None:
    """What the template shows; None where nothing is compared.

    Args:
        compare: what the manifest says.
    """
    found = compare_text.comparisons(compare)
    if not found or not isinstance(compare, Mapping):
        return None
    rows = [
        {
            "arm": compare_text.shown_name(row.get("arm")),
            "metric": compare_text.shown_name(row.get("metric")),
            **compare_text.cells(row),
        }
        for row in found
    ]
    return {
        "baseline": compare_text.shown_name(compare.get("baseline")),
        "covers": compare_text.COVERS.get(str(compare.get("intervals")), ""),
        "power": compare_text.FINDS,
        "rows": rows,
        "plot": ratio_chart(found[:MOST_PLOTTED], compare_text.shown_name(compare.get("baseline"))),
    }


def ratio_chart(rows: Sequence[Mapping[str, Any]], baseline: str) -> Chart | None:
    """The ratios with their intervals, one above the other, beside a line at 1; None where no ratio is known.

    Args:
        rows: comparisons.
        baseline: the arm that the others are compared with.
    """
    known = [
        (f"{compare_text.shown_name(row.get('metric'))}, {compare_text.shown_name(row.get('arm'))}", value, low, high)
        for row in rows
        for value, low, high in [
            [compare_text.finite_number(row.get(key)) for key in ("ratio", "ratio_low", "ratio_high")]
        ]
        if value is not None and low is not None and high is not None and value > 0 and high > 0
    ]
    if not known:
        return None
    least = min(1.0, *(value for _, value, _, _ in known)) / FARTHEST
    known = [(name, value, max(low, least), high) for name, value, low, high in known]
    values, lows, highs = np.array([numbers for _, *numbers in known], np.float64).T
    notes = [f"{name}: {value:.3f} ({low:.3f} to {high:.3f})" for name, value, low, high in known]
    first = ", ".join(f"{name} {value:.3f} ({low:.3f} to {high:.3f})" for name, value, low, high in known[:3])
    names = [visible(name, 32) for name, *_ in known]
    return _ratios(names, values, lows, highs, notes, f"Ratios to {baseline} with 95% intervals: {first}")


def _ratios(
    names: Sequence[str], values: Floats, lows: Floats, highs: Floats, notes: Sequence[str], title: str
) -> Chart:
    """Return ratios with their intervals, below each other, beside a line at 1, on a logarithmic axis.

    Args:
        names: of the ratios.
        values: the ratios.
        lows, highs: the ends of their intervals.
        notes: a text for each that is pointed at.
        title: for those who do not see the plot.
    """
    low, high = min(1.0, lows.min()), max(1.0, highs.max())
    margin = np.log(high / low) * 0.05 or 0.1
    middles = np.arange(len(names)) + 0.5
    return Chart(
        title=title, height=ROW * len(names) + FOOT, least=300,
        across=RatioAxis(bounds=(float(np.log(low) - margin), float(np.log(high) + margin))), up=NameAxis(names=names),
        marks=[
            intervals(middles, np.log(lows), np.log(highs), BAR, 5, lying=True),
            Dots(points=points_of(np.log(values), middles), size=7, notes=notes),
        ],
    )  # fmt: skip
