"""What a plan says of votes of teachers: leads that the noise turns around one time in twenty, and majorities that have them.

In: plans, guesses. Out: JSON values, sentences. Holds: closed forms of the normal law. Not covered: how teachers vote.
"""

import math
from typing import Any

import pytest
from scipy import stats

from dp_pipelines import Plan
from dp_pipelines.planning import votes_usefulness
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.query.expectation import Expectation
from dp_pipelines.query.models.pate_model import PateModel, Teachers
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Number

CLASSES = ClassLabel(column="y", classes=["a", "b", "c", "d"])


def told(expect: Expectation | None = None, epsilon: float = 4.0, **changes: Any) -> tuple[dict[str, Any], Plan]:
    """What is told of the votes of a stage, and its plan."""
    base: dict[str, Any] = {
        "privacy_unit": "who",
        "label": BinaryLabel(column="y"),
        "features": {"x": Number(column="x", min_value=0, max_value=1)},
        "steps": Teachers(teachers=2000, answers=10, asked=30),
    }
    task = PateModel(**{**base, **changes})
    plan = Plan(epsilon=epsilon, delta=1e-6, stages={"m": task})
    return votes_usefulness.of_votes("m", task, plan.stages, expect), plan


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("stddev", [1.0, 60.0])
def test_noise_turns_a_lead_around_one_time_in_twenty_at_most_by_any_of_the_other_classes(
    classes: int, stddev: float
) -> None:
    lead = votes_usefulness.lead(stddev, classes)
    # The difference of two counts has the variance of both.
    overtakes = stats.norm.sf(lead / (math.sqrt(2) * stddev))
    assert (classes - 1) * overtakes == pytest.approx(0.05)


def test_a_majority_of_two_classes_has_the_lead_over_the_rest_of_the_teachers() -> None:
    found, plan = told()
    assert (found["teachers"], found["answers"], found["asked"]) == (2000, 10, 30)
    others = found["teachers"] - found["right_from_majority"]
    assert found["right_from_majority"] - others == pytest.approx(found["right_from_lead"])
    # One unit moves the votes of one teacher: one up and one down.
    steps = training_noise.multiplier(plan["m"])
    assert found["stddev_of_answers"] == pytest.approx(math.sqrt(2) * float(steps))
    assert found["right_from_lead"] == pytest.approx(votes_usefulness.lead(found["stddev_of_answers"], 2))
    agree = f"{math.ceil(found['right_from_majority']):,} of 2,000 teachers agree"
    assert agree in found["words"][1]


def test_of_several_classes_it_is_the_lead_that_is_told() -> None:
    found, _ = told(label=CLASSES)
    assert found["right_from_majority"] is None
    assert f"the first class is {found['right_from_lead']:,.0f} votes ahead of each other" in found["words"][1]
    assert "teachers agree" not in found["words"][1]


def test_noise_beyond_all_votes_is_told_with_what_helps() -> None:
    few, _ = told(epsilon=0.5, steps=Teachers(teachers=20, answers=10, asked=30))
    assert few["right_from_lead"] > 20
    assert "the noise outweighs even votes that all agree" in few["words"][1]
    assert few["hints"][0].startswith("not even votes that all agree outweigh this noise")
    many, _ = told()
    assert many["right_from_lead"] < 2000
    assert many["hints"] == []


@pytest.mark.parametrize(
    ("units", "words"), [(2000.0, "more teachers than units"), (20_000.0, "learns from about"), (200_000.0, None)]
)
def test_teachers_with_few_units_are_told_of(units: float, words: str | None) -> None:
    found, _ = told(Expectation(units=units))
    assert len(found["hints"]) == (words is not None)
    assert words is None or words in found["hints"][0]
