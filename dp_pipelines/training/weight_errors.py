"""How far the noise of the steps moves the weights of a linear model: the standard deviation of each.

In: how the model was stepped, released moments, the whitening made of them, released counts of held-out examples. Out: a number
for each weight, in its unit. Holds: released numbers and public facts decide it (post-processing). Not covered: what other units
would change; the noise of the bins, of the moments and of the number of units; samples of units where not all take part
in each step; clipping, which makes steps smaller and so this number too.
"""

# A step is theta <- theta - rate * m, m <- momentum * m + gradient + noise. Near the path without noise the gradient is a
# straight line in theta, whose slope is the curvature of the mean loss: about c X, X the mean of x x' in the coordinates of the
# steps and c the curvature of the loss of an example: p (1 - p) of a probability, 1 of half a square. Of probabilities it differs
# by column: among rare outcomes it grows with the probability, so as a product over the columns that an example has. Along each
# main direction of c X the noise of each step then has a fixed share in the average of the last parameters, and the noises are
# independent. docs/proofs/training.md, 5.

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, LinearModel, NumberLabel, Steps, TrainModel
from dp_pipelines.training.evaluation import Evaluation
from dp_pipelines.training.evaluation_cells import middles
from dp_pipelines.training.features.seen_columns import SeenColumns
from dp_pipelines.training.kernels.penalty import constant_direction

Floats = NDArray[np.float64]

MOST_STEPS = 20_000
"""Of more steps nothing is said: their shares would be computed one by one."""

BLOCK = 2**22
"""How many numbers are in memory at a time: directions times steps. Each direction is computed by itself."""

LEAST_CURVATURE = 1e-3
"""Of a loss, where counts say less."""

MOST_BESIDE = 10.0
"""By how much the loss of examples with a column bends more than that of all, or less."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WeightNoise:
    """The noise of the weights of a linear model, by independent parts.

    Args:
        of_columns: (columns, parts) what each part adds to the weights of columns.
        variances: (parts, of outputs).
        of_outputs: (outputs, of outputs) what it adds to the outputs.
        scale: of scores, in units of parameters.
    """

    of_columns: Floats
    variances: Floats
    of_outputs: Floats
    scale: float = 1.0

    @property
    def stddevs(self) -> Floats | None:
        """(columns, outputs), in units of `scoring.linear_weights`; None where they are no numbers."""
        with np.errstate(all="ignore"):  # declared rates may be as large as they like
            found: Floats = np.sqrt(self.of_columns**2 @ self.variances @ (self.of_outputs**2).T) * self.scale
        return found if np.isfinite(found).all() else None

    def along(self, direction: Floats) -> float:
        """The standard deviation of a sum of weights of a single output.

        Args:
            direction: (columns,) by what each weight is multiplied.
        """
        with np.errstate(all="ignore"):
            return float(np.sqrt((direction @ self.of_columns) ** 2 @ self.variances[:, 0])) * self.scale


def weight_noise(
    task: TrainModel,
    parameters: Floats,
    seen: SeenColumns,
    evaluation: Evaluation,
    *,
    gradient_stddev: float,
    learning_rate: float,
) -> WeightNoise | None:
    """The noise that the steps give to weights; None where nothing is known of it.

    Args:
        task: a task whose steps were taken. Of models that are not linear, and of features that are not whitened, nothing is
            known.
        parameters: that the steps have led to.
        seen: what the released moments say.
        evaluation: of the model; the counts tell how far its probabilities are from 0 and 1.
        gradient_stddev: of the noise of a coordinate of the mean gradient.
        learning_rate: of the mean gradient.
    """
    if not isinstance(task.model, LinearModel) or task.steps.steps > MOST_STEPS:
        return None
    bent, curvatures, outputs = seen.moments, np.ones(1), np.ones((1, 1))
    if isinstance(task.label, BinaryLabel):
        bent = _of_probability(parameters, seen, evaluation, task.steps.relative_weights or (1.0, 1.0))
    elif isinstance(task.label, ClassLabel):
        curvatures, outputs = _of_classes(task.label, evaluation, task.steps.relative_weights)
    whitened = seen.whitening @ bent @ seen.whitening
    spread, directions = np.linalg.eigh((whitened + whitened.T) / 2)
    bends = np.outer(np.maximum(spread, 0.0), curvatures) + _of_penalty(task, seen, directions)[:, None]
    shares = noise_shares(task.steps, learning_rate, bends.ravel())
    with np.errstate(over="ignore", invalid="ignore"):
        variances = shares.reshape(len(spread), len(curvatures)) * np.square(gradient_stddev)
    scale = task.label.max_value - task.label.min_value if isinstance(task.label, NumberLabel) else 1.0
    return WeightNoise(of_columns=seen.whitening @ directions, variances=variances, of_outputs=outputs, scale=scale)


def noise_shares(steps: Steps, learning_rate: float, curvatures: Floats) -> Floats:
    """The variance of the averaged parameter that noise of variance 1 in each step makes, by the curvature of its direction.

    Args:
        steps: how many, with which momentum, and how many of the last are averaged.
        learning_rate: of the gradient.
        curvatures: (directions,).

    >>> one = Steps(steps=1, momentum=0.0)
    >>> noise_shares(one, 0.5, np.array([1.0])).tolist()
    [0.25]
    >>> still = Steps(steps=3, momentum=0.0, average=0.0)  # without curvature the noises of all steps add up
    >>> noise_shares(still, 1.0, np.array([0.0])).tolist()
    [3.0]
    """
    shares: Floats = shares_by_average(steps, learning_rate, curvatures, (steps.averaged,))[0]
    return shares


def shares_by_average(steps: Steps, learning_rate: float, curvatures: Floats, averages: Sequence[int]) -> Floats:
    """Return `noise_shares` for several numbers of averaged steps: (averages, directions).

    Args:
        steps, learning_rate, curvatures: as for `noise_shares`.
        averages: how many of the last steps are averaged.
    """
    block = max(1, BLOCK // (steps.steps + 1))
    parts = [curvatures[begin : begin + block] for begin in range(0, len(curvatures), block)]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate([_shares(steps, learning_rate, part, averages) for part in parts], axis=1)


def _shares(steps: Steps, learning_rate: float, curvatures: Floats, averages: Sequence[int]) -> Floats:
    """Those of some directions."""
    # By how many steps before the end a noise came: where it has moved the parameter to, added up over the steps since.
    moved, momentum = np.zeros(len(curvatures)), np.ones(len(curvatures))
    summed = np.zeros((steps.steps + 1, len(curvatures)))
    for lag in range(steps.steps):
        if lag:
            momentum = steps.momentum * momentum + curvatures * moved
        moved = moved - learning_rate * momentum
        summed[lag + 1] = summed[lag] + moved
    shares = []
    for count in averages:
        before = np.concatenate([np.zeros((count, len(curvatures))), summed[1 : steps.steps - count + 1]])
        shares.append((((summed[1:] - before) / count) ** 2).sum(axis=0))
    return np.stack(shares)


def _of_penalty(task: TrainModel, seen: SeenColumns, directions: Floats) -> Floats:
    """What `fit: l2` adds to the curvature in each direction."""
    if task.steps.l2 is None:
        return np.zeros(len(directions))
    free = constant_direction(seen.whitening, len(directions)) @ directions
    return task.steps.l2 * (1 - free**2)


def _of_probability(parameters: Floats, seen: SeenColumns, evaluation: Evaluation, weights: Sequence[float]) -> Floats:
    """The mean of p (1 - p) x x', times the weight of the class."""
    middle = np.tile(middles(np.array(evaluation.edges)), 2)
    counts = np.maximum(np.array(evaluation.cells), 0.0)
    own = middle * (1 - middle) * np.repeat(weights, len(middle) // 2)
    mean = float(own @ counts / counts.sum()) if counts.sum() > 0 else 0.25
    mean = min(max(mean, LEAST_CURVATURE), 0.25)
    had = np.maximum(np.diag(seen.moments), 1e-12)
    with np.errstate(over="ignore"):
        # The mean score of the examples that have a column, and how far they bend the loss beside all examples.
        scores = np.clip(seen.moments @ (seen.whitening @ parameters) / had, -30, 30)
        chances = 1 / (1 + np.exp(-scores))
    beside = np.ones(len(had))
    for columns in seen.one_of:
        at = [column for column in columns if seen.columns[column]]
        alone = np.maximum(chances[at] * (1 - chances[at]), LEAST_CURVATURE)
        of_all = float(had[at] @ alone / had[at].sum()) if at else 1.0  # of one of them each example has exactly one
        beside[at] = np.clip(alone / of_all, 1 / MOST_BESIDE, MOST_BESIDE)
    both = np.outer(beside, beside)
    for whole, listed in seen.parts:  # an example with the cell of a pair has this column anyway
        both[whole, list(listed)] = both[list(listed), whole] = beside[list(listed)]
    bent = seen.moments * both * mean
    np.fill_diagonal(bent, np.diag(seen.moments) * beside * mean)
    return bent


def _of_classes(label: ClassLabel, evaluation: Evaluation, weights: Sequence[float] | None) -> tuple[Floats, Floats]:
    """The mean curvature of the loss of an example in the directions of the outputs, and these directions as columns."""
    outputs, counts = label.outputs, np.maximum(np.array(evaluation.cells), 0.0)
    shares = np.full(outputs, 1 / outputs)
    if len(counts) == outputs**2 and counts.sum() > 0:  # true by predicted
        shares = counts.reshape(outputs, outputs).sum(axis=1) / counts.sum()
    if weights is None:
        bent = np.diag(shares) - np.outer(shares, shares)
    else:  # of examples that are weighted like this
        weighted = shares * weights
        said = weighted / max(weighted.sum(), LEAST_CURVATURE)
        bent = weighted.sum() * (np.diag(said) - np.outer(said, said))
    curvatures, directions = np.linalg.eigh(bent)
    return np.maximum(curvatures, 0.0), directions
