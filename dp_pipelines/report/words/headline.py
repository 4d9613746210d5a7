"""The headline numbers of a release: totals, and sums where a stage publishes no total.

In: a published table and its stage's entry in the manifest. Out: `Headline`s. Holds: post-processing of released numbers;
people, who may be in several groups, are never added up, nor rows that were chosen for their numbers. Not covered: what the
limits cut off.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics.base import Metric
from dp_pipelines.query.rollup import LEVEL
from dp_pipelines.release import finest_rows, shown_rows
from dp_pipelines.report.figures import finite
from dp_pipelines.report.numbers import rounded_parts
from dp_pipelines.report.pages import mapping, sequence, text
from dp_pipelines.report.range_text import counted_share, range_in_words
from dp_pipelines.report.released_table import Published
from dp_pipelines.report.words.change_words import change_words

MOST = 4
"""Headline numbers of a page."""

MADE_RUN_ID = re.compile(r"[0-9a-f]{24}-[0-9a-f]{24}")
"""A run id that nobody chose: it is made of two digests, and says nothing to readers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headline:
    """A number that stands at the top of the page.

    Args:
        name: of the metric.
        value, bar, low, high: the number, its error bar and both ends of it, as texts.
        scope: what it is of.
        published: whether the release has it as it is, so that nothing was added up for the page.
        likely: both ends of the range of the true number in words; empty where it has none.
        change: since the run before, in words; empty where there is nothing to compare.
        counted: which part of all is counted, in words; empty where it has a range, and where nobody knows.
    """

    name: str
    value: str
    bar: str
    low: str
    high: str
    scope: str
    published: bool
    likely: str = ""
    change: str = ""
    counted: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageTotal:
    """A number that stands for everything that a stage counts.

    Args:
        name: of the metric.
        value, stddev: the number and the standard deviation of its noise.
        published: as for `Headline`.
        likely: as for `Headline`.
    """

    name: str
    value: float
    stddev: float
    published: bool
    likely: str = ""

    @property
    def is_noisy(self) -> bool:
        """Whether it is a number with an error bar."""
        return math.isfinite(self.value) and math.isfinite(self.stddev) and self.stddev > 0


def headlines(
    published: Published,
    stage: Mapping[str, Any],
    known: Mapping[str, type[Metric] | None],
    stage_name: str,
    shown: int,
    before: Mapping[str, Any] = FrozenMapping({}),
) -> list[Headline]:
    """Return the numbers of a stage that may stand at the top of the page.

    Args:
        published: its table.
        stage: its entry in the manifest.
        known: the metric of each column, where it is known.
        stage_name: its name.
        shown: how many rows of the table the page shows.
        before: what the manifest says of the run before.
    """
    count = published.table.num_rows
    sum_of = f"sum of the {count:,} groups {'shown' if count <= shown else 'published'}"
    scope = sum_of if count > 1 else "of the only group"
    entries = mapping(stage.get("metrics"))
    numbers = mapping(mapping(before.get("numbers")).get(stage_name))
    found = []
    for total in totals(published, stage, known):
        whole = (kind := known.get(total.name)) is not None and kind.whole
        parts = rounded_parts(total.value, total.stddev, whole=whole)
        if parts is None:
            continue
        value, bar, low, high = parts
        old = [finite(number) for number in sequence(numbers.get(total.name))]
        change = ""
        if len(old) == 2 and old[0] is not None and old[1] is not None:
            change = change_words((total.value, total.stddev), (old[0], old[1]), _run_words(before), whole=whole)
        found.append(
            Headline(
                name=total.name, value=value, bar=bar, low=low, high=high, published=total.published,
                scope=_total_of(stage_name) if total.published else scope, likely=total.likely, change=change,
                counted="" if total.likely else counted_share(mapping(mapping(entries.get(total.name)).get("kept"))),
            )
        )  # fmt: skip
    return found


def _total_of(stage_name: str) -> str:
    """What a total is of; a stage that is called so needs no name.

    >>> _total_of("weekly"), _total_of("total")
    ('total of weekly', 'total')
    """
    return "total" if stage_name.lower() in ("total", "totals") else f"total of {stage_name}"


def _run_words(before: Mapping[str, Any]) -> str:
    """What a run before is called: a run id that nobody chose says nothing to readers.

    >>> _run_words({"run_id": "2026-W11", "day": "2026-03-16"}), _run_words({"run_id": "", "day": "2026-03-16"})
    ('run 2026-W11, drawn on 2026-03-16', 'the run before, drawn on 2026-03-16')
    """
    run_id, day = text(before.get("run_id")), text(before.get("day"))
    named = f"run {run_id}" if run_id and not MADE_RUN_ID.fullmatch(run_id) else "the run before"
    return f"{named}, drawn on {day}" if day else named


def totals(
    published: Published, stage: Mapping[str, Any], known: Mapping[str, type[Metric] | None]
) -> list[StageTotal]:
    """Return the totals of a stage: those that it publishes, else sums of its groups where they may be added up.

    Args:
        published: its table.
        stage: its entry in the manifest.
        known: the metric of each column, where it is known.
    """
    entries = mapping(stage.get("metrics"))
    metrics = [metric for metric in published.metrics if "raw_of" not in mapping(entries.get(metric.name))]
    top = _top_row(published, stage)
    if top is not None:
        return [
            StageTotal(
                name=metric.name, value=float(metric.values[top]), stddev=float(metric.stddevs[top]), published=True,
                likely="" if metric.truth is None else _likely(float(metric.truth.lows[top]), float(metric.truth.highs[top])),
            )
            for metric in metrics
        ]  # fmt: skip
    part = shown_rows.read_part(stage)
    if (
        not published.table.num_rows
        or finest_rows.is_rollup(stage)
        or (part is not None and part.rows < part.groups)
        or "compare" in stage
        or "top" in stage
    ):
        return []
    return [
        StageTotal(
            name=metric.name,
            value=float(metric.values.sum()),
            stddev=float(np.sqrt((metric.stddevs**2).sum())),
            published=False,
        )
        for metric in metrics
        if is_additive(known.get(metric.name))
    ]


def _likely(low: float, high: float) -> str:
    said = range_in_words(low, high)
    return f"between {said.replace(' … ', ' and ')}" if math.isfinite(low) and math.isfinite(high) else ""


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
