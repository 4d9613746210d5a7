"""What clients compute from a published model, each from its own rows alone: compiled loops over numbers.

In: rows of whole clients, published parameters, how to train. Out: for each client, the published parameters minus its own, or
its mean gradient. Holds: a client's numbers follow from its rows, in their order, and the parameters alone, bit for bit: every
loop runs over one client, one operation on single numbers after the other, and nothing is added up across clients. Not covered:
the clip (`local_updates`), which also discards what is not finite.
"""

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.training.kernels.compiled import compiled

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

BINARY, CLASSES, NUMBER = 0, 1, 2
"""Kinds of labels."""


@compiled
def train_clients(
    features: NDArray[np.float32], labels: Floats, starts: Places, first: int, published: Floats, sizes: Places,
    biased: int, kind: int, low: float, high: float, epochs: int, examples: int, rate: float, updates: Floats,
) -> None:  # fmt: skip
    """Fill in the updates of the clients from `first` on, as many as `updates` has rows.

    Args:
        features, labels, starts: rows of whole clients.
        first: the first of them.
        published: the parameters: layer by layer a matrix of inputs times outputs, a bias's row last where there is one.
        sizes: features, units of hidden layers, outputs.
        biased: 1 where layers have biases, else 0.
        kind: of the label; low, high: its range, if it is a number.
        epochs: passes over a client's rows; 0: the update is the mean gradient of its rows.
        examples: rows of one local step.
        rate: of local steps.
        updates: (clients, parameters), overwritten.
    """
    depth, widest = len(sizes) - 1, sizes.max()
    own, gradient = np.empty_like(published), np.empty_like(published)
    values, slopes = np.empty((depth + 1, widest)), np.empty((2, widest))
    for client in range(len(updates)):
        begin, end = starts[first + client], starts[first + client + 1]
        own[:] = published
        if epochs == 0:
            gradient[:] = 0.0
            for row in range(begin, end):
                add_gradient(
                    features[row], labels[row], own, sizes, depth, biased, kind, low, high, values, slopes, gradient
                )
            updates[client] = gradient / max(1, end - begin)
            continue
        for _ in range(epochs):
            for start in range(begin, end, examples):
                stop = min(start + examples, end)
                gradient[:] = 0.0
                for row in range(start, stop):
                    add_gradient(
                        features[row], labels[row], own, sizes, depth, biased, kind, low, high, values, slopes, gradient
                    )
                share = rate / (stop - start)
                for place in range(len(own)):
                    own[place] -= share * gradient[place]
        updates[client] = published - own


@compiled
def through(row: NDArray[np.float32], own: Floats, sizes: Places, depth: int, biased: int, values: Floats) -> int:
    """Fill in `values`, a row for each layer, for one row of features; how many parameters there are."""
    for place in range(sizes[0]):
        values[0, place] = row[place]
    offset = 0
    for layer in range(depth):
        into, out = sizes[layer], sizes[layer + 1]
        for unit in range(out):
            values[layer + 1, unit] = own[offset + into * out + unit] if biased else 0.0
        for place in range(into):
            given, at = values[layer, place], offset + place * out
            for unit in range(out):
                values[layer + 1, unit] += given * own[at + unit]
        if layer + 1 < depth:
            for unit in range(out):
                values[layer + 1, unit] = bent(values[layer + 1, unit])
        offset += (into + biased) * out
    return offset


@compiled
def add_gradient(
    row: NDArray[np.float32], label: float, own: Floats, sizes: Places, depth: int, biased: int, kind: int, low: float,
    high: float, values: Floats, slopes: Floats, gradient: Floats,
) -> None:  # fmt: skip
    """Add the gradient of one row's loss. Arguments as for `train_clients`; `values` and `slopes` are overwritten."""
    offset = through(row, own, sizes, depth, biased, values)
    residuals(values[depth], label, sizes[depth], kind, low, high, slopes[depth % 2])
    for layer in range(depth - 1, -1, -1):
        into, out = sizes[layer], sizes[layer + 1]
        offset -= (into + biased) * out
        above, below = slopes[(layer + 1) % 2], slopes[layer % 2]
        for place in range(into):
            given, at = values[layer, place], offset + place * out
            for unit in range(out):
                gradient[at + unit] += given * above[unit]
            if layer > 0:
                total = 0.0
                for unit in range(out):
                    total += own[at + unit] * above[unit]
                below[place] = total * (1.0 - given * given)
        if biased:
            for unit in range(out):
                gradient[offset + into * out + unit] += above[unit]


@compiled
def residuals(outputs: Floats, label: float, count: int, kind: int, low: float, high: float, found: Floats) -> None:
    """The derivative of one row's loss by each output."""
    if kind == NUMBER:
        found[0] = outputs[0] - (label - low) / (high - low)
    elif kind == BINARY:
        found[0] = sigmoid(outputs[0]) - label
    else:
        most = outputs[0]
        for place in range(1, count):
            most = max(most, outputs[place])
        total = 0.0
        for place in range(count):
            found[place] = np.exp(outputs[place] - most)
            total += found[place]
        for place in range(count):
            found[place] = found[place] / total - (1.0 if label == place else 0.0)


@compiled
def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), of a number of whatever size."""
    # NumPy's exp, because Python's, which runs here if Numba is told not to compile, raises on overflow.
    small: float = np.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1.0 + small)


@compiled
def bent(x: float) -> float:
    """Tanh."""
    small: float = np.exp(-2.0 * abs(x))
    value = (1.0 - small) / (1.0 + small)
    return value if x >= 0 else -value
