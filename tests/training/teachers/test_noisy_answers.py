"""The law of tests and answers: how often a test passes, which class is answered, how often teachers are asked.

In: votes that are known. Out: shares of many tests and answers beside those that follow from the normal law. Holds: each
statistical test states its false alarm, and a planted fault beside it is found. Not covered: the sampler
(`test_gaussian_noise.py`).
"""

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from dp_pipelines import Plan
from dp_pipelines.accounting import accountant
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.query.models.pate_model import Teachers
from dp_pipelines.query.train_model import ClassLabel
from dp_pipelines.training.gaussian_noise import NoisySum
from dp_pipelines.training.teachers import noisy_answers
from dp_pipelines.training.teachers.noisy_answers import Answers
from tests.helpers.planted import plant
from tests.training.teachers.test_votes import model

N = 20_000
FAR = 6.5
"""Deviations of a share that is estimated from N: a false alarm has a probability below 1e-10."""

MODULE = "dp_pipelines.training.teachers.noisy_answers"


@functools.cache
def planned(**steps: Any) -> Plan:
    task = model(steps=Teachers(**{"teachers": 60, "answers": 3, "asked": 8, "threshold": 40, **steps}))
    return Plan(epsilon=2.0, delta=1e-6, stages={"model": task})


def noises(plan: Plan, classes: int = 2) -> tuple[NoisySum, NoisySum]:
    return (
        noisy_answers.noise_of_tests(plan["model.tests"], NoisySum),
        noisy_answers.noise_of_answers(plan["model"], classes, NoisySum),
    )


def deviations(share: float, expected: float, count: int) -> float:
    """How far a share is from what is expected."""
    return abs(share - expected) / math.sqrt(expected * (1 - expected) / count)


def passes(plan: Plan, agreeing: int) -> float:
    """The share of tests that pass: of answers where as many are paid for as tests."""
    tests, answers = noises(plan)
    task = plan.trained["model"]
    votes = np.tile([[agreeing, 60 - agreeing]], (task.steps.settled_asked, 1))
    found = [noisy_answers.noisy_answers(task, votes, tests, answers) for _ in range(N // len(votes))]
    return sum(len(each.examples) for each in found) / (len(found) * len(votes))


@pytest.mark.parametrize("agreeing", [31, 40, 55])
def test_a_test_passes_as_often_as_its_noise_says_and_half_of_the_noise_would_be_found(
    agreeing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(answers=100, asked=100)
    deviation = float(training_noise.multiplier(plan["model.tests"]))
    expected = float(stats.norm.sf((40 - agreeing) / deviation))
    assert deviations(passes(plan, agreeing), expected, N) < FAR
    if agreeing != 40:  # where as many agree as must, half of all tests pass with any noise
        plant(monkeypatch, f"{MODULE}:noise_of_tests", "norm=MOVED_OF_TEST", "norm=MOVED_OF_TEST / 4")
        assert deviations(passes(plan, agreeing), expected, N) > FAR


def right(plan: Plan, ahead: int, classes: int) -> float:
    """The share of answers that are the first class."""
    tests, answers = noises(plan, classes)
    task = plan.trained["model"]
    rest = (60 - ahead) // classes
    votes = np.tile([[60 - (classes - 1) * rest, *[rest] * (classes - 1)]], (task.steps.settled_asked, 1))
    found = [noisy_answers.noisy_answers(task, votes, tests, answers).classes for _ in range(N // 100)]
    return float(np.mean(np.concatenate(found) == 0))


@pytest.mark.parametrize("classes", [2, 3])
def test_an_answer_is_right_as_often_as_its_noise_says_and_a_charge_of_one_would_be_found(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = {} if classes == 2 else {"label": ClassLabel(column="y", classes=[0, 1, 2])}
    task = model(steps=Teachers(teachers=60, answers=100, asked=100, threshold=1), **label)
    plan = Plan(epsilon=6.0, delta=1e-6, stages={"model": task})
    deviation = math.sqrt(2) * float(training_noise.multiplier(plan["model"]))
    ahead = 30
    lead = 60 - (classes - 1) * ((60 - ahead) // classes) - (60 - ahead) // classes
    # The first class is ahead of each other one, all of which have independent noise.
    at = np.linspace(-10, 10, 20_001)
    others = stats.norm.cdf(at + lead / deviation) ** (classes - 1)
    expected = float(integrate.simpson(stats.norm.pdf(at) * others, x=at))
    count = N  # nearly every test passes, and no example counts twice
    assert deviations(right(plan, ahead, classes), expected, count) < FAR * 1.5
    plant(monkeypatch, f"{MODULE}:noise_of_answers", "norm=MOVED_OF_ANSWER", "norm=1.0")
    assert deviations(right(plan, ahead, classes), expected, count) > FAR * 1.5


def test_no_more_is_asked_and_answered_than_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    task, (tests, answers) = plan.trained["model"], noises(plan)

    class Counted(NoisySum):
        def release(self, total: Any) -> Any:
            drawn.append(self.size)
            return super().release(total)

    counted = [
        Counted(size=each.size, norm=each.norm, multiplier=each.multiplier, slack=0.0) for each in (tests, answers)
    ]
    for agreeing in (0, 30, 45, 60):
        drawn: list[int] = []
        votes = np.tile([[agreeing, 60 - agreeing]], (8, 1))
        found = noisy_answers.noisy_answers(task, votes, *counted)
        assert drawn.count(1) == found.asked <= 8
        assert drawn.count(2) == len(found.examples) == len(found.classes) <= 3
        assert found.asked == 8 or len(found.examples) == 3
        assert (np.diff(found.examples) > 0).all()
    more = np.tile([[30, 30]], (9, 1))
    with pytest.raises(AssertionError, match="as often as the plan pays for"):
        noisy_answers.noisy_answers(task, more, *counted)
    plant(monkeypatch, f"{MODULE}:noisy_answers", "if len(examples) == steps.answers:", "if len(examples) == 99:")
    drawn = []
    noisy_answers.noisy_answers(task, np.tile([[6000, 0]], (8, 1)), *counted)
    assert drawn.count(2) == 8, "the fault is found by the count above"


@pytest.mark.parametrize(
    ("classes", "steps"), [(2, {}), (3, {"asked": 60, "answers": 20}), (2, {"asked": 400, "answers": 400})]
)
def test_all_tests_and_all_answers_are_charged_whatever_is_answered(classes: int, steps: dict[str, int]) -> None:
    label = {} if classes == 2 else {"label": ClassLabel(column="y", classes=[0, 1, 2])}
    task = model(steps=Teachers(teachers=500, **{"answers": 100, **steps}), **label)
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"model": task})
    tests, answers = (float(training_noise.multiplier(plan[name])) for name in ("model.tests", "model"))
    of_training = [record for record in plan.mechanisms if record.group == training_parts.TRAINING]
    assert sorted(record.stage for record in of_training) == ["model", "model.tests"]
    asked, answered = task.steps.settled_asked, task.steps.answers
    mu = {record.stage: math.sqrt(record.l2_squared) / float(record.scale or 1) for record in of_training}
    # The deviation of an answer is that of its noise, over a change of sqrt(2).
    assert mu["model.tests"] ** 2 == pytest.approx(asked / tests**2, rel=1e-6)
    assert mu["model"] ** 2 == pytest.approx(2 * answered / (math.sqrt(2) * answers) ** 2, rel=1e-6)
    together = math.hypot(*mu.values())
    assert accountant.epsilon_of(of_training, 1e-6) <= 1.0
    delta = stats.norm.cdf(together / 2 - 1 / together) - math.e * stats.norm.cdf(-together / 2 - 1 / together)
    assert delta == pytest.approx(1e-6, rel=0.05), "the budget is used up, by the closed form of Gaussian noise"


def test_answers_are_the_same_after_they_were_kept() -> None:
    for examples, classes in itertools.product([[], [0], [3, 9]], [[], [1], [2, 0]]):
        if len(examples) == len(classes):
            given = Answers(asked=17, examples=np.array(examples, np.int64), classes=np.array(classes, np.int64))
            found = Answers.from_bytes(given.to_bytes())
            assert (found.asked, found.examples.tolist(), found.classes.tolist()) == (17, examples, classes)
