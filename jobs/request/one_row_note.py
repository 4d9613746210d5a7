"""Says what one row of each unit in a group would save to metrics of typical values: quantiles, means, variances.

In: a query, the stage as its plan describes it. Out: a sentence, or nothing. Holds: it follows from the plan alone; the sizes are
those of the plan with the smaller bound. Not covered: whether the question is still the one that somebody has.
"""

from collections.abc import Mapping
from typing import Any

from dp_pipelines.metrics.good_from import shown
from dp_pipelines.query.query import Query
from dp_pipelines.report.words.unit_name import plural, unit_name

MANY = 500
"""Groups of that many values are rare enough for a metric that needs more of them to get a sentence."""


def one_row_note(query: Query, described: Mapping[str, Any], unit: str) -> str:
    """Return what `max_contributions_per_partition: 1` would save, and which other question it asks; empty where it saves little.

    The noise of sums of rows is proportional to the bound on the rows of a unit in a group, so that a metric is good from as many
    units, with a value each, as the size of today over the bound.

    Args:
        query: of the stage.
        described: the stage as its plan describes it.
        unit: the privacy unit as a manifest has it.
    """
    most = query.bounds.max_contributions_per_partition
    if not isinstance(most, int) or most < 2:
        return ""
    found = []
    for name, metric in query.metrics.items():
        if not metric.needs_row_bound or metric.kept_by in ("rows", "units", "sum"):
            continue
        said = next((one for one in described["metrics"][name].get("good_from", ()) if one["of"] == "values"), None)
        if said is not None and said["least"] >= MANY:
            found.append((name, said["promise"], said["least"]))
    if not found:
        return ""
    name, people = unit_name(unit), plural(unit)
    gains = [
        f"{metric} ({promise.rstrip(',')}) is good from {shown(least / most)} {people} on, not from {shown(least)} values"
        for metric, promise, least in found
    ]
    return (
        f"one row of each {name} in a group needs less noise: with max_contributions_per_partition: 1, best in a stage of its "
        f"own, {'; '.join(gains)}. That is another question, of a typical {name} and not of a typical row: each counts "
        "once, by a row that is drawn at random"
    )
