"""What the limits of a stage are and what they cut off, for readers: each limit of values names its metrics.

In: a stage's entry in the manifest (any part of it may be missing or wrong). Out: sentences. Holds: public facts and released
shares only. Not covered: warnings about single metrics, which stand where the metric is (`clamp_warnings`).
"""

import re
from collections.abc import Mapping
from typing import Any

from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric
from dp_pipelines.report import kept_text, range_text
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.pages import mapping, sequence, text
from dp_pipelines.report.words.page_words import in_list
from dp_pipelines.report.words.unit_name import unit_name, with_unit_name

COLUMN = re.compile(r"(?:sum|not_null|cells)\((.+?)(?: in (?:\[|tree |\d+ ).*)?\)\Z", re.DOTALL)
"""How a manifest calls a statistic of a column, such as `sum(price in [0.0, 60.0], values)`."""


GROUPS = re.compile(r"at most ([\d,]+ groups?.*) (?:is|are) counted of one ", re.DOTALL)
"""How a manifest says in how many groups a unit counts."""


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


def may_cut(stage: Mapping[str, Any], entry: Mapping[str, Any], kind: type[Metric] | None, *, total: bool) -> bool:
    """Return True if the limits of a stage may change the numbers of a metric.

    Args:
        stage: its entry in the manifest.
        entry: of the metric.
        kind: what the metric is, where that is known.
        total: whether its numbers are totals. There each unit counts once, however few of its rows do.

    >>> limits = {"limits": ["at most 4 rows of one customer are counted"]}
    >>> may_cut(limits, {}, None, total=True), may_cut({}, {}, None, total=True)
    (True, False)
    """
    limits = [text(sentence) for sentence in sequence(stage.get("limits"))]
    if not limits or range_text.cuts_nothing(mapping(entry.get("kept"))):
        return False
    return not (total and kind is not None and kind.kept_by == "units" and not _acts_on_rows_read(stage))


def _acts_on_rows_read(stage: Mapping[str, Any]) -> bool:
    """Return True if a limit acts before rows meet a condition or another table, so that it may make any number larger too."""
    return any(text(sentence).endswith((" are joined", " are read")) for sentence in sequence(stage.get("limits")))


def is_at_least(stage: Mapping[str, Any], entry: Mapping[str, Any], kind: type[Metric] | None) -> bool:
    """Return True if the limits can only make the numbers of a metric smaller: of counts, and of sums with a clamp from 0 on.

    Values below 0 count as 0 in the truth too (docs/ranges.md).

    Args:
        stage: its entry in the manifest.
        entry: of the metric there.
        kind: what the metric is, where that is known.

    >>> from dp_pipelines import Count, Sum
    >>> entries = [{"statistics": {f"sum(price in [{low}, 60.0], values)": {}}} for low in (0.0, -5.0)]
    >>> is_at_least({}, {}, Count), [is_at_least({}, entry, Sum) for entry in entries], is_at_least({}, entries[0], None)
    (True, [True, False], False)
    >>> is_at_least({"limits": ["at most 2 rows of one customer are read"]}, {}, Count)
    False
    """
    if kind is None or kind.kept_by not in ("rows", "sum") or _acts_on_rows_read(stage):
        return False
    return kind.kept_by == "rows" or any(" in [0.0, " in text(name) for name in mapping(entry.get("statistics")))


def no_total_words(name: str, stages: Mapping[str, Mapping[str, Any]], unit: str) -> str:
    """Return why the rows of a stage do not add up to the total that another stage publishes; nothing where there is none.

    Args:
        name: of the stage.
        stages: by name, the entries of all stages in the manifest.
        unit: the privacy unit in words.

    >>> metrics, limit = {"orders": {"kind": "count"}}, "at most 3 groups by city and week are counted of one customer_id"
    >>> stages = {"total": {"partition_by": [], "metrics": metrics},
    ...           "cities": {"partition_by": ["city", "week"], "metrics": metrics, "limits": [limit]}}
    >>> no_total_words("cities", stages, "value of customer_id")
    'adding up orders over these rows may not give that of total: only 3 groups by city and week of each customer count here'
    >>> no_total_words("total", stages, "value of customer_id")
    ''
    """
    stage = stages.get(name, {})
    match = next((found for words in sequence(stage.get("limits")) if (found := GROUPS.match(text(words)))), None)
    if match is None or not stage.get("partition_by"):
        return ""
    for other, total in stages.items():
        shared = _sums(stage) & _sums(total)
        if other != name and total.get("partition_by") == [] and shared:
            metrics = in_list([metric for metric in mapping(stage.get("metrics")) if metric in dict(shared)])
            counts = "counts" if match[1].startswith("1 ") else "count"
            whose = "those" if len(shared) > 1 else "that"
            said = f"adding up {metrics} over these rows may not give {whose} of {visible(other)}"
            return f"{said}: only {match[1]} of each {unit_name(unit)} {counts} here"
    return ""


def _sums(stage: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the metrics of a stage that can be added up: the name of each, and of what it is."""
    columns = {metric: column for column, metrics in metrics_by_column(stage).items() for metric in metrics}
    kinds = {
        text(name): registry.of_kind(mapping(entry).get("kind"))
        for name, entry in mapping(stage.get("metrics")).items()
    }
    return {
        (name, f"{kind.kind} {columns.get(name, '')}")
        for name, kind in kinds.items()
        if kind is not None and kind.rolls_up == "sum"
    }


def metrics_by_column(stage: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the metrics that read each column.

    >>> metrics_by_column({"metrics": {"revenue": {"statistics": {"not_null(price)": {}}}, "orders": {}}})
    {'price': ['revenue']}
    >>> metrics_by_column({"metrics": {"a": {"statistics": {"sum(w (0 to 4) of v in [0.0, 4.0], values)": {}}}}})
    {'w (0 to 4) of v': ['a']}
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
