"""Noisy answers of teachers: tests of whether enough of them agree, and the class with the most votes where they do.

In: the votes on each public example, in the order in which they are asked; the two stages that the plan pays for. Out: which
examples were answered, and how. Holds: there are at most `asked` tests and `answers` answers, each with its own noise; one unit
moves the largest count by at most 1 and the counts by at most sqrt(2), in L2 (docs/proofs/pate.md); what is asked next depends on
released answers alone. Not covered: keeping the result, so that no second one is drawn from other votes (`votes_fit`).
"""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.training.gaussian_noise import NoisySum

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

MOVED_OF_TEST = 1.0
"""How far one unit moves the largest number of votes."""

MOVED_OF_ANSWER = math.nextafter(math.sqrt(2), 2.0)
"""How far one unit moves the numbers of votes together: one is smaller by 1, another larger."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What teachers have answered.

    Args:
        asked: how many examples were asked.
        examples: which of them were answered, ascending, counted from 0 in the order in which they were asked.
        classes: what was answered.
    """

    asked: int
    examples: Places
    classes: Places

    def to_bytes(self) -> bytes:
        """The answers as whole numbers: how many were asked, then example and class of each.

        >>> answers = Answers(asked=9, examples=np.array([2, 5]), classes=np.array([0, 1]))
        >>> again = Answers.from_bytes(answers.to_bytes())
        >>> again.asked, again.examples.tolist(), again.classes.tolist()
        (9, [2, 5], [0, 1])
        """
        told = np.concatenate([[self.asked], np.stack([self.examples, self.classes], axis=1).ravel()])
        return told.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Answers":
        """What `to_bytes` wrote."""
        told = np.frombuffer(content, "<i8").astype(np.int64)
        return cls(asked=int(told[0]), examples=told[1::2], classes=told[2::2])


def noise_of_tests(stage: StagePlan, made: Callable[..., NoisySum]) -> NoisySum:
    """The object that adds noise to the largest number of votes.

    Args:
        stage: that pays for the tests.
        made: makes it from size, norm, multiplier and slack.
    """
    return made(size=1, norm=MOVED_OF_TEST, multiplier=_multiplier(stage), slack=0.0)


def noise_of_answers(stage: StagePlan, classes: int, made: Callable[..., NoisySum]) -> NoisySum:
    """The object that adds noise to the numbers of votes for all classes.

    Args:
        stage: that pays for the answers.
        classes: how many.
        made: as for `noise_of_tests`.
    """
    return made(size=classes, norm=MOVED_OF_ANSWER, multiplier=_multiplier(stage), slack=0.0)


def noisy_answers(task: PateModel, votes: Places, tests: NoisySum, answers: NoisySum) -> Answers:
    """Ask one example after the other, until as many are answered as are paid for, or all have been asked.

    Args:
        task: what is learnt.
        votes: (asked, classes), of `votes_of`.
        tests, answers: add noise, anew at each call.
    """
    steps = task.steps
    if len(votes) != steps.settled_asked or votes.shape[1] != task.classes:
        raise AssertionError("teachers are asked as often as the plan pays for")
    asked, examples, classes = 0, list[int](), list[int]()
    for own in votes.astype(np.float64):
        if len(examples) == steps.answers:
            break
        agreeing = tests.release(own.max(keepdims=True))
        if agreeing[0] >= steps.settled_threshold:
            examples.append(asked)
            classes.append(int(np.argmax(answers.release(own))))
        asked += 1
    return Answers(asked=asked, examples=np.array(examples, np.int64), classes=np.array(classes, np.int64))


def _multiplier(stage: StagePlan) -> Fraction:
    return training_noise.multiplier(stage)
