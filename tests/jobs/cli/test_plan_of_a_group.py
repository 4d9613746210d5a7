"""`plan --group`: what several units together are guaranteed, before a row is read; and what a report says of a household.

Not covered: the numbers themselves (`tests/accounting/test_group_privacy.py`).
"""

import json
from collections.abc import Callable

import pytest

from dp_pipelines.jobs.cli import shown_plan
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

PUBLIC = {"public": [["Mon"], ["Tue"]]}


def test_a_group_of_four_is_told_beside_the_budget(shop: Shop, call: Call) -> None:
    shop.write(stages={"weekly": stage(partitions=PUBLIC)})
    said = call("plan", shop.job, "--group", "4")
    assert said.code == 0
    (line,) = [line for line in said.out.splitlines() if line.startswith("group")]
    assert line.startswith("group      4 customers together: epsilon ")
    assert line.endswith("delta 1e-05")
    plain = call("plan", shop.job)
    assert plain.out == said.out.replace(line + "\n", "")


def test_private_groups_follow_from_the_guarantee_of_one_unit(shop: Shop, call: Call) -> None:
    told = json.loads(call("plan", shop.job, "--group", "3", "--json").out)
    epsilon, delta = told["accounted"]["epsilon"], told["accounted"]["delta"]
    assert told["group"]["epsilon"] == pytest.approx(3 * epsilon)
    assert told["group"]["delta"] > 3 * delta
    assert "group" not in json.loads(call("plan", shop.job, "--json").out)


@pytest.mark.parametrize("size", ["0", "1001", "-4"])
def test_a_group_of_no_size_is_refused(shop: Shop, call: Call, size: str) -> None:
    said = call("plan", shop.job, f"--group={size}")
    assert said.code == 2
    assert "group" in said.err


def test_a_group_that_no_plan_protects_is_told_so(shop: Shop, call: Call) -> None:
    said = call("plan", shop.job, "--group", "1000")
    assert "1000 customers together have no useful guarantee under this plan" in said.out


@pytest.mark.parametrize("delta", [0.0, 1e-20])
def test_json_of_a_group_that_no_number_bounds_is_json(shop: Shop, call: Call, delta: float) -> None:
    shop.write(stages={"weekly": stage(partitions=PUBLIC)}, budget={"epsilon": 1.0, "delta": delta})
    told = json.loads(call("plan", shop.job, "--group", "60", "--json").out)
    assert told["group"]["units"] == 60
    assert told["group"]["epsilon"] is None or told["group"]["epsilon"] >= 59


def test_a_plan_of_many_stages_shows_progress(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_plan, "MANY_STAGES", 0)
    monkeypatch.setenv("DP_PIPELINES_PROGRESS_SECONDS", "0.001")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shop.folder / "cache"))  # a plan that is stored there takes no time
    assert "progress: planning 1 stage\n" in call("plan", shop.job).err
    monkeypatch.setattr(shown_plan, "MANY_STAGES", 50)
    shop.write(budget={"epsilon": 2.0, "delta": 1e-6})
    assert call("plan", shop.job).err == ""
