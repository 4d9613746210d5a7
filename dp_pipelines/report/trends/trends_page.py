"""The page of several published runs of one plan: each metric over the runs, the budget over the runs, and tables.

In: published folders. Out: HTML. Holds: post-processing of published files and public parameters; one file that fetches nothing;
the same folders in the same order give the same bytes. Not covered: models, which the page of each release shows.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.accounting.accountant import epsilon_of_rounds
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError
from dp_pipelines.report.axes import TimeAxis
from dp_pipelines.report.chart import Chart
from dp_pipelines.report.charts import joined_series
from dp_pipelines.report.key_text import label, visible
from dp_pipelines.report.numbers import public_number
from dp_pipelines.report.pages import amount, document, mapping, mappings, sequence, text
from dp_pipelines.report.trends.published_runs import (
    ReleasedRun,
    RunOrder,
    changed_jobs,
    check_together,
    in_order,
    stages_of,
)
from dp_pipelines.report.trends.run_series import stage_over_runs
from dp_pipelines.report.words import presented
from dp_pipelines.report.words.presented import Presented
from dp_pipelines.report.words.unit_name import unit_name

MOST_TOGETHER = 400
"""So many runs get what they cost together with all before them; of more, the last does."""

RESERVED = "reserved"
"""The ledger's rule by which the cost of all runs of a plan is set aside at the first."""


def render_trends(runs: Sequence[ReleasedRun]) -> str:
    """The page of several runs.

    Args:
        runs: at least two, of one plan.

    Raises:
        RequestError: they are not several runs of one plan, or a table cannot be read.
    """
    check_together(runs)
    runs, order = in_order(runs)
    last = runs[-1].content
    unit = text(last.get("privacy_unit")) or "privacy unit"
    stages = stages_of(runs)
    title, description = presented.read_title(last)  # the words of an earlier run may have been changed since
    return document(
        "trends.html.j2",
        made_up="",
        title=title or text(last.get("dataset")) or "Private releases",
        description=description,
        unit=unit_name(unit),
        plan=text(last.get("plan")),
        count=len(runs),
        first=order.texts[0],
        last=order.texts[-1],
        order=order.words,
        changed=changed_jobs(runs),
        stages=[
            _section(name, stage, runs, order, unit, presented.read_stage(last, name)) for name, stage in stages.items()
        ],
        models=sorted({name for run in runs for name in run.models}),
        budget=_budget(runs, order),
        not_covered=list(
            dict.fromkeys(text(item) for run in runs for item in sequence(run.content.get("not_covered")))
        ),
    )


def _section(
    name: str, stage: Any, runs: Sequence[ReleasedRun], order: RunOrder, unit: str, shown_as: Presented
) -> dict[str, Any]:
    try:
        with np.errstate(all="ignore"):  # what overflows becomes infinite, and what is infinite is not shown
            return stage_over_runs(name, stage, runs, order, unit, shown_as)
    except (OSError, pa.ArrowException):
        raise RequestError(
            field=f"stage {visible(name)!r}", message="has tables that cannot be read as one: their columns differ",
            hint="name runs of one version of the job",
        ) from None  # fmt: skip


def _budget(runs: Sequence[ReleasedRun], order: RunOrder) -> dict[str, Any]:
    """What each run cost, what the runs cost together up to each, and what the account had spent."""
    asked = mapping(runs[-1].content.get("budget"))
    several, together = asked.get("runs"), joint_costs(runs)
    return {
        "rows": [_row(run) | {"together": public_number(cost)} for run, cost in zip(runs, together, strict=True)],
        "windows": windows_of(runs) > 1,
        "joint": any(cost is not None for cost in together),
        "without": [run.name for run in runs if not mapping(run.ledger.get("head"))],
        "reserved": all(text(run.ledger.get("rule")) == RESERVED for run in runs),
        "runs": several if isinstance(several, int) and several > 1 else 1,
        "asked": {name: public_number(asked.get(name)) for name in ("epsilon", "delta")},
        "plot": _cost_plot(together, amount(asked.get("epsilon")), order),
    }


def windows_of(runs: Sequence[ReleasedRun]) -> int:
    """How many windows of event time the runs are about; their units differ, and so do their costs."""
    return len({text(run.ledger.get("window")) for run in runs})


def joint_costs(runs: Sequence[ReleasedRun]) -> list[float | None]:
    """The epsilon of the first run, of the first two together and so on, at the delta of the plan, by the records in manifests.

    None where nobody can tell: the runs are about several windows, a record is not known here, or no epsilon is enough.

    Args:
        runs: of one plan, in order.
    """
    delta = amount(mapping(runs[-1].content.get("accounted")).get("delta"))
    if windows_of(runs) > 1 or delta is None:
        return [None] * len(runs)
    try:
        records = [tuple(map(MechanismRecord.from_json, mappings(run.content.get("mechanisms")))) for run in runs]
        if not all(records):
            return [None] * len(runs)
        counts: dict[tuple[MechanismRecord, ...], int] = {}
        found: list[float | None] = []
        for at, of_one in enumerate(records):
            counts[of_one] = counts.get(of_one, 0) + 1
            told = at < MOST_TOGETHER or at == len(runs) - 1
            cost = epsilon_of_rounds(counts.items(), delta) if told else math.inf
            found.append(cost if math.isfinite(cost) else None)
    except (RequestError, TypeError, ValueError, OverflowError):
        return [None] * len(runs)
    return found


def _row(run: ReleasedRun) -> dict[str, str]:
    once = mapping(run.content.get("accounted_one_run")) or mapping(run.content.get("accounted"))
    spent, cap = mapping(run.ledger.get("spent")), mapping(run.ledger.get("cap"))
    given = sorted(mapping(run.content.get("params")).items())
    return {
        "id": run.name,
        "params": ", ".join(f"{key} = {text(value)}" for key, value in given),
        "round": text(run.ledger.get("round")),
        "window": text(run.ledger.get("window")),
        **{part: public_number(once.get(part)) for part in ("epsilon", "delta")},
        "spent": public_number(spent.get("epsilon")),
        "cap": public_number(cap.get("epsilon")),
    }


def _cost_plot(together: Sequence[float | None], budget: float | None, order: RunOrder) -> Chart | None:
    """What the runs cost together, run after run, below the budget of the plan."""
    known = [(place, cost) for place, cost in zip(order.places, together, strict=True) if cost is not None]
    if len(known) < 2:
        return None
    texts = {place: label(words) for place, words in zip(order.places, order.texts, strict=True)}
    most = max(*(cost for _, cost in known), budget or 0.0)
    time = TimeAxis(texts=texts, marks=texts, step=1.0)
    words = f"Epsilon of the runs together: {public_number(known[0][1])} after {texts[known[0][0]]}"
    title = f"{words}, {public_number(known[-1][1])} after {texts[known[-1][0]]}"
    return joined_series(known, (0.0, most * 1.08 or 1.0), time.below(whole=True), title, budget)
