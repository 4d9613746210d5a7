"""What a plan says of the candidates of a train stage: each by its number and settings, the choice by what it costs and can see.

In: plans of a model with candidates. Out: JSON values. Holds: numbers are compared with the plan's own stages. Not covered: the
choice itself (tests/training/test_candidate_choice.py).
"""

from typing import Any

import pytest

from dp_pipelines import BinaryLabel, ClassLabel, FitCandidate, Number, NumberLabel, Plan, Steps, TrainModel
from dp_pipelines.planning import fit_choice
from dp_pipelines.planning.stage_kinds import BestKind

CANDIDATES = [FitCandidate(), FitCandidate(clip_norm=0.25), FitCandidate(steps=3, momentum=0.5)]
LABELS = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=[0, 1]),
    "number": NumberLabel(column="y", min_value=0, max_value=9),
}


def task(label: str = "binary", candidates: Any = CANDIDATES, **steps: Any) -> TrainModel:
    features = {"x": Number(column="x", min_value=0, max_value=1, edges=[0.5])}
    fitted = Steps(**{"steps": 5, "clip_norm": 1.5, "candidates": candidates, **steps})
    return TrainModel(
        privacy_unit="u", label=LABELS[label], features=features, steps=fitted, whiten=False, held_out=0.25
    )


def described(plan: Plan) -> dict[str, dict[str, Any]]:
    """What is said of each part that is about candidates, before and with it, by the part's name."""
    found = {}
    for name, stage in plan.stages.items():
        said: dict[str, Any] = {"name": name, "share": 0.5, "steps": None, "noise_multiplier": None}
        fit_choice.add_to(said, stage, plan.trained)
        found[name] = said
    return found


def test_each_candidate_is_told_by_its_number_its_settings_and_its_own_steps() -> None:
    found = described(Plan(epsilon=4.0, delta=1e-6, stages={"m": task(), "other": task(candidates=None)}))
    fits = [said for said in found.values() if "candidate" in said]
    assert [said["candidate"]["number"] for said in fits] == [1, 2, 3]
    assert {said["candidate"]["of"] for said in fits} == {3}
    assert [said["candidate"]["settings"] for said in fits] == [{}, {"clip_norm": 0.25}, {"steps": 3, "momentum": 0.5}]
    words = ["settings as they stand beside the list", "clip_norm 0.25", "steps 3, momentum 0.5"]
    for number, (said, settings) in enumerate(zip(fits, words, strict=True), start=1):
        assert said["candidate"]["words"].startswith(f"candidate {number} of 3: {settings}; all are charged")
        assert "1.7 times the noise of one alone" in said["candidate"]["words"]
    assert [said["steps"] for said in fits] == [5, 5, 3]
    assert [said["clip_norm"] for said in fits] == [1.5, 0.25, 1.5]
    assert {said["held_out"] for said in fits} == {0.25}
    assert all(said["noise_multiplier"] > 0 for said in fits)


def test_what_is_the_same_for_all_is_not_repeated_and_other_parts_are_left_alone() -> None:
    found = described(Plan(epsilon=4.0, delta=1e-6, stages={"m": task(), "other": task(candidates=None)}))
    plain = {"name", "share", "steps", "noise_multiplier"}
    for said in found.values():
        if "candidate" in said:
            assert set(said) == {*plain, "clip_norm", "held_out", "features", "candidate"}
        elif said["name"] == "m.choice":
            assert set(said) == {*plain, "choice"}
        else:
            assert set(said) == plain
    assert {said["name"] for said in found.values() if set(said) == plain} >= {"other", "m.evaluation"}


@pytest.mark.parametrize("epsilon", [0.5, 39.0])
def test_the_choice_is_told_by_its_epsilon_and_by_the_gaps_that_it_sees(epsilon: float) -> None:
    plan = Plan(epsilon=epsilon, delta=1e-6, stages={"m": task()})
    stage, said = plan["m.choice"], described(plan)["m.choice"]["choice"]
    assert isinstance(stage.kind, BestKind)
    behind = stage.kind.choice.error_95(stage.choices.selection_epsilon, 3)
    assert (said["candidates"], said["epsilon"]) == (3, stage.choices.selection_epsilon)
    assert said["units_behind_95"] == behind
    # A gap of 1 is the largest that two mean scores can have: numbers of units that see no smaller one are left out.
    assert said["sees"] == {number: behind / number for number in (1_000, 10_000, 100_000) if behind < number}
    price, sees, rest = said["words"]
    assert price.startswith("one of 3 candidates is chosen by the score of held-out units")
    assert all(f"{gap:.2g} with {number:,}" in sees for number, gap in said["sees"].items())
    assert "which units are held out adds to that" in rest


def test_numbers_of_units_that_see_no_gap_at_all_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(epsilon=4.0, delta=1e-6, stages={"m": task()})
    kind = type(plan["m.choice"].kind.choice)  # type: ignore[attr-defined]
    for behind, seen in ((999.0, [1_000, 10_000, 100_000]), (1_000.0, [10_000, 100_000]), (10.0**5, [])):
        monkeypatch.setattr(kind, "error_95", lambda self, epsilon, candidates, behind=behind: behind)
        said = described(plan)["m.choice"]["choice"]
        assert list(said["sees"]) == seen
        assert ("the choice is mostly chance" in said["words"][1]) == (not seen)


@pytest.mark.parametrize(
    ("label", "score"),
    [("binary", "from the outcome"), ("classes", "half the squared"), ("number", "of the label's range")],
)
def test_the_score_is_told_by_the_kind_of_label(label: str, score: str) -> None:
    said = described(Plan(epsilon=4.0, delta=1e-6, stages={"m": task(label)}))["m.choice"]["choice"]
    assert score in said["words"][0]
    assert "weight of the class" not in said["words"][0]


def test_weights_of_classes_are_told_with_the_score() -> None:
    weighted = task("classes", class_weights=[1.0, 3.0])
    said = described(Plan(epsilon=4.0, delta=1e-6, stages={"m": weighted}))["m.choice"]["choice"]
    assert "where the distance counts by the weight of the class" in said["words"][0]
