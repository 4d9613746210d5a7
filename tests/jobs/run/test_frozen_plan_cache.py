"""A run takes its plan from the user's cache only where it is the plan that would be calibrated now."""

import json
import pathlib
from collections.abc import Callable

import pytest

from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run import frozen_plans, plan_cache
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.planning.plan import Plan
from tests.jobs.conftest import Shop, stage

Planned = Callable[[], tuple[Plan, bool]]


@pytest.fixture
def planned(shop: Shop, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """The plan of the shop's job, and whether it was calibrated for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def plan() -> tuple[Plan, bool]:
        file = job_file.load(str(shop.job))
        request, calibrated = check(file, ()), []

        def make(*given: object) -> Plan:
            calibrated.append(given[2] is None)
            return running.plan_of(*given)  # type: ignore[arg-type]

        name = frozen_plans.name_of(file, request.stages, request.asked)
        assert name == frozen_plans.name_of(file, request.stages)
        return frozen_plans.plan_of(file, request.stages, make, name), any(calibrated)

    return plan


def entry() -> pathlib.Path:
    (found,) = plan_cache.folder().glob("frozen-*")
    return found


def test_the_second_run_of_a_job_has_the_same_plan_without_a_search(planned: Planned) -> None:
    first, calibrated = planned()
    again, calibrated_again = planned()
    assert (calibrated, calibrated_again) == (True, False)
    assert again.digest == first.digest
    assert again.mechanisms == first.mechanisms
    assert again.to_json() == first.to_json()


def test_another_share_or_budget_is_another_plan(planned: Planned, shop: Shop) -> None:
    digests = {planned()[0].digest}
    for changed in ({"budget": {"epsilon": 7.0, "delta": 1e-5}}, {"stages": {"weekly": {**stage(), "share": 0.5}}}):
        shop.write(**changed)
        plan, calibrated = planned()
        assert calibrated
        digests.add(plan.digest)
    assert len(digests) >= 2


def test_the_folder_and_its_files_are_private(planned: Planned) -> None:
    planned()
    assert plan_cache.folder().stat().st_mode & 0o777 == 0o700
    assert entry().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", ["folder", "file"])
def test_what_others_may_write_is_not_used(planned: Planned, place: str) -> None:
    first, _ = planned()
    (plan_cache.folder() if place == "folder" else entry()).chmod(0o777)
    again, calibrated = planned()
    assert calibrated
    assert again.digest == first.digest


def test_an_entry_that_is_cut_changed_or_of_another_job_is_not_used(planned: Planned) -> None:
    first, _ = planned()
    whole = entry().read_text()
    changed = json.loads(whole)
    changed["entry"]["plan"] = "0" * 64
    for text in (
        "",
        whole[:-20],
        "[]",
        json.dumps(changed),
        whole.replace('"gaussian_scale": "', '"gaussian_scale": "1'),
    ):
        assert text != whole
        entry().write_text(text)
        again, calibrated = planned()
        assert calibrated
        assert again.digest == first.digest
        assert entry().read_text() == whole


def test_a_plan_above_the_budget_is_not_used_even_if_its_entry_is_whole(planned: Planned) -> None:
    first, _ = planned()
    name = entry().name.removeprefix("frozen-").removesuffix(".json")
    kept = plan_cache.load(name, "frozen")
    assert kept is not None
    scales = kept["frozen"]["calibrated"]
    for scale in ("gaussian_scale", "laplace_scale"):
        scales[scale] = "1/1000"
    for choice in scales["choices"].values():
        choice["noises"] = [
            [key, {**chosen, "scale": 1} if "scale" in chosen else chosen] for key, chosen in choice["noises"]
        ]
    plan_cache.store(name, "frozen", kept)
    again, calibrated = planned()
    assert calibrated
    assert again.digest == first.digest
