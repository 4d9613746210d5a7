"""Shows a published table in a terminal: its largest rows with error bars, and what its numbers are worth.

In: a published Parquet file and its stage's entry in the manifest (any part of it may be missing). Out: texts. Holds: only
released rows and public facts are shown; a number that its error bar swallows whole is not; keys say nothing to the terminal.
"""

import dataclasses
import pathlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import RAW
from dp_pipelines.release import finest_rows, shown_rows, verdicts
from dp_pipelines.report import chart_choices, clamp_warnings, compare_text, kept_text, range_text, released_table
from dp_pipelines.report.derived import derived_cells, derived_columns
from dp_pipelines.report.key_text import key_text
from dp_pipelines.report.numbers import with_error_bar
from dp_pipelines.report.released_table import OTHER_KEYS, Codes, Floats, Key, Lists, Numbers, Published
from dp_pipelines.report.words import arm_verdicts
from dp_pipelines.report.words.number_format import FormOf, NumberFormat
from dp_pipelines.report.words.unit_name import plural, unit_name

FIRST_ROWS = 10
FIRST_OF_LIST = 3

UNLIMITED = 10**6
"""Characters of a line on which every table fits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstRows:
    """The first rows of a published table as texts, the largest first.

    Args:
        keys, metrics: names of the columns.
        rows: of all partitions.
        cells: for each row that is shown its keys, then its metrics with their error bars.
        ordered_by: the column by which they are the first; empty where that are the keys.
        ranked: whether this column ranks, so that the first are not called the largest.
        latest: whether they are the latest of a time series.
        said: names with a line on each: verdicts on metrics, what was chosen in the run.
        remark: what must be known to read these lines.
        groups: how many were released; None where all of them are published.
        finest: of a rollup, how many of them are published, beside the groups above and the rests.
        chosen: what must be known of rows that the job has chosen by released numbers.
    """

    keys: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: int
    cells: tuple[tuple[str, ...], ...]
    ordered_by: str = ""
    ranked: bool = False
    latest: bool = False
    said: tuple[tuple[str, str], ...] = ()
    remark: str = ""
    groups: int | None = None
    finest: int | None = None
    chosen: tuple[str, ...] = ()

    @property
    def is_total(self) -> bool:
        """Whether it is one row over everything, without a key."""
        return not self.keys

    @property
    def title(self) -> str:
        """What they are rows of."""
        if self.is_total:
            return "total"
        if self.groups is not None and self.finest is not None:
            return f"{self.rows:,} rows, with {self.finest:,} of {self.groups:,} finest partitions"
        count = self.rows if self.groups is None else self.groups
        part = "" if self.groups is None else f"{self.rows:,} of "
        return f"{part}{count:,} partition{'' if count == 1 else 's'}"

    @property
    def note(self) -> str:
        """The line below them."""
        parts = []
        if self.rows > len(self.cells):
            by = f" by {shown(self.ordered_by)}" if self.ordered_by else ""
            count = len(self.cells)
            which = f"{count} largest" if by and not self.ranked else f"{'last' if self.latest else 'first'} {count}"
            parts.append(f"the {which} of {self.rows:,}{by}")
        parts += ["± covers 95% of the noise"] if self.metrics else []
        parts += [verdicts.NOISE_NOTE] if any(verdicts.NOISE in cell for row in self.cells for cell in row) else []
        return "; ".join(parts)


def first_rows(
    path: pathlib.Path,
    stage: Mapping[str, Any],
    narrowed_by: Sequence[str] = (),
    form_of: FormOf = lambda name: None,
    unit: str = "unit",
) -> FirstRows:
    """The first rows of a published Parquet file.

    Args:
        path: of the file.
        stage: its entry in the manifest; {} where there is none.
        narrowed_by: what in the job decides which rows are read, in words.
        form_of: how the numbers of each metric are written.
        unit: the privacy unit as the manifest has it.
    """
    published = released_table.read_published(path, partition_by_of(stage), released_table.laws_of(stage))
    entries = {name: entry for name, entry in _mapping(stage.get("metrics")).items() if isinstance(entry, Mapping)}
    best = "candidates" in _mapping(stage.get("selection"))
    part = shown_rows.read_part(stage)
    order = released_table.printed_order(
        published, {n: e.get("kind") for n, e in entries.items()}, FIRST_ROWS, best=best,
        order_by=shown_rows.order_of(stage)
        or (() if part is None else part.order_by)
        or chart_choices.rollup_order(stage),
    )  # fmt: skip
    metrics = published.in_order
    columns = [_key_texts(published, key, order.rows) for key in published.keys]
    headings = []
    for metric in metrics:
        entry = entries.get(metric.name, {})
        kind = registry.of_kind(entry.get("kind"))
        whole = kind is not None and kind.whole
        form = form_of(metric.name)
        columns.append(_cells(metric.taken(order.rows), verdicts.range_of(entry), whole=whole, form=form))
        headings.append(metric.name)
        if (likely := _ranges(published, metric.name, order.rows, form)) is not None:
            columns.append(likely)
            headings.append(f"{metric.name}, {range_text.HEADING}")
    for computed in derived_cells.cells_of(published.table, stage, order.rows, form_of):
        cells = zip(computed.values, computed.intervals, strict=True)
        columns.append([f"{value} ({interval})" if interval else value for value, interval in cells])
        headings.append(computed.name)
        if computed.ranges is not None:
            columns.append(computed.ranges)
            headings.append(f"{computed.name}, {range_text.HEADING}")
    found = verdicts.told(published.table, stage)
    nothing = verdicts.nothing_published(stage, narrowed_by, plural(unit)) if published.table.num_rows == 0 else ""
    return FirstRows(
        keys=tuple(key.name for key in published.keys),
        metrics=tuple(headings),
        rows=published.table.num_rows,
        cells=tuple(zip(*columns, strict=True)),
        ordered_by=order.by,
        ranked=not order.largest,
        latest=order.latest,
        said=(*((name, verdict.words) for name, verdict in found.items()), *_chosen(stage, entries, unit_name(unit))),
        remark=nothing or verdicts.note(found, stage),
        groups=part.groups if part is not None and part.rows < part.groups else None,
        finest=part.rows if part is not None and finest_rows.is_rollup(stage) else None,
        chosen=() if part is None else part.words,
    )


def partition_by_of(stage: Mapping[str, Any]) -> list[str] | None:
    """The partition columns that a manifest names; None where it names none."""
    keys = stage.get("partition_by")
    named = isinstance(keys, Sequence) and not isinstance(keys, str) and all(isinstance(key, str) for key in keys)
    return list(keys) if named and keys is not None else None


def print_stage(
    path: pathlib.Path,
    out: Console,
    stage: Mapping[str, Any],
    notes: Sequence[str] = (),
    narrowed_by: Sequence[str] = (),
    form_of: FormOf = lambda name: None,
    unit: str = "unit",
) -> None:
    """The first rows of a published Parquet file, as a table. Arguments as for `first_rows`; `notes` stand below it."""
    rows = first_rows(path, stage, narrowed_by, form_of, unit)
    out.print(f"[bold]{escape(path.stem)}[/bold] · {rows.title}")
    if rows.is_total and rows.cells:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 2))
        for named in zip(rows.metrics, *rows.cells, strict=True):
            table.add_row(*(escape(shown(cell)) for cell in named))
        out.print(table)
        out.print(f"  {escape(rows.note)}")
    elif rows.cells:
        columns = _fitting(rows, out)
        out.print(_table(rows, columns))
        left_out = rows.metrics[columns - len(rows.keys) :]
        if left_out:
            out.print(
                f"  no room on this line for {escape(', '.join(map(shown, left_out)))}; the files have all columns"
            )
        if rows.note:
            out.print(f"  {escape(rows.note)}")
    width = max((len(shown(name)) for name, _ in rows.said), default=0)
    for name, words in rows.said:
        out.print(f"  {escape(shown(name).ljust(width))}  {escape(shown(words))}")
    for words in rows.chosen:
        out.print(f"  {escape(shown(words))}")
    if rows.remark:
        out.print(f"  {escape(shown(rows.remark))}")
    for note in notes:
        out.print(f"  {escape(note)}")
    out.print()


def _table(rows: FirstRows, columns: int) -> Table:
    """Return the first columns of some rows as a table."""
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate((*rows.keys, *rows.metrics)[:columns]):
        table.add_column(escape(shown(name)), justify="left" if number < len(rows.keys) else "right")
    for cells in rows.cells:
        table.add_row(*(escape(cell) for cell in cells[:columns]))
    return table


def _fitting(rows: FirstRows, out: Console) -> int:
    """Return how many columns fit on a line without a cell that is cut: all keys, and of the metrics at least one."""
    all_columns, least = len(rows.keys) + len(rows.metrics), len(rows.keys) + 1
    wide = out.options.update(width=UNLIMITED, max_width=UNLIMITED)
    fit = (n for n in range(all_columns, least, -1) if Measurement.get(out, wide, _table(rows, n)).maximum <= out.width)
    return next(fit, min(least, all_columns))


def notes_of(manifest: Mapping[str, Any], stage: str) -> list[str]:
    """What stands below the first rows of a stage: which metrics are shrunk, its limits in words, and what these cut off."""
    unit = str(manifest.get("privacy_unit") or "unit")
    said: Mapping[str, Any] = next((e for e in manifest.get("stages", []) if e.get("name") == stage), {})
    cut_off = (
        *kept_text.lines(said.get("kept"), unit),
        *clamp_warnings.lines(said),
        *range_text.lines(said, unit_name(unit)),
        *derived_columns.lines(said),
    )
    limits = (*said.get("limits", []), *cut_off)
    compare = said.get("compare")
    compared = (*arm_verdicts.lines(compare), *compare_text.lines(compare))
    return [*map(shrinkage_note, shrunk_metrics(manifest, stage)), *map(shown, (*compared, *limits))]


def shrinkage_note(name: str) -> str:
    """What stands below the first rows about a metric that is shrunk.

    >>> shrinkage_note("basket")
    'basket is pulled towards the other groups as far as noise makes that likely; basket_raw is as noise left it'
    """
    said = shown(name)
    return (
        f"{said} is pulled towards the other groups as far as noise makes that likely; {said}{RAW} is as noise left it"
    )


def shrunk_metrics(manifest: Mapping[str, Any], stage: str) -> tuple[str, ...]:
    """The metrics of a stage that are shrunk, by its manifest.

    >>> shrunk_metrics({"stages": [{"name": "weekly", "metrics": {"basket": {"shrunk": True}, "orders": {}}}]}, "weekly")
    ('basket',)
    """
    described = (entry.get("metrics", {}) for entry in manifest.get("stages", []) if entry.get("name") == stage)
    return tuple(name for metrics in described for name, entry in metrics.items() if entry.get("shrunk"))


def _chosen(stage: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]], unit: str) -> list[tuple[str, str]]:
    """Return the bounds that this run chose, where the job leaves them to it.

    Args:
        stage: its entry in the manifest.
        entries: those of its metrics.
        unit: what one privacy unit is called.
    """
    counted = [
        f"{count:,} {noun}{'' if count == 1 else 's'} of each {unit}{where}"
        for key, noun, where in (
            ("max_partitions_contributed", "group", ""),
            ("max_contributions_per_partition", "row", " in a group"),
        )
        if isinstance(count := stage.get(key), int) and not isinstance(count, bool)
    ]
    found = [("chosen", f"by this run: at most {' and '.join(counted)} count")] if counted else []
    for name, entry in entries.items():
        if "raw_of" in entry:  # its mean has the same
            continue
        bounds = verdicts.range_of({"range": entry.get("bounds")})
        if bounds is not None:
            found.append(("chosen", f"by this run: values of {name} are clamped to {verdicts.range_in_words(bounds)}"))
    return found


def _key_texts(published: Published, key: Key, rows: Codes) -> list[str]:
    column = published.table.column(key.name)
    return [f"({OTHER_KEYS})" if key.is_other(int(row)) else shown(_value(column[int(row)])) for row in rows]


def _cells(
    metric: Numbers | Lists, within: tuple[float, float] | None, *, whole: bool, form: NumberFormat | None
) -> list[str]:
    """The numbers of a metric with their error bars; of lists the first few."""
    if isinstance(metric, Numbers):
        return _with_bars(metric.values, metric.normal_stddevs, within, whole=whole, form=form)
    more = ", …" if metric.values.shape[1] > FIRST_OF_LIST else ""
    pairs = zip(metric.values[:, :FIRST_OF_LIST], metric.normal_stddevs[:, :FIRST_OF_LIST], strict=True)
    listed = (_with_bars(values, stddevs, within, whole=whole, form=form) for values, stddevs in pairs)
    return [verdicts.NOISE if set(cells) == {verdicts.NOISE} else ", ".join(cells) + more for cells in listed]


def _ranges(published: Published, name: str, rows: Codes, form: NumberFormat | None) -> list[str] | None:
    """The ranges of a metric; None where none is published."""
    ends = released_table.range_ends(published.table, name, [key.name for key in published.keys])
    return (
        None
        if ends is None
        else [range_text.range_in_words(*pair, form=form) for pair in zip(*ends[:, rows].tolist(), strict=True)]
    )


def _with_bars(
    values: Floats,
    stddevs: Floats,
    within: tuple[float, float] | None,
    *,
    whole: bool,
    form: NumberFormat | None,
) -> list[str]:
    hidden = verdicts.covers(stddevs, within)
    return [
        verdicts.NOISE if covered else with_error_bar(value, stddev, whole=whole, form=form)
        for value, stddev, covered in zip(values.tolist(), stddevs.tolist(), hidden.tolist(), strict=True)
    ]


def _value(scalar: Any) -> Any:
    """A key as Python has it, or as text where Python has no such day or moment."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return key_text(scalar)


def shown(value: Any) -> str:
    r"""A key for people: what a terminal would take for a command, or for another direction of writing, is escaped.

    >>> shown("a\x1b[31m")
    'a\\x1b[31m'
    """
    if value is None:
        return "(null)"
    return "".join(repr(sign)[1:-1] if _is_command(sign) else sign for sign in str(value))


def _is_command(sign: str) -> bool:
    # Joiners are part of names and of emoji, and do no more than join.
    return unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") and sign not in "\u200c\u200d"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
