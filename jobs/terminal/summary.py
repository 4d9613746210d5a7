"""Prints a plan before a run, and a release after it, as read back from the published folder.

In: the JSON of a plan; a published folder. Out: text. Holds: only public numbers and released rows are shown; everything shown
about a release comes from its folder.
"""

import dataclasses
import decimal
import json
import math
import pathlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of
from dp_pipelines.metrics.base import RAW
from dp_pipelines.report import kept_text
from dp_pipelines.report.key_text import key_text
from dp_pipelines.report.numbers import with_error_bar

if TYPE_CHECKING:
    from dp_pipelines.planning.plan import Plan

FIRST_ROWS = 8
FIRST_OF_LIST = 3
WIDTH = 120


def console(stream: TextIO) -> Console:
    """A console that writes plain lines of a fixed width if the stream is not a terminal."""
    terminal = stream.isatty()
    return Console(file=stream, width=None if terminal else WIDTH, highlight=False, soft_wrap=not terminal)


def print_plan(plan: Mapping[str, Any], stream: TextIO) -> None:
    """A plan as `dp-pipelines plan` shows it.

    Args:
        plan: what `plan --json` prints.
        stream: where to.
    """
    out = console(stream)
    runs = plan.get("runs", 1)
    spent, one = plan["accounted"], plan["accounted_one_run"]
    out.print(f"budget     epsilon {number(plan['epsilon'])}, delta {number(plan['delta'])}" + _for_runs(runs))
    out.print(
        f"accounted  epsilon {spent_number(spent['epsilon'])}, delta {spent_number(spent['delta'])}" + _for_runs(runs)
    )
    if runs > 1:
        which = "one run  " if plan.get("split", "constant") == "constant" else "first run"
        out.print(f"{which}  epsilon {spent_number(one['epsilon'])}, delta {spent_number(one['delta'])}")
    if plan.get("split", "constant") != "constant" and runs > 1:
        out.print(
            f"split      {plan['split']}: the numbers below are for the first run; the last has {plan['last_round_noise']:.3g} "
            "times its noise (except for noise that a metric fixes with stddev)"
        )
    for stage in plan["stages"]:
        out.print()
        share = f" · share {stage['share']:.0%}" if len(plan["stages"]) > 1 and "share" in stage else ""
        out.print(f"[bold]{escape(stage['name'])}[/bold]{share}")
        if stage.get("kept"):
            out.print(f"  {_kept(stage['kept'])}")
            continue
        if stage["metrics"]:
            out.print(_metrics(stage["metrics"]))
        for sentence in stage.get("limits", []):
            out.print(f"  {escape(_key(sentence))}")
        out.print("  " + (_sums(stage) if "noise_multiplier" in stage else _selection(stage.get("selection") or {})))
        if stage.get("label"):
            out.print(f"  label {escape(_key(stage['label']))}")
        if stage.get("partition_candidates"):
            listed = ", ".join(str(candidate) for candidate in stage["partition_candidates"])
            out.print(f"  partitions per unit: at most {listed}; each run chooses one, which sets noise and thresholds")
    if any(_is_private(stage) for stage in plan["stages"]):
        out.print()
        out.print(
            "A partition just above the threshold was published because its noise was high: its count is biased upwards."
        )


WAYS = {"naive": "sum", "advanced": "advanced", "renyi": "Renyi", "pld": "privacy loss distribution"}
"""The accounting methods, with the headings of `print_explanation`."""


def print_explanation(plan: "Plan | Mapping[str, Any]", stream: TextIO) -> None:
    """What `dp-pipelines plan --explain` adds: each record, and the cost of all runs under four accounting methods.

    Args:
        plan: a plan, or what `plan --json` prints.
        stream: where to.
    """
    shown: Mapping[str, Any] = plan if isinstance(plan, Mapping) else plan.to_json()
    costs = shown["costs"]
    out = console(stream)
    out.print(
        f"epsilon of all runs at delta {number(costs['delta'])}, under four accounting methods; the last one is charged"
    )
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for way in WAYS.values():
        table.add_column(way, justify="right")
    rows = {f"{name} alone": cost for name, cost in costs["stages"].items()} if len(costs["stages"]) > 1 else {}
    for name, cost in {**rows, "all together": costs["total"]}.items():
        table.add_row(escape(name), *(number(cost[way]) for way in WAYS))
    out.print(table)
    for name in dict.fromkeys(record["stage"] for record in shown["mechanisms"]):
        out.print(f"[bold]{escape(name)}[/bold] · the most one unit can change in one run")
        listed = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for head in ("record", "kind", "scale", "change"):
            listed.add_column(head, justify="right" if head == "scale" else "left")
        for record in map(MechanismRecord.from_json, shown["mechanisms"]):
            if record.stage == name:
                scale = "" if record.scale is None else number(float(record.scale))
                change = kind_of(record).words(record)
                listed.add_row(escape(record.name), record.kind.replace("_", " "), scale, change)
        out.print(listed)


def _for_runs(runs: int) -> str:
    return f" for all {runs} runs together" if runs > 1 else ""


def _is_private(stage: Mapping[str, Any]) -> bool:
    return (stage.get("selection") or {}).get("threshold") is not None


def _metrics(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    guessed = any("expected_stddev" in metric for metric in metrics.values())
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    table.add_column("noise")
    table.add_column("standard deviation", justify="right")
    if guessed:
        table.add_column("in a typical group", justify="right")
        table.add_column("relative", justify="right")
    for name, metric in metrics.items():
        stddev = metric.get("stddev")
        shown = number(stddev) if stddev is not None else "depends on group size"
        if metric.get("stddev_multiple") is not None:
            shown = f"{number(metric['stddev_multiple'])} times {_multiple_of(metric)}"
        shown += ", before shrinkage" if metric.get("shrunk") else ""
        cells = [escape(name), escape(str(metric["noise"])), shown]
        if guessed:
            relative = metric.get("expected_relative_error")
            cells.append(number(metric["expected_stddev"]) if "expected_stddev" in metric else "")
            cells.append(f"{relative:.1%}" if relative is not None else "")
        table.add_row(*cells)
    return table


def _sums(stage: Mapping[str, Any]) -> str:
    """Describes a stage of clipped sums."""
    noise = f"noise multiplier {number(stage['noise_multiplier'])}, times the clip norm of a unit"
    if stage["kind"] != "train":
        return f"one sum of {stage['coordinates']} coordinates over the training units, {noise}"
    rate = stage["sampling_rate"]
    over = "all training units" if rate == 1 else f"samples of {rate:g} of the training units"
    norm = f" ({number(stage['clip_norm'])})" if stage["clip_norm"] is not None else ""
    return (
        f"{stage['steps']} gradient steps of {stage['coordinates']} parameters over {over}, each with {noise}{norm}; "
        f"{stage['held_out']:.0%} of the units are held out"
    )


def _kept(kept: Mapping[str, Any]) -> str:
    """Describes the stage that says what the limits of another one keep."""
    return (
        f"what the limits of {escape(_key(kept['of']))} cut off: shares of units, within 5 percentage points from "
        f"{number(math.ceil(kept['units_within_5_percent']))} units on"
    )


def _multiple_of(metric: Mapping[str, Any]) -> str:
    """What the noise is a multiple of: bounds that a run will choose."""
    partitions = {None: "", "max_partitions_contributed": "the partitions"}.get(
        metric.get("grows_with"), "the square root of the partitions"
    )
    return " and ".join(filter(None, ["the bound" if "within" in metric else "", partitions]))


def _selection(selection: Mapping[str, Any]) -> str:
    strategy = str(selection.get("strategy", "")).replace("_", " ")
    if selection.get("total"):
        return "partitions: none; one total over everything"
    if strategy == "public":
        return "partitions: the public list"
    if "candidates" in selection:
        best = f"the best {selection['k']}" if selection["k"] > 1 else "the best one"
        text = f"partitions: {best} of {selection['candidates']} public ones by {escape(selection['by'])}, {escape(strategy)}"
        behind = f"19 times out of 20, a selection is at most {number(selection['error_95'])} behind the best"
        return f"{text}; {behind}; no values are published"
    text = f"partitions: private, {escape(strategy)}"
    if selection.get("half_keep_users") is not None:
        text += (
            f"; a group of {number(math.ceil(selection['half_keep_users']))} users has a 50% chance of being published"
        )
    if (selection.get("min_users") or 0) > 1:
        text += f", a group of fewer than {selection['min_users']} has none"
    return text


def print_release(folder: pathlib.Path, stream: TextIO, *, again: bool = False) -> None:
    """A published release: its first rows with error bars, what was spent, where the files are.

    Args:
        folder: a published folder.
        stream: where to.
        again: whether it had been published before.
    """
    from dp_pipelines.release.manifest import read_manifest

    out = console(stream)
    manifest = read_manifest(folder) or {}
    if again:
        out.print("This run was already published; its release is unchanged.")
    files = sorted(manifest.get("files", {}))
    for name in files:
        if name.endswith(".parquet"):
            print_stage(folder / name, out, stage_notes(manifest, name.removesuffix(".parquet")))
    for name in files:
        if name.endswith("/evaluation.json"):
            _print_model(folder / name, out)
    budget, spent = manifest.get("budget", {}), manifest.get("accounted_one_run", {})
    this_run = " in this run, out" if budget.get("runs", 1) > 1 else ""
    out.print(
        f"spent      epsilon {spent_number(spent.get('epsilon'))}, delta {spent_number(spent.get('delta'))}{this_run} of "
        f"epsilon {number(budget.get('epsilon'))}, delta {number(budget.get('delta'))}"
        + _for_runs(budget.get("runs", 1))
    )
    for words in dict.fromkeys(str(look.get("words")) for look in manifest.get("tuned", [])):
        out.print(f"tuned      {escape(words)}")
    out.print(f"protects   every {escape(str(manifest.get('privacy_unit', '')))} (all its rows together)")
    out.print(f"run        {escape(str(manifest.get('run_id')))} · {(manifest.get('ledger') or {}).get('note', '')}")
    out.print(f"files      {escape(str(folder))}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstRows:
    """The first rows of a published table as texts.

    Args:
        keys, metrics: names of the columns.
        rows: of all partitions.
        cells: for each row that is shown its keys, then its metrics with their error bars.
    """

    keys: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: int
    cells: tuple[tuple[str, ...], ...]

    @property
    def is_total(self) -> bool:
        """Whether it is one row over everything, without a key."""
        return not self.keys

    @property
    def title(self) -> str:
        """What they are rows of."""
        return "total" if self.is_total else f"{self.rows} partitions"

    @property
    def note(self) -> str:
        """The line below them."""
        more = f"and {self.rows - len(self.cells)} more; " if self.rows > len(self.cells) else ""
        return f"{more}± covers 95% of the noise" if self.metrics else more.rstrip("; ")


def first_rows(path: pathlib.Path) -> FirstRows:
    """The first rows of a published Parquet file."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        names, rows = file.schema_arrow.names, file.metadata.num_rows
        first = next(iter(file.iter_batches(FIRST_ROWS)), None)
    metrics = [name for name in names if f"{name}_stddev" in names]
    keys = [name for name in names if name not in metrics and not name.endswith("_stddev")]
    numbers = [f"{name}{end}" for name in metrics for end in ("", "_stddev")]
    listed: list[dict[str, Any]] = []
    if first is not None:  # with no metric there is nothing to list but keys
        listed = first.select(numbers).to_pylist()[:FIRST_ROWS] if numbers else [{}] * min(first.num_rows, FIRST_ROWS)
    cells = []
    for number, row in enumerate(listed):
        assert first is not None
        bars = (_with_error_bars(row[name], row[f"{name}_stddev"]) for name in metrics)
        cells.append((*(_key(_value(first.column(name)[number])) for name in keys), *bars))
    return FirstRows(keys=tuple(keys), metrics=tuple(metrics), rows=rows, cells=tuple(cells))


def shrinkage_note(name: str) -> str:
    """What stands below the first rows about a metric that is shrunk.

    >>> shrinkage_note("basket")
    'basket is pulled towards the other groups as far as noise makes that likely; basket_raw is as noise left it'
    """
    shown = _key(name)
    return f"{shown} is pulled towards the other groups as far as noise makes that likely; {shown}{RAW} is as noise left it"


def shrunk_metrics(manifest: Mapping[str, Any], stage: str) -> tuple[str, ...]:
    """The metrics of a stage that are shrunk, by its manifest.

    >>> shrunk_metrics({"stages": [{"name": "weekly", "metrics": {"basket": {"shrunk": True}, "orders": {}}}]}, "weekly")
    ('basket',)
    """
    described = (entry.get("metrics", {}) for entry in manifest.get("stages", []) if entry.get("name") == stage)
    return tuple(name for metrics in described for name, entry in metrics.items() if entry.get("shrunk"))


def stage_notes(manifest: Mapping[str, Any], stage: str) -> list[str]:
    """What stands below the first rows of a stage: which metrics are shrunk, its limits in words, and what these cut off."""
    unit = str(manifest.get("privacy_unit") or "unit")
    said: Mapping[str, Any] = next((e for e in manifest.get("stages", []) if e.get("name") == stage), {})
    limits = (*said.get("limits", []), *kept_text.lines(said.get("kept"), unit))
    return [*map(shrinkage_note, shrunk_metrics(manifest, stage)), *map(_key, limits)]


def print_stage(path: pathlib.Path, out: Console, notes: Sequence[str] = ()) -> None:
    """The first rows of a published Parquet file, as a table.

    Args:
        path: of the file.
        out: where to.
        notes: what stands below them (`stage_notes`).
    """
    shown = first_rows(path)
    out.print(f"[bold]{escape(path.stem)}[/bold] · {shown.title}")
    if shown.is_total:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 2))
        for named in zip(shown.metrics, *shown.cells, strict=True):
            table.add_row(*(escape(_key(cell)) for cell in named))
        out.print(table)
        out.print(f"  {shown.note}")
    elif shown.cells:
        table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for name in shown.keys:
            table.add_column(escape(_key(name)))
        for name in shown.metrics:
            table.add_column(escape(_key(name)), justify="right")
        for cells in shown.cells:
            table.add_row(*(escape(cell) for cell in cells))
        out.print(table)
        out.print(f"  {shown.note}")
    for note in notes:
        out.print(f"  {escape(note)}")
    out.print()


MEASURES = {"auc": "AUC", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "rmse": "RMSE", "r2": "R2"}
"""The measures of an evaluation that are shown, if it has them."""


def _print_model(path: pathlib.Path, out: Console) -> None:
    """Prints the measures of a model on its held-out units, with joint error bars for noise and sampling."""
    measures = json.loads(path.read_text(encoding="utf-8"))["measures"]
    shown = []
    for name, words in MEASURES.items():
        estimate = measures.get(name) or {}
        if estimate.get("value") is not None:
            bars = math.hypot(*(estimate.get(f"{kind}_stddev") or 0.0 for kind in ("noise", "sampling")))
            shown.append(f"{words} {estimate['value']:.3f} ± {1.96 * bars:.3f}")
    out.print(
        f"[bold]{escape(path.parent.name)}[/bold] · model; on held-out units: {', '.join(shown) or 'too few to tell'}"
    )
    out.print()


def _value(scalar: Any) -> Any:
    """A key as Python has it, or as text where Python has no such day or moment."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return key_text(scalar)


def _key(value: Any) -> str:
    r"""A key for people: what a terminal would take for a command, or for another direction of writing, is escaped.

    >>> _key("a\x1b[31m")
    'a\\x1b[31m'
    """
    if value is None:
        return "(null)"
    return "".join(repr(sign)[1:-1] if _is_command(sign) else sign for sign in str(value))


def _is_command(sign: str) -> bool:
    # Joiners are part of names and of emoji, and do no more than join.
    return unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") and sign not in "\u200c\u200d"


def _with_error_bars(value: Any, stddev: Any) -> str:
    """One number with its error bar, or the first of a list."""
    if not isinstance(value, list):
        return with_error_bar(value, stddev)
    shown = [with_error_bar(one, spread) for one, spread in zip(value[:FIRST_OF_LIST], stddev, strict=False)]
    return ", ".join(shown) + (", …" if len(value) > FIRST_OF_LIST else "")


def number(value: float | None) -> str:
    """A public number in few digits.

    >>> number(1.0), number(0.99987654), number(1e-6), number(123456.7), number(None)
    ('1', '0.9999', '1e-06', '123457', '-')
    """
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def spent_number(value: float | None) -> str:
    """What is spent, in few digits and never less than it is.

    >>> spent_number(0.43911), spent_number(0.5), spent_number(1e-6)
    ('0.4392', '0.5', '1e-06')
    """
    return number(None if value is None else _rounded(value, decimal.ROUND_CEILING))


def left_number(value: float | None) -> str:
    """What is left, in few digits and never more than it is.

    >>> left_number(0.56089), left_number(0.0)
    ('0.5608', '0')
    """
    return number(None if value is None else _rounded(value, decimal.ROUND_FLOOR))


def _rounded(value: float, way: str) -> float:
    # Of what was computed the last digits may be rounded either way already: they decide nothing here.
    return float(decimal.Context(prec=4, rounding=way).create_decimal(f"{value:.12g}"))


def as_json(value: Any) -> str:
    """JSON for scripts."""
    return json.dumps(value, indent=2, sort_keys=False, allow_nan=False)


def release_json(folder: pathlib.Path, manifest: Mapping[str, Any], *, again: bool) -> dict[str, Any]:
    """What `run --json` prints."""
    names: Iterable[str] = manifest.get("files", {})
    return {
        "output": str(folder),
        "run_id": manifest.get("run_id"),
        "published_before": again,
        "budget": manifest.get("budget"),
        "accounted": manifest.get("accounted"),
        "accounted_one_run": manifest.get("accounted_one_run"),
        "files": {name: str(folder / name) for name in names},
        **({"tuned": manifest["tuned"]} if "tuned" in manifest else {}),
    }
