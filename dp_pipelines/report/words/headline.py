"""The headline numbers of a release: totals, and sums where a stage publishes no total.

In: a published table and its stage's entry in the manifest. Out: `Headline`s. Holds: post-processing of released numbers;
people, who may be in several groups, are never added up, nor rows that were chosen for their numbers; the ends of an error bar
are said only where the limits cut off nothing that matters. Not covered: what each limit is (`limit_words`).
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.error_bars import ERROR_BAR, cut_at_range
from dp_pipelines.query.rollup import LEVEL
from dp_pipelines.release import finest_rows, shown_rows
from dp_pipelines.release.verdicts import range_of
from dp_pipelines.report.numbers import finite, rounded_parts
from dp_pipelines.report.pages import mapping, sequence, text
from dp_pipelines.report.range_text import counted_share, estimate_in_words, range_in_words
from dp_pipelines.report.released_table import Numbers, Published
from dp_pipelines.report.words.change_words import change_words
from dp_pipelines.report.words.limit_words import is_at_least, may_cut
from dp_pipelines.report.words.number_format import FormOf, NumberFormat

MOST = 4
"""Headline numbers of a page."""

MADE_RUN_ID = re.compile(r"[0-9a-f]{24}-[0-9a-f]{24}")
"""A run id that nobody chose: it is made of two digests, and says nothing to readers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headline:
    """A number that stands at the top of the page.

    Args:
        name: of the metric.
        value: the counted number, or the estimate of the true one where it has a range.
        bar: the error bar of a counted number; empty for an estimate.
        published: whether the release has it as it is, so that nothing was added up for the page.
        notes: sentences below it: how far it is from the truth, what it is of, and its change since the run before.
        computed: whether it is a formula over released numbers.
    """

    name: str
    value: str
    bar: str
    published: bool
    notes: tuple[str, ...]
    computed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageTotal:
    """A number that stands for everything that a stage counts.

    Args:
        name: of the metric.
        value, stddev: the number and the standard deviation of normal noise with as long an error bar as its noise has.
        published: as for `Headline`.
        truth: the estimate of the true number and both ends of its range; None where it has none with two ends.
    """

    name: str
    value: float
    stddev: float
    published: bool
    truth: tuple[float, float, float] | None = None

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
    *,
    title: str = "",
    form_of: FormOf = lambda name: None,
) -> list[Headline]:
    """Return the numbers of a stage that may stand at the top of the page.

    Args:
        published: its table.
        stage: its entry in the manifest.
        known: the metric of each column, where it is known.
        stage_name: its name.
        shown: how many rows of the table the page shows.
        before: what the manifest says of the run before.
        title: what the page calls it, if not by its name.
        form_of: how the numbers of each metric are written.
    """
    count = published.table.num_rows
    sum_of = f"Sum of the {count:,} groups {'shown' if count <= shown else 'published'}"
    scope = sum_of if count > 1 else "Of the only group"
    entries = mapping(stage.get("metrics"))
    numbers = mapping(mapping(before.get("numbers")).get(stage_name))
    found = []
    for total in totals(published, stage, known):
        entry, kind = mapping(entries.get(total.name)), known.get(total.name)
        whole = kind is not None and kind.whole
        form = form_of(total.name)
        parts = rounded_parts(total.value, total.stddev, whole=whole, form=form)
        if parts is None:
            continue
        value, bar, *_ = parts
        cut = may_cut(stage, entry, kind, total=total.published)
        notes = [_reach(total, parts, stage, entry, kind, cut=cut, form=form)]
        if cut and total.truth is not None:
            notes.append(f"Counted: {value} ± {bar}")
            value, bar = estimate_in_words(*total.truth, form=form), ""
        notes.append(total_of(title or stage_name) if total.published else scope)
        old = [finite(number) for number in sequence(numbers.get(total.name))]
        if len(old) == 2 and old[0] is not None and old[1] is not None:
            since = _run_words(before)
            change = change_words((total.value, total.stddev), (old[0], old[1]), since, whole=whole)
            notes += [f"Counted numbers: {change}"] if change else []
        found.append(Headline(name=total.name, value=value, bar=bar, published=total.published, notes=tuple(notes)))
    return found


def _reach(
    total: StageTotal,
    parts: tuple[str, str, str, str],
    stage: Mapping[str, Any],
    entry: Mapping[str, Any],
    kind: type[Metric] | None,
    *,
    cut: bool,
    form: NumberFormat | None,
) -> str:
    """Return how far a number is from the truth, as far as that is known.

    Args:
        total: the number.
        parts: the number, its error bar and both ends of that, as texts.
        stage, entry: of its stage and its metric in the manifest.
        kind: what its metric is, where that is known.
        cut: whether the limits may have cut something off.
        form: how the number is written.
    """
    low, high = _cut_ends(total, parts, entry)
    if not cut:
        return f"Between {low} and {high}"
    if total.truth is not None:
        return f"Likely between {range_in_words(*total.truth[1:], form=form).replace(' … ', ' and ')}"
    kept = mapping(entry.get("kept"))
    if kept.get("divided_by") == 1:
        return f"Between {low} and {high}; the limits cut off too little to be told from noise"
    if share := counted_share(total.name, kept):
        return share[:1].upper() + share[1:]
    if is_at_least(stage, entry, kind):
        return f"As counted; in truth likely at least {low}: what the limits left out is not known"
    return "As counted; how much the limits change it is not known"


def _cut_ends(total: StageTotal, parts: tuple[str, str, str, str], entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return both ends of an error bar, which ends where the true number must end. Arguments as for `_reach`.

    >>> total = StageTotal(name="n", value=11.75, stddev=0.25, published=True)
    >>> _cut_ends(total, ("11.75", "0.49", "11.26", "12.24"), {"range": [0.0, 12.0]})
    ('11.26', '12')
    """
    bar = ERROR_BAR * total.stddev
    free = total.value - bar, total.value + bar
    ends = cut_at_range(total.value, *free, range_of(entry) or free)
    low, high = (
        text if end == before else f"{end:,.4g}" for text, end, before in zip(parts[2:], ends, free, strict=True)
    )
    return low, high


def total_of(stage_name: str) -> str:
    """What a total is of; a stage that is called so needs no name.

    >>> total_of("weekly"), total_of("total"), total_of("The whole business")
    ('Total of weekly', 'Total', 'Total of “The whole business”')
    """
    if stage_name.lower() in ("total", "totals"):
        return "Total"
    return f"Total of “{stage_name}”" if " " in stage_name else f"Total of {stage_name}"


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
                name=metric.name, value=float(metric.values[top]), stddev=float(metric.normal_stddevs[top]), published=True,
                truth=_truth(metric, top),
            )
            for metric in metrics
        ]  # fmt: skip
    if (
        not published.table.num_rows
        or finest_rows.is_rollup(stage)
        or shown_rows.are_chosen(stage)
        or "compare" in stage
    ):
        return []
    return [
        StageTotal(
            name=metric.name,
            value=float(metric.values.sum()),
            stddev=float(np.sqrt((metric.normal_stddevs**2).sum())),
            published=False,
        )
        for metric in metrics
        if is_additive(known.get(metric.name))
    ]


def _truth(metric: Numbers, row: int) -> tuple[float, float, float] | None:
    """The estimate of a row and both ends of its range; None where one of them is missing."""
    if metric.truth is None:
        return None
    ends = (metric.truth.estimates[row], metric.truth.lows[row], metric.truth.highs[row])
    return (float(ends[0]), float(ends[1]), float(ends[2])) if np.isfinite(ends).all() else None


def is_additive(kind: type[Metric] | None) -> bool:
    """Return True if numbers of groups may be added up: a customer may be in several groups, a row is in one."""
    return kind is not None and kind.rolls_up == "sum"


def first(found: Iterable[Headline]) -> list[Headline]:
    """Return the headlines of a page: published totals, of each stage its own; without one sums, of each metric the first."""
    every = list(found)
    listed = [one for one in every if one.published]
    if not listed:
        distinct: dict[str, Headline] = {}
        for one in every:
            distinct.setdefault(f"{one.name}: {one.notes[-1]}" if one.computed else one.name, one)
        listed = list(distinct.values())
    return _most_telling(listed)


def _most_telling(every: Sequence[Headline]) -> list[Headline]:
    """Return at most `MOST` headlines in their order: of too many, two formulas stay beside two counted numbers."""
    computed = [one for one in every if one.computed]
    counted = [one for one in every if not one.computed]
    kept = computed[: max(MOST // 2, MOST - len(counted))]
    kept += counted[: MOST - len(kept)]
    return [one for one in every if one in kept]


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
