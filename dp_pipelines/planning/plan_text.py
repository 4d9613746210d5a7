"""A plan as a short text for a notebook: its budget, and the noise of each number.

In: what `Plan.to_json` gives. Out: lines. Holds: a number whose noise depends on the size of its group says so. Not covered:
thresholds, limits and expected errors, which `dp-pipelines plan` prints.
"""

import html
from collections.abc import Iterator, Mapping
from typing import Any

from dp_pipelines.accounting.shown_costs import number, spent_number

HEADS = ("stage", "metric", "noise", "standard deviation")


def plan_text(plan: Mapping[str, Any]) -> str:
    """Return a plan as a short text.

    Args:
        plan: the JSON values of a plan; `epsilon`, `delta`, `runs` and `stages` are enough.

    >>> metrics = {"orders": {"noise": "gaussian", "stddev": 86.128}, "basket": {"noise": "gaussian", "stddev": None}}
    >>> stages = [{"name": "weekly", "metrics": metrics}, {"name": "returns"}]
    >>> print(plan_text({"epsilon": 1.0, "delta": 1e-6, "runs": 52, "stages": stages}))
    epsilon 1, delta 1e-06 for all 52 runs together
    stage    metric  noise     standard deviation
    weekly   orders  gaussian  86.13
    weekly   basket  gaussian  depends on group size
    returns  -       -         -
    """
    rows = [HEADS, *_rows(plan)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([_budget(plan), *lines])


def plan_html(plan: Mapping[str, Any]) -> str:
    """Return the same as an HTML table. Arguments as for `plan_text`.

    >>> stages = [{"name": "<b>", "metrics": {"orders": {"noise": "gaussian", "stddev": 86.128}}}]
    >>> for row in plan_html({"epsilon": 1.0, "delta": 1e-6, "runs": 1, "stages": stages}).split("<tr>"):
    ...     print(row)
    <table><caption>epsilon 1, delta 1e-06</caption>
    <th>stage</th><th>metric</th><th>noise</th><th>standard deviation</th></tr>
    <td>&lt;b&gt;</td><td>orders</td><td>gaussian</td><td>86.13</td></tr></table>
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in HEADS)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>"  # names are those of a user
        for row in _rows(plan)
    )
    return f"<table><caption>{html.escape(_budget(plan))}</caption><tr>{head}</tr>{body}</table>"


def _budget(plan: Mapping[str, Any]) -> str:
    """Return the budget of a plan in a line."""
    runs = f" for all {plan['runs']} runs together" if plan["runs"] > 1 else ""
    return f"epsilon {spent_number(plan['epsilon'])}, delta {spent_number(plan['delta'])}{runs}"


def _rows(plan: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for stage in plan["stages"]:
        metrics = stage.get("metrics") or {}
        if not metrics:
            yield stage["name"], "-", "-", "-"
        for name, metric in metrics.items():
            stddev = metric.get("stddev")
            yield (
                stage["name"],
                name,
                str(metric["noise"]),
                "depends on group size" if stddev is None else number(stddev),
            )
