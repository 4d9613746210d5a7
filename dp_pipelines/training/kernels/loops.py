"""Compiled passes of a block of rows through a network: forward and backward, and the weighted sum of units of one row.

In: the arrays of a `passes.Desk`, with a row's numbers in a column and the layers stacked, so that loops run over
memory in order and one program serves all shapes. Out: the same arrays, changed. Holds: except in matrix products, each
number comes only from its own column, by the same IEEE 754 operations in the same order wherever the column is: nothing
is compiled with reassociation or contraction. Not covered: the last bit of matrix products
(`mlp.MLPKernel.check_places`); why the result is private (docs/proofs/training_mlp.md).
"""

import math
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  # what products call: loaded now, so that its threads can be limited
from numpy.typing import NDArray

from dp_pipelines.training.kernels.compiled import compiled

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Places = NDArray[np.int64]

NUMBER, BINARY, CLASSES = 0, 1, 2
"""Kinds of labels."""

FLAT = np.float32(8.0)
"""From here upwards tanh is 1, to within 3e-7."""

BLOCK = 256
"""Rows that go through the network at a time; float32 adds up their products where it can."""

LONGEST_HIDDEN = BLOCK * (1 + 2.0**-11)
"""The squared length of a row of hidden units, at most: each is at most 1 + 2**-12."""

ONE = np.float32(1)


@compiled
def forward_and_back(
    layers: Singles, begins: Places, inputs: Singles, outputs: Places, derivatives: Singles, slopes: Singles,
    divided: Singles, rows: Singles, labels: Floats, used: Any, kind: int, low: float, high: float, large: Singles,
    stretch: Floats, finite: Any, input_squares: Singles, derivative_squares: Singles,
) -> None:  # fmt: skip
    """Rounded inputs and derivatives of a block, and their squared lengths by row.

    Args:
        layers: all parameters, layer by layer, (inputs + 1) rows of outputs each.
        begins: (layers + 1,), where the inputs of each layer begin in `inputs`.
        inputs: (sum of inputs, rows), of each layer the last is 1: written, on the grid but for the first layer.
        outputs: (layers + 1,), where the outputs of each layer begin in `derivatives` and `slopes`.
        derivatives: (sum of outputs, rows): written.
        slopes: as `derivatives`: written.
        divided: (inputs of the first layer, rows): written, its inputs divided by `stretch`, on the grid.
        rows: (rows, width).
        labels, used: (rows,).
        kind, low, high: of the label; the range of a number.
        large: (layers,), 1.5 times 2**(23 - bits) of each layer's inputs: a sum with it has no place for finer ones.
        stretch: (rows,): written, a power of two above the length of a row.
        finite: (rows,): written, whether that length is a number.
        input_squares, derivative_squares: (layers, rows): written.
    """
    count, many = len(begins) - 1, len(labels)
    _enter(rows, inputs[: begins[1]], derivative_squares[0])
    factors = input_squares[0]
    for row in range(many):
        square = derivative_squares[0, row]
        finite[row] = math.isfinite(square)
        # What power of two an infinite number has, C leaves open.
        exponent = (math.frexp(square if finite[row] else ONE)[1] + 1) >> 1
        stretch[row] = math.ldexp(1.0, exponent)
        factors[row] = math.ldexp(1.0, -exponent)
    _divide(inputs[: begins[1]], large[0], divided, factors)
    begin = 0
    for number in range(count):
        own = inputs[begins[number] : begins[number + 1]]
        bent = slopes[outputs[number] : outputs[number + 1]]
        end = begin + own.shape[0] * bent.shape[0]
        np.dot(layers[begin:end].reshape(own.shape[0], bent.shape[0]).T, own, bent)
        begin = end
        if number + 1 < count:
            _bend(bent, inputs[begins[number + 1] : begins[number + 2]])
        if number > 0:
            _to_grid(own, large[number], input_squares[number])
    last = derivatives[outputs[count - 1] :]
    _residuals(slopes[outputs[count - 1] :], labels, used, kind, low, high, last)
    _square(last, derivative_squares[count - 1])
    for number in range(count - 1, 0, -1):
        after = derivatives[outputs[number] : outputs[number + 1]]
        before = derivatives[outputs[number - 1] : outputs[number]]
        begin = end - (before.shape[0] + 1) * after.shape[0]
        np.dot(layers[begin : end - after.shape[0]].reshape(before.shape[0], after.shape[0]), after, before)
        end = begin
        _back(before, slopes[outputs[number - 1] : outputs[number]], derivative_squares[number - 1])


@compiled
def weigh(
    inputs: Singles, begins: Places, divided: Singles, derivatives: Singles, outputs: Places, used: Any, stretch: Floats,
    finite: Any, input_squares: Singles, derivative_squares: Singles, steps: Floats, least: Floats, margin: float,
    norm: float, clip: float, unit: float, spread: float, weights: Singles, dither: Singles,
) -> None:  # fmt: skip
    """Make the derivatives of units of one row whole numbers, so that no unit's vector is longer than the clip norm.

    Args:
        inputs, begins, divided, derivatives, outputs, used, stretch, finite: as `forward_and_back` left them; the derivatives are
            changed, and so are the inputs of rows that are no numbers.
        input_squares, derivative_squares: of both; changed.
        steps: (layers,), of whole numbers, as a part of the unit.
        least: (layers,), more than float32 loses of a layer's squared derivatives by underflow.
        margin: what norms in float32 may be off, as a part of themselves, twice and more.
        norm: what a longer gradient is scaled down to.
        clip: the clip norm over `unit`, which no vector exceeds.
        unit: a power of two.
        spread: of the dither, 1.
        weights: (layers, rows), for use within.
        dither: (rows,), for use within.
    """
    count, many = len(steps), len(used)
    for row in range(many):
        square = 0.0
        for number in range(count):
            of_layer = np.float64(input_squares[number, row]) * (derivative_squares[number, row] + least[number])
            square += of_layer * (stretch[row] * stretch[row] if number == 0 else 1.0)
        if not (finite[row] and math.isfinite(square)):
            divided[:, row] = 0
            for number in range(1, count):  # the last one stays 1: it is never written
                inputs[begins[number] : begins[number + 1] - 1, row] = 0
            derivatives[:, row] = 0
            input_squares[:, row] = 0
            square = 1.0
        factor = min(norm / math.sqrt(square), 1.0) / unit if used[row] else 0.0
        for number in range(count):
            weights[number, row] = factor * (stretch[row] if number == 0 else 1.0) / steps[number]
        # Digits of the squared norm that look random. Added before rounding, they make the result right on average,
        # where rounding to the nearest would lose everything small. Zero stays zero.
        digits = math.frexp(square)[0] * 2.0**20
        dither[row] = spread * (digits - np.rint(digits))
    for number in range(count):
        squares, factors = derivative_squares[number], weights[number]
        squares[:] = 0
        for place in range(outputs[number], outputs[number + 1]):
            own = derivatives[place]
            for row in range(many):
                value = np.rint(own[row] * factors[row] + dither[row])
                own[row] = value
                squares[row] += value * value
    # A vector that rounding made longer than the clip norm is shortened and rounded towards zero.
    limit = clip * (1 - margin)
    for row in range(many):
        square = 0.0
        for number in range(count):
            of_layer = np.float64(input_squares[number, row]) * np.float64(derivative_squares[number, row])
            square += of_layer * (steps[number] * steps[number])
        if square > limit * limit:
            shorter = np.float32((1 - 2.0**-20) * limit / math.sqrt(square))
            for place in range(derivatives.shape[0]):
                derivatives[place, row] = np.trunc(derivatives[place, row] * shorter)


@compiled
def add_products(
    inputs: Singles, begins: Places, divided: Singles, derivatives: Singles, outputs: Places, rooms: Floats, product: Singles,
    totals: Floats, held: Any,
) -> None:  # fmt: skip
    """Add the products of inputs and weighted derivatives to the totals: exactly, since both are whole numbers of steps.

    Args:
        inputs, begins, divided, derivatives, outputs: as `weigh` left them.
        rooms: (layers,), below which the product of the longest rows' squared lengths must be for float32 to hold all sums; 0
            where it never does.
        product: as many numbers as the largest layer has, for use within.
        totals: layer by layer a matrix whose rows are the layer's larger side; changed.
        held: (layers,): written, whether float32 held the sums.
    """
    begin = 0
    for number in range(len(rooms)):
        own = divided if number == 0 else inputs[begins[number] : begins[number + 1]]
        derivative = derivatives[outputs[number] : outputs[number + 1]]
        larger, smaller = (own, derivative) if len(own) >= len(derivative) else (derivative, own)
        end = begin + len(larger) * len(smaller)
        total = totals[begin:end].reshape(len(larger), len(smaller))
        # Of hidden units the bias's 1 is as long as any.
        of_inputs = _longest(own) if number == 0 else LONGEST_HIDDEN
        held[number] = rooms[number] > 0 and of_inputs * _longest(derivative) < rooms[number]
        if held[number]:
            found = product[: end - begin].reshape(len(larger), len(smaller))
            np.dot(larger, smaller.T, found)
            for one in range(len(larger)):
                for other in range(len(smaller)):
                    total[one, other] += found[one, other]
        else:
            total += np.dot(larger.astype(np.float64), smaller.astype(np.float64).T)
        begin = end


@compiled
def _longest(columns: Singles) -> float:
    """The largest squared length of a row, in float32."""
    most = np.float32(0)
    for number in range(columns.shape[0]):
        found = np.dot(columns[number], columns[number])
        if not math.isfinite(found):
            return math.inf
        most = max(most, found)
    return np.float64(most)


@compiled
def _enter(rows: Singles, columns: Singles, squares: Singles) -> None:
    """Put rows into columns, above a last row that is left alone; and the squared length of each column with it."""
    width = columns.shape[0] - 1
    squares[:] = ONE
    for number in range(width):
        own = columns[number]
        for row in range(len(squares)):
            own[row] = rows[row, number]
        for row in range(len(squares)):
            squares[row] += own[row] * own[row]


@compiled
def _divide(columns: Singles, large: Any, divided: Singles, factors: Singles) -> None:
    """Multiply each column by its factor and round; in place of the factors the squared length of each."""
    for number in range(columns.shape[0]):
        own, written = columns[number], divided[number]
        for row in range(len(factors)):
            written[row] = (own[row] * factors[row] + large) - large
    _square(divided, factors)


@compiled
def _square(columns: Singles, squares: Singles) -> None:
    """The squared length of each column."""
    squares[:] = 0
    for number in range(columns.shape[0]):
        own = columns[number]
        for row in range(len(squares)):
            squares[row] += own[row] * own[row]


@compiled
def _bend(slopes: Singles, hidden: Singles) -> None:
    """The tanh of numbers into `hidden`, above its last row, and its derivative in their place.

    It is a quotient of polynomials: the continued fraction x / (1 + x^2 / (3 + x^2 / (5 + ...))), cut off behind 23: within 3e-7.
    """
    for unit in range(slopes.shape[0]):
        own, written = slopes[unit], hidden[unit]
        for row in range(slopes.shape[1]):
            at = own[row]
            square = at * at
            above, below = ONE, np.float32(23)
            for term in (21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1):
                above, below = below, np.float32(term) * below + square * above
            value = at * above / below
            # Where tanh is flat the slope must be exactly zero: it multiplies features, which may be a million.
            value = ONE if at > FLAT or value > ONE else value
            value = -ONE if at < -FLAT or value < -ONE else value
            written[row] = value
            own[row] = ONE - value * value


@compiled
def _to_grid(columns: Singles, large: Any, squares: Singles) -> None:
    """Round all numbers but those of the last row, which are 1; and the squared length of each column."""
    squares[:] = ONE
    for number in range(columns.shape[0] - 1):
        own = columns[number]
        for row in range(len(squares)):
            rounded = (own[row] + large) - large
            own[row] = rounded
            squares[row] += rounded * rounded


@compiled
def _back(derivative: Singles, slopes: Singles, squares: Singles) -> None:
    """Multiply by slopes; and the squared length of each column."""
    squares[:] = 0
    for number in range(derivative.shape[0]):
        own, slope = derivative[number], slopes[number]
        for row in range(len(squares)):
            value = own[row] * slope[row]
            own[row] = value
            squares[row] += value * value


@compiled
def _residuals(
    outputs: Singles, labels: Floats, used: Any, kind: int, low: float, high: float, derivative: Singles
) -> None:
    """The derivatives of the loss by each output, in float64 before they are rounded; those of unused rows zero."""
    for row in range(len(labels)):
        if not used[row]:
            derivative[:, row] = 0
        elif kind == NUMBER:
            derivative[0, row] = np.float64(outputs[0, row]) - (labels[row] - low) / (high - low)
        elif kind == BINARY:
            # NumPy's exp, because Python's, which runs here if Numba is told not to compile, raises on overflow.
            derivative[0, row] = 1 / (1 + np.exp(-np.float64(outputs[0, row]))) - labels[row]
        else:
            most = np.float64(outputs[0, row])
            for place in range(1, outputs.shape[0]):
                most = max(most, np.float64(outputs[place, row]))
            total, known = 0.0, False
            for place in range(outputs.shape[0]):
                total += math.exp(np.float64(outputs[place, row]) - most)
                known = known or labels[row] == place
            for place in range(outputs.shape[0]):
                share = math.exp(np.float64(outputs[place, row]) - most) / total
                derivative[place, row] = share - (labels[row] == place) if known else math.nan
