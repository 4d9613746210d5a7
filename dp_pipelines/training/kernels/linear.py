"""Linear models: logistic, multinomial and squared loss, with the sum of the units' clipped gradients.

In: parameters, a chunk of whole units, a norm. Out: the sum over units of the unit's summed gradient, scaled down to
the norm if it is longer. Holds: a unit adds a vector of whole multiples of a fixed step, no longer than the norm. It
depends only on that unit's rows and the parameters, bit for bit, wherever the unit is and whatever is next to it.
float64 adds such vectors without rounding, so `slack` is 0 (docs/proofs/training.md, 4). A unit whose gradient is not
finite adds zero. Not covered: the accuracy of a gradient, on which the guarantee does not depend.
"""

# Why it holds: everything consists of single IEEE 754 operations on single numbers, in an order fixed by the unit's
# rows, and of sums of whole numbers. The only exceptions are the products of a row with the weights and the squares of
# a unit's
# gradient: `numpy.einsum` adds up a row in an order that depends only on its length
# (tests/training/kernels/test_linear.py checks the bits). BLAS products are faster but do not have this property.

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Label
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels.exponentials import exponential
from dp_pipelines.training.kernels.penalty import ScorePenalty

Floats = NDArray[np.float64]

MOST_UNITS_OF_CHUNK = 2**16
"""The largest number of vectors of at most 2**37 steps that add up below 2**53."""

BLOCK = 2**17
"""Numbers in memory at a time, so that temporaries stay in the second cache."""

CLIP_BITS = 36
"""A norm is between 2**36 and 2**37 steps: rounding to whole steps shortens or lengthens a vector by next to nothing."""

SAFETY = 1 - 1e-6

_HUGE = 2.0**300
_SHRINK = 2.0**-600


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearKernel:
    """A linear model with one of three losses.

    `parameters.reshape(outputs, width)` has the weights of each output.

    Args:
        width: the number of feature columns.
        label: binary: logistic loss; classes: cross entropy of softmax; number: half the squared difference, with the label's
            range scaled to [0, 1].
        class_weights: of classes, by what the loss of an example is multiplied: above 0, at most 1.
        penalty: is added to the gradient after the noise; see `trainer`.

    >>> kernel = LinearKernel(width=2, label=BinaryLabel(column="returns"))
    >>> rows = np.array([[1, 0], [1, 1], [1, 1]], np.float32)
    >>> chunk = Chunk(rows, np.array([1.0, 1.0, 0.0]), np.array([0, 2, 3]))
    >>> kernel.clipped_sum(kernel.initial(), chunk, 8.0).tolist()
    [-0.5, 0.0]
    """

    width: int
    label: Label
    class_weights: tuple[float, ...] | None = None
    penalty: ScorePenalty | None = None

    slack = 0.0
    """How far the sum of one chunk may be from the exact one, relative to the norm."""

    parallel = True
    """Several threads may work on several chunks: NumPy releases the interpreter's lock."""

    def __post_init__(self) -> None:
        checks.whole(self.width, "width", low=1, high=2**20)

    @property
    def outputs(self) -> int:
        """How many numbers the model computes for an example."""
        return self.label.outputs

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.width * self.outputs

    @property
    def curvature(self) -> float:
        """The loss of an example bends by at most this times the square of its features' norm."""
        return 0.25 if isinstance(self.label, BinaryLabel) else 0.5 if isinstance(self.label, ClassLabel) else 1.0

    def initial(self) -> Floats:
        """The parameters with which training begins: zero."""
        return np.zeros(self.size)

    def scores(self, parameters: Floats, features: NDArray[np.float32]) -> Floats:
        """The model's score of each example.

        Args:
            parameters: (size,).
            features: (rows, width).

        Returns: (rows,) log odds, or expected values; (rows, classes) logits. The score of a row depends only on that
            row, bit for bit.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            rows, weights = features.astype(np.float64, order="C"), parameters.reshape(self.outputs, self.width)
            logits: Floats = np.stack([_products(rows, each) for each in weights], axis=1)
        if isinstance(self.label, ClassLabel):
            return logits
        if isinstance(self.label, BinaryLabel):
            return logits[:, 0]
        low, high = self.label.min_value, self.label.max_value
        return low + logits[:, 0] * (high - low)

    def clipped_sum(self, parameters: Floats, chunk: Chunk, clip_norm: float) -> Floats:
        """The sum over the chunk's units of their clipped gradients.

        Args:
            parameters: (size,), finite.
            chunk: at most 2**16 units.
            clip_norm: between 1e-100 and 1e80.

        Returns:
            float64 (size,): exactly the sum of vectors of norm at most `clip_norm`, one for each unit.
        """
        norm = checks.number(clip_norm, "clip_norm", above=1e-100, below=1e80)
        if chunk.units > MOST_UNITS_OF_CHUNK:
            raise ValueError("a chunk of so many units would not be added up exactly")
        step = math.ldexp(1.0, math.frexp(norm)[1] - CLIP_BITS - 1)
        weights = parameters.reshape(self.outputs, self.width)
        result = np.zeros(self.size)
        with np.errstate(all="ignore"):
            for first, last in _runs(chunk.starts, max(1, BLOCK // self.size), max(1, BLOCK // self.width)):
                gradients = self._gradients(weights, chunk, first, last)
                result += _whole(gradients.reshape(-1, self.size), norm, step).sum(axis=0)
        return result * step

    def _gradients(self, weights: Floats, chunk: Chunk, first: int, last: int) -> Floats:
        """The summed gradient of each of the units from `first` to before `last`, the longest unit first.

        A unit's rows are added one after another, each sum rounded once: the first row of all units, then
        the second row of those that have one, and so on.
        """
        starts = chunk.starts[first : last + 1]
        sizes = np.diff(starts)
        order = np.argsort(-sizes, kind="stable")
        begins, sizes = starts[:-1][order], sizes[order]
        result = np.zeros((last - first, self.outputs, self.width))
        longest = int(sizes[0]) if len(sizes) else 0
        # How many units have a first row, a second one, ...
        layers = np.searchsorted(-sizes, -np.arange(longest), side="left")
        rows_at_a_time = max(len(sizes), BLOCK // self.width)
        layer = 0
        while layer < longest:
            until = layer + 1
            rows = int(layers[layer])
            while until < longest and rows + int(layers[until]) <= rows_at_a_time:
                rows += int(layers[until])
                until += 1
            places = np.concatenate([begins[: layers[nth]] + nth for nth in range(layer, until)])
            features = chunk.features.take(places, axis=0).astype(np.float64)
            slopes = self._slopes(features, weights, chunk.labels.take(places))
            product = np.empty_like(features)
            for output in range(self.outputs):
                np.multiply(features, slopes[output][:, None], out=product)
                begin = 0
                for nth in range(layer, until):
                    count = int(layers[nth])
                    part = result[:count, output]
                    np.add(part, product[begin : begin + count], out=part)
                    begin += count
            layer = until
        return result

    def _slopes(self, features: Floats, weights: Floats, labels: Floats) -> Floats:
        """The derivative of each example's loss by each output: (outputs, rows)."""
        slopes = self._of_loss(features, weights, labels)
        if self.class_weights is not None:
            # A label that is none leads to a slope that is none, whatever it is multiplied by.
            slopes *= np.array(self.class_weights).take(np.nan_to_num(labels).astype(np.int64))
        return slopes

    def _of_loss(self, features: Floats, weights: Floats, labels: Floats) -> Floats:
        logits = np.stack([_products(features, each) for each in weights])
        if isinstance(self.label, BinaryLabel):
            return _sigmoid(logits) - labels
        if isinstance(self.label, ClassLabel):
            shares = exponential(logits - np.maximum.reduce(logits, axis=0))
            whole = np.zeros(len(labels))
            for share in shares:
                whole += share
            slopes: Floats = shares / whole - (np.arange(self.outputs)[:, None] == labels)
            return np.where(np.isnan(labels), np.nan, slopes)
        low, high = self.label.min_value, self.label.max_value
        result: Floats = logits - (labels - low) / (high - low)
        return result


def _runs(starts: NDArray[np.int64], most_units: int, most_rows: int) -> Iterator[tuple[int, int]]:
    """Whole units, at most this many and with at most this many rows, or one unit with more. It changes no result."""
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + most_rows, side="right")) - 1
        last = min(max(last, first + 1), first + most_units, len(starts) - 1)
        yield first, last
        first = last


def _whole(gradients: Floats, norm: float, step: float) -> Floats:
    """Gradients (rows) clipped, in whole steps; overwritten. A gradient that is not finite becomes zero."""
    largest = np.maximum.reduce(np.abs(gradients), axis=1)
    huge = np.flatnonzero(largest > _HUGE)
    # Squares would overflow. Any gradient this long becomes as long as the norm.
    gradients[huge] *= _SHRINK
    lengths = np.sqrt(squared_lengths(gradients))
    factors = np.minimum(1.0, norm * SAFETY / np.maximum(lengths, 1e-200))
    factors[huge] = norm * SAFETY / lengths[huge]
    factors /= step
    gradients *= factors[:, None]
    np.rint(gradients, out=gradients)
    # NaN stays NaN in every operation above, and infinity has become NaN.
    gradients[~(np.maximum.reduce(np.abs(gradients), axis=1) <= norm / step)] = 0.0
    return gradients


def _products(rows: Floats, weights: Floats) -> Floats:
    """The product of each row with the weights, added up as `squared_lengths` does."""
    total = np.zeros(len(rows))
    for begin in range(0, rows.shape[1], _PIECE):
        total += np.einsum("ij,j->i", rows[:, begin : begin + _PIECE], weights[begin : begin + _PIECE])
    return total


def squared_lengths(rows: Floats) -> Floats:
    """The squared norm of each row, added up in an order that depends only on the length of a row.

    `numpy.einsum` takes more than 8,192 numbers in pieces, and cuts a single row differently from several rows.

    >>> squared_lengths(np.ones((2, 10_000))).tolist()
    [10000.0, 10000.0]
    """
    total = np.zeros(len(rows))
    for begin in range(0, rows.shape[1], _PIECE):
        part = rows[:, begin : begin + _PIECE]
        total += np.einsum("ij,ij->i", part, part)
    return total


def _sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    small = exponential(-np.abs(x))
    result: Floats = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


_PIECE = 4096
"""Numbers of a row that `numpy.einsum` adds up at a time."""
