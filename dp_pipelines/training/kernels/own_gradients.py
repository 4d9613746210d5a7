"""Any model that computes the gradient of one unit by itself, with whatever library: clipped and added up here, exactly.

In: an object with a gradient, parameters, a chunk of whole units, a norm. Out: the sum over units of their clipped
gradients. Holds: the object sees the rows of one unit at a time, and what it gives is clipped and rounded here to whole
steps, so float64 adds up without rounding and `slack` is 0; a unit for which it gives no such numbers, or fails, adds
nothing. Not covered: a gradient that depends on more than its arguments (earlier units, random numbers); the guarantee
requires that it does not.
"""

# The object, found under `module:attribute`, has:
#
#     size                                        the number of parameters
#     initial()                                   (size,): where training begins; public
#     gradient(parameters, features, labels)      of the loss of all rows of one unit, added up: (size,) float64,
#                                                 (rows, width) float32, (rows,) float64 -> (size,)
#     scores(parameters, features)                of (rows, width): (rows,) or, of classes, (rows, classes)
#
# Clipping is that of linear models, and so is the proof: docs/proofs/training.md, theorem 7 (b) and (c).

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks, interrupts
from dp_pipelines.errors import RequestError
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import linear
from dp_pipelines.training.kernels.linear import CLIP_BITS, MOST_UNITS_OF_CHUNK

Floats = NDArray[np.float64]


def initial_of(model: Any, size: int) -> Floats:
    """The initial parameters of an object: (size,).

    Raises:
        RequestError: it does not give such a vector.
    """
    found = np.asarray(model.initial(), np.float64)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise RequestError(field="model.name", message=f"initial() must give {size} finite numbers")
    return found


class GradientKernel:
    """The kernel of such an object. Only one thread at a time may use it.

    Args:
        model: the object, see the top of this module.
        size: the number of its parameters.

    >>> class Mean:
    ...     def initial(self):
    ...         return np.zeros(1)
    ...     def gradient(self, parameters, features, labels):
    ...         return np.array([np.sum(parameters[0] - labels)])
    >>> two = Chunk(np.ones((3, 1), np.float32), np.array([1.0, 3.0, 9.0]), np.array([0, 2, 3]))
    >>> GradientKernel(model=Mean(), size=1).clipped_sum(np.zeros(1), two, 5.0).round(3).tolist()
    [-9.0]
    """

    slack = 0.0
    """The sum of a chunk is exact."""

    units_per_chunk = 1024

    def __init__(self, *, model: Any, size: int) -> None:
        self.model, self.size = model, size

    def initial(self) -> Floats:
        """The object's initial parameters.

        Raises:
            RequestError: it does not give such a vector.
        """
        return initial_of(self.model, self.size)

    def check(self, width: int) -> None:
        """Try it on rows of zeros.

        Raises:
            RequestError: it does not give a vector of that size.
        """
        shape = np.shape(self.model.gradient(self.initial(), np.zeros((2, width), np.float32), np.zeros(2)))
        if shape != (self.size,):
            message = f"gradient(...) must give {self.size} numbers, and gives the shape {shape}"
            raise RequestError(field="model.name", message=message)

    def clipped_sum(self, parameters: Floats, chunk: Chunk, clip_norm: float) -> Floats:
        """The sum over the chunk's units of their gradients, each scaled down to `clip_norm` if it is longer.

        Args:
            parameters: (size,).
            chunk: at most 2**16 units.
            clip_norm: between 1e-100 and 1e80.
        """
        norm = checks.number(clip_norm, "clip_norm", above=1e-100, below=1e80)
        if chunk.units > MOST_UNITS_OF_CHUNK:
            raise ValueError("a chunk of so many units would not be added up exactly")
        step = math.ldexp(1.0, math.frexp(norm)[1] - CLIP_BITS - 1)
        result = np.zeros(self.size)
        with np.errstate(all="ignore"), interrupts.watched():
            for unit in range(chunk.units):
                rows = slice(int(chunk.starts[unit]), int(chunk.starts[unit + 1]))
                result += linear._whole(self._alone(parameters, chunk, rows)[None], norm, step)[0]
        return result * step

    def _alone(self, parameters: Floats, chunk: Chunk, rows: slice) -> Floats:
        """What the object says of one unit, in arrays of its own; NaN where that is nothing."""
        try:
            found = np.array(
                self.model.gradient(parameters.copy(), chunk.features[rows].copy(), chunk.labels[rows].copy()),
                np.float64,
            )
        except BaseException:  # rows may be the reason, so nothing of it is told, whatever its class
            interrupts.end_if_asked()
            found = np.zeros(0)
        return found if found.shape == (self.size,) else np.full(self.size, np.nan)
