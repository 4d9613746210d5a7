"""Shares of rows and units that the bounds of a stage keep, with standard deviations, from one noisy sum of units' vectors.

In: the released sum, the standard deviation of its noise, the meaning of its coordinates. Out: JSON values for `kept.json` and
the manifest. Holds: post-processing of released numbers and public parameters; a share that noise could have made alone is null
and never an error. Not covered: units with so many rows that too few of them share a cell to be seen above the noise; rows of
units beyond the last edge, for which the share of rows is an upper bound.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.auto_bounds import value_bounds
from dp_pipelines.metrics.base import Metric
from dp_pipelines.plan_stages.kept_counts import KeptCounts
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import Query

Floats = NDArray[np.float64]

JOINED = "joined rows"
"""The manifest's note that figures are of joined rows: rows without a match are in none of them."""

SEEN = 3.0
"""A number of units counts as seen from so many standard deviations of its noise on."""

FALSE_ALARM = 0.001
"""The probability with which noise alone makes a cell of rows look as if it held units: one with many rows would outweigh all."""

LARGEST_BAR = 0.25
"""A share whose standard deviation is larger says nothing, and is null."""


def of_stage(noisy: Floats, kept: StagePlan, query: Query, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Return all figures of a stage, out of the stage that has released their counts.

    Args:
        noisy: the released sum.
        kept: the stage that released it.
        query: of the stage whose bounds these are.
        metrics: of that stage as it ran.
    """
    (noise,) = [noise for noise in kept.noises if noise is not None]
    (law,) = {choice.law for choice in kept.choices.noises.values()}
    return shares(noisy, noise.stddev, law, KeptCounts.of(query), metrics)


def shares(noisy: Floats, stddev: float, law: str, counts: KeptCounts, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Return all figures of a stage.

    Args:
        noisy: the released sum, one number for each coordinate.
        stddev, law: of the noise of each.
        counts: the meaning of the coordinates.
        metrics: of the stage as it ran.

    Returns:
        with `each_metric` also `groups`, the share of groups of units that are counted, and `sums`, that of each measured sum.
    """
    cells = counts.cells
    whole, rows = noisy[:2], noisy[2 : cells.before_clamped].reshape(2, -1)
    sides = noisy[cells.before_clamped : cells.before_pairs].reshape(-1, 3)
    facts = noisy[cells.before_facts :].reshape(-1, 2)
    columns = counts.sides(metrics)
    every = float(whole.sum())
    of_metrics, counted = _of_metrics(noisy, stddev, law, counts, metrics)
    filters = [*counts.filters, *(["not_null"] * len(counts.columns))]
    named = [None] * len(counts.filters) + list(counts.columns)
    units = float(facts.sum(axis=1).mean()) if len(facts) else 0.0
    return {
        "stddev": stddev,
        "whole": share(whole, 0, stddev),
        "rows": share_of_rows(rows, counts.edges, stddev, law) | {"unseen": unseen(rows, every, stddev, law)},
        "values": [
            {"column": column, "low": ends.low, "high": ends.high}
            | {side: share(of_column, at, stddev) for at, side in enumerate(("below", "within", "above"))}
            for (column, ends), of_column in zip(columns, sides, strict=True)
        ],
        "facts": [
            {"fact": fact, "column": column, **_of_all(float(pair[0]), units, len(facts), stddev)}
            for fact, column, pair in zip(filters, named, facts, strict=True)
        ],
        "counts": {
            "whole": whole.tolist(),
            "edges": list(counts.edges),
            "rows_kept": rows[0].tolist(),
            "rows_cut_off": rows[1].tolist(),
            "values": sides.tolist(),
            "facts": facts.tolist(),
            **counted,
        },
        **of_metrics,
    }


def _of_metrics(
    noisy: Floats, stddev: float, law: str, counts: KeptCounts, metrics: Mapping[str, Metric]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the shares of single metrics, where these were measured, and the counts behind them. Arguments as for `shares`."""
    cells, units = counts.cells, float(noisy[:2].sum())
    shares, counted = dict[str, Any](), dict[str, Any]()
    if cells.pairs:
        of_groups = noisy[cells.before_pairs : cells.before_sums].reshape(2, -1)
        hidden = {"unseen": unseen(of_groups, units, stddev, law)}
        shares["groups"] = share_of_rows(of_groups, cells.pairs, stddev, law) | hidden
        counted |= {"edges_of_groups": list(cells.pairs), "groups": of_groups.tolist()}
    if cells.sums:
        of_sums = noisy[cells.before_sums : cells.before_facts].reshape(cells.sums, 2, len(cells.amounts))
        shares["sums"] = [
            {"column": column, "end": end}
            | share_of_sum(parts, cells.amounts, stddev, law)
            | {"unseen": unseen(parts, units, stddev, law)}
            for (column, end), parts in zip(counts.amounts(metrics), of_sums, strict=True)
        ]
        counted["sums"] = of_sums.tolist()
    return shares, counted


def share(group: Floats, place: int, stddev: float) -> dict[str, float | None]:
    """Return the share of one of some noisy counts that together are all units.

    Args:
        group: the counts.
        place: of the one.
        stddev: of the noise of each.

    >>> found = share(np.array([460.0, 540.0]), 0, 10.0)
    >>> found["share"], round(found["stddev"], 4)
    (0.46, 0.0071)
    >>> share(np.array([3.0, -4.0]), 0, 10.0)
    {'share': None, 'stddev': None}
    """
    total = float(group.sum())
    if not total > SEEN * stddev * math.sqrt(len(group)):
        return _told(None, None)
    part = min(max(float(group[place]) / total, 0.0), 1.0)
    # The delta method: the one count moves the share by (1 - part) / total, each other one by -part / total.
    return _told(part, stddev / total * math.hypot(1 - part, part * math.sqrt(len(group) - 1)))


def share_of_rows(rows: Floats, edges: tuple[int, ...], stddev: float, law: str) -> dict[str, Any]:
    """Estimate the share of all rows that is counted.

    A unit in a cell counts as one with the middle of the cell's numbers of rows, on a logarithmic scale; in the last cell as one
    with as many as it has at least. Cells that do not exceed the noise, alone or with their neighbours, count as
    empty.

    Args:
        rows: units by number of rows: their parts that are kept, and that are cut off.
        edges: where the cells begin.
        stddev, law: of the noise of each number.

    Returns:
        `share` and `stddev`; `at_most`: whether units beyond the last edge are seen, so that more rows than that may be cut off;
        `fewer_than`: the last edge; `hides`: up to so many units with unusually many rows the noise would hide, and their rows
        could change the share by more than its error bar; 0 where they could not.

    >>> found = share_of_rows(np.array([[90.0, 40.0], [10.0, 60.0]]), (1, 2), 1.0, "gaussian")
    >>> round(found["share"], 3), found["at_most"]
    (0.567, True)
    """
    begins = np.array(edges, float)
    sizes = np.sqrt(begins * np.append(begins[1:] - 1, begins[-1]))
    return {**_share_of_cells(rows, sizes, stddev, law), "fewer_than": edges[-1]}


def share_of_sum(parts: Floats, edges: tuple[int, ...], stddev: float, law: str) -> dict[str, Any]:
    """Estimate the share of a sum that is counted, from a histogram of units by their amounts: those with none weigh nothing.

    Args:
        parts: units by amount: their parts that are kept, and that are cut off.
        edges: where the cells of amounts begin.
        stddev, law: of the noise of each number.

    >>> parts = np.zeros((2, 4))
    >>> parts[:, 2] = 90.0, 10.0
    >>> share_of_sum(parts, (0, 100, 141, 200), 1.0, "gaussian")["share"]
    0.9
    """
    begins = np.array(edges, float)
    return _share_of_cells(parts, np.sqrt(begins * np.append(begins[1:], begins[-1])), stddev, law)


def _share_of_cells(rows: Floats, sizes: Floats, stddev: float, law: str) -> dict[str, Any]:
    """Return the share of all units' amounts that is counted, each unit's amount taken as the middle of its cell.

    Returns:
        `share`, `stddev`; `at_most`: True if some units are in the last cell; `hides`: as for `share_of_rows`.
    """
    seen = _seen(rows, stddev, law)
    weights = np.where(seen, sizes, 0.0)
    inside, cut = (float(weights @ part) for part in rows)
    total, last = inside + cut, {"at_most": bool(seen[-1])}
    if not seen.any() or not total > 0:
        return {**_told(None, None), **last, "hides": 0}
    part = min(max(inside / total, 0.0), 1.0)
    bar = stddev * math.hypot(1 - part, part) * float(np.linalg.norm(weights)) / total
    # A cell with so many units passes the limit of `_seen` in one of two runs.
    most = math.ceil(value_bounds.stands_out(len(sizes), stddev, law, FALSE_ALARM, added=2))
    return {**_told(part, bar), **last, "hides": most if most * float(sizes[-1]) > bar * total else 0}


def unseen(rows: Floats, units: float, stddev: float, law: str) -> float:
    """Return the share of units in cells that do not exceed the noise. The share of rows says nothing about them.

    Args:
        rows: as for `share_of_rows`.
        units: how many units there are, by a noisy count.
        stddev, law: of the noise of each number.

    Returns:
        a number from 0 to 1; 1 if no cell exceeds the noise.

    >>> round(unseen(np.array([[900.0, 2.0], [0.0, 98.0]]), 1000.0, 1.0, "gaussian"), 3)
    0.0
    >>> round(unseen(np.array([[900.0, 60.0], [0.0, 40.0]]), 1000.0, 100.0, "gaussian"), 3)
    0.1
    """
    if not units > 0:
        return 1.0
    inside = float(rows.sum(axis=0)[_seen(rows, stddev, law)].sum())
    return min(max(1 - inside / units, 0.0), 1.0)


def _seen(rows: Floats, stddev: float, law: str) -> NDArray[np.bool_]:
    """Return True for cells of numbers of rows that exceed the noise, alone or with their neighbours."""
    return np.asarray(value_bounds.seen(rows.sum(axis=0), stddev, law, FALSE_ALARM, added=2) > 0)


def _of_all(holds: float, units: float, facts: int, stddev: float) -> dict[str, float | None]:
    """Return the share of units in whose row a fact holds; their number is the mean over what all facts say of it."""
    if not units > SEEN * stddev * math.sqrt(2 / facts):
        return _told(None, None)
    part = min(max(holds / units, 0.0), 1.0)
    # As in `share`; the 2 * facts - 1 other counts move the number of units alone.
    return _told(part, stddev / units * math.hypot(1 - part / facts, part / facts * math.sqrt(2 * facts - 1)))


def _told(part: float | None, stddev: float | None) -> dict[str, float | None]:
    if part is None or stddev is None or not stddev <= LARGEST_BAR:
        return {"share": None, "stddev": None}
    return {"share": part, "stddev": stddev}
