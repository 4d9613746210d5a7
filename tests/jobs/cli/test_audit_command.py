"""`dp-pipelines audit`: what it prints and how it ends, for a job that runs as it was accounted and for one that does not.

In: the shop's job, with a model. Out: text, JSON, exit codes. Holds: the files of the job are not needed. Not covered: what an
audit finds (`tests/audit`).
"""

import json
import shutil
from collections.abc import Callable

import numpy as np
import pytest

from dp_pipelines.jobs.cli import main
from dp_pipelines.training.gaussian_noise import Begun, NoisySum
from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.run.test_model_training import model

Call = Callable[..., Said]
FEW = ("--replays", "3000")


@pytest.mark.usefixtures("rare_false_alarms")
def test_a_job_with_a_model_agrees_without_any_data(shop: Shop, call: Call) -> None:
    shop.write(stages={"weekly": stage(), "dear": model()})
    shutil.rmtree(shop.folder / "data")
    said = call("audit", shop.job, *FEW)
    assert said.code == 0
    assert "files and expressions were not checked" in said.err
    assert "3,000 replays of each stage" in said.out
    assert "no data were read" in said.out
    assert "at most 1e-10" in said.out
    for name in ("weekly", "dear.bins", "dear.moments", "dear", "dear.evaluation"):
        assert f"\n {name} " in said.out
    assert "all together, training units" in said.out
    assert "all together, held out units" in said.out
    assert "DOES NOT AGREE" not in said.out
    (line,) = [line for line in said.out.splitlines() if line.startswith("  noise of each step")]
    assert "where nothing is wrong, chance takes one so far with a probability of up to " in line
    assert "each as it runs" in said.out
    assert "units read by dear.evaluation: only those that its records name" in said.out
    assert "It does not check the sensitivity of a kernel" in said.out
    assert shop.left() == []


def test_a_fault_ends_with_exit_code_1_and_is_named(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.write(stages={"dear": model()})
    right = NoisySum.release

    def release(self: NoisySum, total: np.ndarray, begun: Begun | None = None) -> np.ndarray:
        return total + 0.7 * (right(self, total, begun) - total)

    monkeypatch.setattr(NoisySum, "release", release)
    said = call("audit", shop.job, *FEW)
    assert said.code == 1
    assert said.out.count("DOES NOT AGREE") >= 4
    assert "at most 1e-06" in said.out
    (line,) = [line for line in said.out.splitlines() if line.startswith("  noise of each step")]
    assert line.endswith("DOES NOT AGREE")


@pytest.mark.usefixtures("rare_false_alarms")
def test_json_holds_every_comparison(shop: Shop, call: Call) -> None:
    shop.write()
    said = call("audit", shop.job, *FEW, "--json")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert (found["agrees"], found["replays"], found["not_replayed"]) == (True, 3000, [])
    assert [line["name"] for line in found["lines"]] == ["weekly", "all together"]
    compared = {(each["epsilon"], each["removed"]) for each in found["lines"][0]["divergences"]}
    assert compared == {(epsilon, removed) for epsilon in (0.0, 0.5, 1.0) for removed in (True, False)}
    assert all(each["evidence"] < found["evidence_limit"] for line in found["lines"] for each in line["findings"])


@pytest.mark.parametrize("given", ["many", "-5", "1e5", "10", "99999999999"])
def test_a_number_of_replays_that_is_none_is_refused(shop: Shop, call: Call, given: str) -> None:
    shop.write()
    said = call("audit", shop.job, f"--replays={given}")
    assert said.code == main.WRONG
    assert said.err.startswith("error: --replays: must be ")


def test_a_job_that_cannot_be_planned_ends_as_its_plan_does(shop: Shop, call: Call) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 0.0})
    planned, audited = (call(command, shop.job) for command in ("plan", "audit"))
    assert planned.code != 0
    assert (audited.code, audited.err) == (planned.code, planned.err)
