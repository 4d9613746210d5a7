"""The headline numbers of a release: totals, and sums where a stage publishes no total.

In: a published table and its stage's entry in the manifest. Out: `Headline`s. Holds: post-processing of released numbers;
people, who may be in several groups, are never added up, nor rows that were chosen for their numbers. Not covered: what the
limits cut off.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dp_pipelines.metrics.base import Metric
from dp_pipelines.query.rollup import LEVEL
from dp_pipelines.release import finest_rows, shown_rows
from dp_pipelines.report.numbers import rounded_parts
from dp_pipelines.report.pages import mapping, sequence
from dp_pipelines.report.released_table import Published

MOST = 4
"""Headline numbers of a page."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headline:
    """A number that stands at the top of the page.

    Args:
        name: of the metric.
        value, bar, low, high: the number, its error bar and both ends of it, as texts.
        scope: what it is of.
        published: whether the release has it as it is, so that nothing was added up for the page.
    """

    name: str
    value: str
    bar: str
    low: str
    high: str
    scope: str
    published: bool


def headlines(
    published: Published,
    stage: Mapping[str, Any],
    known: Mapping[str, type[Metric] | None],
    stage_name: str,
    shown: int,
) -> list[Headline]:
    """Return the numbers of a stage that may stand at the top of the page.

    Args:
        published: its table.
        stage: its entry in the manifest.
        known: the metric of each column, where it is known.
        stage_name: its name.
        shown: how many rows of the table the page shows.
    """
    entries = mapping(stage.get("metrics"))
    metrics = [metric for metric in published.metrics if "raw_of" not in mapping(entries.get(metric.name))]
    top = _top_row(published, stage)
    if top is not None:
        scope = f"total of {stage_name}"
        return [
            found
            for metric in metrics
            if (found := _of(metric.values[top], metric.stddevs[top], metric.name, known, scope, published=True))
        ]
    part = shown_rows.read_part(stage)
    count = published.table.num_rows
    if (
        not count
        or finest_rows.is_rollup(stage)
        or (part is not None and part.rows < part.groups)
        or "compare" in stage
        or "top" in stage
    ):
        return []
    scope = (
        f"sum of the {count:,} groups {'shown' if count <= shown else 'published'}"
        if count > 1
        else "of the only group"
    )
    return [
        found
        for metric in metrics
        if is_additive(known.get(metric.name))
        and (
            found := _of(
                metric.values.sum(), np.sqrt((metric.stddevs**2).sum()), metric.name, known, scope, published=False
            )
        )
    ]


def is_additive(kind: type[Metric] | None) -> bool:
    """Return True if numbers of groups may be added up: a customer may be in several groups, a row is in one."""
    return kind is not None and kind.rolls_up == "sum"


def first(found: Iterable[Headline]) -> list[Headline]:
    """Return the headlines of a page: published totals, of each stage its own; without one sums, of each metric the first."""
    every = list(found)
    totals = [one for one in every if one.published]
    if totals:
        return totals[:MOST]
    distinct: dict[str, Headline] = {}
    for one in every:
        distinct.setdefault(one.name, one)
    return list(distinct.values())[:MOST]


def _top_row(published: Published, stage: Mapping[str, Any]) -> int | None:
    """The row of the total over everything; None where there is none."""
    if not published.keys:
        return 0 if published.table.num_rows == 1 else None
    levels = sequence(mapping(stage.get(finest_rows.ENTRY)).get("levels"))
    key = next((key for key in published.keys if key.name == LEVEL), None)
    if not levels or levels[0] != [] or key is None:
        return None
    rows = [row for row, code in enumerate(key.codes.tolist()) if key.text(code) == "0"]
    return rows[0] if len(rows) == 1 else None


def _of(
    value: float, stddev: float, name: str, known: Mapping[str, type[Metric] | None], scope: str, *, published: bool
) -> Headline | None:
    kind = known.get(name)
    parts = rounded_parts(float(value), float(stddev), whole=kind is not None and kind.whole)
    if parts is None:
        return None
    value_text, bar, low, high = parts
    return Headline(name=name, value=value_text, bar=bar, low=low, high=high, scope=scope, published=published)
