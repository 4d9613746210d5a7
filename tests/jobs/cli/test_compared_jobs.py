"""`plan --against`: what changed since an earlier job, what it costs, and how the noise changes.

In: jobs of the shop. Out: text and JSON. Holds: no ledger is opened, and the same numbers stand in the plans. Not covered: what a
ledger then does, which `tests/ledger` is about.
"""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]


def wider() -> dict[str, object]:
    made: Any = stage()
    made["metrics"]["revenue"]["max_value"] = 40
    return {"weekly": made}


@pytest.mark.parametrize(
    ("changes", "relation", "told"),
    [
        ({}, "same", ["nothing has changed since ", "costs      nothing more"]),
        (
            {"where": "price > 1"},
            "other rows",
            ["  where: (not there) -> price > 1", "the run that the plan of both pays for"],
        ),
        (
            {"stages": wider()},
            "other plan",
            ["  stages.weekly.metrics.revenue.max_value: 20 -> 40", "on top of what the earlier job has cost"],
        ),
        (
            {"budget": {"epsilon": 8.0, "delta": 1e-5, "runs": 3}},
            "other plan",
            ["  budget.runs: (not there) -> 3", "delta 1e-05 for all of its 3 runs, on top of"],
        ),
        (
            {"dataset": "branch"},
            "other dataset",
            ["from the account of its own dataset: the earlier job has another one"],
        ),
    ],
)
def test_a_plan_says_what_changed_since_an_earlier_job_and_what_it_costs(
    shop: Shop, call: Call, changes: dict[str, Any], relation: str, told: list[str]
) -> None:
    shop.without_ledger()
    old = shop.folder / "old.yaml"
    shutil.copy(shop.job, old)
    shop.write(**changes)
    said = call("plan", shop.job, "--against", old)
    assert (said.code, said.err) == (0, "")
    assert all(words in said.out for words in told)
    found = json.loads(call("plan", shop.job, "--against", old, "--json").out)
    assert found["against"]["relation"] == relation
    before, after = (json.loads(call("plan", job, "--json").out)["stages"][0]["metrics"] for job in (old, shop.job))
    differ = {f"weekly.{name}" for name in after if before[name]["stddev"] != after[name]["stddev"]}
    assert set(found["against"]["noise"]) == differ
    assert bool(differ) == (relation == "other plan")
    assert shop.left() == ["old.yaml"]


def test_a_changed_value_is_on_one_line(shop: Shop, call: Call) -> None:
    old = shop.folder / "old.yaml"
    shutil.copy(shop.job, old)
    shop.write(where="price > 0\nAND store > 0")
    said = call("plan", shop.job, "--against", old)
    assert "  where: (not there) -> price > 0\\u000aAND store > 0\n" in said.out


def test_a_job_that_is_not_there_is_refused(shop: Shop, call: Call) -> None:
    said = call("plan", shop.job, "--against", shop.folder / "none.yaml")
    assert (said.code, said.out) == (2, "")
    assert "none.yaml: cannot be read" in said.err


def test_parameters_are_given_to_the_job_that_declares_them_and_errors_of_the_earlier_job_say_so(
    shop: Shop, call: Call
) -> None:
    old = shop.folder / "old.yaml"
    shutil.copy(shop.job, old)
    shop.write(params={"least": {"type": "float"}}, where="price > {least}")
    assert call("plan", shop.job, "--against", old, "--param", "least=1").code == 0
    old.write_text(old.read_text().replace("privacy_unit", "privacy_unity"))
    said = call("plan", shop.job, "--against", old, "--param", "least=1")
    assert said.code == 2
    assert "old.yaml" in said.err
