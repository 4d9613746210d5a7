"""The noise multipliers of training: the deviation of the noise over the norm that vectors are clipped to, for each sum.

In: plans of models and of federated rounds. Out: multipliers. Holds: they are compared with the law of the noise and the steps
of the lattice that workers get. Not covered: what they cost (tests/accounting, tests/training/federated).
"""

from fractions import Fraction
from typing import Any

import pytest

from dp_pipelines import BinaryLabel, FederateModel, Number, Plan, Rounds, Steps, TrainModel
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.stage import StagePlan

FEATURES = {"x": Number(column="x", min_value=0, max_value=1, edges=[0.3, 0.6])}
LABEL: dict[str, Any] = {"privacy_unit": "u", "label": BinaryLabel(column="y"), "features": FEATURES}


def rounds(schedule: str) -> StagePlan:
    task = FederateModel(
        **LABEL, steps=Rounds(steps=6, schedule=schedule), max_examples_per_unit=4, expected_clients=50, whiten=False
    )
    return Plan(epsilon=2.0, delta=1e-6, stages={"m": task})["m"]


def steps(number: int, epsilon: float = 1.0) -> StagePlan:
    task = TrainModel(**LABEL, steps=Steps(steps=number))
    return Plan(epsilon=epsilon, delta=1e-6, stages={"m": task})["m"]


@pytest.mark.parametrize("stage", [rounds("constant"), rounds("linear"), steps(40)], ids=["rounds", "linear", "steps"])
def test_a_multiplier_is_the_scale_of_the_noise_over_the_steps_of_the_norm(stage: StagePlan) -> None:
    (choice,) = stage.choices.noises.values()
    (noise,) = {noise.law for noise in stage.noises if noise is not None}
    (vectors,) = stage.sums
    found = training_noise.multipliers(stage)
    assert len(found) == len(vectors.steps_of_sums(choice.steps))
    # What they are multiplied with is what a clipped vector may have at most.
    for multiplier, of_norm in zip(found, vectors.steps_of_sums(choice.steps), strict=True):
        assert multiplier * of_norm == noise.scale
        assert isinstance(multiplier, Fraction)


def test_the_noise_that_is_told_is_that_of_the_sum_with_the_most() -> None:
    stage = rounds("linear")
    found = training_noise.multipliers(stage)
    assert len(found) == 6
    # The first round has a sixth of the part of the last one.
    assert found[0] / found[-1] == pytest.approx(6, rel=0.05)
    assert training_noise.multiplier(stage) == found[0] == max(found)
    assert len({*training_noise.multipliers(rounds("constant"))}) == 1


def test_more_steps_have_more_noise_each_by_the_root_of_their_number() -> None:
    few, many = (float(training_noise.multiplier(steps(number, 4.0))) for number in (100, 400))
    assert many / few == pytest.approx(2, rel=0.05)


def test_where_noise_is_large_the_norm_has_sixty_four_steps_so_that_no_multiplier_is_rounded_by_one_percent() -> None:
    stage = steps(400)
    (choice,) = stage.choices.noises.values()
    assert training_noise.multiplier(stage) > 64  # a scale of 1,024 alone would leave fewer than 16 steps
    assert choice.steps >= 64
