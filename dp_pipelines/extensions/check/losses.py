"""What limits cut off of each metric, compared with its noise: which loss misleads, which limit causes it, what another costs.

In: the profile of a stage, its query, its plan as JSON values. Out: JSON values, the largest loss in error bars first. Holds:
only numbers that become smaller by a known share are compared, counts, numbers of units and sums. NOT private: losses depend on
rows. Not covered: means, quantiles and other numbers that a limit may move either way; noise that differs by group.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.error_bars import deviations_in_bar
from dp_pipelines.query.query import Query

ENOUGH = 0.95
"""The least share of rows that a limit is proposed for, where one of those that were counted keeps it."""

MOST = sys.float_info.max
"""The largest number that is said."""

PER_GROUP = "max_contributions_per_partition"


def losses(found: Mapping[str, Any], query: Query, planned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare what limits cut off of each metric with its error bar, in a published group of average size.

    Args:
        found: what `findings.of_stage` says of the stage.
        query: of the stage.
        planned: the stage as a plan describes it.

    Returns:
        for each metric with a known loss, and noise that is the same in all groups: `metric`; `share`, the part of its numbers
        that is cut off; `each`, `missing` and `noise`, the number in such a group, what is missing of it, and half an error bar;
        `bars`, how many of these halves are missing; and the limit that cuts off most, as of `_cause`.
    """
    groups, compared = _groups(found), []
    for name, metric in query.metrics.items():
        said: Mapping[str, Any] = planned["metrics"].get(name, {})
        stddev = said.get("stddev")
        clip = next((clip for clip in found["clips"] if clip["metric"] == name), None)
        whole, kept = _whole_and_kept(found, metric, clip)
        if groups is None or whole is None or kept is None or not 0 <= kept <= 1:
            continue
        if not isinstance(stddev, float) or not 0 < stddev < math.inf:
            continue
        gaussian = "gaussian" in said["noise"]
        noise, each = stddev * deviations_in_bar(said["noise"]), whole * groups[1] / groups[0]
        missing = each * (1 - kept)
        # JSON has no infinity: of values at the end of what floats hold, the largest is said.
        of_group = {
            "each": min(each, MOST),
            "missing": min(missing, MOST),
            "noise": noise,
            "bars": min(missing / noise, MOST),
        }
        compared.append(
            {"metric": name, "share": 1 - kept, **of_group, **_cause(found, metric, clip, gaussian=gaussian)}
        )
    return sorted(compared, key=lambda one: -one["bars"])


def _groups(found: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return how many groups of the finest level are likely to be published, and their share of the rows; None without groups."""
    level = max(found["levels"], key=lambda one: len(one["partition_by"]))
    number, part = level["published"]["number"], level["published_rows"]["share"]
    if number is not None and part is not None and number >= 1:
        return number, part
    return (level["groups"], 1.0) if level["groups"] else None


def _whole_and_kept(
    found: Mapping[str, Any], metric: Metric, clip: Mapping[str, Any] | None
) -> tuple[float | None, float | None]:
    """Return the number of a metric over all groups without limits, and the share of it that they keep; None where unknown."""
    rows, pairs = found["rows_kept"], found["pairs_kept"]
    if metric.kept_by == "rows" and metric.column is None and rows["share"]:
        return rows["number"] / rows["share"], rows["share"]
    if metric.kept_by == "units":
        return found["pairs"], pairs["share"]
    if metric.kept_by == "sum" and clip is not None and clip.get("sum") is not None:
        return abs(clip["sum"]), clip["sum_kept"]["share"]
    return None, None


def _cause(
    found: Mapping[str, Any], metric: Metric, clip: Mapping[str, Any] | None, *, gaussian: bool
) -> dict[str, Any]:
    """Return the limit that cuts off most of a metric, and what a larger one costs.

    Args:
        found, metric, clip: of the stage, one of its metrics, and the metric's clamp.
        gaussian: whether the noise is.

    Returns:
        `limit`, its name, and `keeps`, the share of the rows, or of the sum, that it keeps alone; of a bound on rows or groups
        also `value`, and of a larger one `instead`, `would_keep` and `noise_times`, at most the noise with it over the noise now.
    """
    of_units = metric.kept_by == "units" or (clip is not None and clip["of_sums"])
    limits: list[dict[str, Any]] = []
    if clip is not None:
        limits.append({"limit": "clamp", "keeps": clip["sum_clamped"]["share"]})
    for bound in found["bounds"]:
        if not (of_units and bound["bound"] == PER_GROUP):
            limits.append(_bound(bound, of_units=of_units, gaussian=gaussian))
    known = [limit for limit in limits if limit["keeps"] is not None]
    return min(known, key=lambda limit: float(limit["keeps"]), default={"limit": None, "keeps": None})


def _bound(bound: Mapping[str, Any], *, of_units: bool, gaussian: bool) -> dict[str, Any]:
    """Return what a bound on rows or groups keeps, and a larger one: the least that keeps enough, or else the largest counted.

    Args:
        bound: as `findings` has it.
        of_units: whether a unit adds at most so much to a group, however many rows it has there.
        gaussian: whether the noise is. It grows with the root of the groups of a unit then, else with their number. Of a unit's
            rows all may be in one group, so that either noise grows with their number.
    """
    kept = {"limit": bound["bound"], "value": bound["value"], "keeps": bound["rows_kept"]["share"]}
    larger = [other for other in bound["others"] if other["value"] > bound["value"]]
    if not larger:
        return kept
    enough = (other for other in larger if (other["rows_kept"]["share"] or 0.0) >= ENOUGH)
    chosen = next(enough, larger[-1])
    times = chosen["value"] / bound["value"]
    by_groups = bound["bound"] == "max_partitions_contributed" or of_units
    noise = math.sqrt(times) if gaussian and by_groups else times
    return {**kept, "instead": chosen["value"], "would_keep": chosen["rows_kept"]["share"], "noise_times": noise}
