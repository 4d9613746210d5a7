"""Replays of noisy votes of teachers with and without one worst-case unit, and the effect of a unit on made-up votes.

In: the stage that pays for tests or answers, the task. Out: for many replays the information in all releases; how far votes have
moved. Holds: the noise is added by the same functions as in a run; how far a unit moves votes is derived here, from one vote that
goes from one class to another. Not covered: how teachers are trained (tests/training/teachers).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.training.gaussian_noise import NoisySum
from dp_pipelines.training.teachers import noisy_answers

Floats = NDArray[np.float64]

ACROSS = 4096
"""Noisy numbers that are drawn together; with more, rounding to the lattice would be a larger share of the noise."""

TESTED, ANSWERED = 1.0, math.sqrt(2)
"""The effect of one vote that goes from one class to another: on the largest count, and on all counts in L2."""


def sums_of(task: PateModel, name: str, stage: str) -> ClippedVectors | None:
    """Return the number and size of the noisy vectors that a part of a stage of votes releases; None for other parts.

    Args:
        task: of the model.
        name: of the train stage.
        stage: of the part.
    """
    steps = task.steps
    if stage == training_parts.tests_of(name):
        return ClippedVectors(size=1, times=steps.settled_asked, rate=1.0)
    if stage == name:
        return ClippedVectors(size=max(2, task.label.outputs), times=steps.answers, rate=1.0)
    return None


def trials(stage: StagePlan, vectors: ClippedVectors, replays: int, *, with_unit: bool) -> Iterator[Floats]:
    """Yield noisy votes along the direction in which a unit moves them, over how far it does: (releases, replays).

    Args:
        stage: that pays for them.
        vectors: of the stage.
        replays: how many.
        with_unit: whether the unit is there.
    """
    moved, length = _moved(vectors.size)
    across = max(1, ACROSS // vectors.size)
    for begin in range(0, replays, across):
        count = min(across, replays - begin)

        def together(*, size: int, count: int = count, **given: Any) -> NoisySum:
            return NoisySum(size=size * count, **given)

        if vectors.size == 1:
            noise = noisy_answers.noise_of_tests(stage, together)
        else:
            noise = noisy_answers.noise_of_answers(stage, vectors.size, together)
        exact = np.tile(moved if with_unit else np.zeros(vectors.size), count)
        noisy = [noise.release(exact).reshape(count, vectors.size) @ moved for _ in range(vectors.times)]
        yield np.stack(noisy) / length**2


def _moved(size: int) -> tuple[Floats, float]:
    """Return the effect of a unit on the largest count, or on all counts.

    It is one vote less for the first class, and one more for the second.
    """
    if size == 1:
        return np.ones(1), TESTED
    moved = np.zeros(size)
    moved[0], moved[1] = -1.0, 1.0
    return moved, ANSWERED


def wrong_moves(whole: Sequence[Floats], rest: Sequence[Floats], norm: float) -> list[str]:
    """Return in words the moves of votes that one unit must not make.

    Args:
        whole, rest: the votes before noise, with the unit and without, one release after the other.
        norm: the move that the noise allows for.
    """
    if len(whole) != len(rest):
        return ["how often teachers are asked depends on a unit"]
    wrong = []
    for one, other in zip(whole, rest, strict=True):
        moved = one - other
        if not float(np.linalg.norm(moved)) <= norm:
            wrong.append("a unit moves votes by more than the noise is for")
        if np.abs(moved).max(initial=0.0) > 1 or (len(moved) > 1 and moved.sum() != 0):
            wrong.append("a unit moves more than one vote")
    return list(dict.fromkeys(wrong))
