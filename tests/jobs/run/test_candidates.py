"""Candidates of a train stage in a job file: planned, charged, chosen among, killed, told of; and what is refused.

In: the shop, with a column that a model can learn. Out: folders, ledgers, messages. Holds: runs are real, kills too. Not covered:
what is kept and drawn (`tests/training/test_fit.py`), and which units the choice reads (`tests/audit/test_fitted.py`).
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from dp_pipelines.ledger import events
from dp_pipelines.training import artefact
from tests.jobs.conftest import Said, Shop
from tests.jobs.run.test_ledgered_run import kill_at_draw, opened
from tests.jobs.run.test_model_training import FILES, files_below, learnable, model

Call = Callable[..., Said]

CANDIDATES: list[dict[str, Any]] = [{"learning_rate": 1e-9}, {"steps": 6}, {"momentum": 0.5, "steps": 3}]


def job(shop: Shop, candidates: object = CANDIDATES, **changes: object) -> pathlib.Path:
    """The shop's job with a model whose settings are chosen."""
    return shop.write(stages={"dear": model(fit={"steps": 4, "candidates": candidates}, **changes)})


@pytest.mark.parametrize("runner", ["direct", "local"])
def test_a_run_publishes_the_chosen_candidate_and_says_that_it_looks_slightly_too_good(
    shop: Shop, call: Call, runner: str
) -> None:
    job(shop)
    learnable(shop)
    out = shop.folder / "out"
    said = call("run", shop.job, "--output", out, "--runner", runner)
    assert (said.code, said.err) == (0, "")
    assert {path.name for path in (out / "dear").iterdir()} == FILES
    manifest = json.loads((out / "manifest.json").read_text())
    chosen = manifest["models"]["dear"]["chosen"]
    assert chosen == json.loads((out / "dear" / "evaluation.json").read_text())["chosen"]
    assert chosen["candidates"] == CANDIDATES
    assert chosen["candidate"] in (2, 3)
    words = f"slightly too good: candidate {chosen['candidate']} of 3 was chosen on the same units"
    assert chosen["words"] == words
    assert words in " ".join(said.out.split())
    page = (out / "report.html").read_text()
    assert words in page
    assert f"Candidate {chosen['candidate']} of 3 (" in page
    assert artefact.load(out / "dear").task.steps.steps == CANDIDATES[chosen["candidate"] - 1]["steps"]
    stages = {record["stage"]: record["group"] for record in manifest["mechanisms"]}
    parts = ("", ".bins", ".vocabulary.product", ".users", ".moments", ".candidate2", ".candidate3")
    assert {name for name, group in stages.items() if group == "training"} == {f"dear{part}" for part in parts}
    assert {name for name, group in stages.items() if group == "held out"} == {"dear.choice", "dear.evaluation"}
    assert 8 - 1e-2 < manifest["accounted"]["epsilon"] <= 8


@pytest.mark.parametrize(
    "changes",
    [
        {"label": {"kind": "classes", "column": "store", "classes": [1, 2, 3]}, "whiten": False},
        {"label": {"kind": "number", "column": "price", "min_value": 0, "max_value": 20}},
        {"model": {"kind": "mlp", "hidden": [4]}, "evaluation": {"weighting": "examples"}},
    ],
    ids=["classes", "number", "network"],
)
def test_candidates_of_every_kind_of_label_and_of_networks_are_chosen_among(
    shop: Shop, call: Call, changes: dict[str, Any]
) -> None:
    job(shop, features={"product": {"kind": "category", "most": 5}}, **changes)
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    chosen = json.loads((shop.folder / "out" / "manifest.json").read_text())["models"]["dear"]["chosen"]
    assert chosen["candidate"] in (1, 2, 3)
    steps = [4, 6, 3][chosen["candidate"] - 1]
    assert len(artefact.load(shop.folder / "out" / "dear").path["gradient_norm"]) == steps


def test_a_model_of_made_up_rows_is_chosen_too(shop: Shop, call: Call) -> None:
    job(shop)
    said = call("run", shop.job, "--synthetic", "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    assert "slightly too good" in (shop.folder / "out" / "report.html").read_text()


def test_rows_decide_nothing_but_what_is_released(shop: Shop, call: Call) -> None:
    """One class, one value, nobody held out: the run goes on, and says what any run says."""
    job(shop, where="before >= 0 AND customer = 1")
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")


def test_the_plan_tells_what_each_candidate_is_what_the_choice_costs_and_what_it_can_see(
    shop: Shop, call: Call
) -> None:
    job(shop)
    plan = json.loads(call("plan", shop.job, "--json").out)
    stages = {stage["name"]: stage for stage in plan["stages"]}
    assert [stages[name]["steps"] for name in ("dear", "dear.candidate2", "dear.candidate3")] == [4, 6, 3]
    assert [
        stages[name]["candidate"]["settings"] for name in ("dear", "dear.candidate2", "dear.candidate3")
    ] == CANDIDATES
    choice = stages["dear.choice"]["choice"]
    (record,) = (record for record in plan["mechanisms"] if record["stage"] == "dear.choice")
    assert choice["epsilon"] == record["epsilon"]
    assert choice["sees"]["10000"] == pytest.approx(choice["units_behind_95"] / 10_000)
    text = " ".join(call("plan", shop.job).out.split())
    assert "candidate 2 of 3: steps 6; all are charged" in text
    assert "no candidate is chosen whose mean score is below the best by more than" in text
    assert "slightly too good" in text


def test_the_same_id_gives_the_same_candidate_bit_for_bit(shop: Shop, call: Call) -> None:
    job(shop)
    assert call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one").code == 0
    before = files_below(shop.folder / "out")
    assert call("run", shop.job, "--output", shop.folder / "again", "--run-id", "one").code == 0
    assert files_below(shop.folder / "again") == before


@pytest.mark.slow
@pytest.mark.parametrize("which", [3, 7])
def test_a_run_that_is_killed_before_or_after_the_choice_publishes_one_candidate(
    shop: Shop, call: Call, which: int
) -> None:
    job(shop)
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    kill_at_draw(shop, command, which)
    kept = [str(event.content["name"]) for event in opened(shop).history if event.kind == events.DRAW_FROZEN]
    assert ("dear.choice" in kept) == (which == 7)
    before = {name: opened(shop).drawn(opened(shop).run("shop", "one"), name) for name in kept}
    said = call(*command)
    assert (said.code, said.err) == (0, "")
    frozen = [str(event.content["name"]) for event in opened(shop).history if event.kind == events.DRAW_FROZEN]
    assert len(frozen) == len(set(frozen)) == 7
    assert frozen[-1] == "dear.choice"
    if which == 7:
        chosen = json.loads((shop.folder / "out" / "dear" / "evaluation.json").read_text())["chosen"]["candidate"]
        content = before["dear.choice"]
        assert content is not None
        assert chosen == content[0]
        summed = artefact.load(shop.folder / "out" / "dear").parameters
        assert len(summed) * 8 * 3 < len(content)


@pytest.mark.parametrize(
    ("candidates", "field", "words"),
    [
        ([{"steps": 3}], "fit.candidates", "must be a list of 2 to 8 settings"),
        ([{"steps": n} for n in range(1, 10)], "fit.candidates", "must be a list of 2 to 8 settings"),
        ([], "fit.candidates", "must be a list of 2 to 8 settings"),
        ([{"steps": 4}, {}], "fit.candidates.1", "is fitted as candidate 1 is"),
        ([{}, {"sampling_rate": 0.5}], "fit.candidates.1.sampling_rate", "unknown key"),
        ([{}, {"features": {}}], "fit.candidates.1.features", "unknown key"),
        ([{}, {"max_noise_multiplier": 3}], "fit.candidates.1.max_noise_multiplier", "unknown key"),
        ([{}, {"steps": 0}], "fit.candidates.1.steps", "must be a whole number"),
        ([{}, {"momentum": 1}], "fit.candidates.1.momentum", "must be a finite number"),
        ({"steps": 3}, "fit.candidates", "list"),
    ],
)
def test_other_candidates_are_refused_with_their_place_before_anything_is_charged(
    shop: Shop, call: Call, candidates: object, field: str, words: str
) -> None:
    job(shop, candidates)
    for command in ("plan", "run"):
        more = ("--output", shop.folder / "out") if command == "run" else ()
        said = call(command, shop.job, *more)
        assert said.code == 2
        assert f"stages.dear.{field}" in said.err
        assert words in said.err
    assert not (shop.folder / "out").exists()


def test_the_noise_that_a_stage_can_bear_is_that_of_each_of_its_candidates(shop: Shop, call: Call) -> None:
    shop.write(
        stages={"dear": model(fit={"steps": 4, "max_noise_multiplier": 1e-3, "candidates": [{}, {"steps": 50}]})}
    )
    said = call("plan", shop.job)
    assert said.code == 3
    assert "stages.dear.fit.max_noise_multiplier" in said.err
