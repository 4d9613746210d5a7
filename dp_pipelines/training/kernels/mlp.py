"""Dense networks with tanh: the sum of clipped gradients of units, without computing the gradient of any single unit.

In: parameters, a chunk of whole units, a clip norm. Out: the sum over units of their clipped gradients; scores. Holds:
a unit's contribution depends only on its own rows and the parameters, bit for bit, and has an L2 norm of at most the
clip norm; the sum is exact, whatever the order, blocks and threads (docs/proofs/training_mlp.md). A unit with a number
that is not finite adds nothing. Not covered: a BLAS whose products depend on the place of a row at most places, which
`check_places` detects and refuses; time.
"""

# How it works: gradients of a dense layer are products of its inputs and the derivatives with respect to its outputs.
# So their norm needs one forward and one backward pass and, for units with several rows, the products of rows with each
# other. Inputs and weighted derivatives are then rounded to whole numbers small enough for floats to hold every sum of
# products.
#
# Needs Numba, of the extra `train`.

import concurrent.futures
import hashlib
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dp_pipelines.errors import DpError
from dp_pipelines.query.train_model import Label
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import network
from dp_pipelines.training.kernels.grids import DERIVATIVE_BITS, INPUT_BITS
from dp_pipelines.training.kernels.loops import BLOCK
from dp_pipelines.training.kernels.network import Floats
from dp_pipelines.training.kernels.passes import MARGIN, Desk
from dp_pipelines.training.kernels.unit_blocks import Block, Places, blocks

MOST_PAIRED = 64
"""The most rows of a unit whose norm comes from products of its rows; the gradient of a larger unit is computed in
full."""

SIZES = tuple(2**power for power in range(MOST_PAIRED.bit_length()))
"""The number of rows that a unit takes up: the smallest of these that holds its own rows."""

TRIED, LEAST_TRIED = 16, 4
"""Units tried at all places of a block: many for a small network, since few numbers of a unit are rounded."""

TRIED_PARAMETERS = 2**20
"""Larger networks try fewer units, because each has many numbers."""

ORDERS = 4
"""The number of further orders in which different units are tried."""


class MLPKernel:
    """The kernel of a network. Only one thread at a time may use it.

    Args:
        width: the number of feature columns.
        hidden: units of each hidden layer, `train_model.MLP.hidden`.
        label: what is predicted: it decides loss and number of outputs.
        key: public bytes that fix the initial parameters.
        threads: how many work on a chunk; by default the number of cores, up to 4. It changes no bit.

    >>> from dp_pipelines.query.train_model import BinaryLabel
    >>> kernel = MLPKernel(width=2, hidden=(3,), label=BinaryLabel(column="y"), key=b"public")
    >>> kernel.size, kernel.slack
    (13, 0.0)
    >>> row = Chunk(np.ones((1, 2), np.float32), np.ones(1), np.array([0, 1]))
    >>> kernel.clipped_sum(kernel.initial(), row, clip_norm=10.0).round(3).tolist()[-1]
    -0.5
    """

    slack = 0.0
    """The sum of a chunk is exact."""

    units_per_chunk = 2**11

    helps = True
    """Threads without work do what they are given `beside` it."""

    def __init__(
        self, *, width: int, hidden: Sequence[int], label: Label, key: bytes, threads: int | None = None
    ) -> None:
        self.label, self.key = label, key
        self.shapes = network.shapes(width, hidden, label.outputs)
        self.size = sum(rows * columns for rows, columns in self.shapes)
        self.threads = threads or min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self._desks = [Desk(self.shapes, label) for _ in range(self.threads)]
        # Two pools of threads would get in each other's way; one for products alone would be idle most of the time.
        self._blas: Any = ThreadpoolController()
        # For each size of units, the usable places of a block; empty before `check_places`.
        self._places: dict[int, NDArray[np.bool_]] = {}
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._adding = False

    def initial(self) -> Floats:
        """The parameters before the first step: drawn from the key, the last layer zero."""
        return network.initial(self.shapes, self.key)

    def scores(self, parameters: Floats, features: NDArray[np.float32]) -> Floats:
        """A logit or a value for each row, or a logit for each class."""
        return network.scores(self.shapes, self.label, parameters, features)

    def clipped_sum(
        self, parameters: Floats, chunk: Chunk, clip_norm: float, *, beside: Callable[[], bool] = lambda: False
    ) -> Floats:
        """The sum over the chunk's units of their summed gradients, each scaled down to a little less than `clip_norm`.

        Args:
            parameters: (size,).
            chunk: at most 2**11 units, of any number of rows.
            clip_norm: from 1e-100 to 1e100.
            beside: what threads do when no more work is left for them: called by several until it returns false.

        Raises:
            DpError: this machine cannot do it, see `check_places`; at the first call.
        """
        if chunk.units > self.units_per_chunk:
            raise ValueError("a chunk of so many units would not be added up exactly")
        if chunk.features.shape[1:] != (self.shapes[0][0] - 1,):  # compiled loops would read on, in other units' rows
            raise ValueError("the rows of a chunk do not have the network's width")
        if not self._places:
            self.check_places()
        # The least power of two above the clip norm, which is at least a half of it.
        unit = math.ldexp(1.0, math.frexp(clip_norm)[1])
        clip, layers = clip_norm / unit, network.in_float32(parameters)
        starts = chunk.starts
        large = np.flatnonzero(np.diff(starts) > MOST_PAIRED).tolist()
        work: Iterator[Block | int] = itertools.chain(
            blocks(starts, SIZES, lambda size: int(self._places[size].sum())), large
        )
        if self._adding:  # two at once, or after one that was broken off, would add units twice
            raise AssertionError("a sum of this kernel has not come to its end")
        self._adding = True
        turn = threading.Lock()

        def taken() -> Block | int | None:
            """The next task: a free thread makes blocks while another is at work."""
            with turn:
                return next(work, None)

        def share(number: int) -> None:
            desk = self._desks[number]
            desk.clear()
            with np.errstate(all="ignore"):
                while (block := taken()) is not None:
                    if isinstance(block, int):
                        rows = np.arange(starts[block], starts[block + 1])
                        self._add_large(desk, layers, chunk, rows, clip, unit)
                    else:
                        rows, used = self._placed(block)
                        features, labels = chunk.features.take(rows, axis=0), chunk.labels.take(rows)
                        if not used.all():
                            features[~used] = 0
                        desk.add(block.size, layers, features, labels, used, clip, unit)
            while beside():
                pass

        helpers = min(self.threads, max(1, -(-len(chunk.labels) // BLOCK))) - 1
        if helpers > 0 and self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self.threads - 1, "dp-mlp")
        with self._blas.limit(limits=1, user_api="blas"):
            helping: list[concurrent.futures.Future[None]] = []
            try:
                if self._pool is not None:
                    for number in range(1, helpers + 1):
                        helping.append(self._pool.submit(share, number))
                share(0)
            finally:  # the next sum must not find them at work
                concurrent.futures.wait(helping)
            for helper in helping:
                helper.result()
        self._adding = False
        # A unit's vector is no longer than `unit`: float64 holds the sums of all (docs/proofs/training_mlp.md, 2).
        for desk in self._desks[1 : helpers + 1]:
            self._desks[0].merge(desk)
        return self._desks[0].vector(unit)

    def _add_large(
        self, desk: Desk, layers: NDArray[np.float32], chunk: Chunk, rows: Places, clip: float, unit: float
    ) -> None:
        """Add the clipped gradient of one unit with any number of rows, rounded towards zero."""
        gradients: list[Floats] = [np.zeros(shape) for shape in self.shapes]
        for begin in range(0, len(rows), BLOCK):
            places = np.pad(rows[begin : begin + BLOCK], (0, max(0, begin + BLOCK - len(rows))), mode="edge")
            used = np.arange(begin, begin + BLOCK) < len(rows)
            found = desk.summed(layers, chunk.features.take(places, axis=0), chunk.labels.take(places), used)
            for gradient, more in zip(gradients, found, strict=True):
                np.add(gradient, more, out=gradient)
        for gradient in gradients:
            gradient /= unit
        norm = math.sqrt(sum(float(np.vdot(gradient, gradient)) for gradient in gradients))
        if not math.isfinite(norm):
            return
        weight = min(1.0, clip * (1 - MARGIN) / norm) if norm > 0 else 1.0
        steps = 2.0 ** (INPUT_BITS + DERIVATIVE_BITS)
        desk.add_vector([np.trunc(gradient * (weight * steps)) / steps for gradient in gradients])

    def _placed(self, block: Block) -> tuple[Places, NDArray[np.bool_]]:
        """The rows of a block, and which are used, with each unit at a usable place."""
        places = self._places[block.size]
        if places.all():
            return block.rows.reshape(-1), block.used.reshape(-1)
        rows, used = np.zeros((len(places), block.size), np.int64), np.zeros((len(places), block.size), np.bool_)
        rows[places], used[places] = block.rows, block.used
        return rows.reshape(-1), used.reshape(-1)

    def check_places(self) -> None:
        """Find the places of a block at which this machine computes the same for a row. The first sum does this too.

        Several units take turns in filling every place of a block; a place is usable if it gives the same bits as most
        others for each of them. The usable places then get different units, in several orders. Rows and parameters are
        public.

        Raises:
            DpError: fewer than a quarter of the places are usable, or they do not agree.
        """
        drawn = network.layers(self.shapes, network.uniform(self.size, self.key + b" weights"))
        # These numbers stay well below 1: where tanh is flat, different roundings before it give the same bits after
        #     it.
        layers = np.concatenate([(layer * np.float32(math.sqrt(3 / len(layer)))).reshape(-1) for layer in drawn])
        width, labels = self.shapes[0][0] - 1, np.zeros(BLOCK)
        rows = network.uniform(BLOCK * width, self.key + b" rows").reshape(BLOCK, width).astype(np.float32)
        desk, found = self._desks[0], dict[int, NDArray[np.bool_]]()
        tried = min(TRIED, max(LEAST_TRIED, TRIED_PARAMETERS // self.size))
        with self._blas.limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
            for size in SIZES:
                units = rows.reshape(-1, size, width)

                def numbers(of: NDArray[np.float32], size: int = size) -> list[bytes]:
                    parts = desk.numbers(size, layers, of.reshape(-1, width), labels)
                    found = np.concatenate([part.reshape(len(of), -1).astype(np.float64) for part in parts], axis=1)
                    return [hashlib.sha256(row).digest() for row in found]

                alike = [numbers(np.repeat(unit[None], len(units), axis=0)) for unit in units[:tried]]
                marks = [b"".join(of) for of in zip(*alike, strict=True)]
                most = max(marks, key=marks.count)
                places = np.array([mark == most for mark in marks])
                if 4 * places.sum() < len(units) or not self._agree(units, np.flatnonzero(places), numbers):
                    raise DpError(
                        "this machine's matrix products depend on the place of a row, so that a unit would change what others "
                        "add; install NumPy from its wheels, or train a linear model"
                    )
                found[size] = places
            # Compile now what units of one row also need: no unit may decide whether that succeeds.
            desk.add(1, layers, rows, labels, np.ones(BLOCK, np.bool_), 0.5, 1.0)
        self._places = found

    def _agree(
        self, units: NDArray[np.float32], places: Places, numbers: Callable[[NDArray[np.float32]], list[bytes]]
    ) -> bool:
        """Whether different units at these places give the same numbers in several orders."""
        first = numbers(units)
        for turn in range(ORDERS):
            # The orders follow no simple rule: backwards, for example, each end would only meet the other end.
            order = places[np.argsort(network.uniform(len(places), self.key + b" order %d" % turn))]
            placed = units.copy()
            placed[places] = units[order]
            again = numbers(placed)
            if any(again[place] != first[unit] for place, unit in zip(places, order, strict=True)):
                return False
        return True
