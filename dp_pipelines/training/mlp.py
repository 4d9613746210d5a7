"""Networks of dense layers with tanh between them: the sum of clipped gradients of units, without a gradient of any one unit.

In: parameters, a chunk of whole units, a clip norm. Out: the sum over units of their clipped gradients; scores. Holds: what a unit
adds is a function of its own rows and the parameters alone, bit for bit, and has an L2 norm of at most the clip norm; the sum is
exact, whatever the order, blocks and threads (docs/proofs/training_mlp.md). A unit with a number that is not finite adds nothing.
Not covered: a BLAS whose products depend on the place of a row, which `check_places` finds and refuses; time.

How: gradients of a dense layer are products of its inputs and of the derivatives by its outputs, so their norm needs one forward
and one backward pass and, of units with several rows, the products of rows with each other. Inputs and weighted derivatives are
then rounded to whole numbers so small that float64 holds every sum of their products.

Needs the extra `train`. May import errors, train_model, training.{examples, network, passes, whole_sums}, numpy.
"""

import bisect
import concurrent.futures
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.errors import DpError
from dp_pipelines.train_model import Label
from dp_pipelines.training import network
from dp_pipelines.training.examples import Chunk, Places
from dp_pipelines.training.network import Floats, Layers
from dp_pipelines.training.passes import BLOCK, DERIVATIVE_BITS, INPUT_BITS, MARGIN, Desk
from dp_pipelines.training.whole_sums import WholeSum

MOST_PAIRED = 64
"""Rows of a unit whose norm comes from products of its rows; the gradient of a larger unit is written out."""

SIZES = tuple(2**power for power in range(MOST_PAIRED.bit_length()))
"""A unit takes the place of so many rows: of the smallest of these numbers that holds its own."""


class MLPKernel:
    """The kernel of a network. Not to be used by two threads at a time.

    Args:
        width: columns of the features.
        hidden: units of each hidden layer, `train_model.MLP.hidden`.
        label: what is predicted: it decides loss and number of outputs.
        key: public bytes that fix the initial parameters.
        threads: how many work on a chunk; by default as many as there are cores, up to 4. They change no bit.

    Raises:
        ModuleNotFoundError: the extra `train` is not installed.

    >>> from dp_pipelines.train_model import BinaryLabel
    >>> kernel = MLPKernel(width=2, hidden=(3,), label=BinaryLabel(column="y"), key=b"public")
    >>> kernel.size, kernel.slack
    (13, 0.0)
    >>> row = Chunk(np.ones((1, 2), np.float32), np.ones(1), np.array([0, 1]))
    >>> kernel.clipped_sum(kernel.initial(), row, clip_norm=10.0).round(3).tolist()[-1]
    -0.5
    """

    slack = 0.0
    """The sum is exact for chunks of at most 2**11 units; for n of them it is within n * 2**-53 of the clip norm."""

    def __init__(self, *, width: int, hidden: Sequence[int], label: Label, key: bytes, threads: int | None = None) -> None:
        from threadpoolctl import ThreadpoolController

        self.label, self.key = label, key
        self.shapes = network.shapes(width, hidden, label.outputs)
        self.size = sum(rows * columns for rows, columns in self.shapes)
        self.threads = threads or min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self._desks = [Desk(self.shapes, label) for _ in range(self.threads)]
        self._totals = [WholeSum(self.size) for _ in range(self.threads)]
        # Two pools of threads would be in each other's way; one for products alone would be idle most of the time.
        self._blas: Any = ThreadpoolController()
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    def initial(self) -> Floats:
        """The parameters before the first step: drawn from the key, the last layer zero."""
        return network.initial(self.shapes, self.key)

    def scores(self, parameters: Floats, features: NDArray[np.float32]) -> Floats:
        """A logit or a value of each row, or the logits of each class."""
        return network.scores(self.shapes, self.label, parameters, features)

    def clipped_sum(self, parameters: Floats, chunk: Chunk, clip_norm: float) -> Floats:
        """The sum over the chunk's units of their summed gradients, each scaled down to `clip_norm * (1 - 1e-6)`.

        Args:
            parameters: (size,).
            chunk: whole units, in any number.
            clip_norm: from 1e-100 to 1e100.
        """
        # The least power of two above the clip norm, which is at least a half of it.
        unit = math.ldexp(1.0, math.frexp(clip_norm)[1])
        clip, layers = clip_norm / unit, network.layers(self.shapes, parameters)
        blocks = list(_blocks(np.asarray(chunk.starts)))

        def share(number: int) -> WholeSum:
            total, desk = self._totals[number].clear(), self._desks[number]
            with np.errstate(all="ignore"):
                for size, rows, used in blocks[number :: self.threads]:
                    if size:
                        features, labels = chunk.features.take(rows, axis=0), chunk.labels.take(rows)
                        total.add(desk.clipped(size, layers, features, labels, used, clip, unit))
                    else:
                        total.add(self._large(desk, layers, chunk, rows, clip, unit))
            return total

        helpers = min(self.threads, len(blocks)) - 1
        if helpers > 0 and self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self.threads - 1, "dp-mlp")
        with self._blas.limit(limits=1, user_api="blas"):
            helping = [self._pool.submit(share, number) for number in range(1, helpers + 1)] if self._pool else []
            total = share(0)
            for helper in helping:
                total.merge(helper.result())
        return total.value() * (unit * 2.0 ** -(INPUT_BITS + DERIVATIVE_BITS))

    def _large(self, desk: Desk, layers: Layers, chunk: Chunk, rows: Places, clip: float, unit: float) -> list[Floats]:
        """The clipped gradient of one unit with any number of rows, in whole numbers towards zero."""
        total: list[Floats] = [np.zeros(shape) for shape in self.shapes]
        for begin in range(0, len(rows), BLOCK):
            places = np.pad(rows[begin : begin + BLOCK], (0, max(0, begin + BLOCK - len(rows))), mode="edge")
            used = np.arange(begin, begin + BLOCK) < len(rows)
            found = desk.summed(layers, chunk.features.take(places, axis=0), chunk.labels.take(places), used)
            for part, more in zip(total, found, strict=True):
                np.add(part, more, out=part)
        gradient = np.concatenate([part.reshape(-1) for part in total]) * (2.0**-INPUT_BITS / unit)
        norm = math.sqrt(float(np.vecdot(gradient, gradient)))
        if not math.isfinite(norm):
            return [np.zeros(shape) for shape in self.shapes]
        weight = min(1.0, clip * (1 - MARGIN) / norm) if norm > 0 else 1.0
        np.trunc(gradient * (weight * 2.0 ** (INPUT_BITS + DERIVATIVE_BITS)), out=gradient)
        ends = np.cumsum([rows * columns for rows, columns in self.shapes])[:-1]
        return np.split(gradient, ends)

    def check_places(self, most_rows: int = MOST_PAIRED) -> None:
        """Try whether this machine computes the same for a row wherever it stands; to be called once before training.

        Every place of a block gets the same rows, and then the rows in another order; rows and parameters are public.

        Args:
            most_rows: of one unit; a public bound.

        Raises:
            DpError: it does not.
        """
        layers = network.layers(self.shapes, network.uniform(self.size, self.key + b" weights") / 2)
        width, labels, used = self.shapes[0][0] - 1, np.zeros(BLOCK), np.ones(BLOCK, np.bool_)
        drawn = network.uniform(BLOCK * width, self.key + b" rows").reshape(BLOCK, width).astype(np.float32) * 4
        desk, same = self._desks[0], True
        with self._blas.limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
            for size in SIZES[: bisect.bisect_left(SIZES, most_rows) + 1]:
                units = drawn.reshape(-1, size, width)
                for rows in (units, np.repeat(units[:1], len(units), axis=0)):
                    there, back = (
                        [
                            part.reshape(len(units), size, -1).copy()
                            for parts in desk.weighed(size, layers, each, labels, used, 1.0, 1.0)
                            for part in parts
                        ]
                        for each in (rows.reshape(-1, width), rows[::-1].reshape(-1, width))
                    )
                    same &= all(np.array_equal(part, turned[::-1]) for part, turned in zip(there, back, strict=True))
                same &= all(np.array_equal(part, np.repeat(part[:1], len(units), axis=0)) for part in there)
        if not same:
            raise DpError(
                "this machine's matrix products depend on the place of a row, so that a unit would change what others add; "
                "install NumPy from its wheels, or train a linear model"
            )


def _blocks(starts: Places) -> Iterator[tuple[int, Places, NDArray[np.bool_]]]:
    """Blocks of units of a like size: that size, the places of their rows, which of them count; size 0: one large unit, its places."""
    begins, counts = starts[:-1], np.diff(starts)
    for number, size in enumerate(SIZES):
        members = begins[(counts <= size) & (counts > (SIZES[number - 1] if number else 0))]
        sizes = counts[(counts <= size) & (counts > (SIZES[number - 1] if number else 0))]
        for first in range(0, len(members), BLOCK // size):
            own, many = members[first : first + BLOCK // size, None], sizes[first : first + BLOCK // size, None]
            rows, used = np.zeros((BLOCK // size, size), np.int64), np.zeros((BLOCK // size, size), np.bool_)
            used[: len(own)] = np.arange(size) < many
            rows[: len(own)] = np.where(used[: len(own)], own + np.arange(size), 0)
            yield size, rows.reshape(-1), used.reshape(-1)
    for begin in np.flatnonzero(counts > MOST_PAIRED).tolist():
        yield 0, np.arange(starts[begin], starts[begin + 1]), np.ones(0, np.bool_)
