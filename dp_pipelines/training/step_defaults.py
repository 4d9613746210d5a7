"""Clip norm, learning rate and averaging of a linear model where a job leaves them open: by how much noise its steps have.

In: the steps of a task, released moments and numbers of units and examples, the noise of the plan. Out: a clip norm, a learning
rate, and how many of the last steps are averaged. Holds: released numbers and public facts decide it
(post-processing); neither a row nor a measure of the model does. Not covered: the number of steps and their noise multiplier;
other models, and features that are not whitened, keep the defaults of steps without noise.
"""

# Near the best parameters the loss is a quadratic. Along a main direction of the features with mean square `l` it bends by
# h = c l, c the curvature of the loss of an example. A part b(h) of the first distance from the optimum is left in the average of
# the last parameters, and the noise of the steps adds a variance s^2 n(h). So the loss is above its least by about
#
#     1/2 sum over directions of h (b(h)^2 d^2 + s^2 n(h)),
#
# d^2 the square of the first distance. What is not released (d and c) is guessed, the same for all data. Large rates leave
# little of the distance and much noise; the average over all steps has half the noise of that over half of them, and more of the
# first distance. An L2 penalty bends each direction by as much more, which shortens both. docs/proofs/training.md, 5.

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Label, LinearModel, NumberLabel, Steps, TrainModel
from dp_pipelines.training.features.seen_columns import SeenColumns
from dp_pipelines.training.weight_errors import shares_by_average

Floats = NDArray[np.float64]

MOST_STEPS = 2_000
"""With more steps, the defaults are those without noise: shares would be computed one by one."""

HALVINGS = 8
"""How many times the largest rate may be halved."""

AVERAGES = (0.5, 0.75, 1.0)
"""Parts of the steps over which parameters may be averaged."""

CLIP = 1.5
"""The norm of a unit's gradient in norms of a typical row, where noise is small: residuals are about a half, so about three
examples that pull in one direction count in full. On Ta Feng, half or twice this value loses nothing
(docs/benchmarks/training.md)."""

CLIP_OF_ONE = 0.75
"""The same of a unit with one example, where noise is large: the more half of residuals is not clipped. Gradients of several
examples are taken to grow with the root of their number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guess:
    """What is guessed of the loss, whatever the data are.

    Args:
        curvature: of the loss of an example.
        signal: the mean square of the best scores around their mean.
        middle: the square of their mean.
        wander: the mean square of what noise adds to scores by the last step: beyond it, slopes are no longer those of a
            quadratic.
    """

    curvature: float
    signal: float
    middle: float
    wander: float

    @property
    def nothing(self) -> float:
        """A loss that is too small to care for: 6 in 1,000 of what the features tell."""
        return 0.006 * self.curvature * self.signal / 2


GUESSES: dict[type[Label], Guess] = {
    BinaryLabel: Guess(curvature=0.15, signal=1.0, middle=2.0, wander=1.0),
    ClassLabel: Guess(curvature=0.2, signal=1.0, middle=1.0, wander=1.0),
    NumberLabel: Guess(curvature=1.0, signal=0.02, middle=0.25, wander=float("inf")),
}
"""By the kind of label. Scores are logits, or values of which 1 is the whole declared range. About one true example in five has a
mean logit of -1.4, and a logistic model with an AUC of .75 has logits with a variance of about 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepDefaults:
    """What a job has left open.

    Args:
        clip_norm: of a unit's summed gradient.
        learning_rate: of the mean gradient of examples.
        averaged: over how many of the last steps parameters are averaged.
    """

    clip_norm: float
    learning_rate: float
    averaged: int

    def taken(self, steps: Steps) -> Steps:
        """The steps as they are taken: nothing is open.

        >>> StepDefaults(clip_norm=1.0, learning_rate=1.0, averaged=3).taken(Steps(steps=4)).averaged
        3
        """
        average = self.averaged / steps.steps
        return dataclasses.replace(steps, clip_norm=self.clip_norm, learning_rate=self.learning_rate, average=average)


def step_defaults(
    task: TrainModel,
    seen: SeenColumns | None,
    *,
    typical: float,
    noise: float,
    largest_rate: float,
    examples_of_unit: float = 1.0,
) -> StepDefaults:
    """The clip norm, the learning rate and the averaging, as the job declares them, or else chosen.

    Args:
        task: what is learnt.
        seen: what the released moments say; None where features are not whitened.
        typical: the norm of a typical row of features.
        noise: the standard deviation of a coordinate of the mean gradient, for a clip norm of 1.
        largest_rate: the rate that suits steps without noise.
        examples_of_unit: about how many examples a unit has, a released number.
    """
    steps = task.steps
    usual = StepDefaults(
        clip_norm=steps.clip_norm or CLIP * typical,
        learning_rate=steps.learning_rate or largest_rate,
        averaged=steps.averaged,
    )
    if seen is None or not isinstance(task.model, LinearModel) or steps.steps > MOST_STEPS:
        return usual
    matrix = seen.whitening @ seen.moments @ seen.whitening
    spread = np.maximum(np.linalg.eigvalsh((matrix + matrix.T) / 2), 0.0)
    if not (np.isfinite(spread).all() and spread.sum() > 0):
        return usual
    guess = GUESSES[type(task.label)]
    chosen, above = _chosen(steps, usual, spread, noise, guess)
    if steps.clip_norm is None and above > guess.nothing:
        share = min(CLIP, CLIP_OF_ONE * math.sqrt(max(1.0, examples_of_unit)))
        smaller = dataclasses.replace(usual, clip_norm=share * typical)
        chosen, _ = _chosen(steps, smaller, spread, noise, guess)
    return chosen


def _chosen(
    steps: Steps, usual: StepDefaults, spread: Floats, noise: float, guess: Guess
) -> tuple[StepDefaults, float]:
    """The largest rate that is about as good as the best, with the best average for it, and what they leave of the loss.

    Args:
        steps: of the task.
        usual: what is taken without noise.
        spread, guess: as for `excess`.
        noise: as for `step_defaults`.
    """
    rates = [usual.learning_rate]
    if steps.learning_rate is None:
        rates = [usual.learning_rate / 2**halved for halved in range(HALVINGS + 1)]
    parts = AVERAGES if steps.average is None else (steps.average,)
    averages = [dataclasses.replace(steps, average=part).averaged for part in parts]
    found = []
    with np.errstate(all="ignore"):  # declared numbers may be as large as they like
        for rate in rates:
            wandered, losses = excess(steps, rate, spread, noise * usual.clip_norm, guess, averages)
            found += [(rate, averaged, wandered, above) for averaged, above in zip(averages, losses, strict=True)]
    least = min(wandered for _, _, wandered, _ in found)
    still = [(rate, averaged, above) for rate, averaged, wandered, above in found if wandered <= least]
    best = min(above for *_, above in still)
    rate = max(rate for rate, _, above in still if above <= best + guess.nothing)
    above, averaged = min((above, averaged) for of, averaged, above in still if of == rate)
    return dataclasses.replace(usual, learning_rate=rate, averaged=averaged), above


def excess(
    steps: Steps, rate: float, spread: Floats, gradient_stddev: float, guess: Guess, averages: Sequence[int]
) -> tuple[float, list[float]]:
    """How far single steps wander beyond what is guessed to be harmless, then by how much the loss is above its least.

    Args:
        steps: how many, with which momentum.
        rate: the learning rate.
        spread: (directions,) the mean squares of the features along their main directions.
        gradient_stddev: of the noise of a coordinate of the mean gradient.
        guess: what is not known.
        averages: how many of the last steps are averaged: the loss is given for each.
    """
    bends = guess.curvature * spread
    slopes = bends + (steps.l2 or 0.0)
    variance = float(np.square(gradient_stddev))
    *shares, of_last = shares_by_average(steps, rate, slopes, (*averages, 1))
    signal = guess.signal / float(spread.sum())
    losses = []
    for noise, left in zip(
        shares, distances_left(steps, rate, np.append(slopes, guess.curvature), averages), strict=True
    ):
        of_middle = guess.middle * float(np.square(left[-1]))
        above = guess.curvature * of_middle + float(bends @ (signal * left[:-1] ** 2 + variance * noise))
        losses.append(_number(above / 2))
    wandered = variance * float(spread @ of_last)
    return _number(max(wandered, guess.wander)), losses


def distances_left(steps: Steps, rate: float, curvatures: Floats, averages: Sequence[int]) -> list[Floats]:
    """What is left of the first distance from the optimum in the average of the last parameters, without noise.

    Args:
        steps: how many, with which momentum.
        rate: the learning rate.
        curvatures: (directions,) of the mean loss.
        averages: how many of the last steps are averaged.

    Returns:
        for each average (directions,).

    >>> last, mean = distances_left(Steps(steps=2, momentum=0.0), 0.5, np.array([0.0, 1.0]), [1, 2])
    >>> last.tolist(), mean.tolist()
    ([1.0, 0.25], [1.0, 0.375])
    """
    distance, momentum = np.ones(len(curvatures)), np.zeros(len(curvatures))
    distances = []
    for _ in range(steps.steps):
        momentum = steps.momentum * momentum + curvatures * distance
        distance = distance - rate * momentum
        distances.append(distance)
    return [np.cumsum(distances[-count:], axis=0)[-1] / count for count in averages]


def _number(value: float) -> float:
    return math.inf if math.isnan(value) else value
