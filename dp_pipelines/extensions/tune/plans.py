"""The plans of all configurations of a grid, made before a row is read.

In: configurations. Out: for each the public numbers from which its errors follow (`configuration`). Holds: each number
is that of a plan that the real planner made; configurations that differ only in what calibration does not see (clips and rows
per partition, in units of which it counts) share one plan. Not covered: which is best.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.tune.configuration import Configuration, configuration, scalable, without_scale
from dp_pipelines.extensions.tune.tune_grid import Option
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run.run import plan_of
from dp_pipelines.planning.describe import asked_to_json
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan


def configurations(
    request: Request, name: str, options: Sequence[Option], tell: Callable[[str], None]
) -> tuple[list[Configuration], StagePlan]:
    """The numbers of all configurations, and the stage of one of them.

    Args:
        request: the job.
        name: of the stage.
        options: the configurations.
        tell: is told how many plans are made.

    Raises:
        RequestError, BudgetError: one cannot be planned; the error names it.
    """
    plans: dict[str, StagePlan] = {}
    found = []
    for option in options:
        key = json.dumps(_seen_by_calibration(request, name, option), sort_keys=True)
        if key not in plans:
            tell(f"planning ({len(plans) + 1})")
            plans[key] = _planned(request, name, option).round(1).stages[name]
        found.append(configuration(option.number, option.query, plans[key]))
    return found, next(iter(plans.values()))


def _planned(request: Request, name: str, option: Option) -> Plan:
    try:
        return plan_of(option.file, request.stages | {name: option.query})
    except RequestError as error:
        field = f"{option.words}: {error.field}"
        raise type(error)(field=field, message=error.message, hint=error.hint) from None


def _seen_by_calibration(request: Request, name: str, option: Option) -> dict[str, Any]:
    job, query = option.file.job, option.query
    whole = asked_to_json(query)
    if scalable(query):
        # Of the metrics and the bounds it sees what `without_scale` says.
        whole = {key: value for key, value in whole.items() if key not in ("metrics", "bounds")}
        whole["scaled"] = without_scale(query)
    if "public" in whole["partitions"]:
        whole["partitions"] = "public"  # the same list in all
    return {
        "query": whole,
        "budget": job.budget.model_dump(mode="json"),
        "shares": {key: stage.declared_share for key, stage in job.stages.items()},
    }
