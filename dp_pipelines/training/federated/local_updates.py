"""Sums of the clipped updates of clients: a kernel of the training loop whose vectors are updates in place of gradients.

In: published parameters, a chunk of whole clients, a norm. Out: the sum over clients of their updates, each scaled down to the
norm if it is longer. Holds: a client adds a vector of whole multiples of a fixed step, no longer than the norm, which depends on
its rows and the published parameters alone, bit for bit; float64 adds such vectors without rounding, so `slack` is 0
(docs/proofs/federate.md). A client whose update is not finite adds zero. Not covered: how good updates are.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.query.federate_model import FederateModel
from dp_pipelines.query.train_model import MLP, BinaryLabel, ClassLabel, Label, NumberLabel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import linear, network

Floats = NDArray[np.float64]

LOCAL_EXAMPLES = 4
"""Rows of a client's own steps, where nothing is said."""

UPDATES = 2**19
"""Numbers of updates in memory at a time, for each thread."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalUpdates:
    """A model that clients train: linear without hidden layers, else a network.

    Parameters have the order of `LinearKernel` or `MLPKernel`, so that models are scored and exported as any others.

    Args:
        width: the number of feature columns.
        label: binary: logistic loss; classes: cross entropy of softmax; number: half the squared difference, with the label's
            range scaled to [0, 1].
        hidden: units of each hidden layer; none: a linear model.
        key: public bytes, from which a network's first weights are made.
        epochs: a client's passes over its rows; 0: its update is its mean gradient.
        examples: rows of a client's own steps.
        rate: learning rate of these.

    >>> kernel = LocalUpdates(width=2, label=BinaryLabel(column="y"), epochs=1, examples=4, rate=1.0)
    >>> rows = np.array([[1, 0], [1, 1], [1, 1]], np.float32)
    >>> chunk = Chunk(rows, np.array([1.0, 1.0, 0.0]), np.array([0, 2, 3]))
    >>> kernel.clipped_sum(kernel.initial(), chunk, 8.0).round(6).tolist()
    [0.0, 0.25]
    """

    width: int
    label: Label
    hidden: tuple[int, ...] = ()
    key: bytes = b""
    epochs: int = 0
    examples: int = 1
    rate: float = 1.0

    slack = 0.0
    """How far the sum of one chunk may be from the exact one, relative to the norm."""

    parallel = True
    """Several threads may work on several chunks: compiled loops hold no lock."""

    @classmethod
    def of(cls, task: FederateModel, key: bytes) -> "LocalUpdates":
        """The kernel of a task."""
        rounds = task.steps
        averages = rounds.method == "fedavg"
        return cls(
            width=task.width,
            label=task.label,
            hidden=tuple(task.model.hidden) if isinstance(task.model, MLP) else (),
            key=key,
            epochs=(rounds.local_epochs or 1) if averages else 0,
            examples=rounds.local_examples or LOCAL_EXAMPLES,
            rate=rounds.settled_rate if averages else 1.0,
        )

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Features, units of hidden layers, outputs."""
        return (self.width, *self.hidden, self.label.outputs)

    @property
    def size(self) -> int:
        """The number of parameters."""
        if not self.hidden:
            return self.width * self.label.outputs
        return sum(rows * columns for rows, columns in network.shapes(self.width, self.hidden, self.label.outputs))

    @property
    def curvature(self) -> float:
        """The loss of an example bends by at most this times the square of its features' norm, in a linear model."""
        return 0.25 if isinstance(self.label, BinaryLabel) else 0.5 if isinstance(self.label, ClassLabel) else 1.0

    def initial(self) -> Floats:
        """The first published parameters: zero, or of a network drawn from the key."""
        if not self.hidden:
            return np.zeros(self.size)
        return network.initial(network.shapes(self.width, self.hidden, self.label.outputs), self.key)

    def clipped_sum(self, parameters: Floats, chunk: Chunk, clip_norm: float) -> Floats:
        """The sum over the chunk's clients of their clipped updates: of what they would take away from the parameters.

        Args:
            parameters: (size,), finite.
            chunk: at most 2**16 clients.
            clip_norm: between 1e-100 and 1e80.

        Returns:
            float64 (size,): exactly the sum of vectors of norm at most `clip_norm`, one for each client.
        """
        norm = checks.number(clip_norm, "clip_norm", above=1e-100, below=1e80)
        if chunk.units > linear.MOST_UNITS_OF_CHUNK:
            raise ValueError("a chunk of so many clients would not be added up exactly")
        if chunk.features.shape[1:] != (self.width,):  # compiled loops would read on, in other clients' rows
            raise ValueError("the rows of a chunk do not have the model's width")
        step = math.ldexp(1.0, math.frexp(norm)[1] - linear.CLIP_BITS - 1)
        published, result = self.by_input(parameters), np.zeros(self.size)
        each = max(1, UPDATES // self.size)
        with np.errstate(all="ignore"):
            for first in range(0, chunk.units, each):
                updates = np.empty((min(each, chunk.units - first), self.size))
                self._train(published, chunk, first, updates)
                result += linear._whole(updates, norm, step).sum(axis=0)
        return self._by_output(result * step)

    def trained(self, chunk: Chunk) -> Floats:
        """The parameters that each client trains from the first published ones: float64 (units, size), not clipped.

        Those of a client follow from its own rows, in their order, bit for bit; they may be no numbers.

        Args:
            chunk: of few clients: all their parameters are in memory.
        """
        if chunk.features.shape[1:] != (self.width,):  # compiled loops would read on, in other clients' rows
            raise ValueError("the rows of a chunk do not have the model's width")
        start = self.initial()
        published, updates = self.by_input(start), np.zeros((chunk.units, self.size))
        with np.errstate(all="ignore"):
            self._train(published, chunk, 0, updates)
            return np.array([self._by_output(published - update) for update in updates]).reshape(chunk.units, self.size)

    def _train(self, published: Floats, chunk: Chunk, first: int, updates: Floats) -> None:
        from dp_pipelines.training.federated import local_loops  # loads Numba

        number = self.label if isinstance(self.label, NumberLabel) else None
        kinds = {BinaryLabel: local_loops.BINARY, ClassLabel: local_loops.CLASSES, NumberLabel: local_loops.NUMBER}
        local_loops.train_clients(
            constant(chunk.features),
            constant(chunk.labels),
            constant(chunk.starts),
            first,
            published,
            np.array(self.sizes, np.int64),
            1 if self.hidden else 0,
            kinds[type(self.label)],
            0.0 if number is None else float(number.min_value),
            1.0 if number is None else float(number.max_value),
            self.epochs,
            self.examples,
            float(self.rate),
            updates,
        )

    def by_input(self, parameters: Floats) -> Floats:
        """Parameters in the order of `local_loops`: those of a linear model are stored by output."""
        if self.hidden or self.label.outputs == 1:
            return np.ascontiguousarray(parameters, np.float64)
        return np.ascontiguousarray(parameters.reshape(self.label.outputs, self.width).T).reshape(-1)

    def _by_output(self, vector: Floats) -> Floats:
        """The reverse."""
        if self.hidden or self.label.outputs == 1:
            return vector
        return np.ascontiguousarray(vector.reshape(self.width, self.label.outputs).T).reshape(-1)

    def compile(self) -> None:
        """Compile now what rounds need: no client may decide whether that succeeds."""
        row = Chunk(np.zeros((1, self.width), np.float32), np.zeros(1), np.array([0, 1]))
        self.clipped_sum(self.initial(), row, 1.0)


def constant(array: NDArray[Any]) -> NDArray[Any]:
    """An array that cannot be written, as those from files cannot: loops are compiled for one kind of array alone."""
    whole = np.ascontiguousarray(array).view(np.ndarray)
    whole.flags.writeable = False
    return whole
