"""Second moments of coded examples: whole numbers that count which columns are 1 together.

In: coded examples. Out: the sum over units of the mean of x x' over the unit's examples, a little shorter. Holds: a row
of a unit with n examples weighs floor(2**30 / n), so one unit changes the matrix by at most 2**30 times the largest
squared norm of a row in Frobenius norm, whatever its rows are; all sums are exact, in any order
(docs/proofs/training.md, 3). Not covered: adding the noise (`training.gaussian_noise`).
"""

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.training import threads
from dp_pipelines.training.examples.coded import CodedChunk
from dp_pipelines.training.examples.store import FEATURE_BITS
from dp_pipelines.training.features.moments import HasCodedChunks
from dp_pipelines.training.kernels import coded_loops

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

WEIGHT_BITS = 30
"""What the weights of a unit's rows add up to, at most: two to this power."""

UNITS = 2**13
"""Units of a chunk: 2**16 would still be added up in 64 bits."""

LOW_HALF = np.int64(2**32 - 1)


def sums_of(examples: HasCodedChunks) -> list[tuple[Whole, Whole]]:
    """The whole numbers, in halves: of two columns of zeros and ones, of one and a scaled value, of two scaled values."""
    layout, width = examples.layout, examples.width
    values = len(layout.scaled_columns)

    def of(chunk: CodedChunk) -> list[tuple[Whole, Whole]]:
        both, mixed = np.zeros((width + 1, width + 1), np.int64), np.zeros((values, width + 1), np.int64)
        high, low = np.zeros((values, values), np.int64), np.zeros((values, values), np.int64)
        coded_loops.add_moments(
            chunk.codes, chunk.scaled, chunk.starts, layout.byte_of, layout.columns_of, layout.scaled_columns,
            2**WEIGHT_BITS, both, mixed, high, low,
        )  # fmt: skip
        return [(both >> 32, both & LOW_HALF), (mixed >> 32, mixed & LOW_HALF), (high, low)]

    shapes = ((width + 1, width + 1), (values, width + 1), (values, values))
    total = [(np.zeros(shape, np.int64), np.zeros(shape, np.int64)) for shape in shapes]
    for found in threads.in_order(of, examples.chunks(UNITS)):
        for own, more in zip(total, found, strict=True):
            for mine, theirs in zip(own, more, strict=True):
                mine += theirs
            high, low = own
            high += low >> 32
            low &= LOW_HALF
    return total


def matrix_of(examples: HasCodedChunks) -> Floats:
    """The sum over units of the mean of x x' over the unit's examples, from the diagonal up: (width, width).

    Args:
        examples: of fewer than `exact_sums.MOST_UNITS` units.
    """
    layout, width = examples.layout, examples.width
    both, mixed, scaled = (
        _floats(*own) * 2.0 ** -(WEIGHT_BITS + FEATURE_BITS * steps) for steps, own in enumerate(sums_of(examples))
    )
    matrix = both[:width, :width]
    for place, column in enumerate(layout.scaled_columns):
        for other in range(width):
            matrix[min(column, other), max(column, other)] += mixed[place, other]
        for above in range(place, len(layout.scaled_columns)):
            matrix[column, layout.scaled_columns[above]] = scaled[place, above]
    return matrix


def _floats(high: Whole, low: Whole) -> Floats:
    """Two halves as one number, rounded once: the high one is below 2**53 and the low one below 2**32, and so both are exact."""
    result: Floats = high.astype(np.float64) * 2.0**32 + low
    return result
