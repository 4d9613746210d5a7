"""The usefulness of teachers' votes, before a row is read: their noise, and the majority from which an answer is right.

In: calibrated stages of tests and answers, the task, where declared a guess about the number of units. Out: JSON values. Holds:
public numbers alone; nothing here knows how teachers vote, so the number of answered examples is not predicted. Not covered: how
good a student becomes of its answers.
"""

# Two counts have independent noise of deviation s. The class ahead by m votes of another one is not the answer with a probability
# of at most that of N(0, 2 s^2) > m; of several others, at most the sum of these. A test passes for c teachers who agree with the
# probability of N(0, s1^2) > T - c.

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.expectation import Expectation
from dp_pipelines.query.models.pate_model import PateModel

RIGHT = 0.95
"""The required probability that an answer is that of the majority."""


def of_votes(name: str, task: PateModel, stages: Mapping[str, StagePlan], expect: Expectation | None) -> dict[str, Any]:
    """Describe the votes of a stage.

    Args:
        name: of the stage.
        task: of the model.
        stages: all parts of the plan, calibrated.
        expect: a guess about the number of units.
    """
    steps = task.steps
    tests = float(training_noise.multiplier(stages[training_parts.tests_of(name)]))
    answers = math.sqrt(2) * float(training_noise.multiplier(stages[name]))
    ahead = lead(answers, task.classes)
    majority = (steps.teachers + ahead) / 2
    return {
        "teachers": steps.teachers,
        "answers": steps.answers,
        "asked": steps.settled_asked,
        "threshold": steps.settled_threshold,
        "stddev_of_tests": tests,
        "stddev_of_answers": answers,
        "right_from_lead": ahead,
        "right_from_majority": majority if task.classes == 2 else None,
        "words": _words(task, tests, answers, ahead),
        "hints": list(_hints(task, ahead, expect)),
    }


def lead(stddev: float, classes: int) -> float:
    """Return how many votes the first class must be ahead of each other one to be the answer 95 times out of 100.

    Args:
        stddev: of the noise of each count.
        classes: how many.

    >>> round(lead(60.0, 2)), round(lead(60.0, 10))
    (140, 215)
    """
    return NormalDist().inv_cdf(1 - (1 - RIGHT) / (classes - 1)) * math.sqrt(2) * stddev


def _words(task: PateModel, tests: float, answers: float, ahead: float) -> list[str]:
    """Return in words the price, and the lead from which answers are right."""
    steps = task.steps
    right = f"the first class is {ahead:,.0f} votes ahead of each other"
    if task.classes == 2:
        right = f"{math.ceil((steps.teachers + ahead) / 2):,} of {steps.teachers:,} teachers agree"
    sure = f"an answer is that of the majority 95 times out of 100 from where {right}"
    if ahead > steps.teachers:
        sure = "the noise outweighs even votes that all agree: no answer is that of the majority 95 times out of 100"
    return [
        f"{steps.settled_asked:,} tests of whether {steps.settled_threshold:,} of {steps.teachers:,} teachers agree, each with "
        f"noise of {tests:,.0f} votes, and at most {steps.answers:,} answers, each count of votes with noise of {answers:,.0f}; "
        "all of them are paid for, whatever teachers vote",
        sure,
        f"rarely worth it: the student sees {steps.answers:,} answers, where kind: train learns from every label of every unit "
        "(docs/pate.md)",
    ]


def _hints(task: PateModel, ahead: float, expect: Expectation | None) -> "list[str]":
    """Return hints about settings that look wrong by public numbers alone."""
    steps, hints = task.steps, list[str]()
    if ahead > steps.teachers:
        hints.append(
            f"not even votes that all agree outweigh this noise: use fewer answers than {steps.answers:,}, more teachers than "
            f"{steps.teachers:,}, or a larger budget"
        )
    if expect is not None and expect.units is not None:
        each = expect.units * (1 - task.held_out) / steps.teachers
        if each < 1:
            hints.append(
                f"there are more teachers than units to learn from: {steps.teachers:,} for about "
                f"{expect.units * (1 - task.held_out):,.0f}; most of them learn nothing and vote all the same"
            )
        elif each < FEW:
            hints.append(f"a teacher learns from about {each:,.0f} units: with fewer teachers each would know more")
    return hints


FEW = 10
"""Units of a teacher below which a hint is given."""
