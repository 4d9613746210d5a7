"""The tables of a stage from several runs as one table: each number as a series over the runs.

In: published tables of one stage. Out: `Published` with one more key, the run; charts and a table for the template. Holds: it
reads released tables and nothing else; what a run has not published is a gap; bounded, however many runs there are.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric
from dp_pipelines.release import finest_rows, shown_rows
from dp_pipelines.report.chart_choices import panels_over_time
from dp_pipelines.report.derived import weighted_means
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.list_charts import list_plots, style_of
from dp_pipelines.report.pages import mapping, mappings, sequence, text
from dp_pipelines.report.released_table import (
    Codes,
    Key,
    Numbers,
    Published,
    groups,
    laws_of,
    of_table,
    ranking,
    read_published,
)
from dp_pipelines.report.stage_charts import MOST_PLOTTED, series_over_time
from dp_pipelines.report.stage_section import table_of, turn_words
from dp_pipelines.report.trends.published_runs import WINDOW, ReleasedRun, RunOrder
from dp_pipelines.report.words.chart_words import shown_number
from dp_pipelines.report.words.headline import is_additive
from dp_pipelines.report.words.number_format import NumberStyle
from dp_pipelines.report.words.presented import Presented, renamed_stage
from dp_pipelines.report.words.unit_name import plural

RUN = "run"
"""What the page calls the key that tells the runs apart."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunKey(Key):
    """The key that tells the runs apart, told by its type: a partition column may have its name."""


def stage_over_runs(
    name: str, stage: Mapping[str, Any], runs: Sequence[ReleasedRun], order: RunOrder, unit: str, shown_as: Presented
) -> dict[str, Any]:
    """What the template shows of a stage over the runs.

    Args:
        name: of the stage.
        stage: its entry in the manifest of the last run that has it.
        runs: in order.
        order: of the runs.
        unit: the privacy unit in words.
        shown_as: how the job wants the stage to be shown.

    Raises:
        OSError, pyarrow.ArrowException: a table cannot be read, or two have columns of different types.
    """
    as_released = stage
    published, stage = over_runs(name, stage, runs, order, shown_as)
    pairs = weighted_means.pairs_of(as_released, published.table, shown_as.labels)
    published = weighted_means.in_place_of_sums(published, pairs)
    sums = {one for pair in pairs for one in (pair.weighted, pair.weights)}
    stage = {**stage, "metrics": {**mapping(stage.get("metrics")), **weighted_means.entries_of(pairs)}}
    entries = {text(metric): mapping(entry) for metric, entry in mapping(stage.get("metrics")).items()}
    # As on the page of one run: a mean is plotted as it is after shrinkage alone.
    shown = tuple(metric for metric in published.metrics if "raw_of" not in entries.get(metric.name, {}))
    published = dataclasses.replace(published, metrics=shown)
    kinds = {metric: registry.of_kind(entry.get("kind")) for metric, entry in entries.items()}
    styles = {found.name: style_of(kinds.get(found.name), entries.get(found.name, {})) for found in published.lists}
    said = {metric: entry.get("kind") for metric, entry in entries.items()}
    leader = ranking(published, said | {metric: style.name for metric, style in styles.items()})
    panels = panels_over_time(published, leader)
    others = [key for key in published.keys if key is not published.time]
    about = {
        metric: {"name": metric, "words": kind.words.replace("{units}", plural(unit)), "bar": None, "warnings": []}
        for metric in published.table.column_names
        if metric not in sums and (kind := kinds.get(metric)) is not None
    }
    unknown: dict[str, Any] = {"words": "", "bar": None, "warnings": []}
    shared = {
        "leader": leader.name,
        "others": [key.name for key in others],
        "time": published.time.name if published.time else RUN,
        "groups": _count(others, published.table.num_rows),
        "panels": [],
        "bars": None,
        "heat": None,
        "rest": "",
        "finding": "",
        "together": None,
    }
    numbers = {
        metric.name: shown_as.number_style(metric.name, entries.get(metric.name, {}), kinds.get(metric.name))
        for metric in published.in_order
    }
    plotted_metrics, chosen = published.metrics[:MOST_PLOTTED], _chosen(name, runs)
    drawn = [
        _with_totals(
            metric, kinds.get(metric.name), published, panels, stage, order, numbers[metric.name], chosen=chosen
        )
        for metric in plotted_metrics
    ]
    plots = [
        {
            "metric": metric.name,
            "series": series,
            "gaps": any(panel["gaps"] for panel in series),
            "about": about.get(metric.name, unknown),
            "ranges": metric.truth is not None,
            **shared,
        }
        for metric, series in zip(plotted_metrics, drawn, strict=True)
    ]
    bands = [
        list_plots(found, styles[found.name], entries.get(found.name, {}), published, leader, numbers[found.name])
        for found in published.lists[:MOST_PLOTTED]
    ]
    spreads = [
        plot | {"ranges": None, "panels": [], "about": about.get(plot["metric"], unknown)}
        for plot in bands
        if plot["series"]
    ]
    plotted = {plot["metric"] for plot in (*plots, *spreads) if plot["series"]}
    singles, many = [metric.name for metric in published.metrics], [metric.name for metric in published.lists]
    rows = np.concatenate([rows for _, rows in panels]) if panels else np.arange(published.table.num_rows)
    return {
        "name": name,
        "title": shown_as.title or name,
        "description": shown_as.description,
        "model": False,
        "file": f"{name}.parquet of each run",
        "legend": [one for metric, one in about.items() if metric not in plotted],
        "choice": _choice(len(panels), _count(others, published.table.num_rows), leader.name)
        if plotted and others
        else "",
        "order": "the plots, each group run after run" if panels else "the runs",
        "most": None,
        "most_rows": None,
        # Each run's own page has these: what its numbers are worth, and what its bounds cut off.
        "verdict_note": "",
        "warnings": [],
        "not_added": [one for one in kinds if (kind := kinds[one]) is not None and kind.rolls_up == "units"],
        "overlaps": "runs",
        "ranges": any(metric.truth is not None for metric in published.metrics),
        "turn": turn_words(published),
        "raw": False,
        "units": plural(unit),
        "shown_part": _left_out(name, runs),
        "nothing": "no group was published",
        "selection": {"known": False},
        "plots": plots,
        "spreads": spreads,
        "unplotted": [name for name in (*singles, *many) if name not in plotted],
        **table_of(taken(published, rows), styles, entries, known=kinds, form_of=shown_as.form_of),
    }


def _with_totals(
    metric: Numbers,
    kind: type[Metric] | None,
    published: Published,
    panels: Sequence[tuple[list[str], Codes]],
    stage: Mapping[str, Any],
    order: RunOrder,
    style: NumberStyle,
    *,
    chosen: bool,
) -> list[dict[str, Any]]:
    """The panels of a metric, each with its sum or its mean over the runs where that means something."""
    drawn = series_over_time(metric, published, panels, style)
    for panel, (_, rows) in zip(drawn, panels, strict=False):
        panel["total"] = (
            "" if panel["cut"] or chosen else _total_words(metric.taken(rows), kind, published, stage, order, style)
        )
    return drawn


def _total_words(
    series: Numbers,
    kind: type[Metric] | None,
    published: Published,
    stage: Mapping[str, Any],
    order: RunOrder,
    style: NumberStyle,
) -> str:
    """The sum of a series whose points are about different times, else the mean of its runs; nothing where a number is missing.

    Rows in different windows, or in different cells of a time column, are different rows, and may be added up; those of other
    runs may be the same ones. People may come again in any case.
    """
    count, time = len(series.values), published.time
    known = np.isfinite(series.values) & (series.bars > 0)
    if count < 2 or kind is None or time is None or not known.all():
        return ""
    by_run = isinstance(time, RunKey)
    if by_run and count < len(np.unique(time.codes)):
        return ""  # a run has not published it
    if not by_run and finest_rows.is_rollup(stage):
        return ""  # parts that were made to add up have noise in common
    bar = float(np.sqrt((series.bars**2).sum()))
    if is_additive(kind) and (not by_run or order.words == WINDOW):
        points = "runs" if by_run else "points"
        return f"Sum of the {count:,} {points}: {shown_number(float(series.values.sum()), bar, style)}"
    if by_run and (is_additive(kind) or kind.rolls_up == "units"):
        mean = shown_number(float(series.values.mean()), bar / count, dataclasses.replace(style, whole=False))
        return f"Mean of the {count:,} runs: {mean}"
    return ""


def _entries(name: str, runs: Sequence[ReleasedRun]) -> list[Mapping[str, Any]]:
    """Return what the manifests say of a stage."""
    return [entry for run in runs for entry in mappings(run.content.get("stages")) if entry.get("name") == name]


def _laws(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the laws of the noise of each metric, those of all runs together."""
    found: dict[str, str] = {}
    for entry in entries:
        for metric, law in laws_of(entry).items():
            found[metric] = f"{found[metric]}+{law}" if metric in found else law
    return found


def _chosen(name: str, runs: Sequence[ReleasedRun]) -> bool:
    """Return True if a run has chosen the rows of a stage for their numbers."""
    return any(shown_rows.are_chosen(entry) for entry in _entries(name, runs))


def _left_out(name: str, runs: Sequence[ReleasedRun]) -> list[str]:
    """What must be known where a run shows some of the groups that it has released."""
    parts = map(shown_rows.read_part, _entries(name, runs))
    if not any(part is not None and part.rows < part.groups for part in parts):
        return []
    return [
        "runs show some of the groups that they have released, chosen by the numbers of that run (having, limit): a group that "
        "is missing in a run is not zero",
        "numbers that are chosen for their size are too high or too low on average, in each run anew",
    ]


def _count(others: Sequence[Key], rows: int) -> int:
    """How many groups were published in any run."""
    return len(groups(others, rows)[1])


def _choice(shown: int, every: int, leader: str) -> str:
    """Which groups the plots and the table show.

    >>> _choice(6, 143, "orders")[:84]
    'Of the 143 groups that were published, plots and table show the 6 largest by orders '
    """
    if shown == every:
        return f"All {every:,} groups that were published, the largest first." if every > 1 else ""
    largest = f"{shown} largest by {visible(leader)} over all runs" if leader else f"first {shown}"
    return (
        f"Of the {every:,} groups that were published, plots and table show the {largest}. They were chosen by released numbers, "
        "so what looks largest tends to be too large; the folders of the runs have all of them."
    )


def over_runs(
    name: str, stage: Mapping[str, Any], runs: Sequence[ReleasedRun], order: RunOrder, shown_as: Presented
) -> tuple[Published, Mapping[str, Any]]:
    """The tables of a stage one below the other, with the run as one more key where it is needed.

    Where a partition column is a time and no two runs publish the same partition, such as runs that publish a week each, that
    column is the axis. Otherwise the run is, and every other column tells partitions apart.

    Args:
        name: of the stage.
        stage: its entry in a manifest.
        runs: in order.
        order: of the runs.
        shown_as: gives metrics their labels.

    Returns:
        the tables, and the stage's entry, both with the labels as names of metrics.

    Raises:
        OSError, pyarrow.ArrowException: a table cannot be read, or two have columns of different types.
    """
    listed = sequence(stage.get("partition_by")) if "partition_by" in stage else None
    named = None if listed is None else [text(key) for key in listed]
    tables = [(at, read_published(run.tables[name]).table) for at, run in enumerate(runs) if name in run.tables]
    laws = _laws(_entries(name, runs))
    whole = of_table(pa.concat_tables([table for _, table in tables], promote_options="default"), named, laws)
    if renamed := shown_as.columns(whole.table, [key.name for key in whole.keys]):
        names = [renamed.get(column, column) for column in whole.table.column_names]
        key_names = [key.name for key in whole.keys]
        whole = of_table(
            whole.table.rename_columns(names), key_names, {renamed.get(n, n): law for n, law in laws.items()}
        )
        stage = renamed_stage(stage, renamed)
    if whole.time is not None and len(groups(whole.keys, whole.table.num_rows)[1]) == whole.table.num_rows:
        return whole, stage
    run = RunKey(
        name=RUN,
        values=pa.array(list(order.texts), pa.string()),
        codes=np.concatenate([np.full(table.num_rows, at, dtype=np.int64) for at, table in tables]),
        days=np.asarray(order.places, dtype=np.float64),
    )
    keys = (*(dataclasses.replace(key, days=None) for key in whole.keys), run)
    return dataclasses.replace(whole, keys=keys), stage


def taken(published: Published, rows: Codes) -> Published:
    """Some rows of a table, in an order of their own."""
    return Published(
        table=published.table.take(pa.array(rows, pa.int64())),
        keys=tuple(dataclasses.replace(key, codes=key.codes[rows]) for key in published.keys),
        metrics=tuple(metric.taken(rows) for metric in published.metrics),
        lists=tuple(metric.taken(rows) for metric in published.lists),
    )
