"""A network of dense layers: its shapes, initial parameters, and scores.

In: sizes, a label, parameters as one vector. Out: layers, initial parameters, scores. Holds: the vector has, layer by
layer, a matrix with a row for each input and a last row for the bias, row by row; the initial parameters depend only on
public bytes and are the same on every machine; each row of a result depends only on the same row of the input, as far
as matrix products do. The loss is as for linear models: logistic for a binary label, cross-entropy for
classes, half the squared error for a number, its declared range scaled to [0, 1].
"""

import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.query.train_model import ClassLabel, Label, NumberLabel
from dp_pipelines.training.kernels.exponentials import exponential

Floats = NDArray[np.float64]

ROWS = 4096
"""Rows that go through the network at a time."""

ROWS_ALONE = 256
"""The same if each row is scored alone: sums of this many stay in the cache."""


Layers = list[NDArray[np.float32]]
"""A matrix (inputs + 1, outputs) for each layer, the biases last."""


def shapes(width: int, hidden: Sequence[int], outputs: int) -> list[tuple[int, int]]:
    """The shape of each layer's parameters, including the bias.

    >>> shapes(64, (256, 64), 2)
    [(65, 256), (257, 64), (65, 2)]
    """
    sizes = (width, *hidden, outputs)
    return [(before + 1, after) for before, after in itertools.pairwise(sizes)]


def in_float32(parameters: Floats) -> NDArray[np.float32]:
    """Parameters in float32; too large ones become infinite."""
    with np.errstate(over="ignore"):
        return parameters.astype(np.float32)


def layers(of: Sequence[tuple[int, int]], parameters: Floats) -> Layers:
    """The layers in a vector of parameters, in float32."""
    found, begin, singles = [], 0, in_float32(parameters)
    for rows, columns in of:
        found.append(singles[begin : begin + rows * columns].reshape(rows, columns))
        begin += rows * columns
    return found


def uniform(size: int, key: bytes) -> Floats:
    """Numbers between -1 and 1 that look random: a hash of a public key.

    >>> bool((uniform(3, b"a") == uniform(3, b"a")).all()), bool((uniform(3, b"a") == uniform(3, b"b")).any())
    (True, False)
    """
    words = np.frombuffer(hashlib.shake_256(b"dp_pipelines network " + key).digest(4 * size), "<u4")
    return (words.astype(np.float64) + 0.5) * 2.0**-31 - 1.0


def initial(of: Sequence[tuple[int, int]], key: bytes) -> Floats:
    """Initial parameters: weights of variance 1 / inputs, no bias, and a last layer of zeros, which predicts nothing."""
    parts = []
    for number, (rows, columns) in enumerate(of):
        matrix = np.zeros((rows, columns))
        if number < len(of) - 1:
            drawn = uniform((rows - 1) * columns, key + number.to_bytes(4, "little"))
            matrix[:-1] = drawn.reshape(rows - 1, columns) * math.sqrt(3 / (rows - 1))
        parts.append(matrix.reshape(-1))
    return np.concatenate(parts)


def scores_alone(of: Sequence[tuple[int, int]], label: Label, parameters: Floats, features: NDArray[Any]) -> Floats:
    """Like `scores`, but the score of a row depends only on that row, to the last bit; much slower.

    Single numbers are multiplied and added in a fixed order. In BLAS products, the last bit depends on the number of
    rows and the position of a row among them. Arguments as for `scores`.
    """
    found, result = layers(of, parameters), np.zeros((len(features), of[-1][1]))
    with np.errstate(all="ignore"):
        for begin in range(0, len(features), ROWS_ALONE):
            # For each input a row of numbers, one for each example.
            values = features[begin : begin + ROWS_ALONE].T.astype(np.float32, order="C")
            for number, layer in enumerate(found):
                total = np.repeat(layer[-1][:, None], values.shape[1], axis=1)
                for weights, inputs in zip(layer[:-1], values, strict=True):
                    total += weights[:, None] * inputs
                values = _tanh(total) if number + 1 < len(found) else total
            result[begin : begin + ROWS_ALONE] = values.T
    return _of_label(label, result)


def _tanh(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    small = exponential(-2.0 * np.abs(numbers.astype(np.float64)))
    return np.copysign((1 - small) / (1 + small), numbers).astype(np.float32)


def _of_label(label: Label, outputs: Floats) -> Floats:
    """Outputs as scores of a label."""
    if isinstance(label, NumberLabel):
        outputs = label.min_value + (label.max_value - label.min_value) * outputs
    return outputs if isinstance(label, ClassLabel) else outputs[:, 0]


def scores(of: Sequence[tuple[int, int]], label: Label, parameters: Floats, features: NDArray[Any]) -> Floats:
    """The network's score of each row: a logit, a value in the label's own range, or (rows, classes) logits.

    Args:
        of: the shapes of the layers.
        label: what is predicted.
        parameters: one vector.
        features: (rows, width).
    """
    found, result = layers(of, parameters), np.zeros((len(features), of[-1][1]))
    with np.errstate(all="ignore"):
        for begin in range(0, len(features), ROWS):
            values = features[begin : begin + ROWS].astype(np.float32)
            for number, layer in enumerate(found):
                values = values @ layer[:-1] + layer[-1]
                values = np.tanh(values) if number + 1 < len(found) else values
            result[begin : begin + ROWS] = values
    return _of_label(label, result)
