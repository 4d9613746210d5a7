"""Forward and backward passes through a network, and the weighted sum of a block of units, always of one shape.

In: layers, a block of rows in which `size` consecutive rows belong to one unit. Out: the units' clipped gradients,
added to totals. Holds: a unit's contribution comes from instructions that do not depend on other rows, since shapes
never change (`mlp.MLPKernel.check_places` checks that they do not depend on its place either). It is never longer than
the clip norm, and every sum is exact: in float32 where that provably holds it, else in float64
(docs/proofs/training_mlp.md). A unit with a number that is not finite adds nothing. Not covered: the last bit of
float32 matrix products; it only has to be the same for a row each time.
"""

# A row's numbers are in a column, so everything but the first copy goes through memory in order. The arrays are
# allocated
# once and reused: a `Desk` is for one thread. The loops over them are compiled (`loops`).

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.query.train_model import ClassLabel, Label, NumberLabel
from dp_pipelines.training.kernels import grids, loops
from dp_pipelines.training.kernels.grids import DERIVATIVE_BITS, Grid
from dp_pipelines.training.kernels.loops import BLOCK
from dp_pipelines.training.kernels.network import Floats

Singles = NDArray[np.float32]
Truths = NDArray[np.bool_]

SPREAD = 8
"""The most that the norms of a unit's rows may add up to, in clip norms; beyond it, the unit is scaled down further."""

MARGIN = 1e-6
"""The share of the clip norm that remains for a unit of several rows after allowing for float rounding."""

NORM_ERROR = 2.0**-36
"""How far its squared norm may be from the exact one, relative to the squared sum of its rows' norms."""

ROOM = 2.0**-9
"""The share of the clip norm that remains before coarse rounding makes a vector a little longer or shorter."""

LEAST = 2.0**-120
"""More than float32 can lose of a square by underflow."""


class Desk:
    """The arrays of one thread, and the operations on them.

    Args:
        shapes: of the layers, see `network.shapes`.
        label: decides the loss, see `training.kernels.network`.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], label: Label) -> None:
        self._label, self._shapes = label, shapes
        self._coarse, self._fine = grids.coarse(shapes), grids.fine(shapes)
        # What norms in float32 may be off, as a part of themselves, twice and more: see the proof.
        self._margin = (max(rows for rows, _ in shapes) + max(columns for _, columns in shapes) + 32) * 2.0**-24
        # More than float32 loses of a layer's derivatives by underflow.
        self._least = np.array([columns * LEAST for _, columns in shapes])
        self._aim = 1 - (ROOM if any(self._coarse.singles) else 2 * self._margin)
        # Inputs of each layer with a last row of 1, for the bias; on the grid, the first divided by `_stretch`.
        self._begins, self._outputs = (np.cumsum([0, *sizes]) for sizes in zip(*shapes, strict=True))
        self._all_inputs = np.ones((self._begins[-1], BLOCK), np.float32)
        self._inputs = np.split(self._all_inputs, self._begins[1:-1])
        self._rounded = [np.empty_like(self._inputs[0]), *self._inputs[1:]]
        self._all_derivatives, self._slopes = (np.empty((self._outputs[-1], BLOCK), np.float32) for _ in range(2))
        self._derivatives = np.split(self._all_derivatives, self._outputs[1:-1])
        # For each layer, the squared lengths of rows as last computed.
        self._input_squares, self._derivative_squares = (np.empty((len(shapes), BLOCK), np.float32) for _ in range(2))
        self._wide_inputs = [np.empty(inputs.shape) for inputs in self._inputs]
        self._wide_derivatives = [np.empty(derivative.shape) for derivative in self._derivatives]
        # Sums of products, as a part of the unit times 2**(bits of derivatives), the layer's larger side first: it is faster.
        sides = [(max(shape), min(shape)) for shape in shapes]
        self._products = [np.empty(shape) for shape in sides]
        ends = np.cumsum([0, *(larger * smaller for larger, smaller in sides)])
        self._all_totals = np.zeros(ends[-1])
        parts = np.split(self._all_totals, ends[1:-1])
        self._totals = [part.reshape(shape) for part, shape in zip(parts, sides, strict=True)]
        # For units of one row: what they are multiplied with and what is added, which layers' sums float32 held, and these.
        self._weights, self._dither = np.empty((len(shapes), BLOCK), np.float32), np.empty(BLOCK, np.float32)
        self._held, self._spread = np.zeros(len(shapes), np.bool_), 1.0
        self._single_product = np.empty(max(larger * smaller for larger, smaller in sides), np.float32)
        # By how much the derivatives of the first layer are still to be stretched, and which rows are no numbers.
        self._stretch, self._finite = np.ones(BLOCK), np.ones(BLOCK, np.bool_)

    def clear(self) -> None:
        """Reset the totals."""
        for total in self._totals:
            total.fill(0)

    def merge(self, other: "Desk") -> None:
        """Add another desk's totals to these."""
        for total, more in zip(self._totals, other._totals, strict=True):
            np.add(total, more, out=total)

    def vector(self, unit: float) -> Floats:
        """The totals as one vector, times a power of two."""
        result, begin = np.empty(sum(rows * columns for rows, columns in self._shapes)), 0
        for shape, total, bits in zip(self._shapes, self._totals, self._coarse.derivatives, strict=True):
            part = result[begin : begin + total.size].reshape(shape)
            np.multiply(_turned(total, shape), unit * 2.0**-bits, out=part)
            begin += total.size
        return result

    def add_vector(self, parts: Sequence[Floats]) -> None:
        """Add a vector, layer by layer, that is a multiple of 2**-41 and no longer than 1: as a part of the unit."""
        for total, part, bits in zip(self._totals, parts, self._coarse.derivatives, strict=True):
            total += _turned(part, total.shape) * 2.0**bits

    def add(
        self, size: int, layers: Singles, rows: Singles, labels: Floats, used: Truths, clip: float, unit: float
    ) -> None:
        """Add the units' clipped gradients to the totals.

        Args:
            size: rows of each unit, some of which may be unused.
            layers: of the network.
            rows, labels, used: BLOCK of each; `used` says which rows count, the others must be zero.
            clip: the clip norm over `unit`, between a half and 1.
            unit: a power of two.
        """
        if size == 1:
            self._add_rows(layers, rows, labels, used, clip, unit)
        else:
            self._add_units(size, layers, rows, labels, used, clip, unit)

    def _add_rows(self, layers: Singles, rows: Singles, labels: Floats, used: Truths, clip: float, unit: float) -> None:
        """Units of one row: on the coarse grid, and in float32 but for the numbers of which a row has one."""
        self._pass(layers, rows, labels, used, self._coarse)
        loops.weigh(
            self._all_inputs, self._begins, self._rounded[0], self._all_derivatives, self._outputs, used, self._stretch,
            self._finite, self._input_squares, self._derivative_squares, self._coarse.steps, self._least, self._margin,
            clip * self._aim * unit, clip, unit, self._spread, self._weights, self._dither,
        )  # fmt: skip
        loops.add_products(
            self._all_inputs, self._begins, self._rounded[0], self._all_derivatives, self._outputs,
            self._coarse.rooms, self._single_product, self._all_totals, self._held,
        )  # fmt: skip

    def _add_wide(self, number: int, step: float) -> None:
        """Add the products in float64, times a power of two."""
        product = self._products[number]
        _product(self._wide_inputs[number], self._wide_derivatives[number], product)
        np.multiply(product, step, out=product)
        np.add(self._totals[number], product, out=self._totals[number])

    def _add_units(
        self, size: int, layers: Singles, rows: Singles, labels: Floats, used: Truths, clip: float, unit: float
    ) -> None:
        """Units of several rows: on the fine grid, in float64 from the derivatives on."""
        self._pass(layers, rows, labels, used, self._fine)
        self._widen()
        squares, dulled = self._wide_lengths()
        bad = ~(self._finite & np.isfinite(squares))
        if bad.any():
            bad = np.repeat(bad.reshape(-1, size).any(axis=1), size)
            self._blank(bad)
            self._widen()
            squares[bad] = dulled[bad] = 0
        most, step = clip * (1 - MARGIN), 2.0**-DERIVATIVE_BITS
        rounding = np.sqrt(dulled).reshape(-1, size).sum(axis=1) * (0.501 * step)
        spread = np.sqrt(squares).reshape(-1, size).sum(axis=1) / unit
        norms = np.sqrt(self._squared_norms(size) / unit**2 + NORM_ERROR * spread**2)
        weights = np.minimum((most - rounding) / norms, SPREAD * most / spread)
        # A unit whose gradient is zero has an infinite weight or NaN; any finite weight will do.
        factors = np.repeat(np.where(weights < 1, weights, 1.0), size) * (1 / (step * unit))
        for number, derivative in enumerate(self._wide_derivatives):
            np.multiply(derivative, factors if number else factors * self._stretch, out=derivative)
            np.rint(derivative, out=derivative)
            self._add_wide(number, step * 2.0 ** self._coarse.derivatives[number])

    def summed(self, layers: Singles, rows: Singles, labels: Floats, used: Truths) -> list[Floats]:
        """The unclipped sum of gradients, layer by layer."""
        self._pass(layers, rows, labels, used, self._fine)
        self._widen()
        self._wide_derivatives[0] *= self._stretch
        if not self._finite[used].all():
            self._wide_derivatives[0].fill(np.nan)
        for values, derivative, product in zip(self._wide_inputs, self._wide_derivatives, self._products, strict=True):
            _product(values, derivative, product)
        return [_turned(product, shape) for product, shape in zip(self._products, self._shapes, strict=True)]

    def numbers(self, size: int, layers: Singles, rows: Singles, labels: Floats) -> list[Any]:
        """All numbers behind a block's results, row by row, to see whether a row's numbers depend on its place."""
        self._pass(layers, rows, labels, np.ones(BLOCK, np.bool_), self._coarse if size == 1 else self._fine)
        norms = [*self._input_squares, *self._derivative_squares, self._stretch]
        if size > 1:
            self._widen()
            norms += [*self._wide_lengths(), np.repeat(self._squared_norms(size), size)]
        parts = [part.T.copy() for part in (*self._rounded, *self._derivatives)]
        return [*parts, *(part[:, None] for part in norms)]

    def _widen(self) -> None:
        """Inputs and derivatives in float64."""
        for wide, narrow in zip(self._wide_inputs, self._rounded, strict=True):
            np.copyto(wide, narrow)
        for wide, narrow in zip(self._wide_derivatives, self._derivatives, strict=True):
            np.copyto(wide, narrow)

    def _blank(self, bad: Truths) -> None:
        """Blank out some rows."""
        for part in self._derivatives:
            part[:, bad] = 0
        self._rounded[0][:, bad] = 0
        for part in self._inputs[1:]:
            part[:-1, bad] = 0

    def _wide_lengths(self) -> tuple[Floats, Floats]:
        """For each row, the squared norm of its gradient, and the sum of its squared inputs times columns."""
        squares, dulled = np.zeros(BLOCK), np.zeros(BLOCK)
        for number, (values, derivative) in enumerate(zip(self._wide_inputs, self._wide_derivatives, strict=True)):
            lengths = np.einsum("ij,ij->j", values, values)
            dulled += lengths * len(derivative)
            lengths *= np.einsum("ij,ij->j", derivative, derivative)
            squares += lengths if number else lengths * self._stretch**2
        return squares, dulled

    def _squared_norms(self, size: int) -> Floats:
        """The squared norm of each unit's gradient."""
        result = np.zeros(BLOCK // size)
        for number, (values, derivative) in enumerate(zip(self._wide_inputs, self._wide_derivatives, strict=True)):
            stretched = derivative if number else derivative * self._stretch
            result += np.vecdot(_paired(values, size), _paired(stretched, size))
        return np.maximum(result, 0.0)

    def _pass(self, layers: Singles, rows: Singles, labels: Floats, used: Truths, grid: Grid) -> None:
        """Forward and backward: rounded inputs, and derivatives, those of unused rows zero.

        The first layer's inputs are divided by a power of two, `_stretch`, and then no longer than 1; its derivatives are not yet
        multiplied by it.
        """
        label = self._label
        kind, low, high = loops.CLASSES if isinstance(label, ClassLabel) else loops.BINARY, 0.0, 1.0
        if isinstance(label, NumberLabel):
            kind, low, high = loops.NUMBER, float(label.min_value), float(label.max_value)
        loops.forward_and_back(
            layers, self._begins, self._all_inputs, self._outputs, self._all_derivatives, self._slopes,
            self._rounded[0], rows, labels, used, kind, low, high,
            grid.large, self._stretch, self._finite, self._input_squares, self._derivative_squares,
        )  # fmt: skip


def _product(inputs: NDArray[Any], derivative: NDArray[Any], out: NDArray[Any]) -> None:
    """The sum over columns of the products of inputs and derivatives, the larger side first."""
    first, second = (inputs, derivative) if len(inputs) >= len(derivative) else (derivative, inputs)
    np.matmul(first, second.T, out=out)


def _turned(matrix: Floats, shape: tuple[int, ...]) -> Floats:
    """The matrix or its transpose, whichever has that shape."""
    return matrix if matrix.shape == shape else matrix.T


def _paired(columns: Floats, size: int) -> Floats:
    """The products of each unit's rows with each other: (units, size * size)."""
    units: Any = columns.reshape(len(columns), -1, size).transpose(1, 2, 0)
    products: Floats = np.matmul(units, units.transpose(0, 2, 1))
    return products.reshape(len(products), -1)
