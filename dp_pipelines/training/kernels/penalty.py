"""What holds down the spread of a linear model's scores (L2), as a gradient that is added after the noise.

In: parameters, how strongly, the released whitening matrix. Out: the gradient of the penalty. Holds: it is computed from
released and public numbers alone, so it costs nothing; the mean of the scores (the intercept) is free. Not covered: how
strong it should be.
"""

# Of features that are whitened by W the parameters t stand for the weights W t, and the square of their length is the mean
# square of the scores: W is the inverse root of the mean of x x'. The parameters W+ e, with e the constant column, give
# every example the same score; what is left of t without this direction gives scores their spread.

import dataclasses
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Model = TypeVar("Model")

SINGULAR = 1e-10
"""Directions of a whitening matrix below this part of its largest one are those that examples do not tell apart."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ScorePenalty:
    """Half of `l2` times the variance of the scores, or, of features that are not whitened, times the squares of the weights.

    Args:
        l2: how strongly.
        constant: (width,), of length 1: the direction of parameters that gives every example the same score.

    >>> ScorePenalty(l2=0.5, constant=constant_direction(None, 3)).gradient(np.array([4.0, 2.0, 0.0])).tolist()
    [0.0, 1.0, 0.0]
    """

    l2: float
    constant: Floats

    def gradient(self, parameters: Floats) -> Floats:
        """Its gradient at some parameters: (outputs * width,)."""
        own = parameters.reshape(-1, len(self.constant))
        spread = own - np.outer(own @ self.constant, self.constant)
        return (self.l2 * spread).ravel()


def constant_direction(whitening: Floats | None, width: int) -> Floats:
    """The direction of parameters that gives every example the same score: (width,), of length 1.

    Args:
        whitening: (width, width), symmetric, or None.
        width: the number of columns, of which the first is constant.
    """
    found = np.eye(width)[0]
    if whitening is not None:
        found = np.linalg.pinv(whitening, rcond=SINGULAR, hermitian=True)[:, 0]
    length = float(np.linalg.norm(found))
    direction: Floats = found / length if length > 0 else found
    return direction


def penalised(kernel: Model, l2: float | None, whitening: Floats | None) -> Model:
    """A linear kernel with a penalty; the same kernel where there is none.

    Args:
        kernel: `LinearKernel` or `CodedLinear`.
        l2: how strongly; None: not at all.
        whitening: what multiplies rows of features, or None.
    """
    if l2 is None:
        return kernel
    linear: Any = kernel
    penalty = ScorePenalty(l2=l2, constant=constant_direction(whitening, linear.width))
    made: Model = dataclasses.replace(linear, penalty=penalty)
    return made
