"""What a train stage leaves open: answers that the plan's rule gives, and that a frozen plan keeps."""

import json
from typing import Any

import pytest

from dp_pipelines import BinaryLabel, Category, Number, Plan, RequestError, Steps, TrainModel
from dp_pipelines.plan_stages import sharing, training_parts
from dp_pipelines.planning import describe

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def task(**changed: Any) -> TrainModel:
    features = {
        "x": Number(column="x", min_value=0, max_value=1),
        "kind": Category(column="kind", most=3),
    }
    fields: dict[str, Any] = {"privacy_unit": "u", "label": BinaryLabel(column="y"), "features": features}
    return TrainModel(**{**fields, "steps": Steps(steps=5), **changed})


def stages(**changed: Any) -> dict[str, TrainModel]:
    return {"m": task(**changed)}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("changed", "field"),
    [({"held_out": 0.3}, "held_out"), ({"privacy_unit": ("u", "v")}, "privacy_unit")],
)
def test_train_stages_that_divide_units_in_two_ways_are_refused(
    changed: dict[str, Any], field: str, place: int
) -> None:
    """A unit would train in one stage and be held out in the other, and pay for one of them: whichever stage differs."""
    names = ["first", "second", "third"]
    alike = {name: task(held_out=0.2) for name in names}
    training_parts.check_together(alike, names)
    unlike = alike | {names[place]: task(**{"held_out": 0.2, **changed})}
    named = names[place] if place else names[1]
    with pytest.raises(RequestError, match=rf"^stages\.{named}\.{field}: differs from that of 'first'"):
        training_parts.check_together(unlike, names)
    with pytest.raises(RequestError, match=rf"{field}"):
        Plan(**BUDGET, stages=unlike)


def test_a_plan_of_an_earlier_version_keeps_its_questions_and_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "NOW", sharing.SECOND)
    formerly = Plan(**BUDGET, stages=stages())
    monkeypatch.undo()
    frozen = json.loads(json.dumps(formerly.frozen()))
    assert "counted" not in frozen
    again = Plan.restore(frozen, **BUDGET, stages=stages())
    assert again.digest == formerly.digest
    assert again.queries["m.evaluation"].bounds.max_rows == 8
    assert again.queries["m.vocabulary.kind"].bounds.max_partitions == 4
    assert len(again.queries["m.bins"].metrics["x"].quantiles) == 9  # type: ignore[attr-defined]
    assert again.digest != Plan(**BUDGET, stages=stages()).digest


def test_each_held_out_unit_counts_once_unless_the_job_says_otherwise() -> None:
    for changed, most in (
        ({}, 1), ({"weighting": "units"}, 1), ({"weighting": "examples"}, 8), ({"evaluation_examples": 3}, 3),
        ({"weighting": "examples", "evaluation_examples": 4, "max_examples_per_unit": 2}, 2),
    ):  # fmt: skip
        asked = task(**changed)
        assert asked.counted_examples == most
        assert training_parts.evaluation_query(asked).bounds.max_rows == most
    with pytest.raises(RequestError, match="one example of each unit"):
        task(weighting="units", evaluation_examples=2)
    with pytest.raises(RequestError, match="must be units or examples"):
        task(weighting="rows")


def test_of_units_the_counts_have_an_eighth_of_the_noise_at_the_same_share() -> None:
    units, examples = (Plan(**BUDGET, stages=stages(weighting=each)) for each in ("units", "examples"))
    of = [plan.stages["m.evaluation"].noises[0] for plan in (units, examples)]
    assert of[0] is not None
    assert of[1] is not None
    assert of[1].stddev / of[0].stddev == pytest.approx(8, rel=0.05)


def test_an_earlier_plan_is_found_by_what_was_asked_then_and_another_answer_is_refused() -> None:
    assert describe.asked_to_json(task()) == describe.asked_to_json(task(evaluation_examples=8))
    plan = Plan(**BUDGET, stages=stages())
    frozen = json.loads(json.dumps(plan.frozen()))
    assert Plan.restore(frozen, **BUDGET, stages=stages()).digest == plan.digest
    with pytest.raises(RequestError, match="counts 8 examples of a unit, and 1 in the plan that is frozen"):
        Plan.restore(frozen, **BUDGET, stages=stages(evaluation_examples=8))


@pytest.mark.parametrize(("examples", "votes"), [(1, 1), (3, 3), (4, 4), (32, 4)])
def test_a_unit_votes_for_no_more_categories_than_it_may_have_examples(examples: int, votes: int) -> None:
    parts = training_parts.parts("m", task(max_examples_per_unit=examples), 1.0)
    assert parts["m.vocabulary.kind"].query.bounds.max_partitions == votes


def test_with_one_example_a_category_needs_fewer_units() -> None:
    """96 rather than 391 in the measurements of the issue; here the budget is another."""
    few, many = (Plan(**BUDGET, stages=stages(max_examples_per_unit=most)).stages for most in (1, 32))
    one, four = (of["m.vocabulary.kind"].half_keep_users for of in (few, many))
    assert one is not None
    assert four is not None
    assert one < 0.5 * four


def test_a_plan_says_what_it_costs_that_a_unit_may_have_many_examples() -> None:
    few, many = (Plan(**BUDGET, stages=stages(max_examples_per_unit=most)).to_json()["stages"] for most in (1, 32))
    (of_one,), (said,) = ([s["cost_of_examples"] for s in each if s["name"] == "m"] for each in (few, many))
    assert of_one is None
    counts = next(s for s in few if s["name"] == "m.users")["metrics"]["examples"]
    assert said["stddev_with_one"] == pytest.approx(counts["stddev"], rel=0.05)
    assert said["stddev"] == pytest.approx(32 * said["stddev_with_one"])
    assert "max_examples_per_unit: 1" in said["words"]
