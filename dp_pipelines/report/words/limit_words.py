"""What the limits of a stage are and what they cut off, for readers: each limit of values names its metrics.

In: a stage's entry in the manifest (any part of it may be missing or wrong). Out: sentences. Holds: public facts and released
shares only. Not covered: warnings about single metrics, which stand where the metric is (`clamp_warnings`).
"""

import re
from collections.abc import Mapping
from typing import Any

from dp_pipelines.report import kept_text, range_text
from dp_pipelines.report.pages import mapping, sequence, text
from dp_pipelines.report.words.unit_name import unit_name, with_unit_name

COLUMN = re.compile(r"(?:sum|not_null|cells)\((.+?)(?: in (?:\[|tree |\d+ ).*)?\)", re.DOTALL)
"""How a manifest calls a statistic of a column, such as `sum(price in [0.0, 60.0], values)`."""


def limit_sentences(stage: Mapping[str, Any], unit: str) -> list[str]:
    """Return the limits of a stage, and what they cut off where that was released.

    Args:
        stage: its entry in the manifest.
        unit: the privacy unit in words.

    >>> entry = {"statistics": {"sum(price in [0.0, 60.0], values)": {}}}
    >>> limits = ["at most 4 rows of one customer_id are counted", "price below 0 counts as 0, above 60 as 60"]
    >>> for sentence in limit_sentences({"metrics": {"revenue": entry}, "limits": limits}, "value of customer_id"):
    ...     print(sentence)
    at most 4 rows of one customer are counted
    revenue: price below 0 counts as 0, above 60 as 60
    what the limits cut off was not measured
    """
    columns = metrics_by_column(stage)
    limits = [_named(with_unit_name(text(sentence), unit), columns) for sentence in sequence(stage.get("limits"))]
    cut_off = (*kept_text.lines(stage.get("kept"), unit), *range_text.lines(stage, unit_name(unit)))
    return list(dict.fromkeys([*limits, *cut_off]))


def metrics_by_column(stage: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the metrics that read each column.

    >>> metrics_by_column({"metrics": {"revenue": {"statistics": {"not_null(price)": {}}}, "orders": {}}})
    {'price': ['revenue']}
    """
    found: dict[str, list[str]] = {}
    for name, entry in mapping(stage.get("metrics")).items():
        if "raw_of" in mapping(entry):
            continue
        matches = (COLUMN.match(text(statistic)) for statistic in mapping(mapping(entry).get("statistics")))
        for column in dict.fromkeys(match[1] for match in matches if match is not None):
            found.setdefault(column, []).append(text(name))
    return found


def _named(sentence: str, columns: Mapping[str, list[str]]) -> str:
    for column, metrics in columns.items():
        if sentence.startswith((f"{column} below ", f"{column} is clamped ", f"the sum of {column} of one ")):
            return sentence if metrics == [column] else f"{', '.join(metrics)}: {sentence}"
    return sentence
