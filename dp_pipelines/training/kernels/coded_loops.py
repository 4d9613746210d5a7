"""Compiled loops over coded rows: scores, clipped whole numbers, products of a unit's rows, second moments.

In: codes of rows (`features.code_layout`), tables made from public numbers. Out: arrays, changed. Holds: what a unit
adds comes only from its own rows and the tables, by the same IEEE 754 operations in the same order wherever the unit
is; what is added up over units are whole numbers. Not covered: why a unit adds no more than the clip norm, and why
nothing overflows (docs/proofs/training_coded.md).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.training.features.code_layout import CODES
from dp_pipelines.training.kernels.compiled import compiled

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

MOST_ROWS = 2**16
"""The most rows of a unit, and of the units whose sums are added up in 64 bits. A longer unit adds nothing."""

LOG2_HIGH, LOG2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
INVERSE_LOG2 = 1 / math.log(2)
FACTORIALS = np.array([1 / math.factorial(n) for n in range(13, -1, -1)])
"""As in `exponentials`."""

WIDER = 2.0**-16
"""The part of the squared sum of its columns' lengths that is added to a row's squared length: far more than it may be off."""

LOW_HALF = 2**32 - 1
EXPONENT_OF_ONE, PLACES = 1023, 52
"""Of float64: what is added to an exponent, and the places behind the point."""


@compiled
def _exponentials(numbers: Any, powers: Any) -> None:
    """The exponential of numbers up to 0, in place; `powers` is scratch of 64-bit integers of the same size."""
    twos = powers.view(np.float64)
    for place in range(len(numbers)):
        x = max(numbers[place], -700.0)
        doublings = np.rint(x * INVERSE_LOG2)
        rest = (x - doublings * LOG2_HIGH) - doublings * LOG2_LOW
        result = FACTORIALS[0]
        for nth in range(1, 14):
            result = result * rest + FACTORIALS[nth]
        numbers[place] = result
        powers[place] = (np.int64(doublings) + EXPONENT_OF_ONE) << PLACES
    for place in range(len(numbers)):
        numbers[place] *= twos[place]


@compiled
def scores(codes: Any, scaled: Any, table: Any, first: Any, slopes: Any, found: Any) -> None:
    """The products of rows with weights, each added up in the order of its bytes.

    Args:
        codes: (rows, bytes). scaled: (rows, scaled values), in steps.
        table: (bytes, 256, outputs). first: (outputs,), of the constant. slopes: (scaled values, outputs), of a step.
        found: (rows, outputs): written.
    """
    rows, size = codes.shape
    outputs = len(first)
    for output in range(outputs):
        for row in range(rows):
            total = first[output]
            for byte in range(size):
                total += table[byte, codes[row, byte], output]
            found[row, output] = total
    for row in range(rows):
        for place in range(scaled.shape[1]):
            for output in range(outputs):
                found[row, output] += slopes[place, output] * scaled[row, place]


@compiled
def logistic(found: Any, labels: Any) -> None:
    """Turn scores (rows, 1) into derivatives of the logistic loss."""
    rows = len(labels)
    small, powers = np.empty(rows), np.empty(rows, np.int64)
    for row in range(rows):
        small[row] = -abs(found[row, 0])
    _exponentials(small, powers)
    for row in range(rows):
        above = 1.0 if found[row, 0] >= 0 else small[row]
        found[row, 0] = above / (1.0 + small[row]) - labels[row]


@compiled
def softmax(found: Any, labels: Any) -> None:
    """Turn scores (rows, outputs) into derivatives of the cross entropy."""
    rows, outputs = found.shape
    shares, powers = np.empty(outputs), np.empty(outputs, np.int64)
    for row in range(rows):
        largest = found[row, 0]
        for output in range(1, outputs):
            largest = max(largest, found[row, output])
        for output in range(outputs):
            shares[output] = found[row, output] - largest
        _exponentials(shares, powers)
        whole = 0.0
        for output in range(outputs):
            whole += shares[output]
        for output in range(outputs):
            found[row, output] = shares[output] / whole - (1.0 if labels[row] == output else 0.0)


@compiled
def differences(found: Any, labels: Any) -> None:
    """Turn scores (rows, 1) into derivatives of half the squared difference."""
    for row in range(len(labels)):
        found[row, 0] -= labels[row]


@compiled
def weigh(found: Any, labels: Any, weights: Any) -> None:
    """Multiply derivatives by the weight of the class that an example has: (classes,), at most 1."""
    for row in range(len(labels)):
        own = weights[int(labels[row])] if labels[row] == labels[row] else 0.0
        for output in range(found.shape[1]):
            found[row, output] *= own


@compiled
def clamp(found: Any, most: float) -> None:
    """Keep derivatives within `most` of zero; what is no number becomes zero."""
    for row in range(found.shape[0]):
        for output in range(found.shape[1]):
            number = found[row, output]
            found[row, output] = min(max(number, -most), most) if number == number else 0.0


@compiled
def add_units(
    residuals: Any, codes: Any, scaled: Any, starts: Any, products: Any, product_starts: Any, bounds: Any,
    byte_of: Any, columns_of: Any, scaled_columns: Any, lines: Any,
    clip: float, rounding: float, error: float, least: float, most_factor: float, inverse_step: float,
    sums: Any, scaled_sums: Any, totals: Any,
) -> None:  # fmt: skip
    """Turn the derivatives of units into whole numbers, one for each row and output, and add these up by code.

    Args:
        residuals: (rows, outputs), at most as large as `clamp` leaves them.
        codes, scaled, starts, products, product_starts, bounds: of a chunk, see `examples.coded.CodedChunk`.
        byte_of, columns_of, scaled_columns: of the layout.
        lines: (width, width), the whitening matrix, which multiplies rows.
        clip: the norm, with its margin.
        rounding: by how much rounding a row's number lengthens the unit's vector, over `bounds`.
        error: of a squared length, over the square of `bounds` times the sum of residuals; `least`: over that of residuals.
        most_factor: the largest factor. inverse_step: a power of two, whole numbers of 1.
        sums: (bytes, 256, outputs); scaled_sums: (scaled values, outputs); totals: (outputs,): added to.
    """
    outputs, size, values = residuals.shape[1], codes.shape[1], scaled.shape[1]
    width = lines.shape[1]
    gradient, whitened, flat = np.empty(width + 1), np.empty(width), sums.reshape(-1)
    for unit in range(len(starts) - 1):
        begin, end = starts[unit], starts[unit + 1]
        rows = end - begin
        if rows > MOST_ROWS:
            continue
        square = 0.0
        for output in range(outputs):
            spread = 0.0
            for row in range(begin, end):
                spread += abs(residuals[row, output])
            part = 0.0
            if product_starts[unit + 1] > product_starts[unit]:
                at = product_starts[unit]
                for row in range(rows):
                    line = 0.0
                    for other in range(row + 1):
                        line += products[at + other] * residuals[begin + other, output]
                    at += row + 1
                    part += line * residuals[begin + row, output]
            else:
                gradient[:] = 0.0
                for row in range(begin, end):
                    own = residuals[row, output]
                    gradient[0] += own
                    for piece in range(len(byte_of)):
                        gradient[columns_of[piece, codes[row, byte_of[piece]]]] += own
                    for place in range(values):
                        gradient[scaled_columns[place]] += own * (scaled[row, place] * 2.0**-16)
                whitened[:] = 0.0
                for column in range(width):
                    own = gradient[column]
                    if own != 0.0:
                        for place in range(width):
                            whitened[place] += own * lines[column, place]
                for place in range(width):
                    part += whitened[place] * whitened[place]
            reach = bounds[unit] * spread
            square += max(part, 0.0) + error * (reach * reach) + least * (spread * spread)
        left = clip - rounding * rows * bounds[unit]
        if not left > 0.0:
            continue
        factor = most_factor
        if square > 0.0:
            factor = min(factor, left / math.sqrt(square))
        factor *= inverse_step
        for row in range(begin, end):
            for output in range(outputs):
                whole = np.int64(np.rint(factor * residuals[row, output]))
                totals[output] += whole
                place = output
                for byte in range(size):
                    flat[place + outputs * codes[row, byte]] += whole
                    place += outputs * CODES
                for value in range(values):
                    scaled_sums[value, output] += whole * scaled[row, value]


@compiled
def multiply(
    codes: Any, scaled: Any, starts: Any, product_starts: Any, byte_of: Any, columns_of: Any, scaled_columns: Any,
    squares: Any, lengths: Any, products: Any, bounds: Any,
) -> None:  # fmt: skip
    """The products of a unit's whitened rows with each other, those off the diagonal doubled, and a bound on their length.

    Args:
        codes, scaled, starts, product_starts: of a chunk.
        byte_of, columns_of, scaled_columns: of the layout.
        squares: (width + 1, width + 1), the products of the whitened columns; the last are zero.
        lengths: (width + 1,), of the whitened columns, rounded up; the last is zero.
        products: row by row, up to the diagonal: written for units that have places there.
        bounds: (units,): written, at least the length of each whitened row.
    """
    pieces, values = len(byte_of), scaled.shape[1]
    most = 1
    for unit in range(len(starts) - 1):
        if product_starts[unit + 1] > product_starts[unit]:
            most = max(most, starts[unit + 1] - starts[unit])
    line, columns = np.empty(len(lengths)), np.empty((most, pieces), np.int64)
    for unit in range(len(starts) - 1):
        begin, end = starts[unit], starts[unit + 1]
        kept = product_starts[unit + 1] > product_starts[unit]
        at, longest = product_starts[unit], 0.0
        for row in range(begin, end):
            own = columns[row - begin if kept else 0]
            spread = lengths[0]
            line[:] = squares[0]
            for piece in range(pieces):
                own[piece] = columns_of[piece, codes[row, byte_of[piece]]]
                spread += lengths[own[piece]]
            quads = pieces - pieces % 4
            for piece in range(0, quads, 4):  # in the order of the columns, as one by one
                first, second = squares[own[piece]], squares[own[piece + 1]]
                third, fourth = squares[own[piece + 2]], squares[own[piece + 3]]
                for place in range(len(line)):
                    line[place] = (((line[place] + first[place]) + second[place]) + third[place]) + fourth[place]
            for piece in range(quads, pieces):
                first = squares[own[piece]]
                for place in range(len(line)):
                    line[place] += first[place]
            for place in range(values):
                part = scaled[row, place] * 2.0**-16
                spread += lengths[scaled_columns[place]] * part
                line += squares[scaled_columns[place]] * part
            for other in range(begin if kept else row, row + 1):
                theirs = columns[other - begin if kept else 0]
                product = line[0]
                for piece in range(pieces):
                    product += line[theirs[piece]]
                for place in range(values):
                    product += line[scaled_columns[place]] * (scaled[other, place] * 2.0**-16)
                if kept:
                    products[at] = np.float32(product if other == row else 2.0 * product)
                    at += 1
                if other == row:
                    longest = max(longest, max(product, 0.0) + WIDER * (spread * spread))
        bounds[unit] = np.float32(math.sqrt(longest) * (1.0 + 2.0**-20))


@compiled
def add_moments(
    codes: Any, scaled: Any, starts: Any, byte_of: Any, columns_of: Any, scaled_columns: Any, weight: int,
    both: Any, mixed: Any, high: Any, low: Any,
) -> None:  # fmt: skip
    """Add the products of all pairs of columns of each row, with a whole weight: `weight` over the unit's rows, cut off.

    Args:
        codes, scaled, starts: of a chunk.
        byte_of, columns_of, scaled_columns: of the layout.
        weight: of a unit, at most 2**30.
        both: (width + 1, width + 1): of two columns of zeros and ones, from the diagonal up: added to.
        mixed: (scaled values, width + 1): of a scaled value and such a column, in steps: added to.
        high, low: (scaled values, scaled values): of two scaled values, in squares of steps, by halves: added to.
    """
    pieces, values = len(byte_of), scaled.shape[1]
    columns = np.zeros(pieces + 1, np.int64)
    for unit in range(len(starts) - 1):
        begin, end = starts[unit], starts[unit + 1]
        own = weight // (end - begin)
        for row in range(begin, end):
            for piece in range(pieces):
                columns[piece + 1] = columns_of[piece, codes[row, byte_of[piece]]]
            for place in range(pieces + 1):
                line = both[columns[place]]
                for other in range(place, pieces + 1):
                    line[columns[other]] += own
            for place in range(values):
                part = own * scaled[row, place]
                for other in range(pieces + 1):
                    mixed[place, columns[other]] += part
                for other in range(place, values):
                    product = part * scaled[row, other]
                    high[place, other] += product >> 32
                    low[place, other] += product & LOW_HALF
