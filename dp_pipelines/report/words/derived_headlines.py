"""The headline numbers of formulas over totals, such as revenue per order over all groups.

In: the totals of a stage and its entry in the manifest, both under the names of the release. Out: `Headline`s. Holds:
post-processing of released numbers. Over sums of groups only quotients have one, and only where the noise of the sums is known:
Gaussian, and alike in all groups. Not covered: the columns of a table (`derived_columns`), which are per group.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.metrics.base import Metric
from dp_pipelines.release.ranges import ENTRY as KEPT
from dp_pipelines.report.derived import derived_columns
from dp_pipelines.report.derived.derived_columns import Derived
from dp_pipelines.report.pages import mapping, text
from dp_pipelines.report.range_text import estimate_in_words, range_in_words
from dp_pipelines.report.released_table import Published
from dp_pipelines.report.words.headline import Headline, total_of, totals
from dp_pipelines.report.words.limit_words import may_cut
from dp_pipelines.report.words.number_format import FormOf, NumberFormat


def derived_headlines(
    published: Published,
    stage: Mapping[str, Any],
    known: Mapping[str, type[Metric] | None],
    title: str,
    form_of: FormOf = lambda name: None,
) -> list[Headline]:
    """Return the numbers of a stage's formulas that may stand at the top of the page.

    Args:
        published: its table.
        stage: its entry in the manifest.
        known: the metric of each column, where it is known.
        title: what the page calls it.
        form_of: how the numbers of each formula are written.
    """
    said = mapping(stage.get(derived_columns.ENTRY))
    added = {total.name: total for total in totals(published, stage, known)} if said else {}
    if not added:
        return []
    numbers = {name: [total.value] for name, total in added.items()}
    noise = {f"{name}_stddev": [total.stddev] for name, total in added.items()}
    row = pa.table(numbers | noise)
    formulas = {text(name): text(mapping(entry).get("formula")) for name, entry in said.items()}
    found = []
    for derived in derived_columns.of_stage(stage, formulas, row.column_names):
        parts = [added[name] for name in derived.formula.names if name in added]
        if derived.formula.totals:  # of all groups together it says nothing
            continue
        as_published = all(total.published for total in parts)
        if not (as_published or _may_be_added_up(derived, published)):
            continue
        value, low, high, *truth = (float(numbers[0]) for numbers in derived.columns(row))
        if math.isnan(value):
            continue
        entries = [mapping(mapping(stage.get("metrics")).get(total.name)) for total in parts]
        cut = any(
            may_cut(stage, entry, known.get(total.name), total=as_published)
            for total, entry in zip(parts, entries, strict=True)
        )
        too_little = all(mapping(entry.get(KEPT)).get("divided_by") == 1 for entry in entries)
        shown, notes = _in_words(
            (value, low, high), truth, cut=cut, too_little=cut and too_little, form=form_of(derived.name)
        )
        count = published.table.num_rows
        of_sums = f"Of the sums over the {count:,} groups of {title}" if count > 1 else "Of the only group"
        notes.append(total_of(title) if as_published else of_sums)
        found.append(
            Headline(name=derived.name, value=shown, bar="", published=as_published, computed=True, notes=tuple(notes))
        )
    return found


def _may_be_added_up(derived: Derived, published: Published) -> bool:
    """Return True if a formula over sums of groups has a meaning of its own, and an interval.

    A quotient does not grow with the number of groups. The covariance of two sums is that of their groups times their number if
    all groups have the same noise, which is drawn for each group alone; a sum of Gaussian noise is Gaussian.

    Args:
        derived: the formula.
        published: the table of the groups.
    """
    parts = derived.formula.quotient()
    deviations = {metric.name: metric.stddevs for metric in published.metrics}
    return (
        not isinstance(derived.noise, str)
        and derived.noise.gaussian
        and parts is not None
        and bool(parts[1].factors)
        and not any(part.constant for part in parts)
        and all(
            deviations[name].max() - deviations[name].min() <= derived_columns.ALIKE * deviations[name].max()
            for name in derived.formula.names
        )
    )


def _in_words(
    noisy: Sequence[float],
    truth: Sequence[float],
    *,
    cut: bool,
    too_little: bool = False,
    form: NumberFormat | None = None,
) -> tuple[str, list[str]]:
    """Return a number as text, and how far it is from the truth.

    Args:
        noisy: the number and both ends of what noise may have changed.
        truth: the estimate and both ends of its range; NaN for none.
        cut: whether the limits may have cut something off.
        too_little: whether that is too little to be told from noise.
        form: how the number is written.

    >>> nothing = [math.nan] * 3
    >>> _in_words([24.0, 23.0, 25.1], nothing, cut=False)
    ('24.0', ['Between 23.0 and 25.1'])
    >>> print(*_in_words([24.0, 23.0, 25.1], nothing, cut=True)[1], sep="; ")
    Noise alone: between 23.0 and 25.1; how much the limits change it is not known
    >>> _in_words([24.0, 23.0, 25.1], [26.0, 20.0, 31.0], cut=True)
    ('26', ['Likely between 20 and 31', 'Counted: 24.0, by noise alone between 23.0 and 25.1'])
    """
    value, ends = estimate_in_words(*noisy, form=form), _ends_in_words(*noisy[1:], form=form)
    if not cut:
        return value, [f"Between {ends}"]
    if too_little:
        return value, [f"Between {ends}; the limits cut off too little to be told from noise"]
    if not any(math.isnan(number) for number in truth):
        likely = f"Likely between {_ends_in_words(*truth[1:], form=form)}"
        return estimate_in_words(*truth, form=form), [likely, f"Counted: {value}, by noise alone between {ends}"]
    return value, [f"Noise alone: between {ends}; how much the limits change it is not known"]


def _ends_in_words(low: float, high: float, *, form: NumberFormat | None) -> str:
    return range_in_words(low, high, form=form).replace(" … ", " and ")
