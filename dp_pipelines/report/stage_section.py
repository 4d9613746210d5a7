"""The part of a report that shows one stage: its charts, its table, and what must be known to read them.

In: the stage's entry in the manifest (any part of it may be missing) and its published file. Out: a dictionary for the
template. Holds: bounded, however large the table is; nothing but released numbers and public facts. Not covered: models,
which have no table.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import RAW, Metric
from dp_pipelines.metrics.sums import Mean
from dp_pipelines.planning.noise_levels import passing_noise
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.release import finest_rows, shown_rows, verdicts
from dp_pipelines.report import clamp_warnings, compare_section
from dp_pipelines.report.chart_choices import finest, rolled_up, rollup_order
from dp_pipelines.report.derived import derived_cells, derived_columns, weighted_means
from dp_pipelines.report.derived.derived_cells import DerivedCells
from dp_pipelines.report.derived.derived_columns import is_only_shown
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.list_charts import ListStyle, list_plots, number_cells, style_of
from dp_pipelines.report.numbers import error_bar_parts, public_number
from dp_pipelines.report.pages import mapping, sequence, text
from dp_pipelines.report.range_text import HEADING, estimate_in_words, range_in_words
from dp_pipelines.report.released_table import (
    OTHER_KEYS,
    Key,
    Lists,
    Numbers,
    PrintedOrder,
    Published,
    Truth,
    laws_of,
    of_table,
    printed_order,
    ranking,
    read_published,
)
from dp_pipelines.report.stage_charts import MOST_PLOTTED, charts_of
from dp_pipelines.report.words import arm_verdicts, headline
from dp_pipelines.report.words.derived_headlines import derived_headlines
from dp_pipelines.report.words.limit_words import may_cut, metrics_by_column
from dp_pipelines.report.words.number_format import FormOf, NumberFormat
from dp_pipelines.report.words.presented import Presented, renamed_stage
from dp_pipelines.report.words.unit_name import plural

FIRST_ROWS = 200
"""Rows of a table on the page."""

ENOUGH = 0.9
"""The part of the numbers of a metric that must stand out of the noise; of fewer the page says how many do."""

OWN_CONDITION = "a where or a window of the job"
"""What may leave few rows of any job. A manifest does not say whether the job has it."""

NONE = "-"
"""What stands in a text for no number."""

ALL, OTHERS = "all", "rest"
"""In a rollup's table: a column that a level does not have, and the row of what is not published."""

PERIODS: Mapping[str, str] = {"week": "weeks from", "month": "months of"}
"""What stands before the first of several times that each begin a week or a month."""

Words = Callable[[str, int], str | None]
"""What stands in a column in some row instead of its null."""


def _as_it_is(column: str, row: int) -> str | None:
    return None


def _no_form(name: str) -> NumberFormat | None:
    return None


def stage_section(
    name: str,
    stage: Mapping[str, Any],
    path: pathlib.Path | None,
    unit: str,
    before: Mapping[str, Any] = FrozenMapping({}),
    shown: Presented | None = None,
    params: Mapping[str, Any] = FrozenMapping({}),
) -> dict[str, Any]:
    """What the template shows of a stage.

    Args:
        name: of the stage.
        stage: its entry in the manifest, {} where there is none.
        path: of its published Parquet file; None where it published none.
        unit: the privacy unit in words.
        before: what the manifest says of the run before.
        shown: how the job wants it to be shown; None: under its own names.
        params: what the run was given, by name.

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read.
    """
    keys = stage.get("partition_by")
    named = isinstance(keys, Sequence) and not isinstance(keys, str) and all(isinstance(key, str) for key in keys)
    published = (
        None
        if path is None
        else read_published(path, list(keys) if named and keys is not None else None, laws_of(stage))
    )
    renamed = {}
    title = name if shown is None or not shown.title else shown.title
    form_of = _no_form if shown is None else shown.form_of
    as_released, as_published = stage, None if published is None else published.table
    computed_headlines = [] if published is None else _computed_headlines(published, stage, title, form_of)
    if published is not None and shown is not None:
        renamed = shown.columns(published.table, [key.name for key in published.keys])
    if published is not None and renamed:
        names = [renamed.get(column, column) for column in published.table.column_names]
        stage, before = renamed_stage(stage, renamed), _renamed_numbers(before, name, renamed)
        key_names = [key.name for key in published.keys]
        published = of_table(published.table.rename_columns(names), key_names, laws_of(stage))
    entries = {text(key): entry for key, entry in mapping(stage.get("metrics")).items() if isinstance(entry, Mapping)}
    section: dict[str, Any] = {
        "name": name,
        "model": False,
        "file": None if path is None else path.name,
        "selection": _selection(stage.get("selection")),
        "units": plural(unit),
        "most": _chosen_bound(stage, "max_partitions_contributed"),
        "most_rows": _chosen_bound(stage, "max_contributions_per_partition"),
        "compare": compare_section.section(stage.get("compare")),
        "verdict_of_arms": arm_verdicts.lines(stage.get("compare")),
        "rows": 0,
        "plots": [],
        "spreads": [],
        "legend": [],
        "warnings": [],
        "turn": "",
        "overlaps": "groups",
        "headlines": [],
    }
    if published is None or as_published is None:
        return section
    said = {metric.name: entries.get(metric.name, {}).get("kind") for metric in published.in_order}
    known = {name: registry.of_kind(kind) for name, kind in said.items()}
    styles = {found.name: style_of(known[found.name], entries.get(found.name, {})) for found in published.lists}
    part = shown_rows.read_part(stage)
    section["shown_part"] = [] if part is None else [text(words) for words in part.words]
    section["chooses"] = part is not None and part.chooses
    best = section["selection"]["best"] is not None
    order_by = shown_rows.order_of(stage) or (() if part is None else part.order_by)
    order_by = tuple(dataclasses.replace(one, column=renamed.get(one.column, one.column)) for one in order_by)
    order_by = order_by or rollup_order(stage)
    order = printed_order(published, said, FIRST_ROWS, best=best, order_by=order_by)
    readable, words = _readable(published, stage)
    section |= table_of(readable, styles, entries, order, known, words, form_of)
    computed = list(derived_cells.cells_of(published.table, stage, order.rows, form_of))
    section["computed"] = bool(computed)
    section["only_here"] = [one.name for one in computed if is_only_shown(stage, one.name)]
    _append_computed(section, computed)
    if finest_rows.is_rollup(stage) and order.by == LEVEL:
        section |= {"by": "", "order": "levels, the totals first"}
    section["raw"] = any(metric.name.endswith(RAW) for metric in published.in_order) and finest_rows.is_rollup(stage)
    values = sorted((visible(str(key)), text(value)) for key, value in params.items())
    narrowed_by = [OWN_CONDITION, *(f"{key} = {value}" for key, value in values)]
    section["nothing"] = verdicts.nothing_published(stage, narrowed_by, plural(unit))
    pairs = weighted_means.pairs_of(as_released, published.table, renamed)
    sums = {one for pair in pairs for one in (pair.weighted, pair.weights)}
    section["metrics"] = [
        one for one in dict.fromkeys(column["name"] for column in section["columns"]) if one not in sums
    ]
    section["ranges"] = any(column.get("range") for column in section["columns"])
    section["period"] = _period(published)
    section["turn"] = turn_words(published)
    counted = headline.headlines(published, stage, known, name, FIRST_ROWS, before, title=title, form_of=form_of)
    section["headlines"] = [
        *(one for one in counted if one.name not in sums),
        *(dataclasses.replace(one, name=renamed.get(one.name, one.name)) for one in computed_headlines),
    ]
    section["not_added"] = [
        metric.name for metric in readable.metrics if _may_overlap(known[metric.name]) and published.table.num_rows > 1
    ]
    found = {renamed.get(metric, metric): one for metric, one in verdicts.told(as_published, as_released).items()}
    warnings = _warnings(stage, found)
    section["warnings"] = warnings.pop("", [])
    columns = {metric: column for column, metrics in metrics_by_column(stage).items() for metric in metrics}
    columns |= {
        name: columns[base] for name, entry in entries.items() if (base := text(entry.get("raw_of"))) in columns
    }
    legend = {
        metric.name: {
            "name": metric.name,
            "words": _words(known[metric.name], unit, columns.get(metric.name))
            + _chosen_bounds(entries.get(metric.name, {}))
            + _shrunk(entries.get(metric.name, {})),
            "bar": _usual_bar(metric, whole=_is_whole(known[metric.name]), form=form_of(metric.name)),
            "warnings": warnings.get(metric.name, []),
        }
        for metric in published.in_order
        if not (finest_rows.is_rollup(stage) and "raw_of" in entries.get(metric.name, {}))
    }
    section["verdict_note"] = verdicts.note({key: one for key, one in found.items() if _falls_short(one)}, stage)
    rollup = rolled_up(published, stage)
    # The table has all; plots show a mean as it is after shrinkage alone.
    plotted = tuple(metric for metric in published.metrics if "raw_of" not in entries.get(metric.name, {}))
    published = finest(dataclasses.replace(published, metrics=plotted), stage)
    published = weighted_means.in_place_of_sums(published, pairs)
    known |= {pair.name: registry.of_kind(Mean.kind) for pair in pairs}
    if published.table.num_rows and (published.metrics or published.lists):
        leader = ranking(published, said | {name: style.name for name, style in styles.items()})
        cut = {name for name in known if may_cut(stage, entries.get(name, {}), known[name], total=False)}
        how = shown or Presented(title="", description="", labels={})
        numbers = {name: how.number_style(name, entries.get(name, {}), known[name]) for name in known}
        section["plots"] = (
            charts_of(published, leader, known, rollup, cut, numbers, may_be_added_up=not shown_rows.are_chosen(stage))
            if published.keys
            else []
        )  # a total's numbers need none
        section["spreads"] = [
            list_plots(found, styles[found.name], entries.get(found.name, {}), published, leader, numbers[found.name])
            for found in published.lists[:MOST_PLOTTED]
        ]
    section["plots"] = [
        plot for plot in section["plots"] if plot["series"] or plot["panels"] or plot["bars"] or plot["heat"]
    ]
    if "compare" in stage:  # which arm is better is said by the comparison
        section["plots"] = [{**plot, "finding": ""} for plot in section["plots"]]
    for plot in (*section["plots"], *section["spreads"]):
        plot |= {"about": legend.pop(plot["metric"], {"words": "", "bar": None, "warnings": []})}
    section["legend"] = [*legend.values(), *derived_legend(stage, computed)]
    section["unplotted"] = [metric.name for metric in published.metrics[MOST_PLOTTED:] if published.keys]
    section["unplotted"] += [found.name for found in published.lists[MOST_PLOTTED:]]
    return section


def _computed_headlines(
    published: Published, stage: Mapping[str, Any], title: str, form_of: FormOf
) -> list[headline.Headline]:
    """Return the headlines of formulas, under the names of the release, which the formulas use."""
    entries = mapping(stage.get("metrics"))
    known = {
        metric.name: registry.of_kind(mapping(entries.get(metric.name)).get("kind")) for metric in published.metrics
    }
    return derived_headlines(published, stage, known, title, form_of)


def _readable(published: Published, stage: Mapping[str, Any]) -> tuple[Published, Words]:
    """What the page shows of a table: of a rollup neither its levels nor the numbers before they were made to add up."""
    columns = {key.name: key for key in published.keys}
    if not finest_rows.is_rollup(stage) or LEVEL not in columns:
        return published, _as_it_is
    levels = sequence(mapping(stage.get(finest_rows.ENTRY)).get("levels"))
    level, rest, entries = columns[LEVEL], columns.get(REST), mapping(stage.get("metrics"))

    def words(column: str, row: int) -> str | None:
        number = level.text(int(level.codes[row])) or ""
        at = int(number) if number.isdecimal() else len(levels)
        if at >= len(levels) or column not in columns:
            return None
        if column not in sequence(levels[at]):
            return ALL
        left = rest is not None and rest.text(int(rest.codes[row])) == "true"
        return OTHERS if left and (at == 0 or column not in sequence(levels[at - 1])) else None

    return dataclasses.replace(
        published,
        keys=tuple(key for key in published.keys if key.name not in (LEVEL, REST)),
        metrics=tuple(m for m in published.metrics if "raw_of" not in mapping(entries.get(m.name))),
    ), words


def _period(published: Published) -> str:
    """The first and the last day or month that a table is about, in words; nothing where it has no calendar."""
    time = published.time
    if time is None or time.days is None or time.counted:
        return ""
    codes = np.unique(time.codes)
    codes = codes[np.isfinite(time.days[codes])]
    first, last = (int(codes[at(time.days[codes])]) for at in (np.argmin, np.argmax))
    # A date that begins a week stands for all of it, so that the period ends six days later.
    end = str(np.datetime64(int(time.days[last]) + 6, "D")) if time.whole == "week" else time.short(last)
    return f"{PERIODS.get(time.whole, 'from')} {time.short(first)} to {end}"


def turn_words(published: Published) -> str:
    """Return a sentence where numbers of weeks or months run over the turn of a year; nothing elsewhere."""
    time = published.time
    if time is None or time.days is None or not time.turns:
        return ""
    codes = np.unique(time.codes)
    codes = codes[np.isfinite(time.days[codes])]
    codes = codes[np.argsort(time.days[codes], kind="stable")]
    first, *_, last = (time.short(int(code)) for code in codes)
    name = visible(time.name)
    return f"{name} {first} to {last} are shown over the turn of a year, since those between {last} and {first} are missing"


def _renamed_numbers(before: Mapping[str, Any], stage: str, renamed: Mapping[str, str]) -> dict[str, Any]:
    """Return what the manifest says of the run before, with the numbers of a stage under the names that the page shows."""
    numbers = mapping(before.get("numbers"))
    found = {renamed.get(metric, metric): number for metric, number in mapping(numbers.get(stage)).items()}
    return {**before, "numbers": {**numbers, stage: found}}


def _warnings(stage: Mapping[str, Any], found: Mapping[str, verdicts.Verdict]) -> dict[str, list[str]]:
    """What must be said next to the numbers of each metric; of the stage where no metric is meant, under an empty name."""
    told: dict[str, list[str]] = {}
    large = bool(stage.get(passing_noise.ENTRY))
    entries = mapping(stage.get("metrics"))
    for name, verdict in found.items():
        if large or _falls_short(verdict):
            # The page shows a rollup without its raw columns; what is said of one is about the same metric.
            base = mapping(entries.get(name)).get("raw_of") if finest_rows.is_rollup(stage) else None
            told.setdefault(text(base) or name, []).append(verdict.words)
    columns = metrics_by_column(stage)
    for subject, sentence in clamp_warnings.of_stage(stage):
        (name, *_) = columns.get(subject) or ([subject] if subject in entries else [""])
        told.setdefault(name, []).append(sentence.removeprefix("warning: "))
    return told


def _falls_short(verdict: verdicts.Verdict) -> bool:
    """Return True if so many numbers do not stand out of the noise that readers must know."""
    return verdict.clear < ENOUGH * verdict.numbers


def _may_overlap(kind: type[Metric] | None) -> bool:
    """Return True if one unit counts in several groups, so that nobody may add them up."""
    return kind is not None and kind.rolls_up == "units"


def _is_whole(kind: type[Metric] | None) -> bool:
    return kind is not None and kind.whole


def _chosen_bounds(entry: Mapping[str, Any]) -> str:
    """What the legend says of bounds that the run has chosen, or that differ by partition.

    >>> _chosen_bounds({"bounds": [0.0, 172.63349]}), _chosen_bounds({})
    (', each value clamped to 0 … 172.6 (bounds chosen privately in this run)', '')
    >>> _chosen_bounds({"clamp": {"words": "0 … most"}})
    ", each value clamped to 0 … most (by partition; each partition's noise follows its own clamp)"
    """
    bounds, clamp = entry.get("bounds"), entry.get("clamp")
    if isinstance(clamp, Mapping) and isinstance(clamp.get("words"), str):
        return f", each value clamped to {clamp['words']} (by partition; each partition's noise follows its own clamp)"
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        return ""
    low, high = (_finite(bound) for bound in bounds)
    if low is None or high is None:
        return ""
    return f", each value clamped to {low:.4g} … {high:.4g} (bounds chosen privately in this run)"


def _shrunk(entry: Mapping[str, Any]) -> str:
    """What the legend says of a mean that is shrunk, and of what it was before.

    >>> _shrunk({"raw_of": "basket"}), _shrunk({})
    (', as noise left it, before basket was shrunk', '')
    """
    if entry.get("rolled_up") is not None:
        return _rolled_up(entry)
    if entry.get("shrunk") is True:
        return (
            ", shrunk: pulled towards those of the other groups as far as its noise makes that likely; over all groups, 95% of "
            "the error bars cover the true mean, if the groups are roughly alike"
        )
    of = entry.get("raw_of")
    return f", as noise left it, before {of} was shrunk" if isinstance(of, str) else ""


def _rolled_up(entry: Mapping[str, Any]) -> str:
    """What the legend says of a metric of a rollup.

    >>> _rolled_up({"rolled_up": "sum"}), _rolled_up({"rolled_up": "sum", "raw_of": "orders"})
    (', made to add up: each group is the sum of its parts', ', as noise left it, before orders was made to fit other levels')
    """
    if isinstance(entry.get("raw_of"), str):
        return f", as noise left it, before {entry['raw_of']} was made to fit other levels"
    return {
        "sum": ", made to add up: each group is the sum of its parts",
        "units": ", made to fit: no part is above its group",
    }.get(str(entry["rolled_up"]), ", from sums that add up")


def _chosen_bound(stage: Mapping[str, Any], name: str) -> str | None:
    """A bound on the contributions of a unit, if the run has chosen it.

    >>> _chosen_bound({"max_partitions_contributed": 8}, "max_partitions_contributed"), _chosen_bound({}, "other")
    ('8', None)
    """
    most = _finite(stage.get(name))
    return None if most is None else public_number(most)


def _words(kind: type[Metric] | None, unit: str, column: str | None) -> str:
    """What a metric is, with the name of its column where the manifest tells it.

    >>> _words(registry.of_kind("sum"), "value of customer_id", "price"), _words(registry.of_kind("sum"), "", None)
    ('the sum of price', 'the sum of a column')
    """
    if kind is None:
        return ""
    words = kind.words.replace("{units}", plural(unit))
    return words if column is None else words.replace("of a column", f"of {visible(column)}")


def _selection(selection: Any) -> dict[str, Any]:
    found = selection if isinstance(selection, Mapping) else {}
    half, least = _finite(found.get("half_keep_users")), _finite(found.get("min_users"))
    return {
        "known": bool(found),
        "public": found.get("strategy") == "public",
        "other": "other" in found,
        "best": public_number(candidates) if (candidates := _finite(found.get("candidates"))) is not None else None,
        "half": None if half is None else public_number(math.ceil(half)),
        "least": public_number(least) if least is not None and least > 1 else None,
    }


def _finite(value: Any) -> float | None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and -1e18 < value < 1e18
    return value if sound else None


def table_of(
    published: Published,
    styles: Mapping[str, ListStyle],
    entries: Mapping[str, Any],
    order: PrintedOrder | None = None,
    known: Mapping[str, type[Metric] | None] = FrozenMapping({}),
    words: Words = _as_it_is,
    form_of: FormOf = _no_form,
) -> dict[str, Any]:
    """The first rows as cells.

    Args:
        published: a table.
        styles: how each of its lists is shown.
        entries: what the manifest says of each metric.
        order: of the rows; None takes that of the table.
        known: what each metric is, where it is known.
        words: what stands instead of nulls.
        form_of: how the numbers of each metric are written.
    """
    if order is None:
        order = PrintedOrder(rows=np.arange(min(published.table.num_rows, FIRST_ROWS)), by="")
    columns: list[dict[str, Any]] = []
    for metric in (metric.taken(order.rows) for metric in published.in_order):
        form = form_of(metric.name)
        if isinstance(metric, Lists):
            columns += styles[metric.name].columns(metric, entries.get(metric.name, {}), FIRST_ROWS, form)
        else:
            within = verdicts.range_of(entries.get(metric.name, {}))
            whole = _is_whole(known.get(metric.name))
            cells = number_cells(metric.values, metric.normal_stddevs, FIRST_ROWS, within, whole=whole, form=form)
            columns.append({"name": metric.name, "label": "", "bins": False, "cells": cells})
            if metric.truth is not None:
                columns.append(_range_column(metric.name, metric.truth, cells, form))
    texts = [[_key_cell(key, int(row), words) for row in order.rows] for key in published.keys]
    return {
        "rows": published.table.num_rows,
        "keys": [key.name for key in published.keys],
        "columns": columns,
        "body": [
            {"keys": [column[at] for column in texts], "cells": [column["cells"][at] for column in columns]}
            for at in range(len(order.rows))
        ],
        "more": f"{max(0, published.table.num_rows - FIRST_ROWS):,}",
        "count": f"{published.table.num_rows:,}",
        "shown": len(order.rows),
        "by": order.by,
        "largest": bool(order.by) and order.largest,
        "latest": order.latest,
        "noise": any(cell.get("noise") for column in columns for cell in column["cells"]),
    }


def _append_computed(section: dict[str, Any], computed: Sequence[DerivedCells]) -> None:
    """Add the columns of numbers that are computed from released ones to those of a table."""
    for one in computed:
        estimates = [""] * len(one.values) if one.estimates is None else one.estimates
        cells = [
            {"bar": None, "noise": "", "interval": interval, "unsure": unsure}
            | {"value": None if value == NONE else value, "estimate": "–" if estimate == NONE else estimate}
            for value, interval, unsure, estimate in zip(one.values, one.intervals, one.unsure, estimates, strict=True)
        ]
        section["columns"].append({"name": one.name, "label": "", "bins": False, "cells": cells})
        if one.ranges is not None:
            ranges = [{"range": "–" if said == NONE else said} for said in one.ranges]
            section["columns"].append(
                {"name": one.name, "label": HEADING, "bins": False, "range": True, "cells": ranges}
            )
    for at, row in enumerate(section["body"]):
        row["cells"] = [column["cells"][at] for column in section["columns"]]


def derived_legend(stage: Mapping[str, Any], computed: Sequence[DerivedCells]) -> list[dict[str, Any]]:
    """Return the entries of a legend for numbers that are computed from released ones."""
    said = dict(zip(mapping(stage.get(derived_columns.ENTRY)), derived_columns.lines(stage), strict=True))
    return [
        {"name": one.name, "words": said[one.name].removeprefix(f"{one.name}: "), "bar": None, "warnings": []}
        for one in computed
    ]


def _range_column(
    name: str, truth: Truth, cells: Sequence[dict[str, Any]], form: NumberFormat | None
) -> dict[str, Any]:
    """The column of ranges of a metric; the cells of the metric get their estimates."""
    ends = zip(truth.estimates.tolist(), truth.lows.tolist(), truth.highs.tolist(), strict=True)
    texts = []
    for cell, (estimate, low, high) in zip(cells, ends, strict=False):
        cell["estimate"] = "–" if math.isnan(estimate) else estimate_in_words(estimate, low, high, form=form)
        said = range_in_words(low, high, form=form)
        texts.append({"range": "–" if said == "-" else said})
    return {"name": name, "label": HEADING, "bins": False, "range": True, "cells": texts}


def _key_cell(key: Key, row: int, words: Words) -> str | Markup | None:
    said = OTHER_KEYS if key.is_other(row) else words(key.name, row)
    return key.text(int(key.codes[row])) if said is None else Markup('<i class="nothing">{}</i>').format(said)


def _usual_bar(metric: Numbers | Lists, *, whole: bool, form: NumberFormat | None) -> str | None:
    """Half the length of the error bars, where all are the same."""
    known = metric.bars[np.isfinite(metric.stddevs)]
    if not len(known) or known.max() > known.min() * (1 + 1e-9):
        return None
    parts = error_bar_parts(
        0.0, float(metric.normal_stddevs[np.isfinite(metric.stddevs)][0]), grouped=True, whole=whole, form=form
    )
    return None if parts is None else parts[1]
