"""The plan of a job as commands show it: from the cache if it is there, with what larger groups of units are guaranteed.

In: a checked job file and parameters. Out: the plan as JSON values, and what it was made from. Holds: no row is read. Not
covered: how it is laid out (`terminal.summary`).
"""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_pipelines.accounting.group_privacy import GroupGuarantee, group_guarantee
from dp_pipelines.jobs.cli.plan_account import AccountBeside
from dp_pipelines.jobs.request import one_row_note, source_notes, window_note
from dp_pipelines.jobs.request.joined_tables import with_limits
from dp_pipelines.jobs.request.preview import looked_at
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run import frozen_plans, plan_cache
from dp_pipelines.jobs.run.run import plan_of
from dp_pipelines.jobs.sources import event_window
from dp_pipelines.jobs.spec.job_file import Job, JobFile, Stage
from dp_pipelines.jobs.terminal import output
from dp_pipelines.planning import appearing_groups, unmeasured_limits
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.release.manifest import unit_in_words
from dp_pipelines.report.words.budget_notes import budget_notes
from dp_pipelines.report.words.unit_name import plural


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShownPlan:
    """A plan.

    Args:
        stages: what each stage asks for.
        plan: what `plan --json` prints.
        groups: what groups of the wanted sizes are guaranteed.
        request: of the checked files; None where they were not checked.
        notes: what to say of stages beside their plan, by name.
        of_budget: what to say of the size of the budget.
        spare: how many of the runs are for corrections.
        unit: the privacy unit of the job, in words.
    """

    stages: Mapping[str, Query | TrainModel]
    plan: dict[str, Any]
    groups: tuple[GroupGuarantee, ...]
    request: Request | None
    notes: Mapping[str, Sequence[str]]
    of_budget: Sequence[str] = ()
    spare: int = 0
    unit: str = "unit"

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, with what a group of the first size is guaranteed."""
        return self.plan if not self.groups else {**self.plan, "group": self.groups[0].to_json()}


MANY_STAGES = 50
"""With more stages planning takes so long that progress is shown, and no second plan is made to compare with."""


@contextlib.contextmanager
def _progress(stages: frozen_plans.Stages) -> Iterator[None]:
    if len(stages) <= MANY_STAGES:
        yield
        return
    from dp_pipelines.jobs.terminal.progress import Progress

    with Progress(sys.stderr) as progress:
        progress.show(frozen_plans.progress_words(stages))
        yield


def planned(file: JobFile, given: Sequence[str], groups: Sequence[int] = (), *, note: bool = True) -> ShownPlan:
    """The plan of a job.

    Args:
        file: the job.
        given: `NAME=VALUE` for each parameter.
        groups: sizes of groups.
        note: whether to say on standard error what a user should know of the job.

    Raises:
        RequestError: what is wrong.
        BudgetError: the budget cannot be met.
    """
    stages, unchecked, request = looked_at(file, given)
    for text in [*([unchecked] if unchecked else []), *source_notes.before_plan(file.job)] if note else []:
        output.note(f"note: {text}")
    name = frozen_plans.name_of(file, stages)
    plan = plan_cache.load(name, "shown")
    guaranteed: tuple[GroupGuarantee, ...] = ()
    if plan is None or groups:
        with _progress(stages):
            made = frozen_plans.plan_of(file, stages, plan_of, name)
            plan = plan or made.to_json()
        plan_cache.store(name, "shown", plan)
        guaranteed = tuple(group_guarantee(made.all_mechanisms(), units=size, **made.accounted) for size in groups)
    of_budget = [*_of_budget(file.job), *(_of_window(file, stages, plan) if note else [])]
    return ShownPlan(
        stages=stages,
        plan=appearing_groups.in_units(with_limits(plan, file.job), plural(unit_in_words(file.job.unit))),
        groups=guaranteed,
        request=request,
        notes=_notes(file, stages, plan),
        of_budget=of_budget,
        spare=file.job.budget.spare,
        unit=unit_in_words(file.job.unit),
    )


def _of_budget(job: Job) -> list[str]:
    """Return what to say of the size of a job's budget."""
    expected = None if job.expect is None else job.expect.units
    return budget_notes(job.budget.epsilon, job.budget.delta, _unit(job), expected)


def _unit(job: Job) -> str:
    """Return the privacy unit of a job as a manifest has it."""
    return event_window.in_words(unit_in_words(job.unit), job)


def _of_window(file: JobFile, stages: Mapping[str, Query | TrainModel], shared: Mapping[str, Any]) -> list[str]:
    """Return what a window of event time would save a job whose runs share their budget.

    Args:
        file: the job.
        stages: what each of them asks for.
        shared: its plan as JSON values.
    """
    job = file.job
    if window_note.period_of(job) is None or len(stages) > MANY_STAGES:
        return []
    budget = job.budget.model_copy(update={"runs": 1, "spare": 0})
    one = JobFile(file.path, job.model_copy(update={"budget": budget}), file.document)
    name = frozen_plans.name_of(one, stages)
    alone = plan_cache.load(name, "shown")
    if alone is None:
        alone = frozen_plans.plan_of(one, stages, plan_of, name).to_json()
        plan_cache.store(name, "shown", alone)
    return window_note.window_note(job, shared, alone, _unit(job))


def _notes(file: JobFile, stages: Mapping[str, Query | TrainModel], plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what to say of each stage: that its limits are not measured, and what one row of each unit would save."""
    notes, described = {}, {stage["name"]: stage for stage in plan["stages"]}
    for name, asked in stages.items():
        stage = file.job.stages[name]
        if not isinstance(asked, Query) or not isinstance(stage, Stage):
            continue
        unmeasured = unmeasured_limits.note(
            asked,
            measurable=not stage.unit_columns and stage.where is None,
            has_ranges=file.job.join is None and stage.limit is None,
            units=plural(unit_in_words(file.job.unit)),
        )
        words = [unmeasured, one_row_note.one_row_note(asked, described[name], unit_in_words(file.job.unit))]
        notes[name] = [text for text in words if text]
    return notes


def print_plan(
    shown: ShownPlan,
    *,
    in_json: bool,
    explain: bool = False,
    above: str = "",
    account: AccountBeside | None = None,
) -> None:
    """Print a plan.

    Args:
        shown: the plan.
        in_json: whether to print JSON instead of text.
        explain: whether the text says how the numbers were chosen.
        above: what stands above the text.
        account: what the account beside the job says.
    """
    from dp_pipelines.jobs.terminal import summary

    plan = shown.to_json()
    with output.printing():
        if in_json:
            print(summary.as_json(plan))
            return
        if above:
            print(above)
        unit = shown.unit
        if account is not None and account.unit:
            unit = account.unit
            plan = appearing_groups.in_units(plan, plural(unit))
        words = "" if account is None else account.words
        summary.print_plan(
            plan, sys.stdout, notes=shown.notes, account=words, of_budget=shown.of_budget, spare=shown.spare, unit=unit
        )
        if explain:
            summary.print_explanation(plan, sys.stdout)
