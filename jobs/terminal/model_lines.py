"""Prints a published model: its measures, its verdict and its measures by group.

In: the files of a model in a published folder. Out: lines. Holds: released numbers only. Not covered: the page's part
(`report.model_section`).
"""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from dp_pipelines.jobs.terminal.released_rows import shown
from dp_pipelines.report.models import model_verdict
from dp_pipelines.report.numbers import ERROR_BAR, with_error_bar
from dp_pipelines.report.pages import mapping

MEASURES = {"auc": "AUC", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "rmse": "RMSE", "r2": "R2"}
"""The measures of an evaluation that are shown, if it has them."""


def print_model(path: pathlib.Path, out: Console, unit: str) -> None:
    """Print the verdict on a model and its measures on held-out units, with joint error bars for noise, sampling and bins.

    Args:
        path: its `evaluation.json`.
        out: where to.
        unit: what one privacy unit is called.
    """
    evaluation = json.loads(path.read_text(encoding="utf-8"))
    described = path.with_name("model.json")
    content = mapping(json.loads(described.read_text(encoding="utf-8"))) if described.exists() else {}
    chosen, by = evaluation.get("chosen"), evaluation.get("by")
    counted = model_verdict.counted(evaluation, unit)
    out.print(
        f"[bold]{escape(path.parent.name)}[/bold] · model; on held-out units{escape(shown(f' ({counted})')) if counted else ''}: "
        + _listed_measures(evaluation["measures"])
        + (f"; {escape(shown(chosen['words']))}" if chosen else "")
    )
    for words in model_verdict.lines(evaluation, content, unit):
        out.print(f"  {escape(shown(words))}")
    if by:
        for of in by["groups"]:
            group = by["others"] if of["group"] is None else str(of["group"])
            out.print(f"  {escape(shown(by['column']))} {escape(shown(group))}: {_listed_measures(of['measures'])}")
        out.print(f"  {escape(shown(by['words']))}")
    out.print()


def _listed_measures(measures: Mapping[str, Any]) -> str:
    listed = []
    for name, words in MEASURES.items():
        estimate = measures.get(name) or {}
        if estimate.get("value") is not None:
            bars = math.hypot(*(estimate.get(f"{kind}_stddev") or 0.0 for kind in ("noise", "sampling")))
            bars += (estimate.get("hidden_by_bins") or 0.0) / ERROR_BAR
            listed.append(f"{words} {with_error_bar(estimate['value'], bars)}")
    return ", ".join(listed) or "too few to tell"
