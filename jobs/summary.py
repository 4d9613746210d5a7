"""What a reader sees: the plan before a run, and the release after it, read back from the published folder.

In: the JSON of a plan; a published folder. Out: text. Holds: nothing but public numbers and the released rows; what is shown
of a release is what lies in its folder. May import release.manifest, pyarrow, rich. Imported by cli.
"""

import json
import math
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

FIRST_ROWS = 8
WIDTH = 120
ERROR_BAR = 1.96
"""An error bar covers 95% of the noise, which is normal or nearly so."""


def console(stream: TextIO) -> Console:
    """A console that writes plain lines of a fixed width where it is no terminal."""
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
    out.print(f"accounted  epsilon {number(spent['epsilon'])}, delta {number(spent['delta'])}" + _for_runs(runs))
    if runs > 1:
        out.print(f"one run    epsilon {number(one['epsilon'])}, delta {number(one['delta'])}")
    for stage in plan["stages"]:
        out.print()
        share = f" · share {stage['share']:.0%}" if len(plan["stages"]) > 1 and "share" in stage else ""
        out.print(f"[bold]{escape(stage['name'])}[/bold]{share}")
        if stage["metrics"]:
            out.print(_metrics(stage["metrics"]))
        out.print("  " + _selection(stage.get("selection") or {}))
    if any(_is_private(stage) for stage in plan["stages"]):
        out.print()
        out.print("A count that is just above the threshold was kept because its noise was high: it is biased upwards.")


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
        table.add_column("in a partition as expected", justify="right")
        table.add_column("relative", justify="right")
    for name, metric in metrics.items():
        stddev = metric.get("stddev")
        cells = [escape(name), escape(str(metric["noise"])), number(stddev) if stddev is not None else "by partition"]
        if guessed:
            relative = metric.get("expected_relative_error")
            cells.append(number(metric["expected_stddev"]) if "expected_stddev" in metric else "")
            cells.append(f"{relative:.1%}" if relative is not None else "")
        table.add_row(*cells)
    return table


def _selection(selection: Mapping[str, Any]) -> str:
    strategy = str(selection.get("strategy", "")).replace("_", " ")
    if strategy == "public":
        return "partitions: the public list"
    text = f"partitions: private, {escape(strategy)}"
    if selection.get("half_keep_users") is not None:
        text += f"; one of about {number(selection['half_keep_users'])} users is kept half of the time"
    if (selection.get("min_users") or 0) > 1:
        text += f", one of fewer than {selection['min_users']} never"
    return text


def print_release(folder: pathlib.Path, stream: TextIO, *, again: bool = False) -> None:
    """A published release: its first rows with error bars, what was spent, where the files are.

    Args:
        folder: a published folder.
        stream: where to.
        again: whether it was there before.
    """
    from dp_pipelines.release.manifest import read_manifest

    out = console(stream)
    manifest = read_manifest(folder) or {}
    if again:
        out.print("This run has published before; its release is unchanged.")
    for name in sorted(manifest.get("files", {})):
        if name.endswith(".parquet"):
            _print_stage(folder / name, out)
    budget, spent = manifest.get("budget", {}), manifest.get("accounted_one_run", {})
    out.print(
        f"spent      epsilon {number(spent.get('epsilon'))}, delta {number(spent.get('delta'))} of "
        f"epsilon {number(budget.get('epsilon'))}, delta {number(budget.get('delta'))}"
        + _for_runs(budget.get("runs", 1))
    )
    out.print(f"protects   each {escape(str(manifest.get('privacy_unit', '')))}: all of its rows")
    out.print(f"run        {escape(str(manifest.get('run_id')))} · {(manifest.get('ledger') or {}).get('note', '')}")
    out.print(f"files      {escape(str(folder))}")


def _print_stage(path: pathlib.Path, out: Console) -> None:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        names, rows = file.schema_arrow.names, file.metadata.num_rows
        first = next(iter(file.iter_batches(FIRST_ROWS)), None)
    listed = first.to_pylist()[:FIRST_ROWS] if first is not None else []
    metrics = [name for name in names if f"{name}_stddev" in names]
    keys = [name for name in names if name not in metrics and not name.endswith("_stddev")]
    out.print(f"[bold]{escape(path.stem)}[/bold] · {rows} partitions")
    if listed:
        table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for name in keys:
            table.add_column(escape(name))
        for name in metrics:
            table.add_column(escape(name), justify="right")
        for row in listed:
            bars = (with_error_bar(row[name], row[f"{name}_stddev"]) for name in metrics)
            table.add_row(*(escape(_key(row[name])) for name in keys), *bars)
        out.print(table)
        more = f"  and {rows - len(listed)} more; " if rows > len(listed) else "  "
        out.print(f"{more}± covers 95% of the noise" if metrics else more.rstrip("; "))
    out.print()


def _key(value: Any) -> str:
    return "(null)" if value is None else str(value)


def with_error_bar(value: float | None, stddev: float | None) -> str:
    """A value and its error bar, rounded to what the error leaves certain.

    >>> with_error_bar(1234.567, 12.3)
    '1235 ± 24'
    >>> with_error_bar(4.71828, 0.0123)
    '4.718 ± 0.024'
    """
    if value is None or stddev is None or not math.isfinite(value) or not math.isfinite(stddev):
        return "-"
    bar = ERROR_BAR * stddev
    digits = 0 if not bar > 0 else max(0, 1 - math.floor(math.log10(bar)))
    digits = min(digits, 12)
    return f"{value:.{digits}f} ± {bar:.{digits}f}"


def number(value: float | None) -> str:
    """A public number in few digits.

    >>> number(1.0), number(0.99987654), number(1e-6), number(123456.7), number(None)
    ('1', '0.9999', '1e-06', '123457', '-')
    """
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


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
    }
