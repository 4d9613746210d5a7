"""Tells the owner of a job, before a run, that nobody will know what the limits of a stage cut off, and what helps.

In: a query. Out: a sentence. Holds: it follows from the query alone; ways out that the query cannot take are not named. Not
covered: how much the limits cut off, which is a fact about the rows (`release.kept_shares`).
"""

import dataclasses

from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.sums import weighted_pairs
from dp_pipelines.plan_stages.kept_counts import amount_of
from dp_pipelines.planning.limits import all_listed
from dp_pipelines.query.contribution_bounds import AUTO_BOUNDS
from dp_pipelines.query.kept import Kept
from dp_pipelines.query.query import Query
from dp_pipelines.query.range_columns import range_columns
from dp_pipelines.query.row_unit import is_row_unit

MEASURED = Kept(share=0.02, each_metric=True)
"""The setting that a message proposes."""

WRITTEN = "kept: {share: 0.02, each_metric: true}"
"""The same as a job file says it."""

LATER = "after the release it is another plan, charged anew"


def note(query: Query, *, measurable: bool = True, has_ranges: bool = True, units: str = "units") -> str:
    """Return what to say of a stage whose limits are not measured, or not for all metrics; empty if nothing is missing.

    Args:
        query: of the stage.
        measurable: whether the rest of the job allows `kept`.
        has_ranges: whether it allows estimates and ranges.
        units: what several privacy units are called.

    >>> from dp_pipelines import ContributionBounds, Kept, PrivacyIdCount, Query
    >>> bounds = ContributionBounds(max_partitions_contributed=8)
    >>> query = Query(privacy_unit="customer", partition_by="week", bounds=bounds, metrics={"buyers": PrivacyIdCount()})
    >>> for part in note(query).split("; "):
    ...     print(part)
    what the limits cut off is not measured: numbers may be far too low, and nothing in the release shows it
    leave bounds out, and each run chooses and measures them, given enough units, or add kept: {share: 0.02, each_metric: true}
    after the release it is another plan, charged anew
    >>> note(dataclasses.replace(query, kept=Kept(share=0.02)))[:49]
    'buyers will have no estimate and no upper end of '
    """
    if query.kept is not None:
        return _of_metrics(query) if has_ranges and query.top is None and not query.kept.each_metric else ""
    if not _cuts_off(query):
        return ""
    low = any(metric.kept_by in ("rows", "units", "sum") for metric in query.metrics.values())
    may_be = "far too low" if low else "far off"
    unknown = f"what the limits cut off is not measured: numbers may be {may_be}, and nothing in the release shows it"
    ways = [] if not measurable or weighted_pairs(query.metrics) else _ways_out(query, units)
    if not ways:
        return f"{unknown}; this stage cannot measure it"
    return f"{unknown}; {', or '.join(ways)}; {LATER}"


def _ways_out(query: Query, units: str) -> list[str]:
    """Return what a job file may say instead, of what the query allows. Arguments as for `note`."""
    ways = []
    if not query.bounds.auto and _allows(query, bounds=AUTO_BOUNDS):
        ways.append(f"leave bounds out, and each run chooses and measures them, given enough {units}")
    if _allows(query, kept=MEASURED):
        ways.append(f"add {WRITTEN}")
    return ways


def _allows(query: Query, **changes: object) -> bool:
    try:
        dataclasses.replace(query, **changes)  # type: ignore[arg-type]  # names of fields
    except RequestError:
        return False
    return True


def _cuts_off(query: Query) -> bool:
    """Return True if bounds on contributions may cut something off of what the metrics count."""
    if is_row_unit(query.unit_columns):
        return False
    rows = query.bounds.bounds_rows and any(metric.needs_row_bound for metric in query.metrics.values())
    return bool(query.metrics) and (rows or not all_listed(query))


def _of_metrics(query: Query) -> str:
    """Return which metrics have no estimate because `kept` does not measure them; empty if there are none."""
    missing = []
    for name in range_columns(query):
        metric = query.metrics[name]
        people = metric.kept_by == "units" and not all_listed(query)
        if people or (amount_of(metric) is not None and not metric.pools):
            missing.append(name)
    if not missing:
        return ""
    return (
        f"{', '.join(missing)} will have no estimate and no upper end of a range, for kept does not measure what the limits cut "
        f"off of each metric; add each_metric: true to it; {LATER}"
    )
