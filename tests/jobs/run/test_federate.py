"""A stage of federated rounds in a job file: every form of it, planned, run, killed and resumed, refused where it is wrong.

In: the shop. Out: exit codes, folders, ledgers. Holds: runs are real, kills too; the forms are counted against the models of the
job file. Not covered: what a client computes (`tests/training/federated`) and how well models predict (`benchmarks/federate.py`).
"""

import hashlib
import io
import json
import math
import pathlib
import stat
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dp_pipelines.jobs.spec.train_models import FederateStage
from dp_pipelines.ledger import events
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from dp_pipelines.training import artefact, trainer
from tests.jobs.conftest import Said, Shop
from tests.jobs.run.test_ledgered_run import kill_at_draw, opened
from tests.jobs.run.test_model_training import files_below
from tests.jobs.run.test_training_forms import DEAR, LINE, PRICE, PRODUCT, declared, said

pytest.importorskip("numba")

Call = Callable[..., Said]


def model(**changes: object) -> dict[str, Any]:
    """A stage of federated rounds, as small as one can be."""
    base = {
        "kind": "federate", "expected_clients": 400, "label": PRICE, "features": {"store": LINE}, "fit": {"rounds": 3},
    }  # fmt: skip
    return {**base, **changes}


CASES: dict[str, dict[str, Any]] = {
    "averaging": model(),
    "every key of averaging": model(
        title="Dear orders", description="Learned in rounds.",
        fit={
            "rounds": 2, "method": "fedavg", "local_epochs": 2, "local_examples": 3, "local_rate": 0.5, "clip_norm": 1.5,
            "sampling_rate": 0.5, "participation": "hidden", "learning_rate": 0.5, "momentum": 0.5, "average": 1.0,
            "schedule": "constant", "max_noise_multiplier": 1e6,
        }
    ),
    "gradients": model(fit={"rounds": 2, "method": "fedsgd"}, label=DEAR, unit_columns={"dear": "price > 10"}),
    "clients who are seen": model(
        fit={"rounds": 2, "sampling_rate": 0.5, "participation": "visible", "schedule": "linear", "average": 0}
    ),
    **{
        f"{schedule} noise": model(fit={"rounds": 3, "schedule": schedule, "momentum": 0})
        for schedule in ("exponential", "linear_decreasing", "exponential_decreasing")
    },
    "clients by turns": model(fit={"rounds": 3, "separation": 2, "schedule": "linear", "noise": "independent"}),
    "correlated noise": model(fit={"rounds": 4, "separation": 2, "noise": "correlated"}),
    "correlated noise of a network of classes": model(
        fit={"rounds": 3, "separation": 3, "noise": "correlated", "method": "fedsgd"},
        model={"kind": "mlp", "hidden": [4]}, label=PRODUCT, whiten=False,
    ),
    "classes": model(label=PRODUCT, model={"kind": "linear"}),
    "a network": model(model={"kind": "mlp", "hidden": [4, 2]}, label=PRODUCT, whiten=False, share=0.5),
    "a network of gradients": model(model={"kind": "mlp"}, fit={"rounds": 2, "method": "fedsgd"}),
    "features that are found": model(
        features={
            "product": {"kind": "category", "most": 3},
            "store": {"kind": "number", "min_value": 0, "max_value": 10, "bins": 3},
        },
        pairs=[["product", "store"]],
        held_out=0.3, max_examples_per_unit=4, where="price >= 0", max_rows_per_unit=5, unit_columns={"dear": "price > 10"},
        evaluation={"cells": 8, "by": {"column": "product", "groups": ["p0"]}},
    ),
}  # fmt: skip


def test_the_cases_say_everything_that_rounds_can_say() -> None:
    """What features, labels and evaluations can say is counted in the forms of train stages."""
    told = {form for case in CASES.values() for form in said(FederateStage.model_validate(case))}
    own = {form for form in declared(FederateStage) if form[0] in ("RoundsModel", "FederateStage")}
    missing = {form for form in own - told if form[1] not in ("features", "evaluation")}
    assert not missing, f"add a case that says {sorted(missing)}"


@pytest.mark.parametrize("case", CASES)
def test_every_form_runs_from_the_job_file_to_a_model_that_can_be_read(shop: Shop, call: Call, case: str) -> None:
    shop.write(stages={"model": CASES[case]})
    out = shop.folder / "out"
    ended = call("run", shop.job, "--output", out)
    assert (ended.code, ended.err) == (0, "")
    content = json.loads((out / "model" / "model.json").read_text())
    rounds = CASES[case]["fit"]["rounds"]
    assert len(content["path"]["gradient_norm"]) == len(content["path"]["noise_multiplier"]) == rounds
    assert all(math.isfinite(norm) for norm in content["path"]["gradient_norm"])
    found = artefact.load(out / "model")
    assert found.task.steps.steps == rounds
    assert found.task.kind == "federate"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"{rounds} federated rounds" in page
    assert ("The noise of each round" in page) == (len(set(content["path"]["noise_multiplier"])) > 1)


def test_plan_says_what_rounds_cost_and_who_is_expected(shop: Shop, call: Call) -> None:
    fit = {"rounds": 4, "schedule": "linear", "sampling_rate": 0.5, "participation": "visible"}
    shop.write(stages={"model": model(fit=fit)})
    stages = {stage["name"]: stage for stage in json.loads(call("plan", shop.job, "--json").out)["stages"]}
    stage = stages["model"]
    assert (stage["kind"], stage["steps"], stage["expected_clients"]) == ("federate", 4, 400)
    assert (stage["method"], stage["participation"], stage["schedule"]) == ("fedavg", "visible", "linear")
    noise = stage["noise_by_round"]
    assert noise[0] == stage["noise_multiplier"] == max(noise)
    assert noise[0] / noise[3] == pytest.approx(4, rel=0.03)
    words = " ".join(call("plan", shop.job).out.split())
    assert (
        "4 federated rounds (fedavg) of 4 parameters over samples of 0.5 of the training units, charged as if all"
        in words
    )
    assert "400 expected clients" in words


def test_the_second_run_of_a_plan_of_rounds_is_refused_by_the_budget(shop: Shop, call: Call) -> None:
    """All rounds are one run: whoever wants a further one, under another id, meets an account with nothing left."""
    shop.write(stages={"model": model()})
    shop.without_ledger()  # the account that the first run opens has the job's budget as its cap
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    kept = [str(event.content["name"]) for event in opened(shop).history if event.kind == events.DRAW_FROZEN]
    assert [name for name in kept if ".step-" in name] == [f"model.step-{number}" for number in (1, 2, 3)]
    again = call("run", shop.job, "--output", shop.folder / "more", "--run-id", "further")
    assert again.code == 3
    assert "budget" in again.err
    assert not (shop.folder / "more").exists()


@pytest.mark.parametrize("step", [2, 3])
def test_kill_9_in_the_middle_goes_on_with_the_rounds_that_were_kept(shop: Shop, call: Call, step: int) -> None:
    shop.write(stages={"model": model(fit={"rounds": 4, "sampling_rate": 0.5})})
    before = 5  # salt, features, users, moments and how the model begins are kept before the rounds
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]

    def frozen() -> list[str]:
        return [str(event.content["name"]) for event in opened(shop).history if event.kind == events.DRAW_FROZEN]

    kill_at_draw(shop, command, before - 1 + step)
    kept = frozen()
    assert kept[-1] == f"model.step-{step}"
    contents = {name: opened(shop).drawn(opened(shop).run("shop", "one"), name) for name in kept}
    assert call(*command).code == 0
    assert frozen() == [*kept, *(f"model.step-{number}" for number in range(step + 1, 5))]
    content = contents[kept[-1]]
    assert content is not None
    state = trainer.TrainingState.from_bytes(content)
    path = json.loads((shop.folder / "out" / "model" / "model.json").read_text())["path"]["gradient_norm"]
    assert path[:step] == pytest.approx(state.norms)
    files = files_below(shop.folder / "out")
    assert call("run", shop.job, "--output", shop.folder / "again", "--run-id", "one").code == 0
    assert files_below(shop.folder / "again") == files


def memories(shop: Shop) -> list[pathlib.Path]:
    """The private files beside the ledger."""
    return sorted(shop.folder.glob("*.dp-noise/*")) + sorted(shop.folder.glob("*.dp-noise/.*"))


def killed(shop: Shop, step: int) -> tuple[list[str], pathlib.Path]:
    """The command of a run that was killed with -9 after a round, and the memory that it has left."""
    shop.write(stages={"model": model(fit={"rounds": 6, "separation": 3, "noise": "correlated"})})
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    # Before the rounds: salt, features, users, moments, and how the model begins.
    kill_at_draw(shop, command, 4 + step)
    names = [path for path in memories(shop) if path.suffix == ".noise"]
    newest = trainer.TrainingState.from_bytes(
        opened(shop).drawn(opened(shop).run("shop", "one"), f"model.step-{step}") or b""
    )
    (named,) = [path for path in names if newest.memory.hex() in path.name]
    return command, named


@pytest.mark.parametrize("step", [1, 4])
def test_kill_9_in_a_series_goes_on_with_the_same_noise_which_is_destroyed_at_its_end(
    shop: Shop, call: Call, step: int
) -> None:
    command, memory = killed(shop, step)
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    assert stat.S_IMODE(memory.parent.stat().st_mode) == 0o700
    held = memory.read_bytes()
    noise = np.lib.format.read_array(io.BytesIO(held[32:]))
    ledger = (shop.folder / DEFAULT_NAME).read_bytes()
    assert not any(each.tobytes() in ledger for each in noise)
    shown = call("ledger", "export", shop.job)
    assert shown.code == 0
    assert not any(str(int(number)) in shown.out for number in noise.ravel() if abs(number) > 10**5)
    before = {
        name: opened(shop).drawn(opened(shop).run("shop", "one"), name)
        for name in (f"model.step-{number}" for number in range(1, step + 1))
    }
    assert call(*command).code == 0
    for name, content in before.items():
        assert opened(shop).drawn(opened(shop).run("shop", "one"), name) == content
    assert memories(shop) == []
    assert not memory.parent.exists()
    out = shop.folder / "out"
    published = [path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()]
    assert not any(hashlib.sha256(held).hexdigest().encode() in content for content in published)
    assert not any(each.tobytes() in content for each in noise for content in published)


def test_the_noise_of_the_rounds_after_a_kill_takes_back_that_of_the_rounds_before(shop: Shop, call: Call) -> None:
    """The memory of a run that was killed anew has the noise of the first attempt in it."""
    command, memory = killed(shop, 2)
    first = np.lib.format.read_array(io.BytesIO(memory.read_bytes()[32:]))
    kill_at_draw(shop, command, 1)
    (later,) = [path for path in memories(shop) if path != memory]
    second = np.lib.format.read_array(io.BytesIO(later.read_bytes()[32:]))
    assert len(first) == len(second) == 2
    assert second[1].tolist() == first[0].tolist()
    assert call(*command).code == 0


@pytest.mark.parametrize("how", ["gone", "another"])
def test_a_lost_memory_ends_the_run_and_its_charge_stays(shop: Shop, call: Call, how: str) -> None:
    command, memory = killed(shop, 3)
    held, charged = memory.read_bytes(), opened(shop).account("shop").left("")
    if how == "gone":
        memory.unlink()
    else:
        memory.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
    ended = call(*command)
    assert ended.code == 1
    assert "the memory of noise of 'model'" in ended.err
    assert ("is gone" if how == "gone" else "is not the one that its last round was kept with") in ended.err
    assert "what was charged stays" in ended.err
    assert not (shop.folder / "out").exists()
    assert opened(shop).account("shop").left("") == charged
    if how == "another":  # put back, it goes on
        memory.write_bytes(held)
        assert call(*command).code == 0
        return
    assert call("runs", shop.job, "--abandon", "one").code == 0
    assert opened(shop).account("shop").left("") == charged


def test_the_memory_of_a_run_that_is_given_up_is_destroyed(shop: Shop, call: Call) -> None:
    _, memory = killed(shop, 3)
    assert call("runs", shop.job, "--abandon", "one").code == 0
    assert memories(shop) == []
    assert not memory.exists()


def test_what_a_killed_end_of_a_run_has_left_is_destroyed_by_the_next_one(shop: Shop, call: Call) -> None:
    command, memory = killed(shop, 3)
    held = memory.read_bytes()
    assert call(*command).code == 0
    memory.parent.mkdir(mode=0o700)
    memory.write_bytes(held)
    assert call(*command).code == 0
    assert memories(shop) == []


def test_plan_says_what_correlated_noise_gains_and_takes_independent_noise_where_it_gains_nothing(
    shop: Shop, call: Call
) -> None:
    shop.write(stages={"model": model(fit={"rounds": 6, "separation": 3, "noise": "correlated"})})
    words = " ".join(call("plan", shop.job).out.split())
    assert "over one of 3 groups of the training units by turns, so that a client is in at most 2" in words
    assert "correlated noise: the error of the published models is 0." in words
    shop.write(stages={"model": model(fit={"rounds": 6, "separation": 1, "noise": "correlated"})})
    words = " ".join(call("plan", shop.job).out.split())
    assert "(independent noise, since correlated noise gains nothing here)" in words


def test_nothing_that_is_said_or_published_depends_on_who_took_part(shop: Shop, call: Call) -> None:
    """Two runs draw different samples: what they tell on the way, and the names and sizes of files, are the same."""
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5}, stages={"model": model(fit={"rounds": 3, "sampling_rate": 0.5})})
    seen = []
    for name in ("one", "two"):
        shop.without_ledger()
        ended = call("run", shop.job, "--output", shop.folder / name, "--run-id", name)
        assert ended.code == 0
        assert ended.err.replace(name, "").startswith("note: opens the account")
        seen.append(set(files_below(shop.folder / name)))
        told = json.loads((shop.folder / name / "model" / "model.json").read_text())
        assert "clients" not in told["path"]
        assert told["task"]["expected_clients"] == 400
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"fit": {"rounds": 0}}, "fit.rounds", "must be a whole number"),
        ({"fit": {"rounds": 1001}}, "fit.rounds", "must be a whole number from 1 to 1000"),
        ({"fit": {"steps": 3}}, "fit.steps", "unknown key"),
        ({"fit": {"l2": 0.1}}, "fit.l2", "unknown key"),
        ({"fit": {"method": "fedprox"}}, "fit.method", "fedavg"),
        ({"fit": {"method": "fedsgd", "local_rate": 1}}, "fit.local_rate", "is for method: fedavg"),
        ({"fit": {"schedule": "linear", "sampling_rate": 0.5}}, "fit.schedule", "hide which clients they take"),
        ({"fit": {"participation": "unknown"}}, "fit.participation", "hidden"),
        ({"fit": {"noise": "correlated"}}, "fit.noise", "gains nothing where a client takes part in each round"),
        ({"fit": {"noise": "none"}}, "fit.noise", "independent"),
        ({"fit": {"rounds": 3, "separation": 4}}, "fit.separation", "is more than there are rounds (3)"),
        ({"fit": {"separation": 2, "sampling_rate": 0.5}}, "fit.separation", "is for rounds that draw no sample"),
        ({"fit": {"separation": 0}}, "fit.separation", "must be a whole number"),
        ({"fit": {"separation": 2, "noise": "correlated", "schedule": "linear"}}, "fit.schedule", "by itself"),
        ({"expected_clients": 0}, "expected_clients", "must be a whole number"),
        ({"expected_clients": None}, "expected_clients", ""),
        ({"model": {"kind": "jax", "name": "a:b", "parameters": 3}}, "model", ""),
    ],
)
def test_wrong_settings_exit_2_at_their_line_before_anything_is_charged(
    shop: Shop, call: Call, changes: dict[str, Any], place: str, words: str
) -> None:
    shop.write(stages={"model": {key: value for key, value in model(**changes).items() if value is not None}})
    history = len(opened(shop).history)
    for command in (("plan",), ("run", "--output", shop.folder / "out")):
        ended = call(command[0], shop.job, *command[1:])
        assert ended.code == 2
        assert f"stages.model.{place}" in ended.err
        assert words in ended.err
        assert "job.yaml:" in ended.err
    assert len(opened(shop).history) == history
