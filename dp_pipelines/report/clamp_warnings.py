"""Warnings about clamps that change much of what a stage adds up, in sentences for readers.

In: the entry of a stage in a manifest (any part of it may be missing or wrong). Out: lines. Holds: released numbers and public
facts only; a share is told where it is above `MUCH` by more than its error bar. Not covered: what else limits cut off
(`kept_text`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from dp_pipelines.metrics.error_bars import LAPLACE_BAR
from dp_pipelines.report.kept_text import percent
from dp_pipelines.report.key_text import visible

MUCH = 0.2
"""The share of values beyond one end of a clamp from which on the page says so."""

NARROWEST = 2.0**-31
"""The part of a declared range within which the bins of a run's histogram are not told apart from 0."""

WIDER = 4.0
"""How many times as large a clamp is suggested to be."""


def lines(stage: Mapping[str, Any]) -> list[str]:
    """Sentences about one stage; none where its clamps are wide enough, as far as released numbers tell.

    Args:
        stage: its entry in the manifest.

    >>> sides = {"below": {"share": 0.0, "stddev": 0.01}, "above": {"share": 0.4, "stddev": 0.01}}
    >>> lines({"kept": {"values": [{"column": "delay", "low": 0.0, "high": 15.0, **sides}]}})
    ['warning: 40% (± 3%) of values of delay lie above 15 and count as 15. Try max_value: 60']
    >>> lines({"metrics": {"total": {"bounds": [0.0, 100.0], "within": [0.0, 100.0]}}})[0].partition(":")[0]
    'total'
    """
    return [sentence for _, sentence in of_stage(stage)]


def of_stage(stage: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same sentences, each with the column or the metric that it is about.

    Args:
        stage: its entry in the manifest.
    """
    return [*_of_shares(stage.get("kept")), *_of_choices(stage.get("metrics"))]


def _of_shares(kept: object) -> list[tuple[str, str]]:
    values = kept.get("values") if isinstance(kept, Mapping) else None
    said = []
    for entry in values if isinstance(values, Sequence) and not isinstance(values, str) else []:
        if not isinstance(entry, Mapping):
            continue
        low, high, below, above = (entry.get(part) for part in ("low", "high", "below", "above"))
        if _is_number(high) and _is_much(above):
            wider = f"max_value: {_number(WIDER * high)}" if high > 0 else "a larger max_value"
            said.append((str(entry.get("column")), f"{_beyond(entry, above, 'above', high)}. Try {wider}"))
        if _is_number(low) and _is_much(below):
            # A lower bound of 0 may well be meant; it is no sign of how far values go below it.
            reach = _number(-abs(high) if _is_number(high) and high else -1000.0)
            wider = f"min_value: {reach if low == 0 else _number(WIDER * low)}" if low <= 0 else "a smaller min_value"
            said.append(
                (str(entry.get("column")), f"{_beyond(entry, below, 'below', low)}. If that matters, try {wider}")
            )
    return said


def _beyond(entry: Mapping[str, Any], share: Mapping[str, Any], side: str, end: float) -> str:
    name = visible(str(entry.get("column")), most=100)
    return f"warning: {percent(share)} of values of {name} lie {side} {_number(end)} and count as {_number(end)}"


def _of_choices(metrics: object) -> list[tuple[str, str]]:
    said = []
    for column, entry in metrics.items() if isinstance(metrics, Mapping) else []:
        if not isinstance(entry, Mapping):
            continue
        chosen, declared = _pair(entry.get("bounds")), _pair(entry.get("within"))
        if chosen is None or declared is None:
            continue
        name, reach = visible(str(column), most=100), max(map(abs, declared))
        if chosen == declared:
            said.append(
                (
                    str(column),
                    f"{name}: the run took the whole range as its bounds: values reach that far, or too few stand out from the "
                    "noise to show how far they reach. If you know, write max_value, or a narrower `within`",
                )
            )
        elif max(map(abs, chosen)) <= NARROWEST * reach:
            said.append(
                (
                    str(column),
                    f"warning: the run took nearly 0 ({_number(chosen[1])}) as the largest value of {name}: it leaves out most "
                    "of what lies above, and its error bar does not cover that. If you know how large values get, write "
                    "max_value",
                )
            )
    return said


def _is_much(share: object) -> TypeGuard[Mapping[str, Any]]:
    if not isinstance(share, Mapping):
        return False
    part, stddev = share.get("share"), share.get("stddev")
    return _is_number(part) and _is_number(stddev) and part - LAPLACE_BAR * stddev > MUCH


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def _pair(value: object) -> tuple[float, float] | None:
    if not isinstance(value, Sequence) or len(value) != 2 or not all(map(_is_number, value)):
        return None
    return float(value[0]), float(value[1])


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
