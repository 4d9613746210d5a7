"""The plan of a job, calibrated once for each user, job and version of the code.

In: a job and what its stages ask for. Out: its plan. Holds: a plan out of the cache is restored as one that a ledger has frozen:
built from the job's own queries, accounted for anew and refused above the budget; one that is not what was stored is made anew.
Its digest, and so the id of a run, is that of the plan which would be calibrated now. Not covered: plans that a ledger has
frozen, which come before it (`ledger_account`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import asked_digest
from dp_pipelines.jobs.run import plan_cache
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import TrainModel

FROZEN = "frozen"

DAMAGED = (RequestError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What restoring a plan may raise where what was kept of it is not what a plan needs."""

Stages = Mapping[str, Query | TrainModel]


def progress_words(stages: Stages) -> str:
    """Return what progress says while a plan is made.

    >>> progress_words({})
    'planning 0 stages'
    """
    return f"planning {len(stages)} stage{'' if len(stages) == 1 else 's'}"


def name_of(file: JobFile, stages: Stages, asked: str = "") -> str:
    """The name of a plan in the cache.

    Args:
        file: the job.
        stages: what each of its stages asks for.
        asked: `Request.asked`, where it is known.
    """
    content = {
        "asked": asked or asked_digest(file, stages),
        "shares": {name: stage.declared_share for name, stage in file.job.stages.items()},
        # Two tasks that are asked for alike may leave different things open (`planning.describe.asked_to_json`).
        "counted": {name: task.counted_examples for name, task in stages.items() if isinstance(task, TrainModel)},
        "expect": file.job.expect.model_dump(exclude={"rows"}) if file.job.expect else None,
    }
    return plan_cache.key(content, plan_cache.code())


def plan_of(
    file: JobFile, stages: Stages, make: Callable[[JobFile, Stages, Mapping[str, Any] | None], Plan], name: str
) -> Plan:
    """The plan of a job, out of the cache if it is there.

    Args:
        file: the job.
        stages: what each of its stages asks for.
        make: makes it from what was frozen of it, or calibrates where that is None.
        name: what `name_of` gave.

    Raises:
        RequestError: an argument is wrong.
        BudgetError: the budget cannot be met.
    """
    kept = plan_cache.load(name, FROZEN)
    if kept is not None:
        try:
            plan = make(file, stages, kept["frozen"])
            if plan.digest == kept["plan"]:
                return plan
        except DAMAGED:
            pass
    plan = make(file, stages, None)
    plan_cache.store(name, FROZEN, {"frozen": plan.frozen(), "plan": plan.digest})
    return plan
