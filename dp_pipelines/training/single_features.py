"""How well each feature alone would rank examples, as a linear model and the released moments have it: a baseline.

In: the released parameters of a model of a binary label, released moments, the noise of its weights. Out: for each feature the
AUC of the shares of true examples in its bins or categories. Holds: all of it is post-processing. Not covered: the
noise of the moments; features of a straight line alone, whose columns do not say which value an example has; scores that are not
about normal among the examples of a column.
"""

# With weights w and the mean M of x x' over units, the examples that have column j have the mean score (M w)_j / M_jj. Their
# scores differ, on average over the columns of a feature, by the variance v = w' M w - sum over j of M_jj (mean score)^2. The
# mean of the probabilities of normal scores with mean m and variance v is about that of m / sqrt(1 + pi v / 8) (MacKay 1992, The
# evidence framework applied to classification networks, (10)). Where classes have weights, the scores are the log odds of
# examples that are weighted so: those of the data are less by the logarithm of the ratio of the weights.

import math

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.query.train_model import BinaryLabel, Number, TrainModel
from dp_pipelines.training.features.seen_columns import SeenColumns
from dp_pipelines.training.measures import EstimatedMeasure
from dp_pipelines.training.weight_errors import WeightNoise

Floats = NDArray[np.float64]

LEAST_SHARE = 1e-9
"""Of the examples, for a column to count."""


def areas(
    task: TrainModel, parameters: Floats, seen: SeenColumns, noise: WeightNoise | None
) -> dict[str, EstimatedMeasure]:
    """The AUC that each feature would have alone, by its name; none where the label is not binary.

    Args:
        task: what the model has learnt.
        parameters: that the steps have led to.
        seen: what the released moments say; `one_of` has the columns of each feature and each pair, in the task's order.
        noise: of the weights; None: nothing is known.
    """
    known = len(seen.one_of) == len(task.features) + len(task.pairs)
    if not isinstance(task.label, BinaryLabel) or noise is None or not known:
        return {}
    weights = seen.whitening @ parameters
    false, true = task.steps.relative_weights or (1.0, 1.0)
    means, squares = seen.moments @ weights, float(weights @ seen.moments @ weights)
    found = {}
    for (name, feature), columns in zip(task.features.items(), seen.one_of, strict=False):  # pairs come last
        if isinstance(feature, Number) and feature.cells == 1:
            continue
        at = np.array([column for column in columns if seen.moments[column, column] > LEAST_SHARE], np.int64)
        if not len(at):
            continue
        shares = seen.moments[at, at]
        scores = means[at] / shares
        within = max(0.0, squares - float(shares @ scores**2)) / float(shares.sum())
        value, slopes = area(shares, scores - math.log(true / false), within)
        moved = seen.moments[at].T @ (slopes / shares)
        deviation = noise.along(moved)
        if math.isfinite(value) and math.isfinite(deviation):
            found[name] = EstimatedMeasure(value=value, noise=deviation)
    return found


def area(shares: Floats, scores: Floats, within: float) -> tuple[float, Floats]:
    """The AUC of examples that are ranked by their column alone, and its slope in each column's mean score.

    Where the probability of every column is 0 or 1, to the last bit, the AUC is NaN: there are no two classes.

    Args:
        shares: (columns,) of all examples, above 0.
        scores: (columns,) the mean score of the examples of each: log odds.
        within: the variance of scores of one column.

    >>> found, _ = area(np.array([0.5, 0.5]), np.array([-1.0986122886681098, 1.0986122886681098]), 0.0)
    >>> round(found, 9)
    0.75
    """
    narrowed = 1 / math.sqrt(1 + math.pi * within / 8)
    chances = 1 / (1 + np.exp(-np.clip(scores * narrowed, -700, 700)))
    true, false = shares * chances, shares * (1 - chances)
    trues, falses = float(true.sum()), float(false.sum())
    if not trues * falses > 0:
        return math.nan, np.zeros(len(shares))
    better = (np.sign(scores[:, None] - scores[None, :]) + 1) / 2  # of two columns with the same score each wins half
    value = float(true @ better @ false) / (trues * falses)
    by_chance = (better @ false - true @ better) - value * (falses - trues)
    slopes: Floats = shares * by_chance / (trues * falses) * chances * (1 - chances) * narrowed
    return value, slopes
