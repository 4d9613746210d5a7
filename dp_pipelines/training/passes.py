"""Forward and backward through a network, and the weights of a block of units, always of one shape.

In: layers, a block of rows of which `size` in a row are one unit's. Out: whole numbers whose products add up to the units'
clipped gradients. Holds: what a unit adds comes from instructions that do not depend on what stands in other rows, since shapes
never change (that they do not depend on the unit's place either is for `mlp.MLPKernel.check_places` to see); it is never longer
than the clip norm, and float64 holds every sum of the products (docs/proofs/training_mlp.md). A unit with a number that is not
finite adds nothing. Not covered: what matrix products in float32 do to the last bit; nothing rests on it but that a row's are
always the same.

The arrays are made once and used again and again: a `Desk` is for one thread, and its results stay until its next call.

May import train_model, training.network, numpy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.train_model import ClassLabel, Label, NumberLabel
from dp_pipelines.training.network import Floats, Layers

Singles = NDArray[np.float32]
Truths = NDArray[np.bool_]

BLOCK = 256
"""Rows that go through the network at a time."""

INPUT_BITS, DERIVATIVE_BITS = 18, 24
"""Inputs are rounded to 2**-18 of a power of two near a row's largest, weighted derivatives to 2**-24 of one near the norm."""

SPREAD = 8
"""How often the clip norm the norms of a unit's rows may be together: more, and the unit is scaled down further."""

MARGIN = 1e-6
"""What is left of the clip norm for float rounding, as a part of it."""

NORM_ERROR = 2.0**-36
"""How far a squared norm may be from the exact one, as a part of the squared sum of its rows' norms."""


class Desk:
    """The arrays of one thread, and what is done on them.

    Args:
        shapes: of the layers, see `network.shapes`.
        label: decides the loss, see `training.network`.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], label: Label) -> None:
        self._label = label
        # Inputs of each layer with a last column of 1, for the bias; then the same as whole numbers.
        self._inputs = [np.ones((BLOCK, rows), np.float32) for rows, _ in shapes]
        self._whole = [np.full((BLOCK, rows), 2.0**INPUT_BITS) for rows, _ in shapes]
        self._values = [np.empty((BLOCK, columns), np.float32) for _, columns in shapes]
        self._slopes = [np.empty((BLOCK, columns), np.float32) for _, columns in shapes[:-1]]
        self._derivatives = [np.empty((BLOCK, columns)) for _, columns in shapes]
        self._products = [np.empty(shape) for shape in shapes]
        # By how much the derivatives of the first layer are still to be stretched.
        self._stretch = np.ones(BLOCK)

    def clipped(
        self, size: int, layers: Layers, rows: Singles, labels: Floats, used: Truths, clip: float, unit: float
    ) -> list[Floats]:
        """The sum of the units' clipped gradients, layer by layer, in steps of 2**-42 of `unit`. Arguments as for `weighed`."""
        inputs, weighted = self.weighed(size, layers, rows, labels, used, clip, unit)
        for values, derivative, product in zip(inputs, weighted, self._products, strict=True):
            np.matmul(values.T, derivative, out=product)
        return self._products

    def summed(self, layers: Layers, rows: Singles, labels: Floats, used: Truths) -> list[Floats]:
        """The sum of gradients as it is, layer by layer, times 2**18; not finite where a row is not."""
        finite = self._pass(layers, rows, labels, used)
        self._derivatives[0] *= self._stretch[:, None]
        if not finite[used].all():
            self._derivatives[0].fill(np.nan)
        for values, derivative, product in zip(self._whole, self._derivatives, self._products, strict=True):
            np.matmul(values.T, derivative, out=product)
        return self._products

    def weighed(
        self, size: int, layers: Layers, rows: Singles, labels: Floats, used: Truths, clip: float, unit: float
    ) -> tuple[list[Floats], list[Floats]]:
        """Inputs and weighted derivatives of each layer, whole numbers: a row for each row.

        Args:
            size: rows of each unit, of which some may be unused.
            layers: of the network.
            rows, labels, used: BLOCK of each; `used` says which rows count, the others must be zero.
            clip: the clip norm over `unit`, between a half and 1.
            unit: a power of two.
        """
        # Unused rows are zero, so that nothing but the parameters decides whether they are finite.
        finite = self._pass(layers, rows, labels, used)
        squares, dulled = self._lengths()
        bad = ~(finite & np.isfinite(squares))
        if bad.any():
            bad = np.repeat(bad.reshape(-1, size).any(axis=1), size)
            for part in (*self._whole, *self._derivatives):
                part[bad] = 0
            for values in self._whole[1:]:
                values[bad, -1] = 2.0**INPUT_BITS
            squares[bad] = dulled[bad] = 0
        most, step, scale = clip * (1 - MARGIN), 2.0 ** -(INPUT_BITS + DERIVATIVE_BITS), 2.0**-INPUT_BITS / unit
        np.sqrt(dulled, out=dulled)
        if size == 1:
            spread = np.sqrt(squares) * scale
            norms = spread * (1 + NORM_ERROR)
            weights = (most - dulled * (0.501 * step)) / norms
        else:
            spread = np.sqrt(squares).reshape(-1, size).sum(axis=1) * scale
            norms = np.sqrt(self._squared_norms(size) * scale**2 + NORM_ERROR * spread**2)
            weights = (most - dulled.reshape(-1, size).sum(axis=1) * (0.501 * step)) / norms
            weights = np.repeat(np.minimum(weights, SPREAD * most / spread), size)
        # Of a unit whose gradient is zero the weight is infinite or no number; any finite one will do.
        factors = np.where(weights < 1, weights, 1.0) * (2.0**DERIVATIVE_BITS / unit)
        for derivative, stretch in zip(self._derivatives, self._stretches(), strict=True):
            np.multiply(derivative, (factors if stretch is None else factors * stretch)[:, None], out=derivative)
            np.rint(derivative, out=derivative)
        return self._whole, self._derivatives

    def numbers(self, size: int, layers: Layers, rows: Singles, labels: Floats) -> list[Floats]:
        """All that a block's results are made of, a row for each row: to see whether a row's numbers depend on its place."""
        self._pass(layers, rows, labels, np.ones(BLOCK, np.bool_))
        whole, derivatives = ([part.copy() for part in parts] for parts in (self._whole, self._derivatives))
        norms = [*self._lengths(), np.repeat(self._squared_norms(size), size)]
        return [*whole, *derivatives, *(part[:, None] for part in norms)]

    def _lengths(self) -> tuple[Floats, Floats]:
        """Of each row the squared norm of its gradient, and the sum of its squared inputs times columns; both times 2**36."""
        squares, dulled = np.zeros(BLOCK), np.zeros(BLOCK)
        for values, derivative, stretch in zip(self._whole, self._derivatives, self._stretches(), strict=True):
            lengths = np.vecdot(values, values)
            dulled += lengths * derivative.shape[1]
            lengths *= np.vecdot(derivative, derivative)
            squares += lengths if stretch is None else lengths * stretch**2
        return squares, dulled

    def _stretches(self) -> list[Floats | None]:
        return [self._stretch, *[None] * (len(self._whole) - 1)]

    def _squared_norms(self, size: int) -> Floats:
        """The squared norm of each unit's gradient times 2**36."""
        result = np.zeros(BLOCK // size)
        for values, derivative, stretch in zip(self._whole, self._derivatives, self._stretches(), strict=True):
            stretched = derivative if stretch is None else derivative * stretch[:, None]
            result += np.vecdot(_paired(values, size), _paired(stretched, size))
        return np.maximum(result, 0.0)

    def _pass(self, layers: Layers, rows: Singles, labels: Floats, used: Truths) -> Truths:
        """Forward and backward: whole inputs, derivatives, and which rows are finite. Derivatives of unused rows are zero.

        The first layer's inputs are divided by a power of two, `_stretch`, and then below 2; its derivatives are not yet
        multiplied by it.
        """
        first, whole = self._inputs[0], self._whole[0]
        first[:, :-1] = rows
        largest = np.maximum.reduce(np.abs(first), axis=1)
        finite: Truths = np.isfinite(largest)
        if not finite.all():
            first[~finite, :-1] = 0
            largest[~finite] = 1
        exponents = np.frexp(largest)[1] - 1
        self._stretch = np.ldexp(1.0, exponents)
        whole[...] = first
        np.multiply(whole, np.ldexp(1.0, INPUT_BITS - exponents)[:, None], out=whole)
        np.rint(whole, out=whole)
        for number, (values, slopes) in enumerate(zip(self._values, self._slopes, strict=False)):
            np.matmul(self._inputs[number], layers[number], out=values)
            np.tanh(values, out=values)
            self._inputs[number + 1][:, :-1] = values
            np.multiply(values, values, out=slopes)
            np.subtract(np.float32(1), slopes, out=slopes)
            np.multiply(values, np.float32(2.0**INPUT_BITS), out=values)
            self._whole[number + 1][:, :-1] = np.rint(values, out=values)
        outputs = np.matmul(self._inputs[-1], layers[-1], out=self._values[-1])
        self._derivatives[-1].T[...] = residuals(self._label, outputs.T.astype(np.float64), labels)
        if not used.all():
            self._derivatives[-1][~used] = 0
        outputs[...] = self._derivatives[-1]
        for number in range(len(layers) - 1, 0, -1):
            values = np.matmul(self._values[number], layers[number][:-1].T, out=self._values[number - 1])
            np.multiply(values, self._slopes[number - 1], out=values)
            if not used.all():
                values[~used] = 0
            self._derivatives[number - 1][...] = values
        return finite


def residuals(label: Label, outputs: Floats, labels: Floats) -> Floats:
    """The derivative of the loss by each output: (outputs, rows) of outputs of that shape and (rows,) labels.

    >>> from dp_pipelines.train_model import BinaryLabel
    >>> residuals(BinaryLabel(column="y"), np.zeros((1, 1)), np.ones(1)).tolist()
    [[-0.5]]
    """
    if isinstance(label, NumberLabel):
        numbers: Floats = outputs - (labels - label.min_value) / (label.max_value - label.min_value)
        return numbers
    if isinstance(label, ClassLabel):
        shares: Floats = outputs - np.maximum.reduce(outputs, axis=0)
        np.exp(shares, out=shares)
        shares /= np.add.reduce(shares, axis=0)
        truth = labels == np.arange(label.outputs)[:, None]
        shares -= truth
        known = np.logical_or.reduce(truth, axis=0)
        if not known.all():
            shares[:, ~known] = np.nan
        return shares
    result: Floats = 1 / (1 + np.exp(-outputs)) - labels
    return result


def _paired(rows: Floats, size: int) -> Floats:
    """The products of each unit's rows with each other: (units, size * size)."""
    units: Any = rows.reshape(-1, size, rows.shape[1])
    products: Floats = np.matmul(units, units.transpose(0, 2, 1))
    return products.reshape(len(units), -1)
