"""The mechanism records of a plan, its choices and its scales, written so that renaming a part of a stage changes nothing.

In: a plan. Out: JSON values in the order of the plan, and the plan that these choices give. Holds: a part of a stage is named by
its role, so that a new name for it changes `ROLES` and no golden file; numbers are exact. Not covered: what a plan costs, which
tests/accounting and tests/planning compute from such records.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run.run import cached_plan, plan_of
from dp_pipelines.plan_stages import sharing
from dp_pipelines.planning.plan import Plan

ROLES = {
    "": "release",
    "select1": "selection, round 1",
    "select2": "selection, round 2",
    "select3": "selection, round 3",
    "bounds": "histograms for bounds of values",
    "partitions": "histogram for the bound on partitions",
    "kept": "bound losses",
    "compare": "moments of arms",
    "level0": "rollup, level 0",
    "level1": "rollup, level 1",
    "bins": "quantiles for bins",
    "users": "training users",
    "moments": "second moments of features",
    "candidate2": "fit of candidate 2",
    "choice": "choice of a candidate",
    "tests": "agreement of teachers",
    "evaluation": "evaluation",
}
"""What a part does, by what its name adds to that of its stage. A part that is renamed has a new key and the same role."""

VOCABULARY = "vocabulary."
"""Before the name of a feature: the part that selects the categories of that feature."""

CATEGORIES = "categories of "
"""The role of such a part, likewise."""

Content = dict[str, Any]
"""What is compared of one plan: `scales`; `parts`, a list with share and choices; `records`; and `last run`, if runs differ."""


def planned(asked: Request, choices: Content | None = None) -> Plan:
    """Return the plan of a job.

    Args:
        asked: what the job asks for.
        choices: what `content` returned for the same job, so that no noise is searched for. None calibrates, or takes the plan of
            the same job and code from the user's cache.

    Raises:
        RequestError: the choices are not those of a plan for it.
        BudgetError: the budget cannot be met.
    """
    if choices is None:
        return cached_plan(asked.file, asked.stages, asked.asked)
    frozen = {"split": asked.file.job.budget.split, "sharing": sharing.NOW.number, **_frozen(choices)}
    return plan_of(asked.file, asked.stages, frozen)


def role(part: str, stage: str) -> str:
    """Return the name of a stage and the role of one of its parts.

    >>> role("weekly.select1", "weekly"), role("weekly", "weekly"), role("model.vocabulary.city", "model")
    ('weekly: selection, round 1', 'weekly: release', 'model: categories of city')
    """
    name = part.removeprefix(stage).removeprefix(".")
    if name.startswith(VOCABULARY):
        return f"{stage}: {CATEGORIES}{name.removeprefix(VOCABULARY)}"
    assert name in ROLES, (
        f"the part {name!r} of a stage has no role: add its name to ROLES in tests/golden/plan_records.py"
    )
    return f"{stage}: {ROLES[name]}"


def part(of_role: str) -> str:
    """Return the name of the part that has a role.

    >>> part("weekly: release"), part("weekly: selection, round 1"), part("model: categories of city")
    ('weekly', 'weekly.select1', 'model.vocabulary.city')
    """
    stage, _, name = of_role.partition(": ")
    if name.startswith(CATEGORIES):
        return f"{stage}.{VOCABULARY}{name.removeprefix(CATEGORIES)}"
    (key,) = [key for key, value in ROLES.items() if value == name]
    return f"{stage}.{key}" if key else stage


def content(plan: Plan) -> Content:
    """Return the records of a plan and what they follow from, in the order of the plan."""
    roles = {name: role(name, read.of) for name, read in plan.reads.items()}
    frozen, groups = plan.frozen()["calibrated"], plan.all_mechanisms()
    written: Content = {
        "scales": {law: frozen[f"{law}_scale"] for law in ("gaussian", "laplace")},
        "parts": [
            {"part": roles[name], "share": share, **frozen["choices"][name]} for name, share in plan.shares.items()
        ],
        "records": [_without_name(record, roles) for record in groups[0][0]],
    }
    if len(groups) > 1:
        written["last run"] = [_without_name(record, roles) for record in groups[-1][0]]
    restored: Content = json.loads(json.dumps(written))  # tuples become lists, as in the file
    return restored


def _without_name(record: MechanismRecord, roles: Mapping[str, str]) -> Content:
    fields = record.to_json()
    return {"part": roles[fields.pop("stage")], **fields}


def _frozen(written: Content) -> Content:
    """Return the choices and scales as a plan stores them."""
    choices = {
        part(each["part"]): {key: value for key, value in each.items() if key not in ("part", "share")}
        for each in written["parts"]
    }
    return {"calibrated": {"choices": choices, **{f"{law}_scale": text for law, text in written["scales"].items()}}}


def differences(written: Content, now: Content) -> Iterator[str]:
    """Yield a line for each entry that differs, with its list and its number in it, counted from 1."""
    for key in dict.fromkeys([*written, *now]):
        before, after = (_entries(each.get(key, [])) for each in (written, now))
        for number in range(max(len(before), len(after))):
            old, new = (each[number] if number < len(each) else "nothing" for each in (before, after))
            if old != new:
                yield f"{key}, entry {number + 1}: the golden file has {old}, the plan {new}"


def _entries(values: Any) -> list[str]:
    return [json.dumps(each) for each in (values if isinstance(values, list) else [values])]


def to_text(contents: Mapping[str, Content]) -> str:
    """Return the contents of several plans as JSON, one entry a line, so that a diff shows which record changed."""
    return (
        _object({name: _object({k: _list(v) for k, v in each.items()}, 1) for name, each in contents.items()}, 0) + "\n"
    )


def _object(texts: Mapping[str, str], depth: int) -> str:
    """Return an object of texts that are JSON."""
    pairs = ",\n".join(f"{' ' * (depth + 1)}{json.dumps(key)}: {text}" for key, text in texts.items())
    return f"{{\n{pairs}\n{' ' * depth}}}"


def _list(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"   {json.dumps(each)}" for each in value) + "\n  ]"
