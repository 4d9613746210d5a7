"""Says what `window:` would save, to jobs whose runs share a budget although each of them reads another period.

In: a job, its plan, and the plan of one run under the same budget. Out: a sentence, or nothing. Holds: it follows from the job
file alone. Not covered: whether the runs do read other rows, which only their owner knows.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.base_models import OverUnits
from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.report.words.unit_name import unit_name

WORTH_SAYING = 1.2
"""How many times the noise of one run alone that of several must be."""


def period_of(job: Job) -> str | None:
    """Return the parameter of type date by which each run of a job reads other rows; None where a window would change nothing.

    Args:
        job: what is asked for.
    """
    if job.window is not None or job.budget.all_runs == 1 or job.source is None:
        return None
    stages = [stage for stage in job.stages.values() if isinstance(stage, OverUnits)]
    texts = [job.where, *(stage.where for stage in stages), job.source.pattern]
    used = {name for text in texts if text is not None for name in job_parameters.undeclared(text, ())}
    return next((name for name, param in job.params.items() if param.type == "date" and name in used), None)


def window_note(job: Job, shared: Mapping[str, Any], alone: Mapping[str, Any], unit: str) -> list[str]:
    """Return what a window of event time would save and what it would no longer promise; nothing where it saves little.

    Args:
        job: with a parameter as of `period_of`.
        shared: its plan as JSON values.
        alone: the plan of one run under the whole budget.
        unit: the privacy unit as a manifest has it.
    """
    before, after = (_deviations(plan) for plan in (shared, alone))
    ratios = [before[key] / after[key] for key in before.keys() & after.keys()]
    if not ratios or (times := statistics.median(ratios)) < WORTH_SAYING:
        return []
    name, keys = unit_name(unit), f"window: {{column: ..., days: ..., param: {period_of(job)}}}"
    return [
        f"{job.budget.all_runs} runs share one budget. If each reads another period, `{keys}` gives each period the whole "
        f"budget: the noise is {times:.1f} times what it would be then. That protects one {name} within one period: what is "
        f"shown of a {name} in several periods adds up (docs/ledger.md, Windows)"
    ]


def _deviations(plan: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the standard deviation of each metric of a plan that has one for all groups, by stage and name."""
    stages: Sequence[Mapping[str, Any]] = plan["stages"]
    found = {
        (stage["name"], name): metric.get("stddev")
        for stage in stages
        for name, metric in (stage.get("metrics") or {}).items()
    }
    return {key: stddev for key, stddev in found.items() if isinstance(stddev, float) and 0 < stddev < math.inf}
