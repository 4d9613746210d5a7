"""The classes for which models vote: compiled loops over numbers, one model and one row after the other.

In: parameters of one model, rows. Out: the class of each row. Holds: a vote follows from the parameters and its row alone, bit
for bit, and never fails: of scores that are no numbers, or equal, the first class wins. Not covered: where parameters come from
(`training.federated.local_loops`).
"""

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.training.federated.local_loops import through
from dp_pipelines.training.kernels.compiled import compiled

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@compiled
def vote(features: NDArray[np.float32], own: Floats, sizes: Places, biased: int, classes: int, votes: Places) -> None:
    """Fill in the class of each row.

    Args:
        features: (rows, features).
        own: parameters, in the order of `local_loops`: layer by layer inputs times outputs, then biases where there are any.
        sizes: features, units of hidden layers, outputs.
        biased: 1 where layers have biases, else 0.
        classes: 2 or more. With one output, class 1 is that of a score above zero.
        votes: (rows,), overwritten.
    """
    depth = len(sizes) - 1
    values = np.empty((depth + 1, sizes.max()))
    for row in range(len(features)):
        through(features[row], own, sizes, depth, biased, values)
        votes[row] = 0
        if sizes[depth] == 1:
            if values[depth, 0] > 0.0:
                votes[row] = 1
            continue
        most = values[depth, 0]
        for place in range(1, classes):
            if values[depth, place] > most:
                most, votes[row] = values[depth, place], place
