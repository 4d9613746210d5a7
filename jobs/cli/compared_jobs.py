"""Compares a job with an earlier one: what changed, what that costs, and what the noise of each number becomes.

In: two checked job files with their plans. Out: lines for people, JSON values. Holds: no row is read and no ledger is opened. Not
covered: whether the ledger has room, and whether the earlier job was ever run.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dp_pipelines.accounting.shown_costs import number, spent_number
from dp_pipelines.jobs.cli.shown_plan import ShownPlan
from dp_pipelines.jobs.request.job_fields import ABSENT, flat_fields
from dp_pipelines.jobs.request.request import asked_digest
from dp_pipelines.jobs.spec import presentation
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.report.key_text import visible

SAME, OTHER_ROWS, OTHER_PLAN, OTHER_DATASET = "same", "other rows", "other plan", "other dataset"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A job beside an earlier one.

    Args:
        changes: keys of the job file with what they said and what they say.
        relation: `SAME`, `OTHER_ROWS` (one plan, asked of other rows), `OTHER_PLAN` or `OTHER_DATASET`, with its own account.
        epsilon, delta: what all runs of the job cost together.
        runs: how many these are.
        noise: standard deviations before and after, by stage and metric, where either is known and they differ.
    """

    changes: Mapping[str, tuple[str, str]]
    relation: str
    epsilon: float
    delta: float
    runs: int
    noise: Mapping[str, tuple[float | None, float | None]]

    @property
    def cost(self) -> str:
        """What a run of the job costs after the earlier one."""
        charge = f"epsilon {spent_number(self.epsilon)} and delta {spent_number(self.delta)}"
        of_runs = f" for all of its {self.runs} runs" if self.runs > 1 else ""
        if self.relation == SAME:
            return "nothing more: the same run returns the release of the earlier job"
        if self.relation == OTHER_DATASET:
            return f"{charge}{of_runs}, from the account of its own dataset: the earlier job has another one"
        if self.relation == OTHER_ROWS:
            share = "the run" if self.runs == 1 else f"one of the {self.runs} runs"
            return (
                f"{share} that the plan of both pays for, if it is left; else the budget must say more runs, which is another "
                f"plan: {charge}{of_runs} or more on top of what the earlier job has cost"
            )
        return f"{charge}{of_runs}, on top of what the earlier job has cost, since it is another plan"

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "changes": {key: {"before": before, "after": after} for key, (before, after) in self.changes.items()},
            "relation": self.relation,
            "cost": self.cost,
            "noise": {name: {"before": before, "after": after} for name, (before, after) in self.noise.items()},
        }

    def lines(self, earlier: str) -> list[str]:
        """What people are told.

        Args:
            earlier: the name of the earlier job file.
        """
        told = [f"changed since {earlier}:" if self.changes else f"nothing has changed since {earlier}"]
        told += [f"  {_line(key)}: {_line(before)} -> {_line(after)}" for key, (before, after) in self.changes.items()]
        told += [
            f"  noise of {name}: {number(before)} -> {number(after)}" for name, (before, after) in self.noise.items()
        ]
        return [*told, f"costs      {self.cost}", ""]


def compare(earlier: tuple[JobFile, ShownPlan], later: tuple[JobFile, ShownPlan]) -> Comparison:
    """Compare two jobs.

    Args:
        earlier, later: each with its plan.
    """
    (old, old_plan), (new, new_plan) = earlier, later
    said = [one.job.model_dump(mode="json", exclude_defaults=True) for one in (old, new)]
    written = (presentation.with_derived(one.job, dump) for one, dump in zip((old, new), said, strict=True))
    before, after = (dict(flat_fields(one)) for one in written)
    keys = [*after, *(key for key in before if key not in after)]
    changes = {
        key: (before.get(key, ABSENT), after.get(key, ABSENT)) for key in keys if before.get(key) != after.get(key)
    }
    one_plan = asked_digest(old, old_plan.stages) == asked_digest(new, new_plan.stages)
    rows_before, rows_after = map(presentation.without, said)
    relation = OTHER_PLAN if not one_plan else OTHER_ROWS if rows_before != rows_after else SAME
    if old.job.dataset != new.job.dataset:
        relation = OTHER_DATASET
    noises = [_noise(one.plan) for one in (old_plan, new_plan)]
    names = [name for name in {**noises[1], **noises[0]} if noises[0].get(name) != noises[1].get(name)]
    return Comparison(
        changes=changes,
        relation=relation,
        epsilon=new_plan.plan["accounted"]["epsilon"],
        delta=new_plan.plan["accounted"]["delta"],
        runs=new_plan.plan.get("runs", 1),
        noise={name: (noises[0].get(name), noises[1].get(name)) for name in names},
    )


def _line(text: str) -> str:
    """Return a text on one line, with its line breaks as escapes."""
    return visible(text, most=len(text))


def _noise(plan: Mapping[str, Any]) -> dict[str, float]:
    """The standard deviation of the noise of each number that has one, by stage and metric."""
    return {
        f"{stage['name']}.{name}": metric["stddev"]
        for stage in plan["stages"]
        for name, metric in (stage.get("metrics") or {}).items()
        if metric.get("stddev") is not None
    }
